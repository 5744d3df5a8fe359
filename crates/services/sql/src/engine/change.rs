//! UPDATE and DELETE: a query for the addresses of rows, and for UPDATE their new values, run to its end by DataFusion;
//! then the rows are changed. Conditions, subqueries and joins mean what they mean in a SELECT.

use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Assignment, AssignmentTarget, Delete, Expr, FromTable, ObjectName, SelectItem, Statement, TableFactor,
    TableWithJoins, Update, UpdateTableFromKind,
};

use super::assign::assign;
use super::control::folded;
use super::insert::{column_position, note, placeholder};
use super::target::{self, Changed};
use super::{Answer, Session};
use crate::SqlError;
use crate::table::{ADDRESS, Table};

/// The query of a change.
struct Planned {
    table: Arc<Table>,
    alias: String,
    query: Statement,
    /// For UPDATE: for each column whether its new value's type is open.
    open: Vec<bool>,
    /// Parameters that are assigned to columns as they are.
    parameters: Vec<Option<DataType>>,
}

/// Table name and alias of the only, plain entry.
fn plain(from: &TableWithJoins) -> Result<(&ObjectName, Option<String>), SqlError> {
    match &from.relation {
        TableFactor::Table { name, alias, args: None, with_hints, version: None, sample: None, .. }
            if from.joins.is_empty() && with_hints.is_empty() =>
        {
            match alias {
                Some(alias) if !alias.columns.is_empty() => Err(SqlError::unsupported("an alias with columns here")),
                alias => Ok((name, alias.as_ref().map(|alias| folded(&alias.name)))),
            }
        }
        _ => Err(SqlError::unsupported(format!("changing \"{from}\""))
            .with_hint("Name one table; join others with FROM or USING.")),
    }
}

/// The right sides of SET.
pub(super) struct Assigned {
    /// For each column its new value; `None` where it keeps the old one.
    pub(super) values: Vec<Option<Expr>>,
    /// For each column whether the new value's type is open.
    pub(super) open: Vec<bool>,
    /// Parameters that are assigned to columns as they are.
    pub(super) parameters: Vec<Option<DataType>>,
}

/// Resolves the columns of SET. Errors: 42703, 42601 for a column that is assigned twice.
pub(super) fn assigned(table: &Table, assignments: &[Assignment]) -> Result<Assigned, SqlError> {
    let mut values: Vec<Option<Expr>> = vec![None; table.columns.len()];
    let mut parameters = Vec::new();
    for assignment in assignments {
        let AssignmentTarget::ColumnName(name) = &assignment.target else {
            return Err(SqlError::unsupported("assigning to several columns at once"));
        };
        let [part] = name.0.as_slice() else {
            return Err(SqlError::unsupported(format!("assigning to {name}")));
        };
        let name = part.as_ident().map(folded).unwrap_or_default();
        let at = column_position(table, &name)?;
        if values[at].is_some() {
            return Err(SqlError::statement("42601", format!("multiple assignments to same column \"{name}\"")));
        }
        if let Some(name) = placeholder(&assignment.value) {
            note(&mut parameters, name, table.columns[at].kind.arrow())?;
        }
        values[at] = Some(match target::is_default(&assignment.value) {
            true => target::default_of(&table.columns[at])?,
            false => assignment.value.clone(),
        });
    }
    let open = values.iter().map(|value| value.as_ref().is_some_and(target::is_open)).collect();
    Ok(Assigned { values, open, parameters })
}

/// What a query selects for the new values of all columns, named `$0`, `$1`, ...
pub(super) fn new_values(table: &Table, alias: &str, values: Vec<Option<Expr>>) -> impl Iterator<Item = SelectItem> {
    table.columns.iter().zip(values).enumerate().map(move |(nth, (column, value))| {
        let value = value.unwrap_or_else(|| target::column_of(alias, &column.name));
        target::named(value, &format!("${nth}"))
    })
}

impl Session {
    fn plan_update(&self, update: &Update) -> Result<Planned, SqlError> {
        if update.or.is_some() || !update.order_by.is_empty() || update.limit.is_some() || update.output.is_some() {
            return Err(SqlError::unsupported("UPDATE with OR, ORDER BY, LIMIT or OUTPUT"));
        }
        let (name, alias) = plain(&update.table)?;
        let table = target::table(&self.shared.catalog(), name)?;
        let alias = alias.unwrap_or_else(|| table.name.clone());
        let Assigned { values, open, parameters } = assigned(&table, &update.assignments)?;
        let mut items = vec![target::named(target::column_of(&alias, ADDRESS), ADDRESS)];
        items.extend(new_values(&table, &alias, values));
        let mut from = vec![target::addressed(&table, &alias)?];
        match &update.from {
            Some(UpdateTableFromKind::AfterSet(tables)) => from.extend(tables.iter().cloned()),
            Some(UpdateTableFromKind::BeforeSet(_)) => return Err(SqlError::unsupported("FROM before SET")),
            None => {}
        }
        let query = target::select(items, from, update.selection.clone())?;
        Ok(Planned { table, alias, query, open, parameters })
    }

    fn plan_delete(&self, delete: &Delete) -> Result<Planned, SqlError> {
        if !delete.tables.is_empty() || !delete.order_by.is_empty() || delete.limit.is_some() || delete.output.is_some()
        {
            return Err(SqlError::unsupported("DELETE with ORDER BY, LIMIT, OUTPUT or several tables"));
        }
        let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &delete.from;
        let [from] = from.as_slice() else {
            return Err(SqlError::unsupported("DELETE from several tables"));
        };
        let (name, alias) = plain(from)?;
        let table = target::table(&self.shared.catalog(), name)?;
        let alias = alias.unwrap_or_else(|| table.name.clone());
        let mut items = vec![target::named(target::column_of(&alias, ADDRESS), ADDRESS)];
        if delete.returning.is_some() {
            let old = |(nth, column): (usize, &crate::table::Column)| {
                target::named(target::column_of(&alias, &column.name), &format!("${nth}"))
            };
            items.extend(table.columns.iter().enumerate().map(old));
        }
        let mut from = vec![target::addressed(&table, &alias)?];
        from.extend(delete.using.iter().flatten().cloned());
        let query = target::select(items, from, delete.selection.clone())?;
        Ok(Planned { table, alias, query, open: Vec::new(), parameters: Vec::new() })
    }

    pub(crate) async fn update(&mut self, update: &Update, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        let planned = self.plan_update(update)?;
        let table = planned.table.clone();
        self.changing("UPDATE")?.lock(table.id, false)?;
        if let Some(answer) = self.quick_update(&table, &planned.alias, update, parameters)? {
            return Ok(answer);
        }
        let (schema, batches) = self.collect(&planned.query, parameters).await?;
        let batch = target::joined(&schema, &batches)?;
        let values = batch.columns()[1..].iter().zip(&table.columns).zip(&planned.open);
        let values: Vec<ArrayRef> =
            values.map(|((array, column), open)| assign(array, column, *open)).collect::<Result<_, _>>()?;
        let block = self.changing("UPDATE")?;
        let engine = block.engine().clone();
        let rows = engine.update_rows(block, &table, batch.column(0), &values)?;
        self.answer("UPDATE", &planned, &rows, &values, update.returning.as_ref(), parameters).await
    }

    pub(crate) async fn delete(&mut self, delete: &Delete, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        let planned = self.plan_delete(delete)?;
        let table = planned.table.clone();
        self.changing("DELETE")?.lock(table.id, false)?;
        if delete.using.is_none() && delete.returning.is_none() {
            let condition = delete.selection.as_ref();
            if let Some(answer) = self.quick_delete(&table, &planned.alias, condition, parameters)? {
                return Ok(answer);
            }
        }
        let (schema, batches) = self.collect(&planned.query, parameters).await?;
        let batch = target::joined(&schema, &batches)?;
        let block = self.changing("DELETE")?;
        let engine = block.engine().clone();
        let rows = engine.delete_rows(block, &table, batch.column(0))?;
        self.answer("DELETE", &planned, &rows, &batch.columns()[1..], delete.returning.as_ref(), parameters).await
    }

    #[expect(clippy::too_many_arguments, reason = "what two statements have in common, and no more")]
    async fn answer(
        &self,
        tag: &'static str,
        planned: &Planned,
        rows: &[usize],
        values: &[ArrayRef],
        returning: Option<&Vec<SelectItem>>,
        parameters: &[ScalarValue],
    ) -> Result<Answer, SqlError> {
        let batch = match returning {
            Some(_) => vec![target::picked(&planned.table, values, rows)?],
            None => Vec::new(),
        };
        let (table, alias) = (&*planned.table, planned.alias.as_str());
        let change = Changed { tag, table, alias, count: rows.len(), rows: batch, returning };
        self.changed(change, parameters).await
    }

    /// Types of an UPDATE's parameters, and the columns of RETURNING.
    pub(crate) async fn describe_update(
        &self,
        update: &Update,
    ) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
        let planned = self.plan_update(update)?;
        self.describe(planned, &update.returning).await
    }

    /// Types of a DELETE's parameters, and the columns of RETURNING.
    pub(crate) async fn describe_delete(
        &self,
        delete: &Delete,
    ) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
        let planned = self.plan_delete(delete)?;
        self.describe(planned, &delete.returning).await
    }

    async fn describe(
        &self,
        planned: Planned,
        returning: &Option<Vec<SelectItem>>,
    ) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
        let mut found = planned.parameters;
        self.parameters_of(&planned.query, &mut found).await?;
        let schema = self.describe_returning(returning, &planned.table, &planned.alias, &mut found).await?;
        Ok((found, schema))
    }
}
