//! Devices on persistent memory.

pub mod bare;
mod device;
pub mod domain;
mod guard;
mod instructions;
mod lines;
mod mapping;
mod shelf;

pub use device::{Domain, Granularity};
pub use shelf::{Absent, Mapping, PmemOptions, PmemShelf};

// For the crash simulator, which runs the same algorithm on lines that lose what no fence covers.
pub(crate) use device::PmemDevice;
pub(crate) use lines::{LINE_BYTES, Lines, Lost, lines_of};
