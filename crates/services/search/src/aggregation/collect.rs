//! [`StoppableCollector`]: the library's aggregation collector under a stop; [`StoppableCount`], which counts under one; and
//! [`BuiltQuery`], a query that is already built as a filter of the library's request.
//!
//! Documents are handed over in the blocks that the library makes itself, so the native collectors work as fast as without the
//! stop, which is looked at once for 64 blocks.

use tantivy::aggregation::bucket::QueryBuilder;
use tantivy::aggregation::intermediate_agg_result::IntermediateAggregationResults;
use tantivy::aggregation::{AggregationSegmentCollector, DistributedAggregationCollector};
use tantivy::collector::{Collector, SegmentCollector};
use tantivy::query::{Query, Weight};
use tantivy::schema::Schema;
use tantivy::tokenizer::TokenizerManager;
use tantivy::{COLLECT_BLOCK_BUFFER_LEN, DocId, DocSet, Score, SegmentOrdinal, SegmentReader};

use crate::stop::SearchStop;

/// Blocks between two looks at the stop.
const BLOCKS: usize = 64;

/// Collects until the stop: every segment fails if the search was cancelled, and ends early if its time is over.
pub(super) struct StoppableCollector<'a> {
    pub(super) inner: DistributedAggregationCollector,
    /// Shared by all threads of the search.
    pub(super) stop: &'a SearchStop,
}

impl Collector for StoppableCollector<'_> {
    type Fruit = IntermediateAggregationResults;
    type Child = AggregationSegmentCollector;

    fn for_segment(&self, segment: SegmentOrdinal, reader: &SegmentReader) -> tantivy::Result<Self::Child> {
        self.inner.for_segment(segment, reader)
    }

    fn requires_scoring(&self) -> bool {
        false
    }

    fn merge_fruits(
        &self,
        fruits: Vec<<Self::Child as SegmentCollector>::Fruit>,
    ) -> tantivy::Result<IntermediateAggregationResults> {
        self.inner.merge_fruits(fruits)
    }

    fn collect_segment(
        &self,
        weight: &dyn Weight,
        segment: SegmentOrdinal,
        reader: &SegmentReader,
    ) -> tantivy::Result<<Self::Child as SegmentCollector>::Fruit> {
        let mut child = self.inner.for_segment(segment, reader)?;
        match self.stop.check() {
            Err(error) if self.stop.is_cancelled() => return Err(error),
            Err(_) => return Ok(child.harvest()),
            Ok(()) => {}
        }
        let mut docs = weight.scorer(reader, 1.0)?;
        let mut block = [0; COLLECT_BLOCK_BUFFER_LEN];
        for number in 1_usize.. {
            let found = docs.fill_buffer(&mut block);
            match reader.alive_bitset() {
                Some(alive) => {
                    let mut kept = 0;
                    for at in 0..found {
                        if alive.is_alive(block[at]) {
                            block[kept] = block[at];
                            kept += 1;
                        }
                    }
                    if kept > 0 {
                        child.collect_block(&block[..kept]);
                    }
                }
                None if found > 0 => child.collect_block(&block[..found]),
                None => {}
            }
            if found < block.len() {
                break;
            }
            if number % BLOCKS == 0 {
                match self.stop.check() {
                    Err(error) if self.stop.is_cancelled() => return Err(error),
                    // What was seen of the segment in time counts.
                    Err(_) => break,
                    Ok(()) => {}
                }
            }
        }
        Ok(child.harvest())
    }
}

/// Counts documents under the same stop.
pub(super) struct StoppableCount<'a> {
    pub(super) stop: &'a SearchStop,
}

/// The documents of a segment, which are counted in blocks.
pub(super) struct SegmentCount(u64);

impl SegmentCollector for SegmentCount {
    type Fruit = u64;

    fn collect(&mut self, _: DocId, _: Score) {
        self.0 += 1;
    }

    fn harvest(self) -> u64 {
        self.0
    }
}

impl Collector for StoppableCount<'_> {
    type Fruit = u64;
    type Child = SegmentCount;

    fn for_segment(&self, _: SegmentOrdinal, _: &SegmentReader) -> tantivy::Result<SegmentCount> {
        Ok(SegmentCount(0))
    }

    fn requires_scoring(&self) -> bool {
        false
    }

    fn merge_fruits(&self, fruits: Vec<u64>) -> tantivy::Result<u64> {
        Ok(fruits.into_iter().sum())
    }

    fn collect_segment(&self, weight: &dyn Weight, _: SegmentOrdinal, reader: &SegmentReader) -> tantivy::Result<u64> {
        self.stop.check()?;
        let mut docs = weight.scorer(reader, 1.0)?;
        let mut block = [0; COLLECT_BLOCK_BUFFER_LEN];
        let mut count = 0;
        for number in 1_usize.. {
            let found = docs.fill_buffer(&mut block);
            count += match reader.alive_bitset() {
                Some(alive) => block[..found].iter().filter(|doc| alive.is_alive(**doc)).count(),
                None => found,
            };
            if found < block.len() {
                break;
            }
            if number % BLOCKS == 0 {
                self.stop.check()?;
            }
        }
        Ok(count as u64)
    }
}

/// A query as a filter of the library's request.
#[derive(Debug)]
pub(super) struct BuiltQuery(pub(super) Box<dyn Query>);

impl serde::Serialize for BuiltQuery {
    /// Errors: always. Requests of the library are not written here.
    fn serialize<S: serde::Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("a built query has no text"))
    }
}

// The library registers builders by name to read requests from JSON, which is not done here: the two names are never used.
impl QueryBuilder for BuiltQuery {
    fn build_query(&self, _: &Schema, _: &TokenizerManager) -> tantivy::Result<Box<dyn Query>> {
        Ok(self.0.box_clone())
    }

    fn box_clone(&self) -> Box<dyn QueryBuilder> {
        Box::new(BuiltQuery(self.0.box_clone()))
    }

    fn typetag_name(&self) -> &'static str {
        "built_query"
    }

    fn typetag_deserialize(&self) {}
}
