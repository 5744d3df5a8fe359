//! `row_number`, `rank` and `dense_rank` as bigint and `ntile` as integer, as in PostgreSQL: DataFusion counts without a sign, and would make
//! numerics of sums with such numbers. The functions are DataFusion's own.

use std::ops::Range;
use std::sync::Arc;

use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::compute::{SortOptions, cast};
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::functions_window::{ntile, rank, row_number};
use datafusion::logical_expr::function::{ExpressionArgs, PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, ReversedUDWF, Signature, WindowUDF, WindowUDFImpl};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

/// Registers the functions: they replace DataFusion's.
pub(crate) fn register(context: &SessionContext) {
    let functions = [
        (row_number::row_number_udwf(), DataType::Int64),
        (rank::rank_udwf(), DataType::Int64),
        (rank::dense_rank_udwf(), DataType::Int64),
        (ntile::ntile_udwf(), DataType::Int32),
    ];
    for (inner, to) in functions {
        context.register_udwf(WindowUDF::new_from_impl(SignedWindow { inner, to }));
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SignedWindow {
    inner: Arc<WindowUDF>,
    to: DataType,
}

impl WindowUDFImpl for SignedWindow {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn expressions(&self, arguments: ExpressionArgs) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.inner().expressions(arguments)
    }

    fn partition_evaluator(&self, arguments: PartitionEvaluatorArgs) -> DfResult<Box<dyn PartitionEvaluator>> {
        let inner = self.inner.inner().partition_evaluator(arguments)?;
        Ok(Box::new(Signed { inner, to: self.to.clone() }))
    }

    fn field(&self, arguments: WindowUDFFieldArgs) -> DfResult<FieldRef> {
        let field = self.inner.inner().field(arguments)?;
        Ok(Arc::new(field.as_ref().clone().with_data_type(self.to.clone())))
    }

    fn sort_options(&self) -> Option<SortOptions> {
        self.inner.inner().sort_options()
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        self.inner.inner().coerce_types(arguments)
    }

    fn reverse_expr(&self) -> ReversedUDWF {
        match self.inner.inner().reverse_expr() {
            ReversedUDWF::Identical => ReversedUDWF::Identical,
            _ => ReversedUDWF::NotSupported,
        }
    }

    fn limit_effect(&self, arguments: &[Arc<dyn PhysicalExpr>]) -> LimitEffect {
        self.inner.inner().limit_effect(arguments)
    }
}

/// Makes its values numbers with a sign.
#[derive(Debug)]
struct Signed {
    inner: Box<dyn PartitionEvaluator>,
    to: DataType,
}

impl PartitionEvaluator for Signed {
    fn memoize(&mut self, state: &mut WindowAggState) -> DfResult<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> DfResult<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> DfResult<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all(values, rows)?, &self.to)?)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> DfResult<ScalarValue> {
        self.inner.evaluate(values, range)?.cast_to(&self.to)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> DfResult<ArrayRef> {
        Ok(cast(&self.inner.evaluate_all_with_rank(rows, ranks)?, &self.to)?)
    }

    fn supports_bounded_execution(&self) -> bool {
        self.inner.supports_bounded_execution()
    }

    fn uses_window_frame(&self) -> bool {
        self.inner.uses_window_frame()
    }

    fn include_rank(&self) -> bool {
        self.inner.include_rank()
    }
}
