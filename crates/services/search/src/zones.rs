//! [`Zones`]: the least and the greatest value of a column in each run of 1,024 documents, and [`ZonedColumns`], which keeps them.
//!
//! ```text
//!   documents   0 ..... 1023 | 1024 .... 2047 | 2048 ..
//!   zone        [min, max]     [min, max]       ..        and whether each document has exactly one value
//! ```
//!
//! A range takes or leaves whole zones, a sort looks at the best zones first, a histogram counts a zone in one step: so they read
//! few values of a column that is in the order of its documents, as times of a log are.
//!
//! Invariants: the files of a segment never change, so its zones do not either; deletions are looked at by those who read. A
//! zone takes 24 bytes; columns are kept open within a bound. Those of segments that are merged away are dropped at the next refresh.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tantivy::columnar::{Column, ColumnIndex};
use tantivy::index::SegmentId;
use tantivy::{DocId, Searcher, SegmentReader};

/// Documents of a zone: a zone is decoded in about a microsecond, and those of ten million documents take 240 KB.
pub(crate) const ZONE: u32 = 1_024;

/// Most columns of which an index keeps the zones. Those of others are made for each search.
const COLUMNS_MAX: usize = 4_096;

/// Bytes of columns that all indices keep open. Others are opened for each search: their file may not be in memory.
const OPEN_BYTES_MAX: u64 = 64 << 20;

/// Bytes of columns that are kept open.
static OPEN_BYTES: AtomicU64 = AtomicU64::new(0);

/// A part of [`OPEN_BYTES`], given back when it is dropped.
struct OpenBytes(u64);

impl OpenBytes {
    fn take(bytes: u64) -> Option<OpenBytes> {
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= OPEN_BYTES_MAX);
        OPEN_BYTES.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok().then_some(OpenBytes(bytes))
    }
}

impl Drop for OpenBytes {
    fn drop(&mut self) {
        OPEN_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// What is known of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    /// The least value; more than `max` if there is none.
    pub(crate) min: u64,
    /// The greatest value.
    pub(crate) max: u64,
    /// Whether a document has no value.
    pub(crate) has_missing: bool,
    /// Whether each document has exactly one value.
    pub(crate) is_single: bool,
}

impl Zone {
    /// Whether a document has a value.
    pub(crate) fn has_values(&self) -> bool {
        self.min <= self.max
    }
}

/// A column of a segment with its zones. Values are numbers in the order of what they stand for.
pub(crate) struct Zones {
    pub(crate) column: Column<u64>,
    zones: Arc<[Zone]>,
    docs: u32,
}

impl Zones {
    /// Reads the whole column once.
    pub(crate) fn of(column: Column<u64>, docs: u32) -> Zones {
        let mut values = vec![0; ZONE as usize];
        let zones = (0..docs.div_ceil(ZONE)).map(|zone| zone_of(&column, range_of(zone, docs), &mut values)).collect();
        Zones { column, zones, docs }
    }

    /// All zones, in the order of their documents.
    pub(crate) fn all(&self) -> &[Zone] {
        &self.zones
    }

    /// The documents of a zone.
    pub(crate) fn docs_of(&self, zone: u32) -> Range<DocId> {
        range_of(zone, self.docs)
    }

    /// Documents of the segment.
    pub(crate) fn docs(&self) -> u32 {
        self.docs
    }
}

/// The documents of a zone in a segment of so many.
pub(crate) fn range_of(zone: u32, docs: u32) -> Range<DocId> {
    zone * ZONE..((zone + 1) * ZONE).min(docs)
}

fn zone_of(column: &Column<u64>, docs: Range<DocId>, values: &mut Vec<u64>) -> Zone {
    let rows = column.index.docid_range_to_rowids(docs.clone());
    let (mut min, mut max) = (u64::MAX, 0);
    let mut at = rows.start;
    while at < rows.end {
        let part = (rows.end - at).min(ZONE);
        values.resize(part as usize, 0);
        column.values.get_range(u64::from(at), values);
        for value in values.iter() {
            min = min.min(*value);
            max = max.max(*value);
        }
        at += part;
    }
    let count = (docs.end - docs.start) as usize;
    let has_missing = match &column.index {
        ColumnIndex::Full => false,
        ColumnIndex::Empty { .. } => true,
        ColumnIndex::Optional(_) => rows.len() < count,
        ColumnIndex::Multivalued(_) => docs.clone().any(|doc| column.index.value_row_ids(doc).is_empty()),
    };
    Zone { min, max, has_missing, is_single: !has_missing && rows.len() == count }
}

/// What is kept of a column.
struct HeldColumn {
    zones: Arc<[Zone]>,
    /// The column too, while there is room for it.
    open: Option<(Arc<Zones>, OpenBytes)>,
}

/// The zones of an index, made when they are first asked for.
#[derive(Default)]
pub(crate) struct ZonedColumns {
    held: Mutex<HashMap<(SegmentId, String), HeldColumn>>,
}

impl ZonedColumns {
    /// A column of a segment; `None` if no document of the segment has a value. Errors: it cannot be read.
    pub(crate) fn of(&self, reader: &SegmentReader, column: &str) -> tantivy::Result<Option<Arc<Zones>>> {
        let key = (reader.segment_id(), column.to_owned());
        let known = match self.held.lock().get(&key) {
            Some(HeldColumn { open: Some((zones, _)), .. }) => return Ok(Some(Arc::clone(zones))),
            Some(held) => Some(Arc::clone(&held.zones)),
            None => None,
        };
        let Some((values, _)) = reader.fast_fields().u64_lenient(column)? else { return Ok(None) };
        if let Some(zones) = known {
            return Ok(Some(Arc::new(Zones { column: values, zones, docs: reader.max_doc() })));
        }
        // Two searches may make them at the same time: both are right.
        let zones = Arc::new(Zones::of(values, reader.max_doc()));
        let bytes = reader.fast_fields().column_num_bytes(column)?.get_bytes();
        let mut held = self.held.lock();
        if held.len() < COLUMNS_MAX {
            let open = OpenBytes::take(bytes).map(|bytes| (Arc::clone(&zones), bytes));
            held.insert(key, HeldColumn { zones: Arc::clone(&zones.zones), open });
        }
        Ok(Some(zones))
    }

    /// Makes the zones of new segments, for the columns that others have them of. What cannot be read fails the search that reads it.
    pub(crate) fn open(&self, searcher: &Searcher) {
        let columns: HashSet<String> = self.held.lock().keys().map(|(_, column)| column.clone()).collect();
        for column in &columns {
            searcher.segment_readers().iter().for_each(|reader| drop(self.of(reader, column)));
        }
    }

    /// Drops what belongs to other segments than those of `searcher`.
    pub(crate) fn retain(&self, searcher: &Searcher) {
        let mut held = self.held.lock();
        if !held.is_empty() {
            let live: HashSet<SegmentId> = searcher.segment_readers().iter().map(SegmentReader::segment_id).collect();
            held.retain(|(segment, _), _| live.contains(segment));
        }
    }
}

impl std::fmt::Debug for ZonedColumns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZonedColumns").field("columns", &self.held.lock().len()).finish()
    }
}
