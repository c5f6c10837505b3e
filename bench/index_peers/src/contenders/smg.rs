//! SMG's chain index, driven as its own replay benchmark drives it: lookups on the thread that asks, one event lane behind
//! a channel of the standard library. Lookups use the form that allocates nothing.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use kv_index::{ChainBlockMap, ChainIndex, ContentHash, SequenceHash, StoredBlock};

use super::Contender;
use crate::plan::{Plan, Request, Shape};

/// What one request changes.
#[derive(Debug)]
pub(crate) struct Change {
    backend: usize,
    evicted: Vec<SequenceHash>,
    parent: Option<SequenceHash>,
    blocks: Vec<StoredBlock>,
}

enum Message {
    Change(Change),
    Settle(Sender<()>),
}

pub(crate) struct Smg {
    index: Arc<ChainIndex>,
    backends: usize,
    sender: Option<Sender<Message>>,
    lane: Option<JoinHandle<()>>,
}

fn serve(index: &ChainIndex, ids: &[u32], receiver: &Receiver<Message>) {
    let mut maps: Vec<ChainBlockMap> = ids.iter().map(|_| ChainBlockMap::new()).collect();
    while let Ok(message) = receiver.recv() {
        match message {
            Message::Change(change) => {
                let (id, map) = (ids[change.backend], &mut maps[change.backend]);
                index.apply_removed(id, &change.evicted, map);
                let stored = index.apply_stored(id, &change.blocks, change.parent, map);
                assert!(stored.is_ok(), "the chain index refused a store: {stored:?}");
            }
            Message::Settle(done) => {
                let _ = done.send(());
            }
        }
    }
}

impl Smg {
    fn send(&self, message: Message) {
        // Fails only once the lane is gone, which ends the trial in `settle`.
        let _ = self.sender.as_ref().map(|sender| sender.send(message));
    }
}

impl Contender for Smg {
    const NAME: &'static str = "smg chain";
    const CALLS: &'static str = "ChainIndex, 1 event lane: score_into(keys, …, false, …) into an array; \
                                 apply_removed, apply_stored";
    type Key = ContentHash;
    type Reader = Vec<u32>;
    type Update = Change;
    type Found = ();

    fn start(shape: Shape) -> Self {
        let index = Arc::new(ChainIndex::with_max_workers(shape.backends));
        let intern = |at: usize| index.intern_worker(&at.to_string()).unwrap_or(u32::MAX);
        let ids: Vec<u32> = (0..shape.backends).map(intern).collect();
        assert!(ids.iter().zip(0..).all(|(&id, at)| id == at), "ids are given in order");
        let (sender, receiver) = channel();
        let of_lane = Arc::clone(&index);
        let lane = std::thread::spawn(move || serve(&of_lane, &ids, &receiver));
        Self { index, backends: shape.backends, sender: Some(sender), lane: Some(lane) }
    }

    fn reader(&self) -> Vec<u32> {
        vec![0; self.backends]
    }

    fn key(local: u64, _: u64) -> ContentHash {
        ContentHash(local)
    }

    fn update(plan: &Plan, request: &Request) -> Change {
        let prompt = plan.prompt(request);
        let evicted = &plan.evicted[request.evicted.clone()];
        let block = |at: usize| StoredBlock {
            seq_hash: SequenceHash(prompt.chain[at]),
            content_hash: ContentHash(prompt.local[at]),
        };
        Change {
            backend: usize::from(request.backend),
            evicted: evicted.iter().map(|&hash| SequenceHash(hash)).collect(),
            parent: request.held.checked_sub(1).map(|at| SequenceHash(prompt.chain[at])),
            blocks: (request.held..prompt.chain.len()).map(block).collect(),
        }
    }

    fn lookup(&self, depths: &mut Vec<u32>, keys: &[ContentHash]) {
        depths.fill(0);
        self.index.score_into(keys, |key| key.0, false, |id, depth| depths[id as usize] = depth);
    }

    fn hand_over(&self, update: Change) {
        self.send(Message::Change(update));
    }

    fn settle(&self) {
        let (done, settled) = channel();
        self.send(Message::Settle(done));
        assert!(settled.recv().is_ok(), "the event lane is gone");
    }

    fn depths(reader: &Vec<u32>, (): &(), depths: &mut [u32]) {
        depths.copy_from_slice(reader);
    }
}

impl Drop for Smg {
    fn drop(&mut self) {
        self.sender = None;
        let _ = self.lane.take().map(JoinHandle::join);
    }
}
