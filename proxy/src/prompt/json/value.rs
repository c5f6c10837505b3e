//! Walking the table: values, members, items. Every step is an index into the table; nothing is scanned again.

use super::{Kind, NULL, Spelling, Text, Token};

/// One value of a parsed text. `'a` is the body's life, `'t` the table's.
#[derive(Clone, Copy)]
pub(crate) struct Value<'t, 'a> {
    body: &'a [u8],
    tokens: &'t [Token],
    index: usize,
}

impl<'t, 'a> Value<'t, 'a> {
    /// The root of the text that was parsed into `tokens`.
    pub(crate) fn root(body: &'a [u8], tokens: &'t [Token]) -> Value<'t, 'a> {
        Value { body, tokens, index: 0 }
    }

    /// The value's place in the table, for [`Value::at`].
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Another value of the same text.
    pub(crate) fn at(&self, index: usize) -> Value<'t, 'a> {
        Value { index, ..*self }
    }

    fn token(&self) -> &'t Token {
        self.tokens.get(self.index).unwrap_or(&NULL)
    }

    pub(crate) fn kind(&self) -> Kind {
        self.token().kind
    }

    /// Offset of the value in its body; a string's excludes the quote.
    pub(crate) fn start(&self) -> usize {
        self.token().start as usize
    }

    /// Offset behind the value; a string's excludes the quote.
    pub(crate) fn end(&self) -> usize {
        self.token().end as usize
    }

    /// The value's bytes; a string's exclude the quotes.
    pub(crate) fn raw(&self) -> &'a [u8] {
        self.body.get(self.start()..self.end()).unwrap_or_default()
    }

    /// The body from the value on.
    pub(crate) fn onward(&self) -> &'a [u8] {
        self.body.get(self.start()..).unwrap_or_default()
    }

    pub(crate) fn body(&self) -> &'a [u8] {
        self.body
    }

    /// How a string is spelled; for an array of numbers, whether it holds more than canonical numbers and commas.
    pub(crate) fn spelling(&self) -> Spelling {
        self.token().spelling
    }

    pub(crate) fn text(&self) -> Option<Text<'a>> {
        (self.kind() == Kind::Text).then(|| Text::new(self.raw(), self.spelling()))
    }

    pub(crate) fn is_null(&self) -> bool {
        self.kind() == Kind::Null
    }

    pub(crate) fn is_true(&self) -> bool {
        self.kind() == Kind::True
    }

    /// Null, false, an empty string, array or object: what templates treat as absent.
    pub(crate) fn is_empty(&self) -> bool {
        match self.kind() {
            Kind::Null | Kind::False => true,
            Kind::Text => self.raw().is_empty(),
            Kind::Object | Kind::Array => self.token().next as usize == self.index + 1,
            _ => false,
        }
    }

    /// A number that is a plain non-negative integer.
    pub(crate) fn as_u64(&self) -> Option<u64> {
        match self.kind() {
            Kind::Number => parse_u64(self.raw()),
            _ => None,
        }
    }

    /// Members of an object in the order they stand; nothing for any other kind.
    pub(crate) fn members(&self) -> impl Iterator<Item = (Text<'a>, Value<'t, 'a>)> + use<'t, 'a> {
        self.entries().map(|(key, value)| (Text::new(key.raw(), key.spelling()), value))
    }

    /// Members with the key as a value, for those who need its place.
    pub(crate) fn entries(
        &self,
    ) -> impl Iterator<Item = (Value<'t, 'a>, Value<'t, 'a>)> + use<'t, 'a> {
        let object = *self;
        let token = object.token();
        let end = if token.kind == Kind::Object { token.next as usize } else { 0 };
        let mut at = object.index + 1;
        std::iter::from_fn(move || {
            // A key has nothing inside, so its value stands right behind it.
            let [_, value] = object.tokens.get(at..end)?.first_chunk()?;
            let entry = (object.at(at), object.at(at + 1));
            at = value.next as usize;
            Some(entry)
        })
    }

    /// Items of an array; nothing for any other kind, arrays of numbers included.
    pub(crate) fn items(&self) -> impl Iterator<Item = Value<'t, 'a>> + use<'t, 'a> {
        let array = *self;
        let token = array.token();
        let end = if token.kind == Kind::Array { token.next as usize } else { 0 };
        let mut at = array.index + 1;
        std::iter::from_fn(move || {
            let item = array.at(at);
            at = array.tokens.get(at..end)?.first()?.next as usize;
            Some(item)
        })
    }

    /// The spans of an array of numbers.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let raw = if self.kind() == Kind::Numbers { self.raw() } else { b"" };
        let inside = raw.strip_prefix(b"[").and_then(|raw| raw.strip_suffix(b"]"));
        let empty = inside.is_none();
        let spans = inside.unwrap_or_default().split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
        spans.filter(move |_| !empty)
    }

    /// The values of the named members, the last one if a name stands twice, as engines take it. Inlined, so that a key is
    /// compared with names that are known: by their lengths and as numbers.
    #[inline(always)]
    pub(crate) fn pick<const N: usize>(&self, names: [&str; N]) -> [Option<Value<'t, 'a>>; N] {
        let mut found = [None; N];
        for (key, value) in self.members() {
            let key = key.name();
            let place = names.iter().position(|name| key.is(name));
            if let Some(slot) = place.and_then(|place| found.get_mut(place)) {
                *slot = Some(value);
            }
        }
        found
    }

    /// The value of one member.
    #[inline(always)]
    pub(crate) fn get(&self, name: &str) -> Option<Value<'t, 'a>> {
        let [value] = self.pick([name]);
        value
    }
}

/// A plain non-negative integer, also written `8.0`.
pub(crate) fn parse_u64(raw: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(raw).ok()?;
    let whole = match text.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') => whole,
        Some(_) => return None,
        None => text,
    };
    whole.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::Tape;
    use super::*;

    fn with<R>(json: &str, look: impl FnOnce(Value<'_, '_>) -> R) -> R {
        let mut tape = Tape::default();
        tape.parse(json.as_bytes()).expect(json);
        look(Value::root(json.as_bytes(), tape.tokens()))
    }

    #[test]
    fn members_and_items_skip_whole_subtrees() {
        with(r#"{"a":{"x":[1,{"y":2}]},"b":[[],[3,"s"],{"z":{}}],"c":"t"}"#, |root| {
            let keys: Vec<_> = root.members().map(|(key, _)| key.raw().to_vec()).collect();
            assert_eq!(keys, [b"a", b"b", b"c"]);
            let items: Vec<_> =
                root.get("b").expect("b").items().map(|item| item.raw().to_vec()).collect();
            assert_eq!(items, [&b"[]"[..], b"[3,\"s\"]", b"{\"z\":{}}"]);
            assert!(root.get("c").expect("c").items().next().is_none());
        });
    }

    #[test]
    fn the_last_of_two_equal_names_counts_and_escaped_names_are_equal() {
        with(r#"{"role":"a","r\u006fle":"b","x":1}"#, |root| {
            assert_eq!(root.get("role").expect("role").raw(), b"b");
            assert!(root.get("rol").is_none());
        });
    }

    #[test]
    fn numbers_are_split_and_trimmed() {
        with("[ 1,\n22 ,3.5 ]", |root| {
            let spans: Vec<_> = root.numbers().collect();
            assert_eq!(spans, [&b"1"[..], b"22", b"3.5"]);
        });
        with("\"x\"", |root| assert_eq!(root.numbers().count(), 0));
    }

    #[test]
    fn integers_are_read_and_fractions_are_not() {
        for (json, value) in
            [("8", Some(8)), ("8.0", Some(8)), ("8.5", None), ("-1", None), ("1e3", None)]
        {
            with(json, |root| assert_eq!(root.as_u64(), value, "{json}"));
        }
        with("99999999999999999999999", |root| assert_eq!(root.as_u64(), None));
    }

    #[test]
    fn what_templates_treat_as_absent_is_empty() {
        for json in ["null", "false", "\"\"", "[]", "{}"] {
            with(json, |root| assert!(root.is_empty(), "{json}"));
        }
        for json in ["true", "0", "\" \"", "[1]", "[[]]", "{\"a\":null}"] {
            with(json, |root| assert!(!root.is_empty(), "{json}"));
        }
    }
}
