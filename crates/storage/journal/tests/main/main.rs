//! Tests of the journal on simulated and real shelves, in one binary.

mod basics;
mod committers;
mod copies;
mod crash;
mod encrypted;
mod faults;
mod flips;
mod golden;
mod kill;
mod model;
mod mutation;
mod overlap;
mod support;
mod threads;
