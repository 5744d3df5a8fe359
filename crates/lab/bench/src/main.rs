//! `terrace bench`: the workloads of the lab, with their results as text on standard output and as JSON in a file.
//!
//! Ctrl-C and SIGTERM end a measurement in order: the node and the load are stopped, and folders that nobody asked to keep
//! are removed; the exit code is then 130, as a shell's. A second signal ends the process at once.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use bench::adversary::AdversaryOptions;
use bench::analytics::AnalyticsOptions;
use bench::interrupt::{self, Interrupted};
use bench::kill::KillOptions;
use bench::persist::PersistOptions;
use bench::put::PutOptions;
use bench::soak::SoakOptions;
use bench::sqllogic::SqllogicOptions;
use bench::t4::T4Options;
use bench::t4::matrix::{self, MatrixOptions};
use interop::engine;

use crate::cli::{
    AdversaryArgs, AnalyticsArgs, BenchCommand, Bodies, KillArgs, PersistArgs, PutArgs, SoakArgs, SqllogicArgs, T4Args,
};

/// Exit code of a measurement that was ended by a signal: 128 + SIGINT.
const INTERRUPTED: u8 = 130;

/// Runs one of the commands.
pub fn run(command: BenchCommand) -> anyhow::Result<ExitCode> {
    if !matches!(command, BenchCommand::T4Load { .. }) {
        heed_interrupts()?;
    }
    in_order(measure(command))
}

/// What came of a measurement; that somebody ended it is no failure.
pub fn in_order(result: anyhow::Result<ExitCode>) -> anyhow::Result<ExitCode> {
    match result {
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("{error:#}");
            Ok(ExitCode::from(INTERRUPTED))
        }
        result => result,
    }
}

/// From now on a signal to end asks the measurement to.
pub fn heed_interrupts() -> anyhow::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if interrupt::is_asked() {
                    std::process::exit(i32::from(INTERRUPTED));
                }
                interrupt::ask();
            }
        });
    });
    Ok(())
}

fn measure(command: BenchCommand) -> anyhow::Result<ExitCode> {
    match command {
        BenchCommand::T4(args) => t4(&args),
        BenchCommand::Kill(args) => kill(&args),
        BenchCommand::Persist(args) => persist(&args),
        BenchCommand::Analytics(args) => analytics(&args),
        BenchCommand::Put(args) => put(&args),
        BenchCommand::Sqllogic(args) => sqllogic(&args),
        BenchCommand::Adversary(args) => adversary(&args),
        BenchCommand::Soak(args) => soak(&args),
        BenchCommand::T4Load { settings } => {
            bench::t4::load(serde_json::from_str(&settings).context("the settings of the load cannot be read")?)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn t4(args: &T4Args) -> anyhow::Result<ExitCode> {
    let options = T4Options {
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
        settings: None,
    };
    if args.matrix {
        let report = matrix::run(&MatrixOptions { t4: options, rounds: args.rounds, dir: args.dir.clone() })?;
        println!("{}", report.to_text());
        write(args.json.as_ref(), || report.to_json())?;
        return Ok(exit(report.is_clean()));
    }
    let report = bench::t4::run(&options)?;
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
