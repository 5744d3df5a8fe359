//! [`RowGroupMetadata`]: the facts about a row group that are known without reading its columns.
//!
//! ```text
//!   u8 1 (version); u8 columns with a key: 1, else 0; u16 columns; u32 rows
//!   with a key, for each vector and once more for the row group's end:  u16 length, the key's bytes
//!       (the encoded primary key of each vector's first row, and of the row group's last)
//!   for each column:
//!       u16 chunks, for each the u16 number of its first vector
//!       u32 distinct values (an estimate)
//!       for the row group, then for each vector:  u32 nulls, least, largest
//!   a bound:  u8 0: unknown or none; u8 1: the value; u8 2: a value beyond it (texts are cut after 32 bytes)
//!       then the value: numbers as Arrow has them, boolean u8, texts u8 length and bytes
//! ```
//!
//! Decoding is total. Reading needs the types of the columns, which are in the table's definition. A row group written
//! before a column was added has fewer columns.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayDataBuilder, ArrayRef, AsArray, UInt64Array, make_array};
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::scalar::ScalarValue;

use super::{VECTOR_ROWS, damaged, fixed_width, is_text, text_type};
use crate::SqlError;

const VERSION: u8 = 1;
/// Texts are cut after this many bytes in zone maps.
const BOUND_BYTES: usize = 32;

/// Least and largest value of some rows of a column, and how many are null.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// How many values are null.
    pub nulls: u32,
    /// No value is less; of the column's type, null where unknown.
    pub least: ScalarValue,
    /// No value is larger; of the column's type, null where unknown.
    pub largest: ScalarValue,
    /// Whether both bounds are values that occur.
    pub exact: bool,
}

/// One column of a row group.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnMetadata {
    /// Each chunk's first vector; ascending, from 0.
    pub chunks: Vec<u16>,
    /// The approximate number of distinct values.
    pub distinct: u32,
    /// Of all rows.
    pub zone: Zone,
    /// Of each vector.
    pub vectors: Vec<Zone>,
    /// The vectors' bounds as arrays, for pruning: least, largest, nulls.
    pub(crate) arrays: (ArrayRef, ArrayRef, ArrayRef),
}

/// The metadata of a row group.
#[derive(Clone, Debug, PartialEq)]
pub struct RowGroupMetadata {
    /// The number of rows when it was written.
    pub rows: usize,
    /// With a primary key: the encoded key of each vector's first row, and of the last row.
    pub keys: Vec<Vec<u8>>,
    /// Columns, in the table's order.
    pub columns: Vec<ColumnMetadata>,
}

impl Zone {
    /// Computes the zone of some values. Texts longer than a bound may be are cut.
    pub(crate) fn of(values: &ArrayRef) -> Result<Zone, SqlError> {
        let kind = values.data_type();
        let nulls = values.null_count() as u32;
        let nothing = ScalarValue::try_new_null(kind)?;
        if nulls as usize == values.len() {
            return Ok(Zone { nulls, least: nothing.clone(), largest: nothing, exact: false });
        }
        let Some((least, largest)) = extremes(values)? else {
            return Ok(Zone { nulls, least: nothing.clone(), largest: nothing, exact: false });
        };
        let (least, largest) =
            (ScalarValue::try_from_array(values, least)?, ScalarValue::try_from_array(values, largest)?);
        if !is_text(kind) {
            return Ok(Zone { nulls, least, largest, exact: true });
        }
        let (low, cut_low) = shorter(&least, false);
        let (high, cut_high) = shorter(&largest, true);
        let of = |bytes: Option<Vec<u8>>| match bytes {
            Some(bytes) => text_scalar(kind, &bytes),
            None => Ok(nothing.clone()),
        };
        Ok(Zone { nulls, least: of(low)?, largest: of(high)?, exact: !cut_low && !cut_high })
    }
}

/// The positions of the least and the largest value. Floats have no zones, because systems do not agree on the order of
/// NaN.
fn extremes(values: &ArrayRef) -> Result<Option<(usize, usize)>, SqlError> {
    fn among<T: PartialOrd>(
        rows: usize,
        valid: impl Fn(usize) -> bool,
        value: impl Fn(usize) -> T,
    ) -> Option<(usize, usize)> {
        let mut all = (0..rows).filter(|&row| valid(row));
        let first = all.next()?;
        Some(all.fold((first, first), |(least, largest), row| {
            let value_here = value(row);
            (
                if value_here < value(least) { row } else { least },
                if value_here > value(largest) { row } else { largest },
            )
        }))
    }
    let valid = |row: usize| values.is_valid(row);
    let rows = values.len();
    let unsigned =
        matches!(values.data_type(), DataType::UInt8 | DataType::UInt16 | DataType::UInt32 | DataType::UInt64);
    Ok(match values.data_type() {
        DataType::Boolean => among(rows, valid, |row| values.as_boolean().value(row)),
        _ if unsigned => {
            let wide = cast(values, &DataType::UInt64)?;
            let wide: &UInt64Array = wide.as_primitive();
            among(rows, valid, |row| wide.value(row))
        }
        kind if super::is_narrowable(kind) => {
            let data = values.to_data();
            let (buffer, from) = (&data.buffers()[0], data.offset());
            match fixed_width(kind) {
                Some(1) => among(rows, valid, |row| buffer.typed_data::<i8>()[from + row]),
                Some(2) => among(rows, valid, |row| buffer.typed_data::<i16>()[from + row]),
                Some(4) => among(rows, valid, |row| buffer.typed_data::<i32>()[from + row]),
                Some(8) => among(rows, valid, |row| buffer.typed_data::<i64>()[from + row]),
                _ => among(rows, valid, |row| buffer.typed_data::<i128>()[from + row]),
            }
        }
        kind if is_text(kind) => {
            let flat = cast(values, &text_type(kind))?;
            match text_type(kind) {
                DataType::Utf8 => among(rows, valid, |row| flat.as_string::<i32>().value(row).as_bytes()),
                _ => among(rows, valid, |row| flat.as_binary::<i32>().value(row)),
            }
        }
        DataType::FixedSizeBinary(_) => among(rows, valid, |row| values.as_fixed_size_binary().value(row)),
        _ => None,
    })
}

/// A text of at most [`BOUND_BYTES`] that is not larger, or, for an upper bound, not less; and whether it differs from
/// the value.
fn shorter(value: &ScalarValue, upper: bool) -> (Option<Vec<u8>>, bool) {
    let (bytes, is_string) = match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::LargeUtf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => {
            (text.as_bytes(), true)
        }
        ScalarValue::Binary(Some(bytes))
        | ScalarValue::LargeBinary(Some(bytes))
        | ScalarValue::BinaryView(Some(bytes)) => (bytes.as_slice(), false),
        _ => return (None, true),
    };
    if bytes.len() <= BOUND_BYTES {
        return (Some(bytes.to_vec()), false);
    }
    let mut cut = bytes[..BOUND_BYTES].to_vec();
    while is_string && std::str::from_utf8(&cut).is_err() {
        cut.pop();
    }
    if !upper {
        return (Some(cut), true);
    }
    // The next larger text of that length or less: the last byte or character that can be incremented is incremented.
    let mut rest = cut.as_slice();
    while let Some((&last, head)) = rest.split_last() {
        let can_grow = if is_string { last < 0x7F } else { last < 0xFF };
        if can_grow {
            return (Some([head, &[last + 1]].concat()), true);
        }
        rest = head;
    }
    (None, true)
}

fn text_scalar(kind: &DataType, bytes: &[u8]) -> Result<ScalarValue, SqlError> {
    let text = || String::from_utf8(bytes.to_vec()).map_err(damaged);
    Ok(match kind {
        DataType::Utf8 => ScalarValue::Utf8(Some(text()?)),
        DataType::LargeUtf8 => ScalarValue::LargeUtf8(Some(text()?)),
        DataType::Utf8View => ScalarValue::Utf8View(Some(text()?)),
        DataType::Binary => ScalarValue::Binary(Some(bytes.to_vec())),
        DataType::LargeBinary => ScalarValue::LargeBinary(Some(bytes.to_vec())),
        _ => ScalarValue::BinaryView(Some(bytes.to_vec())),
    })
}

impl ColumnMetadata {
    /// Combines the metadata of a column.
    pub(crate) fn new(
        chunks: Vec<u16>,
        distinct: u32,
        zone: Zone,
        vectors: Vec<Zone>,
    ) -> Result<ColumnMetadata, SqlError> {
        let least = ScalarValue::iter_to_array(vectors.iter().map(|zone| zone.least.clone()))?;
        let largest = ScalarValue::iter_to_array(vectors.iter().map(|zone| zone.largest.clone()))?;
        let nulls: UInt64Array = vectors.iter().map(|zone| Some(u64::from(zone.nulls))).collect();
        Ok(ColumnMetadata { chunks, distinct, zone, vectors, arrays: (least, largest, Arc::new(nulls)) })
    }
}

impl RowGroupMetadata {
    /// The number of vectors.
    pub fn vectors(&self) -> usize {
        self.rows.div_ceil(VECTOR_ROWS)
    }

    /// The number of rows of a vector.
    pub fn vector_rows(&self, vector: usize) -> usize {
        VECTOR_ROWS.min(self.rows.saturating_sub(vector * VECTOR_ROWS))
    }

    /// The stored form.
    pub fn encode(&self) -> Result<Vec<u8>, SqlError> {
        let mut out = vec![VERSION, u8::from(!self.keys.is_empty())];
        out.extend((self.columns.len() as u16).to_le_bytes());
        out.extend((self.rows as u32).to_le_bytes());
        for key in &self.keys {
            out.extend((key.len() as u16).to_le_bytes());
            out.extend_from_slice(key);
        }
        for column in &self.columns {
            out.extend((column.chunks.len() as u16).to_le_bytes());
            column.chunks.iter().for_each(|first| out.extend(first.to_le_bytes()));
            out.extend(column.distinct.to_le_bytes());
            for zone in std::iter::once(&column.zone).chain(&column.vectors) {
                out.extend(zone.nulls.to_le_bytes());
                for bound in [&zone.least, &zone.largest] {
                    encode_bound(bound, zone.exact, &mut out)?;
                }
            }
        }
        Ok(out)
    }

    /// Decodes the metadata of a row group of a table with these columns. Errors: damaged.
    pub fn decode(bytes: &[u8], schema: &SchemaRef) -> Result<RowGroupMetadata, SqlError> {
        let mut reader = MetadataReader { bytes };
        if reader.u8()? != VERSION {
            return Err(damaged("row-group metadata of an unknown version"));
        }
        let keyed = reader.u8()? == 1;
        let columns = reader.u16()? as usize;
        let rows = reader.u32()? as usize;
        let vectors = rows.div_ceil(VECTOR_ROWS);
        if rows == 0 || rows > super::ROW_GROUP_ROWS || columns > schema.fields().len() {
            return Err(damaged("row-group metadata with impossible counts"));
        }
        let mut keys = Vec::new();
        for _ in 0..if keyed { vectors + 1 } else { 0 } {
            let length = reader.u16()? as usize;
            keys.push(reader.take(length)?.to_vec());
        }
        let mut metadata = RowGroupMetadata { rows, keys, columns: Vec::with_capacity(columns) };
        for field in schema.fields().iter().take(columns) {
            metadata.columns.push(reader.column(field.data_type(), vectors)?);
        }
        if reader.bytes.is_empty() {
            Ok(metadata)
        } else {
            Err(damaged("row-group metadata is longer than its content"))
        }
    }
}

fn encode_bound(bound: &ScalarValue, exact: bool, out: &mut Vec<u8>) -> Result<(), SqlError> {
    if bound.is_null() {
        out.push(0);
        return Ok(());
    }
    out.push(if exact { 1 } else { 2 });
    let array = bound.to_array()?;
    match array.data_type() {
        DataType::Boolean => out.push(u8::from(array.as_boolean().value(0))),
        kind if is_text(kind) => {
            let flat = cast(&array, &DataType::Binary)?;
            let bytes = flat.as_binary::<i32>().value(0);
            out.push(bytes.len() as u8);
            out.extend_from_slice(bytes);
        }
        _ => out.extend_from_slice(array.to_data().buffers()[0].as_slice()),
    }
    Ok(())
}

struct MetadataReader<'a> {
    bytes: &'a [u8],
}

impl MetadataReader<'_> {
    fn take(&mut self, length: usize) -> Result<&[u8], SqlError> {
        match self.bytes.split_at_checked(length) {
            Some((head, rest)) => {
                self.bytes = rest;
                Ok(head)
            }
            None => Err(damaged("row-group metadata ends too early")),
        }
    }

    fn u8(&mut self) -> Result<u8, SqlError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<u16, SqlError> {
        let bytes = self.take(2)?;
        Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
    }

    fn u32(&mut self) -> Result<u32, SqlError> {
        let bytes = self.take(4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    fn column(&mut self, kind: &DataType, vectors: usize) -> Result<ColumnMetadata, SqlError> {
        let count = self.u16()? as usize;
        let mut chunks = Vec::new();
        for _ in 0..count {
            chunks.push(self.u16()?);
        }
        let ascending = chunks.windows(2).all(|pair| pair[0] < pair[1]);
        let inside = chunks.last().is_some_and(|&last| usize::from(last) < vectors);
        if chunks.first() != Some(&0) || !ascending || !inside {
            return Err(damaged("the chunks of a row group do not cover its rows"));
        }
        let distinct = self.u32()?;
        let zone = self.zone(kind)?;
        let mut zones = Vec::with_capacity(vectors);
        for _ in 0..vectors {
            zones.push(self.zone(kind)?);
        }
        ColumnMetadata::new(chunks, distinct, zone, zones)
    }

    fn zone(&mut self, kind: &DataType) -> Result<Zone, SqlError> {
        let nulls = self.u32()?;
        let (least, least_exact) = self.bound(kind)?;
        let (largest, largest_exact) = self.bound(kind)?;
        Ok(Zone { nulls, least, largest, exact: least_exact && largest_exact })
    }

    fn bound(&mut self, kind: &DataType) -> Result<(ScalarValue, bool), SqlError> {
        let exact = match self.u8()? {
            0 => return Ok((ScalarValue::try_new_null(kind)?, false)),
            1 => true,
            2 => false,
            _ => return Err(damaged("row-group metadata with an unknown bound")),
        };
        let value = match kind {
            DataType::Boolean => ScalarValue::Boolean(Some(self.u8()? != 0)),
            kind if is_text(kind) => {
                let length = self.u8()? as usize;
                let bytes = self.take(length)?.to_vec();
                text_scalar(kind, &bytes)?
            }
            kind => {
                let Some(width) = fixed_width(kind) else { return Err(super::unsupported(kind)) };
                let native = Buffer::from_slice_ref(self.take(width)?);
                let data = ArrayDataBuilder::new(kind.clone()).len(1).add_buffer(native).build();
                ScalarValue::try_from_array(&make_array(data.map_err(damaged)?), 0)?
            }
        };
        Ok((value, exact))
    }
}
