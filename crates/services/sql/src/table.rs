//! Tables: what they are, how rows lie in trees, how a query reads them.
//!
//! ```text
//!   Catalog       the names of one moment
//!   Table         columns, primary key, trees; rows as bytes under keys as bytes
//!   ColumnForm    rows in column segments, beside those in row form
//!   Relation      read-only tables from outside (messages of an interface engine, ...)
//!   View          what a statement reads: a snapshot, or the session's transaction with its own changes
//! ```

pub(crate) mod catalog;
pub(crate) mod counts;
mod definition;
mod form;
pub(crate) mod key;
pub(crate) mod range;
mod relation;
pub(crate) mod row;
mod rows;
pub(crate) mod scan;
pub(crate) mod types;
mod view;

pub use catalog::{Catalog, Entry, Schemas};
pub use definition::{ADDRESS, COLUMN_TAG, Column, ROW_TAG, Table};
pub use form::{ColumnForm, FormRequest};
pub use relation::{ColumnBound, Relation, ScanRequest};
pub use types::{SqlType, TYPE_KEY};
pub use view::View;
