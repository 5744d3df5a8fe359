//! The option by which commands find a node.

use std::path::PathBuf;

use clap::Args;

/// Where a node keeps its data.
#[derive(Debug, Clone, Args)]
pub struct Place {
    /// The node's data directory
    #[arg(long, default_value = "terrace-data", value_name = "DIR")]
    pub data: PathBuf,
}
