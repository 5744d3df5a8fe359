//! Rewrites queries of the catalogs for which DataFusion has no plan in the form that clients send.
//!
//! ```text
//!   'x'::regclass, $1::regtype          regclass_of('x')                   42P01, 42704 if there is none
//!   x::regtype::text                    regtype_name(x)
//!   _pg_expandarray(k)                  unnest(expanded_array(k))          JDBC, for keys
//!   generate_subscripts(k, 1)           unnest(array_subscripts(k, 1))     SQLAlchemy, for keys
//!   (k).n                               get_field(k, 'n')
//!   (SELECT e FROM d WHERE outer AND c) CASE WHEN outer THEN (SELECT first_value(e) FROM d WHERE c) END
//!   EXISTS (SELECT .. WHERE c)          coalesce((SELECT count(*) .. WHERE c), 0) > 0, among columns
//!   ARRAY(SELECT e .. ORDER BY o)       (SELECT array_agg(e ORDER BY o) ..)
//!   (SELECT .. FROM pg_policy ..)       NULL: there is none; EXISTS of it false, ARRAY of it empty; of pg_sequence alike
//!   nextval('x'::regclass)              nextval('x')
//! ```
//!
//! This runs after [`syntax_rewrite`](super::syntax_rewrite). The functions named here that PostgreSQL does not have
//! are in `functions` and `set_functions`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, Array, ArrayElemTypeDef, BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArg,
    FunctionArgExpr, FunctionArgumentClause, FunctionArguments, GroupByExpr, Ident, ObjectName, OrderByKind, Query,
    Select, SelectItem, SetExpr, Statement, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
};

use super::empty_catalogs::is_nothing_within;
use super::query_parts::{conjuncts, is_aggregate, parameters, together};
use crate::engine::parse::expressions::call;
use crate::engine::statements::sequences::OF_SEQUENCES;

/// A catalog that has no information about columns here: no column has a collation of its own.
const COLLATIONS: &str = "pg_collation";

/// Types whose values are OIDs of named objects.
const NAMED: [&str; 5] = ["regclass", "regtype", "regnamespace", "regproc", "regrole"];

/// Rewrites a query.
pub(super) fn restate(statement: &mut Statement) {
    let _ = statement.visit(&mut Restate);
}

struct Restate;

impl VisitorMut for Restate {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        // These functions take the name.
        if let Expr::Function(function) = expr
            && let Some(name) = function.name.0.last().and_then(|part| part.as_ident())
            && OF_SEQUENCES.contains(&name.value.to_ascii_lowercase().as_str())
            && let FunctionArguments::List(list) = &mut function.args
            && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = list.args.first_mut()
            && let Expr::Cast { expr, data_type, .. } = first
            && word_of(data_type) == "regclass"
        {
            *first = (**expr).clone();
        }
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        select.projection.iter_mut().for_each(name_of_table);
        VisitMut::visit(&mut select.projection, &mut ExistsAsCount { inside: 0 })
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let taken = std::mem::replace(expr, null());
        *expr = match taken {
            Expr::Exists { subquery, negated } if is_gone(&subquery) => truth(negated),
            Expr::InSubquery { subquery, negated, .. } if is_gone(&subquery) => truth(negated),
            Expr::InSubquery { expr, subquery, negated } => match own_relation(&subquery).filter(|_| !negated) {
                Some(own) => Expr::BinaryOp { left: expr, op: BinaryOperator::Eq, right: Box::new(own) },
                None => Expr::InSubquery { expr, subquery, negated },
            },
            Expr::Function(Function { args: FunctionArguments::Subquery(query), .. }) if is_gone(&query) => no_texts(),
            Expr::Function(Function { name, args: FunctionArguments::Subquery(query), .. }) if is_array(&name) => {
                let is_of_names = is_of_names(&query);
                let list = rows_as_list(query);
                if is_of_names { call("coalesce", vec![list, no_texts()]) } else { list }
            }
            Expr::Cast { kind, expr, data_type, format, array } => match named(&expr, &data_type) {
                Some(function) => call(&function, vec![name_of(*expr)]),
                None => Expr::Cast { kind, expr, data_type, format, array },
            },
            Expr::Function(function) => list_of(function),
            // psql's \d+: no relation has options here, nor has its TOAST table.
            Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } if is_options(&right) => *left,
            Expr::CompoundFieldAccess { root, mut access_chain } => match access_chain.pop() {
                Some(AccessExpr::Dot(Expr::Identifier(part))) if access_chain.is_empty() => {
                    call("get_field", vec![*root, text(part.value)])
                }
                Some(last) => {
                    access_chain.push(last);
                    Expr::CompoundFieldAccess { root, access_chain }
                }
                None => *root,
            },
            Expr::Subquery(query) => scalar(query),
            other => other,
        };
        ControlFlow::Continue(())
    }
}

/// Rewrites EXISTS among the columns of a SELECT: DataFusion plans it in conditions only.
struct ExistsAsCount {
    /// The nesting of subqueries: they have conditions of their own.
    inside: usize,
}

impl VisitorMut for ExistsAsCount {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.inside += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.inside -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Expr::Exists { subquery, negated } = expr
            && self.inside == 0
            && let SetExpr::Select(select) = subquery.body.as_mut()
            && matches!(&select.group_by, GroupByExpr::Expressions(by, _) if by.is_empty())
            && subquery.limit_clause.is_none()
        {
            select.projection = vec![SelectItem::UnnamedExpr(call("count", vec![number("1")]))];
            let count = call("coalesce", vec![scalar(subquery.clone()), number("0")]);
            let op = if *negated { BinaryOperator::Eq } else { BinaryOperator::Gt };
            let compared = Expr::BinaryOp { left: Box::new(count), op, right: Box::new(number("0")) };
            *expr = Expr::Nested(Box::new(compared));
        }
        ControlFlow::Continue(())
    }
}

/// psql's list of foreign keys has the table of each as `conrelid::regclass AS ontable`, and shows its name.
fn name_of_table(item: &mut SelectItem) {
    if let SelectItem::ExprWithAlias { expr, alias } = item
        && alias.value == "ontable"
        && let Expr::Cast { expr: inner, data_type, .. } = expr
        && word_of(data_type) == "regclass"
    {
        *expr = call("regclass_name", vec![(**inner).clone()]);
    }
}

/// The relation in a query for it and the partitioned tables around it, of which there are none: psql's list of foreign keys to a table.
fn own_relation(query: &Query) -> Option<Expr> {
    let SetExpr::SetOperation { left, right, .. } = query.body.as_ref() else { return None };
    match right.as_ref() {
        SetExpr::Values(values) if left.to_string().contains("pg_partition_ancestors") => {
            values.rows.first()?.content.first().cloned()
        }
        _ => None,
    }
}

/// Whether a query has no rows, and no parameters whose types its client waits for.
fn is_gone(query: &Query) -> bool {
    is_nothing_within(query) && parameters(query).is_empty()
}

/// NULL in place of a query without rows. Its parameters stay: the client waits for their types.
fn no_value(query: &Query) -> Expr {
    let parameters = parameters(query);
    if parameters.is_empty() {
        return null();
    }
    let conditions = vec![CaseWhen { condition: truth(false), result: call("concat", parameters) }];
    case(conditions)
}

fn case(conditions: Vec<CaseWhen>) -> Expr {
    let (case_token, end_token) = (AttachedToken::empty(), AttachedToken::empty());
    Expr::Case { case_token, end_token, operand: None, conditions, else_result: None }
}

fn truth(is_true: bool) -> Expr {
    Expr::Value(Value::Boolean(is_true).into())
}

fn number(digits: &str) -> Expr {
    Expr::Value(Value::Number(digits.to_owned(), false).into())
}

/// An empty array of texts.
fn no_texts() -> Expr {
    Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(Expr::Array(Array { elem: Vec::new(), named: true })),
        data_type: DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None)),
        format: None,
        array: false,
    }
}

/// The function for a cast from or to an OID type.
fn named(expr: &Expr, to: &DataType) -> Option<String> {
    let kind = word_of(to);
    if NAMED.contains(&kind.as_str()) {
        let is_name = matches!(expr, Expr::Value(value)
            if matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
        return is_name.then(|| format!("{kind}_of"));
    }
    // The expression was cast to an OID type before.
    let is_text = matches!(kind.as_str(), "text" | "name" | "varchar" | "character varying");
    let inner = match expr {
        Expr::Cast { data_type, .. } if is_text => word_of(data_type),
        // This one is rewritten already.
        Expr::Function(function) if is_text => function.name.to_string().strip_suffix("_of")?.to_owned(),
        _ => return None,
    };
    NAMED.contains(&inner.as_str()).then(|| format!("{inner}_name"))
}

fn word_of(kind: &DataType) -> String {
    let lower = kind.to_string().to_ascii_lowercase();
    lower.strip_prefix("pg_catalog.").unwrap_or(&lower).to_owned()
}

/// The expression that is cast to an OID type, if the result is cast once more.
fn name_of(expr: Expr) -> Expr {
    match expr {
        Expr::Cast { expr, data_type, .. } if NAMED.contains(&word_of(&data_type).as_str()) => *expr,
        // For the client, a parameter is a text.
        Expr::Value(value) if matches!(value.value, Value::Placeholder(_)) => Expr::Cast {
            kind: CastKind::Cast,
            expr: Box::new(Expr::Value(value)),
            data_type: DataType::Text,
            format: None,
            array: false,
        },
        other => other,
    }
}

/// Rewrites a function of PostgreSQL that returns a row for each item of a list as one that returns a list.
fn list_of(mut function: Function) -> Expr {
    let name = function.name.0.last().and_then(|part| part.as_ident()).map(|name| name.value.to_ascii_lowercase());
    let list = match name.as_deref() {
        Some("_pg_expandarray") => "expanded_array",
        Some("generate_subscripts") => "array_subscripts",
        _ => return Expr::Function(function),
    };
    function.name = ObjectName::from(vec![Ident::new(list)]);
    call("unnest", vec![Expr::Function(function)])
}

fn is_array(name: &ObjectName) -> bool {
    name.to_string().eq_ignore_ascii_case("array")
}

/// The list of a query's rows: NULL where PostgreSQL returns an empty list, unless it is of names.
fn rows_as_list(mut query: Box<Query>) -> Expr {
    if let SetExpr::Select(select) = query.body.as_mut()
        && let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
            select.projection.as_mut_slice()
    {
        let mut list = call("array_agg", vec![std::mem::replace(expr, null())]);
        if let Expr::Function(Function { args: FunctionArguments::List(arguments), .. }) = &mut list
            && let Some(OrderByKind::Expressions(by)) = query.order_by.take().map(|order| order.kind)
            // A number is the position of a column: the only one.
            && !by.iter().any(|by| matches!(by.expr, Expr::Value(_)))
        {
            arguments.clauses.push(FunctionArgumentClause::OrderBy(by));
        }
        *expr = list;
    }
    scalar(query)
}

/// Whether a query is of names: a column whose name ends with `name`.
fn is_of_names(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let is_name = |ident: &Ident| ident.value.to_ascii_lowercase().ends_with("name");
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(Expr::Identifier(ident))] => is_name(ident),
        [SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts))] => parts.last().is_some_and(is_name),
        _ => false,
    }
}

/// Whether the expression is a list that a query makes of a relation's options.
fn is_options(expr: &Expr) -> bool {
    matches!(expr, Expr::Subquery(query) if query.to_string().to_ascii_lowercase().contains("reloptions"))
}

/// A subquery that returns one value, in a form that DataFusion can join.
fn scalar(mut query: Box<Query>) -> Expr {
    if is_nothing_within(&query) {
        return no_value(&query);
    }
    let SetExpr::Select(select) = query.body.as_mut() else { return Expr::Subquery(query) };
    let inside = relations_of(select);
    if inside.iter().any(|name| name == COLLATIONS) {
        return null();
    }
    if !refers_outside(select, &inside) {
        return Expr::Subquery(query);
    }
    let (outer, inner): (Vec<Expr>, Vec<Expr>) =
        conjuncts(select.selection.take()).into_iter().partition(|part| is_outer(part, &inside));
    select.selection = together(inner);
    if let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] = select.projection.as_mut_slice()
        && query.limit_clause.is_none()
        && !is_aggregate(expr)
    {
        *expr = call("first_value", vec![std::mem::replace(expr, null())]);
    }
    let value = Expr::Subquery(query);
    match together(outer) {
        None => value,
        Some(condition) => case(vec![CaseWhen { condition, result: value }]),
    }
}

/// The names of the tables that a SELECT reads.
fn relations_of(select: &Select) -> Vec<String> {
    let mut names = Vec::new();
    for from in &select.from {
        for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
            let (table, alias) = match factor {
                TableFactor::Table { name, alias, .. } => (name.0.last().and_then(|part| part.as_ident()), alias),
                TableFactor::Derived { alias, .. }
                | TableFactor::UNNEST { alias, .. }
                | TableFactor::Function { alias, .. } => (None, alias),
                _ => continue,
            };
            names.extend(table.map(|name| name.value.to_ascii_lowercase()));
            names.extend(alias.as_ref().map(|alias| alias.name.value.to_ascii_lowercase()));
        }
    }
    names
}

/// The table that a column reference names.
fn table_of(expr: &Expr) -> Option<String> {
    match expr {
        Expr::CompoundIdentifier(parts) => {
            parts.len().checked_sub(2).map(|table| parts[table].value.to_ascii_lowercase())
        }
        _ => None,
    }
}

fn refers_outside(select: &Select, inside: &[String]) -> bool {
    struct Find<'a>(&'a [String]);
    impl Visitor for Find<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match table_of(expr) {
                Some(table) if !self.0.contains(&table) => ControlFlow::Break(()),
                _ => ControlFlow::Continue(()),
            }
        }
    }
    select.visit(&mut Find(inside)).is_break()
}

/// Whether all columns in the expression are of tables outside the subquery.
fn is_outer(expr: &Expr, inside: &[String]) -> bool {
    struct All<'a>(&'a [String], usize);
    impl Visitor for All<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match (expr, table_of(expr)) {
                (_, Some(table)) if !self.0.contains(&table) => self.1 += 1,
                (Expr::CompoundIdentifier(_) | Expr::Identifier(_) | Expr::Subquery(_), _) => {
                    return ControlFlow::Break(());
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    let mut all = All(inside, 0);
    expr.visit(&mut all).is_continue() && all.1 > 0
}

fn null() -> Expr {
    Expr::Value(Value::Null.into())
}

fn text(text: String) -> Expr {
    Expr::Value(Value::SingleQuotedString(text).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::parse;

    #[test]
    fn questions_are_restated_as_what_has_a_plan() {
        for (asked, restated) in [
            ("SELECT 'a.b'::regclass", "SELECT regclass_of('a.b')"),
            ("SELECT CAST($1 AS REGCLASS)", "SELECT regclass_of(CAST($1 AS TEXT))"),
            ("SELECT oid::regtype::text", "SELECT regtype_name(oid)"),
            ("SELECT c.oid::pg_catalog.regclass::pg_catalog.text", "SELECT regclass_name(c.oid)"),
            ("SELECT 't'::regclass::text", "SELECT regclass_name(regclass_of('t'))"),
            ("SELECT c.oid::regclass", "SELECT c.oid::REGCLASS"),
            (
                "SELECT (information_schema._pg_expandarray(i.indkey)).n",
                "SELECT get_field((unnest(expanded_array(i.indkey))), 'n')",
            ),
            ("SELECT generate_subscripts(k, 1) AS ord", "SELECT unnest(array_subscripts(k, 1)) AS ord"),
            (
                "SELECT array_to_string(c.reloptions || array(select 'toast.' || x from unnest(tc.reloptions) x), ', ')",
                "SELECT array_to_string(c.reloptions, ', ')",
            ),
            ("SELECT x.k[1] FROM x", "SELECT x.k[1] FROM x"),
            (
                "SELECT (SELECT d.adbin FROM pg_attrdef AS d WHERE d.adrelid = a.attrelid AND a.atthasdef) FROM pg_attribute AS a",
                "SELECT CASE WHEN a.atthasdef THEN (\
                 SELECT first_value(d.adbin) FROM pg_attrdef AS d WHERE d.adrelid = a.attrelid) END FROM pg_attribute AS a",
            ),
            (
                "SELECT (SELECT max(d.x) FROM d WHERE d.y = a.y) FROM a",
                "SELECT (SELECT max(d.x) FROM d WHERE d.y = a.y) FROM a",
            ),
            ("SELECT (SELECT d.x FROM d WHERE d.y = 1) FROM a", "SELECT (SELECT d.x FROM d WHERE d.y = 1) FROM a"),
            (
                "SELECT (SELECT s.seqstart FROM pg_catalog.pg_sequence AS s WHERE s.seqrelid = a.b) FROM a",
                "SELECT NULL FROM a",
            ),
            (
                "SELECT (SELECT f(s.x, $1) FROM pg_sequence AS s WHERE s.y = a.b) FROM a",
                "SELECT CASE WHEN false THEN concat($1) END FROM a",
            ),
            ("SELECT 1 FROM a WHERE NOT EXISTS (SELECT 1 FROM pg_depend)", "SELECT 1 FROM a WHERE true"),
            (
                "SELECT ARRAY(SELECT d.x FROM d WHERE d.y = a.y ORDER BY d.z) FROM a",
                "SELECT (SELECT array_agg(d.x ORDER BY d.z) FROM d WHERE d.y = a.y) FROM a",
            ),
            ("SELECT ARRAY(SELECT d.x FROM pg_depend AS d) FROM a", "SELECT CAST(ARRAY[] AS TEXT[]) FROM a"),
            (
                "SELECT EXISTS (SELECT 1 FROM d WHERE d.y = a.y) FROM a WHERE EXISTS (SELECT 1 FROM d)",
                "SELECT (coalesce((SELECT count(1) FROM d WHERE d.y = a.y), 0) > 0) FROM a WHERE EXISTS (SELECT 1 FROM d)",
            ),
        ] {
            let mut statement = parse::statements(asked).expect("it is SQL").remove(0);
            restate(&mut statement);
            assert_eq!(statement.to_string(), restated);
        }
    }
}
