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
        Some(_) => Err(SqlError::statement("42P07", format!("relation \"{name}\" already exists"))),
    }
}

/// Writes the owner of an object that the statement created: the role whose rights count.
pub(crate) fn created(session: &mut Session, what: &str, object: Object<'_>) -> Result<(), SqlError> {
    let Some(access) = session.access() else { return Ok(()) };
    let owner = access.caller().current();
    session.objects_changed(what, vec![ObjectChange::Created { object: exactly(object)?, owner }])
}
