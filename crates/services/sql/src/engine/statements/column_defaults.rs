//! The values of columns that an INSERT or COPY does not give: NULL, one value for all rows, or one for each row.
//!
//! A default such as `now()` is evaluated once, when the statement begins; a volatile one (`random()`) is evaluated for
//! every row.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::SelectItem;

use super::changed_table;
use super::literal_values::{cells, fits};
use crate::SqlError;
use crate::engine::Session;
use crate::engine::parse::ast;
use crate::engine::plan::prepared;
use crate::engine::semantics::assignment_casts::assign;
use crate::table::{Column, Table};

/// For each column of a table its value if the statement does not give it.
#[derive(Debug)]
pub(crate) struct ColumnDefaults(Vec<MissingColumn>);

#[derive(Debug)]
enum MissingColumn {
    Null,
    Same(ScalarValue),
    /// The default is evaluated for each row; the flag says whether it is a text that takes the column's type.
    Each(Arc<dyn PhysicalExpr>, bool),
}

impl MissingColumn {
    fn rows(&self, column: &Column, rows: usize) -> Result<ArrayRef, SqlError> {
        match self {
            MissingColumn::Null => Ok(new_null_array(&column.kind.arrow(), rows)),
            MissingColumn::Same(value) => Ok(value.to_array_of_size(rows)?),
            MissingColumn::Each(expr, is_open) => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
                assign(&expr.evaluate(&none)?.into_array(rows)?, column, *is_open)
            }
        }
    }
}

impl ColumnDefaults {
    /// Whole rows: the given columns, and the others.
    pub(crate) fn whole(
        &self,
        table: &Table,
        given: &[usize],
        values: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<Vec<ArrayRef>, SqlError> {
        let mut whole: Vec<Option<ArrayRef>> = vec![None; table.columns.len()];
        for (at, array) in given.iter().zip(values) {
            whole[*at] = Some(array);
        }
        let columns = whole.into_iter().zip(&self.0).zip(&table.columns);
        columns.map(|((array, missing), column)| array.map_or_else(|| missing.rows(column, rows), Ok)).collect()
    }
}

/// The present defaults of the columns that are not given.
pub(crate) async fn defaults(session: &Session, table: &Table, given: &[usize]) -> Result<ColumnDefaults, SqlError> {
    let mut missing = Vec::with_capacity(table.columns.len());
    for (at, column) in table.columns.iter().enumerate() {
        let has_default = column.default.is_some() || column.identity.is_some();
        missing.push(match has_default && !given.contains(&at) {
            true => default_of(session, column).await?,
            false => MissingColumn::Null,
        });
    }
    Ok(ColumnDefaults(missing))
}

async fn default_of(session: &Session, column: &Column) -> Result<MissingColumn, SqlError> {
    let expr = ast::default_of(column)?;
    if ast::literal(&expr, &[])?.is_none() {
        let query = ast::select(vec![SelectItem::UnnamedExpr(expr.clone())], Vec::new(), None)?;
        // The optimizer evaluates expressions that are the same for all rows now.
        let state = session.planning();
        let plan = state.optimize(&prepared::plan_query(&session.context, &query).await?)?;
        if let Some(volatile) = plan.expressions().into_iter().find(|expr| expr.is_volatile()) {
            let each = state.create_physical_expr(volatile, &DFSchema::empty())?;
            return Ok(MissingColumn::Each(each, ast::is_open(&expr)));
        }
    }
    Ok(MissingColumn::Same(default_value(session, column).await?))
}

/// The present value of a column's default.
pub(crate) async fn default_value(session: &Session, column: &Column) -> Result<ScalarValue, SqlError> {
    let expr = ast::default_of(column)?;
    let array = match ast::literal(&expr, &[])? {
        Some(literal) if fits(&literal, column.kind) => cells(&[literal], column)?,
        _ => {
            let query = ast::select(vec![SelectItem::UnnamedExpr(expr.clone())], Vec::new(), None)?;
            let (schema, batches) = changed_table::collect(session, &query, &[]).await?;
            assign(changed_table::joined(&schema, &batches)?.column(0), column, ast::is_open(&expr))?
        }
    };
    Ok(ScalarValue::try_from_array(&array, 0)?)
}
