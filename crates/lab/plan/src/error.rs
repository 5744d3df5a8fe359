//! The errors of this crate.

use std::io;

use profile::ProfileError;

/// What kept a profile from being made, written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
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
    /// A line or record of a trace is not of its format.
    #[error("{unit} {number}: {what}")]
    BadLine {
        /// What is counted: line or record.
        unit: &'static str,
        /// Its number, from 1.
        number: u64,
        /// What is wrong with it, without its content.
        what: String,
    },
    /// It cannot be done as it was requested; the text says what to change.
    #[error("{0}")]
    Refused(String),
}

impl From<ProfileError> for PlanError {
    fn from(error: ProfileError) -> PlanError {
        match error {
            ProfileError::Io(error) => PlanError::Io(error),
            ProfileError::NotAProfile(what) => PlanError::NotAProfile(what),
            ProfileError::Damaged { at, what } => PlanError::Damaged { at, what },
            ProfileError::Refused(what) => PlanError::Refused(what),
            other => PlanError::Refused(other.to_string()),
        }
    }
}
