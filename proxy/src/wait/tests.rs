//! Who is called first, and what is left of those who go.

use std::collections::HashMap;

use super::*;
use crate::limits::WAIT_TENANTS_MAX;

fn called(ticket: &Ticket) -> bool {
    ticket.waiter.called.get()
}

fn of_size(uncached_tokens: u64) -> Waits {
    Waits { uncached_tokens, tokens: uncached_tokens, tenant: None }
}

fn of_tenant(tenant: u64, tokens: u64) -> Waits {
    Waits { tenant: Some(TenantKey(tenant)), ..of_size(tokens) }
}

/// Serves whoever is called, `count` times, and says whose each was.
fn serve(room: &Rc<WaitRoom>, tickets: &mut Vec<Ticket>, now: Millis, count: usize) -> Vec<u64> {
    let serve_one = |_| {
        room.call(now, 1);
        let place = tickets.iter().position(called).expect("somebody is called");
        let ticket = tickets.swap_remove(place);
        let tenant = ticket.waiter.waits.tenant.expect("a tenant").0;
        ticket.served();
        tenant
    };
    (0..count).map(serve_one).collect()
}

#[test]
fn the_smallest_prefill_is_called_first() {
    let room = Rc::new(WaitRoom::default());
    let big = room.enter(of_size(90_000), Millis(0));
    let small = room.enter(of_size(700), Millis(0));
    room.call(Millis(1), 1);
    assert!(called(&small) && !called(&big));
}

#[test]
fn waiting_long_enough_beats_being_small() {
    let room = Rc::new(WaitRoom::default());
    let old = room.enter(of_size(90_000), Millis(0));
    let late = Millis(90_000 / WAIT_AGEING_TOKENS_PER_MS + 1_000);
    let small = room.enter(of_size(700), late);
    room.call(late, 1);
    assert!(called(&old) && !called(&small));
}

#[test]
fn nobody_is_kept_waiting_by_those_who_come_first_and_find_no_room() {
    let room = Rc::new(WaitRoom::default());
    let small: Vec<Ticket> = (0..100).map(|_| room.enter(of_size(1), Millis(0))).collect();
    let last = room.enter(of_size(90_000), Millis(0));
    let pulses = (0..20).take_while(|_| {
        room.pulse(Millis(1));
        !called(&last)
    });
    assert!(pulses.count() < 20, "the last of {} was never called", small.len() + 1);
}

#[test]
fn a_dropped_ticket_frees_its_place() {
    let room = Rc::new(WaitRoom::default());
    let first = room.enter(of_size(1), Millis(0));
    let second = room.enter(of_size(2), Millis(0));
    drop(first);
    room.call(Millis(1), 1);
    assert_eq!(room.len(), 1);
    assert!(called(&second));
    drop(second);
    assert!(room.is_empty());
}

#[test]
fn a_tenant_with_a_hundred_waiting_does_not_starve_one_with_two() {
    let room = Rc::new(WaitRoom::default());
    let mut tickets: Vec<Ticket> =
        (0..100).map(|_| room.enter(of_tenant(1, 1_000), Millis(0))).collect();
    serve(&room, &mut tickets, Millis(1), 10);
    // Smaller prompts and longer waits of the others change nothing.
    for _ in 0..2 {
        tickets.push(room.enter(of_tenant(2, 2_000), Millis(5_000)));
    }
    let order = serve(&room, &mut tickets, Millis(6_000), 6);
    assert_eq!(order.iter().filter(|tenant| **tenant == 2).count(), 2, "{order:?}");
}

#[test]
fn tenants_share_by_tokens_and_not_by_requests() {
    let room = Rc::new(WaitRoom::default());
    let mut tickets: Vec<Ticket> =
        (0..40).map(|_| room.enter(of_tenant(1, 4_000), Millis(0))).collect();
    tickets.extend((0..200).map(|_| room.enter(of_tenant(2, 1_000), Millis(0))));
    let order = serve(&room, &mut tickets, Millis(1), 100);
    assert_eq!(order.iter().filter(|tenant| **tenant == 1).count(), 20);
}

#[test]
fn one_pulse_calls_of_each_tenant_in_turn() {
    let room = Rc::new(WaitRoom::default());
    let many: Vec<Ticket> = (0..100).map(|_| room.enter(of_tenant(1, 10), Millis(0))).collect();
    let few: Vec<Ticket> = (0..2).map(|_| room.enter(of_tenant(2, 10), Millis(0))).collect();
    room.call(Millis(1), 4);
    assert!(few.iter().all(called));
    assert_eq!(many.iter().filter(|ticket| called(ticket)).count(), 2);
}

#[test]
fn who_passes_by_those_that_wait_is_charged_for_it() {
    let room = Rc::new(WaitRoom::default());
    room.note_passed(Some(TenantKey(1)), 1_000_000);
    let first = room.enter(of_tenant(1, 10), Millis(0));
    let second = room.enter(of_tenant(2, 20), Millis(0));
    room.note_passed(Some(TenantKey(1)), 1_000);
    room.call(Millis(1), 1);
    assert!(called(&second) && !called(&first), "what was taken before anybody waited is no debt");
}

#[test]
fn a_client_that_leaves_is_charged_nothing() {
    let room = Rc::new(WaitRoom::default());
    let stays = room.enter(of_tenant(1, 10), Millis(0));
    drop(room.enter(of_tenant(1, 1_000), Millis(0)));
    let other = room.enter(of_tenant(2, 20), Millis(0));
    room.call(Millis(1), 1);
    assert!(called(&stays) && !called(&other));
}

#[test]
fn accounts_are_bounded_and_gone_when_nobody_waits() {
    let room = Rc::new(WaitRoom::default());
    let many = WAIT_TENANTS_MAX as u64 + 100;
    let mut tickets: Vec<Ticket> =
        (1..=many).map(|tenant| room.enter(of_tenant(tenant, 10), Millis(0))).collect();
    assert_eq!(room.tenants.count(), WAIT_TENANTS_MAX + 1, "the others share one");
    serve(&room, &mut tickets, Millis(1), many as usize);
    assert_eq!(room.tenants.count(), 0);
}

/// The same order by its definition: no accounts are ever forgotten while anybody waits.
#[derive(Default)]
struct Twin {
    waiting: Vec<(u64, Waits, Millis)>,
    served: HashMap<u64, u64>,
}

impl Twin {
    fn floor(&self) -> u64 {
        self.waiting.iter().map(|(_, waits, _)| self.served_to(waits)).min().unwrap_or(0)
    }

    fn served_to(&self, waits: &Waits) -> u64 {
        self.served.get(&waits.tenant.expect("a tenant").0).copied().unwrap_or(0)
    }

    fn enter(&mut self, id: u64, waits: Waits, now: Millis) {
        let tenant = waits.tenant.expect("a tenant");
        if self.waiting.iter().all(|(_, other, _)| other.tenant != waits.tenant) {
            let raised = self.served_to(&waits).max(self.floor());
            self.served.insert(tenant.0, raised);
        }
        self.waiting.push((id, waits, now));
    }

    fn next(&self, now: Millis) -> u64 {
        let key = |one: &&(u64, Waits, Millis)| {
            let aged = (now.0 - one.2.0) * WAIT_AGEING_TOKENS_PER_MS;
            (self.served_to(&one.1), i128::from(one.1.uncached_tokens) - i128::from(aged))
        };
        self.waiting.iter().min_by_key(key).expect("somebody waits").0
    }

    fn leave(&mut self, id: u64, served: bool) {
        let place = self.waiting.iter().position(|one| one.0 == id).expect("it waits");
        let (_, waits, _) = self.waiting.swap_remove(place);
        if served {
            *self.served.entry(waits.tenant.expect("a tenant").0).or_default() += waits.tokens;
        }
        if self.waiting.is_empty() {
            self.served.clear();
        }
    }
}

#[test]
fn the_order_is_that_of_a_naive_twin() {
    for seed in 0..30 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (room, mut twin) = (Rc::new(WaitRoom::default()), Twin::default());
        let mut tickets: HashMap<u64, Ticket> = HashMap::new();
        for step in 0..600 {
            let now = Millis(step * 3);
            if tickets.is_empty() || random.u8(..10) < 5 {
                // Sizes differ by more than ages do, and by the step, so that no two are equal.
                let waits = of_tenant(random.u64(1..6), random.u64(1..50) * 10_000 + step);
                tickets.insert(step, room.enter(waits, now));
                twin.enter(step, waits, now);
            } else if random.u8(..10) < 2 {
                let mut ids: Vec<u64> = tickets.keys().copied().collect();
                ids.sort_unstable();
                let id = ids[random.usize(..ids.len())];
                tickets.remove(&id);
                twin.leave(id, false);
            } else {
                room.call(now, 1);
                let next = twin.next(now);
                let by_room =
                    tickets.iter().filter(|(_, ticket)| called(ticket)).map(|(id, _)| *id);
                assert_eq!(by_room.collect::<Vec<_>>(), [next], "seed {seed}, step {step}");
                tickets.remove(&next).expect("it waits").served();
                twin.leave(next, true);
            }
        }
    }
}

#[test]
fn while_all_wait_for_turns_pulses_are_slower() {
    let room = Rc::new(WaitRoom::default());
    let first = room.enter(of_size(1), Millis(0));
    assert_eq!(room.pulse_ms(), WAIT_PULSE_MS);
    first.waits_for_turn(true);
    assert_eq!(room.pulse_ms(), WAIT_TURN_PULSE_MS);
    let second = room.enter(of_size(2), Millis(0));
    assert_eq!(room.pulse_ms(), WAIT_PULSE_MS);
    drop(second);
    assert_eq!(room.pulse_ms(), WAIT_TURN_PULSE_MS);
    first.waits_for_turn(false);
    assert_eq!(room.pulse_ms(), WAIT_PULSE_MS);
}
