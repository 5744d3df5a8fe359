//! The database: ordered trees of keys and values in pages, transactions over them, recovery.
//!
//! ```text
//!   Transaction, Snapshot, Cursor        snapshot isolation by deferred update
//!        |
//!   journal record (one transaction)     durable first, then applied
//!        |
//!   applier --> trees --> page cache --> write image journal --> pages at home
//! ```

#![forbid(unsafe_code)]

mod apply;
pub mod cache;
mod checkpoint;
mod commit;
mod cursor;
#[allow(dead_code, reason = "backup and verification use the rest")]
mod cycle;
mod error;
mod forest;
#[allow(dead_code, reason = "backup and verification use the rest")]
mod images;
mod interpreter;
mod metrics;
mod options;
pub mod page;
pub mod pages;
mod record;
#[allow(dead_code, reason = "backup and verification use the rest")]
mod space;
mod store;
mod transaction;
pub mod tree;
mod versions;
mod writes;

pub use cursor::Cursor;
pub use cycle::cycler::CycleStats;
pub use cycle::ground::Layout;
pub use cycle::pace::CycleOptions;
pub use cycle::write::Written;
pub use error::StoreError;
pub use interpreter::{Changes, Foreign, Interpreter};
pub use journal::Lsn;
pub use metrics::Metrics;
pub use options::{Opened, Options, Places};
pub use record::reads;
pub use store::Store;
pub use transaction::{Direction, Savepoint, Snapshot, Transaction};

/// Names a tree of a store; given by [`Transaction::create_tree`], never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TreeId(pub u32);

/// Longest key, in bytes, whatever the page size.
pub const KEY_BYTES_MAX: usize = 1024;
