//! What a statement about roles and rights changes: a pure translation to the identity's [`IdentityChange`]s.
//!
//! | PostgreSQL | here |
//! |---|---|
//! | SUPERUSER | the attribute `administrator` |
//! | CREATEROLE | the right `user-administer` on the node |
//! | VALID UNTIL | the end of the role's logins and sessions, not of its password alone |
//! | DATABASE | the node |
//!
//! What must exist is looked up here, in PostgreSQL's order, with its errors. Who may change what is decided by the
//! identity, when the changes are applied.

use node::identity::{
    Action, AttributeChange, Attributes, CredentialChange, Credentials, IdentityChange, MembershipPart, Object,
    ObjectPattern, Privileges, Role,
};

use super::situation::Situation;
use super::{objects, privileges};
use crate::SqlError;
use crate::engine::parse::rights::statement::{MembershipOptions, RightsStatement, RoleName, RoleOptions};
use crate::text::calendar;

/// The changes that a statement makes; none for those that act on the session or drop objects.
///
/// Errors: those of PostgreSQL for names and options.
pub(super) fn of(statement: &RightsStatement, situation: &Situation<'_>) -> Result<Vec<IdentityChange>, SqlError> {
    match statement {
        RightsStatement::CreateRole { name, options } => create(name, options, situation),
        RightsStatement::AlterRole { role, options } => alter(role, options, situation),
        RightsStatement::RenameRole { name, to } => rename(name, to, situation),
        RightsStatement::AlterGroup { group, adds, members } => {
            let (_, group) = situation.role(group)?;
            let options = MembershipOptions::default();
            match adds {
                true => join(&[group], members, options, situation),
                false => leave(&[group], members, statement, situation),
            }
        }
        RightsStatement::DropRoles { names, if_exists } => drop_roles(names, *if_exists, situation),
        RightsStatement::Join { roles, members, options, granted_by } => {
            situation.check_grantor(granted_by.as_ref())?;
            join(roles, members, *options, situation)
        }
        RightsStatement::Leave { roles, members, granted_by, .. } => {
            situation.check_grantor(granted_by.as_ref())?;
            leave(roles, members, statement, situation)
        }
        RightsStatement::Privileges { privileges, on, grantees, granted_by, direction } => {
            situation.check_grantor(granted_by.as_ref())?;
            privileges::changes(privileges, on, grantees, *direction, situation)
        }
        RightsStatement::Defaults { creators, schemas, privileges, kind, grantees, direction } => {
            privileges::defaults((creators, schemas), privileges, *kind, grantees, *direction, situation)
        }
        RightsStatement::Owner { kind, name, if_exists, owner } => {
            objects::owner(*kind, name, *if_exists, owner, situation)
        }
        RightsStatement::Reassign { of, to } => objects::reassign(of, to, situation),
        RightsStatement::DropOwned { of, .. } => objects::drop_owned_rights(of, situation),
        RightsStatement::SetRole { .. } | RightsStatement::SetSession { .. } => Ok(Vec::new()),
    }
}

/// The attributes that options set.
fn attributes(options: &RoleOptions) -> Result<Vec<AttributeChange>, SqlError> {
    let mut changes = Vec::new();
    changes.extend(options.superuser.map(AttributeChange::Administrator));
    changes.extend(options.inherit.map(AttributeChange::Inherit));
    changes.extend(options.login.map(AttributeChange::Login));
    changes.extend(options.connection_limit.map(|limit| AttributeChange::ConnectionLimit(u32::try_from(limit).ok())));
    if let Some(until) = &options.valid_until {
        changes.push(AttributeChange::Until(moment(until)?));
    }
    Ok(changes)
}

/// A time in microseconds since 1970; `None`: infinity. Errors: 22007.
fn moment(text: &str) -> Result<Option<i64>, SqlError> {
    if text.trim().eq_ignore_ascii_case("infinity") {
        return Ok(None);
    }
    let message = || format!("invalid input syntax for type timestamp with time zone: \"{text}\"");
    calendar::parse_timestamptz(text).map(Some).ok_or_else(|| SqlError::value("22007", message()))
}

/// CREATEROLE.
fn administers(name: &str) -> Privileges {
    let (object, columns) = (ObjectPattern::node(), Vec::new());
    Privileges { actions: vec![Action::UserAdminister], object, columns, grantee: name.into() }
}

fn create(name: &str, options: &RoleOptions, situation: &Situation<'_>) -> Result<Vec<IdentityChange>, SqlError> {
    let mut own = Attributes::default();
    attributes(options)?.into_iter().for_each(|change| own.set(change));
    let role = Role { name: name.into(), attributes: own, credentials: situation.credentials.clone() };
    let mut changes = vec![IdentityChange::Create(role)];
    if options.create_role == Some(true) {
        changes.push(IdentityChange::Grant { privileges: administers(name), grant_option: false });
    }
    let joined =
        |role: String, member: String, admin| IdentityChange::Join { role, member, admin, inherit: None, set: true };
    for role in &options.member_of {
        changes.push(joined(situation.role(role)?.1, name.into(), false));
    }
    for (members, admin) in [(&options.members, false), (&options.admins, true)] {
        for member in members {
            changes.push(joined(name.into(), situation.role(member)?.1, admin));
        }
    }
    Ok(changes)
}

fn alter(role: &RoleName, options: &RoleOptions, situation: &Situation<'_>) -> Result<Vec<IdentityChange>, SqlError> {
    let (id, name) = situation.role(role)?;
    let mut changes = Vec::new();
    let attributes = attributes(options)?;
    if !attributes.is_empty() {
        changes.push(IdentityChange::Set { role: name.clone(), changes: attributes });
    }
    if options.password.is_some() {
        let Credentials { scram, hash, .. } = situation.credentials.clone();
        let change = CredentialChange::Password { scram, hash, must_change: false };
        changes.push(IdentityChange::Credential { role: name.clone(), change });
    }
    let node = ObjectPattern::node();
    let has_it = situation
        .directory()
        .privileges()
        .keys()
        .any(|key| key.grantee == id && key.action == Action::UserAdminister && key.object == node);
    match options.create_role {
        Some(true) => changes.push(IdentityChange::Grant { privileges: administers(&name), grant_option: false }),
        Some(false) if has_it => {
            let privileges = administers(&name);
            changes.push(IdentityChange::Revoke { privileges, option_only: false, cascade: false });
        }
        _ => {}
    }
    Ok(changes)
}

fn rename(name: &str, to: &str, situation: &Situation<'_>) -> Result<Vec<IdentityChange>, SqlError> {
    let id = situation.named(name)?;
    if let Some(which) = situation.is_in_use(id) {
        return Err(SqlError::statement("0A000", format!("{which} user cannot be renamed")));
    }
    Ok(vec![IdentityChange::Rename { role: name.into(), to: to.into() }])
}

fn drop_roles(names: &[String], if_exists: bool, situation: &Situation<'_>) -> Result<Vec<IdentityChange>, SqlError> {
    let mut changes = Vec::new();
    for name in names {
        let id = match situation.named(name) {
            Ok(id) => id,
            Err(_) if if_exists => continue,
            Err(error) => return Err(error),
        };
        if let Some(which) = situation.is_in_use(id) {
            return Err(SqlError::statement("55006", format!("{which} user cannot be dropped")));
        }
        // Who may drop no role is refused for that, and does not see what depends on this one.
        if situation.view.may(situation.caller, Action::UserAdminister, Object::Node).is_ok() {
            objects::refuse_dependents(id, name, situation)?;
        }
        changes.push(IdentityChange::Drop { role: name.clone(), cascade: false });
    }
    Ok(changes)
}

/// GRANT role. As in PostgreSQL 16, options that are not given stay as they were.
fn join(
    roles: &[String],
    members: &[RoleName],
    options: MembershipOptions,
    situation: &Situation<'_>,
) -> Result<Vec<IdentityChange>, SqlError> {
    privileges::bounded([roles.len(), members.len(), 1])?;
    let mut changes = Vec::new();
    for role in roles {
        let id = situation.named(role)?;
        for member in members {
            let (member_id, member) = situation.role(member)?;
            let key = (member_id, id, situation.caller.session());
            let had = situation.directory().members().get(&key);
            changes.push(IdentityChange::Join {
                role: role.clone(),
                member,
                admin: options.admin.unwrap_or(had.is_some_and(|had| had.admin)),
                inherit: options.inherit.or(had.map(|had| had.inherit)),
                set: options.set.unwrap_or(had.is_none_or(|had| had.set)),
            });
        }
    }
    Ok(changes)
}

/// REVOKE role. As in PostgreSQL it is no error if there is no membership.
fn leave(
    roles: &[String],
    members: &[RoleName],
    statement: &RightsStatement,
    situation: &Situation<'_>,
) -> Result<Vec<IdentityChange>, SqlError> {
    let (part, cascade) = match statement {
        RightsStatement::Leave { part, cascade, .. } => (*part, *cascade),
        _ => (MembershipPart::All, false),
    };
    privileges::bounded([roles.len(), members.len(), 1])?;
    let mut changes = Vec::new();
    for role in roles {
        let id = situation.named(role)?;
        for member in members {
            let (member_id, member) = situation.role(member)?;
            let is_member = situation.directory().members().keys().any(|key| (key.0, key.1) == (member_id, id));
            if is_member {
                changes.push(IdentityChange::Leave { role: role.clone(), member, part, cascade });
            }
        }
    }
    Ok(changes)
}
