//! SQL over the store: PostgreSQL's wire protocol in front, DataFusion as planner and executor, tables in trees.
//!
//! ```text
//!   wire      sockets, PostgreSQL protocol, login, COPY formats, pg_catalog
//!     |
//!   engine    Session: statements, transactions, settings; what changes rows is planned here, queries by DataFusion
//!     |
//!   table     catalog, row encoding, scans with pushdown        column, external    segments, Parquet
//!     |       text: values as PostgreSQL writes and reads them     |
//!   store     transactions, snapshots, cursors, pages
//! ```
//!
//! Three rules hold everywhere:
//!
//! 1. **DataFusion never changes a row.** It reads; INSERT, UPDATE and DELETE become queries for row addresses and new
//!    values, and the engine applies what they return in the session's transaction. Its own change of rows ignores
//!    some conditions.
//! 2. **A statement sees one moment.** Every scan of a statement goes through the session's transaction, own changes
//!    included, or through one snapshot.
//! 3. **What is not supported is refused by name**, with SQLSTATE 0A000; nothing is accepted and ignored.

#![forbid(unsafe_code)]

pub mod column;
pub mod engine;
mod error;
pub mod external;
mod hl7;
pub mod repair;
pub mod table;
mod text;
pub mod wire;

/// The stack that each thread that runs sessions needs, in bytes: statements nest as deep as they are written, up to a limit that
/// was measured with it. Of memory it takes what is used.
pub const STACK_BYTES: usize = 64 << 20;

pub use engine::{
    Answer, Canceller, ConversionOptions, ConversionStats, CopyIn, Engine, EngineOptions, Prepared, Session,
    SessionState,
};
pub use error::{Report, SqlError};
pub use table::{ColumnBound, Relation, ScanRequest};

/// Arrow and its values, for those who lend a [`Relation`].
pub use datafusion::{arrow, scalar::ScalarValue};
