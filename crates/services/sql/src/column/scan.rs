//! [`SegmentScan`]: the rows of a table's segments as a plan of DataFusion.
//!
//! ```text
//!   for each segment of a partition            skipped where its zones exclude the conditions   (prune)
//!     for each vector                          skipped likewise
//!       rows, less the deleted ones
//!       for each condition, cheapest first     answered once per value where values are few, else on the rows left  (filter)
//!     the rows that are left, of all columns that are wanted: chunks that no row is wanted of are not read          (reader)
//! ```
//!
//! Conditions arrive in two ways: from the table's provider, and from the optimizer once the plan stands
//! (`handle_child_pushdown_result`), among them those that joins and top-k find out while they run. The scan applies all of
//! them exactly, so that no filter stays above it; those found out on the run are dropped again where they let nearly all
//! rows pass. Statistics are counted where there is nothing to estimate, and come from a sample of vectors where there are
//! conditions.
//!
//! While a segment is worked on, the chunks of the next one that will probably be needed are read on another thread.

mod estimate;
mod filter;
mod layout;
mod prune;
mod reader;
mod stream;

use std::fmt;
use std::sync::{Arc, OnceLock};

use datafusion::arrow::datatypes::SchemaRef;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, Statistics};
use datafusion::config::ConfigOptions;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::execution_plan::CardinalityEffect;
use datafusion::physical_plan::filter_pushdown::{
    ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation, PushedDown,
};
use datafusion::physical_plan::metrics::{ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::projection::{ProjectionExec, all_alias_free_columns, new_projections_for_columns};
use datafusion::physical_plan::statistics::StatisticsArgs;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, ReplaceChildrenOptions};

use self::filter::Conjunct;
pub(crate) use self::filter::is_repeatable;
use self::layout::Layout;
use super::Segments;
use crate::SqlError;

/// What all columns of a scan are: those of the table and then the row's address.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    pub(crate) segments: Segments,
    /// The table's columns and the address.
    pub(crate) addressed: SchemaRef,
}

/// A plan that reads segments. It has no inputs.
#[derive(Clone, Debug)]
pub struct SegmentScan {
    scanned: Arc<Scanned>,
    /// Positions in the addressed schema.
    projection: Vec<usize>,
    conjuncts: Vec<Conjunct>,
    fetch: Option<usize>,
    layout: Arc<Layout>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    statistics: OnceLock<Arc<Statistics>>,
}

impl SegmentScan {
    /// A scan of the columns at those positions of `addressed`, with conditions over `addressed`, in at most so many
    /// partitions.
    pub(crate) fn new(
        segments: Segments,
        addressed: SchemaRef,
        projection: Vec<usize>,
        conditions: &[Arc<dyn PhysicalExpr>],
        fetch: Option<usize>,
        partitions: usize,
    ) -> Result<SegmentScan, SqlError> {
        let layout = Arc::new(Layout::new(&segments, partitions));
        let properties = layout.properties(Arc::new(addressed.project(&projection)?), &projection)?;
        let scanned = Arc::new(Scanned { segments, addressed });
        let mut scan = SegmentScan {
            scanned,
            projection,
            conjuncts: Vec::new(),
            fetch,
            layout,
            properties,
            metrics: ExecutionPlanMetricsSet::new(),
            statistics: OnceLock::new(),
        };
        for condition in conditions {
            scan.add(condition)?;
        }
        Ok(scan)
    }

    /// Adds a condition over the addressed schema, each part of a conjunction once.
    fn add(&mut self, condition: &Arc<dyn PhysicalExpr>) -> Result<()> {
        for part in split_conjunction(condition) {
            if self.conjuncts.iter().all(|known| &known.over_table != part) {
                self.conjuncts.push(Conjunct::new(part, &self.scanned)?);
            }
        }
        self.statistics = OnceLock::new();
        Ok(())
    }

    fn with_projection(&self, projection: Vec<usize>) -> Result<SegmentScan> {
        let schema = Arc::new(self.scanned.addressed.project(&projection)?);
        let properties = self.layout.properties(schema, &projection)?;
        Ok(SegmentScan { projection, properties, statistics: OnceLock::new(), ..self.clone() })
    }
}

impl DisplayAs for SegmentScan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.properties.eq_properties.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let separator = if matches!(kind, DisplayFormatType::TreeRender) { "\n" } else { ", " };
        if !matches!(kind, DisplayFormatType::TreeRender) {
            write!(f, "SegmentScan: ")?;
        }
        write!(f, "segments={}{separator}columns=[{}]", self.scanned.segments.list.len(), names.join(", "))?;
        if !self.conjuncts.is_empty() {
            let all: Vec<String> = self.conjuncts.iter().map(|part| part.over_table.to_string()).collect();
            write!(f, "{separator}filter={}", all.join(" AND "))?;
        }
        match self.fetch {
            Some(fetch) => write!(f, "{separator}fetch={fetch}"),
            None => Ok(()),
        }
    }
}

impl ExecutionPlan for SegmentScan {
    fn name(&self) -> &str {
        "SegmentScan"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        Vec::new()
    }

    fn replace_children(
        self: Arc<Self>,
        _: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn with_new_children(self: Arc<Self>, _: Vec<Arc<dyn ExecutionPlan>>) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self)
    }

    fn apply_expressions(
        &self,
        f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        for part in &self.conjuncts {
            if f(&part.over_table)? == TreeNodeRecursion::Stop {
                return Ok(TreeNodeRecursion::Stop);
            }
        }
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let schema = self.properties.eq_properties.schema().clone();
        let batch_rows = context.session_config().batch_size();
        let bounds = self.layout.bounds(partition, &self.scanned.addressed);
        let bounds = bounds.map(|bounds| Conjunct::new(&bounds, &self.scanned)).transpose()?;
        let work = stream::Work {
            scanned: self.scanned.clone(),
            projection: self.projection.clone(),
            conjuncts: self.conjuncts.clone(),
            bounds,
            parts: self.layout.parts[partition].clone(),
            fetch: self.fetch,
            batch_rows,
            schema,
        };
        stream::run(work, &self.metrics, partition)
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }

    fn statistics_from_inputs(&self, _: &[Arc<Statistics>], args: &StatisticsArgs) -> Result<Arc<Statistics>> {
        let all = match self.statistics.get() {
            Some(known) => known.clone(),
            None => {
                let made =
                    Arc::new(estimate::statistics(&self.scanned, &self.projection, &self.conjuncts, self.fetch)?);
                self.statistics.get_or_init(|| made).clone()
            }
        };
        match args.partition() {
            Some(_) => Ok(Arc::new(estimate::part_of(&all, self.layout.count()))),
            None => Ok(all),
        }
    }

    fn supports_limit_pushdown(&self) -> bool {
        false
    }

    fn with_fetch(&self, fetch: Option<usize>) -> Option<Arc<dyn ExecutionPlan>> {
        Some(Arc::new(SegmentScan { fetch, statistics: OnceLock::new(), ..self.clone() }))
    }

    fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    fn cardinality_effect(&self) -> CardinalityEffect {
        CardinalityEffect::Unknown
    }

    fn try_swapping_with_projection(&self, projection: &ProjectionExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if !all_alias_free_columns(projection.expr()) {
            return Ok(None);
        }
        let positions = new_projections_for_columns(projection.expr(), &self.projection);
        Ok(Some(Arc::new(self.with_projection(positions)?)))
    }

    fn handle_child_pushdown_result(
        &self,
        _: FilterPushdownPhase,
        pushed: ChildPushdownResult,
        _: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        if pushed.parent_filters.is_empty() {
            return Ok(FilterPushdownPropagation::with_parent_pushdown_result(Vec::new()));
        }
        // A limit that is already here counts rows before conditions that come later: those stay above.
        if self.fetch.is_some() {
            return Ok(FilterPushdownPropagation::all_unsupported(pushed));
        }
        let mut scan = self.clone();
        let mut answers = Vec::new();
        for parent in pushed.parent_filters {
            let filter = self.over_table(&parent.filter)?;
            if is_repeatable(&filter) {
                scan.add(&filter)?;
                answers.push(PushedDown::Yes);
            } else {
                answers.push(PushedDown::No);
            }
        }
        let node: Arc<dyn ExecutionPlan> = Arc::new(scan);
        Ok(FilterPushdownPropagation::with_parent_pushdown_result(answers).with_updated_node(node))
    }
}

impl SegmentScan {
    /// A condition over this plan's output as one over the addressed schema.
    fn over_table(&self, condition: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
        let moved = condition.clone().transform_down(|part| {
            Ok(match part.downcast_ref::<Column>() {
                Some(column) => {
                    let position = self.projection[column.index()];
                    Transformed::yes(Arc::new(Column::new(column.name(), position)) as Arc<dyn PhysicalExpr>)
                }
                None => Transformed::no(part),
            })
        })?;
        Ok(moved.data)
    }
}
