//! What all statements have in common that create an object: its name, its owner, the tag of the answer.

use datafusion::sql::sqlparser::ast::ObjectName;
use node::identity::{Object, ObjectChange};

use crate::SqlError;
use crate::engine::parse::ast::resolve;
use crate::engine::plan::access::exactly;
use crate::engine::{Session, StatementResult};

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

/// The name of a table's new primary key, and so of its index: as given, or as PostgreSQL chooses it. Errors: 42P07.
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
        None => {
            let plain = format!("{table}_pkey");
            let numbered = (1u32..).map(|number| format!("{plain}{number}"));
            let mut names = std::iter::once(plain.clone()).chain(numbered);
            Ok(names.find(|name| !is_taken(name)).unwrap_or_default())
        }
    }
}

/// Writes the owner of an object that the statement created: the role whose rights count.
pub(crate) fn created(session: &mut Session, what: &str, object: Object<'_>) -> Result<(), SqlError> {
    let Some(access) = session.access() else { return Ok(()) };
    let owner = access.caller().current();
    session.objects_changed(what, vec![ObjectChange::Created { object: exactly(object)?, owner }])
}
