//! Media accessed by commands: SSDs and storage networks, as latency, operations per second and bytes per second.
//!
//! ```text
//!   command ---> gate: one after the other, each 1 / IOPS or bytes / bandwidth ---> latency, side by side ---> done
//! ```
//!
//! With few commands in progress the latency dominates, with many the gate. So the number of parallel units inside is
//! IOPS x latency (Little's law), and need not be known. IOPS figures are for 4 KiB; larger commands use a proportional
//! part of the bandwidth, smaller ones as much as 4 KiB. Several drives of one kind are striped and have the sum of
//! their gates.

use super::{Access, needed};
use crate::CatalogueError;
use crate::medium::{Direction, Key, Medium};

/// Size of the commands of IOPS and latency figures, bytes.
const COMMAND_BYTES: f64 = 4096.0;

#[derive(Clone, Debug)]
pub(super) struct Commands {
    read: Side,
    write: Side,
    /// Time of a flush, in nanoseconds.
    pub(super) flush: f64,
}

#[derive(Clone, Debug)]
struct Side {
    latency: f64,
    /// Nanoseconds of a 4 KiB command at maximum IOPS, for all drives together.
    every: f64,
    /// GB/s of one drive: a single command runs on one drive.
    one: f64,
    /// GB/s of all drives.
    all: f64,
}

impl Commands {
    pub(super) fn of(medium: &Medium, modules: u32) -> Result<Commands, CatalogueError> {
        let modules = f64::from(modules);
        let side = |latency, iops, bandwidth| {
            let one = needed(medium, bandwidth)?;
            let every = 1e9 / (needed(medium, iops)? * modules);
            Ok::<Side, CatalogueError>(Side { latency: needed(medium, latency)?, every, one, all: one * modules })
        };
        Ok(Commands {
            read: side(Key::ReadLatency, Key::ReadIops, Key::ReadBandwidth)?,
            write: side(Key::WriteLatency, Key::WriteIops, Key::WriteBandwidth)?,
            flush: needed(medium, Key::FlushLatency)?,
        })
    }

    fn side(&self, access: &Access) -> &Side {
        match access.direction {
            Direction::Read => &self.read,
            Direction::Write => &self.write,
        }
    }

    pub(super) fn alone(&self, access: &Access) -> f64 {
        let side = self.side(access);
        side.latency + (access.bytes as f64 - COMMAND_BYTES).max(0.0) / side.one
    }

    /// Random commands are limited by their number, sequential ones only by their bytes, because the drive merges them.
    pub(super) fn at_least(&self, access: &Access) -> f64 {
        let side = self.side(access);
        let weighed = access.bytes as f64 / side.all;
        match access.pattern {
            crate::medium::Pattern::Random => weighed.max(side.every),
            crate::medium::Pattern::Sequential => weighed,
        }
    }
}
