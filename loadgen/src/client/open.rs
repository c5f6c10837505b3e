//! Open loop: requests go out at their times, whatever became of the earlier ones.
//!
//! A thread of its own keeps the times, so that neither answers nor a busy runtime can delay an
//! arrival. The next request is prepared before it is due. It never waits for a reply.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use tokio::runtime::Handle as RuntimeHandle;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Error;
use super::conversation::Conversation;
use super::exchange::Ask;
use super::options::TraceOptions;
use super::seed::{self, Stream};
use super::trace::{self, Entry};
use super::workload::{Alive, Shared};

/// What is to be sent at an arrival.
#[derive(Debug)]
pub(crate) enum Arrival {
    /// The next turn of a conversation of the population.
    Next(Arc<Population>),
    /// One request of a trace.
    Recorded(Entry, Arc<TraceOptions>),
}

/// Begins to send `arrivals` at their times, given from the start of the workload. The receiver
/// ends when the last one has been sent, not when it has been answered.
pub(crate) fn start<I>(
    shared: &Arc<Shared>,
    arrivals: I,
    runtime: &RuntimeHandle,
    alive: Alive,
) -> Result<oneshot::Receiver<()>, Error>
where
    I: Iterator<Item = (Duration, Arrival)> + Send + 'static,
{
    let (issuing, issued) = oneshot::channel::<()>();
    let (shared, runtime) = (shared.clone(), runtime.clone());
    let thread = std::thread::Builder::new().name("loadgen-time".to_owned());
    let keep = move || {
        keep_time(&shared, arrivals, &runtime, &alive);
        drop((alive, issuing));
    };
    thread.spawn(keep).map_err(Error::Start)?;
    Ok(issued)
}

fn keep_time(
    shared: &Arc<Shared>,
    arrivals: impl Iterator<Item = (Duration, Arrival)>,
    runtime: &RuntimeHandle,
    alive: &Alive,
) {
    for (at, arrival) in arrivals {
        let due = shared.started + at;
        if shared.deadline.is_some_and(|deadline| due >= deadline) {
            shared.deadline.map(|deadline| shared.stop.wait_until(deadline));
            return;
        }
        let Some(number) = shared.budget.request() else { return };
        let turn = Turn::prepare(shared, arrival, number);
        if shared.stop.wait_until(due) {
            return;
        }
        if shared.client.recorder.in_flight() >= shared.client.options.in_flight_max as u64 {
            shared.client.recorder.overrun(number);
            turn.give_back(None);
            continue;
        }
        // Counted here, not by the task: a runtime that lags must not hide what is under way.
        shared.client.recorder.began(number, Instant::now());
        let (shared, alive) = (shared.clone(), alive.clone());
        runtime.spawn(async move {
            turn.take(&shared, due).await;
            drop(alive);
        });
    }
}

/// A prepared turn of a conversation.
struct Turn {
    talk: Conversation,
    ask: Ask,
    /// Where the conversation returns to; `None` ends it with this turn.
    home: Option<Arc<Population>>,
}

impl Turn {
    fn prepare(shared: &Shared, arrival: Arrival, number: u64) -> Turn {
        let options = &shared.client.options;
        let (talk, home, max_tokens) = match arrival {
            Arrival::Next(population) => {
                let talk = population.next_turn(shared);
                (talk, Some(population), options.sizes.max_tokens)
            }
            Arrival::Recorded(entry, trace) => {
                let text = trace::prompt(&entry, &trace, options.seed);
                let talk = Conversation::of_one_question(options.seed, number, text);
                (talk, None, entry.output_tokens.max(1))
            }
        };
        let rendered = shared.client.renderer.render(&talk, max_tokens, number);
        let turn = talk.turns_asked() - 1;
        let keep_text = home.as_ref().is_some_and(|home| talk.turns_asked() < home.turns);
        let due = shared.started;
        Turn { ask: Ask { number, turn, due, rendered, max_tokens, keep_text }, talk, home }
    }

    async fn take(self, shared: &Shared, due: Instant) {
        let Turn { talk, mut ask, home } = self;
        ask.due = due;
        let reply = shared.client.exchange(ask).await;
        if let Some(home) = home {
            home.give_back(talk, reply.as_deref());
        }
    }

    fn give_back(self, reply: Option<&str>) {
        if let Some(home) = self.home {
            home.give_back(self.talk, reply);
        }
    }
}

/// The conversations that arrivals are drawn from.
///
/// It is filled up to its size first. Then an arrival takes an idle conversation at random, or
/// opens one beyond the size when all wait for answers: the rate is kept, not the size.
#[derive(Debug)]
pub(crate) struct Population {
    size: usize,
    turns: u32,
    state: Mutex<PopulationState>,
}

#[derive(Debug)]
struct PopulationState {
    idle: Vec<Conversation>,
    /// Conversations that have turns left, idle or not.
    open: usize,
    rng: Rng,
}

impl Population {
    pub(crate) fn new(seed: u64, size: usize, turns: u32) -> Population {
        let rng = seed::rng(seed, Stream::Population, 0);
        let state = PopulationState { idle: Vec::new(), open: 0, rng };
        Population { size, turns, state: Mutex::new(state) }
    }

    /// A conversation with its next question asked.
    fn next_turn(&self, shared: &Shared) -> Conversation {
        let mut talk = self.take_idle().unwrap_or_else(|| {
            let (options, library) = (&shared.client.options, &shared.client.renderer.library);
            let number = shared.budget.conversation();
            Conversation::open(options.seed, number, library, options.sizes.user_bytes)
        });
        talk.ask();
        talk
    }

    /// An idle conversation, or `None` when a new one is due, which is then counted as open.
    fn take_idle(&self) -> Option<Conversation> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *guard;
        if state.open < self.size || state.idle.is_empty() {
            state.open += 1;
            return None;
        }
        let chosen = state.rng.usize(..state.idle.len());
        Some(state.idle.swap_remove(chosen))
    }

    /// Takes a conversation back after its turn, unless it was the last one.
    fn give_back(&self, mut talk: Conversation, reply: Option<&str>) {
        match reply {
            Some(text) => talk.answer(text),
            None => talk.take_back(),
        }
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if talk.turns_asked() < self.turns {
            state.idle.push(talk);
        } else {
            state.open -= 1;
        }
    }
}

/// A trace to be sent at its recorded times.
#[derive(Debug)]
pub(crate) struct Replay {
    entries: Vec<Entry>,
    options: Arc<TraceOptions>,
}

impl Replay {
    pub(crate) fn new(entries: Vec<Entry>, options: TraceOptions) -> Replay {
        Replay { entries, options: Arc::new(options) }
    }

    pub(crate) fn arrivals(self) -> impl Iterator<Item = (Duration, Arrival)> + Send + 'static {
        let options = self.options;
        let arrival = move |entry: Entry| (entry.at, Arrival::Recorded(entry, options.clone()));
        self.entries.into_iter().map(arrival)
    }
}

#[cfg(test)]
mod tests {
    use super::super::library::Library;
    use super::super::options::{Shape, Sizes};
    use super::*;

    fn opened(number: u64) -> Conversation {
        let library = Library::new(1, Shape::Plain, &Sizes::of(Shape::Plain));
        let mut talk = Conversation::open(1, number, &library, 10);
        talk.ask();
        talk
    }

    #[test]
    fn a_population_is_filled_before_anyone_is_asked_again() {
        let population = Population::new(1, 2, 3);
        assert!(population.take_idle().is_none());
        population.give_back(opened(0), Some("yes"));
        assert!(population.take_idle().is_none(), "the second place is still empty");
        let again = population.take_idle().expect("full, and one is idle");
        assert_eq!(again.messages.len(), 2);
    }

    #[test]
    fn an_arrival_never_waits_for_a_busy_conversation() {
        let population = Population::new(1, 1, 3);
        assert!(population.take_idle().is_none());
        assert!(population.take_idle().is_none(), "the only one is busy: one more is opened");
    }

    #[test]
    fn a_conversation_ends_after_its_turns_and_makes_room() {
        let population = Population::new(1, 1, 1);
        assert!(population.take_idle().is_none());
        population.give_back(opened(0), Some("yes"));
        assert!(population.take_idle().is_none(), "its place is free for a new one");
    }
}
