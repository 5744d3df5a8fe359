//! Json where PostgreSQL has no operator for it: it is neither compared nor sorted, and no text without a cast.
//!
//! Json is text with the name of its type in the metadata of a field. A cast to text takes that away.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{InSubquery, Sort};
use datafusion::logical_expr::{Between, BinaryExpr, Distinct, Expr, ExprSchemable, LogicalPlan, Operator};

use super::pg_function::PgFunction;
use super::rows::is_text;
use crate::SqlError;
use crate::table::types::TYPE_KEY;

/// Functions that take text, and no json.
const OF_TEXT: [&str; 30] = [
    "array_has",
    "array_position",
    "ascii",
    "bit_length",
    "btrim",
    "character_length",
    "ends_with",
    "greatest",
    "initcap",
    "least",
    "left",
    "length",
    "lower",
    "lpad",
    "ltrim",
    "md5",
    "nullif",
    "octet_length",
    "overlay",
    "quote_ident",
    "repeat",
    "replace",
    "reverse",
    "right",
    "rpad",
    "rtrim",
    "split_part",
    "strpos",
    "substr",
    "upper",
];

/// `json::text`.
pub(crate) const AS_TEXT: PgFunction = PgFunction {
    name: "json_as_text",
    wants: |_| Ok(vec![DataType::Utf8]),
    gives: |_| Ok(DataType::Utf8),
    run: |arrays, _| Ok(arrays[0].clone()),
    between: Some(""),
};

/// Whether a value is json.
pub(crate) fn is_json(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Column(_) | Expr::ScalarFunction(_) | Expr::Alias(_) => {
            let field = expr.to_field(schema);
            field.is_ok_and(|(_, field)| field.metadata().get(TYPE_KEY).is_some_and(|kind| kind == "json"))
        }
        _ => false,
    }
}

fn no_operator(name: &str) -> SqlError {
    SqlError::statement("42883", format!("operator does not exist: json {name}"))
        .with_hint("No operator matches the given name and argument types. You might need to add explicit type casts.")
}

fn no_equality() -> SqlError {
    SqlError::statement("42883", "could not identify an equality operator for type json").with_hint("Cast it to text.")
}

/// Refuses operators and functions of json that PostgreSQL does not have. Errors: 42883.
pub(crate) fn check(expr: &Expr, schema: &DFSchema) -> Result<(), SqlError> {
    let json = |expr: &Expr| is_json(expr, schema);
    let any = |values: &[Expr]| values.iter().any(json);
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if op.supports_propagation() && (json(left) || json(right))
                || *op == Operator::StringConcat && json(left) && json(right) =>
        {
            Err(no_operator(&op.to_string()))
        }
        Expr::Between(Between { expr, .. }) if json(expr) => Err(no_operator(">=")),
        Expr::Like(like) | Expr::SimilarTo(like) if json(&like.expr) || json(&like.pattern) => Err(no_operator("~~")),
        Expr::InList(list) if json(&list.expr) || any(&list.list) => Err(no_operator("=")),
        Expr::InSubquery(InSubquery { expr, .. }) if json(expr) => Err(no_operator("=")),
        Expr::Case(case) if case.expr.as_deref().is_some_and(json) => Err(no_operator("=")),
        Expr::ScalarFunction(call) if OF_TEXT.contains(&call.func.name()) && any(&call.args) => {
            Err(no_function(call.func.name()))
        }
        Expr::AggregateFunction(call) if any(&call.params.args) => match call.func.name() {
            name @ ("min" | "max" | "string_agg") => Err(no_function(name)),
            _ if call.params.distinct => Err(no_equality()),
            _ => Ok(()),
        },
        Expr::WindowFunction(call) if any(&call.params.partition_by) || sorts(&call.params.order_by, schema) => {
            Err(no_equality())
        }
        _ => Ok(()),
    }
}

fn no_function(name: &str) -> SqlError {
    SqlError::statement("42883", format!("function {name}(json) does not exist")).with_hint("Cast it to text.")
}

fn sorts(keys: &[Sort], schema: &DFSchema) -> bool {
    keys.iter().any(|key| is_json(&key.expr, schema))
}

/// Refuses to sort and to group json. Errors: 42883.
pub(crate) fn check_plan(plan: &LogicalPlan) -> Result<(), SqlError> {
    let is_compared = match plan {
        LogicalPlan::Sort(sort) => sorts(&sort.expr, sort.input.schema()),
        LogicalPlan::Distinct(Distinct::All(input)) => {
            input.schema().columns().into_iter().any(|column| is_json(&Expr::Column(column), input.schema()))
        }
        LogicalPlan::Distinct(Distinct::On(on)) => on.on_expr.iter().any(|key| is_json(key, on.input.schema())),
        LogicalPlan::Aggregate(aggregate) => {
            let schema = aggregate.input.schema();
            let mut found = false;
            for key in &aggregate.group_expr {
                let _ = key.apply(|key| {
                    found |= is_json(key, schema);
                    // A function of json is another value.
                    Ok(if matches!(key, Expr::GroupingSet(_)) {
                        TreeNodeRecursion::Continue
                    } else {
                        TreeNodeRecursion::Jump
                    })
                });
            }
            found
        }
        LogicalPlan::Join(join) => join.on.iter().any(|(left, _)| is_json(left, join.left.schema())),
        _ => false,
    };
    if is_compared { Err(no_equality()) } else { Ok(()) }
}

/// A cast to text takes the name of the type away; `None` for another cast.
pub(crate) fn as_text(expr: &Expr, to: &DataType, schema: &DFSchema) -> Option<Expr> {
    (is_text(to) && is_json(expr, schema)).then(|| AS_TEXT.of(vec![expr.clone()]))
}
