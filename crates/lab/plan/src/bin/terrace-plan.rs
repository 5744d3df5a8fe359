//! `terrace-plan`: `terrace profile` as a program of its own, which builds in a minute because it is without the node. Exit codes are
//! those of terrace: 0 done, 2 it could not run.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plan::ProfileCommand;

/// Profiles of workloads.
#[derive(Debug, Parser)]
#[command(name = "terrace-plan", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: PlanCommand,
}

#[derive(Debug, Subcommand)]
enum PlanCommand {
    /// Make and show profiles
    #[command(subcommand)]
    Profile(ProfileCommand),
}

fn main() -> ExitCode {
    let Arguments { command: PlanCommand::Profile(command) } = Arguments::parse();
    command.run().unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
