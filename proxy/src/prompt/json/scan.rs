//! Builds the table of spans. One pass, an explicit stack, every loop advances: time is linear in the body, whatever it
//! holds. Never recurses, never panics.

use super::super::error::{PromptError, PromptErrorKind};
use super::ending::{Spelling, string_end};
use super::{Kind, Token};
use crate::limits::{JSON_DEPTH_MAX, JSON_VALUES_KEPT, JSON_VALUES_MAX};

/// A reusable table of tokens. Empty until [`Tape::parse`] succeeded.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    tokens: Vec<Token>,
}

impl Tape {
    /// The tokens of the last parsed text, the root first.
    pub(crate) fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// Reads one JSON text and nothing after it.
    pub(crate) fn parse(&mut self, body: &[u8]) -> Result<(), PromptError> {
        self.tokens.clear();
        self.tokens.shrink_to(JSON_VALUES_KEPT);
        if u32::try_from(body.len()).is_err() {
            return Err(PromptError::new(PromptErrorKind::TooLong, 0));
        }
        let mut scan = Scan { body, at: 0, tokens: &mut self.tokens, open: Open::default() };
        let outcome = scan.run().and_then(|()| scan.end());
        if outcome.is_err() {
            self.tokens.clear();
        }
        outcome
    }
}

/// The stack of open containers: for each its token, and whether it is an object.
struct Open {
    depth: usize,
    containers: [u32; JSON_DEPTH_MAX],
}

impl Default for Open {
    fn default() -> Open {
        Open { depth: 0, containers: [0; JSON_DEPTH_MAX] }
    }
}

impl Open {
    fn push(&mut self, token: u32) -> Option<()> {
        *self.containers.get_mut(self.depth)? = token;
        self.depth += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<u32> {
        self.depth = self.depth.checked_sub(1)?;
        self.top_at(self.depth)
    }

    fn top(&self) -> Option<u32> {
        self.depth.checked_sub(1).and_then(|at| self.top_at(at))
    }

    fn top_at(&self, at: usize) -> Option<u32> {
        self.containers.get(at).copied()
    }
}

struct Scan<'b, 't> {
    body: &'b [u8],
    at: usize,
    tokens: &'t mut Vec<Token>,
    open: Open,
}

/// What the grammar allows next.
#[derive(Clone, Copy)]
enum Want {
    /// A value; after an opening bracket also its closing one.
    Value { or_close: bool },
    /// A key; after an opening brace also its closing one.
    Key { or_close: bool },
    /// A comma or the end of the enclosing container.
    Comma,
}

impl Scan<'_, '_> {
    fn run(&mut self) -> Result<(), PromptError> {
        if self.body.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        let mut want = Want::Value { or_close: false };
        loop {
            want = match want {
                Want::Value { or_close } => self.value(or_close)?,
                Want::Key { or_close } => self.key(or_close)?,
                Want::Comma if self.open.depth == 0 => return Ok(()),
                Want::Comma => self.comma()?,
            };
        }
    }

    fn end(&mut self) -> Result<(), PromptError> {
        match self.skip_space() {
            None => Ok(()),
            Some(_) => Err(self.expected("the end")),
        }
    }

    fn value(&mut self, or_close: bool) -> Result<Want, PromptError> {
        let Some(byte) = self.skip_space() else { return Err(self.expected("a value")) };
        match byte {
            b'"' => self.text().map(|()| Want::Comma),
            b'{' => self.container(Kind::Object).map(|()| Want::Key { or_close: true }),
            b'[' => self.array(),
            b']' if or_close => self.close(Kind::Array),
            b'-' | b'0'..=b'9' | b'I' | b'N' => self.number(),
            b't' => self.literal(b"true", Kind::True),
            b'f' => self.literal(b"false", Kind::False),
            b'n' => self.literal(b"null", Kind::Null),
            _ => Err(self.expected("a value")),
        }
    }

    fn key(&mut self, or_close: bool) -> Result<Want, PromptError> {
        match self.skip_space() {
            Some(b'"') => self.text()?,
            Some(b'}') if or_close => return self.close(Kind::Object),
            _ => return Err(self.expected("a key")),
        }
        match self.skip_space() {
            Some(b':') => self.at += 1,
            _ => return Err(self.expected("a colon")),
        }
        Ok(Want::Value { or_close: false })
    }

    fn comma(&mut self) -> Result<Want, PromptError> {
        let in_object = self.top_kind() == Some(Kind::Object);
        match self.skip_space() {
            Some(b',') => {
                self.at += 1;
                Ok(if in_object {
                    Want::Key { or_close: false }
                } else {
                    Want::Value { or_close: false }
                })
            }
            Some(b'}') if in_object => self.close(Kind::Object),
            Some(b']') if !in_object => self.close(Kind::Array),
            _ => Err(self.expected("a comma or the end of an array or object")),
        }
    }

    fn top_kind(&self) -> Option<Kind> {
        let index = self.open.top()?;
        self.tokens.get(index as usize).map(|token| token.kind)
    }

    fn array(&mut self) -> Result<Want, PromptError> {
        if let Some((end, rough)) = numbers(self.body, self.at + 1) {
            let spelling = if rough { Spelling::Odd } else { Spelling::Plain };
            self.push(Kind::Numbers, self.at, end, spelling)?;
            self.at = end;
            return Ok(Want::Comma);
        }
        self.container(Kind::Array).map(|()| Want::Value { or_close: true })
    }

    fn container(&mut self, kind: Kind) -> Result<(), PromptError> {
        let index = self.push(kind, self.at, self.at, Spelling::Plain)?;
        if self.open.push(index).is_none() {
            return Err(PromptError::new(PromptErrorKind::TooDeep, self.at));
        }
        self.at += 1;
        Ok(())
    }

    fn close(&mut self, kind: Kind) -> Result<Want, PromptError> {
        self.at += 1;
        let next = offset(self.tokens.len());
        let end = offset(self.at);
        let index = self.open.pop().map(|index| index as usize);
        if let Some(token) = index.and_then(|index| self.tokens.get_mut(index)) {
            debug_assert_eq!(token.kind, kind);
            token.end = end;
            token.next = next;
        }
        Ok(Want::Comma)
    }

    fn text(&mut self) -> Result<(), PromptError> {
        let start = self.at + 1;
        let Some((end, spelling)) = string_end(self.body, start) else {
            return Err(self.expected("the end of a string"));
        };
        self.push(Kind::Text, start, end, spelling)?;
        self.at = end + 1;
        Ok(())
    }

    fn number(&mut self) -> Result<Want, PromptError> {
        for word in [&b"-Infinity"[..], b"Infinity", b"NaN"] {
            if self.rest().starts_with(word) {
                return self.literal(word, Kind::Number);
            }
        }
        let Some(end) = number_end(self.body, self.at) else {
            return Err(self.expected("a number"));
        };
        self.push(Kind::Number, self.at, end, Spelling::Plain)?;
        self.at = end;
        Ok(Want::Comma)
    }

    fn literal(&mut self, word: &'static [u8], kind: Kind) -> Result<Want, PromptError> {
        if !self.rest().starts_with(word) {
            return Err(self.expected("a value"));
        }
        let end = self.at + word.len();
        self.push(kind, self.at, end, Spelling::Plain)?;
        self.at = end;
        Ok(Want::Comma)
    }

    fn push(
        &mut self,
        kind: Kind,
        start: usize,
        end: usize,
        spelling: Spelling,
    ) -> Result<u32, PromptError> {
        let index = self.tokens.len();
        if index >= JSON_VALUES_MAX {
            return Err(PromptError::new(PromptErrorKind::TooManyValues, start));
        }
        let next = offset(index + 1);
        self.tokens.push(Token { start: offset(start), end: offset(end), next, kind, spelling });
        Ok(offset(index))
    }

    fn rest(&self) -> &[u8] {
        self.body.get(self.at..).unwrap_or_default()
    }

    /// The next byte that is not white space, without taking it.
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            let byte = *self.body.get(self.at)?;
            if !is_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn expected(&self, what: &'static str) -> PromptError {
        PromptError::syntax(what, self.at)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

// Bodies longer than u32 are refused before any offset is taken, and tokens are fewer than bytes.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The end of a number at `at`: an optional minus, digits, an optional fraction, an optional exponent.
fn number_end(body: &[u8], at: usize) -> Option<usize> {
    let minus = usize::from(body.get(at) == Some(&b'-'));
    let mut end = digits(body, at + minus)?;
    if body.get(end) == Some(&b'.') {
        end = digits(body, end + 1)?;
    }
    if matches!(body.get(end), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(body.get(end + 1), Some(b'+' | b'-')));
        end = digits(body, end + 1 + sign)?;
    }
    Some(end)
}

fn digits(body: &[u8], at: usize) -> Option<usize> {
    let count = body.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit()).count();
    (count > 0).then_some(at + count)
}

/// If `at` stands behind the bracket of an array of one or more numbers only: the offset behind its closing bracket, and
/// whether anything but canonical numbers and commas stands inside.
fn numbers(body: &[u8], mut at: usize) -> Option<(usize, bool)> {
    let mut rough = false;
    loop {
        at = space_end(body, at, &mut rough)?;
        let end = number_end(body, at)?;
        rough |= !super::number::is_plain(body.get(at..end)?);
        at = space_end(body, end, &mut rough)?;
        match body.get(at)? {
            b',' => at += 1,
            b']' => return Some((at + 1, rough)),
            _ => return None,
        }
    }
}

fn space_end(body: &[u8], at: usize, rough: &mut bool) -> Option<usize> {
    let count = body.get(at..)?.iter().take_while(|&&byte| is_space(byte)).count();
    *rough |= count > 0;
    Some(at + count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(json: &str) -> Vec<Kind> {
        let mut tape = Tape::default();
        tape.parse(json.as_bytes()).unwrap_or_else(|error| panic!("{json}: {error}"));
        tape.tokens().iter().map(|token| token.kind).collect()
    }

    fn refused(json: &[u8]) -> PromptError {
        let mut tape = Tape::default();
        let error = tape.parse(json).expect_err("accepted");
        assert!(tape.tokens().is_empty());
        error
    }

    #[test]
    fn a_table_holds_every_value_in_order() {
        use Kind::*;
        assert_eq!(
            kinds(r#" {"a" : [true,false,null,"x",-1.5e3], "b":{}, "c":[] } "#),
            [Object, Text, Array, True, False, Null, Text, Number, Text, Object, Text, Array]
        );
        assert_eq!(kinds("[1, 2,3]"), [Numbers]);
        assert_eq!(kinds("[[1],[2,\"x\"]]"), [Array, Numbers, Array, Number, Text]);
        assert_eq!(kinds("\u{feff}[NaN,Infinity,-Infinity]"), [Array, Number, Number, Number]);
    }

    #[test]
    fn strings_end_at_the_quote_that_is_not_escaped() {
        for (json, inside) in [
            (r#""""#, ""),
            (r#""a\"b""#, r#"a\"b"#),
            (r#""a\\""#, r"a\\"),
            (r#""0123456789abcdef0123\\\"x""#, r#"0123456789abcdef0123\\\"x"#),
        ] {
            let mut tape = Tape::default();
            tape.parse(json.as_bytes()).expect(json);
            let token = tape.tokens()[0];
            assert_eq!(&json[token.start as usize..token.end as usize], inside);
            assert_eq!(token.spelling != Spelling::Plain, inside.contains('\\'));
        }
    }

    #[test]
    fn what_is_not_json_is_refused_with_its_place() {
        for (json, at) in [
            ("", 0),
            ("  ", 2),
            ("{", 1),
            ("{\"a\"", 4),
            ("{\"a\":}", 5),
            ("{\"a\":1,}", 7),
            ("{,}", 1),
            ("[1,]", 3),
            ("[1 2]", 3),
            ("[1}", 2),
            ("{\"a\":1]", 6),
            ("\"abc", 0),
            ("\"abc\\\"", 0),
            ("{} x", 3),
            ("tru", 0),
            ("-", 0),
            ("1.", 0),
            ("1e", 0),
            ("]", 0),
            ("{a:1}", 1),
        ] {
            let error = refused(json.as_bytes());
            assert!(matches!(error.kind, PromptErrorKind::Syntax(_)), "{json}: {error}");
            assert_eq!(error.at, at, "{json}");
        }
    }

    #[test]
    fn nesting_is_allowed_to_the_limit_and_refused_one_deeper() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert_eq!(kinds(&nested(JSON_DEPTH_MAX)).len(), JSON_DEPTH_MAX);
        assert_eq!(refused(nested(JSON_DEPTH_MAX + 1).as_bytes()).kind, PromptErrorKind::TooDeep);
        assert_eq!(refused("[".repeat(1 << 20).as_bytes()).kind, PromptErrorKind::TooDeep);
        assert_eq!(refused("{\"\":".repeat(1 << 20).as_bytes()).kind, PromptErrorKind::TooDeep);
    }

    #[test]
    fn values_are_counted_to_the_limit_and_refused_one_beyond() {
        let flat = |values: usize| format!("[{}null]", "null,".repeat(values - 2));
        assert_eq!(kinds(&flat(JSON_VALUES_MAX)).len(), JSON_VALUES_MAX);
        assert_eq!(
            refused(flat(JSON_VALUES_MAX + 1).as_bytes()).kind,
            PromptErrorKind::TooManyValues
        );
    }

    #[test]
    fn a_million_token_ids_are_one_value() {
        let ids = format!("[{}7]", "128000,".repeat(1_000_000));
        assert_eq!(kinds(&ids), [Kind::Numbers]);
    }
}
