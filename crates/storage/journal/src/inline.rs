//! Append and commit in one go, where a write is a matter of instructions.
//!
//! ```text
//!   general    checksum | lock, copy, unlock | lock, write, unlock
//!   here       lock, copy | stage everything behind the first unit | checksum | headers | write the first unit, fence
//!                                 bytes on their way to the medium ------------------->
//! ```
//!
//! A record of 1 KiB takes about as long to checksum as to store past the cache, and the two can overlap: the stores leave the
//! core by themselves. So the checksum is computed behind them, and the first unit, which holds the headers, is
//! written last, with the one fence. The order is free to choose because a batch certifies itself: until the
//! first unit is there, nothing says that the rest is one.
//!
//! Only a record alone in its batch goes this way: nothing else being filled, waiting or in flight, no segment to wait for,
//! and short enough that holding the lock meanwhile costs others less than a wake-up. All others take the general way; what
//! lies on the medium is the same.
//!
//! Measured 2026-11-21 (EPYC, 2 cores, a mapping of tmpfs, 1 KiB records, clock included): see the essay of the crate.

use device::DeviceError;

use crate::append::crc_of;
use crate::error::JournalError;
use crate::lsn::Lsn;
use crate::pipeline::Laid;
use crate::shared::{FailOnPanic, Guard, Shared, State};

/// The longest payload that goes this way: some microseconds under the lock.
const PAYLOAD_BYTES_MAX: usize = 16 << 10;

impl Shared {
    /// Appends a record and returns when it is persistent.
    pub(crate) fn append_commit(&self, kind: u8, parts: &[&[u8]]) -> Result<Lsn, JournalError> {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if self.inline && bytes <= PAYLOAD_BYTES_MAX.min(self.options.max_record_bytes as usize) {
            // Declared before the guard, so that a panic lets go of the lock first.
            let panicking = FailOnPanic(self);
            let mut state = self.lock();
            state.check()?;
            let lsn = self.try_at_once(&mut state, kind, parts, bytes);
            drop(state);
            std::mem::forget(panicking);
            if let Some(lsn) = lsn {
                return lsn;
            }
        }
        let lsn = self.append(kind, parts)?;
        self.commit_record(lsn)?;
        Ok(lsn)
    }

    /// `None`: not this way.
    fn try_at_once(
        &self,
        guard: &mut Guard<'_>,
        kind: u8,
        parts: &[&[u8]],
        bytes: usize,
    ) -> Option<Result<Lsn, JournalError>> {
        let state: &mut State = guard;
        if state.turn || !state.pipeline.is_idle() {
            return None;
        }
        if state.pipeline.is_between_batches() && !state.open_batch(self) {
            return None;
        }
        let mut laid = state.pipeline.lay(kind, parts, bytes)?;
        let (lsn, offset) = (laid.lsn(), state.tail.offset(laid.start()));
        let device = &*state.tail_device;
        let written = write(device, offset, &mut laid, parts);
        let failed = written.is_err();
        state.stats.records += 1;
        state.stats.payload_bytes += bytes as u64;
        state.stats.batches += 1;
        state.stats.written_bytes += laid.bytes() as u64;
        state.stats.batch_records_max = state.stats.batch_records_max.max(1);
        state.pipeline.settle(laid, written);
        self.publish_durable(state);
        if failed {
            self.wake_everybody();
            return Some(state.check().map(|()| lsn));
        }
        if state.tail.end() <= state.pipeline.persisted() {
            state.tail.finish();
        }
        if state.append_waiters > 0 {
            self.appended.notify_all();
        }
        Some(Ok(lsn))
    }
}

/// The body first, the checksum while it is on its way, the head last.
fn write(device: &dyn device::Device, offset: u64, laid: &mut Laid, parts: &[&[u8]]) -> Result<(), DeviceError> {
    let (head, body) = laid.split();
    let head_bytes = head.len() as u64;
    if !body.is_empty() {
        device.stage(offset + head_bytes, body)?;
    }
    laid.certify(crc_of(parts));
    let (head, _) = laid.split();
    device.write_flush(offset, head)
}
