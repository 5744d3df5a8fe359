//! The length of values: which types may have long values, and the sizes of an array's values in bytes.

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result as DfResult;

use crate::table::uuid::UUID;

/// Whether values of a type may be long.
pub(crate) fn is_long(kind: &DataType) -> bool {
    kind.is_nested() || kind.is_string() || (kind.is_binary() && *kind != UUID)
}

/// Bytes of each text; numbers unchanged.
pub(crate) fn lengths(array: &ArrayRef) -> DfResult<Vec<i64>> {
    fn of<'a, T: AsRef<[u8]> + ?Sized + 'a>(values: impl Iterator<Item = Option<&'a T>>) -> Vec<i64> {
        values.map(|value| value.map_or(0, |value| value.as_ref().len() as i64)).collect()
    }
    Ok(match array.data_type() {
        DataType::Utf8 => of(array.as_string::<i32>().iter()),
        DataType::LargeUtf8 => of(array.as_string::<i64>().iter()),
        DataType::Utf8View => of(array.as_string_view().iter()),
        DataType::Binary => of(array.as_binary::<i32>().iter()),
        DataType::LargeBinary => of(array.as_binary::<i64>().iter()),
        DataType::BinaryView => of(array.as_binary_view().iter()),
        kind if kind.is_integer() => {
            let numbers = cast(array, &DataType::Int64)?;
            numbers.as_primitive::<Int64Type>().iter().map(|number| number.unwrap_or(0)).collect()
        }
        // For lists the mean length: their sum is what counts.
        kind if kind.is_nested() => {
            let mean = array.to_data().get_slice_memory_size()?.div_ceil(array.len().max(1));
            vec![mean as i64; array.len()]
        }
        _ => vec![16; array.len()],
    })
}
