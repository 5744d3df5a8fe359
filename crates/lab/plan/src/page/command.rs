//! The command line of `terrace plan page`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use super::page;
use crate::mix::report::PlanReport;
use crate::output::{print, read_plan, write_durably};

/// `terrace plan page`
#[derive(Debug, Args)]
pub struct PageArgs {
    /// The plan, as `terrace plan --json` printed it
    pub plan: PathBuf,
    /// The page to make
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Replace it, if it exists
    #[arg(long)]
    pub overwrite: bool,
}

impl PageArgs {
    /// Runs it.
    ///
    /// # Errors
    /// What cannot be done, with the reason.
    pub fn run(&self) -> anyhow::Result<ExitCode> {
        write_page(&read_plan(&self.plan)?, &self.out, self.overwrite)?;
        print(&format!("{}\n", self.out.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the page of a plan, under another name until it is whole and durable.
///
/// # Errors
/// The file exists and is not to be replaced; it cannot be written.
pub fn write_page(plan: &PlanReport, out: &Path, overwrite: bool) -> anyhow::Result<()> {
    ensure!(overwrite || !out.exists(), "{} exists; --overwrite replaces it", out.display());
    let text = page(plan).with_context(|| format!("writing {}", out.display()))?;
    write_durably(out, text.as_bytes())
}
