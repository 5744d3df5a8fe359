//! `sum` of intervals, where more than an interval can have is an error; `min` and `max` by their lengths, with months of 30 days, and the order of intervals in ORDER BY: DataFusion compares months
//! first, then days.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::DFSchema;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{AggregateFunction, Sort, WindowFunction};
use datafusion::logical_expr::function::AccumulatorArgs;
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, LogicalPlan, ReversedUDAF, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::datetime_functions::{SPAN, span_us};
use super::rows::{INTERVAL, Span, interval_out_of_range};
use crate::SqlError;

/// The plan with its sorts of intervals by their lengths.
pub(crate) fn sorted(plan: LogicalPlan) -> DfResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|plan| match plan {
        LogicalPlan::Sort(mut sort) => {
            let changed = by_length(&mut sort.expr, sort.input.schema());
            Ok(Transformed::new_transformed(LogicalPlan::Sort(sort), changed))
        }
        plan => Ok(Transformed::no(plan)),
    })?;
    Ok(plan.data)
}

/// Keys that are intervals become lengths. Returns whether there was any.
fn by_length(keys: &mut [Sort], schema: &DFSchema) -> bool {
    let mut any = false;
    for key in keys {
        if matches!(key.expr.get_type(schema), Ok(DataType::Interval(_))) {
            key.expr = SPAN.of(vec![key.expr.clone()]);
            any = true;
        }
    }
    any
}

/// An aggregate whose values or whose order are intervals.
pub(crate) fn aggregate(mut call: AggregateFunction, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = by_length(&mut call.params.order_by, schema);
    let kind = call.params.args.first().and_then(|value| value.get_type(schema).ok());
    if matches!(kind, Some(DataType::Interval(_))) && matches!(call.func.name(), "min" | "max") {
        let is_greatest = call.func.name() == "max";
        call.func = Arc::new(AggregateUDF::from(IntervalEdge::new(is_greatest)));
        changed = true;
    }
    Transformed::new_transformed(Expr::AggregateFunction(call), changed)
}

/// A window whose order or whose parts are intervals.
pub(crate) fn window(mut call: Box<WindowFunction>, schema: &DFSchema) -> Transformed<Expr> {
    let mut changed = by_length(&mut call.params.order_by, schema);
    for key in &mut call.params.partition_by {
        if matches!(key.get_type(schema), Ok(DataType::Interval(_))) {
            *key = SPAN.of(vec![key.clone()]);
            changed = true;
        }
    }
    Transformed::new_transformed(Expr::WindowFunction(call), changed)
}

/// `min` or `max`.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntervalEdge {
    is_greatest: bool,
    signature: Signature,
}

impl IntervalEdge {
    fn new(is_greatest: bool) -> IntervalEdge {
        IntervalEdge { is_greatest, signature: Signature::user_defined(Volatility::Immutable) }
    }
}

impl AggregateUDFImpl for IntervalEdge {
    /// Not `min` and `max`: optimizer rules know these names.
    fn name(&self) -> &str {
        if self.is_greatest { "longest" } else { "shortest" }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        match arguments {
            [DataType::Interval(_)] => Ok(vec![INTERVAL]),
            _ => Err(SqlError::statement("42883", "a value of type interval was expected").into()),
        }
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(INTERVAL)
    }

    fn accumulator(&self, _: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(Box::new(Edge { is_greatest: self.is_greatest, found: None }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug)]
struct Edge {
    is_greatest: bool,
    found: Option<IntervalMonthDayNano>,
}

impl Accumulator for Edge {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        for value in values[0].as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            // Of intervals of one length the last one is taken.
            let is_further = self.found.is_none_or(|found| match self.is_greatest {
                true => span_us(value) >= span_us(found),
                false => span_us(value) <= span_us(found),
            });
            if is_further {
                self.found = Some(value);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.found))
    }

    fn size(&self) -> usize {
        size_of::<Edge>()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.update_batch(states)
    }
}

/// The sum of intervals.
#[derive(Debug, Default)]
pub(crate) struct SpanSum {
    sum: Span,
    count: i64,
}

impl SpanSum {
    fn change(&mut self, values: &ArrayRef, of: fn(Span, Span) -> Option<Span>) -> DfResult<i64> {
        let mut count = 0;
        for value in values.as_primitive::<IntervalMonthDayNanoType>().iter().flatten() {
            self.sum = of(self.sum, Span::from(value)).ok_or_else(interval_out_of_range)?;
            count += 1;
        }
        Ok(count)
    }
}

impl Accumulator for SpanSum {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.count += self.change(&values[0], Span::checked_add)?;
        Ok(())
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let sum = (self.count > 0).then(|| self.sum.arrow()).transpose()?;
        Ok(ScalarValue::IntervalMonthDayNano(sum))
    }

    fn size(&self) -> usize {
        size_of::<SpanSum>()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.update_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.count -= self.change(&values[0], Span::checked_sub)?;
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }
}
