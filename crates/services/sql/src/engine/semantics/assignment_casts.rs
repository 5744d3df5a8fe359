//! Converts values for a column: PostgreSQL's assignment casts.
//!
//! Numbers can be assigned to numbers: they are rounded if digits do not fit, and refused if the value does not fit.
//! Times are rounded to the digits of `timestamp(n)`. Every type can be assigned to text, and dates and times to each other. Text can be assigned to other types only as a
//! literal or parameter of the statement, whose type is then open.

use std::sync::Arc;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, Float32Array, Float64Array, StringViewBuilder, new_null_array,
};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Float32Type, Float64Type};

use super::moment_functions;
use crate::SqlError;
use crate::table::types::JSONB;
use crate::table::uuid::UUID;
use crate::table::{Column, SqlType};
use crate::text::{self, json_text};

/// The array in the column's type, checked. `open` means that a text may be a value of any type.
pub(crate) fn assign(array: &ArrayRef, column: &Column, open: bool) -> Result<ArrayRef, SqlError> {
    let array = converted(array, column, open)?;
    match column.kind.digits() {
        Some(digits) => moment_functions::with_digits(&array, digits),
        None => Ok(array),
    }
}

fn converted(array: &ArrayRef, column: &Column, open: bool) -> Result<ArrayRef, SqlError> {
    let (from, to) = (array.data_type(), column.kind.arrow());
    if *from == DataType::Null || array.null_count() == array.len() {
        return Ok(new_null_array(&to, array.len()));
    }
    let is_text = matches!(from, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View);
    if is_text && !column.kind.is_text() {
        if !open {
            return Err(mismatch(column, from));
        }
        return parse(array, column);
    }
    if !is_assignable(from, column.kind) {
        return Err(mismatch(column, from));
    }
    let array = match column.kind.is_text() {
        true if is_text => array.clone(),
        true => text::write(array)?,
        false if *from == to => array.clone(),
        false => rounded(array, column.kind)?,
    };
    let cast = if *array.data_type() == to { array } else { cast(&array, &to, column)? };
    if column.kind.is_text() { check_text(&cast, column) } else { Ok(cast) }
}

fn is_assignable(from: &DataType, to: SqlType) -> bool {
    let temporal = matches!(from, DataType::Date32 | DataType::Date64 | DataType::Timestamp(..));
    match to {
        SqlType::Boolean => *from == DataType::Boolean,
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => from.is_numeric(),
        SqlType::Real | SqlType::Double | SqlType::Numeric(..) => from.is_numeric(),
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) => {
            !matches!(from, DataType::Binary | DataType::LargeBinary) && !from.is_nested()
        }
        SqlType::Json => matches!(from, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
        SqlType::Bytea => matches!(from, DataType::Binary | DataType::LargeBinary),
        SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz => temporal,
        SqlType::TimestampDigits(_) | SqlType::TimestampTzDigits(_) => temporal,
        SqlType::Time | SqlType::TimeDigits(_) => {
            matches!(from, DataType::Time32(_) | DataType::Time64(_) | DataType::Timestamp(..))
        }
        SqlType::Interval => matches!(from, DataType::Interval(_) | DataType::Duration(_)),
        SqlType::Uuid => *from == UUID,
        SqlType::Jsonb => *from == JSONB,
    }
}

fn mismatch(column: &Column, from: &DataType) -> SqlError {
    let from = SqlType::from_arrow(&datafusion::arrow::datatypes::Field::new("", from.clone(), true))
        .map_or_else(|_| from.to_string(), |kind| kind.name());
    let name = &column.name;
    SqlError::statement(
        "42804",
        format!("column \"{name}\" is of type {} but expression is of type {from}", column.kind.name()),
    )
    .with_hint("You will need to rewrite or cast the expression.")
}

/// Floats that are assigned to integers are rounded to the nearest, halves to the even one, as in PostgreSQL; the cast
/// itself rounds numerics.
fn rounded(array: &ArrayRef, to: SqlType) -> Result<ArrayRef, SqlError> {
    if !matches!(to, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) {
        return Ok(array.clone());
    }
    Ok(match array.data_type() {
        DataType::Float32 => {
            let values = array.as_primitive::<Float32Type>();
            Arc::new(values.iter().map(|v| v.map(f32::round_ties_even)).collect::<Float32Array>())
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            Arc::new(values.iter().map(|v| v.map(f64::round_ties_even)).collect::<Float64Array>())
        }
        DataType::Decimal128(_, scale) if *scale > 0 => {
            cast_with_options(array, &DataType::Decimal128(38, 0), &CastOptions { safe: true, ..Default::default() })?
        }
        _ => array.clone(),
    })
}

/// Casts, and refuses values that do not fit instead of making them NULL.
fn cast(array: &ArrayRef, to: &DataType, column: &Column) -> Result<ArrayRef, SqlError> {
    let cast = cast_with_options(array, to, &CastOptions { safe: true, ..Default::default() })?;
    if cast.null_count() != array.null_count() {
        return Err(match column.kind {
            SqlType::Numeric(precision, scale) => text::overflow(precision, scale),
            kind => SqlError::value("22003", format!("{} out of range", kind.name())),
        });
    }
    if *to == DataType::Float32 && !keeps(array, &cast)? {
        return Err(SqlError::value("22003", "value out of range for type real"));
    }
    Ok(cast)
}

/// Whether no finite number became infinite, and only 0 became 0.
fn keeps(wide: &ArrayRef, narrow: &ArrayRef) -> Result<bool, SqlError> {
    let wide = cast_with_options(wide, &DataType::Float64, &CastOptions::default())?;
    let mut pairs = wide.as_primitive::<Float64Type>().iter().zip(narrow.as_primitive::<Float32Type>());
    Ok(pairs.all(|pair| match pair {
        (Some(wide), Some(narrow)) => wide.is_finite() == narrow.is_finite() && (wide == 0.0) == (narrow == 0.0),
        _ => true,
    }))
}

/// Reads text as values of the column's type.
fn parse(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let texts = cast_with_options(array, &DataType::Utf8View, &CastOptions::default())?;
    text::read(texts.as_string_view(), column.kind)
}

/// Checks lengths and blanks, and that JSON is valid.
fn check_text(array: &ArrayRef, column: &Column) -> Result<ArrayRef, SqlError> {
    let texts = array.as_string_view();
    if let Some(bad) = texts.iter().flatten().find(|text| text.as_bytes().contains(&0)) {
        let before = bad.chars().take(20).filter(|c| *c != '\0').collect::<String>();
        return Err(SqlError::value("22021", "invalid byte sequence for encoding \"UTF8\": 0x00")
            .with_detail(format!("In \"{before}...\".")));
    }
    let limit = match column.kind {
        SqlType::Varchar(length) | SqlType::Char(length) => length as usize,
        SqlType::Json => {
            for text in texts.iter().flatten() {
                json_text::check(text)?;
            }
            return Ok(array.clone());
        }
        _ => return Ok(array.clone()),
    };
    let trims = matches!(column.kind, SqlType::Char(_));
    let fits = |text: &str| text.len() <= limit && !(trims && text.ends_with(' '));
    if texts.iter().flatten().all(fits) {
        return Ok(array.clone());
    }
    let mut out = StringViewBuilder::with_capacity(texts.len());
    for text in texts {
        let Some(mut text) = text else {
            out.append_null();
            continue;
        };
        if trims {
            text = text.trim_end_matches(' ');
        }
        if let Some((end, _)) = text.char_indices().nth(limit) {
            // Blanks beyond the length are cut off, as the SQL standard requires.
            if text[end..].bytes().any(|b| b != b' ') {
                return Err(SqlError::value("22001", format!("value too long for type {}", column.kind.name())));
            }
            text = &text[..end];
        }
        out.append_value(text);
    }
    Ok(Arc::new(out.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{Decimal128Array, Int64Array, StringArray};
    use datafusion::arrow::util::display::array_value_to_string;

    fn column(kind: SqlType) -> Column {
        Column::new("c", kind)
    }

    fn one(text: &str, kind: SqlType) -> Result<String, &'static str> {
        let array: ArrayRef = Arc::new(StringArray::from(vec![text]));
        match assign(&array, &column(kind), true) {
            Ok(array) => Ok(array_value_to_string(&array, 0).unwrap()),
            Err(error) => Err(error.code()),
        }
    }

    #[test]
    fn text_is_read_as_each_type_or_refused_with_its_sqlstate() {
        assert_eq!(one(" 42 ", SqlType::Integer), Ok("42".into()));
        assert_eq!(one("4x", SqlType::Integer), Err("22P02"));
        assert_eq!(one("3000000000", SqlType::Integer), Err("22003"));
        assert_eq!(one("t", SqlType::Boolean), Ok("true".into()));
        assert_eq!(one("1.005", SqlType::Numeric(5, 2)), Ok("1.01".into()));
        assert_eq!(one("12345.6", SqlType::Numeric(5, 2)), Err("22003"));
        assert_eq!(one("2026-02-30", SqlType::Date), Err("22007"));
        assert_eq!(one("\\x0aff", SqlType::Bytea), Ok("0aff".into()));
        assert_eq!(one("abc  ", SqlType::Varchar(3)), Ok("abc".into()));
        assert_eq!(one("abcd", SqlType::Varchar(3)), Err("22001"));
        assert_eq!(one("ab   ", SqlType::Char(3)), Ok("ab".into()));
        assert_eq!(one("{\"a\":", SqlType::Json), Err("22P02"));
        assert_eq!(one("a\0b", SqlType::Text), Err("22021"));
        let uuid = "a0eebc999c0b4ef8bb6d6bb9bd380a11";
        assert_eq!(one(uuid, SqlType::Uuid), Ok(uuid.into()));
        assert_eq!(one("a0ee", SqlType::Uuid), Err("22P02"));
    }

    #[test]
    fn numbers_are_rounded_into_integers_and_refused_beyond_their_range() {
        let to = |array: ArrayRef, kind| {
            assign(&array, &column(kind), false).map(|a| array_value_to_string(&a, 0).unwrap()).map_err(|e| e.code())
        };
        let float = |value: f64| Arc::new(Float64Array::from(vec![value])) as ArrayRef;
        let tenths = |value: i128| {
            Arc::new(Decimal128Array::from(vec![value]).with_precision_and_scale(10, 1).unwrap()) as ArrayRef
        };
        assert_eq!(to(float(2.5), SqlType::Integer), Ok("2".into()));
        assert_eq!(to(tenths(25), SqlType::Integer), Ok("3".into()));
        assert_eq!(to(tenths(-25), SqlType::Integer), Ok("-3".into()));
        assert_eq!(to(float(1e20), SqlType::BigInt), Err("22003"));
        assert_eq!(to(Arc::new(Int64Array::from(vec![70_000])), SqlType::SmallInt), Err("22003"));
        assert_eq!(to(Arc::new(Int64Array::from(vec![7])), SqlType::Text), Ok("7".into()));
        assert_eq!(to(Arc::new(Int64Array::from(vec![1])), SqlType::Boolean), Err("42804"));
        assert_eq!(to(Arc::new(StringArray::from(vec!["1"])), SqlType::Integer), Err("42804"));
    }
}
