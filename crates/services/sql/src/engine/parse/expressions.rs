//! Expressions that are made of others, for rewrites of statements before they are planned.

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Value,
};

/// `left op right`.
pub(super) fn binary(left: Expr, op: BinaryOperator, right: Expr) -> Expr {
    Expr::BinaryOp { left: Box::new(left), op, right: Box::new(right) }
}

/// `(expr)`.
pub(super) fn nested(expr: Expr) -> Expr {
    Expr::Nested(Box::new(expr))
}

/// `CAST(expr AS data_type)`.
pub(super) fn cast(expr: Expr, data_type: DataType) -> Expr {
    Expr::Cast { kind: CastKind::Cast, expr: Box::new(expr), data_type, array: false, format: None }
}

/// A number as it is written.
pub(super) fn number(text: &str) -> Expr {
    Expr::Value(Value::Number(text.to_owned(), false).into())
}

/// Whether rows have equal values, each beside each.
pub(super) fn equal_rows(left: &[Expr], right: Vec<Expr>) -> Expr {
    let pairs = left.iter().cloned().zip(right);
    let equal = pairs.map(|(left, right)| binary(left, BinaryOperator::Eq, right));
    let joined = equal.reduce(|one, other| binary(one, BinaryOperator::And, other));
    nested(joined.unwrap_or_else(|| Expr::Value(Value::Null.into())))
}

/// A call of a function.
pub(crate) fn call(name: &str, arguments: Vec<Expr>) -> Expr {
    let args = arguments.into_iter().map(|argument| FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)));
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args: args.collect(),
            clauses: Vec::new(),
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// `true` or `false`.
pub(super) fn truth(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// The truth value NULL.
pub(super) fn unknown() -> Expr {
    cast(Expr::Value(Value::Null.into()), DataType::Boolean)
}

/// `CASE WHEN .. THEN .. ELSE .. END`.
pub(super) fn case(branches: Vec<(Expr, Expr)>, otherwise: Expr) -> Expr {
    nested(Expr::Case {
        case_token: AttachedToken::empty(),
        end_token: AttachedToken::empty(),
        operand: None,
        conditions: branches.into_iter().map(|(condition, result)| CaseWhen { condition, result }).collect(),
        else_result: Some(Box::new(otherwise)),
    })
}
