//! `terrace audit`: shows, exports and checks the entries of the audit, of a node that runs or not, or of a backup.

use std::io::Write;
use std::process::ExitCode;

use anyhow::Context;
use interop::rows::interpreter;
use node::audit::export::{json_line, syslog_line};
use node::audit::{
    ActorKind, AuditFilter, AuditHead, AuditOutcome, AuditPage, AuditPlace, AuditQuery, ChainReport, ShownEntry,
};

use crate::cli::{AuditCommand, AuditExportArgs, AuditFilterArgs, AuditListArgs, ExportFormat, OutcomeName, Place};
use crate::moments::moment;
use crate::show::{TextTable, bytes, count, time};
use crate::terminal;

/// Where Linux keeps the name of the machine.
const HOST: &str = "/proc/sys/kernel/hostname";

fn filter(args: &AuditFilterArgs) -> anyhow::Result<AuditFilter> {
    Ok(AuditFilter {
        since_us: args.since.as_deref().map(moment).transpose()?,
        until_us: args.until.as_deref().map(moment).transpose()?,
        actor: args.actor.clone(),
        action: args.action.clone(),
        object: args.object.clone(),
        message: args.message,
        outcome: args.outcome.map(|outcome| match outcome {
            OutcomeName::Granted => AuditOutcome::Granted,
            OutcomeName::Refused => AuditOutcome::Refused,
            OutcomeName::Failed => AuditOutcome::Failed,
        }),
    })
}

/// Runs one of the commands.
pub fn run(command: AuditCommand) -> anyhow::Result<ExitCode> {
    match command {
        AuditCommand::List(args) => list(&args),
        AuditCommand::Show { number, place } => show(number, &place),
        AuditCommand::Export(args) => export(&args),
        AuditCommand::Head { place } => {
            println!("{}", open(&place)?.head()?);
            Ok(ExitCode::SUCCESS)
        }
        AuditCommand::Verify { heads, json, place } => verify(&heads, json, &place),
    }
}

fn open(place: &Place) -> anyhow::Result<AuditPlace> {
    Ok(AuditPlace::open(&place.data, interpreter())?)
}

/// Calls `each` with one page after the other, until it returns false or there are no more.
fn pages(
    place: &AuditPlace,
    mut query: AuditQuery,
    each: &mut dyn FnMut(AuditPage) -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    loop {
        let page = place.page(&query)?;
        query.from = page.next;
        if !each(page)? || query.from.is_none() {
            return Ok(());
        }
    }
}

fn list(args: &AuditListArgs) -> anyhow::Result<ExitCode> {
    let wanted = if args.last == 0 { usize::MAX } else { args.last };
    let limit = wanted.min(node::audit::reading::PAGE_ENTRIES);
    let query = AuditQuery { filter: filter(&args.filter)?, newest_first: true, from: None, limit };
    let (mut entries, mut damaged) = (Vec::<ShownEntry>::new(), Vec::new());
    pages(&open(&args.place)?, query, &mut |page| {
        entries.extend(page.entries);
        damaged.extend(page.damaged);
        Ok(entries.len() < wanted)
    })?;
    entries.truncate(wanted);
    entries.reverse();
    let mut out = terminal::out();
    if args.json {
        for entry in &entries {
            writeln!(out, "{}", json_line(entry))?;
        }
    } else if entries.is_empty() {
        writeln!(out, "the audit has no entry that matches")?;
    } else {
        write!(out, "{}", table(&entries))?;
    }
    damaged.iter().try_for_each(|why| writeln!(out, "damaged: {why}"))?;
    Ok(if damaged.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn table(entries: &[ShownEntry]) -> TextTable {
    let mut table = TextTable::new(&["number", "time", "actor", "from", "action", "object", "outcome", "reason"]);
    for ShownEntry { chained, .. } in entries {
        let entry = &chained.entry;
        let actor = match (entry.actor.kind, entry.actor.id) {
            (ActorKind::Node, _) => "the node".to_owned(),
            (ActorKind::Local, Some(uid)) if entry.actor.name.is_empty() => format!("uid:{uid}"),
            (ActorKind::Claimed, _) => format!("{}?", entry.actor.name),
            _ => entry.actor.name.clone(),
        };
        table.row(&[
            &chained.number.to_string(),
            &time(i64::try_from(chained.time_us).unwrap_or(i64::MAX)),
            &actor,
            &entry.origin.protocol,
            &entry.action,
            &entry.object,
            entry.outcome.name(),
            if entry.reason.is_empty() { "-" } else { &entry.reason },
        ]);
    }
    table
}

fn show(number: u64, place: &Place) -> anyhow::Result<ExitCode> {
    let query = AuditQuery { from: Some(number), limit: 1, ..AuditQuery::default() };
    let page = open(place)?.page(&query)?;
    let found = page.entries.into_iter().find(|shown| shown.chained.number == number);
    let shown = found.with_context(|| format!("the audit has no entry {number}, or it cannot be read"))?;
    writeln!(terminal::out(), "{}", serde_json::to_string_pretty(&shown)?)?;
    Ok(ExitCode::SUCCESS)
}

fn export(args: &AuditExportArgs) -> anyhow::Result<ExitCode> {
    let host = std::fs::read_to_string(HOST).unwrap_or_default();
    let query = AuditQuery { filter: filter(&args.filter)?, from: args.from, ..AuditQuery::default() };
    let mut out = terminal::out();
    let mut is_whole = true;
    pages(&open(&args.place)?, query, &mut |page| {
        for entry in &page.entries {
            let line = match args.format {
                ExportFormat::Jsonl => json_line(entry),
                ExportFormat::Syslog => syslog_line(entry, host.trim()),
            };
            writeln!(out, "{line}")?;
        }
        is_whole &= page.damaged.is_empty();
        page.damaged.iter().for_each(|why| eprintln!("damaged: {why}"));
        Ok(true)
    })?;
    Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn verify(heads: &[AuditHead], json: bool, place: &Place) -> anyhow::Result<ExitCode> {
    let report = open(place)?.verify(heads)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", summary(&report));
        for given in &report.unchecked {
            println!("not compared: entry {}, which retention has removed", given.number);
        }
        report.problems.iter().for_each(|problem| println!("wrong: {problem}"));
        if report.is_sound() {
            println!("every entry is there, in its order, as it was written");
        }
    }
    Ok(if report.is_sound() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// How much there is, as one line.
pub fn summary(report: &ChainReport) -> String {
    let removed = report.anchor.map(|anchor| format!(", those up to {} were removed by retention", anchor.number));
    format!(
        "{} entries of the audit, {}, the newest is {}{}",
        count(report.entries),
        bytes(report.bytes),
        report.head,
        removed.unwrap_or_default()
    )
}
