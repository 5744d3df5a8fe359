//! [`Members`]: a set of copies. [`Set`]: which copies are in sync, in which epoch.
//!
//! An *epoch* is a number of the volume that only grows: opening, excluding a copy and adding a copy each begin a new one. Its upper
//! half is the *term*, which counts the openings and so belongs to one owner ([`crate::membership`]); the lower half counts the
//! changes of that owner. The *mint* is a number that the owner draws: it makes visible that two owners had one term, which only an
//! opening that accepts a loss makes possible.

use std::fmt;

/// The largest number of copies of a volume.
pub const COPIES_MAX: usize = 3;

/// A set of copies, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Members(pub u8);

impl Members {
    /// No copy.
    pub const NONE: Members = Members(0);

    /// The copies 0 to `copies - 1`.
    pub fn first(copies: u8) -> Members {
        Members(((1_u16 << copies) - 1) as u8)
    }

    /// This copy only.
    pub fn only(copy: u8) -> Members {
        Members(1 << copy)
    }

    /// How many.
    pub fn count(self) -> u8 {
        self.0.count_ones() as u8
    }

    /// Whether the copy is one of them.
    pub fn has(self, copy: u8) -> bool {
        self.0 >> copy & 1 == 1
    }

    /// These and the copy.
    #[must_use]
    pub fn with(self, copy: u8) -> Members {
        Members(self.0 | 1 << copy)
    }

    /// These without the copy.
    #[must_use]
    pub fn without(self, copy: u8) -> Members {
        Members(self.0 & !(1 << copy))
    }

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Members) -> Members {
        Members(self.0 & other.0)
    }

    /// Those of this set that are not in the other.
    #[must_use]
    pub fn minus(self, other: Members) -> Members {
        Members(self.0 & !other.0)
    }

    /// Whether there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Their numbers, ascending.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..COPIES_MAX as u8).filter(move |copy| self.has(*copy))
    }
}

impl fmt::Display for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.iter().map(|copy| copy.to_string()).collect();
        write!(f, "{{{}}}", numbers.join(","))
    }
}

/// An epoch with its mint; zero is before the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch {
    /// The number, which only grows.
    pub number: u64,
    /// Drawn by the owner that began it.
    pub mint: u64,
}

impl Epoch {
    /// The term of its owner.
    pub fn term(self) -> u64 {
        self.number >> 32
    }

    /// What a [`crate::Fence`] is raised to: the term, and in the lower half a part of the mint. Two owners that begin the same term at
    /// one moment have different ones, so a copy serves one of them only, also between reading and writing its superblock.
    pub fn fence(self) -> u64 {
        self.term() << 32 | self.mint & u64::from(u32::MAX)
    }

    /// An epoch of the same number that no copy has recorded as its last one.
    pub(crate) fn unrecognised(self) -> Epoch {
        Epoch { mint: 0, ..self }
    }

    /// What precedes the first epoch of a term.
    pub(crate) fn of_term(term: u64, mint: u64) -> Epoch {
        Epoch { number: term << 32, mint }
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.term(), self.number & u64::from(u32::MAX))
    }
}

/// The in-sync set, as every superblock of it records it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Set {
    /// The epoch that began with this set.
    pub epoch: Epoch,
    /// The copies that contain every acknowledged write.
    pub in_sync: Members,
    /// For each copy in sync: the epoch in which it joined; zero if it has been in sync since the volume was created. For each other
    /// copy: the last epoch in which it was in sync, or in which its replacement was recorded.
    pub left: [Epoch; COPIES_MAX],
}
