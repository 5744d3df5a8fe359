//! From committed operations to what searches see: the library's writer, refreshes, persisted states, merges, growing mappings.

use std::ops::Bound;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;
use serde_json::Value;
use store::Direction;
use tantivy::directory::Directory;
use tantivy::schema::Schema;
use tantivy::{Index, IndexWriter, TantivyError, Term};

use super::apply::now_millis;
use super::opening::reader_of;
use super::rows::{self, DOCUMENT, REPLACED, TOMBSTONE};
use super::{
    Counters, Fields, IndexDefinition, IndexedOp, OpenView, SearchIndex, WriterReport, WriterState, own, parse_source,
    rebuild,
};
use crate::document::IndexedDocument;
use crate::error::SearchError;
use crate::mapping::Mapping;
use crate::schema;
use crate::view::{IndexView, QueryBounds};
use crate::waiting::waiting;

/// How often who waits for the writer looks whether the index is being made again.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes of answered operations that wait for the writer; beyond it requests do.
const WAITING_BYTES: u64 = 8 << 20;

/// Bytes of answered operations that are passed to the writer together: its thread is woken for some hundred small documents, not for
/// each. A refresh passes what is left.
const TOGETHER_BYTES: u64 = 64 << 10;

/// How often a merge on request begins again when merges of the library's own took its segments: each such time one of those has ended.
const MERGE_ATTEMPTS: usize = 3;

/// The name that the library gives its list of segments.
const META: &str = "meta.json";

/// Rows removed in one transaction.
const SWEEP: usize = 2_000;

/// How long the version of a deleted document is remembered (Elasticsearch's `index.gc_deletes`), milliseconds.
const TOMBSTONE_MILLIS: u64 = 60_000;

impl WriterState {
    pub(super) fn writer(&mut self, bytes: usize) -> Result<&mut IndexWriter, SearchError> {
        if self.writer.is_none() {
            let options = tantivy::indexer::IndexWriterOptions::builder()
                .num_worker_threads(1)
                .memory_budget_per_thread(bytes)
                .num_merge_threads(1)
                .build();
            // Its threads have the priority of the one that starts them: searches and messages go first, and requests that write wait for
            // the library where it gets little time.
            let index = self.index.clone();
            let (sender, made) = std::sync::mpsc::channel();
            let make = move || {
                device::supervise::lower_priority();
                // Nobody may wait any more.
                let _ = sender.send(index.writer_with_options(options));
            };
            let failed = |why: &dyn std::fmt::Display| SearchError::internal(format!("a writer cannot be made: {why}"));
            device::supervise::thread("search writer", make, |why| tracing::error!(why, "making a writer failed"))
                .map_err(|error| failed(&error))?;
            self.writer = Some(made.recv().map_err(|error| failed(&error))??);
        }
        Ok(self.writer.as_mut().expect("it was made"))
    }
}

impl WriterState {
    /// Ends the writer and waits for its merges: one that ends later would write to files that are no longer its own.
    /// Operations that it has not committed are lost.
    pub(super) fn end_writer(&mut self) -> Result<(), SearchError> {
        match self.writer.take() {
            Some(writer) => Ok(writer.wait_merging_threads()?),
            None => Ok(()),
        }
    }
}

impl Drop for WriterState {
    fn drop(&mut self) {
        if let Err(error) = self.end_writer() {
            tracing::warn!(%error, "a merge of a search index failed");
        }
    }
}

impl SearchIndex {
    /// Passes what is ready to the writer, once it is enough. Where somebody has the writer, as for a refresh, the next one passes it, unless that is much:
    /// the store's work goes on while the library makes a segment. If it fails, the documents are durable and the index is behind them:
    /// the next refresh reads them from the store.
    pub(super) fn drain(&self) {
        loop {
            if self.drops_for_rebuild() {
                return;
            }
            let ready = self.sequencer.lock().waiting_bytes();
            if ready < TOGETHER_BYTES {
                return;
            }
            let may_wait = ready <= WAITING_BYTES;
            let state = if may_wait { self.writer.try_lock() } else { waiting(|| self.writer.try_lock_for(LOOK)) };
            if let Some(mut state) = state {
                // The library may make a segment.
                return waiting(|| self.drain_with(&mut state));
            }
            if may_wait {
                return;
            }
        }
    }

    pub(super) fn drain_with(&self, state: &mut WriterState) {
        if self.feeding.is_some() {
            return;
        }
        let (ready, watermark) = {
            let mut sequencer = self.sequencer.lock();
            (sequencer.take_ready(), sequencer.watermark())
        };
        if state.is_behind {
            return;
        }
        match ready.into_iter().flatten().try_for_each(|op| self.index_op(state, op)) {
            Ok(()) => state.applied = watermark,
            Err(error) => self.fall_behind(state, &error),
        }
    }

    /// The writer failed: everything since its last commit is lost to it.
    pub(super) fn fall_behind(&self, state: &mut WriterState, error: &SearchError) {
        let index = self.name();
        tracing::error!(index, %error, "the index of search is behind its documents; the next refresh tries again");
        if let Some(feeding) = &self.feeding {
            feeding.fell_behind(state.applied);
        }
        state.is_behind = true;
        state.applied = state.refreshed;
        // What it reports is the same failure again.
        drop(state.end_writer());
    }

    /// Gives a writer that is behind the operations of the store, from its last commit on.
    pub(super) fn recover(&self, state: &mut WriterState) -> Result<(), SearchError> {
        if !state.is_behind {
            return Ok(());
        }
        if let Some(feeding) = &self.feeding {
            drop(state.end_writer());
            state.applied = state.refreshed;
            feeding.set_fed_below(state.applied);
            state.is_behind = false;
            return Ok(());
        }
        let watermark = {
            let mut sequencer = self.sequencer.lock();
            // What was ready is in the store, below the watermark.
            drop(sequencer.take_ready());
            sequencer.watermark()
        };
        self.wait_for_commits()?;
        drop(state.end_writer());
        let from = state.refreshed;
        rebuild::replay(self, state, from, watermark)?;
        state.applied = watermark;
        state.is_behind = false;
        Ok(())
    }

    pub(super) fn commit(&self, state: &mut WriterState) -> Result<(), SearchError> {
        let committed = match &mut state.writer {
            Some(writer) => writer.commit(),
            None => return Ok(()),
        };
        committed.map(drop).map_err(|error| {
            let error = SearchError::from(error);
            self.fall_behind(state, &error);
            error
        })
    }

    pub(super) fn index_op(&self, state: &mut WriterState, op: IndexedOp) -> Result<(), SearchError> {
        let IndexedOp { id, seq, replaces, document, bytes } = op;
        let fields = self.fields.read();
        let own = own(&fields.schema);
        state.bytes += bytes;
        let writer = state.writer(self.place.writer_bytes)?;
        if replaces {
            writer.delete_term(Term::from_field_text(own.id, &id));
        }
        let Some((mut document, generation)) = document else { return Ok(()) };
        if generation != fields.generation {
            self.wait_for_commits()?;
            let stored = self.document_at(seq)?;
            let Fields { mapping, analyzers, schema, .. } = &*fields;
            document =
                IndexedDocument::read_again(mapping, analyzers, schema, (&id, seq), &parse_source(&stored.source)?)?;
            if stored.routing.is_some() {
                document.add_text(own.names, crate::schema::ROUTING);
            }
        }
        writer.add_document(document)?;
        Ok(())
    }

    /// Makes everything that was answered searchable.
    ///
    /// Errors: those of the library and of the medium; the index is being made again (503).
    pub fn refresh(&self) -> Result<(), SearchError> {
        let mut state = self.lock_writer()?;
        self.drain_with(&mut state);
        self.refresh_with(&mut state)
    }

    pub(super) fn refresh_with(&self, state: &mut WriterState) -> Result<(), SearchError> {
        self.recover(state)?;
        if state.refreshed == state.applied {
            return Ok(());
        }
        let started = Instant::now();
        self.commit(state)?;
        state.refreshed = state.applied;
        self.publish(state)?;
        Counters::add(&self.counters.refreshes, 1);
        Counters::add(&self.counters.refresh_us, started.elapsed().as_micros() as u64);
        Ok(())
    }

    /// New views see the last commit of the writer.
    pub(super) fn publish(&self, state: &WriterState) -> Result<(), SearchError> {
        // Opening segments takes a while, and searches of those before go on meanwhile.
        let reader = self.published.read().reader.clone();
        reader.reload()?;
        let searcher = reader.searcher();
        self.used.open(&searcher);
        self.zones.open(&searcher);
        let mut published = self.published.write();
        published.searcher = searcher;
        published.refreshed = state.refreshed;
        published.epoch = Arc::new(*published.epoch + 1);
        let weak = Arc::downgrade(&published.epoch);
        published.alive.retain(|epoch| epoch.strong_count() > 0);
        published.alive.push(weak);
        self.zones.retain(&published.searcher);
        Ok(())
    }

    /// The writer, for a request. Errors: the index is being made again (503); the request is to be repeated later.
    pub(super) fn lock_writer(&self) -> Result<MutexGuard<'_, WriterState>, SearchError> {
        loop {
            if let Some(state) = self.writer.try_lock().or_else(|| waiting(|| self.writer.try_lock_for(LOOK))) {
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

    /// Whether something was answered that is not searchable yet.
    pub fn needs_refresh(&self) -> bool {
        let watermark = match &self.feeding {
            Some(feeding) => feeding.fed_below(),
            None => self.sequencer.lock().complete_below(),
        };
        self.published.read().refreshed < watermark
    }

    /// Every operation below this number is searchable.
    pub fn searchable_below(&self) -> u64 {
        self.published.read().refreshed
    }

    /// What searches see now.
    pub fn view(&self) -> OpenView {
        let published = self.published.read();
        let fields = self.fields.read();
        let definition = self.definition.read();
        let bound = |name: &str| definition.settings.get(name).and_then(Value::as_str)?.parse().ok();
        let default = QueryBounds::default();
        let bounds = QueryBounds {
            terms: bound("index.max_terms_count").unwrap_or(default.terms),
            regex_chars: bound("index.max_regex_length").unwrap_or(default.regex_chars),
            expansions: !self.is_fed(),
        };
        let view = IndexView {
            name: definition.name.clone(),
            bounds,
            mapping: Arc::clone(&fields.mapping),
            analyzers: Arc::clone(&fields.analyzers),
            searcher: published.searcher.clone(),
            schema: published.schema.clone(),
            own: own(&published.schema),
            used: Arc::clone(&self.used),
            zones: Arc::clone(&self.zones),
        };
        OpenView { view, _epoch: Arc::clone(&published.epoch) }
    }

    /// What the writer has left to do; `None` while somebody uses it.
    pub fn writer_state(&self) -> Option<WriterReport> {
        let state = self.writer.try_lock()?;
        // With what was answered and waits to be passed to it.
        let bytes = state.bytes + self.sequencer.lock().waiting_bytes();
        let behind = state.persisted < state.applied || bytes > 0 || state.is_behind;
        Some(WriterReport { bytes, behind, damage: state.directory.damage() })
    }

    /// Operations that the persisted state does not contain; 0 while somebody uses the writer.
    pub fn unpersisted_operations(&self) -> u64 {
        let persisted = self.writer.try_lock().map(|state| state.persisted);
        let stored = self.highest_seq().map_or(0, |seq| seq + 1);
        persisted.map_or(0, |persisted| stored.saturating_sub(persisted))
    }

    /// Makes everything that was answered part of what a start finds, and removes rows that nothing shows any more.
    ///
    /// Errors: those of the library, the medium and the store; what was persisted before stays.
    pub fn persist(&self) -> Result<(), SearchError> {
        let mut state = self.writer.lock();
        self.check_deleted()?;
        self.drain_with(&mut state);
        self.refresh_with(&mut state)?;
        let is_persisted = state.persisted == state.refreshed && state.bytes == 0;
        // A writer may have merged since.
        if is_persisted && state.writer.is_none() {
            return Ok(());
        }
        let refreshed = state.refreshed;
        state.directory.persist(&self.place.store, self.trees.files, refreshed)?;
        state.persisted = refreshed;
        state.bytes = 0;
        Counters::add(&self.counters.persists, 1);
        drop(state);
        self.sweep(refreshed)
    }

    /// Ends the writer of an index that is not written to; its threads and memory are given back.
    pub fn rest(&self) -> Result<(), SearchError> {
        self.persist()?;
        self.writer.lock().end_writer()
    }

    /// Removes rows that were replaced before every view that is still read, and old tombstones.
    fn sweep(&self, persisted: u64) -> Result<(), SearchError> {
        let oldest = {
            let published = self.published.read();
            published.alive.iter().filter_map(Weak::upgrade).map(|epoch| *epoch).min().unwrap_or(*published.epoch)
        };
        let now = *self.published.read().epoch;
        let found = self.replaced_rows(persisted)?;
        let mut waiting = self.replaced.lock();
        if !found.is_empty() {
            waiting.entry(now).or_default().extend(found);
        }
        let ready: Vec<u64> = waiting.iter().filter(|(epoch, _)| **epoch <= oldest).map(|(epoch, _)| *epoch).collect();
        let seqs: Vec<u64> = ready.into_iter().filter_map(|epoch| waiting.remove(&epoch)).flatten().collect();
        drop(waiting);
        for part in seqs.chunks(SWEEP) {
            let mut transaction = self.place.store.begin();
            for seq in part {
                for kind in [DOCUMENT, REPLACED, TOMBSTONE] {
                    transaction.delete(self.trees.docs, &rows::key(kind, *seq))?;
                }
            }
            transaction.commit()?;
        }
        self.sweep_tombstones(persisted)
    }

    /// Operations that were replaced, are in the persisted state with what replaced them, and do not wait to be removed yet.
    fn replaced_rows(&self, persisted: u64) -> Result<Vec<u64>, SearchError> {
        let waiting: std::collections::BTreeSet<u64> = self.replaced.lock().values().flatten().copied().collect();
        let (from, to) = (rows::key(REPLACED, 0), rows::key(REPLACED, persisted));
        let snapshot = self.place.store.snapshot();
        let mut cursor =
            snapshot.scan(self.trees.docs, Bound::Included(&from), Bound::Excluded(&to), Direction::Forward);
        let mut found = Vec::new();
        while let Some((key, _)) = cursor.next_key()? {
            found.extend(rows::seq_of(REPLACED, &key).filter(|seq| !waiting.contains(seq)));
        }
        Ok(found)
    }

    /// Forgets deleted documents after a while: their versions begin again.
    fn sweep_tombstones(&self, persisted: u64) -> Result<(), SearchError> {
        let (from, to) = (rows::key(TOMBSTONE, 0), rows::key(TOMBSTONE, persisted));
        let mut transaction = self.place.store.begin();
        let mut cursor =
            transaction.scan(self.trees.docs, Bound::Included(&from), Bound::Excluded(&to), Direction::Forward);
        let mut old = Vec::new();
        while let Some((key, value)) = cursor.next()? {
            let time = value.get(..8).and_then(|time| time.try_into().ok()).map_or(0, u64::from_le_bytes);
            if time + TOMBSTONE_MILLIS > now_millis() || old.len() == SWEEP {
                break;
            }
            old.push((key, value.slice(8.min(value.len())..)));
        }
        drop(cursor);
        for (key, id) in old {
            let seq = rows::seq_of(TOMBSTONE, &key);
            let row = transaction.get(self.trees.ids, &id)?;
            if let Some(state) = row.map(|row| rows::IdState::decode(&row)).transpose()?
                && state.deleted
                && Some(state.seq) == seq
            {
                transaction.delete(self.trees.ids, &id)?;
            }
            transaction.delete(self.trees.docs, &key)?;
        }
        match transaction.commit() {
            // Somebody stored the document anew: the next sweep sees that.
            Ok(_) | Err(store::StoreError::Conflict) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Merges segments until there are at most `most`. Blocks; searches, operations and refreshes go on meanwhile.
    ///
    /// Errors: those of the library; the index is being made again (503).
    pub fn force_merge(&self, most: usize) -> Result<(), SearchError> {
        for _ in 0..MERGE_ATTEMPTS {
            if self.force_merge_once(most.max(1))? {
                return Ok(());
            }
        }
        Err(SearchError::busy("other merges of the index keep ending meanwhile; send the request again"))
    }

    /// Whether it is done; if not, a merge of the library's own took some of the segments, and has ended.
    fn force_merge_once(&self, most: usize) -> Result<bool, SearchError> {
        let mut state = self.lock_writer()?;
        self.drain_with(&mut state);
        self.refresh_with(&mut state)?;
        let segments = state.index.searchable_segment_metas()?;
        let has_deletes = segments.iter().any(|segment| segment.num_deleted_docs() > 0);
        if segments.len() <= most && !(has_deletes && most == 1) {
            return Ok(true);
        }
        let mut by_size: Vec<_> = segments.iter().map(|segment| (segment.num_docs(), segment.id())).collect();
        by_size.sort_by_key(|(documents, _)| *documents);
        let merged: Vec<_> = by_size.iter().take(segments.len() - most + 1).map(|(_, id)| *id).collect();
        Counters::add(&self.counters.merges, 1);
        let merge = state.writer(self.place.writer_bytes)?.merge(&merged);
        // Operations need the writer meanwhile, and a merge may take minutes.
        drop(state);
        let refused = match merge.wait() {
            Ok(_) => None,
            Err(error @ TantivyError::InvalidArgument(_)) => Some(error),
            Err(error) => return Err(error.into()),
        };
        let state = self.writer.lock();
        self.check_deleted()?;
        // Removes the files of what was merged.
        if let Some(writer) = &state.writer {
            writer.garbage_collect_files().wait()?;
        }
        self.publish(&state)?;
        let Some(error) = refused else { return Ok(true) };
        let present = state.index.searchable_segment_ids()?;
        // Without a writer its merges were ended.
        let are_there = state.writer.is_some() && merged.iter().all(|segment| present.contains(segment));
        if are_there { Err(error.into()) } else { Ok(false) }
    }

    /// Adds fields. Durable when it returns.
    ///
    /// Errors: a field that is there with another type, an analyzer that is not there, those of the store; the index is being made
    /// again (503).
    pub fn put_mapping(&self, update: &Value) -> Result<(), SearchError> {
        if update.as_object().is_none_or(|update| !update.is_empty()) {
            self.check_writable()?;
        }
        let mut state = self.lock_writer()?;
        self.check_deleted()?;
        self.drain_with(&mut state);
        let fields = self.fields.read().clone();
        let mapping = fields.mapping.merged(update)?;
        super::catalog::check_analyzers(&mapping, &fields.analyzers)?;
        mapping.check_stored()?;
        let mut definition = IndexDefinition::clone(&self.definition.read());
        definition.mapping = mapping.to_json();
        definition.columns = mapping.columns().clone();
        super::catalog::save(&self.place.store, &definition)?;
        *self.definition.write() = Arc::new(definition);
        match schema::grown(&fields.schema, &mapping) {
            Some(None) => self.fields.write().mapping = Arc::new(mapping),
            Some(Some(schema)) => self.grow(&mut state, mapping, &schema)?,
            None => rebuild::run(self, &mut state, mapping)?,
        }
        Ok(())
    }

    /// The library's index takes a schema with more columns; documents and segments stay.
    fn grow(&self, state: &mut WriterState, mapping: Mapping, schema: &Schema) -> Result<(), SearchError> {
        self.commit(state)?;
        state.end_writer()?;
        let meta =
            state.directory.atomic_read(Path::new(META)).map_err(|error| SearchError::internal(error.to_string()))?;
        let unreadable =
            |error: serde_json::Error| SearchError::internal(format!("the index's list of segments: {error}"));
        let mut meta: Value = serde_json::from_slice(&meta).map_err(unreadable)?;
        meta["schema"] = serde_json::to_value(schema).map_err(unreadable)?;
        let meta = serde_json::to_vec(&meta).map_err(unreadable)?;
        state
            .directory
            .atomic_write(Path::new(META), &meta)
            .map_err(|error| SearchError::internal(error.to_string()))?;
        self.reopen(state, mapping)
    }

    /// Opens the library's index anew over the same files.
    pub(super) fn reopen(&self, state: &mut WriterState, mapping: Mapping) -> Result<(), SearchError> {
        state.index = Index::open(state.directory.clone())?;
        schema::register(&state.index).map_err(SearchError::internal)?;
        let schema = state.index.schema();
        let reader = reader_of(&state.index)?;
        {
            let mut fields = self.fields.write();
            fields.mapping = Arc::new(mapping);
            fields.schema = schema.clone();
        }
        {
            let mut published = self.published.write();
            published.searcher = reader.searcher();
            published.reader = reader;
            published.schema = schema;
        }
        state.refreshed = state.applied;
        self.publish(state)
    }

    /// Makes the library's index anew from the documents in the store: after damage, or where it needs more text columns.
    ///
    /// Errors: those of the store, of the medium and of the library.
    pub fn rebuild(&self) -> Result<(), SearchError> {
        let mut state = self.writer.lock();
        self.check_deleted()?;
        let mapping = self.mapping();
        rebuild::run(self, &mut state, Mapping::clone(&mapping))
    }

    /// How many segments there are, and how many documents they have.
    pub fn segments(&self) -> Vec<(String, u32, u32)> {
        let published = self.published.read();
        let searcher = &published.searcher;
        let segment = |reader: &tantivy::SegmentReader| {
            (reader.segment_id().short_uuid_string(), reader.num_docs(), reader.num_deleted_docs())
        };
        searcher.segment_readers().iter().map(segment).collect()
    }

    /// Documents that searches find.
    pub fn document_count(&self) -> u64 {
        self.published.read().searcher.num_docs()
    }

    /// When the last operation was refreshed, in epochs: for tests and statistics.
    pub fn epoch(&self) -> u64 {
        *self.published.read().epoch
    }

    /// Ends the index: the last state is persisted.
    ///
    /// Errors: as for [`persist`](SearchIndex::persist).
    pub fn close(&self) -> Result<(), SearchError> {
        if self.deleted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.rest()
    }
}
