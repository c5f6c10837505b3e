//! Slots kept, slots doubted, and an engine that notices whoever names a busy slot.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::*;

fn pins(slots: usize) -> Pins {
    let pins = Pins::on();
    pins.look(&vec![false; slots], pins.ask());
    pins
}

fn key(number: u64) -> Option<ConversationKey> {
    Some(ConversationKey(number << 48 | 7))
}

fn out(pins: &Pins, conversation: u64, wish: Wish) -> Result<SlotUse<'_>, NotYet> {
    pins.set_out(key(conversation), wish).map(|using| using.expect("pinning is on"))
}

fn named(pins: &Pins, conversation: u64) -> SlotUse<'_> {
    out(pins, conversation, Wish::Named).expect("it may go")
}

/// Asked long enough from now that what has ended is settled.
fn later(pins: &Pins) -> Asked {
    let Asked { at, coming } = pins.ask();
    let last = pins.slots.iter().map(|cell| Word(cell.load(Ordering::SeqCst)).ms()).max();
    Asked { at: Millis(at.0.max(last.unwrap_or(0)) + 2 * SLOT_SETTLE_MS), coming }
}

/// Moments of a millisecond are told apart.
fn next_millisecond() {
    let begun = clock::now().millis();
    while clock::now().millis() == begun {
        std::thread::yield_now();
    }
}

/// A turn of a conversation that goes well; the slot it named.
fn turn(pins: &Pins, conversation: u64) -> Option<u32> {
    next_millisecond();
    let using = named(pins, conversation);
    using.note_whole();
    using.slot()
}

#[test]
fn a_conversation_keeps_its_slot_and_others_get_the_one_left_longest_ago() {
    let pins = pins(3);
    let turn = |conversation| turn(&pins, conversation);
    assert_eq!([turn(1), turn(2), turn(3)], [Some(0), Some(1), Some(2)]);
    assert_eq!([turn(2), turn(1), turn(3)], [Some(1), Some(0), Some(2)]);
    assert_eq!([turn(4), turn(1), turn(2)], [Some(1), Some(0), Some(2)]);
    pins.forget();
    // Nobody's any more.
    assert_eq!(turn(2), Some(0));
}

#[test]
fn a_busy_slot_is_not_named_not_even_to_its_own_conversation() {
    let pins = pins(2);
    let first = named(&pins, 1);
    let second = named(&pins, 1);
    assert_eq!((first.slot(), second.slot()), (Some(0), Some(1)));
    assert!(out(&pins, 1, Wish::Named).is_err());
    first.note_begun();
    second.note_begun();
    assert_eq!(named(&pins, 1).slot(), None);
}

#[test]
fn nothing_is_named_before_the_server_told_its_slots_nor_where_pinning_is_off() {
    assert_eq!(named(&Pins::on(), 1).slot(), None);
    assert!(Pins::default().set_out(key(1), Wish::Named).is_ok_and(|using| using.is_none()));
}

#[test]
fn a_slot_whose_request_ended_badly_is_named_again_only_when_the_server_calls_it_idle() {
    let pins = pins(1);
    let using = named(&pins, 1);
    using.note_begun();
    drop(using);
    assert_eq!(turn(&pins, 1), None);
    pins.look(&[false], pins.ask());
    assert_eq!(turn(&pins, 1), None, "too early to believe it");
    pins.look(&[true], later(&pins));
    assert_eq!(turn(&pins, 1), None, "it still computes");
    pins.look(&[false], later(&pins));
    assert_eq!(turn(&pins, 1), Some(0));
}

#[test]
fn a_slot_busy_for_unknown_reasons_is_left_alone() {
    let pins = pins(2);
    pins.look(&[true, false], later(&pins));
    assert_eq!([turn(&pins, 1), turn(&pins, 2)], [Some(1), Some(1)]);
    let other = named(&pins, 1);
    other.note_begun();
    assert_eq!(turn(&pins, 2), None);
    pins.look(&[false, false], later(&pins));
    assert_eq!(turn(&pins, 2), Some(0));
}

#[test]
fn a_stranger_takes_the_idle_slots_out_of_use_until_the_server_was_asked_and_spares_the_busy_ones()
{
    let pins = pins(3);
    let busy = named(&pins, 1);
    busy.note_begun();
    let stranger = out(&pins, 9, Wish::Any).expect("nobody is on the way");
    let early = later(&pins);
    stranger.note_begun();
    assert_eq!(turn(&pins, 2), None, "nobody knows where the stranger is");
    busy.note_whole();
    drop(busy);
    assert_eq!(turn(&pins, 1), None, "it may have gone where the busy one had just ended");
    pins.look(&[false, true, false], early);
    assert_eq!(turn(&pins, 2), None, "asked before it had arrived");
    pins.look(&[false, true, false], later(&pins));
    assert_eq!([turn(&pins, 1), turn(&pins, 3)], [Some(0), Some(2)]);
}

#[test]
fn a_slot_that_a_stranger_took_over_as_it_came_free_is_not_named() {
    let pins = pins(1);
    let first = named(&pins, 1);
    first.note_begun();
    let stranger = out(&pins, 9, Wish::Any).expect("nobody is on the way");
    // The server is done with the first and begins with the stranger, and that is heard of in the other order.
    stranger.note_begun();
    first.note_whole();
    drop(first);
    assert_eq!(turn(&pins, 1), None, "the stranger runs there");
    pins.look(&[true], later(&pins));
    assert_eq!(turn(&pins, 1), None, "it still does");
    stranger.note_whole();
    drop(stranger);
    pins.look(&[false], later(&pins));
    assert_eq!(turn(&pins, 1), Some(0));
}

#[test]
fn while_a_stranger_is_on_its_way_no_slot_that_is_left_is_named() {
    let pins = pins(1);
    for wish in [Wish::Any, Wish::Several] {
        let busy = named(&pins, 1);
        busy.note_begun();
        let stranger = out(&pins, 9, wish).expect("nobody is on the way");
        busy.note_whole();
        drop(busy);
        assert_eq!(pins.slots[0].load(Ordering::SeqCst) >> 61, State::Strange as u64);
        // One that takes several slots may still come to the last of them.
        stranger.note_begun();
        pins.look(&[false], later(&pins));
        let free = pins.slots[0].load(Ordering::SeqCst) >> 61 == State::Free as u64;
        assert_eq!(free, wish == Wish::Any);
        stranger.note_whole();
        drop(stranger);
        pins.look(&[false], later(&pins));
    }
}

#[test]
fn no_stranger_sets_out_while_one_that_named_a_slot_is_on_its_way() {
    let pins = pins(4);
    let using = named(&pins, 1);
    assert_eq!(out(&pins, 2, Wish::Any).err(), Some(NotYet));
    using.note_begun();
    assert!(out(&pins, 2, Wish::Any).is_ok());
}

#[test]
fn what_was_lost_on_its_way_bars_the_others_until_the_server_was_asked() {
    let pins = pins(2);
    drop(named(&pins, 1));
    assert!(out(&pins, 2, Wish::Any).is_err());
    pins.look(&[false; 2], later(&pins));
    drop(out(&pins, 2, Wish::Any).expect("the lost one is over"));
    assert_eq!(pins.coming.load(Ordering::SeqCst), 1, "it may still arrive");
    pins.look(&[false; 2], later(&pins));
    pins.look(&[false; 2], later(&pins));
    assert_eq!((pins.coming.load(Ordering::SeqCst), turn(&pins, 1)), (0, Some(0)));
}

const NAMED_OFTEN: u64 = 1_000;

/// A server that runs requests where they ask to, or anywhere idle.
struct Server {
    busy: Vec<AtomicBool>,
    named: AtomicU64,
}

impl Server {
    /// Runs one request; panics if it named a busy slot.
    fn run(&self, using: &SlotUse<'_>, steps: usize) {
        // It takes a while to arrive.
        for _ in 0..steps {
            std::thread::yield_now();
        }
        let slot = match using.slot() {
            Some(slot) => {
                let was_busy = self.busy[slot as usize].swap(true, Ordering::SeqCst);
                assert!(!was_busy, "slot {slot} was busy when it was named");
                self.named.fetch_add(1, Ordering::SeqCst);
                slot as usize
            }
            None => loop {
                let idle = |slot: &AtomicBool| !slot.swap(true, Ordering::SeqCst);
                match self.busy.iter().position(idle) {
                    Some(slot) => break slot,
                    None => std::thread::yield_now(),
                }
            },
        };
        using.note_begun();
        for _ in 0..steps {
            std::thread::yield_now();
        }
        self.busy[slot].store(false, Ordering::SeqCst);
    }
}

#[test]
fn no_busy_slot_is_ever_named_however_many_threads_ask() {
    let pins = pins(4);
    let busy = (0..4).map(|_| AtomicBool::new(false)).collect();
    let server = Server { busy, named: AtomicU64::new(0) };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3_u64 {
            let (pins, server, over) = (&pins, &server, &over);
            scope.spawn(move || {
                let mut random = fastrand::Rng::with_seed(thread);
                while !over.load(Ordering::SeqCst) {
                    let wish = if random.u8(0..8) == 0 { Wish::Any } else { Wish::Named };
                    let Ok(using) = out(pins, random.u64(1..6), wish) else {
                        std::thread::yield_now();
                        continue;
                    };
                    server.run(&using, random.usize(0..40));
                    using.note_whole();
                    drop(using);
                    if random.bool() {
                        next_millisecond();
                    }
                }
            });
        }
        // Until naming has happened often; a bound on how long it may take.
        for _ in 0..20_000 {
            let asked = pins.ask();
            let computing = server.busy.iter().map(|slot| slot.load(Ordering::SeqCst));
            let computing: Vec<bool> = computing.collect();
            pins.look(&computing, asked);
            if server.named.load(Ordering::SeqCst) > NAMED_OFTEN {
                break;
            }
            next_millisecond();
        }
        over.store(true, Ordering::SeqCst);
    });
    assert!(server.named.load(Ordering::SeqCst) > NAMED_OFTEN, "naming happens at all");
    let idle = [&pins.starting, &pins.coming].map(|count| count.load(Ordering::SeqCst));
    assert_eq!(idle, [0, 0]);
}
