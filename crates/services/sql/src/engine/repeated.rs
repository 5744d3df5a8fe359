//! Columns of a result that were given the same name: `SELECT a AS x, b AS x`.
//!
//! PostgreSQL sends both as `x`. DataFusion 55 wants names that differ, so later ones are planned under a name with a mark and
//! a number behind it, and the mark is taken off what the client sees.
//!
//! ```text
//! SELECT a AS x, b AS x  --tell_apart-->  SELECT a AS x, b AS "x\u{1}1"  --plan-->  x, x\u{1}1  --shown-->  x, x
//! ```
//!
//! Only the outermost SELECT, and only without ORDER BY, which could name one of them. Tables and views are not made of such
//! queries: their columns have names of their own, and they are planned without this.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Schema, SchemaRef};
use datafusion::sql::sqlparser::ast::{Ident, SelectItem, SetExpr, Statement};

use super::control::folded;

/// Stands in no name that SQL can spell without quotes, and in none that anybody would.
const MARK: char = '\u{1}';

/// The query with names that differ; `None` where they do already.
pub(super) fn tell_apart(statement: &Statement) -> Option<Statement> {
    let mut changed = statement.clone();
    let Statement::Query(query) = &mut changed else { return None };
    let SetExpr::Select(select) = query.body.as_mut() else { return None };
    if query.order_by.is_some() {
        return None;
    }
    let (mut seen, mut repeated) = (HashSet::new(), 0);
    for item in &mut select.projection {
        let SelectItem::ExprWithAlias { alias, .. } = item else { continue };
        let name = folded(alias);
        if !seen.insert(name.clone()) {
            repeated += 1;
            *alias = Ident::with_quote('"', format!("{name}{MARK}{repeated}"));
        }
    }
    (repeated > 0).then_some(changed)
}

/// The columns under the names that were given.
pub(super) fn shown(schema: SchemaRef) -> SchemaRef {
    if !schema.fields().iter().any(|field| field.name().contains(MARK)) {
        return schema;
    }
    let given = |name: &String| name.split(MARK).next().unwrap_or_default().to_owned();
    let fields: Vec<_> =
        schema.fields().iter().map(|field| field.as_ref().clone().with_name(given(field.name()))).collect();
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::datatypes::{DataType, Field};
    use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
    use datafusion::sql::sqlparser::parser::Parser;

    use super::*;

    #[test]
    fn names_that_repeat_are_told_apart_and_shown_as_given() {
        for (sql, repeats) in [
            ("SELECT a AS x, b AS X, c AS \"X\" FROM t", true),
            ("SELECT a AS x, b AS y FROM t", false),
            ("SELECT a AS x, b AS x FROM t ORDER BY x", false),
            ("SELECT a, a FROM t", false),
        ] {
            let statement = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap().remove(0);
            assert_eq!(tell_apart(&statement).is_some(), repeats, "{sql}");
        }
        let fields = ["x", "x\u{1}1"].map(|name| Field::new(name, DataType::Int32, true)).to_vec();
        let names: Vec<_> = shown(Arc::new(Schema::new(fields))).fields().iter().map(|f| f.name().clone()).collect();
        assert_eq!(names, ["x", "x"]);
    }
}
