//! The measurement: each load on the volumes and on the bare devices in turns, in this process and over NBD.
//!
//! ```text
//!   in-process   open, fill --> load 1: volume, bare --> load 2: volume, bare ... --> close
//!   nbd          server opens the same --> the same loads over one connection for each thread --> ends
//! ```
//!
//! Invariants: volume and bare device have the same size, content and load, a moment apart, so their ratio is of one run; counters are
//! looked at where the measured time begins and ends; the folder goes with the measurement, also after an error.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use device::Device;
use workload::machine::{self, FileSystem, Machine};
use workload::t4::Folder;
use workload::{interrupt, process};

use crate::blocks::{BLOCK, Ledger};
use crate::drive::{self, Target, Timeline};
use crate::load::Load;
use crate::media::{Base, Fleet, Layout, Making};
use crate::report::{FleetConfig, FleetReport, FleetRun, Measured, Way};
use crate::server::{ServerCounts, ServerProcess, ServerProgram, Side};
use crate::tally::Tally;
use workload::processors::{self, ProcessorUse};

/// How a run is timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// Warm-up.
    pub warm: Duration,
    /// Measured time.
    pub measured: Duration,
    /// Cool-down.
    pub cool: Duration,
}

/// What is measured.
#[derive(Clone, Debug)]
pub struct FleetOptions {
    /// The volumes; its folder is the one in which a folder is made.
    pub layout: Layout,
    /// Threads on each volume.
    pub threads: usize,
    /// Requests that each keeps in progress.
    pub outstanding: usize,
    /// The times of each run.
    pub times: Times,
    /// The ways, in this order.
    pub ways: Vec<Way>,
    /// Only loads whose name contains this text.
    pub only: Option<String>,
    /// Seed of the offsets.
    pub seed: u64,
    /// The server.
    pub server: ServerProgram,
}

/// Where the devices are.
enum Stage<'s> {
    Here(&'s Fleet),
    There(&'s mut ServerProcess),
}

/// Everything that the runs of one way share.
struct Runs<'s> {
    stage: Stage<'s>,
    way: Way,
    options: &'s FleetOptions,
    layout: &'s Layout,
    /// By side, then volume.
    ledgers: &'s [Vec<Arc<Ledger>>; 2],
}

/// Counters at one moment.
struct Moment {
    server: ServerCounts,
    own_cpu_ns: f64,
    processors: Vec<ProcessorUse>,
}

/// Measures.
///
/// # Errors
/// What cannot be run, with the reason; or the user's request to end.
pub fn run(options: &FleetOptions) -> anyhow::Result<FleetReport> {
    let loads = chosen(options)?;
    let mut layout = options.layout.clone();
    let folder = Folder::scratch(Some(&layout.folder), "fleet")?;
    layout.folder = folder.path().to_owned();
    let is_memory = layout.base == Base::Memory;
    if !is_memory {
        require_room(&layout)?;
    }
    layout.calibrate()?;
    let mut runs = Vec::new();
    let mut ledgers = new_ledgers(&layout);
    let mut making = Making::New;
    for way in &options.ways {
        match way {
            Way::InProcess => {
                let fleet = layout.open(making)?;
                let stage = Stage::Here(&fleet);
                Runs { stage, way: *way, options, layout: &layout, ledgers: &ledgers }.all(&loads, &mut runs)?;
                fleet.close()?;
            }
            Way::Nbd => {
                let mut server = ServerProcess::start(&options.server, &layout, making)?;
                let stage = Stage::There(&mut server);
                Runs { stage, way: *way, options, layout: &layout, ledgers: &ledgers }.all(&loads, &mut runs)?;
                server.stop()?;
            }
        }
        // What is in the memory of a process goes with it.
        if is_memory {
            ledgers = new_ledgers(&layout);
        } else {
            making = Making::Existing;
        }
    }
    let config = FleetConfig {
        media: layout.in_words(),
        file_system: (!is_memory).then(|| FileSystem::of(&layout.folder)),
        layout: options.layout.clone(),
        threads: options.threads,
        outstanding: options.outstanding,
        warm_seconds: options.times.warm.as_secs_f64(),
        seconds: options.times.measured.as_secs_f64(),
        cool_seconds: options.times.cool.as_secs_f64(),
        seed: options.seed,
        last_cache_bytes: processors::last_cache_bytes(),
        working_set_bytes: layout.bytes * layout.volumes as u64,
        load_average: machine::load_average(),
    };
    Ok(FleetReport::new(Machine::here(), config, runs))
}

fn chosen(options: &FleetOptions) -> anyhow::Result<Vec<Load>> {
    let layout = &options.layout;
    let blocks = layout.bytes / BLOCK as u64;
    ensure!((1..=64).contains(&options.threads), "--threads takes 1 to 64");
    ensure!((1..=1024).contains(&options.outstanding), "--outstanding takes 1 to 1024");
    let needed = (2 * options.threads * options.outstanding) as u64;
    ensure!(blocks >= needed, "volumes of {blocks} blocks are too small for that many requests: at least {needed}");
    ensure!((1..=64).contains(&layout.volumes), "--volumes takes 1 to 64");
    ensure!((1..=3).contains(&layout.copies), "--copies takes 1 to 3");
    let mut loads = Load::all(options.threads, options.outstanding);
    loads.retain(|load| options.only.as_ref().is_none_or(|only| load.name.contains(only.as_str())));
    ensure!(!loads.is_empty(), "no load has such a name: leave --only out to see all");
    for load in &loads {
        ensure!(layout.bytes >= load.bytes as u64, "volumes are at least as large as a request: --size 2MiB or more");
    }
    Ok(loads)
}

fn require_room(layout: &Layout) -> anyhow::Result<()> {
    // The journals' segments and tables of checksums come on top of the blocks.
    let beside = 128 << 20;
    let copy = layout.bytes + layout.cache.map_or(0, |cache| cache.bytes) + beside;
    let needed = layout.volumes as u64 * (layout.copies as u64 * copy + layout.bytes);
    let free = device::free_bytes(&layout.folder)?;
    ensure!(
        free >= needed,
        "{} has {} MiB free and this takes {}: give --path another folder, or a smaller --size",
        layout.folder.display(),
        free >> 20,
        needed >> 20
    );
    Ok(())
}

fn new_ledgers(layout: &Layout) -> [Vec<Arc<Ledger>>; 2] {
    [(); 2].map(|()| (0..layout.volumes).map(|_| Arc::new(Ledger::filled(layout.bytes / BLOCK as u64))).collect())
}

impl Runs<'_> {
    fn all(mut self, loads: &[Load], runs: &mut Vec<FleetRun>) -> anyhow::Result<()> {
        for load in loads {
            let mut volume = self.one(load, Side::Volume)?;
            let bare = self.one(load, Side::Bare)?;
            volume.ratio_to_bare = (bare.iops > 0.0).then(|| volume.iops / bare.iops);
            runs.extend([volume, bare]);
        }
        Ok(())
    }

    fn targets(&self, load: &Load, side: Side) -> anyhow::Result<Vec<Target>> {
        let ledgers = match side {
            Side::Volume => &self.ledgers[0],
            Side::Bare => &self.ledgers[1],
        };
        let target = |number: usize| -> anyhow::Result<Target> {
            let devices: Vec<Arc<dyn Device>> = match &self.stage {
                Stage::Here(fleet) if side == Side::Volume => vec![fleet.volumes[number].volume.clone()],
                Stage::Here(fleet) => vec![fleet.bare[number].clone()],
                Stage::There(server) => {
                    (0..load.threads).map(|_| server.connect(side, number)).collect::<anyhow::Result<_>>()?
                }
            };
            Ok(Target {
                devices,
                place: number as u32,
                ledger: Arc::clone(&ledgers[number]),
                is_atomic: side == Side::Volume,
            })
        };
        (0..load.volumes(self.layout.volumes)).map(target).collect()
    }

    fn moment(&mut self) -> anyhow::Result<Moment> {
        let (own_cpu_ns, processors) = (process::cpu_ns(), ProcessorUse::now());
        let server = match &mut self.stage {
            Stage::Here(fleet) => ServerCounts { cpu_ns: own_cpu_ns, volumes: fleet.counts() },
            Stage::There(server) => server.counts()?,
        };
        Ok(Moment { server, own_cpu_ns, processors })
    }

    fn durability(&self, side: Side) -> String {
        match &self.stage {
            Stage::There(server) => server.durability(side).to_owned(),
            Stage::Here(fleet) => match side {
                Side::Volume => fleet.volumes[0].volume.durability().as_str().to_owned(),
                Side::Bare => fleet.bare[0].durability().as_str().to_owned(),
            },
        }
    }

    fn one(&mut self, load: &Load, side: Side) -> anyhow::Result<FleetRun> {
        interrupt::check()?;
        let targets = self.targets(load, side)?;
        let times = self.options.times;
        let timeline = Timeline::from_now(times.warm, times.measured, times.cool);
        let seed = self.options.seed;
        let (tallies, before, after) = std::thread::scope(|scope| {
            let driving = scope.spawn(|| drive::run(load, &targets, timeline, seed));
            sleep_until(timeline.start);
            let before = self.moment();
            sleep_until(timeline.end);
            let after = self.moment();
            let tallies = driving.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            (tallies, before, after)
        });
        let (tallies, before, after) = (tallies?, before?, after?);
        self.ended(load, side, &tallies, (&before, &after))
    }

    fn ended(
        &self,
        load: &Load,
        side: Side,
        tallies: &[Vec<Tally>],
        (before, after): (&Moment, &Moment),
    ) -> anyhow::Result<FleetRun> {
        let in_use = load.volumes(self.layout.volumes);
        let volumes = after.server.volumes.iter().zip(&before.server.volumes).take(in_use);
        let is_slowed = side == Side::Volume && load.read_percent < 100;
        Ok(FleetRun::new(
            load,
            &Measured {
                way: self.way,
                side,
                durability: self.durability(side),
                real: if side == Side::Volume { self.layout.is_real() } else { self.layout.is_bare_real() },
                volumes: in_use,
                copies: if side == Side::Volume { self.layout.copies } else { 1 },
                has_cache: side == Side::Volume && self.layout.cache.is_some(),
                seconds: self.options.times.measured.as_secs_f64(),
                tallies,
                server_cpu_ns: after.server.cpu_ns - before.server.cpu_ns,
                client_cpu_ns: (self.way == Way::Nbd).then_some(after.own_cpu_ns - before.own_cpu_ns),
                counts: volumes.map(|(now, then)| now.since(then)).collect(),
                processors: ProcessorUse::between(&before.processors, &after.processors),
                write_floor_ns: if is_slowed { self.layout.slowest_write_ns()? } else { None },
            },
        ))
    }
}

/// Sleeps, but no longer than until the user requests the end.
fn sleep_until(moment: Instant) {
    const LOOK: Duration = Duration::from_millis(50);
    while !interrupt::is_asked() {
        match moment.checked_duration_since(Instant::now()) {
            Some(left) if !left.is_zero() => std::thread::sleep(left.min(LOOK)),
            _ => return,
        }
    }
}
