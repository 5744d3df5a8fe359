//! System tests of the write-back cache: its contract, its crashes, its faults, and a volume on top of it.

mod conformance;
mod crash;
mod history;
mod rig;
