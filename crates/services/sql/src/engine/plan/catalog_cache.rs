//! [`CatalogCache`]: the catalog of tables, kept between statements until a commit changes it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::SqlError;
use crate::table::{Catalog, View};

#[derive(Debug, Default)]
struct Kept {
    /// Commits in progress that change the catalog.
    pending: usize,
    /// LSN of the last such commit.
    changed: u64,
    /// The catalog that was read last, and the LSN of its snapshot.
    read: Option<(u64, Arc<Catalog>)>,
}

/// The catalog that was read last.
#[derive(Debug, Default)]
pub(crate) struct CatalogCache {
    kept: Mutex<Kept>,
}

impl CatalogCache {
    /// Records that a commit that changes the catalog begins.
    pub(crate) fn begin(&self) {
        self.kept.lock().pending += 1;
    }

    /// Records that it has ended; `lsn` is the LSN of its record, if it was committed.
    pub(crate) fn end(&self, lsn: Option<u64>) {
        let mut kept = self.kept.lock();
        kept.pending -= 1;
        kept.changed = kept.changed.max(lsn.unwrap_or(0));
    }

    /// Whether nothing has changed the catalog since the snapshot with this LSN.
    pub(crate) fn is_of_now(&self, lsn: u64) -> bool {
        let kept = self.kept.lock();
        kept.pending == 0 && kept.changed <= lsn
    }

    /// The catalog at a snapshot's LSN: the kept one if nothing has changed it in between, otherwise the result of
    /// `load`.
    pub(crate) fn at(
        &self,
        lsn: u64,
        view: &View,
        load: impl FnOnce(&View) -> Result<Catalog, SqlError>,
    ) -> Result<Arc<Catalog>, SqlError> {
        {
            let kept = self.kept.lock();
            if let Some((read, catalog)) = &kept.read
                && kept.pending == 0
                && kept.changed <= *read
                && kept.changed <= lsn
            {
                return Ok(catalog.clone());
            }
        }
        let catalog = Arc::new(load(view)?);
        let mut kept = self.kept.lock();
        if kept.pending == 0 && kept.changed <= lsn {
            kept.read = Some((lsn, catalog.clone()));
        }
        Ok(catalog)
    }
}
