//! The volume below a node under test, and the faults of its copies while the node is loaded and killed.
//!
//! ```text
//!   node: journal, images, pages --> volume of three copies --> 0, 1   folders
//!                                                           --> 2      a place that another process exports (`place.log`)
//! ```
//!
//! | fault | how | how it ends |
//! |---|---|---|
//! | killed | the process of the place, with SIGKILL | it starts again |
//! | stalled | the same process, with SIGSTOP | SIGCONT |
//! | lost | the folder of a copy, while no node runs | `terrace volume replace` |
//! | replaced | nothing: a copy in sync is made anew | by itself |
//!
//! Invariant: one copy at a time is away, so that two of three are in sync.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Settings of a node in the folder `data`: what it stores lies on its volume, whose copies lie in folders there.
pub(crate) fn settings(data: &Path) -> String {
    let tier = |name: &str| format!("[tiers.{name}]\nkind = \"file\"\npath = {:?}\n", data.join(name));
    let (a, b) = (tier("a"), tier("b"));
    // As `terrace bench kill`: a checkpoint for each 8 MiB of journal, or of dirty pages, so that a kill often falls into one.
    format!(
        "cache = \"32MiB\"\n{a}{b}[tiers.mirror]\nkind = \"volume\"\nvolume = \"{NODE}\"\n\
         [placement]\njournal = \"mirror\"\nwrite_image_journal = \"mirror\"\ndata = \"mirror\"\n\
         [messages]\nretention = \"64MiB\"\n\
         [journal]\nsegment = \"4MiB\"\nlimit = \"32MiB\"\nkeep = \"8MiB\"\n[pages]\ndevice = \"64MiB\"\nimages = \"8MiB\"\n"
    )
}

const NODE: &str = "node";
const PLACE: &str = "place";

/// The copy on the place.
const FAR: usize = 2;

/// Size of the volume: the journal (32 MiB and what it keeps), the messages that are kept, several times that of pages.
const SIZE: &str = "1GiB";

/// Size of the place: `docs/volumes.md` has the rule.
const PLACE_SIZE: &str = "1200MiB";

/// How long a process may take to serve.
const PATIENCE: Duration = Duration::from_secs(60);

/// What happens to a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Killed,
    Stalled,
    Lost,
    Replaced,
}

/// How the copies fared.
#[derive(Clone, Debug, Default)]
pub(crate) struct CopiesReport {
    killed: u64,
    stalled: u64,
    lost: u64,
    replaced: u64,
    returned: u64,
    /// From a fault until the copy was left out, milliseconds: of processes that were killed, and of those that were stopped.
    left_out_ms_max: u64,
    stalled_ms_max: u64,
    /// From the end of a fault until the copy was in sync.
    in_sync_ms: Vec<u64>,
}

/// Messages, and the time in which they were acknowledged.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rate(u64, Duration);

impl Rate {
    pub(crate) fn add(&mut self, messages: u64, time: Duration) {
        self.0 += messages;
        self.1 += time;
    }

    fn per_second(self) -> f64 {
        if self.1.is_zero() { 0.0 } else { self.0 as f64 / self.1.as_secs_f64() }
    }
}

/// See the module's text.
pub(crate) struct Copies {
    program: PathBuf,
    data: PathBuf,
    place: Option<Child>,
    /// The fault whose copy is away.
    away: Option<Fault>,
    /// Since when: the fault, and later its end.
    since: Instant,
    report: CopiesReport,
    /// While all copies were in sync, while one was left out, while one was brought up to date.
    pub(crate) rates: [Rate; 3],
}

impl Copies {
    /// Makes the volume for a node in the folder `data`, whose settings are there.
    pub(crate) fn make(program: &Path, data: &Path) -> anyhow::Result<Copies> {
        let mut copies = Copies {
            program: program.to_owned(),
            data: data.to_owned(),
            place: None,
            away: None,
            since: Instant::now(),
            report: CopiesReport::default(),
            rates: Default::default(),
        };
        fs::create_dir_all(copies.other())?;
        copies.volume(&["create", PLACE, "--size", PLACE_SIZE, "--place"], &copies.other())?;
        copies.start_place()?;
        let address = format!("nbd+unix:///{PLACE}?socket={}", copies.socket().display());
        let create = ["create", NODE, "--size", SIZE, "--copy", "a", "--copy", "b", "--copy", &address];
        copies.volume(&create, data)?;
        Ok(copies)
    }

    fn other(&self) -> PathBuf {
        self.data.join("other")
    }

    fn socket(&self) -> PathBuf {
        self.other().join("nbd.sock")
    }

    /// `terrace volume`, of a data directory; both have the settings of the node.
    fn command(&self, args: &[&str], data: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("volume").args(args).arg("--data").arg(data).arg("--config").arg(self.data.join("terrace.toml"));
        command.current_dir(&self.data).stdin(Stdio::null());
        command
    }

    fn volume(&self, args: &[&str], data: &Path) -> anyhow::Result<()> {
        let output = self.command(args, data).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "terrace volume {}: {said}", args.join(" "));
        Ok(())
    }

    /// Starts the process of the place, and waits until it serves.
    fn start_place(&mut self) -> anyhow::Result<()> {
        // That of the process before is not its own.
        let _ = fs::remove_file(self.socket());
        let log = File::options().create(true).append(true).open(self.data.join("place.log"))?;
        let mut command = self.command(&["export", PLACE], &self.other());
        command.stdout(log.try_clone()?).stderr(log);
        self.place = Some(command.spawn().context("starting the process of a copy")?);
        let begun = Instant::now();
        while !self.socket().exists() {
            ensure!(begun.elapsed() < PATIENCE, "the process of a copy does not serve: see place.log");
            thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let place = self.place.as_ref().context("the process of a copy runs")?;
        Ok(kill_process(Pid::from_child(place), signal)?)
    }

    fn end_place(&mut self) {
        if let Some(mut place) = self.place.take() {
            // Both fail only if it has ended already; one that is stopped dies too.
            let _ = place.kill();
            let _ = place.wait();
        }
    }

    /// The fault whose copy is away, or is being brought up to date.
    pub(crate) fn away(&self) -> Option<Fault> {
        self.away
    }

    /// A copy fails. `Lost` needs a node that does not run, the others one that does.
    pub(crate) fn harm(&mut self, fault: Fault) -> anyhow::Result<()> {
        ensure!(self.away.is_none(), "one copy at a time");
        self.since = Instant::now();
        match fault {
            Fault::Killed => {
                self.end_place();
                self.report.killed += 1;
            }
            Fault::Stalled => {
                self.signal(Signal::STOP)?;
                self.report.stalled += 1;
            }
            Fault::Lost => {
                fs::remove_dir_all(self.folder_of(0)?)?;
                self.report.lost += 1;
            }
            Fault::Replaced => {
                self.volume(&["replace", NODE, "1"], &self.data)?;
                self.report.replaced += 1;
            }
        }
        self.away = Some(fault);
        Ok(())
    }

    /// The fault ends. After `Lost` the node runs.
    pub(crate) fn heal(&mut self) -> anyhow::Result<()> {
        match self.away {
            Some(Fault::Killed) if self.place.is_none() => self.start_place()?,
            Some(Fault::Stalled) => self.signal(Signal::CONT)?,
            Some(Fault::Lost) if self.states()?[0] != "syncing" => self.volume(&["replace", NODE, "0"], &self.data)?,
            _ => {}
        }
        self.since = Instant::now();
        Ok(())
    }

    /// Whether the copy that has failed is left out; noted once it is.
    pub(crate) fn is_left_out(&mut self) -> anyhow::Result<bool> {
        let is_out = self.states()?[FAR] == "out";
        if is_out {
            let longest = match self.away {
                Some(Fault::Stalled) => &mut self.report.stalled_ms_max,
                _ => &mut self.report.left_out_ms_max,
            };
            *longest = (*longest).max(self.since.elapsed().as_millis() as u64);
        }
        Ok(is_out)
    }

    /// Whether all copies are in sync; noted once they are.
    pub(crate) fn is_in_sync(&mut self) -> anyhow::Result<bool> {
        let all = self.states()?.iter().all(|state| state == "in-sync");
        if all && self.away.take().is_some() {
            self.report.returned += 1;
            self.report.in_sync_ms.push(self.since.elapsed().as_millis() as u64);
        }
        Ok(all)
    }

    /// The states of the copies, as the running node tells them.
    pub(crate) fn states(&self) -> anyhow::Result<Vec<String>> {
        let copies = self.status()?["copies"].as_array().cloned().unwrap_or_default();
        let states: Vec<String> = copies.iter().filter_map(|copy| Some(copy["state"].as_str()?.to_owned())).collect();
        ensure!(states.len() == 3, "a volume of three copies, and not {states:?}");
        Ok(states)
    }

    fn status(&self) -> anyhow::Result<Value> {
        let output = self.command(&["status", NODE, "--json"], &self.data).output()?;
        let mut all: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("terrace volume status: {}", String::from_utf8_lossy(&output.stderr)))?;
        Ok(all[0].take())
    }

    /// Where a copy lies: its description has it, also while no node runs.
    fn folder_of(&self, copy: usize) -> anyhow::Result<PathBuf> {
        let text = fs::read_to_string(self.data.join("volumes").join(format!("{NODE}.json")))?;
        let description: Value = serde_json::from_str(&text)?;
        let folder = description["copies"][copy]["place"]["folder"].as_str();
        Ok(PathBuf::from(folder.with_context(|| format!("copy {copy} has no folder"))?))
    }

    /// Reads every block of all copies; the node runs.
    pub(crate) fn scrub(&self) -> anyhow::Result<()> {
        let output = self.command(&["scrub", NODE, "--json"], &self.data).output()?;
        let found: Value = serde_json::from_slice(&output.stdout)
            .with_context(|| format!("terrace volume scrub: {}", String::from_utf8_lossy(&output.stderr)))?;
        let count = |key: &str| found[key].as_u64();
        if (count("damaged"), count("repaired")) != (Some(0), Some(0)) {
            bail!("a scrub of the volume found {found}");
        }
        Ok(())
    }

    /// For people.
    pub(crate) fn figures(&self) -> Vec<(&'static str, String)> {
        let CopiesReport { killed, stalled, lost, replaced, returned, left_out_ms_max, stalled_ms_max, .. } =
            self.report;
        let mut in_sync_ms = self.report.in_sync_ms.clone();
        in_sync_ms.sort_unstable();
        let median = in_sync_ms.get(in_sync_ms.len() / 2).copied().unwrap_or(0);
        let longest = in_sync_ms.last().copied().unwrap_or(0);
        let [three, two, syncing] = self.rates.map(|rate| format!("{:.0}", rate.per_second()));
        vec![
            ("a copy's process killed, stopped", format!("{killed}, {stalled}")),
            ("a copy lost, made anew without reason", format!("{lost}, {replaced}")),
            ("a copy in sync again", returned.to_string()),
            ("  left out after a kill, longest", format!("{left_out_ms_max} ms")),
            ("  left out after a stop, longest", format!("{stalled_ms_max} ms")),
            ("  in sync again, median, longest", format!("{median} ms, {longest} ms")),
            ("messages a second, three copies in sync", three),
            ("  two", two),
            ("  two, and one brought up to date", syncing),
        ]
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.end_place();
    }
}
