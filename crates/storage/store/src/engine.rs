//! [`Store`]: the parts of an open store, opening and closing.
//!
//! ```text
//!   Store (a handle)        clones are the same store; the last one dropped ends its threads
//!     StoreEngine
//!       Committer           order of commits, waiting             commit
//!         Applier           journal -> trees, old versions        apply, versioned
//!           Checkpoints     trees -> data devices                 checkpoint
//! ```
//!
//! Each part uses only parts below it. Calls upwards are passed in: checkpoints see the applier as a
//! [`CheckpointSource`](crate::checkpoint::checkpointer::CheckpointSource), and any failure wakes the waiting
//! committers through [`Poison`].
//!
//! Invariant: threads keep references to the engine, and handles end the threads; no thread keeps a handle.

use std::sync::Arc;
use std::thread::JoinHandle;

use device::Shelf;
use journal::{Journal, Lsn};
use parking_lot::Mutex;

use crate::StoreError;
use crate::apply::{Applier, ApplierParts};
use crate::cache::{Cache, CacheOptions};
use crate::checkpoint::open::{JournalFacts, Layout, OpenFindings, OpenedPages};
use crate::checkpoint::runner::Checkpoints;
use crate::commit::waiters::CommitWaiters;
use crate::commit::{Committer, background};
use crate::forest::Forest;
use crate::options::{Opened, Options, Places};
use crate::redo::RedoPosition;
use crate::retention::Retention;
use crate::space::devices::DataDevices;
use crate::space::poison::Poison;
use crate::versioned::VersionedTrees;

/// A database, shared by reference; clones are the same store. Dropping the last clone, snapshot and cursor closes it;
/// [`close`](Store::close) reports whether that succeeded.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) engine: Arc<StoreEngine>,
    /// Ends the threads when the last clone is dropped.
    threads: Arc<Threads>,
}

#[derive(Debug)]
struct Threads {
    engine: Arc<StoreEngine>,
    applier: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.engine.committer.background.stop();
        if let Some(thread) = self.applier.get_mut().take() {
            // If it panicked, the next opening applies the records that it left.
            let _ = thread.join();
        }
        self.engine.applier.checkpoints.stop();
    }
}

/// The parts of a store.
pub(crate) struct StoreEngine {
    pub(crate) journal: Arc<Journal>,
    pub(crate) options: Arc<Options>,
    pub(crate) trees: Arc<VersionedTrees>,
    pub(crate) applier: Arc<Applier>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) data_devices: Arc<DataDevices>,
    /// The shelf of the journal.
    pub(crate) segments: Arc<dyn Shelf>,
    /// Held while the store is being closed: a second caller waits for the first.
    closing: Mutex<()>,
}

impl std::fmt::Debug for StoreEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StoreEngine").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in its places, or creates one if they are empty, and recovers.
    ///
    /// Errors: [`StoreError::Corrupt`], [`StoreError::Full`], [`StoreError::Refused`] for options that do not match the
    /// stored data, [`StoreError::Journal`], [`StoreError::Device`].
    pub fn open(places: Places, options: Options) -> Result<(Store, Opened), StoreError> {
        let (journal, recovered) = Journal::open(places.journal.clone(), options.journal_of_checkpoints())?;
        let segments = places.journal.clone();
        let OpenedApplier { applier, waiters, data_devices, found } =
            OpenedApplier::open(places, options, journal, &recovered)?;
        let applied_from = applier.redo.redo_lsn();
        let recovery = applier.recover(not_without)?;
        let records = recovery.records;
        let committer = Arc::new(Committer::new(applier.clone(), waiters, data_devices.clone(), recovery));
        let (journal, options, trees) = (applier.journal.clone(), applier.options.clone(), applier.trees.clone());
        let closing = Mutex::default();
        let engine = StoreEngine { journal, options, trees, applier, committer, data_devices, segments, closing };
        let engine = Arc::new(engine);
        let mut applying = None;
        if engine.options.background {
            engine.applier.start_checkpointer()?;
            applying = Some(background::start(&engine.committer)?);
        }
        let threads = Arc::new(Threads { engine: engine.clone(), applier: Mutex::new(applying) });
        let restored_pages = found.restored.map_or(0, |restored| u64::from(restored.pages));
        let opened = Opened { journal: recovered, applied_from, records, is_new: found.is_new, restored_pages };
        Ok((Store { engine, threads }, opened))
    }

    /// Applies appended records, writes everything back, marks the store as closed, closes its journal and ends its
    /// threads: the next opening has nothing to apply. Other clones write nothing more. They can read until its places are
    /// opened again; a read after that returns an error or undefined data.
    ///
    /// Errors: [`StoreError::Poisoned`], [`StoreError::Full`], [`StoreError::Journal`]; the store is closed in any
    /// case, and the next opening recovers.
    pub fn close(self) -> Result<(), StoreError> {
        let engine = &*self.engine;
        let (applier, committer) = (&*engine.applier, &*engine.committer);
        let _closing = engine.closing.lock();
        let settled = engine.wait_visible(engine.journal.appended());
        committer.background.stop();
        let thread = self.threads.applier.lock().take();
        if let Some(thread) = thread {
            // If it panicked, applying the records that it left reports that.
            let _ = thread.join();
        }
        // When this returns no batch is being applied and none will be: waiters return.
        applier.close();
        committer.waiters.wake_all();
        let written = match settled {
            Ok(()) => applier.checkpoints.close(applier),
            Err(error) => {
                applier.checkpoints.stop();
                Err(error)
            }
        };
        // Also after an earlier failure: a later append would go where the next opening writes.
        let journal = engine.journal.close();
        // And the pages that are still dirty would go to places that the next opening has used for something else.
        applier.poison.close();
        written.and(journal.map_err(StoreError::from))
    }
}

impl StoreEngine {
    /// Returns when the record at `lsn`, and every one before it, is durable and new snapshots see it.
    pub(crate) fn wait_visible(&self, lsn: Lsn) -> Result<(), StoreError> {
        self.committer.wait_visible(lsn.min(self.applier.redo.last()).0)
    }
}

/// An applier on the pages of the data devices: it has applied nothing yet.
struct OpenedApplier {
    applier: Arc<Applier>,
    waiters: Arc<CommitWaiters>,
    data_devices: Arc<DataDevices>,
    found: OpenFindings,
}

impl OpenedApplier {
    fn open(
        places: Places,
        options: Options,
        journal: Journal,
        recovered: &journal::Recovered,
    ) -> Result<OpenedApplier, StoreError> {
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
        let facts = JournalFacts {
            identity: journal.identity(),
            first: recovered.first,
            end: recovered.end,
            sealer: options.journal.sealer.clone(),
        };
        let opened = OpenedPages::open(places.data, places.images, layout, facts, false, &poison)?;
        let OpenedPages { data_devices, space, writer, superblock, found } = opened;
        let page_bytes = superblock.geometry.page_bytes as usize;
        let cache = CacheOptions { page_bytes, near_bytes: options.cache_bytes, ..options.cache.clone() };
        let cache = Cache::new(&cache, data_devices.clone(), space.clone())?;
        let forest = Forest::open(cache, data_devices.clone(), superblock.catalog).map_err(not_without)?;
        let repair = options.repair;
        let trees = VersionedTrees::new(forest, options.interpreter.clone(), data_devices.clone());
        let parts = ApplierParts {
            journal: Arc::new(journal),
            trees: Arc::new(trees),
            space,
            redo: RedoPosition::opened(superblock.redo_lsn, recovered.end),
            retention: Arc::new(Retention::new(options.keep_journal_bytes)),
            checkpoints: Checkpoints::inline(writer, options.checkpoint_options(), poison.clone()),
            options: Arc::new(options),
            poison,
        };
        let applier = Arc::new(Applier::new(parts));
        if superblock.is_clean {
            // From here on a checkpoint may have half written the data devices: the store must not count as closed any
            // more.
            applier.checkpoint()?;
        }
        applier.trees.make_interpreted(repair).map_err(not_without)?;
        Ok(OpenedApplier { applier, waiters, data_devices, found })
    }
}

/// Converts damage of the catalog, through which all trees are found: nothing can be opened without it.
fn not_without(error: StoreError) -> StoreError {
    match error {
        StoreError::Corrupt(why) => {
            let text =
                format!("{why}; all trees are found through this page, so the store cannot open: restore a backup");
            StoreError::Corrupt(why.said(text))
        }
        other => other,
    }
}
