//! The command line of `terrace-lab`, which `terrace bench` starts. Scripts rely on the names and keys here.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Measure: workloads whose results are printed beside published figures.
///
/// `terrace bench COMMAND` is `terrace-lab COMMAND` for that terrace.
#[derive(Debug, Parser)]
#[command(name = "terrace bench", version, max_term_width = 100)]
pub struct LabArgs {
    /// The program under test; default: `terrace` beside this one
    #[arg(long, value_name = "FILE", global = true)]
    pub terrace: Option<PathBuf>,
    /// The measurement.
    #[command(subcommand)]
    pub command: BenchCommand,
}

/// How outputs are stored.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum BodiesArg {
    /// Only what changed
    Delta,
    /// Whole
    Full,
}

/// `terrace bench ...`
#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// HL7 messages: 128 services x 4,800 messages, each to four receivers through four transforms
    T4(T4Args),
    /// Stores and commits: by threads, flushed and not, on this machine's memory and on models, and through the journal
    Persist(PersistArgs),
    /// Durable puts of 1 KiB into the store by 1, 16 and 128 committers, beside the bare journal and the raw medium
    Put(PutArgs),
    /// TPC-H over row groups: with the cache smaller and larger than the data, cold and warm, beside plain DataFusion
    Analytics(AnalyticsArgs),
    /// Documents and searches by esrally: 1, 2 and 4 races at a time, the node on SATA, NVMe and App Direct
    Rally(rally::command::RallyArgs),
    // The text of the command is at its arguments: it has several paragraphs.
    Fleet(fleet::FleetArgs),
    // As above.
    WhatIf(what_if::WhatIfArgs),
    /// Kill a node under load again and again, and check that nothing acknowledged is lost
    Kill(KillArgs),
    /// Hostile clients, careless statements and huge messages against one node, while others send as ever
    ///
    /// Exit code 1 where something broke: a sender waited, memory beyond the settings, a message lost.
    Adversary(AdversaryArgs),
    /// Messages at a steady rate and SQL beside them for a long time: memory, descriptors and disk stay flat
    Soak(SoakArgs),
    /// SQLite's sqllogictest scripts over PostgreSQL's protocol: how many pass, and why the rest do not
    ///
    /// scripts/test-sqllogic.sh fetches the scripts, starts a node and calls this.
    Sqllogic(SqllogicArgs),
    /// What rights cost and give away: times of refusals, the rate with rights and without, reads in the audit
    ///
    /// Exit code 1 where refusals can be told apart by their time, the rate is below 0.95, or a read is not in the audit.
    Access(AccessArgs),
    /// What encryption at rest costs: messages, puts and queries, encrypted and in clear in turns
    ///
    /// Exit code 1 where the rate is below 0.90 of that in clear.
    Encryption(EncryptionArgs),
    /// What it costs to look at a node: T4 with the console open and metrics scraped, in turns with neither; open tabs
    ///
    /// Exit code 1 where the rate is below 0.98 of that without, or 100 tabs take more than 2 % of a core.
    Console(ConsoleArgs),
    /// What recording a profile costs: messages and queries, in turns with a recording and without
    ///
    /// Exit code 1 where the rate is below 0.99 of that without, or a recording takes more than 16 MiB.
    Profile(ProfileArgs),
    /// Predictions of the planner beside the store's page cache, on accesses that are held out, with modelled media
    ///
    /// Exit code 1 where a prediction is wrong by more than 3 points. Queues, journal and processors are not part of it.
    Plan(plan::BenchPlanArgs),
}

/// `terrace bench t4`
#[derive(Debug, Args)]
pub struct T4Args {
    /// A small run of about 10 seconds
    #[arg(long)]
    pub quick: bool,
    /// Inbound services
    #[arg(long, default_value_t = 128)]
    pub services: usize,
    /// Messages sent to each service [default: 4800, with --quick at most 400]
    #[arg(long)]
    pub messages: Option<usize>,
    /// How outputs are stored
    #[arg(long, value_enum, default_value = "full")]
    pub bodies: BodiesArg,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Where to put the node's data; default: a temporary directory below this one. With --matrix: where to make a temporary
    /// directory for the node on this disk
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Leave the data there
    #[arg(long)]
    pub keep: bool,
    /// Settings of the node: a terrace.toml, for example with [search], to see what a service costs the messages
    #[arg(long, value_name = "FILE", conflicts_with = "matrix")]
    pub settings: Option<PathBuf>,
    /// The file of a key-encryption key, 32 bytes: the node's data is encrypted
    #[arg(long, value_name = "FILE", conflicts_with = "matrix")]
    pub key: Option<PathBuf>,
    /// Seed of the generated messages
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Once for each medium of the journal, modelled after published figures, and on this disk as it is
    #[arg(long, conflicts_with = "keep")]
    pub matrix: bool,
    /// With --matrix: how often each medium takes its turn
    #[arg(long, default_value_t = 2, requires = "matrix")]
    pub rounds: usize,
    /// With --matrix: where the modelled media go; default: /dev/shm where there is one
    #[arg(long, value_name = "DIR", requires = "matrix")]
    pub dir: Option<PathBuf>,
}

/// `terrace bench persist`
#[derive(Debug, Args)]
pub struct PersistArgs {
    /// A small run of less than 10 seconds
    #[arg(long)]
    pub quick: bool,
    /// Where to map files: /dev/shm, or a mount of persistent memory; default: /dev/shm where there is one
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where to put the journal that is flushed to a disk; default: below this directory
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Most threads [default: one for each processor]
    #[arg(long)]
    pub threads: Option<usize>,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench analytics`
#[derive(Debug, Args)]
pub struct AnalyticsArgs {
    /// The smallest run: scale 0.05, one round, one network, caches sized by what the queries touch
    #[arg(long)]
    pub quick: bool,
    /// Scale factor of the data; 1 is 6 million rows of lineitem, and the run for results [default: 0.1, with --quick 0.05]
    #[arg(long)]
    pub scale: Option<f64>,
    /// How often each query runs beside plain DataFusion [default: 3, with --quick 1]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Where to put the Parquet files, in a folder that is removed afterwards; default: below this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench kill`
#[derive(Debug, Args)]
pub struct KillArgs {
    /// Under bulk requests of the search service, instead of messages and SQL
    #[arg(long)]
    pub search: bool,
    /// How often to kill it
    #[arg(long, default_value_t = 50)]
    pub rounds: usize,
    /// Seed of the moments and messages; printed when something is wrong
    #[arg(long)]
    pub seed: Option<u64>,
    /// Where to put the node's data; default: a temporary directory
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench adversary`
#[derive(Debug, Args)]
pub struct AdversaryArgs {
    /// Smaller attacks, about a minute
    #[arg(long)]
    pub quick: bool,
    /// Seed of the messages and statements; printed when something breaks
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Only attacks whose name contains this text
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Where to put the node's data; default: a temporary directory
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench soak`
#[derive(Debug, Args)]
pub struct SoakArgs {
    /// How long
    #[arg(long, default_value_t = 30.0)]
    pub minutes: f64,
    /// Messages a second, each to four receivers
    #[arg(long, default_value_t = 2000.0)]
    pub rate: f64,
    /// Seed of the messages
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Where to put the node's data; default: a temporary directory
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench put`
#[derive(Debug, Args)]
pub struct PutArgs {
    /// A small run of some 10 seconds
    #[arg(long)]
    pub quick: bool,
    /// How many wait for their puts at once, separated by commas [default: 1,16,128]
    #[arg(long, value_name = "N,N...", value_delimiter = ',')]
    pub committers: Vec<usize>,
    /// Length of a turn, in seconds [default: 2, with --quick 0.3]
    #[arg(long, value_name = "SECONDS")]
    pub seconds: Option<f64>,
    /// Turns of each [default: 5, with --quick 3]
    #[arg(long)]
    pub rounds: Option<usize>,
    /// Where to put the pages, in a folder that is removed afterwards; default: below this directory
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Where to put the journal: a faster disk, or with --pmem a mount of persistent memory; default: beside the pages
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
    /// Map the journal's place as persistent memory; emulated, and reported as such, if the file system cannot
    #[arg(long)]
    pub pmem: bool,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench encryption`
#[derive(Debug, Args)]
pub struct EncryptionArgs {
    /// A small run of about a minute, whose figures say nothing
    #[arg(long)]
    pub quick: bool,
    /// Pairs of turns [default: 20, with --quick 2]
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench profile`
#[derive(Debug, Args)]
pub struct ProfileArgs {
    /// A small run of about a minute, whose figures say nothing
    #[arg(long)]
    pub quick: bool,
    /// Pairs of turns [default: 20, with --quick 2]
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench console`
#[derive(Debug, Args)]
pub struct ConsoleArgs {
    /// A small run of about a minute, whose figures say nothing
    #[arg(long)]
    pub quick: bool,
    /// Pairs of turns [default: 20, with --quick 2]
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Open tabs beside a node that has nothing to do [default: 100, with --quick 10]
    #[arg(long)]
    pub tabs: Option<usize>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// A part of `terrace bench access`.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum AccessPartArg {
    /// Times of refusals that must not be told apart
    Timing,
    /// T4 and queries, with rights and without, in turns
    Cost,
    /// Bodies read by several users beside T4, and the audit of them
    Reads,
}

/// `terrace bench access`
#[derive(Debug, Args)]
pub struct AccessArgs {
    /// A small run of about a minute, whose figures say nothing
    #[arg(long)]
    pub quick: bool,
    /// Only this part
    #[arg(long, value_enum)]
    pub only: Option<AccessPartArg>,
    /// Samples of each refusal [default: 10000, with --quick 40]
    #[arg(long)]
    pub samples: Option<usize>,
    /// Pairs of turns [default: 20, with --quick 2]
    #[arg(long)]
    pub pairs: Option<usize>,
    /// Inbound services of T4 [default: 128, with --quick 4]
    #[arg(long)]
    pub services: Option<usize>,
    /// Messages sent to each of them [default: 400, with --quick 25]
    #[arg(long)]
    pub messages: Option<usize>,
    /// Bodies that are read [default: 100000, with --quick 200]
    #[arg(long)]
    pub reads: Option<usize>,
    /// Users that read them [default: 10]
    #[arg(long)]
    pub users: Option<usize>,
    /// A program of a release before rights, for the side without them; default: the program under test, where who asks has all
    /// rights
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Seed of everything random
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `terrace bench sqllogic`
#[derive(Debug, Args)]
pub struct SqllogicArgs {
    /// Folder with the scripts: select1.test, and folders index, random and evidence
    #[arg(long, value_name = "DIR")]
    pub scripts: PathBuf,
    /// Where a server listens; its tables are dropped between scripts, so take a node without any
    #[arg(long, value_name = "ADDRESS")]
    pub server: SocketAddr,
    /// The user that logs in, without a password: `trust = true` in [sql]
    #[arg(long, value_name = "NAME")]
    pub user: String,
    /// The seed with which scripts and queries are drawn
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Scripts of each folder below index and random
    #[arg(long, default_value_t = 4)]
    pub files: usize,
    /// Queries of each of those scripts
    #[arg(long, default_value_t = 1000)]
    pub queries: usize,
    /// Only scripts whose path contains this text
    #[arg(long, value_name = "TEXT")]
    pub only: Option<String>,
    /// Write the result to a file as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}
