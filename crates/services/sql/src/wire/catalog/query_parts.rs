//! Parts of the queries that are rewritten: their parameters, their aggregates, the parts of their conditions.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Query, Value, Visit, Visitor};

/// The parameters of a query.
pub(super) fn parameters(query: &Query) -> Vec<Expr> {
    struct Find(Vec<Expr>);
    impl Visitor for Find {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Expr::Value(value) = expr
                && matches!(value.value, Value::Placeholder(_))
            {
                self.0.push(expr.clone());
            }
            ControlFlow::Continue(())
        }
    }
    let mut found = Find(Vec::new());
    let _ = query.visit(&mut found);
    found.0
}

/// Whether a value aggregates rows.
pub(super) fn is_aggregate(expr: &Expr) -> bool {
    const AGGREGATES: [&str; 9] =
        ["array_agg", "string_agg", "count", "min", "max", "sum", "bool_and", "bool_or", "first_value"];
    /// The number of queries between the expression and the present place: these aggregate their own rows.
    struct Find(usize);
    impl Visitor for Find {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) if self.0 == 0 => {
                    let name = function.name.0.last().and_then(|part| part.as_ident());
                    let found = name.is_some_and(|name| AGGREGATES.contains(&&*name.value.to_ascii_lowercase()));
                    if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Find(0)).is_break()
}

/// The parts of a conjunction.
pub(super) fn conjuncts_of(condition: &Expr) -> Vec<&Expr> {
    match condition {
        Expr::BinaryOp { left, op: BinaryOperator::And, right } => {
            let mut parts = conjuncts_of(left);
            parts.extend(conjuncts_of(right));
            parts
        }
        other => vec![other],
    }
}

/// The same for an owned condition; empty if there is no condition.
pub(super) fn conjuncts(condition: Option<Expr>) -> Vec<Expr> {
    match condition {
        None => Vec::new(),
        Some(Expr::BinaryOp { left, op: BinaryOperator::And, right }) => {
            let mut parts = conjuncts(Some(*left));
            parts.extend(conjuncts(Some(*right)));
            parts
        }
        Some(other) => vec![other],
    }
}

/// The conjunction of all parts; `None` if there are none.
pub(super) fn together(parts: Vec<Expr>) -> Option<Expr> {
    let and = |left: Expr, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    parts.into_iter().reduce(and)
}
