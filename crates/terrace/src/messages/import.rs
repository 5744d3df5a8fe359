//! `terrace message import`: messages of a file into a service of a running node.
//!
//! ```text
//!   file, or each of a folder by name --checked whole--> groups of messages --> import requests, one after the other --> results
//! ```
//!
//! A damaged file is refused before anything of it is sent. Interrupted, or with a node that ended meanwhile, the same command goes on: the
//! node knows by source and number what it has.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use interop::running::{ImportMessage, ImportOutcome, ImportPage, ImportRequest};
use interop::transfer::{CheckedImport, ImportItem, ImportReader, LeftOut, line_of};
use node::{NodeError, control};
use serde_json::json;

use crate::cli::{ImportTime, MessageImportArgs};
use crate::maintenance::Bar;
use crate::show::count;

/// Messages and bytes of bodies of one request.
const MESSAGES_AT_A_TIME: usize = 100;
const BYTES_AT_A_TIME: usize = 256 << 10;

/// Files of a folder at most.
const FILES_MAX: usize = 100_000;

/// Messages that are named with what became of them.
const NAMED_MAX: usize = 20;

/// How long is waited before a page that found no room is sent again.
const PAUSE: Duration = Duration::from_secs(1);

/// What became of everything.
#[derive(Default)]
struct Totals {
    outcomes: BTreeMap<ImportOutcome, u64>,
    /// Lines about what was not taken, or goes nowhere.
    open: Vec<String>,
    /// How many there are.
    open_count: u64,
}

impl Totals {
    fn open(&mut self, text: impl FnOnce() -> String) {
        self.open_count += 1;
        if self.open.len() < NAMED_MAX {
            self.open.push(text());
        }
    }
}

/// Runs the command.
pub(super) fn run(args: &MessageImportArgs) -> anyhow::Result<ExitCode> {
    let files = files_of(&args.file)?;
    let mut totals = Totals::default();
    for file in &files {
        let opened = ImportReader::open_path(file).map_err(anyhow::Error::from);
        let opened = opened.and_then(|opened| allowed(args, &opened.1).map(|()| opened));
        match opened {
            Ok((reader, checked)) => import(args, file, reader, &checked, &mut totals)?,
            // Of a single file there is nothing else to do.
            Err(error) if files.len() == 1 => return Err(error.context(format!("{} is not imported", file.display()))),
            Err(error) => totals.open(|| format!("{}: not imported: {error:#}", file.display())),
        }
    }
    report(args, &totals);
    Ok(if totals.open_count == 0 { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The files that are meant, in the order of their names.
fn files_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let found = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    if !found.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path).with_context(|| format!("cannot read {}", path.display()))? {
        let file = entry.with_context(|| format!("cannot read {}", path.display()))?.path();
        let kind = file.extension().and_then(|kind| kind.to_str()).unwrap_or_default().to_ascii_lowercase();
        if matches!(kind.as_str(), "hl7" | "messages") && file.is_file() {
            files.push(file);
        }
        if files.len() > FILES_MAX {
            bail!("{} has more than {} files: import parts of it", path.display(), count(FILES_MAX as u64));
        }
    }
    if files.is_empty() {
        bail!("{} has no file whose name ends with .hl7 or .messages", path.display());
    }
    files.sort();
    Ok(files)
}

/// Whether a file may be imported so.
fn allowed(args: &MessageImportArgs, checked: &CheckedImport) -> anyhow::Result<()> {
    match &checked.head {
        _ if checked.masked && !args.allow_masked => bail!(
            "its bodies are masked, and no patient of them is one: with --allow-masked it is imported nevertheless, for a system of tests"
        ),
        None if args.service.is_none() => {
            bail!("it is a file of HL7 messages, which names no service: choose one with --service")
        }
        _ => Ok(()),
    }
}

/// Messages of one request: in their order, and for one service.
#[derive(Default)]
struct Group {
    service: String,
    items: Vec<ImportItem>,
    bytes: usize,
}

impl Group {
    fn takes(&self, service: &str, item: &ImportItem) -> bool {
        self.items.is_empty()
            || (self.service == service
                && self.items.len() < MESSAGES_AT_A_TIME
                && self.bytes + item.body.len() <= BYTES_AT_A_TIME)
    }
}

fn import(
    args: &MessageImportArgs,
    file: &Path,
    mut reader: ImportReader<fs::File>,
    checked: &CheckedImport,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    for LeftOut { at, why } in &checked.left_out {
        let place = at.map(|at| place_of(file, at)).unwrap_or_else(|| file.display().to_string());
        totals.open(|| format!("{place}: {why}"));
    }
    let is_masked = checked.masked;
    let (bar, mut done, mut group) = (Bar::new()?, 0, Group::default());
    loop {
        let item = reader.next().with_context(|| format!("{} has changed while it was read", file.display()))?;
        let service = match &item {
            Some(item) => args.service.clone().or_else(|| item.service.clone()).unwrap_or_default(),
            None => String::new(),
        };
        let is_over = item.as_ref().is_none_or(|item| !group.takes(&service, item));
        if is_over && !group.items.is_empty() {
            let full = std::mem::take(&mut group);
            done += full.bytes as u64;
            send(args, file, full, is_masked, totals)?;
            bar.show(if args.dry_run { "trying messages" } else { "importing messages" }, done, checked.body_bytes);
        }
        let Some(item) = item else { return Ok(()) };
        group.service = service;
        group.bytes += item.body.len();
        group.items.push(item);
    }
}

/// Sends a group until each of it has its result.
fn send(
    args: &MessageImportArgs,
    file: &Path,
    group: Group,
    is_masked: bool,
    totals: &mut Totals,
) -> anyhow::Result<()> {
    let (mut at, mut since) = (0, Instant::now());
    while at < group.items.len() {
        let message = |item: &ImportItem| {
            let (source, charset) = (item.source.clone(), item.charset.clone());
            let message = ImportMessage { number: item.number, source, charset, ..ImportMessage::default() };
            ImportMessage { received_us: item.received_us, ..message }.with_body(&item.body)
        };
        let request = ImportRequest {
            service: group.service.clone(),
            replay: args.time == ImportTime::Replay,
            dry_run: args.dry_run,
            masked: is_masked,
            messages: group.items[at..].iter().map(message).collect(),
        };
        let answer = control::request(&args.place.data, &format!("import {}", json!(request)));
        // Longer than any request may be, although it is the only one of its request.
        if let (Err(NodeError::Refused(why)), [item]) = (&answer, &group.items[at..]) {
            *totals.outcomes.entry(ImportOutcome::Refused).or_default() += 1;
            totals.open(|| format!("{}: not taken: {why} (number {})", place_of(file, item.at), item.number));
            return Ok(());
        }
        let answer = answer.with_context(|| {
            format!(
                "the import ended at message {} of {}; the same command goes on from there",
                group.items[at].number,
                file.display()
            )
        })?;
        let page: ImportPage = control::read_response(answer)?;
        for (item, result) in group.items[at..].iter().zip(&page.results) {
            if args.json {
                let place = file.display().to_string();
                println!(
                    "{}",
                    json!({ "file": place, "number": item.number, "at": item.at, "service": group.service, "result": result })
                );
            }
            *totals.outcomes.entry(result.outcome).or_default() += 1;
            let is_open =
                matches!(result.outcome, ImportOutcome::Refused | ImportOutcome::Rejected | ImportOutcome::Errored);
            if is_open {
                let id = result.id.map(|id| format!(", message {id} here")).unwrap_or_default();
                let (name, reason, number) = (result.outcome.name(), &result.reason, item.number);
                totals.open(|| format!("{}: {name}: {reason} (number {number}{id})", place_of(file, item.at)));
            }
        }
        if !page.results.is_empty() {
            since = Instant::now();
        }
        at += page.results.len();
        if let Some(why) = page.stopped {
            if since.elapsed() > Duration::from_secs(args.patience) {
                report(args, totals);
                bail!("the import ended at message {}: {why}", group.items[at].number);
            }
            std::thread::sleep(PAUSE);
        }
    }
    Ok(())
}

/// A place in a file: with its line, where it has lines.
fn place_of(file: &Path, at: u64) -> String {
    let is_text = file.extension().is_none_or(|kind| kind != "messages");
    match line_of(file, at).filter(|_| is_text) {
        Some(line) => format!("{}:{line} (byte {at})", file.display()),
        None => format!("{} (byte {at})", file.display()),
    }
}

fn report(args: &MessageImportArgs, totals: &Totals) {
    totals.open.iter().for_each(|line| eprintln!("{line}"));
    if totals.open_count > totals.open.len() as u64 {
        eprintln!("and {} more: --json shows each message", count(totals.open_count - totals.open.len() as u64));
    }
    if args.json {
        return;
    }
    let mut parts = Vec::new();
    for (outcome, words) in [
        (ImportOutcome::Routed, if args.dry_run { "would go out" } else { "stored and go out" }),
        (ImportOutcome::Dropped, "dropped by a rule"),
        (ImportOutcome::Unmatched, "matched by no rule"),
        (ImportOutcome::Rejected, "refused by the service"),
        (ImportOutcome::Errored, "on which a rule or transform fails"),
        (ImportOutcome::Again, "imported before"),
        (ImportOutcome::Duplicate, "dropped as duplicates"),
        (ImportOutcome::Refused, "not taken"),
    ] {
        parts.extend(totals.outcomes.get(&outcome).map(|n| format!("{} {words}", count(*n))));
    }
    let parts = if parts.is_empty() { "no message".to_owned() } else { parts.join(", ") };
    println!("{parts}; {}", if args.dry_run { "nothing was stored or sent" } else { "done" });
}
