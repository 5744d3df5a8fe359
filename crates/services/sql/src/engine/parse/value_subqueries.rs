//! Subqueries that are truth values, as counts of rows. The planner makes joins of `x IN (SELECT ..)` and EXISTS where NULL has the effect of
//! false; elsewhere, and for comparisons with ANY and ALL, they are restated:
//!
//! ```text
//!   EXISTS (q)       (SELECT count(*) FROM q) > 0
//!   x IN (q)         CASE WHEN no row THEN false WHEN x IS NULL THEN NULL WHEN rows where y = x THEN true
//!                         WHEN rows where y IS NULL THEN NULL ELSE false END
//!   x > ANY (q)      CASE WHEN no row THEN false WHEN x > min(y) THEN true WHEN x or a y IS NULL THEN NULL ELSE false END
//!   (a, b) IN (q)    EXISTS (SELECT 1 FROM q WHERE y = a AND z = b)          in a condition alone or under AND and OR
//! ```
//!
//! Each is planned as a join with a group, since its rows are found by equality alone. A subquery is copied up to four times, so that
//! a statement may have [`COUNT_MAX`] of them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Distinct, Expr, GroupByExpr, Query, SelectItem, SetExpr, Statement, TableFactor, UnaryOperator,
    VisitMut, VisitorMut, visit_expressions,
};

use super::ast;
use super::expressions::{binary, case, equal_rows, nested, number, truth, unknown};
use crate::SqlError;

/// Most subqueries of a statement that are restated.
const COUNT_MAX: usize = 64;

/// The name of a restated subquery; its columns are `$1`, `$2` and so on.
pub(crate) const NAME: &str = "$q";

/// Whether a statement has a subquery that is a truth value.
pub(crate) fn has_any(statement: &Statement) -> bool {
    let is_one = |expr: &Expr| match expr {
        Expr::InSubquery { .. } | Expr::Exists { .. } => ControlFlow::Break(()),
        _ if is_quantified(expr) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(statement, is_one).is_break()
}

/// Whether it has one that the planner does not know anywhere.
pub(crate) fn is_needed(statement: &Statement) -> bool {
    let is_one = |expr: &Expr| match expr {
        Expr::InSubquery { expr, .. } if matches!(**expr, Expr::Tuple(_)) => ControlFlow::Break(()),
        Expr::AnyOp { compare_op: BinaryOperator::Eq, .. } => ControlFlow::Continue(()),
        Expr::AllOp { compare_op: BinaryOperator::NotEq, .. } => ControlFlow::Continue(()),
        _ if is_quantified(expr) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(statement, is_one).is_break()
}

fn is_quantified(expr: &Expr) -> bool {
    match expr {
        Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } => matches!(**right, Expr::Subquery(_)),
        _ => false,
    }
}

/// The statement with its truth values restated, but those that the planner makes joins of.
///
/// Errors: 0A000, 54001 for too many.
pub(crate) fn restated(mut statement: Statement) -> Result<Statement, SqlError> {
    match statement.visit(&mut Queries { left: COUNT_MAX }) {
        ControlFlow::Continue(()) => Ok(statement),
        ControlFlow::Break(error) => Err(*error),
    }
}

/// Visits each query, the outer one first: what is copied was not restated yet.
struct Queries {
    left: usize,
}

impl VisitorMut for Queries {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        let mut values = Values { left: &mut self.left, inside: 0 };
        let Query { body, order_by, .. } = query;
        let SetExpr::Select(select) = body.as_mut() else { return ControlFlow::Continue(()) };
        if let Some(condition) = &mut select.selection
            && let Err(error) = values.condition(condition)
        {
            return ControlFlow::Break(Box::new(error));
        }
        select.projection.visit(&mut values)?;
        select.having.visit(&mut values)?;
        select.group_by.visit(&mut values)?;
        order_by.visit(&mut values)
    }
}

/// Restates the truth values of one query, and none of its subqueries.
struct Values<'a> {
    left: &'a mut usize,
    inside: usize,
}

impl VisitorMut for Values<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.inside += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.inside -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if self.inside > 0 || !matches!(expr, Expr::InSubquery { .. } | Expr::Exists { .. }) && !is_quantified(expr) {
            return ControlFlow::Continue(());
        }
        match self.value(expr) {
            Ok(value) => {
                *expr = value;
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Values<'_> {
    /// A condition: what is alone or under AND and OR stays, if the planner knows it.
    fn condition(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                self.condition(left)?;
                self.condition(right)
            }
            Expr::Nested(inner) => self.condition(inner),
            Expr::Exists { .. } => Ok(()),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } if matches!(**expr, Expr::Exists { .. }) => Ok(()),
            Expr::InSubquery { expr: row, subquery, negated: false } => match row.as_ref() {
                Expr::Tuple(values) => {
                    self.take()?;
                    let columns = (1..=values.len()).map(column).collect();
                    let same = equal_rows(values, columns);
                    let query = from(subquery, values.len(), "1", Some(same))?;
                    *expr = Expr::Exists { subquery: query, negated: false };
                    Ok(())
                }
                value if !has_subquery(value) => Ok(()),
                _ => self.everywhere(expr),
            },
            _ => self.everywhere(expr),
        }
    }

    fn everywhere(&mut self, expr: &mut Expr) -> Result<(), SqlError> {
        match expr.visit(self) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    fn take(&mut self) -> Result<(), SqlError> {
        *self.left = self.left.checked_sub(1).ok_or_else(|| {
            SqlError::statement("54001", format!("more than {COUNT_MAX} subqueries are truth values"))
        })?;
        Ok(())
    }

    fn value(&mut self, expr: &Expr) -> Result<Expr, SqlError> {
        self.take()?;
        match expr {
            Expr::Exists { subquery, negated } => {
                let op = if *negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
                Ok(nested(binary(rows(subquery)?, op, number("0"))))
            }
            Expr::InSubquery { expr, subquery, negated } => membership(expr, subquery, *negated),
            Expr::AnyOp { left, compare_op, right, .. } => match right.as_ref() {
                Expr::Subquery(query) if *compare_op == BinaryOperator::Eq => membership(left, query, false),
                Expr::Subquery(query) => quantified(left, compare_op, query, true),
                _ => Ok(expr.clone()),
            },
            Expr::AllOp { left, compare_op, right } => match right.as_ref() {
                Expr::Subquery(query) if *compare_op == BinaryOperator::NotEq => membership(left, query, true),
                Expr::Subquery(query) => quantified(left, compare_op, query, false),
                _ => Ok(expr.clone()),
            },
            other => Ok(other.clone()),
        }
    }
}

fn has_subquery(expr: &Expr) -> bool {
    let is_one = |expr: &Expr| match expr {
        Expr::Subquery(_) | Expr::InSubquery { .. } | Expr::Exists { .. } => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    visit_expressions(expr, is_one).is_break()
}

fn column(number: usize) -> Expr {
    ast::column_of(NAME, &format!("${number}"))
}

fn is_null(expr: Expr) -> Expr {
    Expr::IsNull(Box::new(expr))
}

fn more_than_none(count: Expr) -> Expr {
    binary(count, BinaryOperator::Gt, number("0"))
}

/// `SELECT what FROM (query) AS "$q" ("$1", ..) WHERE condition`.
fn from(query: &Query, width: usize, what: &str, condition: Option<Expr>) -> Result<Box<Query>, SqlError> {
    let columns: Vec<String> = (1..=width).map(|number| format!("\"${number}\"")).collect();
    let columns = if width == 0 { String::new() } else { format!(" ({})", columns.join(", ")) };
    let text = format!("SELECT {what} FROM (SELECT 1) AS \"{NAME}\"{columns}");
    let Statement::Query(mut made) = ast::parse(&text)? else {
        return Err(SqlError::statement("42601", "a query was expected"));
    };
    if let SetExpr::Select(select) = made.body.as_mut() {
        select.selection = condition;
        if let Some(TableFactor::Derived { subquery, .. }) = select.from.first_mut().map(|table| &mut table.relation) {
            **subquery = query.clone();
        }
    }
    Ok(made)
}

fn scalar(query: &Query, what: &str, condition: Option<Expr>) -> Result<Expr, SqlError> {
    Ok(Expr::Subquery(from(query, 1, what, condition)?))
}

/// How many rows a query has; their columns do not count.
fn rows(query: &Query) -> Result<Expr, SqlError> {
    let mut query = query.clone();
    query.order_by = None;
    if let SetExpr::Select(select) = query.body.as_mut() {
        let groups = match &select.group_by {
            GroupByExpr::Expressions(by, modifiers) => !by.is_empty() || !modifiers.is_empty(),
            GroupByExpr::All(_) => true,
        };
        let plain = !groups && select.having.is_none() && !matches!(select.distinct, Some(Distinct::On(_)));
        let aggregates = select.projection.iter().any(may_aggregate);
        if plain && !aggregates {
            select.distinct = None;
            if query.limit_clause.is_none() && query.fetch.is_none() {
                // Without a table around it the planner finds the rows of an outer one by equality.
                select.projection = vec![SelectItem::UnnamedExpr(ast::expression_of("count(*)")?)];
                return Ok(Expr::Subquery(Box::new(query)));
            }
            select.projection = vec![SelectItem::UnnamedExpr(number("1"))];
        }
    }
    Ok(Expr::Subquery(from(&query, 0, "count(*)", None)?))
}

/// Whether an item calls a function, which may be an aggregate.
fn may_aggregate(item: &SelectItem) -> bool {
    let is_call = |expr: &Expr| match expr {
        Expr::Function(_) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    };
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => {
            visit_expressions(expr, is_call).is_break()
        }
        _ => false,
    }
}

fn membership(value: &Expr, query: &Query, negated: bool) -> Result<Expr, SqlError> {
    if matches!(value, Expr::Tuple(_)) {
        let error = SqlError::unsupported("IN (SELECT ..) with a row of values where it may be NULL");
        return Err(error.with_hint("It is supported in WHERE alone or under AND and OR; elsewhere use EXISTS."));
    }
    let none = binary(scalar(query, "count(*)", None)?, BinaryOperator::Eq, number("0"));
    let same = binary(column(1), BinaryOperator::Eq, value.clone());
    let hits = more_than_none(scalar(query, "count(*)", Some(same))?);
    let nulls = more_than_none(scalar(query, "count(*)", Some(is_null(column(1))))?);
    let branches =
        vec![(none, truth(negated)), (is_null(value.clone()), unknown()), (hits, truth(!negated)), (nulls, unknown())];
    Ok(case(branches, truth(negated)))
}

/// A comparison with each row: the least or the greatest one decides.
fn quantified(value: &Expr, op: &BinaryOperator, query: &Query, any: bool) -> Result<Expr, SqlError> {
    use BinaryOperator as B;
    let edge = |what: &str| scalar(query, &format!("{what}(\"$1\")"), None);
    let compared = |what, op: &B| Ok::<_, SqlError>(binary(value.clone(), op.clone(), edge(what)?));
    let differs = || Ok::<_, SqlError>(binary(compared("min", &B::NotEq)?, B::Or, compared("max", &B::NotEq)?));
    // Whether the row that decides makes it true (for ANY) or false (for ALL).
    let decides = match (op, any) {
        (B::NotEq, true) | (B::Eq, false) => nested(differs()?),
        (B::Gt | B::GtEq, true) | (B::Lt | B::LtEq, false) => compared("min", op)?,
        (B::Lt | B::LtEq, true) | (B::Gt | B::GtEq, false) => compared("max", op)?,
        _ => return Err(SqlError::unsupported(format!("{op} with ANY, SOME or ALL of a subquery"))),
    };
    let decides = match (op, any) {
        (B::Eq, false) | (_, true) => decides,
        _ => Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(nested(decides)) },
    };
    let none = binary(scalar(query, "count(*)", None)?, B::Eq, number("0"));
    let nulls = more_than_none(scalar(query, "count(*)", Some(is_null(column(1))))?);
    let open = nested(binary(is_null(value.clone()), B::Or, nulls));
    Ok(case(vec![(none, truth(!any)), (decides, truth(any)), (open, unknown())], truth(!any)))
}
