//! [`KeptAlerts`]: the state of alerts and their history, in a tree of the node's store.
//!
//! ```text
//!   `state`           the AlertState, as JSON
//!   `note` + number   a line of the history, as JSON; the newest NOTES_MAX are kept
//! ```

use std::ops::Bound;

use store::{Direction, Store, StoreError, Transaction, TreeId};

use super::book::{AlertNote, AlertState};

/// The tree.
const TREE: &str = "node.alerts";

const STATE: &[u8] = b"state";
const NOTE: &[u8] = b"note";

/// Lines of the history that are kept.
const NOTES_MAX: u64 = 5_000;

/// How often a write is tried that others disturbed.
const TRIES: usize = 8;

/// See the module's text.
#[derive(Clone, Debug)]
pub(super) struct KeptAlerts {
    store: Store,
}

fn note_key(number: u64) -> Vec<u8> {
    [NOTE, &number.to_be_bytes()].concat()
}

fn number_of(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.strip_prefix(NOTE)?.try_into().ok()?))
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

    /// The state that was kept; a new one where there is none, or where it is of another release.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn state(&self) -> Result<AlertState, StoreError> {
        let snapshot = self.store.snapshot();
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(AlertState::default()) };
        let kept = snapshot.get(tree, STATE)?;
        Ok(kept.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default())
    }

    /// The newest lines of the history, newest first.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn notes(&self, most: usize) -> Result<Vec<AlertNote>, StoreError> {
        let snapshot = self.store.snapshot();
        let Some(tree) = snapshot.tree(TREE)? else { return Ok(Vec::new()) };
        let (from, to) = (note_key(0), note_key(u64::MAX));
        let bounds = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        let mut rows = snapshot.scan(tree, bounds.0, bounds.1, Direction::Backward);
        let mut notes = Vec::new();
        while notes.len() < most {
            let Some((_, bytes)) = rows.next()? else { break };
            notes.extend(serde_json::from_slice::<AlertNote>(&bytes).ok());
        }
        Ok(notes)
    }

    /// Writes lines of the history, and the state if it is another one; durable when it returns.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn write(&self, notes: &[AlertNote], state: Option<&AlertState>) -> Result<(), StoreError> {
        let mut tries = 0;
        loop {
            let mut transaction = self.store.begin();
            put(&mut transaction, notes, state)?;
            match transaction.commit() {
                Ok(_) => return Ok(()),
                Err(StoreError::Conflict) if tries < TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

fn put(transaction: &mut Transaction, notes: &[AlertNote], state: Option<&AlertState>) -> Result<(), StoreError> {
    let tree = tree_of(transaction)?;
    if let Some(state) = state {
        let bytes = serde_json::to_vec(state).expect("plain data becomes JSON");
        transaction.put(tree, STATE, &bytes)?;
    }
    let (from, to) = (note_key(0), note_key(u64::MAX));
    let ends = |direction| (Bound::Included(&from[..]), Bound::Included(&to[..]), direction);
    let first_of = |transaction: &Transaction, direction| {
        let (from, to, direction) = ends(direction);
        transaction.scan(tree, from, to, direction).next().map(|row| row.and_then(|(key, _)| number_of(&key)))
    };
    let mut next = first_of(transaction, Direction::Backward)?.map_or(0, |number| number + 1);
    for note in notes {
        let bytes = serde_json::to_vec(note).expect("plain data becomes JSON");
        transaction.put(tree, &note_key(next), &bytes)?;
        next += 1;
    }
    // No more go than came, and one: it settles.
    for _ in 0..=notes.len() {
        match first_of(transaction, Direction::Forward)? {
            Some(oldest) if next - oldest > NOTES_MAX => transaction.delete(tree, &note_key(oldest))?,
            _ => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use store::Options;

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

    #[test]
    fn the_state_and_the_newest_lines_are_kept() {
        let store = Store::in_memory(Options::default()).expect("memory");
        let kept = KeptAlerts::of(store.clone());
        assert_eq!((kept.state().expect("nothing"), kept.notes(9).expect("none")), (AlertState::default(), Vec::new()));
        let state = AlertState { next: 7, ..AlertState::default() };
        kept.write(&[note(1)], Some(&state)).expect("written");
        for from in (2..NOTES_MAX + 50).step_by(50) {
            let notes: Vec<AlertNote> = (from..from + 50).map(note).collect();
            kept.write(&notes, None).expect("written");
        }
        let again = KeptAlerts::of(store);
        assert_eq!(again.state().expect("kept"), state);
        let notes = again.notes(usize::MAX).expect("kept");
        assert_eq!(notes.len() as u64, NOTES_MAX);
        assert!(notes.windows(2).all(|pair| pair[0].at_us == pair[1].at_us + 1), "newest first, none missing");
    }
}
