//! Values of columns as text, as PostgreSQL writes and reads them: for casts, and for text that is assigned.
//!
//! ```text
//!   shown   array of any type --write--> texts            1.5::float8::text, INSERT of a date into a column of text
//!   read    texts --read--> array of a column's type      '2026-01-01'::date, literals of INSERT and UPDATE
//! ```
//!
//! `calendar`, `float` and `numeric` contain the notations. The wire's values use the same ones, so a literal, a
//! parameter, a row of COPY and a cast agree. Arrow's own notation is used where it is PostgreSQL's: for whole numbers,
//! and for writing decimals.

pub(crate) mod array_text;
pub(crate) mod calendar;
pub(crate) mod float;
pub(crate) mod identifiers;
pub(crate) mod intervals;
pub(crate) mod json_text;
pub(crate) mod jsonb;
pub(crate) mod keywords;
pub(crate) mod numeric;

use std::sync::Arc;

use bytes::BytesMut;
use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BinaryViewBuilder, BooleanArray, Date32Array, Decimal128Array,
    FixedSizeBinaryBuilder, Float32Array, Float64Array, Int64Array, IntervalMonthDayNanoArray, StringViewArray,
    StringViewBuilder, Time64MicrosecondArray, TimestampMicrosecondArray,
};
use datafusion::arrow::compute::{CastOptions, cast, cast_with_options};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal256Type, DurationMicrosecondType, Float32Type, Float64Type, IntervalMonthDayNano,
    IntervalMonthDayNanoType, IntervalUnit, Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};

use crate::SqlError;
use crate::table::SqlType;
use crate::table::types::{JSONB, NUMERIC_DIGITS, UTC};
use crate::table::uuid::{self, UUID};

/// Whether [`write()`] writes values of this type differently from Arrow's casts.
pub(crate) fn is_spelled(kind: &DataType) -> bool {
    matches!(kind, DataType::Interval(_) | DataType::Decimal256(..))
        || kind.is_floating()
        || kind.is_temporal()
        || kind.is_binary()
}

/// Each value as text, as [`DataType::Utf8View`].
pub(crate) fn write(array: &ArrayRef) -> Result<ArrayRef, SqlError> {
    let us = TimeUnit::Microsecond;
    Ok(match array.data_type() {
        DataType::Float16 | DataType::Float32 => {
            let array = cast(array, &DataType::Float32)?;
            let values = array.as_primitive::<Float32Type>();
            spelled(values, |row, out| float::write_single(out, values.value(row)))
        }
        DataType::Float64 => {
            let values = array.as_primitive::<Float64Type>();
            spelled(values, |row, out| float::write_double(out, values.value(row)))
        }
        DataType::Decimal256(_, scale) => {
            let values = array.as_primitive::<Decimal256Type>();
            spelled(values, |row, out| numeric::write_shown(out, &values.value(row).to_string(), *scale))
        }
        DataType::Date32 | DataType::Date64 => {
            let array = cast(array, &DataType::Date32)?;
            let values = array.as_primitive::<Date32Type>();
            spelled(values, |row, out| calendar::write_date(out, i64::from(values.value(row))))
        }
        DataType::Time32(_) | DataType::Time64(_) => {
            let array = cast(array, &DataType::Time64(us))?;
            let values = array.as_primitive::<Time64MicrosecondType>();
            spelled(values, |row, out| calendar::write_time(out, values.value(row)))
        }
        DataType::Timestamp(_, zone) => {
            let array = cast(array, &DataType::Timestamp(us, zone.clone()))?;
            let values = array.as_primitive::<TimestampMicrosecondType>();
            spelled(values, |row, out| calendar::write_timestamp(out, values.value(row), zone.is_some()))
        }
        DataType::Duration(_) => {
            let array = cast(array, &DataType::Duration(us))?;
            let values = array.as_primitive::<DurationMicrosecondType>();
            spelled(values, |row, out| calendar::write_interval(out, 0, 0, values.value(row)))
        }
        DataType::Interval(_) => {
            let array = cast(array, &DataType::Interval(IntervalUnit::MonthDayNano))?;
            let values = array.as_primitive::<IntervalMonthDayNanoType>();
            spelled(values, |row, out| {
                let span = values.value(row);
                calendar::write_interval(out, span.months, span.days, span.nanoseconds / 1000);
            })
        }
        kind if *kind == JSONB => {
            let documents = array.as_binary_view().iter();
            let texts = documents.map(|bytes| bytes.map(|bytes| jsonb::decode(bytes)?.text()).transpose());
            Arc::new(texts.collect::<Result<StringViewArray, SqlError>>()?)
        }
        DataType::Binary | DataType::LargeBinary => {
            let array = cast(array, &DataType::LargeBinary)?;
            let values = array.as_binary::<i64>();
            spelled(values, |row, out| {
                out.extend_from_slice(b"\\x");
                for byte in values.value(row) {
                    out.extend_from_slice(format!("{byte:02x}").as_bytes());
                }
            })
        }
        kind if *kind == UUID => {
            let values = array.as_fixed_size_binary();
            spelled(values, |row, out| out.extend_from_slice(uuid::text(values.value(row)).as_bytes()))
        }
        _ => cast(array, &DataType::Utf8View)?,
    })
}

fn spelled(array: &dyn Array, write: impl Fn(usize, &mut BytesMut)) -> ArrayRef {
    let mut texts = StringViewBuilder::with_capacity(array.len());
    let mut text = BytesMut::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        write(row, &mut text);
        texts.append_value(String::from_utf8_lossy(&text));
    }
    Arc::new(texts.finish())
}

/// Each text as a value of a column's type. Errors: 22P02, 22007 for a text that is not a value, 22003 for a value that
/// does not fit.
pub(crate) fn read(texts: &StringViewArray, kind: SqlType) -> Result<ArrayRef, SqlError> {
    let wrong = |text: &str| syntax(text, kind);
    Ok(match kind {
        SqlType::Boolean => Arc::new(each::<BooleanArray, _>(texts, |text| boolean(text).ok_or_else(|| wrong(text)))?),
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => {
            let values: ArrayRef = Arc::new(each::<Int64Array, _>(texts, |text| integer(text, kind))?);
            let fits = cast_with_options(&values, &kind.arrow(), &CastOptions { safe: true, ..Default::default() })?;
            match (0..texts.len()).find(|row| fits.is_null(*row) && values.is_valid(*row)) {
                Some(row) => return Err(out_of_range(texts.value(row), kind)),
                None => fits,
            }
        }
        SqlType::Real => Arc::new(each::<Float32Array, _>(texts, |text| single(text, kind))?),
        SqlType::Double => Arc::new(each::<Float64Array, _>(texts, |text| double(text, kind))?),
        SqlType::Numeric(precision, scale) => {
            let values = each::<Decimal128Array, _>(texts, |text| decimal(text, precision, scale))?;
            Arc::new(values.with_precision_and_scale(precision, scale)?)
        }
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => Arc::new(texts.clone()),
        SqlType::Bytea => {
            let mut bytes = BinaryBuilder::new();
            for text in texts {
                bytes.append_option(text.map(bytea).transpose()?);
            }
            Arc::new(bytes.finish())
        }
        SqlType::Jsonb => {
            let mut documents = BinaryViewBuilder::with_capacity(texts.len());
            for text in texts {
                documents.append_option(text.map(|text| jsonb::encode(&jsonb::parse(text)?)).transpose()?);
            }
            Arc::new(documents.finish())
        }
        SqlType::Uuid => {
            let mut uuids = FixedSizeBinaryBuilder::with_capacity(texts.len(), uuid::BYTES as i32);
            for text in texts {
                match text {
                    Some(text) => uuids.append_value(uuid::parse(text).ok_or_else(|| wrong(text))?)?,
                    None => uuids.append_null(),
                }
            }
            Arc::new(uuids.finish())
        }
        SqlType::Date => {
            Arc::new(each::<Date32Array, _>(texts, |text| calendar::parse_date(text).ok_or_else(|| wrong(text)))?)
        }
        SqlType::Time | SqlType::TimeDigits(_) => Arc::new(each::<Time64MicrosecondArray, _>(texts, |text| {
            calendar::parse_time(text).ok_or_else(|| wrong(text))
        })?),
        SqlType::Timestamp | SqlType::TimestampDigits(_) => {
            Arc::new(each::<TimestampMicrosecondArray, _>(texts, |text| {
                calendar::parse_timestamp(text).ok_or_else(|| wrong(text))
            })?)
        }
        SqlType::TimestampTz | SqlType::TimestampTzDigits(_) => {
            let read = |text: &str| calendar::parse_timestamptz(text).ok_or_else(|| wrong(text));
            Arc::new(each::<TimestampMicrosecondArray, _>(texts, read)?.with_timezone(UTC))
        }
        SqlType::Interval => Arc::new(each::<IntervalMonthDayNanoArray, _>(texts, |text| {
            let (months, days, us) = intervals::parse_interval(text).ok_or_else(|| wrong(text))?;
            let ns = us.checked_mul(1000).ok_or_else(|| wrong(text))?;
            Ok(IntervalMonthDayNano::new(months, days, ns))
        })?),
    })
}

fn each<A: FromIterator<Option<T>>, T>(
    texts: &StringViewArray,
    read: impl Fn(&str) -> Result<T, SqlError>,
) -> Result<A, SqlError> {
    texts.iter().map(|text| text.map(&read).transpose()).collect()
}

fn syntax(text: &str, kind: SqlType) -> SqlError {
    let (code, name) = match kind {
        SqlType::Date | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Interval => {
            ("22007", kind.name())
        }
        SqlType::TimeDigits(_) => ("22007", SqlType::Time.name()),
        SqlType::TimestampDigits(_) => ("22007", SqlType::Timestamp.name()),
        SqlType::TimestampTzDigits(_) => ("22007", SqlType::TimestampTz.name()),
        SqlType::Numeric(..) => ("22P02", "numeric".to_string()),
        _ => ("22P02", kind.name()),
    };
    SqlError::value(code, format!("invalid input syntax for type {name}: \"{text}\""))
}

fn out_of_range(text: &str, kind: SqlType) -> SqlError {
    SqlError::value("22003", format!("value \"{text}\" is out of range for type {}", kind.name()))
}

fn boolean(text: &str) -> Option<bool> {
    let lower = text.trim().to_ascii_lowercase();
    let begins = |word: &str, least: usize| lower.len() >= least && word.starts_with(&*lower);
    if begins("true", 1) || begins("yes", 1) || lower == "on" || lower == "1" {
        Some(true)
    } else if begins("false", 1) || begins("no", 1) || begins("off", 2) || lower == "0" {
        Some(false)
    } else {
        None
    }
}

fn integer(text: &str, kind: SqlType) -> Result<i64, SqlError> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax(text, kind));
    }
    trimmed.parse().map_err(|_| out_of_range(text, kind))
}

/// Reads a double. Too large and too small numbers are refused: only `Infinity` is infinite, and only 0 is zero.
fn double(text: &str, kind: SqlType) -> Result<f64, SqlError> {
    let number = float::parse(text).ok_or_else(|| syntax(text, kind))?;
    let lost = number.is_infinite() && !text.to_ascii_lowercase().contains("inf");
    if lost || (number == 0.0 && !is_nothing(text)) {
        return Err(out_of_range(text, kind));
    }
    Ok(number)
}

fn single(text: &str, kind: SqlType) -> Result<f32, SqlError> {
    let number = double(text, kind)?;
    // Parse the text, not the double: rounding twice may miss the nearest number.
    let narrow = text.trim().parse::<f32>().unwrap_or(number as f32);
    if (narrow.is_infinite() && number.is_finite()) || (narrow == 0.0 && number != 0.0) {
        return Err(out_of_range(text, kind));
    }
    Ok(narrow)
}

/// Whether a number's digits are all zero.
fn is_nothing(text: &str) -> bool {
    let mantissa = text.split(['e', 'E']).next().unwrap_or(text);
    !mantissa.bytes().any(|byte| matches!(byte, b'1'..=b'9'))
}

fn decimal(text: &str, precision: u8, scale: i8) -> Result<i128, SqlError> {
    // A numeric without size keeps all digits in PostgreSQL. Here it has a size, and digits that it cannot keep are
    // refused instead of lost.
    let digits = numeric::size(text).0;
    if (precision, scale) == NUMERIC_DIGITS && digits > scale as usize && !trails_off(text, digits - scale as usize) {
        return Err(SqlError::value("22003", format!("\"{text}\" has more than {scale} digits after the point"))
            .with_hint("A numeric without size keeps 10 of them: declare numeric(38,n), or round the value."));
    }
    numeric::parse(text, precision, scale).map_err(|wrong| match wrong {
        numeric::Wrong::Syntax => syntax(text, SqlType::Numeric(precision, scale)),
        numeric::Wrong::Range => overflow(precision, scale),
    })
}

/// The error for a number that has more digits before the point than a numeric's size allows.
pub(crate) fn overflow(precision: u8, scale: i8) -> SqlError {
    let whole = i32::from(precision) - i32::from(scale);
    SqlError::value("22003", "numeric field overflow").with_detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{whole}."
    ))
}

/// Whether the last digits of a number are zeros.
fn trails_off(text: &str, digits: usize) -> bool {
    let mantissa = text.trim().split(['e', 'E']).next().unwrap_or(text);
    mantissa.bytes().rev().filter(u8::is_ascii_digit).take(digits).all(|byte| byte == b'0')
}

/// Reads bytea's hex form, `\x` and digits, or the escape form.
fn bytea(text: &str) -> Result<Vec<u8>, SqlError> {
    let wrong = || SqlError::value("22P02", "invalid input syntax for type bytea");
    if let Some(hex) = text.strip_prefix("\\x") {
        let digits: Vec<u8> = hex.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
        if digits.len() % 2 == 1 {
            return Err(SqlError::value("22023", "invalid hexadecimal data: odd number of digits"));
        }
        let digit = |b: u8| (b as char).to_digit(16).map(|d| d as u8);
        return digits
            .chunks(2)
            .map(|two| Some(digit(two[0])? << 4 | digit(two[1])?))
            .collect::<Option<_>>()
            .ok_or_else(wrong);
    }
    escaped_bytes(text)
}

/// Reads bytea's escape form: `\\`, `\ooo`, everything else itself. Errors: 22P02.
pub(crate) fn escaped_bytes(text: &str) -> Result<Vec<u8>, SqlError> {
    let wrong = || SqlError::value("22P02", "invalid input syntax for type bytea");
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                rest = after;
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            (b'\\', _) => return Err(wrong()),
            (byte, _) => bytes.push(*byte),
        }
    }
    Ok(bytes)
}
