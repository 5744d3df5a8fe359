//! Column labels: the names of the columns of a result.
//!
//! A column without a name gets PostgreSQL's label: `SELECT a + 1, count(*), 1::int` has the columns `?column?`,
//! `count` and `int4`. Several columns of a result may have the same label.
//!
//! DataFusion names columns after their expressions, and requires different names within one query. If it refuses a
//! query for that reason, the query is planned again with generated names in place of equal labels; then every result
//! is relabelled. Only the result is changed: inside a query, as in `SELECT * FROM (SELECT 1, 1)`, names still have to
//! differ.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, DataType, Expr, OrderBy, OrderByKind, Query, Select, SelectItem, SetExpr, Statement,
    Value, Visit, VisitMut, Visitor, VisitorMut,
};
use futures::StreamExt;

use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::folded;
use crate::table::SqlType;

/// The label of an expression without another one.
const UNNAMED: &str = "?column?";

/// Whether a statement was refused because two of its columns have the same name.
pub(crate) fn is_name_clash(error: &SqlError) -> bool {
    error.code() == "42701" || error.to_string().contains("require unique expression names")
}

/// The same query with generated names for columns with equal labels; `None` if there are none.
pub(crate) fn with_distinct_names(statement: &Statement) -> Option<Statement> {
    let mut statement = statement.clone();
    let Statement::Query(query) = &mut statement else { return None };
    let items = &mut outer_mut(query)?.projection;
    // The columns of a star are not known here: any column beside it may have the same label as one of them.
    let beside_star = items.iter().any(|item| label(item).is_none());
    let mut labels = HashSet::new();
    let mut any = false;
    for (nth, item) in items.iter_mut().enumerate() {
        let Some(label) = label(item) else { continue };
        let meets = !labels.insert(label);
        let expr = match item {
            SelectItem::UnnamedExpr(expr) if meets || beside_star || !is_column(expr) => expr.clone(),
            SelectItem::ExprWithAlias { expr, .. } if meets => expr.clone(),
            _ => continue,
        };
        *item = ast::named(expr, &format!("${nth}"));
        any = true;
    }
    any.then_some(statement)
}

/// Whether the expression is the name of a column. DataFusion may treat other expressions as equal although their
/// labels differ: for DataFusion `$1::int` and `$1::text` both have the name `$1`.
fn is_column(expr: &Expr) -> bool {
    matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_))
}

/// The columns of a statement's result under their labels.
pub(crate) fn labelled(statement: &Statement, schema: &SchemaRef) -> SchemaRef {
    match statement {
        Statement::Query(query) => {
            outer(query).map_or_else(|| schema.clone(), |select| labelled_items(&select.projection, schema))
        }
        _ => schema.clone(),
    }
}

/// The columns that the items of a SELECT or RETURNING become, under their labels.
pub(crate) fn labelled_items(items: &[SelectItem], schema: &SchemaRef) -> SchemaRef {
    let fields = schema.fields();
    let labels: Vec<Option<String>> = items.iter().map(label).collect();
    let mut names: Vec<Option<String>> = vec![None; fields.len()];
    let before = labels.iter().take_while(|label| label.is_some()).count();
    let after = labels.iter().rev().take_while(|label| label.is_some()).count();
    // The columns of a star have their own names; the items before and behind it are counted from the ends.
    if before == labels.len() && labels.len() != fields.len() || before + after > fields.len() && before < labels.len()
    {
        return schema.clone();
    }
    for (name, label) in names.iter_mut().zip(&labels[..before]) {
        *name = label.clone();
    }
    if before < labels.len() {
        for (name, label) in names.iter_mut().rev().zip(labels.iter().rev().take(after)) {
            *name = label.clone();
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

/// The same rows, with the column names of `schema`.
pub(crate) fn relabel(stream: SendableRecordBatchStream, schema: SchemaRef) -> SendableRecordBatchStream {
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

/// The same, mutable. Not for UNION and similar queries, whose parts are matched by position.
pub(crate) fn outer_mut(query: &mut Query) -> Option<&mut Select> {
    match query.body.as_mut() {
        SetExpr::Select(select) => Some(select),
        SetExpr::Query(inner) => outer_mut(inner),
        _ => None,
    }
}

/// A name in ORDER BY is that of a result's column before it is one of a table: `SELECT id::text .. ORDER BY id` sorts texts. The planner
/// knows only names that are given by AS, so that others become positions. In an expression a name is that of a table's column alone, where
/// the planner takes those of AS first: `SELECT -id AS id .. ORDER BY id + 0`.
///
/// Errors: 42702 for a name of two columns; 0A000 for one in an expression that is also a name by AS, in a subquery.
pub(crate) fn order_by_labels(statement: &mut Statement) -> Result<(), SqlError> {
    if let Statement::Query(query) = statement {
        show_hidden(query);
    }
    match statement.visit(&mut Positions) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Positions;

impl VisitorMut for Positions {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let Query { body, order_by, .. } = query;
        let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(keys), .. })) =
            (body.as_ref(), order_by)
        else {
            return ControlFlow::Continue(());
        };
        for key in keys {
            match place(&select.projection, &key.expr) {
                Ok(None) => {}
                Ok(Some(place)) => key.expr = Expr::Value(Value::Number(place.to_string(), false).into()),
                Err(error) => return ControlFlow::Break(Box::new(error)),
            }
        }
        ControlFlow::Continue(())
    }
}

/// Gives other names to the items of the outermost query that hide a name from an expression of its ORDER BY. Its labels come from the
/// statement as it was written.
fn show_hidden(query: &mut Query) {
    let Query { body, order_by, .. } = query;
    let (SetExpr::Select(select), Some(OrderBy { kind: OrderByKind::Expressions(keys), .. })) =
        (body.as_mut(), order_by)
    else {
        return;
    };
    let items = &mut select.projection;
    let is_hidden = |key: &Expr| {
        !matches!(without_brackets(key), Expr::Identifier(_))
            && key.visit(&mut Hidden { items: &*items, inside: 0 }).is_break()
    };
    if !keys.iter().any(|key| is_hidden(&key.expr)) || items.iter().any(|item| label(item).is_none()) {
        return;
    }
    for key in keys {
        let Expr::Identifier(name) = without_brackets(&key.expr) else { continue };
        let name = folded(name);
        if is_ambiguous(items, &name) {
            // It is refused later.
            return;
        }
        if let Some(at) = items.iter().position(|item| hides(item, &name)) {
            key.expr = Expr::Value(Value::Number((at + 1).to_string(), false).into());
        }
    }
    for (nth, item) in items.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { expr, alias } = &*item else { continue };
        if hides(item, &folded(alias)) {
            *item = ast::named(expr.clone(), &format!("${nth}"));
        }
    }
}

/// The position among the items that a key of ORDER BY stands for; `None` for a key that the planner understands.
fn place(items: &[SelectItem], key: &Expr) -> Result<Option<usize>, SqlError> {
    let key = without_brackets(key);
    if let Expr::Identifier(name) = key {
        let name = folded(name);
        return match is_ambiguous(items, &name) {
            true => Err(SqlError::statement("42702", format!("ORDER BY \"{name}\" is ambiguous"))),
            false => Ok(position(items, &name)),
        };
    }
    let ControlFlow::Break(name) = key.visit(&mut Hidden { items, inside: 0 }) else { return Ok(None) };
    // The key may be what an item is, whatever its names stand for there.
    let is_same =
        |item: &SelectItem| matches!(item, SelectItem::ExprWithAlias { expr, .. } if without_brackets(expr) == key);
    match items.iter().position(is_same).filter(|_| items.iter().all(|item| label(item).is_some())) {
        Some(at) => Ok(Some(at + 1)),
        None => {
            let error = SqlError::unsupported(format!("\"{name}\" in an expression of ORDER BY beside AS \"{name}\""));
            Err(error.with_hint("It is the name of a table's column there: give the result's column another name."))
        }
    }
}

fn without_brackets(expr: &Expr) -> &Expr {
    match expr {
        Expr::Nested(inner) => without_brackets(inner),
        other => other,
    }
}

/// Finds a name of a table's column that an item hides from the planner.
struct Hidden<'a> {
    items: &'a [SelectItem],
    /// Subqueries have names of their own.
    inside: usize,
}

impl Visitor for Hidden<'_> {
    type Break = String;

    fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<Self::Break> {
        self.inside += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Self::Break> {
        self.inside -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Identifier(name) if self.inside == 0 => {
                let name = folded(name);
                match self.items.iter().any(|item| hides(item, &name)) {
                    true => ControlFlow::Break(name),
                    false => ControlFlow::Continue(()),
                }
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Whether an item gives this name by AS to something else than a column of this name.
fn hides(item: &SelectItem, name: &str) -> bool {
    matches!(item, SelectItem::ExprWithAlias { expr, alias } if folded(alias) == name && column(expr).as_deref() != Some(name))
}

/// The name of a column, without its table.
fn column(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Identifier(name) => Some(folded(name)),
        Expr::CompoundIdentifier(names) => names.last().map(folded),
        _ => None,
    }
}

/// Whether two items that differ have this label. Columns of one name may be the same one.
fn is_ambiguous(items: &[SelectItem], name: &str) -> bool {
    let named = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            (label(item).as_deref() == Some(name)).then(|| without_brackets(expr).clone())
        }
        _ => None,
    };
    let mut found = items.iter().filter_map(named);
    let Some(first) = found.next() else { return false };
    let same = |one: &Expr, other: &Expr| match (one, other) {
        (Expr::CompoundIdentifier(_), Expr::CompoundIdentifier(_)) => one == other,
        _ => one == other || column(one).is_some() && column(one) == column(other),
    };
    found.any(|other| !same(&first, &other))
}

/// The position of the one item with this label, if it is neither a column nor named by AS.
fn position(items: &[SelectItem], name: &str) -> Option<usize> {
    let is_star = |item: &SelectItem| label(item).is_none();
    let mut found = items.iter().enumerate().filter(|(_, item)| label(item).as_deref() == Some(name));
    let (at, item) = found.next()?;
    let is_column = |expr: &Expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_));
    let is_other = matches!(item, SelectItem::UnnamedExpr(expr) if !is_column(expr));
    (is_other && found.next().is_none() && !items.iter().any(is_star)).then_some(at + 1)
}

/// The label of an item's column; `None` for a star.
pub(crate) fn label(item: &SelectItem) -> Option<String> {
    match item {
        SelectItem::UnnamedExpr(expr) => Some(name(expr).unwrap_or_else(|| UNNAMED.into())),
        SelectItem::ExprWithAlias { alias, .. } => Some(folded(alias)),
        _ => None,
    }
}

/// PostgreSQL's label for an expression, if it has one.
fn name(expr: &Expr) -> Option<String> {
    let fixed = match expr {
        Expr::Identifier(ident) => return Some(folded(ident)),
        Expr::CompoundIdentifier(parts) => return parts.last().map(folded),
        Expr::Function(function) => return function.name.0.last()?.as_ident().map(folded),
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => return name(inner),
        // A type's name counts less than the name of a column or a function, and more than that of a type below it.
        Expr::Cast { expr, data_type, .. } => {
            return if is_named(expr) { name(expr) } else { short(data_type).or_else(|| name(expr)) };
        }
        Expr::TypedString(typed) => return short(&typed.data_type),
        Expr::Subquery(query) => return label(outer(query)?.projection.first()?),
        Expr::Case { else_result, .. } => match else_result.as_deref().filter(|expr| is_named(expr)) {
            Some(expr) => return name(expr),
            None => "case",
        },
        Expr::CompoundFieldAccess { root, access_chain } => {
            let is_element = |access: &AccessExpr| matches!(access, AccessExpr::Subscript(_));
            return name(root).filter(|_| access_chain.iter().all(is_element));
        }
        Expr::BinaryOp { op: BinaryOperator::Overlaps, .. } => "overlaps",
        Expr::Exists { negated: false, .. } => "exists",
        Expr::Array(_) => "array",
        Expr::Extract { .. } => "extract",
        Expr::Substring { shorthand: true, .. } => "substr",
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

/// Whether the label of a cast's operand is more than the name of a type.
fn is_named(expr: &Expr) -> bool {
    match expr {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } | Expr::Collate { expr: inner, .. } => is_named(inner),
        Expr::TypedString(_) | Expr::Interval(_) => false,
        // PostgreSQL gives `case` no more weight than a type's name.
        Expr::Case { else_result, .. } => else_result.as_deref().is_some_and(is_named),
        other => name(other).is_some(),
    }
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
        SqlType::Jsonb => "jsonb",
        SqlType::Bytea => "bytea",
        SqlType::Date => "date",
        SqlType::Time | SqlType::TimeDigits(_) => "time",
        SqlType::Timestamp | SqlType::TimestampDigits(_) => "timestamp",
        SqlType::TimestampTz | SqlType::TimestampTzDigits(_) => "timestamptz",
        SqlType::Interval => "interval",
        SqlType::Uuid => "uuid",
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
