//! Quoted literals in places where a numeric is needed: they become numerics with all their digits. Literals with an exponent (`1e15`) get all
//! digits before the point: Arrow makes `999999999999999.9` of the double precision of 1 with 15 zeros that are not there.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::Expr;

use crate::SqlError;
use crate::text::numeric;

/// Converts a quoted literal beside a number to a number.
pub(crate) fn numeric_literal(expr: Expr, kind: DataType, beside: &DataType) -> DfResult<(Expr, DataType)> {
    let text = match &expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)), _) if beside.is_decimal() => {
            text.clone()
        }
        _ => return Ok((expr, kind)),
    };
    let value = of_text(&text)?;
    let kind = value.data_type();
    Ok((Expr::Literal(value, None), kind))
}

/// The double precision that is nearest to a literal numeric.
pub(crate) fn as_double(expr: &Expr) -> Option<Expr> {
    let Expr::Literal(ScalarValue::Decimal128(Some(value), _, scale), metadata) = expr else { return None };
    let nearest = format!("{value}e{}", -i16::from(*scale)).parse().ok()?;
    Some(Expr::Literal(ScalarValue::Float64(Some(nearest)), metadata.clone()))
}

/// The most zeros that a literal gets before its point: products with others still fit.
const ZEROS_MAX: u8 = 18;

/// A literal without a negative scale, if its digits fit.
pub(crate) fn with_all_digits(expr: Expr) -> Transformed<Expr> {
    let Expr::Literal(ScalarValue::Decimal128(Some(value), precision, scale @ ..0), metadata) = &expr else {
        return Transformed::no(expr);
    };
    let zeros = scale.unsigned_abs();
    let precision = precision.saturating_add(zeros);
    let whole = 10i128.checked_pow(u32::from(zeros)).and_then(|factor| value.checked_mul(factor));
    match whole.filter(|_| precision <= 38 && zeros <= ZEROS_MAX) {
        Some(whole) => {
            Transformed::yes(Expr::Literal(ScalarValue::Decimal128(Some(whole), precision, 0), metadata.clone()))
        }
        None => Transformed::no(expr),
    }
}

/// The numeric value of a text, with all its digits.
pub(crate) fn of_text(text: &str) -> Result<ScalarValue, SqlError> {
    let wrong = || SqlError::value("22P02", format!("invalid input syntax for type numeric: \"{text}\""));
    let (behind, _) = numeric::size(text);
    let behind = i8::try_from(behind).ok().filter(|digits| *digits <= 38).ok_or_else(|| {
        SqlError::value("22003", format!("\"{text}\" has more than 38 digits")).with_hint("Round the value.")
    })?;
    let value = numeric::parse(text, 38, behind).map_err(|error| match error {
        numeric::Wrong::Syntax => wrong(),
        numeric::Wrong::Range => SqlError::value("22003", format!("\"{text}\" has more than 38 digits")),
    })?;
    Ok(ScalarValue::Decimal128(Some(value), 38, behind))
}
