//! [`Frozen`] as the cache gives it: a [`crate::cache::Cut`], whose runs are found by their first page.

use std::collections::HashMap;

use crate::StoreError;
use crate::cache::{Cut, Run};
use crate::cycle::write::Frozen;
use crate::page::PageId;

/// A cut of the cache on its way home.
#[derive(Debug)]
pub(crate) struct FrozenCut {
    cut: Cut,
    runs: HashMap<PageId, Run, foldhash::fast::FixedState>,
    fresh: Vec<(PageId, u32)>,
    changed: Vec<PageId>,
}

impl FrozenCut {
    /// Of what the cache froze.
    pub(crate) fn new(cut: Cut) -> FrozenCut {
        let runs = cut.fresh().iter().chain(cut.changed()).map(|run| (run.first, *run)).collect();
        let fresh = cut.fresh().iter().map(|run| (run.first, run.pages)).collect();
        assert!(
            cut.changed().iter().all(|run| run.pages == 1 && !run.is_extent),
            "what lies in an extent never changes"
        );
        let changed = cut.changed().iter().map(|run| run.first).collect();
        FrozenCut { cut, runs, fresh, changed }
    }
}

impl Frozen for FrozenCut {
    fn fresh(&self) -> &[(PageId, u32)] {
        &self.fresh
    }

    fn changed(&self) -> &[PageId] {
        &self.changed
    }

    fn image(&self, first: PageId, buffer: &mut [u8]) -> Result<bool, StoreError> {
        self.cut.image(self.runs[&first], buffer);
        Ok(true)
    }

    fn homed(&self, first: PageId) {
        self.cut.homed(self.runs[&first]);
    }

    fn waits(&self, waits: bool) {
        self.cut.waits(waits);
    }

    fn finish(self: Box<Self>) {
        self.cut.finish();
    }
}
