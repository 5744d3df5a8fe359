//! Checkpoints: how changed pages are written back without a crash ever finding half of a change there.
//!
//! ```text
//!   applier ---- changes pages in the cache ------------------------------------------------->
//!                     | begin, redo LSN X                     | begin, redo LSN X'
//!   checkpoint        +-- fresh pages, images, commit, in place, invalidate, truncate --+  pause
//!
//!   data devices      state at the X before ..... | commit: state at X (from here on a crash restores it)
//! ```
//!
//! * [`machine`]: the order of the steps, pure
//! * [`pace`]: when a checkpoint begins and how fast it goes, pure
//! * [`writer`]: the I/O of the steps; what the cache gives, [`dirty`]
//! * [`open`]: opening, making and restoring
//! * [`runner`]: on which thread checkpoints run
//! * [`checkpointer`]: the thread that runs checkpoints, and what makes the applier wait
//!
//! A page that is *fresh* (free in the last checkpoint's map) is written in place at once: until the commit mark nothing durable names it. Every other
//! goes through the write image journal. So the data devices always hold, exactly, the state at some redo LSN, and redo is logical.
//!
//! Errors: the first write or flush that fails poisons the store. What was acknowledged is in the journal; pages are mended by
//! opening again.

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
