//! T4 once for each medium of the journal: SATA, NVMe, Optane SSD, persistent memory; and this machine's own disk, unmodelled.
//!
//! ```text
//! round 1   this disk -> SATA -> NVMe -> Optane SSD -> App Direct        each a node of its own, with a terrace.toml of its own
//! round 2   App Direct -> Optane SSD -> NVMe -> SATA -> this disk        so that a slow minute does not hit one row alone
//! ```
//!
//! A modelled tier lies on a file system in memory and is slowed to the figures of the catalogue. The node calibrates
//! it when it starts, and does not start where the host is slower than the medium: such a row is refused with the
//! reason.
//!
//! Invariants: each round of a row is a whole run of T4, checked like any; a ratio is taken within a round; the medium
//! and durability of a row's journal are as its node reports them.
//!
//! Not done: the published servers. Their processors changed between tests; ours do not, and the report explains the
//! effect.

mod report;
mod rows;

use std::path::{Path, PathBuf};

use anyhow::Context;

pub use report::{MatrixConfig, MatrixReport, MatrixRow};

use report::Measured;
use rows::{MatrixMedium, ROWS, What};
use workload::interrupt;
use workload::machine::{FileSystem, Machine};
use workload::t4::{Folder, Report, Session, T4Options};

/// Where memory is a file system, on most Linux machines.
const SHARED_MEMORY: &str = "/dev/shm";
/// Bytes that a message and what becomes of it take in the journal, with room: five objects of 2.4 KB on average.
const MESSAGE_BYTES: u64 = 16 << 10;
/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatrixOptions {
    /// The workload of each row; its `data` is where the folder of the unmodelled row goes, its `settings` are not used.
    pub t4: T4Options,
    /// How often each row runs, 1 to 100.
    pub rounds: usize,
    /// Where the modelled tiers go, in a new folder that is removed afterwards. Default: `/dev/shm` where there is one, else
    /// the folder for temporary files.
    pub dir: Option<PathBuf>,
}

/// Runs all rows.
///
/// # Errors
/// As [`workload::t4::run`]; a row that is refused is none.
pub fn run(options: &MatrixOptions) -> anyhow::Result<MatrixReport> {
    anyhow::ensure!((1..=100).contains(&options.rounds), "--rounds takes 1 to 100");
    let shared = Path::new(SHARED_MEMORY);
    let parent = match &options.dir {
        Some(folder) => folder.clone(),
        None if shared.is_dir() => shared.to_owned(),
        None => std::env::temp_dir(),
    };
    let modelled = Folder::scratch(Some(&parent), "matrix")?;
    let disk = Folder::scratch(options.t4.data.as_deref(), "matrix-disk")?;
    for folder in [&modelled, &disk] {
        require_room(folder.path(), &options.t4)?;
    }
    let places = Places { modelled: modelled.path(), disk: disk.path() };
    let mut measured: Vec<Measured> = ROWS.iter().map(|row| Measured::new(*row)).collect();
    let load_average = workload::machine::load_average();
    for round in 0..options.rounds {
        let mut order: Vec<usize> = (0..ROWS.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for at in order {
            interrupt::check()?;
            eprintln!("round {} of {}: {}", round + 1, options.rounds, ROWS[at].name);
            let outcome = one(&ROWS[at], &options.t4, places).with_context(|| ROWS[at].name.to_owned())?;
            measured[at].add(round, outcome);
        }
    }
    let config = MatrixConfig {
        services: options.t4.services,
        messages_per_service: options.t4.messages(),
        quick: options.t4.quick,
        seed: options.t4.seed,
        bodies: workload::node::bodies_name(options.t4.bodies),
        rounds: options.rounds,
        modelled_on: FileSystem::of(modelled.path()),
        disk: FileSystem::of(disk.path()),
        load_average,
        differs: Vec::new(),
    };
    Ok(MatrixReport::new(Machine::here(), config, measured))
}

/// Where rows put their folders.
#[derive(Clone, Copy)]
struct Places<'a> {
    modelled: &'a Path,
    disk: &'a Path,
}

/// What came of a row in a round.
enum Outcome {
    /// The run, and what its node said of its calibration.
    Ran(Box<Report>, Vec<String>),
    /// Why it did not run.
    Refused(String),
}

/// Runs one row once, in a folder of its own that is gone afterwards.
fn one(row: &MatrixMedium, t4: &T4Options, places: Places<'_>) -> anyhow::Result<Outcome> {
    let folder = match row.what {
        What::Here => places.disk.join("node"),
        _ => places.modelled.join("row"),
    };
    let settings = row.what.settings(&folder);
    let options = T4Options { data: Some(folder.clone()), settings, ..t4.clone() };
    let outcome = match Session::start(&options) {
        Ok(mut session) => {
            let report = session.measure()?;
            let calibration = session.node().calibration();
            session.stop()?;
            Outcome::Ran(Box::new(report), calibration)
        }
        Err(error) => Outcome::Refused(workload::node::refused_model(&error).ok_or(error)?),
    };
    std::fs::remove_dir_all(&folder).with_context(|| format!("removing {}", folder.display()))?;
    Ok(outcome)
}

fn require_room(folder: &Path, t4: &T4Options) -> anyhow::Result<()> {
    let needed = (t4.services * t4.messages()) as u64 * MESSAGE_BYTES;
    let free = device::free_bytes(folder)?;
    anyhow::ensure!(
        free > needed,
        "{} has {} MiB free and a row may take {}: give another folder, fewer --messages, or --quick",
        folder.display(),
        free >> 20,
        needed >> 20
    );
    Ok(())
}
