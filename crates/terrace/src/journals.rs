//! `terrace inspect` and `terrace verify`: what is on a medium, whether a node runs on it or not.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use device::FileShelf;
use interop::history::History;
use interop::{InteropError, location};
use journal::{Inspect, Lsn, View};

use crate::cli::{InspectCommand, Place};
use crate::show::{Table, bytes, count};

/// The journal of a data directory, on whatever tier it lies, or the directory itself where it is a journal.
fn journal_directory(dir: &Path) -> anyhow::Result<PathBuf> {
    match location::journal_folder(dir) {
        Ok(folder) => Ok(folder),
        Err(InteropError::NoData { .. }) => Ok(dir.to_owned()),
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
    let mut out = BufWriter::new(std::io::stdout().lock());
    journal::inspect(&view, &mut out, Inspect { from: Lsn(from), payload_bytes: payload })?;
    out.flush()?;
    Ok(if view.corruption().is_none() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// Reads and checks everything: every checksum of the journal and every byte that should be zero, every page
/// and tree, then every row of every
/// message and every index entry, of a running node as it is now.
pub fn verify(place: &Place) -> anyhow::Result<ExitCode> {
    let found = journal::verify(&view(&place.data)?)?;
    let mut table = Table::new(&["journal", ""]);
    for (name, value) in [
        ("segments", count(found.segments as u64)),
        ("batches", count(found.batches)),
        ("records", count(found.records)),
        ("kept", bytes(found.end.0 - found.first.0)),
        ("headers and padding", bytes(found.overhead_bytes)),
        ("torn at the end (dropped at the next start)", bytes(found.torn_bytes)),
        ("padding that should be zero and is not", bytes(found.dirty_padding_bytes)),
    ] {
        table.row(&[name, &value]);
    }
    println!("{table}");
    if let Some(corruption) = &found.corruption {
        println!("damaged: {corruption}");
        return Ok(ExitCode::from(1));
    }
    let history = History::open(&place.data)?;
    let pages = history.verify()?;
    println!("{}", pages.text);
    if !pages.sound {
        return Ok(ExitCode::from(1));
    }
    let rows = history.check()?;
    println!(
        "{} messages, {} outputs of which {} wait, {} index entries",
        count(rows.messages),
        count(rows.outputs),
        count(rows.waiting),
        count(rows.entries)
    );
    if rows.wrong > 0 {
        rows.problems.iter().for_each(|problem| println!("damaged: {problem}"));
        println!("damaged: {} rows or entries", count(rows.wrong));
        return Ok(ExitCode::from(1));
    }
    println!("every row reads, and is found by each of its entries");
    if !found.is_sound() {
        println!("damaged: padding has changed; nothing reads it, but the medium cannot be trusted");
        return Ok(ExitCode::from(1));
    }
    Ok(ExitCode::SUCCESS)
}
