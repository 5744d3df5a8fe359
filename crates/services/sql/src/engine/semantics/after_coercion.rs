//! [`AfterCoercion`]: PostgreSQL's meaning of expressions where DataFusion's differs.
//!
//! ```text
//!   plan --types made equal (DataFusion's)--> AfterCoercion --optimizer--> plan that runs
//!                                               |
//!                                               +-- checked_arithmetic   an overflow is an error
//!                                               +-- text_casts           between text and other types, in PostgreSQL's notation
//!                                               +-- here                 char(n) compared without trailing blanks
//! ```
//!
//! This rule rewrites plans after types were made equal, so implicit casts are included, and before any expression is
//! evaluated, constants included. A replacement has the type of the expression that it replaces, and outside conditions its name.

use datafusion::arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, LogicalPlan};
use datafusion::optimizer::AnalyzerRule;
use datafusion::scalar::ScalarValue;

use super::{checked_arithmetic, text_casts};
use crate::table::SqlType;

/// The rule.
#[derive(Debug, Default)]
pub(crate) struct AfterCoercion;

impl AnalyzerRule for AfterCoercion {
    fn name(&self) -> &str {
        "meaning"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> DfResult<LogicalPlan> {
        let rewritten = plan.transform_up_with_subqueries(|plan| {
            let mut schema = merge_schema(&plan.inputs());
            if let LogicalPlan::TableScan(scan) = &plan {
                schema.merge(&DFSchema::try_from_qualified_schema(scan.table_name.clone(), &scan.source.schema())?);
            }
            let in_condition = matches!(plan, LogicalPlan::Join(_) | LogicalPlan::Filter(_));
            // An aggregate is found by its name, which has all of its text: also that of its filter and its order.
            let names = NamePreserver::new(&plan);
            let plan = plan.map_expressions(|expr| {
                let name = names.save(&expr);
                let expr = expr.transform_up(|expr| {
                    blanks(expr, &schema)
                        .transform_data(|expr| text_casts::rewrite(expr, &schema, in_condition))?
                        .transform_data(|expr| checked_arithmetic::rewrite(expr, &schema))
                })?;
                Ok(expr.update_data(|expr| name.restore(expr)))
            })?;
            match plan.transformed {
                true => plan.map_data(LogicalPlan::recompute_schema),
                false => Ok(plan),
            }
        })?;
        Ok(rewritten.data)
    }
}

/// A literal that is compared with a column of char(n) loses its trailing blanks: the column has none.
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
