//! T4: the published write-intensive workload of HL7 messaging, run against a node over real sockets.
//!
//! ```text
//!   terrace demo, terrace-lab t4 (this module)
//!     |  writes DIR/production, starts both, samples before and after, prints
//!     +-- terrace serve --data DIR --production DIR/production     the node under test
//!     +-- terrace t4-load ...                                      128 senders, 4 receivers, the account
//! ```
//!
//! 128 inbound services, 4,800 messages to each; a routing engine sends each message to four interfaces through four
//! transforms that change about four segments each; five message objects are stored durably for each inbound message, one as
//! received and four as sent. The rate counts from the first byte sent until the last outbound message is acknowledged.
//!
//! Invariants: every delivery is compared whole with an expectation that shares no code with the engine (`expect`); the
//! medium of the journal and its durability are as the node reports them; only acknowledged messages are counted.
//! Processor time of the node is the kernel's count for its process alone.
//!
//! Not measured: receivers that are slow or refuse, several nodes.

pub mod expect;
mod load_process;
mod production;
pub mod published;
mod report;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::node::status::ModelStatus;
use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use interop::engine::Bodies;

pub use load_process::{LoadOptions, Outcome, Quantiles, load};
pub use production::{service_name, write as write_production};
pub use report::{Config, Report, Run, demo_table, model_in_words};

use crate::interrupt::{self, Interrupted};
use crate::machine::{FileSystem, Machine};
use crate::messages::control_id;
use crate::node::{self, Node};
use crate::process::Usage;
use load_process::LoadProcess;

/// Prepared messages: enough that a kind of message is not always the same one, few enough that they and what should
/// become of them (about 12 MB) do not drive the node's own data out of the processor's cache.
const BODIES: usize = 1024;
/// Messages a service, as published.
const MESSAGES: usize = 4_800;
/// Messages a service in a quick run.
const QUICK_MESSAGES: usize = 400;
/// Seconds of sending in a quick run, which is to be over within 15.
const QUICK_SECONDS: u64 = 6;

/// The options of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct T4Options {
    /// Inbound services, 1 to 1,000. Published: 128.
    pub services: usize,
    /// Messages sent to each. Default: 4,800 as published, 400 in a quick run.
    pub messages: Option<usize>,
    /// At most 6 seconds of sending, so that the run is over within 15.
    pub quick: bool,
    /// How outputs are stored. Default: whole, as in the published runs.
    pub bodies: Bodies,
    /// Seed of the messages.
    pub seed: u64,
    /// Folder of the node's data, kept after the run; it must be empty or not exist. Default: a new folder on a real disk,
    /// removed after the run.
    pub data: Option<PathBuf>,
    /// Keep the data of a default folder, too.
    pub keep: bool,
    /// The node's settings, as the text of a `terrace.toml`. Default: none, so the journal is in the data folder.
    pub settings: Option<String>,
    /// The node's program. Default: the program under test.
    pub program: Option<PathBuf>,
    /// The file of a key-encryption key: the data directory is encrypted. Default: it is in clear.
    pub key: Option<PathBuf>,
}

impl Default for T4Options {
    fn default() -> Self {
        T4Options {
            services: 128,
            messages: None,
            quick: false,
            bodies: Bodies::Full,
            seed: 1,
            data: None,
            keep: false,
            settings: None,
            program: None,
            key: None,
        }
    }
}

impl T4Options {
    /// Messages for each service.
    pub fn messages(&self) -> usize {
        self.messages.unwrap_or(if self.quick { QUICK_MESSAGES } else { MESSAGES })
    }
}

/// Runs the workload: starts the node and the load, measures, stops both.
///
/// # Errors
/// If the node or the load cannot be started, or one of them ends before the run is over; `Interrupted` where somebody asked
/// to end. Loss, duplicates and wrong content are no errors here: they are in the report (`Report::is_clean`).
pub fn run(options: &T4Options) -> anyhow::Result<Report> {
    let mut session = Session::start(options)?;
    let report = match session.measure() {
        Err(error) if session.folder.keep => {
            return Err(error.context(format!("the node's data is left in {}", session.data().display())));
        }
        report => report?,
    };
    session.stop()?;
    Ok(report)
}

/// A node and a load, running.
pub struct Session {
    node: Option<Node>,
    load: LoadProcess,
    folder: Folder,
    plan: LoadOptions,
    bodies: Bodies,
}

/// A folder for a node's data, and whether it goes with the run.
pub struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// The requested folder, which is kept; or a new one.
    pub fn new(asked: Option<&PathBuf>, name: &str) -> anyhow::Result<Folder> {
        let path = match asked {
            Some(path) => path.clone(),
            None => Folder::usual_parent()?.join(format!("terrace-{name}-{}", std::process::id())),
        };
        if fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_some()) {
            bail!("{} is not empty: give a new folder, since old messages would be sent again", path.display());
        }
        fs::create_dir_all(path.join("production")).with_context(|| format!("making {}", path.display()))?;
        Ok(Folder { path: path.canonicalize()?, keep: asked.is_some() })
    }

    /// A new folder below `parent`, which goes with the run; without a parent, where the node's data would go.
    pub fn scratch(parent: Option<&Path>, name: &str) -> anyhow::Result<Folder> {
        let parent = match parent {
            Some(parent) => parent.to_owned(),
            None => Folder::usual_parent()?,
        };
        let path = parent.join(format!("terrace-{name}-{}", std::process::id()));
        fs::create_dir_all(&parent)
            .and_then(|()| fs::create_dir(&path))
            .with_context(|| format!("making {}", path.display()))?;
        Ok(Folder { path: path.canonicalize()?, keep: false })
    }

    /// The current folder or, if that is not on a disk, the one for temporary files.
    fn usual_parent() -> anyhow::Result<PathBuf> {
        let here = std::env::current_dir()?;
        Ok(if FileSystem::of(&here).is_volatile() { std::env::temp_dir() } else { here })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves it there after the run.
    pub fn keep(&mut self) {
        self.keep = true;
    }
}

impl Session {
    /// Writes the production, starts the node and the load, and connects them.
    pub fn start(options: &T4Options) -> anyhow::Result<Session> {
        if !(1..=control_id::MAX_SERVICES).contains(&options.services) {
            bail!("the workload takes 1 to {} services", control_id::MAX_SERVICES);
        }
        let messages = options.messages();
        if !(1..=control_id::MAX_SEQUENCE).contains(&messages) {
            bail!("the workload takes 1 to {} messages for each service", control_id::MAX_SEQUENCE);
        }
        let program = node::program()?;
        let mut folder = Folder::new(options.data.as_ref(), "t4")?;
        if options.keep {
            folder.keep();
        }
        let plan = LoadOptions {
            services: options.services,
            messages,
            bodies: BODIES,
            seed: options.seed,
            seconds: if options.quick { QUICK_SECONDS } else { 0 },
        };
        let mut load = LoadProcess::spawn(&program, plan)?;
        production::write(&folder.path.join("production"), plan.services, load.receivers())?;
        let settings = match &options.settings {
            None => None,
            Some(text) => Some(write_settings(&folder.path, text)?),
        };
        interrupt::check()?;
        let program = options.program.as_ref().unwrap_or(&program);
        let mut node =
            Node::spawn_with_key(program, &folder.path, (options.bodies, settings.as_deref()), options.key.as_deref())?;
        node.wait_until_ready()?;
        load.aim(service_addresses(&node, plan.services)?)?;
        Ok(Session { node: Some(node), load, folder, plan, bodies: options.bodies })
    }

    /// Runs the load and reports.
    ///
    /// # Panics
    /// If the session was stopped.
    pub fn measure(&mut self) -> anyhow::Result<Report> {
        let node = self.node.as_ref().expect("the session runs");
        let bar = progress_bar((self.plan.services * self.plan.messages) as u64);
        let before = NodeSample::of(node)?;
        let outcome = self.load.run(|acknowledged, delivered| {
            bar.set_position(acknowledged);
            bar.set_message(format!("{delivered} delivered"));
        });
        let after = NodeSample::of(node);
        bar.finish_and_clear();
        let outcome = match outcome {
            Err(error) if !error.is::<Interrupted>() => {
                return Err(error.context(format!("the node's log ends with:\n{}", node.log_tail())));
            }
            outcome => outcome?,
        };
        let machine = Machine::here();
        let file_system = FileSystem::of(&self.folder.path);
        let config = Config {
            services: self.plan.services,
            messages_per_service: self.plan.messages,
            interfaces: expect::INTERFACES.len(),
            seed: self.plan.seed,
            mean_message_bytes: outcome.mean_bytes,
            bodies: node::bodies_name(self.bodies),
            data: self.folder.path.clone(),
            data_kept: self.folder.keep,
            file_system,
            published: published::TESTS,
            differs: Vec::new(),
        };
        let stored = node::stored_objects(&self.folder.path)?;
        Ok(Report::new(machine, config, &outcome, stored, &before..&after?))
    }

    /// The node.
    pub fn node(&self) -> &Node {
        self.node.as_ref().expect("the session runs")
    }

    /// Where the node's data is.
    pub fn data(&self) -> &Path {
        &self.folder.path
    }

    /// Whether the node's process has ended by itself.
    ///
    /// # Errors
    /// The system's.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        self.node.as_mut().map_or(Ok(true), Node::has_ended)
    }

    /// Stops the node as its user would, then the load, and removes the data unless it was requested.
    pub fn stop(mut self) -> anyhow::Result<()> {
        if let Some(node) = self.node.take() {
            let status = node.stop()?;
            if !status.success() {
                self.folder.keep();
                bail!("the node ended with {status}; its log is {}", self.folder.path.join("node.log").display());
            }
        }
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep {
            // A folder that cannot be removed is left; the report names it.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Writes the node's settings into its data folder.
fn write_settings(folder: &Path, text: &str) -> anyhow::Result<PathBuf> {
    let path = folder.join("terrace.toml");
    fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

/// The counters of the node at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct NodeSample {
    usage: Usage,
    journal_writes: u64,
    journal_bytes: u64,
    journal_device: String,
    journal_tier: String,
    durability: String,
    real: bool,
    cache_mode: String,
    models: Vec<ModelStatus>,
}

impl NodeSample {
    fn of(node: &Node) -> anyhow::Result<NodeSample> {
        let status = node.status()?;
        let journal = status.journal;
        Ok(NodeSample {
            cache_mode: status.store.cache_mode,
            usage: node.usage()?,
            journal_writes: journal.writes,
            journal_bytes: journal.bytes,
            journal_device: journal.device,
            journal_tier: journal.tier,
            durability: journal.durability,
            real: journal.real && status.models.is_empty(),
            models: status.models,
        })
    }
}

/// The addresses of the workload's services, in order.
pub fn service_addresses(node: &Node, services: usize) -> anyhow::Result<Vec<std::net::SocketAddr>> {
    let address = |index| {
        let name = service_name(index);
        node.services().get(&name).copied().with_context(|| format!("the node does not serve {name}"))
    };
    (0..services).map(address).collect()
}

/// A bar on the terminal; hidden if standard error is none.
fn progress_bar(messages: u64) -> ProgressBar {
    let bar = ProgressBar::new(messages);
    let style =
        ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} acknowledged, {msg}  {elapsed} ({eta} left)");
    bar.set_style(style.expect("the template is well-formed"));
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}
