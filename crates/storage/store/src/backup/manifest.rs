//! [`Manifest`]: marks a backup as complete, and describes its content. One block on a device of its own, written last.
//!
//! ```text
//!   offset  bytes  field
//!        0      8  magic "TERRBAK" and a zero
//!        8      4  version, 1
//!       12      4  checksum of bytes 0..12 and 16..4096
//!       16      8  identity of the store
//!       24      8  redo LSN: the pages are the state after every record before it
//!       32      8  end of the copied journal
//!       40      8  microseconds since 1970 when the checkpoint of the pages began
//!       48      4  identity of the journal
//!       56      8  start of the copied journal; 0 (of earlier releases): the redo LSN
//!       64      8  consistent LSN: the pages contain nothing of records from this LSN on; 0 (of earlier releases): the redo LSN
//! ```

use crc_fast::{CrcAlgorithm, Digest};
use device::{AlignedBuffer, DeviceError, Shelf};
use journal::Lsn;

use crate::StoreError;
use crate::page::{u32_at, u64_at};
use crate::verify::Verified;

const MAGIC: &[u8; 8] = b"TERRBAK\0";
const VERSION: u32 = 1;
const BYTES: usize = 4096;

/// The name of its device.
pub(crate) const NAME: &str = "backup";

/// The description of a backup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Identity of the store.
    pub identity: u64,
    /// Identity of its journal.
    pub journal: u32,
    /// The pages are the state after every record before this; opening redoes the journal from here.
    pub redo_lsn: Lsn,
    /// The journal in the backup ends here: the latest moment that it can be restored to by itself.
    pub end: Lsn,
    /// The time of the pages' state, microseconds since 1970.
    pub micros: u64,
    /// The journal is needed from here on: at or before `redo_lsn`, because the changes of a spilled transaction
    /// precede its commit record.
    pub from: Lsn,
    /// The earliest moment that it can be restored to is the first end of a group commit from here on: at or after
    /// `redo_lsn`, because the pages may contain a part of a batch that was being applied.
    pub consistent_lsn: Lsn,
}

fn sum(block: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&block[..12]);
    digest.update(&block[16..]);
    // The digest returns the 32 bits as a u64.
    digest.finalize() as u32
}

impl Manifest {
    /// Whether checked pages are those of this backup.
    pub fn is_of(&self, found: &Verified) -> bool {
        (found.identity, found.redo_lsn) == (self.identity, self.redo_lsn)
    }

    /// Why a journal, as it was read, is not that of this backup, or not all of it; `None`: it is.
    pub fn misses(&self, journal: &journal::Verified, identity: Option<u32>) -> Option<String> {
        let Manifest { from, end, .. } = *self;
        if identity.is_some_and(|identity| identity != self.journal) {
            return Some("the backup's journal is another store's".to_owned());
        }
        // A tail that is cut off looks as if a crash had torn it; in a backup nothing is torn.
        if journal.end < end {
            return Some(format!("the journal is whole up to {} only, and was backed up to {end}", journal.end));
        }
        (journal.first > from)
            .then(|| format!("the journal begins at {}, and was backed up from {from} on", journal.first))
    }

    /// Writes it, persistently. Errors: [`StoreError::Full`], [`StoreError::Device`].
    pub(crate) fn write(&self, shelf: &dyn Shelf) -> Result<(), StoreError> {
        let mut block = AlignedBuffer::zeroed(BYTES);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&VERSION.to_le_bytes());
        let fields = [self.identity, self.redo_lsn.0, self.end.0, self.micros];
        for (place, field) in block[16..48].as_chunks_mut::<8>().0.iter_mut().zip(fields) {
            *place = field.to_le_bytes();
        }
        block[56..64].copy_from_slice(&self.from.0.to_le_bytes());
        block[64..72].copy_from_slice(&self.consistent_lsn.0.to_le_bytes());
        block[48..52].copy_from_slice(&self.journal.to_le_bytes());
        let sum = sum(&block);
        block[12..16].copy_from_slice(&sum.to_le_bytes());
        let device = super::create(shelf, NAME, BYTES as u64)?;
        device.write(0, &block)?;
        Ok(device.flush()?)
    }

    /// Reads the manifest of a backup. Errors: [`StoreError::Corrupt`] if it is missing or damaged;
    /// [`StoreError::Device`].
    pub fn read(shelf: &dyn Shelf) -> Result<Manifest, StoreError> {
        let device = match shelf.open_read_only(NAME) {
            Err(DeviceError::NotFound { .. }) => {
                return Err(StoreError::Corrupt("this is not a backup, or one that was not finished".into()));
            }
            other => other?,
        };
        let mut block = AlignedBuffer::zeroed(BYTES);
        device.read(0, &mut block)?;
        let word = |at| u64_at(&block, at).unwrap_or_default();
        let half = |at| u32_at(&block, at).unwrap_or_default();
        if block[..8] != *MAGIC || half(12) != sum(&block) {
            return Err(StoreError::Corrupt("this backup was not finished, or its manifest is damaged".into()));
        }
        if half(8) != VERSION {
            return Err(StoreError::Corrupt(format!("this backup has version {} of its format", half(8)).into()));
        }
        let (redo_lsn, end) = (Lsn(word(24)), Lsn(word(32)));
        let or_applied = |at| if word(at) == 0 { redo_lsn } else { Lsn(word(at)) };
        let (from, consistent_lsn) = (or_applied(56), or_applied(64));
        Ok(Manifest { identity: word(16), journal: half(48), redo_lsn, end, micros: word(40), from, consistent_lsn })
    }
}
