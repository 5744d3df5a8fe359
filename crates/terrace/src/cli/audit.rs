//! The command line of `terrace audit`.

use clap::{Args, Subcommand, ValueEnum};
use node::audit::AuditHead;

use super::Place;

/// `terrace audit ...`
#[derive(Debug, Subcommand)]
pub enum AuditCommand {
    /// List entries, newest last
    List(AuditListArgs),
    /// Print one entry as JSON
    Show {
        /// Its number, as `list` shows it
        number: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Print entries for other programs, oldest first, one a line
    ///
    ///   terrace audit export --format syslog | logger --rfc5424 ...
    ///   terrace audit export --from 4711 --format jsonl
    #[command(verbatim_doc_comment)]
    Export(AuditExportArgs),
    /// Print number and hash of the newest entry; kept elsewhere, it shows later whether anything up to it was removed
    Head {
        #[command(flatten)]
        place: Place,
    },
    /// Check the chain: whether entries were deleted, reordered, changed or put in; exit code 1 if so
    ///
    /// Entries that were cut off at the end are found with a head that was kept elsewhere:
    ///
    ///   terrace audit head >> /elsewhere/heads
    ///   terrace audit verify --head "$(tail -n 1 /elsewhere/heads)"
    #[command(verbatim_doc_comment)]
    Verify {
        /// A head as `terrace audit head` printed it; may be given several times
        #[arg(long = "head", value_name = "NUMBER:HASH")]
        heads: Vec<AuditHead>,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
}

/// Which entries.
#[derive(Debug, Args)]
pub struct AuditFilterArgs {
    /// Only written at or after: a time as 2026-11-21T08:00, or an age as 2h
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only written before
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only by this actor: a name, uid:NUMBER, or node
    #[arg(long)]
    pub actor: Option<String>,
    /// Only of this action, or of those that begin with it: message, message.body
    #[arg(long)]
    pub action: Option<String>,
    /// Only about this object
    #[arg(long)]
    pub object: Option<String>,
    /// Only reads of this message
    #[arg(long, value_name = "ID")]
    pub message: Option<u64>,
    /// Only with this outcome
    #[arg(long, value_enum)]
    pub outcome: Option<OutcomeName>,
}

/// `terrace audit list`
#[derive(Debug, Args)]
pub struct AuditListArgs {
    #[command(flatten)]
    pub place: Place,
    /// Show the newest so many; 0 = all
    #[arg(long, short = 'n', default_value_t = 20)]
    pub last: usize,
    #[command(flatten)]
    pub filter: AuditFilterArgs,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// `terrace audit export`
#[derive(Debug, Args)]
pub struct AuditExportArgs {
    #[command(flatten)]
    pub place: Place,
    /// How each entry is written
    #[arg(long, value_enum, default_value = "jsonl")]
    pub format: ExportFormat,
    /// The number to begin with
    #[arg(long, value_name = "NUMBER")]
    pub from: Option<u64>,
    #[command(flatten)]
    pub filter: AuditFilterArgs,
}

/// Formats of an export.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ExportFormat {
    /// One JSON object a line
    Jsonl,
    /// RFC 5424
    Syslog,
}

/// Outcomes of an entry.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum OutcomeName {
    /// It was allowed
    Granted,
    /// It was not allowed
    Refused,
    /// It was allowed and could not be done
    Failed,
}
