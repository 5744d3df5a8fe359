//! The file of a profile. All numbers are little-endian.
//!
//! ```text
//!   file      0   8  "TERRPROF"
//!             8   4  version: 3; 2 had nothing beside the page cache, 1 no pages that were made
//!            12   4  CRC-32C of the 12 bytes before
//!            16      sections: HEAD, REUS, then STRM as often as needed, TAIL; nothing behind
//!
//!   section   0   4  kind, four letters
//!             4   4  number of the section, from 0
//!             8   8  bytes that follow the header
//!            16   8  bytes when unpacked (deflate, RFC 1951)
//!            24   4  CRC-32C of the bytes that follow
//!            28   4  CRC-32C of the 28 bytes before
//!            32      the bytes, packed
//!
//!   HEAD      the summary, JSON (summary.rs)
//!   REUS      for each interval, for each structure:
//!             0   8  accesses          8   8  first accesses, IEEE 754        16   4  n: buckets that are not empty
//!            20      n times: 2 bucket of the histogram (histogram.rs), 8 count, IEEE 754
//!   STRM      a chunk of the stream (chunk.rs)
//!   TAIL      4 sections before this one, 8 entries of the stream
//!
//!   part      of a profile that is being recorded: the same, but its first bytes are "TERRPART", and its sections are STRM and STAT only
//!   STAT      what was known at that moment: 8 bytes of HEAD, HEAD, REUS
//! ```
//!
//! Invariants of reading: no section is taken to be larger than [`SECTION_BYTES_MAX`], packed or not; nothing is allocated for a length
//! before it was compared with that, nor are more than [`REUSE_BUCKETS_MAX`] buckets. A profile without its tail was cut off, and is refused.

use std::io::{Read, Write};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use crate::ProfileError;
use crate::reuse::{BUCKETS, Histogram, ReuseCounts};
use crate::summary::{StructureUse, Summary};

/// The version of the file.
pub const VERSION: u32 = 3;
/// Bytes of a section at most, packed and unpacked.
pub(crate) const SECTION_BYTES_MAX: u64 = 64 << 20;
/// Buckets of all histograms of a profile at most, empty ones below the largest too: they take 8 bytes each in memory, and a few bytes of a file
/// name the largest.
pub(crate) const REUSE_BUCKETS_MAX: usize = 16 << 20;
/// Sections at most.
pub(crate) const SECTIONS_MAX: u32 = 1 << 20;
/// The first bytes of a file.
pub(crate) const MAGIC: &[u8; 8] = b"TERRPROF";
/// The first bytes of a part.
pub(crate) const PART_MAGIC: &[u8; 8] = b"TERRPART";
pub(crate) const FILE_HEADER_BYTES: usize = 16;
pub(crate) const SECTION_HEADER_BYTES: usize = 32;

/// The kind of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Head,
    Reuse,
    Stream,
    Tail,
    State,
}

impl Kind {
    fn letters(self) -> [u8; 4] {
        match self {
            Kind::Head => *b"HEAD",
            Kind::Reuse => *b"REUS",
            Kind::Stream => *b"STRM",
            Kind::Tail => *b"TAIL",
            Kind::State => *b"STAT",
        }
    }

    fn of(letters: &[u8]) -> Option<Kind> {
        [Kind::Head, Kind::Reuse, Kind::Stream, Kind::Tail, Kind::State]
            .into_iter()
            .find(|kind| kind.letters() == letters)
    }
}

/// The checksum of everything here.
pub(crate) fn checksum(bytes: &[u8]) -> u32 {
    crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

/// The first bytes of a file.
pub(crate) fn file_header(magic: &[u8; 8]) -> [u8; FILE_HEADER_BYTES] {
    let mut header = [0; FILE_HEADER_BYTES];
    header[..8].copy_from_slice(magic);
    header[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let sum = checksum(&header[..12]);
    header[12..].copy_from_slice(&sum.to_le_bytes());
    header
}

/// Packs the content of a section.
pub(crate) fn pack(content: &[u8]) -> Result<Vec<u8>, ProfileError> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

/// Unpacks it; `None` if it is not packed so, or has another length than `bytes`.
pub(crate) fn unpack(packed: &[u8], bytes: u64) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let mut decoder = DeflateDecoder::new(packed).take(bytes.min(SECTION_BYTES_MAX) + 1);
    decoder.read_to_end(&mut content).ok()?;
    (content.len() as u64 == bytes).then_some(content)
}

/// What the header of a section says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SectionHeader {
    pub(crate) kind: Kind,
    pub(crate) number: u32,
    pub(crate) packed: u64,
    pub(crate) unpacked: u64,
    pub(crate) checksum: u32,
}

impl SectionHeader {
    pub(crate) fn encode(self) -> [u8; SECTION_HEADER_BYTES] {
        let mut header = [0; SECTION_HEADER_BYTES];
        header[..4].copy_from_slice(&self.kind.letters());
        header[4..8].copy_from_slice(&self.number.to_le_bytes());
        header[8..16].copy_from_slice(&self.packed.to_le_bytes());
        header[16..24].copy_from_slice(&self.unpacked.to_le_bytes());
        header[24..28].copy_from_slice(&self.checksum.to_le_bytes());
        let sum = checksum(&header[..28]);
        header[28..].copy_from_slice(&sum.to_le_bytes());
        header
    }

    /// Decodes and checks it. Errors: what is wrong, in words.
    pub(crate) fn decode(header: &[u8; SECTION_HEADER_BYTES]) -> Result<SectionHeader, &'static str> {
        let mut fields = Fields(header);
        let (letters, number) = (fields.take(4).unwrap_or_default(), fields.u32().unwrap_or_default());
        let (packed, unpacked) = (fields.u64().unwrap_or_default(), fields.u64().unwrap_or_default());
        let (sum, own) = (fields.u32().unwrap_or_default(), fields.u32().unwrap_or_default());
        if own != checksum(&header[..28]) {
            return Err("the header of a section does not match its checksum");
        }
        let kind = Kind::of(letters).ok_or("a section of an unknown kind")?;
        if packed > SECTION_BYTES_MAX || unpacked > SECTION_BYTES_MAX {
            return Err("a section is larger than a section can be");
        }
        Ok(SectionHeader { kind, number, packed, unpacked, checksum: sum })
    }
}

/// Writes a section of packed content.
pub(crate) fn write_section(
    out: &mut impl Write,
    kind: Kind,
    number: u32,
    packed: &[u8],
    unpacked: u64,
) -> Result<(), ProfileError> {
    if packed.len() as u64 > SECTION_BYTES_MAX || unpacked > SECTION_BYTES_MAX {
        return Err(ProfileError::Refused(format!("a section of a profile has more than {SECTION_BYTES_MAX} bytes")));
    }
    let header = SectionHeader { kind, number, packed: packed.len() as u64, unpacked, checksum: checksum(packed) };
    out.write_all(&header.encode())?;
    out.write_all(packed)?;
    Ok(())
}

/// The reuse of all intervals.
pub(crate) fn encode_reuse(summary: &Summary) -> Vec<u8> {
    let mut out = Vec::new();
    for used in summary.intervals.iter().flat_map(|interval| &interval.structures) {
        let reuse = &used.reuse;
        out.extend(reuse.accesses.to_le_bytes());
        out.extend(reuse.first.to_bits().to_le_bytes());
        out.extend((reuse.distances.buckets().count() as u32).to_le_bytes());
        for (bucket, count) in reuse.distances.buckets() {
            out.extend((bucket as u16).to_le_bytes());
            out.extend(count.to_bits().to_le_bytes());
        }
    }
    out
}

/// Puts the decoded reuse into the summary; `None` if it does not fit, or has more than [`REUSE_BUCKETS_MAX`] buckets.
pub(crate) fn decode_reuse(bytes: &[u8], summary: &mut Summary) -> Option<()> {
    let (mut fields, mut room) = (Fields(bytes), REUSE_BUCKETS_MAX);
    for used in summary.intervals.iter_mut().flat_map(|interval| &mut interval.structures) {
        used.reuse = reuse_of(&mut fields, used, &mut room)?;
    }
    fields.0.is_empty().then_some(())
}

/// Takes its buckets from `room`, before they are made.
fn reuse_of(fields: &mut Fields<'_>, used: &StructureUse, room: &mut usize) -> Option<ReuseCounts> {
    let accesses = fields.u64()?;
    let first = fields.count()?;
    if used.reads.checked_add(used.writes) != Some(accesses) {
        return None;
    }
    let mut distances = Histogram::default();
    let mut next = 0;
    for _ in 0..fields.u32()? {
        let bucket = usize::from(fields.u16()?);
        // By rising buckets, so that there are at most as many as there can be.
        if bucket < next || bucket >= BUCKETS {
            return None;
        }
        *room = room.checked_sub(bucket + 1 - next)?;
        next = bucket + 1;
        distances.add_to(bucket, fields.count()?);
    }
    Some(ReuseCounts { accesses, first, distances })
}

/// Reads numbers from bytes.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    pub(crate) fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        Some(u16::from_le_bytes(self.take(2)?.try_into().ok()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    /// A real number that can be a count.
    fn count(&mut self) -> Option<f64> {
        let count = f64::from_bits(self.u64()?);
        (count.is_finite() && (0.0..=1e30).contains(&count)).then_some(count)
    }

    /// A number in groups of seven bits, lowest first; bit 7 is set while more follow.
    pub(crate) fn varint(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return None;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

/// Writes such a number.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
