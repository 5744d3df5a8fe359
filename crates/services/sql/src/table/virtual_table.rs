//! [`VirtualTable`]: a read-only table whose rows another service keeps, in trees of the same store or anywhere.
//!
//! The engine checks every condition again on the rows of a virtual table. So a virtual table may use as much or as
//! little of a request's bounds as its indexes allow. Only the projection is binding. What
//! the caller may not read, the table itself leaves out or refuses: the engine asks for SELECT on the table and no more.
//!
//! A scan may have several partitions, which as many threads read. It may decide during the scan which rows belong to
//! which partition: all partitions of one [`VirtualScan`] together have each row once.

use std::fmt::Debug;
use std::ops::Bound;
use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::scalar::ScalarValue;
use store::Snapshot;

use crate::SqlError;
use crate::identity::SessionIdentity;

/// A read-only table of another service, named in
/// [`EngineOptions::virtual_tables`](crate::EngineOptions::virtual_tables).
pub trait VirtualTable: Send + Sync + Debug {
    /// Its columns. They never change.
    fn schema(&self) -> SchemaRef;

    /// How many partitions a scan should have, at most `most`. Provided: one.
    fn partitions(&self, _request: &ScanRequest, _most: usize) -> usize {
        1
    }

    /// Begins a scan of the rows at a snapshot: all rows within the bounds and, if that is easier, others.
    ///
    /// # Errors
    /// The store's.
    fn scan(&self, snapshot: &Snapshot, request: &ScanRequest) -> Result<Arc<dyn VirtualScan>, SqlError>;
}

/// Rows of a virtual table: batches of the requested columns in the requested order, until the first error.
pub type VirtualRows = Box<dyn Iterator<Item = Result<RecordBatch, SqlError>> + Send>;

/// A scan in progress.
pub trait VirtualScan: Send + Sync {
    /// The rows of a partition, counted from 0 and less than [`ScanRequest::partitions`]. The iterator runs on a thread
    /// that may wait for devices, beside those of other partitions. A second call returns the same rows again.
    fn rows(&self, partition: usize) -> VirtualRows;
}

/// A query's request to a virtual table.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// Columns, as positions in the schema, in the order of the batches. May be empty: then only the row counts matter
    /// (build batches with `RecordBatch::try_new_with_options`).
    pub projection: Vec<usize>,
    /// Conditions of the query that an index can use; all of them hold for every row that the query keeps.
    pub bounds: Vec<ColumnBound>,
    /// After this many rows within all bounds no more need to be read; only given if the bounds are all of the query's
    /// conditions.
    pub limit: Option<usize>,
    /// Most rows of a batch.
    pub batch_rows: usize,
    /// A batch ends at this size of its values, in bytes.
    pub batch_bytes: usize,
    /// Who asks: the table has the rows that this caller may read. `None`: the node itself, which may read all.
    pub identity: Option<SessionIdentity>,
    /// Number of partitions of the scan, as [`VirtualTable::partitions`] returned it.
    pub partitions: usize,
}

/// The values of one column that a query keeps. Equality is `Included` on both sides. Values have the column's type.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnBound {
    /// Position of the column in the schema.
    pub column: usize,
    /// The smallest value.
    pub from: Bound<ScalarValue>,
    /// The largest value.
    pub to: Bound<ScalarValue>,
}
