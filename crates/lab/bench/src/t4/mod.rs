//! T4 (draft)
pub mod expect;
