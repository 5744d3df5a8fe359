//! The directory of a shelf on one device: its bytes, and which of two slots holds.
//!
//! ```text
//!   slot      | header, 64 bytes | part | part | ... | zeros to the end of the block |
//!
//!   header     0  magic "TERRSHLF"
//!              8  version, u32: 1
//!             12  CRC-32C of bytes 16 to the end of the parts, u32
//!             16  generation, u64: one more with each change
//!             24  bytes of the device, u64
//!             32  bytes of the parts, u32
//!             36  number of parts, u32
//!             40  zeros
//!
//!   part       0  bytes of the name, u8
//!              1  number of runs, u8: 1 to 64
//!              2  name
//!              .  runs: start u64, end u64, each in bytes from the start of the device, multiples of 4,096
//! ```
//!
//! All numbers are little-endian. A slot is 1/1024 of the device, between 16 KiB and 1 MiB, in whole blocks.
//!
//! A change writes A, then B, and returns when both are persistent. So the pairs are:
//!
//! | A | B | meaning |
//! |---|---|---|
//! | n | n | at rest |
//! | n + 1 | n | a crash between the two writes: n + 1, which nobody was told of, holds |
//! | damaged | n | a crash inside the write of A, or damage: n holds, for what was told is in both |
//! | n | damaged | a crash inside the write of B, or damage: n holds |
//! | blank | n | as damaged: a write may be torn at its first sector |
//! | damaged or blank | damaged | nothing can be known: refused |
//! | blank | blank | no shelf |

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crc_fast::crc32_iscsi;

use super::RUNS_MAX;
use crate::contract::is_name;
use crate::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError};

const MAGIC: &[u8; 8] = b"TERRSHLF";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 64;
/// The bytes before those that the checksum covers.
const UNSUMMED: usize = 16;
const RUN_BYTES: usize = 16;

/// Smallest slot, bytes: about 300 parts with names of 30 bytes.
pub(super) const SLOT_BYTES_MIN: u64 = 16 << 10;
/// Largest slot, bytes: about 20,000 parts.
const SLOT_BYTES_MAX: u64 = 1 << 20;

/// Bytes of a slot on a device of so many bytes.
pub(super) fn slot_bytes(device_bytes: u64) -> u64 {
    (device_bytes >> 10).next_multiple_of(BLOCK_BYTES as u64).clamp(SLOT_BYTES_MIN, SLOT_BYTES_MAX)
}

/// The parts of a shelf, as one generation of the directory lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) generation: u64,
    pub(super) parts: BTreeMap<String, Vec<Range<u64>>>,
}

/// What a slot contains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SlotContent {
    /// It does not begin as a directory does.
    Blank,
    /// It begins as one, and cannot be used, for this reason.
    Damaged(String),
    Whole(Directory),
}

impl Directory {
    /// The content of a slot, in whole blocks; `None` if it is larger than a slot.
    pub(super) fn encode(&self, device_bytes: u64) -> Option<AlignedBuffer> {
        let mut out = AlignedBuffer::zeroed(HEADER_BYTES);
        for (name, runs) in &self.parts {
            assert!(is_name(name) && (1..=RUNS_MAX).contains(&runs.len()), "a part that could be made");
            out.extend_from_slice(&[name.len() as u8, runs.len() as u8]);
            out.extend_from_slice(name.as_bytes());
            for run in runs {
                out.extend_from_slice(&run.start.to_le_bytes());
                out.extend_from_slice(&run.end.to_le_bytes());
            }
        }
        if out.len() as u64 > slot_bytes(device_bytes) {
            return None;
        }
        let body = (out.len() - HEADER_BYTES) as u32;
        out[..8].copy_from_slice(MAGIC);
        out[8..12].copy_from_slice(&VERSION.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&device_bytes.to_le_bytes());
        out[32..36].copy_from_slice(&body.to_le_bytes());
        out[36..40].copy_from_slice(&(self.parts.len() as u32).to_le_bytes());
        let sum = crc32_iscsi(&out[UNSUMMED..]);
        out[12..16].copy_from_slice(&sum.to_le_bytes());
        out.pad_to_block();
        Some(out)
    }

    /// Reads a slot of a device of `device_bytes`. Accepts only what `encode` can have written.
    pub(super) fn decode(slot: &[u8], device_bytes: u64) -> SlotContent {
        if slot.len() < HEADER_BYTES || slot[..8] != MAGIC[..] {
            return SlotContent::Blank;
        }
        match decode_whole(slot, device_bytes) {
            Ok(directory) => SlotContent::Whole(directory),
            Err(what) => SlotContent::Damaged(what),
        }
    }
}

fn decode_whole(slot: &[u8], device_bytes: u64) -> Result<Directory, String> {
    let u32_at = |at: usize| u32::from_le_bytes(slot[at..at + 4].try_into().expect("4 bytes"));
    let u64_at = |at: usize| u64::from_le_bytes(slot[at..at + 8].try_into().expect("8 bytes"));
    if u32_at(8) != VERSION {
        return Err(format!("version {}, this program reads {VERSION}", u32_at(8)));
    }
    let end = HEADER_BYTES.saturating_add(u32_at(32) as usize);
    let summed = slot.get(UNSUMMED..end).ok_or("longer than its slot")?;
    if crc32_iscsi(summed) != u32_at(12) {
        return Err("its checksum is wrong".into());
    }
    if u64_at(24) != device_bytes {
        return Err(format!("made for a device of {} bytes, this one has {device_bytes}", u64_at(24)));
    }
    let mut rest = &slot[HEADER_BYTES..end];
    let mut parts = BTreeMap::new();
    for _ in 0..u32_at(36) {
        let (name, runs) = decode_part(&mut rest)?;
        if parts.insert(name.clone(), runs).is_some() {
            return Err(format!("two parts are named {name}"));
        }
    }
    if !rest.is_empty() {
        return Err("bytes after the last part".into());
    }
    check_runs(&parts, device_bytes)?;
    Ok(Directory { generation: u64_at(16), parts })
}

fn decode_part(rest: &mut &[u8]) -> Result<(String, Vec<Range<u64>>), String> {
    let cut = || "a part is cut off".to_owned();
    let (counts, after) = rest.split_at_checked(2).ok_or_else(cut)?;
    let (name, after) = after.split_at_checked(usize::from(counts[0])).ok_or_else(cut)?;
    let runs = usize::from(counts[1]);
    let (listed, after) = after.split_at_checked(runs * RUN_BYTES).ok_or_else(cut)?;
    let name = std::str::from_utf8(name).ok().filter(|name| is_name(name)).ok_or("a name is not one")?;
    if !(1..=RUNS_MAX).contains(&runs) {
        return Err(format!("{name} has {runs} runs"));
    }
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let runs = listed.chunks_exact(RUN_BYTES).map(|run| number(&run[..8])..number(&run[8..]));
    *rest = after;
    Ok((name.to_owned(), runs.collect()))
}

fn check_runs(parts: &BTreeMap<String, Vec<Range<u64>>>, device_bytes: u64) -> Result<(), String> {
    let block = BLOCK_BYTES as u64;
    let mut runs: Vec<(&Range<u64>, &str)> =
        parts.iter().flat_map(|(name, runs)| runs.iter().map(|run| (run, name.as_str()))).collect();
    runs.sort_by_key(|(run, _)| run.start);
    let mut free_from = 2 * slot_bytes(device_bytes);
    for (run, name) in runs {
        let is_aligned = run.start.is_multiple_of(block) && run.end.is_multiple_of(block);
        if !is_aligned || run.start < free_from || run.end <= run.start || run.end > device_bytes {
            return Err(format!("{name} lies at {run:?}, where it cannot"));
        }
        free_from = run.end;
    }
    Ok(())
}

/// Reads both slots.
///
/// Errors: those of reading.
pub(super) fn read_slots(device: &Arc<dyn Device>) -> Result<[SlotContent; 2], DeviceError> {
    let bytes = slot_bytes(device.len());
    let mut slot = AlignedBuffer::zeroed(bytes as usize);
    let mut read = |offset| match device.read(offset, &mut slot) {
        Ok(()) => Ok(Directory::decode(&slot, device.len())),
        // The medium lost a part of one slot: the other one decides.
        Err(lost @ DeviceError::Lost { .. }) => Ok(SlotContent::Damaged(lost.to_string())),
        Err(error) => Err(error),
    };
    Ok([read(0)?, read(bytes)?])
}

/// The directory that holds, and whether both slots contain it. The error is what is wrong, or `None` if there is no shelf.
pub(super) fn choose([a, b]: [SlotContent; 2]) -> Result<(Directory, bool), Option<String>> {
    use SlotContent::{Blank, Damaged, Whole};
    match (a, b) {
        (Whole(a), Whole(b)) if a == b => Ok((a, true)),
        (Whole(a), Whole(b)) if a.generation == b.generation => {
            Err(Some(format!("its two slots are different directories of generation {}", a.generation)))
        }
        (Whole(a), Whole(b)) => Ok((if a.generation > b.generation { a } else { b }, false)),
        (Whole(one), _) | (_, Whole(one)) => Ok((one, false)),
        (Damaged(a), Damaged(b)) => Err(Some(format!("the directory is damaged in both slots: {a}; {b}"))),
        (Damaged(what), Blank) | (Blank, Damaged(what)) => {
            Err(Some(format!("the directory is damaged in one slot ({what}) and absent in the other")))
        }
        (Blank, Blank) => Err(None),
    }
}
