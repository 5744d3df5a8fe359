//! `terrace verify`, `backup`, `repair` and `restore`: maintenance of a node's stored data.
//!
//! The work is in `node::maintenance` and `interop::repair`; the code here starts it, shows its progress, and prints
//! the result as a table or as JSON.

mod repair;
mod verify;

use std::io::IsTerminal;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use interop::record;
use interop::rows::interpreter;
use node::audit::AuditEntry;
use node::audit::chain::RESTORED;
use node::audit::requests::note_under;
use node::control::LocalPeer;
use node::{DirectoryLock, NodeError, NodeFolder, maintenance};
use serde_json::json;
use store::{Lsn, Restoring, StoreError, Until};

use crate::cli::{BackupArgs, RestoreArgs};
use crate::moments::moment;
use crate::show::{TextTable, time};

pub use repair::repair;
pub use verify::verify;

/// A bar for work of unknown length; hidden where there is no terminal.
pub struct Bar(ProgressBar);

impl Bar {
    /// A new one. Errors: its style cannot be read.
    pub fn new() -> anyhow::Result<Bar> {
        let style = ProgressStyle::with_template("{msg:<24} [{bar:30}] {percent:>3} %  {elapsed}")?;
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
        Ok(Bar(bar.with_style(style)))
    }

    /// Shows what is done, and how much of it.
    pub fn show(&self, what: &'static str, done: u64, total: u64) {
        if self.0.message() != what {
            self.0.set_message(what);
            self.0.reset();
        }
        self.0.set_length(total);
        self.0.set_position(done);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Makes a backup.
pub fn backup(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let folder = NodeFolder::find(&args.place.data)?;
    let bar = Bar::new()?;
    let made = folder.back_up(&args.to, interpreter(), &mut |progress| {
        bar.show("copying pages", progress.done, progress.total);
        ControlFlow::Continue(())
    })?;
    drop(bar);
    if args.json {
        println!("{}", serde_json::to_string_pretty(&made)?);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = TextTable::new(&["backup", ""]);
    table.row(&["of", folder.name()]);
    table.row(&["in", &made.folder.display().to_string()]);
    table.row(&["earliest moment", &format!("{} (lsn {})", time(made.from_us as i64), made.from)]);
    table.row(&["latest moment", &format!("lsn {}", made.until)]);
    print!("{table}");
    println!("\nthe production and terrace.toml are not in it; check it with: terrace verify {}", args.to.display());
    let volumes = crate::volumes::names(&args.place.data);
    if !volumes.is_empty() {
        println!("volumes are not in it ({}): copy each from its export, as with", volumes.join(", "));
        println!("  terrace volume export {0} --read-only; nbdcopy 'URI that it prints' {0}.img", volumes[0]);
    }
    Ok(ExitCode::SUCCESS)
}

/// `None`: the end. Digits alone are a position.
fn until(text: Option<&str>) -> anyhow::Result<Until> {
    let Some(text) = text else { return Ok(Until::End) };
    if let Ok(lsn) = text.parse() {
        return Ok(Until::Lsn(Lsn(lsn)));
    }
    let micros = moment(text).context("--until takes a time, an age or a position")?;
    Ok(Until::Micros(u64::try_from(micros).context("--until lies before 1970")?))
}

/// Makes a data directory of a backup.
pub fn restore(args: &RestoreArgs) -> anyhow::Result<ExitCode> {
    match NodeFolder::find(&args.backup) {
        Ok(NodeFolder::Backup(_)) => {}
        Err(_) => bail!("{} is no backup, or one that was not finished", args.backup.display()),
        Ok(other) => bail!("{} is {}, and no backup; `terrace backup` makes one", args.backup.display(), other.name()),
    }
    let until = until(args.until.as_deref())?;
    let bar = Bar::new()?;
    let time_of = |record: &journal::Record| record::time_us(record.kind, &record.payload);
    let mut on_progress = |progress| match progress {
        Restoring::Checking(read) => bar.show("checking the backup", read.done, read.total),
        Restoring::Copying { done, total } => bar.show("copying pages", done, total),
    };
    let made = maintenance::restore(&args.backup, args.journal.as_deref(), &args.to, until, &time_of, &mut on_progress);
    drop(bar);
    let (made, lock) = match made {
        Err(NodeError::Store(StoreError::Corrupt(why))) => {
            println!("damaged: {}: {why}", args.backup.display());
            return Ok(ExitCode::from(1));
        }
        made => made?,
    };
    // Before another process can start a node there.
    note(args, made.end, &lock);
    drop(lock);
    if args.json {
        let answer = json!({ "folder": args.to, "from": made.manifest.consistent_lsn.0, "end": made.end.0 });
        println!("{answer:#}");
        return Ok(ExitCode::SUCCESS);
    }
    restored(&args.to, made.end);
    Ok(ExitCode::SUCCESS)
}

/// Writes into the audit of the restored data that it was restored.
fn note(args: &RestoreArgs, end: Lsn, lock: &DirectoryLock) {
    let backup = std::path::absolute(&args.backup).unwrap_or_else(|_| args.backup.clone());
    let entry = AuditEntry::new(RESTORED, backup.display().to_string()).with("end", end.0.to_string());
    let entry = match &args.until {
        Some(until) => entry.with("until", until),
        None => entry,
    };
    let written = note_under(lock, interpreter(), entry.by(&LocalPeer::this_process()));
    if let Err(error) = written {
        eprintln!("warning: the data is restored, and its audit does not say so: {error}");
    }
}

fn restored(to: &Path, end: Lsn) {
    let to = to.display();
    println!("restored to {to}: everything before lsn {end}\n");
    println!(
        "Outputs that waited for delivery at that moment wait again: a node that starts there sends them, even if they"
    );
    println!("have been delivered since. If journal or pages have a tier of their own, move them there first; then:\n");
    println!("  terrace serve --data {to}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_the_end_a_position_a_time_or_an_age() {
        assert_eq!(until(None).expect("it is one"), Until::End);
        assert_eq!(until(Some("4711")).expect("it is one"), Until::Lsn(Lsn(4711)));
        for text in ["2026-11-21T08:00", "2h"] {
            assert!(matches!(until(Some(text)), Ok(Until::Micros(micros)) if micros > 1 << 50), "{text}");
        }
        for text in ["yesterday", "-5", "1960-01-01T00:00", ""] {
            assert!(until(Some(text)).is_err(), "{text}");
        }
    }
}
