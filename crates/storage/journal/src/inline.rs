//! Append and commit in one step, where a write is a matter of instructions: [`Committer`].
//!
//! ```text
//!   thread 1   copy, checksums | lock: reserve A | stores past the cache, fence | durable = end of A
//!   thread 2        copy, checksums | lock: reserve B | headers anew, stores, fence | waits for A | durable = end of B
//! ```
//!
//! The lock is held only to reserve a place: who writes what, and where. Threads then store side by side, as a medium of
//! several modules wants it, and publish in the order of the log: each waits until everything before its place is durable,
//! which takes others at most as long as it took itself.
//!
//! The headers name the place, and are made before it is known, for the place that comes next if nobody comes in between; if
//! somebody did, they are made again.
//!
//! Nothing behind the fence is a locked instruction. On x86 such an instruction waits until the stores past the cache have
//! left the core's buffers, which the fence itself need not do: 40 ns of 110 for a KiB, measured 2026-11-21 on an EPYC. What
//! is durable is published by a plain store, which the CPU makes visible only after the stores before the fence; and the
//! device and the buffer are the committer's own, so that none of the two is counted or returned.
//!
//! Invariants:
//! 1. A place reserved is written and published, or the journal fails. Whoever takes the lock for anything but a reservation
//!    first waits until all reserved places are published ([`Shared::lock`]), and finds the journal as if nobody had
//!    ever been here.
//! 2. Only the thread whose place starts at `durable` may move it, so that a plain store is enough.
//! 3. A batch says what was durable when its place was reserved; as many later batches may be on the medium without it as
//!    threads were writing. The proof of damage holds: it never was told durable.
//!
//! Records that are long, or that meet a full segment, go the general way. What lies on the medium is the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{AlignedBuffer, Device};

use crate::checksum;
use crate::error::JournalError;
use crate::format::{
    BATCH_FRAME_BYTES, BLOCK_BYTES, BatchHeader, END, FIRST, FRAME_ALIGN, FRAME_HEADER_BYTES, Frame, LAST, frame_bytes,
};
use crate::lsn::{Lsn, Nonce};
use crate::segment::segment_name;
use crate::shared::{FailOnPanic, Shared};

/// The longest payload that goes this way: others wait in the order of the log for some microseconds at most.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// What lies before the payload.
const HEADERS_BYTES: usize = BATCH_FRAME_BYTES + FRAME_HEADER_BYTES;

/// Looks at `durable` before a waiting thread lets others run: a place takes less to write than a switch of threads does.
const SPINS: u32 = 200;

/// One thread's way to append and commit; from [`crate::Journal::committer`]. Worth keeping: it holds a buffer and the device.
#[derive(Debug)]
pub struct Committer<'a> {
    shared: &'a Shared,
    /// A batch: headers, payload, zeros.
    buffer: AlignedBuffer,
    /// Behind this the buffer holds zeros.
    filled: usize,
    /// The segment of the last record, and its device.
    device: Option<(Lsn, Arc<dyn Device>)>,
    /// Where the next record lies if nobody comes in between.
    guess: Guess,
}

/// What the headers of a batch say of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Guess {
    start: Lsn,
    nonce: Nonce,
    durable: Lsn,
}

/// What they say of the record.
#[derive(Clone, Copy)]
struct Described {
    kind: u8,
    bytes: usize,
    crc: u32,
}

/// A place in the log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) nonce: Nonce,
}

impl<'a> Committer<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Committer<'a> {
        let guess = Guess::default();
        Committer { shared, buffer: AlignedBuffer::new(), filled: 0, device: None, guess }
    }

    /// [`append`](crate::Journal::append), then [`commit`](crate::Journal::commit) of that record. On persistent memory the two
    /// are one step, and cheaper than one after the other.
    ///
    /// Errors: those of both. After [`JournalError::Poisoned`] it is unknown whether the record will be found.
    pub fn append_commit(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let shared = self.shared;
        if shared.inline && bytes <= PAYLOAD_BYTES_MAX.min(shared.options.max_record_bytes as usize) {
            let record = Described { kind, bytes, crc: self.lay(parts, bytes) };
            let panicking = FailOnPanic(shared);
            let lsn = self.at_once(record);
            std::mem::forget(panicking);
            match lsn {
                Ok(Some(lsn)) => return Ok(lsn),
                Ok(None) => {}
                Err(error) => return Err(error),
            }
        }
        let lsn = shared.append(kind, parts)?;
        shared.commit_record(lsn)?;
        Ok(lsn)
    }

    /// Copies the payload to where it lies in the batch, and zeros what an earlier one left behind it; its checksum.
    #[inline]
    fn lay(&mut self, parts: &[&[u8]], bytes: usize) -> u32 {
        let needed = (HEADERS_BYTES + bytes + FRAME_ALIGN).next_multiple_of(BLOCK_BYTES as usize);
        if self.buffer.len() < needed {
            self.buffer.resize(needed, 0);
        }
        let mut at = HEADERS_BYTES;
        for part in parts {
            self.buffer[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        if at < self.filled {
            self.buffer[at..self.filled].fill(0);
        }
        self.filled = at;
        checksum::of_parts(parts)
    }

    /// `None`: the place must be had the general way.
    #[inline]
    fn at_once(&mut self, record: Described) -> Result<Option<Lsn>, JournalError> {
        // Before the lock, beside the checksum of the payload: with one thread the guess is right.
        let guess = self.guess;
        self.describe(guess, record);
        let Some((place, durable, offset)) = self.reserve(record.bytes)? else { return Ok(None) };
        let found = Guess { start: place.start, nonce: place.nonce, durable };
        if found != guess {
            self.describe(found, record);
        }
        let (base, device) = self.device.as_ref().expect("reserving has set it");
        if let Err(error) = device.write_flush(offset, &self.buffer[..place.end.since(place.start) as usize]) {
            self.shared.fail(error.named(&segment_name(*base)));
        }
        // No result of another call is handed on from here: to copy one waits until all stores have left the core.
        if !self.shared.publish(place) {
            return Err(self.shared.failure());
        }
        self.guess = Guess { start: place.end, nonce: place.nonce, durable: place.end };
        Ok(Some(place.start.plus(BATCH_FRAME_BYTES as u64)))
    }

    /// Writes the headers.
    #[inline]
    fn describe(&mut self, Guess { start, nonce, durable }: Guess, Described { kind, bytes, crc }: Described) {
        let (batch, rest) = self.buffer.split_at_mut(BATCH_FRAME_BYTES);
        let batch_bytes = (BATCH_FRAME_BYTES + frame_bytes(bytes)) as u32;
        BatchHeader { lsn: start, nonce, durable, bytes: batch_bytes, records: 1, flags: 0 }.encode(batch);
        let lsn = start.plus(BATCH_FRAME_BYTES as u64);
        Frame { payload_crc: crc, lsn, nonce, payload_bytes: bytes as u32, flags: FIRST | LAST | END, kind }
            .encode(&mut rest[..FRAME_HEADER_BYTES]);
    }

    /// Reserves a place in the tail segment: where, what is durable, and the offset on the device. `None`: there is no room.
    fn reserve(&mut self, payload_bytes: usize) -> Result<Option<(Place, Lsn, u64)>, JournalError> {
        let shared = self.shared;
        let mut guard = shared.lock_to_reserve();
        guard.accepts()?;
        let state = &mut *guard;
        let (tail, unit) = (state.tail.header.base, state.tail.header.unit);
        if state.append_lock {
            return Ok(None);
        }
        let Some(place) = state.pipeline.reserve(state.tail.end(), unit, payload_bytes) else { return Ok(None) };
        if self.device.as_ref().is_none_or(|(base, _)| *base != tail) {
            self.device = Some((tail, state.tail.device_to_write()));
        }
        state.stats.records += 1;
        state.stats.payload_bytes += payload_bytes as u64;
        state.stats.batches += 1;
        state.stats.written_bytes += place.end.since(place.start);
        state.stats.batch_records_max = state.stats.batch_records_max.max(1);
        state.prepare_ahead(shared, place.end);
        if state.append_waiters > 0 {
            shared.appended.notify_all();
        }
        Ok(Some((place, shared.durable().min(place.start), state.tail.offset(place.start))))
    }
}

impl Shared {
    /// Waits until everything before the place is durable, and makes the place so; false if the journal has failed.
    #[inline]
    fn publish(&self, place: Place) -> bool {
        let mut spins = 0;
        while self.durable() < place.start {
            if self.is_failed() {
                break;
            }
            pause(&mut spins);
        }
        if self.is_failed() {
            return false;
        }
        self.durable.store(place.end.0, Ordering::Release);
        true
    }

    /// Waits until every place reserved before `end` is published; false if one of them never will be.
    pub(crate) fn wait_published(&self, end: Lsn) -> bool {
        let mut spins = 0;
        while self.durable() < end {
            if self.is_failed() {
                return false;
            }
            pause(&mut spins);
        }
        true
    }
}

fn pause(spins: &mut u32) {
    if *spins < SPINS {
        *spins += 1;
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}
