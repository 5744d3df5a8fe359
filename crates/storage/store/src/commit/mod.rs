//! Committing: determines the order of commits, writes them to the journal, and waits until they are visible.
//!
//! ```text
//!   commit   write set, payload              no lock
//!            | order lock: validate -> append to the journal -> enter the write set -> queue |
//!            wait_visible: durable (group commit), applied, visible                     CommitWaiters
//!
//!   append   payload checked                 a service's own record: no validation
//!            | order lock: append to the journal -> queue |
//! ```
//!
//! The order of the log is the order of commits, of the queue and of application. *First committer wins*: a transaction
//! is refused if one of its keys was written by a transaction that committed after its snapshot. It is refused before
//! any part of it is in the journal.
//!
//! The changes of a service's record are known only when it is interpreted. This matters for a transaction that writes
//! to a tree of the interpreter if service records arrived after its snapshot. The commit then looks into the old
//! versions for records that were applied since, and interprets those that are still queued: a key that either of them
//! replaces is a conflict.
//!
//! Invariants:
//! 1. Under the order lock a thread waits for a device only when the journal's buffers are full during an append. The
//!    transactions of the previous paragraph also wait for the batch that is being applied: the applier's lock is taken
//!    after the order lock.
//! 2. A record that was appended is applied, or the store is poisoned. Only a hardware failure may cause the latter.
//!    Every change that a tree would refuse is refused before the append: keys and values by
//!    [`Transaction::put`](crate::Transaction::put) and [`Interpreter::check`](crate::Interpreter::check).

pub(crate) mod background;
pub(crate) mod recent;
#[cfg(test)]
mod tests;
pub(crate) mod waiters;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use journal::{JournalError, Lsn};
use parking_lot::Mutex;

use crate::apply::{Applier, Recovery};
use crate::catalog::{CATALOG, FIRST_TREE};
use crate::interpreter::{Changes, Foreign};
use crate::limits::{FreeAllowance, SpaceLimits};
use crate::queue::{QueuedRecord, RecordBody};
use crate::record::{self, Change, RecordWriter};
use crate::space::devices::DataDevices;
use crate::tree::VALUE_EXTENTS_MAX;
use crate::versions::Held;
use crate::write_set::{WriteSet, hash};
use crate::writes::WriteBuffer;
use crate::{StoreError, TreeId};

use background::Background;
use recent::RecentWrites;
use waiters::{CommitWaiters, Role};

/// Number of transactions entered between two removals of write sets that can no longer conflict.
const FORGET_EVERY: u32 = 256;

/// Keys in the write sets that are kept for snapshots that nothing can be read in any more: some 50 bytes each.
const RECENT_MAX: usize = if cfg!(test) { 1000 } else { 1 << 20 };

/// How long a durable transaction waits before it checks again whether the checkpoint found space.
const FULL_PAUSE: Duration = Duration::from_millis(20);

/// Free pages required by an append, in addition to those for its bytes: more than any single change splits ...
const PAGES_FREE: u64 = 16;

/// ... and one in this many of a data device, for batches that split more leaves than their bytes tell: only the applier
/// takes those.
const KEPT_PART: u64 = 16;

/// The part of the journal's limit that records may take that wait behind a spilled transaction and are not in memory: one in
/// this many.
const DEFERRED_PART: u64 = 4;

/// Memory of a queue entry without its payload, rounded up.
const ENTRY_BYTES: usize = 128;

/// The error for a transaction whose spilled changes gave way.
pub(crate) fn given_up() -> StoreError {
    let why =
        "the journal had no room, and gave up what this transaction had spilled there: it can only be rolled back";
    StoreError::Full(why.into())
}

/// The state under the order lock.
#[derive(Debug, Default)]
struct CommitOrder {
    recent: RecentWrites,
    /// Writes up to here may be forgotten although snapshots before it are open: those are too old to read.
    forgotten: u64,
    entered: u32,
    /// LSN of the last record of a service.
    foreign: u64,
    /// The trees that the catalog contains once all ordered records are applied.
    trees: HashSet<TreeId>,
}

impl CommitOrder {
    /// Forgets the writes with which no snapshot from `oldest` on can conflict; if they are many, also those that snapshots
    /// before `floor`, which are too old to read, could conflict with.
    fn forget(&mut self, oldest: u64, floor: u64) {
        let mut before = oldest;
        if floor > oldest && self.recent.hashes() > RECENT_MAX {
            self.forgotten = self.forgotten.max(floor);
            before = floor;
        }
        self.recent.forget(before);
    }
}

/// Appends records to the journal in one order, waits until they are durable and visible, and applies them if no other
/// thread does.
pub(crate) struct Committer {
    pub(crate) applier: Arc<Applier>,
    pub(crate) waiters: Arc<CommitWaiters>,
    pub(crate) background: Background,
    data_devices: Arc<DataDevices>,
    allowance: FreeAllowance,
    order: Mutex<CommitOrder>,
    next_tree: AtomicU32,
}

/// A transaction in the form of its journal record and queue entry.
struct Prepared {
    kind: u8,
    payload: Vec<u8>,
    what: RecordBody,
    bytes: usize,
}

/// Whether the values of a transaction are others than before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    Changes,
    None,
}

/// The applier's role; released when dropped.
struct InRole<'a>(&'a Committer);

impl Drop for InRole<'_> {
    fn drop(&mut self) {
        self.0.waiters.applied(|| self.0.visible(), || self.0.durable());
    }
}

impl Committer {
    /// Creates the committer after recovery. Whatever poisons the store wakes `waiters`.
    pub(crate) fn new(
        applier: Arc<Applier>,
        waiters: Arc<CommitWaiters>,
        data_devices: Arc<DataDevices>,
        recovery: Recovery,
    ) -> Committer {
        let order = Mutex::new(CommitOrder { trees: recovery.trees, ..CommitOrder::default() });
        let next_tree = AtomicU32::new(recovery.next_tree);
        let (background, allowance) = (Background::default(), FreeAllowance::default());
        Committer { applier, waiters, background, data_devices, allowance, order, next_tree }
    }

    /// Returns an id that no tree has had.
    pub(crate) fn new_tree(&self) -> TreeId {
        TreeId(self.next_tree.fetch_add(1, Ordering::Relaxed))
    }

    /// Number of keys in the write sets of recent transactions.
    pub(crate) fn recent_keys(&self) -> usize {
        self.order.lock().recent.len()
    }

    fn visible(&self) -> u64 {
        self.applier.trees.snapshots.visible()
    }

    fn durable(&self) -> u64 {
        self.applier.journal.durable().0
    }

    /// Commits the writes of a transaction on that snapshot: they are durable and visible when it returns.
    pub(crate) fn commit(&self, snapshot: Arc<Held>, writes: WriteBuffer) -> Result<Lsn, StoreError> {
        self.applier.check_updates()?;
        self.within_limits(&writes)?;
        self.commit_as(snapshot, writes, Effect::Changes)
    }

    /// See [`Transaction::commit_beyond_limits`](crate::Transaction::commit_beyond_limits).
    pub(crate) fn commit_beyond_limits(&self, snapshot: Arc<Held>, writes: WriteBuffer) -> Result<Lsn, StoreError> {
        self.applier.check_updates()?;
        self.commit_as(snapshot, writes, Effect::Changes)
    }

    /// As [`commit`](Committer::commit), of values that are those that the snapshot has: rewriting stores them anew. It is refused if
    /// another transaction has changed one of the keys since, and no other transaction is refused because of it; except one that writes
    /// to a tree of the interpreter, which may find its old versions. It takes no space that is kept for others.
    pub(crate) fn commit_unchanged(&self, snapshot: Arc<Held>, writes: WriteBuffer) -> Result<Lsn, StoreError> {
        self.applier.check_updates()?;
        self.commit_as(snapshot, writes, Effect::None)
    }

    fn commit_as(&self, snapshot: Arc<Held>, mut writes: WriteBuffer, effect: Effect) -> Result<Lsn, StoreError> {
        self.make_room()?;
        if writes.record_bytes() as u64 > self.record_bytes_max() || !writes.runs().is_empty() {
            self.spill(&mut writes)?;
        }
        self.reserve(writes.grows())?;
        let write_set = writes.write_set();
        let prepared = self.prepare(&mut writes);
        if writes.claim.as_ref().is_some_and(|claim| !claim.keep()) {
            return Err(given_up());
        }
        let lsn = self.order((snapshot.lsn(), effect), write_set, prepared, &writes.created)?;
        if let Some(claim) = writes.claim.take() {
            claim.committed(lsn.0);
        }
        // Its old versions are not needed any more.
        drop(snapshot);
        loop {
            match self.wait_visible(lsn.0) {
                Ok(()) => return Ok(lsn),
                // The record is durable, and the checkpoint waits for space: so this waits too.
                Err(StoreError::Full(_)) if self.applier.options.background => std::thread::sleep(FULL_PAUSE),
                // The store is being closed: no snapshot of this process will see the record; the next opening applies
                // it.
                Err(StoreError::Refused(_)) if self.make_durable(lsn).is_ok() => return Ok(lsn),
                Err(error) => return Err(self.applier.poison_with(error)),
            }
        }
    }

    /// Errors: [`StoreError::Full`], which names the setting.
    fn within_limits(&self, writes: &WriteBuffer) -> Result<(), StoreError> {
        let limits = &self.applier.options.limits;
        if *limits == SpaceLimits::default() {
            return Ok(());
        }
        let grows = writes.grows();
        if grows == 0 || !writes.trees().any(|tree| tree.0 >= FIRST_TREE) {
            return Ok(());
        }
        limits.check(grows, &self.applier.space, &self.allowance, || self.data_devices.free_bytes())
    }

    fn prepare(&self, writes: &mut WriteBuffer) -> Prepared {
        let time = (self.applier.options.clock)();
        if !writes.runs().is_empty() {
            let runs: Vec<record::SpilledRun> = writes.runs().iter().map(|run| run.lsns()).collect();
            let payload = record::encode_spilled_commit(&runs, time);
            return Prepared {
                kind: record::KIND_SPILLED_COMMIT,
                bytes: payload.len(),
                payload,
                what: RecordBody::Spilled(runs),
            };
        }
        let capacity = writes.record_bytes();
        let changes = writes.take_layer();
        let mut writer = RecordWriter::new(time, capacity);
        changes.iter().for_each(|change| writer.push(change.tree, &change.key, &change.op));
        let what = RecordBody::Changes(changes);
        Prepared { kind: record::KIND_TRANSACTION, payload: writer.finish(), what, bytes: capacity }
    }

    /// Whether the writes of a transaction on a snapshot could be moved to a newer one: no other transaction has changed one of
    /// their keys since. The newer snapshot was taken before.
    ///
    /// Errors: [`StoreError::Conflict`], [`StoreError::TooOld`].
    pub(crate) fn check_renewal(&self, at: u64, writes: &mut WriteBuffer) -> Result<(), StoreError> {
        writes.keep_hashes();
        let order = self.order.lock();
        let foreign = |tree: TreeId| self.applier.trees.interpreted().contains(&tree);
        // What a service's record changes is known when it is applied; a transaction with such changes keeps its snapshot's order.
        if at < order.forgotten {
            return Err(StoreError::TooOld);
        }
        let meets_records = order.foreign > at && writes.trees().any(foreign);
        match meets_records || !order.recent.allows_renewal(at, writes) {
            true => Err(StoreError::Conflict),
            false => Ok(()),
        }
    }

    /// Whether no transaction has changed a key since a snapshot.
    pub(crate) fn is_current(&self, at: u64, tree: TreeId, key: &[u8]) -> bool {
        let order = self.order.lock();
        at >= order.forgotten && !order.recent.is_newer(at, hash(tree, key))
    }

    /// The same for the hashes of keys.
    pub(crate) fn are_current(&self, at: u64, hashes: &[u64]) -> Vec<bool> {
        let order = self.order.lock();
        hashes.iter().map(|hash| at >= order.forgotten && !order.recent.is_newer(at, *hash)).collect()
    }

    fn order(
        &self,
        (at, effect): (u64, Effect),
        write_set: WriteSet,
        prepared: Prepared,
        created: &[TreeId],
    ) -> Result<Lsn, StoreError> {
        let mut order = self.order.lock();
        self.applier.check_updates()?;
        if !order.recent.allows(at, &write_set) {
            return Err(StoreError::Conflict);
        }
        if at < order.forgotten {
            return Err(StoreError::TooOld);
        }
        let exists = |tree: &TreeId| *tree == CATALOG || order.trees.contains(tree) || created.contains(tree);
        if let Some(TreeId(gone)) = write_set.trees.iter().find(|tree| !exists(tree)) {
            let why =
                format!("tree {gone} does not exist: it was dropped before this transaction began, or never made");
            return Err(StoreError::Refused(why.into()));
        }
        let foreign = |tree: &TreeId| self.applier.trees.interpreted().contains(tree);
        if order.foreign > at && write_set.trees.iter().any(foreign) {
            let conflicts = match &prepared.what {
                RecordBody::Changes(changes) => self.meets_records(at, changes)?,
                // Its keys are in the journal only. Transactions that change so many rows of a service are assumed to
                // conflict.
                RecordBody::Spilled(_) | RecordBody::Foreign { .. } | RecordBody::InJournal { .. } => true,
            };
            if self.applier.trees.versions.is_too_old(at) {
                return Err(StoreError::TooOld);
            }
            if conflicts {
                return Err(StoreError::Conflict);
            }
        }
        let Prepared { kind, payload, what, bytes } = prepared;
        let lsn = self.append_queued(kind, &payload, bytes, what)?;
        order.trees.extend(created);
        for tree in &write_set.dropped {
            order.trees.remove(tree);
        }
        if effect == Effect::Changes {
            order.recent.enter(lsn.0, write_set);
        }
        order.entered += 1;
        if order.entered >= FORGET_EVERY {
            order.entered = 0;
            let (oldest, floor) = (self.applier.trees.snapshots.oldest(), self.applier.trees.versions.floor());
            order.forget(oldest, floor);
        }
        Ok(lsn)
    }

    /// Whether a record of a service after `at` changes a key of `changes`; called under the order lock, so that no
    /// record is added.
    fn meets_records(&self, at: u64, changes: &[Change]) -> Result<bool, StoreError> {
        // Records applied since are in the old versions, or in the batch that is partly applied; all others are in the
        // queue.
        let state = self.applier.lock();
        let is_begun = |change: &Change| {
            let place = (change.tree, &change.key);
            state.batch.binary_search_by(|other| (other.tree, &other.key).cmp(&place)).is_ok()
        };
        if changes.iter().any(is_begun) {
            return Ok(true);
        }
        if changes.iter().any(|change| self.applier.trees.versions.is_replaced(change.tree, &change.key, at)) {
            return Ok(true);
        }
        let Some(interpreter) = &self.applier.options.interpreter else { return Ok(false) };
        let keys: HashSet<(TreeId, &Bytes)> = changes.iter().map(|change| (change.tree, &change.key)).collect();
        let mut meets = false;
        self.applier.queue.visit(|entry| {
            // It is not looked up in the journal: it counts as one that does.
            meets |= matches!(entry.what, RecordBody::InJournal { .. });
            if let RecordBody::Foreign { kind, payload } = &entry.what {
                let mut theirs = Changes::default();
                let record = Foreign { lsn: Lsn(entry.lsn), kind: *kind, payload };
                interpreter.apply(&record, self.applier.trees.interpreted(), &mut theirs)?;
                meets |= theirs.list.iter().any(|change| keys.contains(&(change.tree, &change.key)));
            }
            Ok::<(), StoreError>(())
        })?;
        Ok(meets)
    }

    /// Appends a service's record.
    pub(crate) fn append(&self, kind: u8, payload: Bytes) -> Result<Lsn, StoreError> {
        assert!(kind < Foreign::KINDS, "kinds from {} on are the store's own", Foreign::KINDS);
        self.applier.check_updates()?;
        let queued = match &self.applier.options.interpreter {
            Some(interpreter) => {
                self.reserve(payload.len() as u64)?;
                // A durable record must be applied: one that cannot be is refused here.
                let record = Foreign { lsn: Lsn(u64::MAX), kind, payload: &payload };
                interpreter.check(&record, self.applier.trees.interpreted(), self.value_bytes_max())?;
                payload.clone()
            }
            None => Bytes::new(),
        };
        let is_deferred = !self.make_room_or_defer()?;
        let (bytes, what) = match is_deferred {
            true => (0, RecordBody::InJournal { bytes: payload.len() }),
            false => (queued.len(), RecordBody::Foreign { kind, payload: queued }),
        };
        let lsn = {
            let mut order = self.order.lock();
            let lsn = self.append_queued(kind, &payload, bytes, what)?;
            order.foreign = lsn.0;
            lsn
        };
        self.background.wake_if_idle();
        Ok(lsn)
    }

    /// Appends to journal and queue; called under the order lock. A checkpoint that begins between the append and the
    /// push must not count this record as applied: until it is queued, the redo position keeps a durable LSN below it.
    fn append_queued(&self, kind: u8, payload: &[u8], bytes: usize, what: RecordBody) -> Result<Lsn, StoreError> {
        let Applier { journal, queue, redo, .. } = &*self.applier;
        redo.begin_append(journal.durable());
        let appended = journal.append(kind, &[payload]);
        if let Ok(lsn) = appended {
            queue.push(QueuedRecord { lsn: lsn.0, bytes: bytes + ENTRY_BYTES, what });
        }
        redo.end_append(appended.as_ref().ok().copied());
        if let Err(JournalError::Full { .. }) = &appended {
            self.applier.retention.give_way(|before| journal.frees(before));
        }
        appended.map_err(|error| self.refused(error))
    }

    /// Makes the record at `lsn` durable.
    pub(crate) fn make_durable(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.applier.journal.commit(lsn).map_err(|error| self.refused(error))
    }

    /// Returns when the record at `lsn` is durable and visible; flushes and applies if no other thread does.
    pub(crate) fn wait_visible(&self, lsn: u64) -> Result<(), StoreError> {
        if self.applier.journal.is_inline() {
            self.make_durable(Lsn(lsn))?;
        }
        loop {
            // Checked before a role is taken: the thread that poisoned the store woke only the threads that waited
            // then.
            if self.visible() >= lsn {
                return Ok(());
            }
            self.applier.check_updates()?;
            let durable = || self.durable();
            match self.waiters.enter(lsn, || self.visible(), durable) {
                Role::Done => return Ok(()),
                Role::Flush => {
                    let result = self.make_durable(Lsn(lsn));
                    self.waiters.flushed(durable);
                    result?;
                }
                Role::Apply => {
                    self.apply_in_role()?;
                }
                Role::Wait(seat) => {
                    // The thread that poisons or closes the store wakes only the threads that wait at that moment: this
                    // one may have come later.
                    if self.applier.check_updates().is_err() {
                        self.waiters.wake_all();
                    }
                    seat.wait();
                }
            }
        }
    }

    /// Applies durable records in the applier's role, and releases the role, also after a panic. Returns whether there
    /// was a batch.
    pub(crate) fn apply_in_role(&self) -> Result<bool, StoreError> {
        let _role = InRole(self);
        match self.applier.admit() {
            Ok(()) => self.applier.apply_batch(),
            // If the checkpoint has no space, nothing is applied until there is some.
            Err(error @ StoreError::Full(_)) => Err(error),
            Err(error) => Err(self.applier.poison_with(error)),
        }
    }

    /// Ensures that there are free pages for so many bytes of new rows and for the records queued before them. Leaves
    /// are at least half full when rows come in any order. This is an estimate: a batch that needs more waits for
    /// space.
    fn reserve(&self, bytes: u64) -> Result<(), StoreError> {
        if bytes == 0 {
            return Ok(());
        }
        let page_bytes = self.applier.space.page_bytes();
        let kept = (self.applier.space.device_pages() / KEPT_PART).max(PAGES_FREE);
        self.applier.space.reserve(2 * (bytes + self.applier.queue.pending() as u64) / page_bytes + kept)
    }

    /// See [`Store::try_room`](crate::Store::try_room).
    pub(crate) fn try_room(&self, bytes: u64) -> Result<(), StoreError> {
        self.applier.check_updates()?;
        self.applier.journal.make_room(bytes).map_err(|error| self.refused(error))?;
        self.reserve(bytes)?;
        self.applier.checkpoints.check_room()?;
        // No call waits for a descriptor now, even if none was opened since the last one failed.
        self.applier.poison.lacks(false);
        Ok(())
    }

    /// Applies records while the queue exceeds its limit; returns `false` where that would wait for a spilled transaction, and
    /// the record need not be in the queue.
    fn make_room_or_defer(&self) -> Result<bool, StoreError> {
        let (queue, options) = (&self.applier.queue, &self.applier.options);
        while queue.bytes() > options.queue_bytes {
            let most = options.checkpoint_options().journal_bytes_max / DEFERRED_PART;
            if options.background && queue.has_spilled() && (queue.deferred() as u64) < most {
                return Ok(false);
            }
            match queue.first() {
                Some(first) => self.wait_visible(first)?,
                None => break,
            }
        }
        Ok(true)
    }

    /// Applies records while the queue exceeds its limit.
    fn make_room(&self) -> Result<(), StoreError> {
        while self.applier.queue.bytes() > self.applier.options.queue_bytes {
            match self.applier.queue.first() {
                Some(first) => self.wait_visible(first)?,
                None => break,
            }
        }
        Ok(())
    }

    /// Moves the write buffer of a transaction into the journal, and waits until it can be read there.
    pub(crate) fn spill(&self, writes: &mut WriteBuffer) -> Result<(), StoreError> {
        self.applier.check_updates()?;
        self.within_limits(writes)?;
        let mut last = Lsn::ZERO;
        // The journal is not truncated from here on: the claim is made before the first spill chunk exists.
        writes.claim.get_or_insert_with(|| self.applier.retention.claim(self.applier.journal.durable()));
        let mut append = |payload: &[u8]| {
            last = self
                .applier
                .journal
                .append(record::KIND_SPILL_CHUNK, &[payload])
                .map_err(|error| self.refused(error))?;
            Ok(last)
        };
        let spilled = writes.spill(&mut append);
        if matches!(spilled, Err(StoreError::Full(_))) {
            // It is this transaction that gives way: the caller drops what is left of it.
            writes.claim = None;
            self.applier.retention.want_truncation();
        }
        spilled?;
        self.make_durable(last)
    }

    /// The longest value that trees of this store accept.
    pub(crate) fn value_bytes_max(&self) -> usize {
        VALUE_EXTENTS_MAX * self.data_devices.extent_bytes_max()
    }

    /// Largest payload of a record.
    pub(crate) fn record_bytes_max(&self) -> u64 {
        self.applier.options.journal.max_record_bytes
    }

    /// Maps an error of the journal: a lack of space leaves everything unchanged, any other error poisons the store.
    pub(crate) fn refused(&self, error: JournalError) -> StoreError {
        match error {
            JournalError::Full { .. } | JournalError::NoDescriptors => error.into(),
            JournalError::TooLarge { .. } => StoreError::Refused(error.to_string().into()),
            JournalError::Closed => StoreError::closed(),
            other => self.applier.poison_with(other.into()),
        }
    }
}
