//! The errors of this crate.

use std::io;

/// What kept a profile from being made, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// A file could not be read or written: look at the disk, then try again.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file is none, or one of a program that is newer: use that one.
    #[error("this is no profile that this program reads: {0}")]
    NotAProfile(String),
    /// The profile does not verify: make it again, or copy it again from where it was made.
    #[error("the profile is damaged at byte {at}: {what}")]
    Damaged {
        /// The offset of the section in the file, bytes.
        at: u64,
        /// What does not verify.
        what: String,
    },
    /// There is no room for it: what there was stays. Free some, then try again.
    #[error("{0}")]
    NoRoom(String),
    /// Somebody ended it while it was written: what there was stays.
    #[error("it was ended while it was written")]
    Ended,
    /// It cannot be done as it was requested; the text says what to change.
    #[error("{0}")]
    Refused(String),
}
