//! Quotients of numerics, with PostgreSQL's digits: at least 16 significant digits, and no fewer behind the point than
//! either operand has (`select_div_scale` of its numeric.c does this in its own base, 10000).
//!
//! In PostgreSQL the number of digits behind the point depends on each pair of values; an Arrow column has one scale
//! for all its values. So a quotient is rounded where PostgreSQL rounds it, and stored with [`SCALE`] digits, padded
//! with zeros. [`numeric::shown_scale`] removes the zeros when the value is written. A quotient that is too small for
//! [`SCALE`] digits is an error.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal256Array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal128Type, Decimal256Type, i256};
use datafusion::common::ExprSchema;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{
    ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::SqlError;
use crate::text::numeric;

/// Digits that a quotient has behind the point: enough for 16 significant digits of a quotient of 10^-20.
const SCALE: i8 = 36;

/// The type of a quotient.
pub(crate) const QUOTIENT: DataType = DataType::Decimal256(76, SCALE);

/// The least number of significant digits in a quotient: PostgreSQL's NUMERIC_MIN_SIG_DIGITS.
const SIGNIFICANT_MIN: i32 = 16;

/// The function `left / right` of numerics and whole numbers.
pub(crate) fn function() -> Arc<ScalarUDF> {
    static DIVIDE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
        Arc::new(ScalarUDF::from(NumericDivide { signature: Signature::user_defined(Volatility::Immutable) }))
    });
    DIVIDE.clone()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericDivide {
    signature: Signature,
}

/// The numeric type of an operand of type `kind`; `None` if it is neither numeric nor a whole number.
pub(crate) fn operand(kind: &DataType) -> Option<DataType> {
    Some(match kind {
        DataType::Int8 | DataType::UInt8 => DataType::Decimal128(3, 0),
        DataType::Int16 | DataType::UInt16 => DataType::Decimal128(5, 0),
        DataType::Int32 | DataType::UInt32 => DataType::Decimal128(10, 0),
        DataType::Int64 | DataType::UInt64 | DataType::Null => DataType::Decimal128(20, 0),
        DataType::Decimal32(precision, scale) | DataType::Decimal64(precision, scale) => {
            DataType::Decimal128(*precision, *scale)
        }
        DataType::Decimal128(..) | DataType::Decimal256(..) => kind.clone(),
        _ => return None,
    })
}

impl ScalarUDFImpl for NumericDivide {
    fn name(&self) -> &str {
        "numeric_divide"
    }

    fn display_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(args.iter().map(Expr::to_string).collect::<Vec<_>>().join(" / "))
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>().join(" / "))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        let operands: Option<Vec<_>> = arguments.iter().map(operand).collect();
        match operands {
            Some(operands) if operands.len() == 2 => Ok(operands),
            _ => Err(SqlError::statement("42883", "a numeric is divided by a number").into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(QUOTIENT)
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        args.iter().any(|arg| arg.nullable(schema).unwrap_or(true))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let alone = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if alone { 1 } else { arguments.number_rows };
        let [left, right] = arguments.args.as_slice() else {
            return Err(SqlError::statement("42883", "a division takes two values").into());
        };
        let result = divide(&left.to_array(rows)?, &right.to_array(rows)?)?;
        match alone {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

/// Divides each value of one array of numerics by that of another. The result has type [`QUOTIENT`]. Errors: 22012,
/// 22003.
pub(crate) fn divide(left: &ArrayRef, right: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let (left, right) = (Numbers::of(left)?, Numbers::of(right)?);
    let mut quotients = Decimal256Array::builder(left.len());
    for row in 0..left.len() {
        match (left.value(row), right.value(row)) {
            (Some(dividend), Some(divisor)) => quotients.append_value(dividend.divided_by(divisor)?),
            _ => quotients.append_null(),
        }
    }
    Ok(Arc::new(quotients.finish().with_data_type(QUOTIENT)))
}

/// An array of numerics of either width.
enum Numbers {
    Narrow(ArrayRef, i8),
    Wide(ArrayRef, i8),
}

impl Numbers {
    fn of(array: &ArrayRef) -> Result<Numbers, SqlError> {
        match array.data_type() {
            DataType::Decimal128(_, scale) => Ok(Numbers::Narrow(array.clone(), *scale)),
            DataType::Decimal256(_, scale) => Ok(Numbers::Wide(array.clone(), *scale)),
            other => {
                let kind = operand(other)
                    .ok_or_else(|| SqlError::statement("42883", format!("a division of values of type {other}")))?;
                let strict = CastOptions { safe: false, ..CastOptions::default() };
                Numbers::of(&cast_with_options(array, &kind, &strict)?)
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Numbers::Narrow(array, _) | Numbers::Wide(array, _) => array.len(),
        }
    }

    fn value(&self, row: usize) -> Option<Number> {
        Some(match self {
            Numbers::Narrow(array, _) | Numbers::Wide(array, _) if array.is_null(row) => return None,
            Numbers::Narrow(array, scale) => {
                let unscaled = i256::from_i128(array.as_primitive::<Decimal128Type>().value(row));
                Number { unscaled, scale: i32::from(*scale), shown: i32::from(*scale) }
            }
            Numbers::Wide(array, scale) => {
                let unscaled = array.as_primitive::<Decimal256Type>().value(row);
                let shown = numeric::shown_scale(&unscaled.to_string(), *scale);
                Number { unscaled, scale: i32::from(*scale), shown: i32::from(shown) }
            }
        })
    }
}

/// A numeric.
#[derive(Clone, Copy)]
struct Number {
    unscaled: i256,
    /// Digits behind the point, trailing zeros included.
    scale: i32,
    /// The digits behind the point as PostgreSQL counts them.
    shown: i32,
}

impl Number {
    /// The first digit in base 10000: its power, and its value.
    fn head(self) -> (i32, i32) {
        let digits = self.unscaled.to_string();
        let digits = digits.trim_start_matches('-');
        if digits == "0" {
            return (0, 0);
        }
        let first = digits.len() as i32 - 1 - self.scale;
        let power = first.div_euclid(4);
        let width = (first - 4 * power + 1) as usize;
        let head = digits.bytes().chain(std::iter::repeat(b'0')).take(width);
        (power, head.fold(0, |number, digit| number * 10 + i32::from(digit - b'0')))
    }

    /// The quotient at [`SCALE`].
    fn divided_by(self, divisor: Number) -> Result<i256, SqlError> {
        if divisor.unscaled == i256::ZERO {
            return Err(SqlError::value("22012", "division by zero"));
        }
        let ((power, head), (below, under)) = (self.head(), divisor.head());
        let weight = power - below - i32::from(head <= under);
        let digits = (SIGNIFICANT_MIN - 4 * weight).max(self.shown).max(divisor.shown).max(0);
        // The number of digits in the quotient of the unscaled numbers: negative if the divisor has to be scaled up.
        let digits_wanted = digits + divisor.scale - self.scale;
        let (dividend, divisor) = match u32::try_from(-digits_wanted) {
            Ok(more) => (self.unscaled, times_ten(divisor.unscaled, more)?),
            Err(_) => (self.unscaled, divisor.unscaled),
        };
        let quotient = rounded_quotient(dividend, divisor, digits_wanted.max(0) as u32)?;
        match u32::try_from(i32::from(SCALE) - digits) {
            Ok(zeros) => times_ten(quotient, zeros),
            Err(_) => {
                let cut = times_ten(i256::ONE, (digits - i32::from(SCALE)) as u32)?;
                if quotient.wrapping_rem(cut) != i256::ZERO {
                    let message = format!("a quotient of numerics has more than {SCALE} digits behind the point");
                    return Err(SqlError::value("22003", message).with_hint("Divide as double precision."));
                }
                Ok(quotient.wrapping_div(cut))
            }
        }
    }
}

fn too_large() -> SqlError {
    SqlError::value("22003", "a quotient of numerics has too many digits").with_hint("Divide as double precision.")
}

fn times_ten(number: i256, times: u32) -> Result<i256, SqlError> {
    let power = i256::from_i128(10).checked_pow(times).ok_or_else(too_large)?;
    number.checked_mul(power).ok_or_else(too_large)
}

/// The quotient with `digits` digits behind its point, the last rounded half away from zero.
fn rounded_quotient(dividend: i256, divisor: i256, digits: u32) -> Result<i256, SqlError> {
    if let (Some(dividend), Some(divisor)) = (dividend.to_i128(), divisor.to_i128())
        && let Some(grown) = 10i128.checked_pow(digits).and_then(|power| dividend.checked_mul(power))
        && let Some(twice) = (grown % divisor).checked_mul(2)
    {
        let away = i128::from(twice.unsigned_abs() >= divisor.unsigned_abs());
        let sign = if (dividend < 0) == (divisor < 0) { 1 } else { -1 };
        return Ok(i256::from_i128(grown / divisor + sign * away));
    }
    let negative = dividend.is_negative() != divisor.is_negative();
    let (mut rest, divisor) = (dividend.wrapping_abs(), divisor.wrapping_abs());
    let mut quotient = rest.wrapping_div(divisor);
    rest = rest.wrapping_rem(divisor);
    let ten = i256::from_i128(10);
    for _ in 0..digits {
        let grown = rest.checked_mul(ten).ok_or_else(too_large)?;
        let next = quotient.checked_mul(ten).and_then(|quotient| quotient.checked_add(grown.wrapping_div(divisor)));
        quotient = next.ok_or_else(too_large)?;
        rest = grown.wrapping_rem(divisor);
    }
    if rest >= divisor.wrapping_sub(rest) {
        quotient = quotient.checked_add(i256::ONE).ok_or_else(too_large)?;
    }
    Ok(if negative { quotient.wrapping_neg() } else { quotient })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::BytesMut;
    use datafusion::arrow::array::Decimal128Array;

    fn number(text: &str) -> ArrayRef {
        let scale = text.split_once('.').map_or(0, |(_, part)| part.len() as i8);
        let unscaled = numeric::parse(text, 38, scale).expect("it is a number");
        Arc::new(Decimal128Array::from(vec![unscaled]).with_precision_and_scale(38, scale).expect("it fits"))
    }

    fn quotient(left: &ArrayRef, right: &ArrayRef) -> Result<(ArrayRef, String), &'static str> {
        let quotient = divide(left, right).map_err(|error| error.code())?;
        let mut out = BytesMut::new();
        let unscaled = quotient.as_primitive::<Decimal256Type>().value(0).to_string();
        numeric::write_shown(&mut out, &unscaled, SCALE);
        Ok((quotient, String::from_utf8(out.to_vec()).expect("it is text")))
    }

    #[test]
    fn quotients_have_the_digits_that_postgresql_gives_them() {
        // Results of PostgreSQL 15.18.
        for (left, right, expected) in [
            ("1.0", "3.0", "0.33333333333333333333"),
            ("2", "3.0", "0.66666666666666666667"),
            ("10", "3.0", "3.3333333333333333"),
            ("20000", "3.0", "6666.6666666666666667"),
            ("123456789", "7.0", "17636684.142857142857"),
            ("1", "300000.0", "0.000003333333333333333333"),
            ("-7", "2.0", "-3.5000000000000000"),
            ("-2", "3", "-0.66666666666666666667"),
            ("0.0", "5", "0.00000000000000000000"),
            ("1.00000000000000000000000000", "3", "0.3333333333333333333333333300"),
            ("99999999999999999999999999999999999999", "3", "33333333333333333333333333333333333333"),
            ("1", "99999999999999999999", "0.000000000000000000010000000000000000"),
        ] {
            let (_, text) = quotient(&number(left), &number(right)).expect("there is one");
            assert_eq!(text, expected, "{left} / {right}");
        }
        // The result of a division is divided again: 1.0 / 3.0 / 7, 2 / 3.0 / 0.07.
        let (third, _) = quotient(&number("1.0"), &number("3.0")).expect("there is one");
        assert_eq!(quotient(&third, &number("7")).expect("there is one").1, "0.04761904761904761905");
        let (thirds, _) = quotient(&number("2"), &number("3.0")).expect("there is one");
        assert_eq!(quotient(&thirds, &number("0.07")).expect("there is one").1, "9.52380952380952380957");
        assert_eq!(quotient(&number("1"), &number("0.00")).expect_err("there is none"), "22012");
        let tiny = number("0.00000000000000000000000000000000000003");
        assert_eq!(quotient(&tiny, &number("7")).expect_err("it is not kept"), "22003");
    }
}
