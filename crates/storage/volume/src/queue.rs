//! [`Queue`]: requests that wait for a thread of the volume.
//!
//! Invariant: what was pushed is taken, also after the queue was closed; what comes later is handed back.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use device::{DeviceError, IoRequest, IoSink};
use parking_lot::{Condvar, Mutex};

/// A request, who waits for it, and since when.
pub(crate) type Submitted = (IoRequest, Arc<dyn IoSink>, Instant);

#[derive(Default)]
struct Waiting {
    requests: VecDeque<Submitted>,
    is_closed: bool,
}

/// See the head comment of this file.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Condvar,
}

impl Queue {
    /// Gives the request back if the queue is closed.
    fn push(&self, submitted: Submitted) -> Result<(), Submitted> {
        let mut waiting = self.waiting.lock();
        if waiting.is_closed {
            return Err(submitted);
        }
        waiting.requests.push_back(submitted);
        self.arrived.notify_one();
        Ok(())
    }

    /// As [`push`](Queue::push); a request that comes too late is completed with an error.
    pub(crate) fn push_or_refuse(&self, request: IoRequest, sink: &Arc<dyn IoSink>) {
        if let Err((request, sink, _)) = self.push((request, sink.clone(), Instant::now())) {
            sink.complete(request, Err(DeviceError::Poisoned { name: "volume".to_owned() }));
        }
    }

    /// Waits for requests and takes up to `most`; none if the queue is closed and empty.
    pub(crate) fn take(&self, most: usize) -> Vec<Submitted> {
        let mut waiting = self.waiting.lock();
        while waiting.requests.is_empty() && !waiting.is_closed {
            self.arrived.wait(&mut waiting);
        }
        let count = waiting.requests.len().min(most);
        waiting.requests.drain(..count).collect()
    }

    pub(crate) fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.arrived.notify_all();
    }
}
