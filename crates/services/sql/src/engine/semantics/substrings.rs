//! `substring` of texts, by characters, and of bytes; with a pattern as the second argument it is that of
//! [`pattern_functions`](super::pattern_functions). A part may begin before the value and end behind it; a negative length is an error.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BinaryArray};
use datafusion::arrow::datatypes::DataType;

use super::pattern_functions::PART;
use super::pg_function::{Argument, PgFunction, no_function};
use super::rows::{ArgumentRow, each, is_text, texts};
use crate::SqlError;

/// The function.
pub(crate) const SUBSTRING: PgFunction = PgFunction {
    name: "substr",
    wants: |types| match types {
        [value, pattern] if is_text(value) && is_text(pattern) && !pattern.is_null() => Ok(vec![DataType::Utf8; 2]),
        [value, numbers @ ..] if matches!(numbers.len(), 1 | 2) && numbers.iter().all(is_number) => {
            let value = match value {
                value if is_text(value) => DataType::Utf8,
                value if value.is_binary() => DataType::Binary,
                _ => return Err(no_function("substr", types)),
            };
            Ok(std::iter::once(value).chain(numbers.iter().map(|_| DataType::Int64)).collect())
        }
        _ => Err(no_function("substr", types)),
    },
    gives: |types: &[Argument<'_>]| match types {
        [(DataType::Binary, _), ..] => Ok(DataType::Binary),
        _ => Ok(DataType::Utf8),
    },
    run: |arrays, gives| match (arrays[0].data_type(), arrays[1].data_type()) {
        (_, DataType::Utf8) => (PART.run)(arrays, gives),
        (DataType::Binary, _) => of_bytes(arrays),
        _ => texts(arrays, |row| {
            let wanted = range(&row)?;
            Ok(row.text(0).chars().skip(wanted.start).take(wanted.len()).collect())
        }),
    },
    between: None,
};

fn is_number(kind: &DataType) -> bool {
    kind.is_integer() || kind.is_null()
}

/// The places of the part, from 0.
fn range(row: &ArgumentRow<'_>) -> Result<Range<usize>, SqlError> {
    let start = row.int(1);
    let end = match row.width() {
        2 => i64::MAX,
        _ if row.int(2) < 0 => return Err(SqlError::value("22011", "negative substring length not allowed")),
        _ => start.saturating_add(row.int(2)),
    };
    let place = |number: i64| usize::try_from(number.saturating_sub(1)).unwrap_or(0);
    Ok(place(start)..place(end).max(place(start)))
}

fn of_bytes(arrays: &[ArrayRef]) -> Result<ArrayRef, SqlError> {
    let parts = each::<Vec<u8>, Vec<Option<Vec<u8>>>>(arrays, |row| {
        let (bytes, wanted) = (row.bytes(0), range(&row)?);
        let end = wanted.end.min(bytes.len());
        Ok(Some(bytes.get(wanted.start..end).unwrap_or_default().to_vec()))
    })?;
    Ok(Arc::new(parts.iter().map(Option::as_deref).collect::<BinaryArray>()))
}
