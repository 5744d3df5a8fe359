//! [`RowGroupScan`]: the rows of a table's row groups as a plan of DataFusion.
//!
//! ```text
//!   for each row group of a partition            skipped if its zones exclude the conditions      (prune)
//!     for each vector                          skipped in the same way
//!       rows, without the deleted ones
//!       for each condition, cheapest first     once per value if values are few, else on the remaining rows  (filter)
//!     the remaining rows, with all requested columns; chunks without a remaining row are not read     (reader)
//! ```
//!
//! Conditions come from two sources: from the table's provider, and from the optimizer when the plan exists
//! (`handle_child_pushdown_result`). The latter include conditions that joins and top-k compute while they run. The
//! scan applies all of them exactly, so no filter stays above it. A condition computed while running is dropped again
//! if nearly all rows pass it. Statistics are exact counts if there are no conditions; otherwise they come from a
//! sample of vectors.
//!
//! While a row group is processed, another thread reads the chunks of the next one that will probably be needed.

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
use self::layout::ScanLayout;
use super::RowGroups;
use crate::SqlError;

/// The columns of a scan: the table's, followed by the row's address.
#[derive(Clone, Debug)]
pub(crate) struct Scanned {
    pub(crate) row_groups: RowGroups,
    /// The table's columns and the address column.
    pub(crate) addressed: SchemaRef,
}

/// A plan that reads row groups. It has no inputs.
#[derive(Clone, Debug)]
pub struct RowGroupScan {
    scanned: Arc<Scanned>,
    /// Positions in the addressed schema.
    projection: Vec<usize>,
    conjuncts: Vec<Conjunct>,
    fetch: Option<usize>,
    layout: Arc<ScanLayout>,
    properties: Arc<PlanProperties>,
    metrics: ExecutionPlanMetricsSet,
    statistics: OnceLock<Arc<Statistics>>,
}

impl RowGroupScan {
    /// A scan of the columns at those positions of `addressed`, with conditions over `addressed`, in at most
    /// `partitions` partitions.
    pub(crate) fn new(
        row_groups: RowGroups,
        addressed: SchemaRef,
        projection: Vec<usize>,
        conditions: &[Arc<dyn PhysicalExpr>],
        fetch: Option<usize>,
        partitions: usize,
    ) -> Result<RowGroupScan, SqlError> {
        let layout = Arc::new(ScanLayout::new(&row_groups, partitions));
        let properties = layout.properties(Arc::new(addressed.project(&projection)?), &projection)?;
        let scanned = Arc::new(Scanned { row_groups, addressed });
        let mut scan = RowGroupScan {
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

    /// Adds a condition over the addressed schema; each part of a conjunction once.
    fn add(&mut self, condition: &Arc<dyn PhysicalExpr>) -> Result<()> {
        for part in split_conjunction(condition) {
            if self.conjuncts.iter().all(|known| &known.over_table != part) {
                self.conjuncts.push(Conjunct::new(part, &self.scanned)?);
            }
        }
        self.statistics = OnceLock::new();
        Ok(())
    }

    fn with_projection(&self, projection: Vec<usize>) -> Result<RowGroupScan> {
        let schema = Arc::new(self.scanned.addressed.project(&projection)?);
        let properties = self.layout.properties(schema, &projection)?;
        Ok(RowGroupScan { projection, properties, statistics: OnceLock::new(), ..self.clone() })
    }
}

impl DisplayAs for RowGroupScan {
    fn fmt_as(&self, kind: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let schema = self.properties.eq_properties.schema();
        let names: Vec<&str> = schema.fields().iter().map(|field| field.name().as_str()).collect();
        let separator = if matches!(kind, DisplayFormatType::TreeRender) { "\n" } else { ", " };
        if !matches!(kind, DisplayFormatType::TreeRender) {
            write!(f, "RowGroupScan: ")?;
        }
        write!(f, "row_groups={}{separator}columns=[{}]", self.scanned.row_groups.list.len(), names.join(", "))?;
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

impl ExecutionPlan for RowGroupScan {
    fn name(&self) -> &str {
        "RowGroupScan"
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
        Some(Arc::new(RowGroupScan { fetch, statistics: OnceLock::new(), ..self.clone() }))
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
        // An existing limit counts rows before later conditions: these conditions stay above the scan.
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

impl RowGroupScan {
    /// Rewrites a condition over this plan's output as one over the addressed schema.
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
