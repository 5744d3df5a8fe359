//! [`Lsn`]: a byte position in the endless log. [`Nonce`]: the journal and epoch that wrote bytes.

use std::fmt;
use std::str::FromStr;

/// Log sequence number: a byte position in the endless log. It is never reused and only increases.
///
/// The LSN of a record is the position of its first frame. LSN 0 is the header of the first segment and therefore never
/// a record: it means "nothing yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(pub u64);

impl Lsn {
    /// Before every record.
    pub const ZERO: Lsn = Lsn(0);

    /// The position `bytes` later.
    pub(crate) fn plus(self, bytes: u64) -> Lsn {
        Lsn(self.0.checked_add(bytes).expect("2^64 bytes of log are not reached"))
    }

    /// The distance in bytes from `earlier`.
    pub(crate) fn since(self, earlier: Lsn) -> u64 {
        self.0.checked_sub(earlier.0).expect("positions are compared before they are subtracted")
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl FromStr for Lsn {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Lsn, Self::Err> {
        text.parse().map(Lsn)
    }
}

/// Which journal, and which opening of it, wrote something: frames with another nonce than expected are stale.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Nonce {
    /// Drawn when the journal is created; distinguishes the segments of two journals.
    pub identity: u32,
    /// Counts the openings of this journal, from 1; only increases along the log.
    pub epoch: u32,
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}.{}", self.identity, self.epoch)
    }
}
