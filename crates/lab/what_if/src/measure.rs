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

use anyhow::Context;
use nbd::{Export, NbdServer, NbdUri, ServerOptions};
use node::{Admission, Descriptors};
use workload::machine::FileSystem;
use workload::process::{self, Usage};
use workload::processors::ProcessorUse;
use workload::t4::Folder;

use crate::calibrate::{Calibrated, EXCESS_MIN, calibrate, path_cost};
use crate::child;
use crate::delay::{Delays, PathCost};
use crate::line::Line;
use crate::media::{self, PATH, UnderTest};
use crate::mount::{self, Mount};
use crate::options::WhatIfOptions;
use crate::report::{How, Place, ReadOff, WhatIfReport};
use crate::runs::{Run, Runs, summed};

/// What is added in the four runs, as multiples of the excess.
const ADDED: [f64; 4] = [1.0, 5.0 / 3.0, 7.0 / 3.0, 3.0];
/// A residual above this is no line.
pub const RESIDUAL_MAX: f64 = 0.15;

/// One mounted medium.
struct Mounted {
    under_test: UnderTest,
    mount: Mount,
    calibrated: Calibrated,
}

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
    let quick = attached.iter().filter(|attached| attached.is_quick());
    let cost = path_cost(quick.map(|attached| (&*attached.under_test.device, &*attached.mount.block_device)))?;
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
}

impl Drop for Area {
    /// After its mounts, which come later and so are dropped before. What is still mounted stays, and the next run removes it.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.socket);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

/// A medium with a block device, which has no file system yet.
struct Attached {
    under_test: UnderTest,
    mount: Mount,
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
        let UnderTest { device, model, .. } = &under_test;
        let calibrated = calibrate(device, model.as_ref(), &mount.block_device, cost)?;
        under_test.device.set(Delays::None);
        mount.mount()?;
        Ok(Mounted { under_test, mount, calibrated })
    }
}

impl Mounted {
    fn is_path(&self) -> bool {
        self.under_test.name == PATH
    }

    fn is_run(&self) -> bool {
        !self.is_path() && self.calibrated.excess_ns <= 0.0
    }

    /// What is added in the four runs, nanoseconds.
    fn added(&self) -> [f64; 4] {
        let Calibrated { path, excess_ns, .. } = &self.calibrated;
        let largest = [path.read_ns, path.write_ns, path.flush_ns].into_iter().fold(0.0, f64::max);
        // What can be run is extrapolated over the same distance as a medium that takes no time.
        let excess = if *excess_ns > 0.0 { *excess_ns } else { largest };
        ADDED.map(|times| times * excess.max(EXCESS_MIN))
    }

    /// The delays of its runs in a round.
    fn delays(&self, options: &WhatIfOptions) -> Vec<Delays> {
        let medium = |added_ns: f64| Delays::Medium { cost: self.calibrated.path, added_ns };
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

/// The rate with nothing added; an error in words and the residual, if the points do not lie on a line. Where more time does not slow the
/// command, it is not bound by its storage, and less would not speed it up: its rate is then the mean of all.
///
/// # Errors
/// Why there is no figure.
pub fn extrapolated(points: &[(f64, f64)]) -> Result<ReadOff, (String, f64)> {
    let times: Vec<(f64, f64)> = points.iter().map(|(added, rate)| (*added, 1.0 / rate.max(1e-12))).collect();
    let Some(line) = Line::through(&times) else { return Err(("too few runs".to_owned(), 1.0)) };
    let is_flat = line.slope <= 0.0;
    let line = if is_flat { Line::flat(&times) } else { line };
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
    Ok(ReadOff { rate: 1.0 / line.at_zero, residual: line.residual, is_flat })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read_off_a_line_and_refused_off_one() {
        // Each transaction takes 100 us of its own and two requests: 1 / (100 + 2 x added).
        let rate = |added: f64| 1e9 / (100e3 + 2.0 * added);
        let points: Vec<(f64, f64)> = ADDED.map(|times| (times * 60e3, rate(times * 60e3))).to_vec();
        let found = extrapolated(&points).expect("a line");
        assert!((found.rate - 10_000.0).abs() < 1.0 && found.residual < 1e-6 && !found.is_flat, "{found:?}");
        let bound_elsewhere = [(1.0, 99.0), (2.0, 100.0), (3.0, 101.0), (4.0, 102.0)];
        let found = extrapolated(&bound_elsewhere).expect("it is not bound by storage");
        assert!((found.rate - 100.5).abs() < 0.1 && found.residual < 0.02 && found.is_flat, "{found:?}");
        let bent = [(1.0, 100.0), (2.0, 100.0), (3.0, 100.0), (4.0, 40.0)];
        assert!(extrapolated(&bent).expect_err("no line").0.contains("beside a line"));
        let steep = [(1.0, 1000.0), (2.0, 400.0), (3.0, 250.0), (4.0, 180.0)];
        assert!(extrapolated(&steep).is_err(), "less than no time");
        assert!(extrapolated(&[(1.0, 1.0)]).is_err());
    }
}
