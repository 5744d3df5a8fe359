//! The superblock of a copy: what the copy is, and what it knows of the in-sync set.
//!
//! ```text
//!   device "superblock"   | slot 0, 4096 bytes | slot 1, 4096 bytes |       both written for each change, one after the other
//!
//!   slot  | magic 8 | version 4 | crc 4 | sequence 8 | volume 16 | copy 1, copies 1, min 1, flags 1, journal 4 |
//!         | epoch 8 | mint 8 | in sync 1, zeros 7 | left: 3 x (epoch 8, mint 8) |
//!         | promised 8, mint 8 | check 16 | parts 8 | part: 8 each | zeros |
//! ```
//!
//! An encrypted volume has version 2, so that no older program takes it for one in clear; nothing else differs.
//!
//! Invariants: a change is persistent when both slots are; a crash in between leaves one valid slot at least, also where one was damaged
//! before: that one is written first. The valid slot with the
//! higher sequence counts. So damage to one slot at rest never brings an older set back: the other slot has the same content.

use std::sync::Arc;

use device::{AlignedBuffer, BLOCK_BYTES, Device};

use crate::checksum;
use crate::error::VolumeError;
use crate::geometry::{PARTS_MAX, is_possible};
use crate::members::{COPIES_MAX, Epoch, Members, Set};

/// The name of its device.
pub const SUPERBLOCK: &str = "superblock";

/// The version of the format of a volume in clear.
pub const VERSION: u32 = 1;

/// The version of the format of an encrypted volume.
pub const VERSION_ENCRYPTED: u32 = 2;

/// Bytes of its device.
pub(crate) const SUPERBLOCK_BYTES: u64 = 2 * BLOCK_BYTES as u64;

const MAGIC: [u8; 8] = *b"TERRVOL\0";
const CRC_AT: usize = 12;
const FIXED_BYTES: usize = 160;

/// The content of a superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Counts the changes of this copy's superblock.
    pub sequence: u64,
    /// The volume, drawn once when it was created.
    pub volume: [u8; 16],
    /// The number of this copy.
    pub copy: u8,
    /// Copies of the volume.
    pub copies: u8,
    /// Copies that must work for a write to be acknowledged.
    pub min_copies: u8,
    /// Nothing keeps an old owner from writing to this copy.
    pub is_unfenced: bool,
    /// It is being brought up to date: its blocks are a mixture.
    pub is_syncing: bool,
    /// Its blocks have space only where they have content.
    pub is_thin: bool,
    /// The identity of its journal; 0 while a copy that is to be brought up to date has none.
    pub journal: u32,
    /// The last set that it has recorded.
    pub set: Set,
    /// The highest term that it has promised to an owner: it records nothing of a lower one.
    pub promised: Epoch,
    /// Its blocks are encrypted.
    pub is_encrypted: bool,
    /// The mark of the oldest data key; zeros without encryption.
    pub check: [u8; 16],
    /// The blocks of each part of the volume.
    pub parts: Vec<u64>,
}

const UNFENCED: u8 = 1;
const SYNCING: u8 = 2;
const THIN: u8 = 4;
const ENCRYPTED: u8 = 8;

impl Superblock {
    /// Whether the volume is encrypted, and what proves its keys.
    pub(crate) fn encryption(&self) -> (bool, [u8; 16]) {
        (self.is_encrypted, self.check)
    }

    /// The bytes of a slot.
    pub fn encode(&self) -> AlignedBuffer {
        assert!(self.parts.len() <= PARTS_MAX, "growing has checked the number of parts");
        let mut out = Vec::with_capacity(BLOCK_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&if self.is_encrypted { VERSION_ENCRYPTED } else { VERSION }.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.volume);
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let flags = flag(self.is_unfenced, UNFENCED)
            | flag(self.is_syncing, SYNCING)
            | flag(self.is_thin, THIN)
            | flag(self.is_encrypted, ENCRYPTED);
        out.extend_from_slice(&[self.copy, self.copies, self.min_copies, flags]);
        out.extend_from_slice(&self.journal.to_le_bytes());
        let epoch = |epoch: Epoch, out: &mut Vec<u8>| {
            out.extend_from_slice(&epoch.number.to_le_bytes());
            out.extend_from_slice(&epoch.mint.to_le_bytes());
        };
        epoch(self.set.epoch, &mut out);
        out.extend_from_slice(&[self.set.in_sync.0, 0, 0, 0, 0, 0, 0, 0]);
        self.set.left.iter().for_each(|left| epoch(*left, &mut out));
        epoch(self.promised, &mut out);
        out.extend_from_slice(&self.check);
        assert_eq!(out.len(), FIXED_BYTES - 8, "the layout of the head comment");
        out.extend_from_slice(&(self.parts.len() as u64).to_le_bytes());
        self.parts.iter().for_each(|blocks| out.extend_from_slice(&blocks.to_le_bytes()));
        out.resize(BLOCK_BYTES, 0);
        let crc = crc_of(&out);
        out[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_le_bytes());
        AlignedBuffer::from(&out[..])
    }

    /// Reads a slot; `Ok(None)` if it is not one, or damaged.
    ///
    /// Errors: [`VolumeError::Version`]; [`VolumeError::Format`] if the checksum matches and the values are not possible.
    pub fn decode(slot: &[u8]) -> Result<Option<Superblock>, VolumeError> {
        let name = || SUPERBLOCK.to_owned();
        if slot.len() != BLOCK_BYTES || slot[..8] != MAGIC || u32_at(slot, CRC_AT) != crc_of(slot) {
            return Ok(None);
        }
        let version = u32_at(slot, 8);
        if !(VERSION..=VERSION_ENCRYPTED).contains(&version) {
            return Err(VolumeError::Version { name: name(), found: version, expected: VERSION_ENCRYPTED });
        }
        let epoch = |at| Epoch { number: u64_at(slot, at), mint: u64_at(slot, at + 8) };
        let wrong = |why| VolumeError::Format { name: name(), why };
        let (copy, copies, min_copies, flags) = (slot[40], slot[41], slot[42], slot[43]);
        if !(1..=COPIES_MAX as u8).contains(&copies) || copy >= copies || !(1..=copies).contains(&min_copies) {
            return Err(wrong("its number of copies is not possible"));
        }
        if (flags & ENCRYPTED != 0) != (version == VERSION_ENCRYPTED) {
            return Err(wrong(
                "its version is that of an encrypted volume and its flags are not, or the other way round",
            ));
        }
        let in_sync = Members(slot[64]);
        if !in_sync.minus(Members::first(copies)).is_empty() {
            return Err(wrong("its in-sync set names copies that there are not"));
        }
        let count = u64_at(slot, FIXED_BYTES - 8);
        if !(1..=PARTS_MAX as u64).contains(&count) {
            return Err(wrong("its number of parts is not possible"));
        }
        let parts: Vec<u64> = (0..count as usize).map(|part| u64_at(slot, FIXED_BYTES + 8 * part)).collect();
        if !is_possible(&parts) {
            return Err(wrong("the size of a part is not possible"));
        }
        let left = [epoch(72), epoch(88), epoch(104)];
        Ok(Some(Superblock {
            sequence: u64_at(slot, 16),
            volume: slot[24..40].try_into().expect("16 bytes"),
            copy,
            copies,
            min_copies,
            is_unfenced: flags & UNFENCED != 0,
            is_syncing: flags & SYNCING != 0,
            is_thin: flags & THIN != 0,
            journal: u32_at(slot, 44),
            set: Set { epoch: epoch(48), in_sync, left },
            promised: epoch(120),
            is_encrypted: flags & ENCRYPTED != 0,
            check: slot[136..152].try_into().expect("16 bytes"),
            parts,
        }))
    }

    /// Writes both slots; persistent when it returns.
    pub(crate) fn write(&self, device: &Arc<dyn Device>) -> Result<(), VolumeError> {
        let bytes = self.encode();
        let first = Superblock::spare_slot(&**device);
        for slot in [first, 1 - first] {
            device.write_flush(slot * BLOCK_BYTES as u64, &bytes)?;
        }
        Ok(())
    }

    /// The slot that does not count: damaged, or older. It is written first, so that a crash that tears it leaves the other one.
    fn spare_slot(device: &dyn Device) -> u64 {
        let sequence = |slot: u64| {
            let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
            device.read(slot * BLOCK_BYTES as u64, &mut bytes).ok()?;
            Superblock::decode(&bytes).ok().flatten().map(|found| found.sequence)
        };
        u64::from(sequence(1) < sequence(0))
    }

    /// Writes slots anew that are damaged, of a superblock that has promised this term and no other; returns how many there were.
    pub(crate) fn mend(device: &Arc<dyn Device>, promised: Epoch) -> Result<u64, VolumeError> {
        let current = Superblock::read(&**device)?;
        let is_damaged = |slot: &u64| {
            let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
            // A newer one is another owner's change, which is under way.
            device.read(*slot * BLOCK_BYTES as u64, &mut bytes).is_err()
                || !matches!(Superblock::decode(&bytes), Ok(Some(found)) if found.sequence >= current.sequence)
        };
        let damaged = (0..2).filter(is_damaged).count() as u64;
        if damaged == 0 || current.promised != promised {
            return Ok(0);
        }
        current.write(device)?;
        Ok(damaged)
    }

    /// Records that the volume has one part more.
    pub(crate) fn set_parts(device: &Arc<dyn Device>, parts: &[u64]) -> Result<(), VolumeError> {
        let mut superblock = Superblock::read(&**device)?;
        superblock.parts = parts.to_vec();
        superblock.sequence += 1;
        superblock.write(device)
    }

    /// Reads the valid slot with the higher sequence.
    pub(crate) fn read(device: &dyn Device) -> Result<Superblock, VolumeError> {
        let wrong = |why| VolumeError::Format { name: SUPERBLOCK.to_owned(), why };
        if device.len() != SUPERBLOCK_BYTES {
            return Err(wrong("it has another size than a superblock"));
        }
        let mut best: Option<Superblock> = None;
        let mut failure = None;
        for slot in 0..2 {
            let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
            // A slot that cannot be read is as good as a damaged one: the other has the same content.
            if let Err(error) = device.read(slot * BLOCK_BYTES as u64, &mut bytes) {
                failure = Some(error);
                continue;
            }
            if let Some(found) = Superblock::decode(&bytes)?
                && best.as_ref().is_none_or(|best| best.sequence < found.sequence)
            {
                best = Some(found);
            }
        }
        match (best, failure) {
            (Some(best), _) => Ok(best),
            (None, Some(error)) => Err(error.into()),
            (None, None) => Err(wrong("both slots are damaged")),
        }
    }
}

fn crc_of(slot: &[u8]) -> u32 {
    let mut copy = slot.to_vec();
    copy[CRC_AT..CRC_AT + 4].fill(0);
    checksum::of(&copy)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
