//! SQL over the store: PostgreSQL's wire protocol in front, DataFusion as planner and executor, tables in trees.
//!
//! ```text
//!   wire      sockets, PostgreSQL protocol, login, COPY formats, pg_catalog
//!     |
//!   engine    Session: statements, transactions, settings; plans changes of rows, DataFusion plans queries
//!     |
//!   table     catalog, row encoding, scans with pushdown        column, external    row groups, Parquet
//!     |       text: values as PostgreSQL writes and reads them     |
//!   store     transactions, snapshots, cursors, pages
//! ```
//!
//! Three rules hold everywhere:
//!
//! 1. **DataFusion never changes a row.** It reads; INSERT, UPDATE and DELETE become queries for row addresses and new
//!    values, and the engine applies their results in the session's transaction. DataFusion's own changes of rows
//!    ignore some conditions.
//! 2. **A statement sees one moment.** Every scan of a statement goes through the session's transaction, own changes
//!    included, or through one snapshot.
//! 3. **Unsupported statements are refused by name**, with SQLSTATE 0A000; nothing is accepted and then ignored.

#![forbid(unsafe_code)]

pub mod column;
pub mod engine;
mod error;
mod error_texts;
pub mod external;
mod hl7_function;
mod identity;
mod index_check;
mod recording;
pub mod repair;
pub mod table;
mod text;
pub mod wire;

/// The stack that each thread that runs sessions needs, in bytes. The nesting limit of statements was measured with
/// this size. A stack takes only the memory that is used.
pub const STACK_BYTES: usize = 64 << 20;

pub use engine::{
    Canceller, CopyIn, Engine, EngineOptions, Prepared, Session, SessionState, StatementResult, TupleMoverOptions,
    TupleMoverStats,
};
pub use error::{ErrorFields, ErrorObject, SqlError};
pub use identity::SessionIdentity;
pub use table::{ColumnBound, ScanRequest, VirtualRows, VirtualScan, VirtualTable};

/// Arrow and its values, for crates that provide a [`VirtualTable`].
pub use datafusion::{arrow, scalar::ScalarValue};
