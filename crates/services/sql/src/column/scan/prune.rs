//! What zones exclude: segments, and vectors of a segment.

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
use crate::column::descriptor::{self, Descriptor};

/// Conditions over zones; made anew when a condition was found out or changed meanwhile.
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
            // What cannot be said over zones excludes nothing.
            self.predicate = builder.try_build(condition.clone()).ok().filter(|made| !made.always_true());
        }
        self.predicate.as_ref()
    }

    /// Whether a segment may hold rows that are wanted.
    pub(crate) fn may_hold(&mut self, descriptor: &Descriptor) -> Result<bool> {
        let schema = self.schema.clone();
        match self.predicate() {
            None => Ok(true),
            Some(predicate) => {
                let zones = Zones { descriptor, schema, vectors: false };
                Ok(predicate.prune(&zones)?.into_iter().all(|may| may))
            }
        }
    }

    /// Which vectors may hold rows that are wanted; `None`: all.
    pub(crate) fn vectors(&mut self, descriptor: &Descriptor) -> Result<Option<Vec<bool>>> {
        let schema = self.schema.clone();
        match self.predicate() {
            None => Ok(None),
            Some(predicate) => Ok(Some(predicate.prune(&Zones { descriptor, schema, vectors: true })?)),
        }
    }
}

/// A segment's zones as DataFusion asks for them.
struct Zones<'a> {
    descriptor: &'a Descriptor,
    schema: SchemaRef,
    vectors: bool,
}

impl Zones<'_> {
    fn facts(&self, column: &Column) -> Option<&descriptor::Column> {
        self.descriptor.columns.get(self.schema.index_of(column.name()).ok()?)
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
        if self.vectors { self.descriptor.vectors() } else { 1 }
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
            true => (0..self.descriptor.vectors()).map(|at| self.descriptor.vector_rows(at) as u64).collect(),
            false => vec![self.descriptor.rows as u64],
        };
        Some(Arc::new(UInt64Array::from(counts)))
    }

    fn contained(&self, _: &Column, _: &HashSet<ScalarValue>) -> Option<BooleanArray> {
        None
    }
}
