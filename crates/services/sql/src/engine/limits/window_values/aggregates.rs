//! [`over_window`]: aggregates over windows whose values request memory.
//!
//! The condition of FILTER becomes the last argument. So all rows of a partition can be counted, also those that the
//! condition excludes: a value that all of them share is copied for each.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray};
use datafusion::arrow::compute::filter;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::common::DFSchema;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Expr, ExprSchemable, ReversedUDAF, SetMonotonicity, Signature,
    WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
};
use datafusion::scalar::ScalarValue;

use super::{RESERVED_BYTES, held, keep, reserve, taken_by};
use crate::engine::limits::memory_budget::Account;
use crate::engine::limits::value_lengths::is_long;

/// The same aggregate over a window, whose values request memory; `None` if it need not.
pub(crate) fn over_window(call: &WindowFunction, schema: &DFSchema, account: &Arc<Account>) -> Option<WindowFunction> {
    let WindowFunctionDefinition::AggregateUDF(inner) = &call.fun else { return None };
    let is_long = Expr::from(call.clone()).get_type(schema).is_ok_and(|kind| is_long(&kind));
    if !is_long && !call.params.distinct || inner.inner().is::<AskingAggregate>() {
        return None;
    }
    let mut params = call.params.clone();
    let is_filtered = params.filter.is_some();
    params.args.extend(params.filter.take().map(|condition| *condition));
    let aggregate = AskingAggregate {
        inner: inner.clone(),
        account: account.clone(),
        is_filtered,
        is_shared: is_shared(&params),
        is_long,
        signature: Signature::user_defined(inner.signature().volatility),
    };
    let fun = WindowFunctionDefinition::AggregateUDF(Arc::new(AggregateUDF::from(aggregate)));
    Some(WindowFunction { fun, params })
}

/// Whether the frame of each row is the whole partition.
fn is_shared(params: &WindowFunctionParams) -> bool {
    let WindowFrame { units, start_bound, end_bound, .. } = &params.window_frame;
    let is_ordered = params.order_by.iter().any(|sort| !matches!(sort.expr, Expr::Literal(..)));
    let is_edge = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => *units == WindowFrameUnits::Range && !is_ordered,
        bound => bound.is_unbounded(),
    };
    is_edge(start_bound) && is_edge(end_bound)
}

/// An aggregate whose values request memory; everything else is that of the aggregate it replaces.
#[derive(Debug)]
struct AskingAggregate {
    inner: Arc<AggregateUDF>,
    account: Arc<Account>,
    /// Whether the last argument is the condition of FILTER.
    is_filtered: bool,
    /// Whether all rows of a partition have one value.
    is_shared: bool,
    /// Whether its values may be long.
    is_long: bool,
    /// The types of arguments are determined already.
    signature: Signature,
}

impl PartialEq for AskingAggregate {
    fn eq(&self, other: &AskingAggregate) -> bool {
        (&self.inner, self.is_filtered, self.is_shared) == (&other.inner, other.is_filtered, other.is_shared)
    }
}

impl Eq for AskingAggregate {}

impl Hash for AskingAggregate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.inner, self.is_filtered, self.is_shared).hash(state);
    }
}

impl AskingAggregate {
    /// The arguments without the condition.
    fn own<'a, T>(&self, arguments: &'a [T]) -> &'a [T] {
        &arguments[..arguments.len().saturating_sub(usize::from(self.is_filtered))]
    }

    fn own_args<'a>(&self, args: AccumulatorArgs<'a>) -> AccumulatorArgs<'a> {
        AccumulatorArgs { exprs: self.own(args.exprs), expr_fields: self.own(args.expr_fields), ..args }
    }

    /// The same wrapper around another aggregate.
    fn of(&self, inner: Arc<AggregateUDF>) -> AskingAggregate {
        AskingAggregate { inner, account: self.account.clone(), signature: self.signature.clone(), ..*self }
    }

    fn accounted(&self, inner: Box<dyn Accumulator>) -> Box<dyn Accumulator> {
        let AskingAggregate { account, is_filtered, is_shared, is_long, .. } = self;
        let (account, is_filtered, is_shared, is_long) = (account.clone(), *is_filtered, *is_shared, *is_long);
        Box::new(AskingAccumulator { inner, account, is_filtered, is_shared, is_long, rows: 0 })
    }
}

impl AggregateUDFImpl for AskingAggregate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn aliases(&self) -> &[String] {
        self.inner.aliases()
    }

    fn window_function_schema_name(&self, params: &WindowFunctionParams) -> DfResult<String> {
        self.inner.window_function_schema_name(params)
    }

    fn window_function_display_name(&self, params: &WindowFunctionParams) -> DfResult<String> {
        self.inner.window_function_display_name(params)
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, kinds: &[DataType]) -> DfResult<Vec<DataType>> {
        Ok(kinds.to_vec())
    }

    fn return_type(&self, kinds: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(self.own(kinds))
    }

    fn return_field(&self, fields: &[FieldRef]) -> DfResult<FieldRef> {
        self.inner.return_field(self.own(fields))
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(self.accounted(self.inner.accumulator(self.own_args(args))?))
    }

    fn create_sliding_accumulator(&self, args: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        Ok(self.accounted(self.inner.create_sliding_accumulator(self.own_args(args))?))
    }

    fn state_fields(&self, args: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.inner.state_fields(StateFieldsArgs { input_fields: self.own(args.input_fields), ..args })
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        match self.inner.reverse_udf() {
            ReversedUDAF::Reversed(inner) => ReversedUDAF::Reversed(Arc::new(AggregateUDF::from(self.of(inner)))),
            other => other,
        }
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        self.inner.order_sensitivity()
    }

    fn is_descending(&self) -> Option<bool> {
        self.inner.is_descending()
    }

    fn default_value(&self, kind: &DataType) -> DfResult<ScalarValue> {
        self.inner.default_value(kind)
    }

    fn supports_null_handling_clause(&self) -> bool {
        self.inner.supports_null_handling_clause()
    }

    fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
        self.inner.inner().set_monotonicity(kind)
    }
}

/// The values of an aggregate in one partition.
#[derive(Debug)]
struct AskingAccumulator {
    inner: Box<dyn Accumulator>,
    account: Arc<Account>,
    is_filtered: bool,
    is_shared: bool,
    is_long: bool,
    /// Rows of the partition, if all of them have one value.
    rows: usize,
}

impl AskingAccumulator {
    /// The values of the rows that fulfil the condition.
    fn chosen(&self, values: &[ArrayRef]) -> DfResult<Vec<ArrayRef>> {
        match values.split_last() {
            Some((condition, values)) if self.is_filtered => {
                reserve(&self.account, values.iter().map(held).sum())?;
                Ok(values.iter().map(|array| filter(array, condition.as_boolean())).collect::<Result<_, _>>()?)
            }
            _ => Ok(values.to_vec()),
        }
    }
}

impl Accumulator for AskingAccumulator {
    /// Adds a part of the rows at a time: the memory that it keeps of a part is counted before the next one.
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.rows = values.first().map_or(0, |array| array.len());
        let values = self.chosen(values)?;
        let (rows, bytes) = (values.first().map_or(0, |array| array.len()), values.iter().map(held).sum::<usize>());
        let some = if bytes > RESERVED_BYTES { rows.div_ceil(bytes / RESERVED_BYTES) } else { rows };
        let mut start = 0;
        while start < rows {
            let part: Vec<ArrayRef> = values.iter().map(|array| array.slice(start, some.min(rows - start))).collect();
            reserve(&self.account, part.iter().map(held).sum())?;
            self.inner.update_batch(&part)?;
            start += some;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let values = self.chosen(values)?;
        self.inner.retract_batch(&values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        if !self.is_long {
            return self.inner.evaluate();
        }
        // A value is no larger than the values that it is made of.
        reserve(&self.account, self.inner.size())?;
        let value = self.inner.evaluate()?;
        // With an order by a constant, each row may request memory for itself: the first row did so for all.
        let copies = if self.is_shared { std::mem::take(&mut self.rows) } else { 1 };
        let bytes = taken_by(&value).saturating_mul(copies);
        if self.is_shared {
            reserve(&self.account, bytes)?;
        }
        keep(bytes);
        Ok(value)
    }

    fn size(&self) -> usize {
        size_of::<AskingAccumulator>() + self.inner.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.inner.merge_batch(states)
    }
}
