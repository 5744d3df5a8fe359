//! Tests of volumes on memory, on the crash simulator and on faulty shelves.

mod basics;
mod crash;
mod damage;
mod failures;
mod opening;
mod resync;
mod rig;
mod support;
#[path = "../write_back/mod.rs"]
mod write_back;
