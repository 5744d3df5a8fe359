//! [`SortedJoins`]: replaces joins that keep one side in memory by joins of sorted rows, in plans for little memory.
//!
//! ```text
//!   HashJoinExec                         SortMergeJoinExec
//!     one side: all of it in memory        one side, sorted: spills
//!     the other: as it comes               the other, sorted: spills
//! ```
//!
//! DataFusion's planner has a setting for this, but it affects only plans of several partitions. There the rows are
//! divided among the partitions first, and the rows that wait for a partition that is not read yet have no bound. So
//! this rule works in plans of one partition. It runs before the rule that chooses the sides of joins: that rule
//! exchanges the sides in a join's condition in place, but a join of sorted rows expects the columns of the left side
//! first (DataFusion 55.2, `get_filter_columns`), so it would compare the wrong columns.
//!
//! Some joins stay as they are: `NOT IN` over rows that may contain nulls, which joins of sorted rows do not support;
//! joins without an equality; joins whose condition has its columns in another order; joins by keys that some parts of
//! DataFusion treat as equal and others do not (0.0 and -0.0, NaN); and joins by types that it does not compare there
//! (time, interval, timestamps with a zone).
//!
//! Projections are not pushed through joins in such a plan: DataFusion 55.2 would do so and leave the join's condition
//! unchanged, so the condition would compare other columns.

use std::sync::Arc;

use datafusion::arrow::compute::SortOptions;
use datafusion::arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::JoinSide;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::error::Result as DfResult;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::expressions::Column;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, SortMergeJoinExec};
use datafusion::physical_plan::projection::{ProjectionExec, ProjectionExpr};

/// The rule of DataFusion that this one precedes.
const NEXT: &str = "join_selection";

/// The rule of DataFusion that moves projections below joins, and does not adjust their conditions.
const MOVES_COLUMNS: &str = "ProjectionPushdown";

/// The rule.
#[derive(Debug)]
pub(crate) struct SortedJoins;

impl SortedJoins {
    /// The same planner, with this rule.
    pub(crate) fn in_state(state: SessionState) -> SessionState {
        let mut rules = state.physical_optimizers().to_vec();
        let place = rules.iter().position(|rule| rule.name() == NEXT).unwrap_or(0);
        rules.insert(place, Arc::new(SortedJoins));
        rules.retain(|rule| rule.name() != MOVES_COLUMNS);
        SessionStateBuilder::new_from_existing(state).with_physical_optimizer_rules(rules).build()
    }
}

impl PhysicalOptimizerRule for SortedJoins {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, _: &ConfigOptions) -> DfResult<Arc<dyn ExecutionPlan>> {
        plan.transform_up(sorted).data()
    }

    fn name(&self) -> &str {
        "sorted_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The same condition, whose columns may contain nulls: it is also evaluated for rows without a match, whose values are
/// null, and an outer join of sorted rows over columns without nulls would fail (DataFusion 55.2).
fn with_nulls(filter: &JoinFilter) -> JoinFilter {
    let fields: Vec<Field> =
        filter.schema().fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect();
    JoinFilter::new(filter.expression().clone(), filter.column_indices().to_vec(), Arc::new(Schema::new(fields)))
}

fn can_be_sorted(join: &HashJoinExec) -> bool {
    let is_in_order =
        |filter: &JoinFilter| filter.column_indices().is_sorted_by_key(|column| column.side == JoinSide::Right);
    let is_sortable = |key: &Arc<dyn PhysicalExpr>, side: &Arc<dyn ExecutionPlan>| {
        key.data_type(&side.schema()).is_ok_and(|kind| {
            let is_timestamp = matches!(kind, DataType::Timestamp(_, None));
            let is_other = matches!(kind, DataType::Boolean | DataType::Date32 | DataType::Decimal128(..));
            kind.is_integer() || kind.is_string() || kind.is_binary() || is_timestamp || is_other
        })
    };
    let keys_are =
        join.on().iter().all(|(left, right)| is_sortable(left, join.left()) && is_sortable(right, join.right()));
    !join.null_aware && !join.on().is_empty() && keys_are && join.filter().is_none_or(is_in_order)
}

fn sorted(plan: Arc<dyn ExecutionPlan>) -> DfResult<Transformed<Arc<dyn ExecutionPlan>>> {
    let Some(join) = plan.downcast_ref::<HashJoinExec>().filter(|join| can_be_sorted(join)) else {
        return Ok(Transformed::no(plan));
    };
    let joined: Arc<dyn ExecutionPlan> = Arc::new(SortMergeJoinExec::try_new(
        join.left().clone(),
        join.right().clone(),
        join.on().to_vec(),
        join.filter().map(with_nulls),
        *join.join_type(),
        vec![SortOptions::default(); join.on().len()],
        join.null_equality(),
    )?);
    let Some(kept) = &join.projection else { return Ok(Transformed::yes(joined)) };
    let schema = joined.schema();
    let kept = kept.iter().map(|place| {
        let name = schema.field(*place).name();
        ProjectionExpr { expr: Arc::new(Column::new(name, *place)), alias: name.clone() }
    });
    Ok(Transformed::yes(Arc::new(ProjectionExec::try_new(kept.collect::<Vec<_>>(), joined)?)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use datafusion::arrow::record_batch::RecordBatch;
    use datafusion::arrow::util::display::array_value_to_string;
    use datafusion::physical_plan::collect;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::engine::run::query_task::with_little_memory;

    /// Joins of every kind, with and without a condition of their own.
    const JOINS: &[&str] = &[
        "select a.n, b.n from a join b on a.k = b.k",
        "select a.n, b.n from a left join b on a.k = b.k and a.n < b.n",
        "select a.n, b.n from a right join b on a.k = b.k and a.n < b.n",
        "select a.n, b.n from a full join b on a.k = b.k and a.n <> b.n",
        "select a.n, b.n from a join b on a.k = b.k and a.t = b.t",
        "select a.n, b.n from a join b on a.k is not distinct from b.k",
        "select b.n from (select k from a where n < 50) a join b on a.k = b.k where b.n % 2 = 0",
        "select n from a where k in (select k from b)",
        "select n from a where exists (select 1 from b where b.k = a.k and b.n > a.n)",
        "select n from a where exists (select 1 from b where b.k = a.k) or n < 5",
        "select n from a where not exists (select 1 from b where b.k = a.k and b.n > a.n)",
        "select a.n, b.n, c.n from a join b on a.k = b.k join b c on b.n = c.n where c.k < 40",
        "select a.k, count(*) from a join b on a.k = b.k group by a.k",
        "select a.k from a join b on a.k = b.k order by a.k, b.n desc limit 70",
        // Every selected column is on one side, with the keys, and without the columns that the condition compares.
        "select a.k, a.t, b.k, b.t from a join b on a.k = b.k and a.n < b.n",
        "select a.k, a.t, b.k, b.t from a left join b on a.k = b.k and a.n < b.n",
    ];

    fn texts(batches: &[RecordBatch]) -> Vec<String> {
        let cells = |batch: &RecordBatch, row| {
            batch.columns().iter().map(|column| array_value_to_string(column, row).expect("it can be shown")).collect()
        };
        let rows = batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| cells(batch, row)));
        let mut rows: Vec<String> = rows.map(|cells: Vec<String>| cells.join("|")).collect();
        rows.sort();
        rows
    }

    #[tokio::test]
    async fn a_join_of_any_kind_finds_the_same_rows_when_they_are_sorted() {
        let context = SessionContext::new();
        // Keys without a match, with one, with many, and null; in batches that each contain a part of the rows.
        for sql in [
            "create table a as select value n, nullif(value % 97, 96) k, repeat('x', cast(value % 3 as int)) t from generate_series(1, 900)",
            "create table b as select value n, nullif(value % 61, 7) k, repeat('x', cast(value % 5 as int)) t \
             from generate_series(1, 700)",
            "insert into a select n + 1000, cast(null as bigint), t from a where n < 9",
        ] {
            context.sql(sql).await.expect(sql).collect().await.expect(sql);
        }
        let mut kinds = BTreeSet::new();
        for sql in JOINS {
            let plan = context.sql(sql).await.expect(sql).into_optimized_plan().expect(sql);
            let (little, tasks) = with_little_memory(context.state(), plan).await.expect(sql);
            little
                .apply(|plan| {
                    assert!(plan.downcast_ref::<HashJoinExec>().is_none(), "{sql}: {plan:?}");
                    kinds.extend(plan.downcast_ref::<SortMergeJoinExec>().map(|join| join.join_type().to_string()));
                    Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
                })
                .expect(sql);
            let found = texts(&collect(little, tasks).await.expect(sql));
            let expected = texts(&context.sql(sql).await.expect(sql).collect().await.expect(sql));
            assert!(!expected.is_empty(), "{sql}");
            assert_eq!(found, expected, "{sql}");
        }
        assert!(kinds.len() >= 6, "{kinds:?}");
        for (sql, sorts) in [
            ("select a.n from a join b on a.k = b.k", true),
            ("select a.n from a join b on cast(a.k as double) = cast(b.k as double)", false),
            ("select n from a where exists (select 1 from b where cast(b.k as double) = cast(a.k as double))", false),
            ("select a.n from a join b on a.k = b.k and cast(a.n as time) = cast(b.n as time)", false),
        ] {
            let plan = context.sql(sql).await.expect(sql).into_optimized_plan().expect(sql);
            let (little, _) = with_little_memory(context.state(), plan).await.expect(sql);
            let is_sorted = little.exists(|plan| Ok(plan.downcast_ref::<SortMergeJoinExec>().is_some()));
            assert_eq!(is_sorted.expect(sql), sorts, "{sql}");
        }
    }
}
