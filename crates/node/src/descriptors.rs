//! Descriptors: how many the process may have, and how many of them no socket from outside may take.
//!
//! Linux gives a new descriptor the lowest number that is free (open(2), accept(2)). A socket whose number is below the
//! ceiling therefore leaves all numbers from the ceiling on to others; one that got a higher number is closed at once.
//! So the reserve is exact, without counting open descriptors.
//!
//! The reserve is for what storage opens while it runs: the next journal segment, another file of pages, a backup, and for
//! connections that the node itself opens.

use std::fs;
use std::os::fd::RawFd;

use device::os;

use crate::error::NodeError;

/// Fewest descriptors that a node starts with: its runtimes, its files and a few connections take about 60.
const LEAST: u64 = 128;

/// The soft limit is not raised beyond this: the kernel's own default bound (`fs.nr_open`). Some containers have a hard limit
/// of a thousand millions, and what goes through all numbers up to the limit would take minutes.
const MOST: u64 = 1 << 20;

/// Of all descriptors, one in so many is kept from sockets ...
const RESERVED_SHARE: u64 = 4;

/// ... but at least and at most so many. A store opens a few for each 256 MiB that it grows.
const RESERVED: [u64; 2] = [32, 1024];

/// How many descriptors the process may have open. Plain data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    /// Most descriptors of the process.
    pub limit: u64,
    /// Of them, kept from sockets that others open.
    pub reserved: u64,
}

impl Descriptors {
    /// Of a process that may have `limit` open.
    pub fn of(limit: u64) -> Descriptors {
        let [least, most] = RESERVED;
        Descriptors { limit, reserved: (limit / RESERVED_SHARE).clamp(least, most).min(limit) }
    }

    /// Of this process, by its present limit.
    pub fn current() -> Descriptors {
        // Asking for a limit of one's own process cannot fail (getrlimit(2)).
        Descriptors::of(os::descriptor_limit().expect("RLIMIT_NOFILE is known to Linux").soft)
    }

    /// Raises the soft limit of this process to the hard one, and returns the resulting limits.
    ///
    /// # Errors
    /// `Limit`.
    pub fn raise() -> Result<Descriptors, NodeError> {
        let found = os::descriptor_limit().map_err(NodeError::Limit)?;
        let wanted = found.hard.min(MOST);
        if found.soft < wanted {
            os::set_descriptor_limit(wanted).map_err(NodeError::Limit)?;
        }
        Ok(Descriptors::current())
    }

    /// Whether a node can run with so many.
    ///
    /// # Errors
    /// `Descriptors`, with what to do.
    pub fn enough(self) -> Result<Descriptors, NodeError> {
        match self.limit {
            limit if limit < LEAST => Err(NodeError::Descriptors { limit, least: LEAST }),
            _ => Ok(self),
        }
    }

    /// Whether a socket with this number leaves the reserve alone.
    pub fn spares(&self, number: RawFd) -> bool {
        u64::try_from(number).is_ok_and(|number| number < self.limit - self.reserved)
    }
}

/// Descriptors that this process has open, by /proc; `None` where that cannot be read.
pub fn open() -> Option<u64> {
    let listed = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    // One of them is the list's own.
    Some(listed.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_is_kept_for_storage_and_no_socket_gets_a_number_of_it() {
        for (limit, reserved, last) in
            [(256, 64, 191), (1024, 256, 767), (1 << 20, 1024, (1 << 20) - 1025), (64, 32, 31)]
        {
            let descriptors = Descriptors::of(limit);
            assert_eq!(descriptors.reserved, reserved, "{limit}");
            assert!(descriptors.spares(last) && !descriptors.spares(last + 1), "{limit}");
        }
        assert!(!Descriptors::of(8).spares(0), "there is nothing to spare");
    }

    #[test]
    fn too_few_descriptors_are_refused_with_what_to_do() {
        let refused = Descriptors::of(127).enough().expect_err("one too few").to_string();
        assert!(refused.contains("127") && refused.contains("128") && refused.contains("ulimit -n"), "{refused}");
        assert!(Descriptors::of(128).enough().is_ok());
    }

    #[test]
    fn what_is_open_is_counted() {
        let before = open().expect("there is a /proc");
        let files: Vec<_> = (0..50).map(|_| fs::File::open("/dev/null").expect("it is there")).collect();
        // Other tests of this process open and close some of their own.
        assert!(open().expect("there is a /proc") >= before + 25);
        drop(files);
    }
}
