//! Kills the node under bulk requests, again and again, and checks its documents: this tests the promise of a response on the real
//! process.
//!
//! ```text
//! round:  start --> serves --> every document by id, then by a search --> writers and upkeep for a random time --> SIGKILL
//!            \----------------- or killed while it recovers (one in five) ------------------------------------------^ |
//!         next round <-- `terrace verify` on the files (one in four) <-------------------------------------------------+
//! end:    start --> the same comparison --> SIGTERM --> verify
//! ```
//!
//! Verified: each acknowledged change is there with its version; a bulk without a response is there whole or not at all; a search
//! finds after a refresh what reads by id return, and no more.
//!
//! The node has little cache and little journal, so that a kill often falls into a checkpoint; upkeep persists the index meanwhile.
//! Random times come from a seed; the interleaving of processes does not repeat exactly. SIGKILL loses no page cache: power failure is
//! the device simulator's subject.

mod ledger;
mod report;
mod writer;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use serde_json::{Value, json};
use workload::histogram::Histogram;
use workload::interrupt::{self, Interrupted};
use workload::node::{self, Node};
use workload::t4::Folder;

use crate::client::Client;
use crate::measure::serve;
use crate::media::SEARCH_SETTINGS;
pub use ledger::{Compared, Ledger, State, States};
pub use report::{SearchKillConfig, SearchKillReport, SearchKillRun};
use writer::{INDEX, Round, Writer};

/// Load before a kill, milliseconds.
const LOAD_MS: std::ops::Range<u64> = 50..800;
/// A node is killed in recovery in one round of so many.
const RECOVERY_ROUNDS: u32 = 5;
/// The files of a killed node are verified after one round of so many.
const FILES_ROUNDS: u32 = 4;
/// How long a node may acknowledge nothing.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many faults are kept as text.
const EXAMPLES: usize = 8;

/// The node's settings besides `[search]`: a checkpoint for each 8 MiB of journal, or of dirty pages.
const SETTINGS: &str = "listen = \"127.0.0.1:0\"\ncache = \"32MiB\"\n\
    [journal]\nsegment = \"4MiB\"\nlimit = \"32MiB\"\nkeep = \"8MiB\"\n\
    [messages]\nretention = \"8MiB\"\n\
    [pages]\ndevice = \"64MiB\"\nimages = \"8MiB\"\n";

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchKillOptions {
    /// How many times to kill.
    pub rounds: usize,
    /// Writers, each with documents of its own.
    pub writers: usize,
    /// Seed of the changes and of the times of the kills.
    pub seed: u64,
    /// Folder of the node's data, kept; it must be empty or not exist. Default: a new one, removed if the run is clean.
    pub data: Option<PathBuf>,
}

impl Default for SearchKillOptions {
    fn default() -> Self {
        SearchKillOptions { rounds: 50, writers: 4, seed: 1, data: None }
    }
}

/// The measurements during the run.
#[derive(Debug, Default)]
pub(crate) struct KillFigures {
    recovery_us: Histogram,
    last_recovery: Duration,
    killed_in_recovery: usize,
    acknowledged: u64,
    refused: u64,
    compared: Compared,
    /// Comparisons of all documents.
    comparisons: u64,
    /// Documents at the last of them.
    live: u64,
    verified: u64,
    damaged: u64,
    stopped: bool,
    durability: String,
    real: bool,
    examples: Vec<String>,
}

/// Runs the harness.
///
/// # Errors
/// If the node cannot be started, or does not serve after a kill. Violations of the promise are in the report.
pub fn run(options: &SearchKillOptions) -> anyhow::Result<SearchKillReport> {
    ensure!(options.rounds > 0 && options.writers > 0, "it takes at least one round and one writer");
    let mut harness = Harness::new(options)?;
    if let Err(error) = harness.rounds(options.rounds) {
        if error.is::<Interrupted>() {
            return Err(error);
        }
        harness.folder.keep();
        let data = harness.folder.path().display();
        return Err(error.context(format!("seed {}; the node's data is in {data}", options.seed)));
    }
    let report = SearchKillReport::new(options, &harness.figures, harness.folder.path());
    if !report.is_clean() {
        harness.folder.keep();
    }
    Ok(report)
}

struct Harness {
    rng: Rng,
    writers: Vec<Writer>,
    folder: Folder,
    program: PathBuf,
    settings: PathBuf,
    figures: KillFigures,
    first: bool,
}

impl Harness {
    fn new(options: &SearchKillOptions) -> anyhow::Result<Harness> {
        let folder = Folder::new(options.data.as_ref(), "kill-search")?;
        let settings = folder.path().join("terrace.toml");
        let text = format!("{SETTINGS}{SEARCH_SETTINGS}");
        std::fs::write(&settings, text).context("writing settings")?;
        Ok(Harness {
            rng: Rng::with_seed(options.seed),
            writers: (0..options.writers).map(|name| Writer::new(name, options.seed)).collect(),
            folder,
            program: node::program()?,
            settings,
            figures: KillFigures::default(),
            first: true,
        })
    }

    fn rounds(&mut self, rounds: usize) -> anyhow::Result<()> {
        for round in 0..rounds {
            interrupt::check()?;
            self.round().with_context(|| format!("round {round}"))?;
            let KillFigures { acknowledged, compared, .. } = &self.figures;
            eprintln!("{} of {rounds} kills, {acknowledged} changes, {} faults", round + 1, compared.faults());
        }
        self.finish().context("after the last round")
    }

    /// Starts the node, compares, loads it, kills it.
    fn round(&mut self) -> anyhow::Result<()> {
        let in_recovery = !self.first && self.rng.u32(0..RECOVERY_ROUNDS) == 0;
        let time = Duration::from_millis(self.rng.u64(LOAD_MS));
        if in_recovery {
            let node = Node::spawn_without_production(&self.program, self.folder.path(), &self.settings)?;
            // At any moment of what the last recovery took, which the seed cannot know: it gives the fraction.
            thread::sleep(self.figures.last_recovery.mul_f64(self.rng.f64()));
            node.kill()?;
            self.figures.killed_in_recovery += 1;
        } else {
            let (node, address) = self.start()?;
            self.load(address, time, node)?;
        }
        if self.rng.u32(0..FILES_ROUNDS) == 0 {
            self.verify()?;
        }
        Ok(())
    }

    /// Starts the node and compares what it has.
    fn start(&mut self) -> anyhow::Result<(Node, SocketAddr)> {
        let (node, address) = serve(self.folder.path(), &self.settings)?;
        let mut client = Client::connect(address)?;
        if self.first {
            let mapping = json!({"mappings": {"properties": {"n": {"type": "long"}, "text": {"type": "text"}}}});
            client.send("PUT", &format!("/{INDEX}"), mapping.to_string().as_bytes())?.json()?;
            self.first = false;
        } else {
            self.figures.last_recovery = node.age();
            self.figures.recovery_us.record(node.age().as_micros() as u64);
            self.compare(&mut client).context("comparing")?;
        }
        Ok((node, address))
    }

    /// Lets writers and upkeep run for `time` from the first acknowledgement on, then kills the node.
    fn load(&mut self, address: SocketAddr, time: Duration, node: Node) -> anyhow::Result<()> {
        let round = Round { address, ends: false.into(), acknowledged: 0.into(), refused: 0.into() };
        let mut killed = Ok(());
        thread::scope(|scope| {
            for writer in &mut self.writers {
                let round = &round;
                scope.spawn(move || writer.run(round));
            }
            let (round, rng) = (&round, self.rng.fork());
            scope.spawn(move || writer::upkeep(round, rng));
            let begun = Instant::now();
            let mut first = None;
            let silent = loop {
                let acknowledged = round.acknowledged.load(Ordering::Relaxed) > 0;
                let since = *first.get_or_insert_with(Instant::now);
                if !acknowledged {
                    first = None;
                }
                if (acknowledged && since.elapsed() >= time) || interrupt::is_asked() {
                    break false;
                }
                if begun.elapsed() > PATIENCE {
                    break true;
                }
                thread::sleep(Duration::from_millis(1));
            };
            let log = if silent { node.log_tail() } else { String::new() };
            killed = node.kill();
            round.ends.store(true, Ordering::Relaxed);
            if silent {
                killed = Err(anyhow::anyhow!("the node acknowledged nothing for {} s:\n{log}", PATIENCE.as_secs()));
            }
        });
        self.figures.acknowledged += round.acknowledged.into_inner();
        self.figures.refused += round.refused.into_inner();
        killed
    }

    /// Compares every document by id, and then with what a search finds.
    fn compare(&mut self, client: &mut Client) -> anyhow::Result<()> {
        let mut faults = Vec::new();
        let mut live = 0;
        for writer in &mut self.writers {
            let states = by_id(client, &writer.ledger.documents())?;
            self.figures.compared.add(writer.ledger.compare(&states, &mut faults));
            live += writer.ledger.live();
        }
        client.send("POST", &format!("/{INDEX}/_refresh"), b"")?.json()?;
        let searched = by_search(client)?;
        for writer in &self.writers {
            self.figures.compared.not_searched += writer.ledger.compare_searched(&searched, &mut faults);
        }
        if searched.len() as u64 > live {
            self.figures.compared.not_searched += searched.len() as u64 - live;
            faults.push(format!("a search finds {} documents, and there are {live}", searched.len()));
        }
        self.figures.comparisons += 1;
        self.figures.live = live;
        self.figures.examples.extend(faults);
        self.figures.examples.truncate(EXAMPLES);
        Ok(())
    }

    /// Runs `terrace verify` on the files.
    fn verify(&mut self) -> anyhow::Result<()> {
        let verify = Command::new(&self.program).arg("verify").arg(self.folder.path()).stdin(Stdio::null()).output();
        let verify = verify.context("starting terrace verify")?;
        self.figures.verified += 1;
        if !verify.status.success() {
            self.figures.damaged += 1;
            let text = [verify.stdout, verify.stderr].concat();
            let text = String::from_utf8_lossy(&text);
            self.figures.examples.push(format!("terrace verify ended with {}: {}", verify.status, text.trim()));
        }
        Ok(())
    }

    /// Starts the node a last time, compares, and stops it.
    fn finish(&mut self) -> anyhow::Result<()> {
        let (node, _) = self.start()?;
        let journal = node.status()?.journal;
        (self.figures.durability, self.figures.real) = (journal.durability, journal.real);
        self.figures.stopped = node.stop()?.success();
        self.verify()
    }
}

/// The documents as reads by id return them, which see every change at once.
fn by_id(client: &mut Client, documents: &[String]) -> anyhow::Result<States> {
    if documents.is_empty() {
        return Ok(States::new());
    }
    let body = json!({"ids": documents}).to_string();
    let response = client.send("POST", &format!("/{INDEX}/_mget"), body.as_bytes())?.json()?;
    let docs = response["docs"].as_array().context("no documents in the response")?;
    ensure!(docs.len() == documents.len(), "{} documents were asked for, {} came", documents.len(), docs.len());
    let state = |doc: &Value| -> anyhow::Result<(String, Option<State>)> {
        let id = doc["_id"].as_str().context("a document without an id")?.to_owned();
        if doc["found"] != true {
            if !doc["error"].is_null() {
                bail!("{id} cannot be read: {}", doc["error"]);
            }
            return Ok((id, None));
        }
        let number = doc["_source"]["n"].as_u64().context("a document without its number")?;
        Ok((id, Some(State { number, version: doc["_version"].as_u64() })))
    };
    docs.iter().map(state).collect()
}

/// The number of each document that a search finds.
fn by_search(client: &mut Client) -> anyhow::Result<BTreeMap<String, u64>> {
    let target = format!("/{INDEX}/_search?size=10000&_source=n&sort=_doc");
    let response = client.send("GET", &target, b"")?.json()?;
    let hits = response["hits"]["hits"].as_array().context("no hits in the response")?;
    ensure!(response["hits"]["total"]["value"] == hits.len(), "{} hits in one page of all", hits.len());
    let hit = |hit: &Value| Some((hit["_id"].as_str()?.to_owned(), hit["_source"]["n"].as_u64()?));
    let found: BTreeMap<String, u64> =
        hits.iter().map(hit).collect::<Option<_>>().context("a hit without its number")?;
    ensure!(found.len() == hits.len(), "a document was found twice");
    Ok(found)
}

/// The command to repeat a run.
pub(crate) fn again(config: &SearchKillConfig, data: &Path) -> String {
    format!(
        "The node's data is in {}; repeat with\n  terrace bench kill --search --rounds {} --seed {}",
        data.display(),
        config.rounds,
        config.seed
    )
}
