//! What columns get that an INSERT or COPY does not give: NULL, one value for all rows, or one for each.
//!
//! A default such as `now()` is evaluated once, when the statement begins; one that varies (`random()`) for every row.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, new_null_array};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::DFSchema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::SelectItem;

use super::assign::assign;
use super::insert::{cells, fits};
use super::{Session, target};
use crate::SqlError;
use crate::table::{Column, Table};

/// For each column of a table what it has if it is not given.
#[derive(Debug)]
pub(crate) struct Defaults(Vec<Missing>);

#[derive(Debug)]
enum Missing {
    Null,
    Same(ScalarValue),
    /// Evaluated for each row; whether it is a text that takes the column's type.
    Each(Arc<dyn PhysicalExpr>, bool),
}

impl Missing {
    fn rows(&self, column: &Column, rows: usize) -> Result<ArrayRef, SqlError> {
        match self {
            Missing::Null => Ok(new_null_array(&column.kind.arrow(), rows)),
            Missing::Same(value) => Ok(value.to_array_of_size(rows)?),
            Missing::Each(expr, is_open) => {
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                let none = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
                assign(&expr.evaluate(&none)?.into_array(rows)?, column, *is_open)
            }
        }
    }
}

impl Defaults {
    /// Whole rows: the columns that are given, and the others.
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

impl Session {
    /// The defaults of the columns that are not given, now.
    pub(crate) async fn defaults(&self, table: &Table, given: &[usize]) -> Result<Defaults, SqlError> {
        let mut missing = Vec::with_capacity(table.columns.len());
        for (at, column) in table.columns.iter().enumerate() {
            missing.push(match column.default.is_some() && !given.contains(&at) {
                true => self.default_of(column).await?,
                false => Missing::Null,
            });
        }
        Ok(Defaults(missing))
    }

    async fn default_of(&self, column: &Column) -> Result<Missing, SqlError> {
        let expr = target::default_of(column)?;
        if target::literal(&expr, &[])?.is_none() {
            let query = target::select(vec![SelectItem::UnnamedExpr(expr.clone())], Vec::new(), None)?;
            // Optimised: what is the same for all rows is evaluated now.
            let state = self.planning();
            let plan = state.optimize(&self.plan(&query).await?)?;
            if let Some(volatile) = plan.expressions().into_iter().find(|expr| expr.is_volatile()) {
                let each = state.create_physical_expr(volatile, &DFSchema::empty())?;
                return Ok(Missing::Each(each, target::is_open(&expr)));
            }
        }
        Ok(Missing::Same(self.default_value(column).await?))
    }

    /// The value of a column's default, now.
    pub(crate) async fn default_value(&self, column: &Column) -> Result<ScalarValue, SqlError> {
        let expr = target::default_of(column)?;
        let array = match target::literal(&expr, &[])? {
            Some(literal) if fits(&literal, column.kind) => cells(&[literal], column)?,
            _ => {
                let query = target::select(vec![SelectItem::UnnamedExpr(expr.clone())], Vec::new(), None)?;
                let (schema, batches) = self.collect(&query, &[]).await?;
                assign(target::joined(&schema, &batches)?.column(0), column, target::is_open(&expr))?
            }
        };
        Ok(ScalarValue::try_from_array(&array, 0)?)
    }
}
