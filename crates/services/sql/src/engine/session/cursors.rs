//! [`Cursors`]: the cursors of a transaction, and the rows that FETCH takes from them.
//!
//! A cursor is a query whose rows are taken some at a time, forward only. It keeps what a portal that is read in part keeps: its threads,
//! two batches on their way, and the rest of a batch. Cursors end with their transaction; ROLLBACK TO ends those since the savepoint.
//!
//! A cursor returns the state of DECLARE. Where the transaction had changed nothing it reads a snapshot. Otherwise its rows are read at
//! once, if they are few; those of a large one are read from the transaction while they are fetched, and until then nothing is changed.

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
    /// `None` when it is over: what it reads is released.
    stream: Option<SendableRecordBatchStream>,
    rest: Option<RecordBatch>,
}

impl Rows {
    /// At most `most` rows of the next batch.
    async fn next(&mut self, most: u64) -> Option<DfResult<RecordBatch>> {
        let batch = match self.rest.take() {
            Some(batch) => batch,
            None => match self.stream.as_mut()?.next().await {
                Some(Ok(batch)) => batch,
                other => {
                    self.stream = None;
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
    /// How many were declared before it.
    number: usize,
    schema: SchemaRef,
    rows: Arc<Mutex<Rows>>,
    /// Whether its rows do not depend on what the transaction changes later.
    is_frozen: bool,
}

impl Cursor {
    /// Whether it reads the transaction's changes, and is not at its end.
    fn reads_changes(&self) -> bool {
        !self.is_frozen && self.rows.try_lock().map_or(true, |rows| rows.stream.is_some())
    }
}

/// The cursors of one transaction.
#[derive(Default)]
pub(crate) struct Cursors {
    open: Vec<Cursor>,
    /// How many were declared.
    declared: usize,
}

impl Cursors {
    /// Adds a cursor over these rows; `is_frozen` if they do not depend on later changes. Errors: 42P03, 54000.
    pub(crate) fn declare(
        &mut self,
        name: &str,
        schema: SchemaRef,
        stream: SendableRecordBatchStream,
        is_frozen: bool,
    ) -> Result<(), SqlError> {
        if self.open.len() == CURSORS_MAX {
            let message = format!("this transaction has {CURSORS_MAX} cursors, and no room for one more");
            return Err(SqlError::transaction("54000", message));
        }
        let rows = Arc::new(Mutex::new(Rows { stream: Some(stream), rest: None }));
        self.open.push(Cursor { name: name.to_owned(), number: self.declared, schema, rows, is_frozen });
        self.declared += 1;
        Ok(())
    }

    /// Refuses a statement that changes something while a cursor reads the changes. Errors: 55006.
    pub(crate) fn check_change(&self, statement: &str) -> Result<(), SqlError> {
        let Some(cursor) = self.open.iter().find(|cursor| cursor.reads_changes()) else { return Ok(()) };
        let message = format!(
            "cannot execute {statement} while cursor \"{}\" reads the changes of this transaction",
            cursor.name
        );
        Err(SqlError::transaction("55006", message)
            .with_hint("Close the cursor, fetch all of its rows, or declare it before the first change."))
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

    /// How many were declared, for [`keep`](Cursors::keep).
    pub(crate) fn count(&self) -> usize {
        self.declared
    }

    /// Ends all but those that were among the first `count` that were declared.
    pub(crate) fn keep(&mut self, count: usize) {
        self.open.retain(|cursor| cursor.number < count);
    }
}
