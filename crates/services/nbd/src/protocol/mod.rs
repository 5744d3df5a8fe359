//! The NBD protocol as pure functions of bytes: numbers, negotiation, requests, replies. No sockets, no clock.
//!
//! ```text
//!   server                                              client
//!   greeting (magic, magic, flags)           ---->
//!                                            <----      flags
//!   negotiation:  replies                    <--->      options           negotiation.rs, asking.rs
//!   transmission: replies, in any order      <--->      requests          request.rs, reply.rs
//! ```
//!
//! Source of every number and rule: `doc/proto.md` of the NBD project, as of 2026-08. All numbers are big-endian.
//!
//! Invariants: a parser accepts any bytes, consumes whole elements only, and never reads beyond what it was given; what
//! it cannot accept is an error and not a guess. Lengths that a peer states are checked before memory is taken.
//!
//! Left out: the old negotiation ("oldstyle"), extended headers (lengths of 64 bits), resizing.

pub mod asking;
pub mod negotiation;
pub mod reply;
pub mod request;
pub mod status;

#[cfg(test)]
mod negotiation_tests;

/// The first magic of a greeting: "NBDMAGIC".
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;

/// The second magic of a greeting, and the magic of each option: "IHAVEOPT".
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;

/// The magic of the reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;

/// The magic of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;

/// The magic of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;

/// The magic of a chunk of a structured reply.
pub const CHUNK_MAGIC: u32 = 0x668e_33ef;

/// The largest payload of a read or write that each peer has to accept, and the largest that this server accepts: 32 MiB.
pub const PAYLOAD_BYTES_MAX: u32 = 32 << 20;

/// The preferred block of this server.
pub const PREFERRED_BLOCK_BYTES: u32 = 4096;

/// The longest string: a name of an export, a description, a query of a context.
pub const STRING_BYTES_MAX: usize = 4096;

/// The port of NBD over TCP (IANA).
pub const PORT: u16 = 10809;

/// Flags of the greeting.
pub mod greeting {
    /// The server speaks the fixed newstyle negotiation.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// The server can leave out the 124 zeros behind the answer to `EXPORT_NAME`.
    pub const NO_ZEROES: u16 = 2;
}

/// Options: what a client sends during negotiation.
pub mod option {
    /// Opens an export without a way to refuse; old clients.
    pub const EXPORT_NAME: u32 = 1;
    /// Ends the session.
    pub const ABORT: u32 = 2;
    /// Requests the names of the exports.
    pub const LIST: u32 = 3;
    /// Changes to TLS.
    pub const STARTTLS: u32 = 5;
    /// Requests what an export is.
    pub const INFO: u32 = 6;
    /// Opens an export.
    pub const GO: u32 = 7;
    /// Agrees on structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// Requests which metadata contexts there are.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Chooses metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Kinds of replies to options. Errors have the highest bit.
pub mod answer {
    /// Done; the last reply to an option.
    pub const ACK: u32 = 1;
    /// One export of a list.
    pub const SERVER: u32 = 2;
    /// One fact about an export.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// The bit of errors.
    pub const ERROR: u32 = 1 << 31;
    /// The option is unknown.
    pub const UNSUPPORTED: u32 = ERROR | 1;
    /// The server refuses by a rule of its own.
    pub const POLICY: u32 = ERROR | 2;
    /// The option makes no sense.
    pub const INVALID: u32 = ERROR | 3;
    /// TLS has to be negotiated first.
    pub const TLS_REQUIRED: u32 = ERROR | 5;
    /// There is no such export.
    pub const UNKNOWN: u32 = ERROR | 6;
    /// The server ends.
    pub const SHUTDOWN: u32 = ERROR | 7;
    /// The export cannot be used without its block sizes.
    pub const BLOCK_SIZE_REQUIRED: u32 = ERROR | 8;
    /// The option is too large.
    pub const TOO_BIG: u32 = ERROR | 9;
}

/// Kinds of facts about an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    /// Its name.
    pub const NAME: u16 = 1;
    /// Its description.
    pub const DESCRIPTION: u16 = 2;
    /// Its block sizes.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Flags of an export.
pub mod export_flag {
    /// There are flags.
    pub const HAS_FLAGS: u16 = 1;
    /// It cannot be written.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is supported.
    pub const FLUSH: u16 = 1 << 2;
    /// A write can be persistent when it is replied to.
    pub const FUA: u16 = 1 << 3;
    /// Trim is supported.
    pub const TRIM: u16 = 1 << 5;
    /// Writing zeros is supported.
    pub const WRITE_ZEROES: u16 = 1 << 6;
    /// A read can be requested in one piece.
    pub const DONT_FRAGMENT: u16 = 1 << 7;
    /// A flush of one connection covers the writes of all.
    pub const MULTI_CONN: u16 = 1 << 8;
    /// Reading ahead is supported.
    pub const CACHE: u16 = 1 << 10;
    /// Zeros can be requested only where that is fast.
    pub const FAST_ZERO: u16 = 1 << 11;
}

/// Commands: what a client sends during transmission.
pub mod command {
    /// Read.
    pub const READ: u16 = 0;
    /// Write.
    pub const WRITE: u16 = 1;
    /// End the session.
    pub const DISCONNECT: u16 = 2;
    /// Make writes persistent.
    pub const FLUSH: u16 = 3;
    /// Give space up.
    pub const TRIM: u16 = 4;
    /// Read ahead.
    pub const CACHE: u16 = 5;
    /// Write zeros.
    pub const WRITE_ZEROES: u16 = 6;
    /// Report which parts have space.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod command_flag {
    /// Persistent when replied to ("force unit access").
    pub const FUA: u16 = 1;
    /// Zeros must have space.
    pub const NO_HOLE: u16 = 2;
    /// One piece.
    pub const DONT_FRAGMENT: u16 = 4;
    /// One extent.
    pub const ONE_EXTENT: u16 = 8;
    /// Only if it is faster than writing.
    pub const FAST_ZERO: u16 = 16;
}

/// Kinds of chunks of a structured reply.
pub mod chunk {
    /// The flag of a last chunk.
    pub const DONE: u16 = 1;
    /// Nothing: success.
    pub const NONE: u16 = 0;
    /// Bytes at an offset.
    pub const DATA: u16 = 1;
    /// Zeros at an offset.
    pub const HOLE: u16 = 2;
    /// Extents of a context.
    pub const BLOCK_STATUS: u16 = 5;
    /// The bit of errors.
    pub const ERROR_BIT: u16 = 1 << 15;
    /// An error.
    pub const ERROR: u16 = ERROR_BIT | 1;
    /// An error at an offset.
    pub const ERROR_OFFSET: u16 = ERROR_BIT | 2;
}

/// Errors of a request, with the numbers of Linux.
pub mod errno {
    /// The export is read-only.
    pub const PERM: u32 = 1;
    /// The device failed.
    pub const IO: u32 = 5;
    /// No memory.
    pub const NO_MEMORY: u32 = 12;
    /// The request makes no sense, or reads past the end.
    pub const INVALID: u32 = 22;
    /// No space, or a write past the end.
    pub const NO_SPACE: u32 = 28;
    /// A read in one piece is too large.
    pub const OVERFLOW: u32 = 75;
    /// Not supported; zeros that would not be fast.
    pub const NOT_SUPPORTED: u32 = 95;
    /// The server ends.
    pub const SHUTDOWN: u32 = 108;
}

/// The metadata context of the protocol's own: which parts have space.
pub const ALLOCATION_CONTEXT: &str = "base:allocation";

/// The metadata context by which this server confirms that it enforces epochs in names; its status is the epoch's low 32 bits.
pub const EPOCH_CONTEXT: &str = "terrace:epoch";

/// The beginning of a query of a metadata context by which a client of this project states who it is, as 16 hexadecimal digits behind
/// it: this server ends the sessions that it had before, also those that it believes to be lost, and opens the export once nothing of
/// them is in the device. It is no context that has a status, and servers that do not know it ignore it.
pub const CLIENT_QUERY: &str = "terrace:client:";

/// The ids of contexts that this server gives.
pub(crate) const ALLOCATION_ID: u32 = 1;
/// See [`ALLOCATION_ID`].
pub(crate) const EPOCH_ID: u32 = 2;

/// Facts about an export, as negotiation states them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExportFacts {
    /// The canonical name.
    pub name: String,
    /// For people; empty for none.
    pub description: String,
    /// Bytes.
    pub bytes: u64,
    /// [`export_flag`].
    pub flags: u16,
    /// Smallest unit of offsets and lengths.
    pub min_block: u32,
    /// Unit that is fast.
    pub preferred_block: u32,
    /// Largest payload.
    pub max_payload: u32,
    /// Whether epochs in the name are enforced.
    pub has_epochs: bool,
}

impl ExportFacts {
    /// Whether the export has a flag of [`export_flag`].
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

/// Reads numbers off the front of bytes; `None` once there are too few.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Front<'b>(pub(crate) &'b [u8]);

impl<'b> Front<'b> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'b [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (front, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*front)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string with its length, of 32 bits, in front.
    pub(crate) fn string(&mut self) -> Option<&'b str> {
        let length = usize::try_from(self.u32()?).ok()?;
        if length > STRING_BYTES_MAX {
            return None;
        }
        std::str::from_utf8(self.bytes(length)?).ok()
    }
}

/// Appends a string with its length, of 32 bits, in front.
pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}
