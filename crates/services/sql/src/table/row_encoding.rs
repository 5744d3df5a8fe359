//! The encoding of rows in the delta store, and batches made of such rows.
//!
//! ```text
//!   u16      number of columns n: the version of the schema it was written with
//!   bitmap   one bit for each of them, least significant first; set: NULL
//!   slots    one for each of them, little-endian, without padding:
//!              boolean 1; smallint 2; integer, real, date 4; bigint, double, time, timestamps 8;
//!              numeric 8, or 16 with more than 18 digits; interval 16: months, days, nanoseconds; uuid 16;
//!              text, bytea and jsonb 4: where they end in the last part
//!   bytes    of text, bytea and jsonb, in the order of the columns
//! ```
//!
//! The position of a slot depends on n alone, so a scan reads only the columns that it projects.

use datafusion::arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, BinaryViewBuilder, BooleanBuilder, Decimal128Builder,
    FixedSizeBinaryBuilder, PrimitiveBuilder, StringViewBuilder, new_null_array,
};
use datafusion::arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, SchemaRef, Time64MicrosecondType, TimestampMicrosecondType,
};
use datafusion::arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::scalar::ScalarValue;
use std::sync::Arc;
use store::StoreError;

use super::BATCH_BYTES;
use super::definition::{Column, ROW_TAG, Table};
use super::key::{KeyColumn, is_short};
use super::types::{SqlType, UTC};
use super::uuid;
use crate::SqlError;

/// The texts of a batch lie in blocks of this size, or of their own size if that is larger. Arrow's default blocks grow to 2 MiB, and keep that
/// size for the builder's later batches: twice the size of a whole batch.
const TEXT_BLOCK_BYTES: u32 = 64 << 10;

/// What a value takes in a column beside its text or bytes: the size of a view of a text.
const CELL_BYTES: usize = 16;

/// The positions of slots in rows with a given number of columns.
#[derive(Clone, Debug)]
struct RowLayout {
    slots: Vec<usize>,
    /// The slot of the text or bytea before each column: the end of that value is where the column's bytes begin.
    before: Vec<Option<usize>>,
    /// The position where the bytes begin.
    bytes: usize,
}

fn slot_bytes(kind: SqlType) -> usize {
    match kind {
        SqlType::Boolean => 1,
        SqlType::SmallInt => 2,
        SqlType::Integer | SqlType::Real | SqlType::Date => 4,
        SqlType::Numeric(precision, _) if !is_short(precision) => 16,
        SqlType::Interval | SqlType::Uuid => 16,
        SqlType::BigInt | SqlType::Double | SqlType::Numeric(..) => 8,
        SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => 8,
        SqlType::TimeDigits(_) | SqlType::TimestampDigits(_) | SqlType::TimestampTzDigits(_) => 8,
        SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json | SqlType::Bytea | SqlType::Jsonb => 4,
    }
}

fn is_long(kind: SqlType) -> bool {
    kind.is_text() || matches!(kind, SqlType::Bytea | SqlType::Jsonb)
}

impl RowLayout {
    fn new(kinds: &[SqlType]) -> RowLayout {
        let mut at = 2 + kinds.len().div_ceil(8);
        let (mut slots, mut before, mut last) = (Vec::new(), Vec::new(), None);
        for kind in kinds {
            slots.push(at);
            before.push(last);
            if is_long(*kind) {
                last = Some(at);
            }
            at += slot_bytes(*kind);
        }
        RowLayout { slots, before, bytes: at }
    }
}

/// Encodes rows of columns that have the table's types.
pub(crate) struct RowEncoder<'a> {
    columns: Vec<(KeyOrInterval<'a>, &'a ArrayRef)>,
    layout: RowLayout,
}

enum KeyOrInterval<'a> {
    Key(KeyColumn<'a>),
    Interval(&'a datafusion::arrow::array::PrimitiveArray<IntervalMonthDayNanoType>),
}

impl<'a> RowEncoder<'a> {
    /// An encoder for all columns of a table, in its order and types.
    pub(crate) fn new(table: &Table, columns: &'a [ArrayRef]) -> RowEncoder<'a> {
        assert_eq!(table.columns.len(), columns.len(), "a row has all columns of its table");
        let kinds: Vec<SqlType> = table.columns.iter().map(|c| c.kind).collect();
        RowEncoder::of(&kinds, columns)
    }

    fn of(kinds: &[SqlType], columns: &'a [ArrayRef]) -> RowEncoder<'a> {
        let column = |array: &'a ArrayRef| match array.data_type() {
            DataType::Interval(_) => (KeyOrInterval::Interval(array.as_primitive()), array),
            _ => (KeyOrInterval::Key(KeyColumn::new(array)), array),
        };
        RowEncoder { columns: columns.iter().map(column).collect(), layout: RowLayout::new(kinds) }
    }

    /// Appends a row.
    pub(crate) fn encode(&self, row: usize, out: &mut Vec<u8>) -> Result<(), SqlError> {
        let start = out.len();
        out.extend((self.columns.len() as u16).to_le_bytes());
        out.resize(start + 2 + self.columns.len().div_ceil(8), 0);
        let mut end = 0usize;
        for (at, (column, array)) in self.columns.iter().enumerate() {
            let null = array.is_null(row);
            if null {
                out[start + 2 + at / 8] |= 1 << (at % 8);
            }
            let slot = start + self.layout.slots[at];
            let width = self.layout.slots.get(at + 1).unwrap_or(&self.layout.bytes) - self.layout.slots[at];
            let long = match column {
                KeyOrInterval::Key(KeyColumn::Text(a)) if !null => Some(a.value(row).len()),
                KeyOrInterval::Key(KeyColumn::Bytes(a)) if !null => Some(a.value(row).len()),
                KeyOrInterval::Key(KeyColumn::Document(a)) if !null => Some(a.value(row).len()),
                KeyOrInterval::Key(KeyColumn::Text(_) | KeyColumn::Bytes(_) | KeyColumn::Document(_)) => Some(0),
                _ => None,
            };
            if let Some(bytes) = long {
                end += bytes;
                let end = u32::try_from(end).map_err(|_| SqlError::value("54000", "a row has more than 4 GiB"))?;
                out.extend(end.to_le_bytes());
            } else if null {
                out.resize(slot + width, 0);
            } else {
                slot_value(column, row, width, out);
            }
        }
        for (column, array) in &self.columns {
            match column {
                KeyOrInterval::Key(KeyColumn::Text(a)) if !array.is_null(row) => {
                    out.extend_from_slice(a.value(row).as_bytes());
                }
                KeyOrInterval::Key(KeyColumn::Bytes(a)) if !array.is_null(row) => out.extend_from_slice(a.value(row)),
                KeyOrInterval::Key(KeyColumn::Document(a)) if !array.is_null(row) => {
                    out.extend_from_slice(a.value(row));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn slot_value(column: &KeyOrInterval<'_>, row: usize, width: usize, out: &mut Vec<u8>) {
    match column {
        KeyOrInterval::Interval(a) => {
            let value = a.value(row);
            out.extend(value.months.to_le_bytes());
            out.extend(value.days.to_le_bytes());
            out.extend(value.nanoseconds.to_le_bytes());
        }
        KeyOrInterval::Key(column) => match column {
            KeyColumn::Boolean(a) => out.push(a.value(row) as u8),
            KeyColumn::Int16(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Int32(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Int64(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Float32(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Float64(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Decimal(a, _) => out.extend(&a.value(row).to_le_bytes()[..width]),
            KeyColumn::Date(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Time(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Timestamp(a) => out.extend(a.value(row).to_le_bytes()),
            KeyColumn::Uuid(a) => out.extend_from_slice(a.value(row)),
            KeyColumn::Text(_) | KeyColumn::Bytes(_) | KeyColumn::Document(_) => {
                unreachable!("text, bytea and jsonb have ends in their slots")
            }
        },
    }
}

/// The values of one column while a batch is built.
enum Cells {
    Boolean(BooleanBuilder),
    Int16(PrimitiveBuilder<Int16Type>),
    Int32(PrimitiveBuilder<Int32Type>),
    Int64(PrimitiveBuilder<Int64Type>),
    Float32(PrimitiveBuilder<Float32Type>),
    Float64(PrimitiveBuilder<Float64Type>),
    Decimal(Decimal128Builder, bool),
    Text(StringViewBuilder),
    Bytes(BinaryBuilder),
    Document(BinaryViewBuilder),
    Date(PrimitiveBuilder<Date32Type>),
    Time(PrimitiveBuilder<Time64MicrosecondType>),
    Timestamp(PrimitiveBuilder<TimestampMicrosecondType>),
    Interval(PrimitiveBuilder<IntervalMonthDayNanoType>),
    Uuid(FixedSizeBinaryBuilder),
}

impl Cells {
    fn new(kind: SqlType, rows: usize) -> Cells {
        match kind {
            SqlType::Boolean => Cells::Boolean(BooleanBuilder::with_capacity(rows)),
            SqlType::SmallInt => Cells::Int16(PrimitiveBuilder::with_capacity(rows)),
            SqlType::Integer => Cells::Int32(PrimitiveBuilder::with_capacity(rows)),
            SqlType::BigInt => Cells::Int64(PrimitiveBuilder::with_capacity(rows)),
            SqlType::Real => Cells::Float32(PrimitiveBuilder::with_capacity(rows)),
            SqlType::Double => Cells::Float64(PrimitiveBuilder::with_capacity(rows)),
            SqlType::Numeric(precision, _) => {
                let builder = Decimal128Builder::with_capacity(rows).with_data_type(kind.arrow());
                Cells::Decimal(builder, is_short(precision))
            }
            SqlType::Text | SqlType::Varchar(_) | SqlType::Char(_) | SqlType::Json => {
                Cells::Text(StringViewBuilder::with_capacity(rows).with_fixed_block_size(TEXT_BLOCK_BYTES))
            }
            SqlType::Bytea => Cells::Bytes(BinaryBuilder::new()),
            SqlType::Jsonb => {
                Cells::Document(BinaryViewBuilder::with_capacity(rows).with_fixed_block_size(TEXT_BLOCK_BYTES))
            }
            SqlType::Date => Cells::Date(PrimitiveBuilder::with_capacity(rows)),
            SqlType::Time | SqlType::TimeDigits(_) => Cells::Time(PrimitiveBuilder::with_capacity(rows)),
            SqlType::Timestamp | SqlType::TimestampDigits(_) => Cells::Timestamp(PrimitiveBuilder::with_capacity(rows)),
            SqlType::TimestampTz | SqlType::TimestampTzDigits(_) => {
                Cells::Timestamp(PrimitiveBuilder::with_capacity(rows).with_timezone(UTC))
            }
            SqlType::Interval => Cells::Interval(PrimitiveBuilder::with_capacity(rows)),
            SqlType::Uuid => Cells::Uuid(FixedSizeBinaryBuilder::with_capacity(rows, uuid::BYTES as i32)),
        }
    }

    /// Appends the value in a slot. `bytes` contains the value itself, for text and bytea.
    fn push(&mut self, slot: &[u8], bytes: &[u8]) -> Result<(), SqlError> {
        match self {
            Cells::Boolean(b) => b.append_value(fixed::<1>(slot)?[0] != 0),
            Cells::Int16(b) => b.append_value(i16::from_le_bytes(fixed(slot)?)),
            Cells::Int32(b) => b.append_value(i32::from_le_bytes(fixed(slot)?)),
            Cells::Int64(b) => b.append_value(i64::from_le_bytes(fixed(slot)?)),
            Cells::Float32(b) => b.append_value(f32::from_le_bytes(fixed(slot)?)),
            Cells::Float64(b) => b.append_value(f64::from_le_bytes(fixed(slot)?)),
            Cells::Decimal(b, true) => b.append_value(i64::from_le_bytes(fixed(slot)?) as i128),
            Cells::Decimal(b, false) => b.append_value(i128::from_le_bytes(fixed(slot)?)),
            Cells::Text(b) => b.append_value(std::str::from_utf8(bytes).map_err(|_| damaged("text is not UTF-8"))?),
            Cells::Bytes(b) => b.append_value(bytes),
            Cells::Document(b) => b.append_value(bytes),
            Cells::Date(b) => b.append_value(i32::from_le_bytes(fixed(slot)?)),
            Cells::Time(b) => b.append_value(i64::from_le_bytes(fixed(slot)?)),
            Cells::Timestamp(b) => b.append_value(i64::from_le_bytes(fixed(slot)?)),
            Cells::Interval(b) => {
                let whole: [u8; 16] = fixed(slot)?;
                let months = i32::from_le_bytes(fixed(&whole)?);
                let days = i32::from_le_bytes(fixed(&whole[4..])?);
                let nanoseconds = i64::from_le_bytes(fixed(&whole[8..])?);
                b.append_value(IntervalMonthDayNano { months, days, nanoseconds });
            }
            Cells::Uuid(b) => b.append_value(fixed::<{ uuid::BYTES }>(slot)?)?,
        }
        Ok(())
    }

    /// Appends the value of a column that the row has.
    fn push_from(&mut self, kind: SqlType, row: &[u8], layout: &RowLayout, at: usize) -> Result<usize, SqlError> {
        let nulls = row.get(2 + at / 8).ok_or_else(|| damaged("it is too short"))?;
        if nulls >> (at % 8) & 1 == 1 {
            self.push_null();
            return Ok(0);
        }
        let slot = row.get(layout.slots[at]..).ok_or_else(|| damaged("it is too short"))?;
        let bytes = if is_long(kind) { long(row, layout, at)? } else { &[] };
        self.push(slot, bytes)?;
        Ok(bytes.len())
    }

    fn push_null(&mut self) {
        match self {
            Cells::Boolean(b) => b.append_null(),
            Cells::Int16(b) => b.append_null(),
            Cells::Int32(b) => b.append_null(),
            Cells::Int64(b) => b.append_null(),
            Cells::Float32(b) => b.append_null(),
            Cells::Float64(b) => b.append_null(),
            Cells::Decimal(b, _) => b.append_null(),
            Cells::Text(b) => b.append_null(),
            Cells::Bytes(b) => b.append_null(),
            Cells::Document(b) => b.append_null(),
            Cells::Date(b) => b.append_null(),
            Cells::Time(b) => b.append_null(),
            Cells::Timestamp(b) => b.append_null(),
            Cells::Interval(b) => b.append_null(),
            Cells::Uuid(b) => b.append_null(),
        }
    }

    fn finish(&mut self) -> ArrayRef {
        fn primitive<T: ArrowPrimitiveType>(builder: &mut PrimitiveBuilder<T>) -> ArrayRef {
            Arc::new(builder.finish())
        }
        match self {
            Cells::Boolean(b) => Arc::new(b.finish()),
            Cells::Int16(b) => primitive(b),
            Cells::Int32(b) => primitive(b),
            Cells::Int64(b) => primitive(b),
            Cells::Float32(b) => primitive(b),
            Cells::Float64(b) => primitive(b),
            Cells::Decimal(b, _) => primitive(b),
            Cells::Text(b) => Arc::new(b.finish()),
            Cells::Bytes(b) => Arc::new(b.finish()),
            Cells::Document(b) => Arc::new(b.finish()),
            Cells::Date(b) => primitive(b),
            Cells::Time(b) => primitive(b),
            Cells::Timestamp(b) => primitive(b),
            Cells::Interval(b) => primitive(b),
            Cells::Uuid(b) => Arc::new(b.finish()),
        }
    }
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], SqlError> {
    bytes.first_chunk().copied().ok_or_else(|| damaged("it is too short"))
}

fn damaged(why: &str) -> SqlError {
    StoreError::Corrupt(format!("a row cannot be read: {why}").into()).into()
}

/// Encodes the first value of an array, as a row of that column alone.
pub(crate) fn encode_value(kind: SqlType, value: &ArrayRef) -> Result<Vec<u8>, SqlError> {
    let mut row = Vec::new();
    RowEncoder::of(&[kind], std::slice::from_ref(value)).encode(0, &mut row)?;
    Ok(row)
}

/// Reads a row that [`encode_value`] wrote.
fn decode_value(kind: SqlType, row: &[u8]) -> Result<ArrayRef, SqlError> {
    let mut cells = Cells::new(kind, 1);
    cells.push_from(kind, row, &RowLayout::new(&[kind]), 0)?;
    Ok(cells.finish())
}

impl Column {
    /// The values of this column for `rows` rows that were written before it was added. Errors: damaged.
    pub(crate) fn absent(&self, rows: usize) -> Result<ArrayRef, SqlError> {
        match &self.missing {
            None => Ok(new_null_array(&self.kind.arrow(), rows)),
            Some(row) => Ok(ScalarValue::try_from_array(&decode_value(self.kind, row)?, 0)?.to_array_of_size(rows)?),
        }
    }
}

/// Builds batches of rows.
pub(crate) struct BatchBuilder {
    kinds: Vec<SqlType>,
    /// The values of the columns in rows that lack them.
    missing: Vec<Option<(Vec<u8>, RowLayout)>>,
    layout: RowLayout,
    /// A layout for rows with fewer columns: the last one that was used.
    older: Option<(usize, RowLayout)>,
    /// For each output column its position in the table; for the address it is one past the last.
    projection: Vec<usize>,
    cells: Vec<Cells>,
    addresses: Option<BinaryBuilder>,
    schema: SchemaRef,
    rows: usize,
    /// Bytes of texts and byte strings.
    bytes: usize,
}

impl BatchBuilder {
    /// A builder of batches with the projected columns, positions in [`Table::addressed`]. `schema` is that projection.
    pub(crate) fn new(table: &Table, projection: &[usize], schema: SchemaRef, rows: usize) -> BatchBuilder {
        let kinds: Vec<SqlType> = table.columns.iter().map(|c| c.kind).collect();
        let columns = projection.iter().filter(|at| **at < kinds.len());
        let missing = |column: &Column| Some((column.missing.clone()?, RowLayout::new(&[column.kind])));
        BatchBuilder {
            layout: RowLayout::new(&kinds),
            older: None,
            cells: columns.map(|at| Cells::new(kinds[*at], rows)).collect(),
            addresses: projection.contains(&kinds.len()).then(BinaryBuilder::new),
            missing: table.columns.iter().map(missing).collect(),
            kinds,
            projection: projection.to_vec(),
            schema,
            rows: 0,
            bytes: 0,
        }
    }

    /// Whether the rows since the last batch fill a batch's memory.
    pub(crate) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// Memory of the rows since the last batch, in bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes + self.rows * self.cells.len() * CELL_BYTES
    }

    /// The number of rows since the last batch.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, key: &[u8], row: &[u8]) -> Result<(), SqlError> {
        self.rows += 1;
        if let Some(addresses) = &mut self.addresses {
            let mut address = Vec::with_capacity(key.len() + 1);
            address.push(ROW_TAG);
            address.extend_from_slice(key);
            addresses.append_value(&address);
        }
        if self.cells.is_empty() {
            return Ok(());
        }
        let columns = u16::from_le_bytes(fixed(row)?) as usize;
        let layout = if columns == self.kinds.len() {
            &self.layout
        } else if columns < self.kinds.len() {
            if self.older.as_ref().is_none_or(|(of, _)| *of != columns) {
                self.older = Some((columns, RowLayout::new(&self.kinds[..columns])));
            }
            &self.older.as_ref().unwrap_or_else(|| unreachable!("set above")).1
        } else {
            return Err(damaged("it has more columns than its table"));
        };
        let mut cells = self.cells.iter_mut();
        for at in self.projection.iter().copied().filter(|at| *at < self.kinds.len()) {
            let Some(cell) = cells.next() else { break };
            match &self.missing[at] {
                _ if at < columns => self.bytes += cell.push_from(self.kinds[at], row, layout, at)?,
                Some((row, layout)) => self.bytes += cell.push_from(self.kinds[at], row, layout, 0)?,
                None => cell.push_null(),
            }
        }
        Ok(())
    }

    /// The rows since the last batch, as a batch.
    pub(crate) fn finish(&mut self) -> Result<RecordBatch, SqlError> {
        let mut cells = self.cells.iter_mut();
        let mut columns: Vec<ArrayRef> = Vec::with_capacity(self.projection.len());
        for at in &self.projection {
            match &mut self.addresses {
                Some(addresses) if *at == self.kinds.len() => columns.push(Arc::new(addresses.finish())),
                _ => columns.extend(cells.next().map(Cells::finish)),
            }
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.rows));
        (self.rows, self.bytes) = (0, 0);
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}

fn long<'a>(row: &'a [u8], layout: &RowLayout, at: usize) -> Result<&'a [u8], SqlError> {
    let end_at = |slot: usize| -> Result<usize, SqlError> {
        let bytes = row.get(slot..).ok_or_else(|| damaged("it is too short"))?;
        Ok(u32::from_le_bytes(fixed(bytes)?) as usize)
    };
    let from = layout.before[at].map_or(Ok(0), end_at)?;
    let to = end_at(layout.slots[at])?;
    row.get(layout.bytes + from..layout.bytes + to).ok_or_else(|| damaged("its text ends past its end"))
}
