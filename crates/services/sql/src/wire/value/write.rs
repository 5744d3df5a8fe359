//! Values of Arrow arrays for clients: as text and in PostgreSQL's binary layouts.
//!
//! | type | text | binary |
//! |---|---|---|
//! | boolean | `t`, `f` | one byte |
//! | integers, oid | digits | 2, 4 or 8 bytes, big-endian |
//! | real, double precision | fewest digits (`float`) | IEEE 754, big-endian |
//! | numeric | digits (`numeric`) | groups of base 10000 |
//! | text | itself | itself |
//! | bytea | `\x` and hexadecimal digits | itself |
//! | date | `2024-02-29` | days since 2000, i32 |
//! | time, timestamp | `... 23:59:59.5` (`calendar`) | microseconds (since 2000), i64 |
//! | interval | `1 mon 2 days 00:00:01` | microseconds i64, days i32, months i32 |
//! | jsonb | `{"a": 1}` | 1, and the text |
//! | uuid | `a0eebc99-..` | 16 bytes |
//! | array | `{1,NULL,"a b"}` | dimensions, element type, values after their lengths |
//!
//! Not here, on purpose: rows and messages. pgwire frames the values that are written here.

use std::fmt::Write;

use bytes::{BufMut, BytesMut};
use datafusion::arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use datafusion::arrow::datatypes::{
    ArrowDictionaryKeyType, DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, IntervalDayTimeType,
    IntervalMonthDayNanoType, IntervalUnit, IntervalYearMonthType, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};

use crate::table::types::JSONB;
use crate::table::uuid::{self, UUID};
use crate::text::{calendar, float, jsonb, numeric};
use crate::wire::Format;
use crate::wire::error_response::ErrorResponse;
use crate::wire::oid::{Kind, Scalar};

/// Appends one value. Returns whether there is one; for NULL nothing is appended.
pub(crate) fn write(
    array: &dyn Array,
    row: usize,
    kind: Kind,
    format: Format,
    out: &mut BytesMut,
) -> Result<bool, ErrorResponse> {
    if array.is_null(row) {
        return Ok(false);
    }
    match kind {
        Kind::Array(item) => {
            let items = items(array, row)?;
            match format {
                Format::Text => write_list_text(&items, item, out)?,
                Format::Binary => write_list_binary(&items, item, out)?,
            }
        }
        Kind::One(scalar) => match array.data_type() {
            DataType::Null => return Ok(false),
            DataType::Dictionary(key, _) => return write_dictionary(array, key, row, kind, format, out),
            _ => write_scalar(array, row, scalar, format, out)?,
        },
    }
    Ok(true)
}

/// Appends one value after its length, which is -1 for NULL.
pub(crate) fn write_sized(
    array: &dyn Array,
    row: usize,
    kind: Kind,
    format: Format,
    out: &mut BytesMut,
) -> Result<(), ErrorResponse> {
    let at = out.len();
    out.put_i32(-1);
    if write(array, row, kind, format, out)? {
        let length = (out.len() - at - 4) as u32;
        out[at..at + 4].copy_from_slice(&length.to_be_bytes());
    }
    Ok(())
}

fn value<T: ArrowPrimitiveType>(array: &dyn Array, row: usize) -> T::Native {
    array.as_primitive::<T>().value(row)
}

fn write_scalar(
    array: &dyn Array,
    row: usize,
    scalar: Scalar,
    format: Format,
    out: &mut BytesMut,
) -> Result<(), ErrorResponse> {
    match array.data_type() {
        DataType::Boolean => {
            let set = array.as_boolean().value(row);
            out.put_u8(match format {
                Format::Text if set => b't',
                Format::Text => b'f',
                Format::Binary => u8::from(set),
            });
        }
        DataType::Int8 => write_integer(i64::from(value::<Int8Type>(array, row)), scalar, format, out),
        DataType::Int16 => write_integer(i64::from(value::<Int16Type>(array, row)), scalar, format, out),
        DataType::Int32 => {
            let number = value::<Int32Type>(array, row);
            // OIDs and their aliases are unsigned.
            let number = if scalar.is_oid() { i64::from(number as u32) } else { i64::from(number) };
            write_integer(number, scalar, format, out);
        }
        DataType::Int64 => write_integer(value::<Int64Type>(array, row), scalar, format, out),
        DataType::UInt8 => write_integer(i64::from(value::<UInt8Type>(array, row)), scalar, format, out),
        DataType::UInt16 => write_integer(i64::from(value::<UInt16Type>(array, row)), scalar, format, out),
        DataType::UInt32 => write_integer(i64::from(value::<UInt32Type>(array, row)), scalar, format, out),
        DataType::UInt64 => write_numeric(&value::<UInt64Type>(array, row).to_string(), 0, format, out),
        DataType::Decimal32(_, scale) => {
            write_numeric(&value::<Decimal32Type>(array, row).to_string(), *scale, format, out);
        }
        DataType::Decimal64(_, scale) => {
            write_numeric(&value::<Decimal64Type>(array, row).to_string(), *scale, format, out);
        }
        DataType::Decimal128(_, scale) => {
            write_numeric(&value::<Decimal128Type>(array, row).to_string(), *scale, format, out);
        }
        DataType::Decimal256(_, scale) => {
            let unscaled = value::<Decimal256Type>(array, row).to_string();
            match format {
                Format::Text => numeric::write_shown(out, &unscaled, *scale),
                Format::Binary => numeric::write_shown_binary(out, &unscaled, *scale),
            }
        }
        DataType::Float16 => write_single(value::<Float16Type>(array, row).to_f32(), format, out),
        DataType::Float32 => write_single(value::<Float32Type>(array, row), format, out),
        DataType::Float64 => match format {
            Format::Text => float::write_double(out, value::<Float64Type>(array, row)),
            Format::Binary => out.put_f64(value::<Float64Type>(array, row)),
        },
        DataType::Utf8 => out.put_slice(array.as_string::<i32>().value(row).as_bytes()),
        DataType::LargeUtf8 => out.put_slice(array.as_string::<i64>().value(row).as_bytes()),
        DataType::Utf8View => out.put_slice(array.as_string_view().value(row).as_bytes()),
        kind if kind.is_binary() => return write_binary(array, row, format, out),
        other => return write_temporal(array, other, row, format, out),
    }
    Ok(())
}

fn write_binary(array: &dyn Array, row: usize, format: Format, out: &mut BytesMut) -> Result<(), ErrorResponse> {
    match array.data_type() {
        kind if *kind == UUID => {
            let bytes = array.as_fixed_size_binary().value(row);
            match format {
                Format::Text => out.put_slice(uuid::text(bytes).as_bytes()),
                Format::Binary => out.put_slice(bytes),
            }
        }
        kind if *kind == JSONB => {
            let text = jsonb::decode(array.as_binary_view().value(row)).and_then(|document| document.text())?;
            if matches!(format, Format::Binary) {
                // The version of the layout.
                out.put_u8(1);
            }
            out.put_slice(text.as_bytes());
        }
        DataType::LargeBinary => write_bytes(array.as_binary::<i64>().value(row), format, out),
        DataType::FixedSizeBinary(_) => write_bytes(array.as_fixed_size_binary().value(row), format, out),
        _ => write_bytes(array.as_binary::<i32>().value(row), format, out),
    }
    Ok(())
}

fn write_integer(number: i64, scalar: Scalar, format: Format, out: &mut BytesMut) {
    match (format, scalar.length()) {
        (Format::Text, _) => {
            // Writing to memory cannot fail.
            let _ = write!(out, "{number}");
        }
        (Format::Binary, 2) => out.put_i16(number as i16),
        (Format::Binary, 4) => out.put_i32(number as i32),
        (Format::Binary, _) => out.put_i64(number),
    }
}

fn write_numeric(unscaled: &str, scale: i8, format: Format, out: &mut BytesMut) {
    match format {
        Format::Text => numeric::write_text(out, unscaled, scale),
        Format::Binary => numeric::write_binary(out, unscaled, scale),
    }
}

fn write_single(number: f32, format: Format, out: &mut BytesMut) {
    match format {
        Format::Text => float::write_single(out, number),
        Format::Binary => out.put_f32(number),
    }
}

fn write_bytes(bytes: &[u8], format: Format, out: &mut BytesMut) {
    match format {
        Format::Binary => out.put_slice(bytes),
        Format::Text => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            out.reserve(2 + bytes.len() * 2);
            out.put_slice(b"\\x");
            for byte in bytes {
                out.put_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
            }
        }
    }
}

fn write_temporal(
    array: &dyn Array,
    data_type: &DataType,
    row: usize,
    format: Format,
    out: &mut BytesMut,
) -> Result<(), ErrorResponse> {
    match data_type {
        DataType::Date32 => write_date(i64::from(value::<Date32Type>(array, row)), format, out),
        DataType::Date64 => {
            write_date(value::<Date64Type>(array, row).div_euclid(86_400_000), format, out);
        }
        DataType::Time32(TimeUnit::Second) => {
            write_time(i64::from(value::<Time32SecondType>(array, row)) * 1_000_000, format, out);
        }
        DataType::Time32(_) => write_time(i64::from(value::<Time32MillisecondType>(array, row)) * 1000, format, out),
        DataType::Time64(TimeUnit::Nanosecond) => {
            write_time(value::<Time64NanosecondType>(array, row) / 1000, format, out);
        }
        DataType::Time64(_) => write_time(value::<Time64MicrosecondType>(array, row), format, out),
        DataType::Timestamp(unit, zone) => {
            let us = match unit {
                TimeUnit::Second => value::<TimestampSecondType>(array, row).checked_mul(1_000_000),
                TimeUnit::Millisecond => value::<TimestampMillisecondType>(array, row).checked_mul(1000),
                TimeUnit::Microsecond => Some(value::<TimestampMicrosecondType>(array, row)),
                TimeUnit::Nanosecond => Some(value::<TimestampNanosecondType>(array, row).div_euclid(1000)),
            };
            let us = us.ok_or_else(|| ErrorResponse::new("22008", "timestamp out of range"))?;
            match format {
                Format::Text => calendar::write_timestamp(out, us, zone.is_some()),
                Format::Binary => {
                    let since = us.checked_sub(i64::from(calendar::EPOCH_DAYS) * calendar::DAY_US);
                    out.put_i64(since.ok_or_else(|| ErrorResponse::new("22008", "timestamp out of range"))?);
                }
            }
        }
        DataType::Interval(unit) => {
            let (months, days, ns) = match unit {
                IntervalUnit::YearMonth => (value::<IntervalYearMonthType>(array, row), 0, 0),
                IntervalUnit::DayTime => {
                    let span = value::<IntervalDayTimeType>(array, row);
                    (0, span.days, i64::from(span.milliseconds) * 1_000_000)
                }
                IntervalUnit::MonthDayNano => {
                    let span = value::<IntervalMonthDayNanoType>(array, row);
                    (span.months, span.days, span.nanoseconds)
                }
            };
            write_interval(months, days, ns / 1000, format, out);
        }
        DataType::Duration(unit) => {
            let us = match unit {
                TimeUnit::Second => value::<DurationSecondType>(array, row).checked_mul(1_000_000),
                TimeUnit::Millisecond => value::<DurationMillisecondType>(array, row).checked_mul(1000),
                TimeUnit::Microsecond => Some(value::<DurationMicrosecondType>(array, row)),
                TimeUnit::Nanosecond => Some(value::<DurationNanosecondType>(array, row) / 1000),
            };
            let us = us.ok_or_else(|| ErrorResponse::new("22008", "interval out of range"))?;
            write_interval(0, 0, us, format, out);
        }
        other => return Err(ErrorResponse::new("0A000", format!("values of type {other} cannot be sent"))),
    }
    Ok(())
}

fn write_date(days: i64, format: Format, out: &mut BytesMut) {
    match format {
        Format::Text => calendar::write_date(out, days),
        Format::Binary => out.put_i32((days - i64::from(calendar::EPOCH_DAYS)) as i32),
    }
}

fn write_time(us: i64, format: Format, out: &mut BytesMut) {
    match format {
        Format::Text => calendar::write_time(out, us),
        Format::Binary => out.put_i64(us),
    }
}

fn write_interval(months: i32, days: i32, us: i64, format: Format, out: &mut BytesMut) {
    match format {
        Format::Text => calendar::write_interval(out, months, days, us),
        Format::Binary => {
            out.put_i64(us);
            out.put_i32(days);
            out.put_i32(months);
        }
    }
}

fn write_dictionary(
    array: &dyn Array,
    key: &DataType,
    row: usize,
    kind: Kind,
    format: Format,
    out: &mut BytesMut,
) -> Result<bool, ErrorResponse> {
    fn at<K: ArrowDictionaryKeyType>(array: &dyn Array, row: usize) -> Option<(ArrayRef, usize)> {
        let dictionary = array.as_dictionary::<K>();
        Some((dictionary.values().clone(), dictionary.key(row)?))
    }
    let found = match key {
        DataType::Int8 => at::<Int8Type>(array, row),
        DataType::Int16 => at::<Int16Type>(array, row),
        DataType::Int32 => at::<Int32Type>(array, row),
        DataType::Int64 => at::<Int64Type>(array, row),
        DataType::UInt8 => at::<UInt8Type>(array, row),
        DataType::UInt16 => at::<UInt16Type>(array, row),
        DataType::UInt32 => at::<UInt32Type>(array, row),
        _ => at::<UInt64Type>(array, row),
    };
    match found {
        Some((values, at)) => write(&values, at, kind, format, out),
        None => Ok(false),
    }
}

/// The elements of the array in one row.
fn items(array: &dyn Array, row: usize) -> Result<ArrayRef, ErrorResponse> {
    match array.data_type() {
        DataType::List(_) => Ok(array.as_list::<i32>().value(row)),
        DataType::LargeList(_) => Ok(array.as_list::<i64>().value(row)),
        DataType::FixedSizeList(..) => Ok(array.as_fixed_size_list().value(row)),
        other => Err(ErrorResponse::new("0A000", format!("values of type {other} cannot be sent as arrays"))),
    }
}

fn write_list_text(items: &dyn Array, item: Scalar, out: &mut BytesMut) -> Result<(), ErrorResponse> {
    out.put_u8(b'{');
    let mut text = BytesMut::new();
    for row in 0..items.len() {
        if row > 0 {
            out.put_u8(b',');
        }
        text.clear();
        if !write(items, row, Kind::One(item), Format::Text, &mut text)? {
            out.put_slice(b"NULL");
            continue;
        }
        let quoted = text.is_empty()
            || text.eq_ignore_ascii_case(b"null")
            || text.iter().any(|byte| b"{},\"\\".contains(byte) || byte.is_ascii_whitespace());
        if !quoted {
            out.put_slice(&text);
            continue;
        }
        out.put_u8(b'"');
        for byte in &text {
            if matches!(byte, b'"' | b'\\') {
                out.put_u8(b'\\');
            }
            out.put_u8(*byte);
        }
        out.put_u8(b'"');
    }
    out.put_u8(b'}');
    Ok(())
}

fn write_list_binary(items: &dyn Array, item: Scalar, out: &mut BytesMut) -> Result<(), ErrorResponse> {
    let dimensions = u32::from(!items.is_empty());
    out.put_u32(dimensions);
    out.put_u32(u32::from(items.null_count() > 0));
    out.put_u32(item.oid());
    if dimensions == 1 {
        out.put_u32(items.len() as u32);
        out.put_u32(1); // the first index
    }
    for row in 0..items.len() {
        write_sized(items, row, Kind::One(item), Format::Binary, out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{BinaryArray, BooleanArray, Date32Array, Int32Array, ListArray, StringArray};
    use std::sync::Arc;

    fn text(array: &dyn Array, row: usize) -> Option<String> {
        let mut out = BytesMut::new();
        let kind = Kind::of(array.data_type()).expect("it is sent");
        let there = write(array, row, kind, Format::Text, &mut out).expect("it is written");
        there.then(|| String::from_utf8(out.to_vec()).expect("it is text"))
    }

    fn binary(array: &dyn Array, row: usize) -> Vec<u8> {
        let mut out = BytesMut::new();
        let kind = Kind::of(array.data_type()).expect("it is sent");
        assert!(write(array, row, kind, Format::Binary, &mut out).expect("it is written"));
        out.to_vec()
    }

    #[test]
    fn values_have_postgresqls_layouts() {
        let numbers = Int32Array::from(vec![Some(-7), None]);
        assert_eq!((text(&numbers, 0).as_deref(), text(&numbers, 1)), (Some("-7"), None));
        assert_eq!(binary(&numbers, 0), (-7i32).to_be_bytes());
        let flags = BooleanArray::from(vec![true, false]);
        assert_eq!((text(&flags, 0).as_deref(), text(&flags, 1).as_deref()), (Some("t"), Some("f")));
        let days = Date32Array::from(vec![10_958]);
        assert_eq!(text(&days, 0).as_deref(), Some("2000-01-02"));
        assert_eq!(binary(&days, 0), 1i32.to_be_bytes());
        let bytes = BinaryArray::from(vec![&b"\x00\xfe"[..]]);
        assert_eq!(text(&bytes, 0).as_deref(), Some("\\x00fe"));
        assert_eq!(binary(&bytes, 0), b"\x00\xfe");
    }

    #[test]
    fn arrays_are_quoted_where_they_must_be() {
        let texts = StringArray::from(vec![Some("a"), Some("b c"), None, Some("null"), Some(""), Some("q\"\\")]);
        let list = ListArray::new(
            Arc::new(datafusion::arrow::datatypes::Field::new_list_field(DataType::Utf8, true)),
            datafusion::arrow::buffer::OffsetBuffer::from_lengths([6]),
            Arc::new(texts),
            None,
        );
        assert_eq!(text(&list, 0).as_deref(), Some(r#"{a,"b c",NULL,"null","","q\"\\"}"#));
        let head = [0u32, 1, 0, 1, 0, 25, 0, 6, 0, 1].map(|half| (half as u16).to_be_bytes()).concat();
        let written = binary(&list, 0);
        assert_eq!(&written[..20], &head[..]);
        assert_eq!(&written[20..25], b"\0\0\0\x01a");
    }
}
