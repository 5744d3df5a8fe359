//! Intervals where values are compared: by their lengths, since `1 mon`, `30 days` and `720 hours` are equal. What compares them in the
//! library, which compares months, days and time one by one, is refused by name.
//!
//! ```text
//!   iv = iv, iv BETWEEN .. AND ..      of their lengths (operators)
//!   iv IN (..), CASE iv WHEN ..        the same
//!   ORDER BY, PARTITION BY, min, max   the same (interval_aggregates)
//!   least, greatest, nullif, x IN (SELECT iv), arrays, USING (iv), DISTINCT ON (iv), count(DISTINCT iv)      0A000
//! ```

use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::logical_expr::expr::{InList, InSubquery};
use datafusion::logical_expr::{Case, Cast, Distinct, Expr, ExprSchemable, LogicalPlan};

use super::datetime_functions::SPAN;
use crate::SqlError;

/// Functions that compare their arguments, or the elements of arrays.
const COMPARING: [&str; 3] = ["least", "greatest", "nullif"];
const COMPARING_ELEMENTS: [&str; 18] = [
    "array_has",
    "array_has_all",
    "array_has_any",
    "array_position",
    "array_positions",
    "array_remove",
    "array_remove_n",
    "array_remove_all",
    "array_replace",
    "array_replace_n",
    "array_replace_all",
    "array_distinct",
    "array_union",
    "array_intersect",
    "array_except",
    "array_min",
    "array_max",
    "most_frequent",
];

/// Whether values of a type are intervals.
pub(crate) fn is_interval(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_))
}

fn is_list(kind: &DataType) -> bool {
    matches!(kind, DataType::List(item) | DataType::LargeList(item) if is_interval(item.data_type()))
}

/// The length of an interval; a literal beside one is an interval too.
pub(crate) fn span(expr: Expr, kind: &DataType) -> Expr {
    match kind {
        DataType::Interval(_) => SPAN.of(vec![expr]),
        _ => SPAN.of(vec![Expr::Cast(Cast::new(Box::new(expr), DataType::Interval(IntervalUnit::MonthDayNano)))]),
    }
}

fn refused(what: &str) -> SqlError {
    SqlError::unsupported(format!("{what} of intervals")).with_hint("Use extract(epoch from ..).")
}

fn kinds<'a>(values: impl Iterator<Item = &'a Expr>, schema: &DFSchema) -> Option<Vec<DataType>> {
    values.map(|value| value.get_type(schema).ok()).collect()
}

/// A value in a list by its length.
pub(crate) fn in_list(InList { expr, list, negated }: InList, schema: &DFSchema) -> Transformed<Expr> {
    let found = kinds(std::iter::once(expr.as_ref()).chain(&list), schema);
    let Some(found) = found.filter(|found| found.iter().any(is_interval)) else {
        return Transformed::no(Expr::InList(InList { expr, list, negated }));
    };
    let expr = Box::new(span(*expr, &found[0]));
    let list = list.into_iter().zip(&found[1..]).map(|(value, kind)| span(value, kind)).collect();
    Transformed::yes(Expr::InList(InList { expr, list, negated }))
}

/// `CASE iv WHEN ..` by lengths.
pub(crate) fn case(case: Case, schema: &DFSchema) -> Transformed<Case> {
    let Some(operand) = case.expr.as_deref() else { return Transformed::no(case) };
    let compared = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
    let found = kinds(std::iter::once(operand).chain(compared), schema);
    let Some(found) = found.filter(|found| found.iter().any(is_interval)) else { return Transformed::no(case) };
    let Case { expr, when_then_expr, else_expr } = case;
    let expr = expr.map(|operand| Box::new(span(*operand, &found[0])));
    let branches = when_then_expr.into_iter().zip(&found[1..]);
    let when_then_expr = branches.map(|((when, then), kind)| (Box::new(span(*when, kind)), then)).collect();
    Transformed::yes(Case { expr, when_then_expr, else_expr })
}

/// Refuses a call that compares intervals. Errors: 0A000.
pub(crate) fn check_call(name: &str, args: &[Expr], schema: &DFSchema) -> Result<(), SqlError> {
    let has = |is: fn(&DataType) -> bool| args.iter().any(|arg| arg.get_type(schema).is_ok_and(|kind| is(&kind)));
    if COMPARING.contains(&name) && has(is_interval) {
        return Err(refused(name));
    }
    match COMPARING_ELEMENTS.contains(&name) && has(is_list) {
        true => Err(refused("a search or comparison in an array")),
        false => Ok(()),
    }
}

/// Refuses an aggregate of different intervals. Errors: 0A000.
pub(crate) fn check_distinct(name: &str, kind: &DataType) -> Result<(), SqlError> {
    match is_interval(kind) && !matches!(name, "min" | "max" | "longest" | "shortest") {
        true => Err(refused(&format!("{name}(DISTINCT ..)"))),
        false => Ok(()),
    }
}

/// Refuses a comparison of arrays of intervals. Errors: 0A000.
pub(crate) fn check_arrays(left: &DataType, right: &DataType) -> Result<(), SqlError> {
    if is_list(left) || is_list(right) { Err(refused("a comparison of arrays")) } else { Ok(()) }
}

/// Refuses a subquery of intervals as a list. Errors: 0A000.
pub(crate) fn check_subquery(found: &InSubquery, schema: &DFSchema) -> Result<(), SqlError> {
    let columns = found.subquery.subquery.schema().fields();
    let of_intervals = columns.iter().any(|column| is_interval(column.data_type()));
    match of_intervals || found.expr.get_type(schema).is_ok_and(|kind| is_interval(&kind)) {
        true => Err(refused("IN (SELECT ..)")),
        false => Ok(()),
    }
}

/// Refuses joins and DISTINCT ON that compare intervals. Errors: 0A000.
pub(crate) fn check_plan(plan: &LogicalPlan) -> Result<(), SqlError> {
    let is = |value: &Expr, schema: &DFSchema| value.get_type(schema).is_ok_and(|kind| is_interval(&kind));
    match plan {
        LogicalPlan::Join(join) if join.on.iter().any(|(left, _)| is(left, join.left.schema())) => {
            Err(refused("USING or NATURAL"))
        }
        LogicalPlan::Distinct(Distinct::On(on)) if on.on_expr.iter().any(|value| is(value, on.input.schema())) => {
            Err(refused("DISTINCT ON"))
        }
        _ => Ok(()),
    }
}
