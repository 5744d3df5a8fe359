//! Rows in the column store: row groups of up to 122,880 rows in Arrow's layout, in trees of the store.
//!
//! ```text
//!   table --> trees "columns.<storage>.segments"   row group u32                           -> metadata
//!             "columns.<storage>.chunks"           row group u32, column u16, chunk u16    -> chunk: values of one column
//!             "columns.<storage>.deleted"          row group u32, row u32                  -> nothing: a deleted row
//!
//!   row group    122,880 rows at most, ordered by primary key
//!   vector       8,192 rows of a row group, the unit of work and of zone maps; the last one may be shorter
//!   column chunk one column of some vectors, 1 MiB at most: one value of the store, in one piece in the page cache
//! ```
//!
//! Numbers in keys are big-endian, so a row group's chunks follow each other. The layout of column chunks is in
//! [`chunk`], that of metadata in [`metadata`]; `golden.txt` beside this file contains one of each.
//!
//! Invariants:
//! - A row group never changes. A key in the third tree deletes a row of it; an update deletes the row and adds a new
//!   one. Two transactions that delete one row conflict; two that delete neighbours do not.
//! - A row group's number is never used twice while a process runs, nor for two row groups that one view sees.
//! - A view sees a row in one place only, delta store or one row group: rows move from one to the other in ordinary
//!   transactions.
//! - The largest column chunk, 122,880 values of 8 bytes with a validity bitmap, is 998,464 bytes: a size just below a
//!   power of two wastes least of a cache whose frames are powers of two.
//!
//! Not here: the order of operations, and rows in the delta store (`table`).

mod all_rows;
pub mod chunk;
mod compact;
pub(crate) mod index_entries;
mod key_ranges;
pub mod metadata;
mod move_rows;
mod row_group_store;
mod row_group_table;
mod row_groups;
mod scan;
mod writer;

use std::fmt::Display;

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use store::StoreError;

pub(crate) use all_rows::{AddressedRows, all_rows};
pub use compact::Compacted;
pub use row_group_store::RowGroupStore;
pub use row_group_table::{RowGroupTable, session_config};
pub(crate) use row_groups::row_group_trees;
pub use row_groups::{Address, RowGroups};
pub use scan::RowGroupScan;
pub use writer::RowGroupWriter;

use crate::SqlError;

/// Rows of a vector.
pub const VECTOR_ROWS: usize = 8192;
/// Vectors of a row group, at most.
pub const ROW_GROUP_VECTORS: usize = 15;
/// Rows of a row group, at most.
pub const ROW_GROUP_ROWS: usize = VECTOR_ROWS * ROW_GROUP_VECTORS;

/// Bytes of a value, for types of fixed width in Arrow.
pub(crate) fn fixed_width(kind: &DataType) -> Option<usize> {
    match kind {
        DataType::FixedSizeBinary(width) => usize::try_from(*width).ok().filter(|width| (1..=32).contains(width)),
        kind => kind.primitive_width(),
    }
}

/// Whether Arrow stores values as whole numbers, so that differences can be stored.
pub(crate) fn is_narrowable(kind: &DataType) -> bool {
    use DataType as T;
    matches!(
        kind,
        T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::UInt8
            | T::UInt16
            | T::UInt32
            | T::UInt64
            | T::Date32
            | T::Date64
            | T::Time32(_)
            | T::Time64(_)
            | T::Timestamp(_, _)
            | T::Duration(_)
            | T::Interval(IntervalUnit::YearMonth)
            | T::Decimal128(_, _)
    )
}

/// Whether values are texts or byte strings.
pub(crate) fn is_text(kind: &DataType) -> bool {
    use DataType as T;
    matches!(kind, T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView)
}

/// The Arrow type in which texts of that type are stored: Utf8 or Binary.
pub(crate) fn text_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        _ => DataType::Binary,
    }
}

pub(crate) fn damaged(what: impl Display) -> SqlError {
    SqlError::Store(StoreError::Corrupt(format!("row groups: {what}").into()))
}

pub(crate) fn unsupported(kind: &DataType) -> SqlError {
    SqlError::unsupported(format!("a column of Arrow's type {kind} in the column store"))
}

#[cfg(test)]
mod tests;
