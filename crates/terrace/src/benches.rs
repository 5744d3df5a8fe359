//! `terrace bench`: the workloads of the lab, with their results as text on standard output and as JSON in a file.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench::kill::KillOptions;
use bench::t4::T4Options;
use interop::engine;

use crate::cli::{BenchCommand, Bodies, KillArgs, T4Args};

/// Runs one of the commands.
pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::T4(args) => t4(&args),
        BenchCommand::Kill(args) => kill(&args),
        BenchCommand::T4Load { settings } => {
            bench::t4::load(serde_json::from_str(&settings).context("the settings of the load cannot be read")?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn t4(args: &T4Args) -> anyhow::Result<ExitCode> {
    let report = bench::t4::run(&T4Options {
        services: args.services,
        messages: args.messages,
        quick: args.quick,
        seed: args.seed,
        bodies: match args.bodies {
            Bodies::Delta => engine::Bodies::Delta,
            Bodies::Full => engine::Bodies::Full,
        },
        data: args.data.clone(),
        keep: args.keep,
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn kill(args: &KillArgs) -> anyhow::Result<ExitCode> {
    let defaults = KillOptions::default();
    let report = bench::kill::run(&KillOptions {
        rounds: args.rounds,
        seed: args.seed.unwrap_or(defaults.seed),
        services: defaults.services,
        data: args.data.clone(),
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn write(file: Option<&PathBuf>, json: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, json()).with_context(|| format!("cannot write {}", file.display()))
}

/// A result that breaks a promise is a problem found: exit code 1.
fn exit(clean: bool) -> ExitCode {
    if clean { ExitCode::SUCCESS } else { ExitCode::from(1) }
}
