//! Encryption at rest: which keys there are, where they come from, and how bytes are sealed with them.
//!
//! ```text
//!   provider (file, environment, command)      32 bytes from outside the data directory
//!        |  key-encryption key
//!   envelope (file in the data directory)      data keys, wrapped; the number of the last opening        envelope
//!        |  data key
//!   sealer (in memory, for one opening)        key of this opening = HKDF(data key, epoch, 64 random bits)   sealer
//!        |
//!   sealed bytes                               | ciphertext | tag 16 | stamp 24 |
//! ```
//!
//! # Why a nonce never repeats
//!
//! AES-GCM is broken by two messages with one key and one nonce: the tag's key can be computed from them. A counter on the medium
//! cannot prevent that alone, because a crash may lose its last value; a random nonce of 96 bits is safe for 2^32 messages only, which a
//! node seals in weeks. So each *opening* of a data directory has a key of its own, and counts in memory:
//!
//! 1. The envelope is written with the next *epoch* and flushed before the opening seals anything. A crash after that leaves an epoch
//!    without sealed bytes, which harms nothing. A crash before that means that nothing was sealed with it.
//! 2. The key of the opening is derived from the data key, the epoch and 64 random bits. A directory that was copied, or restored from a
//!    backup, continues with the same epoch in both copies; the random bits make the keys differ all the same. The epoch makes keys differ
//!    within one directory even if the source of randomness repeats itself.
//!    A data key that is made while a directory is open begins an opening too, by the same order: epoch durable, then the first seal.
//! 3. The nonce is the epoch (32 bits) and a counter (64 bits) that begins at 0 and is in memory only: it is used up with its key.
//!
//! What a reader needs for that (data key's id, epoch, random bits, counter) is the *stamp* behind the tag: any sealed bytes can be
//! opened with the data keys alone, however long ago they were sealed, and no list of openings grows.
//!
//! What this does not cover: the memory of a virtual machine that is saved while the node runs and started twice continues with one
//! counter twice. Do not do that with an encrypted node.
//!
//! # Rotation
//!
//! Several data keys may be known at once; new bytes are sealed with the newest. Old ones are needed until everything sealed with them
//! was rewritten or removed; a sealer tells which ones it has needed. A new key-encryption key wraps the same data keys again, and nothing
//! else changes. Both can be done while a sealer is used (`rotation`).
//!
//! # Temporary files
//!
//! [`ScratchKey`] is a key of one process, never stored, for files that nobody reads after it.
//!
//! # What it does not do
//!
//! It does not know what is stored, and does no I/O but the envelope's and the provider's. Keys are cleared from memory when they are
//! dropped, except the expanded ones inside the cipher (`ring` does not clear them). PKCS#11 and KMIP are reached by a command, which asks
//! such a device for the key. An older state that is put back as a whole is not noticed.

#![forbid(unsafe_code)]

mod envelope;
mod error;
#[doc(hidden)]
pub mod fuzzing;
mod key_id;
mod opening;
mod provider;
pub(crate) mod rotation;
mod scratch;
mod sealer;
mod secret;

pub use envelope::{DATA_KEYS_MAX, DataKeyFacts, ENVELOPE_BYTES_MAX, Envelope};
pub use error::{EncryptionError, EnvelopeFault, SealFault};
pub use key_id::KeyId;
pub use opening::{ENVELOPE_NAME, EnvelopeFile, create, open, open_envelope_in_memory, open_in_memory, open_to_read};
pub use provider::{CommandKey, EnvironmentKey, FileKey, KeyProvider};
pub use rotation::{retire_data_key, rotate_data_key, rotate_key_encryption_key};
pub use scratch::{SCRATCH_TAG_BYTES, ScratchKey};
pub use sealer::{HeldKeys, KeyMark, MARK_BYTES, SEAL_BYTES, Sealer, TAG_BYTES, data_key_of};
pub use secret::{KEY_BYTES, Randomness, Secret, SystemRandomness};
