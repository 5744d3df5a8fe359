//! The length of values: which types may have long values, and the sizes of an array's values in bytes.
//!
//! ```text
//!   views   [ 0..9 | 0..9 | 0..9 | .. ]      a join repeats a text: each row's view refers to the same bytes
//!   buffer  [ text of a megabyte ]           its memory is one text's; as a column of their own the values take one for each row
//! ```

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Int64Type};
use datafusion::error::Result as DfResult;

use crate::table::uuid::UUID;

/// Bytes of a view itself.
const VIEW: u128 = 16;

/// Whether values of a type may be long.
pub(crate) fn is_long(kind: &DataType) -> bool {
    kind.is_nested() || kind.is_string() || (kind.is_binary() && *kind != UUID)
}

/// Bytes of each text or list; numbers unchanged.
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
        kind if kind.is_nested() => {
            let each = (0..array.len()).map(|row| held(array.slice(row, 1).as_ref()));
            each.map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX)).collect()
        }
        _ => vec![16; array.len()],
    })
}

/// Bytes of an array's values as a column of their own: a view counts with the bytes that it refers to, however many refer to them.
pub(crate) fn held(array: &dyn Array) -> u128 {
    match array.data_type() {
        DataType::Utf8View => referred(array.as_string_view().views()),
        DataType::BinaryView => referred(array.as_binary_view().views()),
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            let offsets = lists.value_offsets();
            held_between(lists.values().as_ref(), offsets.first().copied(), offsets.last().copied())
        }
        DataType::LargeList(_) => {
            let lists = array.as_list::<i64>();
            let offsets = lists.value_offsets();
            held_between(lists.values().as_ref(), offsets.first().copied(), offsets.last().copied())
        }
        DataType::Map(..) => {
            let maps = array.as_map();
            let offsets = maps.value_offsets();
            held_between(maps.entries(), offsets.first().copied(), offsets.last().copied())
        }
        DataType::FixedSizeList(..) => held(array.as_fixed_size_list().values().as_ref()),
        DataType::Struct(_) => {
            let columns = array.as_struct().columns().iter();
            columns.fold(0, |sum, column| held(column.as_ref()).saturating_add(sum))
        }
        _ => array.to_data().get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size()) as u128,
    }
}

/// Bytes of views and what they refer to; its length is the lower part of each.
fn referred(views: &[u128]) -> u128 {
    views.iter().fold(0, |sum: u128, view| sum.saturating_add(VIEW + u128::from(*view as u32)))
}

/// Bytes of lists: of their elements from one offset to another, and of the offsets.
fn held_between<T: TryInto<usize>>(elements: &dyn Array, from: Option<T>, to: Option<T>) -> u128 {
    let place = |offset: Option<T>| offset.and_then(|offset| offset.try_into().ok()).unwrap_or(0);
    let (from, to) = (place(from), place(to));
    held(elements.slice(from, to.saturating_sub(from)).as_ref()).saturating_add(8)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{BinaryViewArray, Int64Array, ListArray, StringViewArray, UInt32Array};
    use datafusion::arrow::buffer::OffsetBuffer;
    use datafusion::arrow::compute::take;
    use datafusion::arrow::datatypes::Field;

    use super::*;

    const LONG: usize = 1000;

    /// Views of which many refer to one text.
    fn repeated(one: &ArrayRef, times: u32) -> ArrayRef {
        take(one, &UInt32Array::from_iter_values((0..times).map(|_| 0)), None).expect("it is there")
    }

    #[test]
    fn a_value_counts_as_often_as_it_is_referred_to() {
        let texts: ArrayRef = Arc::new(StringViewArray::from_iter_values(["x".repeat(LONG)]));
        let documents: ArrayRef = Arc::new(BinaryViewArray::from_iter_values([vec![0_u8; LONG]]));
        for one in [texts, documents] {
            let many = repeated(&one, 100);
            assert!(many.get_array_memory_size() < 50 * LONG, "the memory is that of one");
            assert!(held(many.as_ref()) >= 100 * LONG as u128);
            let field = Arc::new(Field::new_list_field(one.data_type().clone(), true));
            let lists: ArrayRef =
                Arc::new(ListArray::new(field, OffsetBuffer::from_lengths([10, 0, 90]), many.clone(), None));
            let each = lengths(&lists).expect("it is a list");
            let at_least = |values: i64| values * LONG as i64;
            assert!(each[0] >= at_least(10) && each[1] < at_least(1) && each[2] >= at_least(90), "{each:?}");
            assert!(held(lists.slice(0, 1).as_ref()) < 11 * (LONG + 16) as u128, "a slice counts as its rows");
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![7; 100]));
        assert_eq!((held(numbers.as_ref()), lengths(&numbers).expect("numbers")[0]), (800, 7));
    }
}
