//! Append and commit in one step, where a write is a matter of instructions: [`Committer`].
//!
//! ```text
//!   thread 1   checksum, copy | lock: reserve A | headers, stores past the cache, fence | durable = end of A
//!   thread 2        checksum, copy | lock: reserve B | headers, stores, fence | waits for A | durable = end of B
//! ```
//!
//! The lock is held only to reserve a place: who writes what, and where. Threads then store side by side, as a medium of
//! several modules wants it, and publish in the order of the log: each waits until everything before its place is durable,
//! which takes others at most as long as it took itself.
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
use crate::format::{BATCH_FRAME_BYTES, BatchHeader, END, FIRST, FRAME_HEADER_BYTES, Frame, LAST, frame_bytes};
use crate::lsn::{Lsn, Nonce};
use crate::segment::segment_name;
use crate::shared::{FailOnPanic, Shared};

/// The longest payload that goes this way: others wait in the order of the log for some microseconds at most.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

/// Looks at `durable` before a waiting thread lets others run: a place takes less to write than a switch of threads does.
const SPINS: u32 = 200;

/// One thread's way to append and commit; from [`crate::Journal::committer`]. Worth keeping: it holds a buffer and the device.
#[derive(Debug)]
pub struct Committer<'a> {
    shared: &'a Shared,
    buffer: AlignedBuffer,
    /// The segment of the last record, and its device.
    device: Option<(Lsn, Arc<dyn Device>)>,
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
        Committer { shared, buffer: AlignedBuffer::new(), device: None }
    }

    /// [`append`](crate::Journal::append), then [`commit`](crate::Journal::commit) of that record. On persistent memory the two
    /// are one step, and cheaper than one after the other.
    ///
    /// Errors: those of both. After [`JournalError::Poisoned`] it is unknown whether the record will be found.
    pub fn append_commit(&mut self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let shared = self.shared;
        if shared.inline && bytes <= PAYLOAD_BYTES_MAX.min(shared.options.max_record_bytes as usize) {
            let payload_crc = self.lay(parts);
            let panicking = FailOnPanic(shared);
            let lsn = self.at_once(kind, bytes, payload_crc);
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

    /// Copies the payload to where it lies in the batch; its checksum.
    fn lay(&mut self, parts: &[&[u8]]) -> u32 {
        self.buffer.truncate(BATCH_FRAME_BYTES + FRAME_HEADER_BYTES);
        self.buffer.resize(BATCH_FRAME_BYTES + FRAME_HEADER_BYTES, 0);
        parts.iter().for_each(|part| self.buffer.extend_from_slice(part));
        checksum::of_parts(parts)
    }

    /// `None`: the place must be had the general way.
    #[inline]
    fn at_once(&mut self, kind: u8, payload_bytes: usize, payload_crc: u32) -> Result<Option<Lsn>, JournalError> {
        let Some((place, durable, offset)) = self.reserve(payload_bytes)? else { return Ok(None) };
        let lsn = place.start.plus(BATCH_FRAME_BYTES as u64);
        let bytes = (BATCH_FRAME_BYTES + frame_bytes(payload_bytes)) as u32;
        self.buffer.resize(place.end.since(place.start) as usize, 0);
        let (batch, rest) = self.buffer.split_at_mut(BATCH_FRAME_BYTES);
        let Place { start, nonce, .. } = place;
        BatchHeader { lsn: start, nonce, durable, bytes, records: 1, flags: 0 }.encode(batch);
        let payload_bytes = payload_bytes as u32;
        Frame { payload_crc, lsn, nonce, payload_bytes, flags: FIRST | LAST | END, kind }
            .encode(&mut rest[..FRAME_HEADER_BYTES]);
        let (base, device) = self.device.as_ref().expect("reserving has set it");
        if let Err(error) = device.write_flush(offset, &self.buffer) {
            self.shared.fail(error.named(&segment_name(*base)));
        }
        // No result of another call is handed on from here: to copy one waits until all stores have left the core.
        if self.shared.publish(place) { Ok(Some(lsn)) } else { Err(self.shared.failure()) }
    }

    /// Reserves a place in the tail segment: where, what is durable, and the offset on the device. `None`: there is no room.
    fn reserve(&mut self, payload_bytes: usize) -> Result<Option<(Place, Lsn, u64)>, JournalError> {
        let shared = self.shared;
        let mut guard = shared.lock_to_reserve();
        guard.check()?;
        let state = &mut *guard;
        let (tail, unit) = (state.tail.header.base, state.tail.header.unit);
        if state.turn {
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
