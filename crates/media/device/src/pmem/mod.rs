//! Devices on persistent memory.

pub mod bare;
mod device;
mod lines;

pub use device::{Domain, Granularity};
