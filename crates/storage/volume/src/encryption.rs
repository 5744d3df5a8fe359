//! Encryption at rest inside a volume: each block of 4096 bytes is sealed once, when it is written, before it goes anywhere.
//!
//! ```text
//!   write --> seal --> journals, overlay, blocks in place, caches, places of other nodes, resync: ciphertext only
//!   read  <-- open <-- any of them
//!
//!   block n   AES-256-GCM; associated data: "volume block", the volume, n; the seal (tag and stamp) lies beside the block's sum
//!   sum       CRC-32C of the ciphertext, as without encryption
//! ```
//!
//! The sum finds what a medium does to bytes, without a key: a torn or lost write is what it was before. The seal finds what somebody does
//! to them: bytes that match the sum and do not open at their place are damage of that copy, like bytes that do not match the sum; another
//! copy is read, and the damaged one is written anew. The associated data has no version: that is the stamp, which is a part of the seal and
//! of the nonce, so an old ciphertext opens only with the seal that lay beside it. Sum and seal of a block change with its bytes in one
//! record of the journal.
//!
//! A block without content has no seal, and reads as zeros.
//!
//! # Why a nonce never repeats
//!
//! A key is used by one opening of a volume only: HKDF(data key, term of the owner, 64 random bits), and a counter in memory gives the
//! nonces (crate `encryption`). What is durable before the first seal is the *term*: an opening makes enough copies promise it, in their
//! superblocks, flushed, before it has a sealer; a later opening finds it there, and takes a higher one. So
//!
//! 1. after a crash the term is another one, and with it the key: the counter begins anew with a key that has sealed nothing;
//! 2. a crash between the promise and the first seal leaves a term without sealed blocks, which harms nothing;
//! 3. two owners that open the volume side by side have different terms, as a copy promises each term to one of them, unless somebody
//!    accepted a loss and each found copies that the other did not. Then, as for media that were copied and are opened twice, or put back
//!    from a backup with their superblocks, only the random bits make the keys differ: two of 2^32 openings share them by chance;
//! 4. a write that failed and is tried again is sealed again, with the next counter. Nothing of a counter has to survive.
//!
//! Not covered: the memory of a virtual machine that is saved while it has the volume open, and started twice.
//!
//! # What it does not do
//!
//! Who can write a medium can put an older state of it back as a whole, or an older block with its sum and seal, and can turn blocks into
//! blocks without content; with several copies the others win where they agree, and of sealed blocks the newest does. Which blocks are used,
//! and when they change, can be seen.
//!
//! Invariants: plaintext reaches no shelf; keys that are not those of the volume are refused before anything but superblocks is read, and
//! before anything is written.

use std::fmt;
use std::sync::Arc;

use device::BLOCK_BYTES;
pub use encryption::Secret;
use encryption::{KeyMark, MARK_BYTES, Randomness, Sealer, SystemRandomness};

use crate::error::VolumeError;
use crate::mark::BlockSeal;
use crate::members::Epoch;

/// What every associated data begins with.
const DOMAIN: &[u8; 12] = b"volume block";

/// Sees the stamps of all seals.
#[cfg(any(test, feature = "simulation"))]
pub(crate) trait SealWitness: Send + Sync {
    /// A block was sealed.
    fn saw(&self, stamp: &[u8]);
}

/// The data keys of an encrypted volume, by number, ascending: the last one seals, all of them open.
#[derive(Clone)]
pub struct VolumeKeys {
    data_keys: Vec<(u32, Secret)>,
    #[cfg(any(test, feature = "simulation"))]
    witness: Option<Arc<dyn SealWitness>>,
}

impl fmt::Debug for VolumeKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VolumeKeys").field("keys", &self.data_keys.len()).finish_non_exhaustive()
    }
}

impl VolumeKeys {
    /// Those of an envelope, as it gives them. `None`: there are none.
    pub fn new(data_keys: Vec<(u32, Secret)>) -> Option<Arc<VolumeKeys>> {
        let keys = VolumeKeys {
            data_keys,
            #[cfg(any(test, feature = "simulation"))]
            witness: None,
        };
        (!keys.data_keys.is_empty()).then(|| Arc::new(keys))
    }

    /// The same, whose seals are watched.
    #[cfg(any(test, feature = "simulation"))]
    pub(crate) fn watched(self: &Arc<VolumeKeys>, witness: Arc<dyn SealWitness>) -> Arc<VolumeKeys> {
        Arc::new(VolumeKeys { witness: Some(witness), ..VolumeKeys::clone(self) })
    }

    /// What the superblocks of a new volume have to recognise them: the mark of the oldest one, which stays.
    pub(crate) fn check(&self) -> [u8; 16] {
        let (id, key) = self.data_keys.first().expect("there is one");
        let mut check = [0; 16];
        check[..MARK_BYTES].copy_from_slice(&KeyMark::of(*id, key).encode());
        check
    }

    /// Whether they are those of a volume, as its superblock has it, or are rightly absent.
    ///
    /// Errors: [`VolumeError::KeysMissing`], [`VolumeError::KeysUnwanted`], [`VolumeError::WrongKeys`].
    pub(crate) fn check_all(
        keys: Option<&VolumeKeys>,
        (is_encrypted, check): (bool, [u8; 16]),
    ) -> Result<(), VolumeError> {
        match (keys, is_encrypted) {
            (None, false) => Ok(()),
            (None, true) => Err(VolumeError::KeysMissing),
            (Some(_), false) => Err(VolumeError::KeysUnwanted),
            (Some(keys), true) if keys.check() == check => Ok(()),
            (Some(_), true) => Err(VolumeError::WrongKeys),
        }
    }

    /// For an opening whose term enough copies have promised, durably.
    ///
    /// Errors: [`VolumeError::Randomness`]; [`VolumeError::Options`]: there were 2^32 terms.
    pub(crate) fn sealer(&self, volume: [u8; 16], promised: Epoch) -> Result<BlockSealer, VolumeError> {
        let term =
            u32::try_from(promised.term()).map_err(|_| VolumeError::Options("all terms of the volume are used"))?;
        let mut random = [0; 8];
        SystemRandomness::default().fill(&mut random).map_err(|_| VolumeError::Randomness)?;
        let mut place = [0; PLACE_BYTES];
        place[..DOMAIN.len()].copy_from_slice(DOMAIN);
        place[DOMAIN.len()..PLACE_BYTES - 8].copy_from_slice(&volume);
        Ok(BlockSealer {
            sealer: Sealer::for_opening(self.data_keys.clone(), term, u64::from_le_bytes(random)),
            place,
            #[cfg(any(test, feature = "simulation"))]
            witness: self.witness.clone(),
        })
    }
}

/// Bytes of the associated data that say where a block belongs.
const PLACE_BYTES: usize = DOMAIN.len() + 16 + 8;

/// Seals and opens the blocks of a volume, for one opening.
pub(crate) struct BlockSealer {
    sealer: Sealer,
    /// With zeros for the block.
    place: [u8; PLACE_BYTES],
    #[cfg(any(test, feature = "simulation"))]
    witness: Option<Arc<dyn SealWitness>>,
}

impl fmt::Debug for BlockSealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.sealer, f)
    }
}

impl BlockSealer {
    fn place_of(&self, block: u64) -> [u8; PLACE_BYTES] {
        let mut place = self.place;
        place[PLACE_BYTES - 8..].copy_from_slice(&block.to_le_bytes());
        place
    }

    /// Encrypts a block in place.
    pub(crate) fn seal(&self, block: u64, bytes: &mut [u8]) -> BlockSeal {
        let seal = BlockSeal(self.sealer.seal_apart(&self.place_of(block), bytes));
        #[cfg(any(test, feature = "simulation"))]
        if let Some(witness) = &self.witness {
            witness.saw(seal.stamp());
        }
        seal
    }

    /// Decrypts a block in place; `false`: it was not sealed so, and its bytes are undefined.
    #[must_use]
    pub(crate) fn open(&self, block: u64, bytes: &mut [u8], seal: &BlockSeal) -> bool {
        self.sealer.open_apart(&self.place_of(block), bytes, &seal.0).is_ok()
    }

    /// Whether a block was sealed so; its bytes stay ciphertext.
    pub(crate) fn verifies(&self, block: u64, bytes: &[u8], seal: &BlockSeal) -> bool {
        let mut copy = [0; BLOCK_BYTES];
        copy.copy_from_slice(bytes);
        self.open(block, &mut copy, seal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealer(volume: u8, term: u64) -> BlockSealer {
        let keys = VolumeKeys::new(vec![(1, Secret::new([1; 32]))]).expect("there is one");
        keys.sealer([volume; 16], Epoch::of_term(term, 9)).expect("there are random bytes")
    }

    #[test]
    fn a_block_opens_in_its_volume_at_its_place_with_its_seal_only_and_in_every_opening() {
        let (first, plain) = (sealer(1, 5), [7; BLOCK_BYTES]);
        let (mut stored, mut again) = (plain, plain);
        let (seal, later) = (first.seal(3, &mut stored), first.seal(3, &mut again));
        assert!(stored != plain && stored != again, "sealed twice, it is not the same");
        assert!(
            later.version() > seal.version() && sealer(1, 6).seal(3, &mut [7; BLOCK_BYTES]).version() > later.version()
        );
        for (sealer, block, seal, opens) in [
            (&first, 3, &seal, true),
            (&sealer(1, 9), 3, &seal, true),
            (&first, 4, &seal, false),
            (&sealer(2, 5), 3, &seal, false),
            (&first, 3, &later, false),
            (&first, 3, &BlockSeal::NONE, false),
        ] {
            assert_eq!(sealer.verifies(block, &stored, seal), opens, "{sealer:?} {block} {seal:?}");
        }
        let mut opened = stored;
        assert!(first.open(3, &mut opened, &seal) && opened == plain);
        stored[4000] ^= 1;
        assert!(!first.verifies(3, &stored, &seal));
    }
}
