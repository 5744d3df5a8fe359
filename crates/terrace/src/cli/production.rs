//! The arguments of `terrace production`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Place;

/// `terrace production ...`
#[derive(Debug, Subcommand)]
pub enum ProductionCommand {
    /// Report the faults of a production, with file, line and column; exit code 2 if there are any
    Check {
        /// The production folder
        dir: PathBuf,
        /// Also try to listen on each address (fails while a node runs there)
        #[arg(long)]
        ports: bool,
        /// The environment whose values are used; without it that of terrace.toml in the current directory
        #[arg(long, value_name = "NAME")]
        environment: Option<String>,
    },
    /// Write a small production to begin with
    New {
        /// The folder to make
        dir: PathBuf,
    },
    /// The same as `terrace reload`
    Reload(Place),
    /// List the generations of the production: what was loaded when, by whom
    ///
    /// Each start and each reload with a changed folder makes a generation. Its files are kept in the store; each message names the
    /// generation that decided about it (`terrace message trace`).
    #[command(verbatim_doc_comment)]
    Generations(GenerationListArgs),
    /// Show what differs between two generations, or a generation and the folder as it is now
    ///
    ///   terrace production diff 40 41
    ///   terrace production diff 41             # with the folder: what a reload would change
    ///   terrace production diff 40 disk        # the same
    ///
    /// Exit code 1 if something differs. Entries of lookup tables are shown to who has the right unmasked on all services.
    #[command(verbatim_doc_comment)]
    Diff {
        /// A generation
        from: String,
        /// Another one, or `disk` for the folder as it is now
        #[arg(default_value = "disk")]
        to: String,
        /// Print JSON
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Load an earlier generation again, as a new one
    ///
    /// The folder of the production stays as it is: the next reload or start loads that. Write the generation to a folder with --write,
    /// and copy it over the production, or check the earlier commit out.
    ///
    ///   terrace production diff 40 41          # what would change
    ///   terrace production back 40
    ///   terrace production back 40 --write generation-40
    #[command(verbatim_doc_comment)]
    Back {
        /// The generation to go back to
        generation: u32,
        /// Also write its files to this folder, which must not be there yet
        #[arg(long, value_name = "DIR")]
        write: Option<PathBuf>,
        #[command(flatten)]
        place: Place,
    },
}

/// `terrace production generations`
#[derive(Debug, Args)]
pub struct GenerationListArgs {
    /// The newest so many
    #[arg(short = 'n', long, default_value_t = 20, value_name = "N")]
    pub last: usize,
    /// Print JSON, the newest first
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: Place,
}
