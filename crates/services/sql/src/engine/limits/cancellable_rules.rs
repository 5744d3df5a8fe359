//! [`checked`]: wraps DataFusion's rules. Each first checks whether the statement may continue, so planning can be
//! cancelled.
//!
//! A rule that DataFusion applies node by node checks at each node; the others check once for the whole plan.

use std::cell::Cell;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SessionState, SessionStateBuilder};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{AnalyzerRule, OptimizerConfig, OptimizerRule};
use datafusion::physical_optimizer::{PhysicalOptimizerContext, PhysicalOptimizerRule};
use datafusion::physical_plan::ExecutionPlan;

use crate::engine::Canceller;

thread_local! {
    static APPLIED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is applying a rule: an expression that is evaluated then is a constant.
pub(crate) fn are_applied() -> bool {
    APPLIED.get()
}

/// The same state, whose rules check first.
pub(crate) fn checked(state: SessionState, canceller: &Canceller) -> SessionState {
    let analyzer: Vec<Arc<dyn AnalyzerRule + Send + Sync>> =
        state.analyzer().rules.iter().map(|rule| Arc::new(Asking::new(rule, canceller)) as _).collect();
    let optimizer: Vec<Arc<dyn OptimizerRule + Send + Sync>> =
        state.optimizers().iter().map(|rule| Arc::new(Asking::new(rule, canceller)) as _).collect();
    let physical: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> =
        state.physical_optimizers().iter().map(|rule| Arc::new(Asking::new(rule, canceller)) as _).collect();
    SessionStateBuilder::new_from_existing(state)
        .with_analyzer_rules(analyzer)
        .with_optimizer_rules(optimizer)
        .with_physical_optimizer_rules(physical)
        .build()
}

/// A rule that checks first.
#[derive(Debug)]
struct Asking<R: ?Sized> {
    rule: Arc<R>,
    canceller: Canceller,
}

impl<R: ?Sized> Asking<R> {
    fn new(rule: &Arc<R>, canceller: &Canceller) -> Asking<R> {
        Asking { rule: rule.clone(), canceller: canceller.clone() }
    }

    fn apply<T>(&self, rule: impl FnOnce(&R) -> DfResult<T>) -> DfResult<T> {
        self.canceller.current().check()?;
        APPLIED.set(true);
        let applied = rule(&*self.rule);
        APPLIED.set(false);
        applied
    }
}

impl AnalyzerRule for Asking<dyn AnalyzerRule + Send + Sync> {
    fn analyze(&self, plan: LogicalPlan, config: &ConfigOptions) -> DfResult<LogicalPlan> {
        self.apply(|rule| rule.analyze(plan, config))
    }

    fn name(&self) -> &str {
        self.rule.name()
    }
}

impl OptimizerRule for Asking<dyn OptimizerRule + Send + Sync> {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(&self, plan: LogicalPlan, config: &dyn OptimizerConfig) -> DfResult<Transformed<LogicalPlan>> {
        self.apply(|rule| rule.rewrite(plan, config))
    }
}

impl PhysicalOptimizerRule for Asking<dyn PhysicalOptimizerRule + Send + Sync> {
    fn optimize(&self, plan: Arc<dyn ExecutionPlan>, config: &ConfigOptions) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.apply(|rule| rule.optimize(plan, config))
    }

    fn optimize_with_context(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        context: &dyn PhysicalOptimizerContext,
    ) -> DfResult<Arc<dyn ExecutionPlan>> {
        self.apply(|rule| rule.optimize_with_context(plan, context))
    }

    fn name(&self) -> &str {
        self.rule.name()
    }

    fn schema_check(&self) -> bool {
        self.rule.schema_check()
    }
}
