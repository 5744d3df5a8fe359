//! What a caller sets, and what it is told.

use std::sync::Arc;

use device::Shelf;
use journal::Lsn;

use crate::interpreter::Interpreter;

/// The shelves that a store's structures lie on. The same shelf may serve for several.
#[derive(Clone, Debug)]
pub struct Places {
    /// The journal.
    pub journal: Arc<dyn Shelf>,
    /// The write image journal.
    pub images: Arc<dyn Shelf>,
    /// The pages.
    pub data: Arc<dyn Shelf>,
}

/// How a store is laid out and how much it takes. `page_bytes` counts when the store is created, the rest at each opening.
#[derive(Clone)]
pub struct Options {
    /// Size of a page, a power of two, 4 to 64 KiB. Default 8 KiB.
    pub page_bytes: u32,
    /// Memory of the page cache, in bytes. Default 256 MiB.
    pub cache_bytes: u64,
    /// The journal's own.
    pub journal: journal::Options,
    /// Who understands the records that others append with [`crate::Store::append`].
    pub interpreter: Option<Arc<dyn Interpreter>>,
}

impl Default for Options {
    fn default() -> Options {
        Options { page_bytes: 8192, cache_bytes: 256 << 20, journal: journal::Options::default(), interpreter: None }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options").field("page_bytes", &self.page_bytes).finish_non_exhaustive()
    }
}

/// What opening found.
#[derive(Clone, Debug)]
pub struct Opened {
    /// What the journal found.
    pub journal: journal::Recovered,
    /// Everything before this was in the pages; the journal was applied from here.
    pub applied_from: Lsn,
    /// Records applied.
    pub records: u64,
}
