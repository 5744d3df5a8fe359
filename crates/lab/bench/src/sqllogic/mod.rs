//! Sqllogic: SQLite's public sqllogictest scripts over the wire, with the reason of each failure.
//!
//! ```text
//! DIR/select1.test ..      all their records
//! DIR/evidence/*.test      all their records
//! DIR/index/*/*, random/*  so many scripts of each folder, of each script all statements and so many queries,
//!                          drawn with the seed; 7 million records would take hours
//! ```
//!
//! The scripts come from elsewhere: `scripts/test-sqllogic.sh` fetches them, starts a node and calls this.
//!
//! Invariants: the client, the reading of scripts and the comparison share no code with the server; the same seed draws
//! the same records; a failure whose reason is not known makes the run fail.

mod reasons;
mod report;
mod script;
mod session;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, ensure};
use indicatif::{ProgressBar, ProgressStyle};

pub use reasons::Kind;
pub use report::{Counts, Failures, SqllogicReport};

use script::Record;
use session::{Outcome, Session};
use workload::interrupt;
use workload::machine::Machine;

/// Characters of an example's statement and answer that are shown.
const EXAMPLE_CHARS: usize = 240;

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqllogicOptions {
    /// Folder of the scripts: `select1.test` and its siblings, `index`, `random`, `evidence`.
    pub scripts: PathBuf,
    /// The address of the server; its user needs no password.
    pub server: SocketAddr,
    /// The user that logs in.
    pub user: String,
    /// The seed with which the share is drawn. Default 1.
    pub seed: u64,
    /// Scripts of each folder below `index` and `random`. Default 4.
    pub files: usize,
    /// Queries of each of them. Default 1,000.
    pub queries: usize,
    /// Only scripts whose path contains this.
    pub only: Option<String>,
}

/// Runs the scripts.
///
/// # Errors
/// If there are none, one cannot be read, or the server is not there (any more); `Interrupted` if the user ended it. A
/// record that fails is no error but counted.
pub fn run(options: &SqllogicOptions) -> anyhow::Result<SqllogicReport> {
    let begun = Instant::now();
    let scripts = draw_scripts(find(&options.scripts)?, options);
    ensure!(
        !scripts.is_empty(),
        "{} holds no scripts to run: name a folder with select1.test",
        options.scripts.display()
    );
    let mut session = Session::open(options.server, &options.user)?;
    let bar = ProgressBar::new(scripts.len() as u64);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos} of {len} scripts, {elapsed}, {msg}")?);
    let (mut counts, mut failures) = (BTreeMap::new(), BTreeMap::new());
    for name in scripts {
        bar.set_message(name.clone());
        let path = options.scripts.join(&name);
        let text = std::fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
        let records = script::parse(&text).with_context(|| path.display().to_string())?;
        session.clear()?;
        counts.insert(name.clone(), run_script(&mut session, &name, &records, options, &mut failures)?);
        bar.inc(1);
    }
    session.clear()?;
    bar.finish_and_clear();
    let mut failures: Vec<Failures> = failures.into_values().collect();
    failures.sort_by_key(|failures| (failures.kind, std::cmp::Reverse(failures.records)));
    Ok(SqllogicReport::new(options, begun.elapsed().as_secs_f64(), counts, failures))
}

type ByReason = BTreeMap<(Kind, String), Failures>;

fn run_script(
    session: &mut Session,
    name: &str,
    records: &[Record],
    options: &SqllogicOptions,
    failures: &mut ByReason,
) -> anyhow::Result<Counts> {
    let drawn = draw_queries(name, records, options);
    let (mut counts, mut missing) = (Counts::default(), Vec::new());
    for (at, record) in records.iter().enumerate() {
        interrupt::check()?;
        if record.skipped {
            counts.skipped += 1;
            continue;
        }
        if record.is_query() && !drawn.contains(&at) {
            counts.not_drawn += 1;
            continue;
        }
        let outcome = session.run(record).with_context(|| format!("{name}:{}", record.line))?;
        if outcome == Outcome::Passed {
            counts.passed += 1;
            continue;
        }
        counts.failed += 1;
        missing.extend(reasons::made_table(&record.sql));
        let (kind, reason) =
            reasons::reason(&reasons::Failure { script: name, record, outcome: &outcome, missing: &missing });
        let found = failures.entry((kind, reason.clone())).or_insert_with(|| Failures {
            kind,
            reason,
            records: 0,
            example: example(name, record, &outcome),
        });
        found.records += 1;
    }
    Ok(counts)
}

fn example(name: &str, record: &Record, outcome: &Outcome) -> String {
    let short = |text: &str| text.replace('\n', " ").chars().take(EXAMPLE_CHARS).collect::<String>();
    let answer = match outcome {
        Outcome::Refused { message, .. } => message,
        Outcome::Differs(difference) | Outcome::Broken(difference) => difference,
        Outcome::Passed | Outcome::Taken | Outcome::Late => "",
    };
    format!("{name}:{}: {}\n    {}", record.line, short(&record.sql), short(answer))
}

/// All scripts below a folder, as paths relative to it, sorted.
fn find(folder: &Path) -> anyhow::Result<Vec<String>> {
    let mut scripts = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        let entries = std::fs::read_dir(&next).with_context(|| format!("looking for scripts in {}", next.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "test") {
                let relative = path.strip_prefix(folder).unwrap_or(&path);
                scripts.push(relative.to_string_lossy().into_owned());
            }
        }
    }
    scripts.sort();
    Ok(scripts)
}

/// Whether all records of a script run.
fn is_whole(script: &str) -> bool {
    !script.contains('/') || script.starts_with("evidence/")
}

/// The scripts of the run: the whole ones, and of each other folder so many.
fn draw_scripts(scripts: Vec<String>, options: &SqllogicOptions) -> Vec<String> {
    let mut folders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut drawn = Vec::new();
    for script in scripts {
        if options.only.as_ref().is_some_and(|part| !script.contains(part.as_str())) {
            continue;
        }
        if is_whole(&script) {
            drawn.push(script);
        } else {
            let folder = script.split('/').take(2).collect::<Vec<_>>().join("/");
            folders.entry(folder).or_default().push(script);
        }
    }
    for (folder, mut scripts) in folders {
        random(&folder, options.seed).shuffle(&mut scripts);
        scripts.truncate(options.files);
        drawn.append(&mut scripts);
    }
    drawn.sort();
    drawn
}

/// The queries of a script that run, by their place among its records.
fn draw_queries(name: &str, records: &[Record], options: &SqllogicOptions) -> BTreeSet<usize> {
    let runs = |(_, record): &(usize, &Record)| record.is_query() && !record.skipped;
    let mut queries: Vec<usize> = records.iter().enumerate().filter(runs).map(|(at, _)| at).collect();
    if !is_whole(name) {
        random(name, options.seed).shuffle(&mut queries);
        queries.truncate(options.queries);
    }
    queries.into_iter().collect()
}

/// Random numbers that depend on a name and the seed, so that what one script draws does not depend on the others.
fn random(name: &str, seed: u64) -> fastrand::Rng {
    // FNV-1a, 64 bits: the constants are from draft-eastlake-fnv.
    let hash = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    fastrand::Rng::with_seed(hash ^ seed)
}

impl SqllogicReport {
    fn new(
        options: &SqllogicOptions,
        seconds: f64,
        scripts: BTreeMap<String, Counts>,
        failures: Vec<Failures>,
    ) -> SqllogicReport {
        let mut total = Counts::default();
        for counts in scripts.values() {
            total.add(*counts);
        }
        SqllogicReport {
            bench: "sqllogic",
            version: env!("CARGO_PKG_VERSION"),
            machine: Machine::here(),
            seed: options.seed,
            files: options.files,
            queries: options.queries,
            seconds,
            total,
            scripts,
            failures,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(seed: u64) -> SqllogicOptions {
        SqllogicOptions {
            scripts: PathBuf::new(),
            server: SocketAddr::from(([127, 0, 0, 1], 1)),
            user: String::new(),
            seed,
            files: 2,
            queries: 3,
            only: None,
        }
    }

    #[test]
    fn a_seed_draws_the_same_scripts_and_queries_and_another_seed_others() {
        let scripts: Vec<String> = (0..40).map(|n| format!("random/expr/slt_{n}.test")).collect();
        let all: Vec<String> =
            scripts.iter().cloned().chain(["select1.test".into(), "evidence/in1.test".into()]).collect();
        let one = draw_scripts(all.clone(), &options(1));
        assert_eq!(one, draw_scripts(all.clone(), &options(1)));
        assert_ne!(one, draw_scripts(all, &options(2)));
        assert_eq!(one.len(), 4);
        let records = script::parse(&"query I nosort\nselect 1\n----\n1\n\n".repeat(50)).expect("a script");
        let drawn = draw_queries("random/expr/a.test", &records, &options(1));
        assert_eq!((drawn.len(), &drawn), (3, &draw_queries("random/expr/a.test", &records, &options(1))));
        assert_ne!(drawn, draw_queries("random/expr/a.test", &records, &options(2)));
        assert_eq!(draw_queries("select1.test", &records, &options(1)).len(), 50);
    }
}
