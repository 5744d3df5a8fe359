//! The runs: for each size of bulks and number of races a node on each medium, in turns.
//!
//! ```text
//! round 1   SATA -> NVMe -> App Direct        each a node of its own in a new folder, with a terrace.toml of its own
//! round 2   App Direct -> NVMe -> SATA        so that a slow minute does not hit one medium alone
//! ```
//!
//! The node calibrates a model when it starts, and does not start where the host is slower than the medium: such a run is refused with
//! the reason.
//!
//! Invariants: a ratio is taken within a round; medium, durability and the times of the journal's writes are as the node reports them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, bail};
use workload::interrupt;
use workload::machine::{FileSystem, Machine, load_average};
use workload::node::{self, Node};
use workload::process::Usage;
use workload::t4::Folder;

use crate::builtin::{self, BuiltinPlan};
use crate::esrally::{self, EsrallyPlan};
use crate::media::{Lies, MEDIA, Medium};
use crate::report::{Measured, RallyConfig, RallyReport, RallyRun, RunOutcome};
use crate::track;

/// Where memory is a file system, on most Linux machines.
const SHARED_MEMORY: &str = "/dev/shm";
/// Clients of a race of esrally that write. In the published experiment this is a default that is not named.
const CLIENTS: usize = 2;
/// How long a node may take until it serves searches.
const PATIENCE: Duration = Duration::from_secs(60);

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RallyOptions {
    /// By this program instead of esrally.
    pub builtin: bool,
    /// Documents of a bulk, and of a race with such bulks.
    pub bulk: Vec<(usize, usize)>,
    /// Numbers of races at a time.
    pub races: Vec<usize>,
    /// How often each medium takes its turn.
    pub rounds: usize,
    /// Times that each query is measured.
    pub iterations: usize,
    /// By esrally: all queries at the same time.
    pub together: bool,
    /// Seed of the documents.
    pub seed: u64,
    /// Media that are real, by their tiers, and where.
    pub real: Vec<(&'static str, PathBuf)>,
    /// Where modelled media and documents go, in a new folder that is removed afterwards. Default: `/dev/shm` where there is one,
    /// else the folder for temporary files.
    pub dir: Option<PathBuf>,
}

/// Runs all.
///
/// # Errors
/// What cannot be started, a request that fails, `Interrupted`. A medium that is refused is none.
pub fn run(options: &RallyOptions) -> anyhow::Result<RallyReport> {
    let esrally = if options.builtin { None } else { Some(esrally::install()?) };
    let folder = Folder::scratch(Some(&scratch_parent(options)), "rally")?;
    let config = RallyConfig {
        load: if options.builtin { "builtin" } else { "esrally" },
        rounds: options.rounds,
        iterations: options.iterations,
        together: options.together && !options.builtin,
        seed: options.seed,
        clients: if options.builtin { 1 } else { CLIENTS },
        modelled_on: FileSystem::of(folder.path()),
        load_average: load_average(),
    };
    let mut runs = Vec::new();
    for &(bulk, documents) in &options.bulk {
        let load = match &esrally {
            None => Load::Builtin(BuiltinPlan { documents, bulk, iterations: options.iterations, seed: options.seed }),
            Some(path) => {
                let place = folder.path().join(format!("track-{bulk}"));
                let track = track::write(&place, documents, options.seed)?;
                let (clients, iterations, together) = (CLIENTS, options.iterations, options.together);
                let plan = EsrallyPlan { track, bulk, clients, iterations, together };
                Load::Esrally { path, plan, documents: place }
            }
        };
        for &races in &options.races {
            for round in 0..options.rounds {
                let mut order: Vec<&Medium> = MEDIA.iter().collect();
                if round % 2 == 1 {
                    order.reverse();
                }
                for medium in order {
                    interrupt::check()?;
                    eprintln!("bulks of {bulk}, {races} at a time, round {}: {}", round + 1, medium.name);
                    let place = Place { folder: folder.path(), medium, lies: lies(medium, options, folder.path())? };
                    let outcome = one(&load, races, &place)
                        .with_context(|| format!("{races} races with bulks of {bulk} on {}", medium.name))?;
                    runs.push(RallyRun::new(medium, (bulk, races, round), outcome));
                }
            }
        }
    }
    Ok(RallyReport::new(Machine::here(), config, runs))
}

/// The folder in which modelled media and documents get one of their own.
pub(crate) fn scratch_parent(options: &RallyOptions) -> PathBuf {
    let shared = Path::new(SHARED_MEMORY);
    match &options.dir {
        Some(folder) => folder.clone(),
        None if shared.is_dir() => shared.to_owned(),
        None => std::env::temp_dir(),
    }
}

/// Where a medium lies; a real one in a new folder below the one named.
pub(crate) fn lies(medium: &Medium, options: &RallyOptions, modelled: &Path) -> anyhow::Result<Lies> {
    let named = options.real.iter().find(|(tier, _)| *tier == medium.tier);
    Ok(match named {
        None => Lies::Modelled(modelled.join("tier")),
        Some((_, folder)) => {
            let folder = std::path::absolute(folder)?.join(format!("terrace-rally-{}", std::process::id()));
            if folder.exists() {
                bail!("{} is there already", folder.display());
            }
            Lies::Real(folder)
        }
    })
}

/// Who loads.
enum Load<'a> {
    Builtin(BuiltinPlan),
    Esrally { path: &'a Path, plan: EsrallyPlan, documents: PathBuf },
}

/// Where a run lies.
struct Place<'a> {
    folder: &'a Path,
    medium: &'a Medium,
    lies: Lies,
}

/// Runs once, in folders that are gone afterwards.
fn one(load: &Load<'_>, races: usize, place: &Place<'_>) -> anyhow::Result<RunOutcome> {
    let (data, races_folder) = (place.folder.join("node"), place.folder.join("races"));
    for folder in [&data, &races_folder] {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let settings = data.join("terrace.toml");
    fs::write(&settings, place.medium.settings(&place.lies))?;
    let result = serve(&data, &settings).and_then(|(node, address)| {
        let measured = measured(load, races, (&node, address), &races_folder)?;
        let status = node.stop()?;
        anyhow::ensure!(status.success(), "the node ended with {status}");
        Ok(measured)
    });
    let tier = match &place.lies {
        Lies::Modelled(folder) | Lies::Real(folder) => folder,
    };
    for folder in [&data, &races_folder, tier] {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("removing {}", folder.display()))?;
        }
    }
    match result {
        Ok(measured) => Ok(RunOutcome::Ran(Box::new(measured))),
        Err(error) => Ok(RunOutcome::Refused(node::refused_model(&error).ok_or(error)?)),
    }
}

/// Starts a node and waits until it serves searches; where.
///
/// # Errors
/// If it does not, with the end of its log.
pub fn serve(data: &Path, settings: &Path) -> anyhow::Result<(Node, SocketAddr)> {
    let mut node = Node::spawn_without_production(&node::program()?, data, settings)?;
    node.wait_until_ready()?;
    loop {
        if let Some(address) = node.search_address() {
            return Ok((node, address));
        }
        interrupt::check()?;
        if node.has_ended()? || node.age() > PATIENCE {
            bail!("the node does not serve searches:\n{}", node.log_tail());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn measured(
    load: &Load<'_>,
    races: usize,
    (node, address): (&Node, SocketAddr),
    folder: &Path,
) -> anyhow::Result<Measured> {
    let before = node.status()?;
    let samples: Mutex<Vec<Usage>> = Mutex::default();
    let results = match load {
        Load::Builtin(plan) => builtin::run(*plan, races, address, || {
            samples.lock().map_err(|_| anyhow::anyhow!("a race has panicked"))?.push(node.usage()?);
            Ok(())
        }),
        Load::Esrally { path, plan, documents } => esrally::run(path, *plan, races, address, (folder, documents)),
    };
    let races = match results {
        Err(error) if !error.is::<interrupt::Interrupted>() => {
            return Err(error.context(format!("the node's log ends with:\n{}", node.log_tail())));
        }
        results => results?,
    };
    let samples = samples.into_inner().map_err(|_| anyhow::anyhow!("a race has panicked"))?;
    let bulk_cpu_us = match samples[..] {
        [first, second] => Some(second.since(first).cpu_us),
        _ => None,
    };
    Ok(Measured { races, before, after: node.status()?, bulk_cpu_us })
}
