//! [`ColumnStore`]: the interface between tables and their row groups.
//!
//! In every view a row is in exactly one place: in the delta store, the table's tree of rows, or in the column store.
//! An ordinary transaction moves rows from one to the other. Rows in the column store are never changed in place: an
//! update deletes the row there and adds a new one in the delta store.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use store::{Transaction, TreeId};

use super::{Table, View};
use crate::SqlError;

/// A scan's request for a table's rows in the column store.
#[derive(Clone, Copy, Debug)]
pub struct ColumnScanRequest<'a> {
    /// Columns, as positions in [`Table::addressed`], in the order of the plan's output: the last position is the
    /// address (tag [`COLUMN_TAG`](super::COLUMN_TAG) first). May be empty.
    pub projection: &'a [usize],
    /// Conditions over the table's columns; every row that the query keeps fulfils them. They are checked again above.
    pub filters: &'a [Expr],
    /// After this many rows no more need to be read; only given if there are no conditions.
    pub limit: Option<usize>,
    /// Most partitions of the plan.
    pub partitions: usize,
}

/// Rows of one table in the column store, read one after the other. What was decoded for a row is kept for its neighbours.
pub trait ColumnRows: Send + Debug {
    /// The columns with the row at an address, and its position in them; `None` if it is deleted.
    fn at(&mut self, table: &Table, address: &[u8]) -> Result<Option<(&[ArrayRef], usize)>, SqlError>;

    /// The address of the row with an encoded primary key.
    fn with_key(&mut self, table: &Table, key: &[u8]) -> Result<Option<Vec<u8>>, SqlError>;
}

/// Stores rows of tables in the column store.
pub trait ColumnStore: Send + Sync + Debug {
    /// A plan for the rows that `view` sees in the column store, without deleted ones; `None` if there are none. The
    /// schema is [`Table::addressed`] under the projection.
    fn scan(
        &self,
        view: &View,
        table: &Arc<Table>,
        request: ColumnScanRequest<'_>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, SqlError>;

    /// The row with an encoded primary key, if it is in the column store: its address and a batch of that one row with
    /// these columns. It is called for each row that is inserted into a table with a primary key, so a search for a key
    /// that does not exist must be fast.
    fn find(
        &self,
        view: &View,
        table: &Table,
        key: &[u8],
        columns: &[usize],
    ) -> Result<Option<(Vec<u8>, RecordBatch)>, SqlError>;

    /// Reads rows of a table one after the other, in some columns.
    fn rows(&self, view: &View, table: &Table, columns: &[usize]) -> Box<dyn ColumnRows>;

    /// The key that changes when the row at an address does, and its tree.
    fn place(&self, view: &View, table: &Table, address: &[u8]) -> Result<(TreeId, Vec<u8>), SqlError>;

    /// Deletes the row at an address. Returns the key that this changed, and its tree: what changes the row changes it.
    fn delete(
        &self,
        transaction: &mut Transaction,
        table: &Table,
        address: &[u8],
    ) -> Result<(TreeId, Vec<u8>), SqlError>;

    /// The largest row id ever moved to the column store, for tables without a primary key; 0 if none.
    fn last_row_id(&self, view: &View, table: &Table) -> Result<u64, SqlError>;

    /// Removes all data of the table's storage ([`Table::storage`]): DROP TABLE and TRUNCATE.
    fn discard(&self, transaction: &mut Transaction, table: &Table) -> Result<(), SqlError>;
}
