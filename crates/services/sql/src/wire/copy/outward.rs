//! COPY .. TO STDOUT: rows as messages `CopyData`.

use bytes::{BufMut, BytesMut};
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;

use super::{Layout, binary, csv, inward, text};
use crate::engine::CopyFormat;
use crate::wire::fault::Fault;
use crate::wire::message::Format;
use crate::wire::oid::Kind;
use crate::wire::{reply, value};

/// Writes rows.
#[derive(Debug)]
pub(crate) struct Writer {
    layout: Layout,
    format: CopyFormat,
    marks: csv::Marks,
    kinds: Vec<Kind>,
    names: Vec<String>,
    value: BytesMut,
}

impl Writer {
    /// A writer of rows with these columns.
    pub(crate) fn new(format: &CopyFormat, schema: &Schema) -> Result<Writer, Fault> {
        Ok(Writer {
            layout: inward::layout(format)?,
            marks: csv::Marks { delimiter: format.delimiter, quote: format.quote, escape: format.escape },
            format: format.clone(),
            kinds: schema.fields().iter().map(|field| Kind::of_field(field)).collect::<Result<_, _>>()?,
            names: schema.fields().iter().map(|field| field.name().clone()).collect(),
            value: BytesMut::new(),
        })
    }

    /// Whether values are binary, as `CopyOutResponse` tells.
    pub(crate) fn wire_format(&self) -> Format {
        if self.layout == Layout::Binary { Format::Binary } else { Format::Text }
    }

    /// What comes before the rows.
    pub(crate) fn head(&mut self, out: &mut BytesMut) -> Result<(), Fault> {
        if self.layout == Layout::Binary {
            return reply::copy_data(out, |out| {
                out.put_slice(binary::SIGNATURE);
                out.put_u64(0); // no flags, no extension
                Ok(())
            });
        }
        if !self.format.header {
            return Ok(());
        }
        let names = std::mem::take(&mut self.names);
        reply::copy_data(out, |out| {
            for (at, name) in names.iter().enumerate() {
                self.separate(out, at);
                self.put(out, name.as_bytes());
            }
            out.put_u8(b'\n');
            Ok(())
        })
    }

    /// One row of a batch.
    pub(crate) fn row(&mut self, batch: &RecordBatch, row: usize, out: &mut BytesMut) -> Result<(), Fault> {
        reply::copy_data(out, |out| {
            if self.layout == Layout::Binary {
                out.put_u16(self.kinds.len() as u16);
                return self.kinds.iter().zip(batch.columns()).try_for_each(|(kind, column)| {
                    reply::sized(out, |out| value::write(column, row, *kind, Format::Binary, out))
                });
            }
            for (at, column) in batch.columns().iter().enumerate() {
                self.separate(out, at);
                self.value.clear();
                if value::write(column, row, self.kinds[at], Format::Text, &mut self.value)? {
                    let value = self.value.split();
                    self.put(out, &value);
                    self.value = value;
                } else {
                    out.put_slice(self.format.null.as_bytes());
                }
            }
            out.put_u8(b'\n');
            Ok(())
        })
    }

    /// What comes after the rows.
    pub(crate) fn tail(&self, out: &mut BytesMut) -> Result<(), Fault> {
        if self.layout != Layout::Binary {
            return Ok(());
        }
        reply::copy_data(out, |out| {
            out.put_slice(&binary::END);
            Ok(())
        })
    }

    fn separate(&self, out: &mut BytesMut, at: usize) {
        if at > 0 {
            out.put_u8(self.format.delimiter);
        }
    }

    fn put(&self, out: &mut BytesMut, value: &[u8]) {
        match self.layout {
            Layout::Csv => csv::write(out, value, self.marks, self.format.null.as_bytes(), self.kinds.len() == 1),
            _ => text::write(out, value, self.format.delimiter),
        }
    }
}
