//! The function `sum` of whole numbers: bigint for integer and smallint, numeric for bigint, as in PostgreSQL, so it
//! cannot overflow. DataFusion computes it: the values are first cast to the type of the sum.

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
    Volatility,
};
use datafusion::scalar::ScalarValue;

use super::interval_aggregates::SpanSum;
use super::rows::INTERVAL;

/// A bigint as a numeric: 2^63 has 19 digits, and DataFusion gives the sum 10 more.
const BIGINT: DataType = DataType::Decimal128(28, 0);

/// The function, for registration in a context; it replaces DataFusion's.
pub(crate) fn function() -> AggregateUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    AggregateUDF::from(WideSum { inner: Sum::new(), signature, aliases: vec!["sum".into()] })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WideSum {
    inner: Sum,
    signature: Signature,
    aliases: Vec<String>,
}

impl AggregateUDFImpl for WideSum {
    /// The name is not `sum`: beside a distinct count, an optimizer rule sums a function with the name `sum` twice, and
    /// the second sum of integers has another type than the first.
    fn name(&self) -> &str {
        "exact_sum"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        let [argument] = arguments else {
            return Err(crate::SqlError::statement("42883", "sum(value) takes one argument").into());
        };
        Ok(vec![match argument {
            // The sum of four thousand million such values fits in 64 bits.
            DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => DataType::Int32,
            kind if kind.is_integer() => BIGINT,
            DataType::Null => BIGINT,
            DataType::Float16 | DataType::Float32 => DataType::Float64,
            DataType::Float64
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => argument.clone(),
            DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
            other => {
                let message = format!("function sum({other}) does not exist");
                return Err(crate::SqlError::statement("42883", message).into());
            }
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        match arguments {
            [DataType::Int32] => Ok(DataType::Int64),
            _ => self.inner.return_type(arguments),
        }
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        let to = arguments.return_type().clone();
        if to == INTERVAL {
            return Ok(Box::new(SpanSum::default()));
        }
        widened(self.inner.accumulator(arguments)?, to)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.inner.state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        *arguments.return_type() != INTERVAL && self.inner.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn GroupsAccumulator>> {
        let to = arguments.return_type().clone();
        let inner = self.inner.create_groups_accumulator(arguments)?;
        Ok(if to == DataType::Int64 { Box::new(Widened { inner, to }) } else { inner })
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        let to = arguments.return_type().clone();
        if to == INTERVAL {
            return Ok(Box::new(SpanSum::default()));
        }
        widened(self.inner.create_sliding_accumulator(arguments)?, to)
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }

    fn set_monotonicity(&self, kind: &DataType) -> SetMonotonicity {
        self.inner.set_monotonicity(kind)
    }
}

fn widened(inner: Box<dyn Accumulator>, to: DataType) -> DfResult<Box<dyn Accumulator>> {
    Ok(if to == DataType::Int64 { Box::new(Widened { inner, to }) } else { inner })
}

/// Sums its values as another type.
#[derive(Debug)]
struct Widened<A> {
    inner: A,
    to: DataType,
}

impl<A> Widened<A> {
    fn wide(&self, values: &[ArrayRef]) -> DfResult<Vec<ArrayRef>> {
        Ok(values.iter().map(|array| cast(array, &self.to)).collect::<Result<_, _>>()?)
    }
}

impl Accumulator for Widened<Box<dyn Accumulator>> {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let values = self.wide(values)?;
        self.inner.update_batch(&values)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        self.inner.evaluate()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        self.inner.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        self.inner.merge_batch(states)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        let values = self.wide(values)?;
        self.inner.retract_batch(&values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.inner.supports_retract_batch()
    }
}

impl GroupsAccumulator for Widened<Box<dyn GroupsAccumulator>> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> DfResult<()> {
        let values = self.wide(values)?;
        self.inner.update_batch(&values, groups, filter, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> DfResult<ArrayRef> {
        self.inner.evaluate(emit)
    }

    fn state(&mut self, emit: EmitTo) -> DfResult<Vec<ArrayRef>> {
        self.inner.state(emit)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> DfResult<()> {
        self.inner.merge_batch(values, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> DfResult<Vec<ArrayRef>> {
        self.inner.convert_to_state(&self.wide(values)?, filter)
    }

    fn size(&self) -> usize {
        self.inner.size()
    }
}
