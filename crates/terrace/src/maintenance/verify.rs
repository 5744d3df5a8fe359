//! `terrace verify`: reads everything, and shows the results in order from the journal up to the rows.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use interop::InteropError;
use interop::generations::Generations;
use interop::rows::{Reader, check, interpreter};
use node::audit::{AuditPlace, AuditReader, ChainReport};
use node::maintenance::StoreReport;
use node::{NodeError, NodeFolder};
use serde::Serialize;
use store::StoreError;

use super::Bar;
use crate::audit::summary;
use crate::cli::VerifyArgs;
use crate::show::{TextTable, bytes, count};
use crate::sql::{self, TableReport};

/// The result of a check, as JSON.
#[derive(Debug, Serialize)]
struct Findings {
    /// Whether nothing is wrong.
    sound: bool,
    /// Where it was looked.
    folder: PathBuf,
    /// The kind of place: a running node, a stopped node, a backup.
    what: &'static str,
    /// The journal.
    journal: JournalReport,
    /// Images, pages, trees; none where there are no pages yet, or the journal is damaged.
    store: Option<StoreReport>,
    /// Messages; none where what lies below is damaged.
    rows: Option<check::Report>,
    /// The audit's chain; none where what lies below is damaged.
    audit: Option<ChainReport>,
    /// SQL tables; none of a running node, or where what lies below is damaged.
    tables: Option<Vec<TableReport>>,
    /// Volumes of the directory, which are not read here: `terrace volume scrub` does.
    volumes_not_read: Vec<String>,
    /// The damage, from the bottom up.
    problems: Vec<String>,
}

#[derive(Debug, Serialize)]
struct JournalReport {
    segments: usize,
    batches: u64,
    records: u64,
    first: u64,
    end: u64,
    overhead_bytes: u64,
    torn_bytes: u64,
    dirty_padding_bytes: u64,
}

/// Checks what lies in a folder.
pub fn verify(args: &VerifyArgs) -> anyhow::Result<ExitCode> {
    let folder = args.dir.as_ref().or(args.data.as_ref()).map_or(Path::new("terrace-data"), PathBuf::as_path);
    let found = look(folder)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&found)?);
    } else {
        print(&found);
    }
    Ok(if found.sound { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl Findings {
    fn of(kept: &NodeFolder, folder: &Path, journal: &journal::Verified) -> Findings {
        let journal = JournalReport {
            segments: journal.segments,
            batches: journal.batches,
            records: journal.records,
            first: journal.first.0,
            end: journal.end.0,
            overhead_bytes: journal.overhead_bytes,
            torn_bytes: journal.torn_bytes,
            dirty_padding_bytes: journal.dirty_padding_bytes,
        };
        let volumes_not_read = crate::volumes::names(folder);
        let (folder, what) = (folder.to_owned(), kept.name());
        Findings {
            sound: false,
            folder,
            what,
            journal,
            store: None,
            rows: None,
            audit: None,
            tables: None,
            volumes_not_read,
            problems: Vec::new(),
        }
    }
}

/// Looks from the bottom up, and no further than damage.
fn look(folder: &Path) -> anyhow::Result<Findings> {
    let kept = NodeFolder::find(folder)?;
    let bar = Bar::new()?;
    bar.show("reading the journal", 0, 0);
    let journal = kept.journal()?;
    let mut found = Findings::of(&kept, folder, &journal);
    if journal.dirty_padding_bytes > 0 {
        let text = "padding of the journal has changed; nothing reads it, but the medium cannot be trusted";
        found.problems.push(text.to_owned());
    }
    if let Some(corruption) = &journal.corruption {
        found.problems.push(format!("the journal: {corruption}"));
        return Ok(found);
    }
    match kept.journal_misses(&journal) {
        Ok(why) => found.problems.extend(why),
        Err(NodeError::Store(StoreError::Corrupt(why))) => found.problems.push(why.to_string()),
        Err(error) => return Err(error.into()),
    }
    found.store = kept.store(&mut |progress| bar.show("reading the pages", progress.done, progress.total))?;
    let faults = found.store.as_ref().map_or(0, |report| report.faults);
    if let Some(report) = found.store.as_ref().filter(|report| !report.sound) {
        found.problems.extend(report.problems.iter().cloned());
        found.problems.extend(report.leaked.filter(|pages| *pages > 0).map(|pages| format!("{pages} pages are lost")));
    }
    if faults == 0 {
        bar.show("reading the rows", 0, 0);
        rows(&kept, &mut found)?;
    }
    found.sound = found.problems.is_empty();
    Ok(found)
}

/// Messages, the audit, and tables where no node runs.
fn rows(kept: &NodeFolder, found: &mut Findings) -> anyhow::Result<()> {
    let mut generations = Vec::new();
    let mut read = || -> anyhow::Result<(check::Report, ChainReport, Option<Vec<TableReport>>)> {
        if let NodeFolder::Running(data) = kept {
            let audit = AuditPlace::open(data, interpreter())?.verify(&[])?;
            return Ok((check::check_folder(kept)?, audit, None));
        }
        let (store, _lock) = kept.open(interpreter())?;
        let audit = AuditReader::at(store.snapshot()).and_then(|reader| reader.verify(&[])).map_err(NodeError::from)?;
        generations = Generations::of(store.clone()).check()?;
        Ok((check::check(&Reader::new(&store))?, audit, sql::read_tables(store)?))
    };
    match read() {
        Ok((rows, audit, tables)) => {
            found.problems.extend(rows.problems.iter().cloned());
            found.problems.extend(generations);
            found.problems.extend(audit.problems.iter().map(|problem| format!("the audit: {problem}")));
            let tables_wrong = tables.iter().flatten().filter_map(|table| table.problem.clone());
            found.problems.extend(tables_wrong);
            (found.rows, found.audit, found.tables) = (Some(rows), Some(audit), tables);
            Ok(())
        }
        Err(error) => match corruption(&error) {
            Some(why) => {
                found.problems.push(format!("the node could not start: {why}"));
                Ok(())
            }
            None => Err(error),
        },
    }
}

/// The damaged data, if the error is damage of the store.
fn corruption(error: &anyhow::Error) -> Option<String> {
    let of_node = error.downcast_ref().and_then(|error| match error {
        NodeError::Store(error) => Some(error),
        _ => None,
    });
    let of_engine = || match error.downcast_ref()? {
        InteropError::Store(error) => Some(error),
        _ => None,
    };
    match of_node.or_else(of_engine)? {
        StoreError::Corrupt(why) => Some(why.to_string()),
        _ => None,
    }
}

fn print(found: &Findings) {
    println!("{} in {}\n", found.what, found.folder.display());
    let journal = &found.journal;
    let mut table = TextTable::new(&["journal", ""]);
    for (name, value) in [
        ("segments", count(journal.segments as u64)),
        ("batches", count(journal.batches)),
        ("records", count(journal.records)),
        ("kept", bytes(journal.end.saturating_sub(journal.first))),
        ("headers and padding", bytes(journal.overhead_bytes)),
        ("torn at the end (dropped at the next start)", bytes(journal.torn_bytes)),
        ("padding that should be zero and is not", bytes(journal.dirty_padding_bytes)),
    ] {
        table.row(&[name, &value]);
    }
    println!("{table}");
    match &found.store {
        Some(report) => println!("{}", report.text),
        None if found.problems.is_empty() => println!("no pages yet: all of it is in the journal\n"),
        None => {}
    }
    if let Some(rows) = &found.rows {
        println!(
            "{} messages, {} outputs of which {} wait, {} index entries",
            count(rows.messages),
            count(rows.outputs),
            count(rows.waiting),
            count(rows.entries)
        );
    }
    if let Some(audit) = &found.audit {
        println!("{}", summary(audit));
    }
    if let Some(tables) = &found.tables {
        let rows = tables.iter().map(|table| table.rows).sum();
        println!("{} SQL tables with {} rows", count(tables.len() as u64), count(rows));
    } else if cfg!(not(feature = "sql")) {
        println!("SQL tables are not read: this program was built without SQL");
    }
    if let Some(first) = found.volumes_not_read.first() {
        let names = found.volumes_not_read.join(", ");
        println!("volumes are not read here ({names}): `terrace volume scrub {first}` reads one, and repairs it");
    }
    found.problems.iter().for_each(|problem| println!("damaged: {problem}"));
    if let Some(rows) = found.rows.as_ref().filter(|rows| rows.wrong > 0) {
        println!("damaged: {} rows or entries", count(rows.wrong));
    }
    if found.sound {
        println!("every row reads, and is found by each of its entries");
    }
}
