//! Kills the node under load of messages and SQL, again and again, and checks the stored data: this tests the promise
//! of an acknowledgement on the real process.
//!
//! ```text
//! round:  start --> ready --> look at the bank, `terrace verify` --> load for a random time --> SIGKILL
//!            \---------------- or killed while it recovers (one in five) -----------------------^  |
//!         next round <-- `terrace verify` on the files (one in four) <-- read the sockets empty <--+
//! end:    start --> load --> all finish --> look --> the queues are drained --> SIGTERM --> verify, compare
//! ```
//!
//! The harness contains the senders and the receivers, which survive the kills. A sender whose connection broke sends
//! the message in doubt again, as real senders do; one in four gives it up instead, so that some messages are never
//! acknowledged.
//!
//! Verified: every acknowledged message reached all four receivers, byte for byte as expected; first deliveries of a
//! service are in order at each receiver; a message never acknowledged reached all receivers or none; a second delivery
//! comes only of a resend, or of a first delivery at most `CRASH_WINDOW` before a kill; and the journal, read
//! afterwards, holds every acknowledged message, with repeated ones flagged as duplicates. `bank` describes the checks
//! of SQL; and `terrace verify` finds no damage, each time.
//!
//! The node has little cache and little journal, so that a kill often falls into a checkpoint, and recovery has both images
//! to restore and journal to redo.
//!
//! Random times come from a seed, so a failing run is repeated with the same plan; the interleaving of processes
//! depends on the machine and does not repeat exactly. SIGKILL loses no page cache: power failure is the device
//! simulator's subject.

mod bank;
mod report;
mod stored;
mod verify;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};

use bank::Bank;
pub use bank::{BankCompared, BankReport};
pub use report::{KillConfig, KillReport, KillRun};
pub use stored::Stored;
pub use verify::Verifies;

use interop::engine::Bodies;

use workload::histogram::Histogram;
use workload::interrupt::{self, Interrupted};
use workload::load::{Load, Plan};
use workload::node::Node;
use workload::t4::{self, expect};

/// A delivery that the receiver acknowledged this long before a kill may be repeated after it: the node writes outcomes
/// down in groups, with the next commit or 5 ms later, and a commit takes as long as the medium stalls.
const CRASH_WINDOW: Duration = Duration::from_secs(1);
/// Load before a kill, milliseconds.
const LOAD_MS: std::ops::Range<u64> = 50..500;
/// A node is killed in recovery in one round of so many.
const RECOVERY_ROUNDS: u32 = 5;
/// The files of a killed node are verified after one round of so many.
const FILES_ROUNDS: u32 = 4;
/// A running node is verified under load in one round of so many, else before the load begins: the data to verify
/// grows.
const LOADED_ROUNDS: u32 = 4;
/// Load beside a verification, at most: it writes faster than a verification reads, so that in the end there would be no end.
const BESIDE_VERIFY: Duration = Duration::from_millis(300);
/// Load after the last kill, milliseconds.
const LAST_MS: u64 = 500;
/// How long nothing may arrive before the harness stops waiting.
const PATIENCE: Duration = Duration::from_secs(30);
/// Prepared messages.
const BODIES: usize = 256;

/// The node's settings, without the verifier of the user: a checkpoint for each 8 MiB of journal, or of dirty pages.
const SETTINGS: &str = "cache = \"32MiB\"\n\
    [journal]\nsegment = \"4MiB\"\nlimit = \"32MiB\"\nkeep = \"8MiB\"\n\
    [pages]\ndevice = \"64MiB\"\nimages = \"8MiB\"\n\
    [sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n\
    [sql.users]\n";

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KillOptions {
    /// How many times to kill.
    pub rounds: usize,
    /// Inbound services, each with a sender.
    pub services: usize,
    /// SQL connections, each with a teller.
    pub connections: usize,
    /// Seed of the messages, the times of the kills and the senders' choices.
    pub seed: u64,
    /// Folder of the node's data, kept; it must be empty or not exist. Default: as for T4, removed if the run is clean.
    pub data: Option<PathBuf>,
}

impl Default for KillOptions {
    fn default() -> Self {
        KillOptions { rounds: 50, services: 16, connections: 6, seed: 1, data: None }
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
    let (account, bank) = (harness.load.account(), harness.bank.report());
    let report = KillReport::new(options, account, bank, &harness.figures, harness.folder.path());
    if !report.is_clean() {
        harness.folder.keep();
    }
    Ok(report)
}

/// The measurements during the run.
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
    verifies: Verifies,
    /// The durability of the node's journal, and whether its medium is real, as the node reports it.
    durability: String,
    real: bool,
}

struct Harness {
    rng: fastrand::Rng,
    load: Load,
    bank: Bank,
    folder: t4::Folder,
    program: PathBuf,
    services: usize,
    figures: Figures,
    first: bool,
}

impl Harness {
    fn new(options: &KillOptions) -> anyhow::Result<Harness> {
        let KillOptions { services, connections, seed, .. } = *options;
        let plan = Plan {
            services,
            messages: workload::messages::control_id::MAX_SEQUENCE,
            interfaces: expect::INTERFACES.len(),
            bodies: BODIES,
            seed,
            crash_window: CRASH_WINDOW,
        };
        let folder = t4::Folder::new(options.data.as_ref(), "kill")?;
        let load = Load::new(plan, expect::expected).context("opening the receivers' ports")?;
        t4::write_production(&folder.path().join("production"), services, &load.receivers()?)?;
        let verifier = sql::wire::Verifier::of("not asked for")?;
        let settings = folder.path().join("terrace.toml");
        std::fs::write(&settings, format!("{SETTINGS}{} = \"{verifier}\"\n", bank::USER))
            .context("writing settings")?;
        Ok(Harness {
            rng: fastrand::Rng::with_seed(seed),
            load,
            bank: Bank::new(connections, seed)?,
            folder,
            program: workload::node::program()?,
            services,
            figures: Figures::default(),
            first: true,
        })
    }

    fn rounds(&mut self, rounds: usize) -> anyhow::Result<()> {
        let style = ProgressStyle::with_template("{pos}/{len} kills [{bar:30}] {elapsed}, {msg}")?;
        let bar = ProgressBar::new(rounds as u64).with_style(style);
        for round in 0..rounds {
            interrupt::check()?;
            self.round().with_context(|| format!("round {round}"))?;
            let (messages, transactions) = (self.load.account().counts().acknowledged, self.bank.acknowledged());
            bar.set_message(format!("{messages} messages, {transactions} transactions"));
            bar.inc(1);
        }
        bar.finish_and_clear();
        self.finish().context("after the last round")
    }

    fn spawn(&self) -> anyhow::Result<Node> {
        let settings = self.folder.path().join("terrace.toml");
        Node::spawn(&self.program, self.folder.path(), Bodies::default(), Some(&settings))
    }

    /// Starts the node, loads it, kills it.
    fn round(&mut self) -> anyhow::Result<()> {
        let in_recovery = !self.first && self.rng.u32(0..RECOVERY_ROUNDS) == 0;
        let time = Duration::from_millis(self.rng.u64(LOAD_MS));
        let mut node = self.spawn()?;
        if in_recovery {
            // At any moment of what the last recovery took, which the seed cannot know: it gives the fraction.
            let end = Instant::now() + self.figures.last_recovery.mul_f64(self.rng.f64());
            while Instant::now() < end {
                self.load.step(Duration::from_millis(1))?;
            }
            self.figures.killed_in_recovery += 1;
        } else {
            let sql = self.until_ready(&mut node)?;
            let under_load = self.rng.u32(0..LOADED_ROUNDS) == 0;
            self.figures.verifies.running += 1;
            if !under_load {
                self.verify()?;
            }
            self.aim(&node, sql)?;
            if under_load {
                self.verify()?;
            }
            self.load_for(time, &mut node)?;
        }
        self.load.node_dies();
        self.bank.node_dies();
        node.kill()?;
        self.after_kill()?;
        if self.rng.u32(0..FILES_ROUNDS) == 0 {
            self.figures.verifies.files += 1;
            self.verify()?;
        }
        Ok(())
    }

    /// Runs `terrace verify` on the running node or on its files, while the load continues for a while.
    fn verify(&mut self) -> anyhow::Result<()> {
        let mut verify = verify::Verify::spawn(&self.program, self.folder.path())?;
        let loaded = Instant::now() + BESIDE_VERIFY;
        let problems = loop {
            if let Some(problems) = verify.poll()? {
                break problems;
            }
            interrupt::check()?;
            match Instant::now() < loaded {
                true => self.load.step(Duration::from_millis(1))?,
                false => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        self.figures.verifies.note(problems);
        Ok(())
    }

    /// Serves the sockets until the node is ready, and looks at what the bank finds there; where SQL is served.
    fn until_ready(&mut self, node: &mut Node) -> anyhow::Result<SocketAddr> {
        let sql = self.listening(node)?;
        if self.first {
            Bank::found(sql).context("making the bank's tables")?;
        } else {
            self.figures.last_recovery = node.age();
            self.figures.recovery_us.record(node.age().as_micros() as u64);
            self.bank.look(sql)?;
        }
        Ok(sql)
    }

    /// Points senders and tellers at the node.
    fn aim(&mut self, node: &Node, sql: SocketAddr) -> anyhow::Result<()> {
        self.load.aim(t4::service_addresses(node, self.services)?);
        self.bank.aim(sql);
        if self.first {
            self.load.go();
            self.first = false;
        }
        Ok(())
    }

    /// Serves the sockets until the node is ready; where its SQL service listens.
    fn listening(&mut self, node: &mut Node) -> anyhow::Result<SocketAddr> {
        loop {
            if node.is_ready()?
                && let Some(sql) = node.sql_address()
            {
                return Ok(sql);
            }
            interrupt::check()?;
            if node.age() > PATIENCE {
                bail!("the node is not ready {} s after its start:\n{}", PATIENCE.as_secs(), node.log_tail());
            }
            self.load.step(Duration::from_millis(1))?;
        }
    }

    /// Loads the node for `time` from its first acknowledgements on.
    fn load_for(&mut self, time: Duration, node: &mut Node) -> anyhow::Result<()> {
        let now = |harness: &Harness| (harness.load.account().counts().acknowledged, harness.bank.acknowledged());
        let before = now(self);
        let mut begun = Instant::now();
        let mut waited = begun;
        while begun.elapsed() < time {
            self.load.step(Duration::from_millis(1))?;
            self.bank.complaint()?;
            let (messages, transactions) = now(self);
            if messages == before.0 || transactions == before.1 {
                begun = Instant::now();
                if waited.elapsed() > PATIENCE {
                    let log = node.log_tail();
                    bail!("the node acknowledges no message or no transaction for {} s:\n{log}", PATIENCE.as_secs());
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
        self.bank.wait_idle()
    }

    /// Starts the node a last time and lets everything finish.
    fn finish(&mut self) -> anyhow::Result<()> {
        let mut node = self.spawn()?;
        let sql = self.until_ready(&mut node)?;
        self.aim(&node, sql)?;
        self.load_for(Duration::from_millis(LAST_MS), &mut node)?;
        self.load.hold();
        self.bank.node_dies();
        self.bank.wait_idle()?;
        self.bank.look(sql)?;
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
        let journal = node.status()?.journal;
        (self.figures.durability, self.figures.real) = (journal.durability, journal.real);
        self.figures.stopped = node.stop()?.success();
        self.figures.verifies.files += 1;
        self.verify()?;
        self.figures.stored = Stored::read(self.folder.path(), self.load.account())?;
        Ok(())
    }
}
