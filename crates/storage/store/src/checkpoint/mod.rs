//! Checkpoints: write changed pages back in such a way that a crash never leaves half of a change on the data devices.
//!
//! ```text
//!   applier ---- changes pages in the cache ------------------------------------------------->
//!                     | begin, redo LSN X                     | begin, redo LSN X'
//!   checkpoint        +-- fresh pages, images, commit, in place, invalidate, truncate --+  pause
//!
//!   data devices      state at the previous X ... | commit: state at X (from here on a crash restores it)
//! ```
//!
//! * [`machine`]: the order of the steps, pure
//! * [`pace`]: when a checkpoint begins and how fast it goes, pure
//! * [`writer`]: the I/O of the steps; [`dirty`]: the pages from the cache
//! * [`open`]: opening, creating and restoring
//! * [`runner`]: which thread runs checkpoints
//! * [`checkpointer`]: the thread that runs checkpoints, and what makes the applier wait
//!
//! A *fresh* page (one that was free in the last checkpoint's map) is written in place at once: until the commit mark
//! nothing durable refers to it. Every other page goes through the write image journal. So the data devices always
//! contain exactly the state at some redo LSN, and redo is logical.
//!
//! Errors: the first write or flush that fails poisons the store. Acknowledged changes are in the journal; the next
//! opening repairs the pages.

pub(crate) mod checkpointer;
pub(crate) mod dirty;
pub(crate) mod machine;
pub(crate) mod open;
pub(crate) mod pace;
pub(crate) mod run_writer;
pub(crate) mod runner;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod writer;
