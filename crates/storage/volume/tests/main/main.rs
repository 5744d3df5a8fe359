//! Tests of volumes on memory, on the crash simulator and on faulty shelves.

mod basics;
mod crash;
mod damage;
mod failures;
mod fences;
mod full;
mod golden;
mod handed;
mod hanging;
mod opening;
mod pitfalls;
mod resync;
mod rig;
mod rival;
mod support;
mod thin;
mod threads;
mod waiting;
#[path = "../write_back/mod.rs"]
mod write_back;
