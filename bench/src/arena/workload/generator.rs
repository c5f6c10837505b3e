//! Agent sessions out of documented parameters, for those who have no trace to hand out. The defaults are those of the
//! agentic code data set of AIPerf 1.0 (Apache-2.0, `1k_sessions_200k_ctx`): layers of shared prompt, groups chosen by
//! Zipf's law, log-normal growth, and two kinds of think time. It draws everything from one seed.

use super::BLOCK_TOKENS;
use super::growth::{SHARED, Sessions, Turn};
use crate::arena::mersenne::Mersenne;

/// A log-normal distribution, by its mean and median.
#[derive(Clone, Copy, Debug)]
pub struct LogNormal {
    /// Mean.
    pub mean: f64,
    /// Median.
    pub median: f64,
    /// Larger draws count as this.
    pub most: f64,
}

impl LogNormal {
    fn draw(&self, random: &mut Mersenne) -> f64 {
        // The mean of exp(m + s*z) is median * exp(s^2 / 2).
        let sigma = (2.0 * (self.mean / self.median).ln()).max(0.0).sqrt();
        (self.median * (sigma * random.normal()).exp()).min(self.most)
    }
}

/// What sessions look like.
#[derive(Clone, Copy, Debug)]
pub struct Parameters {
    /// Sessions made.
    pub sessions: usize,
    /// Tokens every session starts with.
    pub shared_tokens: u64,
    /// Groups of sessions, each with a layer of its own after that.
    pub groups: usize,
    /// Tokens of a group's layer.
    pub group_tokens: u64,
    /// Exponent of Zipf's law by which groups are chosen.
    pub zipf: f64,
    /// Tokens of a session's own first layer.
    pub session_tokens: LogNormal,
    /// Tokens a turn adds, the answer before it included.
    pub turn_tokens: LogNormal,
    /// Tokens of an answer.
    pub output_tokens: LogNormal,
    /// Share of turns an agent takes, the others a person does.
    pub agent_share: f64,
    /// An agent's think time, in seconds.
    pub agent_think_s: LogNormal,
    /// A person's.
    pub human_think_s: LogNormal,
    /// A session ends with this probability a turn at an empty prompt, and more the fuller it is.
    pub reset: f64,
    /// Tokens a prompt never exceeds.
    pub prompt_tokens_max: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        let log = |mean, median, most| LogNormal { mean, median, most };
        Self {
            sessions: 1000,
            shared_tokens: 32_000,
            groups: 100,
            group_tokens: 10_000,
            zipf: 0.6,
            session_tokens: log(15_000.0, 5_000.0, 50_000.0),
            turn_tokens: log(6_000.0, 4_000.0, 50_000.0),
            output_tokens: log(1_000.0, 800.0, 8_000.0),
            agent_share: 0.7,
            agent_think_s: log(5.0, 2.0, 300.0),
            human_think_s: log(30.0, 15.0, 300.0),
            reset: 0.05,
            prompt_tokens_max: 200_000,
        }
    }
}

/// Makes sessions.
pub fn sessions(parameters: &Parameters, seed: u32) -> Sessions {
    let mut random = Mersenne::new(seed);
    let weights: Vec<f64> =
        (1..=parameters.groups).map(|rank| (rank as f64).powf(-parameters.zipf)).collect();
    let all = (0..parameters.sessions).map(|_| {
        let group = weighted(&weights, &mut random);
        session(parameters, group, &mut random)
    });
    Sessions { sessions: all.collect() }
}

fn weighted(weights: &[f64], random: &mut Mersenne) -> u64 {
    let mut left = random.unit() * weights.iter().sum::<f64>();
    let chosen = weights.iter().position(|weight| {
        left -= weight;
        left < 0.0
    });
    chosen.unwrap_or_default() as u64
}

fn session(parameters: &Parameters, group: u64, random: &mut Mersenne) -> Vec<Turn> {
    let own = parameters.session_tokens.draw(random) as u64;
    let mut tokens = parameters.shared_tokens + parameters.group_tokens + own;
    let mut turns = Vec::new();
    loop {
        tokens = tokens.min(parameters.prompt_tokens_max);
        let think = if random.unit() < parameters.agent_share {
            parameters.agent_think_s
        } else {
            parameters.human_think_s
        };
        turns.push(Turn {
            prompt_tokens: tokens,
            output_tokens: parameters.output_tokens.draw(random).max(1.0) as u64,
            blocks: blocks(parameters, group, tokens),
            think_s: think.draw(random),
        });
        let full = tokens as f64 / parameters.prompt_tokens_max as f64;
        if full >= 1.0 || random.unit() < parameters.reset * (1.0 + full) {
            return turns;
        }
        tokens += parameters.turn_tokens.draw(random).max(1.0) as u64;
    }
}

/// Whole blocks of a prompt: the layer of all, the layer of the group, then the session's own.
fn blocks(parameters: &Parameters, group: u64, tokens: u64) -> Vec<u64> {
    let all = parameters.shared_tokens / BLOCK_TOKENS;
    let grouped = (parameters.shared_tokens + parameters.group_tokens) / BLOCK_TOKENS;
    let id = |place: u64| match place {
        _ if place < all => SHARED | place,
        _ if place < grouped => SHARED | (group + 1) << 32 | place,
        _ => place,
    };
    (0..tokens / BLOCK_TOKENS).map(id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_sessions_within_their_bounds() {
        let parameters = Parameters { sessions: 40, ..Parameters::default() };
        let (a, b) = (sessions(&parameters, 5), sessions(&parameters, 5));
        assert_eq!(format!("{a:?}"), format!("{b:?}"));
        let turns = || a.sessions.iter().flatten();
        assert!(turns().all(|turn| turn.prompt_tokens <= parameters.prompt_tokens_max));
        assert!(turns().all(|turn| turn.blocks.len() as u64 == turn.prompt_tokens / BLOCK_TOKENS));
        assert!(a.sessions.iter().all(|turns| turns.is_sorted_by_key(|turn| turn.blocks.len())));
        let starts: Vec<u64> = a.sessions.iter().map(|turns| turns[0].blocks[0]).collect();
        assert!(starts.iter().all(|id| *id == starts[0]), "all share the first layer");
    }
}
