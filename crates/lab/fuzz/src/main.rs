//! The command line of the fuzzer; users call it as `cargo xtask fuzz`.
#![forbid(unsafe_code)]

use anyhow::Context;
use fuzz::pool::{self, Pool};
use fuzz::session::{self, Options};
use fuzz::targets::{self, TARGETS, Target};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const HELP: &str = "usage: cargo xtask fuzz [--seconds S] [--seed N] [TARGET...]
       cargo xtask fuzz TARGET --input FILE

  --seconds S   time for each target (default 10)
  --seed N      what the inputs derive from (default: drawn, and printed)
  --input FILE  try just this input
  --coverage    coverage-guided runs with nightly and cargo-fuzz
";

/// Where failing inputs go, below the checkout.
const ARTIFACTS: &str = "fuzz/artifacts";

/// Most of a panic's message that is printed; the replay prints all of it.
const MESSAGE_CHARS_MAX: usize = 400;

/// The command line, read.
struct Arguments {
    targets: Vec<&'static Target>,
    seconds: u64,
    seed: u64,
    input: Option<PathBuf>,
    /// This process is one target's session.
    child: bool,
    trace: bool,
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match read(&words).and_then(|arguments| run(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("fuzz: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn read(words: &[String]) -> anyhow::Result<Arguments> {
    // The hasher of the standard library is seeded by the system: a seed without another dependency.
    let drawn = std::hash::RandomState::new().build_hasher().finish();
    let mut read = Arguments { targets: Vec::new(), seconds: 10, seed: drawn, input: None, child: false, trace: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().with_context(|| format!("{word} needs a value\n\n{HELP}"));
        match word.as_str() {
            "--seconds" => read.seconds = value()?.parse().context("--seconds takes a whole number")?,
            "--seed" => read.seed = value()?.parse().context("--seed takes a whole number")?,
            "--input" => read.input = Some(PathBuf::from(value()?)),
            "--child" => read.child = true,
            "--trace" => read.trace = true,
            name => {
                let target =
                    targets::find(name).with_context(|| format!("no target {name}; there are: {}", names()))?;
                read.targets.push(target);
            }
        }
    }
    if read.targets.is_empty() {
        read.targets = TARGETS.iter().collect();
    }
    Ok(read)
}

fn names() -> String {
    TARGETS.iter().map(|target| target.name).collect::<Vec<_>>().join(", ")
}

/// Returns whether no input failed.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let artifacts = Path::new(ARTIFACTS);
    if let Some(path) = &arguments.input {
        let input = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        for target in &arguments.targets {
            (target.run)(&input);
            println!("{}: held", target.name);
        }
        return Ok(true);
    }
    if arguments.child {
        return child(arguments, artifacts);
    }
    let program = std::env::current_exe().context("cannot find this program")?;
    let passed_on = ["--seconds".to_owned(), arguments.seconds.to_string()];
    let mut held = true;
    for target in &arguments.targets {
        held &= fuzz::supervisor::supervise(&program, target, &passed_on, arguments.seed, artifacts)?;
    }
    Ok(held)
}

/// The session of one target, in a process of its own.
fn child(arguments: &Arguments, artifacts: &Path) -> anyhow::Result<bool> {
    session::quiet_panics();
    let watching = session::watchdog();
    let mut held = true;
    for target in &arguments.targets {
        let pool = Pool::gather(target, &pool::folders(Path::new(".")));
        let time = (!arguments.trace).then(|| Duration::from_secs(arguments.seconds));
        let options = Options { time, inputs_max: u64::MAX, seed: arguments.seed, artifacts, trace: arguments.trace };
        let start = Instant::now();
        let report = session::run(target, &pool, &options)?;
        println!(
            "{}: {} inputs from a pool of {} in {:.1} s, seed {}",
            target.name,
            report.inputs,
            pool.members.len(),
            start.elapsed().as_secs_f64(),
            arguments.seed
        );
        if let Some(failure) = report.failure {
            let words: Vec<&str> = failure.message.split_whitespace().collect();
            let message: String = words.join(" ").chars().take(MESSAGE_CHARS_MAX).collect();
            println!("FAIL {}: {message}", target.name);
            println!(
                "{}: replay: cargo xtask fuzz {} --input {}",
                target.name,
                target.name,
                failure.artifact.display()
            );
            held = false;
        }
    }
    drop(watching);
    Ok(held)
}
