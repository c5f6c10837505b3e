//! Generated text: made of words, of an exact length, the same for the same seed.
//!
//! It stands for prompts, so it has the characters that JSON must escape, but it means nothing.

use fastrand::Rng;

/// Short words of prose and code; about four letters each, as tokens of real text are.
const WORDS: [&str; 64] = [
    "the", "of", "and", "to", "in", "is", "for", "that", "with", "file", "line", "test", "value",
    "return", "when", "from", "this", "list", "name", "error", "should", "type", "call", "read",
    "write", "path", "build", "check", "first", "last", "before", "after", "each", "every", "none",
    "some", "step", "plan", "tool", "result", "change", "keep", "open", "close", "start", "stop",
    "table", "index", "queue", "branch", "merge", "commit", "server", "client", "stream", "token",
    "cache", "block", "prefix", "route", "model", "answer", "question", "note",
];

/// Appends exactly `bytes` bytes of ASCII text.
pub(crate) fn push_text(rng: &mut Rng, bytes: usize, out: &mut String) {
    let end = out.len() + bytes;
    out.reserve(bytes + 16);
    while out.len() < end {
        // One draw serves a whole word and its separator.
        let draw = rng.u32(..);
        out.push_str(WORDS[draw as usize % WORDS.len()]);
        out.push_str(match (draw >> 8) % 64 {
            0 => ".\n",
            1 => " \"",
            2 => "\", ",
            3..=5 => ", ",
            _ => " ",
        });
    }
    out.truncate(end);
}

/// `bytes` bytes of text, escaped for a JSON string but without its quotes.
pub(crate) fn escaped_text(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::new();
    push_text(rng, bytes, &mut text);
    escape(&text)
}

/// Escapes `text` for a JSON string (RFC 8259, 7), without the quotes around it.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 32);
    for character in text.chars() {
        match character {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control if control < ' ' => {
                out.push_str(&format!("\\u{:04x}", u32::from(control)));
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::seed::{self, Stream};
    use super::*;

    #[test]
    fn text_has_exactly_the_bytes_asked_for() {
        for bytes in [0, 1, 7, 100, 4096] {
            let mut text = String::from("x");
            push_text(&mut seed::rng(1, Stream::System, 0), bytes, &mut text);
            assert_eq!(text.len(), bytes + 1);
        }
    }

    #[test]
    fn the_same_seed_writes_the_same_text() {
        let text = |number| escaped_text(&mut seed::rng(1, Stream::System, number), 300);
        assert_eq!(text(1), text(1));
        assert_ne!(text(1), text(2));
    }

    #[test]
    fn escaping_agrees_with_a_json_library() {
        let hard = "a\"b\\c\nd\re\tf\u{1}g\u{1f}ż—\u{10348}/";
        let quoted = format!("\"{}\"", escape(hard));
        assert_eq!(serde_json::from_str::<String>(&quoted).expect("valid JSON"), hard);
    }
}
