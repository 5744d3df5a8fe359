//! Devices on persistent memory.

mod device;
mod lines;

pub use device::{Domain, Granularity};
