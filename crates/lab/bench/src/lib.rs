//! (skeleton)
#![forbid(unsafe_code)]
pub mod histogram;
pub mod load;
pub mod messages;
pub mod t4;
