//! [`Walk`]: all documents of a target that match a query, batch by batch, for requests that do something to each of them.

use std::sync::Arc;

use serde_json::Value;
use tantivy::query::EnableScoring;
use tantivy::{DocSet, TERMINATED};

use super::{SearchBody, SearchTarget, query_of};
use crate::error::SearchError;
use crate::query::QueryContext;
use crate::schema::SEQ;
use crate::stop::SearchStop;

/// Documents between two looks at the stop.
const CHECK: u32 = 2_048;

/// What is walked over.
#[derive(Debug)]
pub struct Walk<'a> {
    /// The index at one moment: what changes meanwhile is not seen.
    pub target: &'a SearchTarget,
    /// The documents that count.
    pub query: &'a Value,
    /// What `now` is in the query, in milliseconds.
    pub now: i64,
    /// Whether queries are refused that look at many terms.
    pub cheap: bool,
    /// Documents of a batch.
    pub batch: usize,
}

impl Walk<'_> {
    /// Calls `each` with the sequence numbers of the documents, in the order of the index, until it returns false. The memory is that
    /// of one batch. Returns whether all were walked over.
    ///
    /// Errors: the query cannot be; it was cancelled; those of `each`.
    pub fn run(
        &self,
        stop: &Arc<SearchStop>,
        each: &mut dyn FnMut(&[u64]) -> Result<bool, SearchError>,
    ) -> Result<bool, SearchError> {
        let context = QueryContext { now: self.now, stop: Some(Arc::clone(stop)), cheap: self.cheap };
        let body = SearchBody { query: self.query.clone(), ..SearchBody::default() };
        let query = query_of(self.target, &body, &context)?;
        let view = &self.target.view.view;
        let weight = query.weight(EnableScoring::disabled_from_searcher(&view.searcher))?;
        let mut batch = Vec::new();
        for reader in view.searcher.segment_readers() {
            let (alive, seqs) = (reader.alive_bitset(), reader.fast_fields().u64(SEQ)?);
            let mut docs = weight.scorer(reader, 1.0)?;
            let mut steps = 0_u32;
            while docs.doc() != TERMINATED {
                steps = steps.wrapping_add(1);
                if steps.is_multiple_of(CHECK) && stop.is_over()? {
                    return Ok(false);
                }
                if alive.is_none_or(|alive| alive.is_alive(docs.doc())) {
                    batch.extend(seqs.first(docs.doc()));
                }
                docs.advance();
                if batch.len() >= self.batch {
                    if stop.is_over()? || !each(&batch)? {
                        return Ok(false);
                    }
                    batch.clear();
                }
            }
        }
        Ok(batch.is_empty() || (!stop.is_over()? && each(&batch)?))
    }
}
