//! Columns of literals and parameters of a statement, built without a query of DataFusion.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, StringArray};
use datafusion::arrow::compute::concat;
use datafusion::arrow::datatypes::DataType;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{Expr, FunctionArguments, ObjectNamePart};

use crate::SqlError;
use crate::engine::Session;
use crate::engine::parse::ast::Literal;
use crate::engine::semantics::assignment_casts::assign;
use crate::table::{Column, SqlType};

/// Whether a literal can be read as a column's type here; DataFusion handles the others.
pub(crate) fn fits(literal: &Literal, kind: SqlType) -> bool {
    match literal {
        Literal::Null | Literal::Text(_) | Literal::Parameter(_) => true,
        Literal::Boolean(_) => kind == SqlType::Boolean,
        Literal::Number(text) => match kind {
            SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => text.parse::<i64>().is_ok(),
            SqlType::Real | SqlType::Double | SqlType::Numeric(..) => true,
            _ => false,
        },
    }
}

/// The value of `CURRENT_TIMESTAMP` or `now()` in the open transaction; `None` if the expression is another one.
pub(crate) fn moment(session: &Session, expr: &Expr) -> Option<Literal> {
    let began = session.transaction.open().filter(|_| is_moment(expr))?.began;
    let DataType::Timestamp(_, zone) = SqlType::TimestampTz.arrow() else { return None };
    Some(Literal::Parameter(ScalarValue::TimestampMicrosecond(Some(began.timestamp_micros()), zone)))
}

/// Whether an expression is the time when the transaction began.
pub(crate) fn is_moment(expr: &Expr) -> bool {
    let Expr::Function(function) = expr else { return false };
    let [ObjectNamePart::Identifier(name)] = function.name.0.as_slice() else { return false };
    let is = |known: &str| name.quote_style.is_none() && name.value.eq_ignore_ascii_case(known);
    let is_plain = function.over.is_none() && function.filter.is_none() && function.within_group.is_empty();
    is_plain
        && match &function.args {
            FunctionArguments::None => is("current_timestamp"),
            FunctionArguments::List(list) => list.args.is_empty() && (is("now") || is("transaction_timestamp")),
            FunctionArguments::Subquery(_) => false,
        }
}

/// One column of literals, in the column's type.
pub(crate) fn cells(literals: &[Literal], column: &Column) -> Result<ArrayRef, SqlError> {
    if literals.iter().any(|literal| matches!(literal, Literal::Parameter(_))) {
        let parts: Vec<ArrayRef> = literals.iter().map(|literal| cell(literal, column)).collect::<Result<_, _>>()?;
        let parts: Vec<&dyn Array> = parts.iter().map(|part| part.as_ref()).collect();
        return Ok(concat(&parts)?);
    }
    let text = |literal: &Literal| match literal {
        Literal::Text(text) | Literal::Number(text) => Some(text.clone()),
        Literal::Boolean(value) => Some(value.to_string()),
        Literal::Null | Literal::Parameter(_) => None,
    };
    let texts: ArrayRef = Arc::new(literals.iter().map(text).collect::<StringArray>());
    assign(&texts, column, true)
}

fn cell(literal: &Literal, column: &Column) -> Result<ArrayRef, SqlError> {
    match literal {
        Literal::Parameter(value) => assign(&value.to_array()?, column, true),
        other => cells(std::slice::from_ref(other), column),
    }
}
