//! Who holds a span: a few ids inline, a shared bitmap when there are more. Most spans are one conversation's tail and
//! have one or two holders; a template may have the whole fleet.

use std::sync::Arc;

use super::Mark;
use crate::limits::HOLDERS_INLINE_MAX;
use crate::{BackendId, BackendSet};

/// A set of backends, small when it holds few. A mark rides along that has nothing to do with the set: the last one of the
/// span whose holders these are. Four bytes are free here beside the tag; anywhere else in a span they cost sixteen.
#[derive(Clone)]
pub(crate) enum Holders {
    /// `ids[..len]`, in no order.
    Few { len: u8, ids: [BackendId; HOLDERS_INLINE_MAX], last: Mark },
    /// More than fit inline (and it stays so until half of that are left, lest it flip back and forth).
    Many { set: Arc<BackendSet>, last: Mark },
}

const _: () = assert!(size_of::<Holders>() == 16);

impl Default for Holders {
    fn default() -> Self {
        Holders::Few { len: 0, ids: [BackendId(0); HOLDERS_INLINE_MAX], last: Mark(0) }
    }
}

impl Holders {
    pub(crate) fn one(id: BackendId) -> Self {
        Holders::Few { len: 1, ids: [id; HOLDERS_INLINE_MAX], last: Mark(0) }
    }

    /// The mark that rides along.
    pub(crate) fn last(&self) -> Mark {
        match self {
            Holders::Few { last, .. } | Holders::Many { last, .. } => *last,
        }
    }

    pub(crate) fn set_last(&mut self, mark: Mark) {
        match self {
            Holders::Few { last, .. } | Holders::Many { last, .. } => *last = mark,
        }
    }

    pub(crate) fn len(&self) -> usize {
        match self {
            Holders::Few { len, .. } => usize::from(*len),
            Holders::Many { set, .. } => set.len(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn contains(&self, id: BackendId) -> bool {
        match self {
            Holders::Few { len, ids, .. } => ids[..usize::from(*len)].contains(&id),
            Holders::Many { set, .. } => set.contains(id),
        }
    }

    /// Adds `id`. True when it was not there.
    pub(crate) fn insert(&mut self, id: BackendId) -> bool {
        if self.contains(id) {
            return false;
        }
        match self {
            Holders::Few { len, ids, .. } if usize::from(*len) < HOLDERS_INLINE_MAX => {
                ids[usize::from(*len)] = id;
                *len += 1;
            }
            Holders::Few { ids, last, .. } => {
                let set = Arc::new(ids.iter().copied().chain([id]).collect());
                *self = Holders::Many { set, last: *last };
            }
            Holders::Many { set, .. } => {
                Arc::make_mut(set).insert(id);
            }
        }
        true
    }

    /// Takes `id` out. True when it was there.
    pub(crate) fn remove(&mut self, id: BackendId) -> bool {
        match self {
            Holders::Few { len, ids, .. } => {
                let held = &mut ids[..usize::from(*len)];
                let Some(at) = held.iter().position(|&other| other == id) else { return false };
                held.swap(at, usize::from(*len) - 1);
                *len -= 1;
                true
            }
            Holders::Many { set, last } => {
                let held = set.contains(id) && Arc::make_mut(set).remove(id);
                if set.len() <= HOLDERS_INLINE_MAX / 2 {
                    let mut few: Holders = set.iter().collect();
                    few.set_last(*last);
                    *self = few;
                }
                held
            }
        }
    }

    /// The bitmap, where there is one.
    pub(crate) fn bitmap(&self) -> Option<&BackendSet> {
        match self {
            Holders::Few { .. } => None,
            Holders::Many { set, .. } => Some(set),
        }
    }

    /// Calls `each` for every holder.
    pub(crate) fn each(&self, mut each: impl FnMut(BackendId)) {
        match self {
            Holders::Few { len, ids, .. } => {
                ids[..usize::from(*len)].iter().for_each(|&id| each(id));
            }
            Holders::Many { set, .. } => set.iter().for_each(each),
        }
    }

    /// Calls `each` for every holder that is not in `other`.
    pub(crate) fn each_not_in(&self, other: &Holders, mut each: impl FnMut(BackendId)) {
        match (self, other) {
            (Holders::Many { set: a, .. }, Holders::Many { set: b, .. }) if Arc::ptr_eq(a, b) => {}
            (Holders::Many { set: a, .. }, Holders::Many { set: b, .. }) => a.each_not_in(b, each),
            _ => self.each(|id| {
                if !other.contains(id) {
                    each(id);
                }
            }),
        }
    }
}

impl FromIterator<BackendId> for Holders {
    fn from_iter<I: IntoIterator<Item = BackendId>>(ids: I) -> Self {
        let mut holders = Holders::default();
        for id in ids {
            holders.insert(id);
        }
        holders
    }
}

impl std::fmt::Debug for Holders {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut ids = Vec::with_capacity(self.len());
        self.each(|id| ids.push(id.0));
        ids.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn sorted(holders: &Holders) -> Vec<u16> {
        let mut ids = Vec::new();
        holders.each(|id| ids.push(id.0));
        ids.sort_unstable();
        ids
    }

    #[test]
    fn it_behaves_like_a_set_across_both_shapes() {
        for seed in 0..50 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let (mut holders, mut twin) = (Holders::default(), BTreeSet::new());
            holders.set_last(Mark(7));
            for _ in 0..300 {
                let id = rng.u16(0..20);
                if rng.bool() {
                    assert_eq!(holders.insert(BackendId(id)), twin.insert(id), "seed {seed}");
                } else {
                    assert_eq!(holders.remove(BackendId(id)), twin.remove(&id), "seed {seed}");
                }
                assert_eq!(sorted(&holders), twin.iter().copied().collect::<Vec<_>>());
                assert_eq!(holders.len(), twin.len());
                assert_eq!(holders.last(), Mark(7), "what rides along stays");
            }
        }
    }

    #[test]
    fn the_difference_is_right_for_every_pair_of_shapes() {
        let few = |ids: &[u16]| -> Holders { ids.iter().map(|&id| BackendId(id)).collect() };
        let many: Vec<u16> = (0..100).step_by(3).collect();
        let fewer: Vec<u16> = (0..100).step_by(9).collect();
        for (a, b) in [(&many, &fewer), (&many, &vec![3, 99]), (&vec![1, 3], &many)] {
            let mut out = Vec::new();
            few(a).each_not_in(&few(b), |id| out.push(id.0));
            let expected: Vec<u16> = a.iter().copied().filter(|id| !b.contains(id)).collect();
            assert_eq!(out, expected);
        }
    }
}
