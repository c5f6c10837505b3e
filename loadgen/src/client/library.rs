//! Prompt parts that conversations share: system prompts by group, tool definitions.
//!
//! Written once and kept in JSON-escaped form, because every request carries them.

use std::fmt::Write;
use std::sync::OnceLock;

use fastrand::Rng;

use super::options::{Shape, Sizes};
use super::seed::{self, Stream};
use super::text::escaped_text;

/// Where Claude Code puts the project path: at this share of the system prompt's length
/// (character 2,790 of 5,970), so that two projects share little and one project shares all.
const PROJECT_AT: (usize, usize) = (2_790, 5_970);

/// Shared prompt parts of a workload.
#[derive(Debug)]
pub(crate) struct Library {
    seed: u64,
    shape: Shape,
    /// Bytes of a system prompt before escaping.
    system_bytes: usize,
    /// System prompts by group, escaped, written when first used.
    systems: Vec<OnceLock<String>>,
    /// The `tools` array as JSON, empty for a plain shape.
    pub(crate) tools: String,
    /// Cumulated popularity of the groups, ending at 1.
    popularity: Vec<f64>,
}

impl Library {
    pub(crate) fn new(seed: u64, shape: Shape, sizes: &Sizes) -> Library {
        // A Claude Code prompt is mostly tools: 6 kB of system text in 120 kB. Codex' instructions
        // and tools are about even.
        let (tool_count, tools_bytes) = match shape {
            Shape::Plain => (0, 0),
            Shape::ClaudeCode => (24, sizes.system_bytes / 20 * 19),
            Shape::Codex => (10, sizes.system_bytes / 2),
        };
        Library {
            seed,
            shape,
            system_bytes: sizes.system_bytes - tools_bytes,
            systems: (0..sizes.groups).map(|_| OnceLock::new()).collect(),
            tools: tools(seed, shape, tool_count, tools_bytes),
            popularity: zipf(sizes.groups, sizes.zipf_exponent),
        }
    }

    /// Draws a group by popularity.
    pub(crate) fn group(&self, rng: &mut Rng) -> usize {
        let draw = rng.f64();
        let group = self.popularity.partition_point(|&up_to| up_to <= draw);
        group.min(self.systems.len() - 1)
    }

    /// The system prompt of a group, escaped for a JSON string.
    pub(crate) fn system(&self, group: usize) -> &str {
        match self.systems.get(group) {
            Some(system) => system.get_or_init(|| self.write_system(group)),
            None => "",
        }
    }

    fn write_system(&self, group: usize) -> String {
        let mut own = seed::rng(self.seed, Stream::Project, group as u64);
        let bytes = self.system_bytes;
        match self.shape {
            Shape::Plain => escaped_text(&mut own, bytes),
            // One text for everybody: Codex puts the project into its first message.
            Shape::Codex => escaped_text(&mut seed::rng(self.seed, Stream::System, 0), bytes),
            Shape::ClaudeCode => {
                let project = format!("/home/dev/{}", seed::uuid(&mut own));
                let (before, of) = PROJECT_AT;
                let before = bytes * before / of;
                let after = bytes.saturating_sub(before + project.len());
                let mut common = seed::rng(self.seed, Stream::System, 0);
                let mut text = escaped_text(&mut common, before);
                text.push_str(&project);
                text.push_str(&escaped_text(&mut common, after));
                text
            }
        }
    }
}

fn zipf(groups: usize, exponent: f64) -> Vec<f64> {
    let weights: Vec<f64> = (1..=groups).map(|rank| (rank as f64).powf(-exponent)).collect();
    let sum: f64 = weights.iter().sum();
    let mut up_to = 0.0;
    weights
        .iter()
        .map(|weight| {
            up_to += weight / sum;
            up_to
        })
        .collect()
}

/// Tool definitions whose descriptions make up `bytes` in all.
fn tools(seed: u64, shape: Shape, count: usize, bytes: usize) -> String {
    let mut out = String::from("[");
    for number in 0..count {
        let mut rng = seed::rng(seed, Stream::Tools, number as u64);
        let description = escaped_text(&mut rng, (bytes / count).saturating_sub(200));
        let comma = if number == 0 { "" } else { "," };
        let schema = r#"{"type":"object","properties":{"path":{"type":"string"},"limit":{"type":"integer"}},"required":["path"]}"#;
        let _ = match shape {
            Shape::Codex => write!(
                out,
                r#"{comma}{{"type":"function","name":"tool_{number}","description":"{description}","strict":false,"parameters":{schema}}}"#
            ),
            _ => write!(
                out,
                r#"{comma}{{"name":"Tool{number}","description":"{description}","input_schema":{schema}}}"#
            ),
        };
    }
    out.push(']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common_prefix(a: &str, b: &str) -> usize {
        a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count()
    }

    #[test]
    fn popular_groups_are_drawn_more_often() {
        let sizes = Sizes { groups: 4, zipf_exponent: 1.0, ..Sizes::of(Shape::Plain) };
        let library = Library::new(1, Shape::Plain, &sizes);
        let mut rng = seed::rng(1, Stream::Conversation, 0);
        let mut counts = [0_u32; 4];
        (0..10_000).for_each(|_| counts[library.group(&mut rng)] += 1);
        // Harmonic weights 12:6:4:3 of 25.
        for (count, weight) in counts.iter().zip([12.0, 6.0, 4.0, 3.0]) {
            let expected = 10_000.0 * weight / 25.0;
            assert!((f64::from(*count) - expected).abs() < 300.0, "{counts:?}");
        }
    }

    #[test]
    fn two_projects_of_claude_code_share_the_system_prompt_up_to_the_path() {
        let library = Library::new(1, Shape::ClaudeCode, &Sizes::of(Shape::ClaudeCode));
        let (first, second) = (library.system(0), library.system(1));
        let shared = common_prefix(first, second);
        assert!(shared > first.len() * 4 / 10 && shared < first.len() / 2, "{shared}");
    }

    #[test]
    fn the_shared_part_of_a_claude_code_prompt_has_its_real_size() {
        let sizes = Sizes::of(Shape::ClaudeCode);
        let library = Library::new(1, Shape::ClaudeCode, &sizes);
        let bytes = library.tools.len() + library.system(0).len();
        assert!(bytes.abs_diff(sizes.system_bytes) < sizes.system_bytes / 8, "{bytes}");
        let tools: Vec<serde_json::Value> = serde_json::from_str(&library.tools).expect("JSON");
        assert_eq!(tools.len(), 24);
    }
}
