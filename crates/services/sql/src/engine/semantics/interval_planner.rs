//! [`IntervalPlanner`]: operators of intervals that DataFusion would refuse while it plans a statement, before
//! [`operators`](super::operators) sees it.
//!
//! ```text
//!   iv * n, n * iv, iv / n      interval_times, interval_over
//!   d + iv, d - iv, iv + d      of a timestamp, which is the type of the result
//!   d + ti                      date_and_time, which has microseconds and thus all years
//!   ts - ts                     timestamp_difference, so that what is around it finds an interval
//! ```

use datafusion::arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator};
use datafusion::sql::sqlparser::ast::BinaryOperator;

use super::datetime_functions::{DATE_AND_TIME, DIFFERENCE, TIMESTAMP};
use super::interval_functions::{OVER, TIMES};

/// The planner.
#[derive(Debug)]
pub(crate) struct IntervalPlanner;

impl ExprPlanner for IntervalPlanner {
    fn plan_binary_op(&self, expr: RawBinaryExpr, schema: &DFSchema) -> DfResult<PlannerResult<RawBinaryExpr>> {
        use DataType as T;
        // The type of a parameter is not known yet.
        let (Ok(l), Ok(r)) = (expr.left.get_type(schema), expr.right.get_type(schema)) else {
            return Ok(PlannerResult::Original(expr));
        };
        let is_length = |kind: &DataType| matches!(kind, T::Interval(_) | T::Duration(_));
        let RawBinaryExpr { op, left, right } = expr;
        Ok(match op {
            BinaryOperator::Multiply if is_length(&l) && r.is_numeric() => {
                PlannerResult::Planned(TIMES.of(vec![left, right]))
            }
            BinaryOperator::Multiply if l.is_numeric() && is_length(&r) => {
                PlannerResult::Planned(TIMES.of(vec![right, left]))
            }
            BinaryOperator::Divide if is_length(&l) && r.is_numeric() => {
                PlannerResult::Planned(OVER.of(vec![left, right]))
            }
            BinaryOperator::Plus if matches!((&l, &r), (T::Date32, T::Time64(_))) => {
                PlannerResult::Planned(DATE_AND_TIME.of(vec![left, right]))
            }
            BinaryOperator::Plus if l == T::Date32 && is_length(&r) => {
                PlannerResult::Planned(binary(at_midnight(left), Operator::Plus, right))
            }
            BinaryOperator::Minus if l == T::Date32 && is_length(&r) => {
                PlannerResult::Planned(binary(at_midnight(left), Operator::Minus, right))
            }
            BinaryOperator::Plus if is_length(&l) && r == T::Date32 => {
                PlannerResult::Planned(binary(left, Operator::Plus, at_midnight(right)))
            }
            BinaryOperator::Minus if is_difference(&l, &r) => PlannerResult::Planned(DIFFERENCE.of(vec![left, right])),
            op => PlannerResult::Original(RawBinaryExpr { op, left, right }),
        })
    }
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

fn at_midnight(date: Expr) -> Expr {
    Expr::Cast(Cast::new(Box::new(date), TIMESTAMP))
}

/// Whether both are moments, and not both dates.
fn is_difference(l: &DataType, r: &DataType) -> bool {
    use DataType as T;
    matches!((l, r), (T::Timestamp(..), T::Timestamp(..) | T::Date32) | (T::Date32, T::Timestamp(..)))
}
