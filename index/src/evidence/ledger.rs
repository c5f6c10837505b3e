//! The writer's books: which backend holds which span, in what order each last used them, and how the held spans hang
//! together. It knows spans by number and length only; their hashes are in the tree.
//!
//! A *hold* is one backend's holding of one span. The holds of a backend form a list from least to most recently used,
//! and a tree that mirrors the spans'. Using a path moves its holds to the recent end from the deepest up, so a hold is
//! always older than what it hangs below: the oldest hold is always a leaf, and evicting it never cuts a path.

use super::account::Account;
use super::slab::Slab;
use crate::tree::{Mark, SpanId};
use crate::{BackendId, Millis};

/// A hold's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HoldId(pub(super) u32);

impl HoldId {
    pub(super) const NIL: HoldId = HoldId(u32::MAX);

    pub(super) fn some(self) -> Option<HoldId> {
        (self != HoldId::NIL).then_some(self)
    }
}

/// One backend's holding of one span. 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) span: SpanId,
    /// When it was last used, in ticks of 64 ms: 32 bits last eight years.
    pub(super) at: u32,
    pub(super) older: HoldId,
    pub(super) newer: HoldId,
    /// First of the holds that hang below.
    pub(super) down: HoldId,
    /// Next of those that hang below the same hold.
    pub(super) side: HoldId,
    /// The one before on `side`, or, for the first, the hold above.
    pub(super) back: HoldId,
    pub(super) backend: BackendId,
    /// The account's epoch when it was last used.
    pub(super) epoch: u16,
}

/// One span, as the ledger knows it. 32 bytes.
#[derive(Clone, Debug)]
pub(super) struct Record {
    pub(super) first: Mark,
    pub(super) parent: SpanId,
    pub(super) blocks: u32,
    pub(super) holds: Holds,
}

/// The holds on one span, by backend.
#[derive(Clone, Debug)]
pub(super) enum Holds {
    One(BackendId, HoldId),
    #[expect(
        clippy::box_collection,
        reason = "16 bytes instead of 32 in every record; few records have many"
    )]
    Many(Box<Vec<(BackendId, HoldId)>>),
}

const _: () = assert!(size_of::<Hold>() == 32 && size_of::<Record>() == 32);

/// The books of all backends.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) holds: Slab<Hold>,
    pub(super) records: Slab<Record>,
    pub(super) accounts: Vec<Option<Account>>,
    /// Blocks held, summed over backends.
    pub(super) resident: u64,
    /// Of these, those of stale holds.
    pub(super) stale: u64,
    /// Blocks in the tree, however many hold them.
    pub(super) distinct: u64,
}

impl Ledger {
    pub(super) fn new() -> Self {
        let mut records = Slab::new();
        let holds = Holds::Many(Box::default());
        // The root's record takes number 0, as the root does. Who "holds" the root is in the accounts.
        records.insert(Record { first: Mark(0), parent: SpanId::ROOT, blocks: 0, holds });
        Self {
            holds: Slab::new(),
            records,
            accounts: Vec::new(),
            resident: 0,
            stale: 0,
            distinct: 0,
        }
    }

    pub(super) fn record(&self, span: SpanId) -> &Record {
        self.records.get(span.0)
    }

    pub(super) fn hold(&self, id: HoldId) -> &Hold {
        self.holds.get(id.0)
    }

    pub(super) fn hold_mut(&mut self, id: HoldId) -> &mut Hold {
        self.holds.get_mut(id.0)
    }

    pub(super) fn account(&self, backend: BackendId) -> Option<&Account> {
        self.accounts.get(backend.index())?.as_ref()
    }

    pub(super) fn account_mut(&mut self, backend: BackendId) -> Option<&mut Account> {
        self.accounts.get_mut(backend.index())?.as_mut()
    }

    /// The account of `backend`, opened if there is none.
    pub(super) fn open_account(&mut self, backend: BackendId) -> &mut Account {
        if self.accounts.len() <= backend.index() {
            self.accounts.resize_with(backend.index() + 1, || None);
        }
        let Self { accounts, holds, .. } = self;
        accounts[backend.index()].get_or_insert_with(|| {
            Account::new(HoldId(holds.insert(Hold::new(SpanId::ROOT, backend, HoldId::NIL))))
        })
    }

    /// Closes an account that holds nothing.
    pub(super) fn close_account(&mut self, backend: BackendId) {
        let account = self.accounts.get_mut(backend.index()).and_then(Option::take);
        if let Some(account) = account {
            debug_assert!(account.blocks == 0, "closed an account that holds blocks");
            self.holds.remove(account.root.0);
        }
    }

    /// All that `backend` holds is stale from now on. Returns the blocks that were not before.
    pub(super) fn make_stale(&mut self, backend: BackendId) -> u64 {
        let Some(account) = self.account_mut(backend) else { return 0 };
        let fresh = account.fresh_blocks();
        account.epoch = account.epoch.wrapping_add(1);
        account.stale_blocks = account.blocks;
        self.stale += fresh;
        fresh
    }

    /// The oldest hold of `backend`, if it is stale. Stale holds are older than all others: only use makes one fresh.
    pub(super) fn oldest_stale(&self, backend: BackendId) -> Option<HoldId> {
        let account = self.account(backend)?;
        account.oldest.some().filter(|&id| self.hold(id).epoch != account.epoch)
    }

    /// So many blocks of a hold are gone or, with the hold, fresh: stale ones no longer count.
    fn count_stale(&mut self, hold: Hold, blocks: u64) {
        let Some(account) = self.account_mut(hold.backend) else { return };
        if account.epoch != hold.epoch {
            account.stale_blocks -= blocks;
            self.stale -= blocks;
        }
    }

    /// The hold of `backend` on `span`, the root included.
    pub(super) fn find(&self, span: SpanId, backend: BackendId) -> Option<HoldId> {
        if span == SpanId::ROOT {
            return self.account(backend).map(|account| account.root);
        }
        self.record(span).holds.find(backend)
    }

    /// Records a new span below `parent`, held by `backend`, which holds `parent`.
    pub(super) fn open(
        &mut self,
        parent: SpanId,
        first: Mark,
        blocks: u32,
        backend: BackendId,
    ) -> SpanId {
        let holds = Holds::One(backend, HoldId::NIL);
        let span = SpanId(self.records.insert(Record { first, parent, blocks, holds }));
        self.distinct += u64::from(blocks);
        let hold = self.take_hold(span, backend);
        self.records.get_mut(span.0).holds = Holds::One(backend, hold);
        span
    }

    /// `backend`, which holds the span's parent, now holds `span` too.
    pub(super) fn join(&mut self, span: SpanId, backend: BackendId) {
        let hold = self.take_hold(span, backend);
        self.records.get_mut(span.0).holds.insert(backend, hold);
    }

    /// Gives up a hold that nothing hangs below. A record without holds is freed.
    pub(super) fn leave(&mut self, id: HoldId) {
        let hold = *self.hold(id);
        debug_assert!(hold.down == HoldId::NIL, "gave up a hold that others hang below");
        self.unlink_age(id);
        self.unlink_family(id);
        self.holds.remove(id.0);
        let record = self.records.get_mut(hold.span.0);
        let blocks = u64::from(record.blocks);
        if record.holds.remove(hold.backend) {
            self.records.remove(hold.span.0);
            self.distinct -= blocks;
        }
        self.resident -= blocks;
        self.count_stale(hold, blocks);
        if let Some(account) = self.account_mut(hold.backend) {
            account.blocks -= blocks;
            account.spans -= 1;
        }
    }

    /// The hold was used: it is now the most recent of its backend.
    pub(super) fn touch(&mut self, id: HoldId, at: u32) {
        let hold = *self.hold(id);
        self.count_stale(hold, u64::from(self.record(hold.span).blocks));
        self.unlink_age(id);
        self.link_newest(id);
        let epoch = self.account(hold.backend).map_or(0, |account| account.epoch);
        let hold = self.hold_mut(id);
        (hold.at, hold.epoch) = (at, epoch);
    }

    /// A span was cut after `blocks` blocks; `first` is the lower part's first mark. Returns the upper part's number: the
    /// lower keeps its own, so that whatever hangs below needs no change.
    pub(super) fn split(&mut self, tail: SpanId, blocks: u32, first: Mark) -> SpanId {
        let mut record = self.record(tail).clone();
        record.blocks = blocks;
        let head = SpanId(self.records.insert(record));
        let below = self.records.get_mut(tail.0);
        (below.parent, below.first) = (head, first);
        below.blocks -= blocks;
        for at in 0..self.record(head).holds.len() {
            let (backend, old) = self.record(head).holds.at(at);
            let new = HoldId(self.holds.insert(Hold::new(head, backend, HoldId::NIL)));
            let Hold { at: used, epoch, .. } = *self.hold(old);
            let hold = self.hold_mut(new);
            (hold.at, hold.epoch) = (used, epoch);
            self.replace_family(old, new);
            self.link_below(new, old);
            self.link_newer(new, old);
            self.records.get_mut(head.0).holds.set(at, new);
            if let Some(account) = self.account_mut(backend) {
                account.spans += 1;
            }
        }
        head
    }

    /// Whether `above` and its child can become one span again without losing anything: same holders, nothing else
    /// hanging below, and for every holder nothing used between the two.
    pub(super) fn is_one(&self, above: SpanId, below: SpanId) -> bool {
        let (upper, lower) = (&self.record(above).holds, &self.record(below).holds);
        upper.len() == lower.len()
            && (0..upper.len()).all(|at| {
                let ((a, up), (b, low)) = (upper.at(at), lower.at(at));
                let (upper, lower) = (self.hold(up), self.hold(low));
                let alone = upper.down == low && lower.side == HoldId::NIL;
                let together = lower.at == upper.at && lower.epoch == upper.epoch;
                a == b && alone && lower.newer == up && together
            })
    }

    /// `above` became part of its only child `below`, which keeps its number.
    pub(super) fn fuse(&mut self, above: SpanId, below: SpanId) {
        let Record { first, parent, blocks, .. } = *self.record(above);
        for at in 0..self.record(above).holds.len() {
            let (backend, up) = self.record(above).holds.at(at);
            let low = self.hold(up).down;
            // Out of its old place first; then into the upper one's.
            self.hold_mut(up).down = HoldId::NIL;
            self.replace_family(up, low);
            self.unlink_age(up);
            self.holds.remove(up.0);
            if let Some(account) = self.account_mut(backend) {
                account.spans -= 1;
            }
        }
        self.records.remove(above.0);
        let record = self.records.get_mut(below.0);
        (record.first, record.parent) = (first, parent);
        record.blocks += blocks;
    }

    /// A span held by one backend was cut short to `blocks`.
    pub(super) fn truncate(&mut self, id: HoldId, blocks: u32) {
        let hold @ Hold { span, backend, .. } = *self.hold(id);
        let record = self.records.get_mut(span.0);
        debug_assert!(record.holds.len() == 1, "cut a span short under another holder");
        let cut = u64::from(record.blocks - blocks);
        record.blocks = blocks;
        self.distinct -= cut;
        self.resident -= cut;
        self.count_stale(hold, cut);
        if let Some(account) = self.account_mut(backend) {
            account.blocks -= cut;
        }
    }

    /// A hold on `span` at the recent end, below the backend's hold on the span's parent; counted.
    fn take_hold(&mut self, span: SpanId, backend: BackendId) -> HoldId {
        let Record { parent, blocks, .. } = *self.record(span);
        let above = self.find(parent, backend);
        debug_assert!(above.is_some(), "a span is held only below a held one");
        let id = HoldId(self.holds.insert(Hold::new(span, backend, HoldId::NIL)));
        if let Some(above) = above {
            self.link_below(above, id);
        }
        self.link_newest(id);
        self.resident += u64::from(blocks);
        let account = self.open_account(backend);
        let epoch = account.epoch;
        account.blocks += u64::from(blocks);
        account.spans += 1;
        self.hold_mut(id).epoch = epoch;
        id
    }
}

impl Hold {
    fn new(span: SpanId, backend: BackendId, nil: HoldId) -> Self {
        let (at, epoch) = (0, 0);
        Self { span, at, older: nil, newer: nil, down: nil, side: nil, back: nil, backend, epoch }
    }
}

/// When, in the ticks of [`Hold::at`].
pub(super) fn tick(at: Millis) -> u32 {
    (at.0 >> 6) as u32
}
