//! One client in the process of the engine: the same bulks without a socket, so that a document's time is what the engine and the
//! medium take.
//!
//! ```text
//!   this thread --RestRequest--> Api -> Indices -> store -> journal     all on one shelf of the medium, modelled or real
//! ```
//!
//! The published experiment sends bulks over HTTP. There the two changes of threads of a request and its way through the kernel take
//! longer than a SATA drive's flush (docs/figures.md), and hide what a medium is worth to the engine itself.
//!
//! Invariants: a response with an error of any document ends the run; the documents are counted after a refresh; bodies are made before
//! the clock runs; media take turns, and a ratio is taken within a round.

use std::fmt::Write as _;
use std::fs;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use catalogue::{Budget, Model, ModelShelf, Timing};
use device::pmem::Absent;
use device::{FileOptions, FileShelf, PmemOptions, PmemShelf, Shelf};
use node::Clock;
use node::identity::scram::Mock;
use node::identity::{Caller, Guard};
use search::indices::{Indices, IndicesOptions, Upkeep};
use search::rest::{Api, RestBody, RestHandler, RestMethod, RestRequest};
use serde::Serialize;
use serde_json::json;
use store::{Options, Places, Store};
use workload::histogram::Histogram;
use workload::interrupt;
use workload::machine::{FileSystem, Machine, load_average};
use workload::process::cpu_ns;
use workload::t4::Folder;

use crate::builtin::{BuiltinPlan, bodies};
use crate::measure::{RallyOptions, lies, scratch_parent};
use crate::media::{FAST, Lies, MEDIA, Medium, SLOW};
use crate::race::{Milliseconds, median};
use crate::track;

/// Memory of open files and of a writer, as a node's with 1 GiB for search.
const FILE_BYTES: u64 = 512 << 20;
const WRITER_BYTES: usize = 32 << 20;
/// Bytes of the device on which a model is compared with the host, as a node does it when it starts.
const CALIBRATION: catalogue::calibrate::Options =
    catalogue::calibrate::Options { operations: 200, bytes: 256 << 10, threads: 1, seed: 1 };
/// A disturbed calibration is repeated.
const TRIES: usize = 5;
/// The index.
const INDEX: &str = "weblogs";

/// What one run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct InProcessRun {
    /// The medium.
    pub tier: &'static str,
    /// Modelled, not real.
    pub modelled: bool,
    /// Documents of a bulk.
    pub bulk: usize,
    /// Round, from 0.
    pub round: usize,
    /// Documents a second.
    pub docs_per_s: f64,
    /// Time of a bulk.
    pub bulk_ms: Milliseconds,
    /// Processor time of the client's thread and of all others of the process, microseconds for a document.
    pub cpu_us_per_doc: f64,
}

/// All runs.
#[derive(Clone, Debug, Serialize)]
pub struct InProcessReport {
    /// The machine.
    pub machine: Machine,
    /// Where modelled media lie.
    pub modelled_on: FileSystem,
    /// How busy the machine was before.
    pub load_average: Option<f64>,
    /// Seed of the documents.
    pub seed: u64,
    /// The runs, in their order.
    pub runs: Vec<InProcessRun>,
}

/// Runs each medium in turns for each size of bulks.
///
/// # Errors
/// A medium that cannot be opened, or whose model is faster than this host; a document that is refused; `Interrupted`.
pub fn run(options: &RallyOptions) -> anyhow::Result<InProcessReport> {
    let folder = Folder::scratch(Some(&scratch_parent(options)), "rally")?;
    let (modelled_on, load_average) = (FileSystem::of(folder.path()), load_average());
    let mut runs = Vec::new();
    for &(bulk, documents) in &options.bulk {
        let plan = BuiltinPlan { documents, bulk, iterations: 1, seed: options.seed };
        let bodies = bodies(plan, 0);
        for round in 0..options.rounds {
            let mut order: Vec<&Medium> = MEDIA.iter().collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for medium in order {
                interrupt::check()?;
                eprintln!("bulks of {bulk}, in this process, round {}: {}", round + 1, medium.name);
                let lies = lies(medium, options, folder.path())?;
                let (Lies::Modelled(place) | Lies::Real(place)) = &lies;
                let place = place.clone();
                let run = one(medium, &lies, (bulk, round), &bodies)
                    .with_context(|| format!("bulks of {bulk} on {}", medium.name));
                if place.exists() {
                    fs::remove_dir_all(&place).with_context(|| format!("removing {}", place.display()))?;
                }
                runs.push(run?);
            }
        }
    }
    Ok(InProcessReport { machine: Machine::here(), modelled_on, load_average, seed: options.seed, runs })
}

fn one(
    medium: &Medium,
    lies: &Lies,
    (bulk, round): (usize, usize),
    bodies: &[(usize, String)],
) -> anyhow::Result<InProcessRun> {
    let [journal, images, data, files] = shelves(medium, lies)?;
    let places = Places { journal, images, data };
    let (store, _) = Store::open(places, Options::default())?;
    // The node itself asks: its rights are looked up as those of any other.
    let guard = Guard::open(store.clone(), Clock::fixed(1), Mock::of([1; 32]))?;
    let indices = Indices::open(IndicesOptions {
        store,
        shelf: files,
        capacity: None,
        file_bytes: FILE_BYTES,
        writer_bytes: WRITER_BYTES,
        indices_max: 1,
        feeds: Vec::new(),
        reserved: Vec::new(),
    })?;
    let upkeep = Upkeep::start(Arc::clone(&indices))?;
    let api = Api::new(indices, guard, "in-process");
    send(&api, RestMethod::Put, INDEX, track::INDEX)?;
    let target = format!("{INDEX}/_bulk");
    let mut times = Histogram::default();
    let requests: Vec<_> = bodies.iter().map(|(_, body)| request(RestMethod::Put, &target, body)).collect();
    let (begun, cpu) = (Instant::now(), cpu_ns());
    for request in &requests {
        interrupt::check()?;
        let sent = Instant::now();
        let response = api.respond(request);
        times.record(sent.elapsed().as_micros() as u64);
        let RestBody::RawJson(body) = &response.body else { anyhow::bail!("a bulk failed: {response:?}") };
        let is_written = body.windows(14).take(64).any(|part| part == b"\"errors\":false");
        ensure!(response.status == 200 && is_written, "a bulk failed: {}", String::from_utf8_lossy(body));
    }
    let (seconds, cpu) = (begun.elapsed().as_secs_f64(), cpu_ns() - cpu);
    let documents: usize = bodies.iter().map(|(documents, _)| documents).sum();
    send(&api, RestMethod::Post, &format!("{INDEX}/_refresh"), "")?;
    let found = send(&api, RestMethod::Get, &format!("{INDEX}/_count"), "")?;
    ensure!(found["count"] == documents, "{documents} documents were written, and the index has {found}");
    api.end();
    drop(api);
    drop(upkeep);
    Ok(InProcessRun {
        tier: medium.name,
        modelled: matches!(lies, Lies::Modelled(_)),
        bulk,
        round,
        docs_per_s: documents as f64 / seconds,
        bulk_ms: Milliseconds::of(&times),
        cpu_us_per_doc: cpu / 1000.0 / documents as f64,
    })
}

/// Shelves of the journal, the images, the pages and the index files, on one medium with one budget.
fn shelves(medium: &Medium, lies: &Lies) -> anyhow::Result<[Arc<dyn Shelf>; 4]> {
    let names = ["journal", "images", "data", "search"];
    let [a, b, c, d] = names.map(|name| bare(medium, lies, name));
    let bare = [a?, b?, c?, d?];
    if matches!(lies, Lies::Real(_)) {
        return Ok(bare);
    }
    let found = catalogue::Medium::find(medium.model).with_context(|| format!("no medium {}", medium.model))?;
    let model = Model::of(&found, medium.modules)?;
    let once = || catalogue::calibrate(&bare[0], &found, &model, &Timing::Timed, CALIBRATION);
    let mut measured = once();
    for _ in 1..TRIES {
        if measured.is_err() {
            measured = once();
        }
    }
    measured.with_context(|| format!("this machine cannot stand in for {}", medium.model))?;
    let budget = Budget::new(&model);
    Ok(bare.map(|bare| -> Arc<dyn Shelf> {
        Arc::new(ModelShelf::new(bare, model.clone(), Arc::clone(&budget), Timing::Timed))
    }))
}

/// A folder of the medium, without its model.
fn bare(medium: &Medium, lies: &Lies, name: &str) -> anyhow::Result<Arc<dyn Shelf>> {
    let (Lies::Modelled(folder) | Lies::Real(folder)) = lies;
    let folder = folder.join(name);
    fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    let absent = if matches!(lies, Lies::Modelled(_)) { Absent::Emulate } else { Absent::Refuse };
    Ok(if medium.is_persistent_memory() {
        Arc::new(PmemShelf::open(&folder, PmemOptions { absent })?)
    } else {
        Arc::new(FileShelf::open(&folder, FileOptions::default())?)
    })
}

fn request(method: RestMethod, path: &str, body: &str) -> RestRequest {
    RestRequest {
        method,
        path: path.split('/').map(str::to_owned).collect(),
        parameters: Default::default(),
        body: body.to_owned().into(),
        caller: Caller::node(),
        opaque_id: None,
        cancelled: Arc::default(),
    }
}

fn send(api: &Api, method: RestMethod, path: &str, body: &str) -> anyhow::Result<serde_json::Value> {
    let response = api.respond(&request(method, path, body));
    ensure!(response.status < 300, "{path}: {response:?}");
    match response.body {
        RestBody::Json(body) => Ok(body),
        RestBody::RawJson(body) => Ok(serde_json::from_slice(&body)?),
        RestBody::Text(text) => Ok(json!(text)),
    }
}

impl InProcessReport {
    /// The median over rounds of one figure.
    fn median_of(&self, tier: &str, bulk: usize, figure: fn(&InProcessRun) -> f64) -> Option<f64> {
        median(self.runs.iter().filter(|run| run.tier == tier && run.bulk == bulk).map(figure).collect())
    }

    /// The fast medium's documents a second by the slow one's of the same round; the median.
    pub fn ratio(&self, bulk: usize) -> Option<f64> {
        let of = |tier: &str, round: usize| {
            let is = |run: &&InProcessRun| run.tier == tier && run.bulk == bulk && run.round == round;
            self.runs.iter().find(is).map(|run| run.docs_per_s)
        };
        let rounds = self.runs.iter().map(|run| run.round + 1).max()?;
        median((0..rounds).filter_map(|round| Some(of(FAST, round)? / of(SLOW, round)?)).collect())
    }

    /// A table.
    pub fn to_text(&self) -> String {
        let mut text = format!(
            "One client in this process; {}, {} cores; medians of all rounds.\n\n  {:<12} {:>6} {:>10} {:>10} {:>10} {:>12}\n",
            self.machine.cpu, self.machine.cores, "medium", "bulk", "docs/s", "p50 ms", "p99 ms", "CPU us/doc"
        );
        let mut bulks: Vec<usize> = self.runs.iter().map(|run| run.bulk).collect();
        bulks.sort_unstable();
        bulks.dedup();
        for bulk in bulks {
            for medium in &MEDIA {
                let at = |figure| self.median_of(medium.name, bulk, figure).unwrap_or(f64::NAN);
                let _ = writeln!(
                    text,
                    "  {:<12} {bulk:>6} {:>10.0} {:>10.3} {:>10.3} {:>12.1}",
                    medium.name,
                    at(|run| run.docs_per_s),
                    at(|run| run.bulk_ms.p50),
                    at(|run| run.bulk_ms.p99),
                    at(|run| run.cpu_us_per_doc),
                );
            }
            if let Some(ratio) = self.ratio(bulk) {
                let _ = writeln!(text, "  {FAST} by {SLOW}, bulks of {bulk}: {ratio:.2} x\n");
            }
        }
        let modelled = self.runs.iter().any(|run| run.modelled);
        text.push_str(if modelled {
            "Media are modelled where no folder of a real one was named.\n"
        } else {
            "All media are real.\n"
        });
        text
    }

    /// JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_in_this_process_writes_all_documents_and_ratios_are_within_a_round() {
        let dir = tempfile::tempdir().expect("a folder");
        // A real folder: a test must not depend on how fast its host is.
        let bodies = bodies(BuiltinPlan { documents: 20, bulk: 1, iterations: 1, seed: 1 }, 0);
        let lies = Lies::Real(dir.path().join("file"));
        let run = one(&MEDIA[0], &lies, (1, 0), &bodies).expect("it runs");
        assert!(run.docs_per_s > 0.0 && !run.modelled && run.tier == SLOW, "{run:?}");
        let fast = InProcessRun { tier: FAST, docs_per_s: run.docs_per_s * 3.0, ..run.clone() };
        let other = InProcessRun { round: 1, docs_per_s: 1.0, ..run.clone() };
        let (machine, runs) = (Machine::here(), vec![run, fast, other]);
        let report =
            InProcessReport { machine, modelled_on: FileSystem::of(dir.path()), load_average: None, seed: 1, runs };
        assert!((report.ratio(1).expect("there") - 3.0).abs() < 1e-9);
        assert!(report.ratio(5).is_none());
        assert!(report.to_text().contains("bulks of 1: 3.00 x") && report.to_json().contains("\"cpu_us_per_doc\""));
    }
}
