//! The io_uring of a shelf, and the table of what the kernel has: reads and writes of all its files, many at once.
//!
//! ```text
//!   begin(job)   table[n] = job, entry n --> submission queue ---+
//!                                                                | one io_uring_enter submits and waits
//!   reap         table[n] --> job   <-- completion queue  <------+
//!                                        the bell: a poll of an eventfd, so that new requests end the wait
//! ```
//!
//! The ring belongs to one thread, which made it: it submits, waits and reaps. So no lock is around the queues, no request is bound to a
//! caller's thread (the kernel cancels work that it has for a thread that ends), and completions need no interrupt of another thread
//! (`DEFER_TASKRUN`, where the kernel has it). A wait for several completions with a time for them (`min_wait_usec`, Linux 6.12) took more
//! processor time than a wake for each: 13.5 us for a read of 4 KiB instead of 9.7 (2026-11-25, 64 in progress, both cores busy).
//!
//! Invariants:
//! 1. The memory and the descriptor of an entry that the kernel has belong to a job in the table: a job leaves the table only when its
//!    completion was reaped, or when the kernel never took its entry.
//! 2. Dropping waits for every completion, also while a panic unwinds. If the kernel does not even let itself be waited for, the memory is
//!    leaked: nothing frees what a device may still write to.
//! 3. The submission queue has room for every job and the bell; the completion queue has twice that, so it never overflows.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::{IoUring, Probe, opcode, types};

use super::job::Job;
use crate::IoKind;

/// Requests that the kernel has at a time; further ones wait in a queue. Drives have reached their rate by then: the published figures of
/// NVMe drives are at depths of 32 to 128.
pub(super) const DEPTH: usize = 128;

/// Entries of the submission queue: a power of two that holds [`DEPTH`] and the bell.
const ENTRIES: u32 = 256;

/// Most bytes one entry moves: Linux moves at most 2^31 - 4096 (`MAX_RW_COUNT`), the rest is moved by further ones.
const BYTES_MAX: usize = 1 << 30;

/// The entry of the bell; jobs have numbers below [`DEPTH`].
const BELL: u64 = u64::MAX;

/// How often a wait that the kernel refuses is tried again before memory is leaked, and the time in between: a second together.
const TRIES: usize = 1000;
const TRY_PAUSE: Duration = Duration::from_millis(1);

/// Whether the kernel has what a ring needs. Errors: it has no io_uring (`ENOSYS`), forbids it (`EPERM`), or lacks an operation.
pub(super) fn probe() -> io::Result<()> {
    let ring = IoUring::new(2)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::PollAdd::CODE];
    match needed.iter().all(|code| probe.is_supported(*code)) {
        true => Ok(()),
        false => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// See the head comment of this file.
pub(super) struct Kernel {
    ring: IoUring,
    table: Vec<Option<Job>>,
    free: Vec<usize>,
    bell: Arc<File>,
    is_listening: bool,
}

impl Kernel {
    /// Makes the ring of the calling thread. `bell` is a counter of `os::event_counter`.
    pub(super) fn new(bell: Arc<File>) -> io::Result<Kernel> {
        let deferred = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(ENTRIES);
        let ring = match deferred {
            // Linux before 6.1.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => IoUring::new(ENTRIES)?,
            other => other?,
        };
        let table = (0..DEPTH).map(|_| None).collect();
        Ok(Kernel { ring, table, free: (0..DEPTH).rev().collect(), bell, is_listening: false })
    }

    /// How many jobs can be begun.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    /// How many jobs have begun and were not reaped.
    pub(super) fn count(&self) -> usize {
        DEPTH - self.free.len()
    }

    /// Queues what is left of a read or a write for the kernel. There must be [`room`](Kernel::room).
    pub(super) fn begin(&mut self, job: Job) {
        let number = self.free.pop().expect("the caller has looked for room");
        let job = self.table[number].insert(job);
        let is_read = job.request().kind == IoKind::Read;
        let (descriptor, offset, memory, bytes) = job.rest();
        let (descriptor, bytes) = (types::Fd(descriptor), bytes.min(BYTES_MAX) as u32);
        let entry = match is_read {
            true => opcode::Read::new(descriptor, memory, bytes).offset(offset).build(),
            false => opcode::Write::new(descriptor, memory, bytes).offset(offset).build(),
        };
        let entry = entry.user_data(number as u64);
        // SAFETY: memory and descriptor belong to the job, which lies in the table until the completion with this number has been reaped
        // (invariant 1). Its buffer is on the heap and nobody else has it, so it stays where it is, and nobody looks at it meanwhile.
        unsafe { self.ring.submission().push(&entry) }.expect("the queue has room for every job (invariant 3)");
    }

    /// Submits what is queued, and waits for a completion or the bell. Errors: the kernel does not serve the ring any more.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        if !self.is_listening {
            let entry = opcode::PollAdd::new(types::Fd(self.bell.as_raw_fd()), libc::POLLIN as u32).build();
            // SAFETY: a poll has no memory, and the bell is open as long as the ring is.
            unsafe { self.ring.submission().push(&entry.user_data(BELL)) }
                .expect("the queue has room for the bell (invariant 3)");
            self.is_listening = true;
        }
        match self.ring.submit_and_wait(1) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => Ok(()),
                // Short of memory for a moment, or completions are to be reaped first: nothing is lost.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => {
                    std::thread::sleep(TRY_PAUSE);
                    Ok(())
                }
                _ => Err(error),
            },
        }
    }

    /// The next job that is complete, with its result; `None` if there is none now.
    pub(super) fn reap(&mut self) -> Option<(Job, i32)> {
        loop {
            let (number, result) = {
                let entry = self.ring.completion().next()?;
                (entry.user_data(), entry.result())
            };
            if number == BELL {
                self.is_listening = false;
                // It would block only if the counter were zero, and then there is nothing to clear.
                let _ = (&*self.bell).read(&mut [0; 8]);
                continue;
            }
            let number = number as usize;
            if let Some(job) = self.table.get_mut(number).and_then(Option::take) {
                self.free.push(number);
                return Some((job, result));
            }
        }
    }

    /// Ends all jobs without their memory (invariant 2).
    fn leak(&mut self) {
        for job in self.table.iter_mut().filter_map(Option::take) {
            let error = job.failure(io::Error::other("the kernel does not serve its ring any more"));
            job.end_without_memory(error);
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let mut tries = 0;
        while self.count() > 0 {
            // An entry that was not submitted yet is submitted here, and completes too.
            if self.wait().is_err() {
                if self.count() + usize::from(self.is_listening) <= self.ring.submission().len() {
                    // The kernel has none of them (invariant 1): they end as they are dropped.
                    break;
                }
                tries += 1;
                if tries > TRIES {
                    self.leak();
                    break;
                }
                std::thread::sleep(TRY_PAUSE);
            }
            // A job that is dropped ends with an error.
            while let Some((job, _)) = self.reap() {
                drop(job);
            }
        }
    }
}
