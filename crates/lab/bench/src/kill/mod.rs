//! Kills the node under load, again and again, and checks what is left: the promise of an acknowledgement, tested on the real
//! process.
//!
//! ```text
//! round:  start --> ready --> load for a random time --> SIGKILL --> read what is still in the sockets --> next round
//!            \---------------- or killed while it recovers (one in five) -----^
//! end:    start --> load --> senders finish --> wait until the queues are drained --> verify --> SIGTERM
//! ```
//!
//! The harness is at once the senders and the receivers, which live through the kills. A sender whose connection broke sends
//! the message in doubt again, as real senders do; one in four gives it up instead, so that messages stay that were never
//! acknowledged.
//!
//! Verified: every acknowledged message reached all four receivers, byte for byte as expected; first deliveries of a service
//! are in order at each receiver; a message never acknowledged reached all receivers or none; a second delivery comes only
//! of a resend, or of a first delivery at most `CRASH_WINDOW` before a kill; and the journal, read afterwards, holds every
//! acknowledged message, with those it was sent again flagged as duplicates.
//!
//! Random times come from a seed, so a failing run is repeated with the same plan; the interleaving of processes is the
//! machine's and does not repeat exactly. SIGKILL loses no page cache: power failure is the device simulator's subject.

mod report;
mod stored;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

pub use report::KillReport;
pub use stored::Stored;

use interop::engine::Bodies;

use crate::histogram::Histogram;
use crate::interrupt::{self, Interrupted};
use crate::load::{Load, Plan};
use crate::node::Node;
use crate::t4::{self, expect};

/// A delivery that the receiver acknowledged this long before a kill may be repeated after it: the node writes fates
/// down in groups, with the next commit or 5 ms later, and a commit takes as long as the medium stalls.
const CRASH_WINDOW: Duration = Duration::from_secs(1);
/// Load before a kill, milliseconds.
const LOAD_MS: std::ops::Range<u64> = 50..1_000;
/// A node is killed in recovery in one round of so many.
const RECOVERY_ROUNDS: u32 = 5;
/// Load after the last kill, milliseconds.
const LAST_MS: u64 = 500;
/// How long nothing may arrive before the harness stops waiting.
const PATIENCE: Duration = Duration::from_secs(30);
/// Prepared messages.
const BODIES: usize = 256;

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillOptions {
    /// How many times to kill.
    pub rounds: usize,
    /// Inbound services, each with a sender.
    pub services: usize,
    /// Seed of the messages, the times of the kills and the senders' choices.
    pub seed: u64,
    /// Folder of the node's data, kept; it must be empty or not exist. Default: as for T4, removed if the run is clean.
    pub data: Option<PathBuf>,
}

impl Default for KillOptions {
    fn default() -> Self {
        KillOptions { rounds: 50, services: 16, seed: 1, data: None }
    }
}

/// Runs the harness.
///
/// # Errors
/// If the node cannot be started, or does not become ready after a kill. Violations of the promise are in the report.
pub fn run(options: &KillOptions) -> anyhow::Result<KillReport> {
    let mut harness = Harness::new(options)?;
    if let Err(error) = harness.rounds(options.rounds) {
        if error.is::<Interrupted>() {
            return Err(error);
        }
        harness.folder.keep();
        let data = harness.folder.path().display();
        return Err(error.context(format!("seed {}; the node's data is in {data}", options.seed)));
    }
    let report = KillReport::new(options, harness.load.account(), &harness.figures, harness.folder.path());
    if !report.is_clean() {
        harness.folder.keep();
    }
    Ok(report)
}

/// What is measured on the way.
#[derive(Debug, Default)]
struct Figures {
    /// From the start of the process until it is ready, after a kill; microseconds.
    recovery_us: Histogram,
    last_recovery: Duration,
    ack_us_max: u64,
    killed_in_recovery: usize,
    /// Whether all was acknowledged and delivered in the end.
    drained: bool,
    /// Whether the last node stopped on SIGTERM with success.
    stopped: bool,
    stored: Stored,
}

struct Harness {
    rng: fastrand::Rng,
    load: Load,
    folder: t4::Folder,
    program: PathBuf,
    services: usize,
    figures: Figures,
    first: bool,
}

impl Harness {
    fn new(options: &KillOptions) -> anyhow::Result<Harness> {
        let KillOptions { services, seed, .. } = *options;
        let plan = Plan {
            services,
            messages: crate::messages::control_id::MAX_SEQUENCE,
            interfaces: expect::INTERFACES.len(),
            bodies: BODIES,
            seed,
            crash_window: CRASH_WINDOW,
        };
        let folder = t4::Folder::new(options.data.as_ref(), "kill")?;
        let load = Load::new(plan, expect::expected).context("opening the receivers' ports")?;
        t4::write_production(&folder.path().join("production"), services, &load.receivers()?)?;
        Ok(Harness {
            rng: fastrand::Rng::with_seed(seed),
            load,
            folder,
            program: std::env::current_exe().context("finding this program")?,
            services,
            figures: Figures::default(),
            first: true,
        })
    }

    fn rounds(&mut self, rounds: usize) -> anyhow::Result<()> {
        for round in 0..rounds {
            interrupt::check()?;
            self.round().with_context(|| format!("round {round}"))?;
        }
        self.finish().context("after the last round")
    }

    /// Starts the node, loads it, kills it.
    fn round(&mut self) -> anyhow::Result<()> {
        let in_recovery = !self.first && self.rng.u32(0..RECOVERY_ROUNDS) == 0;
        let mut node = Node::spawn(&self.program, self.folder.path(), Bodies::default(), None)?;
        if in_recovery {
            // At any moment of what the last recovery took, which the seed cannot know: it gives the fraction.
            let end = Instant::now() + self.figures.last_recovery.mul_f64(self.rng.f64());
            while Instant::now() < end {
                self.load.step(Duration::from_millis(1))?;
            }
            self.figures.killed_in_recovery += 1;
        } else {
            self.until_ready(&mut node)?;
            let time = Duration::from_millis(self.rng.u64(LOAD_MS));
            self.load_for(time, &mut node)?;
        }
        self.load.node_dies();
        node.kill()?;
        self.after_kill()
    }

    /// Serves the sockets until the node is ready, then points the senders at it.
    fn until_ready(&mut self, node: &mut Node) -> anyhow::Result<()> {
        while !node.is_ready()? {
            interrupt::check()?;
            if node.age() > PATIENCE {
                bail!("the node is not ready {} s after its start:\n{}", PATIENCE.as_secs(), node.log_tail());
            }
            self.load.step(Duration::from_millis(1))?;
        }
        if !self.first {
            self.figures.last_recovery = node.age();
            self.figures.recovery_us.record(node.age().as_micros() as u64);
        }
        self.load.aim(t4::service_addresses(node, self.services)?);
        if self.first {
            self.load.go();
            self.first = false;
        }
        Ok(())
    }

    /// Loads the node for `time` from its first acknowledgement on.
    fn load_for(&mut self, time: Duration, node: &mut Node) -> anyhow::Result<()> {
        let before = self.load.account().counts().acknowledged;
        let mut begun = Instant::now();
        let mut waited = begun;
        while begun.elapsed() < time {
            self.load.step(Duration::from_millis(1))?;
            if self.load.account().counts().acknowledged == before {
                begun = Instant::now();
                if waited.elapsed() > PATIENCE {
                    bail!("the node acknowledges nothing for {} s:\n{}", PATIENCE.as_secs(), node.log_tail());
                }
            } else {
                waited = begun;
            }
        }
        Ok(())
    }

    /// Reads what the dead node had still sent; from then on it is silent.
    fn after_kill(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        while self.load.connections() > 0 {
            if begun.elapsed() > PATIENCE {
                bail!("{} connections of a killed node are still open", self.load.connections());
            }
            self.load.step(Duration::from_millis(1))?;
        }
        self.load.node_is_dead();
        let rng = &mut self.rng;
        self.load.give_up(|| rng.u32(0..4) == 0);
        Ok(())
    }

    /// Starts the node a last time and lets everything finish.
    fn finish(&mut self) -> anyhow::Result<()> {
        let mut node = Node::spawn(&self.program, self.folder.path(), Bodies::default(), None)?;
        self.until_ready(&mut node)?;
        self.load_for(Duration::from_millis(LAST_MS), &mut node)?;
        self.load.hold();
        let mut seen = self.load.account().counts();
        let mut progress = Instant::now();
        while !(self.load.is_over() && self.load.account().partial() == 0) && progress.elapsed() < PATIENCE {
            interrupt::check()?;
            self.load.step(Duration::from_millis(20))?;
            let counts = self.load.account().counts();
            if (counts.acknowledged, counts.delivered) != (seen.acknowledged, seen.delivered) {
                (seen, progress) = (counts, Instant::now());
            }
        }
        self.figures.drained = self.load.is_over();
        self.figures.ack_us_max = self.load.latency().quantile(1.0) / 1000;
        self.figures.stopped = node.stop()?.success();
        self.figures.stored = Stored::read(self.folder.path(), self.load.account())?;
        Ok(())
    }
}
