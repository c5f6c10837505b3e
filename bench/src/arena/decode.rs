//! Decoding at a rate that changes with the batch and with prefill beside it: all running requests of an engine advance
//! together, so that one clock of tokens a request is enough. It looks at no real clock.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::time::Seconds;

/// Tokens two ends may be apart and still count as one moment.
const SAME: f64 = 1e-6;

/// The running requests of one engine.
#[derive(Debug, Default)]
pub struct Decoding {
    /// Tokens each running request would have got had it run from the start.
    served: f64,
    rate: f64,
    since_s: f64,
    /// By the value of `served` at which they end.
    ends: BinaryHeap<Reverse<(Seconds, usize)>>,
    /// Changes whenever the next end does.
    stamp: u64,
}

impl Decoding {
    /// Requests decoding.
    pub fn batch(&self) -> usize {
        self.ends.len()
    }

    /// Which plan an event belongs to; older ones are void.
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    /// All running requests are lost.
    pub fn stop(&mut self) {
        self.ends.clear();
        self.stamp += 1;
    }

    /// A request begins.
    pub fn join(&mut self, key: usize, tokens: u64, now_s: f64) {
        self.advance(now_s);
        self.ends.push(Reverse((Seconds(self.served + tokens as f64), key)));
    }

    /// The requests that have ended by now.
    pub fn ended(&mut self, now_s: f64) -> Vec<usize> {
        self.advance(now_s);
        let mut ended = Vec::new();
        while let Some(Reverse((end, key))) = self.ends.peek()
            && end.0 <= self.served + SAME
        {
            ended.push(*key);
            self.ends.pop();
        }
        ended
    }

    /// Goes on at this rate, in tokens a second. When the next request ends, if any runs.
    pub fn go_on(&mut self, rate: f64, now_s: f64) -> Option<f64> {
        self.advance(now_s);
        self.rate = rate;
        self.stamp += 1;
        let Reverse((end, _)) = self.ends.peek()?;
        Some(now_s + (end.0 - self.served).max(0.0) / rate)
    }

    fn advance(&mut self, now_s: f64) {
        self.served += self.rate * (now_s - self.since_s);
        self.since_s = now_s;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_ends_when_it_has_its_tokens_whatever_the_rate_was() {
        let mut decoding = Decoding::default();
        decoding.join(7, 100, 0.0);
        assert_eq!(decoding.go_on(10.0, 0.0), Some(10.0));
        // Half done after 5 s; at half the rate the rest takes 10 s.
        assert_eq!(decoding.go_on(5.0, 5.0), Some(15.0));
        decoding.join(8, 10, 14.0);
        assert_eq!(decoding.go_on(5.0, 14.0), Some(15.0));
        assert_eq!(decoding.ended(15.0), [7]);
        assert_eq!(decoding.go_on(5.0, 15.0), Some(16.0));
        assert_eq!(decoding.ended(16.0), [8]);
    }
}
