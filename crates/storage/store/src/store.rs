//! The calls of a [`Store`] outside transactions: records of services, waiting, checkpoints, metrics, checks, backups.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use device::{MemoryShelf, Shelf};
use encryption::Sealer;
use journal::{Journal, Lsn};

use crate::backup::{Copying, Manifest};
use crate::cache::ExternalFile;
use crate::cache::tap::AccessTap;
use crate::checkpoint::writer::CheckpointSummary;
use crate::damage::Quarantined;
use crate::engine::{Store, StoreEngine};
use crate::maintenance::{self, BackedUp};
use crate::metrics::Metrics;
use crate::options::{Options, Places};
use crate::rewrite::{self, RewriteOptions, RewriteProgress, Rewritten};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::verify::{Progress, Verified};
use crate::{StoreError, TreeId};

/// How often [`Store::transact`] begins again: with its pauses some 2 s.
const ATTEMPTS_MAX: u32 = 200;

/// The first pause between two attempts, of the order of a group commit; each is twice the one before, up to 64 times this.
const ATTEMPT_PAUSE: Duration = Duration::from_micros(200);

impl Store {
    /// A store in memory, for tests and for temporary nodes.
    pub fn in_memory(options: Options) -> Result<Store, StoreError> {
        let shelf: Arc<dyn device::Shelf> = Arc::new(MemoryShelf::new());
        let places = Places { journal: shelf.clone(), images: shelf.clone(), data: shelf };
        Ok(Store::open(places, options)?.0)
    }

    /// Begins a transaction on the current visible state.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self.snapshot())
    }

    /// Changes what it reads: does `work` in a transaction and commits it; returns what `work` returned. Where another change came first it
    /// begins again with what is there then, after a pause that grows: a change that is committed conflicts until it is visible, so that
    /// without a pause a second one would only use up its attempts.
    ///
    /// Errors: those of `work` and of [`Transaction::commit`]; [`StoreError::Conflict`] only after seconds of nothing but conflicts.
    pub fn transact<T, E: From<StoreError>>(&self, work: impl FnMut(&mut Transaction) -> Result<T, E>) -> Result<T, E> {
        self.transact_by(Transaction::commit, work)
    }

    /// As [`transact`](Store::transact), in the space of [`Transaction::commit_beyond_limits`].
    ///
    /// Errors: as there.
    pub fn transact_beyond_limits<T, E: From<StoreError>>(
        &self,
        work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        self.transact_by(Transaction::commit_beyond_limits, work)
    }

    fn transact_by<T, E: From<StoreError>>(
        &self,
        commit: impl Fn(Transaction) -> Result<Lsn, StoreError>,
        mut work: impl FnMut(&mut Transaction) -> Result<T, E>,
    ) -> Result<T, E> {
        let mut pauses = (0..ATTEMPTS_MAX).map(|tried| ATTEMPT_PAUSE * (1 << tried.min(6)));
        loop {
            let mut transaction = self.begin();
            let done = work(&mut transaction)?;
            match (commit(transaction), pauses.next()) {
                (Ok(_), _) => return Ok(done),
                (Err(StoreError::Conflict), Some(pause)) => std::thread::sleep(pause),
                (Err(error), _) => return Err(error.into()),
            }
        }
    }

    /// Returns a consistent view of the current visible state; old versions are kept while it lives.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.clone())
    }

    /// The trees of the interpreter, in its order.
    pub fn interpreted(&self) -> &[TreeId] {
        self.engine.trees.interpreted()
    }

    /// Appends a record of a service's own kind (below [`crate::Foreign::KINDS`]); it is not durable yet. LSN order is
    /// the order of calls. If too many records wait to be applied, it applies some first.
    ///
    /// Errors, after each of which nothing was appended: [`StoreError::Full`], [`StoreError::Refused`] for a record that is
    /// too long or that the interpreter's [check](crate::Interpreter::check) refuses, [`StoreError::Poisoned`].
    ///
    /// The payload is not copied: values of the interpreter that are slices of it share its memory until they are applied.
    pub fn append(&self, kind: u8, payload: impl Into<Bytes>) -> Result<Lsn, StoreError> {
        self.engine.committer.append(kind, payload.into())
    }

    /// Returns when the record at `lsn` and every one before it is durable. It may become visible a little later:
    /// [`wait_visible`](Store::wait_visible).
    ///
    /// Errors: [`StoreError::Poisoned`]; it is then unknown whether the record will be found after reopening.
    pub fn commit(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.engine.committer.make_durable(lsn)?;
        if !self.engine.options.background && self.engine.committer.waiters.try_apply() {
            self.engine.committer.apply_in_role()?;
        }
        Ok(())
    }

    /// Starts the thread that makes records durable for callers of [`flush_soon`](Store::flush_soon); see
    /// [`Journal::start_flusher`]. Errors: [`StoreError::Journal`] if the system cannot start a thread.
    pub fn start_flusher(&self, observer: impl Fn() + Send + Sync + 'static) -> Result<(), StoreError> {
        Ok(self.engine.journal.start_flusher(observer)?)
    }

    /// Requests that all records appended so far become durable, without waiting; [`durable`](Store::durable) moves then.
    pub fn flush_soon(&self) {
        self.engine.journal.flush_soon();
    }

    /// Whether the journal works; if it does not, the store is poisoned. Errors: [`StoreError::Poisoned`].
    pub fn check_journal(&self) -> Result<(), StoreError> {
        self.engine.journal.check().map_err(|error| self.engine.committer.refused(error))
    }

    /// Returns when the record at `lsn`, and every one before it, is durable and new snapshots see it.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`] while checkpoints, and therefore all changes, wait for
    /// space.
    pub fn wait_visible(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.engine.wait_visible(lsn)
    }

    /// The LSN that the oldest open snapshot sees; if none is open, the LSN that a new one would see. Every present and
    /// future snapshot contains all records up to this.
    pub fn oldest(&self) -> Lsn {
        Lsn(self.engine.trees.snapshots.oldest())
    }

    /// Every record that starts before this is durable.
    pub fn durable(&self) -> Lsn {
        self.engine.journal.durable()
    }

    /// The end of the appended records.
    pub fn appended(&self) -> Lsn {
        self.engine.journal.appended()
    }

    /// A random number that was drawn when the store's journal was made: positions of stores with different numbers are of
    /// different messages. A backup has that of its store.
    pub fn identity(&self) -> u32 {
        self.engine.journal.identity()
    }

    /// Whether a commit takes only instructions; see [`Journal::is_inline`].
    pub fn is_inline(&self) -> bool {
        self.engine.journal.is_inline()
    }

    /// Whether reading a page takes only instructions: the data devices are on persistent memory.
    pub fn has_inline_pages(&self) -> bool {
        self.engine.data_devices.is_inline()
    }

    /// Why the store is poisoned; `None` if it is not. Reads continue while it is.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.engine.applier.poison.cause()
    }

    /// The damaged pages that were found since the store was opened, by reading, changing or checking. Each read of
    /// their contents is an error; everything else continues.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.engine.data_devices.quarantine().list()
    }

    /// What encrypts it; `None` of a clear store.
    pub fn sealer(&self) -> Option<&Sealer> {
        self.engine.data_devices.sealer()
    }

    /// As [`sealer`](Store::sealer), to keep: for files beside the store that have copies of what is in it.
    pub fn shared_sealer(&self) -> Option<Arc<Sealer>> {
        self.engine.data_devices.shared_sealer()
    }

    /// The longest value that the store accepts, in bytes: [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), or less if data
    /// devices are smaller than 2 MiB ([`Options::data_device_bytes`]).
    pub fn value_bytes_max(&self) -> usize {
        self.engine.committer.value_bytes_max()
    }

    /// Poisons the store for a reason of the caller, such as the end of a thread that is required for correct
    /// operation. The first cause stays.
    pub fn fail(&self, why: &dyn std::fmt::Display) {
        self.engine.applier.poison.set(why);
    }

    /// Checks whether a record of `bytes` would be accepted now, without appending one: whether the journal and the
    /// pages have space for it, and the checkpoint has its own.
    ///
    /// Errors: as for [`append`](Store::append).
    pub fn try_room(&self, bytes: u64) -> Result<(), StoreError> {
        self.engine.committer.try_room(bytes)
    }

    /// Why the current checkpoint waits for space, if it does.
    pub fn waits_for_room(&self) -> Option<Arc<str>> {
        match self.engine.applier.checkpoints.check_room() {
            Err(StoreError::Full(why)) => Some(why),
            _ => None,
        }
    }

    /// Whether a file descriptor is missing: [`StoreError::Full`] then has this cause, and deleting messages would not
    /// help. A log line reports the begin and the end.
    pub fn lacks_descriptor(&self) -> bool {
        self.engine.journal.lacks_descriptor() || self.engine.applier.poison.lacks_descriptor()
    }

    /// The largest number of file descriptors that the store uses at a time at its current size; each new data device
    /// adds one. See [`Options::descriptors`].
    pub fn descriptors(&self) -> u64 {
        let pages = self.metrics().pages;
        self.engine.options.descriptors(pages.saturating_mul(self.engine.options.page_bytes.into()))
    }

    /// Runs a whole checkpoint, which begins after this call: it writes back everything that is applied. Recovery would
    /// begin there.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`]: the checkpoint has no space and is retried.
    pub fn checkpoint(&self) -> Result<CheckpointSummary, StoreError> {
        self.engine.applier.check_updates()?;
        self.wait_visible(self.appended())?;
        self.engine.applier.checkpoint()
    }

    /// Keeps the journal from `lsn` on, even the part that is already in the pages: for archives, backups and replicas.
    /// Without a call, and with [`Lsn`]`(u64::MAX)`, checkpoints truncate the part that recovery does not need.
    pub fn keep_journal(&self, lsn: Lsn) {
        self.engine.applier.retention.keep_from(lsn);
    }

    /// Near memory of the page cache, in bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.engine.options.cache_bytes
    }

    /// Far memory of the page cache, in bytes; 0 if it has none.
    pub fn far_cache_bytes(&self) -> u64 {
        self.engine.options.cache.far_bytes
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> u64 {
        self.engine.trees.forest.cache.whole_page_bytes() as u64
    }

    /// Adds an external file of so many bytes to the page cache; see [`ExternalFile`].
    ///
    /// Errors: [`StoreError::Full`] if there are too many of them: drop others.
    pub fn external_file(&self, bytes: u64) -> Result<ExternalFile, StoreError> {
        ExternalFile::new(&self.engine.trees.forest.cache, bytes)
    }

    /// Which pages are accessed, while somebody records a profile.
    pub fn access_tap(&self) -> &Arc<AccessTap> {
        self.engine.trees.forest.cache.tap()
    }

    /// The names of all trees, with their numbers as [`AccessTap::set_tree`] takes them.
    ///
    /// Errors: [`StoreError::Corrupt`], [`StoreError::Device`].
    pub fn tree_names(&self) -> Result<Vec<(String, u32)>, StoreError> {
        let catalog = self.engine.trees.catalog()?;
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        Ok(catalog.into_iter().map(|(tree, id)| (name(&tree), id.0)).collect())
    }

    /// How many bytes of changed pages each checkpoint began with, since the store was opened.
    pub fn checkpoint_dirty_bytes(&self) -> device::Noted {
        self.engine.applier.checkpoints.dirty_bytes()
    }

    /// The current metrics.
    pub fn metrics(&self) -> Metrics {
        let StoreEngine { journal, trees, applier, committer, data_devices, .. } = &*self.engine;
        let usage = applier.space.usage();
        let (versions_bytes, versions) = trees.versions.size();
        let (snapshots, oldest) = trees.snapshots.count();
        let (records_applied, changes_applied) = {
            let state = applier.lock();
            (state.records, state.changes)
        };
        Metrics {
            journal: journal.stats(),
            cache: trees.forest.cache.metrics(),
            checkpoints: applier.checkpoints.stats(),
            data_devices: data_devices.stats(),
            dirty: trees.forest.cache.dirty_bytes(),
            pages: usage.pages,
            pages_used: usage.used,
            pages_waiting: usage.waiting,
            pages_quarantined: data_devices.quarantine().pages(),
            versions_bytes,
            versions,
            snapshots,
            oldest_snapshot: oldest.map(Lsn),
            visible: Lsn(trees.snapshots.visible()),
            queue_bytes: applier.queue.bytes() as u64,
            records_applied,
            changes_applied,
            recent_keys: committer.recent_keys() as u64,
            is_poisoned: applier.is_poisoned(),
        }
    }

    /// How long checkpoints took since the store was opened, with their pauses.
    pub fn checkpoint_durations(&self) -> device::Noted {
        self.engine.applier.checkpoints.durations()
    }

    /// The journal, for reading and for metrics. Append only through the store.
    pub fn journal(&self) -> &Journal {
        &self.engine.journal
    }

    /// Checks the state of the last checkpoint: every page and extent, each tree, and which pages are in use. Readers
    /// and writers continue. No checkpoint begins meanwhile, so updates wait once the cache has no space for more dirty
    /// pages. `progress` is called every few hundred pages. Changes since that checkpoint are in memory and in the
    /// journal: run [`checkpoint`](Store::checkpoint) first to have them checked as well.
    ///
    /// Errors: [`StoreError::Poisoned`] (then close the store and check it with
    /// [`verify_places`](crate::verify_places)), [`StoreError::Device`]. Damage is not an error but part of the result.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<Verified, StoreError> {
        maintenance::verify(&self.engine.applier.checkpoints, progress)
    }

    /// Writes a backup to an empty shelf while the store is used: the state of a checkpoint that ends while it runs,
    /// and the journal from there on. [`restore`](fn@crate::restore) restores it. `progress` is called for each
    /// mebibyte, and can end the backup.
    ///
    /// Errors: [`StoreError::Refused`] if the shelf is not empty, another backup is running, or `progress` ended it;
    /// [`StoreError::Corrupt`], with the place, if something of the store is damaged: such a backup could not be
    /// restored; [`StoreError::Full`] if the shelf is full; [`StoreError::Poisoned`], [`StoreError::Journal`],
    /// [`StoreError::Device`]. After an error there is no backup, and nothing of it is left on the shelf, unless the
    /// shelf refuses the removal.
    pub fn backup(
        &self,
        to: Arc<dyn Shelf>,
        progress: &mut dyn FnMut(Copying) -> ControlFlow<()>,
    ) -> Result<Manifest, StoreError> {
        let StoreEngine { journal, applier, data_devices, segments, .. } = &*self.engine;
        maintenance::backup(BackedUp { journal, applier, data_devices, segments }, &to, progress)
    }

    /// Writes anew, with the newest data key, what older ones have encrypted: see the head comment of the module `rewrite`. Readers and
    /// writers go on; one call at a time. `on_progress` is called after each leaf, value and wait; it limits the rate by returning late, and
    /// ends the work by [`ControlFlow::Break`]. While [`RewriteProgress::waits`] is set it should return after a moment.
    ///
    /// Errors: [`StoreError::Refused`] if the store is not encrypted, or is being closed; [`StoreError::Corrupt`] if something is
    /// damaged, with its place; [`StoreError::Poisoned`], [`StoreError::Device`]; [`StoreError::Conflict`] if others change a value again
    /// and again. What was rewritten stays.
    pub fn rewrite(
        &self,
        options: RewriteOptions,
        on_progress: &mut dyn FnMut(&RewriteProgress) -> ControlFlow<()>,
    ) -> Result<Rewritten, StoreError> {
        rewrite::rewrite(self, options, on_progress)
    }
}
