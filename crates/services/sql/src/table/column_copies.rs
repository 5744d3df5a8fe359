//! Copies of columns, which let go of the arrays of which they are a part: the vector of a row group, the block of a builder.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, MutableArrayData, RecordBatch, RecordBatchOptions, make_array,
};
use datafusion::arrow::datatypes::DataType;
use datafusion::arrow::error::ArrowError;

/// The same batch, whose columns are what `own` makes of them.
pub(crate) fn owned(
    batch: &RecordBatch,
    own: impl Fn(&ArrayRef) -> Result<ArrayRef, ArrowError>,
) -> Result<RecordBatch, ArrowError> {
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    let columns = batch.columns().iter().map(own).collect::<Result<Vec<ArrayRef>, ArrowError>>()?;
    RecordBatch::try_new_with_options(batch.schema(), columns, &options)
}

/// A copy of a column's rows, and of nothing else.
pub(crate) fn copied(column: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    // Views would keep their texts.
    let data = match column.data_type() {
        DataType::Utf8View => column.as_string_view().gc().to_data(),
        DataType::BinaryView => column.as_binary_view().gc().to_data(),
        _ => column.to_data(),
    };
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len())?;
    Ok(make_array(copy.freeze()))
}
