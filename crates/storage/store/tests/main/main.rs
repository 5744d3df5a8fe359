//! Tests of the store through its public interface, in one binary.

mod basics;
mod crash;
mod damage;
mod encrypted;
mod histories;
mod kill;
mod maintenance;
mod pages;
mod parts;
mod power;
mod rewrite;
mod room;
mod spill;
mod support;
mod threads;
