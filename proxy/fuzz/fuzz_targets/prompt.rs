//! Any bytes as a request body: reading ends in a prompt or an error, and a body that another reader accepts has the same
//! canonical prompt after that reader has written it again; mended in every way there is, it is still one and has the
//! same prompt.
#![no_main]

use libfuzzer_sys::fuzz_target;
use proxy::api::Api;
use proxy::edits::Edits;
use proxy::prompt::{Canon, PromptError, PromptErrorKind, Scratch, Wanted, read_and_mend, read_with};

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

const ALL: Wanted = Wanted {
    drop_billing_block: true,
    include_usage: true,
    max_tokens_cap: Some(100),
    id_slot: true,
};

/// The body with everything mended that can be.
fn mended(scratch: &mut Scratch, api: Api, body: &[u8]) -> Vec<u8> {
    let found = read_and_mend(scratch, api, body, &mut Kept::default(), &ALL);
    let (_, repairs) = found.expect("it was read before");
    let mut edits = Edits::default();
    edits.add_all(&repairs.always);
    edits.add_all(&repairs.usage);
    edits.add_all(&repairs.id_slot.edits(Some(3)));
    edits.pieces(&body.to_vec().into()).flatten().collect()
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
        Ok(kept) => {
            let sent = mended(&mut scratch, api, body);
            let again = serde_json::from_slice::<serde_json::Value>(&sent);
            assert!(again.is_ok(), "mended into what another reader refuses");
            assert_eq!(canonical(&mut scratch, api, &sent).as_ref(), Ok(&kept));
            assert_eq!(canonical(&mut scratch, api, &written), Ok(kept));
        }
        Err(error) => assert!(
            !matches!(error.kind, PromptErrorKind::Syntax(_)),
            "refused what another reader accepts: {error}"
        ),
    }
});
