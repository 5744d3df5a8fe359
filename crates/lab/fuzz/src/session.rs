//! A session: one target, one seed, inputs one after the other until time is up or one fails.
//!
//! Panics are caught here. A hang cannot be: a watchdog ends the process when one input takes too long, and the parent
//! ([`crate::supervisor`]) finds the input.

use crate::mutator::Mutator;
use crate::pool::Pool;
use crate::targets::Target;
use anyhow::Context;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// An input that takes longer than this is a finding. The slowest sound ones take milliseconds; the rest is room for a
/// machine that is busy with something else.
const INPUT_TIME_MAX: Duration = Duration::from_secs(20);

/// Most attempts to shorten a failing input.
const SHRINK_ATTEMPTS_MAX: usize = 5000;

/// How long, and what to leave behind.
pub struct Options<'o> {
    /// Time to start new inputs in; none means until an input fails.
    pub time: Option<Duration>,
    /// Most inputs.
    pub inputs_max: u64,
    /// The source of the inputs.
    pub seed: u64,
    /// Where failing inputs are written.
    pub artifacts: &'o Path,
    /// Write each input down before it is tried.
    pub trace: bool,
}

/// The result of a session.
#[derive(Debug)]
pub struct Report {
    /// Inputs tried.
    pub inputs: u64,
    /// The input that failed, if one did.
    pub failure: Option<Failure>,
}

/// An input that made its target panic.
#[derive(Debug)]
pub struct Failure {
    /// The text of the panic, and its place.
    pub message: String,
    /// The file that holds the input.
    pub artifact: PathBuf,
}

/// Runs `target` over the inputs of `pool`.
pub fn run(target: &Target, pool: &Pool, options: &Options) -> anyhow::Result<Report> {
    let mutator = Mutator::new(pool, options.seed);
    let start = Instant::now();
    let mut number = 0;
    while number < options.inputs_max && options.time.is_none_or(|time| start.elapsed() < time) {
        let input = mutator.input(number);
        if options.trace {
            write(&traced(options.artifacts, target), &input)?;
        }
        number += 1;
        if let Err(message) = attempt(target, &input) {
            let (input, message) = shrink(target, input, message);
            let artifact = options.artifacts.join(format!("{}-{:016x}", target.name, hash(&input)));
            write(&artifact, &input)?;
            return Ok(Report { inputs: number, failure: Some(Failure { message, artifact }) });
        }
        PROGRESS.fetch_add(1, Ordering::Relaxed);
    }
    Ok(Report { inputs: number, failure: None })
}

/// Tries one input; the error is the text of the panic.
pub fn attempt(target: &Target, input: &[u8]) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input))).map_err(|payload| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a message");
        let place = LAST_PANIC.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        place.map_or_else(|| text.to_owned(), |place| format!("{text} ({place})"))
    })
}

/// Leaves out spans of a failing input, ever shorter ones, as long as the rest still fails.
fn shrink(target: &Target, mut input: Vec<u8>, mut message: String) -> (Vec<u8>, String) {
    let mut attempts = 0;
    let mut span = input.len() / 2;
    while span > 0 && attempts < SHRINK_ATTEMPTS_MAX {
        let mut at = 0;
        while at < input.len() && attempts < SHRINK_ATTEMPTS_MAX {
            let rest = &input[(at + span).min(input.len())..];
            let shorter = [&input[..at], rest].concat();
            attempts += 1;
            match attempt(target, &shorter) {
                Err(said) => (input, message) = (shorter, said),
                Ok(()) => at += span,
            }
        }
        span /= 2;
    }
    (input, message)
}

/// The file a traced session writes each input of `target` to.
pub fn traced(artifacts: &Path, target: &Target) -> PathBuf {
    artifacts.join(format!("{}-last", target.name))
}

/// Inputs tried in this process, for the watchdog.
static PROGRESS: AtomicU64 = AtomicU64::new(0);

/// Where the last panic was.
static LAST_PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Remembers where a panic was instead of printing it.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map(|location| format!("{}:{}", location.file(), location.line()));
        *LAST_PANIC.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = place;
    }));
}

/// Ends the process when one input takes longer than `INPUT_TIME_MAX`, until the answer is dropped.
pub fn watchdog() -> Arc<()> {
    let alive = Arc::new(());
    let watched = Arc::downgrade(&alive);
    std::thread::spawn(move || {
        let mut seen = (PROGRESS.load(Ordering::Relaxed), Instant::now());
        while watched.strong_count() > 0 {
            std::thread::sleep(Duration::from_millis(200));
            let progress = PROGRESS.load(Ordering::Relaxed);
            if progress != seen.0 {
                seen = (progress, Instant::now());
            } else if seen.1.elapsed() > INPUT_TIME_MAX {
                eprintln!("one input has taken more than {} s: hung", INPUT_TIME_MAX.as_secs());
                std::process::abort();
            }
        }
    });
    alive
}

fn write(path: &Path, input: &[u8]) -> anyhow::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    }
    std::fs::write(path, input).with_context(|| format!("cannot write {}", path.display()))
}

/// FNV-1a, 64 bits: a name for an input, nothing more.
fn hash(input: &[u8]) -> u64 {
    input.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::targets::CANARY;

    fn options(artifacts: &Path, seed: u64) -> Options<'_> {
        Options { time: None, inputs_max: 100_000, seed, artifacts, trace: false }
    }

    #[test]
    fn a_planted_fault_is_found_from_any_seed_and_its_artifact_replays() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let pool = Pool::gather(&CANARY, &[]);
        for seed in 0..20 {
            let report = run(&CANARY, &pool, &options(folder.path(), seed)).expect("the folder can be written");
            let failure =
                report.failure.unwrap_or_else(|| panic!("seed {seed}: not found in {} inputs", report.inputs));
            assert!(failure.message.starts_with("the planted fault was found"), "{}", failure.message);
            let input = std::fs::read(&failure.artifact).expect("a failure leaves its input");
            assert!(attempt(&CANARY, &input).is_err(), "seed {seed}: the artifact does not replay");
        }
    }

    #[test]
    fn a_failing_input_is_shortened_to_what_makes_it_fail() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let pool = Pool::gather(&CANARY, &[]);
        for seed in 0..20 {
            let report = run(&CANARY, &pool, &options(folder.path(), seed)).expect("the folder can be written");
            let input = std::fs::read(report.failure.expect("is found").artifact).expect("was written");
            assert_eq!(input, b"MSH||", "seed {seed}");
        }
    }

    #[test]
    fn one_seed_fails_at_the_same_input_twice() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let pool = Pool::gather(&CANARY, &[]);
        let once = || run(&CANARY, &pool, &options(folder.path(), 9)).expect("the folder can be written");
        let (first, second) = (once(), once());
        let artifact = |report: Report| report.failure.map(|failure| failure.artifact);
        assert_eq!(first.inputs, second.inputs);
        assert_eq!(artifact(first), artifact(second));
    }

    #[test]
    fn a_sound_target_runs_to_the_last_input_and_leaves_nothing() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let sound = Target { run: |_| {}, ..CANARY };
        let options = Options { inputs_max: 1000, ..options(folder.path(), 1) };
        let report = run(&sound, &Pool::gather(&sound, &[]), &options).expect("the folder can be written");
        assert!(report.inputs == 1000 && report.failure.is_none());
        assert_eq!(std::fs::read_dir(folder.path()).expect("can be listed").count(), 0);
    }

    #[test]
    fn a_traced_session_has_its_last_input_on_disk() {
        let folder = tempfile::tempdir().expect("the temporary directory can be written");
        let pool = Pool::gather(&CANARY, &[]);
        let options = Options { trace: true, ..options(folder.path(), 9) };
        run(&CANARY, &pool, &options).expect("the folder can be written").failure.expect("is found");
        let last = std::fs::read(traced(folder.path(), &CANARY)).expect("was written");
        assert!(attempt(&CANARY, &last).is_err());
    }
}
