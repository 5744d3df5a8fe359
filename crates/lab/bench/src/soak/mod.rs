//! A node under a steady load for a long time, messages and SQL: whether memory, descriptors and disk stay flat.
//!
//! ```text
//!   2,000 messages/s ---> node ---> 4 receivers         every few seconds: memory, descriptors, bytes on disk, processor time,
//!   SQL: transactions, and a query of the history               and the times to acknowledgement since the sample before
//! ```
//!
//! Everything the node keeps is bounded by its settings (1 GiB of messages, 256 MiB of journal, a table of 10,000 rows), and the
//! bounds are reached early. *Flat* means: the mean of the last third of the samples is at most 5 % above that of the second
//! third, plus what one checkpoint or segment file may add. The first third is the time to fill up, and does not count.
//!
//! Invariants: the delay of a message counts from the time when it was due; every delivery is compared whole, and the
//! account must be clean.

mod report;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use indicatif::{ProgressBar, ProgressStyle};

pub use report::{Sample, SoakConfig, SoakReport, SoakRun};

use crate::postgres::{Client, Error};
use crate::under_load::{Setup, UnderLoad, WorkBeside};
use workload::interrupt;
use workload::process::ProcessSize;

/// Inbound services of the load.
const SERVICES: usize = 16;
/// Rows of the table that transactions change.
const ROWS: u64 = 10_000;
/// Longest wait for an answer of SQL.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything bounded, and the bounds within reach of a run of some minutes.
const SETTINGS: &str = "cache = \"256MiB\"\n\
    [journal]\nlimit = \"256MiB\"\n\
    [messages]\nretention = \"1GiB\"\n\
    [sql]\nlisten = \"127.0.0.1:0\"\nmemory = \"128MiB\"\ntrust = true\n\
    [sql.users]\n";

/// The options of a run.
#[derive(Clone, Debug)]
pub struct SoakOptions {
    /// How long. Default 30 minutes.
    pub time: Duration,
    /// Messages a second. Default 2,000.
    pub messages_per_s: f64,
    /// Between two samples. Default a hundredth of the time, at least a second.
    pub every: Duration,
    /// Seed of the messages.
    pub seed: u64,
    /// Folder of the node's data, kept. Default: a new one, removed afterwards.
    pub data: Option<PathBuf>,
}

impl SoakOptions {
    /// A run of so many minutes at so many messages a second.
    pub fn new(minutes: f64, messages_per_s: f64) -> SoakOptions {
        let time = Duration::from_secs_f64(minutes * 60.0);
        let every = (time / 100).max(Duration::from_secs(1));
        SoakOptions { time, messages_per_s, every, seed: 1, data: None }
    }
}

/// The counts of SQL beside the messages.
#[derive(Debug, Default)]
struct Beside {
    stop: AtomicBool,
    /// It goes on no more, in good order or not.
    ended: AtomicBool,
    transactions: AtomicU64,
    queries: AtomicU64,
}

/// Runs it.
///
/// # Errors
/// If the node cannot be started, or ends. Values that are not flat are in the report.
pub fn run(options: &SoakOptions) -> anyhow::Result<SoakReport> {
    let verifier = sql::wire::Verifier::of("not asked for")?;
    let settings = format!("{SETTINGS}soak = \"{verifier}\"\n");
    let mut rig = UnderLoad::start(&Setup {
        name: "soak",
        data: options.data.as_ref(),
        services: SERVICES,
        messages_per_s: options.messages_per_s,
        seed: options.seed,
        settings: &settings,
        files: &[],
        descriptors: None,
    })?;
    let mut samples = Vec::new();
    let beside = Beside::default();
    let (sql, seed) = (rig.sql(), options.seed);
    let outcome = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let outcome = transactions(sql, seed, &beside);
            beside.ended.store(true, Ordering::Relaxed);
            outcome
        });
        let sampled = sample_all(options, &mut rig, &beside, &mut samples);
        beside.stop.store(true, Ordering::Relaxed);
        let worked = worker.join().map_err(|_| anyhow::anyhow!("the thread of SQL has panicked"));
        sampled.and(worked.and_then(|worked| worked.context("SQL beside the messages")))
    });
    if let Err(error) = outcome {
        let log = rig.node().log_tail();
        rig.keep();
        return Err(error.context(format!("the node's log ends with:\n{log}")));
    }
    let ended = rig.finish(|| ())?;
    Ok(SoakReport::new(options, samples, rig.load().account(), ended))
}

/// One sample after the other until the time is over.
fn sample_all(
    options: &SoakOptions,
    rig: &mut UnderLoad,
    beside: &Beside,
    samples: &mut Vec<Sample>,
) -> anyhow::Result<()> {
    let style = ProgressStyle::with_template("{bar:40} {elapsed} ({eta} left)  {msg}")?;
    let bar = ProgressBar::new(options.time.as_secs()).with_style(style);
    let begun = Instant::now();
    let mut cpu = rig.node().usage()?.cpu_us;
    let mut acknowledged = 0;
    // Without SQL beside the messages the rest would show nothing: the reason why it ended is reported at once.
    while begun.elapsed() < options.time && !beside.ended.load(Ordering::Relaxed) {
        interrupt::check()?;
        let since = Instant::now();
        let WorkBeside { latency, medium, .. } = rig.beside(|| std::thread::sleep(options.every))?;
        let size = ProcessSize::of(rig.node().pid()).context("the node has ended")?;
        let (now, counts) = (rig.node().usage()?.cpu_us, rig.load().account().counts());
        let seconds = since.elapsed().as_secs_f64();
        let ms = |quantile| latency.quantile(quantile) as f64 / 1e6;
        samples.push(Sample {
            seconds: begun.elapsed().as_secs_f64(),
            messages_per_s: (counts.acknowledged - acknowledged) as f64 / seconds,
            ack_ms_p50: ms(0.5),
            ack_ms_p99: ms(0.99),
            ack_ms_p999: ms(0.999),
            medium_ms_max: medium.as_secs_f64() * 1e3,
            resident_bytes: size.resident_bytes,
            descriptors: size.descriptors,
            disk_bytes: disk_bytes(rig.folder()),
            cpu_cores: (now - cpu) as f64 / 1e6 / seconds,
            transactions: beside.transactions.swap(0, Ordering::Relaxed),
            queries: beside.queries.swap(0, Ordering::Relaxed),
        });
        (cpu, acknowledged) = (now, counts.acknowledged);
        bar.set_position(begun.elapsed().as_secs());
        bar.set_message(format!("{acknowledged} acknowledged, {} MiB", size.resident_bytes >> 20));
    }
    bar.finish_and_clear();
    Ok(())
}

/// Short transactions over a table of one size, and every second a query of the last messages.
fn transactions(sql: std::net::SocketAddr, seed: u64, beside: &Beside) -> anyhow::Result<()> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut client = Client::connect(sql, "soak", PATIENCE)?;
    client.query("CREATE TABLE soak (id bigint PRIMARY KEY, body text NOT NULL)")?;
    let mut asked = Instant::now();
    while !beside.stop.load(Ordering::Relaxed) {
        let (id, body) = (rng.u64(0..ROWS), rng.u64(..));
        let text = format!(
            "BEGIN; INSERT INTO soak VALUES ({id}, 'row {body}') ON CONFLICT (id) DO UPDATE SET body = excluded.body; \
             DELETE FROM soak WHERE id = {}; COMMIT",
            rng.u64(0..ROWS)
        );
        match client.query(&text) {
            Ok(_) => _ = beside.transactions.fetch_add(1, Ordering::Relaxed),
            // The conversion to segments may have been faster.
            Err(Error::Refused { code, .. }) if code == "40001" => _ = client.query("ROLLBACK")?,
            Err(error) => return Err(error.into()),
        }
        if asked.elapsed() > Duration::from_secs(1) {
            asked = Instant::now();
            client.query(
                "SELECT type, count(*), max(received_at) FROM hl7.messages WHERE received_at > now() - interval '2 seconds' GROUP BY type",
            )?;
            beside.queries.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The space that the files below `folder` take on the disk. A file that is removed meanwhile counts as nothing.
fn disk_bytes(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let bytes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        // stat(2): blocks are of 512 bytes.
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    });
    bytes.sum()
}
