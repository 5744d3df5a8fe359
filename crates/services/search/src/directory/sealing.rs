//! [`FileSeals`]: what binds the extents of a file to it, and to their places in it, where the store is encrypted.
//!
//! ```text
//!   on the shelf          | ciphertext, 65,536 bytes |      as long as in clear: a short end is encrypted with its zeros
//!   table in the store    | version 1 u8 | len u64 | number 16 | place u32 | checksum u32 | seal 40 | place ...
//!   associated data       | "srch" | 16 bytes of SHA-256(index, 0, name of the file) | number | position in the file u32 |
//! ```
//!
//! The checksum is over the ciphertext: torn and rotten extents are found without a key, as in clear. A seal that does not verify where
//! the checksum does is damage too, and not of a crash: the extent was changed, or belongs to another place, file or index.
//!
//! The number is drawn when a file is begun: the library gives the name of a file of deletes again if a crash took the first one. Since the
//! seals lie in the store, whose pages are sealed as well, an older state of an extent is noticed too: its seal is another one.
//!
//! It does not know devices. What it seals, [`ExtentPool`](super::extents::ExtentPool) writes.

use std::path::Path;
use std::sync::Arc;

use encryption::{EncryptionError, Randomness, SEAL_BYTES, SealFault, Sealer, SystemRandomness};
use ring::digest;
use store::Store;

/// Names the structure in the seal of an extent.
const STRUCTURE: &[u8; 4] = b"srch";
/// Bytes of a file's number, and of the digest of its names.
pub(super) const NUMBER_BYTES: usize = 16;
/// Bytes of associated data.
const PLACE_BYTES: usize = STRUCTURE.len() + 2 * NUMBER_BYTES + 4;

/// The seal of an extent.
pub(super) type Seal = [u8; SEAL_BYTES];

/// Seals the files of an index of an encrypted store.
#[derive(Clone, Debug)]
pub(super) struct IndexSealing {
    sealer: Arc<Sealer>,
    index: String,
}

impl IndexSealing {
    /// For an index whose devices have this name; `None` if the store is clear.
    pub(super) fn of(store: &Store, index: &str) -> Option<IndexSealing> {
        store.shared_sealer().map(|sealer| IndexSealing { sealer, index: index.to_owned() })
    }

    /// For a file that is begun. Errors: [`EncryptionError::Randomness`].
    pub(super) fn begin(&self, path: &Path) -> Result<FileSeals, EncryptionError> {
        let mut number = [0; NUMBER_BYTES];
        SystemRandomness::default().fill(&mut number)?;
        Ok(self.known(path, number, Vec::new()))
    }

    /// For a file with this number and these seals.
    pub(super) fn known(&self, path: &Path, number: [u8; NUMBER_BYTES], seals: Vec<Seal>) -> FileSeals {
        let mut names = digest::Context::new(&digest::SHA256);
        names.update(self.index.as_bytes());
        names.update(&[0]);
        // As the table has it.
        names.update(path.to_string_lossy().as_bytes());
        let owner = *names.finish().as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        FileSeals { sealer: Arc::clone(&self.sealer), owner, number, seals }
    }
}

/// The seals of a file's extents, in order. See the head comment of this file.
#[derive(Clone, Debug)]
pub(super) struct FileSeals {
    sealer: Arc<Sealer>,
    /// From the names of index and file.
    owner: [u8; NUMBER_BYTES],
    number: [u8; NUMBER_BYTES],
    seals: Vec<Seal>,
}

impl FileSeals {
    /// The number that the file drew.
    pub(super) fn number(&self) -> &[u8; NUMBER_BYTES] {
        &self.number
    }

    /// Of its extents.
    pub(super) fn seals(&self) -> &[Seal] {
        &self.seals
    }

    /// For the same file written once more from its beginning: what is sealed again has seals of its own.
    pub(super) fn begun_again(&self) -> FileSeals {
        FileSeals { sealer: Arc::clone(&self.sealer), seals: Vec::new(), ..*self }
    }

    /// The ciphertext of the file's next extent; its seal is kept here.
    pub(super) fn seal_next(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut sealed = plain.to_vec();
        let seal = self.sealer.seal_apart(&self.place(self.seals.len()), &mut sealed);
        self.seals.push(seal);
        sealed
    }

    /// Decrypts the extent at a position of the file, in place. After an error the bytes are undefined.
    pub(super) fn open(&self, position: usize, bytes: &mut [u8]) -> Result<(), SealFault> {
        let seal = self.seals.get(position).ok_or(SealFault::Short)?;
        self.sealer.open_apart(&self.place(position), bytes, seal)
    }

    fn place(&self, position: usize) -> [u8; PLACE_BYTES] {
        let mut place = [0; PLACE_BYTES];
        let (structure, rest) = place.split_at_mut(STRUCTURE.len());
        structure.copy_from_slice(STRUCTURE);
        rest[..NUMBER_BYTES].copy_from_slice(&self.owner);
        rest[NUMBER_BYTES..2 * NUMBER_BYTES].copy_from_slice(&self.number);
        // A file has fewer extents than there are places.
        rest[2 * NUMBER_BYTES..].copy_from_slice(&(position as u32).to_le_bytes());
        place
    }
}
