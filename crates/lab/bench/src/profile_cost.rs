//! What recording a profile costs: messages and queries, in turns on a node that records one and on one that does not.
//!
//! ```text
//!   T4        the published messaging workload against the real program; each turn a node of its own
//!   queries   one node with a table of row groups and one of rows, which records in every second turn
//! ```
//!
//! Invariants: see `turns`; the node under test is the real program. Every recording is looked at: one that failed, or recorded nothing, ends
//! the run with an error, since its turn would say nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use ::node::control;
use ::node::profiling::{
    MEMORY_BYTES_MAX, ProfileAnswer, ProfileRequest, REQUEST, RecordingState, RecordingStatus, StartRecording,
};
use anyhow::{Context, ensure};
use serde::Serialize;

use crate::access::place::{AccessNode, PATIENCE};
use crate::postgres::Client;
use crate::turns::{CostRun, CostTurn, compared, in_turns, table};
use workload::interrupt;
use workload::machine::{Machine, load_average};
use workload::node::Node;
use workload::t4::{Session, T4Options};

/// The least ratio of the rates.
const LEAST: f64 = 0.99;

const SETTINGS: &str = "[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n";

/// Name of the profile of a turn.
const NAME: &str = "turn";

/// The options of a run.
#[derive(Clone, Debug)]
pub struct ProfileCostOptions {
    /// Pairs of turns.
    pub pairs: usize,
    /// Length of a turn of queries.
    pub turn: Duration,
    /// Inbound services of T4, and messages to each.
    pub t4: (usize, usize),
    /// Rows of the table.
    pub rows: usize,
    /// The seed.
    pub seed: u64,
}

impl ProfileCostOptions {
    /// The run for results.
    pub fn full() -> ProfileCostOptions {
        ProfileCostOptions { pairs: 20, turn: Duration::from_secs(2), t4: (128, 300), rows: 1_000_000, seed: 1 }
    }

    /// A run of about a minute, whose figures say nothing.
    pub fn quick() -> ProfileCostOptions {
        ProfileCostOptions { pairs: 2, turn: Duration::from_millis(200), t4: (4, 25), rows: 20_000, seed: 1 }
    }
}

/// The result: as one JSON object for scripts, as a table for people. Keys may be added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct ProfileCostReport {
    /// Always `profile`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// Whether the programs were optimised.
    pub optimised: bool,
    /// The seed.
    pub seed: u64,
    /// The machine's load at the end.
    pub load_average: Option<f64>,
    /// The figures: with a recording and without.
    pub runs: Vec<CostRun>,
    /// The most memory that a recording took, bytes, as it counts itself.
    pub memory_bytes: u64,
    /// Accesses that were recorded, of all turns.
    pub accesses: u64,
    /// Sampled accesses that were lost.
    pub dropped: u64,
}

impl ProfileCostReport {
    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let optimised = if self.optimised { "" } else { "; not optimised: the figures say nothing" };
        format!(
            "{}\n{} pairs of turns; with: a profile is recorded\n\
             {} accesses recorded, {} sampled ones lost; a recording took {:.1} MiB at most\n\n{}, {} processors, seed {}{optimised}",
            table(self.runs.iter(), LEAST),
            self.runs.first().map_or(0, |run| run.pairs),
            self.accesses,
            self.dropped,
            self.memory_bytes as f64 / f64::from(1 << 20),
            self.machine.cpu,
            self.machine.cores,
            self.seed
        )
    }

    /// The targets that were missed, a line each.
    pub fn missed(&self) -> Vec<String> {
        let rate = |run: &CostRun| {
            let (name, median) = (&run.name, run.ratio.median);
            format!("target missed: {name}: {median:.3} of the rate without, at least {LEAST} is wanted: MISSED")
        };
        let mut missed: Vec<String> = self.runs.iter().filter(|run| !run.holds).map(rate).collect();
        if self.memory_bytes > MEMORY_BYTES_MAX {
            let (took, most) = (self.memory_bytes, MEMORY_BYTES_MAX);
            missed.push(format!("target missed: a recording took {took} bytes, at most {most} are wanted: MISSED"));
        }
        missed
    }
}

/// Runs it.
///
/// # Errors
/// If a node cannot be started or fails, or a recording fails. What is missed is in the report.
pub fn run(options: &ProfileCostOptions) -> anyhow::Result<ProfileCostReport> {
    let mut recorded = Recorded::default();
    let mut runs = vec![t4(options, &mut recorded)?];
    interrupt::check()?;
    runs.extend(queries(options, &mut recorded)?);
    Ok(ProfileCostReport {
        bench: "profile",
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        optimised: !cfg!(debug_assertions),
        seed: options.seed,
        load_average: load_average(),
        runs,
        memory_bytes: recorded.memory_bytes,
        accesses: recorded.accesses,
        dropped: recorded.dropped,
    })
}

/// What the recordings had.
#[derive(Default)]
struct Recorded {
    memory_bytes: u64,
    accesses: u64,
    dropped: u64,
}

impl Recorded {
    fn add(&mut self, status: &RecordingStatus) -> anyhow::Result<()> {
        ensure!(status.state == RecordingState::Complete, "a recording failed: {}", status.why);
        ensure!(status.accesses > 0, "a recording saw no access");
        self.memory_bytes = self.memory_bytes.max(status.memory_bytes);
        self.accesses += status.accesses;
        self.dropped += status.dropped;
        Ok(())
    }
}

fn recording(data: &Path, request: &ProfileRequest) -> anyhow::Result<Option<RecordingStatus>> {
    let answer = control::request(data, &format!("{REQUEST} {}", serde_json::to_string(request)?))?;
    match control::read_response(answer)? {
        ProfileAnswer::Report(report) => Ok(report.recording),
        ProfileAnswer::Piece(_) => anyhow::bail!("the node's answer is another one"),
    }
}

fn start(data: &Path) -> anyhow::Result<()> {
    let start = StartRecording { name: Some(NAME.to_owned()), limit_bytes: 64 << 20, ..StartRecording::of(24 * 3600) };
    recording(data, &ProfileRequest::Start(start)).map(drop)
}

fn stop(data: &Path, recorded: &mut Recorded) -> anyhow::Result<()> {
    let status = recording(data, &ProfileRequest::Stop)?.context("the node does not say what it recorded")?;
    recording(data, &ProfileRequest::Remove { name: NAME.to_owned() })?;
    recorded.add(&status)
}

fn t4(options: &ProfileCostOptions, recorded: &mut Recorded) -> anyhow::Result<CostRun> {
    let (services, messages) = options.t4;
    let mut medium = (String::new(), true);
    let sides = in_turns(options.pairs, |with| {
        let t4 = T4Options { services, messages: Some(messages), seed: options.seed, ..T4Options::default() };
        let mut session = Session::start(&t4)?;
        if with {
            start(session.data())?;
        }
        let report = session.measure()?;
        if with {
            stop(session.data(), recorded)?;
        }
        session.stop()?;
        let run = report.runs.first().context("T4 has no run")?;
        ensure!(report.is_clean(), "T4 lost something:\n{}", report.to_text());
        medium = (run.durability.clone(), run.real);
        Ok(CostTurn { per_s: run.inbound_per_s, cpu_us: run.server_cpu_us_per_inbound })
    })?;
    Ok(compared("T4, inbound messages", medium, sides, LEAST))
}

/// The statements: name, text with `{n}` for a random row.
const STATEMENTS: [(&str, &str); 4] = [
    ("analytics: sums over all rows", "SELECT c, count(*), sum(b), avg(d) FROM t GROUP BY c"),
    ("analytics: a text in all rows", "SELECT count(*) FROM t WHERE e LIKE '%77%'"),
    ("a row by its key", "SELECT a, b, c FROM t WHERE a = {n}"),
    ("a row changed", "UPDATE u SET b = b + 1 WHERE a = {n}"),
];

/// Rows of the table that is changed.
const CHANGED_ROWS: usize = 1_000;

fn queries(options: &ProfileCostOptions, recorded: &mut Recorded) -> anyhow::Result<Vec<CostRun>> {
    let place = AccessNode::start(&workload::node::program()?, SETTINGS)?;
    place.administrator("bench")?;
    let mut client = Client::connect(place.address(Node::sql_address)?, "bench", PATIENCE)?;
    client.query("CREATE TABLE t (a bigint PRIMARY KEY, b bigint, c int, d double precision, e text)")?;
    client.query(&format!(
        "INSERT INTO t SELECT n, n * 7, (n % 100)::int, n * 0.5, 'row ' || (n * 31)::text FROM generate_series(0, {}) AS s(n)",
        options.rows.saturating_sub(1)
    ))?;
    client.query("CREATE TABLE u (a bigint PRIMARY KEY, b bigint)")?;
    client.query(&format!("INSERT INTO u SELECT n, n FROM generate_series(0, {}) AS s(n)", CHANGED_ROWS - 1))?;
    let medium = place.node.status()?.journal;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut runs = Vec::new();
    for (name, statement) in STATEMENTS {
        let sides = in_turns(options.pairs, |with| {
            if with {
                start(place.data())?;
            }
            let (before, begun, mut done) = (place.node.usage()?.cpu_us, Instant::now(), 0_u64);
            while begun.elapsed() < options.turn || done == 0 {
                client.query(&statement.replace("{n}", &random.usize(..CHANGED_ROWS).to_string()))?;
                done += 1;
            }
            let (seconds, cpu) = (begun.elapsed().as_secs_f64(), place.node.usage()?.cpu_us - before);
            if with {
                stop(place.data(), recorded)?;
            }
            Ok(CostTurn { per_s: done as f64 / seconds, cpu_us: cpu as f64 / done as f64 })
        })
        .with_context(|| name.to_owned())?;
        runs.push(compared(name, (medium.durability.clone(), medium.real), sides, LEAST));
    }
    drop(client);
    place.stop()?;
    Ok(runs)
}
