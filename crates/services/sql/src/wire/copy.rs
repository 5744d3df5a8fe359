//! The formats of COPY, both ways, with a bounded amount of memory.
//!
//! ```text
//!   chunks of any size --Reader--> rows of fields --Batch--> RecordBatch         COPY .. FROM STDIN
//!   RecordBatch --Writer--> one message CopyData for each row                    COPY .. TO STDOUT
//!
//!   text      a<TAB>\N<LF>                      \. alone ends the data
//!   csv       "a, b",,3<LF>                     quotes may hold line ends; an empty field without quotes is NULL
//!   binary    PGCOPY\n\377\r\n\0 flags, extension, then rows: count u16, values behind their lengths; count -1 ends
//! ```
//!
//! [`Reader`] is pure and total: any bytes, cut anywhere, make the same rows or the same error. A row must not be longer
//! than the limit that it is given; more is never kept.

mod binary;
mod csv;
mod fields;
mod inward;
mod outward;
mod text;

pub(crate) use fields::Fields;
pub(crate) use inward::{Batch, Reader};
pub(crate) use outward::Writer;

/// How COPY's data is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Tabs and backslashes.
    Text,
    /// Comma-separated values.
    Csv,
    /// PostgreSQL's binary layout.
    Binary,
}
