//! The node under test, as a process of its own: started, queried, stopped, killed.
//!
//! ```text
//! DIR/production/     its production, written by the workload
//! DIR/node.log        its output
//! DIR/node.json       written by the node when it is ready: its process id and the addresses it bound
//! DIR/control.sock    answers `status` with counters
//! DIR/journal/        its stored messages, counted after the run
//! ```
//!
//! Invariants: a node is ready only if `node.json` names *this* process, since a killed node leaves its file behind; no node
//! outlives its `Node`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use ::node::encryption::KEY_VARIABLE;
use ::node::{control, status};
use anyhow::{Context, bail};
use interop::engine::Bodies;
use interop::history::History;
use interop::running::NodeStatus;

use crate::interrupt;
use crate::process::Usage;

/// How long a node may take to become ready or to stop. Recovery replays the journal, at worst gigabytes of it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a node that is starting or stopping is looked at.
const LOOK: Duration = Duration::from_millis(2);

/// The program whose nodes are started, where it is not this one.
static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Names the program whose nodes are started: `terrace`, where this process is another one. The first name counts.
pub fn set_program(path: PathBuf) {
    // Set already: that name counts.
    let _ = PROGRAM.set(path);
}

/// The program whose nodes are started: the one named, else this process's own.
///
/// # Errors
/// If the system does not know the file of this process.
pub fn program() -> anyhow::Result<PathBuf> {
    match PROGRAM.get() {
        Some(path) => Ok(path.clone()),
        None => std::env::current_exe().context("finding this program"),
    }
}

/// A running node.
pub struct Node {
    child: Child,
    data: PathBuf,
    started: Instant,
    services: BTreeMap<String, SocketAddr>,
    /// Where in the log, which earlier nodes may have begun, its own lines do.
    log_from: usize,
}

/// Writes a new key-encryption key into a folder; returns its file.
pub fn new_key(folder: &Path) -> anyhow::Result<PathBuf> {
    let path = folder.join("key");
    let mut random = [0; 32];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).context("/dev/urandom")?;
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    options.open(&path).and_then(|mut file| file.write_all(&random)).with_context(|| path.display().to_string())?;
    Ok(path)
}

/// How the command line and the results name a way to store outputs.
pub fn bodies_name(bodies: Bodies) -> &'static str {
    match bodies {
        Bodies::Full => "full",
        Bodies::Delta => "delta",
    }
}

/// Message objects in the journal of the node whose data is in `data`: messages as received and as sent. Opened read-only,
/// by code that knows nothing of the run.
pub fn stored_objects(data: &Path) -> anyhow::Result<u64> {
    let counts = History::open(data).and_then(|history| history.count());
    Ok(counts.with_context(|| format!("counting what is stored in {}", data.display()))?.objects)
}

/// The last lines that nodes on the data folder `data` printed.
pub fn log_tail(data: &Path) -> String {
    let text = fs::read(data.join("node.log")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// What a node writes of a model that is faster than the host.
const TOO_SLOW: &str = "cannot be modelled";

/// The line of a node's log that says that its host is too slow for a model, if that is why it ended: the error is of its start.
pub fn refused_model(error: &anyhow::Error) -> Option<String> {
    let text = format!("{error:#}");
    let line = text.lines().find(|line| line.contains(TOO_SLOW))?;
    Some(line.trim().trim_start_matches("error: ").to_owned())
}

/// The panics that nodes on the data folder `data` logged, each with where it was.
pub fn panics(data: &Path) -> Vec<String> {
    let text = fs::read(data.join("node.log")).unwrap_or_default();
    panics_in(&String::from_utf8_lossy(&text))
}

/// As the standard library prints them: `thread 'NAME' (ID) panicked at FILE:LINE:COLUMN:`, and the reason on the next
/// line.
fn panics_in(log: &str) -> Vec<String> {
    let lines: Vec<&str> = log.lines().collect();
    let panics = lines.windows(2).filter(|pair| pair[0].starts_with("thread '") && pair[0].contains(" panicked at "));
    panics.map(|pair| format!("{} {}", pair[0], pair[1])).collect()
}

impl Node {
    /// Starts `program serve` on the data folder `data`, with the production in `data/production` and, where one is named, a
    /// settings file. It is not ready yet.
    pub fn spawn(program: &Path, data: &Path, bodies: Bodies, settings: Option<&Path>) -> anyhow::Result<Node> {
        Node::spawn_as(Command::new(program), data, bodies, settings)
    }

    /// The same; with `key`, on an encrypted data directory, which is made so: the file has its key-encryption key.
    pub fn spawn_with_key(
        program: &Path,
        data: &Path,
        (bodies, settings): (Bodies, Option<&Path>),
        key: Option<&Path>,
    ) -> anyhow::Result<Node> {
        let mut command = Command::new(program);
        if let Some(key) = key {
            let place = format!("file:{}", key.display());
            let mut init = Command::new(program);
            init.args(["encryption", "init", "--data"]).arg(data).env(KEY_VARIABLE, &place);
            let made = init.output().context("making an encrypted data directory")?;
            anyhow::ensure!(made.status.success(), "encryption init: {}", String::from_utf8_lossy(&made.stderr));
            command.env(KEY_VARIABLE, &place);
        }
        Node::spawn_as(command, data, bodies, settings)
    }

    /// The same with at most so many descriptors (`ulimit -n`), which it cannot raise.
    pub fn spawn_with_descriptors(
        program: &Path,
        descriptors: u64,
        data: &Path,
        settings: Option<&Path>,
    ) -> anyhow::Result<Node> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("ulimit -n {descriptors} && exec \"$0\" \"$@\"")).arg(program);
        Node::spawn_as(shell, data, Bodies::Full, settings)
    }

    /// Starts `program serve` on the data folder `data` with a settings file and without a production: it has the one service that
    /// `listen` of the settings names.
    pub fn spawn_without_production(program: &Path, data: &Path, settings: &Path) -> anyhow::Result<Node> {
        let mut serve = Command::new(program);
        serve.arg("serve").arg("--data").arg(data).arg("--config").arg(settings);
        Node::launch(serve, data)
    }

    fn spawn_as(mut command: Command, data: &Path, bodies: Bodies, settings: Option<&Path>) -> anyhow::Result<Node> {
        command
            .arg("serve")
            .arg("--data")
            .arg(data)
            .arg("--production")
            .arg(data.join("production"))
            .args(["--bodies", bodies_name(bodies)])
            .args(settings.into_iter().flat_map(|file| ["--config".as_ref(), file.as_os_str()]));
        Node::launch(command, data)
    }

    fn launch(mut command: Command, data: &Path) -> anyhow::Result<Node> {
        let log = File::options().create(true).append(true).open(data.join("node.log"));
        let log = log.with_context(|| format!("opening {}", data.join("node.log").display()))?;
        let log_from = log.metadata()?.len() as usize;
        let child = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("starting {command:?}"))?;
        Ok(Node { child, data: data.to_owned(), started: Instant::now(), services: BTreeMap::new(), log_from })
    }

    /// Whether the node is ready now.
    ///
    /// # Errors
    /// If it has ended, with the last lines of its log.
    pub fn is_ready(&mut self) -> anyhow::Result<bool> {
        if !self.services.is_empty() {
            return Ok(true);
        }
        if let Some(status) = self.child.try_wait()? {
            bail!("the node ended at its start ({status}):\n{}", self.log_tail());
        }
        // None yet, or the file of a node that was killed.
        let Some(status) = status::read_ready::<NodeStatus>(&self.data).filter(|status| status.pid == self.child.id())
        else {
            return Ok(false);
        };
        // Others watch folders.
        for service in status.services.into_iter().filter(|service| service.kind == "mllp") {
            let address =
                service.at.parse().with_context(|| format!("service {} is at {}", service.name, service.at))?;
            self.services.insert(service.name, address);
        }
        Ok(!self.services.is_empty())
    }

    /// Waits until the node is ready.
    pub fn wait_until_ready(&mut self) -> anyhow::Result<()> {
        while !self.is_ready()? {
            interrupt::check()?;
            if self.started.elapsed() > PATIENCE {
                bail!("the node is not ready after {} s:\n{}", PATIENCE.as_secs(), self.log_tail());
            }
            thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Since its process was started.
    pub fn age(&self) -> Duration {
        self.started.elapsed()
    }

    /// The addresses its services listen at, by name; empty until it is ready.
    pub fn services(&self) -> &BTreeMap<String, SocketAddr> {
        &self.services
    }

    /// The address of its SQL service, from its log; none as long as it does not listen.
    pub fn sql_address(&self) -> Option<SocketAddr> {
        self.address_in_log(" sql address=")
    }

    /// The address of its search service, from its log; none as long as it does not listen.
    pub fn search_address(&self) -> Option<SocketAddr> {
        self.address_in_log(" search address=")
    }

    /// The address of its console, from its log; none as long as it does not listen.
    pub fn console_address(&self) -> Option<SocketAddr> {
        self.address_in_log(" console address=")
    }

    /// The address of its metrics, from its log; none as long as they do not listen.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.address_in_log(" metrics address=")
    }

    fn address_in_log(&self, mark: &str) -> Option<SocketAddr> {
        let text = fs::read(self.data.join("node.log")).ok()?;
        let text = String::from_utf8_lossy(text.get(self.log_from..)?);
        // A line that is not ended may not be whole.
        let lines = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        lines.filter_map(|line| line.split_once(mark)?.1.trim().parse().ok()).next_back()
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its status.
    pub fn status(&self) -> anyhow::Result<NodeStatus> {
        let answer = control::request(&self.data, "status").context("asking the node for its status")?;
        serde_json::from_value(answer).context("the node's status is of another release")
    }

    /// The kernel's counts for it.
    pub fn usage(&self) -> anyhow::Result<Usage> {
        Usage::of(self.pid()).context("reading the counters of the node's process")
    }

    /// Whether its process has ended.
    ///
    /// # Errors
    /// The system's.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Requests it to stop (SIGTERM) and waits until it has stopped.
    pub fn stop(mut self) -> anyhow::Result<ExitStatus> {
        // The number of a process that has ended may belong to another one.
        if let Some(status) = self.child.try_wait()? {
            return Ok(status);
        }
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let asked = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            if asked.elapsed() > PATIENCE {
                bail!("the node has not stopped {} s after SIGTERM:\n{}", PATIENCE.as_secs(), self.log_tail());
            }
            thread::sleep(LOOK);
        }
    }

    /// Ends it at once (SIGKILL), as a crash of the process would.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Its log of the calibration of its modelled media, if it has any: the lines of its log, from the word on.
    pub fn calibration(&self) -> Vec<String> {
        let text = fs::read(self.data.join("node.log")).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        text.lines().filter_map(|line| Some(line[line.find("calibrated ")?..].to_owned())).collect()
    }

    /// The last lines it printed.
    pub fn log_tail(&self) -> String {
        log_tail(&self.data)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Both fail only if it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_ended_because_its_host_is_too_slow_is_told_from_one_that_failed() {
        let log = "the node ended at its start (exit status: 2):\n INFO begun\nerror: tier optane: optane-p4800x cannot be \
                   modelled in real time on this host: write should take 10000 ns";
        let refused = refused_model(&anyhow::anyhow!("{log}").context("journal on Optane SSD")).expect("refused");
        assert!(refused.starts_with("tier optane: optane-p4800x cannot be modelled"), "{refused}");
        assert_eq!(refused_model(&anyhow::anyhow!("the node ended at its start: no space left")), None);
    }

    #[test]
    fn a_panic_is_found_in_a_log_with_what_was_wrong() {
        let log = "2026 INFO ready\nthread 'sql query' (7) panicked at src/a.rs:1:2:\nnot used yet\nnote: run with\n\
                   2026 ERROR a query ended by a panic error=thread 7 panicked at once\n";
        assert_eq!(panics_in(log), ["thread 'sql query' (7) panicked at src/a.rs:1:2: not used yet"]);
        assert!(panics_in("").is_empty());
    }
}
