//! Objects of statements about rights: tables and schemas by their names, their owners, and what a role owns.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, ObjectType};
use node::identity::{Action, IdentityChange, Object, ObjectKind, ObjectPattern, Privileges, RoleId};

use super::super::sequences;
use super::situation::{Situation, may_as};
use crate::SqlError;
use crate::engine::parse::ast::DATABASE;
use crate::engine::parse::rights::statement::{OwnedKind, RoleName};
use crate::table::Entry;
use crate::table::catalog::PUBLIC;

/// Schemas of PostgreSQL's own catalogs: everybody may read them.
const CATALOGS: [&str; 2] = ["pg_catalog", "information_schema"];

/// An object that rights are granted on, with its columns if it has any that are known.
pub(super) struct Target {
    pub(super) pattern: ObjectPattern,
    pub(super) name: String,
    pub(super) columns: Option<Vec<String>>,
}

/// A table as an object of rights.
fn of_table<'a>(schema: &'a str, name: &'a str) -> Object<'a> {
    Object::Table { schema, name, columns: &[] }
}

/// Schema and name, as `resolve` does it for other statements.
pub(super) fn resolved(name: &[String]) -> Result<(&str, &str), SqlError> {
    match name {
        [name] => Ok((PUBLIC, name)),
        [schema, name] => Ok((schema, name)),
        [database, schema, name] if database == DATABASE => Ok((schema, name)),
        _ => Err(SqlError::unsupported(format!("the name {}", name.join(".")))),
    }
}

fn pattern(object: &Object<'_>) -> Result<ObjectPattern, SqlError> {
    object.exactly().map_err(|error| SqlError::statement("42602", error.to_string()))
}

fn no_schema(name: &str) -> SqlError {
    SqlError::statement("3F000", format!("schema \"{name}\" does not exist"))
}

fn check_schema(name: &str, situation: &Situation<'_>) -> Result<(), SqlError> {
    if CATALOGS.contains(&name) {
        return Err(SqlError::unsupported("a right on the system catalogs"));
    }
    if situation.catalog.schemas.contains_key(name) { Ok(()) } else { Err(no_schema(name)) }
}

/// A table or view. Errors: 42P01, 3F000.
pub(super) fn table(name: &[String], situation: &Situation<'_>) -> Result<Target, SqlError> {
    let (schema, table) = resolved(name)?;
    check_schema(schema, situation)?;
    let Some(entry) = situation.catalog.get(schema, table) else {
        return Err(SqlError::statement("42P01", format!("relation \"{}\" does not exist", name.join("."))));
    };
    let names = |fields: &datafusion::arrow::datatypes::Schema| {
        Some(fields.fields().iter().map(|field| field.name().clone()).collect())
    };
    let columns = match entry {
        Entry::Sequence(_) => {
            let error = SqlError::statement("42809", format!("\"{table}\" is a sequence"));
            return Err(error.with_hint("Name it behind ON SEQUENCE."));
        }
        Entry::Table(table) => names(&table.schema),
        Entry::Virtual(table) => names(&table.schema()),
        Entry::External(table) => names(&table.schema),
        Entry::View(_) => {
            let own = situation.view_columns.iter().find(|(view, _)| view.as_slice() == name);
            own.map(|(_, columns)| columns.clone())
        }
    };
    Ok(Target { pattern: pattern(&of_table(schema, table))?, name: table.to_owned(), columns })
}

/// A sequence. Errors: 42P01, 42809, 3F000.
pub(super) fn sequence(name: &[String], situation: &Situation<'_>) -> Result<Target, SqlError> {
    let (schema, sequence) = resolved(name)?;
    check_schema(schema, situation)?;
    sequences::find(situation.catalog, schema, sequence)?;
    Ok(Target { pattern: pattern(&of_table(schema, sequence))?, name: sequence.to_owned(), columns: None })
}

/// All sequences of a schema. Errors: 3F000.
pub(super) fn sequences_of(name: &str, situation: &Situation<'_>) -> Result<Vec<Target>, SqlError> {
    check_schema(name, situation)?;
    let all = situation.catalog.sequences().filter(|sequence| sequence.schema_name == name);
    all.map(|one| sequence(&[name.to_owned(), one.name.clone()], situation)).collect()
}

/// All tables and views of a schema. Errors: 3F000.
pub(super) fn tables_of(name: &str, situation: &Situation<'_>) -> Result<Vec<Target>, SqlError> {
    check_schema(name, situation)?;
    let tables = situation.catalog.schemas.get(name).into_iter().flatten();
    tables
        .filter(|(_, entry)| !matches!(entry, Entry::Sequence(_)))
        .map(|(table, _)| Ok(Target { pattern: pattern(&of_table(name, table))?, name: table.clone(), columns: None }))
        .collect()
}

/// A schema. Errors: 3F000.
pub(super) fn schema(name: &str, situation: &Situation<'_>) -> Result<Target, SqlError> {
    check_schema(name, situation)?;
    Ok(Target { pattern: pattern(&Object::Schema(name))?, name: name.to_owned(), columns: None })
}

/// ALTER .. OWNER TO.
pub(super) fn owner(
    kind: OwnedKind,
    name: &[String],
    if_exists: bool,
    owner: &RoleName,
    situation: &Situation<'_>,
) -> Result<Vec<IdentityChange>, SqlError> {
    let target = match kind {
        OwnedKind::Schema => match name {
            [name] => schema(name, situation),
            _ => Err(SqlError::unsupported(format!("the name {}", name.join(".")))),
        },
        OwnedKind::Sequence => sequence(name, situation),
        _ => table(name, situation),
    };
    let target = match target {
        Err(error) if if_exists && matches!(error.code(), "42P01" | "3F000") => return Ok(Vec::new()),
        target => target?,
    };
    let (owner_id, owner) = situation.role(owner)?;
    let mut changes = vec![IdentityChange::Own { object: target.pattern, owner: owner.clone() }];
    if kind != OwnedKind::Schema {
        let (schema, table) = resolved(name)?;
        match (kind, situation.catalog.get(schema, table)) {
            (_, Some(Entry::Virtual(_))) => {
                return Err(SqlError::unsupported("an owner of a table of another service"));
            }
            (OwnedKind::View, Some(entry)) if !matches!(entry, Entry::View(_)) => {
                return Err(SqlError::statement("42809", format!("\"{}\" is not a view", target.name)));
            }
            (_, Some(Entry::Sequence(sequence))) if sequence.owner.is_some() => {
                let message = format!("cannot change owner of sequence \"{table}\"");
                let detail = format!("Sequence \"{table}\" is linked to a table.");
                return Err(SqlError::statement("0A000", message).with_detail(detail));
            }
            (_, Some(Entry::Table(table))) => {
                for sequence in situation.catalog.sequences_of(table.id) {
                    let object = pattern(&of_table(&sequence.schema_name, &sequence.name))?;
                    changes.push(IdentityChange::Own { object, owner: owner.clone() });
                }
            }
            _ => {}
        }
        // As in PostgreSQL the new owner could have made it.
        let is_administrator = situation.view.is_administrator(situation.caller.current());
        if !is_administrator && !may_as(situation, owner_id, Action::TableMake, Object::Schema(schema)) {
            return Err(SqlError::statement("42501", format!("permission denied for schema {schema}")));
        }
    }
    Ok(changes)
}

/// Roles that the caller has the rights of. Errors: 42704, 42501.
fn own_roles(of: &[RoleName], what: &str, situation: &Situation<'_>) -> Result<Vec<(RoleId, String)>, SqlError> {
    let mut roles = Vec::new();
    for role in of {
        let (id, name) = situation.role(role)?;
        if !situation.view.has_rights_of(situation.caller.current(), id) {
            let detail = format!("Only roles with privileges of role \"{name}\" may {what} objects owned by it.");
            let error = SqlError::statement("42501", format!("permission denied to {what} objects"));
            return Err(error.with_detail(detail));
        }
        roles.push((id, name));
    }
    Ok(roles)
}

/// REASSIGN OWNED.
pub(super) fn reassign(
    of: &[RoleName],
    to: &RoleName,
    situation: &Situation<'_>,
) -> Result<Vec<IdentityChange>, SqlError> {
    let from = own_roles(of, "reassign", situation)?;
    let (to_id, to) = situation.role(to)?;
    if !situation.view.has_rights_of(situation.caller.current(), to_id) {
        let detail = format!("Only roles with privileges of role \"{to}\" may reassign objects to it.");
        return Err(SqlError::statement("42501", "permission denied to reassign objects").with_detail(detail));
    }
    Ok(from.into_iter().map(|(_, from)| IdentityChange::Reassign { from, to: to.clone() }).collect())
}

/// The rights that SQL knows: those on tables, schemas and the database.
fn is_of_sql(action: Action) -> bool {
    action.keyword().is_some()
}

/// DROP OWNED: the rights of the roles, and the default privileges of what they create.
pub(super) fn drop_owned_rights(of: &[RoleName], situation: &Situation<'_>) -> Result<Vec<IdentityChange>, SqlError> {
    let mut changes = Vec::new();
    let directory = situation.directory();
    for (id, name) in own_roles(of, "drop", situation)? {
        for key in directory.privileges().keys().filter(|key| key.grantee == id && is_of_sql(key.action)) {
            let (actions, object) = (vec![key.action], key.object.clone());
            let columns = key.column.clone().into_iter().collect();
            let privileges = Privileges { actions, object, columns, grantee: name.clone() };
            changes.push(IdentityChange::Revoke { privileges, option_only: false, cascade: true });
        }
        for key in directory.defaults().keys().filter(|key| key.creator == id || key.grantee == id) {
            changes.push(IdentityChange::Default {
                creator: directory.name_of(key.creator).to_owned(),
                schema: key.schema.clone(),
                kind: key.kind,
                actions: vec![key.action],
                grantee: directory.name_of(key.grantee).to_owned(),
                grant_option: None,
            });
        }
    }
    Ok(changes)
}

/// The objects of roles, as DROP statements in an order in which they can run: views, tables, sequences, schemas.
///
/// Errors: 42704, 42501.
pub(super) fn owned(
    of: &[RoleName],
    situation: &Situation<'_>,
) -> Result<Vec<(ObjectType, Vec<ObjectName>)>, SqlError> {
    let roles = own_roles(of, "drop", situation)?;
    let (mut views, mut tables, mut sequences, mut schemas) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let quoted = |part: &str| Ident::with_quote('"', part);
    for (object, owner) in situation.directory().owners() {
        if !roles.iter().any(|(id, _)| id == owner) {
            continue;
        }
        let (schema, name) = object.parts();
        match (object.kind(), situation.catalog.get(schema, name)) {
            (ObjectKind::Table, Some(Entry::View(_))) => {
                views.push(ObjectName::from(vec![quoted(schema), quoted(name)]));
            }
            (ObjectKind::Table, Some(Entry::Sequence(_))) => {
                sequences.push(ObjectName::from(vec![quoted(schema), quoted(name)]));
            }
            (ObjectKind::Table, Some(_)) => tables.push(ObjectName::from(vec![quoted(schema), quoted(name)])),
            (ObjectKind::Schema, _) if situation.catalog.schemas.contains_key(name) && name != PUBLIC => {
                schemas.push(ObjectName::from(vec![quoted(name)]));
            }
            _ => {}
        }
    }
    let all = [
        (ObjectType::View, views),
        (ObjectType::Table, tables),
        (ObjectType::Sequence, sequences),
        (ObjectType::Schema, schemas),
    ];
    Ok(all.into_iter().filter(|(_, names)| !names.is_empty()).collect())
}

/// Refuses to drop a role that has rights on objects, as PostgreSQL does. What it owns, and what it granted, stands in
/// the way in the identity itself.
///
/// Errors: 2BP01.
pub(super) fn refuse_dependents(id: RoleId, name: &str, situation: &Situation<'_>) -> Result<(), SqlError> {
    let directory = situation.directory();
    let mut depend: Vec<String> = Vec::new();
    let of_role = directory.privileges().keys().filter(|key| key.grantee == id && is_of_sql(key.action));
    depend.extend(of_role.map(|key| format!("privileges for {}", shown(&key.object))));
    let defaults = directory.defaults().keys().filter(|key| key.creator == id || key.grantee == id);
    let default = |_| "default privileges".to_owned();
    depend.extend(defaults.map(default));
    let owned = directory.owners().iter().filter(|(_, owner)| **owner == id);
    depend.extend(owned.map(|(object, _)| format!("owner of {}", shown(object))));
    depend.dedup();
    if depend.is_empty() {
        return Ok(());
    }
    depend.truncate(100);
    let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
    let hint = "Use REASSIGN OWNED, or DROP OWNED, first.";
    Err(SqlError::statement("2BP01", message).with_detail(depend.join("\n")).with_hint(hint))
}

/// An object in PostgreSQL's words.
fn shown(object: &ObjectPattern) -> String {
    if *object == ObjectPattern::node() { format!("database {DATABASE}") } else { object.to_string() }
}
