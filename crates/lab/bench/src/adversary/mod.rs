//! Hostile clients, careless queries and huge messages against one node, while other senders continue.
//!
//! ```text
//!   from 127.0.0.66: an attack ---+                 judged for each attack:
//!                                 v                 - the load's times to acknowledgement, 99 of 100 below a second and
//!                                                     two of the longest flushes of the medium itself meanwhile
//!   16 senders, steady -------> node -------> 4 receivers, every delivery compared
//!                                 ^                 - the node's peak of memory against what its settings allow
//!   from 127.0.0.1: status, ------+                 - `status` answers, and what the attack itself asks for
//!   a login, a message
//! ```
//!
//! The attackers have an address of their own, as in reality: bounds are by service and by address. The node's limits
//! are small, so that a run fits a small machine: 512 descriptors, 64 MiB for SQL, 64 MiB for unfinished messages, a
//! page cache and old versions of 32 MiB each.
//!
//! Invariants: everything random comes from the printed seed; an attack ends by itself; the load never waits for it; at
//! the end all messages of the senders are accounted for.
//!
//! Not here: damaged media and full disks (tests of the store and of the binary), kills (`kill`).

mod files;
mod messages;
mod report;
mod sockets;
mod statements;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

pub use report::{AdversaryConfig, AdversaryReport, AdversaryRun, Totals};

use crate::under_load::{Setup, UnderLoad, WorkBeside};
use workload::interrupt;
use workload::node::Node;
use workload::process::ProcessSize;

/// Inbound services of the load.
const SERVICES: usize = 16;
/// Messages a second of the load.
const MESSAGES_PER_S: f64 = 200.0;
/// The same in a quick run, whose binary may not be optimised.
const QUICK_MESSAGES_PER_S: f64 = 60.0;
/// Descriptors that the node may have: less than one attack opens.
const DESCRIPTORS: u64 = 512;
/// The limit for 99 of 100 acknowledgements during every attack, on a medium that takes no time ([`ack_limit`]).
const ACK_MAX: Duration = Duration::from_secs(1);
/// Memory of all statements together.
const SQL_BYTES: u64 = 64 << 20;
/// Memory of all unfinished messages together.
const FRAME_BYTES: u64 = 64 << 20;
/// The page cache, which fills while the node works.
const CACHE_BYTES: u64 = 32 << 20;
/// Memory of old versions: values that the senders change while a statement reads.
const VERSIONS_BYTES: u64 = 32 << 20;
/// Memory of records that wait to be applied: with so small a cache the least ([`store::Options::with_cache`]).
const QUEUE_BYTES: u64 = 8 << 20;
/// Memory of statements: their setting.
const STATEMENTS_BYTES: u64 = SQL_BYTES + VERSIONS_BYTES;
/// Memory of unfinished frames. Twice their setting: one frame of each service continues beyond it, and doubles its
/// memory as it grows.
const FRAMES_BYTES: u64 = 2 * FRAME_BYTES;
/// How long the load is watched behind an attack, so that a short one is judged too.
const AFTER: Duration = Duration::from_secs(1);
/// How long a friend waits for an answer before it counts as none.
const PATIENCE: Duration = Duration::from_secs(10);
/// The user of the attacks and the checks.
const USER: &str = "visitor";

/// The options of a run.
#[derive(Clone, Debug)]
pub struct AdversaryOptions {
    /// Smaller attacks, for a binary that is not optimised: about a minute.
    pub quick: bool,
    /// Seed of the messages and the statements.
    pub seed: u64,
    /// Only attacks whose name contains this text. Default: all.
    pub only: Option<String>,
    /// Folder of the node's data, kept. Default: a new one, removed if nothing broke.
    pub data: Option<PathBuf>,
}

/// The node, as an attack sees it.
#[derive(Clone, Debug)]
struct Target {
    pid: u32,
    /// The service that only attackers know.
    attacked: SocketAddr,
    /// The service that runs an expensive transform.
    edited: SocketAddr,
    /// The service behind TLS.
    secured: SocketAddr,
    sql: SocketAddr,
    /// The folder of the file service.
    pickup: PathBuf,
    data: PathBuf,
    /// Memory at rest, bytes.
    rest_bytes: u64,
    quick: bool,
    seed: u64,
}

/// The findings of an attack: each line is a broken promise.
type Broken = Vec<String>;

/// One attack.
struct Attack {
    name: &'static str,
    /// Memory that the node may take for it beyond its memory at rest, bytes.
    allowed_bytes: u64,
    run: fn(&Target) -> anyhow::Result<Broken>,
}

/// All of them, in order.
const ATTACKS: [Attack; 9] = [
    Attack { name: "silent sockets at the SQL port", allowed_bytes: 32 << 20, run: sockets::silent_sql },
    Attack { name: "silent sockets at an MLLP port", allowed_bytes: 32 << 20, run: sockets::silent_mllp },
    Attack { name: "silent sockets at a TLS port", allowed_bytes: 32 << 20, run: sockets::silent_tls },
    Attack { name: "half of a frame on each of many connections", allowed_bytes: 32 << 20, run: sockets::half_frames },
    Attack { name: "large frames without an end", allowed_bytes: FRAMES_BYTES, run: sockets::large_frames },
    Attack { name: "one message that costs much", allowed_bytes: FRAME_BYTES, run: messages::costly },
    Attack { name: "statements that want memory", allowed_bytes: STATEMENTS_BYTES, run: statements::memory },
    Attack { name: "statements without an end", allowed_bytes: STATEMENTS_BYTES, run: statements::time },
    Attack { name: "a large file", allowed_bytes: FRAME_BYTES, run: files::large },
];

/// Runs it.
///
/// # Errors
/// If the node cannot be started or ends. Broken promises are in the report.
pub fn run(options: &AdversaryOptions) -> anyhow::Result<AdversaryReport> {
    // Both ends of some attacks, and the load.
    let (soft, hard) = raise_descriptors();
    anyhow::ensure!(soft >= 4096, "the attacks take 4,096 descriptors, and `ulimit -Hn` is {hard}");
    let verifier = sql::wire::Verifier::of("not asked for")?;
    let settings = settings(&verifier.to_string());
    let (certificate, key) = sockets::certificate()?;
    let service = |rules: &str| format!("kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\n{rules}");
    let mut rig = UnderLoad::start(&Setup {
        name: "adversary",
        data: options.data.as_ref(),
        services: SERVICES,
        messages_per_s: if options.quick { QUICK_MESSAGES_PER_S } else { MESSAGES_PER_S },
        seed: options.seed,
        settings: &settings,
        files: &[
            ("services/attacked.toml", service("frame_timeout = \"3s\"\n")),
            ("services/edited.toml", service("rules = \"edited\"\n")),
            ("services/secured.toml", service("[tls]\ncertificate = \"cert.pem\"\nkey = \"key.pem\"\n")),
            (
                "services/pickup.toml",
                "kind = \"file\"\nfolder = \"pickup\"\nevery = \"200ms\"\nsettle = \"200ms\"\n".to_owned(),
            ),
            ("rules/edited.rules", messages::RULES.to_owned()),
            ("transforms/edited.hl7t", messages::TRANSFORM.to_owned()),
            ("operations/edited.toml", "kind = \"file\"\nfolder = \"edited\"\n".to_owned()),
            ("cert.pem", certificate),
            ("key.pem", key),
            ("pickup/.keep", String::new()),
        ],
        descriptors: Some(DESCRIPTORS),
    })?;
    let outcome = attacks(options, &mut rig);
    match outcome.and_then(|runs| Ok((runs, end(&mut rig)?))) {
        Ok((runs, totals)) => {
            let report = AdversaryReport::new(options, runs, totals, rig.folder());
            if !report.is_clean() {
                rig.keep();
            }
            Ok(report)
        }
        Err(error) => {
            rig.keep();
            let (log, folder) = (workload::node::log_tail(rig.folder()), rig.folder().display());
            Err(error.context(format!("seed {}; data in {folder}; its log ends with:\n{log}", options.seed)))
        }
    }
}

fn settings(verifier: &str) -> String {
    format!(
        "cache = \"{}MiB\"\nversions = \"{}MiB\"\nframe_memory = \"{}MiB\"\n[journal]\nlimit = \"128MiB\"\n\
         [sql]\nlisten = \"127.0.0.1:0\"\nmemory = \"{}MiB\"\ntrust = true\n[sql.users]\n{USER} = \"{verifier}\"\n",
        CACHE_BYTES >> 20,
        VERSIONS_BYTES >> 20,
        FRAME_BYTES >> 20,
        SQL_BYTES >> 20
    )
}

/// The soft limit of this process, raised to the hard one, and the hard one.
fn raise_descriptors() -> (u64, u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    // Refused only where the hard limit is lower, which it is not.
    _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    let soft = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    (soft, limit.maximum.unwrap_or(u64::MAX))
}

fn attacks(options: &AdversaryOptions, rig: &mut UnderLoad) -> anyhow::Result<Vec<AdversaryRun>> {
    let mut target = target(options, rig)?;
    let chosen = |attack: &&Attack| options.only.as_ref().is_none_or(|only| attack.name.contains(only.as_str()));
    let chosen: Vec<&Attack> = ATTACKS.iter().filter(chosen).collect();
    anyhow::ensure!(!chosen.is_empty(), "no attack has such a name");
    let style = ProgressStyle::with_template("{pos}/{len} attacks [{bar:30}] {elapsed}, {msg}")?;
    let bar = ProgressBar::new(chosen.len() as u64).with_style(style);
    // The load alone, for comparison; and so that memory at rest is that of a node at work.
    let rest = Duration::from_secs(if options.quick { 3 } else { 10 });
    let alone = rig.beside(|| std::thread::sleep(rest))?;
    target.rest_bytes = ProcessSize::of(target.pid)?.resident_bytes;
    let mut runs =
        vec![AdversaryRun::new("the load alone", &alone, ProcessSize::of(target.pid)?, &target, rest, Vec::new())];
    for attack in chosen {
        interrupt::check()?;
        bar.set_message(attack.name);
        runs.push(one(attack, &target, rig).with_context(|| attack.name.to_owned())?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(runs)
}

/// The limit for 99 of 100 acknowledgements, beside a medium whose longest flush took so long: a message may wait for the
/// flush under way, and then for its own.
fn ack_limit(medium: Duration) -> Duration {
    ACK_MAX + 2 * medium
}

/// One attack, with everything that is watched meanwhile.
fn one(attack: &Attack, target: &Target, rig: &mut UnderLoad) -> anyhow::Result<AdversaryRun> {
    ProcessSize::forget_peak(target.pid).context("the node has ended")?;
    let before = ProcessSize::of(target.pid)?;
    let panics_before = workload::node::panics(&target.data).len();
    let begun = Instant::now();
    let WorkBeside { result: (outcome, took), latency, medium } = rig.beside(|| {
        let outcome = ((attack.run)(target), begun.elapsed());
        std::thread::sleep(AFTER);
        outcome
    })?;
    let mut broken = outcome?;
    let size = ProcessSize::of(target.pid).context("the node has ended")?;
    let held = before.resident_bytes.max(target.rest_bytes + CACHE_BYTES) + QUEUE_BYTES;
    let allowed = (held + attack.allowed_bytes) / 10 * 11;
    if size.peak_bytes > allowed {
        broken.push(format!("it took {} MiB of memory, {} are allowed", size.peak_bytes >> 20, allowed >> 20));
    }
    let late = Duration::from_nanos(latency.quantile(0.99));
    let limit = ack_limit(medium);
    if latency.count() == 0 || late > limit {
        let count = latency.count();
        broken.push(format!("of {count} acknowledgements 1 in 100 took {late:.2?} or more; {limit:.2?} are allowed"));
    }
    // Whatever answer the client got.
    broken.extend(workload::node::panics(&target.data).split_off(panics_before));
    if let Err(error) = rig.node().status() {
        broken.push(format!("status does not answer: {error:#}"));
    }
    let beside = WorkBeside { result: (), latency, medium };
    Ok(AdversaryRun::new(attack.name, &beside, size, target, took, broken))
}

fn target(options: &AdversaryOptions, rig: &UnderLoad) -> anyhow::Result<Target> {
    let node: &Node = rig.node();
    let service = |name: &str| node.services().get(name).copied().with_context(|| format!("no service {name}"));
    Ok(Target {
        pid: node.pid(),
        attacked: service("attacked")?,
        edited: service("edited")?,
        secured: service("secured")?,
        sql: rig.sql(),
        pickup: rig.folder().join("production/pickup"),
        data: rig.folder().to_owned(),
        rest_bytes: 0,
        quick: options.quick,
        seed: options.seed,
    })
}

/// Stops the node while statements run that have no end.
fn end(rig: &mut UnderLoad) -> anyhow::Result<Totals> {
    let sql = rig.sql();
    let ended = rig.finish(|| statements::endless(sql, 4))?;
    let account = rig.load().account();
    Ok(Totals::new(account, ended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_medium_that_kept_its_own_writer_waiting_excuses_late_acknowledgements() {
        assert_eq!(ack_limit(Duration::ZERO), ACK_MAX);
        assert_eq!(ack_limit(Duration::from_millis(300)), Duration::from_millis(1_600));
    }
}
