//! A submitted request on its way through the ring and its helpers.
//!
//! ```text
//!   submit --> Job { request with its buffer, sink, file, bytes moved }
//!                kernel   moved, Again | Done | Failed | Plainly
//!                end      sink.complete(request, result), then one is pending less
//! ```
//!
//! Invariants:
//! 1. A job ends exactly once: [`Job::end`] takes its request out, and a job that is dropped before it has ended ends with an error.
//! 2. A job is pending until its sink has returned and it has released its file: who waits for none sees no later call of a sink, and no
//!    file that stays open.
//! 3. A sink that panics ends nothing but its own request. The panic has been printed by then.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::batch::{IoKind, IoRequest, IoSink};
use crate::file::FileDevice;
use crate::{DeviceError, Operation};

thread_local! {
    static IS_OURS: Cell<bool> = const { Cell::new(false) };
}

/// Marks the calling thread as one that completes requests.
pub(super) fn mark_own_thread() {
    IS_OURS.set(true);
}

/// Whether the calling thread completes requests: it must not wait for one.
pub(super) fn is_own_thread() -> bool {
    IS_OURS.get()
}

/// How many submitted requests of a device have not ended.
#[derive(Debug, Default)]
pub(super) struct Unended {
    count: AtomicUsize,
    lock: Mutex<()>,
    none: Condvar,
}

impl Unended {
    fn ended(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // With the lock: nobody begins to wait between their look at the count and this call.
            let _lock = self.lock.lock();
            self.none.notify_all();
        }
    }

    /// Waits until every request that was submitted has ended.
    pub(super) fn wait(&self) {
        let mut lock = self.lock.lock();
        while self.count.load(Ordering::Acquire) > 0 {
            self.none.wait(&mut lock);
        }
    }
}

/// What follows a completion of the kernel.
#[derive(Debug)]
pub(super) enum Transfer {
    /// The rest is submitted again.
    Again,
    /// All bytes were moved.
    Done,
    /// The medium or the system reported an error.
    Failed(io::Error),
    /// The ring cannot do it now: a plain call does.
    Plainly,
}

/// See the head comment of this file.
pub(super) struct Job {
    work: Option<Work>,
    pending: Arc<Unended>,
    moved: usize,
}

struct Work {
    request: IoRequest,
    sink: Arc<dyn IoSink>,
    file: Arc<FileDevice>,
}

impl Job {
    pub(super) fn new(
        request: IoRequest,
        sink: &Arc<dyn IoSink>,
        file: &Arc<FileDevice>,
        pending: &Arc<Unended>,
    ) -> Job {
        pending.count.fetch_add(1, Ordering::AcqRel);
        let work = Work { request, sink: Arc::clone(sink), file: Arc::clone(file) };
        Job { work: Some(work), pending: Arc::clone(pending), moved: 0 }
    }

    fn work(&self) -> &Work {
        self.work.as_ref().expect("it is there until the job ends")
    }

    fn work_mut(&mut self) -> &mut Work {
        self.work.as_mut().expect("it is there until the job ends")
    }

    pub(super) fn request(&self) -> &IoRequest {
        &self.work().request
    }

    pub(super) fn file(&self) -> &Arc<FileDevice> {
        &self.work().file
    }

    /// What is left to be moved: descriptor, place on the device, place in memory and its length.
    pub(super) fn rest(&mut self) -> (RawFd, u64, *mut u8, usize) {
        let moved = self.moved;
        let Work { request, file, .. } = self.work_mut();
        let rest = &mut request.buffer[moved..];
        (file.file.as_raw_fd(), request.offset + moved as u64, rest.as_mut_ptr(), rest.len())
    }

    /// Counts what a completion has moved: a count of bytes, or a negated error number.
    pub(super) fn advance(&mut self, result: i32) -> Transfer {
        let wanted = self.request().buffer.len();
        let is_read = self.request().kind == IoKind::Read;
        match usize::try_from(result) {
            Ok(0) if is_read => Transfer::Failed(io::ErrorKind::UnexpectedEof.into()),
            Ok(0) => Transfer::Failed(io::ErrorKind::WriteZero.into()),
            Ok(moved) if moved > wanted - self.moved => Transfer::Failed(io::ErrorKind::InvalidData.into()),
            Ok(moved) => {
                self.moved += moved;
                if self.moved == wanted { Transfer::Done } else { Transfer::Again }
            }
            Err(_) => match -result {
                libc::EINTR => Transfer::Again,
                // The kernel had no memory or no thread for it: a plain call waits for that.
                libc::EAGAIN | libc::ECANCELED => Transfer::Plainly,
                code => Transfer::Failed(io::Error::from_raw_os_error(code)),
            },
        }
    }

    /// The operation of the contract that fails if the request does.
    pub(super) fn operation(&self) -> Operation {
        match self.request().kind {
            IoKind::Read => Operation::Read,
            IoKind::Write | IoKind::WriteFlush | IoKind::WriteZeroes { .. } => Operation::Write,
            IoKind::Flush => Operation::Flush,
            IoKind::Discard => Operation::Discard,
        }
    }

    /// The error of a transfer, as the plain call has it; a change poisons the device.
    pub(super) fn failure(&self, source: io::Error) -> DeviceError {
        let (file, request, operation) = (self.file(), self.request(), self.operation());
        let error = file.failed(operation, request.offset, source);
        match operation {
            Operation::Read => error,
            _ => file.poison(error.wanting(request.bytes)),
        }
    }

    /// Does the request by plain calls on this thread, from its beginning, and ends it.
    pub(super) fn perform(mut self) {
        let Work { request, file, .. } = self.work_mut();
        let result = catch_unwind(AssertUnwindSafe(|| request.perform(&**file)));
        let result = result.unwrap_or_else(|_| Err(self.failure(io::Error::other("the call panicked"))));
        self.end(result);
    }

    /// Gives the request back.
    pub(super) fn end(mut self, result: Result<(), DeviceError>) {
        self.finish(result);
    }

    /// Leaks the memory of the request, which the kernel may still use, and ends it.
    pub(super) fn end_without_memory(mut self, error: DeviceError) {
        std::mem::forget(std::mem::take(&mut self.work_mut().request.buffer));
        self.finish(Err(error));
    }

    fn finish(&mut self, result: Result<(), DeviceError>) {
        let Some(Work { request, sink, file }) = self.work.take() else { return };
        // Invariant 3. The sink is dropped inside too: it may be the last handle of something.
        let _ = catch_unwind(AssertUnwindSafe(move || {
            sink.complete(request, result);
            drop(sink);
        }));
        // Before the count: who waits for it closes the file then, and releases its lock.
        drop(file);
        self.pending.ended();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if self.work.is_some() {
            let error = self.failure(io::Error::other("the thread of the ring has ended"));
            self.finish(Err(error));
        }
    }
}
