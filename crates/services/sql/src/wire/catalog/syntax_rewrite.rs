//! Rewrites catalog queries in the syntax that DataFusion accepts.
//!
//! ```text
//!   FROM pg_class                      FROM pg_catalog.pg_class: it is found without its schema
//!   pg_catalog.version()               version(): functions have no schemas here
//!   x COLLATE c                        x: texts are compared by their bytes
//!   x OPERATOR(pg_catalog.~) y         x ~ y
//!   '{a,b}'::text[]                    ARRAY['a', 'b']::text[]
//!   x = ANY ('{a,b}')                  x = ANY (ARRAY['a', 'b'])
//!   current_schema, current_role       current_schema(), current_user
//!   (SELECT .. string_to_array(current_setting('search_path'), ','))     ('public'), behind IN
//! ```

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    Array, BinaryOperator, DataType, Expr, Function, FunctionArguments, Ident, ObjectName, ObjectNamePart, Query,
    Statement, TableFactor, Value, VisitMut, VisitorMut,
};

use super::arrow_schema::names;
use crate::engine::parse::ast::folded;
use crate::engine::parse::expressions::call;
use crate::table::catalog::PUBLIC;
use crate::wire::value::items_of;

/// Rewrites a query.
pub(super) fn spell(statement: &mut Statement) {
    let _ = statement.visit(&mut Spell);
}

struct Spell;

impl VisitorMut for Spell {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        match factor {
            TableFactor::Table { name, args: None, .. } => qualify(name),
            TableFactor::Table { name, .. } | TableFactor::Function { name, .. } => without_schema(name),
            _ => {}
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let taken = std::mem::replace(expr, Expr::Value(Value::Null.into()));
        *expr = spelled(taken);
        ControlFlow::Continue(())
    }
}

fn spelled(expr: Expr) -> Expr {
    match expr {
        Expr::Function(mut function) => {
            without_schema(&mut function.name);
            Expr::Function(function)
        }
        Expr::Identifier(ident) => without_brackets(ident),
        Expr::Collate { expr, .. } => *expr,
        Expr::BinaryOp { left, op: BinaryOperator::PGCustomBinaryOperator(name), right } => {
            let op = operator(&name).unwrap_or(BinaryOperator::PGCustomBinaryOperator(name));
            Expr::BinaryOp { left, op, right }
        }
        Expr::Cast { kind, expr, data_type: data_type @ DataType::Array(_), format, array } => {
            Expr::Cast { kind, expr: listed(expr), data_type, format, array }
        }
        Expr::AnyOp { left, compare_op, right, is_some } => {
            Expr::AnyOp { left, compare_op, right: listed(right), is_some }
        }
        Expr::AllOp { left, compare_op, right } => Expr::AllOp { left, compare_op, right: listed(right) },
        Expr::InSubquery { expr, subquery, negated } if is_search_path(&subquery) => {
            let list = vec![Expr::Value(Value::SingleQuotedString(PUBLIC.to_owned()).into())];
            Expr::InList { expr, list, negated }
        }
        other => other,
    }
}

/// Adds the schema to the name of a catalog.
fn qualify(name: &mut ObjectName) {
    if let [table] = name.0.as_slice()
        && table.as_ident().map(folded).is_some_and(|table| is_catalog(&table))
    {
        name.0.insert(0, ObjectNamePart::Identifier(Ident::new(super::SCHEMA)));
    }
}

fn is_catalog(table: &str) -> bool {
    table == super::backends::ACTIVITY || table == super::locks::LOCKS || names().any(|catalog| catalog == table)
}

fn without_schema(name: &mut ObjectName) {
    if let [schema, _] = name.0.as_slice()
        && schema.as_ident().map(folded).is_some_and(|schema| schema == super::SCHEMA || schema == "information_schema")
    {
        name.0.remove(0);
    }
}

/// Words that are expressions without brackets in PostgreSQL, and functions in DataFusion.
fn without_brackets(ident: Ident) -> Expr {
    if ident.quote_style.is_some() {
        return Expr::Identifier(ident);
    }
    match ident.value.to_ascii_lowercase().as_str() {
        "current_schema" => call("current_schema", Vec::new()),
        "current_role" => Expr::Function(Function {
            args: FunctionArguments::None,
            name: ObjectName::from(vec![Ident::new("current_user")]),
            uses_odbc_syntax: false,
            parameters: FunctionArguments::None,
            filter: None,
            null_treatment: None,
            over: None,
            within_group: Vec::new(),
        }),
        _ => Expr::Identifier(ident),
    }
}

fn operator(name: &[String]) -> Option<BinaryOperator> {
    let [schema, name] = name else { return None };
    if schema != super::SCHEMA {
        return None;
    }
    Some(match name.as_str() {
        "~" => BinaryOperator::PGRegexMatch,
        "~*" => BinaryOperator::PGRegexIMatch,
        "!~" => BinaryOperator::PGRegexNotMatch,
        "!~*" => BinaryOperator::PGRegexNotIMatch,
        "=" => BinaryOperator::Eq,
        "<>" => BinaryOperator::NotEq,
        "<" => BinaryOperator::Lt,
        "<=" => BinaryOperator::LtEq,
        ">" => BinaryOperator::Gt,
        ">=" => BinaryOperator::GtEq,
        _ => return None,
    })
}

/// An array that is written as a text, as the list of its items: of numbers, if all items are numbers.
fn listed(expr: Box<Expr>) -> Box<Expr> {
    let Expr::Value(value) = expr.as_ref() else { return expr };
    let Value::SingleQuotedString(text) = &value.value else { return expr };
    let Some(items) = items_of(text) else { return expr };
    let is_number = |item: &Option<String>| {
        item.as_ref().is_none_or(|item| !item.is_empty() && item.bytes().all(|letter| letter.is_ascii_digit()))
    };
    let are_numbers = items.iter().all(is_number);
    let item = |item: Option<String>| {
        let value = match item {
            None => Value::Null,
            Some(number) if are_numbers => Value::Number(number, false),
            Some(text) => Value::SingleQuotedString(text),
        };
        Expr::Value(value.into())
    };
    Box::new(Expr::Array(Array { elem: items.into_iter().map(item).collect(), named: true }))
}

/// Whether a query makes rows of the setting `search_path`: the schemas in which names are searched.
fn is_search_path(query: &Query) -> bool {
    query.to_string().to_ascii_lowercase().contains("string_to_array(current_setting('search_path'), ',')")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::parse;

    #[test]
    fn questions_are_spelled_as_they_are_read_here() {
        for (asked, spelled) in [
            ("SELECT 1 FROM pg_class, Pg_Type AS t", "SELECT 1 FROM pg_catalog.pg_class, pg_catalog.Pg_Type AS t"),
            ("SELECT 1 FROM pg_mine, s.pg_class", "SELECT 1 FROM pg_mine, s.pg_class"),
            ("SELECT pg_catalog.version(), s.f(1)", "SELECT version(), s.f(1)"),
            ("SELECT 1 FROM pg_catalog.pg_get_keywords()", "SELECT 1 FROM pg_get_keywords()"),
            ("SELECT a COLLATE pg_catalog.default FROM t", "SELECT a FROM t"),
            ("SELECT a OPERATOR(pg_catalog.~) '^(x)$' FROM t", "SELECT a ~ '^(x)$' FROM t"),
            ("SELECT a OPERATOR(s.~) 'x' FROM t", "SELECT a OPERATOR(s.~) 'x' FROM t"),
            ("SELECT '{a,\"b,c\"}'::text[]", "SELECT ARRAY['a', 'b,c']::TEXT[]"),
            ("SELECT '{1,NULL}'::int[], '{}'::int[]", "SELECT ARRAY[1, NULL]::INT[], ARRAY[]::INT[]"),
            ("SELECT 'no array'::text[]", "SELECT 'no array'::TEXT[]"),
            ("SELECT a = ANY('{r,v}') FROM t", "SELECT a = ANY(ARRAY['r', 'v']) FROM t"),
            ("SELECT a <> ALL ('{1,2}') FROM t", "SELECT a <> ALL(ARRAY[1, 2]) FROM t"),
            (
                "SELECT current_schema, \"user\", user, current_role",
                "SELECT current_schema(), \"user\", user, current_user",
            ),
            (
                "SELECT quote_ident(s) IN (SELECT trim(p[i]) FROM generate_series(1, 2) AS i, \
                 string_to_array(current_setting('search_path'),',') AS p) FROM t",
                "SELECT quote_ident(s) IN ('public') FROM t",
            ),
        ] {
            let mut statement = parse::statements(asked).expect("it is SQL").remove(0);
            spell(&mut statement);
            assert_eq!(statement.to_string(), spelled);
        }
    }
}
