//! Uuids and jsonb documents beside other values: a quoted literal beside one is one, and what PostgreSQL has no operator or function for is
//! refused.
//!
//! ```text
//!   id = '..', id IN ('..'), id BETWEEN '..' AND '..'     '..'::uuid
//!   CASE id WHEN '..' THEN ..
//!   id || 'x', concat(id, 'x')                            id::text
//!   ARRAY['..']::uuid[]                                   ARRAY['..'::uuid]
//!   id = t, id LIKE 'a%', upper(id), min(id)              42883
//!   doc = '..', doc < '..'                                jsonb_compared(doc) = jsonb_compared('..'): 1.0 is 1
//!   doc @> '..', doc <@ '..', doc || '..', doc - 'a'      jsonb_contains(..), jsonb_concat(..), jsonb_delete(..)
//! ```
//!
//! A uuid is Arrow's FixedSizeBinary(16) and a document BinaryView, so DataFusion would take them for bytes. Operators are looked at while a
//! statement is planned, because DataFusion asks for their types then; everything else before types are made equal.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Between, BinaryExpr, Cast, Expr, ExprSchemable, Operator, WindowFunctionDefinition};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::jsonb_functions;
use super::pg_function::{no_function, type_name};
use super::rows::is_text;
use crate::SqlError;
use crate::table::types::JSONB;
use crate::table::uuid::UUID;

/// Functions that take values of any type.
const OF_ANY: &[&str] = &[
    "array_append",
    "array_has",
    "array_position",
    "array_positions",
    "array_prepend",
    "array_remove",
    "array_remove_all",
    "array_remove_n",
    "array_repeat",
    "array_replace",
    "array_replace_all",
    "array_replace_n",
    "array_resize",
    "arrow_cast",
    "arrow_field",
    "arrow_metadata",
    "arrow_typeof",
    "cast_to_type",
    "coalesce",
    "greatest",
    "large",
    "least",
    "make_array",
    "map",
    "named_struct",
    "nullif",
    "num_nonnulls",
    "num_nulls",
    "nvl",
    "nvl2",
    "pg_typeof",
    "row",
    "struct",
    "text_of",
    "with_metadata",
];

/// Functions that make documents of values of any type.
const BUILDERS: &[&str] = &["jsonb_build_array", "jsonb_build_object", "jsonb_pair", "to_jsonb"];

/// Functions that take values of any type as text.
const OF_TEXT: &[&str] = &["concat", "concat_ws", "format", "quote_literal", "quote_nullable"];

/// Aggregates of values of any type.
const AGGREGATES: &[&str] =
    &["any_value", "approx_distinct", "array_agg", "count", "first_value", "last_value", "nth_value"];

/// The type of a value, if it is one of these.
fn own(expr: &Expr, schema: &DFSchema) -> Option<DataType> {
    expr.get_type(schema).ok().filter(|kind| *kind == UUID || *kind == JSONB)
}

fn is_own(expr: &Expr, schema: &DFSchema) -> bool {
    own(expr, schema).is_some()
}

fn no_operator(left: &Expr, op: &str, right: &Expr, schema: &DFSchema) -> SqlError {
    let name = |expr: &Expr| match expr {
        Expr::Literal(value, _) if is_text(&value.data_type()) => "unknown".to_owned(),
        expr => expr.get_type(schema).map_or_else(|_| "unknown".to_owned(), |kind| type_name(&kind)),
    };
    SqlError::statement("42883", format!("operator does not exist: {} {op} {}", name(left), name(right)))
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

fn is_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(ScalarValue::Utf8(Some(_)) | ScalarValue::Utf8View(Some(_)), _))
}

/// A quoted literal as a value of the other's type; another value unchanged. Errors: 42883 if it is of another type.
fn as_other(expr: &mut Expr, other: &Expr, op: &str, schema: &DFSchema) -> Result<bool, SqlError> {
    let Some(wanted) = own(other, schema) else { return Ok(false) };
    if is_literal(expr) {
        let literal = std::mem::take(expr);
        *expr = Expr::Cast(Cast::new(Box::new(literal), wanted));
        return Ok(true);
    }
    match expr.get_type(schema) {
        // A parameter whose type is not known yet, and NULL.
        Err(_) => Ok(false),
        Ok(kind) if kind == wanted || kind.is_null() => Ok(false),
        Ok(_) => Err(no_operator(other, op, expr, schema)),
    }
}

/// Literals beside such values as values of their type. Errors: 42883 for what PostgreSQL does not have.
pub(super) fn rewrite(expr: Expr, schema: &DFSchema) -> Result<Transformed<Expr>, SqlError> {
    match expr {
        Expr::BinaryExpr(binary) if is_own(&binary.left, schema) || is_own(&binary.right, schema) => {
            operator(binary, schema)
        }
        Expr::Between(mut between) if is_own(&between.expr, schema) => {
            let Between { expr, low, high, .. } = &mut between;
            let low = as_other(low, expr, ">=", schema)?;
            let changed = as_other(high, expr, "<=", schema)? || low;
            Ok(Transformed::new_transformed(Expr::Between(between), changed))
        }
        Expr::InList(InList { expr, mut list, negated }) if is_own(&expr, schema) => {
            let mut changed = false;
            for item in &mut list {
                changed |= as_other(item, &expr, "=", schema)?;
            }
            Ok(Transformed::new_transformed(Expr::InList(InList { expr, list, negated }), changed))
        }
        Expr::Case(mut case) if case.expr.as_deref().is_some_and(|of| is_own(of, schema)) => {
            let mut changed = false;
            if let Some(of) = case.expr.as_deref() {
                for (when, _) in &mut case.when_then_expr {
                    changed |= as_other(when, of, "=", schema)?;
                }
            }
            Ok(Transformed::new_transformed(Expr::Case(case), changed))
        }
        Expr::Like(like) | Expr::SimilarTo(like) if is_own(&like.expr, schema) || is_own(&like.pattern, schema) => {
            Err(no_operator(&like.expr, "~~", &like.pattern, schema))
        }
        Expr::Negative(value) if is_own(&value, schema) => {
            let kind = value.get_type(schema).map_or_else(|_| String::new(), |kind| type_name(&kind));
            Err(SqlError::statement("42883", format!("operator does not exist: - {kind}")))
        }
        Expr::Cast(cast) => of_array(cast, schema),
        Expr::ScalarFunction(call) if call.args.iter().any(|arg| is_own(arg, schema)) => function(call, schema),
        Expr::AggregateFunction(call) => {
            check_aggregate(call.func.name(), &call.params.args, schema)?;
            Ok(Transformed::no(Expr::AggregateFunction(call)))
        }
        Expr::WindowFunction(call) => {
            if let WindowFunctionDefinition::AggregateUDF(function) = &call.fun {
                check_aggregate(function.name(), &call.params.args, schema)?;
            }
            Ok(Transformed::no(Expr::WindowFunction(call)))
        }
        other => Ok(Transformed::no(other)),
    }
}

/// The planner of operators beside such values.
#[derive(Debug)]
pub(crate) struct OwnTypePlanner;

impl ExprPlanner for OwnTypePlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> DfResult<PlannerResult<RawBinaryExpr>> {
        use BinaryOperator as B;
        if !is_own(&expr.left, schema) && !is_own(&expr.right, schema) {
            return Ok(PlannerResult::Original(expr));
        }
        let is_document = [&expr.left, &expr.right].into_iter().any(|side| own(side, schema) == Some(JSONB));
        let op = match expr.op {
            B::AtArrow | B::ArrowAt | B::Minus if is_document => return document_operator(expr, schema),
            B::Eq => Operator::Eq,
            B::NotEq => Operator::NotEq,
            B::Lt => Operator::Lt,
            B::LtEq => Operator::LtEq,
            B::Gt => Operator::Gt,
            B::GtEq => Operator::GtEq,
            B::StringConcat => Operator::StringConcat,
            B::And | B::Or => return Ok(PlannerResult::Original(expr)),
            other => return Err(no_operator(&expr.left, &other.to_string(), &expr.right, schema).into()),
        };
        let binary = BinaryExpr::new(Box::new(expr.left), op, Box::new(expr.right));
        Ok(PlannerResult::Planned(operator(binary, schema)?.data))
    }
}

fn operator(binary: BinaryExpr, schema: &DFSchema) -> Result<Transformed<Expr>, SqlError> {
    let BinaryExpr { mut left, op, mut right } = binary;
    let changed = match op {
        Operator::Eq
        | Operator::NotEq
        | Operator::Lt
        | Operator::LtEq
        | Operator::Gt
        | Operator::GtEq
        | Operator::IsDistinctFrom
        | Operator::IsNotDistinctFrom => {
            let name = op.to_string();
            match is_own(&left, schema) {
                true => as_other(&mut right, &left, &name, schema)?,
                false if is_literal(&left) => as_other(&mut left, &right, &name, schema)?,
                false => match left.get_type(schema) {
                    Ok(kind) if !kind.is_null() => return Err(no_operator(&left, &name, &right, schema)),
                    _ => false,
                },
            }
        }
        Operator::StringConcat if own(&left, schema) == Some(JSONB) && is_document_or_open(&right, schema) => {
            let call = jsonb_functions::CONCAT.of(vec![*left, as_document(*right)]);
            return Ok(Transformed::yes(call));
        }
        Operator::StringConcat if own(&right, schema) == Some(JSONB) && is_document_or_open(&left, schema) => {
            let call = jsonb_functions::CONCAT.of(vec![as_document(*left), *right]);
            return Ok(Transformed::yes(call));
        }
        Operator::StringConcat => {
            let both = is_own(&left, schema) && is_own(&right, schema);
            let of_text = |expr: &Expr| matches!(expr.get_type(schema), Ok(kind) if is_text(&kind) || kind.is_null());
            if both {
                return Err(no_operator(&left, "||", &right, schema));
            }
            // Beside an array it is an element.
            if of_text(&left) {
                to_text(&mut right);
                true
            } else if of_text(&right) {
                to_text(&mut left);
                true
            } else {
                false
            }
        }
        // Beside a truth value it is none, which the planner tells.
        Operator::And | Operator::Or => false,
        op => return Err(no_operator(&left, &op.to_string(), &right, schema)),
    };
    let is_document = own(&left, schema) == Some(JSONB) || own(&right, schema) == Some(JSONB);
    let compares = op.supports_propagation() && is_document;
    let changed = changed | (compares && (to_compared(&mut left) | to_compared(&mut right)));
    Ok(Transformed::new_transformed(Expr::BinaryExpr(BinaryExpr { left, op, right }), changed))
}

/// A cast of an array to an array of such values: of each element, as DataFusion would take the letters of a text for the bytes of one.
fn of_array(cast: Cast, schema: &DFSchema) -> Result<Transformed<Expr>, SqlError> {
    let Cast { expr, field } = cast;
    let (Ok(from), DataType::List(item)) = (expr.get_type(schema), field.data_type()) else {
        return Ok(Transformed::no(Expr::Cast(Cast { expr, field })));
    };
    let item = item.data_type().clone();
    if (item != UUID && item != JSONB) || from.equals_datatype(field.data_type()) {
        return Ok(Transformed::no(Expr::Cast(Cast { expr, field })));
    }
    let is_of_text = matches!(&from, DataType::List(of) if is_text(of.data_type()) && !of.data_type().is_null());
    match *expr {
        Expr::ScalarFunction(ScalarFunction { func, args }) if func.name() == "make_array" => {
            let each = args.into_iter().map(|arg| match arg.get_type(schema) {
                Ok(kind) if is_text(&kind) && !kind.is_null() => Expr::Cast(Cast::new(Box::new(arg), item.clone())),
                _ => arg,
            });
            let list = Expr::ScalarFunction(ScalarFunction { args: each.collect(), func });
            Ok(Transformed::yes(Expr::Cast(Cast { expr: Box::new(list), field })))
        }
        _ if is_of_text => {
            let error = SqlError::unsupported(format!("a cast of an array of text to {}[]", type_name(&item)));
            Err(error.with_hint("Cast the elements."))
        }
        expr => Ok(Transformed::no(Expr::Cast(Cast { expr: Box::new(expr), field }))),
    }
}

/// A document without what is not compared of it. Returns whether it was one with it.
fn to_compared(expr: &mut Expr) -> bool {
    let is_it = |expr: &Expr| match expr {
        Expr::ScalarFunction(call) => call.func.name() == jsonb_functions::COMPARED.name,
        Expr::Placeholder(_) => true,
        Expr::Literal(value, _) => value.is_null(),
        _ => false,
    };
    if is_it(expr) {
        return false;
    }
    let value = std::mem::take(expr);
    *expr = jsonb_functions::COMPARED.of(vec![value]);
    true
}

fn is_document_or_open(expr: &Expr, schema: &DFSchema) -> bool {
    is_literal(expr) || own(expr, schema) == Some(JSONB) || expr.get_type(schema).map_or(true, |kind| kind.is_null())
}

fn as_document(expr: Expr) -> Expr {
    match is_literal(&expr) {
        true => Expr::Cast(Cast::new(Box::new(expr), JSONB)),
        false => expr,
    }
}

/// `doc @> part`, `part <@ doc`, `doc - key`.
fn document_operator(expr: RawBinaryExpr, schema: &DFSchema) -> DfResult<PlannerResult<RawBinaryExpr>> {
    let RawBinaryExpr { op, left, right } = expr;
    let both = is_document_or_open(&left, schema) && is_document_or_open(&right, schema);
    Ok(PlannerResult::Planned(match op {
        BinaryOperator::AtArrow if both => jsonb_functions::CONTAINS.of(vec![as_document(left), as_document(right)]),
        BinaryOperator::ArrowAt if both => jsonb_functions::CONTAINS.of(vec![as_document(right), as_document(left)]),
        BinaryOperator::Minus if own(&left, schema) == Some(JSONB) => jsonb_functions::DELETE.of(vec![left, right]),
        op => return Err(no_operator(&left, &op.to_string(), &right, schema).into()),
    }))
}

fn to_text(expr: &mut Expr) {
    let value = std::mem::take(expr);
    *expr = Expr::Cast(Cast::new(Box::new(value), DataType::Utf8));
}

fn function(mut call: ScalarFunction, schema: &DFSchema) -> Result<Transformed<Expr>, SqlError> {
    let name = call.func.name();
    let is_of_documents = name.starts_with("json") || name == "to_jsonb";
    if OF_ANY.contains(&name)
        || is_of_documents && !call.args.iter().any(|arg| own(arg, schema) == Some(UUID))
        || BUILDERS.contains(&name)
    {
        return Ok(Transformed::no(Expr::ScalarFunction(call)));
    }
    if OF_TEXT.contains(&name) {
        call.args.iter_mut().filter(|arg| is_own(arg, schema)).for_each(to_text);
        return Ok(Transformed::yes(Expr::ScalarFunction(call)));
    }
    let kinds = call.args.iter().map(|arg| arg.get_type(schema).unwrap_or(DataType::Null));
    Err(no_function(name, &kinds.collect::<Vec<_>>()))
}

fn check_aggregate(name: &str, args: &[Expr], schema: &DFSchema) -> Result<(), SqlError> {
    match args.first() {
        Some(first) if is_own(first, schema) && !AGGREGATES.contains(&name) => {
            Err(no_function(name, &[first.get_type(schema).unwrap_or(UUID)]))
        }
        _ => Ok(()),
    }
}
