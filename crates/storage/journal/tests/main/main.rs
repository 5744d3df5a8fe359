//! The journal's tests against simulated and real shelves, in one binary.

mod basics;
mod crash;
mod support;
