//! Correlated subqueries that the planner makes joins of although they are no plain filter: they are refused, since a join of their rows
//! would leave out the row of an aggregate without any, and would count the rows of OFFSET over all.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::{Expr, Limit, LogicalPlan, Subquery, lit};

use crate::SqlError;

/// Refuses the correlated subqueries of a plan's expressions that a join would answer wrongly. Errors: 0A000.
pub(crate) fn check(plan: &LogicalPlan) -> DfResult<()> {
    plan.apply_expressions(|expr| {
        expr.apply(|expr| {
            match expr {
                Expr::Exists(found) => of_rows(&found.subquery)?,
                Expr::InSubquery(found) => of_rows(&found.subquery)?,
                Expr::ScalarSubquery(found) => of_value(found)?,
                _ => {}
            }
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(())
}

fn refused(what: &str) -> SqlError {
    SqlError::unsupported(format!("{what} in a subquery that names columns of an outer query"))
}

/// Whether a node, or one below it, names columns of an outer query.
fn is_correlated(plan: &LogicalPlan) -> bool {
    !plan.all_out_ref_exprs().is_empty()
}

/// An aggregate of all rows, which has a row also where there are none.
fn is_of_all(plan: &LogicalPlan) -> bool {
    matches!(plan, LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.is_empty()) && is_correlated(plan)
}

fn of_rows(subquery: &Subquery) -> DfResult<()> {
    if subquery.outer_ref_columns.is_empty() {
        return Ok(());
    }
    subquery.subquery.apply(|plan| match plan {
        LogicalPlan::Limit(Limit { skip: Some(skip), .. })
            if **skip != lit(0i64) && **skip != lit(0i32) && is_correlated(plan) =>
        {
            Err(refused("OFFSET").into())
        }
        plan if is_of_all(plan) => Err(refused("an aggregate without GROUP BY in IN or EXISTS").into()),
        _ => Ok(TreeNodeRecursion::Continue),
    })?;
    Ok(())
}

/// The planner knows what aggregates are without rows, but not what the optimizer makes of `count(*) IS NULL` before.
fn of_value(subquery: &Subquery) -> DfResult<()> {
    if subquery.outer_ref_columns.is_empty() || !subquery.subquery.exists(|plan| Ok(is_of_all(plan)))? {
        return Ok(());
    }
    subquery.subquery.apply(|plan| {
        if let LogicalPlan::Filter(having) = plan
            && is_of_all(&having.input)
        {
            return Err(refused("HAVING without GROUP BY").into());
        }
        if let LogicalPlan::Projection(projection) = plan {
            for expr in &projection.expr {
                if expr.exists(|expr| Ok(matches!(expr, Expr::IsNull(_) | Expr::IsNotNull(_))))? {
                    return Err(refused("IS NULL of an aggregate").into());
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}
