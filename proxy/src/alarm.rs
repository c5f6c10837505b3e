//! Deadlines of a shard's sessions, kept as plain cells and looked at by one tick.
//!
//! A timer per read would cost a wheel insertion per event, and dropping a read to honour it may lose
//! bytes. Here a session writes its deadline into a cell and races its operation against the alarm;
//! the shard's tick rings those that passed. Resolution is the tick (`limits::TICK_MS`). It never
//! touches a socket.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use index::Millis;

const NEVER: u64 = u64::MAX;

/// One session's deadline.
#[derive(Debug)]
pub struct Alarm {
    due_ms: Cell<u64>,
    idle: Cell<bool>,
    waker: RefCell<Option<Waker>>,
}

impl Alarm {
    /// Rings `after_ms` from `now`; 0 means never.
    pub fn set(&self, now: Millis, after_ms: u64) {
        self.due_ms.set(if after_ms == 0 { NEVER } else { now.0.saturating_add(after_ms) });
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
#[derive(Debug, Default)]
pub struct Alarms {
    list: RefCell<Vec<Weak<Alarm>>>,
}

impl Alarms {
    /// A new alarm, silent until set; it leaves the list when dropped.
    pub fn add(&self) -> Rc<Alarm> {
        let alarm = Rc::new(Alarm {
            due_ms: Cell::new(NEVER),
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
                alarm.due_ms.set(1);
            }
        }
        self.tick(Millis(1));
    }

    /// Rings every alarm that is due and forgets the dropped ones.
    pub fn tick(&self, now: Millis) {
        self.list.borrow_mut().retain(|weak| {
            let Some(alarm) = weak.upgrade() else { return false };
            if alarm.due_ms.get() <= now.0 {
                alarm.due_ms.set(0);
                if let Some(waker) = alarm.waker.borrow_mut().take() {
                    waker.wake();
                }
            }
            true
        });
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
    fn dropped_alarms_leave_the_list() {
        let alarms = Alarms::default();
        drop(alarms.add());
        alarms.tick(Millis(1));
        assert!(alarms.list.borrow().is_empty());
    }
}
