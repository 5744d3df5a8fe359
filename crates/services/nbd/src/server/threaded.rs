//! A device behind threads of its own, for media that make their caller wait: those that do not wait by themselves
//! ([`Device::waits_by_itself`]), as files where the kernel has no io_uring.
//!
//! ```text
//!   submit --> [ request | request | ... ] --> thread --> device --> sink
//!                                          --> thread --> device --> sink
//! ```
//!
//! Invariants: each request is completed once, also if the device panics; what waits is not done when the last handle is
//! dropped, but completed with an error. Single calls (`read`, `write`) go straight to the device, on the caller's
//! thread.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use device::{Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink, Operation};
use parking_lot::{Condvar, Mutex};

use crate::error::NbdError;

/// See the module's text.
#[derive(Debug)]
pub struct Threaded {
    inner: Arc<dyn Device>,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    work: Condvar,
}

#[derive(Default)]
struct Waiting {
    requests: VecDeque<(IoRequest, Arc<dyn IoSink>)>,
    is_over: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.state.lock().requests.len()).finish()
    }
}

impl Threaded {
    /// The device, behind so many threads.
    ///
    /// # Errors
    /// [`NbdError::Thread`].
    pub fn new(inner: Arc<dyn Device>, threads: usize) -> Result<Threaded, NbdError> {
        let threaded = Threaded { queue: Arc::default(), inner };
        for number in 0..threads.max(1) {
            let (device, queue) = (Arc::clone(&threaded.inner), Arc::clone(&threaded.queue));
            let panicked = |why: &str| tracing::error!(why, "a thread of a device ended; report it");
            device::supervise::thread(&format!("device-{number}"), move || work(&*device, &queue), panicked)
                .map_err(NbdError::Thread)?;
        }
        Ok(threaded)
    }
}

/// Does requests until the device is dropped.
fn work(device: &dyn Device, queue: &Queue) {
    loop {
        let mut state = queue.state.lock();
        let (mut request, sink) = loop {
            if let Some(next) = state.requests.pop_front() {
                break next;
            }
            if state.is_over {
                return;
            }
            queue.work.wait(&mut state);
        };
        let is_over = state.is_over;
        drop(state);
        let result = match is_over {
            true => Err(failed(&request, "the device was closed")),
            false => catch_unwind(AssertUnwindSafe(|| request.perform(device)))
                .unwrap_or_else(|_| Err(failed(&request, "the device panicked"))),
        };
        sink.complete(request, result);
    }
}

fn failed(request: &IoRequest, why: &'static str) -> DeviceError {
    let operation = match request.kind {
        IoKind::Read => Operation::Read,
        IoKind::Flush => Operation::Flush,
        IoKind::Discard => Operation::Discard,
        IoKind::Write | IoKind::WriteFlush | IoKind::WriteZeroes { .. } => Operation::Write,
    };
    DeviceError::Io { operation, name: "device".to_owned(), offset: request.offset, source: io::Error::other(why) }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        self.queue.state.lock().is_over = true;
        self.queue.work.notify_all();
    }
}

impl Device for Threaded {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn block_bytes(&self) -> u32 {
        self.inner.block_bytes()
    }

    fn atom_bytes(&self) -> u32 {
        self.inner.atom_bytes()
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.inner.deep_flush()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.inner.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush()
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.inner.write_flush(offset, data)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.inner.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.inner.write_zeroes(offset, bytes, free)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.inner.extents(offset, bytes)
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let count = batch.len();
        self.queue.state.lock().requests.extend(batch.drain(..).map(|request| (request, Arc::clone(sink))));
        if count == 1 {
            self.queue.work.notify_one();
        } else {
            self.queue.work.notify_all();
        }
    }

    fn waits_by_itself(&self) -> bool {
        true
    }

    fn durability(&self) -> Durability {
        self.inner.durability()
    }
}
