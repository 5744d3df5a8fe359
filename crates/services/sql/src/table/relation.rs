//! [`Relation`]: a read-only table whose rows somebody else keeps, in trees of the same store or anywhere.
//!
//! The engine checks every condition again on what a relation returns, so that a relation may use as much or as little
//! of a request's bounds as its indexes allow. Only the projection is binding.

use std::fmt::Debug;
use std::ops::Bound;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::scalar::ScalarValue;
use store::Snapshot;

use crate::SqlError;

/// A read-only table supplied from outside, named in [`EngineOptions::relations`](crate::EngineOptions::relations).
pub trait Relation: Send + Sync + Debug {
    /// Its columns. Never changes.
    fn schema(&self) -> SchemaRef;

    /// The rows at a snapshot, in batches of the requested columns in the requested order, all rows that fit the bounds
    /// and, if that is easier, others. The iterator is driven on a thread that may wait for devices.
    fn scan(
        &self,
        snapshot: &Snapshot,
        request: &ScanRequest,
    ) -> Result<Box<dyn Iterator<Item = Result<RecordBatch, SqlError>> + Send>, SqlError>;
}

/// What a query wants of a relation.
#[derive(Clone, Debug, Default)]
pub struct ScanRequest {
    /// Columns, as positions in the schema, in the order of the batches. May be empty: then only the row counts matter
    /// (make batches with `RecordBatch::try_new_with_options`).
    pub projection: Vec<usize>,
    /// Conditions of the query that an index can use; all of them hold for every row that the query keeps.
    pub bounds: Vec<ColumnBound>,
    /// After this many rows that fit all bounds the rest need not be read; only given where the bounds are all of the
    /// query's conditions.
    pub limit: Option<usize>,
    /// Rows a batch should have, at most.
    pub batch_rows: usize,
}

/// The values of one column that a query keeps. Equality is `Included` on both sides. Values have the column's type.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnBound {
    /// Position of the column in the schema.
    pub column: usize,
    /// Smallest.
    pub from: Bound<ScalarValue>,
    /// Largest.
    pub to: Bound<ScalarValue>,
}
