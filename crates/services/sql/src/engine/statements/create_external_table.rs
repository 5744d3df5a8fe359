//! CREATE EXTERNAL TABLE: a name for Parquet files. DROP TABLE removes the name; the files stay.

use std::path::Path;

use datafusion::sql::sqlparser::ast::{
    CreateTable, CreateTableOptions, FileFormat, HiveDistributionStyle, HiveFormat, HiveIOFormat,
};

use super::column_definitions::{ReadColumn, check_names, read_column};
use super::new_object::{created, done, free};
use crate::SqlError;
use crate::engine::plan::access::table_object;
use crate::engine::{Session, StatementResult};
use crate::external::columns;
use crate::table::{Column, External, catalog};

/// Creates an external table. Its files must exist, and have its columns.
pub(crate) async fn create_external(session: &mut Session, create: &CreateTable) -> Result<StatementResult, SqlError> {
    let location = location(create)?;
    if let Some(access) = session.access() {
        access.server_files()?;
    }
    let Some((schema, name)) = free(session, &create.name, create.if_not_exists)? else {
        return done("CREATE EXTERNAL TABLE");
    };
    let files = session.engine.files.clone();
    let real = files.resolve(Path::new(location))?;
    let named = named_columns(session, create).await?;
    let columns = columns(&session.context.state(), &files, &real, named).await?;
    check_names(&columns)?;
    let (tree, table) = (session.engine.catalog, External::new(&real, columns));
    let transaction = session.changing("CREATE EXTERNAL TABLE")?;
    transaction.defines = true;
    transaction.with(|transaction| catalog::put_external(transaction, tree, &schema, &name, &table))?;
    created(session, "CREATE EXTERNAL TABLE", table_object(&schema, &name))?;
    done("CREATE EXTERNAL TABLE")
}

/// The columns that the statement names. Properties that nothing enforces in external files are refused.
async fn named_columns(session: &Session, create: &CreateTable) -> Result<Vec<Column>, SqlError> {
    let mut columns = Vec::with_capacity(create.columns.len());
    for definition in &create.columns {
        let name = create.name.to_string();
        let ReadColumn { column, key, checks, .. } = read_column(session, &name, definition).await?;
        if key.is_some() || !checks.is_empty() || column.not_null || column.default.is_some() {
            let name = &column.name;
            return Err(SqlError::unsupported(format!(
                "a constraint or default of column \"{name}\" of an external table"
            )));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The path after LOCATION. Errors: 0A000 for another format than Parquet, for places that are not local, and for all options.
fn location(create: &CreateTable) -> Result<&str, SqlError> {
    let parquet = Some(HiveIOFormat::FileFormat { format: FileFormat::PARQUET });
    let formats = create.hive_formats.as_ref();
    if formats.is_none_or(|formats| formats.storage != parquet) {
        return Err(SqlError::unsupported("an external table of another format")
            .with_hint("Write CREATE EXTERNAL TABLE name STORED AS PARQUET LOCATION '/folder'."));
    }
    let is_odd = |formats: &HiveFormat| formats.row_format.is_some() || formats.serde_properties.is_some();
    if create.or_replace
        || !create.constraints.is_empty()
        || create.hive_distribution != HiveDistributionStyle::NONE
        || create.table_options != CreateTableOptions::None
        || formats.is_some_and(is_odd)
    {
        return Err(SqlError::unsupported("CREATE EXTERNAL TABLE with constraints or options"));
    }
    let Some(location) = create.location.as_deref().filter(|location| !location.is_empty()) else {
        return Err(SqlError::statement("42601", "an external table needs a LOCATION"));
    };
    match location.strip_prefix("file://") {
        Some(path) => Ok(path),
        None if location.contains("://") => Err(SqlError::unsupported(format!("the location \"{location}\""))
            .with_hint("Copy the files to this node first.")),
        None => Ok(location),
    }
}
