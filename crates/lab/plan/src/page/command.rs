//! The command line of `terrace plan page`.

use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Args;

use super::page;
use crate::mix::report::PlanReport;
use crate::output::print;

/// The largest plan, bytes.
const PLAN_BYTES_MAX: u64 = 64 << 20;

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
        let context = || format!("reading {}", self.plan.display());
        let mut text = String::new();
        File::open(&self.plan)
            .with_context(context)?
            .take(PLAN_BYTES_MAX + 1)
            .read_to_string(&mut text)
            .with_context(context)?;
        ensure!(text.len() as u64 <= PLAN_BYTES_MAX, "{} has more than {PLAN_BYTES_MAX} bytes", self.plan.display());
        let plan: PlanReport =
            serde_json::from_str(&text).with_context(|| format!("{} is no plan of --json", self.plan.display()))?;
        write_page(&plan, &self.out, self.overwrite)?;
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
    let context = || format!("writing {}", out.display());
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let text = page(plan).with_context(context)?;
    let mut file = tempfile::NamedTempFile::new_in(folder).with_context(context)?;
    file.write_all(text.as_bytes()).with_context(context)?;
    file.as_file().sync_all().with_context(context)?;
    file.persist(out).with_context(context)?;
    File::open(folder).and_then(|folder| folder.sync_all()).with_context(context)
}
