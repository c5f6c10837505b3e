//! Texts inside our own JSON and headers: escaped, bounded, clean. Nothing else here.

use crate::limits::ERROR_TEXT_BYTES_MAX;

/// The inside of a JSON string.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '"' => escaped.push_str("\\\""),
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            control if control.is_ascii_control() => {
                escaped.push_str(&format!("\\u{:04x}", control as u32));
            }
            plain => escaped.push(plain),
        }
    }
    escaped
}

/// At most [`ERROR_TEXT_BYTES_MAX`] bytes of a text, cut between characters.
pub(super) fn shorten(text: &str) -> &str {
    let mut end = text.len().min(ERROR_TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// An id that can stand in a header and in JSON as it is.
pub(super) fn clean_id(id: &str) -> String {
    id.chars().filter(|&c| c.is_ascii_graphic() && c != '"' && c != '\\').take(128).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escaped_text_is_a_json_string() {
        for text in ["plain", "a\"b\\c\n\t\u{1}\u{7f}é", ""] {
            let json = format!("\"{}\"", escape(text));
            assert_eq!(serde_json::from_str::<String>(&json).expect("JSON"), text);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters() {
        let long = "é".repeat(ERROR_TEXT_BYTES_MAX);
        assert_eq!(shorten(&long).len(), ERROR_TEXT_BYTES_MAX);
        let odd = format!("x{long}");
        assert_eq!(shorten(&odd).len(), ERROR_TEXT_BYTES_MAX - 1);
        assert_eq!(shorten("short"), "short");
    }

    #[test]
    fn an_id_cannot_end_a_header() {
        assert_eq!(clean_id("req_1\r\nx: y\"\\é"), "req_1x:y");
    }
}
