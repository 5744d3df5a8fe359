//! Columns of literals and parameters of a statement, built without a query of DataFusion.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, StringArray};
use datafusion::arrow::compute::concat;

use crate::SqlError;
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
