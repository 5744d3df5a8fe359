//! [`RecordBuffer`]: the memory of a record, used again for a later one.
//!
//! A record is made on the thread of a socket, and freed by the thread that used it last, which is mostly the store's. The
//! allocator did not use such memory again at once: it returned it to the system and took other pages, which the system
//! cleared: 7 to 14 % of the processor time of the sockets' thread in the T4 workload (perf, 2026-11-25). The buffer that was
//! freed last is used first, since it is likely to be in the processor's cache.
//!
//! Invariants: the spare buffers have [`SPARE_BYTES`] at most, and a buffer is at most twice as large as was asked for.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Sizes of the buffers that are kept. Longer records are rare, and small ones are cheap to allocate; in the T4 workload a record
/// has 13 KiB in the mean.
const SIZES: [usize; 11] =
    [4 << 10, 6 << 10, 8 << 10, 12 << 10, 16 << 10, 24 << 10, 32 << 10, 48 << 10, 64 << 10, 96 << 10, 128 << 10];

/// Memory of all spare buffers. Records wait for the slowest receiver: with 8 MiB the T4 workload on a busy machine took
/// pages from the system as often as without spare buffers, with 32 MiB less than half as often (2026-11-25).
const SPARE_BYTES: usize = 32 << 20;

static SPARE: Mutex<Spare> = Mutex::new(Spare { of_size: [const { Vec::new() }; SIZES.len()], bytes: 0 });

/// Buffers without content.
struct Spare {
    /// By their size, see [`SIZES`].
    of_size: [Vec<Vec<u8>>; SIZES.len()],
    /// The sum of the sizes.
    bytes: usize,
}

impl Spare {
    fn lock() -> MutexGuard<'static, Spare> {
        // The guarded code only moves buffers.
        SPARE.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of a record.
#[derive(Debug)]
pub(super) struct RecordBuffer(pub(super) Vec<u8>);

impl RecordBuffer {
    /// An empty buffer with room for so many bytes.
    pub(super) fn with_room(bytes: usize) -> RecordBuffer {
        let Some(size) = SIZES.iter().position(|size| *size >= bytes).filter(|at| SIZES[*at] <= 2 * bytes) else {
            return RecordBuffer(Vec::with_capacity(bytes));
        };
        let mut spare = Spare::lock();
        let found = spare.of_size[size].pop();
        spare.bytes -= found.as_ref().map_or(0, |_| SIZES[size]);
        drop(spare);
        RecordBuffer(found.unwrap_or_else(|| Vec::with_capacity(SIZES[size])))
    }

    /// The bytes, to be shared; whoever uses them last gives the memory back.
    pub(super) fn share(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for RecordBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for RecordBuffer {
    fn drop(&mut self) {
        // One that has grown, or was cut, is of no size that is kept.
        let Some(size) = SIZES.iter().position(|size| *size == self.0.capacity()) else { return };
        self.0.clear();
        let mut spare = Spare::lock();
        if spare.bytes + SIZES[size] <= SPARE_BYTES {
            spare.bytes += SIZES[size];
            spare.of_size[size].push(std::mem::take(&mut self.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Other tests use the spare buffers at the same time, so that this one knows bounds only.
    #[test]
    fn a_buffer_is_empty_and_large_enough_and_few_are_kept() {
        for round in 0..3 {
            let mut shared = Vec::new();
            for bytes in [0, 1, 4096, 4097, 9_000, 20_000, 131_072, 131_073, 1 << 20].into_iter().cycle().take(900) {
                let mut buffer = RecordBuffer::with_room(bytes);
                assert!(buffer.0.is_empty(), "round {round}, {bytes} bytes");
                assert!((bytes..=2 * bytes).contains(&buffer.0.capacity()), "{bytes} bytes");
                buffer.0.resize(bytes, 7);
                shared.push(buffer.share());
            }
            assert!(shared.iter().all(|bytes| bytes.iter().all(|byte| *byte == 7)));
            drop(shared);
            let spare = Spare::lock();
            let sum: usize = spare.of_size.iter().flatten().map(Vec::capacity).sum();
            assert_eq!(sum, spare.bytes);
            assert!(sum <= SPARE_BYTES);
        }
    }
}
