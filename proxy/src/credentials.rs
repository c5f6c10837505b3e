//! Which callers' credentials engines have taken lately: a key that one engine refuses and another took a minute ago is
//! that engine's mistake, not the caller's. All shards share it; it holds keyed hashes, never a credential, forgets the
//! older where two fall on one place, and lets nobody in.

use std::sync::atomic::{AtomicU64, Ordering};

use index::{FingerprintKey, Millis, conversation_key};

use crate::limits::{
    CREDENTIAL_KNOWN_MS, CREDENTIAL_NOTED_MS, CREDENTIALS_KEPT, REFUSALS_DOUBTED_MS,
};

/// A credential's keyed hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CredentialKey(u64);

impl CredentialKey {
    /// Of what a caller identifies itself with, which may be nothing: then everybody who does is one caller.
    pub fn of(key: FingerprintKey, credential: &[u8]) -> CredentialKey {
        CredentialKey(conversation_key(key, b"credential", credential).0)
    }

    fn place(self) -> usize {
        usize::try_from(self.0 % CREDENTIALS_KEPT as u64).unwrap_or(0)
    }

    /// What tells it from others of its place.
    fn mark(self) -> u64 {
        self.0 & !SECONDS_MASK
    }
}

/// A place's low bits are the second in which its credential was taken, counted from 1: half a year, then it begins anew.
const SECONDS_MASK: u64 = (1 << 24) - 1;

fn second(now: Millis) -> u64 {
    (now.0 / 1000 + 1) & SECONDS_MASK
}

/// The credentials taken lately.
#[derive(Debug)]
pub struct Credentials {
    taken: Box<[AtomicU64]>,
}

impl Default for Credentials {
    fn default() -> Credentials {
        Credentials { taken: (0..CREDENTIALS_KEPT).map(|_| AtomicU64::new(0)).collect() }
    }
}

impl Credentials {
    /// An engine served a request with this one. Written only now and then: the key of a whole team is asked about by all
    /// shards, and to write it with each request would have them wait for one another.
    pub fn note_taken(&self, credential: CredentialKey, now: Millis) {
        if self.age_ms(credential, now).is_some_and(|age| age < CREDENTIAL_NOTED_MS) {
            return;
        }
        if let Some(place) = self.taken.get(credential.place()) {
            // Relaxed: the word is all there is to know, and it is advice.
            place.store(credential.mark() | second(now), Ordering::Relaxed);
        }
    }

    /// A backend refused this one. Whether that is likely the backend's mistake: somebody took it lately, or the backend
    /// refused another lately that somebody had taken.
    pub fn is_doubtful(&self, credential: CredentialKey, refusals: &Refusals, now: Millis) -> bool {
        if self.is_known(credential, now) {
            refusals.note_mistaken(now);
        }
        refusals.were_mistaken(now)
    }

    /// Whether some engine took it lately.
    fn is_known(&self, credential: CredentialKey, now: Millis) -> bool {
        self.age_ms(credential, now).is_some_and(|age| age < CREDENTIAL_KNOWN_MS)
    }

    fn age_ms(&self, credential: CredentialKey, now: Millis) -> Option<u64> {
        // Relaxed: pairs with nothing, as in `note_taken`.
        let word = self.taken.get(credential.place())?.load(Ordering::Relaxed);
        let seconds = second(now).wrapping_sub(word & SECONDS_MASK) & SECONDS_MASK;
        (word != 0 && word & !SECONDS_MASK == credential.mark()).then_some(seconds * 1000)
    }
}

/// What is known of one backend's refusals.
#[derive(Debug, Default)]
pub struct Refusals {
    /// When it last refused a key that another took, ms and one; 0: never.
    mistaken: AtomicU64,
}

impl Refusals {
    fn note_mistaken(&self, now: Millis) {
        // Relaxed: a moment that stands alone; of two writers either will do.
        self.mistaken.store(now.0 + 1, Ordering::Relaxed);
    }

    fn were_mistaken(&self, now: Millis) -> bool {
        // Relaxed: as above.
        let last = self.mistaken.load(Ordering::Relaxed);
        last != 0 && (now.0 + 1).saturating_sub(last) < REFUSALS_DOUBTED_MS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(credential: &str) -> CredentialKey {
        CredentialKey::of(FingerprintKey::new(7), credential.as_bytes())
    }

    #[test]
    fn a_credential_is_known_for_a_while_after_it_was_taken() {
        let credentials = Credentials::default();
        assert!(!credentials.is_known(key("Bearer a"), Millis(0)));
        credentials.note_taken(key("Bearer a"), Millis(5_000));
        assert!(credentials.is_known(key("Bearer a"), Millis(4_000 + CREDENTIAL_KNOWN_MS)));
        assert!(!credentials.is_known(key("Bearer a"), Millis(5_000 + CREDENTIAL_KNOWN_MS)));
        assert!(!credentials.is_known(key("Bearer b"), Millis(5_000)));
    }

    #[test]
    fn taken_again_and_again_it_stays_known() {
        let credentials = Credentials::default();
        let mut now = Millis(0);
        while now.0 < 3 * CREDENTIAL_KNOWN_MS {
            credentials.note_taken(key("Bearer a"), now);
            now.0 += CREDENTIAL_NOTED_MS / 3;
            assert!(credentials.is_known(key("Bearer a"), now));
        }
    }

    #[test]
    fn who_refuses_a_good_key_is_not_believed_of_a_strangers_for_a_while() {
        let (credentials, refusals) = (Credentials::default(), Refusals::default());
        let doubtful = |whose, at| credentials.is_doubtful(key(whose), &refusals, Millis(at));
        credentials.note_taken(key("good"), Millis(0));
        assert!(!doubtful("strange", 0));
        assert!(doubtful("good", 1));
        assert!(doubtful("strange", REFUSALS_DOUBTED_MS));
        assert!(!doubtful("strange", 1 + REFUSALS_DOUBTED_MS));
        assert!(!credentials.is_doubtful(key("strange"), &Refusals::default(), Millis(2)));
    }

    #[test]
    fn those_without_a_credential_are_one_caller_and_processes_know_them_by_keys_of_their_own() {
        let credentials = Credentials::default();
        credentials.note_taken(key(""), Millis(0));
        assert!(credentials.is_known(key(""), Millis(1)));
        assert!(!credentials.is_known(CredentialKey::of(FingerprintKey::new(8), b""), Millis(1)));
    }

    #[test]
    fn any_number_of_credentials_takes_the_same_memory() {
        let credentials = Credentials::default();
        for number in 0..10 * CREDENTIALS_KEPT {
            credentials.note_taken(key(&number.to_string()), Millis(0));
        }
        assert_eq!(credentials.taken.len(), CREDENTIALS_KEPT);
    }
}
