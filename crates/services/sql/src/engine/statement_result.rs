//! The result of a statement.

use std::sync::Arc;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use futures::stream;

use crate::SqlError;
use crate::engine::limits::cancellation::Running;
use crate::engine::plan::access::Access;
use crate::engine::run::cancellable_stream;

/// The result of one statement.
pub enum StatementResult {
    /// A query's rows, as they are produced. The number of rows makes the tag: `SELECT n`, unless `tag` says otherwise.
    Rows {
        /// Columns. Fields carry the SQL type in metadata where the Arrow type alone does not determine it, see
        /// [`crate::table`].
        schema: SchemaRef,
        /// The rows. Errors in the stream are [`SqlError`] packed as DataFusion's: `SqlError::from(error)` unpacks
        /// them.
        stream: SendableRecordBatchStream,
        /// The first word of the tag: `SELECT`, `SHOW`, `INSERT 0`, ...; the number of rows follows it, except for
        /// `SHOW` and `EXPLAIN`.
        tag: &'static str,
    },
    /// The statement is done: the tag of CommandComplete, such as `INSERT 0 1`. Empty for an empty statement.
    Done {
        /// The tag.
        tag: String,
    },
    /// COPY .. FROM STDIN began.
    CopyIn(CopyIn),
    /// COPY .. TO STDOUT began.
    CopyOut(CopyOut),
}

impl StatementResult {
    /// The rows of one batch.
    pub(crate) fn of_batch(batch: RecordBatch, tag: &'static str) -> StatementResult {
        let schema = batch.schema();
        let stream = Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream::iter([Ok(batch)])));
        StatementResult::Rows { schema, stream, tag }
    }
}

impl std::fmt::Debug for StatementResult {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StatementResult::Rows { schema, .. } => {
                f.debug_struct("Rows").field("schema", schema).finish_non_exhaustive()
            }
            StatementResult::Done { tag } => f.debug_struct("Done").field("tag", tag).finish(),
            StatementResult::CopyIn(_) => f.write_str("CopyIn"),
            StatementResult::CopyOut(_) => f.write_str("CopyOut"),
        }
    }
}

/// Options of a COPY statement, with PostgreSQL's defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyFormat {
    /// `text`, `csv` or `binary`.
    pub name: String,
    /// The character between columns: tab, or a comma in CSV.
    pub delimiter: u8,
    /// The text of NULL: `\N`, or empty in CSV.
    pub null: String,
    /// Whether the first line contains the names of the columns.
    pub header: bool,
    /// CSV: the character that encloses values.
    pub quote: u8,
    /// CSV: the character before a quote or before itself inside a value.
    pub escape: u8,
}

/// Rows on their way into a table. Dropping it rolls them back.
pub struct CopyIn {
    /// Columns that each batch must have, in this order: of these types, or as text, which is then converted to them.
    pub schema: SchemaRef,
    /// The format of the client's data.
    pub format: CopyFormat,
    pub(crate) sink: Box<dyn CopySink>,
    /// The statement, which lasts until its rows are stored: it can be cancelled, and its time counts.
    pub(crate) running: Arc<Running>,
    /// The rights of the statement.
    pub(crate) access: Option<Access>,
}

/// Stores the rows of a COPY.
#[async_trait::async_trait]
pub(crate) trait CopySink: Send {
    async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError>;
    async fn finish(self: Box<Self>) -> Result<u64, SqlError>;
}

impl CopyIn {
    /// Waits until a cancel, a timeout or a revoked right asks the statement to end, and returns the error. A caller that waits for the
    /// client's next rows also waits for this, and then drops the COPY.
    pub async fn requested_end(&self) -> SqlError {
        cancellable_stream::ended(&self.running, self.access.as_ref()).await
    }

    /// Adds rows. After an error the statement has failed: drop this value.
    pub async fn push(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        self.sink.push(batch).await
    }

    /// Ends the statement; the rows are durable when it returns, except inside a transaction. Returns their number, for
    /// the tag `COPY n`.
    pub async fn finish(self) -> Result<u64, SqlError> {
        self.sink.finish().await
    }
}

/// Rows on their way to the client; the number of rows makes the tag `COPY n`.
pub struct CopyOut {
    /// Columns.
    pub schema: SchemaRef,
    /// The rows.
    pub stream: SendableRecordBatchStream,
    /// The format that the client requested.
    pub format: CopyFormat,
    /// The rights of the statement: they are asked again when they change.
    pub(crate) access: Option<Access>,
}
