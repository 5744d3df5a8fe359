//! Casts between text and other types, in PostgreSQL's notation. Arrow writes `2026-01-02T03:04:05` and `1.0`,
//! PostgreSQL `2026-01-02 03:04:05` and `1`; and Arrow converts a time with a zone, where PostgreSQL ignores the zone.
//!
//! The functions replace casts, also implicit ones (`'a' || 1.5`), and have the name of their argument, as casts have; in
//! conditions they have one of their own, since a key of a join becomes a column beside its argument.
//! Arrow's own casts from whole numbers to text stay; TRY_CAST is Arrow's.

use std::sync::Arc;

use datafusion::arrow::array::AsArray;
use datafusion::arrow::compute::{CastOptions, cast_with_options};
use datafusion::arrow::datatypes::{DataType, IntervalUnit};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    Cast, ColumnarValue, Expr, ExprSchemable, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::scalar::ScalarValue;

use crate::SqlError;
use crate::table::SqlType;
use crate::table::types::JSONB;
use crate::table::uuid::UUID;
use crate::text;

/// Replaces a cast between text and another type by a function; other expressions stay unchanged.
pub(crate) fn rewrite(expr: Expr, schema: &DFSchema, in_condition: bool) -> DfResult<Transformed<Expr>> {
    let Expr::Cast(Cast { expr: value, field }) = &expr else { return Ok(Transformed::no(expr)) };
    let (from, to) = (value.get_type(schema)?, field.data_type().clone());
    if to == JSONB && from.is_binary() && from != JSONB {
        // Bytes and documents are one type for DataFusion when it makes types equal.
        return Err(SqlError::statement("42846", "cannot cast type bytea to jsonb").into());
    }
    let direction = if is_text(&to) && text::is_spelled(&from) {
        Direction::Write
    } else if is_text(&from)
        && let Some(kind) = read_as(&to)
    {
        Direction::Read(kind)
    } else {
        return Ok(Transformed::no(expr));
    };
    let signature = Signature::any(1, Volatility::Immutable);
    let func = Arc::new(ScalarUDF::from(TextCast { direction, to, in_condition, signature }));
    let args = vec![value.as_ref().clone()];
    Ok(Transformed::yes(Expr::ScalarFunction(ScalarFunction { func, args })))
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

/// The type whose notation a text must have to become this Arrow type.
fn read_as(kind: &DataType) -> Option<SqlType> {
    Some(match kind {
        DataType::Boolean => SqlType::Boolean,
        DataType::Int16 => SqlType::SmallInt,
        DataType::Int32 => SqlType::Integer,
        DataType::Int64 => SqlType::BigInt,
        DataType::Float32 => SqlType::Real,
        DataType::Float64 => SqlType::Double,
        DataType::Decimal128(precision, scale) if *scale >= 0 => SqlType::Numeric(*precision, *scale),
        DataType::Binary | DataType::LargeBinary => SqlType::Bytea,
        kind if *kind == JSONB => SqlType::Jsonb,
        DataType::Date32 => SqlType::Date,
        DataType::Time64(_) | DataType::Time32(_) => SqlType::Time,
        DataType::Timestamp(_, None) => SqlType::Timestamp,
        DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
        DataType::Interval(IntervalUnit::MonthDayNano) => SqlType::Interval,
        kind if *kind == UUID => SqlType::Uuid,
        _ => return None,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Direction {
    Write,
    Read(SqlType),
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct TextCast {
    direction: Direction,
    to: DataType,
    in_condition: bool,
    signature: Signature,
}

impl TextCast {
    fn spelled(&self, args: &[Expr]) -> String {
        args.iter().map(|arg| format!("CAST({arg} AS {})", self.to)).collect()
    }
}

impl ScalarUDFImpl for TextCast {
    fn name(&self) -> &str {
        match self.direction {
            Direction::Write => "text_of",
            Direction::Read(_) => "read_text",
        }
    }

    fn display_name(&self, args: &[Expr]) -> DfResult<String> {
        Ok(self.spelled(args))
    }

    fn schema_name(&self, args: &[Expr]) -> DfResult<String> {
        if self.in_condition {
            return Ok(self.spelled(args));
        }
        Ok(args.iter().map(|arg| arg.schema_name().to_string()).collect())
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> DfResult<DataType> {
        Ok(self.to.clone())
    }

    fn is_nullable(&self, args: &[Expr], schema: &dyn ExprSchema) -> bool {
        args.iter().any(|arg| arg.nullable(schema).unwrap_or(true))
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> DfResult<ColumnarValue> {
        let [value] = arguments.args.as_slice() else {
            return Err(SqlError::statement("42883", "a cast takes one value").into());
        };
        let rows = if matches!(value, ColumnarValue::Scalar(_)) { 1 } else { arguments.number_rows };
        let array = value.to_array(rows)?;
        let strict = CastOptions { safe: false, ..CastOptions::default() };
        let result = match self.direction {
            Direction::Write => text::write(&array)?,
            Direction::Read(kind) => {
                let texts = cast_with_options(&array, &DataType::Utf8View, &strict)?;
                text::read(texts.as_string_view(), kind)?
            }
        };
        let result = match *result.data_type() == self.to {
            true => result,
            // The target has another width or unit: a value that does not fit in it is out of range.
            false => cast_with_options(&result, &self.to, &strict).map_err(|error| match self.direction {
                Direction::Read(kind) => SqlError::value("22008", format!("{} out of range", kind.name())),
                Direction::Write => SqlError::from(error),
            })?,
        };
        match value {
            ColumnarValue::Scalar(_) => Ok(ColumnarValue::Scalar(ScalarValue::try_from_array(&result, 0)?)),
            ColumnarValue::Array(_) => Ok(ColumnarValue::Array(result)),
        }
    }
}
