//! Values of window functions request memory: a window operator keeps one value for each row, and DataFusion's pool
//! does not count them.
//!
//! ```text
//!   ValueSizeLimit --accounted--> plan --optimizer--> physical plan --with_accounted_functions--> window operator --counted--> batches
//!            |                                |                                          |
//!            AskingAggregate                  AskingFunction                             values kept for its next batch
//! ```
//!
//! An operator keeps the values of a batch one by one, then makes them a column, which it copies into the batch that it
//! returns. So a value requests memory before it is made: for itself, for its place in the column, and for a copy of
//! all values made since the last batch. If all rows of a partition have the same value, it requests memory for all
//! copies.
//!
//! Only values that may be long request memory, and aggregates of distinct values, which keep them.

pub(crate) mod aggregates;

use std::any::Any;
use std::cell::Cell;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use datafusion::arrow::array::{Array, ArrayData, ArrayRef, AsArray};
use datafusion::arrow::datatypes::{DataType, FieldRef, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::Result as DfResult;
use datafusion::execution::{RecordBatchStream, SendableRecordBatchStream};
use datafusion::logical_expr::window_state::WindowAggState;
use datafusion::logical_expr::{LimitEffect, PartitionEvaluator, WindowFrameBound, WindowFrameUnits};
use datafusion::physical_expr::expressions::Literal;
use datafusion::physical_expr::window::{StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr};
use datafusion::physical_expr::{PhysicalExpr, PhysicalSortExpr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec, WindowUDFExpr};
use datafusion::scalar::ScalarValue;
use futures::Stream;

use super::memory_budget::Account;
use super::value_lengths::{is_long, lengths};

/// Values request memory when they may have taken this much since the last request.
const RESERVED_BYTES: usize = 256 << 10;

/// The bytes that a window operator has made since its last batch.
#[derive(Clone, Copy, Debug, Default)]
struct Made {
    bytes: usize,
    /// Bytes made since the last request.
    unasked: usize,
}

thread_local! {
    /// The count of the operator that is polled on this thread.
    static MADE: Cell<Made> = const { Cell::new(Made { bytes: 0, unasked: 0 }) };
}

/// Requests memory for a value of at most `bytes` bytes that is about to be made. Errors: 53200 if there is no room.
fn reserve(account: &Account, bytes: usize) -> DfResult<()> {
    let mut made = MADE.get();
    made.unasked = made.unasked.saturating_add(bytes);
    if made.unasked > RESERVED_BYTES {
        account.check_room(2 * bytes as u128 + made.bytes as u128)?;
        made.unasked = 0;
    }
    MADE.set(made);
    Ok(())
}

/// Counts the bytes of a value that was made.
fn keep(bytes: usize) {
    let made = MADE.get();
    MADE.set(Made { bytes: made.bytes.saturating_add(bytes), ..made });
}

/// Bytes of an array's values, not of the larger array that it is a part of.
fn held(array: &ArrayRef) -> usize {
    let views = array.len() * size_of::<u128>();
    match array.data_type() {
        DataType::Utf8View => views + array.as_string_view().iter().flatten().map(str::len).sum::<usize>(),
        DataType::BinaryView => views + array.as_binary_view().iter().flatten().map(<[u8]>::len).sum::<usize>(),
        _ => {
            let data = array.to_data();
            pieces(&data) + data.get_slice_memory_size().unwrap_or_else(|_| array.get_array_memory_size())
        }
    }
}

/// Bytes of the buffer list of an array: an array made of many contains the buffers of all.
fn pieces(data: &ArrayData) -> usize {
    size_of_val(data.buffers()) + data.child_data().iter().map(pieces).sum::<usize>()
}

/// Bytes of a value.
fn taken_by(value: &ScalarValue) -> usize {
    let long = match value {
        ScalarValue::List(array) => held(&(array.clone() as ArrayRef)),
        ScalarValue::LargeList(array) => held(&(array.clone() as ArrayRef)),
        ScalarValue::Struct(array) => held(&(array.clone() as ArrayRef)),
        // This includes allocated space that is not used.
        other => return other.size(),
    };
    size_of::<ScalarValue>() + long
}

/// Whether a plan is a window operator.
pub(crate) fn is_window(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.downcast_ref::<WindowAggExec>().is_some() || plan.downcast_ref::<BoundedWindowAggExec>().is_some()
}

/// Bytes for each row in a window operator that keeps all rows, besides values that may be long: for each function a
/// number in a column and in its copy; for functions that make one value at a time, also the single values.
pub(crate) fn row_bytes(window: &WindowAggExec) -> usize {
    let singles = match window.window_expr().iter().any(makes_singles) {
        true => size_of::<ScalarValue>(),
        false => 0,
    };
    2 * size_of::<i128>() * window.window_expr().len() + singles
}

/// Whether a function makes a value for each row, instead of a column at once.
fn makes_singles(expr: &Arc<dyn WindowExpr>) -> bool {
    if let Some(window) = expr.as_any().downcast_ref::<StandardWindowExpr>() {
        return window.get_standard_func_expr().create_evaluator().is_ok_and(|function| function.uses_window_frame());
    }
    let frame = expr.get_window_frame();
    let is_edge = |bound: &WindowFrameBound| match bound {
        WindowFrameBound::CurrentRow => frame.units == WindowFrameUnits::Range && expr.order_by().is_empty(),
        bound => bound.is_unbounded(),
    };
    !is_edge(&frame.start_bound) || !is_edge(&frame.end_bound)
}

/// The batches of a window operator. Its values are counted separately from those of other operators, until it returns
/// the next batch.
pub(crate) fn counted(inner: SendableRecordBatchStream) -> SendableRecordBatchStream {
    Box::pin(Counted { inner, made: Made::default(), is_over: false })
}

struct Counted {
    inner: SendableRecordBatchStream,
    made: Made,
    /// An error was returned: the operator does not use its values any more.
    is_over: bool,
}

impl Stream for Counted {
    type Item = DfResult<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        // The reader that polls this stream may be a window operator too.
        let others = MADE.replace(self.made);
        let next = self.inner.as_mut().poll_next(context);
        self.made = MADE.replace(others);
        match &next {
            Poll::Ready(Some(Ok(_))) => self.made = Made::default(),
            Poll::Ready(Some(Err(_))) => self.is_over = true,
            Poll::Ready(None) | Poll::Pending => {}
        }
        next
    }
}

impl RecordBatchStream for Counted {
    fn schema(&self) -> SchemaRef {
        self.inner.schema()
    }
}

/// A window operator whose functions request memory, if their values may be long. Aggregates request it already.
pub(crate) fn with_accounted_functions(
    plan: Arc<dyn ExecutionPlan>,
    account: &Arc<Account>,
) -> DfResult<Arc<dyn ExecutionPlan>> {
    let accounted = |exprs: &[Arc<dyn WindowExpr>]| -> DfResult<Option<Vec<Arc<dyn WindowExpr>>>> {
        let functions: Vec<_> = exprs.iter().map(|expr| accounted_function(expr, account)).collect::<DfResult<_>>()?;
        if functions.iter().all(Option::is_none) {
            return Ok(None);
        }
        Ok(Some(functions.into_iter().zip(exprs).map(|(asks, expr)| asks.unwrap_or_else(|| expr.clone())).collect()))
    };
    if let Some(window) = plan.downcast_ref::<WindowAggExec>()
        && let Some(exprs) = accounted(window.window_expr())?
    {
        let is_spread = !window.partition_keys().is_empty();
        return Ok(Arc::new(WindowAggExec::try_new(exprs, window.input().clone(), is_spread)?));
    }
    if let Some(window) = plan.downcast_ref::<BoundedWindowAggExec>()
        && let Some(exprs) = accounted(window.window_expr())?
    {
        let (mode, is_spread) = (window.input_order_mode.clone(), !window.partition_keys().is_empty());
        return Ok(Arc::new(BoundedWindowAggExec::try_new(exprs, window.input().clone(), mode, is_spread)?));
    }
    Ok(plan)
}

/// The same function, which requests memory; `None` if it need not.
fn accounted_function(expr: &Arc<dyn WindowExpr>, account: &Arc<Account>) -> DfResult<Option<Arc<dyn WindowExpr>>> {
    let Some(window) = expr.as_any().downcast_ref::<StandardWindowExpr>() else { return Ok(None) };
    if !is_long(expr.field()?.data_type()) {
        return Ok(None);
    }
    let function = AskingFunction { inner: window.get_standard_func_expr().clone(), account: account.clone() };
    let frame = window.get_window_frame().clone();
    let asks = StandardWindowExpr::new(Arc::new(function), window.partition_by(), window.order_by(), frame);
    Ok(Some(Arc::new(asks)))
}

/// A function whose values request memory; everything else is that of the function it replaces.
#[derive(Debug)]
struct AskingFunction {
    inner: Arc<dyn StandardWindowFunctionExpr>,
    account: Arc<Account>,
}

impl AskingFunction {
    /// Bytes of the default of `lag` and `lead`, for rows without a source row.
    fn default_bytes(&self) -> usize {
        let args = self.inner.as_any().downcast_ref::<WindowUDFExpr>().map(WindowUDFExpr::args);
        let value = args.and_then(|args| args.get(2)).and_then(|arg| arg.downcast_ref::<Literal>());
        value.map_or(0, |literal| literal.value().size())
    }
}

impl StandardWindowFunctionExpr for AskingFunction {
    fn as_any(&self) -> &dyn Any {
        self.inner.as_any()
    }

    fn field(&self) -> DfResult<FieldRef> {
        self.inner.field()
    }

    fn expressions(&self) -> Vec<Arc<dyn PhysicalExpr>> {
        self.inner.expressions()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn create_evaluator(&self) -> DfResult<Box<dyn PartitionEvaluator>> {
        Ok(Box::new(AskingEvaluator {
            inner: self.inner.create_evaluator()?,
            account: self.account.clone(),
            default_bytes: self.default_bytes(),
            widest: None,
        }))
    }

    fn reverse_expr(&self) -> Option<Arc<dyn StandardWindowFunctionExpr>> {
        let inner = self.inner.reverse_expr()?;
        Some(Arc::new(AskingFunction { inner, account: self.account.clone() }))
    }

    fn get_result_ordering(&self, schema: &SchemaRef) -> Option<PhysicalSortExpr> {
        self.inner.get_result_ordering(schema)
    }

    fn limit_effect(&self) -> LimitEffect {
        self.inner.limit_effect()
    }
}

/// The evaluator of a function in one partition.
#[derive(Debug)]
struct AskingEvaluator {
    inner: Box<dyn PartitionEvaluator>,
    account: Arc<Account>,
    default_bytes: usize,
    /// An array, and the bytes of its longest value.
    widest: Option<(Weak<dyn Array>, usize)>,
}

impl AskingEvaluator {
    /// Bytes of the longest value in these arrays that may be returned.
    fn widest(&mut self, values: &[ArrayRef]) -> DfResult<usize> {
        let Some(array) = values.first() else { return Ok(self.default_bytes) };
        if let Some((of, widest)) = &self.widest
            && std::ptr::addr_eq(of.as_ptr(), Arc::as_ptr(array))
        {
            return Ok(*widest);
        }
        let widest = lengths(array)?.into_iter().max().and_then(|widest| usize::try_from(widest).ok()).unwrap_or(0);
        let widest = widest.max(self.default_bytes);
        self.widest = Some((Arc::downgrade(array), widest));
        Ok(widest)
    }
}

impl PartitionEvaluator for AskingEvaluator {
    fn memoize(&mut self, state: &mut WindowAggState) -> DfResult<()> {
        self.inner.memoize(state)
    }

    fn get_range(&self, row: usize, rows: usize) -> DfResult<Range<usize>> {
        self.inner.get_range(row, rows)
    }

    fn is_causal(&self) -> bool {
        self.inner.is_causal()
    }

    /// Evaluates all rows of the partition at once: each value moves to another row. Rows without a value get the
    /// default, or another row's value.
    fn evaluate_all(&mut self, values: &[ArrayRef], rows: usize) -> DfResult<ArrayRef> {
        let widest = self.widest(values)?;
        let nulls = values.first().map_or(0, |array| array.logical_null_count());
        let all = values.first().map_or(0, held).saturating_add(nulls.saturating_mul(widest));
        reserve(&self.account, all.saturating_add(rows.saturating_mul(self.default_bytes)))?;
        let column = self.inner.evaluate_all(values, rows)?;
        keep(held(&column));
        Ok(column)
    }

    fn evaluate(&mut self, values: &[ArrayRef], range: &Range<usize>) -> DfResult<ScalarValue> {
        let widest = self.widest(values)?;
        reserve(&self.account, widest)?;
        let value = self.inner.evaluate(values, range)?;
        keep(taken_by(&value));
        Ok(value)
    }

    fn evaluate_all_with_rank(&self, rows: usize, ranks: &[Range<usize>]) -> DfResult<ArrayRef> {
        self.inner.evaluate_all_with_rank(rows, ranks)
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
