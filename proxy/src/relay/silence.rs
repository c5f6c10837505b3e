//! How long a stream has been silent: when its client is due a sign of life, and when its engine is given up.
//!
//! Off unless signs of life are switched on; then a silence is the engine's limit and nothing else. It keeps times and
//! counts, and never moves a byte.

use crate::clock::Micros;

/// The silence of one stream.
#[derive(Debug, Clone, Copy)]
pub struct Silence {
    /// How long its client hears nothing before it is due a sign of life, if it ever is.
    every_ms: Option<u64>,
    /// How long its engine may send nothing; `None` is for ever.
    max_ms: Option<u64>,
    /// Its first telling event has not come: nothing that comes before it gives the engine more time.
    undecided: bool,
    /// Since when its client has heard nothing: no event and no sign of life. A comment of the engine's counts for
    /// nothing, because some clients wait for events.
    heard: Micros,
    /// Events it had seen by then.
    events: u64,
    /// Since when its engine has sent nothing.
    moved: Micros,
    /// Bytes it had sent by then, where that is counted.
    bytes: u64,
}

impl Silence {
    /// Of a stream that has just begun; `every_ms` where its client is to hear signs of life.
    pub fn new(every_ms: Option<u64>, max_ms: u64, events: u64, now: Micros) -> Silence {
        let max_ms = (max_ms > 0).then_some(max_ms);
        Silence { every_ms, max_ms, undecided: false, heard: now, events, moved: now, bytes: 0 }
    }

    /// The same silence before the first telling event, for which an engine is given so long from now.
    pub(super) fn before_an_event(self, max_ms: Option<u64>, now: Micros) -> Silence {
        Silence { max_ms, undecided: true, heard: now, moved: now, ..self }
    }

    /// Whether its client hears signs of life.
    pub(super) fn has_signs(&self) -> bool {
        self.every_ms.is_some()
    }

    /// Takes note of a read.
    pub(super) fn note_read(&mut self, events: u64, now: Micros) {
        if !self.undecided {
            self.moved = now;
        }
        if events != self.events {
            self.events = events;
            self.heard = now;
        }
    }

    /// Takes note of how far a stream had come when its alarm rang, which each event puts off by [`Silence::wait_ms`].
    pub(super) fn note_ring(&mut self, events: u64, bytes: u64, now: Micros) {
        if bytes != self.bytes {
            self.bytes = bytes;
            self.moved = now;
        }
        if events != self.events {
            self.events = events;
            self.heard = Micros(now.0.saturating_sub(self.wait_ms() * 1000));
            self.moved = self.heard;
        }
    }

    /// How long a stream may be silent before it is looked at, ms; 0 is for ever.
    pub(super) fn wait_ms(&self) -> u64 {
        match (self.every_ms, self.max_ms) {
            (Some(every), Some(max)) => every.min(max),
            (every, max) => every.or(max).unwrap_or(0),
        }
    }

    /// Takes note that its client was due a sign of life, whether or not one could stand there.
    pub(super) fn note_sign(&mut self, now: Micros) {
        self.heard = now;
    }

    /// When to look again, ms from `now`; 0 is never.
    pub(super) fn next_look_ms(&self, now: Micros) -> u64 {
        let left =
            |limit_ms: u64, since: Micros| limit_ms.saturating_sub(now.since(since) / 1000).max(1);
        let over = self.max_ms.map_or(0, |max| left(max, self.moved));
        match self.every_ms.map(|every| left(every, self.heard)) {
            Some(due) if over > 0 => due.min(over),
            Some(due) => due,
            None => over,
        }
    }

    /// Whether its engine has been silent for too long, asked when a look was due.
    pub(super) fn is_over(&self, now: Micros) -> bool {
        let over = |max_ms| now.since(self.moved) / 1000 >= max_ms;
        self.every_ms.is_none() || self.max_ms.is_some_and(over)
    }

    /// Whether its client is due a sign of life.
    pub(super) fn is_due(&self, now: Micros) -> bool {
        self.every_ms.is_some_and(|every_ms| now.since(self.heard) / 1000 >= every_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Micros {
        Micros(ms * 1000)
    }

    #[test]
    fn without_signs_of_life_a_silence_has_an_end_and_nothing_before() {
        let silence = Silence::new(None, 300, 1, at(0));
        assert_eq!(silence.next_look_ms(at(0)), 300);
        assert!(silence.is_over(at(300)) && !silence.is_due(at(300)));
    }

    #[test]
    fn events_put_a_sign_of_life_off_and_comments_only_the_end() {
        let mut silence = Silence::new(Some(10), 300, 1, at(0));
        assert_eq!(silence.next_look_ms(at(4)), 6);
        silence.note_read(1, at(5));
        assert!(silence.is_due(at(10)), "a comment is no event");
        silence.note_sign(at(10));
        silence.note_read(2, at(15));
        assert_eq!((silence.is_due(at(24)), silence.is_due(at(25))), (false, true));
        assert_eq!((silence.is_over(at(314)), silence.is_over(at(315))), (false, true));
    }

    #[test]
    fn an_alarm_that_rings_on_a_ride_means_a_silence_since_the_last_event() {
        let mut silence = Silence::new(Some(10), 300, 1, at(0));
        silence.note_ring(7, 900, at(1000));
        assert!(
            silence.is_due(at(1000)) && !silence.is_over(at(1289)) && silence.is_over(at(1290))
        );
        silence.note_sign(at(1000));
        silence.note_ring(7, 901, at(1010));
        assert!(silence.is_due(at(1010)) && !silence.is_over(at(1309)), "a comment was sent");
        let mut short = Silence::new(Some(10), 5, 1, at(0));
        short.note_ring(7, 900, at(1000));
        assert!(short.is_over(at(1000)) && !short.is_due(at(1000)));
    }

    #[test]
    fn what_comes_before_the_first_event_gives_its_engine_no_more_time() {
        let mut silence = Silence::new(Some(10), 20, 0, at(0)).before_an_event(Some(50), at(0));
        silence.note_read(1, at(40));
        assert!(silence.is_over(at(50)));
        let patient = Silence::new(Some(10), 20, 0, at(0)).before_an_event(None, at(0));
        assert!(!patient.is_over(at(1_000_000)));
        assert_eq!(patient.next_look_ms(at(1_000_000)), 1);
    }
}
