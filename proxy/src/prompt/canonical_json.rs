//! JSON in its one canonical spelling: keys sorted, the last of two equal keys kept, no white space, `cache_control`
//! dropped at any depth, texts and numbers canonical.
//!
//! What already stands in that spelling is handed on as the longest possible run of the body's own bytes: a compact,
//! sorted tool definition is one push. Recursion is bounded by the reader's depth limit.

use super::json::{Kind, Name, Spelling, Tape, Value, canonical_number};

/// What clients move from turn to turn; no template shows it.
const MARKER: &str = "cache_control";

/// A member of an object: the places of its key and of its value.
pub(super) type Member = (u32, u32);

/// Members being sorted, for all objects that are open at the moment. Reused between requests.
#[derive(Debug, Default)]
pub(super) struct Order {
    members: Vec<Member>,
}

impl Order {
    /// Gives memory back after an unusually large body.
    pub(super) fn shrink(&mut self) {
        self.members.clear();
        self.members.shrink_to(4096);
    }
}

/// Writes `value` canonically.
pub(super) fn write(value: Value<'_, '_>, order: &mut Order, take: impl FnMut(&[u8])) {
    let mut out = Out::new(value, order, take);
    out.value(value);
    out.flush();
}

/// Writes the object `value` without the members that `skip` names; returns false and writes nothing if none is left.
pub(super) fn write_without(
    value: Value<'_, '_>,
    skip: impl Fn(&Name<'_>, Value<'_, '_>) -> bool,
    order: &mut Order,
    before: &[u8],
    mut take: impl FnMut(&[u8]),
) -> bool {
    let kept = |key: Name<'_>, value| !skip(&key, value) && !key.is(MARKER);
    if !value.members().any(|(key, value)| kept(key.name(), value)) {
        return false;
    }
    take(before);
    let mut out = Out::new(value, order, take);
    out.object(value, skip);
    out.flush();
    true
}

/// Reads `text` as a JSON object or array of its own and writes it canonically behind `before`; returns false and writes
/// nothing if it is none.
pub(super) fn write_embedded(
    text: &[u8],
    tape: &mut Tape,
    order: &mut Order,
    before: &[u8],
    mut take: impl FnMut(&[u8]),
) -> bool {
    if !matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')) || tape.parse(text).is_err() {
        return false;
    }
    let root = Value::root(text, tape.tokens());
    if !root.is_empty() {
        take(before);
        write(root, order, take);
    }
    true
}

struct Out<'o, 'a, F> {
    body: &'a [u8],
    /// The run of the body that is waiting to be handed on.
    start: usize,
    end: usize,
    order: &'o mut Order,
    take: F,
}

impl<'o, 'a, F: FnMut(&[u8])> Out<'o, 'a, F> {
    fn new(value: Value<'_, 'a>, order: &'o mut Order, take: F) -> Out<'o, 'a, F> {
        Out { body: value.body(), start: 0, end: 0, order, take }
    }

    fn flush(&mut self) {
        if self.start < self.end {
            (self.take)(self.body.get(self.start..self.end).unwrap_or_default());
        }
        self.start = self.end;
    }

    fn run(&mut self, start: usize, end: usize) {
        if start != self.end {
            self.flush();
            self.start = start;
        }
        self.end = end;
    }

    fn piece(&mut self, bytes: &[u8]) {
        self.flush();
        (self.take)(bytes);
    }

    /// A byte of punctuation, taken from the body if it stands behind the waiting run there too.
    fn punctuation(&mut self, byte: u8) {
        if self.start < self.end && self.body.get(self.end) == Some(&byte) {
            self.end += 1;
        } else {
            self.piece(&[byte]);
        }
    }

    fn value(&mut self, value: Value<'_, 'a>) {
        match value.kind() {
            Kind::Null | Kind::True | Kind::False => self.run(value.start(), value.end()),
            Kind::Number => self.number(value.raw()),
            Kind::Text => self.text(value),
            Kind::Object => self.object(value, |_, _| false),
            Kind::Array => self.array(value),
            Kind::Numbers if value.spelling() == Spelling::Odd => self.numbers(value),
            Kind::Numbers => self.run(value.start(), value.end()),
        }
    }

    fn number(&mut self, raw: &[u8]) {
        self.flush();
        canonical_number(raw, &mut self.take);
    }

    fn text(&mut self, value: Value<'_, 'a>) {
        let Some(text) = value.text() else { return };
        let (start, end) = (value.start(), value.end());
        if text.is_canonical() {
            return self.run(start.saturating_sub(1), end + 1);
        }
        self.piece(b"\"");
        text.canonical(|piece| {
            (self.take)(piece);
            true
        });
        self.run(end, end + 1);
    }

    fn array(&mut self, value: Value<'_, 'a>) {
        self.run(value.start(), value.start() + 1);
        for (at, item) in value.items().enumerate() {
            if at > 0 {
                self.punctuation(b',');
            }
            self.value(item);
        }
        self.punctuation(b']');
    }

    fn numbers(&mut self, value: Value<'_, 'a>) {
        self.piece(b"[");
        for (at, number) in value.numbers().enumerate() {
            if at > 0 {
                self.piece(b",");
            }
            self.number(number);
        }
        self.piece(b"]");
    }

    fn object(&mut self, value: Value<'_, 'a>, skip: impl Fn(&Name<'_>, Value<'_, '_>) -> bool) {
        let base = self.order.members.len();
        collect(value, skip, &mut self.order.members);
        let end = self.order.members.len();
        self.run(value.start(), value.start() + 1);
        for at in base..end {
            let Some(&(key, inner)) = self.order.members.get(at) else { break };
            if at > base {
                self.punctuation(b',');
            }
            self.text(value.at(key as usize));
            self.punctuation(b':');
            self.value(value.at(inner as usize));
        }
        self.order.members.truncate(base);
        self.punctuation(b'}');
    }
}

/// Appends the members of `value`, sorted by key and without earlier ones of the same key.
fn collect(
    value: Value<'_, '_>,
    skip: impl Fn(&Name<'_>, Value<'_, '_>) -> bool,
    members: &mut Vec<Member>,
) {
    let base = members.len();
    let mut sorted = true;
    let mut odd = false;
    let mut last: Option<&[u8]> = None;
    for (key, inner) in value.entries() {
        let Some(text) = key.text() else { continue };
        let name = text.name();
        if name.is(MARKER) || skip(&name, inner) {
            continue;
        }
        odd |= key.spelling() == Spelling::Odd;
        sorted &= last.is_none_or(|last| last < text.raw());
        last = Some(text.raw());
        // A table's places fit in 32 bits, see the reader.
        members.push((key.index() as u32, inner.index() as u32));
    }
    if !sorted || odd {
        sort(value, members, base, odd);
    }
}

fn sort(value: Value<'_, '_>, members: &mut Vec<Member>, base: usize, odd: bool) {
    let name = |member: &Member| value.at(member.0 as usize);
    let fresh = members.get_mut(base..).unwrap_or_default();
    if odd {
        let form =
            |member: &Member| name(member).text().map(|text| text.canonical_bytes().into_owned());
        fresh.sort_by_cached_key(form);
        keep_last(members, base, |a, b| form(a) == form(b));
    } else {
        fresh.sort_by(|a, b| name(a).raw().cmp(name(b).raw()));
        keep_last(members, base, |a, b| name(a).raw() == name(b).raw());
    }
}

/// Removes every member that is followed by one of the same name. Sorting was stable, so the last one stood last.
fn keep_last(members: &mut Vec<Member>, base: usize, same: impl Fn(&Member, &Member) -> bool) {
    let mut kept = base;
    for at in base..members.len() {
        let Some(&member) = members.get(at) else { break };
        if members.get(at + 1).is_some_and(|next| same(&member, next)) {
            continue;
        }
        if let Some(slot) = members.get_mut(kept) {
            *slot = member;
        }
        kept += 1;
    }
    members.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(json: &str) -> (String, usize) {
        let mut tape = Tape::default();
        tape.parse(json.as_bytes()).expect(json);
        let mut bytes = Vec::new();
        let mut pushes = 0;
        write(Value::root(json.as_bytes(), tape.tokens()), &mut Order::default(), |piece| {
            bytes.extend_from_slice(piece);
            pushes += 1;
        });
        (String::from_utf8(bytes).expect("UTF-8"), pushes)
    }

    #[test]
    fn spelling_does_not_matter() {
        let expected = r#"{"a":[1,2,{"b":7e-1}],"n":[1,2],"t":"é\n","z":null}"#;
        for json in [
            expected,
            r#"{"z":null,"t":"é\n","n":[1,2],"a":[1,2,{"b":0.7}]}"#,
            "{ \"z\" : null,\n \"a\":[1, 2.0, {\"b\":0.70}], \"n\":[ 1.0,2 ],\"t\":\"\\u00e9\\u000a\" }",
            r#"{"\u0061":[1,2,{"b":0.7}],"t":"\u00e9\n","z":null,"n":[1,2]}"#,
            r#"{"z":1,"a":0,"a":[1,2,{"b":0.7}],"t":"x","n":[],"n":[1,2],"t":"é\n","z":null}"#,
        ] {
            assert_eq!(form(json).0, expected, "{json}");
        }
    }

    #[test]
    fn cache_control_is_dropped_at_any_depth() {
        let json = r#"{"cache_control":{"type":"ephemeral"},"a":[{"b":1,"cache_control":null}]}"#;
        assert_eq!(form(json).0, r#"{"a":[{"b":1}]}"#);
        assert_eq!(form(r#"{"cache_\u0063ontrol":1}"#).0, "{}");
    }

    #[test]
    fn a_canonical_text_is_one_push() {
        let json = r#"{"a":"x\n","b":{"c":[true,null,"y"],"d":[1,2]},"e":[],"f":{}}"#;
        assert_eq!(form(json), (json.to_owned(), 1));
    }

    #[test]
    fn the_form_of_a_form_is_itself() {
        for json in ["[]", "{}", "3", "\"\"", "[[],[{}],\"\\u0041\"]", "[1.50,\"a\"]", "[-0]"] {
            let once = form(json).0;
            assert_eq!(form(&once).0, once, "{json}");
        }
    }

    #[test]
    fn embedded_json_is_canonical_and_anything_else_is_refused() {
        let embedded = |text: &str| {
            let mut bytes = Vec::new();
            let (mut tape, mut order) = (Tape::default(), Order::default());
            let done = write_embedded(text.as_bytes(), &mut tape, &mut order, b"<", |piece| {
                bytes.extend_from_slice(piece);
            });
            done.then(|| String::from_utf8(bytes).expect("UTF-8"))
        };
        assert_eq!(embedded(r#" {"b":1,"a":2}"#).as_deref(), Some(r#"<{"a":2,"b":1}"#));
        assert_eq!(embedded("{}").as_deref(), Some(""));
        for text in ["", "plain", "12", "{\"a\":", "\"x\""] {
            assert_eq!(embedded(text), None, "{text}");
        }
    }
}
