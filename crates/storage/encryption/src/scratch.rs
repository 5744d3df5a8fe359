//! [`ScratchKey`]: seals temporary files under a key of this process.
//!
//! ```text
//!   chunk   ciphertext | tag 16
//!   nonce   file u64 | chunk u32           key: 256 random bits, in memory only
//!   AAD     file u64 | chunk u32 | bytes of the chunk u32
//! ```
//!
//! The key is drawn anew in each process and never stored, so neither an earlier process nor a copy of a directory has it. Under it a
//! chunk of a file is sealed once: a file's number is given once, and its chunks are only appended. So no nonce repeats. What is left of
//! such a file after a crash can be read by nobody.
//!
//! It does not know files; who uses it counts chunks, and knows how many there must be: a file that is cut at the end of a chunk opens.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};

use crate::error::{EncryptionError, SealFault};
use crate::secret::{Randomness, Secret};

/// What sealing a chunk adds.
pub const SCRATCH_TAG_BYTES: usize = 16;

/// See the head comment of this file.
pub struct ScratchKey {
    key: LessSafeKey,
    files: AtomicU64,
}

impl fmt::Debug for ScratchKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ScratchKey")
    }
}

fn place((file, chunk): (u64, u32), bytes: usize) -> ([u8; 12], [u8; 16]) {
    let (mut nonce, mut associated) = ([0; 12], [0; 16]);
    nonce[..8].copy_from_slice(&file.to_le_bytes());
    nonce[8..].copy_from_slice(&chunk.to_le_bytes());
    associated[..12].copy_from_slice(&nonce);
    // A chunk of more than 4 GiB is not sealed, see `seal`.
    associated[12..].copy_from_slice(&u32::try_from(bytes).unwrap_or(u32::MAX).to_le_bytes());
    (nonce, associated)
}

impl ScratchKey {
    /// A random one. Errors: [`EncryptionError::Randomness`].
    pub fn random(random: &dyn Randomness) -> Result<ScratchKey, EncryptionError> {
        let key = Secret::random(random)?.derive::<32>(b"", b"terrace temporary files");
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &*key).expect("32 bytes are a key of AES-256"));
        Ok(ScratchKey { key, files: AtomicU64::new(0) })
    }

    /// The number of a new file. It is never given again.
    pub fn next_file(&self) -> u64 {
        self.files.fetch_add(1, Ordering::Relaxed)
    }

    /// Encrypts a chunk in place; its tag, which follows it. The caller seals each chunk of a file once.
    ///
    /// # Panics
    /// If it has 4 GiB or more.
    pub fn seal(&self, at: (u64, u32), bytes: &mut [u8]) -> [u8; SCRATCH_TAG_BYTES] {
        assert!(u32::try_from(bytes.len()).is_ok(), "a chunk is short");
        let (nonce, associated) = place(at, bytes.len());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self.key.seal_in_place_separate_tag(nonce, Aad::from(associated), bytes);
        let mut out = [0; SCRATCH_TAG_BYTES];
        out.copy_from_slice(tag.expect("less than 64 GiB are sealed at once").as_ref());
        out
    }

    /// Decrypts a chunk, with its tag, in place; its bytes. After an error they are undefined. Errors: [`SealFault`].
    pub fn open<'a>(&self, at: (u64, u32), bytes: &'a mut [u8]) -> Result<&'a mut [u8], SealFault> {
        let body = bytes.len().checked_sub(SCRATCH_TAG_BYTES).ok_or(SealFault::Short)?;
        let (nonce, associated) = place(at, body);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.open_in_place(nonce, Aad::from(associated), bytes).map_err(|_| SealFault::Tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::tests::Seeded;
    use crate::secret::SystemRandomness;

    #[test]
    fn a_chunk_opens_at_its_place_under_its_key_and_no_changed_or_cut_one_does() {
        let key = ScratchKey::random(&Seeded::new(1)).expect("there are random bytes");
        assert_eq!((key.next_file(), key.next_file()), (0, 1));
        for body in [&b""[..], b"x", &[7; 5000]] {
            let mut whole = body.to_vec();
            let tag = key.seal((3, 4), &mut whole);
            whole.extend_from_slice(&tag);
            assert_eq!(whole.len(), body.len() + SCRATCH_TAG_BYTES);
            assert_eq!(key.open((3, 4), &mut whole.clone()).map(|body| body.to_vec()), Ok(body.to_vec()));
            for other in [(3, 5), (4, 4), (4, 3), (3, 0)] {
                assert_eq!(key.open(other, &mut whole.clone()), Err(SealFault::Tag), "{other:?}");
            }
            for at in [0, whole.len() / 2, whole.len() - 1] {
                let mut changed = whole.clone();
                changed[at] ^= 1;
                assert!(key.open((3, 4), &mut changed).is_err(), "byte {at}");
                assert!(key.open((3, 4), &mut whole[..at].to_vec()).is_err(), "cut to {at}");
            }
            let other = ScratchKey::random(&SystemRandomness::default()).expect("there are random bytes");
            assert_eq!(other.open((3, 4), &mut whole.clone()), Err(SealFault::Tag), "another process");
        }
    }
}
