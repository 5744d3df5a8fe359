//! What encryption at rest costs: messages, puts and queries, in turns on an encrypted data directory and on one in clear.
//!
//! ```text
//!   T4        the published messaging workload against the real program; each turn a node of its own
//!   puts      16 committers, 1 KiB each, into two stores of this process, on the real disk
//!   queries   two nodes with the same table of row groups: a row by its key, sums over all rows, and writes that are small
//! ```
//!
//! Keys are drawn for the run and lie in its folder, which goes with it. Invariants: see `turns`; the node under test is the real
//! program, and only the directory's encryption differs between the sides.
//!
//! Not here: volumes (example `encryption_cost` of crate volume), the cipher by itself (example `seal_cost` of crate encryption).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ::encryption::Sealer;
use anyhow::Context;
use device::{FileOptions, FileShelf};
use serde::Serialize;
use store::{Options, Places, Store, StoreError, TreeId};

use crate::access::place::{AccessNode, PATIENCE};
use crate::postgres::Client;
use crate::turns::{CostRun, CostTurn, compared, in_turns, table};
use workload::interrupt;
use workload::machine::{Machine, load_average};
use workload::node::{Node, new_key};
use workload::process::cpu_ns;
use workload::t4::{Folder, Session, T4Options};

/// The least ratio of the rates.
const LEAST: f64 = 0.90;

/// Threads that put.
const COMMITTERS: usize = 16;

/// Bytes of a value that is put.
const VALUE_BYTES: usize = 1024;

const SETTINGS: &str = "[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n";

/// The options of a run.
#[derive(Clone, Debug)]
pub struct EncryptionOptions {
    /// Pairs of turns.
    pub pairs: usize,
    /// Length of a turn of puts or queries.
    pub turn: Duration,
    /// Inbound services of T4, and messages to each.
    pub t4: (usize, usize),
    /// Rows of the table.
    pub rows: usize,
    /// The seed.
    pub seed: u64,
}

impl EncryptionOptions {
    /// The run for results.
    pub fn full() -> EncryptionOptions {
        EncryptionOptions { pairs: 20, turn: Duration::from_secs(1), t4: (128, 300), rows: 1_000_000, seed: 1 }
    }

    /// A run of about a minute, whose figures say nothing.
    pub fn quick() -> EncryptionOptions {
        EncryptionOptions { pairs: 2, turn: Duration::from_millis(200), t4: (4, 25), rows: 20_000, seed: 1 }
    }
}

/// The result: as one JSON object for scripts, as a table for people. Keys may be added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct EncryptionReport {
    /// Always `encryption`.
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
    /// The figures: with encryption and without.
    pub runs: Vec<CostRun>,
}

impl EncryptionReport {
    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let optimised = if self.optimised { "" } else { "; not optimised: the figures say nothing" };
        let pairs = self.runs.first().map_or(0, |run| run.pairs);
        format!(
            "{}\n{pairs} pairs of turns; with: encrypted\n\n{}, {} processors, seed {}{optimised}",
            table(self.runs.iter(), LEAST),
            self.machine.cpu,
            self.machine.cores,
            self.seed
        )
    }

    /// The targets that were missed, a line each.
    pub fn missed(&self) -> Vec<String> {
        let line = |run: &CostRun| {
            let (name, median) = (&run.name, run.ratio.median);
            format!("target missed: {name}: {median:.3} of the rate in clear, at least {LEAST} is wanted: MISSED")
        };
        self.runs.iter().filter(|run| !run.holds).map(line).collect()
    }
}

/// Runs it.
///
/// # Errors
/// If a node or a store cannot be started or fails. What is missed is in the report.
pub fn run(options: &EncryptionOptions) -> anyhow::Result<EncryptionReport> {
    let keys = Folder::scratch(None, "keys")?;
    let key = new_key(keys.path())?;
    let mut runs = vec![t4(options, &key)?];
    interrupt::check()?;
    let medium = (runs[0].durability.clone(), runs[0].real);
    runs.push(puts(options, medium)?);
    interrupt::check()?;
    runs.extend(queries(options, &key)?);
    Ok(EncryptionReport {
        bench: "encryption",
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        optimised: !cfg!(debug_assertions),
        seed: options.seed,
        load_average: load_average(),
        runs,
    })
}

fn t4(options: &EncryptionOptions, key: &Path) -> anyhow::Result<CostRun> {
    let (services, messages) = options.t4;
    let mut medium = (String::new(), true);
    let sides = in_turns(options.pairs, |with| {
        let report = {
            let mut session = Session::start(&T4Options {
                services,
                messages: Some(messages),
                seed: options.seed,
                key: with.then(|| key.to_owned()),
                ..T4Options::default()
            })?;
            let report = session.measure()?;
            session.stop()?;
            report
        };
        let run = report.runs.first().context("T4 has no run")?;
        anyhow::ensure!(report.is_clean(), "T4 lost something:\n{}", report.to_text());
        medium = (run.durability.clone(), run.real);
        Ok(CostTurn { per_s: run.inbound_per_s, cpu_us: run.server_cpu_us_per_inbound })
    })?;
    Ok(compared("T4, inbound messages", medium, sides, LEAST))
}

/// A store of this process.
struct PutStore {
    store: Store,
    tree: TreeId,
    next: AtomicU64,
    _folder: Folder,
}

impl PutStore {
    fn open(with: bool) -> anyhow::Result<PutStore> {
        let folder = Folder::scratch(None, if with { "puts-encrypted" } else { "puts-clear" })?;
        let shelf = |name: &str| -> anyhow::Result<Arc<dyn device::Shelf>> {
            let path = folder.path().join(name);
            std::fs::create_dir_all(&path)?;
            Ok(Arc::new(FileShelf::open(&path, FileOptions::default())?))
        };
        let places = Places { journal: shelf("journal")?, images: shelf("images")?, data: shelf("data")? };
        let sealer = with.then(|| Sealer::for_tests(1, 1, 0));
        let journal = journal::Options { sealer, ..journal::Options::default() };
        let (store, _) = Store::open(places, Options { journal, ..Options::default() })?;
        let mut transaction = store.begin();
        let tree = transaction.create_tree("puts")?;
        transaction.commit()?;
        Ok(PutStore { store, tree, next: AtomicU64::new(0), _folder: folder })
    }

    fn put(&self, value: &[u8]) -> anyhow::Result<()> {
        // Keys in an order that is none.
        let key = self.next.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        loop {
            let mut transaction = self.store.begin();
            transaction.put(self.tree, &key, value)?;
            match transaction.commit() {
                Err(StoreError::Conflict) => {}
                result => return Ok(result.map(|_| ())?),
            }
        }
    }
}

fn puts(options: &EncryptionOptions, medium: (String, bool)) -> anyhow::Result<CostRun> {
    let stores = [PutStore::open(false)?, PutStore::open(true)?];
    let sides = in_turns(options.pairs, |with| {
        let store = &stores[usize::from(with)];
        let (done, begun, before) = (AtomicU64::new(0), Instant::now(), cpu_ns());
        std::thread::scope(|scope| {
            let committer = || -> anyhow::Result<()> {
                let value = [0x5a; VALUE_BYTES];
                while begun.elapsed() < options.turn {
                    store.put(&value)?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            };
            let threads: Vec<_> = (0..COMMITTERS).map(|_| scope.spawn(committer)).collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("a committer has panicked"))?)
        })?;
        let done = done.into_inner().max(1) as f64;
        let cpu_us = (cpu_ns() - before) / 1_000.0 / done;
        Ok(CostTurn { per_s: done / begun.elapsed().as_secs_f64(), cpu_us })
    })?;
    for PutStore { store, .. } in stores {
        store.close()?;
    }
    Ok(compared("puts of 1 KiB, 16 committers", medium, sides, LEAST))
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

fn queries(options: &EncryptionOptions, key: &Path) -> anyhow::Result<Vec<CostRun>> {
    let program = workload::node::program()?;
    let nodes = [queried(&program, options, None)?, queried(&program, options, Some(key))?];
    let medium = nodes[0].node.status()?.journal;
    let mut clients = [client(&nodes[0])?, client(&nodes[1])?];
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut runs = Vec::new();
    for (name, statement) in STATEMENTS {
        let sides = in_turns(options.pairs, |with| {
            let (node, client) = (&nodes[usize::from(with)].node, &mut clients[usize::from(with)]);
            let (before, begun, mut done) = (node.usage()?.cpu_us, Instant::now(), 0_u64);
            while begun.elapsed() < options.turn || done == 0 {
                client.query(&statement.replace("{n}", &random.usize(..CHANGED_ROWS).to_string()))?;
                done += 1;
            }
            let (seconds, cpu) = (begun.elapsed().as_secs_f64(), node.usage()?.cpu_us - before);
            Ok(CostTurn { per_s: done as f64 / seconds, cpu_us: cpu as f64 / done as f64 })
        })
        .with_context(|| name.to_owned())?;
        runs.push(compared(name, (medium.durability.clone(), medium.real), sides, LEAST));
    }
    drop(clients);
    nodes.into_iter().try_for_each(AccessNode::stop)?;
    Ok(runs)
}

fn client(place: &AccessNode) -> anyhow::Result<Client> {
    Ok(Client::connect(place.address(Node::sql_address)?, "bench", PATIENCE)?)
}

/// A node with the tables.
fn queried(program: &Path, options: &EncryptionOptions, key: Option<&Path>) -> anyhow::Result<AccessNode> {
    let place = AccessNode::start_with(program, SETTINGS, key)?;
    place.administrator("bench")?;
    let mut client = client(&place)?;
    client.query("CREATE TABLE t (a bigint PRIMARY KEY, b bigint, c int, d double precision, e text)")?;
    let rows = options.rows;
    client.query(&format!(
        "INSERT INTO t SELECT n, n * 7, (n % 100)::int, n * 0.5, 'row ' || (n * 31)::text FROM generate_series(0, {}) AS s(n)",
        rows.saturating_sub(1)
    ))?;
    client.query("CREATE TABLE u (a bigint PRIMARY KEY, b bigint)")?;
    client.query(&format!("INSERT INTO u SELECT n, n FROM generate_series(0, {}) AS s(n)", CHANGED_ROWS - 1))?;
    Ok(place)
}
