//! [`RewriteWalk`]: one pass over all trees, and the journal after it.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use encryption::Sealer;

use super::{RewriteOptions, RewritePlace, RewriteProgress};
use crate::cache::{Hint, ScanReader, stored_data_key};
use crate::catalog::ROOTS;
use crate::engine::{Store, StoreEngine};
use crate::page::PageId;
use crate::record::{KIND_SPILL_CHUNK, Op, RecordWriter};
use crate::snapshot::Snapshot;
use crate::tree::{Tree, Way, renew, way_to};
use crate::writes::WriteBuffer;
use crate::{StoreError, TreeId};

/// Values that are put in one transaction, and the bytes of them after which it is full: the applier's lock is held for that long.
const VALUES_MAX: usize = 64;
const VALUES_BYTES: usize = 1 << 20;

/// How often values of one leaf are put again after a conflict: each was changed meanwhile, and so is new.
const TRIES: u32 = 1000;

/// Largest record that fills the journal.
const FILLER_BYTES: u64 = 256 << 10;
/// Records that fill a segment, at least.
const FILLERS_OF_SEGMENT: u64 = 8;

/// While the journal is kept by something else, a checkpoint is run in one of so many waits, to truncate it.
const WAITS_OF_CHECKPOINT: u32 = 20;

/// Why a walk ends early.
pub(super) enum RewriteStop {
    /// The caller wants it.
    Asked,
    Failed(StoreError),
}

impl From<StoreError> for RewriteStop {
    fn from(error: StoreError) -> RewriteStop {
        RewriteStop::Failed(error)
    }
}

/// Called with how far the walk has come.
type OnProgress<'a> = &'a mut dyn FnMut(&RewriteProgress) -> ControlFlow<()>;

/// See the head comment of this file.
pub(super) struct RewriteWalk<'a> {
    store: &'a Store,
    engine: &'a StoreEngine,
    sealer: &'a Sealer,
    save_bytes: u64,
    drops_kept_journal: bool,
    on_progress: OnProgress<'a>,
    pub(super) progress: RewriteProgress,
    /// The data key with which everything is to be encrypted.
    target: u32,
    /// The inner pages on the way to the last leaf, which need not be looked at again.
    path: Vec<PageId>,
    /// Bytes that the next checkpoint makes durable.
    unsaved: u64,
}

impl<'a> RewriteWalk<'a> {
    pub(super) fn new(
        store: &'a Store,
        sealer: &'a Sealer,
        options: &RewriteOptions,
        on_progress: OnProgress<'a>,
    ) -> RewriteWalk<'a> {
        RewriteWalk {
            store,
            engine: &store.engine,
            sealer,
            save_bytes: options.save_bytes,
            drops_kept_journal: options.drops_kept_journal,
            on_progress,
            progress: RewriteProgress::default(),
            target: 0,
            path: Vec::new(),
            unsaved: 0,
        }
    }

    /// Walks until everything is encrypted with the newest data key.
    pub(super) fn run(&mut self, mut from: Option<RewritePlace>) -> Result<(), RewriteStop> {
        loop {
            self.target = self.sealer.mark().id;
            if self.sealer.data_keys() == [self.target] {
                return Ok(());
            }
            let from = from.take().filter(|place| place.data_key == self.target);
            self.pass(from)?;
            self.journal()?;
            // A newer data key may have been made meanwhile.
            if self.sealer.mark().id == self.target {
                return Ok(());
            }
        }
    }

    fn pass(&mut self, from: Option<RewritePlace>) -> Result<(), RewriteStop> {
        // What is dirty now may have been encrypted already, with an older key.
        self.checkpoint()?;
        self.progress.is_at_journal = false;
        self.progress.pages = from.as_ref().map_or(0, |place| place.pages);
        self.progress.place.clone_from(&from);
        let (first, key) = from.map_or((0, Vec::new()), |place| (place.tree, place.key));
        let forest = &self.engine.trees.forest;
        self.tree(forest.roots(), Bytes::new())?;
        for tree in forest.trees().into_iter().filter(|tree| tree.id.0 >= first) {
            let from = if tree.id.0 == first { Bytes::copy_from_slice(&key) } else { Bytes::new() };
            self.tree(tree, from)?;
        }
        self.checkpoint()
    }

    fn tree(&mut self, tree: Tree, mut from: Bytes) -> Result<(), RewriteStop> {
        let forest = &self.engine.trees.forest;
        self.path.clear();
        while forest.is_live(tree) {
            let high = match self.leaf(tree, &from) {
                Err(RewriteStop::Failed(StoreError::Full(why))) => {
                    self.wait(&why)?;
                    self.try_checkpoint()?;
                    continue;
                }
                // Its pages are those of others by then.
                Err(RewriteStop::Failed(_)) if !forest.is_live(tree) => return Ok(()),
                high => high?,
            };
            self.passed(tree.id, &high)?;
            self.report()?;
            if high.is_empty() {
                break;
            }
            from = high;
        }
        Ok(())
    }

    /// A leaf is done: reports the place after it, if all before that is durable.
    fn passed(&mut self, tree: TreeId, high: &[u8]) -> Result<(), RewriteStop> {
        if self.unsaved >= self.save_bytes {
            self.checkpoint()?;
        }
        if self.unsaved == 0 && tree != ROOTS {
            let tree = if high.is_empty() { tree.0 + 1 } else { tree.0 };
            let (data_key, key, pages) = (self.target, high.to_vec(), self.progress.pages);
            self.progress.place = Some(RewritePlace { data_key, tree, key, pages });
        }
        Ok(())
    }

    /// Has everything in the leaf with a key, and the inner pages above it, written anew that needs it; returns the leaf's high fence.
    fn leaf(&mut self, tree: Tree, from: &[u8]) -> Result<Bytes, RewriteStop> {
        let (mut most, mut tries) = (VALUES_MAX, 0);
        loop {
            let way = way_to(tree, &ScanReader(&self.engine.trees.forest.cache), from)?;
            let seen = self.renew(tree, from, &way)?;
            let (old, pages) = self.old_values(&way)?;
            if old.is_empty() {
                self.progress.pages += seen + pages;
                return Ok(way.high);
            }
            self.wait_for_versions()?;
            match self.put_again(tree.id, &old, most) {
                // Whoever changed one of them has encrypted it with a newer key: the leaf is looked at again.
                Err(StoreError::Conflict | StoreError::TooOld) if tries < TRIES => (most, tries) = (1, tries + 1),
                done => done?,
            }
            self.report()?;
        }
    }

    /// Whether a run is encrypted with an older key where it lies.
    fn is_old(&mut self, first: PageId, pages: u32) -> Result<bool, StoreError> {
        let page_bytes = self.engine.trees.forest.cache.whole_page_bytes() as u64;
        match stored_data_key(&self.engine.trees.forest.cache, first, pages)? {
            Some(key) => {
                self.progress.bytes += page_bytes;
                Ok(key != self.target)
            }
            None => {
                // The next checkpoint writes it.
                self.unsaved += u64::from(pages) * page_bytes;
                Ok(false)
            }
        }
    }

    /// Marks the pages on the way as changed that an older key encrypts; returns how many were looked at.
    fn renew(&mut self, tree: Tree, from: &[u8], way: &Way) -> Result<u64, StoreError> {
        let new = way.inner.iter().enumerate().filter(|(at, page)| self.path.get(*at) != Some(*page));
        let mut pages: Vec<PageId> = new.map(|(_, page)| *page).collect();
        pages.push(way.leaf);
        let seen = pages.len() as u64;
        let mut old = Vec::new();
        for page in pages {
            if self.is_old(page, 1)? {
                old.push(page);
            }
        }
        if !old.is_empty() {
            let StoreEngine { applier, trees, .. } = self.engine;
            let cache = &*trees.forest.cache;
            {
                let _state = applier.lock();
                applier.check_updates()?;
                if trees.forest.is_live(tree) {
                    let renewed = renew(tree, cache, from, &old)?;
                    self.progress.renewed += renewed;
                    // Once to the write image journal, once to its place.
                    let bytes = renewed * cache.whole_page_bytes() as u64;
                    self.unsaved += bytes;
                    self.progress.bytes += 2 * bytes;
                }
            }
            applier.admit()?;
        }
        self.path.clone_from(&way.inner);
        Ok(seen)
    }

    /// The keys of a leaf with a value that an older key encrypts, and the pages of all its values in extents.
    fn old_values(&mut self, way: &Way) -> Result<(Vec<Bytes>, u64), StoreError> {
        let page_bytes = self.engine.trees.forest.cache.whole_page_bytes();
        let (mut old, mut all) = (Vec::new(), 0);
        for (key, extents) in &way.long {
            let mut is_old = false;
            for extent in extents {
                let pages = extent.pages(page_bytes);
                all += u64::from(pages);
                is_old = is_old || self.is_old(extent.first, pages)?;
            }
            if is_old {
                old.push(key.clone());
            }
        }
        Ok((old, all))
    }

    /// Puts the first of these values once more, as they are.
    fn put_again(&mut self, tree: TreeId, keys: &[Bytes], most: usize) -> Result<(), StoreError> {
        let snapshot = self.store.snapshot();
        let (mut writes, mut bytes, mut values) = (WriteBuffer::default(), 0, 0);
        for key in keys.iter().take(most) {
            if bytes >= VALUES_BYTES {
                break;
            }
            // It may have been removed.
            let Some(value) = snapshot.get_with(tree, key, Hint::Scan)? else { continue };
            bytes += value.len();
            values += 1;
            // The frame of the old one need not stay in memory.
            writes.set(tree, key.clone(), Op::Put(Bytes::copy_from_slice(&value)));
        }
        if writes.is_empty() {
            return Ok(());
        }
        let Snapshot { held, .. } = snapshot;
        self.engine.committer.commit_unchanged(held, writes)?;
        self.progress.values += values;
        self.unsaved += bytes as u64;
        // Read once; written to the journal and to its place.
        self.progress.bytes += 3 * bytes as u64;
        Ok(())
    }

    /// Waits while so many old versions are kept that more could make snapshots too old: each value that is put again leaves one.
    fn wait_for_versions(&mut self) -> Result<(), RewriteStop> {
        let (trees, limit) = (&self.engine.trees, self.engine.options.versions_bytes / 2);
        while trees.versions.size().0 > limit {
            self.wait("the end of snapshots that were opened long ago: what they still read fills half of its memory")?;
            let committer = &self.engine.committer;
            if !self.engine.options.background && committer.waiters.try_apply() {
                committer.apply_in_role()?;
            }
        }
        Ok(())
    }

    /// Has everything that was applied written.
    fn checkpoint(&mut self) -> Result<(), RewriteStop> {
        while let Some(why) = self.try_checkpoint()? {
            self.wait(&why)?;
        }
        Ok(())
    }

    /// The same, once; returns why there is no space for it.
    fn try_checkpoint(&mut self) -> Result<Option<Arc<str>>, StoreError> {
        match self.store.checkpoint() {
            Ok(_) => {
                self.unsaved = 0;
                Ok(None)
            }
            Err(StoreError::Full(why)) => Ok(Some(why)),
            Err(error) => Err(error),
        }
    }

    /// Fills the journal up to a segment that an older key has not encrypted, and has those before it truncated.
    fn journal(&mut self) -> Result<(), RewriteStop> {
        let journal = &self.engine.journal;
        self.progress.is_at_journal = true;
        let mut waits = 0;
        while self.sealer.mark().id == self.target && journal.data_keys().iter().any(|key| *key != self.target) {
            if journal.tail_data_key() != Some(self.target) {
                match self.fill() {
                    Err(StoreError::Full(why)) => {
                        self.wait(&why)?;
                        self.try_checkpoint()?;
                    }
                    filled => filled?,
                }
                self.report()?;
                continue;
            }
            if self.drops_kept_journal {
                self.engine.applier.retention.give_up(journal.durable());
            }
            if waits % WAITS_OF_CHECKPOINT == 0 {
                self.checkpoint()?;
            } else {
                self.wait(
                    "the journal of older keys, which a backup, an open transaction or [journal] keep still holds",
                )?;
            }
            waits += 1;
        }
        Ok(())
    }

    /// Appends a record that nothing refers to: a spill chunk without a commit record.
    fn fill(&mut self) -> Result<(), StoreError> {
        let StoreEngine { journal, options, committer, .. } = self.engine;
        let most = (options.journal.segment_bytes / FILLERS_OF_SEGMENT).min(FILLER_BYTES);
        let bytes = most.min(committer.record_bytes_max() / 2) as usize;
        let mut writer = RecordWriter::new((options.clock)(), bytes);
        writer.push(ROOTS, b"filler", &Op::Put(Bytes::from(vec![0; bytes])));
        let record = writer.finish();
        let lsn = journal.append(KIND_SPILL_CHUNK, &[&record[..]]).map_err(|error| committer.refused(error))?;
        committer.make_durable(lsn)?;
        self.progress.bytes += bytes as u64;
        Ok(())
    }

    /// Reports what it waits for.
    fn wait(&mut self, why: &str) -> Result<(), RewriteStop> {
        self.progress.waits = Some(why.into());
        let reported = self.report();
        self.progress.waits = None;
        reported
    }

    fn report(&mut self) -> Result<(), RewriteStop> {
        // It is less than the pages that were looked at if they were moved meanwhile.
        self.progress.pages_total = self.engine.applier.space.usage().used.max(self.progress.pages);
        match (self.on_progress)(&self.progress) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(RewriteStop::Asked),
        }
    }
}
