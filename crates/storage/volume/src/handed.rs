//! Reads that are handed to the device of a copy, many at once, and verified when it completes them.
//!
//! ```text
//!   submit      in place, whole blocks, chosen copy's device waits by itself:   sums loaded, read handed over
//!               all others                                                      queue of the reading threads
//!   completed   bytes match the sums, or open with the seals  -->  the caller's sink
//!               they do not, or an error  -->  queue of the reading threads, which read carefully (`read.rs`)
//!   watch       not completed in `copy_timeout`  -->  another buffer, queue of the reading threads
//!                                                     nothing of this copy was completed in that time: the copy is excluded first
//! ```
//!
//! There is no thread for each read, and the completing thread waits for nothing: it verifies, and passes on.
//!
//! Invariants:
//! 1. The sums of a read are loaded before its bytes are read, as in `read.rs`.
//! 2. Each read is completed once: by the device or by the watch, whichever takes it first. A completion that comes later finds it taken,
//!    and frees the buffer, which was the device's until then.
//! 3. A read that the device has keeps the copy, so that a copy that hangs is not attached again before it has answered
//!    ([`Core::wait_left`](crate::core::Core::wait_left)).
//!
//! A read that waits behind many others of a slow medium is no sign of one that hangs: so the copy is excluded only if it has completed
//! nothing for as long. Otherwise the read is done again by a thread, whose call has a time of its own.
//!
//! Which copy is read: the one that is expected to take least, with what was handed to it already (`metrics.rs`). Reads of more than
//! 1 MiB, of holes, and of copies behind a cache or another node go to the threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use device::{AlignedBuffer, BLOCK_BYTES, DeviceError, IoKind, IoRequest, IoSink, supervise};
use parking_lot::{Condvar, Mutex};

use crate::checksum::Sum;
use crate::copy::VolumeCopy;
use crate::core::Core;
use crate::error::VolumeError;
use crate::mark::BlockMark;
use crate::members::COPIES_MAX;
use crate::queue::Queue;
use crate::read::{RUN_BLOCKS, choose, run_end};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// How often the watch looks in `copy_timeout`: a read is taken from a copy that hangs an eighth late at most.
const LOOKS: u32 = 8;

/// The reads of a volume that devices have.
pub(crate) struct HandedReads {
    core: Arc<Core>,
    /// Where reads go that need a thread.
    queue: Arc<Queue>,
    began: Instant,
    /// When a copy completed a read last, in nanoseconds since `began`.
    completed: [AtomicU64; COPIES_MAX],
    outstanding: Mutex<Outstanding>,
    changed: Condvar,
}

#[derive(Default)]
struct Outstanding {
    slots: Vec<Option<Arc<HandedBatch>>>,
    free: Vec<usize>,
    /// The watch waits without an end: there was nothing.
    is_idle: bool,
    /// Nothing is handed over any more.
    is_closing: bool,
    is_over: bool,
}

impl Outstanding {
    fn is_empty(&self) -> bool {
        self.slots.len() == self.free.len()
    }
}

/// Reads that were handed to one device together; where they are completed.
struct HandedBatch {
    handed: Arc<HandedReads>,
    copy: Arc<VolumeCopy>,
    sink: Arc<dyn IoSink>,
    began: Instant,
    /// The token of a read in the device is its place here.
    reads: Vec<HandedRead>,
    /// Reads that are not completed, and not in the queue.
    left: AtomicUsize,
    slot: AtomicUsize,
}

/// What is to be known of a read while the device has its buffer.
struct HandedRead {
    token: u64,
    offset: u64,
    bytes: usize,
    /// Of the buffer: the caller gets as much memory back as it gave, whoever completes the read.
    capacity: usize,
    first: BlockMark,
    rest: Vec<BlockMark>,
    /// Reads that its copy had when it was handed over, itself included.
    handed: u64,
    is_taken: AtomicBool,
}

/// Reads for one device, not handed over yet.
struct Group {
    copy: Arc<VolumeCopy>,
    part: usize,
    requests: Vec<IoRequest>,
    reads: Vec<HandedRead>,
}

impl HandedReads {
    pub(crate) fn new(core: &Arc<Core>, queue: &Arc<Queue>) -> Arc<HandedReads> {
        Arc::new(HandedReads {
            core: core.clone(),
            queue: queue.clone(),
            began: Instant::now(),
            completed: Default::default(),
            outstanding: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    /// Hands over what can be; what remains in `batch` needs a thread.
    pub(crate) fn hand_over(self: &Arc<HandedReads>, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        if self.core.check().is_err() {
            return;
        }
        let mut groups: Vec<Group> = Vec::new();
        let mut others = Vec::new();
        for mut request in batch.drain(..) {
            match self.plan(&request, &mut groups) {
                Some((group, read)) => {
                    request.token = group.reads.len() as u64;
                    group.requests.push(request);
                    group.reads.push(read);
                }
                None => others.push(request),
            }
        }
        *batch = others;
        let began = Instant::now();
        for Group { copy, part, mut requests, reads } in groups {
            let left = AtomicUsize::new(reads.len());
            let (handed, sink, slot) = (self.clone(), sink.clone(), AtomicUsize::new(0));
            let handed_batch = Arc::new(HandedBatch { handed, copy: copy.clone(), sink, began, reads, left, slot });
            if !self.add(&handed_batch) {
                // The volume is being closed: nothing is handed over any more.
                requests.iter_mut().for_each(|request| handed_batch.restore(request));
                requests.iter().for_each(|_| self.core.metrics.copy(copy.number).returned());
                batch.append(&mut requests);
                continue;
            }
            copy.submit_reads(part, &mut requests, &(handed_batch as Arc<dyn IoSink>));
        }
    }

    /// Where a read goes, if all of it lies in place in one part, and the device of the copy that is chosen completes it by itself.
    fn plan<'g>(&self, request: &IoRequest, groups: &'g mut Vec<Group>) -> Option<(&'g mut Group, HandedRead)> {
        let (core, offset, bytes) = (&self.core, request.offset, request.buffer.len());
        let (block, blocks) = (offset / BLOCK, bytes as u64 / BLOCK);
        let is_whole =
            request.kind == IoKind::Read && offset.is_multiple_of(BLOCK) && bytes.is_multiple_of(BLOCK_BYTES);
        let is_inside = block.checked_add(blocks).is_some_and(|end| end <= core.tables.geometry.blocks());
        if !is_whole || !is_inside || !(1..=RUN_BLOCKS).contains(&blocks) || core.overlay.has(block) {
            return None;
        }
        let first = core.tables.mark(block);
        if first.sum == Sum::NONE || run_end(core, block, block + blocks) != block + blocks {
            return None;
        }
        let rest = (block + 1..block + blocks).map(|block| core.tables.mark(block)).collect();
        let (number, part) = (choose(core)?, core.tables.geometry.part_of(block));
        let index = match groups.iter().position(|group| group.copy.number == number && group.part == part) {
            Some(index) => index,
            None => {
                let copy = core.copy(number).filter(|copy| copy.waits_by_itself(part))?;
                groups.push(Group { copy, part, requests: Vec::new(), reads: Vec::new() });
                groups.len() - 1
            }
        };
        let (token, capacity, is_taken) = (request.token, request.buffer.capacity(), AtomicBool::new(false));
        // Counted here: the next read of the batch may go to another copy.
        let handed = core.metrics.copy(number).hand_over();
        Some((&mut groups[index], HandedRead { token, offset, bytes, capacity, first, rest, handed, is_taken }))
    }

    /// Notes reads that a device is going to have. Returns `false` if none is handed over any more.
    fn add(&self, batch: &Arc<HandedBatch>) -> bool {
        let mut outstanding = self.outstanding.lock();
        if outstanding.is_closing {
            return false;
        }
        let slot = outstanding.free.pop().unwrap_or_else(|| {
            outstanding.slots.push(None);
            outstanding.slots.len() - 1
        });
        batch.slot.store(slot, Ordering::Relaxed);
        outstanding.slots[slot] = Some(batch.clone());
        if std::mem::take(&mut outstanding.is_idle) {
            self.changed.notify_all();
        }
        true
    }

    fn remove(&self, batch: &HandedBatch) {
        let mut outstanding = self.outstanding.lock();
        let slot = batch.slot.load(Ordering::Relaxed);
        let removed = outstanding.slots[slot].take();
        outstanding.free.push(slot);
        let must_notify = outstanding.is_closing && outstanding.is_empty();
        drop(outstanding);
        // Not under the lock: it may be the last handle of the copy.
        drop(removed);
        if must_notify {
            self.changed.notify_all();
        }
    }

    /// Waits until no read is with a device, or was taken from one that hangs: bounded by the watch.
    pub(crate) fn close(&self) {
        let mut outstanding = self.outstanding.lock();
        outstanding.is_closing = true;
        while !outstanding.is_empty() && !outstanding.is_over {
            self.changed.wait(&mut outstanding);
        }
    }

    /// Ends the watch.
    pub(crate) fn end(&self) {
        let mut outstanding = self.outstanding.lock();
        (outstanding.is_closing, outstanding.is_over) = (true, true);
        self.changed.notify_all();
    }

    /// Looks for reads that are late, until the end.
    pub(crate) fn watch(&self) {
        let timeout = self.core.options.copy_timeout;
        while let Some(late) = self.next_late(timeout) {
            supervise::rehearse("volume-watch");
            late.iter().for_each(|batch| batch.give_up(timeout));
        }
    }

    /// Waits for a while, and returns the reads that are late then; `None` at the end.
    fn next_late(&self, timeout: Duration) -> Option<Vec<Arc<HandedBatch>>> {
        let mut outstanding = self.outstanding.lock();
        if outstanding.is_empty() {
            outstanding.is_idle = true;
            while outstanding.is_idle && !outstanding.is_over {
                self.changed.wait(&mut outstanding);
            }
        }
        let look = Instant::now() + timeout / LOOKS;
        while !outstanding.is_over && !self.changed.wait_until(&mut outstanding, look).timed_out() {}
        if outstanding.is_over {
            return None;
        }
        let late = outstanding.slots.iter().flatten().filter(|batch| batch.began.elapsed() >= timeout);
        Some(late.cloned().collect())
    }
}

impl HandedBatch {
    /// Gives a read its own token and place back.
    fn restore(&self, request: &mut IoRequest) {
        let read = &self.reads[request.token as usize];
        (request.token, request.offset) = (read.token, read.offset);
    }

    /// A read that was taken has been completed, or is in the queue.
    fn passed_on(&self) {
        self.handed.core.metrics.copy(self.copy.number).returned();
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.handed.remove(self);
        }
    }

    /// Takes the reads that were not completed in time, for other copies; excludes the copy if it completes nothing.
    fn give_up(&self, timeout: Duration) {
        let core = &self.handed.core;
        let number = self.copy.number;
        let since = Duration::from_nanos(self.handed.completed[number as usize].load(Ordering::Acquire));
        let is_silent = self.handed.began.elapsed().saturating_sub(since) >= timeout;
        if is_silent
            && self.left.load(Ordering::Acquire) > 0
            && let Err(error) = core.fail(&self.copy, &VolumeError::Stalled(number))
        {
            tracing::error!(%error, "after a copy did not answer");
        }
        for read in self.reads.iter().filter(|read| read.take()) {
            let mut buffer = AlignedBuffer::with_capacity(read.capacity);
            buffer.set_len(read.bytes);
            self.handed.queue.push_or_refuse(IoRequest::read(read.offset, buffer, read.token), &self.sink);
            self.passed_on();
        }
    }
}

impl HandedRead {
    /// Whether the caller is the first to take the read.
    fn take(&self) -> bool {
        !self.is_taken.swap(true, Ordering::AcqRel)
    }

    /// Verifies what was read, and makes it what was written.
    fn opens(&self, core: &Core, bytes: &mut [u8]) -> bool {
        let marks = std::iter::once(&self.first).chain(&self.rest);
        let mut blocks = bytes.chunks_exact_mut(BLOCK_BYTES).zip(self.offset / BLOCK..).zip(marks);
        blocks.all(|((bytes, block), mark)| core.opens_as(block, bytes, mark))
    }
}

impl IoSink for HandedBatch {
    fn complete(&self, mut request: IoRequest, result: Result<(), DeviceError>) {
        let (handed, number) = (&self.handed, self.copy.number);
        let now = handed.began.elapsed().as_nanos() as u64;
        handed.completed[number as usize].store(now, Ordering::Release);
        let read = &self.reads[request.token as usize];
        if !read.take() {
            // Too late (invariant 2).
            return;
        }
        self.restore(&mut request);
        let took = self.began.elapsed();
        handed.core.metrics.copy(number).read_of(read.handed, read.bytes as u64, took);
        if result.is_ok() && read.opens(&handed.core, &mut request.buffer) {
            handed.core.metrics.read(request.bytes, took);
            self.sink.complete(request, Ok(()));
        } else {
            handed.queue.push_or_refuse(request, &self.sink);
        }
        self.passed_on();
    }
}
