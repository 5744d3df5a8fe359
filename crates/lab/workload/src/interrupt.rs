//! Ctrl-C during a measurement: everything is put away, then the program ends.
//!
//! ```text
//! signal -> ask()          (the binary, which alone knows signals)
//!             |
//!           check()        in every loop that waits: an error, so that nodes, loads and folders are dropped on the way out
//! ```
//!
//! Invariants: a loop of this crate that may last longer than a second checks; asking is for the whole process and is not
//! taken back. A load in the terminal's group gets the signal too and ends by itself, which ends the wait for it.
//!
//! Not here: signals, and what a second one does (the binary).

use std::sync::atomic::{AtomicBool, Ordering};

/// Says only that somebody asked; nothing else is published with it.
static ASKED: AtomicBool = AtomicBool::new(false);

/// The error of a measurement that somebody ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("interrupted")
    }
}

impl std::error::Error for Interrupted {}

/// Ends every measurement of this process, now and from now on.
pub fn ask() {
    ASKED.store(true, Ordering::Relaxed);
}

/// Whether somebody asked.
pub fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Goes on, unless somebody asked to end.
///
/// # Errors
/// `Interrupted`.
pub fn check() -> Result<(), Interrupted> {
    if is_asked() { Err(Interrupted) } else { Ok(()) }
}
