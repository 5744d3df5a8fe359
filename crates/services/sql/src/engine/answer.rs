//! What a statement answers with.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;

use super::cancel::Running;
use crate::SqlError;

/// The answer of one statement.
pub enum Answer {
    /// A query's rows, as they are made. The number of rows makes the tag: `SELECT n`, except where `tag` says
    /// otherwise.
    Rows {
        /// Columns. Fields carry the SQL type in metadata where Arrow's says too little, see [`crate::table`].
        schema: SchemaRef,
        /// The rows. Errors in it are [`SqlError`] packed as DataFusion's: `SqlError::from(error)` unpacks them.
        stream: SendableRecordBatchStream,
        /// The first word of the tag: `SELECT`, `SHOW`, `INSERT 0`, ...; rows are counted after it, except for
        /// `SHOW` and `EXPLAIN`.
        tag: &'static str,
    },
    /// It is done: the tag of CommandComplete, such as `INSERT 0 1`. Empty for an empty statement.
    Done {
        /// The tag.
        tag: String,
    },
    /// COPY .. FROM STDIN began.
    CopyIn(CopyIn),
    /// COPY .. TO STDOUT began.
    CopyOut(CopyOut),
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Answer::Rows { schema, .. } => f.debug_struct("Rows").field("schema", schema).finish_non_exhaustive(),
            Answer::Done { tag } => f.debug_struct("Done").field("tag", tag).finish(),
            Answer::CopyIn(_) => f.write_str("CopyIn"),
            Answer::CopyOut(_) => f.write_str("CopyOut"),
        }
    }
}

/// Options of a COPY statement, with PostgreSQL's defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// `text`, `csv` or `binary`.
    pub name: String,
    /// Between columns: tab, or a comma in CSV.
    pub delimiter: u8,
    /// What stands for NULL: `\N`, or nothing in CSV.
    pub null: String,
    /// The first line names the columns.
    pub header: bool,
    /// CSV: encloses values.
    pub quote: u8,
    /// CSV: stands before a quote or itself inside a value.
    pub escape: u8,
}

/// Rows on their way into a table. Dropping it undoes them.
pub struct CopyIn {
    /// Columns that each batch must have, in this order: of these types, or as text, which is then read as them.
    pub schema: SchemaRef,
    /// How the client sends them.
    pub format: CopyFormat,
    pub(crate) sink: Box<dyn CopySink>,
    /// The statement, which goes on until its rows are in: it can be cancelled, and its time counts.
    pub(crate) running: Arc<Running>,
}

/// Takes the rows of a COPY.
#[async_trait::async_trait]
pub(crate) trait CopySink: Send {
    async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError>;
    async fn finish(self: Box<Self>) -> Result<u64, SqlError>;
}

impl CopyIn {
    /// Returns when the statement is asked to end, by a cancel or by its time, with what it ends with. Whoever waits for the
    /// client's next rows waits for this beside it, and drops this then.
    pub async fn asked(&self) -> SqlError {
        self.running.asked().await
    }

    /// Adds rows. After an error the statement has failed: drop this.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        self.sink.push(batch).await
    }

    /// Ends the statement; the rows are durable when it returns, except inside a transaction. Returns their number, for
    /// the tag `COPY n`.
    pub async fn finish(self) -> Result<u64, SqlError> {
        self.sink.finish().await
    }
}

/// Rows on their way out; the number of rows makes the tag `COPY n`.
pub struct CopyOut {
    /// Columns.
    pub schema: SchemaRef,
    /// The rows.
    pub stream: SendableRecordBatchStream,
    /// How the client wants them.
    pub format: CopyFormat,
}
