//! [`CheckpointPages`]: the pages that a checkpoint writes.
//!
//! ```text
//!   begin_checkpoint()  dirty pages -> in the checkpoint, clean        under the applier's mutex, nothing is copied
//!   image()             the page at that time: from its frame, or its pre-image if it was changed or freed since
//!   written_back()      removes the page from the checkpoint; drops its pre-image
//! ```
//!
//! One checkpoint at a time. A page in the checkpoint stays in memory until it is written back. If a checkpoint is
//! dropped unfinished, its pages stay where they are: the checkpoint failed, the store refuses updates, and the next
//! opening recovers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cache;
use super::slots::Wait;
use super::state::{Flag, Place};
use crate::page::{self, PageId};

/// Adjacent pages that are written as one unit: a page, or an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRun {
    /// The first page.
    pub first: PageId,
    /// The number of pages.
    pub pages: u32,
    /// Whether it is an extent, which has no header and is not sealed.
    pub is_extent: bool,
}

/// The pages that were dirty at one moment, with their content at that moment.
pub struct CheckpointPages {
    cache: Arc<Cache>,
    fresh: Vec<PageRun>,
    changed: Vec<PageRun>,
    is_finished: bool,
}

impl Cache {
    /// Collects the dirty pages; the cache is clean after that. Called while the applier is stopped; it takes a short
    /// time, however much is dirty. Other threads may create extents meanwhile: those belong to this checkpoint or to
    /// the next.
    ///
    /// Panics while there is another checkpoint, even one that was dropped unfinished.
    pub fn begin_checkpoint(self: &Arc<Cache>) -> CheckpointPages {
        let before = self.checkpointing.swap(true, Ordering::AcqRel);
        assert!(!before, "one checkpoint at a time");
        let touched = std::mem::take(&mut *self.touched.lock());
        let (mut fresh, mut changed) = (Vec::new(), Vec::new());
        for page in touched {
            let checkpoint = self.change(page, |state| match (state.has(Flag::Dirty), state.has(Flag::Fresh)) {
                (true, _) => Some(state.without(Flag::Dirty).without(Flag::Fresh).with(Flag::Checkpoint)),
                // Already written in place (early write-back); from now on something durable refers to it.
                (false, true) => Some(state.without(Flag::Fresh)),
                (false, false) => None,
            });
            let Ok((old, _)) = checkpoint else { continue };
            let run = PageRun { first: page, pages: old.pages(), is_extent: old.has(Flag::Extent) };
            match (old.has(Flag::Dirty), old.has(Flag::Fresh)) {
                (true, true) => fresh.push(run),
                (true, false) => changed.push(run),
                (false, _) => {}
            }
        }
        fresh.sort_unstable();
        changed.sort_unstable();
        CheckpointPages { cache: Arc::clone(self), fresh, changed, is_finished: false }
    }
}

impl CheckpointPages {
    /// Runs to which nothing durable refers yet, in the order of their places: they are written in place at once.
    pub fn fresh(&self) -> &[PageRun] {
        &self.fresh
    }

    /// Pages to which something durable refers, in the order of their places: they are written through the write image
    /// journal.
    pub fn changed(&self) -> &[PageRun] {
        &self.changed
    }

    /// The total of their bytes.
    pub fn bytes(&self) -> u64 {
        let runs = self.fresh.iter().chain(&self.changed);
        runs.map(|run| u64::from(run.pages)).sum::<u64>() * self.cache.page_bytes as u64
    }

    /// Copies the sealed content that a run had when the checkpoint began into `buffer`. May be called several times,
    /// until [`written_back`](CheckpointPages::written_back).
    ///
    /// Panics if the run is not in the checkpoint, or if the length of `buffer` differs from that of the run.
    pub fn image(&self, run: PageRun, buffer: &mut [u8]) {
        let (cache, page) = (&*self.cache, run.first);
        assert_eq!(buffer.len(), run.pages as usize * cache.page_bytes, "the buffer of page {page}");
        let mut wait = Wait::default();
        loop {
            let state = cache.state(page);
            assert!(state.has(Flag::Checkpoint), "page {page} is not in the checkpoint");
            if state.has(Flag::PreImage) {
                if let Some(image) = cache.pre_images.lock().get(&page) {
                    buffer.copy_from_slice(image);
                    break;
                }
            } else if state.place() == Place::Slot {
                if cache.checkpoint_slot(page, state, buffer) {
                    break;
                }
            } else if let Some(frame) = cache.at(state.place()).and_then(|tier| tier.arena.shared(state.frame())) {
                let now = cache.state(page);
                if now.is_where(state) && now.is_held() {
                    buffer.copy_from_slice(&frame[..buffer.len()]);
                    break;
                }
            }
            wait.once();
        }
        let sealer = cache.backing.sealer();
        match run.is_extent {
            false => page::encrypted::seal_with(sealer, page, buffer),
            true => {
                let again = page::encrypted::seal_extent_again(sealer, page, buffer);
                // Wrong bytes under a nonce that was used must not reach a medium.
                again.unwrap_or_else(|error| panic!("the frame of an extent was changed in memory: {error}"));
            }
        }
    }

    /// Records that a run's image is durably written back: its frame can be evicted, if it was not changed since.
    pub fn written_back(&self, run: PageRun) {
        let mut pre_images = self.cache.pre_images.lock();
        let written_back = self.cache.change(run.first, |state| {
            state.has(Flag::Checkpoint).then(|| state.without(Flag::Checkpoint).without(Flag::PreImage))
        });
        if written_back.is_ok_and(|(old, _)| old.has(Flag::PreImage)) {
            pre_images.remove(&run.first);
        }
    }

    /// Records whether the checkpoint waits for space on its medium. While it does, threads that need space in the
    /// cache get an error at once.
    pub fn waits(&self, waits: bool) {
        self.cache.checkpoint_waits.store(waits, Ordering::Release);
    }

    /// Ends the checkpoint; all the remaining pages count as written back.
    pub fn finish(mut self) {
        for run in self.fresh.iter().chain(&self.changed) {
            self.written_back(*run);
        }
        self.is_finished = true;
        self.cache.checkpointing.store(false, Ordering::Release);
    }
}

impl Drop for CheckpointPages {
    fn drop(&mut self) {
        self.waits(false);
        if !self.is_finished {
            self.cache.checkpoint_failed.store(true, Ordering::Release);
        }
    }
}

impl fmt::Debug for CheckpointPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("fresh", &self.fresh.len()).field("changed", &self.changed.len()).finish()
    }
}
