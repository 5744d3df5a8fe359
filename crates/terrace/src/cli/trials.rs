//! The arguments of `terrace transform` and `terrace rules`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::MessageListArgs;

/// `terrace transform ...`
#[derive(Debug, Subcommand)]
pub enum TransformCommand {
    /// Try a transform on stored messages, or on those of a file, and show what it changes
    ///
    /// Change the file in the production's folder, try it, and load it with `terrace reload` when it does what it should. Each message
    /// is decided on anew with the production of the folder; outputs of the transform are compared with those that were sent. Nothing
    /// is sent or stored.
    ///
    ///   terrace transform try to-lab                                # the newest 20 stored messages
    ///   terrace transform try to-lab -n 200 --type 'ADT^A01' --where PID-8=F
    ///   terrace transform try to-lab --file admission.hl7           # without a node
    ///
    /// Exit code 1 if it fails on a message, 2 if the production has faults.
    #[command(verbatim_doc_comment)]
    Try {
        /// The transform's name: the file transforms/NAME.hl7t of the production
        name: String,
        #[command(flatten)]
        args: TrialArgs,
    },
}

/// `terrace rules ...`
#[derive(Debug, Subcommand)]
pub enum RulesCommand {
    /// Try the rules of a production on stored messages, or on those of a file, and show what is decided otherwise
    ///
    /// Each message is decided on anew with the production of the folder: its rules, transforms and tables. Decision and outputs are
    /// compared with what was decided then. Nothing is sent or stored.
    ///
    ///   terrace rules try main                                      # the newest 20 stored messages
    ///   terrace rules try main --status errored --since 2d -n 0     # do they pass now?
    ///   terrace rules try main --file admission.hl7 --service inbound
    ///
    /// Exit code 1 if a rule or a transform fails on a message, 2 if the production has faults.
    #[command(verbatim_doc_comment)]
    Try {
        /// The name of the rules: the file rules/NAME.rules of the production
        name: String,
        #[command(flatten)]
        args: TrialArgs,
    },
}

/// What is tried, and on what.
#[derive(Debug, Args)]
pub struct TrialArgs {
    /// The production's folder
    #[arg(long, default_value = "production", value_name = "DIR")]
    pub production: PathBuf,
    /// A file with one message or a batch, instead of stored messages; with --service, as if they came in there
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Show so many messages that differ or fail; 0 = all
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub show: usize,
    #[command(flatten)]
    pub wanted: MessageListArgs,
}
