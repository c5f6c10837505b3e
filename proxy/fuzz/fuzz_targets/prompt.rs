//! Any bytes as a request body: reading ends in a prompt or an error, and a body that another reader accepts has the same
//! canonical prompt after that reader has written it again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::api::Api;
use proxy::prompt::{Canon, PromptError, PromptErrorKind, Scratch, read_with};

#[derive(Default, PartialEq, Debug)]
struct Kept {
    roots: Vec<Vec<u8>>,
    bytes: Vec<u8>,
}

impl Canon for Kept {
    fn root(&mut self, part: &[u8]) {
        assert!(self.bytes.is_empty(), "a root after the first push");
        self.roots.push(part.to_vec());
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }
}

fn canonical(scratch: &mut Scratch, api: Api, body: &[u8]) -> Result<Kept, PromptError> {
    let mut kept = Kept::default();
    let prompt = read_with(scratch, api, body, &mut kept)?;
    assert_eq!(prompt.canonical_bytes, kept.bytes.len() as u64);
    assert!(prompt.choices >= 1 && prompt.prompts >= 1);
    let _ = prompt.head_digest();
    Ok(kept)
}

fuzz_target!(|data: &[u8]| {
    let Some((&first, body)) = data.split_first() else { return };
    let api = Api::ALL[usize::from(first) % Api::COUNT];
    let mut scratch = Scratch::default();
    let outcome = canonical(&mut scratch, api, body);
    if let Err(error) = &outcome {
        assert!(error.at <= body.len());
    }
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(body) else { return };
    let written = serde_json::to_vec(&value).expect("what was read can be written");
    match outcome {
        Ok(kept) => assert_eq!(canonical(&mut scratch, api, &written), Ok(kept)),
        Err(error) => assert!(
            !matches!(error.kind, PromptErrorKind::Syntax(_)),
            "refused what another reader accepts: {error}"
        ),
    }
});
