//! What identifies a conversation that brings no id: its first system text and its first user text. Both stay the same
//! while the conversation grows. They are noted in passing as spans; their digest is computed only if somebody asks.

use super::json::Text;
use crate::limits::HEAD_TEXT_BYTES_MAX;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// The noted texts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Head<'a> {
    system: Option<Text<'a>>,
    /// The first and the last text of the first user message: some clients put a fixed reminder before what was asked.
    user: Option<(Text<'a>, Text<'a>)>,
    place: Place,
}

/// What the text seen next belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Elsewhere,
    System,
    User,
}

impl<'a> Head<'a> {
    /// A message of this role begins.
    pub(super) fn enter(&mut self, role: Text<'_>) {
        let system = role.is("system") || role.is("developer");
        self.place = if system && self.system.is_none() {
            Place::System
        } else if role.is("user") && self.user.is_none() {
            Place::User
        } else {
            Place::Elsewhere
        };
    }

    /// A prompt without roles begins.
    pub(super) fn enter_plain(&mut self) {
        self.place = if self.user.is_none() { Place::User } else { Place::Elsewhere };
    }

    /// The next text.
    pub(super) fn see(&mut self, text: Text<'a>) {
        match self.place {
            Place::System if self.system.is_none() => self.system = Some(text),
            Place::User => {
                let first = self.user.map_or(text, |(first, _)| first);
                self.user = Some((first, text));
            }
            _ => {}
        }
    }

    /// A digest of the noted texts; `None` without a user text, which alone tells conversations apart.
    pub(super) fn digest(&self) -> Option<u64> {
        let (first, last) = self.user?;
        let first_hash = hash(first);
        // Most messages have one text, which need not be read twice.
        let last_hash = if is_same(first, last) { first_hash } else { hash(last) };
        let parts = [self.system.map_or(NONE, hash), first_hash, last_hash];
        let mut bytes = [0; 24];
        for (place, part) in bytes.chunks_exact_mut(8).zip(parts) {
            place.copy_from_slice(&part.to_le_bytes());
        }
        Some(xxh3_64(&bytes))
    }
}

/// Stands for a text that is not there; a text with this hash would have to be sought for.
const NONE: u64 = 0;

/// Whether both are the same span of the body.
fn is_same(one: Text<'_>, other: Text<'_>) -> bool {
    std::ptr::eq(one.raw(), other.raw())
}

/// The hash of a text's canonical spelling, as far as it identifies a conversation.
fn hash(text: Text<'_>) -> u64 {
    if text.is_canonical() {
        let raw = text.raw();
        return xxh3_64(raw.get(..HEAD_TEXT_BYTES_MAX).unwrap_or(raw));
    }
    let mut hash = Xxh3::new();
    let mut left = HEAD_TEXT_BYTES_MAX;
    text.canonical(|piece| {
        let taken = piece.get(..left).unwrap_or(piece);
        hash.update(taken);
        left -= taken.len();
        left > 0
    });
    hash.digest()
}
