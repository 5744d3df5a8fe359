//! [`EncryptedDevice`]: encryption at rest, above a volume: every copy, journal, cache and export of another node gets ciphertext only.
//!
//! ```text
//!   export --> EncryptedDevice --> Volume --> checksums and journals of ciphertext
//!
//!   block n   AES-256-XTS (IEEE 1619-2018), one data unit of 4096 bytes, tweak n
//!   keys      HKDF-SHA-256 of the secret and a salt: 64 bytes for XTS, 16 that tell whether a secret is the right one
//! ```
//!
//! A block without content reads as zeros and is stored as such, so who can read a medium sees which blocks were written. A stored block
//! of zeros is therefore no ciphertext; one in 2^32768 ciphertexts is.
//!
//! Invariants: plaintext is never given to the device below; a wrong secret is noticed before anything is read or written.
//!
//! What it does not do: XTS has no authentication. Bytes that were changed on a medium are found by the volume's checksums, which are no
//! protection against who can write the medium. An older state of a whole medium is not noticed either; epochs are, see `membership`.

use std::fmt;
use std::sync::Arc;

use aes::Aes256;
use aes::cipher::KeyInit;
use device::{AlignedBuffer, BLOCK_BYTES, Device, DeviceError, Durability, Extent, IoKind, IoRequest, IoSink};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use xts_mode::{Xts128, get_tweak_default};

/// Bytes of a salt.
pub const SALT_BYTES: usize = 32;
/// Bytes of what is stored to recognise a secret.
pub const CHECK_BYTES: usize = 16;
/// The least bytes of a secret: as many as a key of AES-256 has.
pub const SECRET_BYTES_MIN: usize = 32;

/// Two keys of AES-256.
const KEY_BYTES: usize = 64;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// The keys of a volume, derived from a secret.
pub struct EncryptionKeys {
    xts: Xts128<Aes256>,
    check: [u8; CHECK_BYTES],
}

impl fmt::Debug for EncryptionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKeys")
    }
}

/// Bytes that HKDF derives.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

impl EncryptionKeys {
    /// Derives the keys of a volume from a secret, at least [`SECRET_BYTES_MIN`] bytes, and the volume's salt. `None`: it is shorter.
    pub fn derive(secret: &[u8], salt: &[u8; SALT_BYTES]) -> Option<EncryptionKeys> {
        if secret.len() < SECRET_BYTES_MIN {
            return None;
        }
        let extracted = Salt::new(HKDF_SHA256, salt).extract(secret);
        let derive = |purpose: &[u8], into: &mut [u8]| {
            let purpose = [purpose];
            // HKDF-SHA-256 derives up to 8,160 bytes.
            extracted.expand(&purpose, Length(into.len())).and_then(|key| key.fill(into)).is_ok()
        };
        let (mut keys, mut check) = ([0; KEY_BYTES], [0; CHECK_BYTES]);
        if !derive(b"terrace volume xts", &mut keys) || !derive(b"terrace volume check", &mut check) {
            return None;
        }
        let (first, second) = keys.split_at(KEY_BYTES / 2);
        let xts = Xts128::new(Aes256::new_from_slice(first).ok()?, Aes256::new_from_slice(second).ok()?);
        Some(EncryptionKeys { xts, check })
    }

    /// What is stored with the volume to recognise the secret.
    pub fn check(&self) -> [u8; CHECK_BYTES] {
        self.check
    }

    fn encrypt(&self, offset: u64, bytes: &mut [u8]) {
        self.xts.encrypt_area(bytes, BLOCK_BYTES, u128::from(offset / BLOCK), get_tweak_default);
    }

    /// Blocks of zeros stay as they are.
    fn decrypt(&self, offset: u64, bytes: &mut [u8]) {
        for (block, bytes) in bytes.chunks_exact_mut(BLOCK_BYTES).enumerate() {
            if bytes.iter().any(|byte| *byte != 0) {
                self.xts.decrypt_sector(bytes, get_tweak_default(u128::from(offset / BLOCK) + block as u128));
            }
        }
    }
}

/// A device whose blocks are encrypted on the one below. Its blocks have 4096 bytes.
#[derive(Clone)]
pub struct EncryptedDevice {
    below: Arc<dyn Device>,
    keys: Arc<EncryptionKeys>,
}

impl EncryptedDevice {
    /// Encrypts a device whose size is a multiple of 4096 bytes.
    ///
    /// # Panics
    /// If its blocks or its size are no multiple of that.
    pub fn new(below: Arc<dyn Device>, keys: EncryptionKeys) -> EncryptedDevice {
        assert!(
            below.len().is_multiple_of(BLOCK) && below.block_bytes() as usize <= BLOCK_BYTES,
            "blocks of 4096 bytes"
        );
        EncryptedDevice { below, keys: Arc::new(keys) }
    }

    fn assert_blocks(&self, offset: u64, bytes: u64) {
        let fits = offset <= self.len() && bytes <= self.len() - offset;
        assert!(
            fits && offset.is_multiple_of(BLOCK) && bytes.is_multiple_of(BLOCK),
            "{offset}+{bytes} is no range of blocks"
        );
    }

    fn encrypted(&self, offset: u64, data: &[u8]) -> AlignedBuffer {
        self.assert_blocks(offset, data.len() as u64);
        let mut bytes = AlignedBuffer::from(data);
        self.keys.encrypt(offset, &mut bytes);
        bytes
    }
}

impl fmt::Debug for EncryptedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncryptedDevice").field("below", &self.below).finish_non_exhaustive()
    }
}

/// Decrypts what was read before its caller gets it.
struct Decrypting {
    keys: Arc<EncryptionKeys>,
    sink: Arc<dyn IoSink>,
}

impl IoSink for Decrypting {
    fn complete(&self, mut request: IoRequest, result: Result<(), DeviceError>) {
        if request.kind == IoKind::Read && result.is_ok() {
            self.keys.decrypt(request.offset, &mut request.buffer);
        }
        self.sink.complete(request, result);
    }
}

impl Device for EncryptedDevice {
    fn len(&self) -> u64 {
        self.below.len()
    }

    fn block_bytes(&self) -> u32 {
        BLOCK_BYTES as u32
    }

    fn atom_bytes(&self) -> u32 {
        self.below.atom_bytes()
    }

    fn is_inline(&self) -> bool {
        self.below.is_inline()
    }

    fn deep_flush(&self) -> Result<(), DeviceError> {
        self.below.deep_flush()
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.assert_blocks(offset, buffer.len() as u64);
        self.below.read(offset, buffer)?;
        self.keys.decrypt(offset, buffer);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.below.write(offset, &self.encrypted(offset, data))
    }

    fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush()
    }

    fn write_flush(&self, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.below.write_flush(offset, &self.encrypted(offset, data))
    }

    fn discard(&self, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.assert_blocks(offset, bytes);
        self.below.discard(offset, bytes)
    }

    fn write_zeroes(&self, offset: u64, bytes: u64, free: bool) -> Result<(), DeviceError> {
        self.assert_blocks(offset, bytes);
        self.below.write_zeroes(offset, bytes, free)
    }

    fn extents(&self, offset: u64, bytes: u64) -> Result<Vec<Extent>, DeviceError> {
        self.below.extents(offset, bytes)
    }

    fn submit(&self, batch: &mut Vec<IoRequest>, sink: &Arc<dyn IoSink>) {
        for request in batch.iter_mut() {
            self.assert_blocks(request.offset, request.bytes);
            if matches!(request.kind, IoKind::Write | IoKind::WriteFlush) {
                self.keys.encrypt(request.offset, &mut request.buffer);
            }
        }
        let decrypting: Arc<dyn IoSink> = Arc::new(Decrypting { keys: Arc::clone(&self.keys), sink: Arc::clone(sink) });
        self.below.submit(batch, &decrypting);
    }

    fn waits_by_itself(&self) -> bool {
        self.below.waits_by_itself()
    }

    fn durability(&self) -> Durability {
        self.below.durability()
    }
}

#[cfg(test)]
mod tests {
    use device::{MemoryShelf, Shelf};

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hexadecimal")).collect()
    }

    #[test]
    fn the_cipher_gives_the_vector_of_the_standard() {
        // IEEE 1619-2007, annex B, vector 10: XTS-AES-256, data unit 255, the bytes 0 to 255 twice.
        let key = hex(
            "27182818284590452353602874713526624977572470936999595749669676273141592653589793238462643383279502884197169399375105820974944592",
        );
        let cipher = |key: &[u8]| Aes256::new_from_slice(key).expect("32 bytes");
        let xts = Xts128::new(cipher(&key[..32]), cipher(&key[32..]));
        let mut bytes: Vec<u8> = (0..512).map(|byte| byte as u8).collect();
        xts.encrypt_sector(&mut bytes, get_tweak_default(255));
        assert_eq!(bytes[..16], hex("1c3b3a102f770386e4836c99e370cf9b")[..]);
        assert_eq!(bytes[496..], hex("c4f36ffda9fcea70b9c6e693e148c151")[..]);
    }

    fn keys(secret: u8) -> EncryptionKeys {
        EncryptionKeys::derive(&[secret; 32], &[9; SALT_BYTES]).expect("it is long enough")
    }

    #[test]
    fn what_is_below_is_ciphertext_that_differs_by_block_and_zeros_stay_zeros() {
        let below = MemoryShelf::new().create("disk", 8 * BLOCK).expect("it is made");
        let device = EncryptedDevice::new(below.clone(), keys(1));
        let plain = vec![0x41; 2 * BLOCK_BYTES];
        device.write(BLOCK, &plain).expect("it is written");
        let mut stored = AlignedBuffer::zeroed(3 * BLOCK_BYTES);
        below.read(0, &mut stored).expect("it is read");
        let blocks: Vec<&[u8]> = stored.chunks(BLOCK_BYTES).collect();
        assert!(blocks[0].iter().all(|byte| *byte == 0));
        assert!(blocks[1] != blocks[2], "equal blocks differ");
        let equal = blocks[1].iter().filter(|byte| **byte == 0x41).count();
        assert!(equal < 64, "{equal} of 4096 bytes are the plaintext's; chance gives 16");
        let mut found = vec![0; 4 * BLOCK_BYTES];
        device.read(0, &mut found).expect("it is read");
        assert!(found[..BLOCK_BYTES].iter().all(|byte| *byte == 0) && found[BLOCK_BYTES..3 * BLOCK_BYTES] == plain[..]);
        device.write_zeroes(BLOCK, BLOCK, true).expect("it is written");
        device.read(0, &mut found).expect("it is read");
        assert!(found[BLOCK_BYTES..2 * BLOCK_BYTES].iter().all(|byte| *byte == 0));
        let other = EncryptedDevice::new(below, keys(2));
        other.read(2 * BLOCK, &mut found[..BLOCK_BYTES]).expect("it is read");
        assert!(found[..BLOCK_BYTES] != plain[..BLOCK_BYTES], "another secret gives other bytes");
    }

    #[test]
    fn a_secret_is_recognised_and_a_short_one_refused() {
        assert!(keys(1).check() == keys(1).check() && keys(1).check() != keys(2).check());
        let salted = EncryptionKeys::derive(&[1; 32], &[8; SALT_BYTES]).expect("it is long enough");
        assert_ne!(salted.check(), keys(1).check());
        assert!(EncryptionKeys::derive(&[1; 31], &[9; SALT_BYTES]).is_none());
    }

    #[test]
    fn submitted_requests_are_encrypted_and_decrypted_as_calls_are() {
        struct Kept(parking_lot::Mutex<Vec<IoRequest>>);
        impl IoSink for Kept {
            fn complete(&self, request: IoRequest, result: Result<(), DeviceError>) {
                result.expect("it is done");
                self.0.lock().push(request);
            }
        }
        let below = MemoryShelf::new().create("disk", 8 * BLOCK).expect("it is made");
        let device = EncryptedDevice::new(below, keys(1));
        let kept = Arc::new(Kept(parking_lot::Mutex::default()));
        let sink: Arc<dyn IoSink> = kept.clone();
        let plain = AlignedBuffer::from(&vec![7; BLOCK_BYTES][..]);
        device.submit(&mut vec![IoRequest::write(3 * BLOCK, plain, 1)], &sink);
        device.submit(&mut vec![IoRequest::read(2 * BLOCK, AlignedBuffer::zeroed(2 * BLOCK_BYTES), 2)], &sink);
        let read = kept.0.lock().pop().expect("it came back");
        assert!(
            read.buffer[..BLOCK_BYTES].iter().all(|byte| *byte == 0)
                && read.buffer[BLOCK_BYTES..].iter().all(|byte| *byte == 7)
        );
    }
}
