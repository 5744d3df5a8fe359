//! The timing model of a medium: the time of an access alone, among others, and at the medium's maximum.
//!
//! ```text
//!   addressed (memory, pmem)                               commands (drive, san)
//!   alone    the longer of the latency (reads)             latency + the part over 4 KiB / the bandwidth
//!            and bytes / bandwidth of 1 thread
//!   among n  n * bytes / bandwidth of n threads            as alone: they overlap
//!   at least bytes / best bandwidth of any n               the longer of 1 / IOPS and bytes / bandwidth
//! ```
//!
//! The [budget](crate::Budget) computes deadlines from these three. Between measured points the model interpolates.
//! Derived values:
//!
//! 1. *Numbers of modules* that were not measured: from the nearest measured one (see `grid`).
//! 2. *Large random accesses*: from the largest measured random size on, the ratio to sequential ones stays constant,
//!    because such accesses consist of whole access units.
//! 3. *Written-back lines (clwb), sequential or large*: the ratio of clwb to non-temporal stores, measured at random
//!    for up to 256 bytes, times the non-temporal value there. The gain of sequential accesses arises in the module's
//!    buffer, however the lines arrive.
//! 4. *Media without random curves*: as sequential ones, unless something else is known.
//!
//! Stores that are left in the cache have a separate curve: lines leave the cache in an order that breaks access units.
//!
//! The model covers whole accesses, not single loads, because software cannot intercept those. It has no variation:
//! each access takes the same time, so p99 equals p50 except for the host's own noise.

mod addressed;
mod commands;
mod grid;
pub mod persistence;

use addressed::Addressed;
use commands::Commands;

use crate::CatalogueError;
use crate::medium::{Direction, Key, Medium, MediumKind, Pattern, Store};

/// Bytes of a cache line, the smallest transfer of memory (Intel 64, and ARM as far as persistent memory existed for
/// it).
pub const LINE_BYTES: u64 = 64;

/// One access of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Read or write.
    pub direction: Direction,
    /// Whether it follows a previous access.
    pub pattern: Pattern,
    /// How a write is stored; irrelevant for reads and commands.
    pub store: Store,
    /// Length.
    pub bytes: u64,
    /// Whether the thread has other such accesses in progress: then a read costs bandwidth, not latency.
    pub overlapped: bool,
}

/// The times of accesses to a medium, in nanoseconds.
#[derive(Clone, Debug)]
pub struct Model {
    name: String,
    kind: MediumKind,
    modules: u32,
    capacity_gb: f64,
    cost: Cost,
    unit: Option<Unit>,
    eadr: bool,
}

#[derive(Clone, Debug)]
enum Cost {
    Addressed(Box<Addressed>),
    Commands(Commands),
}

/// The units in which a medium writes internally.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Bytes of one.
    pub bytes: u64,
    /// How many can be open in all modules together, to merge small writes.
    pub open: usize,
}

impl Model {
    /// The model of `modules` modules of a medium; 0 means the medium's usual number.
    ///
    /// Errors: [`CatalogueError::Incomplete`] with the missing figure; [`CatalogueError::UnknownMedium`] if the curves
    /// are those of a medium that does not exist.
    pub fn of(medium: &Medium, modules: u32) -> Result<Model, CatalogueError> {
        let modules = if modules == 0 { medium.modules } else { modules };
        let cost = if medium.kind.is_addressed() {
            Cost::Addressed(Box::new(Addressed::of(medium, modules)?))
        } else {
            Cost::Commands(Commands::of(medium, modules)?)
        };
        let unit = medium.figure(Key::AccessUnit).map(|unit| {
            let buffer = medium.figure(Key::WriteBuffer).map_or(0.0, |buffer| buffer.value);
            Unit { bytes: unit.value as u64, open: (buffer / unit.value) as usize * modules as usize }
        });
        let (name, kind) = (medium.name.clone(), medium.kind);
        let capacity_gb = medium.capacity_gb * f64::from(modules);
        Ok(Model { name, kind, modules, capacity_gb, cost, unit, eadr: false })
    }

    /// The same model on a machine whose power supply preserves the caches (eADR): writes below the access unit are
    /// then stored and not written back.
    pub fn with_eadr(mut self) -> Model {
        self.eadr = true;
        self
    }

    /// The medium's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The medium's kind.
    pub fn kind(&self) -> MediumKind {
        self.kind
    }

    /// The number of modules.
    pub fn modules(&self) -> u32 {
        self.modules
    }

    /// Their total capacity, in GB of the label.
    pub fn capacity_gb(&self) -> f64 {
        self.capacity_gb
    }

    /// The units in which the medium writes internally, if it has any.
    pub fn unit(&self) -> Option<Unit> {
        self.unit
    }

    /// How a device of this kind stores a write of `bytes`: memory leaves it in the cache; persistent memory stores 256
    /// bytes or more past the cache, and writes back smaller ones, unless the caches are preserved (as `device::pmem`
    /// does).
    pub fn store(&self, bytes: u64) -> Store {
        match self.kind {
            MediumKind::Pmem if bytes >= 256 => Store::Nt,
            MediumKind::Pmem if !self.eadr => Store::Clwb,
            _ => Store::Cached,
        }
    }

    /// Time of an access without other load.
    pub fn alone(&self, access: &Access) -> f64 {
        match &self.cost {
            Cost::Addressed(cost) => cost.alone(access),
            Cost::Commands(cost) => cost.alone(access),
        }
    }

    /// Time of an access while `threads` threads, including this one, do the same without pause.
    pub fn among(&self, access: &Access, threads: u32) -> f64 {
        match &self.cost {
            Cost::Addressed(cost) => cost.among(access, threads.into()),
            Cost::Commands(cost) => cost.alone(access),
        }
    }

    /// The least time of the medium that an access uses: the inverse of the maximum over all numbers of threads.
    pub fn at_least(&self, access: &Access) -> f64 {
        match &self.cost {
            Cost::Addressed(cost) => cost.at_least(access),
            Cost::Commands(cost) => cost.at_least(access),
        }
    }

    /// Time of a flush: 0 for addressed media, whose writes are already written back and fenced.
    pub fn flush(&self) -> f64 {
        match &self.cost {
            Cost::Addressed(_) => 0.0,
            Cost::Commands(cost) => cost.flush,
        }
    }

    /// Additional time of writing back the line that was just written back.
    pub fn reflush(&self) -> f64 {
        match &self.cost {
            Cost::Addressed(cost) => cost.reflush,
            Cost::Commands(_) => 0.0,
        }
    }

    /// GB/s (1e9) of `threads` threads, 1 or more, each with one such access after the other.
    pub fn bandwidth(&self, access: &Access, threads: u32) -> f64 {
        let every = self.among(access, threads) / f64::from(threads);
        access.bytes as f64 / every.max(self.at_least(access))
    }
}

/// The value of a figure that a model requires.
fn needed(medium: &Medium, key: Key) -> Result<f64, CatalogueError> {
    let missing = || CatalogueError::Incomplete { medium: medium.name.clone(), missing: key.to_string() };
    medium.figure(key).map(|figure| figure.value).ok_or_else(missing)
}

#[cfg(test)]
mod tests;
