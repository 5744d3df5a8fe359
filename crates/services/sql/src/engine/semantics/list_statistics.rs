//! `most_frequent` and `discrete_percentile`: what `mode` and `percentile_disc` take of the list of all values of a group, which has their
//! order and no NULL. An empty list has neither.

use std::ops::Range;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, UInt64Array};
use datafusion::arrow::compute::{partition, take};
use datafusion::arrow::datatypes::{DataType, Float64Type};

use super::pg_function::{Argument, PgFunction, no_function};
use crate::SqlError;

/// The functions.
pub(crate) const CALLED: &[PgFunction] = &[
    PgFunction {
        name: "most_frequent",
        wants: |types| match types {
            [list @ DataType::List(_)] => Ok(vec![list.clone()]),
            _ => Err(no_function("mode", types)),
        },
        gives: element,
        run: |arrays, _| chosen(&arrays[0], |values, _| longest_run(values).map(Some)),
        between: None,
    },
    PgFunction {
        name: "discrete_percentile",
        wants: |types| match types {
            [list @ DataType::List(_), fraction] if fraction.is_numeric() || fraction.is_null() => {
                Ok(vec![list.clone(), DataType::Float64])
            }
            _ => Err(no_function("percentile_disc", types)),
        },
        gives: element,
        run: |arrays, _| {
            let fractions = arrays[1].as_primitive::<Float64Type>();
            chosen(&arrays[0], |values, row| match fractions.is_valid(row) {
                true => at_fraction(fractions.value(row), values.len()).map(Some),
                false => Ok(None),
            })
        },
        between: None,
    },
];

fn element(types: &[Argument<'_>]) -> Result<DataType, SqlError> {
    match types {
        [(DataType::List(item), _), ..] => Ok(item.data_type().clone()),
        _ => Err(no_function("array_agg", &[])),
    }
}

/// The chosen value of each list. `of` has the place in a list that is not empty.
fn chosen(
    lists: &ArrayRef,
    of: impl Fn(&ArrayRef, usize) -> Result<Option<usize>, SqlError>,
) -> Result<ArrayRef, SqlError> {
    let lists = lists.as_list::<i32>();
    let places = (0..lists.len()).map(|row| {
        if lists.is_null(row) || lists.value_length(row) == 0 {
            return Ok(None);
        }
        let first = lists.value_offsets()[row] as u64;
        Ok(of(&lists.value(row), row)?.map(|place| first + place as u64))
    });
    let places = places.collect::<Result<UInt64Array, SqlError>>()?;
    Ok(take(lists.values(), &places, None)?)
}

/// The place of the first value of the longest run of equal ones; of two such runs the first.
fn longest_run(values: &ArrayRef) -> Result<usize, SqlError> {
    let runs = partition(std::slice::from_ref(values))?.ranges();
    let longer = |best: Range<usize>, run: Range<usize>| if run.len() > best.len() { run } else { best };
    Ok(runs.into_iter().reduce(longer).map_or(0, |run| run.start))
}

/// The place of the first value that has this fraction of all values up to it.
fn at_fraction(fraction: f64, count: usize) -> Result<usize, SqlError> {
    if !(0.0..=1.0).contains(&fraction) {
        return Err(SqlError::value("22003", format!("percentile value {fraction} is not between 0 and 1")));
    }
    Ok(((fraction * count as f64).ceil() as usize).clamp(1, count) - 1)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int32Array, StringArray};

    use super::*;

    #[test]
    fn the_first_of_the_most_frequent_values_and_the_value_at_a_fraction_are_chosen() {
        let run =
            |values: Vec<i32>| longest_run(&(Arc::new(Int32Array::from(values)) as ArrayRef)).expect("it has a value");
        assert_eq!((run(vec![1]), run(vec![1, 2, 2, 3, 3]), run(vec![1, 1, 2, 2, 2])), (0, 1, 2));
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["a", "bb", "bb", "c"]));
        assert_eq!(longest_run(&texts).expect("it has a value"), 1);
        for (fraction, count, expected) in [(0.0, 4, 0), (0.5, 4, 1), (0.5, 5, 2), (0.51, 4, 2), (1.0, 4, 3)] {
            assert_eq!(at_fraction(fraction, count).expect("it is one"), expected, "{fraction} of {count}");
        }
        assert_eq!(at_fraction(1.5, 4).expect_err("it is none").code(), "22003");
    }
}
