//! Backups by schedule: when one is due, what is known of the last ones, and which are removed.
//!
//! ```text
//!   due? --> room? --> copied, its pages read again --> its journal read --> FOLDER/backup-20261127T020000Z --> good: recorded in the store
//!    |         |                  |                           |                            |                          |
//!    |         +------------------+---- what was made of it is removed, the reason recorded; tried again later       +--> the oldest ones
//!    +-- the record in the store: so a restart makes none twice                                                           beyond `keep`
//! ```
//!
//! Invariants:
//! 1. A backup is removed only after a newer one was made, checked and recorded; a failed one leaves the others as they are.
//! 2. The folder never fills its file system: the room is looked for before, and while it is copied.
//! 3. Only what has the name of such a backup, and is known to be of this store, is ever removed, in a folder that one node has for itself.
//! 4. The record has room also when tables have taken all of theirs; one that fails nevertheless leaves no backup behind, and the next try
//!    comes no sooner.
//!
//! Not here: who runs it, and its entries in the audit (`crates/terrace`), and how a store is copied (`store`).

mod folder;

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use store::{Snapshot, Store, StoreError};

use crate::location;
use crate::schedule::Schedule;

pub use crate::stoppable::Stopped;
pub use folder::{BackupFolder, BackupRoom};

/// The tree of the record.
const TREE: &str = "node.backups";

/// Its only key.
const KEY: &[u8] = b"last";

const VERSION: u8 = 1;

/// How long after a failed backup it is tried again, microseconds.
pub const RETRY_US: i64 = 15 * 60 * 1_000_000;

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
    /// The journal of each is read once more before it counts; its pages always are.
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
    /// Its journal was read once more, too.
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
    /// Whether one is due at a moment, microseconds since 1970. `failed_us`: when a try has failed last, which the record may not have. A
    /// good one from a time to come, by a clock that was wrong, does not count.
    pub fn is_due(&self, record: &BackupRecord, failed_us: Option<i64>, now_us: i64) -> bool {
        let is_early = |at_us: i64| (at_us..at_us.saturating_add(RETRY_US)).contains(&now_us);
        if record.failed.as_ref().map(|failed| failed.at_us).into_iter().chain(failed_us).any(is_early) {
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

    /// Changes the record, durably, in the space that is kept for messages where it has to; returns it.
    ///
    /// # Errors
    /// The store's.
    pub fn change(store: &Store, change: &dyn Fn(BackupRecord) -> BackupRecord) -> Result<BackupRecord, StoreError> {
        store.transact_beyond_limits(|transaction| {
            let tree = match transaction.tree(TREE)? {
                Some(tree) => tree,
                None => transaction.create_tree(TREE)?,
            };
            let before = transaction.get(tree, KEY)?.map(|row| BackupRecord::decode(&row)).transpose()?;
            let record = change(before.unwrap_or_default());
            transaction.put(tree, KEY, &serde_json::to_vec(&record).expect("plain data becomes JSON"))?;
            Ok(record)
        })
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

/// Refuses a folder that backups of a node cannot have: none of those that the data lies in, by whatever path, and none around or in one.
///
/// # Errors
/// Why not.
pub fn check_folder(folder: &Path, data: &Path) -> Result<(), String> {
    let place = real(folder);
    for of_data in location::folders(data) {
        let real = real(&of_data);
        if place.starts_with(&real) || real.starts_with(&place) {
            return Err(format!(
                "{} and {}, which has data of the node, lie in each other: give backups a folder of their own, on another medium if possible",
                folder.display(),
                of_data.display()
            ));
        }
    }
    Ok(())
}

/// A path without links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = absolute.ancestors().find_map(|above| Some((above, std::fs::canonicalize(above).ok()?)));
    let joined = found.and_then(|(above, real)| absolute.strip_prefix(above).ok().map(|rest| real.join(rest)));
    joined.unwrap_or(absolute)
}

#[cfg(test)]
mod tests;
