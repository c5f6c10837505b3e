//! How many requests a workload may send, and their numbers.

use std::sync::{Mutex, PoisonError};

/// Numbers requests and conversations from 0, up to the limit on requests.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: Option<u64>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    requests: u64,
    conversations: u64,
}

impl Budget {
    pub(crate) fn new(limit: Option<u64>) -> Budget {
        Budget { limit, taken: Mutex::new(Taken::default()) }
    }

    /// Whether any limit on requests was set.
    pub(crate) fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// The number of the next request; `None` when the limit is reached.
    pub(crate) fn request(&self) -> Option<u64> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let number = taken.requests;
        if self.limit.is_some_and(|limit| number >= limit) {
            return None;
        }
        taken.requests += 1;
        Some(number)
    }

    /// The number of the next conversation.
    pub(crate) fn conversation(&self) -> u64 {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.conversations += 1;
        taken.conversations - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_numbered_up_to_the_limit() {
        let budget = Budget::new(Some(2));
        assert_eq!([(); 3].map(|()| budget.request()), [Some(0), Some(1), None]);
        assert_eq!(budget.conversation(), 0);
        assert_eq!(Budget::new(None).request(), Some(0));
    }
}
