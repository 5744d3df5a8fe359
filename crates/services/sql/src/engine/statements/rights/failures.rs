//! The identity's errors as PostgreSQL's.

use node::identity::{Caller, IdentityChange, IdentityError, RightsView};

use super::privileges::word;
use crate::engine::parse::rights::statement::{OwnedKind, RightsStatement};
use crate::{ErrorFields, SqlError};

/// The error of a statement whose changes the identity refused; `view` is the one that it asked.
pub(super) fn of(
    error: IdentityError,
    statement: &RightsStatement,
    changes: &[IdentityChange],
    (view, caller): (&RightsView, &Caller),
) -> SqlError {
    let text = error.to_string();
    match error {
        IdentityError::Name { why, .. } => {
            SqlError::statement(if why.contains("reserved") { "42939" } else { "42602" }, text)
        }
        IdentityError::NoRole(_) => SqlError::statement("42704", text),
        IdentityError::RoleExists(_) => SqlError::statement("42710", text),
        IdentityError::Cycle { role, member } => {
            SqlError::statement("0LP01", format!("role \"{role}\" is a member of role \"{member}\""))
        }
        IdentityError::Dependents { .. } | IdentityError::Owner { .. } => dependents(statement, text),
        IdentityError::Denied(_) => denied(statement, changes, (view, caller)).with_detail(text),
        IdentityError::Builtin(_) => SqlError::statement("42501", text),
        IdentityError::Ungrantable(_) => SqlError::statement("0LP01", text),
        IdentityError::Password(_) | IdentityError::Invalid(_) => SqlError::value("22023", text),
        IdentityError::LastAdministrator => SqlError::statement("55000", text),
        IdentityError::Store(error) => error.into(),
        IdentityError::Busy => SqlError::Again(text.into()),
        IdentityError::Memory => engine("53200", text),
        IdentityError::Randomness => engine("58030", text),
        IdentityError::Unreadable(_) => engine("XX001", text),
        IdentityError::Imported => engine("XX000", text),
    }
}

fn engine(code: &'static str, text: String) -> SqlError {
    SqlError::Engine(Box::new(ErrorFields::new(code, text)))
}

fn dependents(statement: &RightsStatement, text: String) -> SqlError {
    match statement {
        RightsStatement::DropRoles { names, .. } => {
            let name = names.first().map(String::as_str).unwrap_or_default();
            let message = format!("role \"{name}\" cannot be dropped because some objects depend on it");
            SqlError::statement("2BP01", message).with_detail(text)
        }
        _ => {
            let error = SqlError::statement("2BP01", "dependent privileges exist").with_detail(text);
            error.with_hint("Use CASCADE to revoke them too.")
        }
    }
}

/// PostgreSQL's text for what the caller may not do.
fn denied(statement: &RightsStatement, changes: &[IdentityChange], by: (&RightsView, &Caller)) -> SqlError {
    let message = match statement {
        RightsStatement::CreateRole { .. } => "permission denied to create role".to_owned(),
        RightsStatement::AlterRole { .. } | RightsStatement::AlterGroup { .. } => {
            "permission denied to alter role".to_owned()
        }
        RightsStatement::RenameRole { .. } => "permission denied to rename role".to_owned(),
        RightsStatement::DropRoles { .. } => "permission denied to drop role".to_owned(),
        RightsStatement::Join { roles, .. } => {
            format!("permission denied to grant role \"{}\"", roles.first().map(String::as_str).unwrap_or_default())
        }
        RightsStatement::Leave { roles, .. } => {
            format!("permission denied to revoke role \"{}\"", roles.first().map(String::as_str).unwrap_or_default())
        }
        RightsStatement::Privileges { .. } => for_object(changes, by),
        RightsStatement::Defaults { .. } => "permission denied to change default privileges".to_owned(),
        RightsStatement::Owner { kind, name, .. } => owner(*kind, name, changes, by),
        RightsStatement::Reassign { .. } => "permission denied to reassign objects".to_owned(),
        RightsStatement::DropOwned { .. } => "permission denied to drop objects".to_owned(),
        RightsStatement::SetRole { .. } => "permission denied to set role".to_owned(),
        RightsStatement::SetSession { .. } => "permission denied to set session authorization".to_owned(),
    };
    SqlError::statement("42501", message)
}

/// `permission denied for table x`: the first of the statement's objects that the caller does not own.
fn for_object(changes: &[IdentityChange], (view, caller): (&RightsView, &Caller)) -> String {
    let objects = changes.iter().filter_map(|change| match change {
        IdentityChange::Grant { privileges, .. } | IdentityChange::Revoke { privileges, .. } => {
            Some(&privileges.object)
        }
        _ => None,
    });
    let is_own = |object: &&node::identity::ObjectPattern| {
        view.directory().owners().get(object).is_some_and(|owner| view.has_rights_of(caller.current(), *owner))
    };
    let mut all = objects.clone();
    match objects.clone().find(|object| !is_own(object)).or_else(|| all.next()) {
        Some(object) if object.parts().1.is_empty() => {
            format!("permission denied for database {}", crate::engine::parse::ast::DATABASE)
        }
        Some(object) => format!("permission denied for {} {}", word(object.kind()), object.parts().1),
        None => "permission denied".to_owned(),
    }
}

/// The error of ALTER .. OWNER TO: the caller does not own the object, or could not be its new owner.
fn owner(
    kind: OwnedKind,
    name: &[String],
    changes: &[IdentityChange],
    (view, caller): (&RightsView, &Caller),
) -> String {
    let named = name.last().map(String::as_str).unwrap_or_default();
    if let [IdentityChange::Own { object, owner }] = changes {
        let old = view.directory().owners().get(object);
        if old.is_some_and(|old| view.has_rights_of(caller.current(), *old)) {
            return format!("must be able to SET ROLE \"{owner}\"");
        }
    }
    format!("must be owner of {} {named}", kind.word())
}
