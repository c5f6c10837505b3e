//! The indexes that are compared, each behind the same few operations and each used as its own documents say.

mod dynamo;
mod nothing;
mod shearwater;
mod smg;

pub(crate) use dynamo::{Compressed, Dynamo, Positional};
pub(crate) use nothing::Nothing;
pub(crate) use shearwater::Shearwater;
pub(crate) use smg::Smg;

use crate::plan::{Plan, Prompt, Request, Shape};

/// An index with its one update thread, which runs on the core of whoever starts it.
pub(crate) trait Contender: Sized + Sync {
    /// What it is called in results.
    const NAME: &'static str;
    /// Which of its operations are used.
    const CALLS: &'static str;
    /// A block of a prompt, as its lookup takes it.
    type Key: Copy + Send + Sync;
    /// What a looking thread has of its own.
    type Reader: Send;
    /// All that one request changes, owned and made before the clock starts.
    type Update: Send;
    /// What a lookup finds.
    type Found;

    /// An empty index.
    fn start(shape: Shape) -> Self;

    fn reader(&self) -> Self::Reader;

    fn key(local: u64, chain: u64) -> Self::Key;

    fn update(plan: &Plan, request: &Request) -> Self::Update;

    /// How many leading blocks each backend holds.
    fn lookup(&self, reader: &mut Self::Reader, keys: &[Self::Key]) -> Self::Found;

    /// Hands an update to the update thread, and does not wait for it.
    fn hand_over(&self, update: Self::Update);

    /// Waits until everything handed over is done and lookups see it.
    fn settle(&self);

    /// What was found, by backend.
    fn depths(reader: &Self::Reader, found: &Self::Found, depths: &mut [u32]);
}

/// Updates handed over at once while an index is filled, so that the queue does not count as its memory.
const FILL_BATCH: usize = 2048;

/// A prompt's blocks as a contender takes them.
pub(crate) fn keys<C: Contender>(prompt: Prompt<'_>) -> Vec<C::Key> {
    prompt.local.iter().zip(prompt.chain).map(|(&local, &chain)| C::key(local, chain)).collect()
}

/// An index that holds what the caches hold when they are full.
pub(crate) fn filled<C: Contender>(plan: &Plan) -> C {
    let index = C::start(plan.shape);
    for requests in plan.requests[..plan.warm].chunks(FILL_BATCH) {
        requests.iter().for_each(|request| index.hand_over(C::update(plan, request)));
        index.settle();
    }
    index
}
