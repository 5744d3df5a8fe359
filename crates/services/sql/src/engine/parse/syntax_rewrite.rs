//! Rewrites statements before they are planned, where the planner gives PostgreSQL's syntax another meaning.
//!
//! ```text
//!   x AT TIME ZONE z          timezone(z, x)
//!   extract(f FROM x)         extract_field('f', x), a numeric; date_part is a float
//!   x = ANY (SELECT ..)       x IN (SELECT ..)            <> ALL: NOT IN
//!   x = ANY (array)           NOT (x <> ALL (array)), which handles NULL
//!   x > ANY (array)           CASE WHEN x > ANY (array) THEN true WHEN the array has a NULL THEN NULL ELSE x > ANY (array) END
//!   (a, b) = (c, d)           a = c AND b = d
//!   x LIKE p ESCAPE c         x LIKE like_escape(p, c)
//!   generate_series(1, 3) g   generate_series(1, 3) g (g)
//!   FETCH FIRST n ROWS ONLY   LIMIT n
//!   OVER w, OVER (w ..)       OVER (the definition of w ..)
//!   array_agg(DISTINCT x)     array_agg(DISTINCT x ORDER BY x), the order that PostgreSQL's sorting leaves
//! ```
//!
//! Syntax that is calls of functions and operators alone is in [`postgres_syntax`], subqueries that are truth
//! values in [`value_subqueries`](super::value_subqueries).
//!
//! [`statement_check`](super::statement_check) refuses forms that cannot be rewritten. The original statement is kept:
//! labels and definitions come from it.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, DuplicateTreatment, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, LimitClause, NamedWindowDefinition, NamedWindowExpr, OrderByExpr, OrderByOptions, Query,
    Select, SetExpr, Statement, TableAlias, TableAliasColumnDef, TableFactor, UnaryOperator, Value, VisitMut,
    VisitorMut, WindowSpec, WindowType,
};

use super::expressions::{call, case, number, truth, unknown};
use super::postgres_syntax;
use crate::SqlError;

/// Rewrites a statement for the planner. Errors: 42704, 42P20 for windows.
pub(crate) fn restate(statement: &mut Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Restate) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Restate;

impl VisitorMut for Restate {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        fetch_as_limit(query);
        match windows_of(query) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        column_of_function(factor);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        let placeholder = || Expr::Value(Value::Null.into());
        let taken = std::mem::replace(expr, placeholder());
        *expr = restated(taken);
        ControlFlow::Continue(())
    }
}

fn restated(expr: Expr) -> Expr {
    match expr {
        Expr::AtTimeZone { timestamp, time_zone } => call("timezone", vec![*time_zone, *timestamp]),
        Expr::Extract { field, expr, .. } => {
            let field = Expr::Value(Value::SingleQuotedString(field.to_string().to_lowercase()).into());
            call("extract_field", vec![field, *expr])
        }
        Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => match *right {
            Expr::Subquery(subquery) => Expr::InSubquery { expr: left, subquery, negated: false },
            right => {
                let none = Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right: Box::new(right) };
                Expr::UnaryOp { op: UnaryOperator::Not, expr: Box::new(Expr::Nested(Box::new(none))) }
            }
        },
        Expr::AnyOp { left, compare_op, right, is_some } if !matches!(*right, Expr::Subquery(_)) => {
            any_of_array(Expr::AnyOp { left, compare_op, right: right.clone(), is_some }, *right)
        }
        Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } if matches!(*right, Expr::Subquery(_)) => {
            let Expr::Subquery(subquery) = *right else { unreachable!("it was one a line above") };
            Expr::InSubquery { expr: left, subquery, negated: true }
        }
        Expr::BinaryOp { left, op: op @ (BinaryOperator::Eq | BinaryOperator::NotEq), right } => {
            match (row(*left), row(*right)) {
                (Ok(left), Ok(right)) if left.len() == right.len() => equal_rows(left, right, op),
                (left, right) => {
                    let back = |side: Result<Vec<Expr>, Box<Expr>>| {
                        side.map_or_else(|expr| expr, |values| Box::new(Expr::Tuple(values)))
                    };
                    Expr::BinaryOp { left: back(left), op, right: back(right) }
                }
            }
        }
        Expr::Like { negated, any, expr, pattern, escape_char: Some(escape) } => {
            let pattern = Box::new(call("like_escape", vec![*pattern, Expr::Value(escape)]));
            Expr::Like { negated, any, expr, pattern, escape_char: None }
        }
        Expr::ILike { negated, any, expr, pattern, escape_char: Some(escape) } => {
            let pattern = Box::new(call("like_escape", vec![*pattern, Expr::Value(escape)]));
            Expr::ILike { negated, any, expr, pattern, escape_char: None }
        }
        Expr::Function(function) => postgres_syntax::restated(Expr::Function(sorted(function))),
        other => postgres_syntax::restated(other),
    }
}

/// A comparison with ANY of an array: where none makes it true, a NULL among the values makes it NULL. The planner leaves NULLs out.
fn any_of_array(compared: Expr, array: Expr) -> Expr {
    let null = || Expr::Value(Value::Null.into());
    let has_null = Expr::IsNotNull(Box::new(call("array_position", vec![array, null()])));
    case(vec![(compared.clone(), truth(true)), (has_null, unknown())], compared)
}

/// The values of a row, if it is written as one.
fn row(expr: Expr) -> Result<Vec<Expr>, Box<Expr>> {
    match expr {
        Expr::Tuple(values) if !values.is_empty() => Ok(values),
        other => Err(Box::new(other)),
    }
}

fn equal_rows(left: Vec<Expr>, right: Vec<Expr>, op: BinaryOperator) -> Expr {
    let join = if op == BinaryOperator::Eq { BinaryOperator::And } else { BinaryOperator::Or };
    let pairs = left.into_iter().zip(right).map(|(left, right)| Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    });
    let joined =
        pairs.reduce(|left, right| Expr::BinaryOp { left: left.into(), op: join.clone(), right: right.into() });
    Expr::Nested(Box::new(joined.unwrap_or_else(|| Expr::Value(Value::Null.into()))))
}

/// An aggregate that lists distinct values lists them in order.
fn sorted(mut function: Function) -> Function {
    let lists = function.name.to_string().eq_ignore_ascii_case("array_agg");
    if let FunctionArguments::List(list) = &mut function.args
        && lists
        && list.duplicate_treatment == Some(DuplicateTreatment::Distinct)
        && !list.clauses.iter().any(|clause| matches!(clause, FunctionArgumentClause::OrderBy(_)))
        && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(value))] = list.args.as_slice()
    {
        let options = OrderByOptions { asc: None, nulls_first: None };
        let by = OrderByExpr { expr: value.clone(), options, with_fill: None };
        list.clauses.push(FunctionArgumentClause::OrderBy(vec![by]));
    }
    function
}

/// The one column of a function in FROM has the name of the function, or of its alias.
fn column_of_function(factor: &mut TableFactor) {
    let (name, alias) = match factor {
        TableFactor::Table { name, args: Some(_), alias, .. }
            if name.to_string().eq_ignore_ascii_case("generate_series") =>
        {
            ("generate_series", alias)
        }
        TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_ordinality: false, .. }
            if array_exprs.len() == 1 =>
        {
            ("unnest", alias)
        }
        _ => return,
    };
    let alias = alias.get_or_insert_with(|| TableAlias {
        explicit: true,
        name: Ident::new(name),
        columns: Vec::new(),
        at: None,
    });
    if alias.columns.is_empty() {
        alias.columns.push(TableAliasColumnDef { name: alias.name.clone(), data_type: None });
    }
}

/// FETCH FIRST as LIMIT; WITH TIES and PERCENT stay, and the planner refuses them.
fn fetch_as_limit(query: &mut Query) {
    let offset = match &mut query.limit_clause {
        None => None,
        Some(LimitClause::LimitOffset { limit: None, offset, limit_by }) if limit_by.is_empty() => offset.take(),
        Some(_) => return,
    };
    let fetch = query.fetch.take_if(|fetch| !fetch.with_ties && !fetch.percent);
    let limit = fetch.map(|fetch| fetch.quantity.unwrap_or_else(|| number("1")));
    if limit.is_some() || offset.is_some() {
        query.limit_clause = Some(LimitClause::LimitOffset { limit, offset, limit_by: Vec::new() });
    }
}

/// Replaces the names of windows by their definitions in the WINDOW clause.
fn windows_of(query: &mut Query) -> Result<(), SqlError> {
    let Query { body, order_by, .. } = query;
    let SetExpr::Select(select) = body.as_mut() else { return Ok(()) };
    let windows = defined(std::mem::take(&mut select.named_window))?;
    let mut expand = Expand { windows: &windows, inside: 0 };
    let Select { projection, qualify, .. } = select.as_mut();
    for part in [projection.visit(&mut expand), qualify.visit(&mut expand), order_by.visit(&mut expand)] {
        if let ControlFlow::Break(error) = part {
            return Err(*error);
        }
    }
    Ok(())
}

/// The defined windows, each with the parts that it inherits from earlier ones.
fn defined(definitions: Vec<NamedWindowDefinition>) -> Result<Vec<(String, WindowSpec)>, SqlError> {
    let mut windows: Vec<(String, WindowSpec)> = Vec::new();
    for NamedWindowDefinition(name, what) in definitions {
        let mut spec = match what {
            NamedWindowExpr::WindowSpec(spec) => spec,
            NamedWindowExpr::NamedWindow(base) => find(&windows, &base)?.clone(),
        };
        inherit(&mut spec, &windows)?;
        windows.push((super::ast::folded(&name), spec));
    }
    Ok(windows)
}

fn find<'a>(windows: &'a [(String, WindowSpec)], name: &Ident) -> Result<&'a WindowSpec, SqlError> {
    let folded = super::ast::folded(name);
    let found = windows.iter().find(|(known, _)| *known == folded).map(|(_, spec)| spec);
    found.ok_or_else(|| SqlError::statement("42704", format!("window \"{folded}\" does not exist")))
}

/// A window that names another one takes its partitions and its order, and adds its own parts.
fn inherit(spec: &mut WindowSpec, windows: &[(String, WindowSpec)]) -> Result<(), SqlError> {
    let Some(name) = spec.window_name.take() else { return Ok(()) };
    let base = find(windows, &name)?;
    let refused = |what: &str| Err(SqlError::statement("42P20", format!("cannot {what} of window \"{name}\"")));
    if base.window_frame.is_some() {
        let message = format!("cannot copy window \"{name}\" because it has a frame clause");
        return Err(SqlError::statement("42P20", message));
    }
    if !spec.partition_by.is_empty() {
        return refused("override PARTITION BY clause");
    }
    if !spec.order_by.is_empty() && !base.order_by.is_empty() {
        return refused("override ORDER BY clause");
    }
    spec.partition_by.clone_from(&base.partition_by);
    if spec.order_by.is_empty() {
        spec.order_by.clone_from(&base.order_by);
    }
    Ok(())
}

struct Expand<'a> {
    windows: &'a [(String, WindowSpec)],
    /// Subqueries have windows of their own.
    inside: usize,
}

impl Expand<'_> {
    fn expand(&self, over: &mut WindowType) -> Result<(), SqlError> {
        match over {
            WindowType::NamedWindow(name) => *over = WindowType::WindowSpec(find(self.windows, name)?.clone()),
            WindowType::WindowSpec(spec) => inherit(spec, self.windows)?,
        }
        Ok(())
    }
}

impl VisitorMut for Expand<'_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.inside += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<Self::Break> {
        self.inside -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<Self::Break> {
        if let Expr::Function(Function { over: Some(over), .. }) = expr
            && self.inside == 0
            && let Err(error) = self.expand(over)
        {
            return ControlFlow::Break(Box::new(error));
        }
        ControlFlow::Continue(())
    }
}
