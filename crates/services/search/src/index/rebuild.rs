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

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::MutexGuard;
use store::Direction;

use super::rows::{self, DOCUMENT, TOMBSTONE};
use super::searchable::new_index;
use super::{Fields, IndexedOp, SearchIndex, WriterState, own, parse_source};
use crate::document::IndexedDocument;
use crate::error::SearchError;
use crate::mapping::Mapping;

/// How often who waits for the writer looks whether the index is being made again.
pub(super) const LOOK: Duration = Duration::from_millis(50);

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

impl SearchIndex {
    /// The writer, for a request. Errors: the index is being made again (503); the request is to be repeated later.
    pub(super) fn lock_writer(&self) -> Result<MutexGuard<'_, WriterState>, SearchError> {
        loop {
            if let Some(state) = self.writer.try_lock_for(LOOK) {
                return Ok(state);
            }
            if self.rebuilding.load(Ordering::Acquire) {
                let reason = "the index is being made again from its documents: documents can be written and read by id, and searches \
                              see the state before it. Repeat the request later";
                return Err(SearchError::new(503, "unavailable_shards_exception", reason).of(&self.name()));
            }
        }
    }

    /// Whether it is being made again: what is ready is then read from the store, and is not kept here.
    pub(super) fn drops_for_rebuild(&self) -> bool {
        let mut sequencer = self.sequencer.lock();
        let rebuilds = self.rebuilding.load(Ordering::Acquire);
        if rebuilds {
            drop(sequencer.take_ready());
        }
        rebuilds
    }

    /// Makes the library's index anew from the documents in the store: after damage, or where it needs more text columns.
    ///
    /// Errors: those of the store, of the medium and of the library.
    pub fn rebuild(&self) -> Result<(), SearchError> {
        let mut state = self.writer.lock();
        self.check_deleted()?;
        let mapping = self.mapping();
        self.rebuild_with(&mut state, Mapping::clone(&mapping))
    }

    pub(super) fn rebuild_with(&self, state: &mut WriterState, mapping: Mapping) -> Result<(), SearchError> {
        let mark = RebuildMark::set(&self.rebuilding);
        state.end_writer()?;
        state.directory.clear();
        let index = new_index(state.directory.clone(), &mapping)?;
        state.index = index;
        {
            let mut fields = self.fields.write();
            fields.mapping = mapping.clone().into();
            fields.schema = state.index.schema();
            fields.generation += 1;
        }
        state.refreshed = 0;
        state.applied = 0;
        state.is_behind = true;
        if !self.is_fed() {
            for _ in 0..ROUNDS {
                self.recover(state)?;
                self.commit(state)?;
                state.refreshed = state.applied;
                // What came meanwhile is in the store alone.
                state.is_behind = true;
                if self.sequencer.lock().watermark().saturating_sub(state.applied) <= LAST_ROUND {
                    break;
                }
            }
        }
        // From here on operations wait for the writer.
        drop(mark);
        self.recover(state)?;
        self.commit(state)?;
        self.reopen(state, mapping)
    }

    /// Indexes the operations of the store from number `from` on, below `to`.
    pub(super) fn replay(&self, state: &mut WriterState, from: u64, to: u64) -> Result<(), SearchError> {
        let snapshot = self.place.store.snapshot();
        let mut deletes = Vec::new();
        let ends = [rows::key(TOMBSTONE, from), rows::key(TOMBSTONE, to)];
        let mut cursor =
            snapshot.scan(self.trees.docs, Bound::Included(&ends[0]), Bound::Excluded(&ends[1]), Direction::Forward);
        while let Some((key, value)) = cursor.next()? {
            if let (Some(seq), Some(id)) = (rows::seq_of(TOMBSTONE, &key), value.get(8..)) {
                deletes.push((seq, String::from_utf8_lossy(id).into_owned()));
            }
        }
        let mut deletes = deletes.into_iter().peekable();
        let mut at = from;
        loop {
            let ends = [rows::key(DOCUMENT, at), rows::key(DOCUMENT, to)];
            let mut cursor = snapshot.scan(
                self.trees.docs,
                Bound::Included(&ends[0]),
                Bound::Excluded(&ends[1]),
                Direction::Forward,
            );
            let mut found = 0;
            while found < REPLAY_BATCH
                && let Some((key, value)) = cursor.next()?
            {
                let Some(seq) = rows::seq_of(DOCUMENT, &key) else { continue };
                while let Some((seq, id)) = deletes.next_if(|(deleted, _)| *deleted < seq) {
                    self.index_op(state, IndexedOp { id, seq, replaces: true, document: None, bytes: 0 })?;
                }
                let stored = rows::decode_document(&value)?;
                let fields = self.fields.read().clone();
                let Fields { mapping, analyzers, schema, generation } = &fields;
                let object = parse_source(&stored.source)?;
                let mut document = IndexedDocument::read_again(mapping, analyzers, schema, (&stored.id, seq), &object)?;
                if stored.routing.is_some() {
                    document.add_text(own(schema).names, crate::schema::ROUTING);
                }
                let bytes = stored.source.len() as u64;
                let document = Some((document, *generation));
                self.index_op(state, IndexedOp { id: stored.id, seq, replaces: true, document, bytes })?;
                at = seq + 1;
                found += 1;
            }
            if found < REPLAY_BATCH {
                break;
            }
        }
        for (seq, id) in deletes {
            self.index_op(state, IndexedOp { id, seq, replaces: true, document: None, bytes: 0 })?;
        }
        Ok(())
    }
}
