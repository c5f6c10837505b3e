//! A canon that keeps what it is given, and a reader of bodies for tests.

use proxy::api::Api;
use proxy::prompt::{Canon, Prompt, read};

/// Keeps roots and canonical bytes apart.
#[derive(Debug, Default, PartialEq, Eq, Clone)]
pub(crate) struct Kept {
    pub(crate) roots: Vec<Vec<u8>>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) pushes: usize,
}

impl Canon for Kept {
    fn root(&mut self, part: &[u8]) {
        assert!(self.bytes.is_empty(), "a root after the first push");
        self.roots.push(part.to_vec());
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.pushes += 1;
    }
}

/// Reads a body that must be readable.
pub(crate) fn prompt(api: Api, body: &str) -> (Prompt<'_>, Kept) {
    let mut kept = Kept::default();
    let prompt =
        read(api, body.as_bytes(), &mut kept).unwrap_or_else(|error| panic!("{error} in {body}"));
    assert_eq!(prompt.canonical_bytes, kept.bytes.len() as u64);
    (prompt, kept)
}

/// The canonical prompt as text.
pub(crate) fn canonical(api: Api, body: &str) -> String {
    String::from_utf8(prompt(api, body).1.bytes)
        .expect("canonical prompts of UTF-8 bodies are UTF-8")
}

/// All bodies have one fingerprint.
pub(crate) fn assert_equal(api: Api, bodies: &[&str]) {
    let first = canonical(api, bodies[0]);
    assert!(!first.is_empty(), "nothing was read from {}", bodies[0]);
    for body in bodies {
        assert_eq!(canonical(api, body), first, "{body}");
    }
}

/// No two bodies have one fingerprint.
pub(crate) fn assert_different(api: Api, bodies: &[&str]) {
    let forms: Vec<_> = bodies.iter().map(|body| canonical(api, body)).collect();
    for (at, one) in forms.iter().enumerate() {
        for (other, form) in forms.iter().enumerate().skip(at + 1) {
            assert_ne!(one, form, "{} and {}", bodies[at], bodies[other]);
        }
    }
}

/// Each body's canonical prompt is a byte prefix of the next one's.
pub(crate) fn assert_grows(api: Api, bodies: &[&str]) {
    for pair in bodies.windows(2) {
        let (before, after) = (canonical(api, pair[0]), canonical(api, pair[1]));
        assert!(after.starts_with(&before), "{before}\nis no prefix of\n{after}");
        assert!(after.len() > before.len(), "nothing was added: {after}");
    }
}
