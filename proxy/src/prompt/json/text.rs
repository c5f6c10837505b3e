//! The inside of a JSON string, in its one canonical spelling.
//!
//! Canonical text *is* JSON text with minimal escapes: only the quote, the backslash and control characters are escaped,
//! with the short form where one exists. That is what almost every client sends, so almost every text is passed on as the
//! span it is, and an unescaped quote can never occur inside one: frames may rely on it. Other spellings (`\u00e9`, `\/`,
//! surrogate pairs) are rewritten piece by piece, without a copy of the text.

use super::Spelling;
use std::borrow::Cow;
use wide::u8x16;

/// A string's bytes between its quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text<'a> {
    raw: &'a [u8],
    spelling: Spelling,
}

impl<'a> Text<'a> {
    /// The text between two quotes, spelled as is said.
    pub(crate) fn new(raw: &'a [u8], spelling: Spelling) -> Text<'a> {
        Text { raw, spelling }
    }

    pub(crate) fn raw(&self) -> &'a [u8] {
        self.raw
    }

    /// The text for comparison with names, decoded once however many names follow.
    #[inline(always)]
    pub(crate) fn name(&self) -> Name<'a> {
        if self.is_canonical() { Name::Plain(self.raw) } else { self.decoded_name() }
    }

    #[cold]
    fn decoded_name(&self) -> Name<'a> {
        let mut decoded = Piece::empty();
        let mut fits = true;
        self.canonical(|piece| {
            fits = decoded.append(piece);
            fits
        });
        if fits { Name::Decoded(decoded) } else { Name::Plain(self.raw) }
    }

    /// Whether the text equals a plain name, however it is spelled.
    #[inline(always)]
    pub(crate) fn is(&self, name: &str) -> bool {
        self.name().is(name)
    }

    /// Whether the text begins with a plain name, however it is spelled.
    pub(crate) fn begins_with(&self, name: &str) -> bool {
        if self.is_canonical() {
            return self.raw.starts_with(name.as_bytes());
        }
        let mut rest = name.as_bytes();
        self.canonical(|piece| {
            let shared = rest.len().min(piece.len());
            if rest.get(..shared) == piece.get(..shared) {
                rest = rest.get(shared..).unwrap_or_default();
                !rest.is_empty()
            } else {
                false
            }
        });
        rest.is_empty()
    }

    /// Whether the text stands in its canonical spelling already.
    pub(crate) fn is_canonical(&self) -> bool {
        self.spelling != Spelling::Odd
    }

    /// Hands on the canonical spelling in pieces, until `take` returns false.
    pub(crate) fn canonical(&self, mut take: impl FnMut(&[u8]) -> bool) {
        if self.is_canonical() {
            take(self.raw);
            return;
        }
        let mut kept = 0;
        let mut from = 0;
        while let Some(slash) = find(b'\\', self.raw, from) {
            let (piece, len) = rewrite(self.raw.get(slash..).unwrap_or_default());
            if let Some(piece) = piece {
                let before = self.raw.get(kept..slash).unwrap_or_default();
                if !take(before) || !take(piece.bytes()) {
                    return;
                }
                kept = slash + len;
            }
            from = slash + len;
        }
        take(self.raw.get(kept..).unwrap_or_default());
    }

    /// The canonical spelling, borrowed where it is what stands there.
    #[inline(always)]
    pub(crate) fn canonical_bytes(&self) -> Cow<'a, [u8]> {
        if self.is_canonical() { Cow::Borrowed(self.raw) } else { Cow::Owned(self.rewritten()) }
    }

    #[cold]
    fn rewritten(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.raw.len());
        self.canonical(|piece| {
            bytes.extend_from_slice(piece);
            true
        });
        bytes
    }

    /// The text itself, without escapes. A lone surrogate becomes its three-byte form.
    pub(crate) fn decode(&self) -> Cow<'a, [u8]> {
        if self.spelling == Spelling::Plain {
            return Cow::Borrowed(self.raw);
        }
        let mut bytes = Vec::new();
        self.decode_into(&mut bytes);
        Cow::Owned(bytes)
    }

    /// The text itself: borrowed if it needs no decoding, else in `bytes`.
    pub(crate) fn decode_in<'b>(&self, bytes: &'b mut Vec<u8>) -> &'b [u8]
    where
        'a: 'b,
    {
        if self.spelling == Spelling::Plain {
            return self.raw;
        }
        self.decode_into(bytes);
        bytes
    }

    /// Replaces `bytes` by the text itself.
    fn decode_into(&self, bytes: &mut Vec<u8>) {
        bytes.clear();
        bytes.reserve(self.raw.len() + STRIDE);
        let mut rest = self.raw;
        while let Some(from) = copy_to_slash(rest, bytes) {
            let len = match from.get(1).map_or(0, |&letter| plain_escape(letter)) {
                0 => {
                    let (escape, len) = Escape::read(from);
                    bytes.extend_from_slice(escape.decoded().bytes());
                    len
                }
                plain => {
                    bytes.push(plain);
                    2
                }
            };
            rest = from.get(len..).unwrap_or_default();
        }
    }

    /// The text as UTF-8, `None` if it is not.
    pub(crate) fn to_str(self) -> Option<Cow<'a, str>> {
        match self.decode() {
            Cow::Borrowed(bytes) => std::str::from_utf8(bytes).ok().map(Cow::Borrowed),
            Cow::Owned(bytes) => String::from_utf8(bytes).ok().map(Cow::Owned),
        }
    }
}

/// A text that is compared with plain names: ASCII without quotes and backslashes, at most [`NAME_BYTES_MAX`] long.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name<'a> {
    /// Stands as it is; or is too long for any name, and then its backslashes keep it from being equal to one.
    Plain(&'a [u8]),
    /// Was spelled with escapes.
    Decoded(Piece<NAME_BYTES_MAX>),
}

/// Longer than every name that is asked for.
const NAME_BYTES_MAX: usize = 32;

impl Name<'_> {
    #[inline(always)]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Name::Plain(bytes) => bytes,
            Name::Decoded(piece) => piece.bytes(),
        }
    }

    #[inline(always)]
    pub(crate) fn is(&self, name: &str) -> bool {
        debug_assert!(name.len() <= NAME_BYTES_MAX);
        self.bytes() == name.as_bytes()
    }
}

fn find(byte: u8, raw: &[u8], from: usize) -> Option<usize> {
    raw.get(from..).and_then(|rest| memchr::memchr(byte, rest)).map(|at| from + at)
}

/// Bytes copied together.
const STRIDE: usize = 16;

/// Appends what stands before the first backslash, and returns the rest from it on. In code the next one is near: what is
/// copied too far is taken back, which costs less than to search first.
#[inline(always)]
fn copy_to_slash<'r>(raw: &'r [u8], bytes: &mut Vec<u8>) -> Option<&'r [u8]> {
    let mut rest = raw;
    while let Some((chunk, behind)) = rest.split_first_chunk::<STRIDE>() {
        bytes.extend_from_slice(chunk);
        let slashes = u8x16::new(*chunk).simd_eq(u8x16::splat(b'\\')).to_bitmask();
        if slashes != 0 {
            let at = slashes.trailing_zeros() as usize;
            bytes.truncate(bytes.len() - (STRIDE - at));
            return rest.get(at..);
        }
        rest = behind;
    }
    let slash = rest.iter().position(|&byte| byte == b'\\');
    let (before, from) = rest.split_at(slash.unwrap_or(rest.len()));
    bytes.extend_from_slice(before);
    slash.is_some().then_some(from)
}

/// What a backslash and this letter stand for, if that is one byte; else 0.
fn plain_escape(letter: u8) -> u8 {
    match letter {
        b'"' | b'\\' | b'/' => letter,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'b' => 8,
        b'f' => 12,
        _ => 0,
    }
}

/// A few bytes on the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece<const N: usize = 8> {
    bytes: [u8; N],
    len: usize,
}

impl Piece {
    fn of(from: &[u8]) -> Piece {
        let mut piece = Piece::empty();
        piece.append(from);
        piece
    }
}

impl<const N: usize> Piece<N> {
    fn empty() -> Piece<N> {
        Piece { bytes: [0; N], len: 0 }
    }

    /// Returns false and takes nothing if there is no room.
    fn append(&mut self, from: &[u8]) -> bool {
        let end = self.len + from.len();
        let Some(room) = self.bytes.get_mut(self.len..end) else { return false };
        room.copy_from_slice(from);
        self.len = end;
        true
    }

    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

/// What a backslash begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Escape {
    Char(char),
    Surrogate(u16),
    /// Not an escape JSON knows: left as it stands, the engine will refuse it.
    Unknown(u8),
}

impl Escape {
    /// The escape at the start of `raw` and how many bytes it takes.
    fn read(raw: &[u8]) -> (Escape, usize) {
        let Some(&letter) = raw.get(1) else { return (Escape::Unknown(b'\\'), raw.len()) };
        match plain_escape(letter) {
            0 if letter == b'u' => Escape::read_unicode(raw),
            0 => (Escape::Unknown(letter), 2),
            plain => (Escape::Char(char::from(plain)), 2),
        }
    }

    fn read_unicode(raw: &[u8]) -> (Escape, usize) {
        let Some(high) = hex(raw.get(2..6)) else { return (Escape::Unknown(b'u'), 2) };
        if let Some(plain) = char::from_u32(u32::from(high)) {
            return (Escape::Char(plain), 6);
        }
        if raw.get(6..8) == Some(b"\\u")
            && let Some(low) = hex(raw.get(8..12))
            && let Some(Ok(pair)) = char::decode_utf16([high, low]).next()
        {
            return (Escape::Char(pair), 12);
        }
        (Escape::Surrogate(high), 6)
    }

    fn decoded(self) -> Piece {
        match self {
            Escape::Char(plain) => Piece::of(plain.encode_utf8(&mut [0; 4]).as_bytes()),
            Escape::Surrogate(half) => {
                let [high, low] = half.to_be_bytes();
                let middle = 0x80 | ((high & 0x0f) << 2) | (low >> 6);
                Piece::of(&[0xed, middle, 0x80 | (low & 0x3f)])
            }
            Escape::Unknown(letter) => Piece::of(&[b'\\', letter]),
        }
    }

    fn canonical(self) -> Piece {
        match self {
            Escape::Char('"') => Piece::of(b"\\\""),
            Escape::Char('\\') => Piece::of(b"\\\\"),
            Escape::Char('\n') => Piece::of(b"\\n"),
            Escape::Char('\r') => Piece::of(b"\\r"),
            Escape::Char('\t') => Piece::of(b"\\t"),
            Escape::Char('\u{8}') => Piece::of(b"\\b"),
            Escape::Char('\u{c}') => Piece::of(b"\\f"),
            Escape::Char(control @ '\0'..'\u{20}') => unicode(control as u16),
            Escape::Surrogate(half) => unicode(half),
            Escape::Char(_) | Escape::Unknown(_) => self.decoded(),
        }
    }
}

/// `\u` and four lower-case digits.
fn unicode(unit: u16) -> Piece {
    let digit =
        |shift: u32| char::from_digit(u32::from(unit >> shift) & 15, 16).unwrap_or('0') as u8;
    Piece::of(&[b'\\', b'u', digit(12), digit(8), digit(4), digit(0)])
}

fn hex(digits: Option<&[u8]>) -> Option<u16> {
    digits?.iter().try_fold(0u16, |value, &digit| {
        let digit = char::from(digit).to_digit(16)?;
        Some(value << 4 | u16::try_from(digit).ok()?)
    })
}

/// The canonical spelling of the escape at the start of `raw` if it differs from what stands there, and the escape's
/// length.
fn rewrite(raw: &[u8]) -> (Option<Piece>, usize) {
    let (escape, len) = Escape::read(raw);
    let piece = escape.canonical();
    let same = raw.get(..len) == Some(piece.bytes()) || matches!(escape, Escape::Unknown(_));
    ((!same).then_some(piece), len)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(raw: &str) -> Text<'_> {
        Text::new(raw.as_bytes(), super::super::ending::spelling(raw.as_bytes()))
    }

    fn canonical(raw: &str) -> String {
        String::from_utf8(text(raw).canonical_bytes().into_owned())
            .expect("canonical text is UTF-8")
    }

    #[test]
    fn every_spelling_of_a_text_has_one_canonical_form() {
        for (raw, form) in [
            ("plain", "plain"),
            ("é", "é"),
            (r"\u00e9\u00E9", "éé"),
            (r"a\/b", "a/b"),
            (r"\ud83d\ude00!", "😀!"),
            (r"line\nline\tend", r"line\nline\tend"),
            (r"line\u000aline\u0009end", r"line\nline\tend"),
            (r#"\u0022\u005c"#, r#"\"\\"#),
            (r"\u001B[0m", r"\u001b[0m"),
            (r"\u001b[0m", r"\u001b[0m"),
            (r"\u0008\b\u000c\f\u000D", r"\b\b\f\f\r"),
            (r"\\u00e9", r"\\u00e9"),
            (r"\\\u00e9", r"\\é"),
            (r"\ud800", r"\ud800"),
            (r"\uD800x", r"\ud800x"),
            (r"\ud800\u0041", r"\ud800A"),
            (r"\udc00\ud800", r"\udc00\ud800"),
            (r"\u2028\u007f", "\u{2028}\u{7f}"),
            (r"\u12", r"\u12"),
            (r"\q\uzzzz", r"\q\uzzzz"),
        ] {
            assert_eq!(canonical(raw), form, "{raw}");
            assert_eq!(canonical(form), form, "the form of {raw} is not its own form");
        }
    }

    #[test]
    fn canonical_text_holds_no_bare_quote() {
        for raw in [r"\u0022", r"\\\u0022", r"x\u0022\u0022", r"\u005c\u0022"] {
            let form = canonical(raw);
            let mut escaped = false;
            for byte in form.bytes() {
                assert!(byte != b'"' || escaped, "{raw} became {form}");
                escaped = byte == b'\\' && !escaped;
            }
            assert!(!escaped, "{raw} became {form}, which would escape what follows");
        }
    }

    #[test]
    fn decoding_gives_the_text_itself() {
        for (raw, plain) in
            [(r"a\u00e9\n\/\\\u0022", "aé\n/\\\""), (r"\ud83d\ude00", "😀"), ("none", "none")]
        {
            assert_eq!(text(raw).decode().as_ref(), plain.as_bytes(), "{raw}");
        }
        assert_eq!(text(r"\ud800").decode().as_ref(), [0xed, 0xa0, 0x80]);
        assert_eq!(text(r"\udfff").decode().as_ref(), [0xed, 0xbf, 0xbf]);
        assert_eq!(text(r"\ud800").to_str(), None);
    }

    #[test]
    fn escapes_are_decoded_wherever_they_stand() {
        for before in 0..40 {
            for between in 0..20 {
                let (a, b) = ("a".repeat(before), "b".repeat(between));
                let raw = format!(r"{a}\n{b}\u00e9\\{b}");
                let plain = format!("{a}\n{b}é\\{b}");
                assert_eq!(text(&raw).decode().as_ref(), plain.as_bytes(), "{raw}");
            }
        }
    }

    #[test]
    fn names_are_recognised_in_any_spelling() {
        assert!(text("model").is("model") && text(r"m\u006fdel").is("model"));
        assert!(!text("models").is("model") && !text(r"m\u006fdels").is("model"));
        assert!(!text(&format!(r"m\u006fdel{}", "s".repeat(40))).is("model"));
        assert!(!text(r"mo\ndel").is("model") && !text(r"mo\\del").is("model"));
        assert!(text("x-billing: 1").begins_with("x-billing"));
        assert!(text(r"\u0078-b\u0069lling: 1").begins_with("x-billing"));
        assert!(
            !text(r"\u0078-b").begins_with("x-billing") && !text("x-b").begins_with("x-billing")
        );
    }
}
