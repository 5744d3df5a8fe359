//! The function `avg` of whole numbers and numerics: a numeric, as in PostgreSQL, and not a float. It is a sum and a
//! count, each DataFusion's own, and the quotient of both ([`numeric_division`](super::numeric_division)). For floats
//! it is DataFusion's. The average of intervals is an interval.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, BooleanArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, GroupsAccumulator, ReversedUDAF, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use super::interval_aggregates::SpanSum;
use super::interval_functions::OVER;
use super::numeric_division::{QUOTIENT, divide, operand};
use super::rows::INTERVAL;
use crate::SqlError;

/// The function, for registration in a context; it replaces DataFusion's.
pub(crate) fn function() -> AggregateUDF {
    let signature = Signature::user_defined(Volatility::Immutable);
    // It has all of DataFusion's names, so DataFusion's own function cannot be called.
    let aliases = vec!["mean".to_owned()];
    AggregateUDF::from(NumericAvg { floats: Avg::new(), sum: Sum::new(), count: Count::new(), signature, aliases })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct NumericAvg {
    floats: Avg,
    sum: Sum,
    count: Count,
    signature: Signature,
    aliases: Vec<String>,
}

/// The types of the sum and the count for values of a type.
struct Parts {
    sum: FieldRef,
    count: FieldRef,
}

impl NumericAvg {
    fn parts(&self, argument: &DataType) -> DfResult<Parts> {
        let sum = self.sum.return_type(std::slice::from_ref(argument))?;
        Ok(Parts {
            sum: Arc::new(Field::new("sum", sum, true)),
            count: Arc::new(Field::new("count", DataType::Int64, true)),
        })
    }

    fn parts_of(&self, arguments: &AccumulatorArgs) -> DfResult<Parts> {
        match arguments.expr_fields {
            [argument] => self.parts(argument.data_type()),
            _ => Err(SqlError::statement("42883", "avg(value) takes one argument").into()),
        }
    }

    fn both(
        &self,
        arguments: AccumulatorArgs,
        make: impl Fn(&dyn AggregateUDFImpl, AccumulatorArgs) -> DfResult<Box<dyn Accumulator>>,
    ) -> DfResult<Box<dyn Accumulator>> {
        let parts = self.parts_of(&arguments)?;
        let states = self.sum.state_fields(state_of(&arguments, &parts.sum))?.len();
        let sum: Box<dyn Accumulator> = match *parts.sum.data_type() == INTERVAL {
            true => Box::new(SpanSum::default()),
            false => make(&self.sum, AccumulatorArgs { return_field: parts.sum, ..arguments.clone() })?,
        };
        Ok(Box::new(SumAndCount {
            sum,
            count: make(&self.count, AccumulatorArgs { return_field: parts.count, ..arguments })?,
            states,
        }))
    }
}

fn state_of<'a>(arguments: &'a AccumulatorArgs, result: &FieldRef) -> StateFieldsArgs<'a> {
    StateFieldsArgs {
        name: arguments.name,
        input_fields: arguments.expr_fields,
        return_field: result.clone(),
        ordering_fields: &[],
        is_distinct: arguments.is_distinct,
    }
}

impl AggregateUDFImpl for NumericAvg {
    fn name(&self) -> &str {
        "avg"
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        let [argument] = arguments else {
            return Err(SqlError::statement("42883", "avg(value) takes one argument").into());
        };
        Ok(vec![match argument {
            DataType::Float16 | DataType::Float32 | DataType::Float64 => DataType::Float64,
            // This leaves room for the sum of many values.
            kind if kind.is_integer() || kind.is_null() => DataType::Decimal128(28, 0),
            DataType::Interval(_) | DataType::Duration(_) => INTERVAL,
            other => operand(other)
                .ok_or_else(|| SqlError::statement("42883", format!("function avg({other}) does not exist")))?,
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        Ok(match arguments {
            [DataType::Float64] => DataType::Float64,
            [DataType::Interval(_)] => INTERVAL,
            _ => QUOTIENT,
        })
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        match arguments.return_type() {
            DataType::Float64 => self.floats.accumulator(arguments),
            _ => self.both(arguments, |function, arguments| function.accumulator(arguments)),
        }
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        match arguments.return_type() {
            DataType::Float64 => self.floats.create_sliding_accumulator(arguments),
            _ => self.both(arguments, |function, arguments| function.create_sliding_accumulator(arguments)),
        }
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        if *arguments.return_type() == DataType::Float64 {
            return self.floats.state_fields(arguments);
        }
        let [argument] = arguments.input_fields else {
            return Err(SqlError::statement("42883", "avg(value) takes one argument").into());
        };
        let parts = self.parts(argument.data_type())?;
        let part = |result: FieldRef| StateFieldsArgs {
            name: arguments.name,
            input_fields: arguments.input_fields,
            return_field: result,
            ordering_fields: arguments.ordering_fields,
            is_distinct: arguments.is_distinct,
        };
        let mut fields = self.sum.state_fields(part(parts.sum))?;
        fields.extend(self.count.state_fields(part(parts.count))?);
        Ok(fields)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        match arguments.return_type() {
            DataType::Float64 => self.floats.groups_accumulator_supported(arguments),
            kind => !arguments.is_distinct && *kind != INTERVAL,
        }
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn GroupsAccumulator>> {
        if *arguments.return_type() == DataType::Float64 {
            return self.floats.create_groups_accumulator(arguments);
        }
        let parts = self.parts_of(&arguments)?;
        let states = self.sum.state_fields(state_of(&arguments, &parts.sum))?.len();
        let sum = AccumulatorArgs { return_field: parts.sum, ..arguments.clone() };
        Ok(Box::new(SumsAndCounts {
            sums: self.sum.create_groups_accumulator(sum)?,
            counts: self.count.create_groups_accumulator(AccumulatorArgs { return_field: parts.count, ..arguments })?,
            states,
        }))
    }

    fn reverse_expr(&self) -> ReversedUDAF {
        ReversedUDAF::Identical
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

/// The average of no values is NULL.
fn average(sum: &ArrayRef, count: &ArrayRef) -> DfResult<ArrayRef> {
    // If the sum is NULL, the count is 0, and no division takes place.
    if *sum.data_type() == INTERVAL {
        return Ok((OVER.run)(&[sum.clone(), cast(count, &DataType::Float64)?], &INTERVAL)?);
    }
    Ok(divide(sum, count)?)
}

#[derive(Debug)]
struct SumAndCount {
    sum: Box<dyn Accumulator>,
    count: Box<dyn Accumulator>,
    /// The number of columns in the state of the sum; the others belong to the count.
    states: usize,
}

impl Accumulator for SumAndCount {
    fn update_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.sum.update_batch(values)?;
        self.count.update_batch(values)
    }

    fn evaluate(&mut self) -> DfResult<ScalarValue> {
        let (sum, count) = (self.sum.evaluate()?, self.count.evaluate()?);
        ScalarValue::try_from_array(&average(&sum.to_array()?, &count.to_array()?)?, 0)
    }

    fn size(&self) -> usize {
        size_of::<SumAndCount>() + self.sum.size() + self.count.size()
    }

    fn state(&mut self) -> DfResult<Vec<ScalarValue>> {
        let mut state = self.sum.state()?;
        state.extend(self.count.state()?);
        Ok(state)
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> DfResult<()> {
        let (sum, count) = states.split_at(self.states);
        self.sum.merge_batch(sum)?;
        self.count.merge_batch(count)
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> DfResult<()> {
        self.sum.retract_batch(values)?;
        self.count.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.sum.supports_retract_batch() && self.count.supports_retract_batch()
    }
}

struct SumsAndCounts {
    sums: Box<dyn GroupsAccumulator>,
    counts: Box<dyn GroupsAccumulator>,
    states: usize,
}

impl GroupsAccumulator for SumsAndCounts {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> DfResult<()> {
        self.sums.update_batch(values, groups, filter, total)?;
        self.counts.update_batch(values, groups, filter, total)
    }

    fn evaluate(&mut self, emit: EmitTo) -> DfResult<ArrayRef> {
        average(&self.sums.evaluate(emit)?, &self.counts.evaluate(emit)?)
    }

    fn state(&mut self, emit: EmitTo) -> DfResult<Vec<ArrayRef>> {
        let mut state = self.sums.state(emit)?;
        state.extend(self.counts.state(emit)?);
        Ok(state)
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> DfResult<()> {
        let (sums, counts) = values.split_at(self.states);
        self.sums.merge_batch(sums, groups, total)?;
        self.counts.merge_batch(counts, groups, total)
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> DfResult<Vec<ArrayRef>> {
        let mut state = self.sums.convert_to_state(values, filter)?;
        state.extend(self.counts.convert_to_state(values, filter)?);
        Ok(state)
    }

    fn size(&self) -> usize {
        self.sums.size() + self.counts.size()
    }
}
