//! Reads callgrind's profile format: what a function took, everything it called included.

use std::collections::HashMap;

/// Inclusive counts by function name. Of a function that calls itself they mean nothing; none counted here does.
pub(crate) fn inclusive(profile: &str) -> HashMap<String, u64> {
    let mut reader = Reader::default();
    profile.lines().for_each(|line| reader.line(line));
    reader.counts
}

#[derive(Default)]
struct Reader<'p> {
    /// A name is spelled out once and then stands for itself by its number.
    names: HashMap<&'p str, &'p str>,
    current: &'p str,
    counts: HashMap<String, u64>,
}

impl<'p> Reader<'p> {
    fn line(&mut self, line: &'p str) {
        if let Some(name) = line.strip_prefix("fn=") {
            self.current = self.name(name);
        } else if let Some(name) = line.strip_prefix("cfn=") {
            self.name(name);
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            // A position and a count; the line behind `calls=` has the callee's inclusive one.
            let count = line.split_ascii_whitespace().nth(1).and_then(|count| count.parse().ok());
            let sum = self.counts.entry(self.current.to_owned()).or_default();
            *sum += count.unwrap_or(0);
        }
    }

    fn name(&mut self, text: &'p str) -> &'p str {
        let (number, name) = text.split_once(' ').unwrap_or((text, ""));
        if !name.is_empty() {
            self.names.insert(number, name);
        }
        self.names.get(number).copied().unwrap_or_default()
    }
}
