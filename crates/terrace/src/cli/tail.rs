//! `terrace message tail` on the command line.

use clap::Args;

use crate::place::Place;

/// `terrace message tail`
#[derive(Debug, Args)]
pub struct MessageTailArgs {
    #[command(flatten)]
    pub place: Place,
    /// Only messages of this service
    #[arg(long, value_name = "NAME")]
    pub service: Option<String>,
    /// Only messages with an output to this operation, and the outcomes of those
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// Only of this type: ADT, or with its event ADT^A01
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// With the message as received, up to 256 KiB of it; each one has its place in an entry of the audit
    #[arg(long)]
    pub bodies: bool,
    /// Begin with the stored messages from this id on; `now`: with what comes
    #[arg(long, default_value = "now", value_name = "ID|now")]
    pub from: String,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
}
