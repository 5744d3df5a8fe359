//! The bytes on the medium: segment headers and frames. `format.md` beside `src` has a picture of them.
//!
//! ```text
//! segment   | header, one block | batch | batch | ...                                   base = LSN of its first byte
//! batch     | batch frame 48 B | frame | frame | ... | zeros up to the next unit        starts on a multiple of the unit
//! frame     | header 32 B | payload | zeros up to a multiple of 8 |
//!
//! frame header:  0 header_crc u32 | 4 payload_crc u32 | 8 lsn u64 | 16 epoch u32, 20 identity u32
//!               24 payload_bytes u32 | 28 flags u8 | 29 kind u8 | 30 zero u16
//! batch frame:   flags has BATCH; payload = durable u64 | batch_bytes u32 | records u32
//! ```
//!
//! Integers are little endian. Everything in the log is a frame: one function decides whether bytes are valid, and a
//! reader may begin at any frame. There are two checksums because the appending thread computes the payload's before its
//! LSN is assigned; the header's, over 28 bytes, is computed under the lock.
//!
//! In an encrypted journal (version 3) a payload is its ciphertext and a seal of 40 bytes, and a batch frame's payload is followed by a seal
//! of its own, see [`mod@crate::encrypt`]. Checksums are over what is stored: no key is needed to find the end of the log.
//!
//! This module only encodes and checks: it does not read a device, and does not look before or after a frame.

use encryption::{KeyMark, MARK_BYTES, SEAL_BYTES};

use crate::checksum;
use crate::lsn::{Lsn, Nonce};

/// Segments and their headers are multiples of this. It is the size of one read on every medium.
pub const BLOCK_BYTES: u64 = 4096;
/// The smallest unit of a batch. Batches start and end on multiples of their segment's unit, and no byte of a unit is
/// written twice. The unit is what one write to the device requires: a block on drives; 256 bytes on persistent memory,
/// the unit in which modules access their medium (FAST 2020, Yang et al.), so that no module reads before it writes.
pub const UNIT_BYTES_MIN: u32 = 256;
/// Bytes before every payload.
pub const FRAME_HEADER_BYTES: usize = 32;
/// A batch frame: header and payload. In an encrypted journal it is longer, see [`batch_frame_bytes`].
pub const BATCH_FRAME_BYTES: usize = FRAME_HEADER_BYTES + BATCH_PAYLOAD_BYTES;
/// Frames start on multiples of this, so that a header's integers are aligned.
pub const FRAME_ALIGN: usize = 8;
/// The version of the format that is written. Version 1, in which every unit is a block, is read and continued; others
/// are refused.
pub const VERSION: u32 = 2;
/// The version of an encrypted journal.
pub const VERSION_ENCRYPTED: u32 = 3;

const BATCH_PAYLOAD_BYTES: usize = 16;
const MAGIC: [u8; 8] = *b"TERRJNL\0";
const SEGMENT_HEADER_USED: usize = 52;
const MARK_END: usize = SEGMENT_HEADER_USED + MARK_BYTES;

/// The frame begins a record.
pub const FIRST: u8 = 1;
/// The frame ends a record.
pub const LAST: u8 = 2;
/// The frame is the last of its batch: the next batch starts at the next multiple of the unit.
pub const END: u8 = 4;
/// The frame is a batch frame.
pub const BATCH: u8 = 8;
/// The batch begins an epoch: it was made persistent before anything after it was written. Only with [`BATCH`].
pub const OPEN: u8 = 16;
/// The batch is the last of an epoch that was closed properly; only with [`BATCH`].
pub const CLOSE: u8 = 32;

// Devices take whole blocks of their own size; the journal's blocks must consist of them.
const _: () = assert!((BLOCK_BYTES as usize).is_multiple_of(device::BLOCK_BYTES));
// The header of a batch plus one frame with some payload always fits a unit: room for a batch is room for data.
const _: () = assert!(BATCH_FRAME_BYTES + FRAME_HEADER_BYTES + FRAME_ALIGN + 2 * SEAL_BYTES <= UNIT_BYTES_MIN as usize);
const _: () = assert!(SEAL_BYTES.is_multiple_of(FRAME_ALIGN));

/// A batch frame of a clear or of an encrypted journal.
pub const fn batch_frame_bytes(is_encrypted: bool) -> usize {
    if is_encrypted { BATCH_FRAME_BYTES + SEAL_BYTES } else { BATCH_FRAME_BYTES }
}

/// The unit of the batches on a device that takes blocks of `block_bytes`.
pub fn unit_of(block_bytes: u32) -> u32 {
    assert!(block_bytes.is_power_of_two() && u64::from(block_bytes) <= BLOCK_BYTES);
    block_bytes.max(UNIT_BYTES_MIN)
}

/// The first block of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// LSN of the segment's first byte, which is this header's.
    pub base: Lsn,
    /// Size of the segment, this block included.
    pub bytes: u64,
    /// The journal, and the epoch that prepared the segment.
    pub nonce: Nonce,
    /// Everything before this was persistent when the segment was prepared.
    pub durable: Lsn,
    /// Batches start on multiples of this; a power of two from [`UNIT_BYTES_MIN`] to [`BLOCK_BYTES`].
    pub unit: u32,
    /// The data key with which the journal was encrypted when the segment was prepared; `None` in a clear journal.
    pub encrypted: Option<KeyMark>,
}

/// Why a segment's first block is not a usable header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// Not a journal segment at all.
    Magic,
    /// Written by another version of the format, the given one.
    Version(u32),
    /// The checksum does not match.
    Checksum {
        /// The checksum computed over the block.
        expected: u32,
        /// The checksum stored in the block.
        found: u32,
    },
    /// A unit that no journal uses.
    Unit(u32),
}

impl SegmentHeader {
    /// Encodes the header as its block on the medium.
    pub fn encode(&self, block: &mut [u8]) {
        assert_eq!(block.len() as u64, BLOCK_BYTES);
        assert!(is_unit(self.unit));
        block.fill(0);
        block[0..8].copy_from_slice(&MAGIC);
        let version = if self.encrypted.is_some() { VERSION_ENCRYPTED } else { VERSION };
        block[8..12].copy_from_slice(&version.to_le_bytes());
        block[16..24].copy_from_slice(&self.base.0.to_le_bytes());
        block[24..32].copy_from_slice(&self.bytes.to_le_bytes());
        block[32..36].copy_from_slice(&self.nonce.epoch.to_le_bytes());
        block[36..40].copy_from_slice(&self.nonce.identity.to_le_bytes());
        block[40..48].copy_from_slice(&self.durable.0.to_le_bytes());
        block[48..SEGMENT_HEADER_USED].copy_from_slice(&self.unit.to_le_bytes());
        if let Some(mark) = &self.encrypted {
            block[SEGMENT_HEADER_USED..MARK_END].copy_from_slice(&mark.encode());
        }
        let crc = header_block_crc(block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a block. The checksum covers all 4096 bytes, so the unused ones are known to be zero.
    pub fn decode(block: &[u8]) -> Result<SegmentHeader, HeaderFault> {
        assert_eq!(block.len() as u64, BLOCK_BYTES);
        if block[0..8] != MAGIC {
            return Err(HeaderFault::Magic);
        }
        let version = u32_at(block, 8);
        if !(1..=VERSION_ENCRYPTED).contains(&version) {
            return Err(HeaderFault::Version(version));
        }
        let (expected, found) = (header_block_crc(block), u32_at(block, 12));
        if expected != found {
            return Err(HeaderFault::Checksum { expected, found });
        }
        let unit = if version == 1 { BLOCK_BYTES as u32 } else { u32_at(block, 48) };
        if !is_unit(unit) {
            return Err(HeaderFault::Unit(unit));
        }
        Ok(SegmentHeader {
            base: Lsn(u64_at(block, 16)),
            bytes: u64_at(block, 24),
            nonce: Nonce { epoch: u32_at(block, 32), identity: u32_at(block, 36) },
            durable: Lsn(u64_at(block, 40)),
            unit,
            encrypted: (version == VERSION_ENCRYPTED).then(|| mark_of(block)),
        })
    }
}

fn mark_of(block: &[u8]) -> KeyMark {
    KeyMark::decode(block[SEGMENT_HEADER_USED..].first_chunk().expect("a header is a block"))
}

fn is_unit(unit: u32) -> bool {
    unit.is_power_of_two() && (UNIT_BYTES_MIN..=BLOCK_BYTES as u32).contains(&unit)
}

fn header_block_crc(block: &[u8]) -> u32 {
    checksum::of_parts(&[&block[0..12], &block[16..]])
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// CRC32C of the payload.
    pub payload_crc: u32,
    /// Position of the frame.
    pub lsn: Lsn,
    /// The journal and epoch that wrote it.
    pub nonce: Nonce,
    /// Length of the payload.
    pub payload_bytes: u32,
    /// [`FIRST`], [`LAST`], [`END`]; or [`BATCH`] with [`OPEN`], [`CLOSE`], [`END`].
    pub flags: u8,
    /// The caller's kind of record; 0 in a batch frame.
    pub kind: u8,
}

/// Why bytes are not a frame of this journal at this place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameFault {
    /// The header contains another position: the bytes are from an earlier use of the segment, or were never written.
    Elsewhere {
        /// The position in the header.
        found: Lsn,
    },
    /// The header names another journal.
    Foreign {
        /// The nonce in the header.
        found: Nonce,
    },
    /// The header's checksum does not match.
    Header {
        /// The checksum computed over the header.
        expected: u32,
        /// The checksum stored in the header.
        found: u32,
    },
    /// The payload's checksum does not match.
    Payload {
        /// The checksum in the header.
        expected: u32,
        /// The checksum computed over the payload.
        found: u32,
    },
}

impl Frame {
    /// Writes the header's 32 bytes, with its checksum.
    pub fn encode(&self, out: &mut [u8]) {
        let out: &mut [u8; FRAME_HEADER_BYTES] = out.try_into().expect("a frame header has its length");
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let marks = u32::from(self.flags) | u32::from(self.kind) << 8;
        let words = [
            pair(0, self.payload_crc),
            self.lsn.0,
            pair(self.nonce.epoch, self.nonce.identity),
            pair(self.payload_bytes, marks),
        ];
        // The words are written whole, and the first one is written whole again. Reading them while they are still in
        // the core's store queue then need not wait until they have left it. After stores past the cache, that wait
        // takes as long as the medium.
        for (word, place) in words.iter().zip(out.chunks_exact_mut(8)) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        let crc = checksum::of(&out[4..]);
        out[..8].copy_from_slice(&pair(crc, self.payload_crc).to_le_bytes());
    }

    /// Decodes a header that must lie at `at` and belong to the journal `identity`. The caller checks the epoch.
    pub fn decode(header: &[u8], at: Lsn, identity: u32) -> Result<Frame, FrameFault> {
        let frame = Frame {
            payload_crc: u32_at(header, 4),
            lsn: Lsn(u64_at(header, 8)),
            nonce: Nonce { epoch: u32_at(header, 16), identity: u32_at(header, 20) },
            payload_bytes: u32_at(header, 24),
            flags: header[28],
            kind: header[29],
        };
        if frame.lsn != at {
            return Err(FrameFault::Elsewhere { found: frame.lsn });
        }
        if frame.nonce.identity != identity {
            return Err(FrameFault::Foreign { found: frame.nonce });
        }
        let (expected, found) = (checksum::of(&header[4..FRAME_HEADER_BYTES]), u32_at(header, 0));
        if expected != found {
            return Err(FrameFault::Header { expected, found });
        }
        Ok(frame)
    }

    /// Checks that `payload` matches the header's checksum.
    pub fn check(&self, payload: &[u8]) -> Result<(), FrameFault> {
        assert_eq!(payload.len(), self.payload_bytes as usize);
        let found = checksum::of(payload);
        if found == self.payload_crc { Ok(()) } else { Err(FrameFault::Payload { expected: self.payload_crc, found }) }
    }

    /// What the seal of an encrypted frame binds: the header after its checksums, and so position, journal, epoch, length, flags, kind.
    pub fn place(&self) -> [u8; FRAME_HEADER_BYTES - 8] {
        let mut header = [0; FRAME_HEADER_BYTES];
        self.encode(&mut header);
        *header.last_chunk().expect("the header is longer")
    }

    /// Whether a flag is set.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// From the start of this frame to the start of the next one in the batch.
    pub fn bytes(&self) -> usize {
        frame_bytes(self.payload_bytes as usize)
    }
}

/// The space that a frame with that much payload takes in the log.
pub fn frame_bytes(payload_bytes: usize) -> usize {
    (FRAME_HEADER_BYTES + payload_bytes).next_multiple_of(FRAME_ALIGN)
}

/// Sets [`END`] in the frame whose header starts `header`.
pub fn mark_end(header: &mut [u8]) {
    header[28] |= END;
    let crc = checksum::of(&header[4..FRAME_HEADER_BYTES]);
    header[0..4].copy_from_slice(&crc.to_le_bytes());
}

/// The first frame of a batch: the length of the batch, and what was durable when it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Where the batch starts; a multiple of its segment's unit.
    pub lsn: Lsn,
    /// The journal and epoch that wrote it.
    pub nonce: Nonce,
    /// Everything before this was persistent when the batch was handed to the device. This number distinguishes a torn
    /// tail from corruption; see [`crate::recovery`].
    pub durable: Lsn,
    /// Length from `lsn` to the end of the last frame, without the zeros up to the next unit.
    pub bytes: u32,
    /// How many records end in this batch.
    pub records: u32,
    /// [`OPEN`], [`CLOSE`] or neither.
    pub flags: u8,
}

impl BatchHeader {
    /// Writes the batch frame. A batch without other frames ends with this one. `out` has room for the seal in an encrypted journal;
    /// that is written later, see [`mod@crate::encrypt`].
    pub fn encode(&self, out: &mut [u8]) {
        assert!(out.len() == BATCH_FRAME_BYTES || out.len() == batch_frame_bytes(true));
        assert!(self.lsn.0.is_multiple_of(UNIT_BYTES_MIN.into()), "a batch starts on a unit");
        assert!(self.durable <= self.lsn, "what is durable lies before what is being written");
        assert!(self.bytes as usize >= out.len());
        let end = if self.bytes as usize == out.len() { END } else { 0 };
        let (header, payload) = out.split_at_mut(FRAME_HEADER_BYTES);
        payload[0..8].copy_from_slice(&self.durable.0.to_le_bytes());
        let counts = u64::from(self.bytes) | u64::from(self.records) << 32;
        payload[8..16].copy_from_slice(&counts.to_le_bytes());
        let frame = Frame {
            payload_crc: checksum::of(payload),
            lsn: self.lsn,
            nonce: self.nonce,
            payload_bytes: payload.len() as u32,
            flags: BATCH | self.flags | end,
            kind: 0,
        };
        frame.encode(header);
    }

    /// Decodes a batch frame that must lie at `at`; `bytes` has the length of this journal's batch frames. Returns `None` for a valid frame that does not begin a batch.
    pub fn decode(bytes: &[u8], at: Lsn, identity: u32) -> Result<Option<BatchHeader>, FrameFault> {
        let frame = Frame::decode(&bytes[..FRAME_HEADER_BYTES], at, identity)?;
        if !frame.has(BATCH) || frame.payload_bytes as usize != bytes.len() - FRAME_HEADER_BYTES {
            return Ok(None);
        }
        let payload = &bytes[FRAME_HEADER_BYTES..];
        frame.check(payload)?;
        Ok(Some(BatchHeader {
            lsn: frame.lsn,
            nonce: frame.nonce,
            durable: Lsn(u64_at(payload, 0)),
            bytes: u32_at(payload, 8),
            records: u32_at(payload, 12),
            flags: frame.flags & (OPEN | CLOSE),
        }))
    }

    /// Where the next batch starts, in a segment of that unit.
    pub fn next(&self, unit: u32) -> Lsn {
        self.lsn.plus(u64::from(self.bytes).next_multiple_of(unit.into()))
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes were taken"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes were taken"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(version: u32, unit: u32) -> Vec<u8> {
        let nonce = Nonce { identity: 7, epoch: 2 };
        let header =
            SegmentHeader { base: Lsn(8192), bytes: 65536, nonce, durable: Lsn(4096), unit: 256, encrypted: None };
        let mut block = vec![0; BLOCK_BYTES as usize];
        header.encode(&mut block);
        block[8..12].copy_from_slice(&version.to_le_bytes());
        block[48..52].copy_from_slice(&unit.to_le_bytes());
        let crc = header_block_crc(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block
    }

    #[test]
    fn a_segment_of_version_1_has_blocks_for_units_and_other_versions_and_units_are_refused() {
        let unit = |version, unit| SegmentHeader::decode(&block(version, unit)).map(|header| header.unit);
        assert_eq!(unit(1, 0), Ok(4096));
        for known in [256, 512, 1024, 2048, 4096] {
            assert_eq!(unit(2, known), Ok(known));
        }
        for odd in [0, 8, 128, 300, 8192, u32::MAX] {
            assert_eq!(unit(2, odd), Err(HeaderFault::Unit(odd)));
        }
        assert_eq!(unit(3, 256), Ok(256), "an encrypted one");
        assert_eq!(unit(4, 256), Err(HeaderFault::Version(4)));
        assert_eq!(unit(0, 256), Err(HeaderFault::Version(0)));
    }

    #[test]
    fn a_unit_is_a_device_block_but_never_less_than_a_module_accesses_at_once() {
        assert_eq!([8, 64, 256, 512, 4096].map(unit_of), [256, 256, 256, 512, 4096]);
    }
}
