//! [`Store`]: what there is of one, opening, and the calls that are not a transaction's.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use device::MemoryShelf;
use journal::{Journal, Lsn};
use parking_lot::{Mutex, MutexGuard};

use crate::apply::{self, Applier, Background, Guard, NEXT_TREE};
use crate::backup::retention::Retention;
use crate::cache::{Cache, CacheOptions, ExternalFile, Hint};
use crate::checkpoint::open::{JournalFacts, Layout, OpenFindings, OpenedPages};
use crate::checkpoint::writer::CheckpointSummary;
use crate::checkpointing::{Checkpoints, CheckpointsLock, closed};
use crate::commit::Order;
use crate::commit::queue::{Queue, QueuedRecord, RecordBody};
use crate::commit::waiters::CommitWaiters;
use crate::damage::Quarantined;
use crate::forest::{Forest, Span};
use crate::maintenance::Maintenance;
use crate::metrics::Metrics;
use crate::options::{Opened, Options, Places};
use crate::record;
use crate::space::Space;
use crate::space::poison::Poison;
use crate::transaction::{Direction, Snapshot, Transaction};
use crate::versions::{Snapshots, Versions};
use crate::writes::Spills;
use crate::{StoreError, TreeId};

/// Name to id of every tree.
pub(crate) const CATALOG: TreeId = TreeId(0);
/// Trees of transactions have ids from here on; those of the interpreter lie below.
pub(crate) const FIRST_TREE: u32 = 1001;

/// Records applied in one step while opening.
const REDO_RECORDS: usize = 1024;
/// Or so many bytes of them.
const REDO_BYTES: usize = 4 << 20;

/// A database, shared by reference; clones are the same one. Dropping the last one, its snapshots and cursors included,
/// closes it; [`close`](Store::close) says whether that worked.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// Ends the threads with the last clone.
    threads: Arc<Threads>,
}

#[derive(Debug)]
struct Threads {
    inner: Arc<Inner>,
    applier: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.inner.background.stop();
        if let Some(thread) = self.applier.get_mut().take() {
            // If it panicked there is nobody left to be told but whoever opens again.
            let _ = thread.join();
        }
        self.inner.stop_checkpointer();
    }
}

pub(crate) struct Inner {
    pub(crate) journal: Journal,
    pub(crate) options: Options,
    /// The trees of the interpreter, in its order.
    pub(crate) interpreted: Vec<TreeId>,
    pub(crate) forest: Forest,
    pub(crate) versions: Versions,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) spills: Arc<Spills>,
    pub(crate) order: Mutex<Order>,
    pub(crate) queue: Queue,
    pub(crate) waiters: Arc<CommitWaiters>,
    pub(crate) applier: Mutex<Applier>,
    pub(crate) poison: Poison,
    pub(crate) background: Background,
    pub(crate) space: Arc<Space>,
    pub(crate) checkpoints: CheckpointsLock,
    /// A record on its way from the journal to the queue lies behind this.
    pub(crate) appending: AtomicU64,
    /// The first record of the batch that is being applied.
    pub(crate) applying: AtomicU64,
    /// Pages on the data devices hold nothing of records from here on.
    pub(crate) consistent_lsn: AtomicU64,
    /// From where recovery would apply the journal: of the last checkpoint that began.
    pub(crate) redo_lsn: AtomicU64,
    /// The journal is kept from here on, whatever checkpoints have done.
    pub(crate) keep_journal: AtomicU64,
    /// For backups.
    pub(crate) maintenance: Maintenance,
    /// The journal is being applied at opening: none of it is given up.
    pub(crate) recovering: AtomicBool,
    /// No updates any more.
    pub(crate) closed: AtomicBool,
    /// Held while it is closed: who comes second waits for the first.
    closing: Mutex<()>,
    /// The last record that was queued.
    pub(crate) last: AtomicU64,
    next_tree: AtomicU32,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in its places, or makes one where they are empty, and recovers.
    ///
    /// Errors: [`StoreError::Corrupt`], [`StoreError::Full`], [`StoreError::Refused`] for options that do not fit what is
    /// there, [`StoreError::Journal`], [`StoreError::Device`].
    pub fn open(places: Places, options: Options) -> Result<(Store, Opened), StoreError> {
        let (journal, recovered) = Journal::open(places.journal.clone(), options.journal_of_checkpoints())?;
        let (inner, found) = Inner::on_pages(places, options, journal, &recovered)?;
        let applied_from = Lsn(inner.redo_lsn.load(Ordering::Relaxed));
        let records = inner.recover(applied_from)?;
        let inner = Arc::new(inner);
        let mut applier = None;
        if inner.options.background {
            inner.start_checkpointer()?;
            applier = Some(apply::start(&inner)?);
        }
        let threads = Arc::new(Threads { inner: inner.clone(), applier: Mutex::new(applier) });
        let restored_pages = found.restored.map_or(0, |restored| u64::from(restored.pages));
        let opened = Opened { journal: recovered, applied_from, records, is_new: found.is_new, restored_pages };
        Ok((Store { inner, threads }, opened))
    }

    /// A store in memory, for tests and for temporary nodes.
    pub fn in_memory(options: Options) -> Result<Store, StoreError> {
        let shelf: Arc<dyn device::Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
        Ok(Store::open(places, options)?.0)
    }

    /// Begins a transaction on what is visible now.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.snapshot())
    }

    /// A consistent view of what is visible now; old versions are kept while it lives.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.clone())
    }

    /// The trees of the interpreter, in its order.
    pub fn interpreted(&self) -> &[TreeId] {
        &self.inner.interpreted
    }

    /// Appends a record of a service's own kind (below [`crate::Foreign::KINDS`]): not durable yet. LSN order is the order of
    /// calls. Where too much waits to be applied, it applies first.
    ///
    /// Errors, after each of which nothing was appended: [`StoreError::Full`], [`StoreError::Refused`] for a record that is
    /// too long or that the interpreter's [check](crate::Interpreter::check) refuses, [`StoreError::Poisoned`].
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, StoreError> {
        self.inner.append(kind, parts)
    }

    /// Returns when the record at `lsn` and every one before it is durable. It may become visible a little later:
    /// [`wait_visible`](Store::wait_visible).
    ///
    /// Errors: [`StoreError::Poisoned`]; whether the record will be found after reopening is then unknown.
    pub fn commit(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.inner.make_durable(lsn)?;
        if !self.inner.options.background && self.inner.waiters.try_apply() {
            self.inner.apply_in_role()?;
        }
        Ok(())
    }

    /// Returns when the record at `lsn`, and every one before it, is durable and new snapshots see it.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`]: checkpoints wait for room, and with them all changes.
    pub fn wait_visible(&self, lsn: Lsn) -> Result<(), StoreError> {
        let last = self.inner.last.load(Ordering::Acquire);
        self.inner.wait_visible(lsn.0.min(last))
    }

    /// What the oldest open snapshot sees; where none is open, what a new one would: no snapshot there is or will be lacks a
    /// record up to this.
    pub fn oldest(&self) -> Lsn {
        Lsn(self.inner.snapshots.oldest())
    }

    /// Every record that starts before this is durable.
    pub fn durable(&self) -> Lsn {
        self.inner.journal.durable()
    }

    /// The end of what was appended.
    pub fn appended(&self) -> Lsn {
        self.inner.journal.appended()
    }

    /// Whether a commit is a matter of instructions; see [`Journal::is_inline`].
    pub fn is_inline(&self) -> bool {
        self.inner.journal.is_inline()
    }

    /// Why the store is poisoned; none while it is not. Reads go on meanwhile.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.inner.poison.cause()
    }

    /// Pages that are known to be damaged since the store was opened: met while reading, changing or checking. Each read of
    /// what they hold is an error; everything else goes on.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.inner.maintenance.data_devices.quarantine().list()
    }

    /// Longest value that it takes, in bytes: [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), or less where data devices are smaller
    /// than 2 MiB ([`Options::data_device_bytes`]).
    pub fn value_bytes_max(&self) -> usize {
        self.inner.value_bytes_max()
    }

    /// Poisons the store for a reason of the caller's, such as a thread that is gone and without which nothing may go on: the
    /// first cause stays.
    pub fn fail(&self, why: &dyn std::fmt::Display) {
        self.inner.poison.set(why);
    }

    /// Whether a record of `bytes` would be taken now, without appending one: there is room for it in the journal and in the
    /// pages, and the checkpoint has its own.
    ///
    /// Errors: as for [`append`](Store::append).
    pub fn try_room(&self, bytes: u64) -> Result<(), StoreError> {
        self.inner.try_room(bytes)
    }

    /// Why the checkpoint that runs waits for room, if it does.
    pub fn waits_for_room(&self) -> Option<Arc<str>> {
        match self.inner.room_for_checkpoint() {
            Err(StoreError::Full(why)) => Some(why),
            _ => None,
        }
    }

    /// Whether what is missing is a file descriptor: [`StoreError::Full`] means that then, and giving up messages would make no
    /// room. The log says when it begins and ends.
    pub fn lacks_descriptor(&self) -> bool {
        self.inner.journal.lacks_descriptor() || self.inner.poison.lacks_descriptor()
    }

    /// Most file descriptors that the store holds at a time as it is now; one for each data device is added as it grows. See
    /// [`Options::descriptors`].
    pub fn descriptors(&self) -> u64 {
        let pages = self.inner.metrics().pages;
        self.inner.options.descriptors(pages.saturating_mul(self.inner.options.page_bytes.into()))
    }

    /// Writes everything back that is applied, now: a whole checkpoint, which begins after this call. Recovery would begin there.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`]: the checkpoint has no room and is tried again.
    pub fn checkpoint(&self) -> Result<CheckpointSummary, StoreError> {
        self.inner.check_updates()?;
        self.wait_visible(self.appended())?;
        self.inner.run_checkpoint()
    }

    /// Keeps the journal from `lsn` on, also what is in the pages already: for archives, backups and replicas. Without a
    /// call, and with [`Lsn`]`(u64::MAX)`, checkpoints give up what recovery does not need.
    pub fn keep_journal(&self, lsn: Lsn) {
        self.inner.keep_journal.store(lsn.0, Ordering::Release);
    }

    /// Near memory of the page cache, in bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.inner.options.cache_bytes
    }

    /// Takes a file of so many bytes that is not the store's into the page cache; see [`ExternalFile`].
    ///
    /// Errors: [`StoreError::Full`] where there are too many of them: drop others.
    pub fn external_file(&self, bytes: u64) -> Result<ExternalFile, StoreError> {
        ExternalFile::new(&self.inner.forest.cache, bytes)
    }

    /// Figures, as they are now.
    pub fn metrics(&self) -> Metrics {
        self.inner.metrics()
    }

    /// Applies what was appended, writes everything back, marks the store as closed, closes its journal and ends its threads:
    /// the next opening has nothing to apply. Other clones write nothing, and can still read until its places are opened
    /// anew; what they read then is undefined, but for an error.
    ///
    /// Errors: [`StoreError::Poisoned`], [`StoreError::Full`], [`StoreError::Journal`]; the store is closed all the same, and
    /// opening recovers.
    pub fn close(self) -> Result<(), StoreError> {
        let _closing = self.inner.closing.lock();
        let settled = self.wait_visible(self.appended());
        self.inner.background.stop();
        let applier = self.threads.applier.lock().take();
        if let Some(thread) = applier {
            // If it panicked, that is found when what it left undone is applied.
            let _ = thread.join();
        }
        self.inner.closed.store(true, Ordering::Release);
        // Whoever applies beside is done then, and nobody begins any more: who waits for it is told.
        drop(self.inner.applier.lock());
        self.inner.waiters.wake_all();
        let data_devices = match settled {
            Ok(()) => self.inner.close_checkpoints(),
            Err(error) => {
                self.inner.stop_checkpointer();
                Err(error)
            }
        };
        // Also where something failed before: what is appended afterwards would lie where the next opening writes.
        let journal = self.inner.journal.close();
        // And what is dirty still would go where the next opening has put something else.
        self.inner.poison.close();
        data_devices.and(journal.map_err(StoreError::from))
    }

    /// The journal, for reading and for figures. Append only through the store.
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }
}

impl Inner {
    /// A store on its pages, as they are on the data devices.
    fn on_pages(
        places: Places,
        options: Options,
        journal: Journal,
        recovered: &journal::Recovered,
    ) -> Result<(Inner, OpenFindings), StoreError> {
        let poison = Poison::default();
        let waiters = Arc::new(CommitWaiters::default());
        poison.on_poison({
            let waiters = waiters.clone();
            move || waiters.wake_all()
        });
        let layout = Layout {
            page_bytes: options.page_bytes,
            data_device_bytes: options.data_device_bytes,
            images_device_bytes: options.images_device_bytes,
        };
        let facts = JournalFacts { identity: journal.identity(), first: recovered.first, end: recovered.end };
        let opened = OpenedPages::open(places.data, places.images, layout, facts, false, &poison)?;
        let OpenedPages { data_devices, space, writer, superblock, found } = opened;
        let retention = Retention::new(options.keep_journal_bytes);
        let maintenance = Maintenance { segments: places.journal, data_devices: data_devices.clone(), retention };
        let page_bytes = superblock.geometry.page_bytes as usize;
        let cache = CacheOptions { page_bytes, near_bytes: options.cache_bytes, ..options.cache.clone() };
        let cache = Cache::new(&cache, data_devices.clone(), space.clone())?;
        let inner = Inner {
            journal,
            options,
            interpreted: Vec::new(),
            forest: Forest::open(cache, data_devices, superblock.catalog).map_err(not_without)?,
            versions: Versions::default(),
            snapshots: Arc::default(),
            spills: Arc::default(),
            order: Mutex::default(),
            queue: Queue::default(),
            waiters,
            applier: Mutex::default(),
            poison,
            background: Background::default(),
            space,
            checkpoints: Mutex::new(Checkpoints::inline(writer)),
            appending: AtomicU64::new(u64::MAX),
            // Nothing of the journal is applied yet.
            applying: AtomicU64::new(superblock.redo_lsn.0),
            // Nothing says how far the batch went beside which the last checkpoint began.
            consistent_lsn: AtomicU64::new(recovered.end.0),
            redo_lsn: AtomicU64::new(superblock.redo_lsn.0),
            keep_journal: AtomicU64::new(u64::MAX),
            maintenance,
            recovering: AtomicBool::new(true),
            closed: AtomicBool::new(false),
            closing: Mutex::default(),
            last: AtomicU64::new(0),
            next_tree: AtomicU32::new(FIRST_TREE),
        };
        let mut inner = inner;
        if superblock.is_clean {
            // From here on pages on the data devices may be half written by a checkpoint: nobody may take it for closed any more.
            inner.checkpoint_inline(false)?;
        }
        inner.interpreted = inner.make_interpreted().map_err(not_without)?;
        inner.forest.set_vital(inner.vital());
        Ok((inner, found))
    }

    /// Brings the trees up to the end of the journal; answers how many records were applied.
    fn recover(&self, from: Lsn) -> Result<u64, StoreError> {
        let mut applier = self.applier.lock();
        applier.next_tree = self.stored_next_tree().map_err(not_without)?;
        self.snapshots.publish(from.0);
        self.applying.store(from.0, Ordering::SeqCst);
        let mut entries = Vec::new();
        let mut bytes = 0;
        let mut last = from.0;
        for record in self.journal.read(from) {
            let record = record?;
            last = record.lsn.0;
            bytes += record.payload.len();
            let Some(entry) = entry_of(record)? else { continue };
            let spilled = matches!(entry.what, RecordBody::Spilled(_));
            if let RecordBody::Spilled(runs) = &entry.what
                && let Some(first) = runs.iter().flatten().min()
            {
                self.spills.claim(first.0).committed(entry.lsn);
            }
            if spilled {
                self.redo(&mut applier, &mut entries)?;
            }
            entries.push(entry);
            if spilled || entries.len() >= REDO_RECORDS || bytes >= REDO_BYTES {
                self.redo(&mut applier, &mut entries)?;
                bytes = 0;
            }
        }
        self.redo(&mut applier, &mut entries)?;
        self.drop_orphans()?;
        self.snapshots.publish(last);
        self.last.store(last, Ordering::Release);
        self.next_tree.store(applier.next_tree, Ordering::Relaxed);
        self.applying.store(u64::MAX, Ordering::SeqCst);
        self.recovering.store(false, Ordering::Release);
        Ok(applier.records)
    }

    fn redo(&self, applier: &mut Guard<'_>, entries: &mut Vec<QueuedRecord>) -> Result<(), StoreError> {
        let behind = entries.last().map(|last| last.lsn);
        self.apply_entries(applier, std::mem::take(entries))?;
        if let Some(behind) = behind {
            // What comes next is not in the queue: a checkpoint must not take it for applied.
            self.applying.store(behind, Ordering::SeqCst);
        }
        MutexGuard::unlocked(applier, || self.admit())
    }

    /// Trees that were dropped while a snapshot saw them, and whose pages a crash left behind.
    fn drop_orphans(&self) -> Result<(), StoreError> {
        let known: HashSet<TreeId> = self.catalog().map_err(not_without)?.into_values().collect();
        self.order.lock().trees.clone_from(&known);
        for tree in self.forest.trees() {
            if tree.id != CATALOG && !known.contains(&tree.id) {
                self.versions.forget_tree(tree.id);
                self.forest.drop_tree(tree.id, self.snapshots.visible())?;
            }
        }
        Ok(())
    }

    /// The id that the catalog says the next tree gets.
    fn stored_next_tree(&self) -> Result<u32, StoreError> {
        let stored = self
            .forest
            .get(CATALOG, NEXT_TREE, u64::MAX)?
            .0
            .map(|cell| self.forest.value(&cell, Hint::Point))
            .transpose()?;
        Ok(stored.and_then(|value| apply::id_of(&value)).map_or(FIRST_TREE, |id| id.0.max(FIRST_TREE)))
    }

    /// The interpreter's vital trees; none while the store is repaired.
    fn vital(&self) -> HashSet<TreeId> {
        let Some(interpreter) = self.options.interpreter.as_ref().filter(|_| !self.options.repair) else {
            return HashSet::new();
        };
        let vital = interpreter.vital();
        let trees = interpreter.trees().into_iter().zip(&self.interpreted);
        trees.filter(|(name, _)| vital.contains(name)).map(|(_, id)| *id).collect()
    }

    /// The interpreter's trees, by name; those that are not there are made, with ids below those of transactions.
    fn make_interpreted(&self) -> Result<Vec<TreeId>, StoreError> {
        let Some(interpreter) = &self.options.interpreter else { return Ok(Vec::new()) };
        let known = self.catalog()?;
        let mut next = known.values().map(|id| id.0).filter(|id| *id < FIRST_TREE).max().unwrap_or(0);
        let mut trees = Vec::new();
        for name in interpreter.trees() {
            let id = match known.get(name.as_bytes()) {
                Some(id) => *id,
                None => {
                    next += 1;
                    self.forest.change(CATALOG, 0)?.set(name.as_bytes(), Some(&next.to_le_bytes()), |_| ())?;
                    TreeId(next)
                }
            };
            trees.push(id);
        }
        assert!(next < FIRST_TREE, "an interpreter has at most {} trees", FIRST_TREE - 1);
        Ok(trees)
    }

    /// The catalog as the pages hold it.
    pub(crate) fn catalog(&self) -> Result<HashMap<Bytes, TreeId>, StoreError> {
        let mut known = HashMap::new();
        let mut left = Some(Span::all());
        while let Some(span) = left {
            let Some(block) = self.forest.block(CATALOG, &span, Direction::Forward, u64::MAX, Hint::Point)? else {
                break;
            };
            for at in (0..block.len()).filter(|at| block.key(*at) != NEXT_TREE) {
                let id = apply::id_of(&self.forest.value(&block.cell(at)?, Hint::Point)?);
                known.extend(id.map(|id| (block.key_bytes(at), id)));
            }
            left = span.split(&block.low, &block.high, Direction::Forward).1;
        }
        Ok(known)
    }

    /// An id that no tree has had.
    pub(crate) fn new_tree(&self) -> TreeId {
        TreeId(self.next_tree.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.cause().is_some()
    }

    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Refused`] after closing.
    pub(crate) fn check_updates(&self) -> Result<(), StoreError> {
        if self.closed.load(Ordering::Acquire) {
            return Err(closed());
        }
        self.poison.check()
    }

    /// Poisons the store: the first cause counts. Answers what to tell the caller.
    pub(crate) fn poison_with(&self, error: StoreError) -> StoreError {
        match error {
            poisoned @ StoreError::Poisoned { .. } if self.is_poisoned() => poisoned,
            // It came late, and closing goes on.
            refused @ StoreError::Refused(_) if self.closed.load(Ordering::Acquire) => refused,
            error => self.poison.set(&error),
        }
    }
}

/// Damage of what all else is found by: nothing can be opened without it.
fn not_without(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(why) => {
            let text =
                format!("{why}; this is what all trees are found by, and cannot be done without: restore a backup");
            StoreError::Corrupt(why.said(text))
        }
        other => other,
    }
}

/// A record of the journal as it waits to be applied; none for spill chunks, which only their commit record names.
pub(crate) fn entry_of(record: journal::Record) -> Result<Option<QueuedRecord>, StoreError> {
    let journal::Record { lsn, kind, payload } = record;
    let damaged =
        |damage: record::RecordDamage| StoreError::Corrupt(format!("the record at lsn {lsn}: {damage}").into());
    let bytes = payload.len();
    let payload = Bytes::from(payload);
    let what = match kind {
        record::KIND_TRANSACTION => RecordBody::Changes(record::decode(payload).map_err(damaged)?),
        record::KIND_SPILLED_COMMIT => RecordBody::Spilled(record::decode_spilled_commit(payload).map_err(damaged)?),
        record::KIND_SPILL_CHUNK => return Ok(None),
        kind if kind < crate::Foreign::KINDS => RecordBody::Foreign { kind, payload },
        kind => {
            let what = format!("the record at lsn {lsn} has kind {kind}, which this version does not know");
            return Err(StoreError::Corrupt(what.into()));
        }
    };
    Ok(Some(QueuedRecord { lsn: lsn.0, bytes, what }))
}
