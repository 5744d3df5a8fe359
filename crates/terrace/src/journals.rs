//! `terrace inspect`: prints the content of a medium, whether a node runs on it or not.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use device::FileShelf;
use journal::{Inspect, Lsn, View};
use node::{NodeError, location};

use crate::cli::InspectCommand;
use crate::terminal;

/// The journal of a data directory, on whatever tier it lies, or the directory itself where it is a journal.
fn journal_directory(dir: &Path) -> anyhow::Result<PathBuf> {
    match location::journal_folder(dir) {
        Ok(folder) => Ok(folder),
        Err(NodeError::NoData { .. }) => Ok(dir.to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// Devices of a file or a persistent-memory tier are files, and are read as such; nothing is locked or changed.
fn view(dir: &Path) -> anyhow::Result<View> {
    let dir = journal_directory(dir)?;
    let shelf = FileShelf::open_read_only(&dir).with_context(|| format!("no journal in {}", dir.display()))?;
    Ok(View::open(Arc::new(shelf))?)
}

/// Prints segments, batches and records in order, and how the log ends.
pub fn inspect(command: InspectCommand) -> anyhow::Result<ExitCode> {
    let InspectCommand::Journal { dir, from, payload } = command;
    let view = view(&dir)?;
    let mut out = BufWriter::new(terminal::out());
    journal::inspect(&view, &mut out, Inspect { from: Lsn(from), payload_bytes: payload })?;
    out.flush()?;
    Ok(if view.corruption().is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
