//! [`Watched`]: a query's rows while they are read: ends when asked to, and tells the session when it failed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use futures::Stream;

use super::cancel::Running;
use crate::SqlError;

pub(crate) struct Watched {
    inner: Option<SendableRecordBatchStream>,
    schema: SchemaRef,
    asked: Pin<Box<dyn Future<Output = SqlError> + Send>>,
    running: Arc<Running>,
    failed: Arc<AtomicBool>,
    /// When rows were given out that may keep the client busy: that is not the statement's time.
    given: Option<Instant>,
}

impl Watched {
    /// Watches the rows of a statement; `failed` is set with the first error.
    pub(crate) fn new(inner: SendableRecordBatchStream, running: &Arc<Running>, failed: Arc<AtomicBool>) -> Watched {
        let waits = running.clone();
        Watched {
            schema: inner.schema(),
            inner: Some(inner),
            asked: Box::pin(async move { waits.asked().await }),
            running: running.clone(),
            failed,
            given: None,
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
        if let Some(given) = watched.given.take() {
            watched.running.excuse(given.elapsed());
        }
        let next = match watched.asked.as_mut().poll(context) {
            Poll::Ready(why) => Some(Err(why.into())),
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
        if watched.running.is_timed() {
            watched.given = Some(Instant::now());
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
        self.inner = None;
        // Rows of the threads of the query were given back here.
        device::heap::give_back_here();
        self.running.end();
    }
}
