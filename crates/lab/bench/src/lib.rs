//! (skeleton)
#![forbid(unsafe_code)]
pub mod messages;
