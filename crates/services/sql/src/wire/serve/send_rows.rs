//! Sends the rows of a result to the client.

use bytes::BytesMut;
use datafusion::arrow::array::Array;
use datafusion::arrow::datatypes::Schema;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use futures::StreamExt;
use pgwire::messages::data::{DataRow, RowDescription};
use pgwire::messages::extendedquery::PortalSuspended;

use super::StatementError;
use super::row_exchange::RowExchange;
use crate::SqlError;
use crate::engine::plan::access::Access;
use crate::engine::run::query_threads::KeptQuery;
use crate::wire::error_response::ErrorResponse;
use crate::wire::oid::{Described, Kind};
use crate::wire::{Format, Reply, value};

/// The state of sending rows, possibly with pauses.
pub(super) struct RowSender {
    columns: Vec<Described>,
    kinds: Vec<Kind>,
    formats: Vec<Format>,
    tag: &'static str,
    stream: SendableRecordBatchStream,
    /// The rights of the statement: they are asked again when a portal goes on.
    access: Option<Access>,
    /// A batch that was read and not sent completely, with the index of the next row.
    batch: Option<(RecordBatch, usize)>,
    /// Rows sent since the last pause.
    sent: u64,
    /// The buffer for the values of a row.
    values: BytesMut,
    /// Its place among the queries that are read in part, once it is.
    kept: Option<KeptQuery>,
}

/// Rows of smaller batches are sent without requesting memory.
const WIDE_BYTES: usize = 4 << 20;

/// A value that is being sent is in the row's buffer, which doubles, and in the connection's.
const COPIES: usize = 3;

/// Bytes of a row.
fn row_bytes(batch: &RecordBatch, row: usize) -> usize {
    let one = batch.slice(row, 1);
    one.columns().iter().map(|column| column.to_data().get_slice_memory_size().unwrap_or(0)).sum()
}

/// What was sent of a batch.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    All,
    AsManyAsWanted,
}

/// The formats of `count` values: none given means text, one given applies to all.
pub(super) fn formats(given: &[i16], count: usize) -> Option<Vec<Format>> {
    match given {
        [] => Some(vec![Format::Text; count]),
        [one] => Some(vec![Format::from(*one); count]),
        all => (all.len() == count).then(|| all.iter().map(|code| Format::from(*code)).collect()),
    }
}

fn column_formats(given: &[i16], columns: usize) -> Result<Vec<Format>, ErrorResponse> {
    formats(given, columns).ok_or_else(|| {
        ErrorResponse::protocol(format!(
            "bind message has {} result formats but query has {columns} columns",
            given.len()
        ))
    })
}

/// The description of columns, with formats as Bind contains them.
pub(super) fn description(columns: &[Described], given: &[i16]) -> Result<Reply, ErrorResponse> {
    let formats = column_formats(given, columns.len())?;
    let fields = columns.iter().zip(formats).map(|(column, format)| column.field(format)).collect();
    Ok(Reply::RowDescription(RowDescription::new(fields)))
}

impl RowSender {
    /// The rows of a query. `given` contains the formats as in Bind.
    pub(super) fn new(
        schema: &Schema,
        stream: SendableRecordBatchStream,
        tag: &'static str,
        given: &[i16],
        access: Option<Access>,
    ) -> Result<RowSender, ErrorResponse> {
        let columns = schema.fields().iter().map(|field| Described::of(field)).collect::<Result<Vec<_>, _>>()?;
        let kinds = columns.iter().map(|column| column.kind).collect();
        let formats = column_formats(given, columns.len())?;
        let (batch, values, kept) = (None, BytesMut::new(), None);
        Ok(RowSender { columns, kinds, formats, tag, stream, access, batch, sent: 0, values, kept })
    }

    /// The description of the columns.
    pub(super) fn description(&self) -> Reply {
        let fields = self.columns.iter().zip(&self.formats).map(|(column, format)| column.field(*format)).collect();
        Reply::RowDescription(RowDescription::new(fields))
    }

    /// One row of a batch.
    fn row(&mut self, batch: &RecordBatch, row: usize) -> Result<Reply, ErrorResponse> {
        self.values.clear();
        for (at, column) in batch.columns().iter().enumerate() {
            value::write_sized(column, row, self.kinds[at], self.formats[at], &mut self.values)?;
        }
        Ok(Reply::DataRow(DataRow::new(self.values.split(), self.kinds.len() as i16)))
    }
}

impl RowExchange<'_> {
    /// Sends rows: all, or at most `most`. Ends with their tag, or reports that there may be more. Returns whether all
    /// rows were sent.
    pub(super) async fn send(&mut self, rows: &mut RowSender, most: u64) -> Result<bool, StatementError> {
        rows.sent = 0;
        rows.access.as_ref().map_or(Ok(()), Access::recheck)?;
        match self.send_some(rows, most).await? {
            Sent::AsManyAsWanted => {
                if rows.kept.is_none() {
                    rows.kept = Some(self.session.engine.teams.keep(&self.session.user)?);
                }
                self.connection.reply(Reply::PortalSuspended(PortalSuspended::new())).await?;
                Ok(false)
            }
            Sent::All => {
                let is_counted = !matches!(rows.tag, "SHOW" | "EXPLAIN");
                let tag = if is_counted { format!("{} {}", rows.tag, rows.sent) } else { rows.tag.to_owned() };
                self.complete(&tag).await?;
                Ok(true)
            }
        }
    }

    async fn send_some(&mut self, rows: &mut RowSender, most: u64) -> Result<Sent, StatementError> {
        loop {
            let (batch, start) = match rows.batch.take() {
                Some(rest) => rest,
                None => {
                    let (cancelled, canceller) = (std::sync::Arc::clone(&self.cancelled), self.session.canceller());
                    let next = tokio::select! {
                        biased;
                        next = rows.stream.next() => next,
                        _ = cancelled.notified() => Some(Err(canceller.why().into())),
                    };
                    match next {
                        None => return Ok(Sent::All),
                        Some(Err(error)) => return Err(SqlError::from(error).into()),
                        Some(Ok(batch)) => (batch, 0),
                    }
                }
            };
            let is_wide = batch.get_array_memory_size() > WIDE_BYTES;
            for row in start..batch.num_rows() {
                if most > 0 && rows.sent == most {
                    rows.batch = Some((batch, row));
                    return Ok(Sent::AsManyAsWanted);
                }
                // A slow client has a batch for long.
                rows.access.as_ref().map_or(Ok(()), Access::recheck)?;
                if is_wide {
                    self.session.check_room(COPIES * row_bytes(&batch, row))?;
                }
                self.connection.reply(rows.row(&batch, row)?).await?;
                rows.sent += 1;
            }
            if most > 0 && rows.sent == most {
                return Ok(Sent::AsManyAsWanted);
            }
        }
    }
}
