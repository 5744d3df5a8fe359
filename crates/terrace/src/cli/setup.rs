//! The command lines of `terrace init`, `doctor`, `completions` and `man-pages`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `terrace init`
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder to make it in [default: this one]
    pub dir: Option<PathBuf>,
    /// The layout of the package: /etc/terrace, /var/lib/terrace, run by the user terrace; needs root
    #[arg(long)]
    pub system: bool,
    /// With --system: the user that the node runs as
    #[arg(long, value_name = "NAME", default_value = "terrace", requires = "system")]
    pub user: String,
    /// With --system: make the layout below this folder instead of /, as for an image
    #[arg(long, value_name = "DIR", requires = "system", conflicts_with = "dir")]
    pub root: Option<PathBuf>,
}

/// `terrace doctor`
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Settings file [default: terrace.toml in this directory, else /etc/terrace/terrace.toml, if there is one]
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Data directory, instead of the one in the settings
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Production folder, instead of the one in the settings
    #[arg(long, value_name = "DIR")]
    pub production: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `terrace completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Of which shell
    #[arg(value_enum)]
    pub shell: CompletionShell,
}

/// Shells whose completions can be printed.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum CompletionShell {
    /// bash
    Bash,
    /// zsh
    Zsh,
    /// fish
    Fish,
}

/// `terrace man-pages`
#[derive(Debug, Args)]
pub struct ManPagesArgs {
    /// The folder to write them to; made when absent
    pub dir: PathBuf,
}
