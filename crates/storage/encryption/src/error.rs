//! The errors of keys, envelopes and sealed bytes.

use std::path::PathBuf;

use crate::key_id::KeyId;

/// Why keys cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum EncryptionError {
    /// The provider gave no key.
    #[error("the key-encryption key cannot be had from {provider}: {why}")]
    Provider {
        /// What was asked.
        provider: String,
        /// What went wrong.
        why: String,
    },
    /// The key is not the one that the envelope was made with. Nothing was changed.
    #[error(
        "the key from {provider} is {found}, but the data keys are wrapped with {expected}: give the right key-encryption key"
    )]
    WrongKey {
        /// Who gave the key.
        provider: String,
        /// The key that is needed.
        expected: KeyId,
        /// The key that was given.
        found: KeyId,
    },
    /// A data key does not unwrap although the key is the right one: the envelope was changed.
    #[error("data key {id} of the envelope was changed: restore the envelope from a copy")]
    Changed {
        /// The number of the data key.
        id: u32,
    },
    /// The envelope cannot be read.
    #[error("{path}: {fault}; restore the envelope from a copy: without it the data cannot be read")]
    Envelope {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: EnvelopeFault,
    },
    /// There is an envelope already.
    #[error("{0} exists already")]
    Exists(PathBuf),
    /// There is no envelope.
    #[error("{0} is missing: the data is not encrypted, or its envelope is lost")]
    Missing(PathBuf),
    /// The envelope has no room for one more data key.
    #[error("the envelope has as many data keys as it can have")]
    Full,
    /// Keys are held by who copies data.
    #[error("a backup is being made, which has the keys of its beginning: try again when it has ended")]
    Held,
    /// The data key that seals cannot be retired.
    #[error("data key {0} is the newest one, which encrypts what is written: make a new one first")]
    Newest(u32),
    /// There is no data key of that number.
    #[error("the envelope has no data key {0}")]
    NoSuchKey(u32),
    /// All epochs are used.
    #[error("the data directory was opened 2^32 times: make a new data key")]
    Epochs,
    /// The system gave no random bytes.
    #[error("the system gives no random bytes")]
    Randomness,
    /// The envelope's file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Why bytes are not an envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeFault {
    /// They do not begin as one, or have another length.
    #[error("it is not an envelope of keys")]
    Magic,
    /// Another version of the format.
    #[error("it has format version {0}, this program reads version 1")]
    Version(u32),
    /// The checksum does not match.
    #[error("its checksum is {found:08x}, its bytes give {computed:08x}")]
    Checksum {
        /// Stored.
        found: u32,
        /// Computed.
        computed: u32,
    },
    /// The checksum matches, and the content makes no sense.
    #[error("its data keys are not numbered from low to high")]
    Order,
}

/// Why sealed bytes cannot be opened. Treated as damage, like a checksum that does not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealFault {
    /// Too short to be sealed.
    #[error("too short to be sealed")]
    Short,
    /// Sealed with a data key that is not in the envelope.
    #[error("sealed with data key {0}, which is not in the envelope")]
    UnknownKey(u32),
    /// A data key of that number is in the envelope, but it is another one.
    #[error("sealed with another data key {0} than the envelope's: the envelope belongs to other data")]
    OtherKey(u32),
    /// The tag does not match: the bytes were changed, or belong to another place.
    #[error("its seal does not verify: it was changed, or moved from another place")]
    Tag,
}
