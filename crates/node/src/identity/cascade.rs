//! What depends on what: rights and memberships that were granted under a grant option or ADMIN OPTION end with it.
//!
//! A grant is *rooted* if its grantor owned the object or had the right of administration; it stays when that changes.
//! Any other grant stands only while its grantor has the option, by a chain of grants that begins at a rooted one. So
//! grants that hold each other up in a circle end together.

use std::collections::BTreeSet;

use super::action::Action;
use super::directory::{Directory, Membership, PrivilegeKey, PrivilegeOptions};
use super::error::IdentityError;
use super::object::ObjectPattern;
use super::role::RoleId;

/// Whether a role has an action on all these objects with grant option.
pub(super) fn has_grant_option(
    directory: &Directory,
    role: RoleId,
    action: Action,
    object: &ObjectPattern,
    column: Option<&str>,
) -> bool {
    let roles = directory.reach(role, |_, membership| membership.inherit);
    directory
        .privileges()
        .iter()
        .any(|(key, options)| roles.contains(&key.grantee) && supports(key, options, action, object, column))
}

/// Whether a privilege is the option to grant another.
fn supports(
    key: &PrivilegeKey,
    options: &PrivilegeOptions,
    action: Action,
    object: &ObjectPattern,
    column: Option<&str>,
) -> bool {
    let covers_column = key.column.is_none() || key.column.as_deref() == column;
    options.grant_option && key.action == action && covers_column && key.object.covers(object)
}

/// Whether a role may make members of another under ADMIN OPTION.
pub(super) fn has_admin_option(directory: &Directory, member: RoleId, role: RoleId) -> bool {
    let roles = directory.reach(member, |_, membership| membership.inherit);
    roles.iter().any(|own| directory.members().get(&(*own, role)).is_some_and(|membership| membership.admin))
}

/// Ends everything whose grantor has no option any more.
///
/// Errors: [`IdentityError::Dependents`] if there is any, and not `cascade`.
pub(super) fn end_dependents(directory: &mut Directory, cascade: bool) -> Result<(), IdentityError> {
    // Memberships first: rights may be granted by way of them. What ends here may end more, until nothing does.
    loop {
        let members = unsupported_members(directory);
        if !members.is_empty() && !cascade {
            return Err(IdentityError::Dependents { count: members.len() });
        }
        members.iter().for_each(|(member, role)| directory.set_member(*member, *role, None));
        let privileges = unsupported_privileges(directory);
        if !privileges.is_empty() && !cascade {
            return Err(IdentityError::Dependents { count: privileges.len() });
        }
        if members.is_empty() && privileges.is_empty() {
            return Ok(());
        }
        privileges.into_iter().for_each(|key| directory.set_privilege(key, None));
    }
}

fn unsupported_privileges(directory: &Directory) -> Vec<PrivilegeKey> {
    let mut left: Vec<(&PrivilegeKey, BTreeSet<RoleId>)> = Vec::new();
    let mut standing: Vec<(&PrivilegeKey, &PrivilegeOptions)> = Vec::new();
    for (key, options) in directory.privileges() {
        match options.rooted {
            true => standing.push((key, options)),
            false => left.push((key, directory.reach(key.granted_by, |_, membership| membership.inherit))),
        }
    }
    loop {
        let before = left.len();
        left.retain(|(key, roles)| {
            let stands = standing.iter().any(|(other, options)| {
                roles.contains(&other.grantee)
                    && supports(other, options, key.action, &key.object, key.column.as_deref())
            });
            if stands && let Some(options) = directory.privileges().get(*key) {
                standing.push((*key, options));
            }
            !stands
        });
        if left.len() == before {
            return left.into_iter().map(|(key, _)| key.clone()).collect();
        }
    }
}

fn unsupported_members(directory: &Directory) -> Vec<(RoleId, RoleId)> {
    type Edge = ((RoleId, RoleId), Membership);
    let all = directory.members().iter().map(|(key, membership)| (*key, *membership));
    let (mut standing, mut left): (Vec<Edge>, Vec<Edge>) = all.partition(|(_, membership)| membership.rooted);
    loop {
        let before = left.len();
        left.retain(|edge @ ((_, role), membership)| {
            let roles = directory.reach(membership.granted_by, |_, membership| membership.inherit);
            let stands =
                standing.iter().any(|((member, of), other)| other.admin && of == role && roles.contains(member));
            if stands {
                standing.push(*edge);
            }
            !stands
        });
        if left.len() == before {
            return left.into_iter().map(|(key, _)| key).collect();
        }
    }
}

/// Ends memberships, rights and defaults of a role that is to be dropped.
///
/// Errors: [`IdentityError::Dependents`] if it granted something to others under an option, and not `cascade`.
pub(super) fn forget_role(directory: &mut Directory, id: RoleId, cascade: bool) -> Result<(), IdentityError> {
    let members: Vec<(RoleId, RoleId)> =
        directory.members().keys().filter(|(member, role)| *member == id || *role == id).copied().collect();
    members.into_iter().for_each(|(member, role)| directory.set_member(member, role, None));
    let privileges: Vec<PrivilegeKey> =
        directory.privileges().keys().filter(|key| key.grantee == id).cloned().collect();
    privileges.into_iter().for_each(|key| directory.set_privilege(key, None));
    let defaults: Vec<_> =
        directory.defaults().keys().filter(|key| key.creator == id || key.grantee == id).cloned().collect();
    defaults.into_iter().for_each(|key| directory.set_default(key, None));
    end_dependents(directory, cascade)
}
