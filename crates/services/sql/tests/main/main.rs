//! The engine from outside, through the same calls that the wire makes.

mod changes;
mod queries;
mod sessions;
mod support;
