//! What the running process knows of its backends' caches, as bytes for its successor: who holds which blocks, the most
//! recently used part of it, and which conversation is at home where.
//!
//! It holds keyed hashes, names of backends and times, and nothing of what was said. It is taken in whole or not at all: a
//! successor whose blocks are of another size, or that cannot read it, begins with nothing. Backends are told by name
//! and address, and what is told of one that the successor does not have is passed over.

use std::collections::HashMap;

use index::{BackendId, ConversationKey, IndexWriter, Millis, SequenceHash, Telling};

use crate::limits::{HANDOVER_BLOCKS_MAX, HANDOVER_HOMES_MAX, HANDOVER_PATHS_MAX};
use crate::published::Published;
use crate::start::backend_id;

/// The version of these bytes. It changes with them, and with what a hash is made of.
pub(crate) const VERSION: u32 = 1;

/// What a successor took in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Inherited {
    /// Prompts of which it knows who holds them.
    pub(crate) paths: usize,
    /// Conversations of which it knows the home.
    pub(crate) homes: usize,
}

/// What this process knows.
pub(crate) fn write(shared: &Published, writer: &IndexWriter, now: Millis) -> Vec<u8> {
    let mut out = Out::default();
    out.u32(shared.config.routing.block_bytes);
    out.list(shared.upstreams.iter(), |out, upstream| {
        out.text(&upstream.name);
        out.text(&upstream.authority);
    });
    let affinity = shared.fleet.affinity();
    out.u64(affinity.capacity() as u64);
    let mut homes = Vec::new();
    affinity.each(now, |key, backend, age_s| {
        if homes.len() < HANDOVER_HOMES_MAX {
            homes.push((key, backend, age_s));
        }
    });
    out.list(homes.into_iter(), |out, (key, backend, age_s)| {
        out.u64(key.0);
        out.u16(backend.0);
        out.u16(age_s);
    });
    let most = Telling { paths_max: HANDOVER_PATHS_MAX, blocks_max: HANDOVER_BLOCKS_MAX };
    let mut before: Vec<SequenceHash> = Vec::new();
    writer.tell(most, |backend, blocks, at| {
        // Prompts used one after another often begin alike.
        let alike = blocks.iter().zip(&before).take_while(|(here, there)| here == there).count();
        out.u16(backend.0);
        out.u32(u32::try_from(now.since(at)).unwrap_or(u32::MAX));
        out.u32(u32::try_from(alike).unwrap_or(0));
        let own = blocks.get(alike..).unwrap_or_default();
        out.list(own.iter(), |out, block| out.u32(block.0 as u32));
        before.clear();
        before.extend_from_slice(blocks);
    });
    out.0
}

/// Takes in what `bytes` tell, if they are whole and of this process's kind.
pub(crate) fn take_in(
    bytes: &[u8],
    shared: &Published,
    writer: &mut IndexWriter,
    now: Millis,
) -> Option<Inherited> {
    // First without doing anything: of what is broken nothing is to be taken in.
    read(bytes, shared, now, &mut |_| {})?;
    let mut inherited = Inherited::default();
    read(bytes, shared, now, &mut |told| match told {
        Told::Home(key, backend, at) => {
            inherited.homes += 1;
            shared.fleet.affinity().set(&shared.fleet, key, backend, at);
        }
        Told::Path(backend, blocks, at) => {
            inherited.paths += 1;
            writer.inherit(backend, blocks, at);
        }
    })?;
    Some(inherited)
}

/// One thing that is told, with its time as this process counts it.
enum Told<'b> {
    Home(ConversationKey, BackendId, Millis),
    Path(BackendId, &'b [SequenceHash], Millis),
}

fn read(
    bytes: &[u8],
    shared: &Published,
    now: Millis,
    each: &mut impl FnMut(Told<'_>),
) -> Option<()> {
    let mut from = In(bytes);
    if from.u32()? != shared.config.routing.block_bytes {
        return None;
    }
    // This process has run for less than the time since some of it: then it counts from the start.
    let at = |age_ms: u64| Millis(now.0.saturating_sub(age_ms));
    let known = shared.upstreams.iter().enumerate().map(|(number, upstream)| {
        ((upstream.name.as_bytes(), upstream.authority.as_bytes()), backend_id(number))
    });
    let known: HashMap<_, _> = known.collect();
    let mut ids: Vec<Option<BackendId>> = Vec::new();
    for _ in 0..from.u32()? {
        ids.push(known.get(&(from.text()?, from.text()?)).copied());
    }
    let here = |id: u16| ids.get(usize::from(id)).copied();
    // A key names its conversation in tables of at most the size of the one it is from.
    let places = from.u64()? >= shared.fleet.affinity().capacity() as u64;
    for _ in 0..from.u32()? {
        let (key, backend, age_s) = (ConversationKey(from.u64()?), from.u16()?, from.u16()?);
        if let Some(backend) = here(backend)?.filter(|_| places) {
            each(Told::Home(key, backend, at(u64::from(age_s) * 1000)));
        }
    }
    let mut blocks: Vec<SequenceHash> = Vec::new();
    while !from.0.is_empty() {
        let (backend, age_ms) = (from.u16()?, from.u32()?);
        let alike = usize::try_from(from.u32()?).ok().filter(|alike| *alike <= blocks.len())?;
        blocks.truncate(alike);
        for _ in 0..from.u32()? {
            blocks.push(SequenceHash(from.u32()?.into()));
        }
        if let Some(backend) = here(backend)? {
            each(Told::Path(backend, &blocks, at(age_ms.into())));
        }
    }
    Some(())
}

/// Numbers, least byte first; texts and lists with their length before them.
#[derive(Default)]
struct Out(Vec<u8>);

impl Out {
    fn u16(&mut self, number: u16) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.list(text.bytes(), |out, byte| out.0.push(byte));
    }

    fn list<T>(&mut self, all: impl ExactSizeIterator<Item = T>, one: impl Fn(&mut Out, T)) {
        self.u32(u32::try_from(all.len()).unwrap_or(u32::MAX));
        all.for_each(|item| one(self, item));
    }
}

/// What is left to read.
struct In<'b>(&'b [u8]);

impl<'b> In<'b> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<&'b [u8]> {
        let length = usize::try_from(self.u32()?).ok()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(text)
    }
}

#[cfg(test)]
mod tests;
