//! [`SqlSource`] and [`SearchSource`]: what the program lends to the console of other services, where they run.
//!
//! ```text
//!   page --Caller, question--> SqlSource | SearchSource --> that service, by its own way to rights, masking and audit --> a bounded answer
//! ```
//!
//! Services do not import each other: the program makes these of its services and passes them in.
//!
//! Invariants of an implementation: the rights are those of the caller, asked for by the service itself; it changes nothing; who drops
//! the future of an answer ends the work for it.

use std::time::Duration;

use async_trait::async_trait;
use node::identity::Caller;
use serde::Serialize;

use crate::admin_error::AdminError;

/// The SQL service.
#[async_trait]
pub trait SqlSource: Send + Sync + 'static {
    /// Runs one statement that reads. Needs `sql-connect`, and what the statement needs.
    async fn read(&self, caller: &Caller, question: &SqlQuestion) -> Result<SqlTable, AdminError>;
}

/// A statement, and how much of its answer is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqlQuestion {
    /// The statement.
    pub text: String,
    /// Rows at most.
    pub rows_max: usize,
    /// Bytes of all values as texts at most.
    pub bytes_max: usize,
    /// How long it may take.
    pub time_max: Duration,
}

/// What a statement returned.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SqlTable {
    /// The names of the columns; none of a statement without rows.
    pub columns: Vec<String>,
    /// The rows; none for NULL.
    pub rows: Vec<Vec<Option<String>>>,
    /// Whether these are all rows; otherwise a bound ended them.
    pub is_whole: bool,
    /// What was done, such as `SELECT`.
    pub tag: String,
}

/// The search service.
#[async_trait]
pub trait SearchSource: Send + Sync + 'static {
    /// The names of the indices that the caller may read.
    async fn indices(&self, caller: &Caller) -> Result<Vec<String>, AdminError>;

    /// Searches. Needs `index-read`, and of messages the rights to their bodies.
    async fn find(&self, caller: &Caller, question: &HitQuestion) -> Result<HitPage, AdminError>;
}

/// A search in indices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HitQuestion {
    /// The names of indices, or patterns of them, with commas between.
    pub index: String,
    /// In the language of `query_string`.
    pub query: String,
    /// Hits before the first one of the answer.
    pub from: usize,
    /// Hits of the answer.
    pub size: usize,
    /// How long it may take.
    pub time_max: Duration,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HitPage {
    /// The hits.
    pub hits: Vec<HitLine>,
    /// Documents that match.
    pub total: u64,
    /// Whether there are no more than that.
    pub total_is_exact: bool,
    /// How long it took, milliseconds.
    pub took_ms: u64,
}

/// A document that was found.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct HitLine {
    /// Its index.
    pub index: String,
    /// Its id.
    pub id: String,
    /// How well it matches; none where hits are in another order.
    pub score: Option<f64>,
    /// Names of fields, and parts of their texts in which what matches is between [`MARK_BEGIN`] and [`MARK_END`].
    pub highlights: Vec<(String, Vec<String>)>,
    /// The document as JSON, cut to what a page shows.
    pub source: String,
}

/// Where something that matches begins in a highlighted text: a character for private use, which is no markup.
pub const MARK_BEGIN: char = '\u{e000}';

/// Where it ends.
pub const MARK_END: char = '\u{e001}';
