//! Functions of numerics that are exact: `div`, `sign`, `factorial`, `width_bucket`.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Decimal128Array, Decimal256Array, Float64Array, Int32Array};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Decimal256Type, Float64Type, Int64Type, i256};

use super::numeric_division::operand;
use super::pg_function::{PgFunction, no_function};
use super::rows::{each, wanted};
use crate::SqlError;

/// The functions.
pub(crate) const CALLED: &[PgFunction] = &[
    PgFunction {
        name: "div",
        wants: |types| numerics("div", types, 2),
        gives: |_| Ok(DataType::Decimal128(38, 0)),
        run: div,
        between: None,
    },
    PgFunction {
        name: "sign",
        wants: |types| match types {
            [kind] if kind.is_floating() => Ok(vec![DataType::Float64]),
            _ => numerics("sign", types, 1),
        },
        gives: |types| match types {
            [(DataType::Float64, _)] => Ok(DataType::Float64),
            _ => Ok(DataType::Decimal128(1, 0)),
        },
        run: sign,
        between: None,
    },
    PgFunction {
        name: "factorial",
        wants: |types| wanted("factorial", "i", types),
        gives: |_| Ok(DataType::Decimal256(76, 0)),
        run: factorial,
        between: None,
    },
    PgFunction {
        name: "width_bucket",
        wants: |types| match types {
            [value, low, high, count] if count.is_integer() => {
                let bounds = [value.clone(), low.clone(), high.clone()];
                let mut wanted = match bounds.iter().any(DataType::is_floating) {
                    true => vec![DataType::Float64; 3],
                    false => numerics("width_bucket", &bounds, 3)?,
                };
                wanted.push(DataType::Int64);
                Ok(wanted)
            }
            _ => Err(no_function("width_bucket", types)),
        },
        gives: |_| Ok(DataType::Int32),
        run: width_bucket,
        between: None,
    },
];

fn numerics(name: &str, types: &[DataType], count: usize) -> Result<Vec<DataType>, SqlError> {
    let found: Option<Vec<DataType>> = types.iter().map(operand).collect();
    found.filter(|found| found.len() == count).ok_or_else(|| no_function(name, types))
}

fn scale(array: &ArrayRef) -> i8 {
    match array.data_type() {
        DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// Numerics as whole numbers with one scale.
fn aligned(arrays: &[ArrayRef]) -> Result<Vec<Decimal256Array>, SqlError> {
    let most = arrays.iter().map(scale).max().unwrap_or(0);
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    let wide = |array| cast_with_options(array, &DataType::Decimal256(76, most), &strict);
    arrays.iter().map(|array| Ok(wide(array)?.as_primitive::<Decimal256Type>().clone())).collect()
}

fn div(arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    let numbers = aligned(arrays)?;
    let quotients = numbers[0].iter().zip(&numbers[1]).map(|pair| match pair {
        (Some(_), Some(i256::ZERO)) => Err(SqlError::value("22012", "division by zero")),
        (Some(dividend), Some(divisor)) => Ok(dividend.checked_div(divisor)),
        _ => Ok(None),
    });
    let wide = quotients.collect::<Result<Decimal256Array, SqlError>>()?.with_data_type(DataType::Decimal256(76, 0));
    let strict = CastOptions { safe: false, ..CastOptions::default() };
    cast_with_options(&wide, gives, &strict).map_err(|_| SqlError::value("22003", "numeric field overflow"))
}

fn sign(arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    if *gives == DataType::Float64 {
        let values = arrays[0].as_primitive::<Float64Type>().iter();
        let sign = |value: f64| if value == 0.0 || value.is_nan() { value.abs() } else { value.signum() };
        return Ok(Arc::new(values.map(|value| value.map(sign)).collect::<Float64Array>()));
    }
    let numbers = aligned(arrays)?;
    let signs = numbers[0]
        .iter()
        .map(|value| value.map(|value| i128::from(value.is_positive()) - i128::from(value.is_negative())));
    Ok(Arc::new(signs.collect::<Decimal128Array>().with_data_type(gives.clone())))
}

fn factorial(arrays: &[ArrayRef], gives: &DataType) -> Result<ArrayRef, SqlError> {
    let too_large = || SqlError::value("22003", "value overflows numeric format");
    let products = arrays[0].as_primitive::<Int64Type>().iter().map(|number| match number {
        None => Ok(None),
        Some(number @ ..0) => {
            let _ = number;
            Err(SqlError::value("22003", "factorial of a negative number is undefined"))
        }
        // 57! has 77 digits.
        Some(57..) => Err(too_large()),
        Some(number) => {
            let product = (2..=number)
                .try_fold(i256::ONE, |product, factor| product.checked_mul(i256::from_i128(i128::from(factor))));
            product.map(Some).ok_or_else(too_large)
        }
    });
    Ok(Arc::new(products.collect::<Result<Decimal256Array, SqlError>>()?.with_data_type(gives.clone())))
}

fn width_bucket(arrays: &[ArrayRef], _: &DataType) -> Result<ArrayRef, SqlError> {
    let wrong = |message: &str| SqlError::value("2201G", message);
    let counted = |count: i64| match i32::try_from(count) {
        Ok(count @ 1..) => Ok(count),
        _ => Err(wrong("count must be greater than zero")),
    };
    let too_many = || SqlError::value("22003", "integer out of range");
    let behind = |bucket: i32| bucket.checked_add(1).ok_or_else(too_many);
    if *arrays[0].data_type() == DataType::Float64 {
        return Ok(Arc::new(each::<i32, Int32Array>(arrays, |row| {
            let ((value, low, high), count) = ((row.float(0), row.float(1), row.float(2)), counted(row.int(3))?);
            if value.is_nan() || !low.is_finite() || !high.is_finite() {
                return Err(wrong("operand, lower bound, and upper bound cannot be NaN"));
            }
            if low == high {
                return Err(wrong("lower bound cannot equal upper bound"));
            }
            let part = (value - low) / (high - low);
            match part {
                ..0.0 => Ok(Some(0)),
                1.0.. => behind(count).map(Some),
                part => behind((part * f64::from(count)) as i32).map(Some),
            }
        })?));
    }
    let numbers = aligned(&arrays[..3])?;
    let counts = arrays[3].as_primitive::<Int64Type>();
    let buckets = (0..counts.len()).map(|row| {
        if counts.is_null(row) || numbers.iter().any(|numbers| numbers.is_null(row)) {
            return Ok(None);
        }
        let [value, low, high] = [0, 1, 2].map(|at| numbers[at].value(row));
        let count = counted(counts.value(row))?;
        if low == high {
            return Err(wrong("lower bound cannot equal upper bound"));
        }
        let (above, width) = match low < high {
            true => (value.wrapping_sub(low), high.wrapping_sub(low)),
            false => (low.wrapping_sub(value), low.wrapping_sub(high)),
        };
        if above.is_negative() {
            return Ok(Some(0));
        }
        if above >= width {
            return behind(count).map(Some);
        }
        let places = above.checked_mul(i256::from_i128(i128::from(count))).and_then(|all| all.checked_div(width));
        let bucket = places.and_then(i256::to_i128).and_then(|place| i32::try_from(place).ok());
        behind(bucket.ok_or_else(too_many)?).map(Some)
    });
    Ok(Arc::new(buckets.collect::<Result<Int32Array, SqlError>>()?))
}
