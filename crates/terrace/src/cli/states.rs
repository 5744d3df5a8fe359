//! Statuses of messages and states of their outputs, as options name them.

use clap::ValueEnum;

/// Statuses of a message.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum StatusName {
    /// It was sent to one operation or more
    Routed,
    /// A rule dropped it
    Dropped,
    /// No rule matched
    Unmatched,
    /// It was refused with AR
    Rejected,
    /// A rule or transform failed on it; refused with AE
    Errored,
}

/// States of an output.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OutputName {
    /// Not delivered yet
    Waiting,
    /// The receiver accepted it
    Delivered,
    /// Given up
    Failed,
    /// Taken out of the queue by hand
    SetAside,
}
