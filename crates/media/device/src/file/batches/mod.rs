//! Batches of requests to files through io_uring: [`BatchedFile`] is a file whose [`Device::submit`] returns at once.
//!
//! ```text
//!   submit  reads, writes --> queue --> thread device-ring:  ring of at most DEPTH requests   --> sink
//!                                          | the write of a write+flush is done
//!           flushes ------------------> thread device-flush:  one fdatasync for all that wait --> sink
//!           discards, zeros ----------> thread device-plain:  one after the other             --> sink
//! ```
//!
//! There is one ring for each shelf, not one for each device: a store has a file for each 256 MiB, its files lie on one drive, and the
//! bound of what the kernel has at a time is one of the drive. The three threads start at the first batch; there is none for each
//! request. Most shelves never have one.
//!
//! Flushes do not go through the ring: the kernel passes each fsync to a worker thread anyway, which took more time and processor time than
//! the plain call (figures at [`super::FileOptions`]); and one flush at a time may go through a description (`flushers.rs`). A thread
//! that makes one flush for all that wait is a group commit.
//!
//! Invariants:
//! 1. Each request ends once, whatever happens (`job.rs`); the memory of one that the kernel has is freed after its completion, or never
//!    (`kernel.rs`).
//! 2. A failed write or flush poisons the device before its request ends. Errors are those of the plain calls.
//! 3. Dropping a device waits for its requests, so that none is done behind a later opening; dropping the last user of a ring waits for its
//!    threads. A thread that completes requests does not wait for itself: then the requests keep the file and the lock until they end.
//!
//! What it does not do: it orders no requests (see [`crate::batch`]) and limits no time. A request to a drive that hangs has no end; who
//! needs one has it above, as volumes do.

mod job;
mod kernel;
mod plain_calls;
#[cfg(test)]
mod tests;

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;

use parking_lot::Mutex;

use self::job::{Job, Transfer, Unended, is_own_thread, mark_own_thread};
use self::kernel::Kernel;
use self::plain_calls::{PlainCalls, flush_together, perform_each};
use super::FileDevice;
use crate::contract::{assert_range, submit_in_turn};
use crate::{Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink, Operation, os, supervise};

/// The ring of a shelf. It starts at its first use; if it cannot, batches are done in turn as long as the shelf is open.
#[derive(Default)]
pub(crate) struct BatchRing {
    running: OnceLock<Option<Running>>,
}

impl BatchRing {
    /// Errors: the kernel has no io_uring (`ENOSYS`), forbids it (`EPERM`), or lacks an operation.
    pub(crate) fn probe() -> io::Result<BatchRing> {
        kernel::probe()?;
        Ok(BatchRing::default())
    }

    fn running(&self) -> Option<&Running> {
        self.running.get_or_init(|| Running::start().ok()).as_ref()
    }
}

impl fmt::Debug for BatchRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchRing").field("has_started", &self.running.get().is_some()).finish()
    }
}

/// The threads of a ring, and what they share with those who submit.
struct Running {
    shared: Arc<RingShared>,
    threads: Vec<JoinHandle<()>>,
}

struct RingShared {
    queue: Mutex<RingQueue>,
    /// Ends the wait of the ring's thread.
    bell: Arc<File>,
    flushes: PlainCalls,
    others: PlainCalls,
}

#[derive(Default)]
struct RingQueue {
    jobs: std::collections::VecDeque<Job>,
    /// The thread waits in the kernel and has room: who adds a job rings the bell.
    is_waiting: bool,
    is_closed: bool,
}

impl Running {
    fn start() -> io::Result<Running> {
        let bell = Arc::new(os::event_counter()?);
        let heard = Arc::clone(&bell);
        let (queue, flushes, others) = (Mutex::default(), PlainCalls::default(), PlainCalls::default());
        let shared = Arc::new(RingShared { queue, bell, flushes, others });
        // Dropping it ends the threads that have started by then.
        let mut running = Running { shared: Arc::clone(&shared), threads: Vec::new() };
        let (report, made) = mpsc::channel();
        let owned = Arc::clone(&shared);
        running.add("device-ring", move || match Kernel::new(heard) {
            Ok(kernel) => {
                drop(report.send(Ok(())));
                RingOwner { kernel, shared: owned, taken: Vec::new() }.run();
            }
            Err(error) => drop(report.send(Err(error))),
        })?;
        made.recv().unwrap_or_else(|_| Err(io::Error::other("the thread ended")))?;
        let flushing = Arc::clone(&shared);
        running.add("device-flush", move || flushing.flushes.run(flush_together))?;
        running.add("device-plain", move || shared.others.run(perform_each))?;
        Ok(running)
    }

    fn add(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let work = move || {
            mark_own_thread();
            work();
        };
        // The panic was printed, and what the thread had has ended with errors: its guards have seen to that.
        self.threads.push(supervise::thread(name, work, |_| {})?);
        Ok(())
    }

    /// Takes a batch, whose requests lie inside the device.
    fn submit(&self, device: &BatchedFile, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let mut jobs = Vec::with_capacity(batch.len());
        for request in batch.drain(..) {
            let (kind, is_empty) = (request.kind, request.buffer.is_empty());
            let job = Job::new(request, sink, &device.file, &device.pending);
            match kind {
                IoKind::Flush => self.shared.flush(job),
                IoKind::Read | IoKind::Write | IoKind::WriteFlush if !is_empty => jobs.push(job),
                // Nothing is moved, and nothing is waited for.
                IoKind::Read | IoKind::Write => job.perform(),
                IoKind::WriteFlush | IoKind::Discard | IoKind::WriteZeroes { .. } => self.shared.do_plainly(job),
            }
        }
        if !jobs.is_empty() {
            self.shared.add(jobs);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.queue.lock().is_closed = true;
        self.shared.ring_bell();
        let mut threads = std::mem::take(&mut self.threads).into_iter();
        let must_not_wait = is_own_thread();
        let wait = |thread: JoinHandle<()>| {
            if !must_not_wait {
                // A panic has been printed by then.
                let _ = thread.join();
            }
        };
        // The ring's thread first: it hands jobs to the others.
        threads.next().into_iter().for_each(wait);
        self.shared.flushes.close();
        self.shared.others.close();
        threads.for_each(wait);
    }
}

impl RingShared {
    fn ring_bell(&self) {
        // It fails only if the counter is full, and then the bell is ringing.
        let _ = (&*self.bell).write(&1_u64.to_ne_bytes());
    }

    fn add(&self, jobs: Vec<Job>) {
        let mut queue = self.queue.lock();
        if queue.is_closed {
            drop(queue);
            return jobs.into_iter().for_each(|job| self.do_plainly(job));
        }
        queue.jobs.extend(jobs);
        let must_ring = std::mem::take(&mut queue.is_waiting);
        drop(queue);
        if must_ring {
            self.ring_bell();
        }
    }

    fn flush(&self, job: Job) {
        if let Err(job) = self.flushes.push(job) {
            flush_together(vec![job]);
        }
    }

    fn do_plainly(&self, job: Job) {
        if let Err(job) = self.others.push(job) {
            job.perform();
        }
    }
}

/// What the ring's thread has.
struct RingOwner {
    kernel: Kernel,
    shared: Arc<RingShared>,
    /// Taken from the queue, and not begun yet.
    taken: Vec<Job>,
}

impl RingOwner {
    fn run(mut self) {
        while self.refill() {
            supervise::rehearse("device-ring");
            if self.kernel.wait().is_err() {
                return;
            }
            while let Some((job, result)) = self.kernel.reap() {
                self.completed(job, result);
            }
        }
    }

    /// Begins what waits in the queue, as far as there is room. Returns `false` if everything is over.
    fn refill(&mut self) -> bool {
        loop {
            let room = self.kernel.room();
            let mut queue = self.shared.queue.lock();
            let count = queue.jobs.len().min(room);
            self.taken.extend(queue.jobs.drain(..count));
            // Without room a further job is looked for after the next completion.
            queue.is_waiting = count < room;
            if self.taken.is_empty() {
                return !queue.is_closed || !queue.jobs.is_empty() || self.kernel.count() > 0;
            }
            drop(queue);
            for job in std::mem::take(&mut self.taken) {
                self.begin(job);
            }
        }
    }

    fn begin(&mut self, job: Job) {
        if job.request().kind != IoKind::Read
            && let Err(error) = job.file().check_change(Operation::Write)
        {
            return job.end(Err(error));
        }
        self.kernel.begin(job);
    }

    fn completed(&mut self, mut job: Job, result: i32) {
        match job.advance(result) {
            Transfer::Again => self.kernel.begin(job),
            Transfer::Plainly => self.shared.do_plainly(job),
            Transfer::Done if job.request().kind == IoKind::WriteFlush => self.shared.flush(job),
            Transfer::Done => job.end(Ok(())),
            Transfer::Failed(source) => {
                let error = job.failure(source);
                job.end(Err(error));
            }
        }
    }
}

impl Drop for RingOwner {
    fn drop(&mut self) {
        // After a panic or an error of the kernel: later batches are done by the helper, what waits ends with an error.
        let mut queue = self.shared.queue.lock();
        queue.is_closed = true;
        let left = std::mem::take(&mut queue.jobs);
        drop(queue);
        drop(left);
    }
}

/// A file whose batches go through the ring of its shelf; its single calls are those of the file.
pub(crate) struct BatchedFile {
    file: Arc<FileDevice>,
    pending: Arc<Unended>,
    ring: Arc<BatchRing>,
}

impl BatchedFile {
    pub(crate) fn new(file: Arc<FileDevice>, ring: &Arc<BatchRing>) -> BatchedFile {
        BatchedFile { file, pending: Arc::default(), ring: Arc::clone(ring) }
    }
}

impl Drop for BatchedFile {
    fn drop(&mut self) {
        if !is_own_thread() {
            self.pending.wait();
        }
    }
}

impl fmt::Debug for BatchedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

impl Device for BatchedFile {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.file.read(offset, buffer)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.file.write(offset, data)
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.file.flush()
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.file.write_flush(offset, data)
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.file.discard(offset, bytes)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.file.extents(offset, bytes)
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.file.reserve(offset, bytes)
    }

    fn allocated_bytes(&self) -> Result<u64, DeviceError> {
        self.file.allocated_bytes()
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        let Some(running) = self.ring.running() else { return submit_in_turn(&*self.file, batch, sink) };
        for request in batch.iter() {
            let bytes = match request.kind {
                IoKind::Read | IoKind::Write | IoKind::WriteFlush => request.buffer.len() as u64,
                IoKind::Flush => continue,
                IoKind::Discard | IoKind::WriteZeroes { .. } => request.bytes,
            };
            assert_range(self.len(), request.offset, bytes);
        }
        running.submit(self, batch, sink);
    }

    fn waits_by_itself(&self) -> bool {
        self.ring.running().is_some()
    }

    fn durability(&self) -> Durability {
        self.file.durability()
    }
}
