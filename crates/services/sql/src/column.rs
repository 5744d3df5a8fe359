//! Rows in column form: segments of up to 122,880 rows in Arrow's layout, in trees of the store.
//!
//! ```text
//!   table --> trees "columns.<storage>.segments"   segment u32                           -> descriptor
//!             "columns.<storage>.chunks"           segment u32, column u16, chunk u16    -> chunk: values of one column
//!             "columns.<storage>.deleted"          segment u32, row u32                  -> nothing: a deleted row
//!
//!   segment   122,880 rows at most, ordered by primary key
//!   vector    8,192 rows of a segment, the unit of work and of zone maps; the last one may be shorter
//!   chunk     one column of some vectors, 1 MiB at most: one value of the store, in one piece in the page cache
//! ```
//!
//! Numbers in keys are big-endian, so that a segment's chunks follow each other. Chunks are laid out in [`chunk`], descriptors
//! in [`descriptor`]; `golden.txt` beside this file holds one of each.
//!
//! Invariants:
//! - A segment never changes; a row of it is deleted by a key in the third tree and changed by deleting it and adding a row.
//!   Two transactions that delete one row conflict, two that delete neighbours do not.
//! - A number of a segment is never used twice in the life of a process, nor for two that one view sees.
//! - A view sees a row in one form only, and in one segment: rows move from form to form and from segment to segment in
//!   ordinary transactions.
//! - The largest segment, 122,880 values of 8 bytes with a validity bitmap, is 998,464 bytes: what is just below a power of two
//!   wastes least of a cache whose frames are powers of two.
//!
//! Not here: who calls what, and rows in row form (`table`).

pub mod chunk;
mod compact;
mod convert;
pub mod descriptor;
mod form;
mod provider;
mod ranges;
mod scan;
mod segments;
mod write;

use std::fmt::Display;

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use store::StoreError;

pub use compact::Compacted;
pub use form::Columns;
pub use provider::{SegmentTable, session_config};
pub use scan::SegmentScan;
pub(crate) use segments::segment_trees;
pub use segments::{Address, Segments};
pub use write::Appender;

use crate::SqlError;

/// Rows of a vector.
pub const VECTOR_ROWS: usize = 8192;
/// Vectors of a segment, at most.
pub const SEGMENT_VECTORS: usize = 15;
/// Rows of a segment, at most.
pub const SEGMENT_ROWS: usize = VECTOR_ROWS * SEGMENT_VECTORS;

/// Bytes of a value, for types that Arrow keeps as such.
pub(crate) fn fixed_width(kind: &DataType) -> Option<usize> {
    kind.primitive_width()
}

/// Whether values are whole numbers to Arrow: differences make sense.
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

/// How texts of that type are kept: as Utf8 or Binary.
pub(crate) fn text_type(kind: &DataType) -> DataType {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => DataType::Utf8,
        _ => DataType::Binary,
    }
}

pub(crate) fn damaged(what: impl Display) -> SqlError {
    SqlError::Store(StoreError::Corrupt(format!("column segments: {what}").into()))
}

pub(crate) fn unsupported(kind: &DataType) -> SqlError {
    SqlError::unsupported(format!("a column of Arrow's type {kind} in column form"))
}

#[cfg(test)]
mod tests;
