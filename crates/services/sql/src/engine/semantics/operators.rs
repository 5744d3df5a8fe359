//! [`Operators`]: PostgreSQL's meaning of operators, casts and calls. It depends on the operands' types as they were
//! written, so this rule runs before DataFusion makes types equal, and before anything is evaluated.
//!
//! ```text
//!   n / m              numerics            numeric_divide (numeric_division)
//!   d + interval       d is a date         timestamp + interval
//!   ts - ts                                timestamp_difference: days and hours
//!   iv = iv            intervals           of their lengths (interval_comparisons)
//!   f = n, r * f       floats, numerics    of doubles
//!   x::int             x is not an integer rounded
//!   x::numeric                             keeps the digits of x
//!   s ~ 'p'                                PostgreSQL's regular expressions as DataFusion's (regular_expressions)
//!   iv * n, iv / n     intervals           interval_times, interval_over; -iv, time::interval and back
//!   id = '..'          a uuid               '..'::uuid (own_types); documents alike
//!   x IN (SELECT ..)                       only where NULL and false are the same
//! ```
//!
//! The rule runs when a statement is described, and again before it runs, when its parameters have values. It leaves
//! its own replacements alone.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{InSubquery, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{
    Between, BinaryExpr, Cast, Expr, ExprSchemable, Filter, LogicalPlan, LogicalPlanBuilder, Operator,
};
use datafusion::optimizer::AnalyzerRule;

use super::interval_comparisons::{is_interval, span};
use super::numeric_division;
use super::numeric_division::operand;
use super::numeric_literals::numeric_literal;
use super::pg_function::type_name;
use super::{
    cast_types, correlated_subqueries, datetime_functions, function_calls, interval_aggregates, interval_comparisons,
    interval_functions, json_comparisons, numeric_functions, numeric_literals, own_types, regular_expressions,
};
use crate::SqlError;
use crate::table::SqlType;
use crate::table::types::JSONB;
use crate::text::intervals::parse_interval;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct Operators;

impl AnalyzerRule for Operators {
    fn name(&self) -> &str {
        "operators"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        meant(plan)
    }
}

/// The plan with PostgreSQL's operators.
pub(crate) fn meant(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    plan.apply_with_subqueries(|plan| {
        memberships(plan)?;
        same_kinds(plan)?;
        quotients_of_values(plan)?;
        correlated_subqueries::check(plan)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    let plan = each_expression(plan, rewrite)?;
    // Casts from json have their own type now.
    plan.apply_with_subqueries(|plan| {
        interval_comparisons::check_plan(plan)?;
        json_comparisons::check_plan(plan)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    interval_aggregates::sorted(plan)
}

/// Rewrites a plan's expressions, inner ones first, and keeps their names.
pub(crate) fn each_expression(
    plan: LogicalPlan,
    rewrite: impl Fn(Expr, &DFSchema) -> DfResult<Transformed<Expr>>,
) -> DfResult<LogicalPlan> {
    // After a change, the types of all plans above may have changed.
    let mut changed = false;
    let plan = plan.transform_up_with_subqueries(|plan| {
        let schema = schema_below(&plan)?;
        let names = NamePreserver::new(&plan);
        let plan = plan.map_expressions(|expr| {
            let name = names.save(&expr);
            let expr = expr.transform_up(|expr| rewrite(expr, &schema))?;
            Ok(expr.update_data(|expr| name.restore(expr)))
        })?;
        changed |= plan.transformed;
        match plan.data {
            LogicalPlan::Values(values) if plan.transformed => {
                Ok(Transformed::yes(LogicalPlanBuilder::values(values.values)?.build()?))
            }
            data if changed => Ok(Transformed::yes(data.recompute_schema()?)),
            data => Ok(Transformed::no(data)),
        }
    })?;
    Ok(plan.data)
}

/// The columns that a plan's expressions may use.
pub(crate) fn schema_below(plan: &LogicalPlan) -> DfResult<DFSchema> {
    let mut schema = merge_schema(&plan.inputs());
    if let LogicalPlan::TableScan(scan) = plan {
        schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
    }
    Ok(schema)
}

fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    json_comparisons::check(&expr, schema)?;
    let expr = own_types::rewrite(expr, schema)?;
    let beside_own = expr.transformed;
    let meant = meant_by_kind(expr.data, schema)?;
    Ok(Transformed::new_transformed(meant.data, meant.transformed || beside_own))
}

fn meant_by_kind(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(binary) => operator(binary, schema),
        Expr::Between(between) => between_of(between, schema),
        Expr::Cast(cast) => cast_of(cast, schema),
        Expr::ScalarFunction(call) => function_calls::rewrite(call, schema),
        Expr::Case(case) => {
            let case = interval_comparisons::case(case, schema);
            let changed = case.transformed;
            let case = function_calls::case(case.data, schema)?;
            Ok(Transformed::new_transformed(case.data, changed || case.transformed))
        }
        Expr::InList(list) => Ok(interval_comparisons::in_list(list, schema)),
        Expr::InSubquery(found) => {
            interval_comparisons::check_subquery(&found, schema)?;
            Ok(Transformed::no(Expr::InSubquery(found)))
        }
        Expr::IsNull(value) | Expr::IsNotNull(value) if matches!(value.get_type(schema), Ok(DataType::Struct(_))) => {
            Err(SqlError::unsupported("IS NULL of a row that is no list of values").into())
        }
        Expr::Negative(value)
            if matches!(value.get_type(schema), Ok(DataType::Interval(_) | DataType::Duration(_))) =>
        {
            Ok(Transformed::yes(interval_functions::NEGATED.of(vec![*value])))
        }
        Expr::AggregateFunction(call) => {
            function_calls::check_aggregate(&Expr::AggregateFunction(call.clone()), schema)?;
            Ok(interval_aggregates::aggregate(call, schema))
        }
        Expr::WindowFunction(call) => {
            let expr = Expr::WindowFunction(call.clone());
            function_calls::check_aggregate(&expr, schema)?;
            Ok(interval_aggregates::window(call, schema))
        }
        Expr::Literal(..) => Ok(numeric_literals::with_all_digits(expr)),
        other => Ok(Transformed::no(other)),
    }
}

fn operator(binary: BinaryExpr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let BinaryExpr { left, op, right } = binary;
    // The type of a parameter without a value is not known yet.
    let (Ok(l), Ok(r)) = (left.get_type(schema), right.get_type(schema)) else {
        return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr { left, op, right })));
    };
    let same = |left, right| Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op, right: Box::new(right) });
    let (left, right) = (*left, *right);
    if regular_expressions::is_match(op) {
        let (pattern, changed) = regular_expressions::for_match(right)?;
        let expr = same(left, pattern);
        return Ok(if changed { Transformed::yes(expr) } else { Transformed::no(expr) });
    }
    let is_literal = |expr: &Expr| matches!(expr, Expr::Literal(..));
    if op == Operator::BitwiseXor && !is_literal(&left) && !is_literal(&right) {
        // The optimizer makes 0 of `a # a`, also where a is NULL. Both are the same bits.
        let part = |op| Expr::BinaryExpr(BinaryExpr::new(Box::new(left.clone()), op, Box::new(right.clone())));
        let (or, and) = (part(Operator::BitwiseOr), part(Operator::BitwiseAnd));
        return Ok(Transformed::yes(Expr::BinaryExpr(BinaryExpr::new(Box::new(or), Operator::Minus, Box::new(and)))));
    }
    if op.is_numerical_operators() {
        return arithmetic_of(Sides { left, right, l, r }, op, same);
    }
    let comparison = op.supports_propagation();
    if comparison {
        interval_comparisons::check_arrays(&l, &r)?;
    }
    Ok(if comparison && (is_interval(&l) || is_interval(&r)) {
        Transformed::yes(same(span(left, &l), span(right, &r)))
    } else if comparison && mixes_floats(&l, &r) {
        Transformed::yes(same(as_double(left, &l), as_double(right, &r)))
    } else if comparison
        && l == DataType::Date32
        && let Some(day) = midnight(&right, schema)
    {
        Transformed::yes(same(left, day))
    } else if comparison
        && r == DataType::Date32
        && let Some(day) = midnight(&left, schema)
    {
        Transformed::yes(same(day, right))
    } else {
        Transformed::no(same(left, right))
    })
}

/// A date plus days and months is a timestamp at midnight; this returns it as a date. Compared with a date it gives the
/// same result, and as a date it can be used to find ranges of dates.
fn midnight(expr: &Expr, schema: &DFSchema) -> Option<Expr> {
    match expr {
        Expr::Cast(Cast { expr, field }) if *field.data_type() == datetime_functions::TIMESTAMP => {
            let is_date = matches!(expr.get_type(schema), Ok(DataType::Date32));
            is_date.then(|| expr.as_ref().clone())
        }
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::Plus | Operator::Minus), right }) => {
            let whole_days = match right.as_ref() {
                Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(span)), _) => span.nanoseconds == 0,
                Expr::Literal(ScalarValue::IntervalYearMonth(Some(_)), _) => true,
                _ => false,
            };
            let left = midnight(left, schema).filter(|_| whole_days)?;
            Some(Expr::BinaryExpr(BinaryExpr { left: Box::new(left), op: *op, right: right.clone() }))
        }
        _ => None,
    }
}

struct Sides {
    left: Expr,
    right: Expr,
    l: DataType,
    r: DataType,
}

fn arithmetic_of(sides: Sides, op: Operator, same: impl Fn(Expr, Expr) -> Expr) -> DfResult<Transformed<Expr>> {
    use DataType as T;
    let Sides { left, right, l, r } = sides;
    let (left, l) = numeric_literal(left, l, &r)?;
    let (right, r) = numeric_literal(right, r, &l)?;
    let as_timestamp = |expr| cast_to(expr, datetime_functions::TIMESTAMP);
    Ok(match (&l, op, &r) {
        (T::Date32, Operator::Plus | Operator::Minus, T::Interval(_)) => {
            Transformed::yes(same(as_timestamp(left), right))
        }
        (T::Interval(_), Operator::Plus, T::Date32) => Transformed::yes(same(left, as_timestamp(right))),
        (T::Timestamp(..), Operator::Minus, T::Timestamp(..) | T::Date32)
        | (T::Date32, Operator::Minus, T::Timestamp(..)) => {
            Transformed::yes(datetime_functions::DIFFERENCE.of(vec![left, right]))
        }
        (T::Interval(_) | T::Duration(_), Operator::Multiply, number) if number.is_numeric() => {
            Transformed::yes(interval_functions::TIMES.of(vec![left, right]))
        }
        (number, Operator::Multiply, T::Interval(_) | T::Duration(_)) if number.is_numeric() => {
            Transformed::yes(interval_functions::TIMES.of(vec![right, left]))
        }
        (T::Interval(_) | T::Duration(_), Operator::Divide, number) if number.is_numeric() => {
            Transformed::yes(interval_functions::OVER.of(vec![left, right]))
        }
        _ if mixes_floats(&l, &r) => Transformed::yes(same(as_double(left, &l), as_double(right, &r))),
        _ if !l.is_decimal() && !r.is_decimal() => Transformed::no(same(left, right)),
        _ => match (operand(&l), op, operand(&r)) {
            (Some(_), Operator::Divide, Some(_)) => Transformed::yes(Expr::ScalarFunction(ScalarFunction {
                func: numeric_division::function(),
                args: vec![left, right],
            })),
            // One operand has more digits than the narrow type.
            (Some(wide), _, Some(other)) if wide != l || other != r || is_wide(&wide) || is_wide(&other) => {
                widened((left, wide), (right, other), op, same)
            }
            (Some(one), Operator::Multiply, Some(other)) if scale(&one) + scale(&other) > 38 => {
                widened((left, one), (right, other), op, same)
            }
            _ => Transformed::no(same(left, right)),
        },
    })
}

fn is_wide(kind: &DataType) -> bool {
    matches!(kind, DataType::Decimal256(..))
}

fn scale(kind: &DataType) -> i16 {
    match kind {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => i16::from(*scale),
        _ => 0,
    }
}

/// Both operands as numerics of one type; the wide type if a product has more than 38 digits behind the point or an
/// operand is a quotient.
fn widened(
    left: (Expr, DataType),
    right: (Expr, DataType),
    op: Operator,
    same: impl Fn(Expr, Expr) -> Expr,
) -> Transformed<Expr> {
    let digits = scale(&left.1) + scale(&right.1);
    let wide = is_wide(&left.1) || is_wide(&right.1) || (op == Operator::Multiply && digits > 38);
    let as_kind = |(expr, kind): (Expr, DataType)| match kind {
        DataType::Decimal128(precision, scale) if wide => cast_to(expr, DataType::Decimal256(precision, scale)),
        kind => cast_to(expr, kind),
    };
    Transformed::yes(same(as_kind(left), as_kind(right)))
}

/// A cast that the statement does not contain; the expression itself if it has that type already.
fn cast_to(expr: Expr, kind: DataType) -> Expr {
    match &expr {
        Expr::Cast(Cast { field, .. }) if *field.data_type() == kind => expr,
        _ => Expr::Cast(Cast::new(Box::new(expr), kind)),
    }
}

/// Whether one operand is a float and the other a number of another type: PostgreSQL converts both to `double
/// precision`.
fn mixes_floats(l: &DataType, r: &DataType) -> bool {
    (l.is_floating() || r.is_floating()) && l != r && l.is_numeric() && r.is_numeric()
}

fn as_double(expr: Expr, kind: &DataType) -> Expr {
    if *kind == DataType::Float64 {
        return expr;
    }
    numeric_literals::as_double(&expr).unwrap_or_else(|| cast_to(expr, DataType::Float64))
}

fn day(expr: &Expr, kind: &DataType, schema: &DFSchema) -> Option<Expr> {
    if *kind == DataType::Date32 { Some(expr.clone()) } else { midnight(expr, schema) }
}

fn between_of(between: Between, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let kinds = [&between.expr, &between.low, &between.high].map(|expr| expr.get_type(schema));
    let [Ok(kind), Ok(low), Ok(high)] = kinds else { return Ok(Transformed::no(Expr::Between(between))) };
    if kind == DataType::Date32
        && let (Some(low), Some(high)) = (day(&between.low, &low, schema), day(&between.high, &high, schema))
    {
        let (low, high) = (Box::new(low), Box::new(high));
        return Ok(Transformed::yes(Expr::Between(Between { low, high, ..between })));
    }
    if ![&kind, &low, &high].into_iter().any(is_interval) {
        return Ok(Transformed::no(Expr::Between(between)));
    }
    Ok(Transformed::yes(Expr::Between(Between {
        expr: Box::new(span(*between.expr, &kind)),
        negated: between.negated,
        low: Box::new(span(*between.low, &low)),
        high: Box::new(span(*between.high, &high)),
    })))
}

/// Casts as written: only those that PostgreSQL has, with its rounding.
fn cast_of(cast: Cast, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let Ok(from) = cast.expr.get_type(schema) else { return Ok(Transformed::no(Expr::Cast(cast))) };
    let to = cast.field.data_type().clone();
    if let Some(text) = json_comparisons::as_text(&cast.expr, &to, schema) {
        return Ok(Transformed::yes(text));
    }
    if from == JSONB && (to.is_numeric() || to == DataType::Boolean) {
        let error = SqlError::unsupported(format!("a cast of jsonb to {}", type_name(&to)));
        return Err(error.with_hint("Take the value as text with ->> or #>>, and cast that.").into());
    }
    if let (Ok(one), Ok(other)) = (kind_of(&from), kind_of(&to))
        && !is_castable(&one, &other)
    {
        let message = format!("cannot cast type {} to {}", one.name(), other.name());
        return Err(SqlError::statement("42846", message).into());
    }
    if matches!(to, DataType::Interval(_))
        && let Expr::Literal(ScalarValue::Utf8(Some(text)), _) = cast.expr.as_ref()
        && let Some((months, days, us)) = parse_interval(text)
    {
        let span = interval_functions::arrow(months, days, us)?;
        return Ok(Transformed::yes(Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(span)), None)));
    }
    match (&from, &to) {
        (DataType::Time32(_) | DataType::Time64(_), DataType::Interval(_)) => {
            let us = Expr::Cast(Cast::new(cast.expr, DataType::Time64(TimeUnit::Microsecond)));
            return Ok(Transformed::yes(interval_functions::OF_TIME.of(vec![us])));
        }
        (DataType::Interval(_) | DataType::Duration(_), DataType::Time64(_)) => {
            return Ok(Transformed::yes(interval_functions::TO_TIME.of(vec![*cast.expr])));
        }
        _ => {}
    }
    let rounds = from.is_floating() || from.is_decimal();
    if let Some(function) = numeric_functions::to_integer(&to).filter(|_| rounds) {
        return Ok(Transformed::yes(function.of(vec![*cast.expr])));
    }
    if !cast_types::keeps_digits(&cast.field) {
        return Ok(Transformed::no(Expr::Cast(cast)));
    }
    // The target is a numeric without a fixed size.
    Ok(match *cast.expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => {
            Transformed::yes(Expr::Literal(numeric_literals::of_text(&text)?, None))
        }
        expr if from.is_decimal() => Transformed::yes(expr),
        expr if from.is_integer() => {
            let kind = operand(&from).unwrap_or(to);
            Transformed::yes(Expr::Cast(Cast::new(Box::new(expr), kind)))
        }
        expr if from.is_floating() => Transformed::yes(numeric_functions::to_numeric(&from).of(vec![expr])),
        expr => Transformed::no(Expr::Cast(Cast { expr: Box::new(expr), field: cast.field })),
    })
}

fn kind_of(kind: &DataType) -> Result<SqlType, SqlError> {
    if kind.is_null() || kind.is_nested() {
        return Err(SqlError::unsupported("this type"));
    }
    SqlType::from_arrow(&datafusion::arrow::datatypes::Field::new("", kind.clone(), true))
}

/// Whether PostgreSQL 15 has a cast (its table pg_cast, and text to and from everything).
fn is_castable(from: &SqlType, to: &SqlType) -> bool {
    use SqlType as T;
    let number =
        |kind: &SqlType| matches!(kind, T::SmallInt | T::Integer | T::BigInt | T::Real | T::Double | T::Numeric(..));
    from.is_text()
        || to.is_text()
        || std::mem::discriminant(from) == std::mem::discriminant(to)
        || match (from, to) {
            (T::Boolean, T::Integer) | (T::Integer, T::Boolean) => true,
            // A literal whole number is an integer in PostgreSQL, and a bigint here.
            (T::BigInt, T::Boolean) => true,
            (T::Date, T::Timestamp | T::TimestampTz) => true,
            (T::Timestamp | T::TimestampTz, T::Date | T::Time | T::Timestamp | T::TimestampTz) => true,
            (T::Time, T::Interval) | (T::Interval, T::Time) => true,
            (from, to) => number(from) && number(to),
        }
}

/// Refuses a quotient in VALUES beside numbers of another size: DataFusion has already cast it to fewer digits.
fn quotients_of_values(plan: &LogicalPlan) -> Result<(), SqlError> {
    let LogicalPlan::Values(values) = plan else { return Ok(()) };
    for expr in values.values.iter().flatten() {
        if let Expr::Cast(Cast { expr, field }) = expr
            && let Expr::BinaryExpr(BinaryExpr { op: Operator::Divide, .. }) = expr.as_ref()
            && let Ok(kind) = expr.get_type(&DFSchema::empty())
            && kind.is_decimal()
            && scale(&kind) == scale(field.data_type())
        {
            let error = SqlError::unsupported("a quotient of numerics in VALUES beside other numbers");
            return Err(error.with_hint("Round it to a number of digits, or use SELECT .. UNION ALL."));
        }
    }
    Ok(())
}

/// Refuses a UNION whose columns are text in one part and another type in another part: DataFusion would make all of
/// them text.
fn same_kinds(plan: &LogicalPlan) -> Result<(), SqlError> {
    let LogicalPlan::Union(union) = plan else { return Ok(()) };
    let width = union.inputs.iter().map(|input| input.schema().fields().len()).min().unwrap_or(0);
    for column in 0..width {
        let kinds = union.inputs.iter().map(|input| input.schema().field(column).data_type());
        let mut kinds = kinds.filter(|kind| !kind.is_null());
        let Some(first) = kinds.next() else { continue };
        if let Some(other) = kinds.find(|kind| function_calls::is_text(kind) != function_calls::is_text(first)) {
            let name = |kind: &DataType| kind_of(kind).map_or_else(|_| kind.to_string(), |kind| kind.name());
            let message = format!("UNION types {} and {} cannot be matched", name(first), name(other));
            return Err(SqlError::statement("42804", message).with_hint("Cast one of them."));
        }
    }
    Ok(())
}

/// Refuses `x IN (SELECT ..)` where it would return false instead of NULL.
fn memberships(plan: &LogicalPlan) -> Result<(), SqlError> {
    if let LogicalPlan::Filter(Filter { predicate, .. }) = plan {
        return in_filter(predicate, true);
    }
    let mut outcome = Ok(());
    let _ = plan.apply_expressions(|expr| {
        outcome = std::mem::replace(&mut outcome, Ok(())).and_then(|()| nowhere(expr));
        Ok(TreeNodeRecursion::Continue)
    });
    outcome
}

/// Checks a condition in which NULL has the effect of false. `whole` means that only AND is above the expression.
fn in_filter(expr: &Expr, whole: bool) -> Result<(), SqlError> {
    let negated = |found: &InSubquery| match whole && found.subquery.outer_ref_columns.is_empty() {
        true => Ok(()),
        false => Err(refused()),
    };
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: op @ (Operator::And | Operator::Or), right }) => {
            let whole = whole && *op == Operator::And;
            in_filter(left, whole)?;
            in_filter(right, whole)
        }
        Expr::InSubquery(found) if found.negated => negated(found).and_then(|()| nowhere(&found.expr)),
        Expr::InSubquery(found) => nowhere(&found.expr),
        Expr::Not(inner) => match inner.as_ref() {
            Expr::InSubquery(found) if !found.negated => negated(found).and_then(|()| nowhere(&found.expr)),
            _ => no_membership(expr),
        },
        _ => no_membership(expr),
    }
}

/// What is refused, and how its error begins.
const MAY_BE_NULL: &str = "a subquery that is a truth value where it may be NULL";

/// Whether a statement was refused because of a subquery that can be restated.
pub(crate) fn is_refused_membership(error: &SqlError) -> bool {
    error.code() == "0A000" && error.to_string().starts_with(MAY_BE_NULL)
}

fn refused() -> SqlError {
    SqlError::unsupported(MAY_BE_NULL).with_hint(
        "It is supported in WHERE alone or under AND and OR, and NOT IN alone or under AND; elsewhere use EXISTS.",
    )
}

/// EXISTS is never NULL: in a condition it may be anywhere.
fn no_membership(expr: &Expr) -> Result<(), SqlError> {
    let found = expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_) | Expr::SetComparison(_))));
    if found.unwrap_or(true) { Err(refused()) } else { Ok(()) }
}

fn nowhere(expr: &Expr) -> Result<(), SqlError> {
    let found = expr.exists(|expr| Ok(matches!(expr, Expr::InSubquery(_) | Expr::Exists(_) | Expr::SetComparison(_))));
    if found.unwrap_or(true) { Err(refused()) } else { Ok(()) }
}
