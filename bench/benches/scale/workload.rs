//! Prompts of a large fleet: conversations under shared templates, made again from their numbers whenever they are
//! needed, so that what is measured is the index and not the store of its inputs.

use index::{BackendId, IndexWriter, Millis, Observation, SequenceHash};

/// A fleet's conversations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mixture {
    /// Backends they live on.
    pub(crate) backends: u64,
    /// Templates they share, the first ones most often.
    pub(crate) templates: u64,
    /// Most blocks of a conversation's own: lengths are the powers of two up to it, the last seven, each as likely.
    pub(crate) own_blocks_max: usize,
}

/// Any scattering bijection will do for made-up hashes (SplitMix64's finaliser).
pub(crate) fn mix(x: u64) -> u64 {
    let x = (x.wrapping_add(0x9e37_79b9_7f4a_7c15) ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// A run of made-up hashes that only this name has.
pub(crate) fn run(name: u64, blocks: usize, out: &mut Vec<SequenceHash>) {
    let root = mix(name);
    out.extend((0..blocks as u64).map(|block| SequenceHash(mix(root ^ block))));
}

const TEMPLATE: u64 = 1 << 60;
const OWN: u64 = 2 << 60;

impl Mixture {
    /// Half of all conversations are under an eighth of the templates, and so on.
    fn template(&self, conversation: u64) -> u64 {
        let draw = mix(conversation ^ 0xabcd);
        let octave = u64::from(draw.trailing_zeros().min(3));
        (draw >> 32) % (self.templates >> (3 - octave)).max(1)
    }

    fn template_blocks(template: u64) -> usize {
        16 << (mix(template) % 5)
    }

    /// Blocks of the conversation's own.
    pub(crate) fn own_blocks(&self, conversation: u64) -> usize {
        (self.own_blocks_max >> (mix(conversation ^ 0x1234) % 7)).max(1)
    }

    /// Where it lives: one of the backends its template is spread over.
    pub(crate) fn home(&self, conversation: u64) -> BackendId {
        let spread = (self.backends / 8).max(4).min(self.backends);
        let first = mix(self.template(conversation) ^ 0x77) % self.backends;
        let at = (first + mix(conversation ^ 0x99) % spread) % self.backends;
        BackendId(at as u16)
    }

    /// Its prompt with `own` blocks of its own.
    pub(crate) fn prompt(&self, conversation: u64, own: usize, out: &mut Vec<SequenceHash>) {
        out.clear();
        let template = self.template(conversation);
        run(TEMPLATE | template, Self::template_blocks(template), out);
        run(OWN | conversation, own, out);
    }

    /// The conversation's turns, as the proxy reports them: each stores the whole prompt so far. One in sixteen moves to
    /// another backend for its last turn.
    pub(crate) fn play(&self, conversation: u64, writer: &mut IndexWriter, at: Millis) -> u64 {
        let own = self.own_blocks(conversation);
        let mut turns = 0;
        let mut blocks = Vec::new();
        for quarter in [1, 2, 4] {
            let so_far = (own * quarter / 4).max(1);
            self.prompt(conversation, so_far, &mut blocks);
            let mut backend = self.home(conversation);
            if quarter == 4 && conversation.is_multiple_of(16) {
                backend = BackendId((u64::from(backend.0) + 1).rem_euclid(self.backends) as u16);
            }
            writer.apply(Observation::Stored { backend, blocks: blocks.clone(), at });
            turns += 1;
        }
        turns
    }
}
