//! The rules tree and books obey between changes, numbered, each checked against the whole state. Slow; for tests. It
//! changes nothing.

use super::Evidence;
use super::ledger::HoldId;
use crate::limits::{CORRECTIONS_MAX, SPAN_BLOCKS_MAX};
use crate::tree::{Span, SpanId};
use crate::{BackendId, SequenceHash};

macro_rules! rule {
    ($number:literal, $holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!("rule {}: {}", $number, format_args!($($text)*)));
        }
    };
}

impl Evidence {
    pub(crate) fn check_invariants(&self) -> Result<(), String> {
        let (mut spans, mut holds, mut distinct) = (1, 0, 0);
        let mut open: Vec<&Span> = vec![self.tree.root()];
        while let Some(span) = open.pop() {
            let mut tips = 0;
            let mut below = Vec::new();
            span.children.check_invariants()?;
            span.children.each(&mut |child| below.push(child));
            for child in below {
                self.check_span(span, child)?;
                tips += child.tips;
                spans += 1;
                holds += child.holders.len();
                distinct += child.edge.len() as u64;
                open.push(child);
            }
            rule!(1, span.tips == tips.max(1), "{:?} has {} tips, not {tips}", span.id, span.tips);
        }
        let accounts = self.ledger.accounts.iter().flatten().count();
        rule!(2, self.ledger.records.live() == spans, "{spans} spans in the tree");
        rule!(2, self.ledger.holds.live() == holds + accounts, "{holds} holds in the tree");
        rule!(2, self.ledger.distinct == distinct, "{distinct} blocks in the tree");
        self.check_accounts()
    }

    /// One span against its parent and its record.
    fn check_span(&self, parent: &Span, span: &Span) -> Result<(), String> {
        let (id, len) = (span.id, span.edge.len());
        rule!(3, (1..=SPAN_BLOCKS_MAX).contains(&len), "{id:?} has {len} blocks");
        // A mark's own mark is itself.
        let own = span.edge.iter().map(|mark| SequenceHash(mark.0.into()));
        let own: Vec<SequenceHash> = own.collect();
        rule!(3, span.matched(&own) == len, "{id:?} does not match itself");
        rule!(4, !span.holders.is_empty(), "{id:?} is held by nobody");
        if parent.id != SpanId::ROOT {
            let mut stray = None;
            span.holders.each_not_in(&parent.holders, |holder| stray = Some(holder));
            rule!(5, stray.is_none(), "{stray:?} holds {id:?} and not what is above");
        }
        let record = self.ledger.record(id);
        let same = record.parent == parent.id
            && record.first == span.first()
            && record.blocks as usize == len
            && record.holds.len() == span.holders.len();
        rule!(6, same, "{id:?} is recorded as {record:?}");
        for at in 0..record.holds.len() {
            let (holder, hold) = record.holds.at(at);
            let hold = self.ledger.hold(hold);
            let same = hold.span == id && hold.backend == holder && span.holders.contains(holder);
            rule!(6, same, "{id:?} is held as {hold:?}");
        }
        Ok(())
    }

    fn check_accounts(&self) -> Result<(), String> {
        let mut resident = 0;
        for (index, account) in self.ledger.accounts.iter().enumerate() {
            let Some(account) = account else { continue };
            let backend = BackendId(index as u16);
            let (spans, blocks) = self.check_ages(backend)?;
            rule!(7, account.blocks == blocks, "{backend} holds {blocks}, not {}", account.blocks);
            rule!(7, account.spans == spans, "{backend} holds {spans} spans");
            let max = account.budget(self.config.backend_blocks_max);
            let fresh = account.fresh_blocks();
            let allowed = max.saturating_add(account.excess);
            rule!(8, fresh <= allowed, "{backend} holds {fresh} of at most {allowed}");
            let shrinking = account.excess == 0 || self.shrinking.contains(backend);
            rule!(14, shrinking, "{backend} may exceed its budget for good");
            if let Some(learned) = &account.learned {
                learned.check_invariants()?;
            }
            rule!(9, self.check_family(account.root)? == spans, "{backend}: holds hang loose");
            resident += blocks;
        }
        rule!(7, self.ledger.resident == resident, "{resident} blocks are resident");
        let waiting = self.corrections.len();
        rule!(15, waiting <= CORRECTIONS_MAX, "{waiting} corrections wait");
        rule!(8, resident <= self.config.fleet_blocks_max, "the fleet holds {resident}");
        Ok(())
    }

    /// The order of use: linked both ways, and nothing older than what hangs below it. Returns spans and blocks.
    fn check_ages(&self, backend: BackendId) -> Result<(u32, u64), String> {
        let Some(account) = self.ledger.account(backend) else { return Ok((0, 0)) };
        let (mut spans, mut blocks, mut older) = (0, 0, HoldId::NIL);
        let (mut fresh_from, mut stale_blocks) = (None, 0);
        let mut passed = std::collections::BTreeSet::new();
        let mut next = account.oldest;
        while let Some(id) = next.some() {
            let hold = self.ledger.hold(id);
            rule!(10, hold.backend == backend && hold.older == older, "{hold:?} after {older:?}");
            let record = self.ledger.record(hold.span);
            let above = self.ledger.find(record.parent, backend);
            let stale = Some(hold.epoch) != self.ledger.account(backend).map(|a| a.epoch);
            rule!(13, !stale || fresh_from.is_none(), "{hold:?} is stale and after a fresh one");
            if stale {
                stale_blocks += u64::from(record.blocks);
            } else {
                fresh_from = Some(id);
            }
            let early = above.is_some_and(|above| passed.contains(&above.0));
            rule!(11, !early, "{hold:?} is more recent than what it hangs below");
            passed.insert(id.0);
            (spans, blocks) = (spans + 1, blocks + u64::from(record.blocks));
            (older, next) = (id, hold.newer);
        }
        rule!(13, account.stale_blocks == stale_blocks, "{backend} has {stale_blocks} stale");
        let marked = stale_blocks == 0 || self.purging.contains(backend);
        rule!(13, marked, "{backend} has stale blocks and is believed");
        rule!(10, account.newest == older, "{backend} ends with {older:?}");
        Ok((spans, blocks))
    }

    /// What hangs below a hold: linked both ways, and as the spans' parents say. Returns how many.
    fn check_family(&self, root: HoldId) -> Result<u32, String> {
        let (mut count, mut open) = (0, vec![root]);
        while let Some(above) = open.pop() {
            let (mut back, mut next) = (above, self.ledger.hold(above).down);
            while let Some(id) = next.some() {
                let hold = self.ledger.hold(id);
                let parent = self.ledger.record(hold.span).parent;
                rule!(12, hold.back == back, "{hold:?} is not behind {back:?}");
                rule!(12, parent == self.ledger.hold(above).span, "{hold:?} below {above:?}");
                count += 1;
                open.push(id);
                (back, next) = (id, hold.side);
            }
        }
        Ok(count)
    }
}
