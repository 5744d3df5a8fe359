//! [`Meaning`]: what expressions mean in PostgreSQL where DataFusion means something else.
//!
//! ```text
//!   plan --types made equal (DataFusion's)--> Meaning --optimizer--> plan that runs
//!                                               |
//!                                               +-- exact   arithmetic that runs over is an error
//!                                               +-- casts   between text and other types, in PostgreSQL's notation
//!                                               +-- here    char(n) compared without the blanks at the end
//! ```
//!
//! A rule over plans, after types have been made equal, so that casts nobody wrote are there too, and before anything is
//! evaluated, constants included. What takes an expression's place has its name and type.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use super::{casts, exact};
use crate::table::SqlType;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct Meaning;

impl AnalyzerRule for Meaning {
    fn name(&self) -> &str {
        "meaning"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let mut schema = merge_schema(&plan.inputs());
            if let LogicalPlan::TableScan(scan) = &plan {
                schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
            }
            let plan = plan.map_expressions(|expr| {
                expr.transform_up(|expr| {
                    blanks(expr, &schema)
                        .transform_data(|expr| casts::rewrite(expr, &schema))?
                        .transform_data(|expr| exact::rewrite(expr, &schema))
                })
            })?;
            match plan.transformed {
                true => plan.map_data(LogicalPlan::recompute_schema),
                false => Ok(plan),
            }
        })?;
        Ok(rewritten.data)
    }
}

/// A literal that a column of char(n) is compared with loses its blanks at the end: the column has none.
fn blanks(expr: Expr, schema: &DFSchema) -> Transformed<Expr> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right })
            if op.supports_propagation() && is_char(&left, schema) != is_char(&right, schema) =>
        {
            let (left, right) = match is_char(&left, schema) {
                true => (left, Box::new(trimmed(*right))),
                false => (Box::new(trimmed(*left)), right),
            };
            Transformed::yes(Expr::BinaryExpr(BinaryExpr { left, op, right }))
        }
        Expr::InList(InList { expr, list, negated }) if is_char(&expr, schema) => {
            let list = list.into_iter().map(trimmed).collect();
            Transformed::yes(Expr::InList(InList { expr, list, negated }))
        }
        expr => Transformed::no(expr),
    }
}

fn is_char(expr: &Expr, schema: &DFSchema) -> bool {
    match expr {
        Expr::Column(column) => schema
            .field_from_column(column)
            .is_ok_and(|field| matches!(SqlType::from_arrow(field), Ok(SqlType::Char(_)))),
        Expr::Cast(Cast { expr, field }) => is_text(field.data_type()) && is_char(expr, schema),
        _ => false,
    }
}

fn is_text(kind: &DataType) -> bool {
    matches!(kind, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn trimmed(expr: Expr) -> Expr {
    let cut = |text: String| text.trim_end_matches(' ').to_string();
    match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::Utf8(Some(cut(text))), metadata)
        }
        Expr::Literal(ScalarValue::LargeUtf8(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::LargeUtf8(Some(cut(text))), metadata)
        }
        Expr::Literal(ScalarValue::Utf8View(Some(text)), metadata) => {
            Expr::Literal(ScalarValue::Utf8View(Some(cut(text))), metadata)
        }
        Expr::Cast(Cast { expr, field }) if is_text(field.data_type()) => {
            Expr::Cast(Cast { expr: Box::new(trimmed(*expr)), field })
        }
        other => other,
    }
}
