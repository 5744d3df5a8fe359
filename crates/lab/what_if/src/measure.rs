//! The measurement: all places are made, then the command runs in each of them in turns.
//!
//! ```text
//!   disk       a folder on the real disk, without the path
//!   path       memory over the path, without a delay: what FUSE and the loop device allow
//!   medium     slower than the path in reads, writes and flushes:   one run a round, the path's cost taken off its times
//!              faster in one of them:                               four runs a round, with `excess` x 1, 5/3, 7/3, 3 added, where
//!                                                                   `excess` is the least that the path can stand in for
//! ```
//!
//! Time for one = 1 / rate, as a line over what is added; at nothing added it is that of the medium. What a mirror or an export takes by
//! itself is not known beforehand: the path's whole cost is its excess.
//!
//! Invariant: figures of places that are compared are from the same rounds.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use catalogue::Model;
use catalogue::medium::{Direction, Pattern};
use catalogue::model::Access;
use nbd::{Export, NbdServer, NbdUri, ServerOptions};
use node::{Admission, Descriptors};
use workload::machine::FileSystem;
use workload::process::{self, Usage};
use workload::processors::ProcessorUse;
use workload::t4::Folder;

use crate::child;
use crate::delay::{Delays, PathCost, RequestCounts};
use crate::figures::{Achieved, OwnPatterns};
use crate::line::Line;
use crate::media::{self, PATH, Target, UnderTest};
use crate::mount::{self, Mount};
use crate::probe::{self, Probed, middle};
use crate::report::{Calibrated, How, Latency, Place, WhatIfReport};

/// What each request takes while the path is measured: longer than any path here, so that the timer is part of it.
const PROBE_DELAY: Duration = Duration::from_micros(500);
/// What is added in the four runs, as multiples of the excess.
const ADDED: [f64; 4] = [1.0, 5.0 / 3.0, 7.0 / 3.0, 3.0];
/// The least excess: below it the four runs would differ by less than the noise, nanoseconds.
const EXCESS_MIN: f64 = 20_000.0;
/// A residual above this is no line.
pub const RESIDUAL_MAX: f64 = 0.15;

/// What is to be measured.
#[derive(Clone, Debug)]
pub struct WhatIfOptions {
    /// The media.
    pub targets: Vec<Target>,
    /// Size of the file systems, bytes.
    pub bytes: u64,
    /// Where a folder for the run on the real disk is made.
    pub disk: Option<PathBuf>,
    /// Rounds; each medium runs once (or four times) in each.
    pub rounds: usize,
    /// Run through a shell in each place before everything else.
    pub setup: Option<String>,
    /// The command.
    pub command: Vec<String>,
    /// How to read its output.
    pub patterns: OwnPatterns,
    /// The longest time of a run.
    pub timeout: Duration,
    /// Extrapolate also what can be run, to show how far that is off.
    pub check: bool,
    /// Exports that have something on them may be overwritten.
    pub overwrite: bool,
}

/// One mounted medium.
struct Mounted {
    under_test: UnderTest,
    mount: Mount,
    cost: PathCost,
    calibrated: Calibrated,
    /// What the path takes longer than the medium, nanoseconds; 0 or less: it can be run.
    excess_ns: f64,
}

/// What a run used.
#[derive(Clone, Debug)]
pub struct Run {
    achieved: Achieved,
    cpu_s: f64,
    path_cpu_s: f64,
    seconds: f64,
    counts: Option<RequestCounts>,
}

/// The runs of one place with one delay, in the order of the rounds.
type Runs = Vec<Run>;

/// Measures.
///
/// # Errors
/// What cannot be run, with the reason; the user's request to end.
pub fn run(options: &WhatIfOptions) -> anyhow::Result<WhatIfReport> {
    mount::check()?;
    mount::clear_left_over();
    let disk = Folder::scratch(options.disk.as_deref(), "what-if")?;
    let disk_name = FileSystem::of(disk.path());
    let area = Area::new()?;
    let mut attached = vec![area.attach(media::path_alone(options.bytes)?, 0)?];
    for target in &options.targets {
        let under_test = target.open(options.bytes, options.overwrite)?;
        attached.push(area.attach(under_test, attached.len())?);
    }
    let cost = path_cost(&attached)?;
    let mounted = attached.into_iter().map(|attached| attached.calibrated(cost));
    let mounted = mounted.collect::<anyhow::Result<Vec<Mounted>>>()?;
    if let Some(setup) = &options.setup {
        let command = ["sh", "-c", setup].map(str::to_owned);
        child::run(&command, disk.path(), "disk", options.timeout)?;
        for place in &mounted {
            eprintln!("setting up {}", place.under_test.name);
            child::run(&command, &place.mount.folder, &place.under_test.name, options.timeout)?;
        }
    }
    let mut on_disk: Runs = Vec::new();
    let mut runs: Vec<Vec<Runs>> = mounted.iter().map(|place| vec![Vec::new(); place.delays(options).len()]).collect();
    for round in 1..=options.rounds {
        let turn = Turn { options, round };
        on_disk.push(turn.run(disk.path(), "disk", "", None)?);
        for (place, runs) in mounted.iter().zip(&mut runs) {
            for (delays, runs) in place.delays(options).into_iter().zip(runs) {
                runs.push(turn.run_on(place, delays)?);
            }
        }
    }
    let bare = Place::on_disk(&disk_name, &summed(&on_disk));
    let mut places = vec![bare];
    for (place, runs) in mounted.iter().zip(&runs) {
        place.add_to(&mut places, runs, options);
    }
    drop(mounted);
    area.end();
    Ok(WhatIfReport::new(options, places))
}

/// Where exports and mounts are.
struct Area {
    folder: PathBuf,
    server: NbdServer,
    socket: PathBuf,
}

impl Area {
    fn new() -> anyhow::Result<Area> {
        let folder = mount::make_folder()?;
        let admission = Admission::new(Descriptors::raise()?, 0);
        let server = NbdServer::start(ServerOptions::default(), &admission, |why| eprintln!("the server: {why}"))?;
        let socket = folder.join(mount::SOCKET);
        server.listen_unix(&socket)?;
        Ok(Area { folder, server, socket })
    }

    fn attach(&self, under_test: UnderTest, number: usize) -> anyhow::Result<Attached> {
        let name = format!("{number}-{}", under_test.tier.replace(' ', "-"));
        let device: Arc<dyn device::Device> = under_test.device.clone();
        self.server.add(Export::new(&name, device))?;
        let uri = NbdUri::unix(&self.socket, &name).to_string();
        let mount = Mount::attach(&self.folder, &name, &uri)?;
        Ok(Attached { under_test, mount })
    }

    fn end(self) {
        drop(self.server);
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// A medium with a block device, which has no file system yet.
struct Attached {
    under_test: UnderTest,
    mount: Mount,
}

/// What the path costs: the median of all block devices, since it is the same for all and other programs disturb each measurement.
fn path_cost(attached: &[Attached]) -> anyhow::Result<PathCost> {
    let fixed = PROBE_DELAY.as_nanos() as f64;
    let mut probes = Vec::new();
    eprintln!("measuring the path");
    for Attached { under_test, mount } in attached.iter().filter(|attached| attached.is_quick()) {
        under_test.device.set(Delays::Fixed(PROBE_DELAY));
        probes.push(probe::probe(&mount.block_device)?);
    }
    let cost = |of: fn(&Probed) -> f64| (middle(probes.iter().map(of).collect()) - fixed).max(0.0);
    Ok(PathCost {
        read_ns: cost(|probed| probed.read_ns),
        write_ns: cost(|probed| probed.write_ns),
        flush_ns: cost(|probed| probed.flush_ns),
    })
}

impl Attached {
    /// Whether the device below is memory, and takes no time beside the delay.
    fn is_quick(&self) -> bool {
        self.under_test.model.is_some() || self.under_test.name == PATH
    }

    /// Makes its file system, after single requests were timed with its delays.
    fn calibrated(self, cost: PathCost) -> anyhow::Result<Mounted> {
        let Attached { under_test, mut mount } = self;
        eprintln!("calibrating {}", under_test.name);
        let target = under_test.model.as_ref().map(times_of);
        let excess_ns = excess(&cost, target.as_ref());
        let calibrated = calibrate(&under_test, &mount, cost, target, excess_ns)?;
        under_test.device.set(Delays::None);
        mount.mount()?;
        Ok(Mounted { under_test, mount, cost, calibrated, excess_ns })
    }
}

/// What single requests of 4 KiB take on a medium.
fn times_of(model: &Model) -> Probed {
    let alone = |direction| {
        let (pattern, bytes) = (Pattern::Random, 4096);
        model.alone(&Access { direction, pattern, store: model.store(bytes), bytes, overlapped: false })
    };
    Probed { read_ns: alone(Direction::Read), write_ns: alone(Direction::Write), flush_ns: model.flush() }
}

/// By how much the path is slower than a medium, in the kind of request where it is most.
fn excess(cost: &PathCost, medium: Option<&Probed>) -> f64 {
    let medium = medium.copied().unwrap_or_default();
    let beyond = [cost.read_ns - medium.read_ns, cost.write_ns - medium.write_ns, cost.flush_ns - medium.flush_ns];
    beyond.into_iter().fold(0.0, f64::max)
}

/// Single requests with the delays of the first run, beside what they should take.
fn calibrate(
    under_test: &UnderTest,
    mount: &Mount,
    cost: PathCost,
    target: Option<Probed>,
    excess_ns: f64,
) -> anyhow::Result<Calibrated> {
    let added_ns = if excess_ns > 0.0 { excess_ns.max(EXCESS_MIN) } else { 0.0 };
    let Some(target) = target else { return Ok(Calibrated { path: cost, added_ns, wanted: None, achieved: None }) };
    under_test.device.set(Delays::Medium { cost, added_ns });
    let achieved = probe::probe(&mount.block_device)?;
    let more = |ns: f64| ns + added_ns;
    let wanted =
        Probed { read_ns: more(target.read_ns), write_ns: more(target.write_ns), flush_ns: more(target.flush_ns) };
    Ok(Calibrated { path: cost, added_ns, wanted: Some(wanted), achieved: Some(achieved) })
}

impl Mounted {
    fn is_path(&self) -> bool {
        self.under_test.name == PATH
    }

    fn is_run(&self) -> bool {
        !self.is_path() && self.excess_ns <= 0.0
    }

    /// What is added in the four runs, nanoseconds.
    fn added(&self) -> [f64; 4] {
        let largest = [self.cost.read_ns, self.cost.write_ns, self.cost.flush_ns].into_iter().fold(0.0, f64::max);
        // What can be run is extrapolated over the same distance as a medium that takes no time.
        let excess = if self.excess_ns > 0.0 { self.excess_ns } else { largest };
        ADDED.map(|times| times * excess.max(EXCESS_MIN))
    }

    /// The delays of its runs in a round.
    fn delays(&self, options: &WhatIfOptions) -> Vec<Delays> {
        let medium = |added_ns: f64| Delays::Medium { cost: self.cost, added_ns };
        if self.is_path() {
            return vec![Delays::None];
        }
        let mut delays = Vec::new();
        if self.is_run() {
            delays.push(medium(0.0));
        }
        if !self.is_run() || options.check {
            delays.extend(self.added().map(medium));
        }
        delays
    }

    /// The results of its runs.
    fn add_to(&self, places: &mut Vec<Place>, runs: &[Runs], options: &WhatIfOptions) {
        let bare = places[0].rate;
        let place = |how, runs: &Runs| {
            let UnderTest { name, tier, real, durability, .. } = &self.under_test;
            let mut place = Place::new(name, tier, how, &summed(runs), bare);
            place.model = self.under_test.model.as_ref().map(|model| model.name().to_owned());
            (place.real, place.durability) = (*real, durability.clone());
            place.calibration = Some(self.calibrated.clone());
            place
        };
        if self.is_path() {
            places.push(place(How::Path, &runs[0]));
            return;
        }
        let mut four = runs;
        if self.is_run() {
            places.push(place(How::Run, &runs[0]));
            four = &runs[1..];
        }
        if self.is_run() && !options.check {
            return;
        }
        let points: Vec<(f64, f64)> = self.added().into_iter().zip(four.iter().map(|runs| summed(runs).rate)).collect();
        let mut place = place(How::Extrapolated, &four[0]);
        place.set_extrapolated(&points, extrapolated(&points), bare);
        places.push(place);
    }
}

/// The rate with nothing added, and the residual; an error in words, if the points do not lie on a line.
///
/// # Errors
/// Why there is no figure.
pub fn extrapolated(points: &[(f64, f64)]) -> Result<(f64, f64), (String, f64)> {
    let times: Vec<(f64, f64)> = points.iter().map(|(added, rate)| (*added, 1.0 / rate.max(1e-12))).collect();
    let Some(line) = Line::through(&times) else { return Err(("too few runs".to_owned(), 1.0)) };
    let percent = line.residual * 100.0;
    if line.residual > RESIDUAL_MAX {
        let why =
            format!("the four runs lie up to {percent:.0} % beside a line, more than {:.0}", RESIDUAL_MAX * 100.0);
        return Err((why, line.residual));
    }
    if line.at_zero <= 0.0 {
        let why = "the line reaches no time at all: the runs differ too much".to_owned();
        return Err((why, line.residual));
    }
    Ok((1.0 / line.at_zero, line.residual))
}

/// One round.
struct Turn<'o> {
    options: &'o WhatIfOptions,
    round: usize,
}

impl Turn<'_> {
    fn run_on(&self, place: &Mounted, delays: Delays) -> anyhow::Result<Run> {
        let device = &place.under_test.device;
        device.set(delays);
        device.take_counts();
        let added = match delays {
            Delays::Medium { added_ns, .. } if added_ns > 0.0 => format!(", {:.0} us added", added_ns / 1e3),
            _ => String::new(),
        };
        let result = self.run(&place.mount.folder, &place.under_test.name, &added, place.mount.fuse_pid());
        // What the file system writes between runs is not measured.
        device.set(Delays::None);
        Ok(Run { counts: Some(device.take_counts()), ..result? })
    }

    fn run(&self, folder: &Path, name: &str, added: &str, fuse: Option<u32>) -> anyhow::Result<Run> {
        let path_cpu = || -> f64 {
            let fuse = fuse.and_then(|pid| Usage::of(pid).ok()).map_or(0.0, |usage| usage.cpu_us as f64 / 1e6);
            fuse + process::cpu_ns() / 1e9
        };
        let (busy, before) = (ProcessorUse::now(), path_cpu());
        let outcome = child::run(&self.options.command, folder, name, self.options.timeout)?;
        let (path_cpu_s, now) = (path_cpu() - before, ProcessorUse::now());
        let achieved = self.options.patterns.read(&outcome.output, outcome.elapsed);
        let achieved = achieved.with_context(|| format!("on {name}"))?;
        let seconds = outcome.elapsed.as_secs_f64();
        let busy: f64 = ProcessorUse::between(&busy, &now).iter().map(|one| one.busy() / 100.0 * seconds).sum();
        let (round, rounds) = (self.round, self.options.rounds);
        eprintln!("round {round} of {rounds}: {name}{added}: {:.4} {}", achieved.rate, achieved.unit);
        Ok(Run { achieved, cpu_s: (busy - path_cpu_s).max(0.0), path_cpu_s, seconds, counts: None })
    }
}

/// Runs of one place with one delay, as one: medians, latencies merged.
#[derive(Clone, Debug)]
pub struct Summed {
    /// The median rate.
    pub rate: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The smallest and the largest rate.
    pub range: (f64, f64),
    /// The median of the latencies that the command printed, microseconds.
    pub command_latency_us: Option<f64>,
    /// Processor time of the machine without the path, of one run, seconds.
    pub cpu_s: f64,
    /// Processor time of the path, of one run, seconds.
    pub path_cpu_s: f64,
    /// Of one run.
    pub seconds: f64,
    /// Latencies as the file system sees them.
    pub latency_us: Option<Latency>,
    /// Requests of all runs: reads, writes, flushes, for each unit of the rate.
    pub per_unit: Option<[f64; 3]>,
}

fn summed(runs: &[Run]) -> Summed {
    let of = |what: fn(&Run) -> f64| middle(runs.iter().map(what).collect());
    let rates = runs.iter().map(|run| run.achieved.rate);
    let range = (rates.clone().fold(f64::INFINITY, f64::min), rates.fold(0.0, f64::max));
    let latencies: Vec<f64> = runs.iter().filter_map(|run| run.achieved.latency_us).collect();
    let mut counts = RequestCounts::default();
    for run in runs {
        let Some(more) = &run.counts else { continue };
        counts.latency_ns.add(&more.latency_ns);
        counts.reads += more.reads;
        counts.writes += more.writes;
        counts.flushes += more.flushes;
    }
    let us = |quantile| counts.latency_ns.quantile(quantile) as f64 / 1e3;
    let has_any = counts.latency_ns.count() > 0;
    let done: f64 = runs.iter().map(|run| run.achieved.rate * run.seconds).sum();
    Summed {
        rate: of(|run| run.achieved.rate),
        unit: runs.first().map_or("", |run| run.achieved.unit),
        range,
        command_latency_us: (!latencies.is_empty()).then(|| middle(latencies)),
        cpu_s: of(|run| run.cpu_s),
        path_cpu_s: of(|run| run.path_cpu_s),
        seconds: of(|run| run.seconds),
        latency_us: has_any.then(|| Latency { p50: us(0.5), p99: us(0.99) }),
        per_unit: has_any.then(|| [counts.reads, counts.writes, counts.flushes].map(|count| count as f64 / done)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_off_a_line_and_refused_off_one() {
        // Each transaction takes 100 us of its own and two requests: 1 / (100 + 2 x added).
        let rate = |added: f64| 1e9 / (100e3 + 2.0 * added);
        let points: Vec<(f64, f64)> = ADDED.map(|times| (times * 60e3, rate(times * 60e3))).to_vec();
        let (found, residual) = extrapolated(&points).expect("a line");
        assert!((found - 10_000.0).abs() < 1.0 && residual < 1e-6, "{found}");
        let bent = [(1.0, 100.0), (2.0, 100.0), (3.0, 100.0), (4.0, 40.0)];
        assert!(extrapolated(&bent).expect_err("no line").0.contains("beside a line"));
        let steep = [(1.0, 1000.0), (2.0, 400.0), (3.0, 250.0), (4.0, 180.0)];
        assert!(extrapolated(&steep).is_err(), "less than no time");
        assert!(extrapolated(&[(1.0, 1.0)]).is_err());
    }

    #[test]
    fn the_excess_is_that_of_the_kind_of_request_in_which_the_path_is_slowest() {
        let cost = PathCost { read_ns: 100.0, write_ns: 120.0, flush_ns: 90.0 };
        let medium = Probed { read_ns: 150.0, write_ns: 130.0, flush_ns: 20.0 };
        assert_eq!(excess(&cost, Some(&medium)), 70.0);
        assert_eq!(excess(&cost, Some(&Probed { flush_ns: 95.0, ..medium })), 0.0);
        assert_eq!(excess(&cost, None), 120.0);
    }
}
