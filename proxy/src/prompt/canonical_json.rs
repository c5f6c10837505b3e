//! JSON in its one canonical spelling: keys sorted, the last of two equal keys kept, no white space, `cache_control`
//! dropped at any depth, texts and numbers canonical.
//!
//! What already stands in that spelling is handed on as the longest possible run of the body's own bytes: a compact,
//! sorted tool definition is one push. Recursion is bounded by the reader's depth limit.

use super::json::{Kind, Spelling, Tape, Value, canonical_number, is_canonical_number};
use std::cmp::Ordering;

/// What clients move from turn to turn; no template shows it.
const MARKER: &[u8] = b"cache_control";

/// A member of an object.
#[derive(Clone, Copy, Debug)]
struct Member {
    /// The first bytes of its name as one number, which nearly always tells two names apart.
    first: u64,
    /// The places of its name and of its value.
    name: u32,
    value: u32,
}

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
    out.value(value.index());
    out.flush();
}

/// Writes the object `value` without the members that `skip` names; returns false and writes nothing if none is left.
pub(super) fn write_without(
    value: Value<'_, '_>,
    skip: impl Fn(&[u8], Value<'_, '_>) -> bool,
    order: &mut Order,
    before: &[u8],
    mut take: impl FnMut(&[u8]),
) -> bool {
    let kept = |name: &[u8], value| name != MARKER && !skip(name, value);
    if !value.members().any(|(key, value)| kept(key.name().bytes(), value)) {
        return false;
    }
    take(before);
    let mut out = Out::new(value, order, take);
    out.object(value.index(), skip);
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

struct Out<'o, 't, 'a, F> {
    /// The text whose values are written, by their places.
    text: Value<'t, 'a>,
    /// The run of the body that is waiting to be handed on.
    start: usize,
    end: usize,
    order: &'o mut Order,
    take: F,
}

impl<'o, 't, 'a, F: FnMut(&[u8])> Out<'o, 't, 'a, F> {
    fn new(text: Value<'t, 'a>, order: &'o mut Order, take: F) -> Out<'o, 't, 'a, F> {
        Out { text, start: 0, end: 0, order, take }
    }

    fn flush(&mut self) {
        if self.start < self.end {
            (self.take)(self.text.body().get(self.start..self.end).unwrap_or_default());
        }
        self.start = self.end;
    }

    #[inline(always)]
    fn run(&mut self, start: usize, end: usize) {
        if start != self.end {
            self.flush();
            self.start = start;
        }
        self.end = end;
    }

    #[inline(always)]
    fn piece(&mut self, bytes: &[u8]) {
        self.flush();
        (self.take)(bytes);
    }

    /// A byte of punctuation, taken from the body if it stands behind the waiting run there too.
    #[inline(always)]
    fn punctuation(&mut self, byte: u8) {
        if self.start < self.end && self.text.body().get(self.end) == Some(&byte) {
            self.end += 1;
        } else {
            self.piece(&[byte]);
        }
    }

    #[inline(always)]
    fn value(&mut self, place: usize) {
        let value = self.text.at(place);
        match value.kind() {
            Kind::Null | Kind::True | Kind::False => self.run(value.start(), value.end()),
            Kind::Number => self.number(value),
            Kind::Text => self.text(place),
            Kind::Object => self.object(place, |_, _| false),
            Kind::Array => self.array(place),
            Kind::Numbers if value.spelling() == Spelling::Odd => self.numbers(value),
            Kind::Numbers => self.run(value.start(), value.end()),
        }
    }

    fn number(&mut self, value: Value<'_, '_>) {
        if is_canonical_number(value.raw()) {
            return self.run(value.start(), value.end());
        }
        self.flush();
        canonical_number(value.raw(), &mut self.take);
    }

    #[inline(always)]
    fn text(&mut self, place: usize) {
        let value = self.text.at(place);
        if value.spelling() != Spelling::Odd {
            return self.run(value.start().saturating_sub(1), value.end() + 1);
        }
        self.odd_text(place);
    }

    #[cold]
    fn odd_text(&mut self, place: usize) {
        let value = self.text.at(place);
        let Some(text) = value.text() else { return };
        self.piece(b"\"");
        text.canonical(|piece| {
            (self.take)(piece);
            true
        });
        self.run(value.end(), value.end() + 1);
    }

    #[inline(never)]
    fn array(&mut self, place: usize) {
        let value = self.text.at(place);
        self.run(value.start(), value.start() + 1);
        for (at, item) in value.items().enumerate() {
            if at > 0 {
                self.punctuation(b',');
            }
            self.value(item.index());
        }
        self.punctuation(b']');
    }

    fn numbers(&mut self, value: Value<'_, '_>) {
        self.piece(b"[");
        for (at, number) in value.numbers().enumerate() {
            if at > 0 {
                self.piece(b",");
            }
            canonical_number(number, &mut self.take);
        }
        self.piece(b"]");
    }

    #[inline(never)]
    fn object(&mut self, place: usize, skip: impl Fn(&[u8], Value<'_, '_>) -> bool) {
        let value = self.text.at(place);
        let base = self.order.members.len();
        collect(value, skip, &mut self.order.members);
        let end = self.order.members.len();
        self.run(value.start(), value.start() + 1);
        for at in base..end {
            let Some(&Member { name, value, .. }) = self.order.members.get(at) else { break };
            if at > base {
                self.punctuation(b',');
            }
            self.text(name as usize);
            self.punctuation(b':');
            self.value(value as usize);
        }
        self.order.members.truncate(base);
        self.punctuation(b'}');
    }
}

/// Appends the members of `value`, sorted by name and without earlier ones of the same name.
#[inline(always)]
fn collect(
    value: Value<'_, '_>,
    skip: impl Fn(&[u8], Value<'_, '_>) -> bool,
    members: &mut Vec<Member>,
) {
    let base = members.len();
    let mut rises = true;
    let mut odd = false;
    let mut last = None;
    for (key, inner) in value.entries() {
        let Some(text) = key.text() else { continue };
        let name = text.name();
        if name.bytes() == MARKER || skip(name.bytes(), inner) {
            continue;
        }
        odd |= key.spelling() == Spelling::Odd;
        // A table's places fit in 32 bits, see the reader.
        let (name, inner) = (key.index() as u32, inner.index() as u32);
        let member = Member { first: first_bytes(text.raw(), key.onward()), name, value: inner };
        rises &= last.is_none_or(|last| order(value, &last, &member).is_lt());
        last = Some(member);
        members.push(member);
    }
    if !rises || odd {
        sort(value, members, base, odd);
    }
}

/// The first eight bytes of a name, the first of them the highest; zeros for those it does not have. `onward` is the body
/// from it on.
#[inline(always)]
fn first_bytes(name: &[u8], onward: &[u8]) -> u64 {
    match (name.len(), onward.first_chunk()) {
        (0, _) => 0,
        (8.., Some(bytes)) => u64::from_be_bytes(*bytes),
        // What stands behind a short name is shifted out.
        (len, Some(bytes)) => {
            let behind = 64 - 8 * len;
            u64::from_be_bytes(*bytes) >> behind << behind
        }
        (_, None) => name.iter().rev().fold(0, |rest, byte| rest >> 8 | u64::from(*byte) << 56),
    }
}

/// How two members of the text of `value` are ordered by their names.
#[inline(always)]
fn order(value: Value<'_, '_>, one: &Member, other: &Member) -> Ordering {
    let raw = |member: &Member| value.at(member.name as usize).raw();
    one.first.cmp(&other.first).then_with(|| raw(one).cmp(raw(other)))
}

fn sort(value: Value<'_, '_>, members: &mut Vec<Member>, base: usize, odd: bool) {
    let fresh = members.get_mut(base..).unwrap_or_default();
    if odd {
        let form = |member: &Member| {
            let name = value.at(member.name as usize).text();
            name.map(|text| text.canonical_bytes().into_owned())
        };
        fresh.sort_by_cached_key(form);
        keep_last(members, base, |a, b| form(a) == form(b));
    } else {
        fresh.sort_by(|a, b| order(value, a, b));
        keep_last(members, base, |a, b| order(value, a, b).is_eq());
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
    fn members_are_sorted_as_the_bytes_of_their_names_are() {
        let mut rng = fastrand::Rng::with_seed(9);
        for _ in 0..3_000 {
            let (mut members, mut sorted) = (Vec::new(), std::collections::BTreeMap::new());
            for at in 0..rng.usize(..40) {
                // Many share their first bytes, some are equal, some are another's beginning.
                let name: String =
                    (0..rng.usize(..12)).map(|_| rng.choice(['a', 'é']).unwrap_or('a')).collect();
                members.push(format!("\"{name}\":{at}"));
                sorted.insert(name, at);
            }
            let sorted: Vec<_> =
                sorted.iter().map(|(name, at)| format!("\"{name}\":{at}")).collect();
            let json = format!("{{{}}}", members.join(","));
            assert_eq!(form(&json).0, format!("{{{}}}", sorted.join(",")), "{json}");
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
