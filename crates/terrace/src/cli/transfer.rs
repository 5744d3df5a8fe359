//! The arguments of `terrace message export` and `terrace message import`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{MessageFilterArgs, Place};

/// `terrace message export`
#[derive(Debug, Args)]
pub struct MessageExportArgs {
    /// The file to write; it must not be there
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,
    /// What the file is
    #[arg(long, value_enum, default_value_t = FormatName::Terrace)]
    pub format: FormatName,
    /// Masked bodies, also if you may see them as they are
    #[arg(long)]
    pub masked: bool,
    /// So many messages at most, the oldest; 0 = all
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub limit: u64,
    /// These messages; may be given several times
    #[arg(long = "id", value_name = "ID")]
    pub ids: Vec<u64>,
    /// What this search finds, 10,000 messages at most; as `terrace message search`
    #[arg(long, value_name = "QUERY", conflicts_with = "ids")]
    pub search: Option<String>,
    #[command(flatten)]
    pub filter: MessageFilterArgs,
    #[command(flatten)]
    pub place: Place,
}

/// Formats of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FormatName {
    /// Bodies as received, with what is known of each message, and checksums: for `terrace message import`
    Terrace,
    /// HL7 messages one after the other, segments ended by CR
    Hl7,
    /// The same with batch headers and trailers: FHS, BHS, BTS, FTS
    Batch,
}

/// `terrace message import`
#[derive(Debug, Args)]
pub struct MessageImportArgs {
    /// A file of `terrace message export`, a file of HL7 messages, or a folder of these (.messages, .hl7)
    pub file: PathBuf,
    /// The service that takes them; without it, that of the same name as where they came from
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// The time with which they are decided on and stored
    #[arg(long = "as", value_enum, default_value_t = ImportTime::Received)]
    pub time: ImportTime,
    /// Show what would become of each message, and store and send nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Take masked bodies too
    #[arg(long)]
    pub allow_masked: bool,
    /// Wait so many seconds for room in the queues of slow receivers, without any message being taken
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(0..=86_400))]
    pub patience: u64,
    #[command(flatten)]
    pub place: Place,
    /// Print JSON, one message a line
    #[arg(long)]
    pub json: bool,
}

/// Times of imported messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ImportTime {
    /// That of now, as messages that a sender sends now
    Received,
    /// That at which they were received where they come from, as far as the file has it
    Replay,
}
