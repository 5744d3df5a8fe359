//! The options that select stored messages, the same for each command that has them.

use clap::Args;

use super::{OutputName, StatusName};

/// What messages have to be like; all of it together.
#[derive(Debug, Args)]
pub struct MessageFilterArgs {
    /// Only from this service
    #[arg(long)]
    pub service: Option<String>,
    /// Only with this status
    #[arg(long, value_enum)]
    pub status: Option<StatusName>,
    /// Only with an output in this state
    #[arg(long, value_enum)]
    pub output: Option<OutputName>,
    /// Only with this control id (MSH-10)
    #[arg(long, alias = "control-id", value_name = "ID")]
    pub control: Option<String>,
    /// Only of the patient with this number (PID-3.1, any repetition)
    #[arg(long, value_name = "NUMBER")]
    pub mrn: Option<String>,
    /// Only of this type: ADT, or with its event ADT^A01
    #[arg(long = "type", value_name = "TYPE")]
    pub kind: Option<String>,
    /// Only from this service or to this operation
    #[arg(long, value_name = "NAME")]
    pub interface: Option<String>,
    /// Only where a path has a value, as PID-3.1=4711; may be given several times
    #[arg(long = "where", value_name = "PATH=VALUE")]
    pub wanted: Vec<String>,
    /// Only received since: a time as 2026-11-21T08:00, or an age as 2h
    #[arg(long)]
    pub since: Option<String>,
    /// Only received before: a time or an age
    #[arg(long)]
    pub until: Option<String>,
}
