//! The arguments of `terrace todo`.

use clap::Subcommand;

use super::Place;

/// `terrace todo ...`
#[derive(Debug, Subcommand)]
pub enum TodoCommand {
    /// List the messages that need a person, oldest first: why, who takes care of each, and the last comment
    ///
    /// On the list are messages on which a rule or transform failed, that no rule matched, or with an output that failed or was set
    /// aside. A message that was sent again or reprocessed since is on it no more, and one that is done only with --done.
    #[command(verbatim_doc_comment)]
    List {
        /// Only those that this role or user takes care of
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
        /// Also those that are done
        #[arg(long)]
        done: bool,
        /// Show so many; 0 = all
        #[arg(long, short = 'n', default_value_t = 50)]
        limit: usize,
        #[command(flatten)]
        place: Place,
        /// Print JSON, one message a line
        #[arg(long)]
        json: bool,
    },
    /// Take care of a message, also in the place of another
    Take {
        /// Its id
        id: u64,
        #[command(flatten)]
        place: Place,
    },
    /// Have a user or a role take care of a message, also in the place of another
    ///
    ///   terrace todo assign 8240 ann
    #[command(verbatim_doc_comment)]
    Assign {
        /// Its id
        id: u64,
        /// Name of a user or role of the node; `terrace user list` shows them
        user: String,
        #[command(flatten)]
        place: Place,
    },
    /// Say something about a message; it is shown with the list, so no patient data belongs in it
    Comment {
        /// Its id
        id: u64,
        /// What
        text: String,
        #[command(flatten)]
        place: Place,
    },
    /// Mark a message as done: nothing more has to be done about it
    Done {
        /// Its id
        id: u64,
        #[command(flatten)]
        place: Place,
    },
}
