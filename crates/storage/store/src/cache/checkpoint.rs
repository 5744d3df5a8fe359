//! [`CheckpointPages`]: what a checkpoint writes.
//!
//! ```text
//!   begin_checkpoint()  dirty pages -> in the checkpoint, clean        under the applier's mutex, nothing is copied
//!   image()             as the page was then: from its frame, or its pre-image if it was changed or freed since
//!   written_back()      out of the checkpoint; its pre-image goes
//! ```
//!
//! One checkpoint at a time. A page in the checkpoint stays in memory until it is written back. One that is
//! dropped unfinished leaves its pages where they are: the checkpoint failed, the store takes no more updates, and opening anew
//! recovers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cache;
use super::slots::Wait;
use super::state::{Flag, Place};
use crate::page::{self, PageId};

/// Neighbouring pages that are written as one: a page, or an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageRun {
    /// The first page.
    pub first: PageId,
    /// How many.
    pub pages: u32,
    /// Whether it is an extent, which has no header and is not sealed.
    pub is_extent: bool,
}

/// The pages that were dirty at one moment, as they were then.
pub struct CheckpointPages {
    cache: Arc<Cache>,
    fresh: Vec<PageRun>,
    changed: Vec<PageRun>,
    is_finished: bool,
}

impl Cache {
    /// Takes what is dirty now; the cache is clean after that. To be called while the applier stands still; short, however
    /// much is dirty. Threads that create extents may go on: those they are just making belong to this checkpoint or to the next.
    ///
    /// Panics while there is another checkpoint, also one that was dropped unfinished.
    pub fn begin_checkpoint(self: &Arc<Cache>) -> CheckpointPages {
        let before = self.checkpointing.swap(true, Ordering::AcqRel);
        assert!(!before, "one checkpoint at a time");
        let touched = std::mem::take(&mut *self.touched.lock());
        let (mut fresh, mut changed) = (Vec::new(), Vec::new());
        for page in touched {
            let checkpoint = self.change(page, |state| match (state.has(Flag::Dirty), state.has(Flag::Fresh)) {
                (true, _) => Some(state.without(Flag::Dirty).without(Flag::Fresh).with(Flag::Checkpoint)),
                // Written in place already (early write-back); from now on something durable refers to it.
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
    /// Runs that nothing durable refers to yet, in the order of their places: written in place at once.
    pub fn fresh(&self) -> &[PageRun] {
        &self.fresh
    }

    /// Pages that something durable refers to, in the order of their places: by way of the write image journal.
    pub fn changed(&self) -> &[PageRun] {
        &self.changed
    }

    /// The bytes of all of it.
    pub fn bytes(&self) -> u64 {
        let runs = self.fresh.iter().chain(&self.changed);
        runs.map(|run| u64::from(run.pages)).sum::<u64>() * self.cache.page_bytes as u64
    }

    /// Copies a run of the checkpoint into `buffer`, as it was when the checkpoint began, sealed. May be asked several times, until
    /// [`written_back`](CheckpointPages::written_back).
    ///
    /// Panics where the run is not in the checkpoint, or `buffer` is not as long as it.
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
        if !run.is_extent {
            page::seal(page, buffer);
        }
    }

    /// Says that a run's image is written back, durably: its frame can be given up, if it was not changed since.
    pub fn written_back(&self, run: PageRun) {
        let mut pre_images = self.cache.pre_images.lock();
        let written_back = self.cache.change(run.first, |state| {
            state.has(Flag::Checkpoint).then(|| state.without(Flag::Checkpoint).without(Flag::PreImage))
        });
        if written_back.is_ok_and(|(old, _)| old.has(Flag::PreImage)) {
            pre_images.remove(&run.first);
        }
    }

    /// Says whether the checkpoint waits for room on its medium: whoever wants room in the cache is told that there is none.
    pub fn waits(&self, waits: bool) {
        self.cache.checkpoint_waits.store(waits, Ordering::Release);
    }

    /// Ends the checkpoint; all that is left of it is written back.
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
