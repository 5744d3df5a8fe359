//! Functions of numbers with PostgreSQL's results: rounding, casts that round, roots, powers and logarithms.
//!
//! Halves are rounded away from zero in numerics, and to the even number in floats. In PostgreSQL, roots and similar
//! functions of numerics are numerics of many digits; here they are refused. For floats they are errors where
//! PostgreSQL reports one.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Decimal256Array, Float64Array, Int16Array, Int32Array, Int64Array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Float64Type, Int64Type, i256};
use datafusion::scalar::ScalarValue;

use super::numeric_division::{QUOTIENT, operand};
use super::pg_function::{Argument, PgFunction, no_function};
use crate::SqlError;

fn cast(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, SqlError> {
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    Ok(cast_with_options(array, to, &strict)?)
}

/// How a numeric loses digits.
#[derive(Clone, Copy, PartialEq)]
enum Way {
    Nearest,
    ToZero,
    Up,
    Down,
}

impl Way {
    /// The number without its last digits: `unit` is one unit of the last digit that stays.
    fn cut(self, number: i256, unit: i256) -> i256 {
        let (whole, rest) = (number.wrapping_div(unit), number.wrapping_rem(unit));
        let away = match self {
            Way::Nearest => rest.wrapping_abs() >= unit.wrapping_sub(rest.wrapping_abs()),
            Way::ToZero => false,
            Way::Up => rest.is_positive(),
            Way::Down => rest.is_negative(),
        };
        let one = if number.is_negative() { i256::MINUS_ONE } else { i256::ONE };
        if away && rest != i256::ZERO { whole.wrapping_add(one) } else { whole }
    }

    fn of_float(self, number: f64) -> f64 {
        match self {
            Way::Nearest => number.round_ties_even(),
            Way::ToZero => number.trunc(),
            Way::Up => number.ceil(),
            Way::Down => number.floor(),
        }
    }
}

fn rounding_wants(name: &'static str, types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    match types {
        [kind] if kind.is_floating() || kind.is_integer() || kind.is_null() => Ok(vec![DataType::Float64]),
        [kind, digits] if digits.is_integer() && !kind.is_floating() && matches!(name, "round" | "trunc") => {
            Ok(vec![operand(kind).ok_or_else(|| no_function(name, types))?, DataType::Int64])
        }
        [kind] => Ok(vec![operand(kind).ok_or_else(|| no_function(name, types))?]),
        [kind, _] if kind.is_floating() => Err(no_function(name, types)
            .with_hint("Only a numeric is rounded to a number of digits: cast the value to numeric first.")),
        _ => Err(no_function(name, types)),
    }
}

fn size(kind: &DataType) -> Option<(u8, i8)> {
    match kind {
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) => Some((*precision, *scale)),
        _ => None,
    }
}

/// The result has as many digits behind the point as requested, if that is a constant; otherwise as many as the
/// argument.
fn rounding_gives(types: &[Argument<'_>]) -> Result<DataType, SqlError> {
    let Some((kind, _)) = types.first() else { return Err(no_function("round", &[])) };
    let Some((precision, scale)) = size(kind) else { return Ok(DataType::Float64) };
    let digits = match types.get(1) {
        None => 0,
        Some((_, Some(ScalarValue::Int64(Some(digits))))) => (*digits).clamp(0, 36) as i8,
        Some(_) => scale,
    };
    let whole = i16::from(precision) - i16::from(scale) + 1;
    let precision = (whole + i16::from(digits)).max(1);
    Ok(match u8::try_from(precision) {
        Ok(precision @ ..=38) => DataType::Decimal128(precision, digits),
        Ok(precision) => DataType::Decimal256(precision.min(76), digits),
        Err(_) => DataType::Decimal256(76, digits),
    })
}

fn rounding_run(way: Way, arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    let Some((_, scale)) = size(arrays[0].data_type()) else {
        let values = arrays[0].as_primitive::<Float64Type>();
        return Ok(Arc::new(values.unary::<_, Float64Type>(|number| way.of_float(number))));
    };
    let (_, to) = size(gives).unwrap_or((76, 0));
    let too_large = || SqlError::value("22003", "numeric field overflow");
    let power = |digits: i64| u32::try_from(digits).ok().and_then(|digits| i256::from_i128(10).checked_pow(digits));
    let wide = cast(&arrays[0], &DataType::Decimal256(76, scale))?;
    let values = wide.as_primitive::<Decimal256Type>();
    let rounded = (0..values.len()).map(|row| {
        let wanted = match arrays.get(1) {
            Some(digits) if digits.is_null(row) => return Ok(None),
            Some(digits) => digits.as_primitive::<Int64Type>().value(row),
            None => 0,
        };
        // No more digits than exist: 1e20 has -20.
        let digits = wanted.min(i64::from(scale.min(to)));
        if values.is_null(row) {
            return Ok(None);
        }
        // If more digits are removed than exist, the result is zero.
        let Some(unit) = power(i64::from(scale).saturating_sub(digits)) else { return Ok(Some(i256::ZERO)) };
        let whole = way.cut(values.value(row), unit);
        let grown = power(i64::from(to).saturating_sub(digits)).and_then(|factor| whole.checked_mul(factor));
        grown.map(Some).ok_or_else(too_large)
    });
    let rounded = rounded.collect::<Result<Decimal256Array, SqlError>>()?;
    let rounded: ArrayRef = Arc::new(rounded.with_data_type(DataType::Decimal256(76, to)));
    cast(&rounded, gives)
}

macro_rules! rounding {
    ($name:literal, $way:expr) => {
        PgFunction {
            name: $name,
            wants: |types| rounding_wants($name, types),
            gives: rounding_gives,
            run: |arrays, gives| rounding_run($way, arrays, gives),
            between: None,
        }
    };
}

macro_rules! float {
    ($name:literal, $of:expr) => {
        PgFunction {
            name: $name,
            wants: |types| float_wants($name, 1, types),
            gives: |types| float_gives($name, types),
            run: |arrays, _| float_run(arrays, $of),
            between: None,
        }
    };
}

macro_rules! float2 {
    ($name:literal) => {
        PgFunction {
            name: $name,
            wants: |types| float_wants($name, 2, types),
            gives: |types| float_gives($name, types),
            run: |arrays, _| float_run(arrays, power),
            between: None,
        }
    };
}

/// The functions that can be called by name.
pub(crate) const CALLED: &[PgFunction] = &[
    rounding!("round", Way::Nearest),
    rounding!("trunc", Way::ToZero),
    rounding!("ceil", Way::Up),
    rounding!("ceiling", Way::Up),
    rounding!("floor", Way::Down),
    float!("sqrt", |x, _| if x < 0.0 {
        Err(("2201F", "cannot take square root of a negative number"))
    } else {
        Ok(x.sqrt())
    }),
    float!("cbrt", |x, _| Ok(x.cbrt())),
    float!("exp", |x, _| Ok(x.exp())),
    float!("ln", |x, _| logarithm(x, f64::ln)),
    float!("log", |x, _| logarithm(x, f64::log10)),
    float!("log10", |x, _| logarithm(x, f64::log10)),
    float2!("power"),
    float2!("pow"),
];

type Outcome = Result<f64, (&'static str, &'static str)>;

fn logarithm(x: f64, of: impl Fn(f64) -> f64) -> Outcome {
    if x == 0.0 {
        Err(("2201E", "cannot take logarithm of zero"))
    } else if x < 0.0 {
        Err(("2201E", "cannot take logarithm of a negative number"))
    } else {
        Ok(of(x))
    }
}

fn power(x: f64, y: f64) -> Outcome {
    if x == 0.0 && y < 0.0 {
        Err(("2201F", "zero raised to a negative power is undefined"))
    } else if x < 0.0 && x.is_finite() && y.is_finite() && y.fract() != 0.0 {
        Err(("2201F", "a negative number raised to a non-integer power yields a complex result"))
    } else {
        Ok(x.powf(y))
    }
}

/// Numerics keep their type; the function that determines the result's type refuses them by name.
fn float_wants(name: &str, count: usize, types: &[DataType]) -> Result<Vec<DataType>, SqlError> {
    let wanted = |kind: &DataType| if kind.is_decimal() { kind.clone() } else { DataType::Float64 };
    match types.len() == count && types.iter().all(|kind| kind.is_numeric() || kind.is_null()) {
        true => Ok(types.iter().map(wanted).collect()),
        false => Err(no_function(name, types)),
    }
}

fn float_gives(name: &str, types: &[Argument<'_>]) -> Result<DataType, SqlError> {
    match types.iter().any(|(kind, _)| kind.is_decimal()) {
        true => {
            Err(SqlError::unsupported(format!("function {name} of a numeric"))
                .with_hint("Cast it to double precision."))
        }
        false => Ok(DataType::Float64),
    }
}

fn float_run(arrays: &[ArrayRef], of: fn(f64, f64) -> Outcome) -> Result<ArrayRef, SqlError> {
    let first = arrays[0].as_primitive::<Float64Type>();
    let second = arrays.get(1).map_or(first, |array| array.as_primitive::<Float64Type>());
    let values = first.iter().zip(second).map(|pair| {
        let (Some(x), Some(y)) = pair else { return Ok(None) };
        let value = of(x, y).map_err(|(code, message)| SqlError::value(code, message))?;
        match value.is_infinite() && x.is_finite() && y.is_finite() {
            true => Err(SqlError::value("22003", "value out of range: overflow")),
            false => Ok(Some(value)),
        }
    });
    Ok(Arc::new(values.collect::<Result<Float64Array, SqlError>>()?))
}

/// The cast of a float or numeric to a whole number, rounded.
pub(crate) fn to_integer(kind: &DataType) -> Option<PgFunction> {
    macro_rules! to {
        ($name:literal, $sql:literal, $kind:ident, $array:ident, $native:ty) => {
            PgFunction {
                name: $name,
                wants: |types| Ok(types.to_vec()),
                gives: |_| Ok(DataType::$kind),
                run: |arrays, _| {
                    let whole = whole_numbers(&arrays[0], $sql)?;
                    let values = whole.into_iter().map(|value| match value.map(<$native>::try_from) {
                        None => Ok(None),
                        Some(Ok(value)) => Ok(Some(value)),
                        Some(Err(_)) => Err(SqlError::value("22003", concat!($sql, " out of range"))),
                    });
                    Ok(Arc::new(values.collect::<Result<$array, SqlError>>()?))
                },
                between: Some(""),
            }
        };
    }
    Some(match kind {
        DataType::Int16 => to!("to_smallint", "smallint", Int16, Int16Array, i16),
        DataType::Int32 => to!("to_integer", "integer", Int32, Int32Array, i32),
        DataType::Int64 => to!("to_bigint", "bigint", Int64, Int64Array, i64),
        _ => return None,
    })
}

/// Each number rounded; a number that does not fit in 128 bits is out of range of every type.
fn whole_numbers(array: &ArrayRef, target: &str) -> Result<Vec<Option<i128>>, SqlError> {
    let out_of_range = || SqlError::value("22003", format!("{target} out of range"));
    if array.data_type().is_floating() {
        let values = cast(array, &DataType::Float64)?;
        // 2^63 is beyond all types, and far below the range of 128 bits.
        let rounded = values.as_primitive::<Float64Type>().iter().map(|value| match value.map(f64::round_ties_even) {
            None => Ok(None),
            Some(value) if value.abs() <= 9_223_372_036_854_775_808.0 => Ok(Some(value as i128)),
            Some(_) => Err(out_of_range()),
        });
        return rounded.collect();
    }
    let rounded = rounding_run(Way::Nearest, std::slice::from_ref(array), &DataType::Decimal256(76, 0))?;
    let values = rounded.as_primitive::<Decimal256Type>().iter();
    values.map(|value| value.map(|value| value.to_i128().ok_or_else(out_of_range)).transpose()).collect()
}

/// A cast of a float to a numeric of any size, with 15 significant digits of a `double precision`, and 6 of a `real`.
pub(crate) fn to_numeric(kind: &DataType) -> PgFunction {
    fn to(name: &'static str, run: fn(&[ArrayRef], &DataType) -> Result<ArrayRef, SqlError>) -> PgFunction {
        PgFunction { name, wants: |types| Ok(types.to_vec()), gives: |_| Ok(QUOTIENT), run, between: Some("") }
    }
    match kind {
        DataType::Float64 => to("numeric_of_double", |arrays, _| numeric_of(&arrays[0], 15)),
        _ => to("numeric_of_real", |arrays, _| numeric_of(&arrays[0], 6)),
    }
}

fn numeric_of(array: &ArrayRef, digits: usize) -> Result<ArrayRef, SqlError> {
    let values = cast(array, &DataType::Float64)?;
    let DataType::Decimal256(_, scale) = QUOTIENT else { return Err(no_function("numeric", &[])) };
    let lost = |value: f64| {
        SqlError::value("22003", format!("{value} cannot be stored as a numeric"))
            .with_hint("Numerics have up to 40 digits before the point and 36 behind it here.")
    };
    let numbers = values.as_primitive::<Float64Type>().iter().map(|value| {
        let Some(value) = value else { return Ok(None) };
        let text = format!("{value:.*e}", digits - 1);
        let (mantissa, exponent) = text.split_once('e').ok_or_else(|| lost(value))?;
        let exponent: i32 = exponent.parse().map_err(|_| lost(value))?;
        let unscaled: String = mantissa.chars().filter(|letter| *letter != '.').collect();
        let zeros = i32::from(scale) + exponent - (digits as i32 - 1);
        let number = match usize::try_from(zeros) {
            Ok(zeros) => i256::from_string(&format!("{unscaled}{}", "0".repeat(zeros))),
            Err(_) => {
                let (kept, cut) = unscaled.split_at(unscaled.len().saturating_sub(zeros.unsigned_abs() as usize));
                let kept = if kept.is_empty() || kept == "-" { "0" } else { kept };
                cut.bytes().all(|digit| digit == b'0').then(|| i256::from_string(kept)).flatten()
            }
        };
        match number.filter(|number| number.to_string().trim_start_matches('-').len() <= 76) {
            Some(number) => Ok(Some(number)),
            None => Err(lost(value)),
        }
    });
    Ok(Arc::new(numbers.collect::<Result<Decimal256Array, SqlError>>()?.with_data_type(QUOTIENT)))
}
