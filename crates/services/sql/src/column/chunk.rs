//! [`ColumnChunk`]: values of one column for some vectors of a row group, as one value of the store.
//!
//! ```text
//!   0  u8   kind: 1 plain, 2 narrow, 3 dictionary, 4 text, 5 bits
//!   1  u8   bytes of one stored value: plain 1..32, narrow 1|2|4|8, dictionary 1|2 (a code), text 4 (an offset), bits 0
//!   2  u8   1: some value is null, 0: none is
//!   3  u8   zero
//!   4  u32  rows
//!   8  u32  nulls
//!  12  u32  dictionary: entries; others: zero
//!  16  i128 narrow: the base, to which stored values are added; others: zero
//!  32  4 x (u32 offset, u32 bytes): the parts: 0 validity, 1 values (codes, bits; text: offsets), 2 the dictionary's offsets,
//!           3 the bytes of texts; an absent part is 0, 0
//!  64  the parts, each from a multiple of 64
//! ```
//!
//! All numbers are little-endian. The parts of `plain`, `bits` and `text` are Arrow's own buffers: arrays point
//! directly into the value, and so into the page cache, and keep it there while they live. `narrow` and `dictionary`
//! are decoded vector by vector. They take between a half and a sixteenth of the space, in the cache and in the
//! bandwidth of the medium below it.
//!
//! Invariants: decoding is total: any bytes are a chunk or an error, and a chunk returns arrays without a panic. A
//! value has only one encoding: the same values are the same bytes.
//!
//! Not here: how a row group's rows are cut into chunks (`encode`) and the checksum, which is the store's.

mod decode;
mod encode;

use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::array::{ArrayDataBuilder, ArrayRef, BinaryArray, BooleanArray, StringArray, make_array};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;

pub use decode::{PickedRows, flags_of};
pub use encode::{CHUNK_BYTES_MAX, encode};

use super::damaged;
use crate::SqlError;

pub(super) const HEADER_BYTES: usize = 64;
pub(super) const ALIGNMENT: usize = 64;

const PLAIN: u8 = 1;
const NARROW: u8 = 2;
const DICTIONARY: u8 = 3;
const TEXT: u8 = 4;
const BITS: u8 = 5;

/// One chunk, ready to give arrays of its column's type.
#[derive(Clone, Debug)]
pub struct ColumnChunk {
    kind: DataType,
    rows: usize,
    nulls: Option<NullBuffer>,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    /// All rows as an array of the column's type; texts as Utf8 or Binary.
    Whole(ArrayRef),
    /// Differences to a base.
    Narrow { width: usize, base: i128, values: Buffer },
    /// Codes, and the values that they stand for.
    Dictionary { width: usize, codes: Buffer, entries: ArrayRef },
}

/// The values that can occur in a chunk, for conditions that are evaluated once for each value instead of once for each
/// row.
#[derive(Clone, Debug)]
pub struct Domain {
    /// Each value once, followed by a null if the chunk has nulls.
    pub values: ArrayRef,
    /// Whether the last of the values is the null.
    pub has_null: bool,
}

struct Header {
    kind: u8,
    width: usize,
    rows: usize,
    nulls: usize,
    entries: usize,
    base: i128,
    parts: [Option<(usize, usize)>; 4],
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Header, SqlError> {
        let Some(head) = bytes.get(..HEADER_BYTES) else {
            return Err(damaged("a chunk is shorter than its header"));
        };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]) as usize;
        let mut base = [0u8; 16];
        base.copy_from_slice(&head[16..32]);
        let mut parts = [None; 4];
        for (number, part) in parts.iter_mut().enumerate() {
            let (from, length) = (word(32 + 8 * number), word(36 + 8 * number));
            if (from, length) == (0, 0) {
                continue;
            }
            if from < HEADER_BYTES || from % ALIGNMENT != 0 || from.saturating_add(length) > bytes.len() {
                return Err(damaged("a part of a chunk lies outside of it"));
            }
            *part = Some((from, length));
        }
        let header = Header {
            kind: head[0],
            width: head[1].into(),
            rows: word(4),
            nulls: word(8),
            entries: word(12),
            base: i128::from_le_bytes(base),
            parts,
        };
        let flag = usize::from(header.nulls > 0);
        if usize::from(head[2]) != flag || head[3] != 0 || header.parts[0].is_some() != (flag == 1) {
            return Err(damaged("a chunk's nulls contradict its header"));
        }
        Ok(header)
    }
}

impl ColumnChunk {
    /// Reads a chunk of a column of type `kind`. Errors: damaged.
    pub fn read(bytes: Bytes, kind: &DataType) -> Result<ColumnChunk, SqlError> {
        let header = Header::read(&bytes)?;
        let parts = Parts { whole: Buffer::from(bytes), parts: header.parts };
        let nulls = parts.nulls(&header)?;
        let rows = header.rows;
        let body = match (header.kind, header.width) {
            (PLAIN, width) if super::fixed_width(kind) == Some(width) => {
                let values = parts.exact(1, rows.checked_mul(width), width.min(16))?;
                let data =
                    ArrayDataBuilder::new(kind.clone()).len(rows).add_buffer(values).nulls(nulls.clone()).build();
                Body::Whole(make_array(data.map_err(damaged)?))
            }
            (NARROW, width @ (1 | 2 | 4 | 8)) if super::is_narrowable(kind) => {
                let values = parts.exact(1, rows.checked_mul(width), width)?;
                Body::Narrow { width, base: header.base, values }
            }
            (DICTIONARY, width @ (1 | 2)) if super::is_text(kind) => {
                let codes = parts.exact(1, rows.checked_mul(width), width)?;
                let offsets = parts.exact(2, header.entries.checked_add(1).and_then(|n| n.checked_mul(4)), 4)?;
                let entries = cast(&text(kind, offsets, parts.any(3), None)?, kind)?;
                check_codes(&codes, width, header.entries, nulls.as_ref())?;
                Body::Dictionary { width, codes, entries }
            }
            (TEXT, 4) if super::is_text(kind) => {
                let offsets = parts.exact(1, rows.checked_add(1).and_then(|n| n.checked_mul(4)), 4)?;
                Body::Whole(text(kind, offsets, parts.any(3), nulls.clone())?)
            }
            (BITS, 0) if *kind == DataType::Boolean => {
                let bits = BooleanBuffer::new(parts.exact(1, Some(rows.div_ceil(8)), 1)?, 0, rows);
                Body::Whole(Arc::new(BooleanArray::new(bits, nulls.clone())))
            }
            (number, width) => {
                return Err(damaged(format!("a chunk of kind {number} and width {width} in a column of type {kind}")));
            }
        };
        Ok(ColumnChunk { kind: kind.clone(), rows, nulls, body })
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The approximate size of a row in an array of this chunk, in bytes.
    pub(crate) fn row_bytes(&self) -> usize {
        match &self.body {
            Body::Whole(all) => all.to_data().get_slice_memory_size().unwrap_or(0).div_ceil(self.rows.max(1)),
            // Numbers, or views of texts that all rows share.
            Body::Narrow { .. } | Body::Dictionary { .. } => size_of::<u128>(),
        }
    }
}

/// The parts of a chunk, sliced from its value without a copy.
struct Parts {
    whole: Buffer,
    parts: [Option<(usize, usize)>; 4],
}

impl Parts {
    fn any(&self, number: usize) -> Buffer {
        match self.parts[number] {
            Some((from, length)) => self.whole.slice_with_length(from, length),
            None => Buffer::from(Vec::<u8>::new()),
        }
    }

    /// A part of exactly that length, aligned for values of `align` bytes; copied if its address in memory is not
    /// aligned.
    fn exact(&self, number: usize, length: Option<usize>, align: usize) -> Result<Buffer, SqlError> {
        let part = self.any(number);
        if length != Some(part.len()) {
            return Err(damaged(format!("part {number} of a chunk has {} bytes", part.len())));
        }
        let lies_well = part.as_ptr().align_offset(align) == 0;
        Ok(if lies_well { part } else { Buffer::from_slice_ref(part.as_slice()) })
    }

    fn nulls(&self, header: &Header) -> Result<Option<NullBuffer>, SqlError> {
        if header.nulls == 0 {
            return Ok(None);
        }
        let bits = self.exact(0, Some(header.rows.div_ceil(8)), 1)?;
        let nulls = NullBuffer::new(BooleanBuffer::new(bits, 0, header.rows));
        if nulls.null_count() != header.nulls {
            return Err(damaged("a chunk's nulls are not as many as its header says"));
        }
        Ok(Some(nulls))
    }
}

/// Texts or bytes from offsets and bytes, both checked.
fn text(kind: &DataType, offsets: Buffer, bytes: Buffer, nulls: Option<NullBuffer>) -> Result<ArrayRef, SqlError> {
    let offsets = ScalarBuffer::<i32>::from(offsets);
    let ordered = offsets.first() == Some(&0) && offsets.windows(2).all(|pair| pair[0] <= pair[1]);
    if !ordered || offsets.last().map(|&end| end as usize) != Some(bytes.len()) {
        return Err(damaged("the offsets of a chunk's texts are out of order"));
    }
    let offsets = OffsetBuffer::new(offsets);
    Ok(match super::text_type(kind) {
        DataType::Utf8 => Arc::new(StringArray::try_new(offsets, bytes, nulls).map_err(damaged)?),
        _ => Arc::new(BinaryArray::try_new(offsets, bytes, nulls).map_err(damaged)?),
    })
}

fn check_codes(codes: &Buffer, width: usize, entries: usize, nulls: Option<&NullBuffer>) -> Result<(), SqlError> {
    let largest = match width {
        1 => codes.as_slice().iter().copied().max().map(usize::from),
        _ => codes.typed_data::<u16>().iter().copied().max().map(usize::from),
    };
    // The code of a null is 0: without entries it refers to none.
    let fits = largest.is_none_or(|largest| largest < entries);
    let all_null = entries == 0 && largest == Some(0) && nulls.is_some_and(|nulls| nulls.null_count() == nulls.len());
    if fits || all_null { Ok(()) } else { Err(damaged("a chunk has a code without an entry")) }
}
