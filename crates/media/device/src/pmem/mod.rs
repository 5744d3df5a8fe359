//! Devices on persistent memory.

pub mod bare;
mod device;
mod lines;

pub use device::{Domain, Granularity};
pub(crate) use device::PmemDevice;
pub(crate) use lines::{LINE_BYTES, Lines, Lost, lines_of};
