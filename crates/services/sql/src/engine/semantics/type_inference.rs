//! Infers types where a statement contains none: of parameters, and of whole numbers beside integers.
//!
//! ```text
//!   $1::int, CAST($1 AS int)      $1 is an integer
//!   id = $1, $1 + id, id IN ($1)  $1 has the type of id      (DataFusion's rule, if nothing else determines it)
//!   $1 + 1                        $1 is an integer
//!   id = ANY ($1)                 $1 is an array of id's type
//!   coalesce($1, id), CASE        $1 has the type of the others
//!   doc @> $1, doc ->> $1         $1 is a document, a text
//!   WHERE $1, NOT $1, $1 AND b    $1 is a boolean
//!   LIMIT $1                      $1 is a bigint
//!   $1::numeric, price > $1       $1 is a numeric with the digits of its value
//!   id + 1, coalesce(id, 1)       1 is an integer, not a bigint
//!   SELECT 1, 1 + 1               they are integers too, but not in a recursive query
//! ```
//!
//! The client's declaration goes first, then the place where a parameter occurs first: it has that type in all other
//! places too, as in PostgreSQL. A parameter whose type nothing determines is a text for the client. Types are inferred
//! once, when a statement is planned: parameter values have the types that were described, and keep them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{InList, Placeholder, ScalarFunction};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::{
    Between, BinaryExpr, Case, Cast, Expr, ExprSchemable, Limit, LogicalPlan, Operator, TryCast,
    WindowFunctionDefinition,
};

use super::{cast_types, function_calls, operators};
use crate::SqlError;
use crate::engine::parse::ast;
use crate::table::types::JSONB;

/// Most parameters of a statement: their count has two bytes in the protocol.
const PARAMETERS_MAX: usize = 65_535;

/// Types of parameters by their names, `$1`.
type Known = HashMap<String, DataType>;

/// Returns the plan with types, and the types of its parameters. `declared` contains the types that the client named.
///
/// Errors: 42P02 for an impossible parameter.
pub(crate) fn typed(
    plan: LogicalPlan,
    declared: &[Option<DataType>],
) -> Result<(LogicalPlan, Vec<Option<DataType>>), SqlError> {
    let named = |(at, kind): (usize, &Option<DataType>)| Some((format!("${}", at + 1), kind.clone()?));
    let mut known: Known = declared.iter().enumerate().filter_map(named).collect();
    let mut all = Vec::new();
    plan.apply_with_subqueries(|plan| {
        let schema = operators::schema_below(plan)?;
        places(plan, &mut known);
        plan.apply_expressions(|expr| {
            expr.apply(|expr| {
                if let Expr::Placeholder(Placeholder { id, .. }) = expr {
                    all.push(id.clone());
                }
                stands(expr, &schema, &mut known);
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    let mut parameters = Vec::new();
    for id in all {
        let at = ast::parameter_number(&id)?;
        if at >= PARAMETERS_MAX {
            return Err(SqlError::statement("42P02", format!("there is no parameter {id}")));
        }
        parameters.resize(parameters.len().max(at + 1), None);
        parameters[at] = known.get(&id).cloned();
    }
    // The columns of a recursive query have the types that its first part had when it was planned.
    let mut alone = true;
    plan.apply_with_subqueries(|plan| {
        alone &= !matches!(plan, LogicalPlan::RecursiveQuery(_));
        Ok(TreeNodeRecursion::Continue)
    })?;
    let plan = if alone { whole_columns(plan)? } else { plan };
    let plan = operators::each_expression(plan, |expr, schema| {
        set(expr, &known)?.transform_data(|expr| Ok(whole_number(expr, schema, alone)))
    })?;
    Ok((plan, parameters))
}

/// A whole number that is a column is an integer.
fn whole_columns(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let mut changed = false;
    let plan = plan.transform_up_with_subqueries(|plan| {
        let plan = match plan {
            LogicalPlan::Projection(_) => {
                let names = NamePreserver::new_for_projection();
                plan.map_expressions(|expr| {
                    let name = names.save(&expr);
                    Ok(whole_column(expr).update_data(|expr| name.restore(expr)))
                })?
            }
            plan => Transformed::no(plan),
        };
        changed |= plan.transformed;
        match changed {
            true => Ok(Transformed::yes(plan.data.recompute_schema()?)),
            false => Ok(plan),
        }
    })?;
    Ok(plan.data)
}

fn whole_column(expr: Expr) -> Transformed<Expr> {
    match expr {
        Expr::Alias(mut alias) if is_small(&alias.expr) => {
            alias.expr = Box::new(as_integer(*alias.expr));
            Transformed::yes(Expr::Alias(alias))
        }
        expr if is_small(&expr) => Transformed::yes(as_integer(expr)),
        expr => Transformed::no(expr),
    }
}

fn as_integer(expr: Expr) -> Expr {
    match expr {
        Expr::Literal(ScalarValue::Int64(Some(number)), metadata) => match i32::try_from(number) {
            Ok(number) => Expr::Literal(ScalarValue::Int32(Some(number)), metadata),
            Err(_) => Expr::Literal(ScalarValue::Int64(Some(number)), metadata),
        },
        expr => expr,
    }
}

/// Adds types of parameters where none are known yet.
pub(crate) fn add_types(found: &mut Vec<Option<DataType>>, others: Vec<Option<DataType>>) {
    found.resize(found.len().max(others.len()), None);
    for (known, other) in found.iter_mut().zip(others) {
        *known = known.take().or(other);
    }
}

/// Records the types of parameters that are a clause of their own.
fn places(plan: &LogicalPlan, known: &mut Known) {
    match plan {
        LogicalPlan::Filter(filter) => note(&filter.predicate, Some(DataType::Boolean), known),
        LogicalPlan::Limit(Limit { skip, fetch, .. }) => {
            for count in [skip, fetch].into_iter().flatten() {
                note(count, Some(DataType::Int64), known);
            }
        }
        _ => {}
    }
}

/// Records the types of parameters from the expression around them.
fn stands(expr: &Expr, schema: &DFSchema, known: &mut Known) {
    match expr {
        Expr::Cast(Cast { expr, field }) | Expr::TryCast(TryCast { expr, field }) => {
            note(expr, Some(field.data_type().clone()), known);
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
            note(left, Some(DataType::Boolean), known);
            note(right, Some(DataType::Boolean), known);
        }
        // For all other operators, DataFusion uses the type of the other operand; but for DataFusion each whole number
        // is a bigint.
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
            for (one, other) in [(left, right), (right, left)] {
                note(one, is_small(other).then_some(DataType::Int32), known);
            }
        }
        Expr::Not(inner) | Expr::IsTrue(inner) | Expr::IsFalse(inner) => note(inner, Some(DataType::Boolean), known),
        Expr::Between(Between { expr, low, high, .. }) => alike([&**expr, low, high], schema, known),
        Expr::InList(InList { expr, list, .. }) => alike(std::iter::once(&**expr).chain(list), schema, known),
        Expr::Case(Case { expr, when_then_expr, else_expr }) => {
            let (when, then): (Vec<_>, Vec<_>) = when_then_expr.iter().map(|(when, then)| (&**when, &**then)).unzip();
            match expr {
                Some(expr) => alike(std::iter::once(&**expr).chain(when), schema, known),
                None => when.into_iter().for_each(|when| note(when, Some(DataType::Boolean), known)),
            }
            alike(then.into_iter().chain(else_expr.as_deref()), schema, known);
        }
        Expr::ScalarFunction(ScalarFunction { func, args }) => match (func.name(), args.as_slice()) {
            ("coalesce" | "greatest" | "least" | "nullif" | "jsonb_concat" | "jsonb_contains", args) => {
                alike(args, schema, known);
            }
            ("json_get" | "json_get_text" | "jsonb_delete" | "jsonb_exists", [_, key]) => {
                note(key, Some(DataType::Utf8), known);
            }
            ("jsonb_exists_all" | "jsonb_exists_any" | "jsonb_delete_path", [_, list]) => {
                note(list, Some(texts()), known);
            }
            ("jsonb_set", [_, path, value, ..]) => {
                note(path, Some(texts()), known);
                note(value, Some(JSONB), known);
            }
            // The form of `= ANY (..)` and `<> ALL (..)`.
            ("array_has", [list, item]) => {
                let list_of = |kind| DataType::List(Arc::new(Field::new_list_field(kind, true)));
                note(list, kind_of(item, schema, known).map(list_of), known);
                if let Some(DataType::List(field)) = kind_of(list, schema, known) {
                    note(item, Some(field.data_type().clone()), known);
                }
            }
            _ => {}
        },
        Expr::Placeholder(Placeholder { field: Some(field), .. }) => {
            note(expr, Some(field.data_type().clone()), known);
        }
        _ => {}
    }
}

fn texts() -> DataType {
    DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))
}

/// Records the type of a parameter, if the expression is one and its type was not known.
fn note(expr: &Expr, kind: Option<DataType>, known: &mut Known) {
    if let (Expr::Placeholder(Placeholder { id, .. }), Some(kind)) = (expr, kind)
        && !kind.is_null()
        && !known.contains_key(id)
    {
        let kind = match kind {
            kind if kind.is_decimal() => cast_types::NUMERIC,
            kind if function_calls::is_text(&kind) => DataType::Utf8,
            kind => kind,
        };
        known.insert(id.clone(), kind);
    }
}

/// Records that parameters have the type of the first other expression whose type is known.
fn alike<'a>(exprs: impl IntoIterator<Item = &'a Expr>, schema: &DFSchema, known: &mut Known) {
    let exprs: Vec<&Expr> = exprs.into_iter().collect();
    let mut written = exprs.iter().filter(|expr| !matches!(expr, Expr::Placeholder(_)));
    let first = written.find_map(|expr| kind_of(expr, schema, known));
    let kind = first.or_else(|| exprs.iter().find_map(|expr| kind_of(expr, schema, known)));
    exprs.into_iter().for_each(|expr| note(expr, kind.clone(), known));
}

/// The type of an expression, if it has one.
fn kind_of(expr: &Expr, schema: &DFSchema, known: &Known) -> Option<DataType> {
    match expr {
        Expr::Placeholder(Placeholder { id, .. }) => known.get(id).cloned(),
        expr if is_small(expr) => Some(DataType::Int32),
        expr => expr.get_type(schema).ok().filter(|kind| !kind.is_null()),
    }
}

/// Whether the expression is a whole number that is an integer in PostgreSQL.
fn is_small(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Int64(Some(number)), _) if i32::try_from(*number).is_ok())
}

/// Sets the type of a parameter. A parameter that is text for the client, and is compared with another type, is read as
/// that type.
fn set(expr: Expr, known: &Known) -> DfResult<Transformed<Expr>> {
    let Expr::Placeholder(Placeholder { id, field }) = expr else { return Ok(Transformed::no(expr)) };
    let Some(kind) = known.get(&id).cloned() else {
        return Ok(Transformed::no(Expr::Placeholder(Placeholder { id, field })));
    };
    if kind == cast_types::NUMERIC {
        let open = Expr::Placeholder(Placeholder { id, field: None });
        return Ok(Transformed::yes(Expr::Cast(Cast::new_from_field(Box::new(open), cast_types::any_numeric()))));
    }
    let other = field
        .map(|field| field.data_type().clone())
        .filter(|other| function_calls::is_text(other) != function_calls::is_text(&kind));
    let typed = Expr::Placeholder(Placeholder { id, field: Some(Arc::new(Field::new("", kind, true))) });
    Ok(Transformed::yes(match other {
        Some(other) => Expr::Cast(Cast::new(Box::new(typed), other)),
        None => typed,
    }))
}

/// A literal whole number is an integer beside integers: in arithmetic, among the results of CASE, and in coalesce and
/// similar functions. `alone`: also where all are such numbers.
fn whole_number(expr: Expr, schema: &DFSchema, alone: bool) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { mut left, op, mut right }) => {
            let bits = matches!(
                op,
                Operator::BitwiseAnd
                    | Operator::BitwiseOr
                    | Operator::BitwiseXor
                    | Operator::BitwiseShiftLeft
                    | Operator::BitwiseShiftRight
            );
            let changed =
                (op.is_numerical_operators() || bits) && narrowed(&mut [&mut *left, &mut *right], schema, alone);
            Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed)
        }
        Expr::Case(mut case) => {
            let results = case.when_then_expr.iter_mut().map(|(_, then)| then.as_mut());
            let mut results: Vec<&mut Expr> = results.chain(case.else_expr.as_deref_mut()).collect();
            let changed = narrowed(&mut results, schema, alone);
            Transformed::new_transformed(Expr::Case(case), changed)
        }
        Expr::ScalarFunction(ScalarFunction { func, mut args }) => {
            let alike = matches!(
                func.name(),
                "coalesce" | "greatest" | "least" | "nullif" | "abs" | "gcd" | "lcm" | "to_hex" | "pg_typeof"
            );
            let changed = alike && narrowed(&mut args.iter_mut().collect::<Vec<_>>(), schema, alone);
            Transformed::new_transformed(Expr::ScalarFunction(ScalarFunction { func, args }), changed)
        }
        Expr::AggregateFunction(mut call) => {
            let changed = keeps_type(call.func.name())
                && narrowed(&mut call.params.args.iter_mut().take(1).collect::<Vec<_>>(), schema, alone);
            Transformed::new_transformed(Expr::AggregateFunction(call), changed)
        }
        Expr::WindowFunction(mut call) => {
            let is_typed = match &call.fun {
                WindowFunctionDefinition::AggregateUDF(function) => keeps_type(function.name()),
                WindowFunctionDefinition::WindowUDF(_) => true,
            };
            // The second argument of lag and lead is a number of rows.
            let mut values: Vec<&mut Expr> = call.params.args.iter_mut().step_by(2).collect();
            let changed = is_typed && narrowed(&mut values, schema, alone);
            Transformed::new_transformed(Expr::WindowFunction(call), changed)
        }
        other => Transformed::no(other),
    }
}

/// Whether the result of an aggregate depends on whether its values are integers.
fn keeps_type(name: &str) -> bool {
    matches!(name, "exact_sum" | "min" | "max" | "bit_and" | "bit_or" | "bit_xor" | "array_agg")
}

/// Makes integers of whole numbers, if all others are integers, smallints or NULL, and there are others or none is needed (`alone`). Returns
/// whether any was changed.
fn narrowed(exprs: &mut [&mut Expr], schema: &DFSchema, alone: bool) -> bool {
    let mut any = alone;
    for expr in exprs.iter().filter(|expr| !is_small(expr)) {
        match expr.get_type(schema) {
            Ok(DataType::Int16 | DataType::Int32) => any = true,
            Ok(DataType::Null) => {}
            _ => return false,
        }
    }
    let mut changed = false;
    for expr in exprs.iter_mut().filter(|_| any) {
        if let Expr::Literal(ScalarValue::Int64(Some(number)), _) = &**expr
            && let Ok(number) = i32::try_from(*number)
        {
            **expr = Expr::Literal(ScalarValue::Int32(Some(number)), None);
            changed = true;
        }
    }
    changed
}
