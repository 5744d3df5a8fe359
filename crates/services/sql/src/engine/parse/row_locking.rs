//! FOR UPDATE and FOR SHARE behind a query of one table: they are taken off the statement, which is then a query like others.
//!
//! Elsewhere (in subqueries, beside joins, groups and set operations) they are refused by name.

use datafusion::sql::sqlparser::ast::{
    GroupByExpr, LockClause, LockType, NonBlock, Query, Select, SetExpr, Statement, TableFactor,
};

use super::ast::{folded, resolve};
use crate::SqlError;

/// What to do with a row that another transaction has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Busy {
    /// Wait for the end of that one.
    Wait,
    /// NOWAIT: an error.
    Refuse,
    /// SKIP LOCKED: leave the row out.
    Skip,
}

/// The locks that a query asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowLocking {
    /// Whether others may share them.
    pub(crate) is_shared: bool,
    pub(crate) busy: Busy,
}

/// Takes the locks off a statement; `None` if it asks for none. Errors: 0A000, 42P01.
pub(crate) fn take(statement: &mut Statement) -> Result<Option<RowLocking>, SqlError> {
    let Statement::Query(query) = statement else { return Ok(None) };
    let mut clauses = std::mem::take(&mut query.locks);
    let Some(LockClause { lock_type, of, nonblock }) = clauses.pop() else { return Ok(None) };
    let words = format!("FOR {lock_type}");
    if !clauses.is_empty() {
        return Err(SqlError::unsupported(format!("more than one {words}")));
    }
    let select = plain(query, &words)?;
    if let Some(of) = of
        && named(select).is_none_or(|name| resolve(&of).ok().is_none_or(|(_, of)| of != name))
    {
        let message = format!("relation \"{of}\" in {words} clause not found in FROM clause");
        return Err(SqlError::statement("42P01", message));
    }
    let busy = match nonblock {
        None => Busy::Wait,
        Some(NonBlock::Nowait) => Busy::Refuse,
        Some(NonBlock::SkipLocked) => Busy::Skip,
    };
    Ok(Some(RowLocking { is_shared: lock_type == LockType::Share, busy }))
}

/// The SELECT, whose rows are rows of one table.
fn plain<'a>(query: &'a Query, words: &str) -> Result<&'a Select, SqlError> {
    let refused = |what: &str| SqlError::unsupported(format!("{words} with {what}"));
    let SetExpr::Select(select) = query.body.as_ref() else {
        return Err(refused("UNION, INTERSECT, EXCEPT or VALUES"));
    };
    let groups = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, modifiers) => !keys.is_empty() || !modifiers.is_empty(),
    };
    let others = [
        (select.distinct.is_some(), "DISTINCT"),
        (groups, "GROUP BY"),
        (select.having.is_some(), "HAVING"),
        (!select.named_window.is_empty(), "WINDOW"),
        (query.with.is_some(), "WITH"),
    ];
    if let Some((_, what)) = others.iter().find(|(is, _)| *is) {
        return Err(refused(what));
    }
    match select.from.as_slice() {
        [from] if from.joins.is_empty() && matches!(from.relation, TableFactor::Table { .. }) => Ok(select),
        _ => Err(refused("another FROM than one table").with_hint("Lock the rows of one table in a query of its own.")),
    }
}

/// The name of the table in the query.
fn named(select: &Select) -> Option<String> {
    match &select.from.first()?.relation {
        TableFactor::Table { alias: Some(alias), .. } => Some(folded(&alias.name)),
        TableFactor::Table { name, .. } => resolve(name).ok().map(|(_, name)| name),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::parse::ast;

    #[test]
    fn locks_of_one_table_are_taken_off_and_others_are_refused() {
        for (sql, is_shared, busy) in [
            ("SELECT * FROM t FOR UPDATE", false, Busy::Wait),
            ("SELECT a, b + 1 FROM t AS x WHERE a = 1 ORDER BY b LIMIT 3 FOR UPDATE OF x NOWAIT", false, Busy::Refuse),
            ("SELECT * FROM t FOR SHARE SKIP LOCKED", true, Busy::Skip),
        ] {
            let mut statement = ast::parse(sql).unwrap();
            assert_eq!(take(&mut statement).unwrap(), Some(RowLocking { is_shared, busy }), "{sql}");
            assert!(!statement.to_string().contains(" FOR "), "{statement}");
        }
        for (sql, code) in [
            ("SELECT DISTINCT a FROM t FOR UPDATE", "0A000"),
            ("SELECT a FROM t GROUP BY a FOR UPDATE", "0A000"),
            ("SELECT 1 FROM t HAVING true FOR UPDATE", "0A000"),
            ("SELECT * FROM t, u FOR UPDATE", "0A000"),
            ("SELECT * FROM t JOIN u ON true FOR UPDATE", "0A000"),
            ("SELECT * FROM (SELECT 1) AS t FOR SHARE", "0A000"),
            ("SELECT a FROM t UNION SELECT a FROM t FOR UPDATE", "0A000"),
            ("WITH w AS (SELECT 1) SELECT * FROM w FOR UPDATE", "0A000"),
            ("SELECT * FROM t FOR UPDATE FOR SHARE", "0A000"),
            ("SELECT * FROM t AS x FOR UPDATE OF t", "42P01"),
        ] {
            assert_eq!(take(&mut ast::parse(sql).unwrap()).unwrap_err().code(), code, "{sql}");
        }
        assert_eq!(take(&mut ast::parse("SELECT 1").unwrap()).unwrap(), None);
    }
}
