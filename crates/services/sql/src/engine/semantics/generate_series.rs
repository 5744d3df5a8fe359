//! [`Series`]: `generate_series` and `range` in FROM accept PostgreSQL's arguments: integers of any size, and times in
//! microseconds. DataFusion's functions accept only 64 bits and nanoseconds.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::catalog::{TableFunctionArgs, TableFunctionImpl, TableProvider};
use datafusion::common::ScalarValue;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::Expr;
use datafusion::prelude::SessionContext;

use super::datetime_functions::span_us;
use crate::SqlError;
use crate::table::types::UTC;

/// A function of DataFusion's, which gets constants of the types that it accepts.
#[derive(Debug)]
struct Series(Arc<dyn TableFunctionImpl>);

/// Registers the functions; they replace DataFusion's.
pub(crate) fn register(context: &SessionContext) {
    for name in ["generate_series", "range"] {
        let function = context.state().table_functions().get(name).map(|function| Arc::clone(function.function()));
        if let Some(function) = function {
            context.register_udtf(name, Arc::new(Series(function)));
        }
    }
}

impl TableFunctionImpl for Series {
    fn call_with_args(&self, args: TableFunctionArgs) -> DfResult<Arc<dyn TableProvider>> {
        // A series of dates is one of moments, as in PostgreSQL, but beside a timestamp.
        let local = |expr: &Expr| matches!(expr, Expr::Literal(value, _) if matches!(value.data_type(), DataType::Timestamp(_, None)));
        let zone = (!args.exprs().iter().any(local)).then(|| UTC.into());
        let of_dates = DataType::Timestamp(TimeUnit::Nanosecond, zone);
        if args.exprs().get(2).is_some_and(is_no_step) {
            return Err(SqlError::value("22023", "step size cannot equal zero").into());
        }
        let exprs: Vec<Expr> = args.exprs().iter().map(|expr| wide(expr, &of_dates)).collect();
        self.0.call_with_args(TableFunctionArgs::new(&exprs, args.session()))
    }
}

/// Whether an interval has no length.
fn is_no_step(step: &Expr) -> bool {
    match step {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(step)), _) => span_us(*step) == 0,
        _ => false,
    }
}

/// The same constant in an accepted type. A constant that cannot be converted stays, and is refused by its type.
fn wide(expr: &Expr, of_dates: &DataType) -> Expr {
    let Expr::Literal(value, metadata) = expr else { return expr.clone() };
    let kind = match value.data_type() {
        kind if kind.is_integer() => DataType::Int64,
        DataType::Date32 => of_dates.clone(),
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Nanosecond, zone),
        _ => return expr.clone(),
    };
    value.cast_to(&kind).map_or_else(|_| expr.clone(), |value| Expr::Literal(value, metadata.clone()))
}
