//! `terrace message export`: messages of a node as a file.
//!
//! ```text
//!   FILE.partial, readable by its owner only --page by page--> synced --> FILE
//! ```
//!
//! The file has its name only once it is whole and durable. What is interrupted stays as `FILE.partial`; after an error that is removed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow, ensure};
use clap::ValueEnum;
use interop::history::{ExportPage, ExportRequest, History};
use interop::timestamp::hl7_timestamp;
use interop::transfer::{ExportFormat, ExportWriter, TransferHead};
use node::Clock;
use node::control;
use serde_json::json;

use super::search::{FoundMessages, MessageQuery, REQUEST};
use crate::cli::{FormatName, MessageExportArgs};
use crate::maintenance::Bar;
use crate::show::{bytes, count};

/// Ids of one request at most.
const IDS_AT_A_TIME: usize = 500;

/// Messages that a search finds at most.
const FOUND_MAX: usize = 10_000;

/// How long a search may take, milliseconds.
const SEARCH_MS: u64 = 60_000;

/// Damaged and absent messages that are named.
const NAMED_MAX: usize = 20;

/// What was written, and what could not be.
#[derive(Default)]
struct Exported {
    messages: u64,
    body_bytes: u64,
    damaged: Vec<(u64, String)>,
    unreadable: u64,
    absent: Vec<u64>,
}

/// Runs the command.
pub(super) fn run(args: &MessageExportArgs) -> anyhow::Result<ExitCode> {
    let out = &args.out;
    ensure!(
        fs::symlink_metadata(out).is_err(),
        "{} is there already: choose another name, or remove it",
        out.display()
    );
    let request = request_of(args)?;
    let history = History::open(&args.place.data)?;
    let partial = partial_of(out)?;
    let file = create(&partial)?;
    let written = write(args, &history, request, file).and_then(|written| {
        // It is still the one that was written: see `create`.
        fs::rename(&partial, out).with_context(|| format!("cannot give the file its name {}", out.display()))?;
        let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        File::open(folder).and_then(|folder| folder.sync_all()).context("cannot make the file's name durable")?;
        Ok(written)
    });
    let (exported, left_out) = match written {
        Ok(written) => written,
        Err(error) => {
            // It is the error that counts.
            let _ = fs::remove_file(&partial);
            return Err(error.context(format!("{} was not made", out.display())));
        }
    };
    report(args, &exported, left_out);
    let is_whole =
        exported.damaged.is_empty() && exported.unreadable == 0 && exported.absent.is_empty() && left_out == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn report(args: &MessageExportArgs, exported: &Exported, left_out: u64) {
    for (id, why) in exported.damaged.iter().take(NAMED_MAX) {
        eprintln!("damaged: message {id} cannot be read, and is not in the file: {why}");
    }
    for id in exported.absent.iter().take(NAMED_MAX) {
        eprintln!("message {id} is not stored here, or does not match, and is not in the file");
    }
    if exported.unreadable > 0 {
        eprintln!(
            "damaged: {} cannot be read, and it is not known whether they belong to the file",
            count(exported.unreadable)
        );
    }
    let more = exported.damaged.len().saturating_sub(NAMED_MAX) + exported.absent.len().saturating_sub(NAMED_MAX);
    if more > 0 {
        eprintln!("and {more} more");
    }
    if left_out > 0 {
        eprintln!(
            "{} are no HL7 messages that could be found again, and are not in the file; --format terrace has them",
            count(left_out)
        );
    }
    let bodies = if args.masked { "masked" } else { "as received" };
    println!(
        "{} messages, {} of bodies, {bodies}: {}",
        count(exported.messages),
        bytes(exported.body_bytes),
        args.out.display()
    );
}

fn partial_of(out: &Path) -> anyhow::Result<PathBuf> {
    let mut name = out.file_name().with_context(|| format!("{} is no name of a file", out.display()))?.to_owned();
    name.push(".partial");
    Ok(out.with_file_name(name))
}

/// Makes the file: what is in it are bodies, for its owner only. It is locked while it is written, so that two exports of the same name
/// do not take each other's file; what an interrupted one has left is not locked.
fn create(partial: &Path) -> anyhow::Result<File> {
    let busy = || anyhow!("another export writes {}", partial.display());
    if fs::symlink_metadata(partial).is_ok_and(|found| found.is_file()) {
        let old = File::open(partial).with_context(|| format!("cannot open {}", partial.display()))?;
        old.try_lock().map_err(|_| busy())?;
        // One that was left by an interrupted export may have been replaced by another one meanwhile.
        ensure!(is_at(&old, partial), busy());
        fs::remove_file(partial).with_context(|| format!("cannot remove {}", partial.display()))?;
    }
    let made = OpenOptions::new().write(true).create_new(true).mode(device::os::PRIVATE_FILE).open(partial);
    let made = made.with_context(|| format!("cannot make {}", partial.display()))?;
    made.try_lock().map_err(|_| busy())?;
    ensure!(is_at(&made, partial), busy());
    Ok(made)
}

/// Whether a file is the one that a path names. Who has locked it knows that it stays so: only then it is removed.
fn is_at(file: &File, path: &Path) -> bool {
    let identity = |found: io::Result<fs::Metadata>| found.map(|found| (found.dev(), found.ino())).ok();
    let named = identity(fs::symlink_metadata(path));
    named.is_some() && named == identity(file.metadata())
}

/// What is asked for, without a place in it.
fn request_of(args: &MessageExportArgs) -> anyhow::Result<ExportRequest> {
    let filter = super::filter(&args.filter, 0)?;
    let ids = match &args.search {
        Some(query) => found(&args.place.data, query, (filter.since_us, filter.until_us))?,
        None => args.ids.clone(),
    };
    Ok(ExportRequest { filter, ids, masked: args.masked, ..ExportRequest::default() })
}

/// The ids that a search finds.
fn found(data: &Path, query: &str, (since_us, until_us): (Option<i64>, Option<i64>)) -> anyhow::Result<Vec<u64>> {
    let query = MessageQuery {
        query: query.to_owned(),
        last: FOUND_MAX,
        by_score: false,
        since_us,
        until_us,
        time_max_ms: SEARCH_MS,
    };
    let answer = control::request(data, &format!("{REQUEST} {}", json!(query)))?;
    let found: FoundMessages = control::read_response(answer)?;
    ensure!(
        found.messages.len() as u64 == found.total && found.total_is_exact,
        "the search finds {} messages or more, and an export of a search has {} at most: narrow it, as with --since",
        count(found.total),
        count(FOUND_MAX as u64)
    );
    ensure!(!found.messages.is_empty(), "the search finds no message");
    if found.is_behind {
        eprintln!("the newest messages are not indexed yet, and are not in the file");
    }
    let mut ids: Vec<u64> = found.messages.iter().map(|message| message.id).collect();
    ids.sort_unstable();
    Ok(ids)
}

type Written = (Exported, u64);

/// Writes all pages; the file is durable then.
fn write(
    args: &MessageExportArgs,
    history: &History,
    mut request: ExportRequest,
    file: File,
) -> anyhow::Result<Written> {
    let clock = Clock::system();
    let now_us = clock.now_us();
    let format = match args.format {
        FormatName::Terrace => ExportFormat::Terrace,
        FormatName::Hl7 => ExportFormat::Hl7,
        FormatName::Batch => ExportFormat::Batch,
    };
    let ids = std::mem::take(&mut request.ids);
    let mut groups = ids.chunks(IDS_AT_A_TIME);
    request.ids = groups.next().unwrap_or_default().to_vec();
    let bar = Bar::new()?;
    let (mut exported, mut writer, mut to) = (Exported::default(), None, Some(file));
    loop {
        request.limit = match args.limit {
            0 => 0,
            limit => usize::try_from((limit - exported.messages).min(IDS_AT_A_TIME as u64))?,
        };
        let page = history.export(&request)?;
        if let Some(file) = to.take() {
            let head = TransferHead {
                source: page.source.clone(),
                made_us: now_us,
                masked: page.masked,
                filter: selection(args),
                release: env!("CARGO_PKG_VERSION").to_owned(),
            };
            let stamp = hl7_timestamp(&clock, now_us);
            writer = Some(ExportWriter::begin(format, BufWriter::new(file), &head, &stamp).context("cannot write")?);
        }
        let writer = writer.as_mut().context("the file has begun")?;
        add(writer, &mut exported, &page)?;
        let at = page.next.map_or(page.upto, |place| place.id);
        bar.show("exporting messages", at, page.upto);
        if args.limit > 0 && exported.messages >= args.limit {
            break;
        }
        (request.upto, request.after) = (Some(page.upto), page.next);
        if page.next.is_none() {
            match groups.next() {
                Some(group) => request.ids = group.to_vec(),
                None => break,
            }
        }
    }
    let writer = writer.context("the file has begun")?;
    let (_, left_out) = writer.counts();
    let file = writer
        .end()
        .context("cannot write")?
        .into_inner()
        .map_err(|error| error.into_error())
        .context("cannot write")?;
    file.sync_all().context("cannot make the file durable")?;
    Ok((exported, left_out))
}

fn add(writer: &mut ExportWriter<impl Write>, exported: &mut Exported, page: &ExportPage) -> anyhow::Result<()> {
    for one in &page.messages {
        let body = one.body().context("a body cannot be read; is the node of the same release?")?;
        if writer.message(&one.message, &body).context("cannot write")? {
            exported.body_bytes += body.len() as u64;
        }
    }
    exported.messages = writer.counts().0;
    writer.unreadable(page.unreadable + page.damaged.len() as u64);
    exported.damaged.extend(page.damaged.iter().cloned());
    exported.unreadable += page.unreadable;
    exported.absent.extend(&page.absent);
    Ok(())
}

/// The selection in words, for the head of the file. What is looked for in bodies is not in it.
fn selection(args: &MessageExportArgs) -> String {
    let (mut words, filter) = (Vec::<String>::new(), &args.filter);
    let plain = [
        ("service", &filter.service),
        ("type", &filter.kind),
        ("interface", &filter.interface),
        ("since", &filter.since),
        ("until", &filter.until),
    ];
    words.extend(plain.iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("--{name} {value}"))));
    words.extend(filter.status.map(|status| format!("--status {}", format!("{status:?}").to_lowercase())));
    let output = filter.output.and_then(|output| output.to_possible_value());
    words.extend(output.map(|output| format!("--output {}", output.get_name())));
    words.extend((args.limit > 0).then(|| format!("--limit {}", args.limit)));
    let hidden = filter.mrn.is_some() || args.search.is_some() || filter.control.is_some() || !filter.wanted.is_empty();
    words.extend(hidden.then(|| "and by values of messages".to_owned()));
    words.extend((!args.ids.is_empty()).then(|| format!("{} by id", args.ids.len())));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_exports_of_one_name_do_not_take_each_others_file_and_what_was_interrupted_is_made_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let partial = partial_of(&dir.path().join("case.messages")).expect("a name");
        let first = create(&partial).expect("it is new");
        let error = create(&partial).expect_err("the first one writes it").to_string();
        assert!(error.contains("another export"), "{error}");
        assert!(partial.is_file(), "it is still there");
        // Its place was taken by another file: that one is not taken for it.
        assert!(is_at(&first, &partial));
        fs::rename(&partial, dir.path().join("gone")).expect("moved");
        assert!(!is_at(&first, &partial));
        fs::write(&partial, "").expect("written");
        assert!(!is_at(&first, &partial));
        drop(first);
        create(&partial).expect("nobody writes it any more");
    }
}
