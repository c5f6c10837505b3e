//! The children of a span, by first mark: a persistent hash trie. One hundred thousand conversations may hang below one
//! system prompt, and adding the next must not copy a map of them: it copies the four or five fans on the way, of at most
//! 32 places each. Lookups never allocate. Marks are hashes already, so their bits are used as they are.
//!
//! Shape: no fan is empty, none below the top has a single span and nothing else; so one child is never in a fan.

use std::sync::Arc;

use super::{Mark, Span};

/// Bits of the key a level uses: 32 places a fan, 7 levels for 32 bits.
const LEVEL_BITS: u32 = 5;
const DIGIT_MASK: u32 = (1 << LEVEL_BITS) - 1;

/// The spans below one span.
#[derive(Clone, Debug, Default)]
pub(crate) enum Children {
    #[default]
    None,
    One(Arc<Span>),
    Many(Arc<Fan>),
}

/// One level of the trie: a bit for each place that is taken, and the taken places in order.
#[derive(Clone, Debug)]
pub(crate) struct Fan {
    taken: u32,
    places: Box<[Place]>,
}

#[derive(Clone, Debug)]
enum Place {
    Span(Arc<Span>),
    Fan(Arc<Fan>),
}

impl Children {
    /// The only span that can start with `first`. Whether it does is for the caller to see: a match of the span's end
    /// says so without another look.
    pub(crate) fn probe(&self, first: Mark) -> Option<&Span> {
        let mut fan = match self {
            Children::None => return None,
            Children::One(span) => return Some(span),
            Children::Many(fan) => fan,
        };
        let mut key = first.0;
        loop {
            match &fan.places[fan.find(key)?] {
                Place::Span(span) => return Some(span),
                Place::Fan(below) => fan = below,
            }
            key >>= LEVEL_BITS;
        }
    }

    /// The span that starts with `first`, for editing: copies shared fans on the way.
    pub(crate) fn get_mut(&mut self, first: Mark) -> Option<&mut Arc<Span>> {
        let mut fan = match self {
            Children::None => return None,
            Children::One(span) => return Some(span),
            Children::Many(fan) => Arc::make_mut(fan),
        };
        let mut key = first.0;
        loop {
            let at = fan.find(key)?;
            match &mut fan.places[at] {
                Place::Span(span) => return Some(span),
                Place::Fan(below) => fan = Arc::make_mut(below),
            }
            key >>= LEVEL_BITS;
        }
    }

    /// Adds a span whose first mark no other child has.
    pub(crate) fn insert(&mut self, span: Arc<Span>) {
        *self = match std::mem::take(self) {
            Children::None => Children::One(span),
            Children::One(other) => Children::Many(Arc::new(Fan::of_two(other, span, 0))),
            Children::Many(mut fan) => {
                Arc::make_mut(&mut fan).insert(span, 0);
                Children::Many(fan)
            }
        };
    }

    /// Takes out the span that starts with `first`.
    pub(crate) fn remove(&mut self, first: Mark) -> Option<Arc<Span>> {
        match std::mem::take(self) {
            Children::None => None,
            Children::One(span) => Some(span),
            Children::Many(mut fan) => {
                let out = Arc::make_mut(&mut fan).remove(first.0);
                *self = match fan.only_span() {
                    Some(span) => Children::One(span),
                    None => Children::Many(fan),
                };
                out
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        matches!(self, Children::None)
    }

    /// Whether there is exactly one.
    pub(crate) fn is_single(&self) -> bool {
        matches!(self, Children::One(_))
    }

    /// Calls `each` for every child, in no order.
    pub(crate) fn each<'c>(&'c self, each: &mut impl FnMut(&'c Span)) {
        match self {
            Children::None => {}
            Children::One(span) => each(span),
            Children::Many(fan) => fan.each(each),
        }
    }

    /// Drops one level, leaving what is below on `below`: the step of a drop without recursion.
    pub(crate) fn dismantle(self, below: &mut Vec<Children>) {
        match self {
            Children::None => {}
            Children::One(span) => below.extend(children_of(span)),
            Children::Many(fan) => {
                for place in Arc::into_inner(fan).into_iter().flat_map(|fan| fan.places) {
                    match place {
                        Place::Span(span) => below.extend(children_of(span)),
                        Place::Fan(fan) => below.push(Children::Many(fan)),
                    }
                }
            }
        }
    }

    /// Numbered checks of the shape: 1. keys lie where their bits say; 2. no fan that one span would do for.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        match self {
            Children::Many(fan) => fan.check(0, 0),
            _ => Ok(()),
        }
    }
}

/// What is left to drop of a span nobody else holds.
fn children_of(span: Arc<Span>) -> Option<Children> {
    let mut span = Arc::into_inner(span)?;
    let children = std::mem::take(&mut span.children);
    (!children.is_empty()).then_some(children)
}

impl Fan {
    fn of_two(a: Arc<Span>, b: Arc<Span>, level: u32) -> Fan {
        let (x, y) = (digit(a.first().0, level), digit(b.first().0, level));
        if x == y {
            let below = Fan::of_two(a, b, level + 1);
            return Fan { taken: 1 << x, places: Box::new([Place::Fan(Arc::new(below))]) };
        }
        let (low, high) = if x < y { (a, b) } else { (b, a) };
        Fan { taken: 1 << x | 1 << y, places: Box::new([Place::Span(low), Place::Span(high)]) }
    }

    /// Where the key's lowest digit leads.
    fn find(&self, key: u32) -> Option<usize> {
        let bit = 1 << (key & DIGIT_MASK);
        (self.taken & bit != 0).then(|| self.rank(bit))
    }

    fn rank(&self, bit: u32) -> usize {
        (self.taken & (bit - 1)).count_ones() as usize
    }

    fn insert(&mut self, span: Arc<Span>, level: u32) {
        let key = span.first().0 >> (level * LEVEL_BITS);
        let Some(at) = self.find(key) else {
            let bit = 1 << (key & DIGIT_MASK);
            self.places = with(&self.places, self.rank(bit), Place::Span(span));
            self.taken |= bit;
            return;
        };
        match &mut self.places[at] {
            Place::Fan(below) => Arc::make_mut(below).insert(span, level + 1),
            place => {
                if let Place::Span(other) = place {
                    let two = Fan::of_two(Arc::clone(other), span, level + 1);
                    *place = Place::Fan(Arc::new(two));
                }
            }
        }
    }

    fn remove(&mut self, key: u32) -> Option<Arc<Span>> {
        let at = self.find(key)?;
        let place = &mut self.places[at];
        if let Place::Fan(below) = place {
            let out = Arc::make_mut(below).remove(key >> LEVEL_BITS);
            if let Some(span) = below.only_span() {
                *place = Place::Span(span);
            }
            return out;
        }
        let mut places = std::mem::take(&mut self.places).into_vec();
        let out = places.remove(at);
        self.places = places.into_boxed_slice();
        self.taken &= !(1 << (key & DIGIT_MASK));
        match out {
            Place::Span(span) => Some(span),
            Place::Fan(_) => None,
        }
    }

    /// The span, when the fan has come down to one and nothing else.
    fn only_span(&self) -> Option<Arc<Span>> {
        match &self.places[..] {
            [Place::Span(span)] => Some(Arc::clone(span)),
            _ => None,
        }
    }

    fn each<'c>(&'c self, each: &mut impl FnMut(&'c Span)) {
        for place in &self.places {
            match place {
                Place::Span(span) => each(span),
                Place::Fan(below) => below.each(each),
            }
        }
    }

    fn check(&self, level: u32, path: u32) -> Result<(), String> {
        if self.taken.count_ones() as usize != self.places.len() || self.only_span().is_some() {
            return Err(format!("2: a fan of {} places at level {level}", self.places.len()));
        }
        let digits = (0..u32::BITS).filter(|digit| self.taken & (1 << digit) != 0);
        for (place, digit) in self.places.iter().zip(digits) {
            let path = path | digit << (level * LEVEL_BITS);
            match place {
                Place::Fan(below) => below.check(level + 1, path)?,
                Place::Span(span) => {
                    let bits = (level + 1) * LEVEL_BITS;
                    let mask = if bits < u32::BITS { (1 << bits) - 1 } else { u32::MAX };
                    if span.first().0 & mask != path {
                        return Err(format!(
                            "1: {:?} at level {level} under {path:x}",
                            span.first()
                        ));
                    }
                }
            }
        }
        Ok(())
    }
}

fn digit(key: u32, level: u32) -> u32 {
    key >> (level * LEVEL_BITS) & DIGIT_MASK
}

fn with(places: &[Place], at: usize, place: Place) -> Box<[Place]> {
    let (before, after) = places.split_at(at);
    before.iter().cloned().chain([place]).chain(after.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Holders, SpanId};
    use super::*;

    fn span(first: u32) -> Arc<Span> {
        Arc::new(Span::of(SpanId(1), Arc::from([Mark(first)]), Holders::default()))
    }

    fn firsts(children: &Children) -> Vec<u32> {
        let mut out = Vec::new();
        children.each(&mut |span| out.push(span.first().0));
        out.sort_unstable();
        out
    }

    #[test]
    fn it_behaves_like_a_map_and_older_versions_stay_as_they_were() {
        for seed in 0..40 {
            let mut rng = fastrand::Rng::with_seed(seed);
            // Few distinct low bits make long common paths, as crafted or unlucky hashes would.
            let mask = [u32::MAX, 0xf000_0fff, 0xf800_0000][seed as usize % 3];
            let (mut children, mut twin) = (Children::None, BTreeMap::new());
            let mut versions: Vec<(Children, Vec<u32>)> = Vec::new();
            for _ in 0..400 {
                let key = if rng.u8(..) < 100 && !twin.is_empty() {
                    *twin.keys().nth(rng.usize(..twin.len())).unwrap()
                } else {
                    rng.u32(..) & mask
                };
                if twin.remove(&key).is_some() {
                    assert_eq!(children.remove(Mark(key)).unwrap().first().0, key);
                } else {
                    children.insert(span(key));
                    twin.insert(key, ());
                }
                children.check_invariants().unwrap();
                assert_eq!(firsts(&children), twin.keys().copied().collect::<Vec<_>>());
                for &key in twin.keys() {
                    assert_eq!(children.probe(Mark(key)).unwrap().first().0, key);
                }
                if rng.u8(..) < 20 {
                    versions.push((children.clone(), firsts(&children)));
                }
            }
            for (version, expected) in versions {
                assert_eq!(firsts(&version), expected, "seed {seed}");
            }
        }
    }

    #[test]
    fn keys_that_differ_in_the_last_bit_only_are_told_apart() {
        let mut children = Children::None;
        let keys = [7, 7 | 1 << 31, 7 | 1 << 30];
        keys.iter().for_each(|&key| children.insert(span(key)));
        children.check_invariants().unwrap();
        for key in keys {
            assert_eq!(children.get_mut(Mark(key)).unwrap().first().0, key);
        }
        keys.iter().for_each(|&key| assert!(children.remove(Mark(key)).is_some()));
        assert!(children.is_empty());
    }
}
