//! Arithmetic that reports an overflow, as PostgreSQL does: DataFusion's own wraps around.
//!
//! ```text
//!   i + j    integers of one width    checked_add(i, j)        22003 out of range
//!   -i                                checked_negate(i)
//!   x / y    floats                   checked_divide(x, y)     22012 by zero, 22003 too large
//! ```
//!
//! The functions have the same names as the operators, so columns keep their names. Decimals are left alone, because
//! Arrow checks them; so are dates and times. DataFusion chooses the order in which conditions are evaluated: a false
//! condition before AND does not prevent the evaluation of the next one.

use std::sync::{Arc, LazyLock};

use datafusion::arrow::array::{Array, ArrayRef, AsArray, Datum};
use datafusion::arrow::compute::kernels::numeric;
use datafusion::arrow::datatypes::{ArrowPrimitiveType, DataType, Float32Type, Float64Type};
use datafusion::arrow::error::ArrowError;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, ColumnarValue, Expr, ExprSchemable, Operator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::SqlError;
use crate::table::SqlType;

/// Replaces arithmetic by a function that checks it; other expressions stay unchanged.
pub(crate) fn rewrite(expr: Expr, schema: &DFSchema) -> DfResult<Transformed<Expr>> {
    let checked = match &expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let kind = left.get_type(schema)?;
            let float = matches!(kind, DataType::Float32 | DataType::Float64);
            match op {
                Operator::Plus if kind.is_integer() || float => Some(&*ADD),
                Operator::Minus if kind.is_integer() || float => Some(&*SUBTRACT),
                Operator::Multiply if kind.is_integer() || float => Some(&*MULTIPLY),
                Operator::Divide if float => Some(&*DIVIDE),
                _ => None,
            }
            .filter(|_| right.get_type(schema).is_ok_and(|right| right == kind))
        }
        Expr::Negative(value) => value.get_type(schema)?.is_integer().then_some(&*NEGATE),
        _ => None,
    };
    let Some(function) = checked.cloned() else { return Ok(Transformed::no(expr)) };
    let args = match expr {
        Expr::BinaryExpr(BinaryExpr { left, right, .. }) => vec![*left, *right],
        Expr::Negative(value) => vec![*value],
        _ => unreachable!("nothing else is checked"),
    };
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func: function, args })))
}

static ADD: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| CheckedOperator::function(Operation::Add));
static SUBTRACT: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| CheckedOperator::function(Operation::Subtract));
static MULTIPLY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| CheckedOperator::function(Operation::Multiply));
static DIVIDE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| CheckedOperator::function(Operation::Divide));
static NEGATE: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| CheckedOperator::function(Operation::Negate));

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Operation {
    Add,
    Subtract,
    Multiply,
    Divide,
    Negate,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct CheckedOperator {
    operation: Operation,
    signature: Signature,
}

impl CheckedOperator {
    fn function(operation: Operation) -> Arc<ScalarUDF> {
        let arguments = if operation == Operation::Negate { 1 } else { 2 };
        let signature = Signature::any(arguments, Volatility::Immutable);
        Arc::new(ScalarUDF::from(CheckedOperator { operation, signature }))
    }

    /// The name: the operator between, or before, its operands.
    fn shown(&self, operands: &[String]) -> String {
        let sign = match self.operation {
            Operation::Add => "+",
            Operation::Subtract | Operation::Negate => "-",
            Operation::Multiply => "*",
            Operation::Divide => "/",
        };
        match operands {
            [left, right] => format!("{left} {sign} {right}"),
            _ => format!("({sign} {})", operands.concat()),
        }
    }

    fn evaluate(&self, left: &dyn Datum, right: Option<&dyn Datum>) -> Result<ArrayRef, ArrowError> {
        match (self.operation, right) {
            (Operation::Add, Some(right)) => numeric::add(left, right),
            (Operation::Subtract, Some(right)) => numeric::sub(left, right),
            (Operation::Multiply, Some(right)) => numeric::mul(left, right),
            (Operation::Divide, Some(right)) => numeric::div(left, right),
            _ => numeric::neg(left.get().0),
        }
    }
}

impl ScalarUDFImpl for CheckedOperator {
    fn name(&self) -> &str {
        match self.operation {
            Operation::Add => "checked_add",
            Operation::Subtract => "checked_subtract",
            Operation::Multiply => "checked_multiply",
            Operation::Divide => "checked_divide",
            Operation::Negate => "checked_negate",
        }
    }

    fn display_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(self.shown(&args.iter().map(Expr::to_string).collect::<Vec<_>>()))
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(self.shown(&args.iter().map(|arg| arg.schema_name().to_string()).collect::<Vec<_>>()))
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arguments: &[DataType]) -> DfResult<DataType> {
        Ok(arguments[0].clone())
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        args.iter().any(|arg| arg.nullable(schema).unwrap_or(true))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let kind = arguments.return_field.data_type().clone();
        let datum = |value: &ColumnarValue| -> DfResult<Box<dyn Datum>> {
            Ok(match value {
                ColumnarValue::Array(array) => Box::new(array.clone()),
                ColumnarValue::Scalar(scalar) => Box::new(scalar.to_scalar()?),
            })
        };
        let operands = arguments.args.iter().map(datum).collect::<DfResult<Vec<_>>>()?;
        let right = operands.get(1).map(|right| right.as_ref());
        let result = self.evaluate(operands[0].as_ref(), right).map_err(|error| match error {
            ArrowError::ArithmeticOverflow(_) => out_of_range(&kind),
            other => SqlError::from(other),
        })?;
        let scale = |operand: usize| operands.get(operand).map(|operand| operand.get());
        match (&kind, scale(0), scale(1)) {
            (DataType::Float32, Some(left), Some(right)) => finite::<Float32Type>(&result, left, right)?,
            (DataType::Float64, Some(left), Some(right)) => finite::<Float64Type>(&result, left, right)?,
            _ => {}
        }
        let alone = arguments.args.iter().all(|value| matches!(value, ColumnarValue::Scalar(_)));
        match alone {
            true => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            false => Ok(ColumnarValue::Array(result)),
        }
    }
}

fn out_of_range(kind: &DataType) -> SqlError {
    let field = datafusion::arrow::datatypes::Field::new("", kind.clone(), true);
    let name = SqlType::from_arrow(&field).map_or_else(|_| kind.to_string(), |kind| kind.name());
    SqlError::value("22003", format!("{name} out of range"))
}

/// Checks that a result is finite where its operands are.
fn finite<T>(result: &ArrayRef, left: (&dyn Array, bool), right: (&dyn Array, bool)) -> Result<(), SqlError>
where
    T: ArrowPrimitiveType,
    T::Native: Into<f64>,
{
    let values = result.as_primitive::<T>();
    if values.values().iter().all(|value| (*value).into().is_finite()) {
        return Ok(());
    }
    let operand = |(array, scalar): (&dyn Array, bool), row: usize| -> f64 {
        array.as_primitive::<T>().value(if scalar { 0 } else { row }).into()
    };
    for row in (0..values.len()).filter(|row| values.is_valid(*row)) {
        let (left, right) = (operand(left, row), operand(right, row));
        let value: f64 = values.value(row).into();
        if value.is_finite() || !left.is_finite() || !right.is_finite() {
            continue;
        }
        return match right == 0.0 {
            // Only a division has this result.
            true => Err(SqlError::value("22012", "division by zero")),
            false => Err(SqlError::value("22003", "value out of range: overflow")),
        };
    }
    Ok(())
}
