//! pg_catalog: the objects that are registered in a session, and the rewriting of catalog queries before they are
//! planned.
//!
//! ```text
//!   text --mentions pg_catalog?--> syntax_rewrite --> empty_catalogs --> query_rewrite --> the engine plans it
//!                                                                                               |
//!          columns, arrow_schema          the columns of each catalog                      <----+
//!          tables, roles                  made from the session's tables and users (session_objects)
//!          types, static_catalogs         the same in each session
//!          backends                       made from the server's connections
//!          functions, object_identifiers, descriptions     of the session's tables
//!          constant_functions, set_functions, keywords     of no table
//! ```
//!
//! The catalogs are installed when a session first queries them: most sessions never do, and the catalogs are not
//! small. OIDs of tables are derived from their names, so they are the same in every session and after a restart.
//!
//! Not here, on purpose: rewriting other statements than queries, or queries that do not read the catalogs.

mod acl;
mod arrow_schema;
mod backends;
mod cast_types;
mod catalog_row;
mod columns;
mod constant_functions;
mod descriptions;
mod empty_catalogs;
mod functions;
mod keywords;
mod known_roles;
mod listening_channels;
mod locks;
mod object_identifiers;
mod prepared_statements;
mod privilege_functions;
mod query_parts;
mod query_rewrite;
#[cfg(test)]
mod rights_tests;
mod roles;
mod sequences;
mod session_objects;
mod set_functions;
mod static_catalogs;
mod syntax_rewrite;
mod tables;
mod types;

use std::borrow::Cow;
use std::sync::Arc;

use datafusion::common::DataFusionError;
use datafusion::execution::SessionStateBuilder;
use datafusion::sql::sqlparser::ast::{Ident, SelectItem, Statement};

use super::server_state::ServerState;
use crate::engine::parse;
use crate::engine::plan::column_labels;
use crate::{Session, SqlError};
use backends::Backends;
use listening_channels::{CHANNELS, ListeningChannels};
use session_objects::{Facts, SessionFacts};

/// Name of the schema.
const SCHEMA: &str = "pg_catalog";

/// Words of which a text contains one if it queries the catalogs.
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
    backends: Backends,
    installed: bool,
}

impl Catalogs {
    /// Catalogs of a server as the connection with this process number sees them; they are not installed yet.
    pub(super) fn new(shared: &ServerState, process: i32) -> Catalogs {
        let place = (process, shared.options.database.clone());
        let backends = Backends::new(Arc::clone(&shared.registry), Arc::clone(&shared.engine), place);
        Catalogs { backends, installed: false }
    }

    /// The text to plan instead of `sql`; installs the catalogs if the text queries them.
    pub(super) fn rewrite<'a>(&mut self, session: &Session, sql: &'a str) -> Result<Cow<'a, str>, SqlError> {
        let lower = sql.to_ascii_lowercase();
        if !MENTIONS.iter().any(|mention| lower.contains(mention)) {
            return Ok(Cow::Borrowed(sql));
        }
        if !self.installed {
            install(session, &self.backends)?;
            self.installed = true;
        }
        // The engine refuses a text that cannot be parsed, with its own error.
        let Ok(mut asked) = parse::statements(sql) else { return Ok(Cow::Borrowed(sql)) };
        if !asked.iter_mut().all(|statement| query_of(statement).is_some()) {
            return Ok(Cow::Borrowed(sql));
        }
        asked.iter_mut().filter_map(query_of).for_each(restated);
        let texts: Vec<String> = asked.iter().map(ToString::to_string).collect();
        Ok(Cow::Owned(texts.join("; ")))
    }
}

/// The query that a statement is, or prepares.
fn query_of(statement: &mut Statement) -> Option<&mut Statement> {
    let query = match statement {
        Statement::Prepare { statement, .. } => statement,
        other => other,
    };
    matches!(query, Statement::Query(_)).then_some(query)
}

/// Rewrites a query in a form that has a plan. Its columns keep their labels.
fn restated(statement: &mut Statement) {
    let labels = labels_of(statement);
    syntax_rewrite::spell(statement);
    if let Statement::Query(query) = statement {
        empty_catalogs::empty(query);
    }
    query_rewrite::restate(statement);
    let Statement::Query(query) = statement else { return };
    let Some(select) = column_labels::outer_mut(query) else { return };
    for (item, label) in select.projection.iter_mut().zip(labels) {
        let Some(label) = label.filter(|label| column_labels::label(item).as_ref() != Some(label)) else { continue };
        if let SelectItem::UnnamedExpr(expr) = item {
            *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias: Ident::with_quote('"', label) };
        }
    }
}

/// The column labels of a query; none for a UNION and similar queries.
fn labels_of(statement: &mut Statement) -> Vec<Option<String>> {
    let Statement::Query(query) = statement else { return Vec::new() };
    column_labels::outer_mut(query)
        .map_or_else(Vec::new, |select| select.projection.iter().map(column_labels::label).collect())
}

fn install(session: &Session, backends: &Backends) -> Result<(), SqlError> {
    let context = session.context();
    let database = context.state().config_options().catalog.default_catalog.clone();
    let missing = || DataFusionError::Internal(format!("the session has no database {database}"));
    let names = context.catalog(&database).ok_or_else(missing)?;
    let about = SessionFacts::new(database, session);
    let facts = Facts::new(Arc::clone(&session.shared), Arc::clone(&names), Arc::new(about));
    {
        let state = context.state_ref();
        let mut state = state.write();
        let kinds = Arc::new(cast_types::CatalogCastTypes);
        *state = SessionStateBuilder::new_from_existing(state.clone()).with_type_planner(kinds).build();
    }
    functions::register(context, &facts);
    constant_functions::register(context);
    descriptions::register(context, &facts);
    object_identifiers::register(context, &facts);
    privilege_functions::register(context, &facts);
    sequences::register(context, &facts);
    set_functions::register(context);
    let channels = ListeningChannels(Arc::clone(&session.listener.mailbox));
    context.register_udtf(CHANNELS, Arc::new(channels));
    let backends = backends.seen_by(Arc::clone(&session.shared));
    backends.register(context);
    let callable = roles::callable(context);
    names.register_schema(SCHEMA, Arc::new(tables::PgCatalog::new(facts, backends, callable)))?;
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
                "SELECT version() AS v, current_user AS \"current_role\"",
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
