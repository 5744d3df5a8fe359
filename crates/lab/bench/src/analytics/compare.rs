//! Compares two results: they must have as many rows of the same values, in any order among rows that sort alike.
//!
//! Everything but floats must be equal, decimals to the last digit; floats may differ by a billionth of their value, because
//! they are added up in another order.

use anyhow::bail;
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Float64Type};
use datafusion::arrow::util::display::{ArrayFormatter, FormatOptions};

/// How much floats may differ, relative to the larger.
const TOLERANCE: f64 = 1e-9;

/// A value: a float, or anything else as text.
#[derive(Clone, Debug, PartialEq, PartialOrd)]
enum Value {
    Exact(Option<String>),
    Float(f64),
}

/// Why two results differ; `None` where they do not.
pub(crate) fn difference(ours: &[RecordBatch], plain: &[RecordBatch]) -> anyhow::Result<Option<String>> {
    let (ours, plain) = (rows(ours)?, rows(plain)?);
    if ours.len() != plain.len() {
        return Ok(Some(format!("{} rows and not {}", ours.len(), plain.len())));
    }
    for (number, (our, their)) in ours.iter().zip(&plain).enumerate() {
        if our.len() != their.len() {
            return Ok(Some(format!("{} columns and not {}", our.len(), their.len())));
        }
        if let Some(at) = (0..our.len()).find(|&at| !same(&our[at], &their[at])) {
            return Ok(Some(format!("row {number}, column {at}: {:?} and not {:?}", our[at], their[at])));
        }
    }
    Ok(None)
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Float(a), Value::Float(b)) => {
            (a - b).abs() <= TOLERANCE * a.abs().max(b.abs()) || a.is_nan() && b.is_nan()
        }
        _ => a == b,
    }
}

fn rows(batches: &[RecordBatch]) -> anyhow::Result<Vec<Vec<Value>>> {
    let options = FormatOptions::new().with_null("\0");
    let mut rows = Vec::new();
    for batch in batches {
        let from = rows.len();
        rows.resize(from + batch.num_rows(), Vec::with_capacity(batch.num_columns()));
        for column in batch.columns() {
            if matches!(column.data_type(), DataType::Float32 | DataType::Float64) {
                let wide = cast(column, &DataType::Float64)?;
                let wide = wide.as_primitive::<Float64Type>();
                for row in 0..batch.num_rows() {
                    rows[from + row].push(if wide.is_null(row) {
                        Value::Exact(None)
                    } else {
                        Value::Float(wide.value(row))
                    });
                }
                continue;
            }
            if matches!(column.data_type(), DataType::Struct(_) | DataType::Map(_, _)) {
                bail!("results of type {} are not compared", column.data_type());
            }
            let formatter = ArrayFormatter::try_new(column.as_ref(), &options)?;
            for row in 0..batch.num_rows() {
                let text = (!column.is_null(row)).then(|| formatter.value(row).to_string());
                rows[from + row].push(Value::Exact(text));
            }
        }
    }
    rows.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{ArrayRef, Float64Array, Int64Array};

    use super::*;

    fn batch(keys: Vec<i64>, values: Vec<f64>) -> RecordBatch {
        let columns: [(&str, ArrayRef); 2] =
            [("k", Arc::new(Int64Array::from(keys))), ("v", Arc::new(Float64Array::from(values)))];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    #[test]
    fn results_are_the_same_in_any_order_and_differ_by_a_row_a_key_or_a_float() {
        let one = [batch(vec![1, 2], vec![0.5, 1e9])];
        let differs = |other: RecordBatch| difference(&one, &[other]).unwrap().is_some();
        assert!(!differs(batch(vec![2, 1], vec![1e9 + 0.1, 0.5])));
        assert!(differs(batch(vec![1], vec![0.5])));
        assert!(differs(batch(vec![1, 3], vec![0.5, 1e9])));
        assert!(differs(batch(vec![1, 2], vec![0.5, 1e9 + 10.0])));
    }
}
