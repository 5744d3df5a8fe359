//! Terrace: a data platform for machines with more than one kind of memory. This is its one program.
//!
//! The command line is parsed in `cli`, each command has a file of its own, and this file only connects them and turns
//! the result into an exit code: 0 done, 1 a check found a problem, 2 it could not run.

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "everything in a program is reachable by the program only")]

#[macro_use]
mod terminal;

mod access;
mod alerts;
mod assemble;
mod audit;
mod backups;
mod benches;
mod certificates;
mod cli;
mod config;
mod connections;
mod console;
mod demo;
mod doctor;
mod encryption;
mod history;
mod identity;
mod init;
mod journals;
mod listeners;
mod logging;
mod maintenance;
mod manual;
mod memory;
mod messages;
mod metrics;
mod moments;
mod operations;
mod place;
mod production_requests;
mod productions;
mod profiles;
mod rewrite_command;
mod rewriting;
#[cfg(feature = "search")]
mod search;
#[cfg(not(feature = "search"))]
#[path = "without_search.rs"]
mod search;
mod serve;
mod services;
mod show;
#[cfg(feature = "sql")]
mod sql;
#[cfg(not(feature = "sql"))]
#[path = "without_sql.rs"]
mod sql;
mod supervision;
mod tiers;
mod todo;
mod trials;
mod volume_commands;
mod volumes;

use std::panic::{self, AssertUnwindSafe};
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
    match panic::catch_unwind(AssertUnwindSafe(|| run(cli))) {
        Ok(Ok(code)) => code,
        Ok(Err(error)) if broken_pipe(&error) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("error: {}", explain(&error));
            ExitCode::from(2)
        }
        Err(payload) if payload.is::<terminal::ReaderGone>() => ExitCode::SUCCESS,
        Err(payload) => panic::resume_unwind(payload),
    }
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    // A store has many files, whichever command opens it.
    Descriptors::raise()?;
    // Files that commands make contain patient data. A new production, settings and manual pages contain none, and users edit or read them.
    let made_for_others = matches!(
        cli.command,
        Command::Production(ProductionCommand::New { .. }) | Command::Init(_) | Command::ManPages(_)
    );
    if !made_for_others {
        device::os::make_all_private();
    }
    if let Ok(token) = std::env::var("TERRACE_TOKEN") {
        node::control::present_token(&token);
    }
    if let Ok(key) = std::env::var(node::encryption::KEY_VARIABLE) {
        node::encryption::present_key(node::encryption::provider_of(&key)?);
    }
    match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::Init(args) => init::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Completions(args) => manual::completions(&args),
        Command::ManPages(args) => manual::man_pages(&args),
        Command::Serve(args) => serve::run(&args),
        Command::Stop(place) => serve::stop(&place),
        Command::Status(args) => serve::status(&args),
        Command::Reload(place) => serve::reload(&place),
        Command::Clock(command) => serve::clock(&command),
        Command::Production(command) => productions::run(command),
        Command::Operation(command) => operations::run(command),
        Command::Transform(command) => trials::transform(&command),
        Command::Rules(command) => trials::rules(&command),
        Command::Message(command) => messages::run(command),
        Command::Todo(command) => todo::run(command),
        Command::Audit(command) => audit::run(command),
        Command::Alert(command) => alerts::run(&command),
        Command::Connection(command) => connections::run(&command),
        Command::History(args) => history::run(&args),
        Command::User(command) => identity::user(command, config::Config::elsewhere()),
        Command::Role(command) => identity::role(command),
        Command::Sql(SqlCommand::Verifier) => sql::verifier(),
        Command::Tier(command) => tiers::run(command),
        Command::Volume(command) => volume_commands::run(command),
        Command::Profile(command) => command.run(),
        Command::Plan(args) => args.run(),
        Command::Bench(args) => benches::run(&args.arguments),
        Command::T4Load { settings } => demo::load(&settings),
        Command::Encryption(command) => encryption::run(command),
        Command::Inspect(command) => journals::inspect(command),
        Command::Verify(args) => maintenance::verify(&args),
        Command::Backup(args) => maintenance::backup(&args),
        Command::Repair(args) => maintenance::repair(&args),
        Command::Restore(args) => maintenance::restore(&args),
    }
}

/// The error and its causes, each printed once: many errors name their cause in their own text.
pub fn explain(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |text, cause| match text.as_str() {
        "" => cause,
        text if text.contains(&cause) => text.to_owned(),
        text => format!("{text}: {cause}"),
    })
}

/// Whether the reader of our output went away (`terrace message list | head`): that is no error.
fn broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<std::io::Error>())
        .any(|cause| cause.kind() == std::io::ErrorKind::BrokenPipe)
}
