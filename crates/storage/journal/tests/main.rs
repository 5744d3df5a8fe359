//! The journal's tests against simulated and real shelves, in one binary.

mod basics;
