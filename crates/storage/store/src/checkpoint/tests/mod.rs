//! Checkpoints under crashes and faults. The database has six values instead of trees, so that every image of every
//! moment can be tried; journal, write image journal and pages are the real ones.

mod crash;
mod faults;
mod mutation;
mod threads;
pub(crate) mod toy;
