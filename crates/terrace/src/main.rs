//! Terrace: a data platform for machines with more than one kind of memory. This is its one program.
//!
//! The command line is parsed in `cli`, each command has a file of its own, and this file only connects them and turns
//! what went wrong into an exit code: 0 done, 1 a check found a problem, 2 it could not run.

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "everything in a program is reachable by the program only")]

#[macro_use]
mod terminal;

mod assemble;
mod benches;
mod cli;
mod config;
mod demo;
mod journals;
mod messages;
mod productions;
mod serve;
mod show;
#[cfg(feature = "sql")]
mod sql;
#[cfg(not(feature = "sql"))]
#[path = "without_sql.rs"]
mod sql;
mod tiers;
mod upkeep;

use std::process::ExitCode;

use ::node::Descriptors;
use clap::Parser;
use cli::{Cli, Command, ProductionCommand, SqlCommand};
use device::CountedHeap;

/// Counted, because SQL bounds what its statements take. A message makes and drops about twenty buffers of a few kilobytes, some on
/// another thread than the one that made them.
#[global_allocator]
static ALLOCATOR: CountedHeap = CountedHeap;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(error) if broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", explain(&error));
            ExitCode::from(2)
        }
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // A store has many files, whichever command opens it.
    Descriptors::raise()?;
    // What is made is about patients. A production that is begun holds nothing yet, and is for people to edit.
    if !matches!(cli.command, Command::Production(ProductionCommand::New { .. })) {
        device::os::make_all_private();
    }
    match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Stop(place) => serve::stop(&place),
        Command::Status(args) => serve::status(&args),
        Command::Reload(place) => serve::reload(&place),
        Command::Clock(command) => serve::clock(&command),
        Command::Production(command) => productions::run(command),
        Command::Operation(command) => productions::operation(command),
        Command::Message(command) => messages::run(command),
        Command::Sql(SqlCommand::Verifier) => sql::verifier(),
        Command::Tier(command) => tiers::run(command),
        Command::Bench(args) => benches::run(&args.arguments),
        Command::T4Load { settings } => demo::load(&settings),
        Command::Inspect(command) => journals::inspect(command),
        Command::Verify(args) => upkeep::verify(&args),
        Command::Backup(args) => upkeep::backup(&args),
        Command::Repair(args) => upkeep::repair(&args),
        Command::Restore(args) => upkeep::restore(&args),
    }
}

/// The error and its causes, each told once: many errors name their cause in their own text.
fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |told, cause| match told.as_str() {
        "" => cause,
        told if told.contains(&cause) => told.to_owned(),
        told => format!("{told}: {cause}"),
    })
}

/// Whether the reader of our output went away (`terrace message list | head`): that is no error.
fn broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
