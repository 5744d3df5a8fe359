//! Primary keys as bytes that sort in the order of the values.
//!
//! ```text
//!   boolean                     1 byte
//!   integers, date, time, ...   big-endian, sign bit flipped
//!   real, double precision      bits, all flipped if negative, else the sign bit; -0 is 0, all NaN are equal and largest
//!   numeric                     8 or 16 bytes as integers, of the unscaled value
//!   text                        the bytes and 00 (text contains no 00)
//!   bytea                       the bytes, 00 as 00 FF, and 00 00
//!   uuid                        its 16 bytes
//! ```
//!
//! No value is a prefix of another value of its type. So columns are concatenated, and the rows whose first columns
//! have given values are one range of keys.
//!
//! Row ids of tables without a primary key are 8 bytes, big-endian.

use std::ops::Bound;

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Decimal128Array, FixedSizeBinaryArray,
    PrimitiveArray, StringViewArray,
};
use datafusion::arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    Time64MicrosecondType, TimeUnit, TimestampMicrosecondType,
};

use store::KEY_BYTES_MAX;

use super::definition::Table;
use super::types::{JSONB, SqlType};
use super::uuid::{self, UUID};
use crate::{ErrorObject, SqlError};

/// Whether columns of a type can be in a primary key.
pub(crate) fn is_key_type(kind: SqlType) -> bool {
    !matches!(kind, SqlType::Interval | SqlType::Json | SqlType::Jsonb)
}

/// The values of one column, to be encoded or compared.
pub(crate) enum KeyColumn<'a> {
    Boolean(&'a BooleanArray),
    Int16(&'a PrimitiveArray<Int16Type>),
    Int32(&'a PrimitiveArray<Int32Type>),
    Int64(&'a PrimitiveArray<Int64Type>),
    Float32(&'a PrimitiveArray<Float32Type>),
    Float64(&'a PrimitiveArray<Float64Type>),
    Decimal(&'a Decimal128Array, bool),
    Text(&'a StringViewArray),
    Bytes(&'a BinaryArray),
    Date(&'a PrimitiveArray<Date32Type>),
    Time(&'a PrimitiveArray<Time64MicrosecondType>),
    Timestamp(&'a PrimitiveArray<TimestampMicrosecondType>),
    Uuid(&'a FixedSizeBinaryArray),
    Document(&'a BinaryViewArray),
}

/// Whether a numeric of that precision takes 8 bytes and not 16: 18 digits always fit in 63 bits.
pub(crate) fn is_short(precision: u8) -> bool {
    precision <= 18
}

impl<'a> KeyColumn<'a> {
    /// A column of one of the types of columns. Panics on any other type: callers cast columns first.
    pub(crate) fn new(array: &'a ArrayRef) -> KeyColumn<'a> {
        match array.data_type() {
            DataType::Boolean => KeyColumn::Boolean(array.as_boolean()),
            DataType::Int16 => KeyColumn::Int16(array.as_primitive()),
            DataType::Int32 => KeyColumn::Int32(array.as_primitive()),
            DataType::Int64 => KeyColumn::Int64(array.as_primitive()),
            DataType::Float32 => KeyColumn::Float32(array.as_primitive()),
            DataType::Float64 => KeyColumn::Float64(array.as_primitive()),
            DataType::Decimal128(precision, _) => {
                KeyColumn::Decimal(array.as_primitive::<Decimal128Type>(), is_short(*precision))
            }
            DataType::Utf8View => KeyColumn::Text(array.as_string_view()),
            DataType::Binary => KeyColumn::Bytes(array.as_binary()),
            DataType::Date32 => KeyColumn::Date(array.as_primitive()),
            DataType::Time64(TimeUnit::Microsecond) => KeyColumn::Time(array.as_primitive()),
            DataType::Timestamp(TimeUnit::Microsecond, _) => KeyColumn::Timestamp(array.as_primitive()),
            kind if *kind == UUID => KeyColumn::Uuid(array.as_fixed_size_binary()),
            kind if *kind == JSONB => KeyColumn::Document(array.as_binary_view()),
            other => unreachable!("{other} is not the type of a key column"),
        }
    }

    /// Appends the value of a row. The value must not be NULL.
    pub(crate) fn encode(&self, row: usize, out: &mut Vec<u8>) {
        match self {
            KeyColumn::Boolean(a) => out.push(a.value(row) as u8),
            KeyColumn::Int16(a) => out.extend((a.value(row) as u16 ^ 1 << 15).to_be_bytes()),
            KeyColumn::Int32(a) => out.extend(flip32(a.value(row))),
            KeyColumn::Int64(a) => out.extend(flip64(a.value(row))),
            KeyColumn::Float32(a) => {
                let value = a.value(row);
                let bits = if value == 0.0 {
                    0
                } else if value.is_nan() {
                    f32::NAN.to_bits()
                } else {
                    value.to_bits()
                };
                let bits = if bits >> 31 == 1 { !bits } else { bits ^ 1 << 31 };
                out.extend(bits.to_be_bytes());
            }
            KeyColumn::Float64(a) => {
                let value = a.value(row);
                let bits = if value == 0.0 {
                    0
                } else if value.is_nan() {
                    f64::NAN.to_bits()
                } else {
                    value.to_bits()
                };
                let bits = if bits >> 63 == 1 { !bits } else { bits ^ 1 << 63 };
                out.extend(bits.to_be_bytes());
            }
            KeyColumn::Decimal(a, true) => out.extend(flip64(a.value(row) as i64)),
            KeyColumn::Decimal(a, false) => out.extend((a.value(row) as u128 ^ 1 << 127).to_be_bytes()),
            KeyColumn::Text(a) => {
                out.extend_from_slice(a.value(row).as_bytes());
                out.push(0);
            }
            KeyColumn::Bytes(a) => {
                for byte in a.value(row) {
                    out.push(*byte);
                    if *byte == 0 {
                        out.push(0xFF);
                    }
                }
                out.extend([0, 0]);
            }
            KeyColumn::Date(a) => out.extend(flip32(a.value(row))),
            KeyColumn::Time(a) => out.extend(flip64(a.value(row))),
            KeyColumn::Timestamp(a) => out.extend(flip64(a.value(row))),
            KeyColumn::Uuid(a) => out.extend_from_slice(a.value(row)),
            KeyColumn::Document(_) => unreachable!("jsonb is in no primary key"),
        }
    }
}

fn flip32(value: i32) -> [u8; 4] {
    (value as u32 ^ 1 << 31).to_be_bytes()
}

fn flip64(value: i64) -> [u8; 8] {
    (value as u64 ^ 1 << 63).to_be_bytes()
}

/// The primary key of a row, for messages: `(1, a)`.
pub(crate) fn display(columns: &[ArrayRef], row: usize) -> String {
    use datafusion::arrow::util::display::array_value_to_string;
    let value = |column: &ArrayRef| match column.data_type() {
        kind if *kind == UUID && column.is_valid(row) => uuid::text(column.as_fixed_size_binary().value(row)),
        _ => array_value_to_string(column, row).unwrap_or_else(|_| "?".into()),
    };
    columns.iter().map(value).collect::<Vec<_>>().join(", ")
}

/// The error for a primary key that exists already.
pub(crate) fn duplicate(table: &Table, columns: &[ArrayRef], row: usize) -> SqlError {
    let names: Vec<&str> = table.key.iter().map(|at| table.columns[*at].name.as_str()).collect();
    let values: Vec<ArrayRef> = table.key.iter().map(|at| columns[*at].clone()).collect();
    SqlError::value("23505", format!("duplicate key value violates unique constraint \"{}\"", table.key_name))
        .with_detail(format!("Key ({})=({}) already exists.", names.join(", "), display(&values, row)))
        .about(ErrorObject {
            schema: table.schema_name.clone(),
            table: table.name.clone(),
            constraint: Some(table.key_name.clone()),
            told: names.into_iter().map(|name| (name.to_owned(), String::new())).collect(),
            ..ErrorObject::default()
        })
}

/// The error for a primary key of `bytes` bytes.
pub(crate) fn too_long(bytes: usize) -> SqlError {
    SqlError::value("54000", format!("a primary key of {bytes} bytes is too long"))
        .with_hint(format!("Encoded, a primary key has at most {KEY_BYTES_MAX} bytes."))
}

/// The first key behind all keys with a prefix; `Unbounded` if there is none.
pub(crate) fn after(prefix: &[u8]) -> Bound<Vec<u8>> {
    let kept = prefix.iter().rposition(|byte| *byte != 0xFF);
    match kept {
        Some(last) => {
            let mut next = prefix[..=last].to_vec();
            next[last] += 1;
            Bound::Excluded(next)
        }
        None => Bound::Unbounded,
    }
}

/// The key of a row id.
pub(crate) fn row_id(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

/// Reads a row id's key.
pub(crate) fn read_row_id(key: &[u8]) -> Result<u64, SqlError> {
    match key.try_into() {
        Ok(bytes) => Ok(u64::from_be_bytes(bytes)),
        Err(_) => Err(store::StoreError::Corrupt(format!("a row id has 8 bytes, not {}", key.len()).into()).into()),
    }
}
