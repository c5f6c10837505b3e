//! The policies by name. It builds them and knows nothing of how they score.

mod balance;
mod cost;
mod ewma;
mod hash;
mod prefix;
mod session;

use crate::Policy;

/// A policy and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PolicyKind {
    /// One after the other.
    RoundRobin,
    /// Uniformly at random.
    Random,
    /// Fewest requests in flight.
    LeastRequests,
    /// The less busy of two taken at random.
    PowerOfTwo,
    /// Least moving mean of the time to first token, times the requests there.
    Ewma,
    /// Consistent hashing of the conversation, or of the prompt's head, with bounded load.
    ConsistentHash,
    /// The conversation's home, else fewest requests in flight.
    Session,
    /// `w_hit * hit - w_queue * queue - w_pressure * pressure`, highest first; each of the three is between 0 and 1.
    Prefix {
        /// Weight of the share of the prompt held.
        w_hit: f64,
        /// Weight of requests in flight or queued, against the most allowed.
        w_queue: f64,
        /// Weight of the KV cache in use.
        w_pressure: f64,
    },
    /// Expected prefill work, the default; see the policy's own documentation for the formula.
    Cost {
        /// Most that one of this request's own uncached tokens is charged for the queue it joins (1 at least). For the
        /// request's own length up to four times that is added; an idle fleet charges 1.
        recompute_max: f64,
        /// Tokens charged per request in flight.
        request_tokens: f64,
        /// Tokens charged a new conversation per conversation held.
        conversation_tokens: f64,
    },
}

impl PolicyKind {
    /// The default policy with its measured parameters: `cost`.
    pub const DEFAULT: PolicyKind =
        PolicyKind::Cost { recompute_max: 8.0, request_tokens: 100.0, conversation_tokens: 16.0 };

    /// Every policy with its default parameters, in the order they are documented.
    pub const ALL: [PolicyKind; 9] = [
        PolicyKind::RoundRobin,
        PolicyKind::Random,
        PolicyKind::LeastRequests,
        PolicyKind::PowerOfTwo,
        PolicyKind::Ewma,
        PolicyKind::ConsistentHash,
        PolicyKind::Session,
        PolicyKind::Prefix { w_hit: 0.4, w_queue: 0.3, w_pressure: 0.3 },
        PolicyKind::DEFAULT,
    ];

    /// The policy of this name, with its default parameters.
    pub fn parse(name: &str) -> Option<PolicyKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The name it is configured and reported by.
    pub fn name(&self) -> &'static str {
        match self {
            PolicyKind::RoundRobin => "round_robin",
            PolicyKind::Random => "random",
            PolicyKind::LeastRequests => "least_requests",
            PolicyKind::PowerOfTwo => "power_of_two",
            PolicyKind::Ewma => "ewma",
            PolicyKind::ConsistentHash => "consistent_hash",
            PolicyKind::Session => "session",
            PolicyKind::Prefix { .. } => "prefix",
            PolicyKind::Cost { .. } => "cost",
        }
    }

    /// Makes the policy.
    pub fn build(&self) -> Box<dyn Policy> {
        match *self {
            PolicyKind::RoundRobin => Box::new(balance::RoundRobin::new()),
            PolicyKind::Random => Box::new(balance::Random),
            PolicyKind::LeastRequests => Box::new(balance::LeastRequests),
            PolicyKind::PowerOfTwo => Box::new(balance::PowerOfTwo::new()),
            PolicyKind::Ewma => Box::new(ewma::Ewma::default()),
            PolicyKind::ConsistentHash => Box::new(hash::ConsistentHash::default()),
            PolicyKind::Session => Box::new(session::Session),
            PolicyKind::Prefix { w_hit, w_queue, w_pressure } => {
                Box::new(prefix::Prefix::new(w_hit, w_queue, w_pressure))
            }
            PolicyKind::Cost { recompute_max, request_tokens, conversation_tokens } => {
                Box::new(cost::Cost::new(recompute_max, request_tokens, conversation_tokens))
            }
        }
    }
}

impl Default for PolicyKind {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_is_found_by_the_name_it_reports() {
        for kind in PolicyKind::ALL {
            assert_eq!(PolicyKind::parse(kind.name()), Some(kind));
            assert_eq!(kind.build().name(), kind.name());
        }
        assert_eq!(PolicyKind::parse("sticky"), None);
    }
}
