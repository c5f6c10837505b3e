//! Many measured times, and what is said of them: median, tail, worst. It keeps them all, so that no percentile is a guess.

/// Times of single operations, in nanoseconds.
#[derive(Clone, Debug, Default)]
pub struct Spread {
    ns: Vec<u64>,
    sorted: bool,
}

impl Spread {
    /// Room for `count` times, so that taking one allocates nothing.
    pub fn with_capacity(count: usize) -> Self {
        Self { ns: Vec::with_capacity(count), sorted: false }
    }

    /// Takes one time.
    pub fn take(&mut self, ns: u64) {
        self.ns.push(ns);
        self.sorted = false;
    }

    /// Takes all times of another.
    pub fn add(&mut self, other: Self) {
        self.ns.extend(other.ns);
        self.sorted = false;
    }

    /// The time that `permille` of a thousand do not exceed; 0 when none was taken.
    pub fn permille(&mut self, permille: usize) -> u64 {
        if !self.sorted {
            self.ns.sort_unstable();
            self.sorted = true;
        }
        let at = (self.ns.len() * permille / 1000).min(self.ns.len().saturating_sub(1));
        self.ns.get(at).copied().unwrap_or(0)
    }

    /// Median, p99 and the longest, in one text.
    pub fn text(&mut self) -> String {
        let [p50, p99, worst] = [500, 990, 1000].map(|permille| self.permille(permille));
        format!("p50 {p50} ns, p99 {p99} ns, longest {worst} ns")
    }

    /// The same as JSON.
    pub fn json(&mut self) -> serde_json::Value {
        let [p50, p99, longest] = [500, 990, 1000].map(|permille| self.permille(permille));
        serde_json::json!({ "p50_ns": p50, "p99_ns": p99, "longest_ns": longest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_what_was_taken_in_any_order() {
        let mut spread = Spread::default();
        (1..=1000).rev().for_each(|ns| spread.take(ns));
        assert_eq!([500, 990, 1000].map(|p| spread.permille(p)), [501, 991, 1000]);
        assert_eq!(Spread::default().permille(500), 0);
        let mut later = Spread::default();
        later.take(5_000);
        spread.add(later);
        assert_eq!(spread.permille(1000), 5_000);
    }
}
