//! The arguments of `terrace message reprocess`.

use clap::{Args, ValueEnum};

use super::Place;

/// `terrace message reprocess`
#[derive(Debug, Args)]
pub struct ReprocessArgs {
    /// Ids of messages
    #[arg(value_name = "ID", required_unless_present = "status", conflicts_with = "status")]
    pub ids: Vec<u64>,
    /// All messages with this status
    #[arg(long, value_enum)]
    pub status: Option<FewName>,
    /// Only from this service
    #[arg(long, requires = "status")]
    pub service: Option<String>,
    /// Only received since: a time as 2026-11-21T08:00, or an age as 2h
    #[arg(long, requires = "status", value_name = "TIME")]
    pub since: Option<String>,
    /// Only received before: a time or an age
    #[arg(long, requires = "status", value_name = "TIME")]
    pub until: Option<String>,
    /// So many messages at most; 0 = all
    #[arg(long, requires = "status", default_value_t = 0, value_name = "N")]
    pub limit: usize,
    /// Show what would go where, and send nothing
    #[arg(long)]
    pub preview: bool,
    /// An idempotency key: under the same one no message is sent twice
    #[arg(long, value_name = "TEXT")]
    pub key: Option<String>,
    /// Only by this generation of the production, which a preview told
    #[arg(long, value_name = "N")]
    pub generation: Option<u32>,
    #[command(flatten)]
    pub place: Place,
    /// Print JSON, one message a line
    #[arg(long)]
    pub json: bool,
}

/// Statuses that few messages have.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum FewName {
    /// A rule or transform failed on it
    Errored,
    /// No rule matched
    Unmatched,
    /// It was refused with AR
    Rejected,
    /// A rule dropped it
    Dropped,
}
