//! Tables: their definitions, how rows are stored in trees, how a query reads them.
//!
//! ```text
//!   Catalog       the names of one moment
//!   Table         columns, primary key, trees; rows as bytes under keys as bytes
//!   Index         a tree of entries that lead from values to rows
//!   Sequence      the definition of a sequence, and the order of its values
//!   ColumnStore   rows in row groups, beside those in the delta store
//!   VirtualTable  read-only tables of other services (messages of an interface engine, ...)
//!   View          the view that a statement reads: a snapshot, or the session's transaction with its own changes
//! ```

pub(crate) mod barrier;
pub(crate) mod catalog;
pub(crate) mod column_copies;
mod column_store;
pub(crate) mod comments;
mod definition;
pub(crate) mod found_key;
pub(crate) mod guarded;
pub(crate) mod index;
mod index_ranges;
pub(crate) mod index_scan;
pub(crate) mod key;
pub(crate) mod key_range;
pub(crate) mod providers;
pub(crate) mod referenced_rows;
pub(crate) mod row_counts;
pub(crate) mod row_encoding;
pub(crate) mod row_scan;
pub(crate) mod sequence;
pub(crate) mod types;
pub(crate) mod uuid;
mod view;
mod virtual_table;

pub use catalog::{Catalog, Entry, Schemas, ViewDefinition};
pub use column_store::{ColumnRows, ColumnScanRequest, ColumnStore};
pub use comments::{AllComments, Comments};
pub use definition::{
    ADDRESS, COLUMN_TAG, Check, Column, External, ForeignKey, IdentityColumn, Index, IndexOrder, KeyAction, ROW_TAG,
    Table,
};
pub use sequence::{Counter, Sequence, SequenceOwner};
pub use types::{SqlType, TYPE_KEY};
pub use view::View;
pub use virtual_table::{ColumnBound, ScanRequest, VirtualRows, VirtualScan, VirtualTable};

/// A scan's batch of wide rows ends with the row that exceeds this size, even if it has few rows: eight thousand rows
/// of 12 KB would take more than all statements of a small node may. Rows of up to 128 bytes fill their batches.
pub(crate) const BATCH_BYTES: usize = 1 << 20;
