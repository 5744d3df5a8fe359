//! System tests of the write-back cache: its contract, its crashes, its faults, and a volume on top of it.

mod conformance;
mod copies;
mod crash;
mod faults;
mod history;
mod identity;
mod pressure;
mod rig;
