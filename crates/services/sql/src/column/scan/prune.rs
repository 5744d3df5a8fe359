//! Skips row groups, and vectors of a row group, whose zones exclude the conditions.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::Column;
use datafusion::common::Result;
use datafusion::common::pruning::PruningStatistics;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_expr_common::physical_expr::snapshot_generation;
use datafusion::physical_optimizer::pruning::{PruningPredicate, PruningPredicateBuilder};
use datafusion::scalar::ScalarValue;

use super::Scanned;
use super::filter::Conjunct;
use crate::column::metadata;
use crate::column::metadata::RowGroupMetadata;

/// Conditions over zones; made again when a condition was computed or changed meanwhile.
pub(crate) struct Pruner {
    condition: Option<Arc<dyn PhysicalExpr>>,
    schema: SchemaRef,
    generation: Option<u64>,
    predicate: Option<PruningPredicate>,
}

impl Pruner {
    pub(crate) fn new<'a>(conjuncts: impl IntoIterator<Item = &'a Conjunct>, scanned: &Scanned) -> Pruner {
        let all: Vec<_> = conjuncts.into_iter().map(|conjunct| conjunct.over_table.clone()).collect();
        let condition = (!all.is_empty()).then(|| conjunction(all));
        Pruner { condition, schema: scanned.addressed.clone(), generation: None, predicate: None }
    }

    fn predicate(&mut self) -> Option<&PruningPredicate> {
        let condition = self.condition.as_ref()?;
        let generation = snapshot_generation(condition);
        if self.generation != Some(generation) {
            self.generation = Some(generation);
            let builder = PruningPredicateBuilder::new().with_file_schema(self.schema.clone());
            // A condition that cannot be expressed over zones excludes nothing.
            self.predicate = builder.try_build(condition.clone()).ok().filter(|made| !made.always_true());
        }
        self.predicate.as_ref()
    }

    /// Whether a row group may contain matching rows.
    pub(crate) fn may_hold(&mut self, metadata: &RowGroupMetadata) -> Result<bool> {
        let schema = self.schema.clone();
        match self.predicate() {
            None => Ok(true),
            Some(predicate) => {
                let zones = Zones { metadata, schema, vectors: false };
                Ok(predicate.prune(&zones)?.into_iter().all(|may| may))
            }
        }
    }

    /// Which vectors may contain matching rows; `None` means all.
    pub(crate) fn vectors(&mut self, metadata: &RowGroupMetadata) -> Result<Option<Vec<bool>>> {
        let schema = self.schema.clone();
        match self.predicate() {
            None => Ok(None),
            Some(predicate) => Ok(Some(predicate.prune(&Zones { metadata, schema, vectors: true })?)),
        }
    }
}

/// A row group's zones in DataFusion's interface.
struct Zones<'a> {
    metadata: &'a RowGroupMetadata,
    schema: SchemaRef,
    vectors: bool,
}

impl Zones<'_> {
    fn facts(&self, column: &Column) -> Option<&metadata::ColumnMetadata> {
        self.metadata.columns.get(self.schema.index_of(column.name()).ok()?)
    }
}

impl PruningStatistics for Zones<'_> {
    fn min_values(&self, column: &Column) -> Option<ArrayRef> {
        let facts = self.facts(column)?;
        if self.vectors { Some(facts.arrays.0.clone()) } else { facts.zone.least.to_array().ok() }
    }

    fn max_values(&self, column: &Column) -> Option<ArrayRef> {
        let facts = self.facts(column)?;
        if self.vectors { Some(facts.arrays.1.clone()) } else { facts.zone.largest.to_array().ok() }
    }

    fn num_containers(&self) -> usize {
        if self.vectors { self.metadata.vectors() } else { 1 }
    }

    fn null_counts(&self, column: &Column) -> Option<ArrayRef> {
        let facts = self.facts(column)?;
        if self.vectors {
            return Some(facts.arrays.2.clone());
        }
        Some(Arc::new(UInt64Array::from(vec![u64::from(facts.zone.nulls)])))
    }

    fn row_counts(&self) -> Option<ArrayRef> {
        let counts = match self.vectors {
            true => (0..self.metadata.vectors()).map(|at| self.metadata.vector_rows(at) as u64).collect(),
            false => vec![self.metadata.rows as u64],
        };
        Some(Arc::new(UInt64Array::from(counts)))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
