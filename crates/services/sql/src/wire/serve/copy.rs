//! COPY in and out, in the middle of a Query or an Execute.
//!
//! Received rows are passed to the engine in batches. While the engine processes one, nothing is read from the socket,
//! so a fast client waits and memory stays bounded. The statement lasts until the last row is stored: a cancel and
//! `statement_timeout` end it also while the client is silent.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{CopySource, Statement};
use futures::StreamExt;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};

use super::StatementError;
use super::row_exchange::RowExchange;
use crate::engine::plan::access::Access;
use crate::engine::{CopyIn, CopyOut};
use crate::wire::copy::{Batch, CopyReader, Writer};
use crate::wire::error_response::ErrorResponse;
use crate::wire::{Format, Message, Reply};
use crate::{Prepared, SqlError};

/// The number of copies of a row in memory until it is in a batch.
const ROW_COPIES: usize = 4;

impl RowExchange<'_> {
    /// Receives rows until the client has sent all.
    pub(super) async fn copy_in(&mut self, mut copy: CopyIn, prepared: &Prepared) -> Result<(), StatementError> {
        let columns = copy.schema.fields().len();
        let mut reader = CopyReader::new(&copy.format, columns, self.message_bytes_max)?;
        let mut batch = Batch::new(&copy.schema, &copy.format)?;
        let table = table_of(prepared);
        let format = if copy.format.name == "binary" { Format::Binary } else { Format::Text };
        let (all, count, each) = layout(format, columns);
        self.connection.reply(Reply::CopyInResponse(CopyInResponse::new(all, count, each))).await?;
        self.connection.flush().await?;
        loop {
            let last = match self.copy_message(&copy).await? {
                Message::CopyData(chunk) => {
                    // A part of a row waits for its end: it is copied while it grows, cut into fields, and put into a
                    // column.
                    self.session.check_room(ROW_COPIES * (reader.waiting() + chunk.data.len()))?;
                    reader.push(&chunk.data);
                    false
                }
                Message::CopyDone(_) => true,
                Message::CopyFail(failed) => {
                    return Err(
                        ErrorResponse::new("57014", format!("COPY from stdin failed: {}", failed.message)).into()
                    );
                }
                // PostgreSQL ignores these during COPY.
                Message::Flush(_) | Message::Sync(_) => continue,
                _ => {
                    let message = "unexpected message type during COPY from stdin";
                    return Err(ErrorResponse::protocol(message).into());
                }
            };
            loop {
                let found = match reader.row(last) {
                    Ok(Some(fields)) => Some(fields.clone()),
                    Ok(None) => None,
                    Err(response) => {
                        let line = reader.line();
                        return Err(response.with_context(|| format!("COPY {table}, line {line}")).into());
                    }
                };
                let Some(fields) = found else { break };
                let line = reader.line();
                batch.push(&fields, || format!("COPY {table}, line {line}"))?;
                if batch.is_full() {
                    self.hand_on(&mut copy, &mut batch).await?;
                }
            }
            if last {
                break;
            }
        }
        self.hand_on(&mut copy, &mut batch).await?;
        let rows = copy.finish().await?;
        Ok(self.complete(&format!("COPY {rows}")).await?)
    }

    async fn hand_on(&mut self, copy: &mut CopyIn, batch: &mut Batch) -> Result<(), StatementError> {
        if let Some(batch) = batch.take()? {
            copy.push(batch).await?;
        }
        Ok(())
    }

    /// The next message during COPY, unless the statement is asked to end: by a cancel, by its time, or with the
    /// session.
    async fn copy_message(&mut self, copy: &CopyIn) -> Result<Message, StatementError> {
        tokio::select! {
            biased;
            why = copy.requested_end() => Err(why.into()),
            message = self.connection.message() => Ok(message?),
        }
    }

    /// Sends rows.
    pub(super) async fn copy_out(&mut self, copy: CopyOut) -> Result<(), StatementError> {
        let CopyOut { schema, mut stream, format, access } = copy;
        let mut writer = Writer::new(&format, &schema)?;
        let columns = schema.fields().len();
        let (all, count, each) = layout(writer.wire_format(), columns);
        self.connection.reply(Reply::CopyOutResponse(CopyOutResponse::new(all, count, each))).await?;
        if let Some(head) = writer.head() {
            self.connection.reply(Reply::CopyData(head)).await?;
        }
        let (cancelled, canceller) = (Arc::clone(&self.cancelled), self.session.canceller());
        let mut rows = 0u64;
        loop {
            let next = tokio::select! {
                biased;
                next = stream.next() => next,
                _ = cancelled.notified() => Some(Err(canceller.why().into())),
            };
            let Some(batch) = next else { break };
            let batch = batch.map_err(SqlError::from)?;
            for row in 0..batch.num_rows() {
                // A slow client has them for long.
                access.as_ref().map_or(Ok(()), Access::recheck)?;
                self.connection.reply(Reply::CopyData(writer.row(&batch, row)?)).await?;
                rows += 1;
            }
        }
        if let Some(tail) = writer.tail() {
            self.connection.reply(Reply::CopyData(tail)).await?;
        }
        self.connection.reply(Reply::CopyDone(CopyDone::new())).await?;
        Ok(self.complete(&format!("COPY {rows}")).await?)
    }
}

/// The format of the whole, the number of columns, and the format of each.
fn layout(format: Format, columns: usize) -> (i8, i16, Vec<i16>) {
    (format.value() as i8, columns as i16, vec![format.value(); columns])
}

/// The table's name, for errors.
fn table_of(prepared: &Prepared) -> String {
    match prepared.statement() {
        Some(Statement::Copy { source: CopySource::Table { table_name, .. }, .. }) => {
            table_name.0.last().map(ToString::to_string).unwrap_or_default()
        }
        _ => String::new(),
    }
}
