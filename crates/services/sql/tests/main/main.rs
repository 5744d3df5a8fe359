//! The engine from outside, through the same calls that the wire makes.

mod cancelling;
mod changes;
mod crash;
mod external;
mod forms;
mod histories;
mod numbers;
mod queries;
mod sessions;
mod support;
mod texts;
mod upserts;
mod views;
