//! Aggregations that are read from columns in blocks, without the library: numbers, percentiles of whole numbers and different values of a field,
//! and dates in buckets of one length, each at the top of a request and without others in it.
//!
//! ```text
//!   all documents    the values of a column as they lie, 1,024 at a time; zones of dates in one bucket are not read at all
//!   other queries    4,096 hits, then their values of each column
//! ```
//!
//! Invariants: the results are those of the library, but exact where it estimates. What cannot be read so (a field of several types, a
//! document with several dates, too many different values or buckets, more memory than the search has left) is left to it.

use std::collections::HashSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use tantivy::aggregation::Key;
use tantivy::aggregation::agg_result::{
    AggregationResult, AggregationResults, BucketEntries, BucketEntry, BucketResult, MetricResult,
};
use tantivy::aggregation::metric::{
    PercentileValues, PercentileValuesVecEntry, PercentilesMetricResult, SingleMetricResult, Stats,
};
use tantivy::columnar::ColumnIndex;
use tantivy::columnar::column_values::CompactSpaceU64Accessor;
use tantivy::query::{AllQuery, EnableScoring, Query};
use tantivy::{COLLECT_BLOCK_BUFFER_LEN, DocId, DocSet, SegmentReader};

use super::AggregationInput;
use super::native::{HALF, column};
use super::node::{AggregationNode, Metric, NodeKind};
use super::own_kinds::{OwnKind, Quantiles};
use super::rounding::DateRounding;
use super::tally::{CountTally, DateTally, DistinctTally, ValueTally};
use crate::error::SearchError;
use crate::mapping::FieldKind;
use crate::query::matches_all;
use crate::stop::SearchStop;
use crate::view::IndexView;
use crate::zones::{ZONE, Zones};

/// Hits that are gathered before the values of each column are read.
const GATHERED: usize = 4_096;

/// What is kept for a node.
enum Tally {
    Values(ValueTally),
    Counts(Option<CountTally>),
    /// What is known of each segment.
    Distinct(Vec<(usize, usize, DistinctTally)>),
    Dates(DateTally),
}

/// A node and what is kept for it; `None` once it is left to the library.
struct DirectNode<'a> {
    node: &'a AggregationNode,
    kind: FieldKind,
    tally: Option<Tally>,
    /// Memory that the tally takes, while it is here.
    bytes: u64,
}

/// Whether a node is one of those that are read here.
fn tally_of(node: &AggregationNode) -> Option<(FieldKind, Tally)> {
    let kind = node.values()?;
    let is_number = kind.is_number() || kind == FieldKind::Date;
    let tally = match &node.kind {
        _ if !node.subs.is_empty() => return None,
        NodeKind::Metric { metric: Metric::ExtendedStats { .. }, .. } => return None,
        NodeKind::Metric { missing: None, .. } if is_number => Tally::Values(ValueTally::new(kind)),
        NodeKind::Own(OwnKind::Percentiles { missing: None, method: Quantiles::Digest(_), .. })
            if matches!(kind, FieldKind::Integer(_) | FieldKind::UnsignedLong) =>
        {
            Tally::Counts(None)
        }
        NodeKind::Cardinality { missing: None } if is_number || matches!(kind, FieldKind::Keyword | FieldKind::Ip) => {
            Tally::Distinct(Vec::new())
        }
        NodeKind::DateHistogram { rounding: DateRounding::Fixed { interval, offset }, .. }
            if kind == FieldKind::Date && *interval > 0 =>
        {
            Tally::Dates(DateTally::new(*interval, *offset))
        }
        _ => return None,
    };
    Some((kind, tally))
}

/// Reads what can be read here. Returns its results by the names of the library's; the others are left. Errors: the search was
/// cancelled, an index cannot be read.
pub(super) fn run(
    inputs: &[AggregationInput<'_>],
    nodes: &[AggregationNode],
    global: bool,
    (buckets, stop): (u32, &SearchStop),
) -> Result<AggregationResults, SearchError> {
    let mut found = AggregationResults::default();
    let all = inputs.iter().all(|input| matches_all(if global { &*input.base } else { &*input.query }));
    let mut direct: Vec<DirectNode<'_>> = nodes
        .iter()
        .filter_map(|node| tally_of(node).map(|(kind, tally)| DirectNode { node, kind, tally: Some(tally), bytes: 0 }))
        .collect();
    // A query is not run twice.
    if direct.is_empty() || (!all && !global && direct.len() < nodes.len()) {
        return Ok(found);
    }
    let dates = direct.iter().filter(|node| matches!(node.tally, Some(Tally::Dates(_)))).count().max(1);
    for node in &mut direct {
        if let Some(Tally::Dates(tally)) = &mut node.tally {
            tally.most = buckets as usize / dates;
        }
        node.prepare(inputs, stop)?;
    }
    'all: for (number, input) in inputs.iter().enumerate() {
        let query: &dyn Query = match (all, global) {
            (true, _) => &AllQuery,
            (false, true) => &*input.base,
            (false, false) => &*input.query,
        };
        let weight = query.weight(EnableScoring::disabled_from_searcher(&input.view.searcher))?;
        for (segment, reader) in input.view.searcher.segment_readers().iter().enumerate() {
            if stop.is_over()? {
                break 'all;
            }
            let mut columns = Vec::new();
            for node in direct.iter_mut().filter(|node| node.tally.is_some()) {
                if let Some(zones) = node.column(input.view, reader)? {
                    node.begin((number, segment), &zones, stop);
                    columns.push((node, zones));
                }
            }
            if all && !reader.has_deletes() {
                columns.iter_mut().for_each(|(node, zones)| node.read_all(zones));
            } else if !columns.is_empty() {
                read_hits(&mut *weight.scorer(reader, 1.0)?, reader, &mut columns, stop)?;
            }
            columns.into_iter().for_each(|(node, _)| node.end());
        }
    }
    for node in direct {
        let (name, bytes) = (node.node.native(), node.bytes);
        let result = node.finish(inputs)?;
        stop.memory().give(bytes);
        if let Some(result) = result {
            found.0.insert(name, result);
        }
    }
    Ok(found)
}

/// Reads the values of a query's hits.
fn read_hits(
    scorer: &mut dyn DocSet,
    reader: &SegmentReader,
    columns: &mut [(&mut DirectNode<'_>, Arc<Zones>)],
    stop: &SearchStop,
) -> Result<(), SearchError> {
    let alive = reader.alive_bitset();
    let mut block = [0; COLLECT_BLOCK_BUFFER_LEN];
    let mut docs: Vec<DocId> = Vec::with_capacity(GATHERED);
    loop {
        let filled = scorer.fill_buffer(&mut block);
        docs.extend(block[..filled].iter().filter(|doc| alive.is_none_or(|alive| alive.is_alive(**doc))));
        let is_last = filled < block.len();
        if is_last || docs.len() + block.len() > GATHERED {
            if stop.is_over()? {
                return Ok(());
            }
            columns.iter_mut().for_each(|(node, zones)| node.read(zones, &docs));
            docs.clear();
        }
        if is_last {
            return Ok(());
        }
    }
}

impl DirectNode<'_> {
    /// The column in a segment; none if no document has a value.
    fn column(&self, view: &IndexView, reader: &SegmentReader) -> Result<Option<Arc<Zones>>, SearchError> {
        let name = column(view, self.node.path.as_deref().unwrap_or_default());
        Ok(if view.schema.get_field(&name).is_ok() { view.zones.of(reader, &name)? } else { None })
    }

    /// Gives the node up if its columns cannot be read here, and finds out between which bounds its values lie.
    fn prepare(&mut self, inputs: &[AggregationInput<'_>], stop: &SearchStop) -> Result<(), SearchError> {
        let path = self.node.path.as_deref().unwrap_or_default();
        let (mut min, mut max) = (u64::MAX, 0);
        for input in inputs {
            if input.view.mapping.field(path).is_some_and(|field| field.kind != self.kind) {
                self.tally = None;
                return Ok(());
            }
            for reader in input.view.searcher.segment_readers() {
                let Some(zones) = self.column(input.view, reader)? else { continue };
                if matches!(self.tally, Some(Tally::Dates(_))) && !matches!(zones.column.index, ColumnIndex::Full) {
                    self.tally = None;
                    return Ok(());
                }
                for zone in zones.all().iter().filter(|zone| zone.has_values()) {
                    min = min.min(zone.min);
                    max = max.max(zone.max);
                }
            }
        }
        if matches!(self.tally, Some(Tally::Counts(_))) && self.has_room(CountTally::bytes(min, max), stop) {
            self.tally = Some(Tally::Counts(Some(CountTally::new(self.kind, min, max))));
        }
        Ok(())
    }

    /// Takes memory; without it, the node is left to the library, whose estimates take little.
    fn has_room(&mut self, bytes: u64, stop: &SearchStop) -> bool {
        let has_room = stop.memory().try_take(bytes);
        match has_room {
            true => self.bytes += bytes,
            false => self.tally = None,
        }
        has_room
    }

    fn begin(&mut self, (input, segment): (usize, usize), zones: &Zones, stop: &SearchStop) {
        let max = zones.all().iter().map(|zone| zone.max).max().unwrap_or(0);
        let bytes = DistinctTally::bytes(max, u64::from(zones.column.values.num_vals()));
        let is_distinct = matches!(self.tally, Some(Tally::Distinct(_)));
        if is_distinct
            && self.has_room(bytes, stop)
            && let Some(Tally::Distinct(segments)) = &mut self.tally
        {
            segments.push((input, segment, DistinctTally::new(max)));
        }
    }

    fn add(&mut self, codes: &[u64]) {
        match &mut self.tally {
            Some(Tally::Values(tally)) => tally.add(codes),
            Some(Tally::Counts(Some(tally))) => tally.add(codes),
            Some(Tally::Distinct(segments)) => {
                if let Some((.., tally)) = segments.last_mut() {
                    tally.add(codes);
                }
            }
            Some(Tally::Dates(tally)) => tally.add(codes),
            Some(Tally::Counts(None)) | None => {}
        }
    }

    /// All values of a segment.
    fn read_all(&mut self, zones: &Zones) {
        let mut codes = [0; ZONE as usize];
        if let Some(Tally::Dates(tally)) = &mut self.tally {
            for (number, zone) in zones.all().iter().enumerate() {
                let docs = zones.docs_of(number as u32);
                let count = docs.end - docs.start;
                if !tally.add_zone(zone.min, zone.max, u64::from(count)) {
                    zones.column.values.get_range(u64::from(docs.start), &mut codes[..count as usize]);
                    tally.add(&codes[..count as usize]);
                }
            }
            return;
        }
        let count = zones.column.values.num_vals();
        for from in (0..count).step_by(ZONE as usize) {
            let part = (count - from).min(ZONE) as usize;
            zones.column.values.get_range(u64::from(from), &mut codes[..part]);
            self.add(&codes[..part]);
        }
    }

    /// The values of these documents.
    fn read(&mut self, zones: &Zones, docs: &[DocId]) {
        let (mut of, mut rows) = (Vec::new(), Vec::new());
        let rows: &[u32] = match zones.column.index {
            ColumnIndex::Full => docs,
            _ => {
                zones.column.row_ids_for_docs(docs, &mut of, &mut rows);
                &rows
            }
        };
        let mut codes = vec![0; rows.len()];
        zones.column.values.get_vals(rows, &mut codes);
        self.add(&codes);
    }

    fn end(&mut self) {
        let is_over = match &mut self.tally {
            Some(Tally::Dates(tally)) => {
                tally.flush();
                tally.is_over()
            }
            Some(Tally::Distinct(segments)) => segments.last().is_some_and(|(.., tally)| tally.count().is_none()),
            Some(Tally::Counts(Some(tally))) => tally.is_over(),
            _ => false,
        };
        if is_over {
            self.tally = None;
        }
    }

    /// The library's result; none if the node is left to it. Errors: an index cannot be read.
    fn finish(self, inputs: &[AggregationInput<'_>]) -> Result<Option<AggregationResult>, SearchError> {
        let single = |value: Option<f64>| SingleMetricResult { value };
        Ok(Some(match (self.tally, &self.node.kind) {
            (Some(Tally::Values(tally)), NodeKind::Metric { metric, .. }) => {
                let any = tally.count > 0;
                AggregationResult::MetricResult(match metric {
                    Metric::Avg => MetricResult::Average(single(tally.avg())),
                    Metric::Sum => MetricResult::Sum(single(any.then(|| tally.sum()))),
                    Metric::Min => MetricResult::Min(single(tally.min())),
                    Metric::Max => MetricResult::Max(single(tally.max())),
                    Metric::ValueCount => MetricResult::Count(single(Some(tally.count as f64))),
                    Metric::Stats | Metric::ExtendedStats { .. } => MetricResult::Stats(Stats {
                        count: tally.count,
                        sum: tally.sum(),
                        min: tally.min(),
                        max: tally.max(),
                        avg: tally.avg(),
                    }),
                })
            }
            (Some(Tally::Counts(Some(mut tally))), NodeKind::Own(OwnKind::Percentiles { percents, .. })) => {
                let Some(found) = tally.percentiles(percents) else { return Ok(None) };
                let entry = |(percent, value): (&f64, Option<f64>)| PercentileValuesVecEntry {
                    key: *percent,
                    value: value.unwrap_or(f64::NAN),
                };
                let values = PercentileValues::Vec(percents.iter().zip(found).map(entry).collect());
                AggregationResult::MetricResult(MetricResult::Percentiles(PercentilesMetricResult { values }))
            }
            (Some(Tally::Distinct(segments)), _) => {
                let path = self.node.path.as_deref().unwrap_or_default();
                let Some(count) = distinct(inputs, (path, self.kind), &segments)? else { return Ok(None) };
                AggregationResult::MetricResult(MetricResult::Cardinality(single(Some(count as f64))))
            }
            (Some(Tally::Dates(tally)), _) => {
                let bucket = |(from, doc_count): (i64, u64)| BucketEntry {
                    // As the library's, whose bounds lie half a millisecond before the dates.
                    key_as_string: Some(String::new()),
                    key: Key::F64(from as f64 - HALF),
                    doc_count,
                    sub_aggregation: AggregationResults::default(),
                };
                let buckets = BucketEntries::Vec(tally.counts.into_iter().map(bucket).collect());
                AggregationResult::BucketResult(BucketResult::Histogram { buckets })
            }
            _ => return Ok(None),
        }))
    }
}

/// The most hashes of values that are kept: the library estimates beyond that.
const HASHES_MAX: usize = 1 << 20;

/// How many different values segments have together; `None` for too many. Errors: an index cannot be read.
fn distinct(
    inputs: &[AggregationInput<'_>],
    (path, kind): (&str, FieldKind),
    segments: &[(usize, usize, DistinctTally)],
) -> Result<Option<usize>, SearchError> {
    if let [(.., tally)] = segments {
        return Ok(tally.count());
    }
    // One hasher for all, so that equal values have equal hashes; of 64 bits, a million values have two equal ones in 30 million cases.
    let hasher = BuildHasherDefault::<DefaultHasher>::default();
    let mut hashes: HashSet<u64> = HashSet::new();
    for (input, segment, tally) in segments {
        let view = inputs[*input].view;
        let reader = &view.searcher.segment_readers()[*segment];
        let (name, codes) = (column(view, path), tally.codes());
        let unreadable = |error: std::io::Error| SearchError::internal(format!("terms of a column: {error}"));
        match kind {
            FieldKind::Keyword => {
                if let Some(texts) = reader.fast_fields().str(&name)? {
                    let add = |term: &[u8]| {
                        hashes.insert(hasher.hash_one(term));
                    };
                    texts.dictionary().sorted_ords_to_term_cb(&codes, add).map_err(unreadable)?;
                }
            }
            FieldKind::Ip => {
                let Some(zones) = view.zones.of(reader, &name)? else { continue };
                let Ok(addresses) = Arc::clone(&zones.column.values).downcast_arc::<CompactSpaceU64Accessor>() else {
                    return Ok(None);
                };
                hashes.extend(codes.iter().map(|code| hasher.hash_one(addresses.compact_to_u128(*code as u32))));
            }
            _ => hashes.extend(codes),
        }
        if hashes.len() > HASHES_MAX {
            return Ok(None);
        }
    }
    Ok(Some(hashes.len()))
}
