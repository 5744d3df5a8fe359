//! [`parts`]: batches that keep no more memory than their rows need.
//!
//! ```text
//!   row group in the cache  [............ 122,880 texts ............]      a batch of a scan: a few rows of it
//!   batch                            ^^^^^^^                             its memory, as Arrow counts it: all of the row group's
//! ```
//!
//! A scan returns slices of data in the cache, and other plans return slices of their own data, without a copy. A plan
//! that keeps many slices, and reserves memory for each, would reserve the whole as often as there are slices, and keep
//! all of it for one row. So plans that keep batches get copies; others do not.
//!
//! They also get at most as many rows at a time as a batch of the session has: a sort cuts its output to that size, and
//! counts the texts of the whole output for each piece (DataFusion 55.2).

use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch, new_empty_array};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;
use datafusion::error::Result as DfResult;

use crate::table::column_copies::{copied, owned};

/// Columns that keep less memory stay as they are.
const SMALL_BYTES: usize = 64 << 10;

/// The same rows, at most `rows` in a batch.
pub(crate) fn parts(batch: DfResult<RecordBatch>, rows: usize) -> Vec<DfResult<RecordBatch>> {
    match batch {
        Ok(batch) if batch.num_rows() > rows => {
            let starts = (0..batch.num_rows()).step_by(rows.max(1));
            let part = |at: usize| batch.slice(at, rows.min(batch.num_rows() - at));
            starts.map(|at| Ok(owned(&part(at), own)?)).collect()
        }
        Ok(batch) => vec![owned(&batch, own).map_err(Into::into)],
        Err(error) => vec![Err(error)],
    }
}

/// The same column; a copy if it keeps more than twice the memory that its rows need.
fn own(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let holds = column.get_buffer_memory_size();
    if holds <= SMALL_BYTES {
        return Ok(column.clone());
    }
    if column.is_empty() {
        return Ok(new_empty_array(column.data_type()));
    }
    let views = column.to_data().get_slice_memory_size()?;
    let texts = match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_buffer_bytes_used(),
        DataType::BinaryView => column.as_binary_view().total_buffer_bytes_used(),
        _ => 0,
    };
    match holds > 2 * (views + texts) + SMALL_BYTES {
        true => copied(column),
        false => Ok(column.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{BinaryArray, BooleanArray, Int64Array, ListArray, StringArray, StringViewArray};
    use datafusion::arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn a_slice_of_any_kind_keeps_its_rows_and_lets_go_of_the_others() {
        let rows = 200_000_u64;
        let text = |row: u64| (!row.is_multiple_of(7)).then(|| format!("a text that is not short, {row}"));
        let columns: [ArrayRef; 6] = [
            Arc::new((0..rows).map(text).collect::<StringArray>()),
            Arc::new((0..rows).map(text).collect::<StringViewArray>()),
            Arc::new((0..rows).map(text).map(|text| text.map(String::into_bytes)).collect::<BinaryArray>()),
            Arc::new((0..rows).map(|row| (!row.is_multiple_of(5)).then_some(row as i64)).collect::<Int64Array>()),
            Arc::new(
                (0..rows * 8)
                    .map(|row| (!row.is_multiple_of(3)).then_some(row.is_multiple_of(2)))
                    .collect::<BooleanArray>(),
            ),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(
                (0..rows).map(|row| (!row.is_multiple_of(4)).then(|| vec![Some(row as i64), None])),
            )),
        ];
        for whole in columns {
            let kind = whole.data_type().clone();
            for (at, len) in [(0, 100), (1003, 1001), (199_000, 1000), (7, 0)] {
                let slice = whole.slice(at, len);
                let copy = own(&slice).expect("it is copied");
                assert_eq!(&copy, &slice, "{kind}: {len} rows from {at}");
                let holds = copy.get_buffer_memory_size();
                assert!(holds < whole.get_buffer_memory_size() / 20 || holds <= SMALL_BYTES, "{kind}: {holds} bytes");
            }
            let same = own(&whole).expect("it is taken as it is");
            assert!(same.to_data().ptr_eq(&whole.to_data()), "{kind}: all of it was copied");
        }
    }
}
