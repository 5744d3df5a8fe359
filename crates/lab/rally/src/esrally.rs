//! Races of the real esrally, one or several at a time, and its reports.
//!
//! ```text
//!   install   esrally.sh: from PyPI, once, into an environment of its own
//!   race N    DIR/race-N/          HOME of the race: its settings, its logs
//!             DIR/race-N/track/    the track; the documents are a link, all races read the same
//!             DIR/race-N/report    as CSV: metric, task, value, unit
//! ```
//!
//! Invariants: each race has an index of its own; `--on-error=abort`, so that a race with a failed request is a failed race; the
//! documents lie in memory, since in the published experiment a slow disk under the load generator had been the limit.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use workload::interrupt;

use crate::namespace::{self, Enclosed};
use crate::race::{Milliseconds, QueryTimes, RaceResult};
use crate::track::{self, WrittenTrack};

/// Installs esrally when it is not there, and prints where it is.
const INSTALL: &str = include_str!("../esrally.sh");
/// How often races are looked at.
const LOOK: Duration = Duration::from_millis(50);
/// Lines of a log that an error shows.
const LOG_LINES: usize = 12;

/// What races do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EsrallyPlan {
    /// The documents of each race.
    pub track: WrittenTrack,
    /// Documents of a request.
    pub bulk: usize,
    /// Clients of each race that write.
    pub clients: usize,
    /// Times that each query is measured; as many as a fifth of it go before it unmeasured.
    pub iterations: usize,
    /// All queries at the same time: esrally takes seconds between two steps of its schedule.
    pub together: bool,
}

/// The path of esrally, which is installed when it is not there.
///
/// # Errors
/// Why it cannot be installed.
pub fn install() -> anyhow::Result<PathBuf> {
    let output = Command::new("bash").args(["-c", INSTALL]).stdin(Stdio::null()).stderr(Stdio::piped()).output();
    let output = output.context("starting bash")?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    ensure!(output.status.success(), "{}; --builtin measures without it", text(&output.stderr));
    Ok(PathBuf::from(text(&output.stdout)))
}

/// A race that runs.
enum Runs {
    /// In namespaces of its own.
    Enclosed(Enclosed),
    /// As any process.
    Plain(Child),
}

impl Runs {
    fn poll(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        match self {
            Runs::Enclosed(enclosed) => enclosed.poll(),
            Runs::Plain(child) => Ok(child.try_wait()?),
        }
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        if let Runs::Plain(child) = self {
            // Both fail only if it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Runs so many races at once against the node at `node`, in folders below `folder`, with the documents in `documents`.
///
/// # Errors
/// A race that cannot be started or fails, with the end of its log; `Interrupted`.
pub fn run(
    esrally: &Path,
    plan: EsrallyPlan,
    races: usize,
    node: SocketAddr,
    (folder, documents): (&Path, &Path),
) -> anyhow::Result<Vec<RaceResult>> {
    let obstacle = namespace::obstacle();
    if let Some(obstacle) = obstacle.filter(|_| races > 1) {
        bail!("esrally allows one race for each machine, and namespaces for more cannot be used: {obstacle}");
    }
    let homes: Vec<PathBuf> = (1..=races).map(|race| folder.join(format!("race-{race}"))).collect();
    let mut running = Vec::new();
    for (race, home) in homes.iter().enumerate() {
        lay(home, documents)?;
        let log = home.join("log");
        let index = format!("weblogs-{}", race + 1);
        running.push(match obstacle {
            None => {
                Runs::Enclosed(Enclosed::start(&command(esrally, plan, namespace::INSIDE, home, &index), node, &log)?)
            }
            Some(_) => {
                let out = fs::File::create(&log)?;
                let mut command = command(esrally, plan, node, home, &index);
                command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
                Runs::Plain(command.spawn().with_context(|| format!("starting {}", esrally.display()))?)
            }
        });
    }
    let mut ended: Vec<Option<ExitStatus>> = vec![None; races];
    while ended.iter().any(Option::is_none) {
        interrupt::check()?;
        for (race, status) in running.iter_mut().zip(&mut ended) {
            if status.is_none() {
                *status = race.poll()?;
            }
        }
        if let Some(at) = ended.iter().position(|status| status.is_some_and(|status| !status.success())) {
            bail!("race {} failed:\n{}", at + 1, log_tail(&homes[at]));
        }
        std::thread::sleep(LOOK);
    }
    homes.iter().map(|home| result(home, plan)).collect()
}

/// Makes the folder of a race: a copy of the track, and a link to the documents.
fn lay(home: &Path, documents: &Path) -> anyhow::Result<()> {
    let place = home.join("track");
    let failed = || format!("making {}", place.display());
    fs::create_dir_all(&place).with_context(failed)?;
    for name in ["track.json", "index.json", "operations.json"] {
        fs::copy(documents.join(name), place.join(name)).with_context(failed)?;
    }
    symlink(documents.join("documents.json"), place.join("documents.json")).with_context(failed)
}

/// The command of a race.
fn command(esrally: &Path, plan: EsrallyPlan, target: SocketAddr, home: &Path, index: &str) -> Command {
    let EsrallyPlan { track, bulk, clients, iterations, together } = plan;
    let warmup = iterations / 5;
    let parameters = format!(
        "{},bulk:{bulk},bulk_clients:{clients},iterations:{iterations},warmup:{warmup},index:{index}{}",
        track.parameters(),
        if together { ",together:1" } else { "" }
    );
    let mut command = Command::new(esrally);
    command
        .args(["race", "--pipeline=benchmark-only", "--offline", "--on-error=abort", "--report-format=csv"])
        .arg(format!("--target-hosts={target}"))
        .arg(format!("--track-path={}", home.join("track").display()))
        .arg(format!("--track-params={parameters}"))
        .arg(format!("--report-file={}", home.join("report").display()))
        .current_dir(home)
        .env("HOME", home);
    command
}

/// The end of a race's log, for a message.
fn log_tail(home: &Path) -> String {
    let text = fs::read_to_string(home.join("log")).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
}

fn result(home: &Path, plan: EsrallyPlan) -> anyhow::Result<RaceResult> {
    let report = fs::read_to_string(home.join("report"));
    let report = report.with_context(|| format!("the race wrote no report:\n{}", log_tail(home)))?;
    read_report(&report, plan.track.documents)
}

/// Reads a report.
///
/// # Errors
/// If the bulks are not in it.
pub fn read_report(report: &str, documents: usize) -> anyhow::Result<RaceResult> {
    let metric = |metric: &str, task: &str| {
        let mut lines = report.lines().map(|line| line.split(',').collect::<Vec<_>>());
        lines
            .find_map(|line| (line.len() == 4 && line[0] == metric && line[1] == task).then(|| line[2].parse().ok())?)
    };
    let bulk = "index-append";
    let times = |task: &str| {
        // Of few requests esrally shows no high quantile; the longest is none below it.
        let of = |quantile: &str| metric(&format!("{quantile} percentile service time"), task);
        let longest = of("100th");
        Some(Milliseconds { p50: of("50th")?, p90: of("90th").or(longest)?, p99: of("99th").or(longest)? })
    };
    let queries = track::searches()
        .into_iter()
        .filter_map(|search| Some(QueryTimes { ms: times(&search.name)?, name: search.name, hits: None }));
    let failed = report.lines().filter(|line| line.starts_with("error rate,")).filter(|line| {
        let rate: Option<f64> = line.split(',').nth(2).and_then(|rate| rate.parse().ok());
        rate.is_none_or(|rate| rate > 0.0)
    });
    Ok(RaceResult {
        documents,
        docs_per_s: metric("Median Throughput", bulk).context("the report has no rate of documents")?,
        bulk_ms: times(bulk).context("the report has no times of bulks")?,
        queries: queries.collect(),
        errors: failed.count() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Metric,Task,Value,Unit\n\
        Cumulative indexing time of primary shards,,0.1,min\n\
        Min Throughput,index-append,50000,docs/s\n\
        Median Throughput,index-append,70600.5,docs/s\n\
        50th percentile service time,index-append,87.1,ms\n\
        90th percentile service time,index-append,200,ms\n\
        99th percentile service time,index-append,398.2,ms\n\
        100th percentile service time,index-append,400,ms\n\
        error rate,index-append,0.00,%\n\
        50th percentile service time,match-all,2.6,ms\n\
        100th percentile service time,match-all,3.6,ms\n\
        error rate,match-all,1.50,%\n";

    #[test]
    fn a_report_is_read_and_a_quantile_that_is_not_shown_is_the_longest_time() {
        let result = read_report(REPORT, 500_000).expect("it is whole");
        assert_eq!((result.documents, result.docs_per_s, result.errors), (500_000, 70_600.5, 1));
        assert_eq!(result.bulk_ms, Milliseconds { p50: 87.1, p90: 200.0, p99: 398.2 });
        let all =
            QueryTimes { name: "match-all".into(), ms: Milliseconds { p50: 2.6, p90: 3.6, p99: 3.6 }, hits: None };
        assert_eq!(result.queries, [all]);
        assert!(read_report("Metric,Task,Value,Unit\n", 1).is_err());
    }

    #[test]
    fn a_race_has_a_home_an_index_and_a_track_of_its_own() {
        let track = WrittenTrack { documents: 5, bytes: 600 };
        let plan = EsrallyPlan { track, bulk: 100, clients: 2, iterations: 10, together: true };
        let command = command(Path::new("/x/esrally"), plan, namespace::INSIDE, Path::new("/h/race-2"), "weblogs-2");
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy().into_owned()).collect();
        for wanted in [
            "--target-hosts=127.0.0.1:9200",
            "--track-path=/h/race-2/track",
            "--track-params=docs:5,bytes:600,bulk:100,bulk_clients:2,iterations:10,warmup:2,index:weblogs-2,together:1",
            "--report-file=/h/race-2/report",
        ] {
            assert!(arguments.iter().any(|argument| argument == wanted), "{wanted} in {arguments:?}");
        }
    }
}
