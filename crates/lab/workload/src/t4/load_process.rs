//! The load of the workload as a process of its own, so that its processor time is not the node's, and its output.
//!
//! ```text
//! parent                                   load process (terrace t4-load SETTINGS)
//!    <-- {"event":"listening","receivers":["127.0.0.1:40001", ...]}
//!    {"command":"aim","services":["127.0.0.1:40101", ...]} -->
//!    <-- {"event":"connected"}
//!    {"command":"go"} -->
//!    <-- {"event":"progress","acknowledged":1200,"delivered":4700}     five times a second
//!    <-- {"event":"result", ...}
//!    (end of input) -->                    it goes on receiving until then
//! ```
//!
//! One JSON object a line, commands on its standard input, events on its standard output.
//!
//! Not done here: starting the node, measuring it (the parent does both).

use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use super::expect::{INTERFACES, expected};
use crate::interrupt::{self, Interrupted};
use crate::load::{Counts, Load, Plan};
use crate::process::Usage;

/// How often progress is reported.
const TELL: Duration = Duration::from_millis(200);
/// How long nothing may happen before the run is given up.
const PATIENCE: Duration = Duration::from_secs(30);

/// The task of the load process; the one argument of its command, as JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadOptions {
    /// Sending systems, 1 to 1,000.
    pub services: usize,
    /// Messages each sends.
    pub messages: usize,
    /// Prepared messages.
    pub bodies: usize,
    /// Seed of the messages.
    pub seed: u64,
    /// Stop sending after so many seconds; 0 = only when all is sent.
    pub seconds: u64,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase")]
enum Order {
    Aim { services: Vec<SocketAddr> },
    Go,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "lowercase")]
enum Event {
    Listening { receivers: Vec<SocketAddr> },
    Connected,
    Progress { acknowledged: u64, delivered: u64 },
    Result(Box<Outcome>),
}

/// The result of a load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The account.
    pub counts: Counts,
    /// Deliveries that never came.
    pub lost: u64,
    /// Whether everything sent was acknowledged and delivered before the load gave up.
    pub complete: bool,
    /// From the first byte sent until the last delivery was acknowledged.
    pub seconds: f64,
    /// Time from send to acknowledgement, microseconds.
    pub ack_us: Quantiles,
    /// Processor time of the load process, microseconds.
    pub cpu_us: u64,
    /// Mean length of the prepared messages, bytes.
    pub mean_bytes: usize,
    /// The first faults, for people.
    pub examples: Vec<String>,
}

/// Three quantiles of a latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quantiles {
    /// Half of the values are at most this.
    pub p50: f64,
    /// 99 of 100 are.
    pub p99: f64,
    /// 999 of 1000 are.
    pub p999: f64,
}

/// Runs the load: the whole of the hidden command `terrace t4-load`. Returns when its input ends.
///
/// # Errors
/// If the input ends before the load is over, or a socket cannot be made.
pub fn load(options: LoadOptions) -> anyhow::Result<()> {
    let LoadOptions { services, messages, bodies, seed, .. } = options;
    let plan = Plan { services, messages, interfaces: INTERFACES.len(), bodies, seed, crash_window: Duration::ZERO };
    let mut load = Load::new(plan, expected).context("opening the receivers' ports")?;
    report(&Event::Listening { receivers: load.receivers()? })?;
    let orders = orders();
    match step_until_order(&mut load, &orders)? {
        Some(Order::Aim { services }) => load.aim(services),
        other => bail!("expected the addresses of the services, got {other:?}"),
    }
    while load.connected() < services {
        load.step(Duration::from_millis(20))?;
    }
    report(&Event::Connected)?;
    match step_until_order(&mut load, &orders)? {
        Some(Order::Go) => {}
        other => bail!("expected the word to go, got {other:?}"),
    }
    let before = Usage::of(std::process::id())?;
    let complete = run(&mut load, options.seconds)?;
    let used = Usage::of(std::process::id())?.since(before);
    let micros = |quantile| load.latency().quantile(quantile) as f64 / 1000.0;
    report(&Event::Result(Box::new(Outcome {
        counts: load.account().counts(),
        lost: load.account().lost(),
        complete,
        seconds: load.elapsed().as_secs_f64(),
        ack_us: Quantiles { p50: micros(0.5), p99: micros(0.99), p999: micros(0.999) },
        cpu_us: used.cpu_us,
        mean_bytes: load.mean_bytes(),
        examples: load.account().examples(),
    })))?;
    step_until_order(&mut load, &orders).map(drop)
}

/// Sends until all is delivered, or nothing has happened for `PATIENCE`; returns whether all was delivered.
fn run(load: &mut Load, seconds: u64) -> anyhow::Result<bool> {
    load.go();
    let begun = Instant::now();
    let (mut told, mut progress, mut seen) = (begun, begun, load.account().counts());
    let mut held = seconds == 0;
    loop {
        load.step(Duration::from_millis(20))?;
        let now = Instant::now();
        if now - told < TELL && !load.is_over() {
            continue;
        }
        told = now;
        let counts = load.account().counts();
        report(&Event::Progress { acknowledged: counts.acknowledged, delivered: counts.delivered })?;
        if load.is_over() {
            return Ok(true);
        }
        // Refusals and resends alone are no progress.
        if (counts.acknowledged, counts.delivered) != (seen.acknowledged, seen.delivered) {
            (seen, progress) = (counts, now);
        } else if now - progress > PATIENCE {
            return Ok(false);
        }
        if !held && now - begun >= Duration::from_secs(seconds) {
            load.hold();
            held = true;
        }
    }
}

/// Reads orders on a thread of its own, because standard input cannot be waited for together with sockets.
fn orders() -> Receiver<Order> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let Ok(order) = serde_json::from_str(&line) else { return };
            if sender.send(order).is_err() {
                return;
            }
        }
    });
    receiver
}

/// Keeps the sockets served until the next order; nothing if the input has ended.
fn step_until_order(load: &mut Load, orders: &Receiver<Order>) -> anyhow::Result<Option<Order>> {
    loop {
        match orders.try_recv() {
            Ok(order) => return Ok(Some(order)),
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) => load.step(Duration::from_millis(5))?,
        }
    }
}

fn report(event: &Event) -> anyhow::Result<()> {
    let mut line = serde_json::to_string(event)?;
    line.push('\n');
    let mut out = io::stdout().lock();
    out.write_all(line.as_bytes()).and_then(|()| out.flush()).context("telling the parent")
}

/// The load process, seen from the parent.
pub(super) struct LoadProcess {
    child: Child,
    orders: Option<ChildStdin>,
    events: BufReader<ChildStdout>,
    receivers: Vec<SocketAddr>,
}

impl LoadProcess {
    /// Starts `program t4-load` and waits until its receivers listen.
    pub(super) fn spawn(program: &Path, options: LoadOptions) -> anyhow::Result<LoadProcess> {
        let mut child = Command::new(program)
            .args(["t4-load", &serde_json::to_string(&options)?])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("starting the load with {}", program.display()))?;
        let orders = child.stdin.take();
        let events = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut process = LoadProcess { child, orders, events, receivers: Vec::new() };
        match process.event()? {
            Event::Listening { receivers } => process.receivers = receivers,
            other => bail!("the load began with {other:?}"),
        }
        Ok(process)
    }

    /// Where its receivers listen, by interface.
    pub(super) fn receivers(&self) -> &[SocketAddr] {
        &self.receivers
    }

    /// Has it connect to the node's services.
    pub(super) fn aim(&mut self, services: Vec<SocketAddr>) -> anyhow::Result<()> {
        self.order(&Order::Aim { services })?;
        match self.event()? {
            Event::Connected => Ok(()),
            other => bail!("the load should have connected, but said {other:?}"),
        }
    }

    /// Has it send, and waits for the outcome; `progress` hears of (acknowledged, delivered).
    pub(super) fn run(&mut self, mut progress: impl FnMut(u64, u64)) -> anyhow::Result<Outcome> {
        self.order(&Order::Go)?;
        loop {
            match self.event()? {
                Event::Progress { acknowledged, delivered } => {
                    interrupt::check()?;
                    progress(acknowledged, delivered);
                }
                Event::Result(outcome) => return Ok(*outcome),
                other => bail!("the load should be running, but said {other:?}"),
            }
        }
    }

    fn order(&mut self, order: &Order) -> anyhow::Result<()> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        let orders = self.orders.as_mut().expect("open until it is dropped");
        orders.write_all(line.as_bytes()).context("the load process has ended")
    }

    fn event(&mut self) -> anyhow::Result<Event> {
        let mut line = String::new();
        if self.events.read_line(&mut line)? == 0 {
            let status = self.child.wait()?;
            // A terminal sends Ctrl-C to both, and the load may be gone before this process has heard of it.
            if interrupt::is_asked() || status.signal() == Some(rustix::process::Signal::INT.as_raw()) {
                return Err(Interrupted.into());
            }
            bail!("the load process has ended: {status}");
        }
        serde_json::from_str(&line).with_context(|| format!("the load process said {line:?}"))
    }
}

impl Drop for LoadProcess {
    fn drop(&mut self) {
        drop(self.orders.take());
        // Both fail only if it has ended already, which the end of its input makes it do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
