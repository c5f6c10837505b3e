//! Splits Rust text into code, comments and string contents, each at its own place.
//!
//! Every layer has the length and the line ends of the text; what belongs to another layer is
//! blank there. So a rule about code is not fooled by a string, and a line number is the same in
//! all layers. This is a scanner of tokens, not a parser: it knows no grammar.

/// One text, three ways.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// Everything but comments and the contents of literals; quotes stay.
    pub code: String,
    /// Comments with their slashes.
    pub comments: String,
    /// String and character literals with their quotes.
    pub strings: String,
}

#[derive(Clone, Copy)]
enum Layer {
    Code,
    Comment,
    Literal,
}

impl Layers {
    /// Splits a Rust text.
    pub fn of(text: &str) -> Self {
        let mut scanner = Scanner::new(text.as_bytes());
        while scanner.at < scanner.text.len() {
            let (layer, end) = scanner.token();
            scanner.take(layer, end);
        }
        scanner.layers()
    }

    /// The code without items marked `#[cfg(test)]`: what a user runs.
    pub fn shipped(&self) -> String {
        let mut shipped = self.code.clone().into_bytes();
        let code = self.code.as_bytes();
        let mut from = 0;
        while let Some(start) = find(code, b"#[cfg(", from) {
            from = matching(code, start + 1).map_or(code.len(), |end| end + 1);
            if is_test_only(&self.code[start..from.min(code.len())]) {
                from = item_end(code, from);
                blank(&mut shipped[start..from]);
            }
        }
        text(shipped)
    }
}

struct Scanner<'t> {
    text: &'t [u8],
    at: usize,
    code: Vec<u8>,
    comments: Vec<u8>,
    strings: Vec<u8>,
}

impl<'t> Scanner<'t> {
    fn new(text: &'t [u8]) -> Self {
        let mut empty = text.to_vec();
        blank(&mut empty);
        Self { text, at: 0, code: empty.clone(), comments: empty.clone(), strings: empty }
    }

    /// The layer of the token that starts here, and where it ends.
    fn token(&self) -> (Layer, usize) {
        let rest = &self.text[self.at..];
        match rest {
            [b'/', b'/', ..] => (Layer::Comment, self.line_end()),
            [b'/', b'*', ..] => (Layer::Comment, self.block_comment_end()),
            [b'"', ..] => (Layer::Literal, self.quoted_end(self.at + 1, b'"')),
            [b'\'', ..] => self.quote(),
            [b'r' | b'b' | b'c', ..] if !self.inside_word() => match self.raw_end() {
                Some(end) => (Layer::Literal, end),
                None => (Layer::Code, self.at + 1),
            },
            _ => (Layer::Code, self.at + 1),
        }
    }

    fn inside_word(&self) -> bool {
        self.at > 0 && is_word(self.text[self.at - 1])
    }

    fn line_end(&self) -> usize {
        find(self.text, b"\n", self.at).unwrap_or(self.text.len())
    }

    /// Block comments nest.
    fn block_comment_end(&self) -> usize {
        let mut depth = 0;
        let mut at = self.at;
        while at < self.text.len() {
            match &self.text[at..] {
                [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
                [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
                _ => at += 1,
            }
            if depth == 0 {
                return at;
            }
        }
        self.text.len()
    }

    fn quoted_end(&self, mut at: usize, quote: u8) -> usize {
        while at < self.text.len() {
            match self.text[at] {
                b'\\' => at += 2,
                byte if byte == quote => return at + 1,
                _ => at += 1,
            }
        }
        self.text.len()
    }

    /// A character literal, or the tick of a lifetime.
    fn quote(&self) -> (Layer, usize) {
        let next = self.at + 1;
        let Some(first) = self.text.get(next) else { return (Layer::Code, next) };
        if *first == b'\\' {
            return (Layer::Literal, self.quoted_end(next, b'\''));
        }
        let width = match first {
            0xF0.. => 4,
            0xE0.. => 3,
            0xC0.. => 2,
            _ => 1,
        };
        match self.text.get(next + width) {
            Some(b'\'') => (Layer::Literal, next + width + 1),
            _ => (Layer::Code, next),
        }
    }

    /// The end of `r"`, `r#"`, `b"`, `br"`, `c"` and `b'` literals; `None` if this is a word.
    fn raw_end(&self) -> Option<usize> {
        let rest = &self.text[self.at..];
        let prefix = rest.iter().take(2).take_while(|byte| b"rbc".contains(byte)).count();
        let raw = rest[..prefix].contains(&b'r');
        let hashes = rest[prefix..].iter().take_while(|byte| raw && **byte == b'#').count();
        let body = self.at + prefix + hashes + 1;
        match rest.get(prefix + hashes)? {
            b'"' if raw => {
                let close = [b"\"".as_slice(), "#".repeat(hashes).as_bytes()].concat();
                Some(find(self.text, &close, body).map_or(self.text.len(), |at| at + close.len()))
            }
            b'"' => Some(self.quoted_end(body, b'"')),
            b'\'' if rest[0] == b'b' && prefix == 1 => Some(self.quoted_end(body, b'\'')),
            _ => None,
        }
    }

    fn take(&mut self, layer: Layer, end: usize) {
        let end = end.min(self.text.len());
        let range = self.at..end;
        match layer {
            Layer::Code => self.code[range.clone()].copy_from_slice(&self.text[range]),
            Layer::Comment => self.comments[range.clone()].copy_from_slice(&self.text[range]),
            Layer::Literal => {
                self.strings[range.clone()].copy_from_slice(&self.text[range.clone()]);
                keep_quotes(&mut self.code[range.clone()], &self.text[range]);
            }
        }
        self.at = end;
    }

    fn layers(self) -> Layers {
        Layers { code: text(self.code), comments: text(self.comments), strings: text(self.strings) }
    }
}

/// Leaves the first and last quote of a literal in the code, so that it is seen to be there.
fn keep_quotes(code: &mut [u8], literal: &[u8]) {
    let is_quote = |byte: &u8| *byte == b'"' || *byte == b'\'';
    let ends = [literal.iter().position(is_quote), literal.iter().rposition(is_quote)];
    for at in ends.into_iter().flatten() {
        code[at] = literal[at];
    }
}

/// Whole characters are copied to one layer each, so every layer is valid.
fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("layers split between characters")
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte != b'\n') {
        *byte = b' ';
    }
}

pub(crate) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn find(text: &[u8], what: &[u8], from: usize) -> Option<usize> {
    let found = text.get(from..)?.windows(what.len()).position(|window| window == what)?;
    Some(from + found)
}

/// The place of the bracket that closes the one at `open`.
pub(crate) fn matching(code: &[u8], open: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in code.iter().enumerate().skip(open) {
        match byte {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Whether a `#[cfg(...)]` holds in test builds only, loom's and the fuzzer's among them.
fn is_test_only(attribute: &str) -> bool {
    let words = attribute.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut names = words.filter(|word| !["", "cfg", "all", "any"].contains(word));
    let test = |name: &str| ["test", "loom", "fuzzing"].contains(&name);
    match (attribute.contains("not("), attribute.contains("any(")) {
        (true, _) => false,
        (false, true) => names.all(test),
        (false, false) => names.any(test),
    }
}

/// Where the item after an attribute ends: at its closing brace or semicolon. A field or a match
/// arm, which begins with no keyword, ends at its comma.
fn item_end(code: &[u8], from: usize) -> usize {
    let mut at = from;
    let comma_ends = !starts_with_keyword(code, from);
    while at < code.len() {
        match code[at] {
            b'(' | b'[' => at = matching(code, at).unwrap_or(code.len()),
            b'{' => return matching(code, at).map_or(code.len(), |end| end + 1),
            b';' => return at + 1,
            b',' if comma_ends => return at + 1,
            b'}' => return at,
            _ => {}
        }
        at += 1;
    }
    code.len()
}

fn starts_with_keyword(code: &[u8], from: usize) -> bool {
    const KEYWORDS: [&[u8]; 15] = [
        b"pub",
        b"fn",
        b"mod",
        b"use",
        b"impl",
        b"struct",
        b"enum",
        b"trait",
        b"type",
        b"const",
        b"static",
        b"async",
        b"unsafe",
        b"extern",
        b"macro_rules",
    ];
    let rest = code.get(from..).unwrap_or_default().trim_ascii_start();
    if rest.starts_with(b"#[") {
        let end = matching(rest, 1).map_or(rest.len(), |end| end + 1);
        return starts_with_keyword(rest, end);
    }
    let length = rest.iter().take_while(|byte| is_word(**byte)).count();
    KEYWORDS.contains(&&rest[..length])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Layers::of(text).code
    }

    #[test]
    fn comments_and_strings_are_blank_in_the_code_layer() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(code("f(\"a // b\")"), "f(\"      \")");
        assert_eq!(code("f(\"a\\\"b\", c)"), "f(\"    \", c)");
        assert_eq!(code("r#\"a\"b\"#; c"), "  \"   \" ; c");
        assert_eq!(code("b\"x\"; br\"y\"; z"), " \" \";   \" \"; z");
    }

    #[test]
    fn characters_are_literals_and_lifetimes_are_code() {
        assert_eq!(code("'{'; '\\''; b'}'; 'ü'"), "' '; '  ';  ' '; '  '");
        assert_eq!(code("fn f<'a>(x: &'a str)"), "fn f<'a>(x: &'a str)");
        assert_eq!(code("'outer: loop"), "'outer: loop");
    }

    #[test]
    fn a_word_that_ends_in_a_literal_prefix_is_a_word() {
        assert_eq!(code("var(\"x\"); crab; r#fn"), "var(\" \"); crab; r#fn");
    }

    #[test]
    fn layers_keep_length_and_lines() {
        let text = "//! ä\nfn f() { \"ö\n\"; } // ü\n";
        let layers = Layers::of(text);
        for layer in [&layers.code, &layers.comments, &layers.strings] {
            assert_eq!((layer.len(), layer.lines().count()), (text.len(), text.lines().count()));
        }
        assert!(layers.comments.contains("//! ä") && layers.strings.contains("\"ö\n\""));
    }

    #[test]
    fn test_items_are_not_shipped() {
        let shipped = |text: &str| Layers::of(text).shipped().trim().to_owned();
        assert_eq!(
            shipped("#[cfg(test)]\nmod tests { fn a() { b(\"}\") } }\nfn c() {}"),
            "fn c() {}"
        );
        assert_eq!(shipped("#[cfg(test)]\n#[path = \"x\"]\nmod x;\nfn c() {}"), "fn c() {}");
        assert_eq!(shipped("#[cfg(all(test, unix))] fn a<A, B>() {} c"), "c");
        assert_eq!(shipped("#[cfg(loom)] mod a { fn b() {} }"), "");
        assert_eq!(shipped("#[cfg(any(test, fuzzing))] fn a() {}"), "");
        assert!(shipped("#[cfg(not(test))] fn a() {}").contains("fn a"));
        assert!(shipped("#[cfg(any(test, unix))] fn a() {}").contains("fn a"));
        assert_eq!(shipped("S { #[cfg(test)] a: T, b: U }").replace(' ', ""), "S{b:U}");
    }
}
