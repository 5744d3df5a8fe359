//! The epoch of a place for another node's copy: the highest one that an owner has opened it under, kept on its medium.
//!
//! ```text
//!   device "epoch", two blocks of 4096 bytes; the one with the higher number counts
//!   0   4   "TEPO"
//!   4   4   version
//!   8   8   epoch
//!   16  4   CRC-32C of the bytes before
//! ```
//!
//! Invariants: when [`EpochFile::raise`] returns `Ok` the epoch is durable in both blocks, so that damage to one of them brings no older
//! owner back; a crash inside leaves the former one or this one. After a write that failed nothing is kept until the file is opened again
//! ([`EpochFile::failure`]): what is on the medium is unknown until then.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, ensure};
use device::{AlignedBuffer, BLOCK_BYTES, Device, Shelf};
use nbd::EpochGate;

/// Name of the device.
const NAME: &str = "epoch";
const MAGIC: &[u8; 4] = b"TEPO";
const VERSION: u32 = 1;
const SLOTS: u64 = 2;

/// See the module's text.
#[derive(Debug)]
pub struct EpochFile {
    device: Arc<dyn Device>,
    current: AtomicU64,
    /// One raise at a time; why the last one that was written failed.
    raising: std::sync::Mutex<Option<String>>,
}

impl EpochFile {
    /// Makes the device, with epoch 0.
    ///
    /// # Errors
    /// Those of the shelf.
    pub fn create(shelf: &dyn Shelf) -> anyhow::Result<()> {
        let device = shelf.create(NAME, SLOTS * BLOCK_BYTES as u64)?;
        device.write_flush(0, &encode(0))?;
        Ok(())
    }

    /// Reads it.
    ///
    /// # Errors
    /// Both blocks are damaged, or another version wrote them; those of the shelf.
    pub fn open(shelf: &dyn Shelf) -> anyhow::Result<EpochFile> {
        let device = shelf.open(NAME)?;
        ensure!(
            device.len() >= SLOTS * BLOCK_BYTES as u64,
            "the epoch of this place has no room: it was not made by this program"
        );
        let mut newest = None;
        for slot in 0..SLOTS {
            let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
            // A block that cannot be read counts as damaged: the other one decides.
            if device.read(slot * BLOCK_BYTES as u64, &mut bytes).is_ok() {
                newest = newest.max(decode(&bytes));
            }
        }
        let epoch = newest
            .context("the epoch of this place is damaged: no owner can be told from an older one; delete the place")?;
        Ok(EpochFile { device, current: AtomicU64::new(epoch), raising: std::sync::Mutex::default() })
    }

    /// Why the medium keeps no epoch any more, until it is opened again. Does not wait for a raise that is under way.
    pub fn failure(&self) -> Option<String> {
        match self.raising.try_lock() {
            Ok(failed) => failed.clone(),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => poisoned.into_inner().clone(),
            Err(std::sync::TryLockError::WouldBlock) => None,
        }
    }
}

impl EpochGate for EpochFile {
    fn current(&self) -> u64 {
        self.current.load(Ordering::Acquire)
    }

    fn raise(&self, epoch: u64) -> Result<(), String> {
        let mut failed = self.raising.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let current = self.current();
        if epoch <= current {
            return if epoch == current { Ok(()) } else { Err(format!("it is {current} already")) };
        }
        // The block that has the lower one: the other stays whole if this write is torn.
        let slots = (0..SLOTS).map(|slot| {
            let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
            let read = self.device.read(slot * BLOCK_BYTES as u64, &mut bytes);
            (read.ok().and_then(|()| decode(&bytes)), slot)
        });
        let (_, first) = slots.min().expect("there are two");
        for slot in [first, 1 - first] {
            let written = self.device.write_flush(slot * BLOCK_BYTES as u64, &encode(epoch));
            if let Err(error) = written {
                let why = error.to_string();
                // The first reason is the cause; later ones say that the device refuses.
                failed.get_or_insert_with(|| why.clone());
                return Err(why);
            }
        }
        self.current.store(epoch, Ordering::Release);
        Ok(())
    }
}

fn encode(epoch: u64) -> AlignedBuffer {
    let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
    bytes[..4].copy_from_slice(MAGIC);
    bytes[4..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..16].copy_from_slice(&epoch.to_le_bytes());
    let sum = crc_fast::crc32_iscsi(&bytes[..16]);
    bytes[16..20].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<u64> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    let is_whole =
        bytes.get(..4)? == MAGIC && number(4)? == VERSION && number(16)? == crc_fast::crc32_iscsi(bytes.get(..16)?);
    is_whole.then(|| Some(u64::from_le_bytes(bytes.get(8..16)?.try_into().ok()?))).flatten()
}

#[cfg(test)]
mod tests {
    use device::MemoryShelf;

    use super::*;

    #[test]
    fn a_raised_epoch_is_found_again_and_a_lower_one_is_refused() {
        let shelf = MemoryShelf::new();
        EpochFile::create(&shelf).expect("it is made");
        let epochs = EpochFile::open(&shelf).expect("it opens");
        assert_eq!(epochs.current(), 0);
        for epoch in [1, 5, 41, 41] {
            epochs.raise(epoch).expect("it is higher, or the same");
        }
        assert!(epochs.raise(40).expect_err("it is lower").contains("41"));
        assert_eq!(EpochFile::open(&shelf).expect("it opens").current(), 41);
    }

    #[test]
    fn one_damaged_block_leaves_the_other_ones_epoch_and_two_are_refused() {
        let shelf = MemoryShelf::new();
        EpochFile::create(&shelf).expect("it is made");
        let epochs = EpochFile::open(&shelf).expect("it opens");
        epochs.raise(7).expect("it is higher");
        epochs.raise(8).expect("it is higher");
        let device = shelf.open(NAME).expect("it is there");
        let mut seen = Vec::new();
        for slot in 0..SLOTS {
            let mut whole = AlignedBuffer::zeroed(BLOCK_BYTES);
            device.read(slot * BLOCK_BYTES as u64, &mut whole).expect("it is read");
            device.write(slot * BLOCK_BYTES as u64, &AlignedBuffer::zeroed(BLOCK_BYTES)).expect("it is written");
            seen.push(EpochFile::open(&shelf).expect("the other one is whole").current());
            device.write(slot * BLOCK_BYTES as u64, &whole).expect("it is written");
        }
        assert_eq!(seen, [8, 8], "damage to one block brings no older owner back");
        for slot in 0..SLOTS {
            device.write(slot * BLOCK_BYTES as u64, &AlignedBuffer::zeroed(BLOCK_BYTES)).expect("it is written");
        }
        assert!(EpochFile::open(&shelf).expect_err("nothing is left").to_string().contains("damaged"));
    }
}
