//! Restores messages when a part of their rows is lost, as far as other rows allow.
//!
//! ```text
//!   lost                      had back from
//!   index entries             the message: its rows together are its record, and that is interpreted again
//!   what waits                the message, less the outputs that have an outcome; one whose outcome is lost as well is sent again
//!   an outcome                    nothing: its output does not wait, so it is done; recorded as failed, with the reason
//!   a row of a message        nothing: the whole message is given up, with all that refers to it
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use bytes::{Bytes, BytesMut};
use store::{Changes, Cursor, Direction, Foreign, Interpreter, Loss, Lsn, Part, Snapshot, Store, StoreError, TreeId};

use super::{GivenUp, is_lost, is_ours};
use crate::error::InteropError;
use crate::record::{self, Delivery, DeliveryOutcome};
use crate::rows::{Reader, Rows, TREES, Trees, object_key, object_of, state_key, state_of_outcome, time_of};

/// Changes that one transaction takes. A choice: a record of some hundred KB at most.
const BATCH: usize = 2_000;

/// The detail of an outcome that was lost.
const NOTE: &str = "lost to damage: whether it was delivered or given up is not known";

/// Changes on their way, some in one transaction.
struct Writing<'a> {
    store: &'a Store,
    transaction: Option<store::Transaction>,
    changes: usize,
    rows: u64,
}

impl<'a> Writing<'a> {
    fn new(store: &'a Store) -> Writing<'a> {
        Writing { store, transaction: None, changes: 0, rows: 0 }
    }

    fn set(&mut self, tree: TreeId, key: &[u8], value: Option<&[u8]>) -> Result<(), StoreError> {
        let transaction = self.transaction.get_or_insert_with(|| self.store.begin());
        match value {
            Some(value) => transaction.put(tree, key, value)?,
            None => transaction.delete(tree, key)?,
        }
        self.rows += 1;
        self.changes += 1;
        if self.changes >= BATCH { self.commit() } else { Ok(()) }
    }

    fn commit(&mut self) -> Result<(), StoreError> {
        self.changes = 0;
        self.transaction.take().map_or(Ok(()), |transaction| transaction.commit().map(drop))
    }
}

/// Makes index entries, what waits and outcomes anew where they are lost; how many.
///
/// # Errors
/// The store's.
pub(super) fn derive(store: &Store, losses: &[Loss]) -> Result<u64, InteropError> {
    let is_derived = |loss: &&Loss| is_ours(loss) && loss.name != TREES[0] && matches!(loss.part, Part::Keys(..));
    let lost: Vec<Loss> = losses.iter().filter(is_derived).cloned().collect();
    if lost.is_empty() {
        return Ok(0);
    }
    let trees = Trees::of(store.interpreted());
    let mut writing = Writing::new(store);
    let mut outcomes = Vec::new();
    let snapshot = store.snapshot();
    let reader = Reader::at(snapshot.clone());
    each_message(&snapshot, &trees, &mut |id, payload| {
        for outcome in [DeliveryOutcome::Failed, DeliveryOutcome::SetAside] {
            let Some(of_output) = state_of_outcome(outcome).map(|state| state_key(state, id)) else { continue };
            if is_lost(store, &lost, trees.by_state, &of_output)?
                && reader.outcomes(id)?.iter().any(|delivery| delivery.outcome == outcome)
            {
                writing.set(trees.by_state, &of_output, Some(&[]))?;
            }
        }
        let mut changes = Changes::default();
        let found = Foreign { lsn: Lsn(id), kind: record::KIND_MESSAGE, payload: &payload };
        if Rows.apply(&found, store.interpreted(), &mut changes).is_err() {
            // Not whole: it is given up.
            return Ok(());
        }
        for (tree, key, value) in changes.puts() {
            if tree == trees.pending {
                outputs(store, &lost, &trees, key, &mut writing, &mut outcomes)?;
            } else if is_lost(store, &lost, tree, key)? {
                writing.set(tree, key, Some(value))?;
            }
        }
        Ok(())
    })?;
    writing.commit()?;
    for some in outcomes.chunks(BATCH) {
        let lsn = store.append(record::KIND_DELIVERIES, record::encode_deliveries(some))?;
        store.commit(lsn)?;
        store.wait_visible(lsn)?;
    }
    Ok(writing.rows + outcomes.len() as u64)
}

/// Whether an output waits, and what became of it, where one of both is lost.
fn outputs(
    store: &Store,
    lost: &[Loss],
    trees: &Trees,
    key: &[u8],
    writing: &mut Writing<'_>,
    outcomes: &mut Vec<Delivery>,
) -> Result<(), InteropError> {
    let outcome_is_lost = is_lost(store, lost, trees.outcomes, key)?;
    if is_lost(store, lost, trees.pending, key)? {
        let is_done = !outcome_is_lost && store.snapshot().get(trees.outcomes, key)?.is_some();
        let value = (!is_done).then_some(&[][..]);
        writing.set(trees.pending, key, value)?;
        if outcome_is_lost {
            // It waits from here on.
            writing.set(trees.outcomes, key, None)?;
        }
    } else if outcome_is_lost {
        let waits = store.snapshot().get(trees.pending, key)?.is_some();
        match object_of(key).and_then(|(id, n)| Some((id, n.checked_sub(1)?))) {
            Some((id, output)) if !waits => {
                outcomes.push(Delivery {
                    id,
                    output,
                    outcome: DeliveryOutcome::Failed,
                    at_us: 0,
                    detail: NOTE.to_owned(),
                    by: String::new(),
                });
            }
            _ => writing.set(trees.outcomes, key, None)?,
        }
    }
    Ok(())
}

/// Calls `each` with the record of every message whose rows can be read.
fn each_message(
    snapshot: &Snapshot,
    trees: &Trees,
    each: &mut dyn FnMut(u64, Bytes) -> Result<(), InteropError>,
) -> Result<(), InteropError> {
    let mut cursor = snapshot.scan(trees.messages, Bound::Unbounded, Bound::Unbounded, Direction::Forward).once();
    let mut current: Option<(u64, BytesMut)> = None;
    loop {
        let next = match cursor.next_tried() {
            Ok(next) => next,
            Err(StoreError::Corrupt(_)) => {
                cursor.skip_damage()?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let Some((key, value)) = next else { break };
        let Some((id, object)) = object_of(&key) else { continue };
        if object == 0 {
            if let Some((id, whole)) = current.take() {
                each(id, whole.freeze())?;
            }
            current = value.ok().map(|row| (id, BytesMut::from(&row[..])));
        } else if current.as_ref().is_some_and(|(of, _)| *of == id) {
            match value {
                Ok(row) => current.iter_mut().for_each(|(_, whole)| whole.extend_from_slice(&row)),
                Err(_) => current = None,
            }
        }
    }
    match current {
        Some((id, whole)) => each(id, whole.freeze()),
        None => Ok(()),
    }
}

/// Removes all that is left of messages of which a row is lost, and returns which they are.
///
/// # Errors
/// The store's.
pub(super) fn give_up(store: &Store, losses: &[Loss]) -> Result<Vec<GivenUp>, InteropError> {
    let trees = Trees::of(store.interpreted());
    let mut given_up = Vec::new();
    for loss in losses.iter().filter(|loss| is_ours(loss) && loss.name == crate::rows::OPERATIONS) {
        let what = format!("{loss}: which operations are suspended; those that it names run from now on");
        given_up.push(GivenUp { what, message: None, waited: false });
    }
    let lost: Vec<&Loss> = losses.iter().filter(|loss| loss.name == TREES[0]).collect();
    if lost.is_empty() {
        return Ok(given_up);
    }
    let snapshot = store.snapshot();
    let mut entries: BTreeMap<u64, Vec<(TreeId, Bytes)>> = BTreeMap::new();
    for (tree, id_of) in referring(&trees) {
        each_key(snapshot.scan(tree, Bound::Unbounded, Bound::Unbounded, Direction::Forward), &mut |key| {
            if let Some(id) = id_of(&key).filter(|id| concerns(&lost, *id)) {
                entries.entry(id).or_default().push((tree, key));
            }
        })?;
    }
    let ids = lost.iter().filter_map(|loss| match &loss.part {
        Part::Value(key) => object_of(key).map(|(id, _)| id),
        Part::Keys(..) => None,
    });
    let ids: BTreeSet<u64> = ids.chain(entries.keys().copied()).collect();
    let mut writing = Writing::new(store);
    for id in ids {
        if is_whole(&snapshot, &trees, id)? {
            continue;
        }
        let entries = entries.remove(&id).unwrap_or_default();
        given_up.push(described(&trees, id, &entries));
        for (tree, key) in &entries {
            writing.set(*tree, key, None)?;
        }
        let (from, to) = (object_key(id, 0), object_key(id, u16::MAX));
        let (from, to) = (Bound::Included(&from[..]), Bound::Included(&to[..]));
        let mut keys = Vec::new();
        each_key(snapshot.scan(trees.messages, from, to, Direction::Forward), &mut |key| keys.push(key))?;
        for key in keys {
            writing.set(trees.messages, &key, None)?;
        }
    }
    writing.commit()?;
    Ok(given_up)
}

/// Finds the id in a key.
type IdOf = fn(&[u8]) -> Option<u64>;

/// Trees with entries of messages, and where they have the id.
fn referring(trees: &Trees) -> Vec<(TreeId, IdOf)> {
    let last = |key: &[u8]| key.last_chunk::<8>().map(|id| u64::from_be_bytes(*id));
    let object = |key: &[u8]| object_of(key).map(|(id, _)| id);
    vec![
        (trees.by_time, last),
        (trees.by_control, last),
        (trees.by_mrn, last),
        (trees.by_type, last),
        (trees.by_interface, last),
        (trees.by_state, last),
        (trees.pending, object),
        (trees.outcomes, object),
    ]
}

/// Whether something of a message may be lost.
fn concerns(lost: &[&Loss], id: u64) -> bool {
    let (first, last) = (object_key(id, 0), object_key(id, u16::MAX));
    lost.iter().any(|loss| match &loss.part {
        Part::Value(key) => object_of(key).is_some_and(|(of, _)| of == id),
        Part::Keys(low, high) => (high.is_empty() || first[..] < high[..]) && last[..] >= low[..],
    })
}

/// Calls `each` with every key that can be read.
fn each_key(mut cursor: Cursor, each: &mut dyn FnMut(Bytes)) -> Result<(), StoreError> {
    loop {
        match cursor.next_key() {
            Ok(Some((key, _))) => each(key),
            Ok(None) => return Ok(()),
            Err(StoreError::Corrupt(_)) => {
                cursor.skip_damage()?;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether all rows of a message can be read.
fn is_whole(snapshot: &Snapshot, trees: &Trees, id: u64) -> Result<bool, InteropError> {
    let read = |object: u16| match snapshot.get(trees.messages, &object_key(id, object)) {
        Ok(row) => Ok(row),
        Err(StoreError::Corrupt(_)) => Ok(None),
        Err(error) => Err(error),
    };
    let Some(row) = read(0)? else { return Ok(false) };
    let Some((_, outputs)) = record::decode_inbound(&row) else { return Ok(false) };
    for object in 1..=outputs {
        if read(object)?.is_none() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A message by what refers to it.
fn described(trees: &Trees, id: u64, entries: &[(TreeId, Bytes)]) -> GivenUp {
    let of = |tree: TreeId| entries.iter().filter(move |(of, _)| *of == tree).map(|(_, key)| key);
    let text = |key: &Bytes| {
        let text = String::from_utf8_lossy(&key[..key.len().saturating_sub(9)]).into_owned();
        text.chars().map(|letter| if letter.is_control() { '?' } else { letter }).collect::<String>()
    };
    let mut what = format!("message {id}");
    if let Some(control) = of(trees.by_control).next() {
        what += &format!(", control id {}", text(control));
    }
    if let Some((at_us, _)) = of(trees.by_time).next().and_then(|key| time_of(key)) {
        what += &format!(", received at {at_us} us since 1970");
    }
    let waiting = of(trees.pending).count();
    if waiting > 0 {
        what += &format!(", acknowledged and not delivered ({waiting} outputs): have it sent again");
    }
    GivenUp { what, message: Some(id), waited: waiting > 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_range_concerns_the_messages_that_have_a_row_in_it() {
        let part = |low: &[u8], high: &[u8]| Loss {
            tree: TreeId(1),
            name: TREES[0].to_owned(),
            part: Part::Keys(Bytes::copy_from_slice(low), Bytes::copy_from_slice(high)),
            why: String::new(),
        };
        let loss = part(&object_key(5, 1), &object_key(8, 0));
        let found: Vec<u64> = (0..12).filter(|id| concerns(&[&loss], *id)).collect();
        assert_eq!(found, [5, 6, 7]);
        let all = part(b"", b"");
        assert!((0..3).all(|id| concerns(&[&all], id)));
    }
}
