//! The formats of COPY, both ways, with a bounded amount of memory.
//!
//! ```text
//!   chunks of any size --CopyReader--> rows of fields --Batch--> RecordBatch     COPY .. FROM STDIN
//!   RecordBatch --Writer--> one message CopyData for each row                    COPY .. TO STDOUT
//!
//!   text      a<TAB>\N<LF>                      \. alone ends the data
//!   csv       "a, b",,3<LF>                     quotes may contain line ends; an empty field without quotes is NULL
//!   binary    PGCOPY\n\377\r\n\0 flags, extension, then rows: count u16, values after their lengths; count -1 ends
//! ```
//!
//! [`CopyReader`] is pure and total: any bytes, cut anywhere, result in the same rows or the same error. A row must not
//! be longer than the given limit; more is never kept.

mod binary;
mod copy_in;
mod copy_out;
mod csv;
mod fields;
mod text;

pub(crate) use copy_in::{Batch, CopyReader};
pub(crate) use copy_out::Writer;
pub(crate) use fields::Fields;

/// The layout of COPY's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CopyLayout {
    /// Tabs and backslashes.
    Text,
    /// Comma-separated values.
    Csv,
    /// PostgreSQL's binary layout.
    Binary,
}
