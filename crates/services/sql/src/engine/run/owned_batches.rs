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

use datafusion::arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array, new_empty_array,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result as DfResult;

/// Columns that keep less memory stay as they are.
const SMALL_BYTES: usize = 64 << 10;

/// The same rows, at most `rows` in a batch.
pub(crate) fn parts(batch: DfResult<RecordBatch>, rows: usize) -> Vec<DfResult<RecordBatch>> {
    match batch {
        Ok(batch) if batch.num_rows() > rows => {
            let starts = (0..batch.num_rows()).step_by(rows.max(1));
            starts.map(|at| owned(&batch.slice(at, rows.min(batch.num_rows() - at)))).collect()
        }
        Ok(batch) => vec![owned(&batch)],
        Err(error) => vec![Err(error)],
    }
}

/// The same batch; columns that keep more than twice the memory that their rows need are copied.
fn owned(batch: &RecordBatch) -> DfResult<RecordBatch> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().iter().map(own).collect::<DfResult<_>>()?;
    Ok(RecordBatch::try_new_with_options(batch.schema(), columns, &options)?)
}

fn own(column: &ArrayRef) -> DfResult<ArrayRef> {
    let holds = column.get_buffer_memory_size();
    if holds <= SMALL_BYTES {
        return Ok(column.clone());
    }
    if column.is_empty() {
        return Ok(new_empty_array(column.data_type()));
    }
    let data = column.to_data();
    let views = data.get_slice_memory_size()?;
    let is_sparse = |texts: usize| holds > 2 * (views + texts) + SMALL_BYTES;
    match column.data_type() {
        DataType::Utf8View => {
            let view = column.as_string_view();
            if is_sparse(view.total_buffer_bytes_used()) { copied(&view.gc().to_data()) } else { Ok(column.clone()) }
        }
        DataType::BinaryView => {
            let view = column.as_binary_view();
            if is_sparse(view.total_buffer_bytes_used()) { copied(&view.gc().to_data()) } else { Ok(column.clone()) }
        }
        _ if !is_sparse(0) => Ok(column.clone()),
        _ => copied(&data),
    }
}

/// A copy of these rows; views keep their texts.
fn copied(data: &ArrayData) -> DfResult<ArrayRef> {
    let mut copy = MutableArrayData::new(vec![data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
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
