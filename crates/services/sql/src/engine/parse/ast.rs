//! Parts of statements: names as SQL folds them, literals, and queries that the engine builds itself.
//!
//! A query of the engine is parsed from the engine's own text and filled with expressions of a client's statement: no
//! text of a client is ever parsed twice.

use std::ops::ControlFlow;

use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    Expr, Ident, LimitClause, ObjectName, Query, Select, SelectItem, SetExpr, Statement, TableWithJoins, UnaryOperator,
    Value, visit_expressions,
};

use super::expressions::call;
use super::{expression, statements};
use crate::SqlError;
use crate::table::catalog::PUBLIC;
use crate::table::{Column, IdentityColumn, Table};

/// The one database of a node.
pub(crate) const DATABASE: &str = "terrace";
/// The tables with their addresses: the schema is `$target/` followed by the schema's own name.
pub(crate) const TARGET: &str = "$target/";
/// The engine's own batches.
pub(crate) const MADE: &str = "$made";
/// The function that the engine calls for identity columns; SQL cannot.
pub(crate) const IDENTITY_VALUE: &str = "identity_value";

/// An identifier as SQL folds it.
pub(crate) fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
}

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

/// Parses text that the engine wrote.
pub(crate) fn parse(sql: &str) -> Result<Statement, SqlError> {
    statements(sql)?.pop().ok_or_else(|| SqlError::statement("42601", "an empty statement"))
}

/// Parses an expression that the engine wrote.
pub(crate) fn expression_of(text: &str) -> Result<Expr, SqlError> {
    expression(text)
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

/// The engine's own batches, under a name.
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

/// A query made of its parts.
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

/// Lets a query return one row at most.
pub(crate) fn limit_to_one(statement: &mut Statement) {
    if let Statement::Query(query) = statement {
        let limit = Some(Expr::Value(Value::Number("1".into(), false).into()));
        query.limit_clause = Some(LimitClause::LimitOffset { limit, offset: None, limit_by: Vec::new() });
    }
}

/// An expression under a name.
pub(crate) fn named(expr: Expr, name: &str) -> SelectItem {
    SelectItem::ExprWithAlias { expr, alias: quoted(name) }
}

/// Whether an expression's type is open, like that of a quoted literal: it takes the type that is needed.
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
    if let Some(IdentityColumn { schema, sequence, .. }) = &column.identity {
        let name = format!("{}.{}", quoted(schema), quoted(sequence));
        return Ok(call(IDENTITY_VALUE, vec![Expr::Value(Value::SingleQuotedString(name).into())]));
    }
    match &column.default {
        Some(text) => expression(text).and_then(|default| no_subquery(&default).map(|()| default)),
        None => Ok(Expr::Value(Value::Null.into())),
    }
}

/// A default is evaluated for who inserts, with its rights: the table's owner must not read by them.
///
/// Errors: 0A000 for a default with a query.
pub(crate) fn no_subquery(default: &Expr) -> Result<(), SqlError> {
    let is_query = |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    match visit_expressions(default, is_query) {
        ControlFlow::Break(()) => Err(SqlError::unsupported("a query in DEFAULT")),
        ControlFlow::Continue(()) => Ok(()),
    }
}

/// A literal or parameter, as it occurs in VALUES or in a condition.
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

/// The index of a parameter, counted from 0.
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

/// The body of a query if it is VALUES and nothing else.
pub(crate) fn plain_values(query: &Query) -> Option<&[datafusion::sql::sqlparser::ast::Parens<Vec<Expr>>]> {
    let plain =
        query.with.is_none() && query.order_by.is_none() && query.limit_clause.is_none() && query.fetch.is_none();
    match query.body.as_ref() {
        SetExpr::Values(values) if plain => Some(&values.rows),
        _ => None,
    }
}
