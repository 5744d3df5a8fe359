//! [`ColumnRangeQuery`]: documents with a value of a column between two others, by the zones of the column.
//!
//! ```text
//!   zone      outside    inside            partly            inside
//!   read      nothing    nothing: a run    its values        nothing: a run
//! ```
//!
//! Who asks for single documents far apart, as a rarer clause does, gets them looked up one by one; who asks for many of a zone
//! gets the zone read.

use std::ops::Range;
use std::sync::Arc;

use tantivy::columnar::ColumnIndex;
use tantivy::query::{ConstScorer, EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{
    COLLECT_BLOCK_BUFFER_LEN, DocId, DocSet, Score, SeekDangerResult, SegmentReader, TERMINATED, TantivyError,
};

use crate::zones::{ZONE, Zone, ZonedColumns, Zones};

/// Documents of a zone that are looked up before the zone is read: reading it costs as much as about 30 (perf, 2026-11-25).
const LOOKUPS: u32 = 16;

/// Documents with a value from `from` to `to`, both included, as the library orders the values of the column. All score 1.
#[derive(Clone, Debug)]
pub(super) struct ColumnRangeQuery {
    pub(super) zones: Arc<ZonedColumns>,
    pub(super) column: String,
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Query for ColumnRangeQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for ColumnRangeQuery {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(match self.zones.of(reader, &self.column)? {
            Some(zones) if self.from <= self.to => {
                Box::new(ConstScorer::new(RangeDocs::new(zones, self.from, self.to), boost))
            }
            _ => Box::new(EmptyScorer),
        })
    }

    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        let mut scorer = self.scorer(reader, 1.0)?;
        if doc == TERMINATED || scorer.doc() > doc || scorer.seek(doc) != doc {
            return Err(TantivyError::InvalidArgument(format!("Document #({doc}) does not match")));
        }
        Ok(Explanation::new("a value lies in the range", 1.0))
    }
}

/// How a zone lies to a range.
#[derive(Clone, Copy, PartialEq)]
enum Cover {
    Outside,
    Partly,
    Inside,
}

/// The documents of a range. They are read forward: first those of `docs` from `at` on, then those from `doc` to `run_end`, which
/// follow each other, then those from `next` on. Only one of the first two has any.
struct RangeDocs {
    zones: Arc<Zones>,
    from: u64,
    to: u64,
    /// The present document.
    doc: DocId,
    /// All documents up to it match; no more than `doc` if there is no run.
    run_end: DocId,
    docs: Vec<DocId>,
    /// Values of a zone, while they are read.
    codes: Vec<u64>,
    at: usize,
    /// What was not looked at yet.
    next: DocId,
    /// Documents of the present zone that were looked up one by one.
    lookups: u32,
}

impl RangeDocs {
    fn new(zones: Arc<Zones>, from: u64, to: u64) -> RangeDocs {
        let (docs, codes) = (Vec::new(), Vec::new());
        let mut found =
            RangeDocs { zones, from, to, doc: TERMINATED, run_end: 0, docs, codes, at: 0, next: 0, lookups: 0 };
        found.load();
        found
    }

    fn cover(&self, zone: &Zone) -> Cover {
        if !zone.has_values() || zone.max < self.from || zone.min > self.to {
            Cover::Outside
        } else if zone.min >= self.from && zone.max <= self.to && !zone.has_missing {
            Cover::Inside
        } else {
            Cover::Partly
        }
    }

    /// Goes to the first match from `next` on.
    fn load(&mut self) -> DocId {
        self.docs.clear();
        self.at = 0;
        self.run_end = 0;
        let zones = Arc::clone(&self.zones);
        while self.next < zones.docs() {
            let number = self.next / ZONE;
            let range = zones.docs_of(number);
            let start = self.next;
            self.next = range.end;
            self.lookups = 0;
            match self.cover(&zones.all()[number as usize]) {
                Cover::Outside => {}
                Cover::Partly => {
                    self.read(start..range.end);
                    if let Some(first) = self.docs.first() {
                        self.doc = *first;
                        return self.doc;
                    }
                }
                Cover::Inside => {
                    let more = zones.all()[number as usize + 1..].iter();
                    let more = more.take_while(|zone| self.cover(zone) == Cover::Inside).count() as u32;
                    self.doc = start;
                    self.run_end = zones.docs_of(number + more).end;
                    self.next = self.run_end;
                    return self.doc;
                }
            }
        }
        self.doc = TERMINATED;
        self.doc
    }

    /// Finds the matches among documents of one zone.
    fn read(&mut self, docs: Range<DocId>) {
        let zones = Arc::clone(&self.zones);
        if !matches!(zones.column.index, ColumnIndex::Full) {
            zones.column.get_docids_for_value_range(self.from..=self.to, docs, &mut self.docs);
            return;
        }
        // All values are read first, so that the comparison needs no branch.
        let count = docs.len();
        self.codes.resize(count, 0);
        self.docs.resize(count, 0);
        zones.column.values.get_range(u64::from(docs.start), &mut self.codes);
        let (from, width) = (self.from, self.to - self.from);
        let mut found = 0;
        for (doc, code) in docs.zip(&self.codes) {
            self.docs[found] = doc;
            found += usize::from(code.wrapping_sub(from) <= width);
        }
        self.docs.truncate(found);
    }

    /// Goes to the first loaded match from `target` on; `false` if there is none.
    fn skip_to(&mut self, target: DocId) -> bool {
        if target < self.run_end {
            self.doc = target;
            return true;
        }
        if self.docs.last().is_some_and(|last| *last >= target) {
            self.at += self.docs[self.at..].partition_point(|doc| *doc < target);
            self.doc = self.docs[self.at];
            return true;
        }
        false
    }
}

impl DocSet for RangeDocs {
    fn advance(&mut self) -> DocId {
        if self.doc + 1 < self.run_end {
            self.doc += 1;
            return self.doc;
        }
        match self.docs.get(self.at + 1) {
            Some(doc) => {
                self.at += 1;
                self.doc = *doc;
                self.doc
            }
            None => self.load(),
        }
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target || self.skip_to(target) {
            return self.doc;
        }
        self.next = self.next.max(target);
        self.load()
    }

    fn seek_danger(&mut self, target: DocId) -> SeekDangerResult {
        let found = |doc: DocId| match doc == target {
            true => SeekDangerResult::Found,
            false => SeekDangerResult::SeekLowerBound(doc),
        };
        // After a lookup that found nothing, `doc` lies before all that was looked at, and nothing is loaded.
        if self.doc >= target || self.skip_to(target) {
            return found(self.doc);
        }
        if target >= self.zones.docs() {
            self.next = self.zones.docs();
            return found(self.load());
        }
        // What is loaded lies before the target.
        let number = target / ZONE;
        let is_lookup = target >= self.next
            && self.lookups < LOOKUPS
            && self.cover(&self.zones.all()[number as usize]) == Cover::Partly;
        if !is_lookup {
            self.next = self.next.max(target);
            return found(self.load());
        }
        self.lookups = if self.next / ZONE == number { self.lookups + 1 } else { 1 };
        self.next = target + 1;
        self.docs.clear();
        self.at = 0;
        self.run_end = 0;
        let (from, to) = (self.from, self.to);
        if self.zones.column.values_for_doc(target).any(|value| from <= value && value <= to) {
            self.doc = target;
            return SeekDangerResult::Found;
        }
        SeekDangerResult::SeekLowerBound(target + 1)
    }

    fn fill_buffer(&mut self, buffer: &mut [DocId; COLLECT_BLOCK_BUFFER_LEN]) -> usize {
        let mut filled = 0;
        while filled < buffer.len() && self.doc != TERMINATED {
            if self.doc < self.run_end {
                let count = ((self.run_end - self.doc) as usize).min(buffer.len() - filled);
                for (place, doc) in buffer[filled..filled + count].iter_mut().zip(self.doc..) {
                    *place = doc;
                }
                filled += count;
                self.doc += count as u32 - 1;
            } else if self.at < self.docs.len() {
                let count = (self.docs.len() - self.at).min(buffer.len() - filled);
                buffer[filled..filled + count].copy_from_slice(&self.docs[self.at..self.at + count]);
                filled += count;
                self.at += count - 1;
                self.doc = self.docs[self.at];
            } else {
                buffer[filled] = self.doc;
                filled += 1;
            }
            self.advance();
        }
        filled
    }

    fn doc(&self) -> DocId {
        self.doc
    }

    fn size_hint(&self) -> u32 {
        self.estimate(10)
    }

    /// The values of a zone that is partly in the range are read faster than those of other clauses, and each of them.
    fn cost(&self) -> u64 {
        u64::from(self.estimate(1)) * 4 / 5
    }

    fn count_including_deleted(&mut self) -> u32 {
        let mut count = 0;
        while self.doc != TERMINATED {
            if self.doc < self.run_end {
                count += self.run_end - self.doc;
            } else {
                count += ((self.docs.len() - self.at) as u32).max(1);
            }
            self.load();
        }
        count
    }
}

impl RangeDocs {
    /// Documents, if one of `share` matches where a zone lies partly in the range.
    fn estimate(&self, share: u32) -> u32 {
        let zones = self.zones.all().iter().enumerate();
        let docs = zones.map(|(number, zone)| {
            let docs = self.zones.docs_of(number as u32);
            match self.cover(zone) {
                Cover::Outside => 0,
                Cover::Partly => (docs.end - docs.start) / share,
                Cover::Inside => docs.end - docs.start,
            }
        });
        docs.sum()
    }
}
