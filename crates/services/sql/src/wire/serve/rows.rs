//! Rows of an answer on their way to the client.

use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;

use super::{Serving, Stop};
use crate::SqlError;
use crate::wire::fault::Fault;
use crate::wire::message::Format;
use crate::wire::oid::{Described, Kind};
use crate::wire::{reply, value};
use bytes::BytesMut;

/// Rows that are being sent, maybe with pauses.
pub(super) struct Rows {
    columns: Vec<Described>,
    kinds: Vec<Kind>,
    formats: Vec<Format>,
    tag: &'static str,
    stream: SendableRecordBatchStream,
    /// What was read and is not sent, from this row on.
    batch: Option<(RecordBatch, usize)>,
    /// Rows sent since the last pause.
    sent: u64,
}

/// What was sent of them.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    All,
    AsManyAsWanted,
}

/// One format for each column: none given is text, one is for all.
pub(super) fn formats(given: &[Format], columns: usize) -> Result<Vec<Format>, Fault> {
    match given {
        [] => Ok(super::simple::all_text(columns)),
        [one] => Ok(vec![*one; columns]),
        all if all.len() == columns => Ok(all.to_vec()),
        all => {
            let message = format!("bind message has {} result formats but query has {columns} columns", all.len());
            Err(Fault::protocol(message))
        }
    }
}

impl Rows {
    /// Rows of a query. `given` are the formats as Bind has them.
    pub(super) fn new(
        schema: &Schema,
        stream: SendableRecordBatchStream,
        tag: &'static str,
        given: &[Format],
    ) -> Result<Rows, Fault> {
        let columns = schema.fields().iter().map(|field| Described::of(field)).collect::<Result<Vec<_>, _>>()?;
        let kinds = columns.iter().map(|column| column.kind).collect();
        let formats = formats(given, columns.len())?;
        Ok(Rows { columns, kinds, formats, tag, stream, batch: None, sent: 0 })
    }

    /// Writes what they are.
    pub(super) fn describe(&self, out: &mut BytesMut) {
        reply::description(out, &self.columns, &self.formats);
    }
}

impl Serving<'_> {
    /// Sends rows: all, or at most so many; ends with their tag, or says that there may be more. Answers whether that
    /// was all.
    pub(super) async fn send(&mut self, rows: &mut Rows, most: u64) -> Result<bool, Stop> {
        rows.sent = 0;
        match self.send_some(rows, most).await? {
            Sent::AsManyAsWanted => {
                reply::suspended(&mut self.connection.out);
                Ok(false)
            }
            Sent::All => {
                let is_counted = !matches!(rows.tag, "SHOW" | "EXPLAIN");
                let tag = if is_counted { format!("{} {}", rows.tag, rows.sent) } else { rows.tag.to_owned() };
                reply::complete(&mut self.connection.out, &tag);
                Ok(true)
            }
        }
    }

    async fn send_some(&mut self, rows: &mut Rows, most: u64) -> Result<Sent, Stop> {
        loop {
            let (batch, start) = match rows.batch.take() {
                Some(rest) => rest,
                None => {
                    let cancelled = std::sync::Arc::clone(&self.cancelled);
                    let next = tokio::select! {
                        biased;
                        next = rows.stream.next() => next,
                        _ = cancelled.notified() => Some(Err(SqlError::Cancelled.into())),
                    };
                    match next {
                        None => return Ok(Sent::All),
                        Some(Err(error)) => return Err(SqlError::from(error).into()),
                        Some(Ok(batch)) => (batch, 0),
                    }
                }
            };
            for row in start..batch.num_rows() {
                if most > 0 && rows.sent == most {
                    rows.batch = Some((batch, row));
                    return Ok(Sent::AsManyAsWanted);
                }
                let columns = batch.columns();
                reply::row(&mut self.connection.out, rows.kinds.len(), |at, out| {
                    value::write(&columns[at], row, rows.kinds[at], rows.formats[at], out)
                })
                .map_err(Stop::from)?;
                rows.sent += 1;
                self.connection.flush_if_high().await?;
            }
            if most > 0 && rows.sent == most {
                return Ok(Sent::AsManyAsWanted);
            }
        }
    }
}
