//! The store's tests through its public interface, in one binary.

mod basics;
mod histories;
mod spill;
mod support;
