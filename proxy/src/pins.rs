//! Which slot of a llama.cpp server a conversation keeps.
//!
//! The server gives a request the slot whose cache begins most alike, so conversations under one system prompt push one
//! another out of one slot while others are empty. A request may name its slot; but naming one that is busy destroys
//! what runs there. So the rule here is: a busy slot is never named, and whatever is not known to be idle counts as busy.
//!
//! A slot is busy from before it is named until its reply came whole; if its request ended otherwise it is doubted until
//! the server, asked a while later, calls it idle. A request that names none (a stranger) may land in any slot that is
//! idle: those, and any that is left while it is under way, are left alone from before it sets out until the server, asked
//! once it has arrived, calls them idle. And none sets out while one that named a slot may still be on its way there.
//!
//! One word a slot and five a server, shared by all shards; nobody waits for anybody. It holds no prompt and no key, only
//! a part of a hash. It presumes that nobody but this process sends requests to the server; others are noticed when the
//! server is asked, half a second late on average.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use index::{ConversationKey, Millis};

use crate::clock;
use crate::limits::{PINNED_SLOTS_MAX, SLOT_SETTLE_MS};

/// The slots of one server. Empty where pinning is off.
#[derive(Debug, Default)]
pub struct Pins {
    slots: Box<[AtomicU64]>,
    /// How many slots the server told of; none is named before it did.
    known: AtomicU32,
    /// Requests that named a slot and were not seen to be there yet.
    starting: AtomicU64,
    /// Strangers that were not seen to be anywhere yet.
    coming: AtomicU64,
    /// Strangers that ever set out.
    strangers: AtomicU64,
    /// Strangers among them that ended badly on their way and may still arrive: how many (low 16 bits), and when the last
    /// of them did, ms.
    adrift: AtomicU64,
}

/// A slot's word: 3 bits of state, 37 bits of the time of its last change, ms, 8 bits that no two changes in a row share,
/// 16 bits of the conversation whose cache it holds.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// May be named.
    Free = 0,
    /// A request of ours runs there, or is on its way.
    Busy = 1,
    /// A request of ours that had begun ended badly: it may still run.
    Doubted = 2,
    /// A request of ours ended badly before anybody saw it begin: it may still come.
    Lost = 3,
    /// Somebody may run there who did not name it.
    Strange = 4,
}

const TIME_MAX: u64 = (1 << 37) - 1;
const TIME_AT: u32 = 24;
const TURN_AT: u32 = 16;
const TAG: u64 = (1 << TURN_AT) - 1;

impl Word {
    fn state(self) -> State {
        match self.0 >> 61 {
            0 => State::Free,
            1 => State::Busy,
            2 => State::Doubted,
            3 => State::Lost,
            _ => State::Strange,
        }
    }

    fn tag(self) -> u64 {
        self.0 & TAG
    }

    fn ms(self) -> u64 {
        self.0 >> TIME_AT & TIME_MAX
    }

    /// Whether it had not changed for so long before `moment`, ms.
    fn unchanged_for(self, ms: u64, moment: Millis) -> bool {
        self.ms() + ms < moment.0
    }

    /// The same slot in another state, from now on; never the same word.
    fn moved(self, state: State, now: Millis) -> Word {
        let ms = now.0.max(self.ms()).min(TIME_MAX);
        let turn = (self.0 >> TURN_AT).wrapping_add(1) & 0xff;
        Word((state as u64) << 61 | ms << TIME_AT | turn << TURN_AT | self.tag())
    }

    fn tagged(self, tag: u64) -> Word {
        Word(self.0 & !TAG | tag)
    }
}

/// What a request may do to the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It takes one and may name it.
    Named,
    /// It takes one and cannot name it.
    Any,
    /// It takes several, one after the other.
    Several,
}

/// A request must not set out yet: one that named a slot may still be on its way to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotYet;

/// The moment a server was asked for its slots, and what was under way then.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    at: Millis,
    coming: u64,
}

impl Pins {
    /// The table of a server whose slots may be named.
    pub fn on() -> Pins {
        let slots = (0..PINNED_SLOTS_MAX).map(|_| AtomicU64::new(0)).collect();
        Pins { slots, ..Pins::default() }
    }

    /// A request sets out: with a slot to name, if it may name one and one is known to be idle, else as a stranger. The
    /// conversation's own slot comes first, then the one that was left longest ago. `None` where pinning is off.
    ///
    /// # Errors
    /// When it would be a stranger, and must not set out now.
    pub fn set_out(
        &self,
        conversation: Option<ConversationKey>,
        wish: Wish,
    ) -> Result<Option<SlotUse<'_>>, NotYet> {
        if self.slots.is_empty() {
            return Ok(None);
        }
        // SeqCst: as in `count_in`. Read first: whoever is counted later is seen to have been when the slot is left.
        let strangers = self.strangers.load(Ordering::SeqCst);
        let slot = if wish == Wish::Named { self.name(conversation) } else { None };
        if slot.is_none() && !self.set_out_strange() {
            return Err(NotYet);
        }
        let (begun, whole) = (Cell::new(false), Cell::new(false));
        let several = wish == Wish::Several;
        Ok(Some(SlotUse { pins: self, slot, strangers, several, begun, whole }))
    }

    /// The server is about to be asked.
    pub fn ask(&self) -> Asked {
        let at = clock::now().millis();
        // SeqCst: a stranger not counted here reads the clock after `at` was read, and moves every word it finds.
        Asked { at, coming: self.coming.load(Ordering::SeqCst) }
    }

    /// Takes in what the server said of its slots when it was asked: which of them computed.
    pub fn look(&self, computing: &[bool], asked: Asked) {
        // A slot it does not tell of is none, and nothing runs there.
        let told = computing.iter().copied().chain(std::iter::repeat(false));
        for (cell, computes) in self.slots.iter().zip(told) {
            // SeqCst: the exchange compares again.
            let word = Word(cell.load(Ordering::SeqCst));
            let arrived = !computes && asked.coming == 0;
            let next = match word.state() {
                State::Free if computes && word.unchanged_for(0, asked.at) => State::Strange,
                // Nobody else runs in a slot that was named: it has arrived, and may run on for nobody.
                State::Lost if computes && word.unchanged_for(0, asked.at) => State::Doubted,
                State::Strange if arrived && word.unchanged_for(0, asked.at) => State::Free,
                State::Doubted | State::Lost
                    if arrived && word.unchanged_for(SLOT_SETTLE_MS, asked.at) =>
                {
                    State::Free
                }
                _ => continue,
            };
            if exchange(cell, word, word.moved(next, asked.at)) && word.state() == State::Lost {
                count_out(&self.starting, 1);
            }
        }
        self.settle(asked);
        let known = u32::try_from(computing.len().min(self.slots.len())).unwrap_or(0);
        // Release: whoever names one of these slots sees the marks made above.
        self.known.store(known, Ordering::Release);
    }

    /// Another process answers there: no slot is anybody's, and what was lost went with the old one. What is busy stays
    /// so until its request ends.
    pub fn forget(&self) {
        for cell in &self.slots {
            // SeqCst: as in `exchange`; only the tag goes.
            let word = Word(cell.fetch_and(!TAG, Ordering::SeqCst) & !TAG);
            let free = word.moved(State::Free, clock::now().millis());
            if word.state() == State::Lost && exchange(cell, word, free) {
                count_out(&self.starting, 1);
            }
        }
    }

    /// Strangers adrift for so long have arrived and gone.
    fn settle(&self, asked: Asked) {
        // SeqCst: one order of all that is counted here.
        let adrift = self.adrift.load(Ordering::SeqCst);
        let (count, last_ms) = (adrift & 0xffff, adrift >> 16);
        if count > 0
            && last_ms + SLOT_SETTLE_MS < asked.at.0
            // SeqCst: as above. One more would have made it another word.
            && self.adrift.compare_exchange(adrift, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
        {
            count_out(&self.coming, count);
        }
    }

    /// Counted in before a slot is looked for: a stranger either sees that, or its marks are seen.
    fn name(&self, conversation: Option<ConversationKey>) -> Option<u32> {
        count_in(&self.starting);
        let slot = self.claim(conversation);
        if slot.is_none() {
            count_out(&self.starting, 1);
        }
        slot
    }

    /// Takes the best of the free slots. Each try that fails, fails because somebody else took one.
    fn claim(&self, conversation: Option<ConversationKey>) -> Option<u32> {
        // Never 0, which stands for nobody's.
        let tag = conversation.map_or(0, |key| (key.0 >> 48).max(1));
        // Acquire: pairs with the Release in `look`.
        let known = self.known.load(Ordering::Acquire);
        let slots = self.slots.get(..usize::try_from(known).unwrap_or(0))?;
        for _ in 0..=slots.len() {
            // SeqCst: the exchange compares again.
            let words = slots.iter().map(|cell| (cell, Word(cell.load(Ordering::SeqCst))));
            let free = words.enumerate().filter(|(_, (_, word))| word.state() == State::Free);
            let rank = |word: Word| match word.tag() {
                own if own == tag && tag != 0 => 0,
                0 => 1,
                _ => 2 + word.ms(),
            };
            let (number, (cell, word)) = free.min_by_key(|(_, (_, word))| rank(*word))?;
            let busy = word.moved(State::Busy, clock::recent().millis());
            if exchange(cell, word, busy.tagged(tag)) {
                return u32::try_from(number).ok();
            }
        }
        None
    }

    /// A stranger may land in any slot that is not busy with one of ours: none of them is named from before it sets out.
    fn set_out_strange(&self) -> bool {
        // SeqCst: only spares work, it is asked again below.
        if self.starting.load(Ordering::SeqCst) > 0 {
            return false;
        }
        count_in(&self.coming);
        count_in(&self.strangers);
        let now = clock::now().millis();
        for cell in &self.slots {
            let next = |word: u64| match Word(word).state() {
                State::Busy => None,
                State::Free => Some(Word(word).moved(State::Strange, now).0),
                same => Some(Word(word).moved(same, now).0),
            };
            // SeqCst: whoever frees a slot after this was counted in sees that it was.
            let _ = cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        }
        // SeqCst: whoever is counted in after this finds the marks.
        let clear = self.starting.load(Ordering::SeqCst) == 0;
        if !clear {
            count_out(&self.coming, 1);
        }
        clear
    }
}

fn count_in(count: &AtomicU64) {
    // SeqCst: of two that exclude each other, each writes first and looks then, so one of them sees the other.
    count.fetch_add(1, Ordering::SeqCst);
}

fn count_out(count: &AtomicU64, by: u64) {
    // SeqCst: as in `count_in`.
    count.fetch_sub(by, Ordering::SeqCst);
}

fn exchange(cell: &AtomicU64, old: Word, new: Word) -> bool {
    // SeqCst: as in `count_in`.
    cell.compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
}

/// One request's use of a server's slots, from before it is sent. Dropping it ends the use.
#[derive(Debug)]
pub struct SlotUse<'p> {
    pins: &'p Pins,
    slot: Option<u32>,
    /// Strangers that had set out before the slot was taken.
    strangers: u64,
    several: bool,
    begun: Cell<bool>,
    whole: Cell<bool>,
}

impl SlotUse<'_> {
    /// The slot to name.
    pub fn slot(&self) -> Option<u32> {
        self.slot
    }

    /// The server began to answer, so the request is in its slot; of one that takes several some may still be to come.
    pub fn note_begun(&self) {
        if !self.several && !self.begun.replace(true) {
            let named = self.slot.is_some();
            count_out(if named { &self.pins.starting } else { &self.pins.coming }, 1);
        }
    }

    /// The reply came whole: the server is done with the slot.
    pub fn note_whole(&self) {
        self.note_begun();
        self.whole.set(true);
    }

    /// Ends the use of a slot of our own. Only its holder moves a busy word, but for its tag.
    fn free(&self, cell: &AtomicU64) {
        let state = match (self.whole.get(), self.begun.get()) {
            (true, _) => State::Strange,
            (false, true) => State::Doubted,
            (false, false) => State::Lost,
        };
        let now = clock::now().millis();
        let next = |word: u64| Some(Word(word).moved(state, now).0);
        // SeqCst: as in `count_in`.
        let moved = cell.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        let left = moved.map_or(Word(0), |busy| Word(busy).moved(state, now));
        // SeqCst: a stranger that comes later finds the slot and moves its word; one that came before is counted. It may be
        // seen to have begun before the end of ours is, and yet have begun here: then the server is asked.
        let alone = self.pins.strangers.load(Ordering::SeqCst) == self.strangers;
        if self.whole.get() && alone && self.pins.coming.load(Ordering::SeqCst) == 0 {
            exchange(cell, left, left.moved(State::Free, now));
        }
    }

    /// A stranger that nobody saw arrive may still do so.
    fn drift(&self) {
        let now = clock::now().millis().0;
        let one_more = |adrift: u64| Some(now << 16 | (adrift & 0xffff).saturating_add(1));
        // SeqCst: as in `count_in`.
        let _ = self.pins.adrift.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_more);
    }
}

impl Drop for SlotUse<'_> {
    fn drop(&mut self) {
        let own = self.slot.and_then(|slot| self.pins.slots.get(usize::try_from(slot).ok()?));
        match own {
            Some(cell) => self.free(cell),
            None if self.begun.get() => {}
            None if self.whole.get() => count_out(&self.pins.coming, 1),
            None => self.drift(),
        }
    }
}

#[cfg(test)]
mod tests;
