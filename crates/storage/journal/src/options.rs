//! The journal's options, and the values that it returns: [`Options`], [`Recovered`], [`Stats`], [`Record`].

use std::sync::Arc;

use encryption::Sealer;

use crate::error::JournalError;
use crate::format::BLOCK_BYTES;
use crate::lsn::Lsn;

/// Layout and memory of a journal. Every value may change from one opening to the next.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of new segments, a multiple of 4096, at least 16 KiB. Default 64 MiB. Space is freed in whole segments. A
    /// segment is preallocated before it is needed, so the shelf contains up to two more than the log fills.
    pub segment_bytes: u64,
    /// Largest payload of a record; at most 1 GiB. Default 64 MiB. Records may be larger than a buffer or a segment.
    pub max_record_bytes: u64,
    /// Size of one log buffer, and the limit of one write; a multiple of 4096, 8 KiB to 16 MiB. Default 1 MiB. The
    /// memory used is [`BUFFERS`] times this.
    pub buffer_bytes: u64,
    /// How many truncated segments are kept for reuse, which saves their allocation. Default 2.
    pub spare_segments: usize,
    /// Which thread prepares the next segment. Default [`Preparation::Background`].
    pub preparation: Preparation,
    /// How much of the log is verified when it is opened. Default [`Check::Everything`].
    pub check: Check,
    /// Distinguishes the segments of this journal from another's; used when a journal is created. 0, the default, draws
    /// one.
    pub identity: u32,
    /// Encrypts and decrypts what is stored. `None`, the default: a clear journal. It must be what the journal was created with.
    pub sealer: Option<Arc<Sealer>>,
}

/// Number of log buffers: one being filled, two in flight, one sealed and waiting.
pub const BUFFERS: usize = 4;

/// Largest [`Options::max_record_bytes`]: recovery and readers may need this much memory for one record.
pub const RECORD_BYTES_LIMIT: u64 = 1 << 30;

/// Which thread prepares the next segment before the current one is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// A dedicated thread, once half of the current segment is used; no commit waits for it.
    Background,
    /// The append that needs it: no thread, so every run with one caller is the same. For simulations and tools.
    Inline,
}

/// How much of the log is verified when it is opened. Either way the same end is found, and damage in the verified part
/// is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Every byte: damage anywhere is found now and not when it is read. Takes about a second per GiB (measured
    /// 2026-11-21: 1.1 s for 1 GiB, 2 cores under load, virtual disk).
    Everything,
    /// From the last segment that is known to be persistent: one to three segments, however long the log is. Earlier
    /// damage is found when it is read, or by [`crate::verify`].
    Tail,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            segment_bytes: 64 << 20,
            max_record_bytes: 64 << 20,
            buffer_bytes: 1 << 20,
            spare_segments: 2,
            preparation: Preparation::Background,
            check: Check::Everything,
            identity: 0,
            sealer: None,
        }
    }
}

impl Options {
    /// The largest number of file descriptors that a journal on a shelf of files uses at a time, however much is
    /// stored: two for each segment that is written or prepared, one for each segment that is read, and those of the
    /// shelf.
    pub const fn descriptors(&self) -> u64 {
        const WRITTEN: u64 = 4;
        const SHELF: u64 = 4;
        2 * WRITTEN + crate::segment::READING_MAX as u64 + SHELF
    }

    /// Errors: [`JournalError::Options`].
    pub(crate) fn check(&self) -> Result<(), JournalError> {
        let aligned = |bytes: u64| bytes.is_multiple_of(BLOCK_BYTES);
        if !aligned(self.segment_bytes) || !(4 * BLOCK_BYTES..=1 << 40).contains(&self.segment_bytes) {
            return Err(JournalError::Options("segment_bytes must be a multiple of 4096 from 16 KiB to 1 TiB"));
        }
        if !aligned(self.buffer_bytes) || !(2 * BLOCK_BYTES..=16 << 20).contains(&self.buffer_bytes) {
            return Err(JournalError::Options("buffer_bytes must be a multiple of 4096 from 8 KiB to 16 MiB"));
        }
        if self.max_record_bytes == 0 || self.max_record_bytes > RECORD_BYTES_LIMIT {
            return Err(JournalError::Options("max_record_bytes must be from 1 to 1 GiB"));
        }
        Ok(())
    }
}

/// What opening found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The oldest position: every record starts after it.
    pub first: Lsn,
    /// The end of the recovered log; the next record comes after it.
    pub end: Lsn,
    /// Bytes of unacknowledged batches and of an unfinished record that were dropped at the end. Bytes that never
    /// reached the medium are not counted.
    pub torn_bytes: u64,
    /// Segments of the log, including the one that is prepared ahead.
    pub segments: usize,
    /// Complete records in the verified part: in the whole log with [`Check::Everything`].
    pub records: u64,
}

/// A record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The LSN that `append` returned.
    pub lsn: Lsn,
    /// The caller's kind.
    pub kind: u8,
    /// The parts, joined.
    pub payload: Vec<u8>,
}

/// Classes of [`GroupCommits`]: up to 4 GiB.
pub const COMMIT_CLASSES: usize = 464;
/// Bits of a value that tell classes apart.
const CLASS_BITS: u32 = 4;

/// How large records are, and how many share a flush, since somebody asked for them first: how often a value was in each class. Values below 16 have a
/// class each; further ones are as wide as a sixteenth of their power of two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupCommits {
    /// Records by the bytes of their payloads.
    pub record_bytes: [u64; COMMIT_CLASSES],
    /// Batches by the number of records that they completed: as many commits waited for one flush.
    pub batch_records: [u64; COMMIT_CLASSES],
}

impl Default for GroupCommits {
    fn default() -> GroupCommits {
        GroupCommits { record_bytes: [0; COMMIT_CLASSES], batch_records: [0; COMMIT_CLASSES] }
    }
}

impl GroupCommits {
    pub(crate) fn class(value: u64) -> usize {
        if value < 1 << CLASS_BITS {
            return value as usize;
        }
        let power = u64::BITS - 1 - value.leading_zeros();
        let within = (value >> (power - CLASS_BITS)) as usize & ((1 << CLASS_BITS) - 1);
        ((((power - CLASS_BITS + 1) as usize) << CLASS_BITS) + within).min(COMMIT_CLASSES - 1)
    }

    /// The largest value of a class; the last one has all that are larger too.
    pub fn largest(class: usize) -> u64 {
        let (power, within) = (class >> CLASS_BITS, (class & ((1 << CLASS_BITS) - 1)) as u64);
        match power {
            0 => within,
            _ => (((1 << CLASS_BITS) + within + 1) << (power - 1)) - 1,
        }
    }
}

/// Counters of the journal since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Batches written; each is one write and one flush.
    pub batches: u64,
    /// Bytes written, including headers and padding.
    pub written_bytes: u64,
    /// Nanoseconds that writes took with their flushes, those that overlap counted each. Not those of [`crate::Committer`], whose path
    /// is too short to be timed.
    pub write_ns: u64,
    /// The largest number of records that one batch completed.
    pub batch_records_max: u64,
    /// Batches that were started while another was in flight.
    pub batches_overlapped: u64,
    /// Segments created by allocation.
    pub segments_created: u64,
    /// Segments created from truncated ones.
    pub segments_recycled: u64,
    /// Appends that waited for a buffer or for the next segment.
    pub appends_delayed: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_class_whose_largest_is_at_most_a_sixteenth_larger() {
        let mut before = 0;
        for value in (0..2000)
            .chain((11..32).flat_map(|power| [(1 << power) - 1, 1 << power, (1 << power) + 12_345 % (1 << power)]))
        {
            let class = GroupCommits::class(value);
            let largest = GroupCommits::largest(class);
            assert!(largest >= value && largest - value <= value / 16, "{value}: {largest}");
            assert!(class >= before || value > 2000, "{value}");
            before = class;
        }
        assert_eq!(GroupCommits::class(u64::MAX), COMMIT_CLASSES - 1);
        assert_eq!(GroupCommits::largest(COMMIT_CLASSES - 1), (1 << 32) - 1);
    }
}
