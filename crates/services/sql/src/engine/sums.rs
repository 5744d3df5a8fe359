//! The function `sum` of integers: numeric, so that it cannot run over. In PostgreSQL that of integer and smallint is
//! bigint; here it is numeric as well, because DataFusion asks for the type of an argument again after it has made it the
//! wanted one, and the answer has to be the same.
//!
//! Everything else, also how it is computed, is DataFusion's.

use datafusion::arrow::datatypes::{DataType, FieldRef};
use datafusion::error::Result as DfResult;
use datafusion::functions_aggregate::sum::Sum;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, ReversedUDAF, SetMonotonicity, Signature,
    Volatility,
};

/// An integer as a numeric: 2^63 has 19 digits, and DataFusion gives the sum 10 more.
const BIGINT: DataType = DataType::Decimal128(28, 0);

/// The function, to be registered with a context in place of DataFusion's.
pub(crate) fn function() -> AggregateUDF {
    AggregateUDF::from(WideSum { inner: Sum::new(), signature: Signature::user_defined(Volatility::Immutable) })
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct WideSum {
    inner: Sum,
    signature: Signature,
}

impl AggregateUDFImpl for WideSum {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arguments: &[DataType]) -> DfResult<Vec<DataType>> {
        let [argument] = arguments else {
            return Err(crate::SqlError::statement("42883", "sum(value) takes one argument").into());
        };
        Ok(vec![match argument {
            kind if kind.is_integer() => BIGINT,
            DataType::Null => BIGINT,
            DataType::Float16 | DataType::Float32 => DataType::Float64,
            DataType::Float64
            | DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..)
            | DataType::Interval(_)
            | DataType::Duration(_) => argument.clone(),
            other => {
                let message = format!("function sum({other}) does not exist");
                return Err(crate::SqlError::statement("42883", message).into());
            }
        }])
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        self.inner.return_type(arguments)
    }

    fn accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        self.inner.accumulator(arguments)
    }

    fn state_fields(&self, arguments: StateFieldsArgs) -> DfResult<Vec<FieldRef>> {
        self.inner.state_fields(arguments)
    }

    fn groups_accumulator_supported(&self, arguments: AccumulatorArgs) -> bool {
        self.inner.groups_accumulator_supported(arguments)
    }

    fn create_groups_accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(arguments)
    }

    fn create_sliding_accumulator(&self, arguments: AccumulatorArgs) -> DfResult<Box<dyn Accumulator>> {
        self.inner.create_sliding_accumulator(arguments)
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
