//! The errors of the journal, named by what the caller can do about them.

use std::fmt;
use std::sync::Arc;

use device::DeviceError;
use encryption::SealFault;

use crate::format::{FrameFault, HeaderFault, VERSION_ENCRYPTED as VERSION};
use crate::lsn::{Lsn, Nonce};

/// Why the journal refused a call.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A write or a flush failed: it is unknown which bytes after `durable()` are persistent until the journal is
    /// reopened. Every later append and commit returns this; records that were durable before can still be read.
    #[error("a write or flush of the journal failed; it refuses new records, reopen it to run recovery: {cause}")]
    Poisoned {
        /// The first failure.
        cause: Arc<DeviceError>,
    },
    /// The journal was closed. Nothing was appended. Open it again.
    #[error("the journal is closed; open it again to append")]
    Closed,
    /// No space for the next segment. Nothing was appended. Truncate, or free space, then append again.
    #[error("no space for the next journal segment of {bytes} bytes; truncate the journal or free space, then retry")]
    Full {
        /// Size of the segment that could not be made.
        bytes: u64,
    },
    /// No file descriptor is free for the next segment. Nothing was appended. The journal retries, and reports the
    /// state ([`crate::Journal::lacks_descriptor`]): append again later.
    #[error(
        "the next journal segment waits for a file descriptor; raise the limit of open files (ulimit -n, LimitNOFILE)"
    )]
    NoDescriptors,
    /// The record is larger than [`crate::Options::max_record_bytes`]. Nothing was appended.
    #[error(
        "a record of {bytes} bytes exceeds the journal's limit of {max}; raise max_record_bytes or split the record"
    )]
    TooLarge {
        /// Size of the payload.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The position was truncated.
    #[error("lsn {lsn} was truncated; the journal now starts at {first}")]
    Truncated {
        /// The requested position.
        lsn: Lsn,
        /// The oldest position of the log.
        first: Lsn,
    },
    /// Nothing persistent exists at that position yet.
    #[error("lsn {lsn} is after the durable end {durable}; commit it first")]
    BeyondEnd {
        /// The requested position.
        lsn: Lsn,
        /// The end of the durable records.
        durable: Lsn,
    },
    /// The log is intact there, but no record starts at that position.
    #[error("no record starts at lsn {lsn}")]
    NoRecord {
        /// The requested position.
        lsn: Lsn,
    },
    /// Acknowledged bytes are damaged. The journal is not opened and nothing is changed: restore it from a copy.
    #[error("{0}")]
    Corrupt(Box<Corruption>),
    /// A segment was written by another version of the format.
    #[error("segment {segment} has format version {found}; this program reads up to {VERSION}")]
    Version {
        /// The device's name.
        segment: String,
        /// Its version.
        found: u32,
    },
    /// The journal was written in units that its device now cannot write: it was moved from persistent memory to a
    /// medium with larger blocks. Move it back, or create a new journal there once all its records have been applied.
    #[error(
        "segment {segment} is written in units of {unit} bytes, but its device requires blocks of {block}: move the journal back to persistent memory"
    )]
    Unit {
        /// The device's name.
        segment: String,
        /// Its unit.
        unit: u32,
        /// The device's block.
        block: u32,
    },
    /// The journal is encrypted, and no key was given. Nothing was written.
    #[error("journal segment {segment} is encrypted: give the key-encryption key")]
    Encrypted {
        /// The device's name.
        segment: String,
    },
    /// A key was given, and the journal is not encrypted. Nothing was written.
    #[error(
        "journal segment {segment} is not encrypted, but a key was given: data is encrypted from its beginning or not at all"
    )]
    Clear {
        /// The device's name.
        segment: String,
    },
    /// The journal is encrypted with another key. Nothing was written.
    #[error("journal segment {segment}: {fault}")]
    Key {
        /// The device's name.
        segment: String,
        /// What does not match.
        fault: SealFault,
    },
    /// The options contradict each other or the medium.
    #[error("journal options: {0}")]
    Options(&'static str),
    /// The thread that prepares segments could not be started. Raise the limit of threads, or prepare inline.
    #[error("cannot start the thread that prepares journal segments: {0}")]
    Thread(#[source] std::io::Error),
    /// A report could not be written to its output.
    #[error("cannot write the report: {0}")]
    Output(#[from] std::io::Error),
    /// The device or shelf failed, and the journal is unchanged.
    #[error(transparent)]
    Device(DeviceError),
}

impl From<DeviceError> for JournalError {
    /// Maps errors by what the caller can do: space and descriptors may become available again.
    fn from(error: DeviceError) -> JournalError {
        match error {
            DeviceError::Full { bytes, .. } => JournalError::Full { bytes },
            DeviceError::NoDescriptors { .. } => JournalError::NoDescriptors,
            other => JournalError::Device(other),
        }
    }
}

/// Where acknowledged bytes are damaged, how, and the proof that they had been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The device's name.
    pub segment: String,
    /// Byte offset in it.
    pub offset: u64,
    /// The same position as an LSN.
    pub lsn: Lsn,
    /// The expected and the found value.
    pub damage: Damage,
    /// Why this is not a torn tail: a later batch that was written after this place had become durable. `None` if the
    /// damage itself is sufficient proof.
    pub proof: Option<Proof>,
}

/// A valid header after the damage. Its `durable` shows that the damaged place had been persistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Position of the header.
    pub at: Lsn,
    /// Everything before this was persistent when it was written.
    pub durable: Lsn,
}

/// The kind of damage at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The first block of a segment is not a valid header.
    Header(HeaderFault),
    /// The header names another base than the segment's name does.
    Base {
        /// From the name.
        expected: Lsn,
        /// From the header.
        found: Lsn,
    },
    /// The device's size differs from the size in the header.
    Size {
        /// From the header.
        expected: u64,
        /// From the device.
        found: u64,
    },
    /// The segment belongs to another journal.
    Identity {
        /// Of the first segment.
        expected: u32,
        /// Of this one.
        found: u32,
    },
    /// A segment is missing in front of this one.
    Gap {
        /// Where this segment should start.
        expected: Lsn,
        /// Where it starts.
        found: Lsn,
    },
    /// A frame is not valid.
    Frame(FrameFault),
    /// A valid frame of an earlier epoch lies where the log should continue.
    Stale {
        /// The current epoch of the log.
        expected: u32,
        /// The nonce of the frame.
        found: Nonce,
    },
    /// Valid frames contradict each other, which no crash can cause.
    Order(&'static str),
    /// The checksum of a frame matches, and its seal does not verify.
    Seal(SealFault),
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Damage::Header(HeaderFault::Magic) => f.write_str("no segment header"),
            Damage::Header(HeaderFault::Version(found)) => {
                write!(f, "format version: expected up to {VERSION}, found {found}")
            }
            Damage::Header(HeaderFault::Checksum { expected, found }) => {
                write!(f, "segment header checksum: expected {expected:08x}, found {found:08x}")
            }
            Damage::Header(HeaderFault::Unit(found)) => write!(f, "segment unit: {found} bytes is not a valid unit"),
            Damage::Base { expected, found } => write!(f, "segment base: expected {expected}, found {found}"),
            Damage::Size { expected, found } => write!(f, "segment size: expected {expected}, found {found}"),
            Damage::Identity { expected, found } => {
                write!(f, "journal identity: expected {expected:08x}, found {found:08x}")
            }
            Damage::Gap { expected, found } => {
                write!(f, "a segment is missing: expected one at lsn {expected}, found lsn {found}")
            }
            Damage::Frame(fault) => fault.fmt(f),
            Damage::Stale { expected, found } => {
                write!(f, "stale batch: expected epoch {expected} or later, found {found}")
            }
            Damage::Order(what) => f.write_str(what),
            Damage::Seal(fault) => fault.fmt(f),
        }
    }
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FrameFault::Elsewhere { found } => write!(f, "no frame here: its lsn field contains {found}"),
            FrameFault::Foreign { found } => write!(f, "a frame of another journal: nonce {found}"),
            FrameFault::Header { expected, found } => {
                write!(f, "frame header checksum: expected {expected:08x}, found {found:08x}")
            }
            FrameFault::Payload { expected, found } => {
                write!(f, "payload checksum: expected {expected:08x}, found {found:08x}")
            }
        }
    }
}

impl fmt::Display for Corruption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Corruption { segment, offset, lsn, damage, .. } = self;
        write!(f, "journal segment {segment} is damaged at offset {offset} (lsn {lsn}): {damage}")?;
        if let Some(Proof { at, durable }) = self.proof {
            write!(f, "; it was durable: when the header at lsn {at} was written, everything before {durable} was")?;
        }
        f.write_str("; nothing was changed, restore the segment from a copy, or a backup with `terrace restore`")
    }
}

impl From<Corruption> for JournalError {
    fn from(corruption: Corruption) -> JournalError {
        JournalError::Corrupt(Box::new(corruption))
    }
}
