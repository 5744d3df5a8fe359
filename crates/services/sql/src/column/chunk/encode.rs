//! From a row group's column to chunks: the encoding, the number of vectors in each, and the bytes.
//!
//! - Texts are a dictionary if each entry is used by eight rows or more, otherwise offsets and bytes.
//! - Whole numbers, decimals, dates and times are differences to the smallest value, if that takes fewer bytes.
//! - All other values are stored as in Arrow.
//!
//! A chunk contains as many whole vectors as fit in [`CHUNK_BYTES_MAX`], so it is in one piece in the page cache; a
//! single vector may be longer.

use std::collections::HashMap;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, GenericByteArray};
use datafusion::arrow::buffer::NullBuffer;
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{ArrowNativeType, ByteArrayType, DataType};

use super::{ALIGNMENT, BITS, DICTIONARY, HEADER_BYTES, NARROW, PLAIN, TEXT};
use crate::SqlError;
use crate::column::{VECTOR_ROWS, fixed_width, is_narrowable, text_type, unsupported};

/// Largest size of a chunk, unless one vector takes more: the longest value that the store keeps in one piece.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;
/// A dictionary has at most this many entries, and at most one for eight rows.
const ENTRIES_MAX: usize = 8192;

/// Encodes a row group's column: each chunk's first vector and bytes.
pub fn encode(column: &ArrayRef) -> Result<Vec<(u16, Vec<u8>)>, SqlError> {
    let kind = column.data_type();
    if let Some(width) = fixed_width(kind) {
        let narrow = if is_narrowable(kind) { differences(column, width) } else { None };
        return Ok(match narrow {
            Some(narrow) => cut(column.len(), |from, rows| narrow_chunk(&narrow, column.nulls(), from, rows)),
            None => cut(column.len(), |from, rows| plain_chunk(column, width, from, rows)),
        });
    }
    match kind {
        DataType::Boolean => Ok(cut(column.len(), |from, rows| bits_chunk(column, from, rows))),
        kind if super::super::is_text(kind) => {
            let column = cast(column, &text_type(kind))?;
            Ok(match text_type(kind) {
                DataType::Utf8 => encode_text(column.as_string::<i32>()),
                _ => encode_text(column.as_binary::<i32>()),
            })
        }
        kind => Err(unsupported(kind)),
    }
}

/// Cuts rows into chunks of whole vectors, each as long as possible.
fn cut(rows: usize, chunk: impl Fn(usize, usize) -> Vec<u8>) -> Vec<(u16, Vec<u8>)> {
    let all = chunk(0, rows);
    if all.len() <= CHUNK_BYTES_MAX || rows <= VECTOR_ROWS {
        return vec![(0, all)];
    }
    // Bytes for a row vary little inside a row group: begin with the number of vectors from the average, and reduce it
    // if the chunk is too large.
    let guess = (rows.div_ceil(VECTOR_ROWS) * CHUNK_BYTES_MAX / all.len()).max(1);
    let (mut chunks, mut from) = (Vec::new(), 0);
    while from < rows {
        let mut vectors = guess;
        let (taken, bytes) = loop {
            let taken = (vectors * VECTOR_ROWS).min(rows - from);
            let bytes = chunk(from, taken);
            if bytes.len() <= CHUNK_BYTES_MAX || vectors == 1 {
                break (taken, bytes);
            }
            vectors -= 1;
        };
        chunks.push(((from / VECTOR_ROWS) as u16, bytes));
        from += taken;
    }
    chunks
}

/// Assembles a chunk.
struct Writer {
    out: Vec<u8>,
}

impl Writer {
    fn new(kind: u8, width: usize, rows: usize, nulls: Option<&NullBuffer>) -> Writer {
        let mut out = vec![0; HEADER_BYTES];
        let null_count = nulls.map_or(0, NullBuffer::null_count);
        out[0] = kind;
        out[1] = width as u8;
        out[2] = u8::from(null_count > 0);
        out[4..8].copy_from_slice(&(rows as u32).to_le_bytes());
        out[8..12].copy_from_slice(&(null_count as u32).to_le_bytes());
        let mut writer = Writer { out };
        if let Some(nulls) = nulls.filter(|nulls| nulls.null_count() > 0) {
            writer.part(0, &bits(rows, |row| nulls.is_valid(row)));
        }
        writer
    }

    fn part(&mut self, number: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.out.resize(self.out.len().next_multiple_of(ALIGNMENT), 0);
        let at = 32 + 8 * number;
        let from = self.out.len() as u32;
        self.out[at..at + 4].copy_from_slice(&from.to_le_bytes());
        self.out[at + 4..at + 8].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.out.extend_from_slice(bytes);
    }
}

fn bits(rows: usize, bit: impl Fn(usize) -> bool) -> Vec<u8> {
    let mut bytes = vec![0u8; rows.div_ceil(8)];
    for row in (0..rows).filter(|&row| bit(row)) {
        bytes[row / 8] |= 1 << (row % 8);
    }
    bytes
}

fn plain_chunk(column: &ArrayRef, width: usize, from: usize, rows: usize) -> Vec<u8> {
    let nulls = column.nulls().map(|nulls| nulls.slice(from, rows));
    let mut writer = Writer::new(PLAIN, width, rows, nulls.as_ref());
    let data = column.to_data();
    let first = (data.offset() + from) * width;
    let mut values = data.buffers()[0].as_slice()[first..first + rows * width].to_vec();
    // Arrow does not define the value under a null; to give the same values only one encoding, it is defined here.
    if let Some(nulls) = &nulls {
        for row in (0..rows).filter(|&row| nulls.is_null(row)) {
            values[row * width..(row + 1) * width].fill(0);
        }
    }
    writer.part(1, &values);
    writer.out
}

fn bits_chunk(column: &ArrayRef, from: usize, rows: usize) -> Vec<u8> {
    let column = column.as_boolean().slice(from, rows);
    let mut writer = Writer::new(BITS, 0, rows, column.nulls());
    writer.part(1, &bits(rows, |row| column.is_valid(row) && column.value(row)));
    writer.out
}

/// A column as differences to its smallest value.
struct Differences {
    base: i128,
    width: usize,
    values: Vec<u64>,
}

fn differences(column: &ArrayRef, native: usize) -> Option<Differences> {
    let data = column.to_data();
    let (from, rows) = (data.offset(), data.len());
    let buffer = &data.buffers()[0];
    match native {
        1 => of(&buffer.typed_data::<i8>()[from..from + rows], column.nulls(), native),
        2 => of(&buffer.typed_data::<i16>()[from..from + rows], column.nulls(), native),
        4 => of(&buffer.typed_data::<i32>()[from..from + rows], column.nulls(), native),
        8 => of(&buffer.typed_data::<i64>()[from..from + rows], column.nulls(), native),
        _ => of(&buffer.typed_data::<i128>()[from..from + rows], column.nulls(), native),
    }
}

fn of<N: ArrowNativeType + Into<i128>>(values: &[N], nulls: Option<&NullBuffer>, native: usize) -> Option<Differences> {
    let is_valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
    let mut range: Option<(i128, i128)> = None;
    for (_, value) in values.iter().enumerate().filter(|(row, _)| is_valid(*row)) {
        let value: i128 = (*value).into();
        range = Some(range.map_or((value, value), |(min, max)| (min.min(value), max.max(value))));
    }
    let (base, largest) = range.unwrap_or((0, 0));
    let width = match u64::try_from(largest.checked_sub(base)?).ok()? {
        0..0x100 => 1,
        0x100..0x1_0000 => 2,
        0x1_0000..0x1_0000_0000 => 4,
        _ => 8,
    };
    if width >= native {
        return None;
    }
    let difference = |(row, value): (usize, &N)| {
        let value: i128 = (*value).into();
        if is_valid(row) { value.wrapping_sub(base) as u64 } else { 0 }
    };
    Some(Differences { base, width, values: values.iter().enumerate().map(difference).collect() })
}

fn narrow_chunk(narrow: &Differences, nulls: Option<&NullBuffer>, from: usize, rows: usize) -> Vec<u8> {
    let nulls = nulls.map(|nulls| nulls.slice(from, rows));
    let mut writer = Writer::new(NARROW, narrow.width, rows, nulls.as_ref());
    writer.out[16..32].copy_from_slice(&narrow.base.to_le_bytes());
    writer.part(1, &low_bytes(&narrow.values[from..from + rows], narrow.width));
    writer.out
}

fn low_bytes(values: &[u64], width: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * width);
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes()[..width]);
    }
    bytes
}

fn encode_text<T>(column: &GenericByteArray<T>) -> Vec<(u16, Vec<u8>)>
where
    T: ByteArrayType<Offset = i32>,
    T::Native: AsRef<[u8]>,
{
    let nulls = column.nulls();
    match dictionary(column) {
        Some((codes, entries)) => {
            let width = if entries.len() <= 256 { 1 } else { 2 };
            cut(column.len(), |from, rows| {
                let nulls = nulls.map(|nulls| nulls.slice(from, rows));
                let mut writer = Writer::new(DICTIONARY, width, rows, nulls.as_ref());
                writer.out[12..16].copy_from_slice(&(entries.len() as u32).to_le_bytes());
                writer.part(1, &low_bytes(&codes[from..from + rows], width));
                write_texts(&mut writer, 2, entries.iter().copied());
                writer.out
            })
        }
        None => cut(column.len(), |from, rows| {
            let some = column.slice(from, rows);
            let mut writer = Writer::new(TEXT, 4, rows, some.nulls());
            let texts = (0..rows).map(|row| if some.is_valid(row) { some.value(row).as_ref() } else { &[][..] });
            write_texts(&mut writer, 1, texts);
            writer.out
        }),
    }
}

fn write_texts<'a>(writer: &mut Writer, part: usize, texts: impl Iterator<Item = &'a [u8]>) {
    let (mut offsets, mut bytes) = (vec![0u8; 4], Vec::new());
    for text in texts {
        bytes.extend_from_slice(text);
        offsets.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    }
    writer.part(part, &offsets);
    writer.part(3, &bytes);
}

/// Codes in the order of first appearance, and their entries; `None` if texts repeat too rarely.
fn dictionary<T>(column: &GenericByteArray<T>) -> Option<(Vec<u64>, Vec<&[u8]>)>
where
    T: ByteArrayType<Offset = i32>,
    T::Native: AsRef<[u8]>,
{
    let most = ENTRIES_MAX.min(column.len() / 8);
    let (mut known, mut entries) = (HashMap::new(), Vec::new());
    let mut codes = Vec::with_capacity(column.len());
    for row in 0..column.len() {
        if column.is_null(row) {
            codes.push(0);
            continue;
        }
        let text: &[u8] = column.value(row).as_ref();
        let code = *known.entry(text).or_insert_with(|| {
            entries.push(text);
            entries.len() as u64 - 1
        });
        if entries.len() > most {
            return None;
        }
        codes.push(code);
    }
    Some((codes, entries))
}
