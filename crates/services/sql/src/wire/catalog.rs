//! pg_catalog: what is registered in a session, and how texts that ask the catalogs are rewritten before they are planned.
//!
//! ```text
//!   text --mentions pg_catalog?--> spelling --> nothing --> restate --> the engine plans it
//!                                                                           |
//!          columns, shapes      what each catalog's columns are        <----+
//!          tables, owners       made of the session's tables and users
//!          types, fixed         the same in each session
//!          backends             made of the server's connections
//!          functions, naming    of the session's tables; answers, lists, keywords: of no table
//! ```
//!
//! The catalogs are installed when a session first asks for them: most never do, and they are not small. Numbers of tables
//! derive from their names, so that every session and every run has the same.
//!
//! What it deliberately does not do: rewrite anything but queries, or queries that do not ask the catalogs.

mod answers;
mod backends;
mod columns;
mod facts;
mod fixed;
mod functions;
mod keywords;
mod kinds;
mod lists;
mod naming;
mod nothing;
mod owners;
mod restate;
mod shapes;
mod spelling;
mod tables;
mod types;

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::sql::sqlparser::ast::{Ident, SelectItem, Statement};

use super::server::Shared;
use crate::engine::{parse, titles};
use crate::{Session, SqlError};
use backends::Backends;
use facts::{Facts, SessionFacts};

/// Name of the schema.
const SCHEMA: &str = "pg_catalog";

/// What a text that asks the catalogs has in it.
const MENTIONS: [&str; 19] = [
    "pg_",
    "regclass",
    "regtype",
    "regnamespace",
    "regproc",
    "regrole",
    "current_schema",
    "current_database",
    "current_catalog",
    "current_setting",
    "current_user",
    "session_user",
    "version()",
    "format_type(",
    "quote_ident(",
    "_privilege(",
    "_description(",
    "array_upper(",
    "array_lower(",
];

/// The catalogs of one session.
#[derive(Debug)]
pub(super) struct Catalogs {
    users: Vec<String>,
    backends: Backends,
    installed: bool,
}

impl Catalogs {
    /// Catalogs of a server as the connection of this number sees them, not installed yet.
    pub(super) fn new(shared: &Shared, process: i32) -> Catalogs {
        let users = shared.options.users.keys().cloned().collect();
        let backends = Backends::new(Arc::clone(&shared.registry), process, shared.options.database.clone());
        Catalogs { users, backends, installed: false }
    }

    /// The text to plan instead of this one; installs the catalogs if it asks them.
    pub(super) fn rewrite<'a>(&mut self, session: &Session, sql: &'a str) -> Result<Cow<'a, str>, SqlError> {
        let lower = sql.to_ascii_lowercase();
        if !MENTIONS.iter().any(|mention| lower.contains(mention)) {
            return Ok(Cow::Borrowed(sql));
        }
        if !self.installed {
            install(session, &self.users, &self.backends)?;
            self.installed = true;
        }
        // What cannot be read is the engine's to refuse, in its own words.
        let Ok(mut asked) = parse::statements(sql) else { return Ok(Cow::Borrowed(sql)) };
        if !asked.iter().all(|statement| matches!(statement, Statement::Query(_))) {
            return Ok(Cow::Borrowed(sql));
        }
        asked.iter_mut().for_each(restated);
        let texts: Vec<String> = asked.iter().map(ToString::to_string).collect();
        Ok(Cow::Owned(texts.join("; ")))
    }
}

/// Puts a question as there is a plan for it, its columns under the titles that they had.
fn restated(statement: &mut Statement) {
    let titles = titles_of(statement);
    spelling::spell(statement);
    if let Statement::Query(query) = statement {
        nothing::empty(query);
    }
    restate::restate(statement);
    let Statement::Query(query) = statement else { return };
    let Some(select) = titles::outer_mut(query) else { return };
    for (item, title) in select.projection.iter_mut().zip(titles) {
        let Some(title) = title.filter(|title| titles::title(item).as_ref() != Some(title)) else { continue };
        if let SelectItem::UnnamedExpr(expr) = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', title) };
        }
    }
}

/// What the columns of a question are called; none of a UNION and its like.
fn titles_of(statement: &mut Statement) -> Vec<Option<String>> {
    let Statement::Query(query) = statement else { return Vec::new() };
    titles::outer_mut(query).map_or_else(Vec::new, |select| select.projection.iter().map(titles::title).collect())
}

fn install(session: &Session, users: &[String], backends: &Backends) -> Result<(), SqlError> {
    let context = session.context();
    let database = context.state().config_options().catalog.default_catalog.clone();
    let missing = || DataFusionError::Internal(format!("the session has no database {database}"));
    let names = context.catalog(&database).ok_or_else(missing)?;
    let about = SessionFacts::new(database, users, session.user());
    let facts = Facts::new(Arc::clone(&session.shared), Arc::clone(&names), Arc::new(about));
    {
        let state = context.state_ref();
        let mut state = state.write();
        let kinds = Arc::new(kinds::CatalogKinds);
        *state = SessionStateBuilder::new_from_existing(state.clone()).with_type_planner(kinds).build();
    }
    functions::register(context, &facts);
    answers::register(context);
    naming::register(context, &facts, session.user());
    lists::register(context);
    backends.register(context);
    let callable = owners::callable(context);
    names.register_schema(SCHEMA, Arc::new(tables::PgCatalog::new(facts, backends.clone(), callable)))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_keep_the_titles_that_they_had() {
        for (asked, expected) in [
            ("SELECT 'a'::regclass, 1::oid", "SELECT regclass_of('a') AS \"regclass\", 1::oid"),
            (
                "SELECT pg_catalog.version() AS v, current_role",
                "SELECT version() AS v, session_user AS \"current_role\"",
            ),
            (
                "SELECT version() UNION SELECT 'x'::regtype::text",
                "SELECT version() UNION SELECT regtype_name(regtype_of('x'))",
            ),
        ] {
            let mut statement = parse::statements(asked).expect("it is SQL").remove(0);
            restated(&mut statement);
            assert_eq!(statement.to_string(), expected);
        }
    }
}
