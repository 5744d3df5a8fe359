//! Checks whether the rows are consistent: every message is complete and found by each of its index entries, and no
//! entry is without its message.
//!
//! Every output either waits or has an outcome, and not both. Problems name ids and trees, never contents of a message.

use node::{NodeFolder, control};
use serde::{Deserialize, Serialize};
use store::{Direction, TreeId};

use super::read::{Brief, Reader, Summary};
use super::{
    TREES, interpreter, link_prefix, object_key, object_of, state_key, state_of_outcome, text_prefix, time_key,
};
use crate::error::InteropError;
use crate::record::search::SearchKeys;
use crate::record::{self, MessageOrigin, Status, Stored};

/// Problems listed; more are counted.
const LISTED_MAX: usize = 20;

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Messages, resends included.
    pub messages: u64,
    /// Outputs.
    pub outputs: u64,
    /// Outputs that wait.
    pub waiting: u64,
    /// Index entries.
    pub entries: u64,
    /// The problems; the first ones as text.
    pub problems: Vec<String>,
    /// How much is wrong.
    pub wrong: u64,
}

/// The messages that were read, ascending, each with its outputs. 16 bytes each, so that what an entry is for is not read once
/// more from the medium, at another place for each.
type There = Vec<(u64, u16)>;

impl Report {
    fn problem(&mut self, text: impl FnOnce() -> String) {
        self.wrong += 1;
        if self.problems.len() < LISTED_MAX {
            self.problems.push(text());
        }
    }
}

/// Reads every row of every message and each entry of the indexes that a folder has, as recovery would leave them.
///
/// # Errors
/// They cannot be read; `Store` with `Corrupt` where opening would be refused.
pub fn check_folder(folder: &NodeFolder) -> Result<Report, InteropError> {
    match folder {
        NodeFolder::Running(data) => Ok(control::read_response(control::request(data, "check")?)?),
        NodeFolder::Stopped(_) | NodeFolder::Backup(_) => {
            let (store, _lock) = folder.open(interpreter())?;
            check(&Reader::new(&store))
        }
    }
}

/// Reads every row and every entry.
///
/// # Errors
/// The store's, where something cannot be read at all.
pub fn check(reader: &Reader) -> Result<Report, InteropError> {
    let (mut report, mut there) = (Report::default(), There::new());
    let trees = reader.trees();
    let mut cursor = reader.all(trees.messages, Direction::Forward);
    // The message being read, and how many of its outputs came by.
    let mut current: Option<(u64, Stored, u16, u16)> = None;
    while let Some((key, row)) = cursor.next()? {
        let Some((id, object)) = object_of(&key) else {
            report.problem(|| format!("hl7.messages has a key of {} bytes", key.len()));
            continue;
        };
        if object == 0 {
            finish(&mut report, &mut there, current.take());
            match record::decode_inbound(&row) {
                Some((stored, outputs)) => {
                    entries(reader, &mut report, id, &stored, outputs)?;
                    current = Some((id, stored, outputs, 0));
                }
                None => report.problem(|| format!("message {id} cannot be read")),
            }
            continue;
        }
        match &mut current {
            Some((of, stored, _, seen)) if *of == id && object == *seen + 1 => {
                *seen += 1;
                match record::decode_output(&row, &stored.raw) {
                    Some(made) => {
                        expect(reader, &mut report, trees.by_interface, &entry(&made.operation, id), id)?;
                    }
                    None => report.problem(|| format!("output {object} of message {id} cannot be read")),
                }
                outcome(reader, &mut report, id, object)?;
            }
            _ => report.problem(|| format!("object {object} of message {id} stands without what comes before it")),
        }
    }
    finish(&mut report, &mut there, current);
    strays(reader, &mut report, &there)?;
    Ok(report)
}

fn finish(report: &mut Report, there: &mut There, message: Option<(u64, Stored, u16, u16)>) {
    let Some((id, _, outputs, seen)) = message else { return };
    there.push((id, seen));
    report.messages += 1;
    report.outputs += u64::from(seen);
    if outputs != seen {
        report.problem(|| format!("message {id} has {seen} of its {outputs} outputs"));
    }
}

fn entry(text: &str, id: u64) -> Vec<u8> {
    let mut key = text_prefix(text);
    key.extend_from_slice(&id.to_be_bytes());
    key
}

/// The entries of a message itself; those of its outputs are looked for with them.
fn entries(reader: &Reader, report: &mut Report, id: u64, stored: &Stored, outputs: u16) -> Result<(), InteropError> {
    let trees = reader.trees();
    if SearchKeys::read(&stored.service, &stored.raw, stored.charset) != stored.keys {
        report.problem(|| format!("the search keys of message {id} are not those of its bytes"));
    }
    let wanted = (
        (stored.status, stored.duplicate, stored.origin.as_ref().and_then(MessageOrigin::stored).is_some()),
        outputs,
        stored.keys.identity,
        stored.keys.content,
    );
    let row = reader.snapshot().get(trees.by_time, &time_key(stored.received_us, id))?;
    let found = row.as_deref().and_then(Summary::decode);
    if found.map(|found| (found.decided(), found.outputs, found.identity, found.content)) != Some(wanted) {
        report.problem(|| format!("message {id} does not fit its entry in hl7.by_time"));
    }
    expect(reader, report, trees.by_interface, &entry(&stored.service, id), id)?;
    if stored.status != Status::Routed {
        expect(reader, report, trees.by_state, &state_key(record::status_code(stored.status), id), id)?;
    }
    if let Some(origin) = &stored.origin {
        let key = [&link_prefix(origin.derivation, origin.id, &origin.key)[..], &id.to_be_bytes()].concat();
        expect(reader, report, trees.by_state, &key, id)?;
    }
    let mut keys = Vec::new();
    stored.keys.texts(|index, text| keys.push((trees.of_text(index), entry(text, id))));
    keys.iter().try_for_each(|(tree, key)| expect(reader, report, *tree, key, id))?;
    let brief = Brief { received_us: stored.received_us, outputs };
    for (tree, key) in keys.iter().filter(|(tree, _)| *tree == trees.by_type) {
        let row = reader.snapshot().get(*tree, key)?;
        if row.is_some_and(|row| Brief::decode(&row) != Some(brief)) {
            report.problem(|| format!("message {id} does not fit its entry in hl7.by_type"));
        }
    }
    Ok(())
}

fn expect(reader: &Reader, report: &mut Report, tree: TreeId, key: &[u8], id: u64) -> Result<(), InteropError> {
    if reader.snapshot().get(tree, key)?.is_none() {
        report.problem(|| format!("message {id} is not in {}", name(reader, tree)));
    }
    Ok(())
}

fn name(reader: &Reader, tree: TreeId) -> &'static str {
    let ids = reader.snapshot().store().interpreted();
    ids.iter().position(|id| *id == tree).and_then(|at| TREES.get(at)).map_or("a tree", |name| name)
}

fn outcome(reader: &Reader, report: &mut Report, id: u64, object: u16) -> Result<(), InteropError> {
    let key = object_key(id, object);
    let waits = reader.snapshot().get(reader.trees().pending, &key)?.is_some();
    let outcome = reader.snapshot().get(reader.trees().outcomes, &key)?;
    report.waiting += u64::from(waits);
    match (waits, &outcome) {
        (true, None) => {}
        (false, Some(row)) => match record::decode_outcome(id, object - 1, row) {
            Some(delivery) => {
                if let Some(state) = state_of_outcome(delivery.outcome) {
                    expect(reader, report, reader.trees().by_state, &state_key(state, id), id)?;
                }
            }
            None => report.problem(|| format!("what became of output {object} of message {id} cannot be read")),
        },
        _ => report.problem(|| format!("whether output {object} of message {id} waits cannot be read")),
    }
    Ok(())
}

/// Entries without their message.
fn strays(reader: &Reader, report: &mut Report, there: &There) -> Result<(), InteropError> {
    let trees = reader.trees();
    for tree in [trees.by_time, trees.by_control, trees.by_mrn, trees.by_type, trees.by_interface, trees.by_state] {
        let mut cursor = reader.all(tree, Direction::Forward);
        while let Some((key, _)) = cursor.next()? {
            report.entries += 1;
            let id = key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id));
            stray(reader, report, there, tree, id.map(|id| (id, 0)));
        }
    }
    for tree in [trees.pending, trees.outcomes] {
        let mut cursor = reader.all(tree, Direction::Forward);
        while let Some((key, _)) = cursor.next()? {
            stray(reader, report, there, tree, object_of(&key));
        }
    }
    Ok(())
}

fn stray(reader: &Reader, report: &mut Report, there: &There, tree: TreeId, object: Option<(u64, u16)>) {
    let is_there = object.is_some_and(|(id, object)| {
        let at = there.binary_search_by_key(&id, |(id, _)| *id);
        at.is_ok_and(|at| object <= there[at].1)
    });
    if !is_there {
        report.problem(|| format!("{} has an entry for what is not there", name(reader, tree)));
    }
}
