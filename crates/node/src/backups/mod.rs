//! Backups by schedule: when one is due, what is known of the last ones, and which are removed.
//!
//! ```text
//!   due? --> room? --> copied to FOLDER/backup-20261127T020000Z, and checked --> read as `terrace verify` does --> good: recorded in the store
//!    |         |                  |                                                      |                            |
//!    |         +------------------+------ what was made of it is removed, the reason recorded; tried again later     +--> the oldest ones
//!    +-- the record in the store: so a restart makes none twice                                                            beyond `keep`
//! ```
//!
//! Invariants:
//! 1. A backup is removed only after a newer one was made, checked and recorded; a failed one leaves the others as they are.
//! 2. The folder never fills its file system: the room is looked for before, and while it is copied.
//! 3. Only what has the name of such a backup is ever removed, in a folder that one node has for itself.
//!
//! Not here: who runs it, and its entries in the audit (`crates/terrace`), and how a store is copied (`store`).

mod folder;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Snapshot, Store, StoreError};

use crate::schedule::Schedule;

pub use folder::{BackupFolder, BackupRoom};

/// The tree of the record.
const TREE: &str = "node.backups";

/// Its only key.
const KEY: &[u8] = b"last";

const VERSION: u8 = 1;

/// How long after a failed backup it is tried again, microseconds.
pub const RETRY_US: i64 = 15 * 60 * 1_000_000;

/// How often a change of the record is tried that meets another one.
const TRIES: usize = 20;

/// Longest reason of a failure that is kept, in bytes.
const WHY_MAX: usize = 500;

/// What backups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupSettings {
    /// Where they lie: a folder of the node's own.
    pub folder: PathBuf,
    /// When they are made.
    pub times: BackupTimes,
    /// How many are kept, 1 or more.
    pub keep: usize,
    /// Each is read once more, journal and pages, before it counts.
    pub verify: bool,
}

/// When backups are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BackupTimes {
    /// So long after the begin of the last good one, microseconds.
    Every(i64),
    /// Once in each window, from its begin on.
    Windows(Schedule),
}

/// What is known of the backups of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupRecord {
    version: u8,
    /// The last good one.
    pub good: Option<GoodBackup>,
    /// The failure of the last try; none after a good one.
    pub failed: Option<FailedBackup>,
}

/// A backup that was made and checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GoodBackup {
    /// Its folder.
    pub folder: PathBuf,
    /// When it was begun, microseconds since 1970.
    pub began_us: i64,
    /// When it was done.
    pub ended_us: i64,
    /// It has every record before this position of the journal.
    pub until: u64,
    /// It was read once more.
    pub verified: bool,
}

/// A try that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedBackup {
    /// When, microseconds since 1970.
    pub at_us: i64,
    /// Why.
    pub why: String,
    /// How many have failed one after the other.
    pub tries: u32,
}

impl Default for BackupRecord {
    fn default() -> BackupRecord {
        BackupRecord { version: VERSION, good: None, failed: None }
    }
}

impl BackupTimes {
    /// Whether one is due at a moment, microseconds since 1970. A good one from a time to come, by a clock that was wrong, does not count.
    pub fn is_due(&self, record: &BackupRecord, now_us: i64) -> bool {
        let is_early = |failed: &FailedBackup| (failed.at_us..failed.at_us.saturating_add(RETRY_US)).contains(&now_us);
        if record.failed.as_ref().is_some_and(is_early) {
            return false;
        }
        let good = record.good.as_ref().map(|good| good.began_us).filter(|began_us| *began_us <= now_us);
        match self {
            BackupTimes::Every(us) => good.is_none_or(|began_us| now_us.saturating_sub(began_us) >= *us),
            BackupTimes::Windows(schedule) => {
                let window = schedule.window_begin(now_us);
                window.is_some_and(|begin_us| good.is_none_or(|began_us| began_us < begin_us))
            }
        }
    }
}

impl BackupRecord {
    /// The same after a good one.
    #[must_use]
    pub fn succeeded(self, good: GoodBackup) -> BackupRecord {
        BackupRecord { good: Some(good), failed: None, ..self }
    }

    /// The same after a try that failed; the last good one stays.
    #[must_use]
    pub fn failed(self, at_us: i64, why: &str) -> BackupRecord {
        let tries = self.failed.as_ref().map_or(0, |failed| failed.tries).saturating_add(1);
        let why = why[..why.floor_char_boundary(WHY_MAX)].to_owned();
        BackupRecord { failed: Some(FailedBackup { at_us, why, tries }), ..self }
    }

    /// The record of a store; none where no backup by schedule was ever due.
    ///
    /// # Errors
    /// The store's; `Corrupt` where it is not of a version that this release reads.
    pub fn read(store: &Store) -> Result<Option<BackupRecord>, StoreError> {
        BackupRecord::at(&store.snapshot())
    }

    fn at(snapshot: &Snapshot) -> Result<Option<BackupRecord>, StoreError> {
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(None) };
        snapshot.get(tree, KEY)?.map(|row| BackupRecord::decode(&row)).transpose()
    }

    fn decode(row: &[u8]) -> Result<BackupRecord, StoreError> {
        let record = serde_json::from_slice::<BackupRecord>(row).ok().filter(|record| record.version == VERSION);
        record.ok_or_else(|| StoreError::Corrupt("the record of backups is not of a version this release reads".into()))
    }

    /// Changes the record, durably; returns it.
    ///
    /// # Errors
    /// The store's.
    pub fn change(store: &Store, change: &dyn Fn(BackupRecord) -> BackupRecord) -> Result<BackupRecord, StoreError> {
        let mut tried = 0;
        loop {
            tried += 1;
            match BackupRecord::try_change(store, change) {
                Err(StoreError::Conflict) if tried < TRIES => {}
                done => return done,
            }
        }
    }

    fn try_change(store: &Store, change: &dyn Fn(BackupRecord) -> BackupRecord) -> Result<BackupRecord, StoreError> {
        let mut transaction = store.begin();
        let tree = match transaction.tree(TREE)? {
            Some(tree) => tree,
            None => transaction.create_tree(TREE)?,
        };
        let before = transaction.get(tree, KEY)?.map(|row| BackupRecord::decode(&row)).transpose()?;
        let record = change(before.unwrap_or_default());
        transaction.put(tree, KEY, &serde_json::to_vec(&record).expect("plain data becomes JSON"))?;
        transaction.commit()?;
        Ok(record)
    }
}

/// The name of a backup that was begun at a time.
pub fn name_of(began_us: i64) -> String {
    let at = Timestamp::from_microsecond(began_us).unwrap_or(Timestamp::UNIX_EPOCH);
    at.strftime("backup-%Y%m%dT%H%M%SZ").to_string()
}

/// Whether a name is that of a backup by schedule.
pub fn is_name(name: &str) -> bool {
    let digits = |text: &str, count: usize| text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit());
    let parts =
        name.strip_prefix("backup-").and_then(|rest| rest.strip_suffix('Z')).and_then(|rest| rest.split_once('T'));
    parts.is_some_and(|(date, time)| digits(date, 8) && digits(time, 6))
}

/// Those of some complete backups that are removed once the one called `newest` is good: the oldest, as far as there are more than `keep`. Never
/// itself, and none that is newer.
pub fn beyond(names: &[String], keep: usize, newest: &str) -> Vec<String> {
    let mut older: Vec<&String> = names.iter().filter(|name| is_name(name) && name.as_str() < newest).collect();
    older.sort_unstable();
    let stay = keep.saturating_sub(1).min(older.len());
    older[..older.len() - stay].iter().map(|name| (*name).clone()).collect()
}

/// Refuses a folder that backups of a node cannot have.
///
/// # Errors
/// Why not.
pub fn check_folder(folder: &Path, data: &Path) -> Result<(), String> {
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let (folder, data) = (absolute(folder), absolute(data));
    if folder.starts_with(&data) || data.starts_with(&folder) {
        return Err(format!(
            "{} and the data directory {} lie in each other: give backups a folder of their own, on another medium if possible",
            folder.display(),
            data.display()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
