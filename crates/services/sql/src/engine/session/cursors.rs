//! [`Cursors`]: the cursors of a transaction, and the rows that FETCH takes from them.
//!
//! A cursor is a query whose rows are taken some at a time, forward only. It keeps what a portal that is read in part keeps: its threads,
//! two batches on their way, and the rest of a batch. Cursors end with their transaction; ROLLBACK TO ends those since the savepoint.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::{StreamExt, stream};
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::SqlError;

/// Most cursors of a transaction: each has threads of its own.
const CURSORS_MAX: usize = 64;

/// The rows of a cursor that were not fetched yet.
struct Rows {
    stream: SendableRecordBatchStream,
    rest: Option<RecordBatch>,
    is_over: bool,
}

impl Rows {
    /// At most `most` rows of the next batch.
    async fn next(&mut self, most: u64) -> Option<DfResult<RecordBatch>> {
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None if self.is_over => return None,
            None => match self.stream.next().await {
                Some(Ok(batch)) => batch,
                other => {
                    self.is_over = true;
                    return other;
                }
            },
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        if batch.num_rows() > most {
            self.rest = Some(batch.slice(most, batch.num_rows() - most));
            return Some(Ok(batch.slice(0, most)));
        }
        Some(Ok(batch))
    }
}

struct Cursor {
    name: String,
    schema: SchemaRef,
    rows: Arc<Mutex<Rows>>,
}

/// The cursors of one transaction.
#[derive(Default)]
pub(crate) struct Cursors {
    /// In the order in which they were declared.
    open: Vec<Cursor>,
}

impl Cursors {
    /// Adds a cursor over these rows. Errors: 42P03, 54000.
    pub(crate) fn declare(
        &mut self,
        name: &str,
        schema: SchemaRef,
        stream: SendableRecordBatchStream,
    ) -> Result<(), SqlError> {
        if self.open.len() == CURSORS_MAX {
            let message = format!("this transaction has {CURSORS_MAX} cursors, and no room for one more");
            return Err(SqlError::transaction("54000", message));
        }
        let rows = Arc::new(Mutex::new(Rows { stream, rest: None, is_over: false }));
        self.open.push(Cursor { name: name.to_owned(), schema, rows });
        Ok(())
    }

    /// Errors: 42P03 for a name that there is already.
    pub(crate) fn check_new(&self, name: &str) -> Result<(), SqlError> {
        match self.find(name) {
            Ok(_) => Err(SqlError::transaction("42P03", format!("cursor \"{name}\" already exists"))),
            Err(_) => Ok(()),
        }
    }

    fn find(&self, name: &str) -> Result<&Cursor, SqlError> {
        let missing = || SqlError::transaction("34000", format!("cursor \"{name}\" does not exist"));
        self.open.iter().find(|cursor| cursor.name == name).ok_or_else(missing)
    }

    /// The columns of a cursor. Errors: 34000.
    pub(crate) fn schema(&self, name: &str) -> Result<SchemaRef, SqlError> {
        Ok(self.find(name)?.schema.clone())
    }

    /// The next rows of a cursor, at most `most`; they are taken while the stream is read.
    ///
    /// Errors: 34000; 55006 while other rows of it are being read.
    pub(crate) fn fetch(&self, name: &str, most: u64) -> Result<SendableRecordBatchStream, SqlError> {
        let cursor = self.find(name)?;
        let rows = cursor.rows.clone().try_lock_owned();
        let rows = rows.map_err(|_| SqlError::transaction("55006", format!("cursor \"{name}\" is being read")))?;
        let next = |(mut rows, left): (OwnedMutexGuard<Rows>, u64)| async move {
            if left == 0 {
                return None;
            }
            let batch = rows.next(left).await?;
            let taken = batch.as_ref().map_or(left, |batch| batch.num_rows() as u64);
            Some((batch, (rows, left - taken)))
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(cursor.schema.clone(), stream::unfold((rows, most), next))))
    }

    /// Ends a cursor. Errors: 34000.
    pub(crate) fn close(&mut self, name: &str) -> Result<(), SqlError> {
        self.find(name)?;
        self.open.retain(|cursor| cursor.name != name);
        Ok(())
    }

    /// How many there are, for [`keep`](Cursors::keep).
    pub(crate) fn count(&self) -> usize {
        self.open.len()
    }

    /// Ends all but the first `count`.
    pub(crate) fn keep(&mut self, count: usize) {
        self.open.truncate(count);
    }
}
