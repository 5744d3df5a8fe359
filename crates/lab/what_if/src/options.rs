//! [`WhatIfOptions`]: what is to be measured, as plain data.

use std::path::PathBuf;
use std::time::Duration;

use crate::figures::OwnPatterns;
use crate::media::Target;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct WhatIfOptions {
    /// The media.
    pub targets: Vec<Target>,
    /// Size of the file systems, bytes.
    pub bytes: u64,
    /// Where a folder for the run on the real disk is made.
    pub disk: Option<PathBuf>,
    /// Rounds; each medium runs once (or four times) in each.
    pub rounds: usize,
    /// Run through a shell in each place before everything else.
    pub setup: Option<String>,
    /// The command.
    pub command: Vec<String>,
    /// How to read its output.
    pub patterns: OwnPatterns,
    /// The longest time of a run.
    pub timeout: Duration,
    /// Extrapolate also what can be run, to show how far that is off.
    pub check: bool,
    /// Exports that have something on them may be overwritten.
    pub overwrite: bool,
}
