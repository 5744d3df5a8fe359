//! `terrace-lab`: the measurements, with their results as text on standard output and as JSON in a file. `terrace bench` starts it.
//!
//! It is a program of its own, so that a build of the node does not include TPC-H and similar parts. Exit codes: 0
//! done, 1 a promise was broken or a target missed, 2 it could not run, 130 a signal ended it.

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "everything in a program is reachable by the program only")]

mod cli;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use bench::access::{self, AccessOptions, AccessPart};
use bench::adversary::AdversaryOptions;
use bench::analytics::AnalyticsOptions;
use bench::console_cost::ConsoleCostOptions;
use bench::encryption::EncryptionOptions;
use bench::kill::KillOptions;
use bench::matrix::{self, MatrixOptions};
use bench::persist::PersistOptions;
use bench::profile_cost::ProfileCostOptions;
use bench::put::PutOptions;
use bench::soak::SoakOptions;
use bench::sqllogic::SqllogicOptions;
use clap::Parser;
use cli::{
    AccessArgs, AccessPartArg, AdversaryArgs, AnalyticsArgs, BenchCommand, BodiesArg, ConsoleArgs, EncryptionArgs,
    KillArgs, LabArgs, PersistArgs, ProfileArgs, PutArgs, SoakArgs, SqllogicArgs, T4Args,
};
use device::CountedHeap;
use interop::engine::Bodies;
use rally::kill::SearchKillOptions;
use workload::t4::T4Options;
use workload::{interrupt, node};

/// As the node's: the measurements that are made in this process count the same.
#[global_allocator]
static ALLOCATOR: CountedHeap = CountedHeap;

fn main() -> ExitCode {
    let args = LabArgs::parse();
    interrupt::in_order(run(args)).unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

fn run(args: LabArgs) -> anyhow::Result<ExitCode> {
    ::node::Descriptors::raise()?;
    device::os::make_all_private();
    node::set_program(program(args.terrace)?);
    interrupt::heed()?;
    measure(args.command)
}

/// The program under test: the one named, or `terrace` beside this one.
fn program(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let path = match named {
        Some(path) => path,
        None => std::env::current_exe().context("finding this program")?.with_file_name("terrace"),
    };
    let built = "build it with `cargo build --release`, or name another one with --terrace";
    anyhow::ensure!(path.is_file(), "there is no program to measure at {}: {built}", path.display());
    std::path::absolute(&path).with_context(|| format!("finding {}", path.display()))
}

fn measure(command: BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::T4(args) => t4(&args),
        BenchCommand::Rally(args) => args.run(),
        BenchCommand::Fleet(args) => args.run(&["fleet"]),
        BenchCommand::WhatIf(args) => args.run(),
        BenchCommand::Kill(args) if args.search => kill_search(&args),
        BenchCommand::Kill(args) => kill(&args),
        BenchCommand::Persist(args) => persist(&args),
        BenchCommand::Analytics(args) => analytics(&args),
        BenchCommand::Put(args) => put(&args),
        BenchCommand::Sqllogic(args) => sqllogic(&args),
        BenchCommand::Adversary(args) => adversary(&args),
        BenchCommand::Soak(args) => soak(&args),
        BenchCommand::Access(args) => access(&args),
        BenchCommand::Encryption(args) => encryption(&args),
        BenchCommand::Console(args) => console(&args),
        BenchCommand::Profile(args) => profile(&args),
        BenchCommand::Plan(args) => args.run(),
    }
}

fn read_settings(file: &Path) -> anyhow::Result<String> {
    fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))
}

fn t4(args: &T4Args) -> anyhow::Result<ExitCode> {
    let options = T4Options {
        services: args.services,
        messages: args.messages,
        quick: args.quick,
        seed: args.seed,
        bodies: match args.bodies {
            BodiesArg::Delta => Bodies::Delta,
            BodiesArg::Full => Bodies::Full,
        },
        data: args.data.clone(),
        keep: args.keep,
        settings: args.settings.as_deref().map(read_settings).transpose()?,
        program: None,
        key: args.key.clone(),
    };
    if args.matrix {
        let report = matrix::run(&MatrixOptions { t4: options, rounds: args.rounds, dir: args.dir.clone() })?;
        println!("{}", report.to_text());
        write(args.json.as_ref(), || report.to_json())?;
        return Ok(exit(report.is_clean()));
    }
    let report = workload::t4::run(&options)?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn persist(args: &PersistArgs) -> anyhow::Result<ExitCode> {
    let report = bench::persist::run(&PersistOptions {
        quick: args.quick,
        dir: args.dir.clone(),
        data: args.data.clone(),
        threads: args.threads,
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(ended(true, &report.missed()))
}

fn analytics(args: &AnalyticsArgs) -> anyhow::Result<ExitCode> {
    let report = bench::analytics::run(&AnalyticsOptions {
        quick: args.quick,
        scale: args.scale,
        rounds: args.rounds,
        dir: args.dir.clone(),
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(ended(report.is_clean(), &report.missed()))
}

fn kill(args: &KillArgs) -> anyhow::Result<ExitCode> {
    let defaults = KillOptions::default();
    let report = bench::kill::run(&KillOptions {
        rounds: args.rounds,
        seed: args.seed.unwrap_or(defaults.seed),
        services: defaults.services,
        connections: defaults.connections,
        data: args.data.clone(),
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn kill_search(args: &KillArgs) -> anyhow::Result<ExitCode> {
    let defaults = SearchKillOptions::default();
    let options = SearchKillOptions {
        rounds: args.rounds,
        writers: defaults.writers,
        seed: args.seed.unwrap_or(defaults.seed),
        data: args.data.clone(),
    };
    rally::command::kill(&options, args.json.as_deref())
}

fn adversary(args: &AdversaryArgs) -> anyhow::Result<ExitCode> {
    let report = bench::adversary::run(&AdversaryOptions {
        quick: args.quick,
        seed: args.seed,
        only: args.only.clone(),
        data: args.data.clone(),
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn soak(args: &SoakArgs) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(args.minutes > 0.0 && args.rate > 0.0, "--minutes and --rate are above 0");
    let defaults = SoakOptions::new(args.minutes, args.rate);
    let report = bench::soak::run(&SoakOptions { seed: args.seed, data: args.data.clone(), ..defaults })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn access(args: &AccessArgs) -> anyhow::Result<ExitCode> {
    let defaults = if args.quick { AccessOptions::quick() } else { AccessOptions::full() };
    let options = AccessOptions {
        only: args.only.map(|only| match only {
            AccessPartArg::Timing => AccessPart::Timing,
            AccessPartArg::Cost => AccessPart::Cost,
            AccessPartArg::Reads => AccessPart::Reads,
        }),
        samples: args.samples.unwrap_or(defaults.samples),
        pairs: args.pairs.unwrap_or(defaults.pairs),
        reads: args.reads.unwrap_or(defaults.reads),
        users: args.users.unwrap_or(defaults.users),
        t4: (args.services.unwrap_or(defaults.t4.0), args.messages.unwrap_or(defaults.t4.1)),
        seed: args.seed,
        against: args.against.as_ref().map(std::path::absolute).transpose()?,
        ..defaults
    };
    anyhow::ensure!(options.samples > 0 && options.pairs > 0, "--samples and --pairs are above 0");
    anyhow::ensure!(options.users > 0 && options.reads > 0, "--users and --reads are above 0");
    let report = access::run(&options)?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(ended(report.is_clean(), &report.missed()))
}

fn encryption(args: &EncryptionArgs) -> anyhow::Result<ExitCode> {
    let defaults = if args.quick { EncryptionOptions::quick() } else { EncryptionOptions::full() };
    let options = EncryptionOptions { pairs: args.pairs.unwrap_or(defaults.pairs), seed: args.seed, ..defaults };
    anyhow::ensure!(options.pairs > 0, "--pairs is above 0");
    let report = bench::encryption::run(&options)?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(ended(true, &report.missed()))
}

fn profile(args: &ProfileArgs) -> anyhow::Result<ExitCode> {
    let defaults = if args.quick { ProfileCostOptions::quick() } else { ProfileCostOptions::full() };
    let options = ProfileCostOptions { pairs: args.pairs.unwrap_or(defaults.pairs), seed: args.seed, ..defaults };
    anyhow::ensure!(options.pairs > 0, "--pairs is above 0");
    let report = bench::profile_cost::run(&options)?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(ended(true, &report.missed()))
}

fn console(args: &ConsoleArgs) -> anyhow::Result<ExitCode> {
    let defaults = if args.quick { ConsoleCostOptions::quick() } else { ConsoleCostOptions::full() };
    let options = ConsoleCostOptions {
        pairs: args.pairs.unwrap_or(defaults.pairs),
        tabs: args.tabs.unwrap_or(defaults.tabs),
        seed: args.seed,
        ..defaults
    };
    anyhow::ensure!(options.pairs > 0 && options.tabs > 0, "--pairs and --tabs are above 0");
    let report = bench::console_cost::run(&options)?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(ended(true, &report.missed()))
}

fn put(args: &PutArgs) -> anyhow::Result<ExitCode> {
    let report = bench::put::run(&PutOptions {
        quick: args.quick,
        committers: args.committers.clone(),
        seconds: args.seconds,
        rounds: args.rounds,
        dir: args.dir.clone(),
        journal: args.journal.clone(),
        pmem: args.pmem,
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(ExitCode::SUCCESS)
}

fn sqllogic(args: &SqllogicArgs) -> anyhow::Result<ExitCode> {
    let report = bench::sqllogic::run(&SqllogicOptions {
        scripts: args.scripts.clone(),
        server: args.server,
        user: args.user.clone(),
        seed: args.seed,
        files: args.files,
        queries: args.queries,
        only: args.only.clone(),
    })?;
    println!("{}", report.to_text());
    write(args.json.as_ref(), || report.to_json())?;
    Ok(exit(report.is_clean()))
}

fn write(file: Option<&PathBuf>, json: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, json()).with_context(|| format!("cannot write {}", file.display()))
}

/// Says which targets were missed, a line each: that is a problem found, as a broken promise is.
fn ended(clean: bool, missed: &[String]) -> ExitCode {
    for line in missed {
        println!("{line}");
    }
    exit(clean && missed.is_empty())
}

/// A result that breaks a promise is a problem found: exit code 1.
fn exit(clean: bool) -> ExitCode {
    if clean { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missed_target_and_a_broken_promise_end_with_1() {
        let missed = ["target missed: x: 0.80, target at most 0.7: MISSED".to_owned()];
        for (clean, missed, code) in [(true, &missed[..0], 0), (true, &missed[..], 1), (false, &missed[..0], 1)] {
            assert_eq!(format!("{:?}", ended(clean, missed)), format!("{:?}", ExitCode::from(code)));
        }
    }
}
