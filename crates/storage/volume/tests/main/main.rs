//! Tests of volumes on memory, on the crash simulator and on faulty shelves.

mod basics;
mod crash;
mod damage;
mod failures;
mod hanging;
mod opening;
mod resync;
mod rig;
mod support;
mod threads;
