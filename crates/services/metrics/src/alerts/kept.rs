//! [`KeptAlerts`]: the state of alerts, the messages that are to go out, and the history, in a tree of the node's store.
//!
//! ```text
//!   `state`           the AlertState, as JSON
//!   `out` + number    a message that its channel has not taken yet, as JSON
//!   `note` + number   a line of the history, as JSON; the newest NOTES_MAX are kept
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use store::{Direction, Store, StoreError, Transaction, TreeId};

use super::book::{AlertAction, AlertNote, AlertState, Outgoing};

/// The tree.
const TREE: &str = "node.alerts";

const STATE: &[u8] = b"state";
const NOTE: &[u8] = b"note";
const OUT: &[u8] = b"out";

/// Lines of the history that are kept.
const NOTES_MAX: u64 = 5_000;

/// Most lines of the history that wait for being written.
const WAITING_MAX: usize = 1_000;

/// Changes that are written together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AlertChange {
    pub(super) notes: Vec<AlertNote>,
    pub(super) state: Option<AlertState>,
    pub(super) put: BTreeMap<u64, Outgoing>,
    pub(super) drop: BTreeSet<u64>,
}

impl AlertChange {
    /// What these actions ask to be kept.
    pub(super) fn of(actions: &[AlertAction], state: &AlertState) -> AlertChange {
        let mut change = AlertChange::default();
        for action in actions {
            match action {
                AlertAction::Tell(outgoing) => _ = change.put.insert(outgoing.notice.id, outgoing.clone()),
                AlertAction::Drop(id) => _ = change.drop.insert(*id),
                AlertAction::Note(note) => change.notes.push(note.clone()),
                AlertAction::Save => change.state = Some(state.clone()),
            }
        }
        change
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == AlertChange::default()
    }

    /// Puts a later change behind this one.
    pub(super) fn add(&mut self, later: AlertChange) {
        self.notes.extend(later.notes);
        let beyond = self.notes.len().saturating_sub(WAITING_MAX);
        self.notes.drain(..beyond);
        self.state = later.state.or(self.state.take());
        self.put.extend(later.put);
        self.drop.extend(later.drop);
        let drop = &self.drop;
        self.put.retain(|id, _| !drop.contains(id));
    }
}

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct KeptAlerts {
    store: Store,
}

fn numbered(kind: &[u8], number: u64) -> Vec<u8> {
    [kind, &number.to_be_bytes()].concat()
}

fn number_of(key: &[u8], kind: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.strip_prefix(kind)?.try_into().ok()?))
}

fn tree_of(transaction: &mut Transaction) -> Result<TreeId, StoreError> {
    match transaction.tree(TREE)? {
        Some(tree) => Ok(tree),
        None => transaction.create_tree(TREE),
    }
}

impl KeptAlerts {
    /// In this store. Nothing is written before the first change.
    pub(super) fn of(store: Store) -> KeptAlerts {
        KeptAlerts { store }
    }

    /// The state that was kept, with the messages that are to go out; a new one where there is none. One that cannot be read, of another
    /// release, is a new one too, with a line of the log.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn state(&self) -> Result<(AlertState, BTreeMap<u64, Outgoing>), StoreError> {
        let snapshot = self.store.snapshot();
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(Default::default()) };
        let read = |bytes: Vec<u8>| {
            let read = serde_json::from_slice(&bytes);
            read.map_err(|error| tracing::warn!(%error, "the kept state of alerts cannot be read: they begin anew"))
                .ok()
        };
        let state: Option<AlertState> = snapshot.get(tree, STATE)?.and_then(|bytes| read(bytes.to_vec()));
        let mut outgoing = BTreeMap::new();
        let (from, to) = (numbered(OUT, 0), numbered(OUT, u64::MAX));
        let mut rows = snapshot.scan(tree, Bound::Included(&from), Bound::Included(&to), Direction::Forward);
        while let Some((key, bytes)) = rows.next()? {
            let row = number_of(&key, OUT).zip(serde_json::from_slice::<Outgoing>(&bytes).ok());
            outgoing.extend(row);
        }
        Ok((state.unwrap_or_default(), outgoing))
    }

    /// The newest lines of the history, newest first.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn notes(&self, most: usize) -> Result<Vec<AlertNote>, StoreError> {
        let snapshot = self.store.snapshot();
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(Vec::new()) };
        let (from, to) = (numbered(NOTE, 0), numbered(NOTE, u64::MAX));
        let mut rows = snapshot.scan(tree, Bound::Included(&from), Bound::Included(&to), Direction::Backward);
        let mut notes = Vec::new();
        while notes.len() < most {
            let Some((_, bytes)) = rows.next()? else { break };
            notes.extend(serde_json::from_slice::<AlertNote>(&bytes).ok());
        }
        Ok(notes)
    }

    /// Writes a change; durable when it returns.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn write(&self, change: &AlertChange) -> Result<(), StoreError> {
        self.store.transact(|transaction| put(transaction, change))
    }
}

fn put(transaction: &mut Transaction, change: &AlertChange) -> Result<(), StoreError> {
    let tree = tree_of(transaction)?;
    if let Some(state) = &change.state {
        let bytes = serde_json::to_vec(state).expect("plain data becomes JSON");
        transaction.put(tree, STATE, &bytes)?;
    }
    for (id, outgoing) in &change.put {
        let bytes = serde_json::to_vec(outgoing).expect("plain data becomes JSON");
        transaction.put(tree, &numbered(OUT, *id), &bytes)?;
    }
    for id in &change.drop {
        transaction.delete(tree, &numbered(OUT, *id))?;
    }
    let (from, to) = (numbered(NOTE, 0), numbered(NOTE, u64::MAX));
    let first_of = |transaction: &Transaction, direction| {
        let mut rows = transaction.scan(tree, Bound::Included(&from), Bound::Included(&to), direction);
        rows.next().map(|row| row.and_then(|(key, _)| number_of(&key, NOTE)))
    };
    let mut next = first_of(transaction, Direction::Backward)?.map_or(0, |number| number + 1);
    for note in &change.notes {
        let bytes = serde_json::to_vec(note).expect("plain data becomes JSON");
        transaction.put(tree, &numbered(NOTE, next), &bytes)?;
        next += 1;
    }
    // No more go than came, and one: it settles.
    for _ in 0..=change.notes.len() {
        match first_of(transaction, Direction::Forward)? {
            Some(oldest) if next - oldest > NOTES_MAX => transaction.delete(tree, &numbered(NOTE, oldest))?,
            _ => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::Options;

    use super::super::book::{AlertKey, AlertNotice, NoticeKind};
    use super::*;

    fn note(number: u64) -> AlertNote {
        AlertNote {
            at_us: number as i64,
            what: "on".to_owned(),
            rule: "old".to_owned(),
            subject: "lab".to_owned(),
            text: String::new(),
        }
    }

    fn outgoing(id: u64) -> Outgoing {
        let key = AlertKey { rule: "old".to_owned(), subject: "lab".to_owned() };
        let (kind, when, text) = (NoticeKind::On, String::new(), String::new());
        Outgoing {
            channel: "duty".to_owned(),
            notice: AlertNotice { id, kind, key, when, text, since_us: 1, at_us: 2 },
        }
    }

    #[test]
    fn the_state_the_messages_and_the_newest_lines_are_kept() {
        let store = Store::in_memory(Options::default()).expect("memory");
        let kept = KeptAlerts::of(store.clone());
        assert_eq!((kept.state().expect("nothing"), kept.notes(9).expect("none")), (Default::default(), Vec::new()));
        let state = AlertState { last_silence: 7, ..AlertState::default() };
        let mut change = AlertChange { notes: vec![note(1)], state: Some(state.clone()), ..AlertChange::default() };
        change.put = (1..4).map(|id| (id, outgoing(id))).collect();
        kept.write(&change).expect("written");
        kept.write(&AlertChange { drop: [2].into(), ..AlertChange::default() }).expect("written");
        for from in (2..NOTES_MAX + 50).step_by(50) {
            let notes: Vec<AlertNote> = (from..from + 50).map(note).collect();
            kept.write(&AlertChange { notes, ..AlertChange::default() }).expect("written");
        }
        let again = KeptAlerts::of(store);
        let waits = [1, 3].map(|id| (id, outgoing(id))).into();
        assert_eq!(again.state().expect("kept"), (state, waits));
        let notes = again.notes(usize::MAX).expect("kept");
        assert_eq!(notes.len() as u64, NOTES_MAX);
        assert!(notes.windows(2).all(|pair| pair[0].at_us == pair[1].at_us + 1), "newest first, none missing");
    }

    #[test]
    fn changes_that_wait_become_one_in_their_order() {
        let mut all = AlertChange { put: [(1, outgoing(1))].into(), notes: vec![note(1)], ..AlertChange::default() };
        all.add(AlertChange {
            state: Some(AlertState { last_silence: 1, ..AlertState::default() }),
            ..AlertChange::default()
        });
        all.add(AlertChange { drop: [1].into(), put: [(2, outgoing(2))].into(), ..AlertChange::default() });
        all.add(AlertChange { notes: (2..2_000).map(note).collect(), ..AlertChange::default() });
        assert_eq!(all.put.keys().collect::<Vec<_>>(), [&2]);
        assert_eq!(
            (all.notes.len(), all.notes.last(), all.state.map(|s| s.last_silence)),
            (WAITING_MAX, Some(&note(1_999)), Some(1))
        );
    }
}
