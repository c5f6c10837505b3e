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
pub(crate) struct Children(Option<Arc<Node>>);

/// What a place leads to. One kind of pointer for both keeps a place at eight bytes; a lookup comes by here anyway.
#[derive(Clone, Debug)]
pub(crate) enum Node {
    Span(Span),
    Fan(Fan),
}

/// One level of the trie: a bit for each place that is taken, and the taken places in order.
#[derive(Clone, Debug)]
pub(crate) struct Fan {
    taken: u32,
    places: Box<[Arc<Node>]>,
}

impl Children {
    pub(crate) fn one(span: Arc<Node>) -> Self {
        Self(Some(span))
    }

    /// The only span that can start with `first`. Whether it does is for the caller to see: a match of the span's end
    /// says so without another look.
    pub(crate) fn probe(&self, first: Mark) -> Option<&Span> {
        let mut node = self.0.as_deref()?;
        let mut key = first.0;
        loop {
            match node {
                Node::Span(span) => return Some(span),
                Node::Fan(fan) => node = &fan.places[fan.find(key)?],
            }
            key >>= LEVEL_BITS;
        }
    }

    /// The place of the span that starts with `first`, for editing: copies shared fans on the way, not the span.
    pub(crate) fn place_mut(&mut self, first: Mark) -> Option<&mut Arc<Node>> {
        let mut node = self.0.as_mut()?;
        let mut key = first.0;
        loop {
            if node.is_span() {
                return Some(node);
            }
            let fan = Node::fan_mut(node)?;
            let at = fan.find(key)?;
            node = &mut fan.places[at];
            key >>= LEVEL_BITS;
        }
    }

    /// The span that starts with `first`, for editing: copies what is shared on the way and the span itself.
    pub(crate) fn get_mut(&mut self, first: Mark) -> Option<&mut Span> {
        Node::span_mut(self.place_mut(first)?)
    }

    /// Adds a span whose first mark no other child has.
    pub(crate) fn insert(&mut self, span: Span) {
        let (first, node) = (span.first(), Arc::new(Node::Span(span)));
        match &mut self.0 {
            None => self.0 = Some(node),
            Some(held) => Node::insert(held, node, first, 0),
        }
    }

    /// Takes out the span that starts with `first`.
    pub(crate) fn remove(&mut self, first: Mark) -> Option<Arc<Node>> {
        let mut node = self.0.take()?;
        if node.is_span() {
            return Some(node);
        }
        let fan = Node::fan_mut(&mut node)?;
        let out = fan.remove(first.0);
        let only = fan.only_span();
        self.0 = Some(only.unwrap_or(node));
        out
    }

    /// Takes out the only child, if there is exactly one.
    pub(crate) fn take_single(&mut self) -> Option<Arc<Node>> {
        self.is_single().then(|| self.0.take()).flatten()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether there is exactly one.
    pub(crate) fn is_single(&self) -> bool {
        self.0.as_ref().is_some_and(|node| node.is_span())
    }

    /// Calls `each` for every child, in no order.
    pub(crate) fn each<'c>(&'c self, each: &mut impl FnMut(&'c Span)) {
        self.0.iter().for_each(|node| node.each(each));
    }

    /// Drops one level, leaving what is below on `below`: the step of a drop without recursion.
    pub(crate) fn dismantle(self, below: &mut Vec<Children>) {
        match self.0.and_then(Arc::into_inner) {
            None => {}
            Some(Node::Span(span)) => below.extend(children_of(span)),
            Some(Node::Fan(fan)) => {
                for place in fan.places {
                    if !place.is_span() {
                        below.push(Children(Some(place)));
                    } else if let Some(Node::Span(span)) = Arc::into_inner(place) {
                        below.extend(children_of(span));
                    }
                }
            }
        }
    }

    /// Numbered checks of the shape: 1. keys lie where their bits say; 2. no fan that one span would do for.
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        match self.0.as_deref() {
            Some(Node::Fan(fan)) => fan.check(0, 0),
            _ => Ok(()),
        }
    }
}

/// What is left to drop of a span nobody else holds.
fn children_of(mut span: Span) -> Option<Children> {
    let children = std::mem::take(&mut span.children);
    (!children.is_empty()).then_some(children)
}

impl Node {
    fn is_span(&self) -> bool {
        matches!(self, Node::Span(_))
    }

    /// The span, for editing: copied if it is shared.
    pub(crate) fn span_mut(node: &mut Arc<Node>) -> Option<&mut Span> {
        match Arc::make_mut(node) {
            Node::Span(span) => Some(span),
            Node::Fan(_) => None,
        }
    }

    fn fan_mut(node: &mut Arc<Node>) -> Option<&mut Fan> {
        match Arc::make_mut(node) {
            Node::Fan(fan) => Some(fan),
            Node::Span(_) => None,
        }
    }

    /// Adds a span that starts with `first` at or below a place of this level.
    fn insert(place: &mut Arc<Node>, span: Arc<Node>, first: Mark, level: u32) {
        if let Node::Span(other) = &**place {
            let two = Fan::of_two((other.first(), Arc::clone(place)), (first, span), level);
            *place = Arc::new(Node::Fan(two));
        } else if let Some(fan) = Node::fan_mut(place) {
            fan.insert(span, first, level);
        }
    }

    fn each<'c>(&'c self, each: &mut impl FnMut(&'c Span)) {
        match self {
            Node::Span(span) => each(span),
            Node::Fan(fan) => fan.places.iter().for_each(|place| place.each(each)),
        }
    }
}

impl Fan {
    fn of_two(a: (Mark, Arc<Node>), b: (Mark, Arc<Node>), level: u32) -> Fan {
        let (x, y) = (digit(a.0.0, level), digit(b.0.0, level));
        if x == y {
            let below = Fan::of_two(a, b, level + 1);
            return Fan { taken: 1 << x, places: Box::new([Arc::new(Node::Fan(below))]) };
        }
        let (low, high) = if x < y { (a, b) } else { (b, a) };
        Fan { taken: 1 << x | 1 << y, places: Box::new([low.1, high.1]) }
    }

    /// Where the key's lowest digit leads.
    fn find(&self, key: u32) -> Option<usize> {
        let bit = 1 << (key & DIGIT_MASK);
        (self.taken & bit != 0).then(|| self.rank(bit))
    }

    fn rank(&self, bit: u32) -> usize {
        (self.taken & (bit - 1)).count_ones() as usize
    }

    fn insert(&mut self, span: Arc<Node>, first: Mark, level: u32) {
        let key = first.0 >> (level * LEVEL_BITS);
        match self.find(key) {
            Some(at) => Node::insert(&mut self.places[at], span, first, level + 1),
            None => {
                let bit = 1 << (key & DIGIT_MASK);
                self.places = with(&self.places, self.rank(bit), span);
                self.taken |= bit;
            }
        }
    }

    fn remove(&mut self, key: u32) -> Option<Arc<Node>> {
        let at = self.find(key)?;
        let place = &mut self.places[at];
        if !place.is_span() {
            let below = Node::fan_mut(place)?;
            let out = below.remove(key >> LEVEL_BITS);
            if let Some(span) = below.only_span() {
                *place = span;
            }
            return out;
        }
        let mut places = std::mem::take(&mut self.places).into_vec();
        let out = places.remove(at);
        self.places = places.into_boxed_slice();
        self.taken &= !(1 << (key & DIGIT_MASK));
        Some(out)
    }

    /// The span, when the fan has come down to one and nothing else.
    fn only_span(&self) -> Option<Arc<Node>> {
        match &self.places[..] {
            [only] if only.is_span() => Some(Arc::clone(only)),
            _ => None,
        }
    }

    fn check(&self, level: u32, path: u32) -> Result<(), String> {
        if self.taken.count_ones() as usize != self.places.len() || self.only_span().is_some() {
            return Err(format!("2: a fan of {} places at level {level}", self.places.len()));
        }
        let digits = (0..u32::BITS).filter(|digit| self.taken & (1 << digit) != 0);
        for (place, digit) in self.places.iter().zip(digits) {
            let path = path | digit << (level * LEVEL_BITS);
            match &**place {
                Node::Fan(below) => below.check(level + 1, path)?,
                Node::Span(span) => {
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

fn with(places: &[Arc<Node>], at: usize, place: Arc<Node>) -> Box<[Arc<Node>]> {
    let (before, after) = places.split_at(at);
    before.iter().cloned().chain([place]).chain(after.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Holders, SpanId};
    use super::*;

    fn span(first: u32) -> Span {
        Span::of(SpanId(1), Arc::from([Mark(first)]), Holders::default())
    }

    fn first(node: &Node) -> Option<u32> {
        match node {
            Node::Span(span) => Some(span.first().0),
            Node::Fan(_) => None,
        }
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
            let (mut children, mut twin) = (Children::default(), BTreeMap::new());
            let mut versions: Vec<(Children, Vec<u32>)> = Vec::new();
            for _ in 0..400 {
                let key = if rng.u8(..) < 100 && !twin.is_empty() {
                    *twin.keys().nth(rng.usize(..twin.len())).unwrap()
                } else {
                    rng.u32(..) & mask
                };
                if twin.remove(&key).is_some() {
                    assert_eq!(first(&children.remove(Mark(key)).unwrap()), Some(key));
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
        let mut children = Children::default();
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
