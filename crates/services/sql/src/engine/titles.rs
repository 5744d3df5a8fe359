//! Titles: what the columns of an answer are called.
//!
//! A column without a name is called what PostgreSQL calls it: `SELECT a + 1, count(*), 1::int` has the columns
//! `?column?`, `count` and `int4`. Several columns of an answer may have one title.
//!
//! DataFusion names them after their expressions, and wants the names within one query to differ. So a query that it
//! refuses for that is planned once more with names made up where titles meet; and over every answer stand the titles.
//! Only the answer is changed: inside of a query, as in `SELECT * FROM (SELECT 1, 1)`, names still have to differ.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{DataType, Expr, Query, Select, SelectItem, SetExpr, Statement};
use futures::StreamExt;

use super::control::folded;
use super::target;
use crate::SqlError;
use crate::table::SqlType;

/// What is called nothing else.
const UNNAMED: &str = "?column?";

/// Whether a statement was refused because two of its columns have one name.
pub(super) fn are_alike(error: &SqlError) -> bool {
    error.code() == "42701" || error.to_string().contains("require unique expression names")
}

/// The same query with names made up for columns whose titles meet; `None` where there are none.
pub(super) fn apart(statement: &Statement) -> Option<Statement> {
    let mut statement = statement.clone();
    let Statement::Query(query) = &mut statement else { return None };
    let items = &mut outer_mut(query)?.projection;
    // What a star stands for is not known here: everything beside it may meet it.
    let beside_star = items.iter().any(|item| title(item).is_none());
    let mut titles = HashSet::new();
    let mut any = false;
    for (nth, item) in items.iter_mut().enumerate() {
        let Some(title) = title(item) else { continue };
        let meets = !titles.insert(title);
        let expr = match item {
            SelectItem::UnnamedExpr(expr) if meets || beside_star || !is_column(expr) => expr.clone(),
            SelectItem::ExprWithAlias { expr, .. } if meets => expr.clone(),
            _ => continue,
        };
        *item = target::named(expr, &format!("${nth}"));
        any = true;
    }
    any.then_some(statement)
}

/// Whether it is the name of a column. Of all others DataFusion may take two for one that have titles of their own here: to it
/// `$1::int` and `$1::text` are both called `$1`.
fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// The columns of a statement's answer under their titles.
pub(super) fn titled(statement: &Statement, schema: &SchemaRef) -> SchemaRef {
    match statement {
        Statement::Query(query) => {
            outer(query).map_or_else(|| schema.clone(), |select| under(&select.projection, schema))
        }
        _ => schema.clone(),
    }
}

/// The columns that the items of a SELECT or RETURNING become, under their titles.
pub(super) fn under(items: &[SelectItem], schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields();
    let titles: Vec<Option<String>> = items.iter().map(title).collect();
    let mut names: Vec<Option<String>> = vec![None; fields.len()];
    let before = titles.iter().take_while(|title| title.is_some()).count();
    let after = titles.iter().rev().take_while(|title| title.is_some()).count();
    // The columns that a star stands for have their own names; what is before it and behind it is counted from there.
    if before == titles.len() && titles.len() != fields.len() || before + after > fields.len() && before < titles.len()
    {
        return schema.clone();
    }
    for (name, title) in names.iter_mut().zip(&titles[..before]) {
        *name = title.clone();
    }
    if before < titles.len() {
        for (name, title) in names.iter_mut().rev().zip(titles.iter().rev().take(after)) {
            *name = title.clone();
        }
    }
    if fields.iter().zip(&names).all(|(field, name)| name.as_ref().is_none_or(|name| name == field.name())) {
        return schema.clone();
    }
    let renamed = fields.iter().zip(names).map(|(field, name)| match name {
        Some(name) => Arc::new(Field::clone(field).with_name(name)),
        None => field.clone(),
    });
    Arc::new(Schema::new_with_metadata(renamed.collect::<Vec<_>>(), schema.metadata().clone()))
}

/// The same rows with their columns called as in `schema`.
pub(super) fn entitle(stream: SendableRecordBatchStream, schema: SchemaRef) -> SendableRecordBatchStream {
    if stream.schema() == schema {
        return stream;
    }
    let renamed = schema.clone();
    let batches = stream.map(move |batch| Ok(rename(batch?, &renamed)?));
    Box::pin(RecordBatchStreamAdapter::new(schema, batches))
}

fn rename(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch, SqlError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), batch.columns().to_vec(), &options)?)
}

/// The SELECT whose items are a query's columns.
fn outer(query: &Query) -> Option<&Select> {
    let mut body = query.body.as_ref();
    loop {
        match body {
            SetExpr::Select(select) => return Some(select),
            SetExpr::Query(inner) => body = inner.body.as_ref(),
            SetExpr::SetOperation { left, .. } => body = left.as_ref(),
            _ => return None,
        }
    }
}

/// The same, to be changed: not of UNION and its like, whose parts go by position.
pub(crate) fn outer_mut(query: &mut Query) -> Option<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(inner) => outer_mut(inner),
        _ => None,
    }
}

/// What an item's column is called; `None` for a star.
pub(crate) fn title(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(name(expr).unwrap_or_else(|| UNNAMED.into())),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

/// What PostgreSQL calls the column of an expression, if it has a name for it.
fn name(expr: &Expr) -> Option<String> {
    let fixed = match expr {
        Expr::Identifier(ident) => return Some(folded(ident)),
        Expr::CompoundIdentifier(parts) => return parts.last().map(folded),
        Expr::Function(function) => return function.name.0.last()?.as_ident().map(folded),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => return name(inner),
        Expr::Cast { expr, data_type, .. } => return name(expr).or_else(|| short(data_type)),
        Expr::TypedString(typed) => return short(&typed.data_type),
        Expr::Subquery(query) => return title(outer(query)?.projection.first()?),
        Expr::Case { else_result, .. } => {
            let column = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
            match else_result.as_deref().filter(|expr| column(expr)) {
                Some(expr) => return name(expr),
                None => "case",
            }
        }
        Expr::Exists { .. } => "exists",
        Expr::Array(_) => "array",
        Expr::Extract { .. } => "extract",
        Expr::Substring { .. } => "substring",
        Expr::Position { .. } => "position",
        Expr::Trim { .. } => "btrim",
        Expr::Overlay { .. } => "overlay",
        Expr::Ceil { .. } => "ceil",
        Expr::Floor { .. } => "floor",
        Expr::AtTimeZone { .. } => "timezone",
        Expr::Interval(_) => "interval",
        _ => return None,
    };
    Some(fixed.into())
}

/// PostgreSQL's own short name of a type.
fn short(kind: &DataType) -> Option<String> {
    let Ok(kind) = SqlType::from_ast(kind) else { return other(kind) };
    let name = match kind {
        SqlType::Boolean => "bool",
        SqlType::SmallInt => "int2",
        SqlType::Integer => "int4",
        SqlType::BigInt => "int8",
        SqlType::Real => "float4",
        SqlType::Double => "float8",
        SqlType::Numeric(..) => "numeric",
        SqlType::Text => "text",
        SqlType::Varchar(_) => "varchar",
        SqlType::Char(_) => "bpchar",
        SqlType::Json => "json",
        SqlType::Bytea => "bytea",
        SqlType::Date => "date",
        SqlType::Time => "time",
        SqlType::Timestamp => "timestamp",
        SqlType::TimestampTz => "timestamptz",
        SqlType::Interval => "interval",
    };
    Some(name.into())
}

/// The name of a type that no column can have, such as `regclass`.
fn other(kind: &DataType) -> Option<String> {
    match kind {
        DataType::Regclass => Some("regclass".into()),
        DataType::Custom(name, _) => name.0.last()?.as_ident().map(folded),
        _ => None,
    }
}
