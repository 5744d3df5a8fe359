//! What can go wrong, named by what the caller can do about it.

use std::fmt;
use std::sync::Arc;

use device::DeviceError;

use crate::format::{FrameFault, HeaderFault, VERSION};
use crate::lsn::{Lsn, Nonce};

/// Why the journal refused.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A write or a flush failed: what is persistent behind `durable()` is unknown until the journal is reopened. Every
    /// later append and commit answers this; records that were durable before stay readable.
    #[error("a write or flush of the journal failed and it takes no more; reopen it to run recovery: {cause}")]
    Poisoned {
        /// The first failure.
        cause: Arc<DeviceError>,
    },
    /// The journal was closed. Nothing was appended. Open it again.
    #[error("the journal is closed; open it again to append")]
    Closed,
    /// No space for the next segment. Nothing was appended. Truncate, or free space, and append again.
    #[error("no space for the next journal segment of {bytes} bytes; truncate the journal or free space, then retry")]
    Full {
        /// Size of the segment that could not be made.
        bytes: u64,
    },
    /// No file descriptor is free for the next segment. Nothing was appended. The journal goes on trying, and says so
    /// ([`crate::Journal::lacks_descriptor`]): append again.
    #[error(
        "the next journal segment waits for a file descriptor; raise the limit of open files (ulimit -n, LimitNOFILE)"
    )]
    NoDescriptors,
    /// The record is larger than [`crate::Options::max_record_bytes`]. Nothing was appended.
    #[error("a record of {bytes} bytes is larger than the journal takes ({max}); raise max_record_bytes or split it")]
    TooLarge {
        /// Size of the payload.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The position was truncated away.
    #[error("lsn {lsn} was truncated; the journal now starts at {first}")]
    Truncated {
        /// What was asked for.
        lsn: Lsn,
        /// The oldest position there is.
        first: Lsn,
    },
    /// Nothing persistent is there yet.
    #[error("lsn {lsn} lies behind the durable end {durable}; commit it first")]
    BeyondEnd {
        /// What was asked for.
        lsn: Lsn,
        /// The end of what is durable.
        durable: Lsn,
    },
    /// The log is intact there, but no record starts at that position.
    #[error("no record starts at lsn {lsn}")]
    NoRecord {
        /// What was asked for.
        lsn: Lsn,
    },
    /// Acknowledged bytes are damaged. The journal is not opened and nothing is changed: restore from a copy.
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
    /// The journal was written in units that its device now cannot write: it has been moved from persistent memory to a
    /// medium of larger blocks. Move it back, or let it run dry there and begin a new one.
    #[error(
        "segment {segment} is written in units of {unit} bytes, and its device now takes blocks of {block}: move the journal back to persistent memory"
    )]
    Unit {
        /// The device's name.
        segment: String,
        /// Its unit.
        unit: u32,
        /// The device's block.
        block: u32,
    },
    /// The options contradict each other or the medium.
    #[error("journal options: {0}")]
    Options(&'static str),
    /// The thread that prepares segments could not be started. Raise the limit of threads, or prepare inline.
    #[error("cannot start the thread that prepares journal segments: {0}")]
    Thread(#[source] std::io::Error),
    /// A report could not be written out.
    #[error("cannot write the report: {0}")]
    Output(#[from] std::io::Error),
    /// The device or shelf failed in a way that leaves the journal as it was.
    #[error(transparent)]
    Device(DeviceError),
}

impl From<DeviceError> for JournalError {
    /// By what can be done: what is missing may come back.
    fn from(error: DeviceError) -> JournalError {
        match error {
            DeviceError::Full { bytes, .. } => JournalError::Full { bytes },
            DeviceError::NoDescriptors { .. } => JournalError::NoDescriptors,
            other => JournalError::Device(other),
        }
    }
}

/// Where acknowledged bytes are damaged, how, and how it is known that they had been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corruption {
    /// The device's name.
    pub segment: String,
    /// Byte offset in it.
    pub offset: u64,
    /// The same place in the log.
    pub lsn: Lsn,
    /// What was expected and what was found.
    pub damage: Damage,
    /// Why this is no torn tail: a later batch that was written after this place had become durable. `None` where the
    /// damage itself is proof enough.
    pub proof: Option<Proof>,
}

/// A valid header behind the damage which says that the damaged place had been persistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proof {
    /// Where the header lies.
    pub at: Lsn,
    /// Everything before this was persistent when it was written.
    pub durable: Lsn,
}

/// What is wrong at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damage {
    /// The first block of a segment is no header.
    Header(HeaderFault),
    /// The header names another base than the segment's name does.
    Base {
        /// From the name.
        expected: Lsn,
        /// From the header.
        found: Lsn,
    },
    /// The device's size is not the header's.
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
    /// A valid frame of an earlier epoch lies where the log should go on.
    Stale {
        /// The epoch that the log had reached.
        expected: u32,
        /// Whose frame it is.
        found: Nonce,
    },
    /// Valid frames contradict each other, which no crash explains.
    Order(&'static str),
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
            Damage::Header(HeaderFault::Unit(found)) => write!(f, "segment unit: {found} bytes is none"),
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
        }
    }
}

impl fmt::Display for FrameFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            FrameFault::Elsewhere { found } => write!(f, "no frame here: its lsn field is {found}"),
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
            write!(f, "; it was durable: the header at lsn {at} was written when everything before {durable} was")?;
        }
        f.write_str("; nothing was changed, restore the segment from a copy, or a backup with `terrace restore`")
    }
}

impl From<Corruption> for JournalError {
    fn from(corruption: Corruption) -> JournalError {
        JournalError::Corrupt(Box::new(corruption))
    }
}
