//! An index is made again from the documents in the store: after damage, or where it needs more text columns.
//!
//! ```text
//!   request --> rows in the store --durable--> answer              it does not wait
//!                    |
//!   rebuild   round 1: all operations so far | round 2: those since | ... | last round: few, and writes wait for it
//! ```
//!
//! Invariants: while it goes on, operations are not handed to the writer but read from the store; searches see the state before it;
//! what needs the writer (a refresh, a new field, a setting, a merge) is refused meanwhile, and does not wait.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{Direction, Snapshot};

use super::opening::new_index;
use super::rows::{self, DOCUMENT, TOMBSTONE};
use super::{Fields, IndexedOp, SearchIndex, WriterState, own, parse_source};
use crate::document::IndexedDocument;
use crate::error::SearchError;
use crate::mapping::Mapping;

/// Documents of the store that are indexed between two looks at the writer's room.
const REPLAY_BATCH: usize = 1_000;

/// Operations that may be left for the last round, for which writes wait: a second of indexing at most.
const LAST_ROUND: u64 = 20_000;

/// Rounds before the last one: writers faster than the indexing must not keep it from its end.
const ROUNDS: u32 = 16;

/// Sets a flag until it is dropped.
struct RebuildMark<'a>(&'a AtomicBool);

impl<'a> RebuildMark<'a> {
    fn set(flag: &'a AtomicBool) -> RebuildMark<'a> {
        flag.store(true, Ordering::Release);
        RebuildMark(flag)
    }
}

impl Drop for RebuildMark<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Makes the library's index anew from the documents in the store. Errors: those of the store, of the medium and of the library.
pub(super) fn run(index: &SearchIndex, state: &mut WriterState, mapping: Mapping) -> Result<(), SearchError> {
    let mark = RebuildMark::set(&index.rebuilding);
    state.end_writer()?;
    state.directory.clear();
    state.index = new_index(state.directory.clone(), &mapping)?;
    {
        let mut fields = index.fields.write();
        fields.mapping = mapping.clone().into();
        fields.schema = state.index.schema();
        fields.generation += 1;
    }
    state.refreshed = 0;
    state.applied = 0;
    state.is_behind = true;
    if !index.is_fed() {
        for _ in 0..ROUNDS {
            index.recover(state)?;
            index.commit(state)?;
            state.refreshed = state.applied;
            // What came meanwhile is in the store alone.
            state.is_behind = true;
            if index.sequencer.lock().watermark().saturating_sub(state.applied) <= LAST_ROUND {
                break;
            }
        }
    }
    // From here on operations wait for the writer.
    drop(mark);
    index.recover(state)?;
    index.commit(state)?;
    index.reopen(state, mapping)
}

/// Indexes the operations of the store from number `from` on, below `to`.
pub(super) fn replay(index: &SearchIndex, state: &mut WriterState, from: u64, to: u64) -> Result<(), SearchError> {
    let snapshot = index.place.store.snapshot();
    let mut deletes = DeletesInOrder { index, snapshot: &snapshot, next: from, to, read: VecDeque::new() };
    let mut at = from;
    loop {
        let ends = [rows::key(DOCUMENT, at), rows::key(DOCUMENT, to)];
        let mut cursor =
            snapshot.scan(index.trees.docs, Bound::Included(&ends[0]), Bound::Excluded(&ends[1]), Direction::Forward);
        let mut found = 0;
        while found < REPLAY_BATCH
            && let Some((key, value)) = cursor.next()?
        {
            let Some(seq) = rows::seq_of(DOCUMENT, &key) else { continue };
            while let Some((seq, id)) = deletes.before(seq)? {
                index.index_op(state, IndexedOp { id, seq, replaces: true, document: None, bytes: 0 })?;
            }
            let stored = rows::decode_document(&value)?;
            let fields = index.fields.read().clone();
            let Fields { mapping, analyzers, schema, generation } = &fields;
            let object = parse_source(&stored.source)?;
            let mut document = IndexedDocument::read_again(mapping, analyzers, schema, (&stored.id, seq), &object)?;
            if stored.routing.is_some() {
                document.add_text(own(schema).names, crate::schema::ROUTING);
            }
            let bytes = stored.source.len() as u64;
            let document = Some((document, *generation));
            index.index_op(state, IndexedOp { id: stored.id, seq, replaces: true, document, bytes })?;
            at = seq + 1;
            found += 1;
        }
        if found < REPLAY_BATCH {
            break;
        }
    }
    while let Some((seq, id)) = deletes.before(to)? {
        index.index_op(state, IndexedOp { id, seq, replaces: true, document: None, bytes: 0 })?;
    }
    Ok(())
}

/// Deleted ids of a range of operations, a batch of them in memory.
struct DeletesInOrder<'a> {
    index: &'a SearchIndex,
    snapshot: &'a Snapshot,
    /// Those before are read.
    next: u64,
    to: u64,
    read: VecDeque<(u64, String)>,
}

impl DeletesInOrder<'_> {
    /// The next delete, if its number is below `limit`.
    fn before(&mut self, limit: u64) -> Result<Option<(u64, String)>, SearchError> {
        if self.read.is_empty() && self.next < self.to {
            self.fill()?;
        }
        let is_before = self.read.front().is_some_and(|(seq, _)| *seq < limit);
        Ok(if is_before { self.read.pop_front() } else { None })
    }

    fn fill(&mut self) -> Result<(), SearchError> {
        let ends = [rows::key(TOMBSTONE, self.next), rows::key(TOMBSTONE, self.to)];
        let trees = self.index.trees;
        let mut cursor =
            self.snapshot.scan(trees.docs, Bound::Included(&ends[0]), Bound::Excluded(&ends[1]), Direction::Forward);
        self.next = self.to;
        while let Some((key, value)) = cursor.next()? {
            let (Some(seq), Some(id)) = (rows::seq_of(TOMBSTONE, &key), value.get(8..)) else { continue };
            self.read.push_back((seq, String::from_utf8_lossy(id).into_owned()));
            if self.read.len() == REPLAY_BATCH {
                self.next = seq + 1;
                break;
            }
        }
        Ok(())
    }
}
