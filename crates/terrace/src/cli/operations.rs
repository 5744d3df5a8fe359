//! The arguments of `terrace operation`.

use clap::{Args, Subcommand};

use super::Place;

/// `terrace operation ...`
#[derive(Debug, Subcommand)]
pub enum OperationCommand {
    /// List the operations: how many messages wait in each, the oldest, and why they wait
    List {
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Show an operation lane by lane: connection, tries, the last answer, and the messages that go next
    Show {
        /// Name of the operation
        name: String,
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Suspend an operation; its messages wait
    Suspend(OperationArgs),
    /// Resume an operation; if it waits between two tries, it tries at once
    Resume(OperationArgs),
    /// Start an operation outside its schedule, up to a time; then its schedule counts again
    ///
    /// Ends a suspension as well. `suspend` and `resume` end it: a resumed operation follows its schedule. It stays so across a restart of
    /// the node, and is in the audit.
    ///
    ///   terrace operation start lab --until 2h
    ///   terrace operation start lab --until 2026-11-27T22:00
    #[command(verbatim_doc_comment)]
    Start {
        /// Name of the operation
        operation: String,
        /// Up to this time of this machine's clock, as 2026-11-27T22:00, or for so long, as 2h
        #[arg(long, value_name = "TIME")]
        until: String,
        #[command(flatten)]
        place: Place,
    },
    /// Set aside a message that holds up an operation; the next one goes on
    ///
    /// For a message that its receiver always refuses. It is never delivered by itself, keeps its place in the history (`terrace message
    /// list --output set-aside`), and can be sent again (`terrace message resend`). While it is being sent, its answer is waited for; if it
    /// is delivered then, it is not set aside.
    ///
    ///   terrace operation set-aside lab --reason "unknown patient, ticket 4711"    # the one at the head
    ///   terrace operation set-aside lab 88107 --reason "unknown patient"
    #[command(verbatim_doc_comment)]
    SetAside {
        /// Name of the operation
        operation: String,
        /// Id of a message that waits there; without it, the one at the head
        message: Option<u64>,
        /// Why; shown with the message, so no patient data belongs in it
        #[arg(long, value_name = "TEXT")]
        reason: String,
        #[command(flatten)]
        place: Place,
    },
}

/// An operation of a running node.
#[derive(Debug, Args)]
pub struct OperationArgs {
    /// Name of the operation
    pub name: String,
    #[command(flatten)]
    pub place: Place,
}
