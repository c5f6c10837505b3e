//! Builds the table of spans. One pass, an explicit stack, every loop advances: time is linear in the body, whatever it
//! holds. Never recurses, never panics.

use super::super::error::{PromptError, PromptErrorKind};
use super::ending::{Ends, Spelling};
use super::{Kind, Token};
use crate::limits::{JSON_DEPTH_MAX, JSON_VALUES_KEPT, JSON_VALUES_MAX};

/// A reusable table of tokens. Empty until [`Tape::parse`] succeeded.
#[derive(Debug, Default)]
pub(crate) struct Tape {
    tokens: Vec<Token>,
    open: Open,
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
        let Tape { tokens, open } = self;
        open.depth = 0;
        let mut scan = Scan { body, at: 0, ends: Ends::of(body), tokens, open };
        let outcome = scan.run().map_err(|fault| fault.at(scan.at));
        if outcome.is_err() {
            self.tokens.clear();
        }
        outcome
    }
}

/// The stack of open containers.
#[derive(Debug)]
struct Open {
    depth: usize,
    containers: [Container; JSON_DEPTH_MAX],
}

#[derive(Clone, Copy, Debug, Default)]
struct Container {
    token: u32,
    is_object: bool,
}

impl Default for Open {
    fn default() -> Open {
        Open { depth: 0, containers: [Container::default(); JSON_DEPTH_MAX] }
    }
}

impl Open {
    fn push(&mut self, container: Container) -> Option<()> {
        *self.containers.get_mut(self.depth)? = container;
        self.depth += 1;
        Some(())
    }

    fn pop(&mut self) -> Option<Container> {
        let top = self.top()?;
        self.depth -= 1;
        Some(top)
    }

    fn top(&self) -> Option<Container> {
        self.containers.get(self.depth.wrapping_sub(1)).copied()
    }
}

struct Scan<'b, 't> {
    body: &'b [u8],
    at: usize,
    ends: Ends<'b>,
    tokens: &'t mut Vec<Token>,
    open: &'t mut Open,
}

/// What the grammar allows next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Want {
    Value,
    /// A value, or the end of the array that was just opened.
    ValueOrClose,
    Key,
    /// A key, or the end of the object that was just opened.
    KeyOrClose,
    /// A comma or the end of the enclosing container.
    Comma,
}

/// Why reading stopped where it did. One byte, so that every step returns it or what comes next in a register.
#[derive(Clone, Copy)]
enum Fault {
    NoValue,
    NoNumber,
    NoKey,
    NoColon,
    NoComma,
    NoStringEnd,
    NoEnd,
    TooDeep,
    TooManyValues,
}

impl Fault {
    #[cold]
    fn at(self, at: usize) -> PromptError {
        let what = match self {
            Fault::NoValue => "a value",
            Fault::NoNumber => "a number",
            Fault::NoKey => "a key",
            Fault::NoColon => "a colon",
            Fault::NoComma => "a comma or the end of an array or object",
            Fault::NoStringEnd => "the end of a string",
            Fault::NoEnd => "the end",
            Fault::TooDeep => return PromptError::new(PromptErrorKind::TooDeep, at),
            Fault::TooManyValues => return PromptError::new(PromptErrorKind::TooManyValues, at),
        };
        PromptError::syntax(what, at)
    }
}

impl Scan<'_, '_> {
    fn run(&mut self) -> Result<(), Fault> {
        if self.body.starts_with(b"\xef\xbb\xbf") {
            self.at = 3;
        }
        let mut want = Want::Value;
        // In the order they mostly come in, so that a step goes on to the next one without asking which it is.
        loop {
            if matches!(want, Want::Key | Want::KeyOrClose) {
                want = self.key(want)?;
            }
            if matches!(want, Want::Value | Want::ValueOrClose) {
                want = self.value(want)?;
            }
            if want == Want::Comma {
                if self.open.depth == 0 {
                    break;
                }
                want = self.comma()?;
            }
        }
        match self.skip_space() {
            None => Ok(()),
            Some(_) => Err(Fault::NoEnd),
        }
    }

    #[inline(always)]
    fn value(&mut self, want: Want) -> Result<Want, Fault> {
        match self.skip_space().ok_or(Fault::NoValue)? {
            b'"' => self.text().map(|()| Want::Comma),
            b'{' => self.container(Kind::Object).map(|()| Want::KeyOrClose),
            b'[' => self.array(),
            b']' if want == Want::ValueOrClose => Ok(self.close(Kind::Array)),
            b'-' | b'0'..=b'9' | b'I' | b'N' => self.number(),
            b't' => self.literal(b"true", Kind::True),
            b'f' => self.literal(b"false", Kind::False),
            b'n' => self.literal(b"null", Kind::Null),
            _ => Err(Fault::NoValue),
        }
    }

    #[inline(always)]
    fn key(&mut self, want: Want) -> Result<Want, Fault> {
        match self.skip_space() {
            Some(b'"') => self.text()?,
            Some(b'}') if want == Want::KeyOrClose => return Ok(self.close(Kind::Object)),
            _ => return Err(Fault::NoKey),
        }
        match self.skip_space() {
            Some(b':') => self.at += 1,
            _ => return Err(Fault::NoColon),
        }
        Ok(Want::Value)
    }

    fn comma(&mut self) -> Result<Want, Fault> {
        let in_object = self.open.top().is_some_and(|top| top.is_object);
        match self.skip_space() {
            Some(b',') => {
                self.at += 1;
                Ok(if in_object { Want::Key } else { Want::Value })
            }
            Some(b'}') if in_object => Ok(self.close(Kind::Object)),
            Some(b']') if !in_object => Ok(self.close(Kind::Array)),
            _ => Err(Fault::NoComma),
        }
    }

    fn array(&mut self) -> Result<Want, Fault> {
        if let Some((end, rough)) = numbers(self.body, self.at + 1) {
            let spelling = if rough { Spelling::Odd } else { Spelling::Plain };
            self.push(Kind::Numbers, self.at, end, spelling)?;
            self.at = end;
            return Ok(Want::Comma);
        }
        self.container(Kind::Array).map(|()| Want::ValueOrClose)
    }

    fn container(&mut self, kind: Kind) -> Result<(), Fault> {
        let token = self.push(kind, self.at, self.at, Spelling::Plain)?;
        let is_object = kind == Kind::Object;
        self.open.push(Container { token, is_object }).ok_or(Fault::TooDeep)?;
        self.at += 1;
        Ok(())
    }

    fn close(&mut self, kind: Kind) -> Want {
        self.at += 1;
        let next = offset(self.tokens.len());
        let end = offset(self.at);
        let index = self.open.pop().map(|top| top.token as usize);
        if let Some(token) = index.and_then(|index| self.tokens.get_mut(index)) {
            debug_assert_eq!(token.kind, kind);
            token.end = end;
            token.next = next;
        }
        Want::Comma
    }

    #[inline(always)]
    fn text(&mut self) -> Result<(), Fault> {
        let start = self.at + 1;
        let (end, spelling) = self.ends.end(start).ok_or(Fault::NoStringEnd)?;
        self.push(Kind::Text, start, end, spelling)?;
        self.at = end + 1;
        Ok(())
    }

    fn number(&mut self) -> Result<Want, Fault> {
        for word in [&b"-Infinity"[..], b"Infinity", b"NaN"] {
            if self.rest().starts_with(word) {
                return self.literal(word, Kind::Number);
            }
        }
        let end = number_end(self.body, self.at).ok_or(Fault::NoNumber)?;
        self.push(Kind::Number, self.at, end, Spelling::Plain)?;
        self.at = end;
        Ok(Want::Comma)
    }

    fn literal(&mut self, word: &'static [u8], kind: Kind) -> Result<Want, Fault> {
        if !self.rest().starts_with(word) {
            return Err(Fault::NoValue);
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
    ) -> Result<u32, Fault> {
        let index = self.tokens.len();
        if index >= JSON_VALUES_MAX {
            self.at = start;
            return Err(Fault::TooManyValues);
        }
        let next = offset(index + 1);
        self.tokens.push(Token { start: offset(start), end: offset(end), next, kind, spelling });
        Ok(offset(index))
    }

    fn rest(&self) -> &[u8] {
        self.body.get(self.at..).unwrap_or_default()
    }

    /// The next byte that is not white space, without taking it.
    #[inline(always)]
    fn skip_space(&mut self) -> Option<u8> {
        loop {
            let byte = *self.body.get(self.at)?;
            // All space is below, so that in a compact body one comparison tells.
            if byte > b' ' || !is_space(byte) {
                return Some(byte);
            }
            self.at += 1;
        }
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

// Bodies longer than u32 are refused before any offset is taken, and tokens are fewer than bytes.
fn offset(at: usize) -> u32 {
    at as u32
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
