//! [`SegmentTable`]: a table that consists of segments only, without catalog and row form: for loads and measurements of the
//! column form alone.

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

use super::Columns;
use crate::SqlError;
use crate::table::{Column, ColumnForm, FormRequest, Table, View};

/// How DataFusion plans best over segments, with that many threads.
///
/// The rows of the smaller side of a join are known, not guessed, so that one table for all threads may be larger than
/// DataFusion's default of 1 MiB before both sides are dealt out by key instead: dealing out copies every row of the larger
/// side.
pub fn session_config(threads: usize) -> SessionConfig {
    let mut config = SessionConfig::new().with_target_partitions(threads);
    let optimizer = &mut config.options_mut().optimizer;
    optimizer.hash_join_single_partition_threshold = 64 << 20;
    optimizer.hash_join_single_partition_threshold_rows = 2 << 20;
    // Rows that are cut by the first column of a key are also cut by it and others.
    optimizer.subset_repartition_threshold = 1;
    config
}

/// A table of segments. Each scan sees what was committed when it was planned.
#[derive(Clone, Debug)]
pub struct SegmentTable {
    store: Store,
    columns: Arc<Columns>,
    table: Arc<Table>,
}

impl SegmentTable {
    /// The table of that name, made where there is none: its columns and the positions of its primary key must be the same
    /// each time. `storage` names its trees and must be no other table's.
    pub fn open(
        store: &Store,
        columns: &Arc<Columns>,
        name: &str,
        storage: u64,
        definition: Vec<Column>,
        key: Vec<usize>,
    ) -> Result<SegmentTable, SqlError> {
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
            rows,
            schema,
            addressed,
        };
        Ok(SegmentTable { store: store.clone(), columns: columns.clone(), table: Arc::new(table) })
    }

    /// What it is.
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
impl TableProvider for SegmentTable {
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
        let request = FormRequest { projection, filters, limit, partitions };
        match self.columns.scan(&view, &self.table, request)? {
            Some(plan) => Ok(plan),
            None => Ok(Arc::new(EmptyExec::new(Arc::new(self.table.schema.project(projection)?)))),
        }
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> Result<Vec<TableProviderFilterPushDown>> {
        // The optimizer then finds out that the plan itself applies them.
        Ok(vec![TableProviderFilterPushDown::Inexact; filters.len()])
    }
}
