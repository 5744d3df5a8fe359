//! [`Definitions`]: the catalog of tables, kept between statements until somebody changes it.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::SqlError;
use crate::table::{Catalog, View};

#[derive(Debug, Default)]
struct Kept {
    /// Commits under way that change the catalog.
    pending: usize,
    /// LSN of the last one.
    changed: u64,
    /// What was read last, and the LSN it was read at.
    read: Option<(u64, Arc<Catalog>)>,
}

/// The catalog as it was read last.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    kept: Mutex<Kept>,
}

impl Definitions {
    /// A commit that changes the catalog begins.
    pub(crate) fn begin(&self) {
        self.kept.lock().pending += 1;
    }

    /// It is over, and where its record lies if it happened.
    pub(crate) fn end(&self, lsn: Option<u64>) {
        let mut kept = self.kept.lock();
        kept.pending -= 1;
        kept.changed = kept.changed.max(lsn.unwrap_or(0));
    }

    /// The catalog at a snapshot's LSN: the kept one where nothing changed it in between, or what `load` reads.
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
