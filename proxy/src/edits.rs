//! Changes to a body as an ordered list of edits over its untouched bytes.
//!
//! Nothing is copied but what is put in: the pieces of an edited body are slices of the one that came, with the new
//! bytes between them. What no edit names is sent as it came. Whether and what to edit is decided elsewhere.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;

/// One change: the bytes of `range` are replaced. An empty range inserts.
#[derive(Clone, PartialEq, Eq)]
pub struct Edit {
    /// What goes, as offsets into the body that came.
    pub range: Range<usize>,
    /// What stands there instead.
    pub bytes: Bytes,
}

impl Edit {
    /// Takes `range` out.
    pub fn remove(range: Range<usize>) -> Edit {
        Edit { range, bytes: Bytes::new() }
    }

    /// Puts `bytes` in at an offset.
    pub fn insert(at: usize, bytes: impl Into<Bytes>) -> Edit {
        Edit::replace(at..at, bytes)
    }

    /// Puts `bytes` in the place of `range`.
    pub fn replace(range: Range<usize>, bytes: impl Into<Bytes>) -> Edit {
        Edit { range, bytes: bytes.into() }
    }
}

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Edit({:?}, {} bytes)", self.range, self.bytes.len())
    }
}

/// Edits of one body, in its order; no two of them touch the same byte. Insertions at one place keep the order in which
/// they were added.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits(Vec<Edit>);

impl Edits {
    /// Adds an edit in its place.
    pub fn add(&mut self, edit: Edit) {
        let place = self.0.partition_point(|other| other.range.start <= edit.range.start);
        self.0.insert(place, edit);
    }

    /// Adds all of `others`.
    pub fn add_all(&mut self, others: &[Edit]) {
        others.iter().cloned().for_each(|edit| self.add(edit));
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Length of the edited body, bytes, if the one that came has `len`.
    pub fn len_of(&self, len: usize) -> usize {
        let put_in: usize = self.0.iter().map(|edit| edit.bytes.len()).sum();
        let taken: usize = self.0.iter().map(|edit| edit.range.len()).sum();
        len.saturating_add(put_in).saturating_sub(taken)
    }

    /// The edited body piece by piece; the body itself, uncopied, when there are no edits.
    pub fn pieces(&self, body: &Bytes) -> impl Iterator<Item = Bytes> {
        let mut from = 0;
        let ends = self.0.iter().map(Some).chain([None]);
        let pairs = ends.map(move |edit| {
            let end = edit.map_or(body.len(), |edit| edit.range.start);
            let kept = slice(body, from..end);
            from = edit.map_or(end, |edit| edit.range.end);
            [kept, edit.map_or_else(Bytes::new, |edit| edit.bytes.clone())]
        });
        pairs.flatten().filter(|piece| !piece.is_empty())
    }
}

/// Part of a body; nothing where it does not reach.
fn slice(body: &Bytes, range: Range<usize>) -> Bytes {
    let inside = range.start <= range.end && range.end <= body.len();
    if inside { body.slice(range) } else { Bytes::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edited(body: &str, edits: Vec<Edit>) -> String {
        let mut all = Edits::default();
        edits.into_iter().for_each(|edit| all.add(edit));
        let body = Bytes::copy_from_slice(body.as_bytes());
        let whole: Vec<u8> = all.pieces(&body).flatten().collect();
        assert_eq!(whole.len(), all.len_of(body.len()));
        String::from_utf8(whole).expect("text")
    }

    #[test]
    fn without_edits_the_body_is_the_same_memory() {
        let body = Bytes::from_static(b"untouched");
        let pieces: Vec<Bytes> = Edits::default().pieces(&body).collect();
        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].as_ptr(), body.as_ptr());
        assert_eq!(Edits::default().pieces(&Bytes::new()).count(), 0);
    }

    #[test]
    fn edits_apply_in_the_bodys_order_whatever_order_they_were_added_in() {
        let edits = vec![Edit::remove(6..7), Edit::insert(0, "<"), Edit::replace(2..4, "CCDD")];
        assert_eq!(edited("abcdefgh", edits), "<abCCDDefh");
    }

    #[test]
    fn insertions_at_one_place_stand_as_they_were_added_and_before_what_is_replaced_there() {
        let edits = vec![Edit::insert(1, "1"), Edit::insert(1, "2"), Edit::replace(1..3, "3")];
        assert_eq!(edited("a--b", edits), "a123b");
        assert_eq!(edited("ab", vec![Edit::insert(2, "!"), Edit::remove(0..2)]), "!");
    }

    #[test]
    fn what_is_changed_is_never_shown() {
        let shown = format!("{:?}", Edit::insert(3, "secret"));
        assert!(!shown.contains("secret") && shown.contains("6 bytes"), "{shown}");
    }
}
