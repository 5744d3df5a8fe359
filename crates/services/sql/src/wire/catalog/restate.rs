//! Questions to the catalogs restated, where DataFusion has no plan for how clients ask them.
//!
//! ```text
//!   'x'::regclass, $1::regtype          regclass_of('x')                   42P01, 42704 if there is none
//!   x::regtype::text                    regtype_name(x)
//!   _pg_expandarray(k)                  unnest(expanded_array(k))          JDBC, for keys
//!   generate_subscripts(k, 1)           unnest(array_subscripts(k, 1))     SQLAlchemy, for keys
//!   (k).n                               get_field(k, 'n')
//!   (SELECT e FROM d WHERE outer AND c) CASE WHEN outer THEN (SELECT first_value(e) FROM d WHERE c) END
//!   (SELECT .. FROM pg_sequence ..)     NULL: there is none
//! ```
//!
//! Functions that are named here and are not PostgreSQL's are in `functions` and `lists`.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, CaseWhen, CastKind, DataType, Expr, Function, FunctionArguments, Ident, ObjectName,
    Query, Select, SelectItem, SetExpr, Statement, TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut,
    visit_relations,
};

use crate::engine::syntax::call;

/// Catalogs that tell nothing of a column here: there are no sequences, and no column has a collation of its own.
const EMPTY: [&str; 2] = ["pg_sequence", "pg_collation"];

/// Types whose values are numbers of what has a name.
const NAMED: [&str; 5] = ["regclass", "regtype", "regnamespace", "regproc", "regrole"];

/// Restates a question.
pub(super) fn restate(statement: &mut Statement) {
    let _ = statement.visit(&mut Restate);
}

/// Whether any table is read.
pub(super) fn reads_tables(statement: &Statement) -> bool {
    visit_relations(statement, |_| ControlFlow::Break(())).is_break()
}

struct Restate;

impl VisitorMut for Restate {
    type Break = ();

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let taken = std::mem::replace(expr, null());
        *expr = match taken {
            Expr::Cast { kind, expr, data_type, format, array } => match named(&expr, &data_type) {
                Some(function) => call(&function, vec![name_of(*expr)]),
                None => Expr::Cast { kind, expr, data_type, format, array },
            },
            Expr::Function(function) => list_of(function),
            // psql's \d+: no relation has options here, its TOAST table neither.
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

/// The function that a cast from or to a number with a name is.
fn named(expr: &Expr, to: &DataType) -> Option<String> {
    let kind = word_of(to);
    if NAMED.contains(&kind.as_str()) {
        let is_name = matches!(expr, Expr::Value(value)
            if matches!(value.value, Value::SingleQuotedString(_) | Value::Placeholder(_)));
        return is_name.then(|| format!("{kind}_of"));
    }
    // What was cast to one of them before.
    let is_text = matches!(kind.as_str(), "text" | "name" | "varchar" | "character varying");
    let inner = match expr {
        Expr::Cast { data_type, .. } if is_text => word_of(data_type),
        // Restated already.
        Expr::Function(function) if is_text => function.name.to_string().strip_suffix("_of")?.to_owned(),
        _ => return None,
    };
    NAMED.contains(&inner.as_str()).then(|| format!("{inner}_name"))
}

fn word_of(kind: &DataType) -> String {
    let lower = kind.to_string().to_ascii_lowercase();
    lower.strip_prefix("pg_catalog.").unwrap_or(&lower).to_owned()
}

/// What is cast to a number with a name: that, if it is cast once more.
fn name_of(expr: Expr) -> Expr {
    match expr {
        Expr::Cast { expr, data_type, .. } if NAMED.contains(&word_of(&data_type).as_str()) => *expr,
        // A parameter is a text to the client.
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

/// A function of PostgreSQL's that gives a row for each item of a list, as one that gives a list.
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

/// Whether it is a list that a query makes of a relation's options.
fn is_options(expr: &Expr) -> bool {
    let Expr::Function(Function { args: FunctionArguments::Subquery(query), .. }) = expr else { return false };
    query.to_string().to_ascii_lowercase().contains("reloptions")
}

/// A subquery that gives one value, in a shape that DataFusion can join.
fn scalar(mut query: Box<Query>) -> Expr {
    let SetExpr::Select(select) = query.body.as_mut() else { return Expr::Subquery(query) };
    let inside = relations_of(select);
    if inside.iter().any(|name| EMPTY.contains(&name.as_str())) {
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
    // Brackets: datafusion-pg-catalog puts NULL in place of a subquery that stands alone in a SELECT.
    let value = Expr::Nested(Box::new(Expr::Subquery(query)));
    match together(outer) {
        None => value,
        Some(condition) => Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions: vec![CaseWhen { condition, result: value }],
            else_result: None,
        },
    }
}

/// The names that a SELECT has for what it reads.
fn relations_of(select: &Select) -> Vec<String> {
    let mut names = Vec::new();
    for from in &select.from {
        for factor in std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::Table { name, alias, .. } = factor {
                let table = name.0.last().and_then(|part| part.as_ident());
                names.extend(table.map(|name| name.value.to_ascii_lowercase()));
                names.extend(alias.as_ref().map(|alias| alias.name.value.to_ascii_lowercase()));
            }
        }
    }
    names
}

/// The table that a column is said to be of.
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

/// Whether all columns in it are of tables around the subquery.
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

fn is_aggregate(expr: &Expr) -> bool {
    const AGGREGATES: [&str; 9] =
        ["array_agg", "string_agg", "count", "min", "max", "sum", "bool_and", "bool_or", "first_value"];
    struct Find;
    impl Visitor for Find {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match expr {
                Expr::Function(function) => {
                    let name = function.name.0.last().and_then(|part| part.as_ident());
                    let found = name.is_some_and(|name| AGGREGATES.contains(&&*name.value.to_ascii_lowercase()));
                    if found { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Find).is_break()
}

fn conjuncts(condition: Option<Expr>) -> Vec<Expr> {
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

fn together(parts: Vec<Expr>) -> Option<Expr> {
    let and = |left: Expr, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: BinaryOperator::And,
        right: Box::new(right),
    };
    parts.into_iter().reduce(and)
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
                 (SELECT first_value(d.adbin) FROM pg_attrdef AS d WHERE d.adrelid = a.attrelid)) END FROM pg_attribute AS a",
            ),
            (
                "SELECT (SELECT max(d.x) FROM d WHERE d.y = a.y) FROM a",
                "SELECT ((SELECT max(d.x) FROM d WHERE d.y = a.y)) FROM a",
            ),
            ("SELECT (SELECT d.x FROM d WHERE d.y = 1) FROM a", "SELECT (SELECT d.x FROM d WHERE d.y = 1) FROM a"),
            (
                "SELECT (SELECT s.seqstart FROM pg_catalog.pg_sequence AS s WHERE s.seqrelid = a.b) FROM a",
                "SELECT NULL FROM a",
            ),
        ] {
            let mut statement = parse::statements(asked).expect("it is SQL").remove(0);
            restate(&mut statement);
            assert_eq!(statement.to_string(), restated);
        }
    }
}
