//! [`Watched`]: a query's rows while they are read: ends when cancelled, and tells the session when it failed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::Stream;

use super::Canceller;
use crate::SqlError;

pub(crate) struct Watched {
    inner: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    cancelled: Pin<Box<dyn Future<Output = ()> + Send>>,
    canceller: Canceller,
    statement: u64,
    failed: Arc<AtomicBool>,
}

impl Watched {
    /// Watches the rows of a statement; `failed` is set with the first error.
    pub(crate) fn new(
        inner: SendableRecordBatchStream,
        canceller: &Canceller,
        statement: u64,
        failed: Arc<AtomicBool>,
    ) -> Watched {
        let waits = canceller.clone();
        Watched {
            schema: inner.schema(),
            inner: Some(inner),
            cancelled: Box::pin(async move { waits.requested(statement).await }),
            canceller: canceller.clone(),
            statement,
            failed,
        }
    }
}

impl Stream for Watched {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let watched = &mut *self;
        let Some(inner) = &mut watched.inner else {
            return Poll::Ready(None);
        };
        let next = match watched.cancelled.as_mut().poll(context) {
            Poll::Ready(()) => Some(Err(SqlError::Cancelled.into())),
            Poll::Pending => match inner.as_mut().poll_next(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(next) => next,
            },
        };
        if !matches!(next, Some(Ok(_))) {
            watched.inner = None;
        }
        if matches!(next, Some(Err(_))) {
            watched.failed.store(true, Ordering::Release);
        }
        Poll::Ready(next)
    }
}

impl RecordBatchStream for Watched {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.canceller.end(self.statement);
    }
}
