//! What the simulated clients send: conversations that grow turn by turn out of a few templates.
//!
//! A block is one hash of a chain and stands for the same number of tokens everywhere, so that the index and the
//! modelled engines speak of the same blocks; no text is involved.

use fastrand::Rng;
use index::{BackendSet, ConversationKey, FingerprintKey, SequenceHash, conversation_key};

/// Tokens of one block of the index.
pub(crate) const BLOCK_TOKENS: u32 = 32;

/// Blocks of the longest conversation: it ends there.
const CHAIN_BLOCKS_MAX: usize = 1_500;

/// One chat.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(crate) key: ConversationKey,
    /// Which model it talks to.
    pub(crate) model: usize,
    /// Everything said so far.
    pub(crate) chain: Vec<SequenceHash>,
    pub(crate) turns_left: u32,
    /// A turn is under way.
    pub(crate) out: bool,
    /// When its next turn comes.
    pub(crate) due_us: u64,
}

impl Conversation {
    /// A chat that has not begun, on top of what `chain` already says.
    pub(crate) fn new(number: u64, model: usize, chain: Vec<SequenceHash>, turns: u32) -> Self {
        let key = conversation_key(FingerprintKey::new(7), b"sim", &number.to_le_bytes());
        Self { key, model, chain, turns_left: turns, out: false, due_us: 0 }
    }

    /// Whether it will never ask again.
    pub(crate) fn is_over(&self) -> bool {
        !self.out && (self.turns_left == 0 || self.chain.len() > CHAIN_BLOCKS_MAX)
    }

    /// Whether its next turn is due.
    pub(crate) fn is_due(&self, now_us: u64) -> bool {
        !self.out && !self.is_over() && self.due_us <= now_us
    }
}

/// One turn on its way to an engine.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// Which conversation, by its place.
    pub(crate) conversation: usize,
    pub(crate) key: ConversationKey,
    pub(crate) model: usize,
    /// Where its client is connected.
    pub(crate) shard: usize,
    pub(crate) blocks: Vec<SequenceHash>,
    /// Blocks the reply will add.
    pub(crate) reply: Vec<SequenceHash>,
    /// Tokens the reply is budgeted.
    pub(crate) output_tokens: u64,
    /// Backends that failed it.
    pub(crate) broken: BackendSet,
    /// Backends that said they were full, and when they may be asked again.
    pub(crate) busy: BackendSet,
    pub(crate) busy_until_us: u64,
    pub(crate) attempts: u32,
    pub(crate) waited_ms: u64,
}

impl Request {
    /// The next turn of a conversation: some blocks are said, some will be answered.
    pub(crate) fn next(
        rng: &mut Rng,
        conversation: usize,
        chat: &mut Conversation,
        shard: usize,
    ) -> Self {
        grow(&mut chat.chain, rng.usize(1..20), || rng.u64(..));
        let mut whole = chat.chain.clone();
        let answered = rng.usize(1..6);
        grow(&mut whole, answered, || rng.u64(..));
        let reply = whole.split_off(chat.chain.len());
        Self {
            conversation,
            key: chat.key,
            model: chat.model,
            shard,
            blocks: whole,
            output_tokens: reply.len() as u64 * u64::from(BLOCK_TOKENS) + rng.u64(0..200),
            reply,
            broken: BackendSet::default(),
            busy: BackendSet::default(),
            busy_until_us: 0,
            attempts: 0,
            waited_ms: 0,
        }
    }

    pub(crate) fn prompt_tokens(&self) -> u64 {
        self.blocks.len() as u64 * u64::from(BLOCK_TOKENS)
    }

    /// What it takes of a token pool.
    pub(crate) fn charge_tokens(&self) -> u64 {
        self.prompt_tokens() + self.output_tokens
    }

    /// Backends it must not go to.
    pub(crate) fn excluded(&self) -> BackendSet {
        let mut all = self.broken.clone();
        all.union(&self.busy);
        all
    }
}

/// The text every conversation of a template begins with.
pub(crate) fn template(model: usize, number: u64, blocks: usize) -> Vec<SequenceHash> {
    let mut chain = Vec::new();
    let mut names = (0..).map(|at| at << 32 | number << 8 | model as u64);
    grow(&mut chain, blocks, || names.next().unwrap_or_default());
    chain
}

/// Lengthens a chain by so many blocks, named by `name`.
pub(crate) fn grow(chain: &mut Vec<SequenceHash>, blocks: usize, mut name: impl FnMut() -> u64) {
    for _ in 0..blocks {
        let last = chain.last().map_or(0, |hash| hash.0);
        chain.push(SequenceHash(scatter(last.rotate_left(17) ^ name())));
    }
}

/// The same blocks as an engine with blocks of `block_tokens` tokens names them.
pub(crate) fn engine_blocks(chain: &[SequenceHash], block_tokens: u32) -> Vec<u64> {
    let parts = u64::from(BLOCK_TOKENS / block_tokens);
    chain.iter().flat_map(|hash| (0..parts).map(|part| scatter(hash.0 ^ part))).collect()
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
fn scatter(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
