//! GRANT and REVOKE of privileges, and ALTER DEFAULT PRIVILEGES, as changes of the identity.

use node::identity::{Action, IdentityChange, ObjectKind, ObjectPattern, Privileges, RoleId};

use super::objects::{self, Target};
use super::situation::Situation;
use crate::SqlError;
use crate::engine::parse::ast::DATABASE;
use crate::engine::parse::rights::statement::{Direction, Privilege, RightsTarget, RoleName};

/// What ALL means for tables, as in PostgreSQL 16.
const OF_TABLES: [Action; 7] = [
    Action::TableInsert,
    Action::TableSelect,
    Action::TableUpdate,
    Action::TableDelete,
    Action::TableTruncate,
    Action::TableReferences,
    Action::TableTrigger,
];

/// What ALL means for columns.
const OF_COLUMNS: [Action; 4] =
    [Action::TableInsert, Action::TableSelect, Action::TableUpdate, Action::TableReferences];

/// Keywords of privileges that PostgreSQL knows and nothing here has.
const FOREIGN: [&str; 5] = ["temporary", "temp", "execute", "set", "alter system"];

/// The word for a kind of object in PostgreSQL's texts.
pub(super) fn word(kind: ObjectKind) -> &'static str {
    match kind {
        ObjectKind::Node => "database",
        ObjectKind::Schema => "schema",
        _ => "table",
    }
}

/// The actions of a privilege on a kind of object. Errors: 42601, 0LP01, 0A000.
fn actions(privilege: &Privilege, kind: ObjectKind) -> Result<Vec<Action>, SqlError> {
    let has_columns = !privilege.columns.is_empty();
    if has_columns && kind != ObjectKind::Table {
        return Err(SqlError::statement("0LP01", "column privileges are only valid for relations"));
    }
    let Some(keyword) = &privilege.keyword else {
        return Ok(match kind {
            ObjectKind::Table if has_columns => OF_COLUMNS.to_vec(),
            ObjectKind::Table => OF_TABLES.to_vec(),
            ObjectKind::Schema => vec![Action::SchemaUse, Action::TableMake],
            _ => vec![Action::SqlConnect, Action::SchemaMake],
        });
    };
    let of_another = || {
        let is_known = ObjectKind::ALL.iter().any(|other| Action::of_keyword(keyword, *other).is_some());
        is_known || FOREIGN.contains(&keyword.as_str())
    };
    let invalid = |of: &str| format!("invalid privilege type {} for {of}", keyword.to_uppercase());
    match Action::of_keyword(keyword, kind) {
        Some(action) if has_columns && !OF_COLUMNS.contains(&action) => {
            Err(SqlError::statement("0LP01", invalid("column")))
        }
        Some(action) => Ok(vec![action]),
        None if kind == ObjectKind::Node && keyword.starts_with("temp") && of_another() => {
            Err(SqlError::unsupported("the right to create temporary tables"))
        }
        None if of_another() => {
            let of = if kind == ObjectKind::Table { "relation" } else { word(kind) };
            Err(SqlError::statement("0LP01", invalid(of)))
        }
        None => Err(SqlError::statement("42601", format!("unrecognized privilege type \"{keyword}\""))),
    }
}

/// The actions of a privilege on a sequence: USAGE of one is the right `table-insert` on it.
///
/// Errors: 42601, 0LP01.
fn of_sequence(privilege: &Privilege) -> Result<Vec<Action>, SqlError> {
    if !privilege.columns.is_empty() {
        return Err(SqlError::statement("0LP01", "column privileges are only valid for relations"));
    }
    Ok(match privilege.keyword.as_deref() {
        None => vec![Action::TableInsert, Action::TableSelect, Action::TableUpdate],
        Some("usage") => vec![Action::TableInsert],
        Some("select") => vec![Action::TableSelect],
        Some("update") => vec![Action::TableUpdate],
        Some(other) => {
            // A word that is no privilege is refused as one.
            actions(privilege, ObjectKind::Table).or_else(|error| match error.code() {
                "0LP01" => Ok(Vec::new()),
                _ => Err(error),
            })?;
            let message = format!("invalid privilege type {} for sequence", other.to_uppercase());
            return Err(SqlError::statement("0LP01", message));
        }
    })
}

/// The objects that a statement names. Errors: 42P01, 3F000, 3D000.
fn targets(on: &RightsTarget, situation: &Situation<'_>) -> Result<(ObjectKind, Vec<Target>), SqlError> {
    let mut targets = Vec::new();
    let kind = match on {
        RightsTarget::Tables(names) => {
            for name in names {
                targets.push(objects::table(name, situation)?);
            }
            ObjectKind::Table
        }
        RightsTarget::TablesOfSchemas(schemas) => {
            for schema in schemas {
                targets.append(&mut objects::tables_of(schema, situation)?);
            }
            ObjectKind::Table
        }
        RightsTarget::Sequences(names) => {
            for name in names {
                targets.push(objects::sequence(name, situation)?);
            }
            ObjectKind::Table
        }
        RightsTarget::SequencesOfSchemas(schemas) => {
            for schema in schemas {
                targets.append(&mut objects::sequences_of(schema, situation)?);
            }
            ObjectKind::Table
        }
        RightsTarget::Schemas(names) => {
            for name in names {
                targets.push(objects::schema(name, situation)?);
            }
            ObjectKind::Schema
        }
        RightsTarget::Databases(names) => {
            for name in names {
                if name != DATABASE {
                    return Err(SqlError::statement("3D000", format!("database \"{name}\" does not exist")));
                }
                targets.push(Target { pattern: ObjectPattern::node(), name: name.clone(), columns: None });
            }
            ObjectKind::Node
        }
    };
    Ok((kind, targets))
}

/// Changes of one statement at most: a short text names very many by three lists.
const CHANGES_MAX: usize = 10_000;

/// Errors: 54000 if lists of these lengths are too many changes.
pub(super) fn bounded(lists: [usize; 3]) -> Result<(), SqlError> {
    let changes = lists.iter().fold(1_usize, |product, len| product.saturating_mul(*len));
    if changes <= CHANGES_MAX {
        return Ok(());
    }
    let message = format!("the statement makes {changes} changes of rights; at most {CHANGES_MAX} are made at once");
    Err(SqlError::statement("54000", message))
}

/// The changes of GRANT or REVOKE.
pub(super) fn changes(
    privileges: &[Privilege],
    on: &RightsTarget,
    grantees: &[RoleName],
    direction: Direction,
    situation: &Situation<'_>,
) -> Result<Vec<IdentityChange>, SqlError> {
    let (kind, targets) = targets(on, situation)?;
    let grantees: Vec<(String, RoleId)> =
        grantees.iter().map(|name| grantee(name, situation)).collect::<Result<_, _>>()?;
    bounded([privileges.len(), targets.len(), grantees.len()])?;
    let mut changes = Vec::new();
    for privilege in privileges {
        let actions = match on {
            RightsTarget::Sequences(_) | RightsTarget::SequencesOfSchemas(_) => of_sequence(privilege)?,
            _ => actions(privilege, kind)?,
        };
        for target in &targets {
            check_columns(privilege, target)?;
            for (grantee, id) in &grantees {
                check_direction(direction, grantee, *id, target, situation)?;
                let (object, columns) = (target.pattern.clone(), privilege.columns.clone());
                let privileges = Privileges { actions: actions.clone(), object, columns, grantee: grantee.clone() };
                changes.push(match direction {
                    Direction::Grant { option } => IdentityChange::Grant { privileges, grant_option: option },
                    Direction::Revoke { option_only, cascade } => {
                        IdentityChange::Revoke { privileges, option_only, cascade }
                    }
                });
            }
        }
    }
    Ok(changes)
}

fn grantee(name: &RoleName, situation: &Situation<'_>) -> Result<(String, RoleId), SqlError> {
    let id = if *name == RoleName::Public { RoleId::PUBLIC } else { situation.role(name)?.0 };
    Ok((situation.grantee(name)?, id))
}

/// Errors: 42703.
fn check_columns(privilege: &Privilege, target: &Target) -> Result<(), SqlError> {
    let Some(columns) = &target.columns else { return Ok(()) };
    match privilege.columns.iter().find(|column| !columns.contains(column)) {
        Some(column) => {
            let message = format!("column \"{column}\" of relation \"{}\" does not exist", target.name);
            Err(SqlError::statement("42703", message))
        }
        None => Ok(()),
    }
}

/// Errors: 0LP01 for a grant option of everyone, 0A000 for what would leave an owner without its rights.
fn check_direction(
    direction: Direction,
    grantee: &str,
    id: RoleId,
    target: &Target,
    situation: &Situation<'_>,
) -> Result<(), SqlError> {
    if direction == (Direction::Grant { option: true }) && id == RoleId::PUBLIC {
        return Err(SqlError::statement("0LP01", "grant options can only be granted to roles"));
    }
    let is_owner = situation.directory().owners().get(&target.pattern) == Some(&id);
    if matches!(direction, Direction::Revoke { .. }) && is_owner {
        let error =
            SqlError::unsupported(format!("revoking the rights of \"{grantee}\", who owns \"{}\",", target.name));
        return Err(error.with_hint("An owner always has all rights: give the object to another role."));
    }
    Ok(())
}

/// The changes of ALTER DEFAULT PRIVILEGES.
pub(super) fn defaults(
    (creators, schemas): (&[RoleName], &[String]),
    privileges: &[Privilege],
    kind: ObjectKind,
    grantees: &[RoleName],
    direction: Direction,
    situation: &Situation<'_>,
) -> Result<Vec<IdentityChange>, SqlError> {
    if kind == ObjectKind::Schema && !schemas.is_empty() {
        let message = "cannot use IN SCHEMA clause when using GRANT/REVOKE ON SCHEMAS";
        return Err(SqlError::statement("0LP01", message));
    }
    let creators = if creators.is_empty() { &[RoleName::Current][..] } else { creators };
    for schema in schemas {
        objects::schema(schema, situation)?;
    }
    let all = [None];
    let schemas: Vec<Option<String>> = schemas.iter().cloned().map(Some).collect();
    let schemas = if schemas.is_empty() { &all[..] } else { &schemas };
    bounded([creators.len(), grantees.len(), schemas.len().saturating_mul(privileges.len())])?;
    let mut changes = Vec::new();
    for creator in creators {
        let (creator_id, creator) = situation.role(creator)?;
        for name in grantees {
            let (grantee, grantee_id) = grantee(name, situation)?;
            if direction == (Direction::Grant { option: true }) && grantee_id == RoleId::PUBLIC {
                return Err(SqlError::statement("0LP01", "grant options can only be granted to roles"));
            }
            for (schema, privilege) in schemas.iter().flat_map(|schema| privileges.iter().map(move |one| (schema, one)))
            {
                for action in actions(privilege, kind)? {
                    let key = node::identity::DefaultPrivilege {
                        creator: creator_id,
                        schema: schema.clone(),
                        kind,
                        action,
                        grantee: grantee_id,
                    };
                    let had = situation.directory().defaults().get(&key).copied();
                    let grant_option = match (direction, had) {
                        (Direction::Grant { option }, had) => Some(option || had.unwrap_or(false)),
                        (Direction::Revoke { option_only: true, .. }, Some(_)) => Some(false),
                        (Direction::Revoke { option_only: true, .. }, None) => continue,
                        (Direction::Revoke { option_only: false, .. }, _) => None,
                    };
                    changes.push(IdentityChange::Default {
                        creator: creator.clone(),
                        schema: schema.clone(),
                        kind,
                        actions: vec![action],
                        grantee: grantee.clone(),
                        grant_option,
                    });
                }
            }
        }
    }
    Ok(changes)
}
