//! [`CancellableStream`]: a query's rows while they are read. It ends when the statement is asked to end, or one of its
//! rights is revoked, and reports to the session when it fails.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::Stream;

use crate::SqlError;
use crate::engine::limits::cancellation::Running;
use crate::engine::plan::access::Access;

/// Tells the session that the statement has failed.
pub(crate) type OnFailure = Box<dyn Fn() + Send>;

pub(crate) struct CancellableStream {
    inner: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    end: Pin<Box<dyn Future<Output = SqlError> + Send>>,
    running: Arc<Running>,
    on_failure: OnFailure,
    /// The rights of the statement: they are asked again when they change.
    access: Option<Access>,
    /// The session, while there are rows to read.
    reader: Option<Arc<()>>,
    /// The time when rows were last returned: the client may be busy with them, which does not count as the statement's
    /// time.
    given: Option<Instant>,
}

impl CancellableStream {
    /// Wraps the rows of a statement; `on_failure` is called with the first error, and `reader` is held until the last row.
    pub(crate) fn new(
        inner: SendableRecordBatchStream,
        running: &Arc<Running>,
        (on_failure, reader): (OnFailure, Option<Arc<()>>),
        access: Option<Access>,
    ) -> CancellableStream {
        let (waits, watched) = (running.clone(), access.clone());
        CancellableStream {
            schema: inner.schema(),
            inner: Some(inner),
            end: Box::pin(async move { ended(&waits, watched.as_ref()).await }),
            running: running.clone(),
            on_failure,
            access,
            reader,
            given: None,
        }
    }
}

/// Waits until the statement is asked to end, or a right of it is revoked.
pub(crate) async fn ended(running: &Running, access: Option<&Access>) -> SqlError {
    let revoked = async {
        let is_over = match access {
            Some(access) => access.until_revoked().await,
            None => std::future::pending().await,
        };
        match running.revoke(is_over) {
            Some(why) => why,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        biased;
        why = running.requested_end() => why,
        why = revoked => why,
    }
}

impl Stream for CancellableStream {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watched = &mut *self;
        let Some(inner) = &mut watched.inner else {
            return Poll::Ready(None);
        };
        if let Some(given) = watched.given.take() {
            watched.running.excuse(given.elapsed());
        }
        let next = match watched.end.as_mut().poll(context) {
            Poll::Ready(why) => Some(Err(why.into())),
            Poll::Pending => match inner.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => match (next, &watched.access) {
                    (Some(Ok(batch)), Some(access)) => Some(access.recheck().map(|()| batch).map_err(Into::into)),
                    (next, _) => next,
                },
            },
        };
        if !matches!(next, Some(Ok(_))) {
            watched.inner = None;
            watched.reader = None;
        }
        if matches!(next, Some(Err(_))) {
            (watched.on_failure)();
        }
        if watched.running.is_timed() {
            watched.given = Some(Instant::now());
        }
        Poll::Ready(next)
    }
}

impl RecordBatchStream for CancellableStream {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for CancellableStream {
    fn drop(&mut self) {
        self.inner = None;
        // Memory of rows from the query's threads was freed on this thread.
        device::heap::give_back_here();
        self.running.end();
    }
}
