//! What a command did to a stopped node without opening its store: noted beside the store at once, and entered into the audit at
//! the next start of the node.
//!
//! ```text
//!   command on a stopped node   note "granted", durable --> done          and if it fails: note "failed"
//!   next start                  notes --> entries, durable --> the file is removed
//!
//!   DATA/audit.pending          a JSON object a line: number that nobody else draws, time, entry
//! ```
//!
//! A change of keys must not need the store: its journal may lie on a tier that only the node reaches, opening it would take an
//! epoch of the keys that are changed, and recovery would write. So the note comes first, and the chain later.
//!
//! Invariants: what a note is about begins after the note is durable; a note goes when its entry is durable, and has one entry
//! though a crash comes in between. A note that cannot be read is an entry that says so.
//!
//! What it does not do: until the next start a note is a line of a file, which who can write the data directory can remove. So
//! can, in the same way, the envelope be replaced by an older one.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use device::os;
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};

use super::entry::{AuditEntry, AuditOutcome};
use super::reading::{AuditFilter, AuditQuery, AuditReader, PAGE_ENTRIES};
use super::writing::Audit;
use crate::error::NodeError;

/// The file of notes in a data directory.
const FILE: &str = "audit.pending";

/// Most bytes of it: a few thousand changes of keys without a start between them. Then the node is to be started.
const BYTES_MAX: u64 = 1 << 20;

/// Most notes: as many as one page of the audit is looked through for.
const NOTES_MAX: usize = PAGE_ENTRIES / 2;

/// The detail of an entry that says which note it was.
const NOTE: &str = "note";

/// The detail that says when it was noted, in microseconds since 1970: the entry's own time is that of the next start.
const NOTED_US: &str = "noted_us";

/// A note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PendingNote {
    note: String,
    at_us: i64,
    entry: AuditEntry,
}

fn file_of(data: &Path) -> PathBuf {
    data.join(FILE)
}

/// The notes of a data directory, and how many lines are none.
fn read(data: &Path) -> Result<(Vec<PendingNote>, usize), NodeError> {
    let path = file_of(data);
    let text = match std::fs::read(&path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(NodeError::file("read", &path)(error)),
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty()).take(NOTES_MAX);
    let read: Vec<Option<PendingNote>> = lines.map(|line| serde_json::from_str(line).ok()).collect();
    let unreadable = read.iter().filter(|note| note.is_none()).count();
    Ok((read.into_iter().flatten().collect(), unreadable))
}

/// Notes an entry of a command on the stopped node at `data`, whose lock the caller has. Durable when it returns.
///
/// # Errors
/// `File`; `Refused`: there are too many notes, or there is no randomness.
pub fn note(data: &Path, at_us: i64, entry: &AuditEntry) -> Result<(), NodeError> {
    let path = file_of(data);
    let mut number = [0; 8];
    let drawn = SystemRandom::new().fill(&mut number);
    drawn.map_err(|_| NodeError::Refused("the system returned no random bytes".to_owned()))?;
    let note = PendingNote { note: format!("{:016x}", u64::from_be_bytes(number)), at_us, entry: entry.clone() };
    let mut text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(NodeError::file("read", &path)(error)),
    };
    if text.len() as u64 >= BYTES_MAX || text.lines().count() >= NOTES_MAX {
        let path = path.display();
        return Err(NodeError::Refused(format!(
            "{path} is full of changes that the audit does not have yet: start the node once, which enters them"
        )));
    }
    text.push_str(&serde_json::to_string(&note).expect("plain data becomes JSON"));
    text.push('\n');
    os::replace_file(&path, text.as_bytes()).map_err(NodeError::file("write", &path))
}

/// Enters the notes of `data` into the audit of its node, which starts; returns how many. A note whose entry is there already, from a
/// start that a crash ended, gets no other one.
///
/// # Errors
/// `File`, the store's, and that the audit takes no entry: the notes stay for the next start.
pub fn take_up(data: &Path, audit: &Arc<Audit>) -> Result<usize, NodeError> {
    let (notes, unreadable) = read(data)?;
    if notes.is_empty() && unreadable == 0 {
        return Ok(0);
    }
    let entered = entered(audit, &notes)?;
    let (mut last, mut count) = (None, 0);
    for PendingNote { note, at_us, entry } in notes.into_iter().filter(|note| !entered.contains(&note.note)) {
        last = Some(audit.record(entry.with(NOTE, note).with(NOTED_US, at_us.to_string()))?);
        count += 1;
    }
    if unreadable > 0 {
        let why = format!("{unreadable} notes of commands on the stopped node cannot be read");
        last = Some(audit.record(AuditEntry::new("audit.pending", FILE).ended(AuditOutcome::Failed, why))?);
    }
    if let Some(ticket) = last {
        audit.wait(ticket)?;
    }
    let path = file_of(data);
    os::remove_file(&path).map_err(NodeError::file("remove", &path))?;
    Ok(count)
}

/// The notes that have their entries.
fn entered(audit: &Arc<Audit>, notes: &[PendingNote]) -> Result<BTreeSet<String>, NodeError> {
    audit.wait_visible()?;
    let reader = AuditReader::at(audit.store().snapshot())?;
    let words: BTreeSet<&str> = notes.iter().map(|note| note.entry.action.split('.').next().unwrap_or("")).collect();
    let mut found = BTreeSet::new();
    for word in words {
        let filter = AuditFilter { action: Some(word.to_owned()), ..AuditFilter::default() };
        let query = AuditQuery { filter, newest_first: true, from: None, limit: PAGE_ENTRIES };
        let entries = reader.page(&query)?.entries.into_iter();
        found.extend(entries.filter_map(|shown| shown.chained.entry.details.get(NOTE).cloned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use store::{Options, Store};

    use super::super::record::KIND_AUDIT;
    use super::super::rows::AuditRows;
    use super::super::writing::AuditSettings;
    use super::*;
    use crate::{Clock, Interpreters};

    fn audit(max_bytes: u64) -> (Arc<Audit>, Store) {
        let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
        let options = Options { interpreter: Some(Arc::new(interpreter)), ..Options::default() };
        let store = Store::in_memory(options).expect("there is memory");
        let settings = AuditSettings { max_bytes, ..AuditSettings::default() };
        (Audit::open(&store, settings, Clock::fixed(9)), store)
    }

    fn entries(audit: &Arc<Audit>) -> Vec<AuditEntry> {
        audit.wait_visible().expect("it works");
        let reader = AuditReader::at(audit.store().snapshot()).expect("it reads");
        let page = reader.page(&AuditQuery::default()).expect("it reads");
        page.entries.into_iter().map(|shown| shown.chained.entry).collect()
    }

    #[test]
    fn each_note_has_one_entry_also_if_a_crash_leaves_the_file() {
        let (data, (audit, _store)) = (tempfile::tempdir().expect("a folder"), audit(1 << 20));
        assert_eq!(take_up(data.path(), &audit).expect("there are none"), 0);
        for action in ["encryption.rotate-data-key", "encryption.retire-data-key"] {
            note(data.path(), 5, &AuditEntry::new(action, "1")).expect("noted");
        }
        let file = std::fs::read(file_of(data.path())).expect("it is there");
        assert_eq!(take_up(data.path(), &audit).expect("entered"), 2);
        assert!(!file_of(data.path()).exists());
        // The entries are durable, and the file was not removed.
        std::fs::write(file_of(data.path()), &file).expect("written");
        assert_eq!(take_up(data.path(), &audit).expect("known"), 0);
        let entries = entries(&audit);
        let shown: Vec<_> = entries.iter().map(|entry| (&*entry.action, &*entry.object)).collect();
        assert_eq!(shown, [("encryption.rotate-data-key", "1"), ("encryption.retire-data-key", "1")]);
        assert!(entries.iter().all(|entry| entry.details[NOTED_US] == "5" && entry.details[NOTE].len() == 16));
    }

    #[test]
    fn a_note_that_cannot_be_read_is_an_entry_and_a_full_audit_leaves_the_notes() {
        let data = tempfile::tempdir().expect("a folder");
        note(data.path(), 5, &AuditEntry::new("encryption.rotate-data-key", "")).expect("noted");
        let (full, _store) = audit(1);
        take_up(data.path(), &full).expect_err("it takes none");
        assert!(file_of(data.path()).exists(), "the next start has them");
        let (audit, _other) = audit(1 << 20);
        let mut text = std::fs::read(file_of(data.path())).expect("it is there");
        text.extend(b"{\"note\":\n");
        std::fs::write(file_of(data.path()), text).expect("written");
        assert_eq!(take_up(data.path(), &audit).expect("entered"), 1);
        let last = entries(&audit).pop().expect("two");
        assert_eq!((&*last.action, last.outcome), ("audit.pending", AuditOutcome::Failed));
    }

    #[test]
    fn notes_are_bounded() {
        let data = tempfile::tempdir().expect("a folder");
        for _ in 0..NOTES_MAX {
            note(data.path(), 5, &AuditEntry::new("encryption.rotate-data-key", "")).expect("noted");
        }
        let refused = note(data.path(), 5, &AuditEntry::new("encryption.rotate-data-key", "")).expect_err("too many");
        assert!(refused.to_string().contains("start the node once"), "{refused}");
    }
}
