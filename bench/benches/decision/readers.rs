//! The lower bound's parts: a hash over all bytes, and one structural pass by each of several readers of JSON. What they
//! build is thrown away; none of them gives what routing needs (see ARCHITECTURE.md).

use xxhash_rust::xxh3::xxh3_64;

/// A pass over a body. The memory given is reused.
pub(crate) type Pass = fn(&[u8], &mut Vec<u8>) -> u64;

pub(crate) fn hash(body: &[u8], _: &mut Vec<u8>) -> u64 {
    xxh3_64(body)
}

/// Readers of JSON by name. The first alone is there without the feature `readers`.
pub(crate) const READERS: &[(&str, Pass)] = &[
    ("serde_json, ignoring", serde),
    #[cfg(feature = "readers")]
    ("sonic-rs, lazy", others::sonic),
    #[cfg(feature = "readers")]
    ("simd-json, tape", others::simd),
    #[cfg(feature = "readers")]
    ("jiter, skipping", others::jiter),
];

/// No reader: every quote and backslash is looked at and nothing else is.
pub(crate) fn quotes(body: &[u8], _: &mut Vec<u8>) -> u64 {
    memchr::memchr2_iter(b'"', b'\\', body).fold(0, |sum, at| sum ^ at as u64)
}

fn serde(body: &[u8], _: &mut Vec<u8>) -> u64 {
    u64::from(serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok())
}

#[cfg(feature = "readers")]
mod others {
    pub(super) fn sonic(body: &[u8], _: &mut Vec<u8>) -> u64 {
        let value = sonic_rs::from_slice::<sonic_rs::LazyValue<'_>>(body);
        value.map_or(0, |value| value.as_raw_str().len() as u64)
    }

    /// It writes into the body, so the copy is part of it.
    pub(super) fn simd(body: &[u8], copy: &mut Vec<u8>) -> u64 {
        copy.clear();
        copy.extend_from_slice(body);
        simd_json::to_tape(copy).map_or(0, |tape| tape.0.len() as u64)
    }

    pub(super) fn jiter(body: &[u8], _: &mut Vec<u8>) -> u64 {
        let mut reader = jiter::Jiter::new(body);
        u64::from(reader.next_skip().is_ok())
    }
}
