//! [`ExternalTable`]: an external table in a query, and the columns of its files.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::compute::can_cast_types;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::{Session, TableProvider};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingOptions, ListingTable, ListingTableConfig, ListingTableUrl};
use datafusion::datasource::physical_plan::{FileScanConfigBuilder, ParquetSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::{DataFusionError, Result as DfResult};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use url::Url;

use super::allowed_folders::missing;
use super::cached_files::FileCache;
use super::file_change_check::Steady;
use crate::SqlError;
use crate::table::{Column, External, SqlType};

/// An external table in a query.
#[derive(Debug)]
pub(crate) struct ExternalTable {
    table: Arc<External>,
    files: Arc<FileCache>,
    listing: ListingTable,
}

/// The location as DataFusion names it; a folder ends with a slash.
fn url(files: &FileCache, location: &Path) -> Result<ListingTableUrl, SqlError> {
    let real = files.resolve(location)?;
    let url = if real.is_dir() { Url::from_directory_path(&real) } else { Url::from_file_path(&real) };
    let url = url.map_err(|()| SqlError::unsupported(format!("the location \"{}\"", real.display())))?;
    Ok(ListingTableUrl::try_new(url, None)?)
}

fn options() -> ListingOptions {
    // This code chooses the files; a file named in LOCATION may have any name.
    ListingOptions::new(Arc::new(ParquetFormat::default())).with_file_extension("")
}

/// Checks that there is at least one file. Errors: 58P01.
fn present(files: &FileCache, location: &Path) -> Result<(), SqlError> {
    let real = files.resolve(location)?;
    if !real.is_dir() {
        return files.version(&real).map(|_| ());
    }
    match files.of_folder(&real)?.is_empty() {
        true => Err(missing(
            &format!("the external table's folder \"{}\"", real.display()),
            "it contains no .parquet files",
        )),
        false => Ok(()),
    }
}

/// The columns of the files at a location. The `named` columns must exist, and it must be possible to read them as the
/// requested types; if none are named, the result has all columns.
///
/// Errors: 58P01 if there are no files, 0A000 for types that are not supported, 42703 for a column that does not exist,
/// 42804 for one of another kind, and errors of reading the files.
pub(crate) async fn columns(
    session: &dyn Session,
    files: &FileCache,
    location: &Path,
    named: Vec<Column>,
) -> Result<Vec<Column>, SqlError> {
    present(files, location)?;
    let found = options().infer_schema(session, &url(files, location)?).await?;
    if named.is_empty() {
        let column = |field: &Arc<datafusion::arrow::datatypes::Field>| {
            // DataFusion reads bytes as views.
            let field = match field.data_type() {
                DataType::BinaryView => Arc::new(field.as_ref().clone().with_data_type(DataType::Binary)),
                _ => field.clone(),
            };
            let kind = SqlType::from_arrow(&field).map_err(|error| {
                error.with_detail(format!("It is column \"{}\" of the files.", field.name())).with_hint(
                    "Name the columns to use, with their types: CREATE EXTERNAL TABLE name (column type, ..) ..",
                )
            })?;
            Ok(Column::new(field.name(), kind))
        };
        return found.fields().iter().map(column).collect();
    }
    for column in &named {
        let Ok(field) = found.field_with_name(&column.name) else {
            let names: Vec<&str> = found.fields().iter().map(|field| field.name().as_str()).collect();
            return Err(SqlError::statement("42703", format!("the files have no column \"{}\"", column.name))
                .with_hint(format!("They have: {}. Put names with capitals in quotes.", names.join(", "))));
        };
        if !can_cast_types(field.data_type(), &column.kind.arrow()) {
            let (from, to) = (field.data_type(), column.kind.name());
            let message = format!("column \"{}\" of the files cannot be read as {to}: it is {from}", column.name);
            return Err(SqlError::statement("42804", message));
        }
    }
    Ok(named)
}

impl ExternalTable {
    /// A table for a plan. Errors: those of [`FileCache::resolve`].
    pub(crate) fn new(table: Arc<External>, files: Arc<FileCache>) -> Result<ExternalTable, SqlError> {
        let config = ListingTableConfig::new(url(&files, &table.location)?)
            .with_listing_options(options())
            .with_schema(table.schema.clone());
        Ok(ExternalTable { listing: ListingTable::try_new(config)?, table, files })
    }
}

#[async_trait]
impl TableProvider for ExternalTable {
    fn schema(&self) -> SchemaRef {
        self.table.schema.clone()
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DfResult<Vec<TableProviderFilterPushDown>> {
        self.listing.supports_filters_pushdown(filters)
    }

    async fn scan(
        &self,
        state: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        present(&self.files, &self.table.location)?;
        let plan = self.listing.scan(state, projection, filters, limit).await?;
        let steady = |plan: Arc<dyn ExecutionPlan>| {
            let scan = plan.downcast_ref::<DataSourceExec>();
            let Some((config, source)) = scan.and_then(|scan| scan.downcast_to_file_source::<ParquetSource>()) else {
                return Ok(Transformed::no(plan));
            };
            let readers = source.parquet_file_reader_factory().cloned();
            let inner = readers.ok_or_else(|| DataFusionError::Internal("a scan of Parquet without readers".into()))?;
            let files = state.runtime_env().object_store(&config.object_store_url)?;
            let source = source.clone().with_parquet_file_reader_factory(Arc::new(Steady { inner, files }));
            let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source)).build();
            Ok(Transformed::yes(DataSourceExec::from_data_source(config) as Arc<dyn ExecutionPlan>))
        };
        Ok(plan.transform_up(steady)?.data)
    }
}
