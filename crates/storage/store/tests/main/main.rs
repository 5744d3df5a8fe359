//! The store's tests through its public interface, in one binary.

mod basics;
mod crash;
mod damage;
mod histories;
mod kill;
mod pages;
mod power;
mod room;
mod spill;
mod support;
mod threads;
mod upkeep;
