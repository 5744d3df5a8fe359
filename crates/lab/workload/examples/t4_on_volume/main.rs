//! Kills a node under the load of T4 while all that it stores lies on a volume of three copies, of which one after the other fails and
//! returns: `t4_on_volume TERRACE FOLDER ROUNDS SEED`. `scripts/test-t4-on-volume.sh` runs it.
//!
//! ```text
//! round:  what is away returns --> all in sync --> a fault --> left out --> it ends --> brought up to date --> all in sync
//!                                        \________________ under load; SIGKILL at a drawn place _________________/
//! end:    all in sync --> everything is delivered --> a scrub --> SIGTERM
//! ```
//!
//! The harness is that of `terrace bench kill` without SQL, and needs no other program than `terrace`, also one without SQL. Senders
//! and receivers survive the kills. Verified: every acknowledged message reached all four receivers, byte for byte as expected; first
//! deliveries of a service are in order at each receiver; a message that was never acknowledged reached all receivers or none; a second
//! delivery comes only of a resend, or of a first delivery at most `CRASH_WINDOW` before a kill.
//!
//! What the node has stored is not read: `terrace verify` cannot read a volume, and messages are kept for a moment only, so that a copy is
//! made anew within a minute.

mod copies;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use interop::engine::Bodies;
use workload::interrupt;
use workload::load::{Load, Plan};
use workload::messages::control_id;
use workload::node::Node;
use workload::t4::{self, expect};

use copies::{Copies, Fault};

/// Inbound services, each with a sender; prepared messages: those of `terrace bench kill`.
const SERVICES: usize = 16;
const BODIES: usize = 256;
/// A delivery that the receiver acknowledged this long before a kill may be repeated after it: its outcome is written with the next
/// commit, and a commit waits 5 s for a copy that does not answer (`docs/volumes.md`), then for the others to record that.
const CRASH_WINDOW: Duration = Duration::from_secs(8);
/// Load in each state of the copies, milliseconds.
const LOAD_MS: std::ops::Range<u64> = 50..1000;
/// How long nothing may be acknowledged or delivered, and a node may take to be ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long a copy may take to be left out, or to be in sync again: it is tried at least once a minute, then copied.
const COPY_PATIENCE: Duration = Duration::from_secs(180);
/// How often the states of copies are looked at.
const LOOK: Duration = Duration::from_millis(100);

fn main() -> anyhow::Result<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [program, folder, rounds, seed] = &arguments[..] else { bail!("t4_on_volume TERRACE FOLDER ROUNDS SEED") };
    ::node::Descriptors::raise()?;
    interrupt::heed()?;
    let mut harness = Harness::new(Path::new(program), PathBuf::from(folder), seed.parse()?)?;
    for round in 0..rounds.parse::<usize>()? {
        harness.round().with_context(|| format!("round {round}"))?;
    }
    harness.finish().context("after the last round")?;
    let is_clean = harness.report(rounds);
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Harness {
    rng: fastrand::Rng,
    program: PathBuf,
    data: PathBuf,
    load: Load,
    copies: Copies,
    is_first: bool,
    recovery_max: Duration,
    drained: bool,
    stopped: bool,
}

impl Harness {
    fn new(program: &Path, folder: PathBuf, seed: u64) -> anyhow::Result<Harness> {
        let folder = t4::Folder::new(Some(&folder), "t4-on-volume")?;
        let data = folder.path().to_owned();
        let (interfaces, messages) = (expect::INTERFACES.len(), control_id::MAX_SEQUENCE);
        let plan = Plan { services: SERVICES, messages, interfaces, bodies: BODIES, seed, crash_window: CRASH_WINDOW };
        let load = Load::new(plan, expect::expected).context("opening the receivers' ports")?;
        t4::write_production(&data.join("production"), SERVICES, &load.receivers()?)?;
        std::fs::write(data.join("terrace.toml"), copies::settings(&data))?;
        let copies = Copies::make(program, &data)?;
        let (rng, program) = (fastrand::Rng::with_seed(seed), program.to_owned());
        let (recovery_max, is_first, drained, stopped) = (Duration::ZERO, true, false, false);
        Ok(Harness { rng, program, data, load, copies, is_first, recovery_max, drained, stopped })
    }

    /// Starts a node and loads it.
    fn start(&mut self) -> anyhow::Result<Node> {
        let settings = self.data.join("terrace.toml");
        let mut node = Node::spawn(&self.program, &self.data, Bodies::default(), Some(&settings))?;
        while !node.is_ready()? {
            interrupt::check()?;
            if node.age() > PATIENCE {
                bail!("the node is not ready after {} s:\n{}", PATIENCE.as_secs(), node.log_tail());
            }
            self.load.step(Duration::from_millis(1))?;
        }
        self.load.aim(t4::service_addresses(&node, SERVICES)?);
        if self.is_first {
            self.load.go();
            self.is_first = false;
        } else {
            self.recovery_max = self.recovery_max.max(node.age());
        }
        Ok(node)
    }

    /// Starts a node, loads it while copies fail and return, kills it.
    fn round(&mut self) -> anyhow::Result<()> {
        let node = self.start()?;
        self.copies_fail()?;
        self.load.node_dies();
        node.kill()?;
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
        match self.copies.away() {
            None if self.rng.u32(0..3) == 0 => self.copies.harm(Fault::Lost),
            Some(Fault::Killed | Fault::Stalled) if self.rng.bool() => self.copies.heal(),
            _ => Ok(()),
        }
    }

    /// Loads the node while a copy fails, is left out, returns and is brought up to date; returns at any moment of that.
    fn copies_fail(&mut self) -> anyhow::Result<()> {
        self.all_in_sync()?;
        self.rated(0)?;
        let fault = [Fault::Killed, Fault::Stalled, Fault::Replaced][self.rng.usize(0..3)];
        self.copies.harm(fault)?;
        if fault != Fault::Replaced {
            if self.rng.u32(0..4) == 0 {
                // Nobody has noticed by then.
                return self.step_for_a_while();
            }
            self.until("left out", |harness, _| harness.copies.is_left_out())?;
            self.rated(1)?;
            if self.rng.u32(0..3) == 0 {
                return Ok(());
            }
            self.copies.heal()?;
        }
        if self.rng.u32(0..3) == 0 {
            return self.step_for_a_while();
        }
        self.all_in_sync()?;
        self.rated(0)
    }

    /// Ends what a copy suffers, and loads until all are in sync.
    fn all_in_sync(&mut self) -> anyhow::Result<()> {
        if self.copies.away().is_none() {
            return Ok(());
        }
        self.copies.heal()?;
        self.until("in sync", |harness, (messages, time)| {
            harness.copies.rates[2].add(messages, time);
            harness.copies.is_in_sync()
        })
    }

    /// Loads until copies are in a state; `is_over` is told the messages acknowledged since the last look, and the time.
    fn until(
        &mut self,
        what: &str,
        is_over: impl Fn(&mut Harness, (u64, Duration)) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let begun = Instant::now();
        loop {
            let loaded = self.step_for(LOOK)?;
            if is_over(self, loaded)? {
                return Ok(());
            }
            if begun.elapsed() > COPY_PATIENCE {
                bail!("a copy is not {what} after {} s: {:?}", COPY_PATIENCE.as_secs(), self.copies.states()?);
            }
        }
    }

    /// Loads for a while, for the rate of messages with so many copies; messages must be acknowledged.
    fn rated(&mut self, rate: usize) -> anyhow::Result<()> {
        let (time, begun) = (Duration::from_millis(self.rng.u64(LOAD_MS)), Instant::now());
        while self.step_for(Duration::from_millis(20))?.0 == 0 {
            if begun.elapsed() > PATIENCE {
                bail!("no message is acknowledged for {} s", PATIENCE.as_secs());
            }
        }
        let (messages, time) = self.step_for(time)?;
        self.copies.rates[rate].add(messages, time);
        Ok(())
    }

    fn step_for_a_while(&mut self) -> anyhow::Result<()> {
        let time = Duration::from_millis(self.rng.u64(LOAD_MS));
        self.step_for(time).map(drop)
    }

    /// Serves the sockets for a time; returns the messages acknowledged meanwhile, and how long it took.
    fn step_for(&mut self, time: Duration) -> anyhow::Result<(u64, Duration)> {
        let (before, begun) = (self.load.account().counts().acknowledged, Instant::now());
        while begun.elapsed() < time {
            interrupt::check()?;
            self.load.step(Duration::from_millis(1))?;
        }
        Ok((self.load.account().counts().acknowledged - before, begun.elapsed()))
    }

    /// Starts the node a last time and lets everything finish.
    fn finish(&mut self) -> anyhow::Result<()> {
        let node = self.start()?;
        self.all_in_sync()?;
        self.rated(0)?;
        self.load.hold();
        let mut seen = self.load.account().counts();
        let mut progress = Instant::now();
        while !(self.load.is_over() && self.load.account().partial() == 0) && progress.elapsed() < PATIENCE {
            self.step_for(Duration::from_millis(20))?;
            let counts = self.load.account().counts();
            if (counts.acknowledged, counts.delivered) != (seen.acknowledged, seen.delivered) {
                (seen, progress) = (counts, Instant::now());
            }
        }
        self.drained = self.load.is_over();
        self.copies.scrub()?;
        self.stopped = node.stop()?.success();
        Ok(())
    }

    /// Prints the results; returns whether every promise was kept.
    fn report(&self, rounds: &str) -> bool {
        let (account, counts) = (self.load.account(), self.load.account().counts());
        let faults = [
            ("lost", account.lost()),
            ("out of order", counts.out_of_order),
            ("wrong content", counts.wrong),
            ("unacknowledged, delivered in part", account.partial()),
            ("duplicates without excuse", counts.duplicated - counts.excused),
            ("foreign, bad frames and acknowledgements", counts.foreign + counts.framing + counts.bad_acknowledgements),
        ];
        let line = |what: &str, figure: String| println!("  {what:<48}{figure:>16}");
        line("kills of the node", rounds.to_owned());
        line("messages acknowledged, delivered", format!("{}, {}", counts.acknowledged, counts.delivered));
        faults.iter().for_each(|(what, count)| line(&format!("  {what} (must be 0)"), count.to_string()));
        line("duplicates of crash windows and resends", counts.excused.to_string());
        line("oldest delivery repeated after a kill", format!("{} ms", counts.oldest_excused_ms));
        line("given up, sent again by their senders", format!("{}, {}", counts.given_up, counts.resends));
        line("acknowledgement, longest", format!("{} ms", self.load.latency().quantile(1.0) / 1_000_000));
        line("ready after a kill, longest", format!("{} ms", self.recovery_max.as_millis()));
        self.copies.figures().into_iter().for_each(|(what, figure)| line(what, figure));
        account.examples().iter().for_each(|example| println!("  fault: {example}"));
        let is_over = self.drained && self.stopped && counts.acknowledged > 0;
        if !is_over {
            println!("  fault: drained {}, stopped {}", self.drained, self.stopped);
        }
        is_over && faults.iter().all(|(_, count)| *count == 0)
    }
}
