//! The calls of a [`Store`] that are not a transaction's: records of services, waiting, checkpoints, figures, checks, backups.

use std::ops::ControlFlow;
use std::sync::Arc;

use device::{MemoryShelf, Shelf};
use journal::{Journal, Lsn};

use crate::backup::{Copying, Manifest};
use crate::cache::ExternalFile;
use crate::checkpoint::writer::CheckpointSummary;
use crate::damage::Quarantined;
use crate::engine::{Store, StoreEngine};
use crate::maintenance::{self, BackedUp};
use crate::metrics::Metrics;
use crate::options::{Options, Places};
use crate::snapshot::Snapshot;
use crate::transaction::Transaction;
use crate::verify::{Progress, Verified};
use crate::{StoreError, TreeId};

impl Store {
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
        self.engine.trees.interpreted()
    }

    /// Appends a record of a service's own kind (below [`crate::Foreign::KINDS`]): not durable yet. LSN order is the order of
    /// calls. Where too much waits to be applied, it applies first.
    ///
    /// Errors, after each of which nothing was appended: [`StoreError::Full`], [`StoreError::Refused`] for a record that is
    /// too long or that the interpreter's [check](crate::Interpreter::check) refuses, [`StoreError::Poisoned`].
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, StoreError> {
        self.engine.committer.append(kind, parts)
    }

    /// Returns when the record at `lsn` and every one before it is durable. It may become visible a little later:
    /// [`wait_visible`](Store::wait_visible).
    ///
    /// Errors: [`StoreError::Poisoned`]; whether the record will be found after reopening is then unknown.
    pub fn commit(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.engine.committer.make_durable(lsn)?;
        if !self.engine.options.background && self.engine.committer.waiters.try_apply() {
            self.engine.committer.apply_in_role()?;
        }
        Ok(())
    }

    /// Returns when the record at `lsn`, and every one before it, is durable and new snapshots see it.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`]: checkpoints wait for room, and with them all changes.
    pub fn wait_visible(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.engine.wait_visible(lsn)
    }

    /// What the oldest open snapshot sees; where none is open, what a new one would: no snapshot there is or will be lacks a
    /// record up to this.
    pub fn oldest(&self) -> Lsn {
        Lsn(self.engine.trees.snapshots.oldest())
    }

    /// Every record that starts before this is durable.
    pub fn durable(&self) -> Lsn {
        self.engine.journal.durable()
    }

    /// The end of what was appended.
    pub fn appended(&self) -> Lsn {
        self.engine.journal.appended()
    }

    /// Whether a commit is a matter of instructions; see [`Journal::is_inline`].
    pub fn is_inline(&self) -> bool {
        self.engine.journal.is_inline()
    }

    /// Why the store is poisoned; none while it is not. Reads go on meanwhile.
    pub fn poisoned(&self) -> Option<Arc<str>> {
        self.engine.applier.poison.cause()
    }

    /// Pages that are known to be damaged since the store was opened: met while reading, changing or checking. Each read of
    /// what they hold is an error; everything else goes on.
    pub fn quarantined(&self) -> Vec<Quarantined> {
        self.engine.data_devices.quarantine().list()
    }

    /// Longest value that it takes, in bytes: [`VALUE_BYTES_MAX`](crate::VALUE_BYTES_MAX), or less where data devices are smaller
    /// than 2 MiB ([`Options::data_device_bytes`]).
    pub fn value_bytes_max(&self) -> usize {
        self.engine.committer.value_bytes_max()
    }

    /// Poisons the store for a reason of the caller's, such as a thread that is gone and without which nothing may go on: the
    /// first cause stays.
    pub fn fail(&self, why: &dyn std::fmt::Display) {
        self.engine.applier.poison.set(why);
    }

    /// Whether a record of `bytes` would be taken now, without appending one: there is room for it in the journal and in the
    /// pages, and the checkpoint has its own.
    ///
    /// Errors: as for [`append`](Store::append).
    pub fn try_room(&self, bytes: u64) -> Result<(), StoreError> {
        self.engine.committer.try_room(bytes)
    }

    /// Why the checkpoint that runs waits for room, if it does.
    pub fn waits_for_room(&self) -> Option<Arc<str>> {
        match self.engine.applier.checkpoints.check_room() {
            Err(StoreError::Full(why)) => Some(why),
            _ => None,
        }
    }

    /// Whether what is missing is a file descriptor: [`StoreError::Full`] means that then, and giving up messages would make no
    /// room. The log says when it begins and ends.
    pub fn lacks_descriptor(&self) -> bool {
        self.engine.journal.lacks_descriptor() || self.engine.applier.poison.lacks_descriptor()
    }

    /// Most file descriptors that the store holds at a time as it is now; one for each data device is added as it grows. See
    /// [`Options::descriptors`].
    pub fn descriptors(&self) -> u64 {
        let pages = self.metrics().pages;
        self.engine.options.descriptors(pages.saturating_mul(self.engine.options.page_bytes.into()))
    }

    /// Writes everything back that is applied, now: a whole checkpoint, which begins after this call. Recovery would begin there.
    ///
    /// Errors: [`StoreError::Poisoned`]; [`StoreError::Full`]: the checkpoint has no room and is tried again.
    pub fn checkpoint(&self) -> Result<CheckpointSummary, StoreError> {
        self.engine.applier.check_updates()?;
        self.wait_visible(self.appended())?;
        self.engine.applier.checkpoint()
    }

    /// Keeps the journal from `lsn` on, also what is in the pages already: for archives, backups and replicas. Without a
    /// call, and with [`Lsn`]`(u64::MAX)`, checkpoints give up what recovery does not need.
    pub fn keep_journal(&self, lsn: Lsn) {
        self.engine.applier.retention.keep_from(lsn);
    }

    /// Near memory of the page cache, in bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.engine.options.cache_bytes
    }

    /// Takes a file of so many bytes that is not the store's into the page cache; see [`ExternalFile`].
    ///
    /// Errors: [`StoreError::Full`] where there are too many of them: drop others.
    pub fn external_file(&self, bytes: u64) -> Result<ExternalFile, StoreError> {
        ExternalFile::new(&self.engine.trees.forest.cache, bytes)
    }

    /// Figures, as they are now.
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

    /// The journal, for reading and for figures. Append only through the store.
    pub fn journal(&self) -> &Journal {
        &self.engine.journal
    }

    /// Checks the state of the last checkpoint: every page and extent, each tree, and which pages are in use. Readers and
    /// writers go on; no checkpoint begins meanwhile, so that updates wait once as much is dirty as the cache takes. `progress` is
    /// called every few hundred pages. What changed since that checkpoint is in memory and in the journal: run
    /// [`checkpoint`](Store::checkpoint) first to have it checked as well.
    ///
    /// Errors: [`StoreError::Poisoned`] (then check it closed, with [`verify_places`](crate::verify_places)), [`StoreError::Device`]. Damage is no
    /// error but a finding.
    pub fn verify(&self, progress: &mut dyn FnMut(Progress)) -> Result<Verified, StoreError> {
        maintenance::verify(&self.engine.applier.checkpoints, progress)
    }

    /// Makes a backup on an empty shelf while the store is used: the state of a checkpoint that ends while it runs, and the
    /// journal from there on. [`restore`](fn@crate::restore) takes it. `progress` is called for each mebibyte, and ends the backup where it says
    /// so.
    ///
    /// Errors: [`StoreError::Refused`] where the shelf is not empty, another backup is being made, or `progress` ended it;
    /// [`StoreError::Corrupt`] where something of the store is damaged, and where: nobody could restore the backup;
    /// [`StoreError::Full`] where the shelf is; [`StoreError::Poisoned`], [`StoreError::Journal`], [`StoreError::Device`]. After
    /// an error there is no backup, and nothing of it on the shelf unless that refuses to be emptied.
    pub fn backup(
        &self,
        to: Arc<dyn Shelf>,
        progress: &mut dyn FnMut(Copying) -> ControlFlow<()>,
    ) -> Result<Manifest, StoreError> {
        let StoreEngine { journal, applier, data_devices, segments, .. } = &*self.engine;
        maintenance::backup(BackedUp { journal, applier, data_devices, segments }, &to, progress)
    }
}
