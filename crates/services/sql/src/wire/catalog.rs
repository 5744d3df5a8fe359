//! pg_catalog: what is registered in a session, and how texts that ask the catalogs are rewritten before they are planned.
//!
//! ```text
//!   text --mentions pg_catalog?--> restate --> rewrite (datafusion-pg-catalog's rules) --> the engine plans it
//!                                                                               |
//!          pg_class, pg_attribute, pg_attrdef, pg_index, pg_constraint,    <----+   made from the session's tables
//!          pg_namespace
//!          pg_stat_activity, pg_cancel_backend, pg_terminate_backend       <----+   made from the server's connections
//!          everything else                                                 <----+   datafusion-pg-catalog's
//! ```
//!
//! The catalogs are installed when a session first asks for them: most never do, and they are not small. Numbers of tables
//! derive from their names, so that every session and every run has the same.
//!
//! What it deliberately does not do: rewrite anything but queries, or queries that do not ask the catalogs.

mod backends;
mod facts;
mod functions;
mod lists;
mod naming;
mod restate;
mod tables;

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use datafusion::common::DataFusionError;
use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Statement, visit_relations_mut};
use datafusion_pg_catalog::pg_catalog::context::{PgCatalogContextProvider, Role};
use datafusion_pg_catalog::setup_pg_catalog;
use datafusion_pg_catalog::sql::PostgresCompatibilityParser;

use super::server::Shared;
use crate::engine::control::folded;
use crate::engine::parse;
use crate::{Session, SqlError};
use backends::Backends;
use facts::Facts;

/// Name of the schema.
const SCHEMA: &str = "pg_catalog";

static PARSER: LazyLock<PostgresCompatibilityParser> = LazyLock::new(PostgresCompatibilityParser::new);

/// What a text that asks the catalogs has in it.
const MENTIONS: [&str; 13] = [
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
];

/// Part of psql's `\du` that DataFusion has no plan for: an array of a query's rows. There are no memberships.
const MEMBERSHIPS: (&str, &str) = ("ARRAY(SELECT b.rolname", ") as memberof");

/// The catalogs of one session.
#[derive(Debug)]
pub(super) struct Catalogs {
    users: Arc<Vec<String>>,
    backends: Backends,
    installed: bool,
}

impl Catalogs {
    /// Catalogs of a server as the connection of this number sees them, not installed yet.
    pub(super) fn new(shared: &Shared, process: i32) -> Catalogs {
        let users = Arc::new(shared.options.users.keys().cloned().collect());
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
        let text = without_memberships(sql);
        // What cannot be read is the engine's to refuse, in its own words. Read twice: this parser has no end to its patience.
        let Some(mut asked) = parse::statements(&text).ok() else { return Ok(Cow::Borrowed(sql)) };
        let read = PARSER.parse(&text).ok();
        // Whole questions that it knows it answers itself, without any table; the others are restated before.
        let answered = read.as_ref().is_some_and(|read| !read.iter().any(restate::reads_tables));
        let reads = asked.iter().any(restate::reads_tables);
        let read = if (answered && reads) || lower.contains("string_to_array(current_setting") {
            read
        } else {
            asked.iter_mut().for_each(restate::restate);
            let texts: Vec<String> = asked.iter().map(ToString::to_string).collect();
            PARSER.parse(&texts.join("; ")).ok()
        };
        let Some(mut statements) = read else { return Ok(Cow::Borrowed(sql)) };
        if !statements.iter().all(|statement| matches!(statement, Statement::Query(_))) {
            return Ok(Cow::Borrowed(sql));
        }
        // datafusion-pg-catalog qualifies the tables that it knows.
        let _ = visit_relations_mut(&mut statements, qualified);
        let texts: Vec<String> = statements.iter().map(ToString::to_string).collect();
        Ok(Cow::Owned(texts.join("; ")))
    }
}

/// Names the schema of the one table here that datafusion-pg-catalog does not know.
fn qualified(name: &mut ObjectName) -> ControlFlow<()> {
    if let [table] = name.0.as_slice()
        && table.as_ident().is_some_and(|table| folded(table) == tables::ACTIVITY)
    {
        name.0.insert(0, ObjectNamePart::Identifier(Ident::new(SCHEMA)));
    }
    ControlFlow::Continue(())
}

fn without_memberships(sql: &str) -> Cow<'_, str> {
    let (from, to) = MEMBERSHIPS;
    let found = sql.find(from).and_then(|start| Some((start, start + sql[start..].find(to)?)));
    match found {
        Some((start, end)) => Cow::Owned(format!("{}'{{}}'{}", &sql[..start], &sql[end + 1..])),
        None => Cow::Borrowed(sql),
    }
}

fn install(session: &Session, users: &Arc<Vec<String>>, backends: &Backends) -> Result<(), SqlError> {
    let context = session.context();
    let database = context.state().config_options().catalog.default_catalog.clone();
    let roles = Users(Arc::clone(users));
    setup_pg_catalog(context, &database, roles).map_err(|error| SqlError::from(*error))?;
    let missing = || DataFusionError::Internal(format!("the database {database} has no {SCHEMA}"));
    let names = context.catalog(&database).ok_or_else(missing)?;
    let others = names.schema(SCHEMA).ok_or_else(missing)?;
    let facts = Facts::new(Arc::clone(&session.shared), Arc::clone(&names));
    names.register_schema(SCHEMA, Arc::new(tables::PgCatalog::new(others, facts.clone(), backends.clone())))?;
    functions::register(context, &facts, session.user());
    naming::register(context, &facts, session.user());
    lists::register(context);
    backends.register(context);
    Ok(())
}

/// The users as roles: all of them may do everything.
#[derive(Debug, Clone)]
struct Users(Arc<Vec<String>>);

#[async_trait]
impl PgCatalogContextProvider for Users {
    async fn roles(&self) -> Vec<String> {
        self.0.to_vec()
    }

    async fn role(&self, name: &str) -> Option<Role> {
        self.0.iter().any(|user| user == name).then(|| Role {
            name: name.to_owned(),
            is_superuser: true,
            can_login: true,
            can_create_db: false,
            can_create_role: false,
            can_create_user: false,
            can_replication: false,
            grants: Vec::new(),
            inherited_roles: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memberships_are_left_out_of_psqls_list_of_roles() {
        let sql = "SELECT r.x,\n ARRAY(SELECT b.rolname\n FROM m WHERE (a = b)) as memberof\n FROM r";
        assert_eq!(without_memberships(sql), "SELECT r.x,\n '{}' as memberof\n FROM r");
        assert_eq!(without_memberships("SELECT 1"), "SELECT 1");
    }
}
