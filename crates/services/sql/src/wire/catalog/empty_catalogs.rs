//! Rewrites queries of catalogs that are always empty: policies, triggers, publications, extended statistics.
//!
//! Clients query them in forms for which DataFusion has no plan, and the result never has rows. So such a SELECT
//! becomes a SELECT of NULLs with the same labels, without rows; as a value it is NULL, as a condition false. A query
//! that aggregates returns a row, and stays. A query with parameters stays, because its client waits for their types;
//! so does a query of columns alone, because these have types of their own.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, GroupByExpr, Ident, JoinOperator,
    Query, Select, SelectItem, SetExpr, TableFactor, Value, Visit, Visitor,
};

use super::query_parts::{conjuncts_of, is_aggregate, parameters};
use super::tables::is_empty;
use crate::engine::parse::ast::folded;
use crate::engine::plan::column_labels::label;

/// Whether a subquery is taken for one without rows: also of sequences, for clients that ask for the options of an
/// identity column in forms that have no plan.
pub(super) fn is_nothing_within(query: &Query) -> bool {
    let of_sequence = |select: &Select| match select.from.as_slice() {
        [from] => from.joins.is_empty() && is_catalog(&from.relation, |name| name == "pg_sequence"),
        _ => false,
    };
    is_nothing(query) || matches!(query.body.as_ref(), SetExpr::Select(select) if of_sequence(select))
}

/// Whether a query never has rows, whatever its conditions are.
pub(super) fn is_nothing(query: &Query) -> bool {
    query.with.is_none() && is_nothing_set(&query.body)
}

fn is_nothing_set(set: &SetExpr) -> bool {
    match set {
        SetExpr::Select(select) => is_nothing_select(select),
        SetExpr::Query(query) => is_nothing(query),
        SetExpr::SetOperation { left, right, .. } => is_nothing_set(left) && is_nothing_set(right),
        _ => false,
    }
}

fn is_nothing_select(select: &Select) -> bool {
    let is_grouped = !matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty());
    (is_grouped || !select.projection.iter().any(aggregates)) && (reads_nothing(select) || are_foreign_keys(select))
}

fn aggregates(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => is_aggregate(expr),
        _ => false,
    }
}

/// Whether each row would contain rows of a catalog that has none.
fn reads_nothing(select: &Select) -> bool {
    select.from.iter().any(|from| {
        let inner = from.joins.iter().filter(|join| {
            matches!(join.join_operator, JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_))
        });
        let is_outer = from.joins.iter().any(|join| {
            use JoinOperator as J;
            matches!(join.join_operator, J::Right(_) | J::RightOuter(_) | J::FullOuter(_))
        });
        let mut all = std::iter::once(&from.relation).chain(inner.map(|join| &join.relation));
        !is_outer && all.any(is_empty_catalog)
    })
}

fn is_empty_catalog(factor: &TableFactor) -> bool {
    is_catalog(factor, is_empty)
}

fn is_catalog(factor: &TableFactor, is: impl Fn(&str) -> bool) -> bool {
    let TableFactor::Table { name, args: None, .. } = factor else { return false };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(folded).collect();
    match parts.as_slice() {
        [table] => is(table),
        [schema, table] => schema == super::SCHEMA && is(table),
        _ => false,
    }
}

/// Whether the query lists foreign keys, with `unnest` of a subquery for each: DataFusion has no plan for it, and its client sees none.
fn are_foreign_keys(select: &Select) -> bool {
    let is_kind = |part: &&Expr| match part {
        Expr::BinaryOp { left, op: BinaryOperator::Eq, right } => {
            left.to_string().rsplit('.').next() == Some("contype") && right.to_string() == "'f'"
        }
        _ => false,
    };
    struct Find;
    impl Visitor for Find {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let is_subquery = |argument: &FunctionArg| {
                matches!(argument, FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Subquery(_))))
            };
            match expr {
                Expr::Function(Function { name, args: FunctionArguments::List(list), .. })
                    if name.to_string().eq_ignore_ascii_case("unnest") && list.args.iter().any(is_subquery) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    let of_keys = select.selection.as_ref().is_some_and(|selection| conjuncts_of(selection).iter().any(is_kind));
    of_keys && select.projection.visit(&mut Find).is_break()
}

/// Replaces the items of a query without rows by NULLs.
pub(super) fn empty(query: &mut Query) {
    if query.with.is_none() && parameters(query).is_empty() && !is_plain(query) {
        if is_nothing(query) {
            query.order_by = None;
        }
        empty_set(&mut query.body);
    }
}

/// Whether a query is one SELECT of columns and constants, which DataFusion can plan.
fn is_plain(query: &Query) -> bool {
    struct Find;
    impl Visitor for Find {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Identifier(_)
                | Expr::CompoundIdentifier(_)
                | Expr::Value(_)
                | Expr::BinaryOp { .. }
                | Expr::UnaryOp { .. }
                | Expr::InList { .. }
                | Expr::IsNull(_)
                | Expr::IsNotNull(_)
                | Expr::Nested(_) => ControlFlow::Continue(()),
                _ => ControlFlow::Break(()),
            }
        }
    }
    matches!(query.body.as_ref(), SetExpr::Select(_)) && query.visit(&mut Find).is_continue()
}

fn empty_set(set: &mut SetExpr) {
    match set {
        SetExpr::Select(select) if is_nothing_select(select) => empty_select(select),
        SetExpr::Query(query) => empty(query),
        SetExpr::SetOperation { left, right, .. } => {
            empty_set(left);
            empty_set(right);
        }
        _ => {}
    }
}

/// The columns of a star are not known here: a SELECT with a star stays as it is.
fn empty_select(select: &mut Select) {
    let Some(labels) = select.projection.iter().map(label).collect::<Option<Vec<String>>>() else { return };
    let mut taken = HashSet::new();
    let items = labels.into_iter().enumerate().map(|(nth, label)| {
        // In nested SELECTs the names of columns have to differ.
        let name = if taken.insert(label.clone()) { label } else { format!("{label}_{nth}") };
        let expr = Expr::Value(Value::Null.into());
        SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) }
    });
    select.projection = items.collect();
    select.from = Vec::new();
    select.selection = Some(Expr::Value(Value::Boolean(false).into()));
    select.group_by = GroupByExpr::Expressions(Vec::new(), Vec::new());
    (select.distinct, select.having) = (None, None);
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;

    use super::*;
    use crate::engine::parse;

    #[test]
    fn what_is_asked_of_empty_catalogs_becomes_nulls_without_rows_under_the_same_titles() {
        for (asked, emptied) in [
            (
                "SELECT polname, array_to_string(x, ','), CASE 1 WHEN 1 THEN 'a' END AS cmd FROM pg_catalog.pg_policy ORDER BY 1",
                "SELECT NULL AS \"polname\", NULL AS \"array_to_string\", NULL AS \"cmd\" WHERE false",
            ),
            (
                "SELECT pubname, NULL, NULL FROM pg_publication p JOIN pg_class c ON true UNION SELECT relname, NULL, NULL FROM pg_class",
                "SELECT NULL AS \"pubname\", NULL AS \"?column?\", NULL AS \"?column?_2\" WHERE false UNION SELECT relname, \
                 NULL, NULL FROM pg_class",
            ),
            (
                "SELECT (SELECT count(*) FROM pg_class), 1 FROM pg_policy",
                "SELECT NULL AS \"count\", NULL AS \"?column?\" WHERE false",
            ),
            (
                "SELECT unnest((SELECT 1)) FROM pg_constraint AS fk WHERE fk.contype = 'f'",
                "SELECT NULL AS \"unnest\" WHERE false",
            ),
        ] {
            assert_eq!(emptied_as(asked), emptied);
        }
    }

    #[test]
    fn what_may_have_rows_stays() {
        for asked in [
            "SELECT count(*) FROM pg_policy",
            "SELECT * FROM pg_policy",
            "SELECT upper(polname) FROM pg_policy WHERE polrelid = $1",
            "SELECT polname FROM pg_policy WHERE polrelid = 1",
            "SELECT c.relname FROM pg_class AS c LEFT JOIN pg_policy AS p ON p.polrelid = c.oid",
            "SELECT p.polname FROM pg_policy AS p FULL JOIN pg_class AS c ON p.polrelid = c.oid",
            "SELECT conname FROM pg_constraint WHERE contype = 'f'",
            "SELECT conname, (SELECT 1) FROM pg_constraint WHERE contype = 'f'",
            "SELECT x FROM s.pg_policy",
        ] {
            assert_eq!(emptied_as(asked), asked);
        }
    }

    fn emptied_as(asked: &str) -> String {
        let Statement::Query(mut query) = parse::statements(asked).expect("it is SQL").remove(0) else {
            panic!("a query")
        };
        empty(&mut query);
        query.to_string()
    }
}
