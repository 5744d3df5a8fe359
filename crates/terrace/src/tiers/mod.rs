//! `terrace tier`: shows the memory and disks of this machine, measures them, and divides persistent memory.
//!
//! ```text
//!   list    catalogue::provision::Machine, as tables
//!   probe   measurements, with files that are removed again
//!   plan    wish + machine -> plan, as text; nothing is changed
//!   apply   plan -> commands one by one, with a state file across the restart of a goal
//! ```
//!
//! `catalogue::provision` makes the plan; here are the command line, the tables, and the changes of the host.

mod apply;
mod args;
mod host;
mod list;
mod planning;
mod probe;

use std::process::ExitCode;

pub use args::TierCommand;

/// Runs it.
pub fn run(command: TierCommand) -> anyhow::Result<ExitCode> {
    match command {
        TierCommand::List(args) => list::run(&args),
        TierCommand::Probe(args) => probe::run(&args),
        TierCommand::Plan(args) => planning::run(&args),
        TierCommand::Apply(args) => apply::run(&args),
    }
}
