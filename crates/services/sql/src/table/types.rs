//! [`SqlType`]: the types of columns, their names in PostgreSQL and their types in Arrow.
//!
//! | SQL | Arrow | in metadata |
//! |---|---|---|
//! | boolean | Boolean | |
//! | smallint, integer, bigint | Int16, Int32, Int64 | |
//! | real, double precision | Float32, Float64 | |
//! | numeric(p, s), numeric = numeric(38, 10) | Decimal128(p, s) | |
//! | text, varchar(n), char(n), json | Utf8View | the SQL name, where it is not text |
//! | time(p), timestamp(p), timestamptz(p) | as without the precision | the SQL name |
//! | bytea | Binary | |
//! | date, time | Date32, Time64(us) | |
//! | timestamp, timestamptz | Timestamp(us), Timestamp(us, "+00:00") | |
//! | interval | Interval(MonthDayNano) | |
//! | uuid | FixedSizeBinary(16) | |
//! | jsonb | BinaryView: see [`jsonb`](crate::text::jsonb) | |
//!
//! A column of char(n) stores and shows no trailing blanks, so comparisons ignore them as in PostgreSQL. Json is
//! checked when it is stored, and kept as text.

use std::collections::HashMap;

use datafusion::arrow::datatypes::{DataType, Field, IntervalUnit, TimeUnit};
use datafusion::sql::sqlparser::ast::{self, CharacterLength, ExactNumberInfo, TimezoneInfo};
use serde::{Deserialize, Serialize};

use super::uuid::UUID;
use crate::SqlError;

/// The key of a field's metadata that contains the SQL name of its type, if the Arrow type alone does not determine it.
pub const TYPE_KEY: &str = "sql";

/// Key of the metadata that marks an integer of a catalog as an `oid` or an alias of it; the value is the type's name.
pub(crate) const OID_ALIAS: &str = "pg.oid_alias";

/// Key of the metadata that marks a text of a catalog as a `"char"`.
pub(crate) const CHAR: &str = "pg.char";

/// Precision and scale of a numeric without any given: what fits in 128 bits.
pub(crate) const NUMERIC_DIGITS: (u8, i8) = (38, 10);

/// Most digits behind the second.
const DIGITS_MAX: u8 = 6;

/// The Arrow type of jsonb. Bytes of other types are Binary.
pub(crate) const JSONB: DataType = DataType::BinaryView;

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum SqlType {
    /// True or false.
    Boolean,
    /// 16 bits.
    SmallInt,
    /// 32 bits.
    Integer,
    /// 64 bits.
    BigInt,
    /// 32-bit float.
    Real,
    /// 64-bit float.
    Double,
    /// Exact: precision (1 to 38 digits in all) and scale (digits after the point).
    Numeric(u8, i8),
    /// Text of any length.
    Text,
    /// Text of at most this number of characters.
    Varchar(u32),
    /// Text of at most this number of characters, without trailing blanks.
    Char(u32),
    /// JSON as text.
    Json,
    /// Bytes.
    Bytea,
    /// A day.
    Date,
    /// A time of day, in microseconds.
    Time,
    /// A time of day, rounded to this number of digits (0 to 6) behind the second.
    TimeDigits(u8),
    /// Day and time without time zone, in microseconds.
    Timestamp,
    /// Day and time without time zone, rounded to this number of digits.
    TimestampDigits(u8),
    /// A moment, in microseconds.
    TimestampTz,
    /// A moment, rounded to this number of digits.
    TimestampTzDigits(u8),
    /// Months, days and nanoseconds.
    Interval,
    /// 128 bits.
    Uuid,
    /// A JSON document, as its parts.
    Jsonb,
}

/// The time zone of timestamps in Arrow.
pub(crate) const UTC: &str = "+00:00";

impl SqlType {
    /// The type that a name in SQL denotes. Errors: 0A000 for types that are not supported, with the name.
    pub fn from_ast(kind: &ast::DataType) -> Result<SqlType, SqlError> {
        use ast::DataType as T;
        Ok(match kind {
            T::Bool | T::Boolean => SqlType::Boolean,
            T::Int2(_) | T::SmallInt(_) => SqlType::SmallInt,
            T::Int(_) | T::Int4(_) | T::Integer(_) => SqlType::Integer,
            T::Int8(_) | T::BigInt(_) => SqlType::BigInt,
            T::Real | T::Float4 => SqlType::Real,
            T::DoublePrecision | T::Float8 | T::Double(_) => SqlType::Double,
            T::Float(ExactNumberInfo::Precision(bits)) if *bits <= 24 => SqlType::Real,
            T::Float(_) => SqlType::Double,
            T::Numeric(info) | T::Decimal(info) | T::Dec(info) => numeric(info)?,
            T::Text => SqlType::Text,
            T::Varchar(length) | T::CharacterVarying(length) | T::CharVarying(length) => match characters(length)? {
                Some(length) => SqlType::Varchar(length),
                None => SqlType::Text,
            },
            T::Character(length) | T::Char(length) => SqlType::Char(characters(length)?.unwrap_or(1)),
            T::JSON => SqlType::Json,
            T::JSONB => SqlType::Jsonb,
            T::Bytea => SqlType::Bytea,
            T::Date => SqlType::Date,
            T::Uuid => SqlType::Uuid,
            T::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => match digits {
                Some(digits) => SqlType::TimeDigits(at_most_six(*digits)),
                None => SqlType::Time,
            },
            T::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => match digits {
                Some(digits) => SqlType::TimestampDigits(at_most_six(*digits)),
                None => SqlType::Timestamp,
            },
            T::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => match digits {
                Some(digits) => SqlType::TimestampTzDigits(at_most_six(*digits)),
                None => SqlType::TimestampTz,
            },
            T::Interval { fields: None, precision: None } => SqlType::Interval,
            T::Custom(name, arguments) if arguments.is_empty() && name.to_string().eq_ignore_ascii_case("name") => {
                SqlType::Text
            }
            other => return Err(SqlError::unsupported(format!("type {}", other.to_string().to_lowercase()))),
        })
    }

    /// The type in Arrow.
    pub fn arrow(&self) -> DataType {
        match *self {
            SqlType::Boolean => DataType::Boolean,
            SqlType::SmallInt => DataType::Int16,
            SqlType::Integer => DataType::Int32,
            SqlType::BigInt => DataType::Int64,
            SqlType::Real => DataType::Float32,
            SqlType::Double => DataType::Float64,
            SqlType::Numeric(precision, scale) => DataType::Decimal128(precision, scale),
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => DataType::Utf8View,
            SqlType::Bytea => DataType::Binary,
            SqlType::Date => DataType::Date32,
            SqlType::Time | SqlType::TimeDigits(_) => DataType::Time64(TimeUnit::Microsecond),
            SqlType::Timestamp | SqlType::TimestampDigits(_) => DataType::Timestamp(TimeUnit::Microsecond, None),
            SqlType::TimestampTz | SqlType::TimestampTzDigits(_) => {
                DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()))
            }
            SqlType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
            SqlType::Uuid => UUID,
            SqlType::Jsonb => JSONB,
        }
    }

    /// The column type for values of an Arrow type, used by CREATE TABLE AS. Errors: 0A000.
    pub fn from_arrow(field: &Field) -> Result<SqlType, SqlError> {
        let stored = field.metadata().get(TYPE_KEY).and_then(|name| SqlType::from_name(name));
        // A value that was computed of a column may have the column's metadata, and another type.
        let is_its = |kind: &SqlType| match kind.is_text() {
            true => field.data_type().is_string(),
            false => kind.arrow() == *field.data_type(),
        };
        if let Some(kind) = stored.filter(is_its) {
            return Ok(kind);
        }
        Ok(match field.data_type() {
            DataType::Boolean => SqlType::Boolean,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 => SqlType::SmallInt,
            DataType::Int32 | DataType::UInt16 => SqlType::Integer,
            DataType::Int64 | DataType::UInt32 => SqlType::BigInt,
            DataType::UInt64 => SqlType::Numeric(20, 0),
            DataType::Float16 | DataType::Float32 => SqlType::Real,
            DataType::Float64 => SqlType::Double,
            DataType::Decimal128(precision, scale) => SqlType::Numeric(*precision, *scale),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null => SqlType::Text,
            kind if *kind == JSONB => SqlType::Jsonb,
            DataType::Binary | DataType::LargeBinary => SqlType::Bytea,
            DataType::Date32 | DataType::Date64 => SqlType::Date,
            DataType::Time32(_) | DataType::Time64(_) => SqlType::Time,
            DataType::Timestamp(_, None) => SqlType::Timestamp,
            DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
            DataType::Interval(_) | DataType::Duration(_) => SqlType::Interval,
            kind if *kind == UUID => SqlType::Uuid,
            other => return Err(SqlError::unsupported(format!("a column of Arrow's type {other}"))),
        })
    }

    /// PostgreSQL's name, as `format_type` returns it.
    pub fn name(&self) -> String {
        match *self {
            SqlType::Boolean => "boolean".into(),
            SqlType::SmallInt => "smallint".into(),
            SqlType::Integer => "integer".into(),
            SqlType::BigInt => "bigint".into(),
            SqlType::Real => "real".into(),
            SqlType::Double => "double precision".into(),
            SqlType::Numeric(precision, scale) => format!("numeric({precision},{scale})"),
            SqlType::Text => "text".into(),
            SqlType::Varchar(length) => format!("character varying({length})"),
            SqlType::Char(length) => format!("character({length})"),
            SqlType::Json => "json".into(),
            SqlType::Bytea => "bytea".into(),
            SqlType::Date => "date".into(),
            SqlType::Time => "time without time zone".into(),
            SqlType::TimeDigits(digits) => format!("time({digits}) without time zone"),
            SqlType::Timestamp => "timestamp without time zone".into(),
            SqlType::TimestampDigits(digits) => format!("timestamp({digits}) without time zone"),
            SqlType::TimestampTz => "timestamp with time zone".into(),
            SqlType::TimestampTzDigits(digits) => format!("timestamp({digits}) with time zone"),
            SqlType::Interval => "interval".into(),
            SqlType::Uuid => "uuid".into(),
            SqlType::Jsonb => "jsonb".into(),
        }
    }

    /// The type of a name that is stored in metadata.
    fn from_name(name: &str) -> Option<SqlType> {
        if name == "json" {
            return Some(SqlType::Json);
        }
        let (word, rest) = name.split_once('(')?;
        let (size, rest) = rest.split_once(')')?;
        let digits = || size.parse().ok().filter(|digits| *digits <= DIGITS_MAX);
        match (word, rest) {
            ("character varying", "") => size.parse().ok().map(SqlType::Varchar),
            ("character", "") => size.parse().ok().map(SqlType::Char),
            ("time", " without time zone") => digits().map(SqlType::TimeDigits),
            ("timestamp", " without time zone") => digits().map(SqlType::TimestampDigits),
            ("timestamp", " with time zone") => digits().map(SqlType::TimestampTzDigits),
            _ => None,
        }
    }

    /// The number of digits behind the second to which values are rounded, if the type has one.
    pub fn digits(&self) -> Option<u8> {
        match *self {
            SqlType::TimeDigits(digits) | SqlType::TimestampDigits(digits) | SqlType::TimestampTzDigits(digits) => {
                Some(digits)
            }
            _ => None,
        }
    }

    /// The Arrow field of a column of this type.
    pub fn field(&self, name: &str, nullable: bool) -> Field {
        let field = Field::new(name, self.arrow(), nullable);
        match self {
            SqlType::Varchar(_)
            | SqlType::Char(_)
            | SqlType::Json
            | SqlType::TimeDigits(_)
            | SqlType::TimestampDigits(_)
            | SqlType::TimestampTzDigits(_) => {
                field.with_metadata(HashMap::from([(TYPE_KEY.to_string(), self.name())]))
            }
            _ => field,
        }
    }

    /// Whether its values are text.
    pub fn is_text(&self) -> bool {
        matches!(self, SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json)
    }
}

/// PostgreSQL takes more digits for six, with a warning.
fn at_most_six(digits: u64) -> u8 {
    digits.min(DIGITS_MAX.into()) as u8
}

fn numeric(info: &ExactNumberInfo) -> Result<SqlType, SqlError> {
    let (precision, scale) = match info {
        ExactNumberInfo::None => return Ok(SqlType::Numeric(NUMERIC_DIGITS.0, NUMERIC_DIGITS.1)),
        ExactNumberInfo::Precision(precision) => (*precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (*precision, *scale),
    };
    match (u8::try_from(precision), i8::try_from(scale)) {
        (Ok(p @ 1..=38), Ok(s)) if s >= 0 && s as u8 <= p => Ok(SqlType::Numeric(p, s)),
        _ => Err(SqlError::statement("22023", format!("numeric({precision},{scale}) is out of range"))
            .with_hint("At most 38 digits are kept, and no more of them after the point.")),
    }
}

fn characters(length: &Option<CharacterLength>) -> Result<Option<u32>, SqlError> {
    match length {
        None | Some(CharacterLength::Max) => Ok(None),
        // PostgreSQL's limit for both: 10485760 characters.
        Some(CharacterLength::IntegerLength { length: length @ 1..=10_485_760, .. }) => Ok(Some(*length as u32)),
        Some(CharacterLength::IntegerLength { length, .. }) => {
            Err(SqlError::statement("22023", format!("a length of {length} characters is out of range")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_leads_back_to_its_type() {
        let all = [
            SqlType::Boolean,
            SqlType::SmallInt,
            SqlType::Integer,
            SqlType::BigInt,
            SqlType::Real,
            SqlType::Double,
            SqlType::Numeric(12, 2),
            SqlType::Text,
            SqlType::Varchar(10),
            SqlType::Char(3),
            SqlType::Json,
            SqlType::Bytea,
            SqlType::Date,
            SqlType::Time,
            SqlType::TimeDigits(0),
            SqlType::Timestamp,
            SqlType::TimestampDigits(3),
            SqlType::TimestampTz,
            SqlType::TimestampTzDigits(6),
            SqlType::Interval,
            SqlType::Uuid,
            SqlType::Jsonb,
        ];
        for kind in all {
            assert_eq!(SqlType::from_arrow(&kind.field("x", true)).unwrap(), kind);
        }
    }

    #[test]
    fn metadata_of_another_type_or_without_sense_is_not_the_type() {
        let field = |kind: DataType, name: &str| {
            Field::new("x", kind, true).with_metadata(HashMap::from([(TYPE_KEY.to_owned(), name.to_owned())]))
        };
        for (kind, name, found) in [
            (DataType::Date32, "timestamp(3) without time zone", SqlType::Date),
            (SqlType::TimestampTz.arrow(), "timestamp(3) without time zone", SqlType::TimestampTz),
            (DataType::Int32, "character varying(5)", SqlType::Integer),
            (SqlType::Timestamp.arrow(), "timestamp(9) without time zone", SqlType::Timestamp),
            (SqlType::Time.arrow(), "time(3) with time zone", SqlType::Time),
        ] {
            assert_eq!(SqlType::from_arrow(&field(kind, name)).unwrap(), found, "{name}");
        }
    }

    #[test]
    fn types_are_stored_as_in_the_golden_texts() {
        for (kind, golden) in [
            (SqlType::Timestamp, r#""Timestamp""#),
            (SqlType::Numeric(12, 2), r#"{"Numeric":[12,2]}"#),
            (SqlType::Varchar(10), r#"{"Varchar":10}"#),
            (SqlType::Uuid, r#""Uuid""#),
            (SqlType::Jsonb, r#""Jsonb""#),
            (SqlType::TimeDigits(0), r#"{"TimeDigits":0}"#),
            (SqlType::TimestampDigits(3), r#"{"TimestampDigits":3}"#),
            (SqlType::TimestampTzDigits(6), r#"{"TimestampTzDigits":6}"#),
        ] {
            assert_eq!(serde_json::to_string(&kind).unwrap(), golden);
            assert_eq!(serde_json::from_str::<SqlType>(golden).unwrap(), kind);
        }
    }
}
