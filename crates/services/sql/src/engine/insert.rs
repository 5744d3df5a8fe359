//! INSERT.
//!
//! VALUES of literals and parameters become columns here, without DataFusion. Everything else is a query of DataFusion's. Its
//! rows are written as they come where it reads a snapshot that does not see them; in a transaction that has changed
//! something it is run to its end first, so that a table can be inserted into itself.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    ConflictTarget, DoUpdate, Expr, Insert, OnConflict, OnConflictAction, OnInsert, Query, SelectItem, SetExpr,
    Statement, TableObject, Value,
};
use futures::{TryStreamExt, stream};

use super::apply::Existing;
use super::assign::assign;
use super::block::Block;
use super::bulk::Bulk;
use super::control::folded;
use super::target::{self, Changed, Literal};
use super::{Answer, Session};
use crate::SqlError;
use crate::table::scan::Reads;
use crate::table::{Column, SqlType, Table, View};

/// An INSERT whose names are resolved.
pub(super) struct Into<'a> {
    pub(super) table: Arc<Table>,
    pub(super) alias: String,
    /// For each value of a row, its column.
    columns: Vec<usize>,
    source: Option<&'a Query>,
}

/// What happens to a row whose primary key is there.
enum Conflict<'a> {
    Existing(Existing),
    /// The row that is there is changed.
    Update(&'a DoUpdate),
}

/// The table that an INSERT names.
fn name(insert: &Insert) -> Result<&datafusion::sql::sqlparser::ast::ObjectName, SqlError> {
    let odd = insert.overwrite
        || insert.or.is_some()
        || insert.ignore
        || insert.replace_into
        || !insert.assignments.is_empty()
        || insert.partitioned.is_some()
        || insert.output.is_some();
    match &insert.table {
        TableObject::TableName(name) if !odd => Ok(name),
        _ => Err(SqlError::unsupported(format!("\"{insert}\""))),
    }
}

impl Session {
    fn resolve_insert<'a>(&self, insert: &'a Insert) -> Result<Into<'a>, SqlError> {
        let table = target::table(&self.shared.catalog(), name(insert)?)?;
        let mut columns = Vec::new();
        for name in &insert.columns {
            let name = match name.0.as_slice() {
                [part] => part.as_ident().map(folded).unwrap_or_default(),
                _ => return Err(SqlError::unsupported(format!("the column name {name}"))),
            };
            let at = column_position(&table, &name)?;
            if columns.contains(&at) {
                return Err(SqlError::statement("42701", format!("column \"{name}\" specified more than once")));
            }
            columns.push(at);
        }
        if columns.is_empty() {
            columns = (0..table.columns.len()).collect();
        }
        let alias = insert.table_alias.as_ref().map_or_else(|| table.name.clone(), |alias| folded(&alias.alias));
        Ok(Into { table, alias, columns, source: insert.source.as_deref() })
    }

    pub(crate) async fn insert(&mut self, insert: &Insert, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        let into = self.resolve_insert(insert)?;
        self.changing("INSERT")?.lock(into.table.id, false)?;
        let conflict = conflict(&into.table, insert.on.as_ref())?;
        if let (Conflict::Existing(Existing::Refuse), None, Some(source)) = (&conflict, &insert.returning, into.source)
            && target::plain_values(source).is_none()
        {
            let rows = self.insert_query(&into, source, parameters).await?;
            return Ok(Answer::Done { tag: format!("INSERT 0 {rows}") });
        }
        let columns = self.source_columns(&into, parameters).await?;
        let existing = match conflict {
            Conflict::Existing(existing) => existing,
            Conflict::Update(update) => {
                return self.upsert(&into, columns, update, insert.returning.as_ref(), parameters).await;
            }
        };
        let block = self.open_block()?;
        let rows = self.engine.insert_rows(block, &into.table, &columns, existing)?;
        let batch = match &insert.returning {
            Some(_) => vec![target::picked(&into.table, &columns, &rows)?],
            None => Vec::new(),
        };
        let change = Changed {
            tag: "INSERT 0",
            table: &into.table,
            alias: &into.alias,
            count: rows.len(),
            rows: batch,
            returning: insert.returning.as_ref(),
        };
        self.changed(change, parameters).await
    }

    fn open_block(&self) -> Result<&Block, SqlError> {
        self.block.as_ref().ok_or_else(|| SqlError::transaction("25P01", "there is no transaction in progress"))
    }

    /// Inserts what a query gives.
    async fn insert_query(&self, into: &Into<'_>, source: &Query, parameters: &[ScalarValue]) -> Result<u64, SqlError> {
        let query = Statement::Query(Box::new(with_defaults(into, source)?));
        let plan = self.plan(&query).await?;
        let mut stream = self.run(plan, parameters).await?;
        let width = stream.schema().fields().len();
        check_width(into, width)?;
        let given = &into.columns[..width];
        let open = open_columns(source, width);
        let defaults = self.defaults(&into.table, given).await?;
        if matches!(self.shared.view(), View::Transaction(_)) {
            let schema = stream.schema();
            let all: Vec<RecordBatch> = stream.try_collect().await?;
            stream = Box::pin(RecordBatchStreamAdapter::new(schema, stream::iter(all.into_iter().map(Ok))));
        }
        let block = self.open_block()?;
        let mut bulk = Bulk::new(&self.engine, &into.table);
        while let Some(batch) = stream.try_next().await? {
            let values = batch.columns().iter().zip(given).zip(&open);
            let values = values.map(|((array, at), open)| assign(array, &into.table.columns[*at], *open));
            let values: Vec<ArrayRef> = values.collect::<Result<_, _>>()?;
            bulk.push(block, defaults.whole(&into.table, given, values, batch.num_rows())?)?;
        }
        bulk.finish(block)
    }

    /// The rows to insert: all columns of the table, in its types.
    async fn source_columns(&self, into: &Into<'_>, parameters: &[ScalarValue]) -> Result<Vec<ArrayRef>, SqlError> {
        let Some(source) = into.source else {
            return self.complete(&into.table, &[], Vec::new(), 1).await;
        };
        if let Some(rows) = target::plain_values(source) {
            let rows: Vec<&[Expr]> = rows.iter().map(|row| row.content.as_slice()).collect();
            check_width(into, rows.iter().map(|row| row.len()).max().unwrap_or(0))?;
            if let Some(values) = literals(into, &rows, parameters)? {
                return self.complete(&into.table, &into.columns[..values.len()], values, rows.len()).await;
            }
        }
        let query = Statement::Query(Box::new(with_defaults(into, source)?));
        let (schema, batches) = self.collect(&query, parameters).await?;
        check_width(into, schema.fields().len())?;
        let batch = target::joined(&schema, &batches)?;
        let open = open_columns(source, schema.fields().len());
        let values = batch.columns().iter().zip(&into.columns).zip(open);
        let values = values.map(|((array, at), open)| assign(array, &into.table.columns[*at], open));
        let values: Vec<ArrayRef> = values.collect::<Result<_, _>>()?;
        self.complete(&into.table, &into.columns[..values.len()], values, batch.num_rows()).await
    }

    /// Adds the columns that are not given: defaults, or NULL.
    async fn complete(
        &self,
        table: &Table,
        given: &[usize],
        values: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<Vec<ArrayRef>, SqlError> {
        self.defaults(table, given).await?.whole(table, given, values, rows)
    }

    /// Types of an INSERT's parameters, and the columns of RETURNING.
    pub(crate) async fn describe_insert(
        &self,
        insert: &Insert,
    ) -> Result<(Vec<Option<DataType>>, Option<SchemaRef>), SqlError> {
        let into = self.resolve_insert(insert)?;
        let mut found = Vec::new();
        if let Some(source) = into.source {
            match target::plain_values(source) {
                Some(rows) => {
                    let mut others = false;
                    for row in rows {
                        check_width(&into, row.content.len())?;
                        for (expr, at) in row.content.iter().zip(&into.columns) {
                            match placeholder(expr) {
                                Some(name) => note(&mut found, name, into.table.columns[*at].kind.arrow())?,
                                None => others |= !target::is_default(expr) && target::literal(expr, &[])?.is_none(),
                            }
                        }
                    }
                    if others {
                        self.parameters_of(&Statement::Query(Box::new(with_defaults(&into, source)?)), &mut found)
                            .await?;
                    }
                }
                None => {
                    let query = Statement::Query(Box::new(with_defaults(&into, source)?));
                    self.parameters_of(&query, &mut found).await?;
                }
            }
        }
        if let Conflict::Update(update) = conflict(&into.table, insert.on.as_ref())? {
            self.upsert_parameters(&into, update, &mut found).await?;
        }
        let schema = self.describe_returning(&insert.returning, &into.table, &into.alias, &mut found).await?;
        Ok((found, schema))
    }

    /// Adds the types of parameters that a plan knows and that are not known yet.
    pub(crate) async fn parameters_of(
        &self,
        statement: &Statement,
        found: &mut Vec<Option<DataType>>,
    ) -> Result<(), SqlError> {
        let (_, kinds) = self.plan_with(statement, found).await?;
        target::add_types(found, kinds);
        Ok(())
    }
}

/// Notes the type of a parameter.
pub(crate) fn note(found: &mut Vec<Option<DataType>>, name: &str, kind: DataType) -> Result<(), SqlError> {
    let at = target::parameter_number(name)?;
    found.resize(found.len().max(at + 1), None);
    found[at].get_or_insert(kind);
    Ok(())
}

/// The parameter that an expression is.
pub(crate) fn placeholder(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name),
            _ => None,
        },
        Expr::Nested(inner) => placeholder(inner),
        _ => None,
    }
}

/// Position of a column. Errors: 42703.
pub(crate) fn column_position(table: &Table, name: &str) -> Result<usize, SqlError> {
    table.position(name).ok_or_else(|| {
        SqlError::statement("42703", format!("column \"{name}\" of relation \"{}\" does not exist", table.name))
    })
}

fn check_width(into: &Into<'_>, values: usize) -> Result<(), SqlError> {
    if values > into.columns.len() {
        return Err(SqlError::statement("42601", "INSERT has more expressions than target columns"));
    }
    // A list of columns must be met; without one the last columns may be left out.
    if values < into.columns.len() && into.columns.len() != into.table.columns.len() {
        return Err(SqlError::statement("42601", "INSERT has more target columns than expressions"));
    }
    Ok(())
}

/// What ON CONFLICT says. Errors: 0A000, 42P10, 42601 for DO UPDATE without a key.
fn conflict<'a>(table: &Table, on: Option<&'a OnInsert>) -> Result<Conflict<'a>, SqlError> {
    let (target, action) = match on {
        None => return Ok(Conflict::Existing(Existing::Refuse)),
        Some(OnInsert::OnConflict(OnConflict { conflict_target, action })) => (conflict_target, action),
        Some(_) => return Err(SqlError::unsupported("ON DUPLICATE KEY UPDATE")),
    };
    let matches = match target {
        None => true,
        Some(ConflictTarget::Columns(names)) => {
            let names: Vec<String> = names.iter().map(folded).collect();
            let mut columns = names.iter().map(|name| column_position(table, name)).collect::<Result<Vec<_>, _>>()?;
            let mut key = table.key.clone();
            columns.sort_unstable();
            key.sort_unstable();
            columns == key && !key.is_empty()
        }
        Some(ConflictTarget::OnConstraint(name)) => target::resolve(name)?.1 == table.key_name && !table.key.is_empty(),
    };
    if !matches {
        return Err(SqlError::statement(
            "42P10",
            "there is no unique or exclusion constraint matching the ON CONFLICT specification",
        ));
    }
    match action {
        OnConflictAction::DoNothing => Ok(Conflict::Existing(Existing::Skip)),
        OnConflictAction::DoUpdate(_) if target.is_none() => {
            let message = "ON CONFLICT DO UPDATE requires inference specification or constraint name";
            Err(SqlError::statement("42601", message).with_hint("For example, ON CONFLICT (column_name)."))
        }
        OnConflictAction::DoUpdate(update) => Ok(Conflict::Update(update)),
    }
}

/// Which columns of a query are literals and parameters, whose type is open.
fn open_columns(source: &Query, columns: usize) -> Vec<bool> {
    match source.body.as_ref() {
        SetExpr::Values(_) => vec![true; columns],
        SetExpr::Select(select) => {
            let open = |item: &SelectItem| match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => target::is_open(expr),
                _ => false,
            };
            // A star stands for several columns: then nothing can be said by position.
            match select.projection.len() == columns {
                true => select.projection.iter().map(open).collect(),
                false => vec![false; columns],
            }
        }
        _ => vec![false; columns],
    }
}

/// The query with DEFAULT in VALUES replaced.
fn with_defaults(into: &Into<'_>, source: &Query) -> Result<Query, SqlError> {
    let mut query = source.clone();
    if let SetExpr::Values(values) = query.body.as_mut() {
        for row in &mut values.rows {
            for (expr, at) in row.content.iter_mut().zip(&into.columns) {
                if target::is_default(expr) {
                    *expr = target::default_of(&into.table.columns[*at])?;
                }
            }
        }
    }
    // Only the order of the source's columns counts, and DataFusion wants their names to differ.
    if query.order_by.is_none()
        && let SetExpr::Select(select) = query.body.as_mut()
    {
        for (nth, item) in select.projection.iter_mut().enumerate() {
            if let SelectItem::UnnamedExpr(expr) = item {
                *item = target::named(expr.clone(), &format!("${nth}"));
            }
        }
    }
    Ok(query)
}

/// Whether a literal can be read as a column's type here; others are for DataFusion.
pub(crate) fn fits(literal: &Literal, kind: SqlType) -> bool {
    match literal {
        Literal::Null | Literal::Text(_) | Literal::Parameter(_) => true,
        Literal::Boolean(_) => kind == SqlType::Boolean,
        Literal::Number(text) => match kind {
            SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => text.parse::<i64>().is_ok(),
            SqlType::Real | SqlType::Double | SqlType::Numeric(..) => true,
            _ => false,
        },
    }
}

/// The columns of VALUES, if all are literals, parameters and literal defaults.
fn literals(into: &Into<'_>, rows: &[&[Expr]], parameters: &[ScalarValue]) -> Result<Option<Vec<ArrayRef>>, SqlError> {
    let width = rows.first().map_or(0, |row| row.len());
    if rows.iter().any(|row| row.len() != width) {
        return Err(SqlError::statement("42601", "VALUES lists must all be the same length"));
    }
    let mut columns = Vec::with_capacity(width);
    for (nth, at) in into.columns.iter().enumerate().take(width) {
        let column = &into.table.columns[*at];
        let mut values = Vec::with_capacity(rows.len());
        for row in rows {
            let default = if target::is_default(&row[nth]) { Some(target::default_of(column)?) } else { None };
            match target::literal(default.as_ref().unwrap_or(&row[nth]), parameters)? {
                Some(literal) if fits(&literal, column.kind) => values.push(literal),
                _ => return Ok(None),
            }
        }
        columns.push(cells(&values, column)?);
    }
    Ok(Some(columns))
}

/// One column of literals, in the column's type.
pub(crate) fn cells(literals: &[Literal], column: &Column) -> Result<ArrayRef, SqlError> {
    if literals.iter().any(|literal| matches!(literal, Literal::Parameter(_))) {
        let parts: Vec<ArrayRef> = literals.iter().map(|literal| cell(literal, column)).collect::<Result<_, _>>()?;
        let parts: Vec<&dyn datafusion::arrow::array::Array> = parts.iter().map(|part| part.as_ref()).collect();
        return Ok(concat(&parts)?);
    }
    let text = |literal: &Literal| match literal {
        Literal::Text(text) | Literal::Number(text) => Some(text.clone()),
        Literal::Boolean(value) => Some(value.to_string()),
        Literal::Null | Literal::Parameter(_) => None,
    };
    let texts: ArrayRef = Arc::new(literals.iter().map(text).collect::<StringArray>());
    assign(&texts, column, true)
}

fn cell(literal: &Literal, column: &Column) -> Result<ArrayRef, SqlError> {
    match literal {
        Literal::Parameter(value) => assign(&value.to_array()?, column, true),
        other => cells(std::slice::from_ref(other), column),
    }
}
