//! Backups by schedule of a running node: `[backup]` of terrace.toml, and the task that makes them.
//!
//! ```text
//!   every LOOK: due? --> entry in the audit --> made and checked --> recorded in the store --> the oldest ones removed, an entry for each
//!                              |                      |
//!                              +----------------------+--> failed: an entry, the reason in the record, tried again later
//! ```
//!
//! What is due, what is kept and how a folder is used is `node::backups`. The node takes messages meanwhile; a backup that fails ends nothing else.
//! When the last try failed is known here too: that it could not be recorded makes no try come sooner.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use interop::production::units::Span;
use interop::running::RunningProduction;
use node::audit::{AuditEntry, AuditOutcome};
use node::backups::{BackupFolder, BackupRecord, BackupSettings, BackupTimes, Stopped, check_folder};
use node::task::session;
use node::{NodeError, Schedule};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// How often it is looked whether one is due.
const LOOK: Duration = Duration::from_secs(5);

/// The shortest interval: a backup reads and writes all that is stored.
const EVERY_MIN: Duration = Duration::from_secs(60);

/// Backups that can be kept.
const KEEP_MAX: usize = 1_000;

/// `[backup]`: backups are made where the table is there.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupTable {
    /// Where they lie: a folder that is there, of this node's own and outside of its data directory.
    folder: PathBuf,
    /// So long after the begin of the last good one, 1 min or more. Either this or `schedule`.
    every: Option<Span>,
    /// Once in each window.
    schedule: Option<Schedule>,
    /// How many are kept, 1 to 1,000. Default 7.
    #[serde(default = "seven")]
    keep: usize,
    /// The journal of each is read once more before it counts; its pages always are. Default yes.
    #[serde(default = "yes")]
    verify: bool,
}

fn seven() -> usize {
    7
}

fn yes() -> bool {
    true
}

impl BackupTable {
    /// The settings of a node with this data directory. Errors: one that cannot work, by its name.
    pub fn settings(&self, data: &Path) -> anyhow::Result<BackupSettings> {
        let times = match (&self.every, &self.schedule) {
            (Some(every), None) => {
                ensure!(every.0 >= EVERY_MIN, "backup.every is at least 1m: a backup copies all that is stored");
                BackupTimes::Every(i64::try_from(every.0.as_micros()).context("backup.every is too long")?)
            }
            (None, Some(schedule)) => BackupTimes::Windows(schedule.clone()),
            _ => anyhow::bail!(
                "[backup] needs either `every = \"6h\"` or a table [backup.schedule], and not both: when are backups to be made?"
            ),
        };
        ensure!((1..=KEEP_MAX).contains(&self.keep), "backup.keep is 1 to {KEEP_MAX}");
        check_folder(&self.folder, data).map_err(|why| anyhow::anyhow!("backup.folder: {why}"))?;
        let folder = std::path::absolute(&self.folder).context("backup.folder")?;
        Ok(BackupSettings { folder, times, keep: self.keep, verify: self.verify })
    }

    /// Starts making them.
    pub fn start(&self, node: &Arc<RunningProduction>) -> anyhow::Result<RunningBackups> {
        let (stop, stopped) = watch::channel(false);
        let (node, settings) = (Arc::clone(node), self.settings(node.data())?);
        let backups = Arc::new(Backups { node, settings, stopped, held: Mutex::new(Held::default()) });
        Ok(RunningBackups { stop, task: session("backups", run(backups)) })
    }
}

/// The task, until it is stopped.
#[derive(Debug)]
pub struct RunningBackups {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl RunningBackups {
    /// Ends it; a backup that is being made or checked is given up.
    pub async fn stop(self) {
        self.stop.send_replace(true);
        // Its panic is in the log.
        let _ = self.task.await;
    }
}

struct Backups {
    node: Arc<RunningProduction>,
    settings: BackupSettings,
    stopped: watch::Receiver<bool>,
    held: Mutex<Held>,
}

/// What is kept from one look to the next.
#[derive(Default)]
struct Held {
    /// The folder, once it could be taken.
    folder: Option<BackupFolder>,
    /// When the last try failed.
    failed_us: Option<i64>,
}

async fn run(backups: Arc<Backups>) {
    let mut stopped = backups.stopped.clone();
    loop {
        let looking = Arc::clone(&backups);
        let looked = tokio::task::spawn_blocking(move || looking.look()).await;
        if looked.is_err_and(|ended| ended.is_panic()) {
            tracing::error!("making a backup panicked; it is tried again later, and nothing else ended; report it");
            let failing = Arc::clone(&backups);
            let failed = move || failing.failed("a fault of the program ended it, and the node's log has the text");
            // It ends with the runtime only.
            let _ = tokio::task::spawn_blocking(failed).await;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stopped.wait_for(|stopped| *stopped) => return,
        }
    }
}

impl Backups {
    fn now_us(&self) -> i64 {
        self.node.engine().clock.now_us()
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow() || self.node.failed().borrow().is_some()
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the folder from now on, where it can be had.
    fn take_folder(&self, held: &mut Held) -> Result<(), NodeError> {
        if held.folder.as_ref().is_some_and(BackupFolder::is_in_place) {
            return Ok(());
        }
        held.folder = None;
        let (store, options, data) = (self.node.store(), self.node.store_options(), self.node.data());
        held.folder = Some(BackupFolder::take(self.settings.clone(), store, options, data)?);
        Ok(())
    }

    /// Makes one if it is due.
    fn look(&self) {
        if self.is_stopped() {
            return;
        }
        let record = match BackupRecord::read(self.node.store()) {
            Ok(Some(record)) => record,
            // From now on the status says that there are to be some.
            Ok(None) => match BackupRecord::change(self.node.store(), &|record| record) {
                Ok(record) => record,
                Err(error) => return tracing::error!(%error, "the record of backups cannot be stored"),
            },
            Err(error) => return tracing::error!(%error, "the record of backups cannot be read: none are made"),
        };
        let began_us = self.now_us();
        let (taken, failed_us) = {
            let mut held = self.held();
            (self.take_folder(&mut held), held.failed_us)
        };
        if !self.settings.times.is_due(&record, failed_us, began_us) {
            return;
        }
        let entry = AuditEntry::new("node.backup", self.settings.folder.display().to_string()).with("by", "schedule");
        if let Err(error) = self.record(&entry) {
            self.failed(&format!("the audit takes no entry: {error}"));
            return;
        }
        match taken.and_then(|()| self.make(began_us)) {
            Ok(()) => self.held().failed_us = None,
            // The next start goes on: nothing has failed.
            Err(_) if self.is_stopped() => {}
            Err(error) => {
                self.failed(&error.to_string());
                if let Err(error) = self.record(&entry.ended(AuditOutcome::Failed, error.to_string())) {
                    tracing::error!(%error, "that a backup failed could not be written to the audit");
                }
            }
        }
    }

    /// Makes a backup, and removes those beyond what is kept.
    fn make(&self, began_us: i64) -> Result<(), NodeError> {
        let held = self.held();
        let Some(folder) = &held.folder else { return Err(NodeError::Stopping) };
        let (stopped, failed) = (self.stopped.clone(), self.node.failed());
        let stopped: Stopped = Arc::new(move || *stopped.borrow() || failed.borrow().is_some());
        let good = folder.make(self.node.store(), began_us, &|| self.now_us(), &stopped)?;
        tracing::info!(folder = %good.folder.display(), until = good.until, "backup made and checked");
        let old = match folder.old(&good.folder) {
            Ok(old) => old,
            // The backup is good.
            Err(error) => {
                tracing::error!(%error, "which backups are the oldest cannot be told; looked again after the next one");
                return Ok(());
            }
        };
        for old in old {
            let entry = AuditEntry::new("node.backup-remove", old.display().to_string()).with("by", "schedule");
            let removed = self.record(&entry).map_err(|error| error.to_string());
            if let Err(error) = removed.and_then(|()| folder.remove(&old).map_err(|error| error.to_string())) {
                tracing::error!(folder = %old.display(), error, "an old backup could not be removed; tried again after the next one");
            }
        }
        Ok(())
    }

    /// Writes an entry, durably.
    fn record(&self, entry: &AuditEntry) -> Result<(), NodeError> {
        let audit = self.node.audit();
        let ticket = audit.record(entry.clone()).map_err(NodeError::from)?;
        audit.wait(ticket).map_err(NodeError::from)
    }

    fn failed(&self, why: &str) {
        tracing::error!(why, "a backup failed; the former ones are as they were, and it is tried again later");
        let at_us = self.now_us();
        self.held().failed_us = Some(at_us);
        if let Err(error) = BackupRecord::change(self.node.store(), &|record| record.failed(at_us, why)) {
            tracing::error!(%error, "that a backup failed cannot be stored");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_of_backups_says_when_how_many_and_where_not_in_the_data() {
        let schedule = "[schedule]\nopen = [\"Mon-Sun 02:00-04:00\"]\nzone = \"UTC\"\n";
        for (text, refused) in [
            ("every = \"6h\"".to_owned(), None),
            (schedule.to_owned(), None),
            ("".to_owned(), Some("needs either")),
            (format!("every = \"6h\"\n{schedule}"), Some("and not both")),
            ("every = \"59s\"".to_owned(), Some("at least 1m")),
            ("every = \"6h\"\nkeep = 0".to_owned(), Some("backup.keep is 1 to 1000")),
        ] {
            let table: BackupTable = toml::from_str(&format!("folder = \"/backups\"\n{text}")).expect("a table");
            match (table.settings(Path::new("/data")), refused) {
                (Ok(settings), None) => assert_eq!((settings.keep, settings.verify), (7, true)),
                (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error:#}: {text}"),
                (answer, _) => panic!("{answer:?}: {text}"),
            }
        }
        let inside: BackupTable = toml::from_str("folder = \"/data/backups\"\nevery = \"6h\"").expect("a table");
        let error = inside.settings(Path::new("/data")).expect_err("it is inside").to_string();
        assert!(error.contains("lie in each other"), "{error}");
    }
}
