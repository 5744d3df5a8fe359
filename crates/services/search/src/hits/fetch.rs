//! From the best hits to the `hits` of a response: documents, sort values, fields, highlights.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::best::FoundHit;
use super::body::SearchBody;
use super::highlight::Highlighter;
use super::shown::{HitSource, ShownColumns};
use super::{SearchTarget, TargetHit, score_json};
use crate::aggregation::seq_ref::{SEQ_REF, seq_of};
use crate::error::SearchError;
use crate::index::parse_source;
use crate::mapping::Mapping;
use crate::memory::{object_bytes, source_bytes};
use crate::query::QueryContext;
use crate::schema::SEQ;
use crate::source::{SourceFilter, stored_fields};
use crate::stop::SearchStop;
use crate::zones::Zones;

/// Sources of more bytes count while they are read.
const LARGE_BYTES: usize = 64 << 10;

/// Reads the documents of a page of hits.
pub(super) struct Fetcher<'a> {
    pub(super) targets: &'a [SearchTarget],
    pub(super) body: &'a SearchBody,
    pub(super) with_score: bool,
    pub(super) context: &'a QueryContext,
    pub(super) stop: &'a SearchStop,
    /// Bytes of sources that the response may still have.
    pub(super) left: usize,
    /// Sort values of the last hit, exact.
    pub(super) last: Option<Vec<Value>>,
    /// The columns of sequence numbers, by target and segment.
    pub(super) seqs: HashMap<(usize, u32), Option<Arc<Zones>>>,
}

impl Fetcher<'_> {
    /// The sequence number of a hit's document. The column is opened once for a segment: that takes longer than the rest of a hit.
    fn seq_of(&mut self, target: usize, hit: &FoundHit) -> Result<u64, SearchError> {
        let column = match self.seqs.entry((target, hit.segment)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let view = &self.targets[target].view.view;
                entry.insert(view.zones.of(view.searcher.segment_reader(hit.segment), SEQ)?)
            }
        };
        let seq = column.as_ref().and_then(|zones| zones.column.first(hit.doc));
        seq.ok_or_else(|| SearchError::internal("a document of the index has no sequence number"))
    }

    /// The hits of a page; those that there was time for. Errors: more bytes of sources than a response has, those of the store.
    pub(super) fn all(&mut self, page: Vec<TargetHit>) -> Result<Vec<Value>, SearchError> {
        let (targets, body, context) = (self.targets, self.body, self.context);
        let mut highlighters: Vec<Option<Highlighter<'_>>> = targets.iter().map(|_| None).collect();
        let mut columns = ShownColumns::default();
        let mut hits = Vec::with_capacity(page.len());
        for TargetHit { target: number, hit } in page {
            if self.stop.is_fetch_over()? {
                break;
            }
            let target = &targets[number];
            let view = &target.view.view;
            if let (Some(request), None) = (&body.highlight, &highlighters[number]) {
                let text_max = target.index.setting("index.highlight.max_analyzed_offset");
                let text_max = text_max.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok());
                highlighters[number] =
                    Some(Highlighter::new(view, request, &body.query, (context, self.stop), text_max)?);
            }
            let seq = self.seq_of(number, &hit)?;
            let document = target.document_at(seq)?;
            self.left = self.left.checked_sub(document.source.len()).ok_or_else(super::too_large)?;
            // A large one is in memory besides what is shown of it, and counts before it is.
            let most = if document.source.len() > LARGE_BYTES { source_bytes(&document.source) } else { 0 };
            self.stop.memory().take(most as u64)?;
            let source = parse_source(&document.source)?;
            let read = most.min(document.source.len() + object_bytes(&source));
            self.stop.memory().give((most - read) as u64);
            let mut shown = Map::new();
            shown.insert("_index".to_owned(), json!(view.name));
            if !body.without_metadata {
                shown.insert("_id".to_owned(), json!(document.id));
            }
            if let (Some(routing), false) = (&document.routing, body.without_metadata) {
                shown.insert("_routing".to_owned(), json!(routing));
            }
            if body.version {
                shown.insert("_version".to_owned(), json!(document.version));
            }
            if body.seq_no {
                shown.insert("_seq_no".to_owned(), json!(seq));
                shown.insert("_primary_term".to_owned(), json!(1));
            }
            if !body.without_metadata {
                let ignored = crate::document::ignored_fields(&view.mapping, &source);
                if !ignored.is_empty() {
                    shown.insert("_ignored".to_owned(), json!(ignored));
                }
            }
            let score = if self.with_score { score_json(hit.score) } else { Value::Null };
            shown.insert("_score".to_owned(), score);
            // What the node no longer has of a message is not shown from the columns.
            let segment = (!target.index.is_fed()).then_some((number, hit.segment, hit.doc));
            let hit_source = HitSource { view, source: &source, segment };
            let fields = shown_fields(body, &hit_source, &mut columns)?;
            contents(body, &view.mapping, (source, fields), highlighters[number].as_ref(), &mut shown)?;
            if !body.sort.is_empty() {
                let pairs = body.sort.iter().zip(&hit.values);
                let values = pairs.clone().map(|(key, value)| key.shown(view, value)).collect::<Result<_, _>>()?;
                self.last = Some(pairs.map(|(key, value)| key.exact(view, value)).collect::<Result<_, _>>()?);
                shown.insert("sort".to_owned(), Value::Array(values));
            }
            let shown = Value::Object(shown);
            self.stop.memory().take_value(&shown)?;
            self.stop.memory().give(read as u64);
            hits.push(shown);
        }
        Ok(hits)
    }
}

/// The fields of a hit that are asked for. Errors: one that has no column to be read, or no such format.
fn shown_fields(
    body: &SearchBody,
    hit: &HitSource<'_>,
    columns: &mut ShownColumns,
) -> Result<Map<String, Value>, SearchError> {
    let mapping = &hit.view.mapping;
    let mut fields = stored_fields(mapping, &body.stored_fields, hit.source);
    for wanted in &body.docvalue_fields {
        hit.of_columns(wanted, columns, &mut fields)?;
    }
    if !body.fields.is_empty() && !mapping.shows_source() {
        return Err(SearchError::argument(
            "Unable to retrieve the requested [fields] since _source is disabled in the mapping",
        ));
    }
    for wanted in &body.fields {
        hit.of_source(wanted, &mut fields)?;
    }
    Ok(fields)
}

/// Puts the source, the fields and the highlight of a hit in.
fn contents(
    body: &SearchBody,
    mapping: &Mapping,
    (source, fields): (Map<String, Value>, Map<String, Value>),
    highlighter: Option<&Highlighter<'_>>,
    shown: &mut Map<String, Value>,
) -> Result<(), SearchError> {
    let highlight = highlighter.map(|highlighter| highlighter.hit(&source)).transpose()?.flatten();
    if body.source.is_shown() && mapping.shows_source() && !body.without_metadata {
        shown.insert("_source".to_owned(), Value::Object(body.source.apply(source)));
    }
    if !fields.is_empty() {
        shown.insert("fields".to_owned(), Value::Object(fields));
    }
    if let Some(highlight) = highlight {
        shown.insert("highlight".to_owned(), highlight);
    }
    Ok(())
}

/// Puts the documents in the place of what `top_hits` found, which names their sequence numbers.
pub(super) struct TopDocuments<'a> {
    pub(super) targets: &'a [SearchTarget],
    pub(super) stop: &'a SearchStop,
    /// Bytes of sources that the response may still have.
    pub(super) left: usize,
}

impl TopDocuments<'_> {
    /// Those that there is time for. Errors: more bytes of sources than a response has, those of the store.
    pub(super) fn put_in(&mut self, value: &mut Value) -> Result<(), SearchError> {
        match value {
            Value::Object(object) => match object.get(SEQ_REF).and_then(seq_of) {
                Some(seq) => self.document(object, seq),
                None => object.values_mut().try_for_each(|value| self.put_in(value)),
            },
            Value::Array(values) => values.iter_mut().try_for_each(|value| self.put_in(value)),
            _ => Ok(()),
        }
    }

    fn document(&mut self, hit: &mut Map<String, Value>, seq: u64) -> Result<(), SearchError> {
        hit.remove(SEQ_REF);
        let spec = hit.remove("_source_spec");
        if self.stop.is_fetch_over()? {
            return Ok(());
        }
        let name = hit.get("_index").and_then(Value::as_str).unwrap_or_default();
        let target = self.targets.iter().find(|target| target.view.view.name == name);
        let target = target.ok_or_else(|| SearchError::internal("a hit of top_hits has no index"))?;
        let document = target.document_at(seq)?;
        self.left = self.left.checked_sub(document.source.len()).ok_or_else(super::too_large)?;
        hit.insert("_id".to_owned(), json!(document.id));
        let filter = spec.as_ref().map_or(Ok(SourceFilter::all()), SourceFilter::of_value)?;
        if filter.is_shown() {
            let bytes = if document.source.len() > LARGE_BYTES { source_bytes(&document.source) } else { 0 };
            self.stop.memory().take(bytes as u64)?;
            let read = parse_source(&document.source)?;
            let source = Value::Object(filter.apply(read));
            self.stop.memory().take_value(&source)?;
            self.stop.memory().give(bytes as u64);
            hit.insert("_source".to_owned(), source);
        }
        Ok(())
    }
}
