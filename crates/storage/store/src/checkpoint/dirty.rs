//! [`DirtyPages`] for the cache: its [`crate::cache::CheckpointPages`], with their runs indexed by the first page.

use std::collections::HashMap;

use crate::StoreError;
use crate::cache::{CheckpointPages, PageRun};
use crate::checkpoint::writer::DirtyPages;
use crate::page::PageId;

/// The pages of the cache that a checkpoint writes.
#[derive(Debug)]
pub(crate) struct CacheDirtyPages {
    checkpoint: CheckpointPages,
    runs: HashMap<PageId, PageRun, foldhash::fast::FixedState>,
    fresh: Vec<(PageId, u32)>,
    changed: Vec<PageId>,
}

impl CacheDirtyPages {
    /// Of the pages that were dirty in the cache.
    pub(crate) fn new(checkpoint: CheckpointPages) -> CacheDirtyPages {
        let runs = checkpoint.fresh().iter().chain(checkpoint.changed()).map(|run| (run.first, *run)).collect();
        let fresh = checkpoint.fresh().iter().map(|run| (run.first, run.pages)).collect();
        assert!(
            checkpoint.changed().iter().all(|run| run.pages == 1 && !run.is_extent),
            "what lies in an extent never changes"
        );
        let changed = checkpoint.changed().iter().map(|run| run.first).collect();
        CacheDirtyPages { checkpoint, runs, fresh, changed }
    }
}

impl DirtyPages for CacheDirtyPages {
    fn fresh(&self) -> &[(PageId, u32)] {
        &self.fresh
    }

    fn changed(&self) -> &[PageId] {
        &self.changed
    }

    fn image(&self, first: PageId, buffer: &mut [u8]) -> Result<bool, StoreError> {
        self.checkpoint.image(self.runs[&first], buffer);
        Ok(true)
    }

    fn written_back(&self, first: PageId) {
        self.checkpoint.written_back(self.runs[&first]);
    }

    fn waits(&self, waits: bool) {
        self.checkpoint.waits(waits);
    }

    fn finish(self: Box<Self>) {
        self.checkpoint.finish();
    }
}
