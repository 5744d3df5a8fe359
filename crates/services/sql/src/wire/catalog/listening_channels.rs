//! The table function `pg_listening_channels()`: the channels to which the session listens when it is read.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::array::StringArray;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::catalog::{MemTable, Session, TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::error::Result;
use datafusion::logical_expr::{Expr, TableType};
use datafusion::physical_plan::ExecutionPlan;

use crate::engine::notifications::Mailbox;

/// Its name, and that of its column.
pub(super) const CHANNELS: &str = "pg_listening_channels";

/// The function of one session.
#[derive(Debug, Clone)]
pub(super) struct ListeningChannels(pub(super) Arc<Mailbox>);

impl TableFunctionImpl for ListeningChannels {
    fn call_with_args(&self, _: TableFunctionArgs) -> Result<Arc<dyn TableProvider>> {
        Ok(Arc::new(self.clone()))
    }
}

#[async_trait]
impl TableProvider for ListeningChannels {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(vec![Field::new(CHANNELS, DataType::Utf8, true)]))
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
        let batch = RecordBatch::try_new(self.schema(), vec![Arc::new(StringArray::from(self.0.channels()))])?;
        MemTable::try_new(self.schema(), vec![vec![batch]])?.scan(state, projection, filters, limit).await
    }
}
