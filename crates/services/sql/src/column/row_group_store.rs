//! [`RowGroupStore`]: the row groups of all tables, with the interface that tables use.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use datafusion::arrow::array::RecordBatch;
use datafusion::common::DFSchema;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::physical_expr::create_physical_expr;
use datafusion::physical_plan::ExecutionPlan;
use parking_lot::Mutex;
use store::{Transaction, TreeId};

use super::row_groups::{Address, LAST_ROW_ID, RowGroupCache, RowGroups, Trees, delete, find};
use super::scan::RowGroupScan;
use super::{AddressedRows, ROW_GROUP_ROWS, RowGroupWriter, damaged};
use crate::SqlError;
use crate::table::{ColumnRows, ColumnScanRequest, ColumnStore, Table, View};

/// The column store. Keep one for each open store: it remembers which numbers of row groups were used.
#[derive(Debug)]
pub struct RowGroupStore {
    row_group_rows: usize,
    row_group_bytes: usize,
    tables: Mutex<HashMap<u64, Arc<RowGroupCache>>>,
}

impl Default for RowGroupStore {
    fn default() -> RowGroupStore {
        RowGroupStore::with_row_groups_of(ROW_GROUP_ROWS)
    }
}

impl RowGroupStore {
    /// A column store for a store that was just opened.
    pub fn new() -> RowGroupStore {
        RowGroupStore::default()
    }

    /// The same, with row groups of another size: 1 to [`ROW_GROUP_ROWS`] rows.
    pub fn with_row_groups_of(rows: usize) -> RowGroupStore {
        let row_group_rows = rows.clamp(1, ROW_GROUP_ROWS);
        RowGroupStore { row_group_rows, row_group_bytes: usize::MAX, tables: Mutex::default() }
    }

    /// The same, with row groups of fewer rows if their rows take more than this many bytes of memory. Default: no limit. Whoever writes,
    /// moves, compacts or scans a row group keeps a part of it in memory that grows with these bytes.
    pub fn with_row_group_bytes(self, row_group_bytes: usize) -> RowGroupStore {
        RowGroupStore { row_group_bytes, ..self }
    }

    /// Rows of a full row group.
    pub fn row_group_rows(&self) -> usize {
        self.row_group_rows
    }

    /// Memory of the rows of a full row group, in bytes.
    pub fn row_group_bytes(&self) -> usize {
        self.row_group_bytes
    }

    pub(crate) fn shared(&self, storage: u64) -> Arc<RowGroupCache> {
        let make = || Arc::new(RowGroupCache::new(self.row_group_rows));
        self.tables.lock().entry(storage).or_insert_with(make).clone()
    }

    /// Adds rows directly to row groups: a bulk load. The caller commits. If two transactions add the same primary key,
    /// in whichever of the two stores, the first to commit wins.
    pub fn append(&self, table: &Arc<Table>) -> RowGroupWriter {
        RowGroupWriter::new(table.clone(), self.shared(table.storage), false).within(self.row_group_bytes)
    }

    /// A writer for rows from the delta store: their keys were checked when they were inserted.
    pub(crate) fn moved(&self, table: &Arc<Table>) -> RowGroupWriter {
        RowGroupWriter::new(table.clone(), self.shared(table.storage), true).within(self.row_group_bytes)
    }

    /// Bytes of chunks that scans have requested from the store since this was created.
    pub fn bytes_asked(&self) -> u64 {
        self.tables.lock().values().map(|table| table.asked.load(Ordering::Relaxed)).sum()
    }
}

impl ColumnStore for RowGroupStore {
    fn scan(
        &self,
        view: &View,
        table: &Arc<Table>,
        request: ColumnScanRequest<'_>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>, SqlError> {
        let shared = self.shared(table.storage);
        let Some(mut row_groups) = RowGroups::open(view, table, &shared)? else { return Ok(None) };
        row_groups.hint = row_groups.hint_for(request.projection)?;
        let names = DFSchema::try_from(table.schema.as_ref().clone())?;
        let properties = ExecutionProps::new();
        // Conditions that cannot be evaluated here, such as a subquery, are checked above.
        let planning = PhysicalPlanningContext::default();
        let conditions = request.filters.iter();
        let conditions = conditions.filter_map(|one| create_physical_expr(one, &names, &properties, &planning).ok());
        let repeatable: Vec<_> = conditions.filter(super::scan::is_repeatable).collect();
        let (addressed, projection) = (table.addressed.clone(), request.projection.to_vec());
        let scan =
            RowGroupScan::new(row_groups, addressed, projection, &repeatable, request.limit, request.partitions)?;
        Ok(Some(Arc::new(scan)))
    }

    fn find(
        &self,
        view: &View,
        table: &Table,
        key: &[u8],
        columns: &[usize],
    ) -> Result<Option<(Vec<u8>, RecordBatch)>, SqlError> {
        let found = find(view, table, key, &self.shared(table.storage), columns)?;
        Ok(found.map(|(address, row)| (address.encode().to_vec(), row)))
    }

    fn rows(&self, view: &View, table: &Table, columns: &[usize]) -> Box<dyn ColumnRows> {
        Box::new(AddressedRows::new(self.shared(table.storage), view.clone(), columns.to_vec()))
    }

    fn place(&self, view: &View, table: &Table, address: &[u8]) -> Result<(TreeId, Vec<u8>), SqlError> {
        let address = Address::decode(address)?;
        match Trees::find(view, table.storage)? {
            Some(trees) => Ok((trees.deleted, address.key().to_vec())),
            None => Err(damaged("the table of a row in the column store has no row groups")),
        }
    }

    fn delete(
        &self,
        transaction: &mut Transaction,
        table: &Table,
        address: &[u8],
    ) -> Result<(TreeId, Vec<u8>), SqlError> {
        let address = Address::decode(address)?;
        let tree = delete(transaction, table.storage, address)?;
        Ok((tree, address.key().to_vec()))
    }

    fn last_row_id(&self, view: &View, table: &Table) -> Result<u64, SqlError> {
        let Some(trees) = Trees::find(view, table.storage)? else { return Ok(0) };
        match view.get(trees.row_groups, LAST_ROW_ID)? {
            None => Ok(0),
            Some(bytes) => match bytes.as_ref().try_into() {
                Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
                Err(_) => Err(damaged("the largest row id has 8 bytes")),
            },
        }
    }

    fn discard(&self, transaction: &mut Transaction, table: &Table) -> Result<(), SqlError> {
        if Trees::find(transaction, table.storage)?.is_some() {
            for name in Trees::names(table.storage) {
                transaction.drop_tree(&name)?;
            }
        }
        Ok(())
    }
}
