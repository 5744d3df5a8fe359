//! `terrace repair`: lists the damage, the repaired data and the data given up, in this order; changes nothing without
//! --apply.

use std::process::ExitCode;

use interop::InteropError;
use interop::repair::{self, Repaired};
use store::StoreError;

use super::Bar;
use crate::cli::RepairArgs;
use crate::show::count;
use crate::sql;

/// Repairs a stopped node's data, or shows what that would do. Exit code 1 where something is wrong still, or something would be
/// given up and --apply was not given.
pub fn repair(args: &RepairArgs) -> anyhow::Result<ExitCode> {
    let bar = Bar::new()?;
    let mut on_progress = |rows| bar.show("reading rows", rows, 0);
    let done = repair::repair(&args.data, args.backup.as_deref(), args.apply, &sql::give_up, &mut on_progress);
    drop(bar);
    let report = match done {
        Err(InteropError::Store(StoreError::Corrupt(why))) => {
            println!("damaged, and not to be repaired here: {why}");
            println!("next step: `terrace restore BACKUP --to NEW --journal {}`", args.data.display());
            return Ok(ExitCode::from(1));
        }
        done => done?,
    };
    let is_done = report.problems.is_empty() && (report.applied || report.damaged.is_empty());
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(args, &report);
    }
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

fn print(args: &RepairArgs, report: &Repaired) {
    for damaged in &report.damaged {
        println!("damaged: {}\n         {}", damaged.what, damaged.why);
    }
    if report.damaged.is_empty() {
        println!("nothing is damaged; {} pages of lost space", count(report.freed));
    }
    let would = |done: &str, would: &str| if report.applied { done.to_owned() } else { would.to_owned() };
    match report.backup_is_current {
        Some(true) => println!("the backup, with this node's journal, is the state of now"),
        Some(false) => {
            println!(
                "the journal does not go on where the backup ends: only data that checksums prove to be unchanged is taken"
            )
        }
        None => {}
    }
    let (found, taken, made) = (count(report.reclaimed), count(report.from_backup), count(report.derived));
    println!(
        "{}: {found} rows found in pages to which the way was lost, {taken} taken from the backup, {made} made anew",
        would("mended", "would be mended")
    );
    for given_up in &report.given_up {
        println!("{}: {}", would("given up", "would be given up"), given_up.what);
    }
    println!("{}: {} pages", would("free again", "would be free again"), count(report.freed));
    report.problems.iter().for_each(|problem| println!("wrong still: {problem}"));
    if !report.applied && !report.damaged.is_empty() {
        println!("\nnothing was changed; to do it: the same command with --apply");
        if args.backup.is_none() && !report.given_up.is_empty() {
            println!("a backup may bring back what would be given up: --backup DIR");
        }
    }
}
