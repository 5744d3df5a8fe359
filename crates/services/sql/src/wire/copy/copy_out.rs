//! COPY .. TO STDOUT: rows as messages `CopyData`.

use bytes::{BufMut, Bytes, BytesMut};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use pgwire::messages::copy::CopyData;

use super::{CopyLayout, binary, copy_in, csv, text};
use crate::engine::CopyFormat;
use crate::wire::error_response::ErrorResponse;
use crate::wire::oid::Kind;
use crate::wire::{Format, value};

/// Writes rows.
#[derive(Debug)]
pub(crate) struct Writer {
    layout: CopyLayout,
    format: CopyFormat,
    marks: csv::Marks,
    kinds: Vec<Kind>,
    names: Vec<String>,
    /// The buffer for a value before it is escaped.
    value: BytesMut,
    /// The buffer for a row.
    out: BytesMut,
}

impl Writer {
    /// A writer of rows with these columns.
    pub(crate) fn new(format: &CopyFormat, schema: &Schema) -> Result<Writer, ErrorResponse> {
        Ok(Writer {
            layout: copy_in::layout(format)?,
            marks: csv::Marks { delimiter: format.delimiter, quote: format.quote, escape: format.escape },
            format: format.clone(),
            kinds: schema.fields().iter().map(|field| Kind::of_field(field)).collect::<Result<_, _>>()?,
            names: schema.fields().iter().map(|field| field.name().clone()).collect(),
            value: BytesMut::new(),
            out: BytesMut::new(),
        })
    }

    /// Whether values are binary, for `CopyOutResponse`.
    pub(crate) fn wire_format(&self) -> Format {
        if self.layout == CopyLayout::Binary { Format::Binary } else { Format::Text }
    }

    /// The data before the rows.
    pub(crate) fn head(&mut self) -> Option<CopyData> {
        let mut out = BytesMut::new();
        if self.layout == CopyLayout::Binary {
            out.put_slice(binary::SIGNATURE);
            out.put_u64(0); // no flags, no extension
        } else if self.format.header {
            for (at, name) in self.names.iter().enumerate() {
                if at > 0 {
                    out.put_u8(self.format.delimiter);
                }
                self.put(&mut out, name.as_bytes());
            }
            out.put_u8(b'\n');
        }
        (!out.is_empty()).then(|| CopyData::new(out.freeze()))
    }

    /// One row of a batch.
    pub(crate) fn row(&mut self, batch: &RecordBatch, row: usize) -> Result<CopyData, ErrorResponse> {
        let mut out = std::mem::take(&mut self.out);
        // Remove what an error left of the previous row.
        out.clear();
        let written = self.write(batch, row, &mut out);
        let data = out.split().freeze();
        self.out = out;
        written.map(|()| CopyData::new(data))
    }

    fn write(&mut self, batch: &RecordBatch, row: usize, out: &mut BytesMut) -> Result<(), ErrorResponse> {
        if self.layout == CopyLayout::Binary {
            out.put_u16(self.kinds.len() as u16);
            let mut columns = self.kinds.iter().zip(batch.columns());
            return columns.try_for_each(|(kind, column)| value::write_sized(column, row, *kind, Format::Binary, out));
        }
        for (at, column) in batch.columns().iter().enumerate() {
            if at > 0 {
                out.put_u8(self.format.delimiter);
            }
            self.value.clear();
            if value::write(column, row, self.kinds[at], Format::Text, &mut self.value)? {
                self.put(out, &self.value);
            } else {
                out.put_slice(self.format.null.as_bytes());
            }
        }
        out.put_u8(b'\n');
        Ok(())
    }

    /// The data after the rows.
    pub(crate) fn tail(&self) -> Option<CopyData> {
        (self.layout == CopyLayout::Binary).then(|| CopyData::new(Bytes::copy_from_slice(&binary::END)))
    }

    fn put(&self, out: &mut BytesMut, value: &[u8]) {
        match self.layout {
            CopyLayout::Csv => csv::write(out, value, self.marks, self.format.null.as_bytes(), self.kinds.len() == 1),
            _ => text::write(out, value, self.format.delimiter),
        }
    }
}
