//! Requests: 28 bytes each, and behind a write its payload. Parsing, and the checks that need only the export's facts.
//!
//! ```text
//!   magic (4)   flags (2)   command (2)   cookie (8)   offset (8)   length (4)   payload (length, of a write)
//! ```
//!
//! The cookie is the client's; it is returned with the reply and means nothing here.

use super::{ExportFacts, Front, REQUEST_MAGIC, command, command_flag, errno, export_flag};

/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;

/// A request as it was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// [`command_flag`].
    pub flags: u16,
    /// [`command`].
    pub command: u16,
    /// The client's number.
    pub cookie: u64,
    /// Where.
    pub offset: u64,
    /// How much.
    pub length: u32,
}

/// What lies at the front of the bytes received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFrame {
    /// Not a whole request yet.
    Incomplete,
    /// A request; the payload of a write is behind it.
    Whole(Request),
    /// Not a request: the session cannot be understood any more.
    Broken,
}

/// What was agreed on, as far as it decides which requests are allowed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Agreed {
    /// Structured replies.
    pub structured: bool,
    /// At least one metadata context.
    pub contexts: bool,
}

impl Request {
    /// Looks for a request at the front of `bytes`.
    #[inline]
    pub fn frame(bytes: &[u8]) -> RequestFrame {
        let mut front = Front(bytes);
        match front.u32() {
            Some(REQUEST_MAGIC) => {}
            Some(_) => return RequestFrame::Broken,
            None => return RequestFrame::Incomplete,
        }
        let fields = (front.u16(), front.u16(), front.u64(), front.u64(), front.u32());
        let (Some(flags), Some(command), Some(cookie), Some(offset), Some(length)) = fields else {
            return RequestFrame::Incomplete;
        };
        RequestFrame::Whole(Request { flags, command, cookie, offset, length })
    }

    /// The bytes of the request.
    pub fn encode(&self) -> [u8; REQUEST_BYTES] {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST_MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.length.to_be_bytes());
        bytes
    }

    /// Whether it has a flag of [`command_flag`].
    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Bytes that follow it.
    #[inline]
    pub fn payload(&self) -> u32 {
        if self.command == command::WRITE { self.length } else { 0 }
    }

    /// Whether the request may be carried out on the export.
    ///
    /// # Errors
    /// The number of the error that the client gets.
    #[inline]
    pub fn check(&self, facts: &ExportFacts, agreed: Agreed) -> Result<(), u32> {
        let allowed = match self.command {
            command::READ if agreed.structured => command_flag::DONT_FRAGMENT,
            command::READ | command::WRITE | command::FLUSH | command::TRIM | command::CACHE => 0,
            command::WRITE_ZEROES => command_flag::NO_HOLE | command_flag::FAST_ZERO,
            command::BLOCK_STATUS if agreed.contexts => command_flag::ONE_EXTENT,
            _ => return Err(errno::INVALID),
        };
        if self.flags & !(allowed | command_flag::FUA) != 0 {
            return Err(errno::INVALID);
        }
        if self.command == command::FLUSH {
            return if self.offset == 0 && self.length == 0 { Ok(()) } else { Err(errno::INVALID) };
        }
        let is_change = matches!(self.command, command::WRITE | command::TRIM | command::WRITE_ZEROES);
        if is_change && facts.has(export_flag::READ_ONLY) {
            return Err(errno::PERM);
        }
        if self.length == 0 || !self.is_aligned(facts.min_block) {
            return Err(errno::INVALID);
        }
        if matches!(self.command, command::READ | command::WRITE) && self.length > facts.max_payload {
            return Err(if self.has(command_flag::DONT_FRAGMENT) { errno::OVERFLOW } else { errno::INVALID });
        }
        let fits = self.offset <= facts.bytes && u64::from(self.length) <= facts.bytes - self.offset;
        match (fits, is_change) {
            (true, _) => Ok(()),
            (false, true) => Err(errno::NO_SPACE),
            (false, false) => Err(errno::INVALID),
        }
    }

    #[inline]
    fn is_aligned(&self, block: u32) -> bool {
        let below = u64::from(block.max(1)) - 1;
        self.offset & below == 0 && u64::from(self.length) & below == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> ExportFacts {
        ExportFacts {
            bytes: 1 << 20,
            flags: export_flag::HAS_FLAGS,
            min_block: 1,
            max_payload: 32 << 20,
            ..ExportFacts::default()
        }
    }

    #[test]
    fn a_request_reads_back_as_it_was_written_and_no_part_of_it_counts_as_one() {
        let request = Request { flags: 1, command: 1, cookie: u64::MAX - 7, offset: 1 << 40, length: 4096 };
        let bytes = request.encode();
        assert_eq!(Request::frame(&bytes), RequestFrame::Whole(request));
        for cut in 0..REQUEST_BYTES {
            assert_eq!(Request::frame(&bytes[..cut]), RequestFrame::Incomplete, "{cut} bytes");
        }
        assert_eq!(Request::frame(b"GET / HTTP"), RequestFrame::Broken);
    }

    #[test]
    fn each_request_that_cannot_be_has_the_error_of_the_protocol() {
        let end = 1u64 << 20;
        type Case = (&'static str, u16, u16, u64, u32, Result<(), u32>);
        let cases: &[Case] = &[
            ("read", command::READ, 0, 0, 4096, Ok(())),
            ("read of the last byte", command::READ, 0, end - 1, 1, Ok(())),
            ("read past the end", command::READ, 0, end - 1, 2, Err(errno::INVALID)),
            ("read far past the end", command::READ, 0, u64::MAX, 2, Err(errno::INVALID)),
            ("read of nothing", command::READ, 0, 0, 0, Err(errno::INVALID)),
            ("read of too much", command::READ, 0, 0, (32 << 20) + 1, Err(errno::INVALID)),
            (
                "the same in one piece",
                command::READ,
                command_flag::DONT_FRAGMENT,
                0,
                (32 << 20) + 1,
                Err(errno::OVERFLOW),
            ),
            ("write past the end", command::WRITE, 0, end, 1, Err(errno::NO_SPACE)),
            ("trim past the end", command::TRIM, 0, end - 1, 2, Err(errno::NO_SPACE)),
            ("zeros past the end", command::WRITE_ZEROES, 0, end - 1, u32::MAX, Err(errno::NO_SPACE)),
            ("cache past the end", command::CACHE, 0, end, 1, Err(errno::INVALID)),
            ("status past the end", command::BLOCK_STATUS, 0, end, 1, Err(errno::INVALID)),
            ("flush", command::FLUSH, 0, 0, 0, Ok(())),
            ("flush of a range", command::FLUSH, 0, 0, 1, Err(errno::INVALID)),
            ("unknown command", 11, 0, 0, 1, Err(errno::INVALID)),
            ("unknown flag", command::WRITE, 1 << 9, 0, 1, Err(errno::INVALID)),
            ("flag of another command", command::WRITE, command_flag::NO_HOLE, 0, 1, Err(errno::INVALID)),
            ("zeros with their flags", command::WRITE_ZEROES, 19, 0, 1, Ok(())),
        ];
        let agreed = Agreed { structured: true, contexts: true };
        for (what, command, flags, offset, length, expected) in cases {
            let request = Request { flags: *flags, command: *command, cookie: 0, offset: *offset, length: *length };
            assert_eq!(request.check(&facts(), agreed), *expected, "{what}");
        }
    }

    #[test]
    fn what_was_not_agreed_on_is_refused_and_so_is_every_change_of_a_read_only_export() {
        let request = |command, flags| Request { flags, command, cookie: 0, offset: 0, length: 512 };
        let none = Agreed::default();
        let status = request(command::BLOCK_STATUS, 0);
        assert_eq!(status.check(&facts(), none), Err(errno::INVALID));
        let one_piece = request(command::READ, command_flag::DONT_FRAGMENT);
        assert_eq!(one_piece.check(&facts(), none), Err(errno::INVALID));
        let read_only = ExportFacts { flags: export_flag::HAS_FLAGS | export_flag::READ_ONLY, ..facts() };
        for command in [command::WRITE, command::TRIM, command::WRITE_ZEROES] {
            assert_eq!(request(command, 0).check(&read_only, none), Err(errno::PERM));
        }
        assert_eq!(request(command::READ, 0).check(&read_only, none), Ok(()));
        let coarse = ExportFacts { min_block: 4096, ..facts() };
        assert_eq!(request(command::WRITE, 0).check(&coarse, none), Err(errno::INVALID));
    }
}
