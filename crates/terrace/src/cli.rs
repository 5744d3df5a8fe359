//! The command line. Scripts rely on the names and keys here.

mod audit;
mod encryption;
mod message_filter;
mod operations;
mod production;
mod reprocess;
mod setup;
mod states;
mod tail;
mod todo;
mod transfer;
mod trials;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::alerts::AlertCommand;
use crate::connections::ConnectionCommand;
use crate::history::HistoryArgs;
use crate::identity::{RoleCommand, UserCommand};
pub use crate::place::Place;
use crate::tiers::TierCommand;
use crate::volumes::VolumeCommand;

pub use encryption::{EncryptionCommand, RewriteArgs};
pub use message_filter::MessageFilterArgs;
pub use operations::OperationCommand;
pub use production::{GenerationListArgs, ProductionCommand};
pub use reprocess::{FewName, ReprocessArgs};
pub use setup::{CompletionShell, CompletionsArgs, DoctorArgs, InitArgs, ManPagesArgs};
pub use states::{OutputName, StatusName};
pub use tail::MessageTailArgs;
pub use todo::TodoCommand;
pub use transfer::{FormatName, ImportTime, MessageExportArgs, MessageImportArgs};
pub use trials::{RulesCommand, TransformCommand, TrialArgs};

pub use audit::{AuditCommand, AuditExportArgs, AuditFilterArgs, AuditListArgs, ExportFormat, OutcomeName};

/// A data platform for machines with more than one kind of memory.
///
/// Try it: `terrace demo`. Run it: `terrace serve`. Every command explains itself with --help.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100)]
pub struct Cli {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// Commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show it working: a node in a temporary directory, messages through it over real sockets, a summary
    Demo(DemoArgs),
    /// Make what a first node needs: settings, data directory, a production to begin with
    ///
    /// Nothing is asked and nothing overwritten: a second run changes nothing. Exit code 1 if something was
    /// there that a node cannot use; the command that corrects it is printed.
    ///
    ///   terrace init hospital                   # ./hospital/terrace.toml, terrace-data, production
    ///   sudo terrace init --system              # /etc/terrace, /var/lib/terrace, as the package has it
    #[command(verbatim_doc_comment)]
    Init(InitArgs),
    /// Run a node
    ///
    /// Settings come from terrace.toml if it exists, else from defaults: data in ./terrace-data, the production in
    /// ./production. Without a production folder, one MLLP service on 127.0.0.1:2575 stores every message.
    Serve(ServeArgs),
    /// Check settings, data directory and machine, and say for each finding what to do
    ///
    /// Works with and without a running node, and changes nothing; a file of 4 KiB is written to the data
    /// directory for a moment, to see how long a flush takes. Exit code 0: all is fine; 1: there are
    /// warnings; 2: there is a problem with which a node does not run, or not safely.
    ///
    ///   terrace doctor
    ///   terrace doctor --config /etc/terrace/terrace.toml --json
    #[command(verbatim_doc_comment)]
    Doctor(DoctorArgs),
    /// Stop the node that runs on a data directory, and wait until it has ended
    Stop(Place),
    /// Show the status of the node that runs on a data directory; exit code 1 if it has troubles
    Status(StatusArgs),
    /// Make a running node read its production and the certificates of all its ports again; connections stay open
    Reload(Place),
    /// Confirm that the clock is right, after `terrace status` has reported that it is in doubt
    #[command(subcommand)]
    Clock(ClockCommand),
    /// Check, begin or reload a production: the folder of text files that defines what the engine does
    #[command(subcommand)]
    Production(ProductionCommand),
    /// Show the operations of a running node and why messages wait; suspend and resume one, set a message aside
    #[command(subcommand)]
    Operation(OperationCommand),
    /// Try a changed transform on messages before it is loaded
    #[command(subcommand)]
    Transform(TransformCommand),
    /// Try changed rules on messages before they are loaded
    #[command(subcommand)]
    Rules(RulesCommand),
    /// List and show stored messages, send one, send stored ones again
    #[command(subcommand)]
    Message(MessageCommand),
    /// Messages that need a person: errored, failed, set aside, or matched by no rule, and not sent again since
    #[command(subcommand)]
    Todo(TodoCommand),
    /// Show, export and check the audit: who read which body, who changed what
    #[command(subcommand)]
    Audit(AuditCommand),
    /// List the connections of a running node, of every port, and end one
    #[command(subcommand)]
    Connection(ConnectionCommand),
    /// List alerts of a running node, silence them for a time, show what was
    #[command(subcommand)]
    Alert(AlertCommand),
    /// Show how a figure of a running node was: an hour by 10 seconds, up to a year by days
    ///
    ///   terrace history                       all figures, with least, mean and most of the last hour
    ///   terrace history intake --range 1d     messages each second, of the last day
    #[command(verbatim_doc_comment)]
    History(HistoryArgs),
    /// Make, lock and drop the users of a running node
    #[command(subcommand)]
    User(UserCommand),
    /// Group users, and grant rights to them
    #[command(subcommand)]
    Role(RoleCommand),
    /// Make an encrypted data directory, show and change its keys
    #[command(subcommand)]
    Encryption(EncryptionCommand),
    /// Prepare settings of the SQL service
    #[command(subcommand)]
    Sql(SqlCommand),
    /// Show the memory and disks of this machine, and divide its persistent memory
    #[command(subcommand)]
    Tier(TierCommand),
    /// Make, export and watch block volumes: mirrors of one to three copies, over NBD
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Make and show profiles: what a workload uses, for planning the media that it needs
    ///
    /// A profile has counts by hour, how soon what was used is used again, and a sample of the accesses. It
    /// contains no key and no message. See docs/planner.md.
    #[command(subcommand)]
    Profile(crate::profiles::NodeProfileCommand),
    /// Find the cheapest mix of media that meets a target, from a profile, a server and prices
    ///
    ///   terrace plan --profile week.tprof --server server.toml --prices prices.toml --p99-commit 1ms --rate 8000/s
    ///   terrace plan --profile week.tprof --machine machine.json --dram ddr5 --have 2xnvme-p4510 --out plan
    ///   terrace plan --messages-per-day 2M --message-size 4KiB --retention 90d --server server.toml
    ///   terrace plan show plan/plan.json
    ///
    /// The table has the mixes that no other one beats, what binds, and what is bought in vain; then when the
    /// answer changes, and how sure each figure is. What the profile lacks is refused by name. See docs/planner.md.
    #[command(verbatim_doc_comment)]
    Plan(Box<plan::PlanArgs>),
    /// Measure: workloads whose results are printed beside published figures; `terrace bench --help` lists them
    ///
    /// The measurements are a program of their own, terrace-lab, beside this one or on the PATH. It is built by
    /// `cargo build --release --package bench`.
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
    /// Print the completions of a shell
    ///
    ///   terrace completions bash > /etc/bash_completion.d/terrace
    ///   terrace completions zsh  > ~/.zfunc/_terrace
    ///   terrace completions fish > ~/.config/fish/completions/terrace.fish
    #[command(verbatim_doc_comment)]
    Completions(CompletionsArgs),
    /// Write the manual pages, for packages
    #[command(name = "man-pages", hide = true)]
    ManPages(ManPagesArgs),
    /// The load of t4, started by it as a process of its own
    #[command(name = "t4-load", hide = true)]
    T4Load {
        /// Its settings as JSON
        settings: String,
    },
    /// Print the content of a medium
    #[command(subcommand)]
    Inspect(InspectCommand),
    /// Check everything that a node or a backup has stored; exit code 1 if something is damaged
    ///
    /// Reads all stored data and reports damage: the journal with every checksum, write images, each
    /// page, extent and tree, the rows of each message against every index entry, the chain of the
    /// audit, and the rows of SQL tables.
    ///
    /// A running node checks itself and keeps working; no checkpoint begins while its pages are read, so
    /// it accepts changes only as long as its cache can hold them. Its SQL tables are not read. For a
    /// stopped node or a backup the files are read, and recovered in memory: nothing on the medium changes.
    ///
    ///   terrace verify                          # ./terrace-data
    ///   terrace verify /var/lib/terrace
    ///   terrace verify /backup/monday --json
    #[command(verbatim_doc_comment)]
    Verify(VerifyArgs),
    /// Copy all that a node has stored to an empty folder, while it runs or not
    ///
    /// A backup contains one moment of all stored data: messages, queues, SQL tables. The node keeps
    /// working meanwhile. A backup does not contain settings, the production and volumes (copy a volume as a
    /// client of its export: `nbdcopy`, `qemu-img convert`). `terrace verify` checks
    /// a backup as it checks a node, and `terrace restore` makes a node's data of it again:
    ///
    ///   terrace backup /backup/monday --data /var/lib/terrace
    ///   terrace verify /backup/monday
    ///   terrace restore /backup/monday --to /var/lib/terrace-new
    #[command(verbatim_doc_comment)]
    Backup(BackupArgs),
    /// Repair damaged data of a stopped node, or give it up and list it by name
    ///
    /// Without --apply nothing is changed: it shows the damage, the data that would be repaired, and each
    /// message and row that would be given up. Data is restored from other stored data and, with
    /// --backup, from the backup: all of it if the node's journal reaches back to the backup (`[journal]
    /// keep` of terrace.toml), else the data that checksums prove to be the same.
    ///
    ///   terrace verify /var/lib/terrace         # shows the damage
    ///   terrace stop --data /var/lib/terrace
    ///   terrace repair /var/lib/terrace --backup /backup/monday
    ///   terrace repair /var/lib/terrace --backup /backup/monday --apply
    #[command(verbatim_doc_comment)]
    Repair(RepairArgs),
    /// Make a node's data of a backup, as it was at its end or at another moment
    ///
    /// The backup is checked first; a damaged one is refused, with the place. Without --until the data
    /// is as at the end of its journal. With the journal of the node itself, as far as the node kept it
    /// (`[journal] keep` of terrace.toml), every later moment can be restored as well:
    ///
    ///   terrace restore /backup/monday --to /var/lib/terrace-new
    ///   terrace restore /backup/monday --to new --journal /var/lib/terrace --until 2026-11-21T08:00
    ///   terrace serve --data new
    ///
    /// Outputs that waited for delivery at that moment wait again: a node that is started on the data
    /// sends them, even if they have been delivered since. To prevent that, remove the operations from
    /// its production, or disconnect their receivers.
    #[command(verbatim_doc_comment)]
    Restore(RestoreArgs),
}

/// `terrace verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A node's data directory, or a backup [default: terrace-data]
    pub dir: Option<PathBuf>,
    /// The same, as other commands name it
    #[arg(long, value_name = "DIR", conflicts_with = "dir")]
    pub data: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `terrace repair`
#[derive(Debug, Args)]
pub struct RepairArgs {
    /// The node's data directory
    pub data: PathBuf,
    /// A backup of this node, from which lost data is taken
    #[arg(long, value_name = "DIR")]
    pub backup: Option<PathBuf>,
    /// Repair; without this option the repair is only shown
    #[arg(long)]
    pub apply: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `terrace backup`
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The folder to make; it must be empty or not exist
    pub to: PathBuf,
    #[command(flatten)]
    pub place: Place,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `terrace restore`
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup's folder
    pub backup: PathBuf,
    /// The data directory to make; journal, images and pages go below it
    #[arg(long, value_name = "DIR")]
    pub to: PathBuf,
    /// The moment: a time as 2026-11-21T08:00, an age as 2h, or a position (LSN); its record is not included
    #[arg(long, value_name = "TIME|LSN")]
    pub until: Option<String>,
    /// A node's data directory, or a later backup, whose journal continues that of the backup
    #[arg(long, value_name = "DIR")]
    pub journal: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `terrace clock`
#[derive(Debug, Subcommand)]
pub enum ClockCommand {
    /// Confirm that the clock is right: messages are then removed by age according to it
    Confirm(Place),
}

/// `terrace sql`
#[derive(Debug, Subcommand)]
pub enum SqlCommand {
    /// Read a password from standard input and print its verifier, for `[sql.users]` of terrace.toml
    ///
    /// PostgreSQL stores the same verifier (SCRAM-SHA-256). It cannot be used to log in.
    Verifier,
}

/// `terrace bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Command and options of the measurement, passed to terrace-lab unchanged
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
    pub arguments: Vec<OsString>,
}

/// `terrace demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// End after the summary instead of leaving the node running
    #[arg(long)]
    pub exit: bool,
}

/// `terrace serve`
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Settings file; default: terrace.toml in this directory, if there is one
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data directory, made when absent
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Production folder
    #[arg(long, value_name = "DIR")]
    pub production: Option<PathBuf>,
    /// How outputs are stored: only what a transform changed, or whole
    #[arg(long, value_enum)]
    pub bodies: Option<Bodies>,
}

/// How outputs are stored.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Bodies {
    /// Only what changed
    Delta,
    /// Whole
    Full,
}

/// `terrace status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub place: Place,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `terrace message ...`
#[derive(Debug, Subcommand)]
pub enum MessageCommand {
    /// List stored messages, newest last
    List(MessageListArgs),
    /// Search stored messages by words and fields; needs a running node with [search] in terrace.toml
    ///
    ///   terrace message search 'MRN:12345 AND type:ORU*'
    ///   terrace message search potassium ADAMS            # both words, anywhere in a message
    ///   terrace message search '"chest pain"' --since 2d
    ///
    /// Fields: received service status type event control_id sender mrn name visit order accession code
    /// segments text, and those of [search.index]. AND, OR, NOT, quotes, * and ranges as [A TO B] work as
    /// in Elasticsearch. Words without a field are searched in the whole message.
    #[command(verbatim_doc_comment)]
    Search(MessageSearchArgs),
    /// Print one message: as received, or one of its outputs
    Show {
        /// Its id, as `list` shows it
        id: u64,
        /// The output to this operation instead of the message as received
        #[arg(long, value_name = "OPERATION")]
        output: Option<String>,
        /// The exact bytes, with CR between segments, instead of lines; on a terminal control characters are shown, not sent
        #[arg(long)]
        raw: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Print the history of one message: the rule that matched, the transforms, its deliveries, and why it still waits
    Trace {
        /// Its id
        id: u64,
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show messages as they are stored, and outcomes as they are recorded, until Ctrl-C; needs a running node
    ///
    ///   terrace message tail
    ///   terrace message tail --service adt --type ADT^A01
    ///   terrace message tail --operation lab --bodies
    ///   terrace message tail --from 8240 --json | jq 'select(.event == "outcome")'
    ///
    /// A line for each message: when, id, service, type, control id, the decision and where it goes. A line for each
    /// outcome: the operation, what became of the output, and how long that took since the message came in. It is in
    /// the order in which they became durable, and nothing is left out silently: who reads too slowly is told how
    /// many were. The flow of messages never waits for it. It ends when a right to what it shows is revoked.
    #[command(verbatim_doc_comment)]
    Tail(MessageTailArgs),
    /// Send a stored message's outputs again, as a new message, or an edited body in their place
    ///
    ///   terrace message resend 8240                     # as it was sent, to all operations
    ///   terrace message resend 8240 --to lab
    ///   terrace message show 8240 --output lab --raw >m.hl7; vi m.hl7
    ///   terrace message resend 8240 --to lab --edited m.hl7
    ///
    /// The new message names the old one, and the trace of the old one shows the new one. An edited body is sent as it is in the
    /// file: no rule and no transform sees it. It needs the rights message-edit, message-body and unmasked.
    #[command(verbatim_doc_comment)]
    Resend {
        /// Its id
        id: u64,
        /// Only to these operations
        #[arg(long, value_name = "OPERATION")]
        to: Vec<String>,
        /// A file with the body to send: one message
        #[arg(long, value_name = "FILE")]
        edited: Option<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
    /// Decide on stored messages anew, with the production that is loaded
    ///
    /// For messages on which a rule or a transform failed, once that is put right and loaded. What is routed now goes out as a new
    /// message, which names the old one. Of a message that fails again, or that no rule matches, nothing is stored.
    ///
    ///   terrace message reprocess --status errored --preview          # what would go where; nothing is sent
    ///   terrace message reprocess --status errored --since 2d
    ///   terrace message reprocess 8240 16432 --key "ticket 4711"      # again with this key: nothing is sent twice
    ///
    /// A search goes page by page, oldest first, and leaves out what was reprocessed before. Interrupted, it is finished by the same
    /// command with the key that it printed. Exit code 1 if a message could not be sent on.
    #[command(verbatim_doc_comment)]
    Reprocess(ReprocessArgs),
    /// Write messages with their bodies to a file: for another system, or for one of tests
    ///
    ///   terrace message export --mrn 4711 --out case.messages
    ///   terrace message export --search 'MRN:4711 AND type:ORU*' --out case.messages
    ///   terrace message export --service adt --since 1d --format batch --out adt.hl7
    ///   terrace message export --since 2h --masked --out for-tests.messages
    ///
    /// Oldest first, page by page: also of millions, while the node works. Messages that come meanwhile are not in it. A file
    /// of the format terrace has checksums and an end, so that one that was cut is not imported. It is not encrypted: keep it
    /// as you keep patient data. Needs message-metadata, message-body and unmasked on the services of the messages, and with
    /// --masked no unmasked; messages of other services are not in the file. Each page is in the audit. Exit code 1 if
    /// messages that belong to it are not in the file.
    #[command(verbatim_doc_comment)]
    Export(MessageExportArgs),
    /// Take the messages of a file into a service of a running node, in their order
    ///
    ///   terrace message import case.messages --dry-run
    ///   terrace message import case.messages                     # into the services of the same names
    ///   terrace message import mirth-export/ --service adt       # files of HL7, with or without batch headers
    ///
    /// As if a sender sent them now: the rules and transforms that are loaded decide, and what they route goes out. With
    /// --as replay, with the time at which they were received where they come from. The same file imported twice stores nothing
    /// twice; interrupted, the same command goes on. A file that is damaged or cut is refused before a message of it is taken.
    /// Needs message-import on the service. Exit code 1 if a message was not taken, was refused, or fails in a rule or transform.
    #[command(verbatim_doc_comment)]
    Import(MessageImportArgs),
    /// Send a file over MLLP and print the acknowledgement; exit code 1 unless it is AA or CA
    Send {
        /// The file: one message or a batch, segments ended by CR, LF or CRLF; `-` = standard input
        file: PathBuf,
        /// Where to, as 127.0.0.1:2575
        #[arg(long, default_value = "127.0.0.1:2575", value_name = "ADDRESS")]
        to: SocketAddr,
    },
    /// Count the stored messages and outputs
    Count {
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

/// `terrace message search`
#[derive(Debug, Args)]
pub struct MessageSearchArgs {
    /// What to look for
    #[arg(required = true)]
    pub query: Vec<String>,
    #[command(flatten)]
    pub place: Place,
    /// Show the newest so many, up to 10000
    #[arg(long, short = 'n', default_value_t = 20)]
    pub last: usize,
    /// Show those that match best, not the newest
    #[arg(long)]
    pub best: bool,
    /// Only received at or after: a time as 2026-11-21T08:00, or an age as 2h
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only received before
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// End the search after so many seconds, 30 where nothing is said
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout: Option<u64>,
    /// Print JSON, one message a line, the best or the newest first
    #[arg(long)]
    pub json: bool,
}

/// `terrace message list`
#[derive(Debug, Args)]
pub struct MessageListArgs {
    #[command(flatten)]
    pub place: Place,
    /// Show the newest so many; 0 = all
    #[arg(long, short = 'n', default_value_t = 20)]
    pub last: usize,
    #[command(flatten)]
    pub filter: MessageFilterArgs,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `terrace inspect ...`
#[derive(Debug, Subcommand)]
pub enum InspectCommand {
    /// Segments and records of a journal
    Journal {
        /// The node's data directory, or the journal directory itself
        dir: PathBuf,
        /// Leave out records that end before this position
        #[arg(long, default_value_t = 0, value_name = "LSN")]
        from: u64,
        /// Show so many bytes of each record; they may be patient data
        #[arg(long, default_value_t = 0, value_name = "BYTES")]
        payload: usize,
    },
}
