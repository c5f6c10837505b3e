//! Closed loop: conversations that wait for each answer, think, and ask again.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle as RuntimeHandle;
use tokio::time::{Instant, sleep_until};

use super::conversation::Conversation;
use super::exchange::Ask;
use super::workload::{Alive, Shared};

/// The places of a closed loop; each holds one conversation at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Places {
    pub(crate) count: usize,
    pub(crate) turns: u32,
    /// Mean pause between an answer and the next question.
    pub(crate) think: Duration,
    /// Time over which the places begin.
    pub(crate) ramp: Duration,
}

/// Starts all places. One whose conversation is over begins another if the workload ends by time
/// or count, and is left empty otherwise.
pub(crate) fn start(shared: &Arc<Shared>, places: Places, runtime: &RuntimeHandle, alive: Alive) {
    for place in 0..places.count {
        let begin = shared.started + places.ramp.mul_f64(place as f64 / places.count as f64);
        let (shared, alive) = (shared.clone(), alive.clone());
        runtime.spawn(async move {
            occupy(&shared, places, begin).await;
            drop(alive);
        });
    }
}

/// One place: conversation after conversation.
async fn occupy(shared: &Shared, places: Places, begin: Instant) {
    let repeats = shared.budget.is_limited() || shared.deadline.is_some();
    let mut due = begin;
    loop {
        let number = shared.budget.conversation();
        let (options, library) = (&shared.client.options, &shared.client.renderer.library);
        let mut talk = Conversation::open(options.seed, number, library, options.sizes.user_bytes);
        for _ in 0..places.turns {
            if !take_turn(shared, places, &mut talk, due).await {
                return;
            }
            due = Instant::now() + pause(places.think, &mut talk);
        }
        if !repeats {
            return;
        }
    }
}

/// Asks one question at `due` and hears the answer; `false` when the workload is over.
async fn take_turn(shared: &Shared, places: Places, talk: &mut Conversation, due: Instant) -> bool {
    let options = &shared.client.options;
    let turn = talk.turns_asked();
    talk.ask();
    if shared.deadline.is_some_and(|deadline| due >= deadline) {
        return false;
    }
    sleep_until(due).await;
    let Some(number) = shared.budget.request() else { return false };
    let max_tokens = options.sizes.max_tokens;
    let rendered = shared.client.renderer.render(talk, max_tokens, number);
    let keep_text = turn + 1 < places.turns;
    // A caller that waits for answers has no schedule: the clock starts when it is ready to send.
    let due = Instant::now();
    let ask = Ask { number, turn, due, rendered, max_tokens, keep_text };
    shared.client.recorder.began(number, due);
    match shared.client.exchange(ask).await {
        Some(text) => talk.answer(&text),
        None => talk.take_back(),
    }
    true
}

fn pause(think: Duration, talk: &mut Conversation) -> Duration {
    Duration::try_from_secs_f64(talk.think_s(think.as_secs_f64())).unwrap_or(think)
}
