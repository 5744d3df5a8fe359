//! Write cycles: how changed pages come home without a crash ever finding half of a change there.
//!
//! ```text
//!   applier ---- changes pages in the cache ------------------------------------------------->
//!                     | cut at X                              | cut at X'
//!   cycle             +-- fresh pages home, images, flag, home, clear, truncate --+  pause
//!
//!   at home           state at the X before ..... | flag: state at X (from here on a crash restores it)
//! ```
//!
//! * [`machine`]: the order of the steps, pure
//! * [`pace`]: when a cycle begins and how fast it goes, pure
//! * [`mod@write`]: the I/O of the steps; what the cache gives, [`frozen`]
//! * [`ground`]: opening, making and restoring
//! * [`cycler`]: the thread that runs cycles, and what makes the applier wait
//!
//! A page that is *fresh* (free in the last cut's map) goes straight home: until the flag nothing durable names it. Every other
//! goes through the write image journal. So at home there is always, exactly, the state at some X, and redo is logical.
//!
//! Errors: the first write or flush that fails freezes the store. What was acknowledged is in the journal; pages are mended by
//! opening again.

pub(crate) mod cycler;
pub(crate) mod frozen;
pub(crate) mod ground;
pub(crate) mod machine;
pub(crate) mod pace;
pub(crate) mod run;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod write;
