//! What identifies a conversation that brings no id: its first system text and its first user text. Both stay the same
//! while the conversation grows. They are noted in passing as spans; their digest is computed only if somebody asks.

use super::json::Text;
use crate::limits::HEAD_TEXT_BYTES_MAX;
use xxhash_rust::xxh3::Xxh3;

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
    pub(super) fn digest(&self) -> Option<u128> {
        let (first, last) = self.user?;
        let mut hash = Xxh3::new();
        for text in [self.system, Some(first), Some(last)] {
            feed(&mut hash, text);
        }
        Some(hash.digest128())
    }
}

fn feed(hash: &mut Xxh3, text: Option<Text<'_>>) {
    let mut left = HEAD_TEXT_BYTES_MAX;
    if let Some(text) = text {
        text.canonical(|piece| {
            let taken = piece.get(..left).unwrap_or(piece);
            hash.update(taken);
            left -= taken.len();
            left > 0
        });
    }
    // Canonical text holds no bare quote, so this cannot be part of one.
    hash.update(b"\"");
}
