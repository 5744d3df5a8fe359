//! [`RowGroupTable`]: a table that consists of row groups only, without catalog and delta store, for loads and
//! measurements of the column store alone.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::Result;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::prelude::SessionConfig;
use store::Store;

use super::RowGroupStore;
use crate::SqlError;
use crate::table::{Column, ColumnScanRequest, ColumnStore, Table, View};

/// The configuration with which DataFusion plans best over row groups, for that many threads.
///
/// The rows of the smaller side of a join are known, not estimated. So one hash table for all threads may be larger
/// than DataFusion's default of 1 MiB before both sides are repartitioned by key instead: repartitioning copies every
/// row of the larger side.
pub fn session_config(threads: usize) -> SessionConfig {
    let mut config = SessionConfig::new().with_target_partitions(threads);
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.hash_join_single_partition_threshold = 64 << 20;
    optimizer.hash_join_single_partition_threshold_rows = 2 << 20;
    // Rows partitioned by the first column of a key are also partitioned by that column and others.
    optimizer.subset_repartition_threshold = 1;
    config
}

/// A table of row groups. Each scan sees the commits before it was planned.
#[derive(Clone, Debug)]
pub struct RowGroupTable {
    store: Store,
    columns: Arc<RowGroupStore>,
    table: Arc<Table>,
}

impl RowGroupTable {
    /// Opens the table of that name, and creates it if it does not exist: its columns and the positions of its primary
    /// key must be the same each time. `storage` names its trees and must not be used by another table.
    pub fn open(
        store: &Store,
        columns: &Arc<RowGroupStore>,
        name: &str,
        storage: u64,
        definition: Vec<Column>,
        key: Vec<usize>,
    ) -> Result<RowGroupTable, SqlError> {
        let mut transaction = store.begin();
        let tree = format!("columns.{storage}.rows");
        let rows = match transaction.tree(&tree)? {
            Some(rows) => rows,
            None => transaction.create_tree(&tree)?,
        };
        transaction.commit()?;
        let (schema, addressed) = Table::schemas(&definition, &key);
        let table = Table {
            schema_name: "public".into(),
            name: name.into(),
            id: storage,
            storage,
            columns: definition,
            key_name: format!("{name}_pkey"),
            key,
            checks: Vec::new(),
            indexes: Vec::new(),
            foreign_keys: Vec::new(),
            referenced: Vec::new(),
            rows,
            schema,
            addressed,
        };
        Ok(RowGroupTable { store: store.clone(), columns: columns.clone(), table: Arc::new(table) })
    }

    /// The table's definition.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Adds rows in one transaction; durable when it returns. Errors: 23505.
    pub fn append(&self, batches: impl IntoIterator<Item = RecordBatch>) -> Result<u64, SqlError> {
        let mut transaction = self.store.begin();
        let mut appender = self.columns.append(&self.table);
        let mut rows = 0;
        for batch in batches {
            rows += batch.num_rows() as u64;
            appender.push(&mut transaction, batch)?;
        }
        appender.finish(&mut transaction)?;
        transaction.commit()?;
        Ok(rows)
    }
}

#[async_trait]
impl TableProvider for RowGroupTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.table.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let view = View::Snapshot(self.store.snapshot());
        let partitions = state.config().target_partitions();
        let limit = limit.filter(|_| filters.is_empty());
        let request = ColumnScanRequest { projection, filters, limit, partitions };
        match self.columns.scan(&view, &self.table, request)? {
            Some(plan) => Ok(plan),
            None => Ok(Arc::new(EmptyExec::new(Arc::new(self.table.schema.project(projection)?)))),
        }
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // The optimizer then finds that the plan itself applies them.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}
