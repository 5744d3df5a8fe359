//! Values from clients: columns built from text and from PostgreSQL's binary layouts.
//!
//! A [`ValueBuilder`] takes values one by one and becomes an Arrow array. COPY has one for each column of the table; a
//! parameter is a column of one value. The array is built in the natural type of the layout, and cast at the end if the
//! table needs another type of the same kind (a timestamp of nanoseconds, a text view).
//!
//! A value that is not of the type is an error with PostgreSQL's text, and leaves the column unchanged.

use std::sync::Arc;

use bytes::Buf;
use datafusion::arrow::array::{
    ArrayRef, BinaryBuilder, BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
    FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder, Int64Builder,
    IntervalMonthDayNanoBuilder, ListArray, StringBuilder, Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
};
use datafusion::arrow::buffer::{NullBuffer, OffsetBuffer};
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field, IntervalMonthDayNano};

use super::array;
use crate::table::uuid;
use crate::text::{calendar, float, intervals, jsonb, numeric};
use crate::wire::error_response::ErrorResponse;
use crate::wire::oid::{Kind, Scalar};

/// Precision of a numeric without a type: Arrow's maximum.
const NUMERIC_PRECISION: u8 = 38;

/// A column that is being built.
#[derive(Debug)]
pub(crate) struct ValueBuilder {
    scalar: Scalar,
    values: Values,
    /// The type of the finished array.
    target: DataType,
}

#[derive(Debug)]
enum Values {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Numeric(Decimal128Builder, u8, i8),
    Text(StringBuilder),
    Bytea(BinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Jsonb(BinaryViewBuilder),
    List { items: Box<ValueBuilder>, lengths: Vec<usize>, valid: Vec<bool> },
}

impl ValueBuilder {
    /// A column that becomes an array of this Arrow type.
    #[cfg(test)]
    pub(crate) fn new(target: &DataType) -> Result<ValueBuilder, ErrorResponse> {
        ValueBuilder::of(Kind::of(target)?, target)
    }

    /// A column of values of a type of PostgreSQL that becomes an array of this Arrow type.
    pub(crate) fn of(kind: Kind, target: &DataType) -> Result<ValueBuilder, ErrorResponse> {
        let (scalar, values) = match (kind, target) {
            (Kind::Array(scalar), DataType::List(item) | DataType::LargeList(item)) => {
                let items = Box::new(ValueBuilder::of(Kind::One(scalar), item.data_type())?);
                (scalar, Values::List { items, lengths: Vec::new(), valid: Vec::new() })
            }
            (Kind::One(scalar), _) => (scalar, Values::of(scalar, target)?),
            (Kind::Array(_), other) => {
                return Err(ErrorResponse::new("0A000", format!("an array cannot become a value of type {other}")));
            }
        };
        Ok(ValueBuilder { scalar, values, target: target.clone() })
    }

    /// Adds NULL.
    pub(crate) fn push_null(&mut self) {
        match &mut self.values {
            Values::Bool(values) => values.append_null(),
            Values::Int2(values) => values.append_null(),
            Values::Int4(values) => values.append_null(),
            Values::Int8(values) => values.append_null(),
            Values::Float4(values) => values.append_null(),
            Values::Float8(values) => values.append_null(),
            Values::Numeric(values, ..) => values.append_null(),
            Values::Text(values) => values.append_null(),
            Values::Bytea(values) => values.append_null(),
            Values::Date(values) => values.append_null(),
            Values::Time(values) => values.append_null(),
            Values::Timestamp(values) => values.append_null(),
            Values::Interval(values) => values.append_null(),
            Values::Uuid(values) => values.append_null(),
            Values::Jsonb(values) => values.append_null(),
            Values::List { lengths, valid, .. } => {
                lengths.push(0);
                valid.push(false);
            }
        }
    }

    /// Adds a value given as text.
    pub(crate) fn push_text(&mut self, text: &str) -> Result<(), ErrorResponse> {
        if text.contains('\0') {
            return Err(ErrorResponse::new("22021", "invalid byte sequence for encoding \"UTF8\": 0x00"));
        }
        let scalar = self.scalar;
        let wrong = || syntax(scalar, text);
        match &mut self.values {
            Values::Bool(values) => values.append_value(parse_bool(text).ok_or_else(wrong)?),
            Values::Int2(values) => values.append_value(integer(text, scalar)?),
            Values::Int4(values) if scalar == Scalar::Int4 => values.append_value(integer(text, scalar)?),
            Values::Int4(values) => values.append_value(integer::<u32>(text, scalar)? as i32),
            Values::Int8(values) => values.append_value(integer(text, scalar)?),
            Values::Float4(values) => values.append_value(single(text, scalar)?),
            Values::Float8(values) => values.append_value(double(text, scalar)?),
            Values::Numeric(values, precision, scale) => {
                let number = numeric::parse(text, *precision, *scale);
                values.append_value(number.map_err(|error| numeric_fault(error, text, *precision, *scale))?);
            }
            Values::Text(values) => values.append_value(text),
            Values::Bytea(values) => values.append_value(parse_bytea(text).ok_or_else(wrong)?),
            Values::Date(values) => values.append_value(calendar::parse_date(text).ok_or_else(wrong)?),
            Values::Time(values) => values.append_value(calendar::parse_time(text).ok_or_else(wrong)?),
            Values::Timestamp(values) => {
                let us = if scalar == Scalar::Timestamptz {
                    calendar::parse_timestamptz(text)
                } else {
                    calendar::parse_timestamp(text)
                };
                let us = us.filter(|us| calendar::DAYS.contains(&us.div_euclid(calendar::DAY_US)));
                values.append_value(us.ok_or_else(|| beyond_calendar(scalar))?);
            }
            Values::Interval(values) => {
                let (months, days, us) = intervals::parse_interval(text).ok_or_else(wrong)?;
                values.append_value(span(months, days, us).ok_or_else(wrong)?);
            }
            Values::Uuid(values) => {
                values.append_value(uuid::parse(text).ok_or_else(wrong)?).map_err(|_| wrong())?;
            }
            Values::Jsonb(values) => values.append_value(jsonb::encode(&jsonb::parse(text)?)?),
            Values::List { items, lengths, valid } => {
                let texts = array::parse(text).ok_or_else(|| malformed_array(text))?;
                for item in &texts {
                    match item {
                        Some(item) => items.push_text(item)?,
                        None => items.push_null(),
                    }
                }
                lengths.push(texts.len());
                valid.push(true);
            }
        }
        Ok(())
    }

    /// Adds a value in the binary layout of its type.
    pub(crate) fn push_binary(&mut self, mut bytes: &[u8]) -> Result<(), ErrorResponse> {
        let scalar = self.scalar;
        let wrong = || ErrorResponse::new("22P03", format!("incorrect binary data format for type {}", scalar.name()));
        let length = bytes.len();
        match &mut self.values {
            Values::Bool(values) if length == 1 => values.append_value(bytes.get_u8() != 0),
            Values::Int2(values) if length == 2 => values.append_value(bytes.get_i16()),
            Values::Int4(values) if length == 4 => values.append_value(bytes.get_i32()),
            Values::Int8(values) if length == 8 => values.append_value(bytes.get_i64()),
            Values::Float4(values) if length == 4 => values.append_value(bytes.get_f32()),
            Values::Float8(values) if length == 8 => values.append_value(bytes.get_f64()),
            Values::Numeric(values, precision, scale) => {
                let text = numeric::read_binary(bytes).ok_or_else(wrong)?;
                let number = numeric::parse(&text, *precision, *scale);
                values.append_value(number.map_err(|error| numeric_fault(error, &text, *precision, *scale))?);
            }
            Values::Text(_) => {
                let text = std::str::from_utf8(bytes);
                return self.push_text(text.map_err(|_| not_utf8())?);
            }
            // The version of the layout, and the text.
            Values::Jsonb(_) if bytes.first() == Some(&1) => {
                let text = std::str::from_utf8(&bytes[1..]);
                return self.push_text(text.map_err(|_| not_utf8())?);
            }
            Values::Bytea(values) => values.append_value(bytes),
            Values::Date(values) if length == 4 => {
                let day = bytes.get_i32().checked_add(calendar::EPOCH_DAYS);
                let day = day.filter(|day| calendar::DAYS.contains(&i64::from(*day)));
                values.append_value(day.ok_or_else(|| beyond_calendar(scalar))?);
            }
            Values::Time(values) if length == 8 => {
                let us = bytes.get_i64();
                let good = (0..=calendar::DAY_US).contains(&us);
                values.append_value(good.then_some(us).ok_or_else(wrong)?);
            }
            Values::Timestamp(values) if length == 8 => {
                let us = bytes.get_i64().checked_add(i64::from(calendar::EPOCH_DAYS) * calendar::DAY_US);
                let us = us.filter(|us| calendar::DAYS.contains(&us.div_euclid(calendar::DAY_US)));
                values.append_value(us.ok_or_else(|| beyond_calendar(scalar))?);
            }
            Values::Interval(values) if length == 16 => {
                let (us, days, months) = (bytes.get_i64(), bytes.get_i32(), bytes.get_i32());
                values.append_value(span(months, days, us).ok_or_else(wrong)?);
            }
            Values::Uuid(values) if length == uuid::BYTES => values.append_value(bytes).map_err(|_| wrong())?,
            Values::List { items, lengths, valid } => {
                let all = array::read(bytes, scalar.oid()).ok_or_else(wrong)?;
                for item in &all {
                    match item {
                        Some(item) => items.push_binary(item)?,
                        None => items.push_null(),
                    }
                }
                lengths.push(all.len());
                valid.push(true);
            }
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// All values so far; the column is then empty again.
    pub(crate) fn finish(&mut self) -> Result<ArrayRef, ErrorResponse> {
        let array = self.values.finish()?;
        if array.data_type() == &self.target {
            return Ok(array);
        }
        let options = CastOptions { safe: false, ..CastOptions::default() };
        let cast = cast_with_options(&array, &self.target, &options);
        cast.map_err(|error| ErrorResponse::new("22003", error.to_string()))
    }
}

impl Values {
    fn of(scalar: Scalar, target: &DataType) -> Result<Values, ErrorResponse> {
        Ok(match scalar {
            Scalar::Bool => Values::Bool(BooleanBuilder::new()),
            Scalar::Int2 => Values::Int2(Int16Builder::new()),
            Scalar::Int4
            | Scalar::Oid
            | Scalar::Regproc
            | Scalar::Regclass
            | Scalar::Regtype
            | Scalar::Regnamespace
            | Scalar::Regrole => Values::Int4(Int32Builder::new()),
            Scalar::Int8 => Values::Int8(Int64Builder::new()),
            Scalar::Float4 => Values::Float4(Float32Builder::new()),
            Scalar::Float8 => Values::Float8(Float64Builder::new()),
            Scalar::Numeric => {
                let (precision, scale) = match target {
                    DataType::Decimal128(precision, scale) => (*precision, *scale),
                    DataType::Decimal256(_, scale) => (NUMERIC_PRECISION, *scale),
                    DataType::UInt64 => (20, 0),
                    other => {
                        return Err(ErrorResponse::new(
                            "0A000",
                            format!("a numeric cannot become a value of type {other}"),
                        ));
                    }
                };
                let builder = Decimal128Builder::new().with_precision_and_scale(precision, scale);
                let builder = builder.map_err(|error| ErrorResponse::new("22003", error.to_string()))?;
                Values::Numeric(builder, precision, scale)
            }
            Scalar::Bytea => Values::Bytea(BinaryBuilder::new()),
            Scalar::Date => Values::Date(Date32Builder::new()),
            Scalar::Time => Values::Time(Time64MicrosecondBuilder::new()),
            Scalar::Timestamp => Values::Timestamp(TimestampMicrosecondBuilder::new()),
            Scalar::Timestamptz => Values::Timestamp(TimestampMicrosecondBuilder::new().with_timezone("+00:00")),
            Scalar::Interval => Values::Interval(IntervalMonthDayNanoBuilder::new()),
            Scalar::Char
            | Scalar::Name
            | Scalar::Text
            | Scalar::Json
            | Scalar::Unknown
            | Scalar::Bpchar
            | Scalar::Varchar => Values::Text(StringBuilder::new()),
            Scalar::Jsonb => Values::Jsonb(BinaryViewBuilder::new()),
            Scalar::Uuid => Values::Uuid(FixedSizeBinaryBuilder::new(uuid::BYTES as i32)),
        })
    }

    fn finish(&mut self) -> Result<ArrayRef, ErrorResponse> {
        Ok(match self {
            Values::Bool(values) => Arc::new(values.finish()),
            Values::Int2(values) => Arc::new(values.finish()),
            Values::Int4(values) => Arc::new(values.finish()),
            Values::Int8(values) => Arc::new(values.finish()),
            Values::Float4(values) => Arc::new(values.finish()),
            Values::Float8(values) => Arc::new(values.finish()),
            Values::Numeric(values, ..) => Arc::new(values.finish()),
            Values::Text(values) => Arc::new(values.finish()),
            Values::Bytea(values) => Arc::new(values.finish()),
            Values::Date(values) => Arc::new(values.finish()),
            Values::Time(values) => Arc::new(values.finish()),
            Values::Timestamp(values) => Arc::new(values.finish()),
            Values::Interval(values) => Arc::new(values.finish()),
            Values::Uuid(values) => Arc::new(values.finish()),
            Values::Jsonb(values) => Arc::new(values.finish()),
            Values::List { items, lengths, valid } => {
                let items = items.finish()?;
                let field = Arc::new(Field::new_list_field(items.data_type().clone(), true));
                let offsets = OffsetBuffer::from_lengths(std::mem::take(lengths));
                let valid = NullBuffer::from(std::mem::take(valid));
                Arc::new(ListArray::new(field, offsets, items, Some(valid)))
            }
        })
    }
}

fn not_utf8() -> ErrorResponse {
    ErrorResponse::new("22021", "invalid byte sequence for encoding \"UTF8\"")
}

fn syntax(scalar: Scalar, text: &str) -> ErrorResponse {
    let code = match scalar {
        Scalar::Date | Scalar::Time | Scalar::Timestamp | Scalar::Timestamptz | Scalar::Interval => "22007",
        _ => "22P02",
    };
    ErrorResponse::new(code, format!("invalid input syntax for type {}: \"{text}\"", scalar.name()))
}

/// A date or a moment that PostgreSQL has no text for.
fn beyond_calendar(scalar: Scalar) -> ErrorResponse {
    let what = if scalar == Scalar::Date { "date" } else { "timestamp" };
    ErrorResponse::new("22008", format!("{what} out of range"))
}

fn malformed_array(text: &str) -> ErrorResponse {
    let hint = "Arrays of one dimension are supported: {1,2,NULL}.";
    ErrorResponse::new("22P02", format!("malformed array literal: \"{text}\"")).with_hint(hint)
}

fn out_of_range(scalar: Scalar, text: &str) -> ErrorResponse {
    ErrorResponse::new("22003", format!("value \"{text}\" is out of range for type {}", scalar.name()))
}

fn numeric_fault(error: numeric::Wrong, text: &str, precision: u8, scale: i8) -> ErrorResponse {
    match error {
        numeric::Wrong::Syntax => syntax(Scalar::Numeric, text),
        numeric::Wrong::Range => {
            let whole = i32::from(precision) - i32::from(scale);
            let detail = format!(
                "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{whole}."
            );
            ErrorResponse { detail: Some(detail), ..ErrorResponse::new("22003", "numeric field overflow") }
        }
    }
}

fn parse_bool(text: &str) -> Option<bool> {
    let lower = text.trim().to_ascii_lowercase();
    let is = |word: &str, least: usize| lower.len() >= least && word.starts_with(&*lower);
    if is("true", 1) || is("yes", 1) || lower == "on" || lower == "1" {
        Some(true)
    } else if is("false", 1) || is("no", 1) || is("off", 2) || lower == "0" {
        Some(false)
    } else {
        None
    }
}

fn integer<T: TryFrom<i128>>(text: &str, scalar: Scalar) -> Result<T, ErrorResponse> {
    let trimmed = text.trim();
    let digits = trimmed.strip_prefix(['+', '-']).unwrap_or(trimmed);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(syntax(scalar, text));
    }
    let number = trimmed.parse::<i128>().ok().and_then(|number| T::try_from(number).ok());
    number.ok_or_else(|| out_of_range(scalar, text))
}

fn double(text: &str, scalar: Scalar) -> Result<f64, ErrorResponse> {
    let number = float::parse(text).ok_or_else(|| syntax(scalar, text))?;
    let meant = text.to_ascii_lowercase().contains("inf");
    if number.is_infinite() && !meant {
        return Err(ErrorResponse::new("22003", format!("\"{text}\" is out of range for type {}", scalar.name())));
    }
    Ok(number)
}

fn single(text: &str, scalar: Scalar) -> Result<f32, ErrorResponse> {
    let number = double(text, scalar)?;
    // Parse the text, not the double: rounding twice may miss the nearest number.
    let narrow = text.trim().parse::<f32>().unwrap_or(number as f32);
    if narrow.is_infinite() && number.is_finite() {
        return Err(ErrorResponse::new("22003", format!("\"{text}\" is out of range for type {}", scalar.name())));
    }
    Ok(narrow)
}

/// Bytes as `\x` and hexadecimal digits, or in the older form with octal escapes.
fn parse_bytea(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
    if let Some(hex) = text.strip_prefix("\\x") {
        let hex: Vec<u8> = hex.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        if !hex.len().is_multiple_of(2) {
            return None;
        }
        return hex.chunks(2).map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = match (first, after) {
            (b'\\', [b'\\', after @ ..]) => {
                bytes.push(b'\\');
                after
            }
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                after
            }
            (b'\\', _) => return None,
            (byte, after) => {
                bytes.push(*byte);
                after
            }
        };
    }
    Some(bytes)
}

fn span(months: i32, days: i32, us: i64) -> Option<IntervalMonthDayNano> {
    Some(IntervalMonthDayNano::new(months, days, us.checked_mul(1000)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::types::JSONB;
    use crate::wire::Format;
    use crate::wire::value::write;
    use bytes::BytesMut;
    use datafusion::arrow::datatypes::{IntervalUnit, TimeUnit};

    /// The value of a text, written in the format.
    fn round(target: &DataType, text: &str, format: Format) -> Result<Vec<u8>, ErrorResponse> {
        let mut column = ValueBuilder::new(target)?;
        column.push_text(text)?;
        let array = column.finish()?;
        assert_eq!(array.data_type(), target);
        let mut out = BytesMut::new();
        assert!(write(&array, 0, Kind::of(target)?, format, &mut out)?);
        Ok(out.to_vec())
    }

    #[test]
    fn values_read_as_they_are_written_in_both_layouts() {
        let zoned = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        let ints = DataType::List(Field::new_list_field(DataType::Int32, true).into());
        let uuids = DataType::List(Field::new_list_field(uuid::UUID, true).into());
        let texts = DataType::List(Field::new_list_field(DataType::Utf8, true).into());
        let examples = [
            (DataType::Boolean, "t"),
            (DataType::Int16, "-32768"),
            (DataType::Int32, "2147483647"),
            (DataType::Int64, "-9223372036854775808"),
            (DataType::Float32, "1.5"),
            (DataType::Float64, "-0.001"),
            (DataType::Decimal128(38, 10), "-12345678901234567890.0123456789"),
            (DataType::Utf8, "gr\u{fc}n"),
            (DataType::Utf8View, ""),
            (DataType::LargeUtf8, "x"),
            (DataType::Binary, "\\x00ff"),
            (DataType::Date32, "0044-03-15 BC"),
            (DataType::Time64(TimeUnit::Microsecond), "24:00:00"),
            (DataType::Timestamp(TimeUnit::Microsecond, None), "1999-12-31 23:59:59.999999"),
            (zoned, "2024-02-29 12:00:00+00"),
            (DataType::Interval(IntervalUnit::MonthDayNano), "1 year 2 mons -3 days +04:05:06.5"),
            (uuid::UUID, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (uuids, "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11,NULL}"),
            (JSONB, "{\"a\": [1.50, null, \"\\\\\"], \"bb\": {}}"),
            (ints, "{1,NULL,-3}"),
            (texts, "{a,\"b \\\"c\",NULL,\"null\",\"\"}"),
        ];
        for (target, text) in examples {
            let written = round(&target, text, Format::Text).expect(text);
            assert_eq!(String::from_utf8(written).expect("it is text"), text);
            let binary = round(&target, text, Format::Binary).expect(text);
            let mut column = ValueBuilder::new(&target).expect(text);
            column.push_binary(&binary).expect(text);
            column.push_null();
            let array = column.finish().expect(text);
            let mut out = BytesMut::new();
            let kind = Kind::of(&target).expect("it is sent");
            assert!(write(&array, 0, kind, Format::Text, &mut out).expect(text));
            assert_eq!(std::str::from_utf8(&out).expect("it is text"), text);
            assert!(!write(&array, 1, kind, Format::Text, &mut out).expect(text), "NULL");
        }
    }

    #[test]
    fn what_is_no_value_is_refused_in_postgresqls_words() {
        let examples = [
            (DataType::Int32, "1.5", "22P02", "invalid input syntax for type integer: \"1.5\""),
            (DataType::Int32, "2147483648", "22003", "value \"2147483648\" is out of range for type integer"),
            (DataType::Int64, "", "22P02", "invalid input syntax for type bigint: \"\""),
            (DataType::Boolean, "maybe", "22P02", "invalid input syntax for type boolean: \"maybe\""),
            (DataType::Float64, "1e400", "22003", "\"1e400\" is out of range for type double precision"),
            (DataType::Decimal128(5, 2), "1000", "22003", "numeric field overflow"),
            (DataType::Date32, "2024-02-30", "22007", "invalid input syntax for type date: \"2024-02-30\""),
            (uuid::UUID, "a0eebc99", "22P02", "invalid input syntax for type uuid: \"a0eebc99\""),
            (DataType::Binary, "\\xf", "22P02", "invalid input syntax for type bytea: \"\\xf\""),
            (DataType::Utf8, "a\0b", "22021", "invalid byte sequence for encoding \"UTF8\": 0x00"),
        ];
        for (target, text, code, message) in examples {
            let response = round(&target, text, Format::Text).expect_err(text);
            assert_eq!((response.code, response.message.as_str()), (code, message));
        }
        let mut column = ValueBuilder::new(&DataType::Int32).expect("it is sent");
        for bytes in [&[][..], &[0, 0, 0], &[0; 8]] {
            assert_eq!(column.push_binary(bytes).expect_err("not four").code, "22P03");
        }
        let mut column = ValueBuilder::new(&DataType::Date32).expect("it is sent");
        for (day, is_one) in [(-2_451_545, true), (-2_451_546, false), (2_145_031_948, true), (2_145_031_949, false)] {
            let pushed = column.push_binary(&i32::to_be_bytes(day)).map_err(|error| error.code);
            assert_eq!(pushed, if is_one { Ok(()) } else { Err("22008") }, "{day} days from 2000-01-01");
        }
    }

    #[test]
    fn truth_has_postgresqls_spellings() {
        for (texts, truth) in
            [(["t", "TRUE", "y", "on", "1", "tr"], true), (["f", "False", "n", "off", "0", "of"], false)]
        {
            texts.iter().for_each(|text| assert_eq!(parse_bool(text), Some(truth), "{text}"));
        }
        ["", "o", "2", "truex"].iter().for_each(|text| assert_eq!(parse_bool(text), None, "{text}"));
    }
}
