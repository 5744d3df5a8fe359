//! [`ColumnForm`]: the seam between tables and their column segments.
//!
//! A row lies in exactly one form in every view: in row form, in the table's tree, or in column form. What moves rows
//! from one to the other is an ordinary transaction. Rows in column form are never changed in place: a change deletes
//! the row there and puts a new one in row form.

use std::fmt::Debug;
use std::sync::Arc;

use datafusion::arrow::record_batch::RecordBatch;
use datafusion::logical_expr::Expr;
use datafusion::physical_plan::ExecutionPlan;
use store::Transaction;

use super::{Table, View};
use crate::SqlError;

/// What a scan wants of a table's column form.
#[derive(Clone, Copy, Debug)]
pub struct FormRequest<'a> {
    /// Columns, as positions in [`Table::addressed`], in the order of the plan's output: the last position asks for the
    /// address (tag [`COLUMN_TAG`](super::COLUMN_TAG) first). May be empty.
    pub projection: &'a [usize],
    /// Conditions over the table's columns that all rows the query keeps fulfil; they are checked again above.
    pub filters: &'a [Expr],
    /// After this many rows the rest need not be read; only given where there are no conditions.
    pub limit: Option<usize>,
    /// Partitions the plan should have, at most.
    pub partitions: usize,
}

/// Keeps rows of tables in column form.
pub trait ColumnForm: Send + Sync + Debug {
    /// A plan for the rows that `view` sees in column form, deleted ones left out; `None` where there are none. The
    /// schema is [`Table::addressed`] under the projection.
    fn scan(
        &self,
        view: &View,
        table: &Arc<Table>,
        request: FormRequest<'_>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, SqlError>;

    /// The row of an encoded primary key, if it is in column form: its address and a batch of that one row with all
    /// columns. Called for each row that is inserted into a table with a primary key, so it must be quick to say no.
    fn find(&self, view: &View, table: &Table, key: &[u8]) -> Result<Option<(Vec<u8>, RecordBatch)>, SqlError>;

    /// Deletes the row at an address.
    fn delete(&self, transaction: &mut Transaction, table: &Table, address: &[u8]) -> Result<(), SqlError>;

    /// The largest row id ever moved to column form, for tables without a primary key; 0 if none.
    fn last_row_id(&self, view: &View, table: &Table) -> Result<u64, SqlError>;

    /// Gives up everything of the table's storage ([`Table::storage`]): DROP TABLE and TRUNCATE.
    fn discard(&self, transaction: &mut Transaction, table: &Table) -> Result<(), SqlError>;
}
