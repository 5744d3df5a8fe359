//! The engine from outside, through the same calls that the wire makes.

mod cancelling;
mod changes;
mod crash;
mod external;
mod forms;
mod histories;
mod queries;
mod sessions;
mod support;
mod upserts;
mod views;
