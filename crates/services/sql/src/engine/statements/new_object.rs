//! What all statements have in common that create an object: its name, its owner, the tag of the answer.

use datafusion::sql::sqlparser::ast::ObjectName;
use node::identity::{Object, ObjectChange};

use crate::SqlError;
use crate::engine::parse::ast::resolve;
use crate::engine::plan::access::exactly;
use crate::engine::{Session, StatementResult};
use crate::table::Table;

/// The answer of a statement that only has a tag.
pub(crate) fn done(tag: &str) -> Result<StatementResult, SqlError> {
    Ok(StatementResult::Done { tag: tag.into() })
}

/// Checks that the name is free and its schema exists. `None` if an object of this name exists and may exist.
pub(crate) fn free(
    session: &Session,
    name: &ObjectName,
    may_exist: bool,
) -> Result<Option<(String, String)>, SqlError> {
    let (schema, name) = resolve(name)?;
    let catalog = session.shared.catalog();
    if let (Some(access), true) = (session.access(), catalog.schemas.contains_key(&schema)) {
        access.make_in(&schema)?;
    }
    match catalog.schemas.get(&schema) {
        None => Err(SqlError::statement("3F000", format!("schema \"{schema}\" does not exist"))),
        Some(_) if !catalog.is_taken(&schema, &name) => Ok(Some((schema, name))),
        Some(_) if may_exist => Ok(None),
        Some(_) => Err(taken(&name)),
    }
}

/// The error that a name is that of another object.
pub(crate) fn taken(name: &str) -> SqlError {
    SqlError::statement("42P07", format!("relation \"{name}\" already exists"))
}

/// The first free name that PostgreSQL would choose: the plain one, or that with a number behind it.
pub(crate) fn numbered(plain: &str, is_free: impl Fn(&str) -> bool) -> String {
    let numbered = (1u32..).map(|number| format!("{plain}{number}"));
    std::iter::once(plain.to_owned()).chain(numbered).find(|name| is_free(name)).unwrap_or_default()
}

/// The name of the primary key of a table that is made, and so of its index: as given, or as PostgreSQL chooses it. Errors: 42P07.
pub(crate) fn key_name(
    session: &Session,
    (schema, table): (&str, &str),
    given: Option<String>,
) -> Result<String, SqlError> {
    let catalog = session.shared.catalog();
    let is_taken = |name: &str| name == table || catalog.is_taken(schema, name);
    match given {
        Some(name) if is_taken(&name) => Err(taken(&name)),
        Some(name) => Ok(name),
        None => Ok(numbered(&format!("{table}_pkey"), |name| !is_taken(name))),
    }
}

/// The name of a new index of a table, which may be that of a constraint: as given, or the first free one that begins with `plain`. What the
/// running statement has added to the table, or dropped, is in `table` and not in the catalog.
///
/// Errors: 42P07, 42710.
pub(crate) fn index_name(
    session: &Session,
    table: &Table,
    is_constraint: bool,
    (given, plain): (Option<&str>, &str),
) -> Result<String, SqlError> {
    let catalog = session.shared.catalog();
    let is_relation = |name: &str| {
        let is_own = name == table.name || table.has_index(name);
        is_own || catalog.is_taken_beside(&table.schema_name, name, Some(table.id))
    };
    let is_of_constraint = |name: &str| is_constraint && table.constraint_names().any(|known| known == name);
    match given {
        Some(name) if is_relation(name) => Err(taken(name)),
        Some(name) if is_of_constraint(name) => Err(constraint_exists(table, name)),
        Some(name) => Ok(name.to_owned()),
        None => Ok(numbered(plain, |name| !is_relation(name) && !is_of_constraint(name))),
    }
}

/// The error that a table has a constraint of that name.
pub(crate) fn constraint_exists(table: &Table, name: &str) -> SqlError {
    SqlError::statement("42710", format!("constraint \"{name}\" for relation \"{}\" already exists", table.name))
}

/// Writes the owner of an object that the statement created: the role whose rights count.
pub(crate) fn created(session: &mut Session, what: &str, object: Object<'_>) -> Result<(), SqlError> {
    let Some(access) = session.access() else { return Ok(()) };
    let owner = access.caller().current();
    session.objects_changed(what, vec![ObjectChange::Created { object: exactly(object)?, owner }])
}
