//! A node with a paced load of messages on it, and other work on it at the same time.
//!
//! ```text
//!   start ---> the node in a process of its own; 16 senders at a steady rate, 4 receivers in this thread
//!   beside(work) ---> work runs in a thread of its own; the load goes on here; the times of its acknowledgements come
//!                     back, and the longest time that the medium itself took meanwhile
//!   finish ---> senders end, everything acknowledged is delivered, SIGTERM, and how long the node took to obey
//! ```
//!
//! Invariants: the load never waits for the work beside it; the time of a message counts from when it was due, so that
//! a node that stops for a second shows it, although no message could be sent meanwhile.
//!
//! Not here: the work on the node (`adversary`, `soak`).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use interop::engine::Bodies;

use crate::medium_probe::MediumProbe;
use workload::histogram::Histogram;
use workload::interrupt;
use workload::load::{Load, Plan};
use workload::node::Node;
use workload::t4::{self, expect};

/// How long one wait of the load for its sockets is.
const STEP: Duration = Duration::from_millis(1);
/// How long a node may take to become ready, or to deliver the rest.
const PATIENCE: Duration = Duration::from_secs(60);
/// Prepared messages.
const BODIES: usize = 256;

/// The setup.
#[derive(Debug)]
pub(crate) struct Setup<'a> {
    /// The name of the folder.
    pub(crate) name: &'a str,
    /// Folder of the node's data, kept; default: a new one, removed in the end.
    pub(crate) data: Option<&'a PathBuf>,
    /// Inbound services of the load, each with a sender.
    pub(crate) services: usize,
    /// Messages a second, over all of them.
    pub(crate) messages_per_s: f64,
    pub(crate) seed: u64,
    /// The node's settings.
    pub(crate) settings: &'a str,
    /// More files of the production, by path.
    pub(crate) files: &'a [(&'a str, String)],
    /// Most descriptors the node may have.
    pub(crate) descriptors: Option<u64>,
}

/// See the module's text.
pub(crate) struct UnderLoad {
    node: Option<Node>,
    load: Load,
    folder: t4::Folder,
    sql: SocketAddr,
    probe: MediumProbe,
}

/// What was measured while work ran beside the load.
#[derive(Debug)]
pub(crate) struct WorkBeside<T> {
    /// The result of the work.
    pub(crate) result: T,
    /// From when a message was due until it was acknowledged, nanoseconds.
    pub(crate) latency: Histogram,
    /// The longest time of a small write with its flush, by a thread that does nothing else.
    pub(crate) medium: Duration,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    /// Whether all was acknowledged and delivered.
    pub(crate) drained: bool,
    /// From SIGTERM until the process had ended.
    pub(crate) stop: Duration,
    /// Whether it ended with success.
    pub(crate) stopped_well: bool,
}

impl UnderLoad {
    /// Starts the node and the load.
    pub(crate) fn start(setup: &Setup<'_>) -> anyhow::Result<UnderLoad> {
        let plan = Plan {
            services: setup.services,
            messages: workload::messages::control_id::MAX_SEQUENCE,
            interfaces: expect::INTERFACES.len(),
            bodies: BODIES,
            seed: setup.seed,
            crash_window: Duration::ZERO,
        };
        let folder = t4::Folder::new(setup.data, setup.name)?;
        let mut load = Load::new(plan, expect::expected).context("opening the receivers' ports")?;
        let production = folder.path().join("production");
        t4::write_production(&production, setup.services, &load.receivers()?)?;
        for (path, text) in setup.files {
            let path = production.join(path);
            path.parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| std::fs::write(&path, text))
                .with_context(|| format!("writing {}", path.display()))?;
        }
        let settings = folder.path().join("terrace.toml");
        std::fs::write(&settings, setup.settings).context("writing settings")?;
        let program = workload::node::program()?;
        let mut node = match setup.descriptors {
            None => Node::spawn(&program, folder.path(), Bodies::Full, Some(&settings))?,
            Some(most) => Node::spawn_with_descriptors(&program, most, folder.path(), Some(&settings))?,
        };
        let sql = ready(&mut node)?;
        load.aim(t4::service_addresses(&node, setup.services)?);
        while load.connected() < setup.services {
            interrupt::check()?;
            load.step(STEP)?;
            if node.age() > PATIENCE {
                bail!("the senders cannot connect:\n{}", node.log_tail());
            }
        }
        load.go_at(setup.messages_per_s);
        let probe = MediumProbe::new(folder.path())?;
        Ok(UnderLoad { node: Some(node), load, folder, sql, probe })
    }

    /// The node.
    ///
    /// # Panics
    /// After `finish`.
    pub(crate) fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    /// Where its SQL service listens.
    pub(crate) fn sql(&self) -> SocketAddr {
        self.sql
    }

    /// The load.
    pub(crate) fn load(&self) -> &Load {
        &self.load
    }

    /// Its folder: data, production, log.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the folder there.
    pub(crate) fn keep(&mut self) {
        self.folder.keep();
    }

    /// Runs `work` in a thread beside the load.
    pub(crate) fn beside<T: Send>(&mut self, work: impl FnOnce() -> T + Send) -> anyhow::Result<WorkBeside<T>> {
        self.load.take_latency();
        let (load, probe, over) = (&mut self.load, &self.probe, AtomicBool::new(false));
        let (result, medium) = std::thread::scope(|scope| {
            let worker = scope.spawn(work);
            let watching = scope.spawn(|| probe.watch(&over));
            let mut stepped = Ok(());
            while stepped.is_ok() && !worker.is_finished() {
                stepped = load.step(STEP);
            }
            over.store(true, Ordering::Relaxed);
            let worked = worker.join().map_err(|_| anyhow::anyhow!("what runs beside the load has panicked"));
            let watched = watching.join().map_err(|_| anyhow::anyhow!("the probe of the medium has panicked"));
            stepped?;
            anyhow::Ok((worked?, watched??))
        })?;
        interrupt::check()?;
        Ok(WorkBeside { result, latency: self.load.take_latency(), medium })
    }

    /// Ends the sending, waits until everything is delivered, stops the node. `before_stop` runs just before SIGTERM and what
    /// it returns lives until the node has ended.
    pub(crate) fn finish<T>(&mut self, before_stop: impl FnOnce() -> T) -> anyhow::Result<Ended> {
        self.load.hold();
        let begun = Instant::now();
        while !self.load.is_over() && begun.elapsed() < PATIENCE {
            interrupt::check()?;
            self.load.step(STEP)?;
        }
        let drained = self.load.is_over();
        let held = before_stop();
        let asked = Instant::now();
        let status = self.node.take().context("it has been stopped already")?.stop()?;
        let stop = asked.elapsed();
        drop(held);
        Ok(Ended { drained, stop, stopped_well: status.success() })
    }
}

/// Waits until the node serves messages and SQL; where it serves SQL.
fn ready(node: &mut Node) -> anyhow::Result<SocketAddr> {
    node.wait_until_ready()?;
    loop {
        if let Some(sql) = node.sql_address() {
            return Ok(sql);
        }
        interrupt::check()?;
        if node.age() > PATIENCE {
            bail!("SQL is not ready after {} s:\n{}", PATIENCE.as_secs(), node.log_tail());
        }
        std::thread::sleep(STEP);
    }
}
