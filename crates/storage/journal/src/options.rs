//! What a caller sets, and what it is told: [`Options`], [`Recovered`], [`Stats`], [`Record`].

use crate::error::JournalError;
use crate::format::BLOCK_BYTES;
use crate::lsn::Lsn;

/// How a journal is laid out and how much memory it takes. Every value may change from one opening to the next.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of the segments made from now on, a multiple of 4096, at least 16 KiB. Default 64 MiB. Space is given back
    /// in units of this; a segment is preallocated ahead of need, so the shelf holds up to two more than the log fills.
    pub segment_bytes: u64,
    /// Largest payload of a record; at most 1 GiB. Default 64 MiB. Records may be larger than a buffer or a segment.
    pub max_record_bytes: u64,
    /// Size of one log buffer, and the most that one write carries; a multiple of 4096, 8 KiB to 16 MiB. Default 1 MiB.
    /// Memory used is [`BUFFERS`] times this.
    pub buffer_bytes: u64,
    /// How many truncated segments are kept to be used again, which spares their allocation. Default 2.
    pub spare_segments: usize,
    /// Who makes the next segment ready. Default [`Preparation::Background`].
    pub preparation: Preparation,
    /// How much of the log opening checks. Default [`Check::Everything`].
    pub check: Check,
    /// Tells the segments of one journal from another's; used when a journal is created. 0, the default, draws one.
    pub identity: u32,
}

/// Number of log buffers: one being filled, two in flight, one sealed behind them.
pub const BUFFERS: usize = 4;

/// Largest [`Options::max_record_bytes`]: what recovery and readers may have to hold in memory for one record.
pub const RECORD_BYTES_LIMIT: u64 = 1 << 30;

/// Who makes the next segment ready before the current one is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preparation {
    /// A thread of the journal's own, from half of the current segment on; no commit waits for it.
    Background,
    /// The append that needs it: no thread, every run of one caller alike. For simulations and tools.
    Inline,
}

/// How much of the log opening checks. Either way it finds the same end and refuses damage in what it checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Every byte: damage anywhere is found now rather than when it is read. Takes about a second per GiB (measured
    /// 2026-11-21: 1.1 s for 1 GiB, 2 cores under load, virtual disk).
    Everything,
    /// From the last segment that is known to be persistent: one to three segments, however long the log. Damage before
    /// that is found when it is read, or by [`crate::verify`].
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
        }
    }
}

impl Options {
    /// Most file descriptors that a journal on a shelf of files holds at a time, however much is stored: two for each segment
    /// that is written or made ready, one for each of those that are read, and those of the shelf.
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
    /// The oldest position: every record there is starts behind it.
    pub first: Lsn,
    /// The end of what was recovered; the next record comes behind it.
    pub end: Lsn,
    /// Bytes of unacknowledged batches and of an unfinished record that were dropped at the end. Not counted is what
    /// never reached the medium.
    pub torn_bytes: u64,
    /// Segments that the log occupies, the one prepared ahead included.
    pub segments: usize,
    /// Complete records found in what was checked: in the whole log with [`Check::Everything`].
    pub records: u64,
}

/// A record as it was appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// What `append` returned.
    pub lsn: Lsn,
    /// The caller's kind.
    pub kind: u8,
    /// The parts, joined.
    pub payload: Vec<u8>,
}

/// What the journal has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Records appended.
    pub records: u64,
    /// Bytes of their payloads.
    pub payload_bytes: u64,
    /// Batches written; each is one write and one flush.
    pub batches: u64,
    /// Bytes written, with headers and padding.
    pub written_bytes: u64,
    /// Most records that one batch completed.
    pub batch_records_max: u64,
    /// Batches that were started while another was in flight.
    pub batches_overlapped: u64,
    /// Segments made by allocating.
    pub segments_created: u64,
    /// Segments made from truncated ones.
    pub segments_recycled: u64,
    /// Appends that waited for a buffer or for the next segment.
    pub appends_delayed: u64,
}
