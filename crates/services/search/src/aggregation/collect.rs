//! [`StoppableCollector`]: the library's aggregation collector under a flag that stops it, and [`BuiltQuery`], a query that is
//! already built as a filter of the library's request.
//!
//! Documents are handed over in the blocks that the library makes itself, so the native collectors work as fast as without the
//! flag, which is read once for 64 blocks.

use std::sync::atomic::{AtomicBool, Ordering};

use tantivy::aggregation::bucket::QueryBuilder;
use tantivy::aggregation::intermediate_agg_result::IntermediateAggregationResults;
use tantivy::aggregation::{AggregationSegmentCollector, DistributedAggregationCollector};
use tantivy::collector::{Collector, SegmentCollector};
use tantivy::query::{Query, Weight};
use tantivy::schema::Schema;
use tantivy::tokenizer::TokenizerManager;
use tantivy::{COLLECT_BLOCK_BUFFER_LEN, DocSet, SegmentOrdinal, SegmentReader, TantivyError};

/// Blocks between two looks at the flag.
const BLOCKS: usize = 64;

/// Collects until the flag is set; then every segment fails.
pub(super) struct StoppableCollector<'a> {
    pub(super) inner: DistributedAggregationCollector,
    /// Shared by all threads of the search.
    pub(super) cancelled: &'a AtomicBool,
}

impl StoppableCollector<'_> {
    fn check(&self) -> tantivy::Result<()> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(TantivyError::InternalError("cancelled".to_owned())),
            false => Ok(()),
        }
    }
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
        self.check()?;
        let mut child = self.inner.for_segment(segment, reader)?;
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
                self.check()?;
            }
        }
        Ok(child.harvest())
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
