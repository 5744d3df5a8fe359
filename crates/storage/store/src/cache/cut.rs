//! The cut: what a write cycle writes.
//!
//! ```text
//!   cut()     dirty pages -> in the cut, clean        under the applier's mutex, nothing is copied
//!   image()   as the page was then: from its frame, or aside if it was changed or freed since
//!   homed()   out of the cut; the image aside goes
//! ```
//!
//! One cut at a time. A page in the cut stays in memory until it is home. A cut that is dropped unfinished leaves its pages where
//! they are: its write cycle failed, the store takes no more updates, and opening anew recovers.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Cache;
use super::slots::Wait;
use super::state::{Flag, Place};
use crate::page::{self, PageId};

/// Neighbouring pages that are written as one: a page, or an extent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Run {
    /// The first page.
    pub first: PageId,
    /// How many.
    pub pages: u32,
    /// Whether it is an extent, which has no header and is not sealed.
    pub is_extent: bool,
}

/// The pages that were dirty at one moment, as they were then.
pub struct Cut {
    cache: Arc<Cache>,
    fresh: Vec<Run>,
    changed: Vec<Run>,
    is_finished: bool,
}

impl Cache {
    /// Freezes what is dirty now; the cache is clean after that. To be called while the applier stands still; short, however
    /// much is dirty. Threads that create extents may go on: those they are just making belong to this cut or to the next.
    ///
    /// Panics while there is another cut, also one that was dropped unfinished.
    pub fn cut(self: &Arc<Cache>) -> Cut {
        let before = self.cutting.swap(true, Ordering::AcqRel);
        assert!(!before, "one cut at a time");
        let touched = std::mem::take(&mut *self.touched.lock());
        let (mut fresh, mut changed) = (Vec::new(), Vec::new());
        for page in touched {
            let cut = self.change(page, |state| match (state.has(Flag::Dirty), state.has(Flag::Fresh)) {
                (true, _) => Some(state.without(Flag::Dirty).without(Flag::Fresh).with(Flag::Cut)),
                // Written home already (stolen); from now on something durable refers to it.
                (false, true) => Some(state.without(Flag::Fresh)),
                (false, false) => None,
            });
            let Ok((old, _)) = cut else { continue };
            let run = Run { first: page, pages: old.pages(), is_extent: old.has(Flag::Extent) };
            match (old.has(Flag::Dirty), old.has(Flag::Fresh)) {
                (true, true) => fresh.push(run),
                (true, false) => changed.push(run),
                (false, _) => {}
            }
        }
        fresh.sort_unstable();
        changed.sort_unstable();
        Cut { cache: Arc::clone(self), fresh, changed, is_finished: false }
    }
}

impl Cut {
    /// Runs that nothing durable refers to yet, in the order of their places: straight home.
    pub fn fresh(&self) -> &[Run] {
        &self.fresh
    }

    /// Pages that something durable refers to, in the order of their places: by way of the write image journal.
    pub fn changed(&self) -> &[Run] {
        &self.changed
    }

    /// The bytes of all of it.
    pub fn bytes(&self) -> u64 {
        let runs = self.fresh.iter().chain(&self.changed);
        runs.map(|run| u64::from(run.pages)).sum::<u64>() * self.cache.page_bytes as u64
    }

    /// Copies a run of the cut into `buffer`, as it was at the cut, sealed. May be asked several times, until
    /// [`homed`](Cut::homed).
    ///
    /// Panics where the run is not in the cut, or `buffer` is not as long as it.
    pub fn image(&self, run: Run, buffer: &mut [u8]) {
        let (cache, page) = (&*self.cache, run.first);
        assert_eq!(buffer.len(), run.pages as usize * cache.page_bytes, "the buffer of page {page}");
        let mut wait = Wait::default();
        loop {
            let state = cache.state(page);
            assert!(state.has(Flag::Cut), "page {page} is not in the cut");
            if state.has(Flag::Kept) {
                if let Some(image) = cache.kept.lock().get(&page) {
                    buffer.copy_from_slice(image);
                    break;
                }
            } else if state.place() == Place::Slot {
                if cache.cut_slot(page, state, buffer) {
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

    /// Says that a run's image is home, durably: its frame can be given up, if it was not changed since.
    pub fn homed(&self, run: Run) {
        let mut kept = self.cache.kept.lock();
        let homed = self
            .cache
            .change(run.first, |state| state.has(Flag::Cut).then(|| state.without(Flag::Cut).without(Flag::Kept)));
        if homed.is_ok_and(|(old, _)| old.has(Flag::Kept)) {
            kept.remove(&run.first);
        }
    }

    /// Says whether the cycle waits for room on its medium: whoever wants room in the cache is told that there is none.
    pub fn waits(&self, waits: bool) {
        self.cache.cut_waits.store(waits, Ordering::Release);
    }

    /// Ends the cut; all that is left of it is home.
    pub fn finish(mut self) {
        for run in self.fresh.iter().chain(&self.changed) {
            self.homed(*run);
        }
        self.is_finished = true;
        self.cache.cutting.store(false, Ordering::Release);
    }
}

impl Drop for Cut {
    fn drop(&mut self) {
        self.waits(false);
        if !self.is_finished {
            self.cache.cut_failed.store(true, Ordering::Release);
        }
    }
}

impl fmt::Debug for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cut").field("fresh", &self.fresh.len()).field("changed", &self.changed.len()).finish()
    }
}
