//! `terrace-plan`: `terrace profile` and `terrace plan` as a program of its own, which builds in a minute because it is without the node. Exit
//! codes are those of terrace: 0 done, 2 it could not run.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use plan::{PlanArgs, ProfileCommand};

/// Profiles of workloads, and plans.
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
    /// The cheapest mix of media for a workload
    Plan(Box<PlanArgs>),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        PlanCommand::Profile(command) => command.run(),
        PlanCommand::Plan(args) => args.run(),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}
