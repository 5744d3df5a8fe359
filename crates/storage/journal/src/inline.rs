//! Append and commit in one step, on devices where a write takes only instructions: [`Committer`].
//!
//! ```text
//!   thread 1   copy, checksums | lock: reserve A | stores past the cache, fence | durable = end of A
//!   thread 2        copy, checksums | lock: reserve B | headers anew, stores, fence | waits for A | durable = end of B
//! ```
//!
//! The lock is held only to reserve a place, that is, to determine which thread writes where. The threads then store in
//! parallel, which suits a medium of several modules, and publish in the order of the log. Each thread waits until
//! everything before its place is durable. For the others that takes at most about as long as its own write took.
//!
//! The headers contain the place. They are built before the place is known, for the next place at that moment. If
//! another thread reserved that place first, they are built again.
//!
//! No locked instruction follows the fence. On x86 such an instruction waits until the stores past the cache have left
//! the core's buffers, which the fence itself need not do: 40 ns of 110 for a KiB, measured 2026-11-21 on an EPYC. The
//! new `durable` is published by a plain store, which the CPU makes visible only after the stores before the fence. The
//! committer owns its buffer and its reference to the device, so no reference count changes and no buffer is returned
//! to a pool.
//!
//! Invariants:
//! 1. A reserved place is written and published, or the journal fails. A thread that takes the lock for anything but a
//!    reservation first waits until all reserved places are published ([`Shared::lock`]). It then finds the journal in
//!    the state that the general path would have left.
//! 2. Only the thread whose place starts at `durable` may move it, so a plain store is sufficient.
//! 3. A batch contains the `durable` of the moment when its place was reserved. After a crash, as many later batches
//!    may be on the medium without it as threads were writing. The proof of damage remains valid: a missing batch was
//!    never reported durable.
//!
//! Long records, records that meet a full segment, and those of an encrypted journal use the general path. The bytes on the medium are the
//! same.

use std::sync::Arc;

use device::{AlignedBuffer, Device};

use crate::checksum;
use crate::error::JournalError;
use crate::format::{
    BATCH_FRAME_BYTES, BLOCK_BYTES, BatchHeader, END, FIRST, FRAME_ALIGN, FRAME_HEADER_BYTES, Frame, LAST, frame_bytes,
};
use crate::lsn::{Lsn, Nonce};
use crate::options::GroupCommits;
use crate::pipeline::Place;
use crate::segment::segment_name;
use crate::shared::{FailOnPanic, Shared};

/// The longest payload for this path: other threads wait in log order for some microseconds at most.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// Bytes before the payload.
const HEADERS_BYTES: usize = BATCH_FRAME_BYTES + FRAME_HEADER_BYTES;

/// A thread's handle to append and commit; from [`crate::Journal::committer`]. Keep it: it owns a buffer and a
/// reference to the device.
#[derive(Debug)]
pub struct Committer<'a> {
    shared: &'a Shared,
    /// A batch: headers, payload, zeros.
    buffer: AlignedBuffer,
    /// The buffer contains zeros from here on.
    filled: usize,
    /// The segment of the last record, and its device.
    device: Option<(Lsn, Arc<dyn Device>)>,
    /// The place of the next record if no other thread reserves one first.
    guess: Guess,
}

/// The part of a batch's headers that depends on the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Guess {
    start: Lsn,
    nonce: Nonce,
    durable: Lsn,
}

/// The part that depends on the record.
#[derive(Clone, Copy)]
struct Described {
    kind: u8,
    bytes: usize,
    crc: u32,
}

impl<'a> Committer<'a> {
    pub(crate) fn new(shared: &'a Shared) -> Committer<'a> {
        let guess = Guess::default();
        Committer { shared, buffer: AlignedBuffer::new(), filled: 0, device: None, guess }
    }

    /// [`append`](crate::Journal::append), then [`commit`](crate::Journal::commit) of that record. On persistent memory
    /// this is one step, and cheaper than two calls.
    ///
    /// Errors: those of both. After [`JournalError::Poisoned`] it is unknown whether the record will be found.
    pub fn append_commit(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let shared = self.shared;
        if shared.inline
            && shared.options.sealer.is_none()
            && bytes <= PAYLOAD_BYTES_MAX.min(shared.options.max_record_bytes as usize)
        {
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

    /// Copies the payload to its place in the batch, clears what an earlier record left after it, and returns its
    /// checksum.
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

    /// Returns `None` if the record must use the general path.
    #[inline]
    fn at_once(&mut self, record: Described) -> Result<Option<Lsn>, JournalError> {
        // Done before the lock is taken, together with the payload's checksum: with one thread the guess is right.
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
        // No result of an earlier call is copied from here on: copying one waits until all stores have left the core.
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

    /// Reserves a place in the tail segment. Returns the place, what is durable, and the offset on the device; `None`
    /// if there is no room.
    fn reserve(&mut self, payload_bytes: usize) -> Result<Option<(Place, Lsn, u64)>, JournalError> {
        let shared = self.shared;
        let mut guard = shared.lock_to_reserve();
        guard.accepts()?;
        let state = &mut *guard;
        let (tail, unit, end) = (state.tail.header.base, state.tail.header.unit, state.usable_end());
        if state.append_lock {
            return Ok(None);
        }
        let Some(place) = state.pipeline.reserve(end, unit, payload_bytes) else { return Ok(None) };
        if self.device.as_ref().is_none_or(|(base, _)| *base != tail) {
            self.device = Some((tail, state.tail.device_to_write()));
        }
        state.stats.records += 1;
        state.stats.payload_bytes += payload_bytes as u64;
        if let Some(counted) = &mut state.group_commits {
            counted.record_bytes[GroupCommits::class(payload_bytes as u64)] += 1;
            counted.batch_records[GroupCommits::class(1)] += 1;
        }
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
