//! Deadlines of a shard's sessions, kept as plain cells and looked at by one tick.
//!
//! A timer per read would cost a wheel insertion per event, and dropping a read to honour it may lose
//! bytes. Here a session writes its deadline into a cell and races its operation against the alarm;
//! the shard's tick rings those that passed. Resolution is the tick (`limits::TICK_MS`). Deadlines are nearly always put
//! off, so the tick looks at them all only once the earliest that any of them had is over. It never touches a socket.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use index::Millis;

use crate::limits::ALARMS_DROPPED_MAX;

const NEVER: u64 = u64::MAX;

/// One session's deadline.
#[derive(Debug)]
pub struct Alarm {
    due_ms: Cell<u64>,
    /// No alarm of the shard is due before; see [`Alarms`].
    earliest_ms: Rc<Cell<u64>>,
    idle: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Alarm {
    /// Rings `after_ms` from `now`; 0 means never.
    pub fn set(&self, now: Millis, after_ms: u64) {
        let due_ms = if after_ms == 0 { NEVER } else { now.0.saturating_add(after_ms) };
        self.due_ms.set(due_ms);
        if due_ms < self.earliest_ms.get() {
            self.earliest_ms.set(due_ms);
        }
    }

    /// Reads it.
    pub fn bring_near(&self) -> u64 {
        self.due_ms.get()
    }

    /// No deadline until the next `set`.
    pub fn clear(&self) {
        self.due_ms.set(NEVER);
    }

    /// Says whether nothing is under way that would be missed.
    pub fn set_idle(&self, idle: bool) {
        self.idle.set(idle);
    }

    fn ring(&self) {
        self.due_ms.set(0);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    fn has_rung(&self) -> bool {
        self.due_ms.get() == 0
    }

    fn poll<T>(&self, cx: &Context<'_>) -> Poll<Raced<T>> {
        if self.has_rung() {
            return Poll::Ready(Raced::Late);
        }
        self.register(cx.waker());
        Poll::Pending
    }

    fn register(&self, waker: &Waker) {
        let mut held = self.waker.borrow_mut();
        match held.as_ref() {
            Some(old) if old.will_wake(waker) => {}
            _ => *held = Some(waker.clone()),
        }
    }
}

/// All alarms of one shard.
#[derive(Debug)]
pub struct Alarms {
    list: RefCell<Vec<Weak<Alarm>>>,
    /// The earliest deadline since all were looked at last. It may have been put off since.
    earliest_ms: Rc<Cell<u64>>,
    /// How long the list may become before the dropped ones are looked for.
    room: Cell<usize>,
}

impl Default for Alarms {
    fn default() -> Alarms {
        let earliest_ms = Rc::new(Cell::new(NEVER));
        Alarms { list: RefCell::default(), earliest_ms, room: Cell::new(ALARMS_DROPPED_MAX) }
    }
}

impl Alarms {
    /// A new alarm, silent until set; it leaves the list when dropped.
    pub fn add(&self) -> Rc<Alarm> {
        let alarm = Rc::new(Alarm {
            due_ms: Cell::new(NEVER),
            earliest_ms: Rc::clone(&self.earliest_ms),
            idle: Cell::new(false),
            waker: RefCell::new(None),
        });
        self.list.borrow_mut().push(Rc::downgrade(&alarm));
        alarm
    }

    /// Rings alarms that are not due: all of them, or those of idle sessions only. Whatever is being done
    /// under them ends now.
    pub fn ring(&self, idle_only: bool) {
        for alarm in self.list.borrow().iter().filter_map(Weak::upgrade) {
            if alarm.idle.get() || !idle_only {
                alarm.set(Millis(0), 1);
            }
        }
        self.tick(Millis(1));
    }

    /// Rings every alarm that is due and forgets the dropped ones, where there may be any.
    pub fn tick(&self, now: Millis) {
        if now.0 >= self.earliest_ms.get() || self.list.borrow().len() > self.room.get() {
            self.look_at_all(now);
        }
    }

    fn look_at_all(&self, now: Millis) {
        let mut earliest_ms = NEVER;
        let mut list = self.list.borrow_mut();
        list.retain(|weak| {
            let Some(alarm) = weak.upgrade() else { return false };
            match alarm.due_ms.get() {
                // It has rung, and rings no more until it is set.
                0 => {}
                due_ms if due_ms <= now.0 => alarm.ring(),
                due_ms => earliest_ms = earliest_ms.min(due_ms),
            }
            true
        });
        self.earliest_ms.set(earliest_ms);
        self.room.set(2 * list.len() + ALARMS_DROPPED_MAX);
    }
}

/// How a raced operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raced<T> {
    /// The operation finished.
    Done(T),
    /// The deadline passed first.
    Late,
    /// The watched party left first.
    Gone,
}

/// Runs `op` until it finishes or `alarm` rings. After `Late` the operation has been dropped: use only
/// where the connection is closed then, or where the operation is safe to drop.
/// Both are lent pinned, so that neither is moved.
pub fn within<'a, F: Future>(
    alarm: &'a Alarm,
    mut op: Pin<&'a mut F>,
) -> impl Future<Output = Raced<F::Output>> + use<'a, F> {
    std::future::poll_fn(move |cx: &mut Context<'_>| match op.as_mut().poll(cx) {
        Poll::Ready(value) => Poll::Ready(Raced::Done(value)),
        Poll::Pending => alarm.poll(cx),
    })
}

/// As [`within`], also ending with `Gone` when `gone` finishes. `gone` is lent, so that one watch
/// serves a whole request.
pub fn race<'a, F: Future, W: Future<Output = ()>>(
    alarm: &'a Alarm,
    mut gone: Pin<&'a mut W>,
    mut op: Pin<&'a mut F>,
) -> impl Future<Output = Raced<F::Output>> + use<'a, F, W> {
    std::future::poll_fn(move |cx: &mut Context<'_>| {
        if let Poll::Ready(value) = op.as_mut().poll(cx) {
            return Poll::Ready(Raced::Done(value));
        }
        if gone.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Raced::Gone);
        }
        alarm.poll(cx)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_rings_at_its_deadline_and_not_before() {
        let alarms = Alarms::default();
        let alarm = alarms.add();
        alarm.set(Millis(100), 50);
        alarms.tick(Millis(149));
        assert!(!alarm.has_rung());
        alarms.tick(Millis(150));
        assert!(alarm.has_rung());
    }

    #[test]
    fn a_cleared_alarm_and_a_zero_timeout_never_ring() {
        let alarms = Alarms::default();
        let (cleared, off) = (alarms.add(), alarms.add());
        cleared.set(Millis(0), 5);
        cleared.clear();
        off.set(Millis(0), 0);
        alarms.tick(Millis(1_000_000));
        assert!(!cleared.has_rung() && !off.has_rung());
    }

    #[test]
    fn an_alarm_that_is_put_off_rings_at_its_new_deadline_and_one_drawn_nearer_in_time() {
        let alarms = Alarms::default();
        let (late, early) = (alarms.add(), alarms.add());
        late.set(Millis(0), 100);
        early.set(Millis(0), 500);
        late.set(Millis(90), 100);
        alarms.tick(Millis(150));
        assert!(!late.has_rung() && !early.has_rung());
        early.set(Millis(150), 10);
        alarms.tick(Millis(160));
        assert!(!late.has_rung() && early.has_rung());
        alarms.tick(Millis(190));
        assert!(late.has_rung());
    }

    #[test]
    fn each_alarm_rings_at_the_first_tick_at_or_after_its_deadline_whatever_the_others_do() {
        let mut rng = fastrand::Rng::with_seed(4);
        let alarms = Alarms::default();
        let mut held: Vec<(Rc<Alarm>, u64)> = Vec::new();
        for now in (1..40_000).step_by(100) {
            held.retain(|(alarm, due)| {
                assert_eq!(alarm.has_rung(), *due < now, "due at {due}, now {now}");
                rng.u8(..8) > 0
            });
            for _ in 0..rng.usize(..20) {
                held.push((alarms.add(), NEVER));
            }
            for (alarm, due) in &mut held {
                match rng.u8(..16) {
                    0 => {
                        alarm.clear();
                        *due = NEVER;
                    }
                    1..6 => {
                        let after = rng.u64(1..3_000);
                        alarm.set(Millis(now), after);
                        *due = now + after;
                    }
                    _ => {}
                }
            }
            alarms.tick(Millis(now + 99));
            let rung = held.iter().filter(|(_, due)| *due <= now + 99).count();
            assert_eq!(held.iter().filter(|(alarm, _)| alarm.has_rung()).count(), rung);
        }
    }

    #[test]
    fn dropped_alarms_leave_the_list_before_they_are_many() {
        let alarms = Alarms::default();
        let kept: Vec<_> = (0..10).map(|_| alarms.add()).collect();
        for now in 0..100_000 {
            alarms.add().set(Millis(now), 1_000_000);
            alarms.tick(Millis(now));
            let len = alarms.list.borrow().len();
            assert!(len <= 2 * kept.len() + ALARMS_DROPPED_MAX + 1, "{len}");
        }
    }

    #[test]
    fn alarms_that_are_not_due_can_be_rung_all_or_the_idle_ones() {
        let alarms = Alarms::default();
        let (idle, busy) = (alarms.add(), alarms.add());
        idle.set_idle(true);
        alarms.ring(true);
        assert!(idle.has_rung() && !busy.has_rung());
        alarms.ring(false);
        assert!(busy.has_rung());
    }
}
