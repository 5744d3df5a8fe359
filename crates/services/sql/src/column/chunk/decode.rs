//! From a chunk to arrays: consecutive rows, or rows picked one by one.

use datafusion::arrow::array::{
    Array, ArrayDataBuilder, ArrayRef, BooleanArray, UInt8Array, UInt16Array, UInt32Array, make_array, new_null_array,
};
use datafusion::arrow::buffer::{BooleanBuffer, Buffer, NullBuffer, ScalarBuffer};
use datafusion::arrow::compute::{cast, concat, take};
use datafusion::arrow::datatypes::{ArrowNativeType, DataType};

use super::{Body, ColumnChunk, Domain};
use crate::SqlError;

/// Rows of a chunk or of a row group, counted from its first.
#[derive(Clone, Copy, Debug)]
pub enum PickedRows<'a> {
    /// The first row, and the number of rows.
    Range(usize, usize),
    /// Each by its number, ascending.
    At(&'a [u32]),
}

impl PickedRows<'_> {
    /// The number of rows.
    pub fn len(&self) -> usize {
        match self {
            PickedRows::Range(_, rows) => *rows,
            PickedRows::At(rows) => rows.len(),
        }
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl ColumnChunk {
    /// Those rows as an array of the column's type. The rows must be rows of the chunk.
    pub fn decode(&self, rows: PickedRows<'_>) -> Result<ArrayRef, SqlError> {
        match &self.body {
            Body::Whole(all) => {
                let some = match rows {
                    PickedRows::Range(from, length) => all.slice(from, length),
                    PickedRows::At(rows) => take(all, &UInt32Array::from(rows.to_vec()), None)?,
                };
                Ok(if some.data_type() == &self.kind { some } else { cast(&some, &self.kind)? })
            }
            Body::Narrow { width, base, values } => {
                let native = match width {
                    1 => widen::<u8>(&self.kind, *base, values, rows),
                    2 => widen::<u16>(&self.kind, *base, values, rows),
                    4 => widen::<u32>(&self.kind, *base, values, rows),
                    _ => widen::<u64>(&self.kind, *base, values, rows),
                };
                let data = ArrayDataBuilder::new(self.kind.clone()).len(rows.len()).add_buffer(native);
                Ok(make_array(data.nulls(self.nulls_of(rows)).build()?))
            }
            Body::Dictionary { width, codes, entries } => {
                if entries.is_empty() {
                    return Ok(new_null_array(&self.kind, rows.len()));
                }
                let nulls = self.nulls_of(rows);
                Ok(match width {
                    1 => take(entries, &UInt8Array::new(pick::<u8>(codes, rows), nulls), None)?,
                    _ => take(entries, &UInt16Array::new(pick::<u16>(codes, rows), nulls), None)?,
                })
            }
        }
    }

    /// The values that can occur, if they are few compared with the rows: at most `most`.
    pub fn domain(&self, most: usize) -> Result<Option<Domain>, SqlError> {
        let values = match &self.body {
            Body::Dictionary { entries, .. } if entries.len() <= most => entries.clone(),
            Body::Narrow { width, base, values } => {
                let Some(largest) = self.largest_difference(*width, values, most) else { return Ok(None) };
                let all = Buffer::from_vec((0..=largest as u64).collect::<Vec<u64>>());
                let native = widen::<u64>(&self.kind, *base, &all, PickedRows::Range(0, largest + 1));
                make_array(ArrayDataBuilder::new(self.kind.clone()).len(largest + 1).add_buffer(native).build()?)
            }
            _ => return Ok(None),
        };
        let has_null = self.nulls.is_some();
        if !has_null {
            return Ok(Some(Domain { values, has_null }));
        }
        let null = new_null_array(&self.kind, 1);
        Ok(Some(Domain { values: concat(&[values.as_ref(), null.as_ref()])?, has_null }))
    }

    fn largest_difference(&self, width: usize, values: &Buffer, most: usize) -> Option<usize> {
        let largest = match width {
            1 => values.as_slice().iter().copied().max().map(u64::from),
            2 => values.typed_data::<u16>().iter().copied().max().map(u64::from),
            _ => None,
        }?;
        usize::try_from(largest).ok().filter(|&largest| largest < most)
    }

    /// Adds to `kept` those rows whose value has its flag set in `answers`, which are for the values of
    /// [`domain`](ColumnChunk::domain). `first` is added to the row numbers.
    pub fn select(&self, rows: PickedRows<'_>, answers: &[bool], first: u32, kept: &mut Vec<u32>) {
        let null_answer = answers.last().copied().unwrap_or(false);
        let nulls = self.nulls.as_ref();
        match &self.body {
            Body::Narrow { width: 1, values, .. } | Body::Dictionary { width: 1, codes: values, .. } => {
                select(values.as_slice(), rows, answers, nulls.map(|nulls| (nulls, null_answer)), first, kept);
            }
            Body::Narrow { values, .. } | Body::Dictionary { codes: values, .. } => {
                select(values.typed_data::<u16>(), rows, answers, nulls.map(|nulls| (nulls, null_answer)), first, kept);
            }
            Body::Whole(_) => unreachable!("only chunks with a domain select by it"),
        }
    }

    fn nulls_of(&self, rows: PickedRows<'_>) -> Option<NullBuffer> {
        let nulls = self.nulls.as_ref()?;
        let picked = match rows {
            PickedRows::Range(from, length) => nulls.slice(from, length),
            PickedRows::At(rows) => {
                NullBuffer::new(BooleanBuffer::collect_bool(rows.len(), |at| nulls.is_valid(rows[at] as usize)))
            }
        };
        Some(picked).filter(|nulls| nulls.null_count() > 0)
    }
}

fn select<S: ArrowNativeType>(
    stored: &[S],
    rows: PickedRows<'_>,
    answers: &[bool],
    nulls: Option<(&NullBuffer, bool)>,
    first: u32,
    kept: &mut Vec<u32>,
) {
    let answer = |row: usize| match nulls {
        Some((nulls, null_answer)) if nulls.is_null(row) => null_answer,
        _ => answers.get(stored[row].as_usize()).copied().unwrap_or(false),
    };
    // First reserve room for all, then do one unconditional store for each row: a branch for each row would be
    // mispredicted.
    let mut end = kept.len();
    kept.resize(end + rows.len(), 0);
    let mut note = |row: usize| {
        kept[end] = first + row as u32;
        end += usize::from(answer(row));
    };
    match rows {
        PickedRows::Range(from, length) => (from..from + length).for_each(&mut note),
        PickedRows::At(rows) => rows.iter().for_each(|&row| note(row as usize)),
    }
    kept.truncate(end);
}

fn pick<S: ArrowNativeType>(stored: &Buffer, rows: PickedRows<'_>) -> ScalarBuffer<S> {
    match rows {
        PickedRows::Range(from, length) => ScalarBuffer::new(stored.clone(), from, length),
        PickedRows::At(rows) => {
            let stored = stored.typed_data::<S>();
            rows.iter().map(|&row| stored[row as usize]).collect()
        }
    }
}

/// A stored difference.
trait Stored: ArrowNativeType + Into<u64> {}
impl Stored for u8 {}
impl Stored for u16 {}
impl Stored for u32 {}
impl Stored for u64 {}

fn widen<S: Stored>(kind: &DataType, base: i128, stored: &Buffer, rows: PickedRows<'_>) -> Buffer {
    let stored = stored.typed_data::<S>();
    match super::super::fixed_width(kind) {
        Some(1) => Buffer::from_vec(map(stored, rows, |v| (base as i8).wrapping_add(v as i8))),
        Some(2) => Buffer::from_vec(map(stored, rows, |v| (base as i16).wrapping_add(v as i16))),
        Some(4) => Buffer::from_vec(map(stored, rows, |v| (base as i32).wrapping_add(v as i32))),
        Some(8) => Buffer::from_vec(map(stored, rows, |v| (base as i64).wrapping_add(v as i64))),
        _ => Buffer::from_vec(map(stored, rows, |v| base.wrapping_add(i128::from(v)))),
    }
}

fn map<S: Stored, N>(stored: &[S], rows: PickedRows<'_>, native: impl Fn(u64) -> N) -> Vec<N> {
    match rows {
        PickedRows::Range(from, length) => stored[from..from + length].iter().map(|&v| native(v.into())).collect(),
        PickedRows::At(rows) => rows.iter().map(|&row| native(stored[row as usize].into())).collect(),
    }
}

/// The results of a condition as one flag for each value: null counts as false.
pub fn flags_of(condition: &BooleanArray) -> Vec<bool> {
    (0..condition.len()).map(|row| condition.is_valid(row) && condition.value(row)).collect()
}
