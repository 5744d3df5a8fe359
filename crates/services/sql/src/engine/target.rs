//! The table that a statement changes, and the queries that a change is planned as.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{concat_batches, take_record_batch};
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::catalog::MemTable;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, ObjectName, Query, Select, SelectItem, SetExpr, Statement, TableWithJoins, UnaryOperator, Value,
};
use futures::{TryStreamExt, stream};

use super::control::folded;
use super::names::{DATABASE, MADE, TARGET};
use super::{Answer, Session, parse, titles};
use crate::SqlError;
use crate::table::catalog::PUBLIC;
use crate::table::{Catalog, Column, Entry, Table};

/// Schema and name of an object, folded.
pub(crate) fn resolve(name: &ObjectName) -> Result<(String, String), SqlError> {
    let parts: Option<Vec<String>> = name.0.iter().map(|part| part.as_ident().map(folded)).collect();
    match parts.as_deref() {
        Some([name]) => Ok((PUBLIC.into(), name.clone())),
        Some([schema, name]) => Ok((schema.clone(), name.clone())),
        Some([database, schema, name]) if database == DATABASE => Ok((schema.clone(), name.clone())),
        _ => Err(SqlError::unsupported(format!("the name {name}"))),
    }
}

/// The table of that name, which is to be changed. Errors: 42P01, 42809.
pub(crate) fn table(catalog: &Catalog, name: &ObjectName) -> Result<Arc<Table>, SqlError> {
    let (schema, name) = resolve(name)?;
    match catalog.get(&schema, &name) {
        Some(Entry::Table(table)) => Ok(table.clone()),
        Some(Entry::View(_)) => Err(SqlError::statement("42809", format!("\"{name}\" is a view"))
            .with_hint("Change the tables that the view reads.")),
        Some(Entry::Relation(_)) => Err(SqlError::statement("42809", format!("\"{name}\" is read-only"))),
        Some(Entry::External(_)) => {
            Err(SqlError::statement("42809", format!("\"{name}\" is an external table: its files are only read"))
                .with_hint("CREATE TABLE .. AS SELECT copies it into a table that can be changed."))
        }
        None => {
            let name = if schema == PUBLIC { name } else { format!("{schema}.{name}") };
            Err(SqlError::statement("42P01", format!("relation \"{name}\" does not exist")))
        }
    }
}

/// Parses text that the engine wrote itself.
pub(crate) fn parse(sql: &str) -> Result<Statement, SqlError> {
    parse::statements(sql)?.pop().ok_or_else(|| SqlError::statement("42601", "an empty statement"))
}

fn quoted(name: &str) -> Ident {
    Ident::with_quote('"', name)
}

/// `alias.column`.
pub(crate) fn column_of(alias: &str, column: &str) -> Expr {
    Expr::CompoundIdentifier(vec![quoted(alias), quoted(column)])
}

/// The table with its addresses, under a name, as the first entry of FROM.
pub(crate) fn addressed(table: &Table, alias: &str) -> Result<TableWithJoins, SqlError> {
    let schema = quoted(&format!("{TARGET}{}", table.schema_name));
    from(&format!("{schema}.{} AS {}", quoted(&table.name), quoted(alias)))
}

/// Batches of the engine's own, under a name.
pub(crate) fn made(name: &str, alias: &str) -> Result<TableWithJoins, SqlError> {
    from(&format!("{}.{} AS {}", quoted(MADE), quoted(name), quoted(alias)))
}

fn from(text: &str) -> Result<TableWithJoins, SqlError> {
    let Statement::Query(query) = parse(&format!("SELECT 1 FROM {text}"))? else {
        unreachable!("it begins with SELECT")
    };
    match *query.body {
        SetExpr::Select(mut select) => select.from.pop().ok_or_else(|| SqlError::statement("42601", "an empty FROM")),
        _ => unreachable!("it begins with SELECT"),
    }
}

/// A query of parts.
pub(crate) fn select(
    projection: Vec<SelectItem>,
    from: Vec<TableWithJoins>,
    selection: Option<Expr>,
) -> Result<Statement, SqlError> {
    let Statement::Query(mut query) = parse("SELECT 1")? else { unreachable!("it begins with SELECT") };
    if let SetExpr::Select(select) = query.body.as_mut() {
        let select: &mut Select = select;
        select.projection = projection;
        select.from = from;
        select.selection = selection;
    }
    Ok(Statement::Query(query))
}

/// An expression under a name.
pub(crate) fn named(expr: Expr, name: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: quoted(name) }
}

/// Whether an expression's type is open, as that of a quoted literal is: it takes the type that is needed.
pub(crate) fn is_open(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(
            value.value,
            Value::SingleQuotedString(_)
                | Value::EscapedStringLiteral(_)
                | Value::DollarQuotedString(_)
                | Value::Placeholder(_)
                | Value::Null
        ),
        Expr::Nested(inner) => is_open(inner),
        _ => false,
    }
}

/// Whether an expression is the word DEFAULT.
pub(crate) fn is_default(expr: &Expr) -> bool {
    match expr {
        Expr::Identifier(ident) => ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"),
        _ => false,
    }
}

/// The expression of a column's default: NULL if it has none.
pub(crate) fn default_of(column: &Column) -> Result<Expr, SqlError> {
    match &column.default {
        Some(text) => parse::expression(text),
        None => Ok(Expr::Value(Value::Null.into())),
    }
}

/// A literal or parameter, as it stands in VALUES or in a condition.
#[derive(Clone, Debug)]
pub(crate) enum Literal {
    /// NULL.
    Null,
    /// Text in quotes: of any type.
    Text(String),
    /// A number, as it was written.
    Number(String),
    /// TRUE or FALSE.
    Boolean(bool),
    /// The value of a parameter.
    Parameter(ScalarValue),
}

/// Reads a literal or parameter; `None` for any other expression. Errors: 42P02 for a parameter without a value.
pub(crate) fn literal(expr: &Expr, parameters: &[ScalarValue]) -> Result<Option<Literal>, SqlError> {
    Ok(match expr {
        Expr::Nested(inner) => literal(inner, parameters)?,
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => match literal(expr, parameters)? {
            Some(Literal::Number(text)) if !text.starts_with('-') => Some(Literal::Number(format!("-{text}"))),
            _ => None,
        },
        Expr::Value(value) => match &value.value {
            Value::Null => Some(Literal::Null),
            Value::Boolean(value) => Some(Literal::Boolean(*value)),
            Value::Number(text, _) => Some(Literal::Number(text.clone())),
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(Literal::Text(text.clone())),
            Value::Placeholder(name) => Some(Literal::Parameter(parameter(name, parameters)?)),
            _ => None,
        },
        _ => None,
    })
}

/// The number of a parameter, counted from 0.
pub(crate) fn parameter_number(name: &str) -> Result<usize, SqlError> {
    let number = name.strip_prefix('$').and_then(|text| text.parse::<usize>().ok());
    number
        .and_then(|number| number.checked_sub(1))
        .ok_or_else(|| SqlError::statement("42P02", format!("there is no parameter {name}")))
}

fn parameter(name: &str, parameters: &[ScalarValue]) -> Result<ScalarValue, SqlError> {
    let value = parameters.get(parameter_number(name)?);
    value.cloned().ok_or_else(|| SqlError::statement("42P02", format!("there is no parameter {name}")))
}

impl Session {
    /// Runs a query of the engine's own to its end.
    pub(crate) async fn collect(
        &self,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<(SchemaRef, Vec<RecordBatch>), SqlError> {
        let plan = self.plan(statement).await?;
        let stream = self.run(plan, parameters).await?;
        let schema = stream.schema();
        Ok((schema, stream.try_collect().await?))
    }

    /// The rows of RETURNING, made from whole rows of a table.
    pub(crate) async fn returning(
        &self,
        items: &[SelectItem],
        table: &Table,
        alias: &str,
        rows: Vec<RecordBatch>,
        parameters: &[ScalarValue],
    ) -> Result<(SchemaRef, SendableRecordBatchStream), SqlError> {
        self.shared.make("returning", Some(MemTable::try_new(table.schema.clone(), vec![rows])?));
        let query = select(items.to_vec(), vec![made("returning", alias)?], None);
        let outcome = match &query {
            Ok(query) => self.collect(query, parameters).await,
            Err(error) => Err(error.clone()),
        };
        self.shared.make("returning", None);
        let (schema, batches) = outcome?;
        let titled = titles::under(items, &schema);
        let stream = stream::iter(batches.into_iter().map(Ok));
        let stream = Box::pin(RecordBatchStreamAdapter::new(schema, stream));
        Ok((titled.clone(), titles::entitle(stream, titled)))
    }

    /// The columns of RETURNING; adds the types of parameters in it that are not known yet.
    pub(crate) async fn describe_returning(
        &self,
        items: &Option<Vec<SelectItem>>,
        table: &Table,
        alias: &str,
        found: &mut Vec<Option<DataType>>,
    ) -> Result<Option<SchemaRef>, SqlError> {
        let Some(items) = items else { return Ok(None) };
        let query = select(items.clone(), vec![made("returning", alias)?], None)?;
        self.shared.make("returning", Some(MemTable::try_new(table.schema.clone(), vec![Vec::new()])?));
        let planned = self.plan_with(&query, found).await;
        self.shared.make("returning", None);
        let (plan, parameters) = planned?;
        add_types(found, parameters);
        Ok(Some(titles::under(items, &self.columns(&plan))))
    }

    /// The answer to a change of rows: how many, or what RETURNING asks for.
    pub(crate) async fn changed(&self, change: Changed<'_>, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        let Some(items) = change.returning else {
            return Ok(Answer::Done { tag: format!("{} {}", change.tag, change.count) });
        };
        let (schema, stream) = self.returning(items, change.table, change.alias, change.rows, parameters).await?;
        Ok(Answer::Rows { schema, stream, tag: change.tag })
    }
}

/// Adds types of parameters where none are known yet.
pub(crate) fn add_types(found: &mut Vec<Option<DataType>>, others: Vec<Option<DataType>>) {
    found.resize(found.len().max(others.len()), None);
    for (known, other) in found.iter_mut().zip(others) {
        *known = known.take().or(other);
    }
}

/// What a statement changed.
pub(crate) struct Changed<'a> {
    pub(crate) tag: &'static str,
    pub(crate) table: &'a Table,
    pub(crate) alias: &'a str,
    pub(crate) count: usize,
    pub(crate) rows: Vec<RecordBatch>,
    pub(crate) returning: Option<&'a Vec<SelectItem>>,
}

/// Whole rows as one batch, those at the positions.
pub(crate) fn picked(table: &Table, columns: &[ArrayRef], rows: &[usize]) -> Result<RecordBatch, SqlError> {
    let batch = RecordBatch::try_new(table.schema.clone(), columns.to_vec())?;
    if rows.len() == batch.num_rows() {
        return Ok(batch);
    }
    let rows = datafusion::arrow::array::UInt64Array::from_iter_values(rows.iter().map(|row| *row as u64));
    Ok(take_record_batch(&batch, &rows)?)
}

/// All batches as one.
pub(crate) fn joined(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<RecordBatch, SqlError> {
    Ok(concat_batches(schema, batches)?)
}

/// The body of a query if it is VALUES and nothing else.
pub(crate) fn plain_values(query: &Query) -> Option<&[datafusion::sql::sqlparser::ast::Parens<Vec<Expr>>]> {
    let plain =
        query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    match query.body.as_ref() {
        SetExpr::Values(values) if plain => Some(&values.rows),
        _ => None,
    }
}
