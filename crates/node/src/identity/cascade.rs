//! What depends on what: rights and memberships that were granted under a grant option or ADMIN OPTION end with it.
//!
//! A grant is *rooted* if its grantor owned the object or had the right of administration; it stays when that changes.
//! Any other grant stands only while its grantor has the option, by a chain of grants that begins at a rooted one. So
//! grants that hold each other up in a circle end together.
//!
//! A role by way of which the grantor has the option may be locked or expire. That ends nothing: the grant is suspended,
//! and gives no right until the role is back. A lock of the grantor itself suspends nothing: what somebody who left has
//! granted stays until it is revoked.

use std::collections::{BTreeMap, BTreeSet};

use super::action::Action;
use super::directory::{Directory, MemberKey, PrivilegeKey, PrivilegeOptions};
use super::error::IdentityError;
use super::object::ObjectPattern;
use super::role::RoleId;

/// What does not stand.
#[derive(Debug, Default)]
pub(super) struct Fallen {
    /// Memberships whose grantor has no ADMIN OPTION.
    pub(super) members: BTreeSet<MemberKey>,
    /// Privileges whose grantor has no grant option.
    pub(super) privileges: BTreeSet<PrivilegeKey>,
}

/// What does not stand if memberships lead through these roles only. `|_| true`: what has ended; roles in force: what is
/// suspended too.
pub(super) fn fallen(directory: &Directory, leads: impl Fn(RoleId) -> bool) -> Fallen {
    let members = directory.members().iter().filter(|(_, membership)| !membership.rooted);
    let privileges = directory.privileges().iter().filter(|(_, options)| !options.rooted);
    let mut fallen = Fallen {
        members: members.map(|(key, _)| *key).collect(),
        privileges: privileges.map(|(key, _)| key.clone()).collect(),
    };
    raise_members(directory, &leads, &mut fallen);
    raise_privileges(directory, &leads, &mut fallen);
    fallen
}

/// The roles whose rights a role has by way of what stands.
fn rights_of(
    directory: &Directory,
    leads: &impl Fn(RoleId) -> bool,
    fallen: &Fallen,
    role: RoleId,
) -> BTreeSet<RoleId> {
    directory.reach(role, |key, membership| membership.inherit && leads(key.1) && !fallen.members.contains(key))
}

/// Finds the memberships that stand after all, from the rooted ones on.
fn raise_members(directory: &Directory, leads: &impl Fn(RoleId) -> bool, fallen: &mut Fallen) {
    loop {
        let stands = |(_, role, granted_by): &&MemberKey| {
            let own = rights_of(directory, leads, fallen, *granted_by);
            directory.members().iter().any(|(key, membership)| {
                membership.admin && key.1 == *role && own.contains(&key.0) && !fallen.members.contains(key)
            })
        };
        let risen: Vec<MemberKey> = fallen.members.iter().filter(stands).copied().collect();
        if risen.is_empty() {
            return;
        }
        risen.iter().for_each(|key| _ = fallen.members.remove(key));
    }
}

/// Finds the privileges that stand after all, from the rooted ones on.
fn raise_privileges(directory: &Directory, leads: &impl Fn(RoleId) -> bool, fallen: &mut Fallen) {
    let grantors: BTreeSet<RoleId> = fallen.privileges.iter().map(|key| key.granted_by).collect();
    let of_grantor = |role: &RoleId| (*role, rights_of(directory, leads, fallen, *role));
    let own: BTreeMap<RoleId, BTreeSet<RoleId>> = grantors.iter().map(of_grantor).collect();
    let givers: Vec<(&PrivilegeKey, &PrivilegeOptions)> =
        directory.privileges().iter().filter(|(_, options)| options.grant_option).collect();
    loop {
        let stands = |key: &&PrivilegeKey| {
            givers.iter().any(|(other, options)| {
                own.get(&key.granted_by).is_some_and(|own| own.contains(&other.grantee))
                    && supports(other, options, key.action, &key.object, key.column.as_deref())
                    && !fallen.privileges.contains(*other)
            })
        };
        let risen: Vec<PrivilegeKey> = fallen.privileges.iter().filter(stands).cloned().collect();
        if risen.is_empty() {
            return;
        }
        risen.iter().for_each(|key| _ = fallen.privileges.remove(key));
    }
}

/// Whether one of these roles has an action on all these objects with grant option.
pub(super) fn has_grant_option(
    directory: &Directory,
    fallen: &Fallen,
    is_own: impl Fn(RoleId) -> bool,
    (action, object, column): (Action, &ObjectPattern, Option<&str>),
) -> bool {
    directory.privileges().iter().any(|(key, options)| {
        is_own(key.grantee) && supports(key, options, action, object, column) && !fallen.privileges.contains(key)
    })
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

/// Whether one of these roles may make members of another under ADMIN OPTION.
pub(super) fn has_admin_option(
    directory: &Directory,
    fallen: &Fallen,
    is_own: impl Fn(RoleId) -> bool,
    role: RoleId,
) -> bool {
    directory
        .members()
        .iter()
        .any(|(key, membership)| membership.admin && key.1 == role && is_own(key.0) && !fallen.members.contains(key))
}

/// Ends everything whose grantor has no option any more.
///
/// Errors: [`IdentityError::Dependents`] if there is any, and not `cascade`.
pub(super) fn end_dependents(directory: &mut Directory, cascade: bool) -> Result<(), IdentityError> {
    let fallen = fallen(directory, |_| true);
    let count = fallen.members.len() + fallen.privileges.len();
    if count > 0 && !cascade {
        return Err(IdentityError::Dependents { count });
    }
    fallen.members.into_iter().for_each(|key| directory.remove_member(key));
    fallen.privileges.into_iter().for_each(|key| directory.set_privilege(key, None));
    Ok(())
}

/// Ends memberships, rights and defaults of a role that is to be dropped.
///
/// Errors: [`IdentityError::Dependents`] if it granted something to others under an option, and not `cascade`.
pub(super) fn forget_role(directory: &mut Directory, id: RoleId, cascade: bool) -> Result<(), IdentityError> {
    let members: Vec<MemberKey> =
        directory.members().keys().filter(|(member, role, _)| *member == id || *role == id).copied().collect();
    members.into_iter().for_each(|key| directory.remove_member(key));
    let privileges: Vec<PrivilegeKey> =
        directory.privileges().keys().filter(|key| key.grantee == id).cloned().collect();
    privileges.into_iter().for_each(|key| directory.set_privilege(key, None));
    let defaults: Vec<_> =
        directory.defaults().keys().filter(|key| key.creator == id || key.grantee == id).cloned().collect();
    defaults.into_iter().for_each(|key| directory.set_default(key, None));
    end_dependents(directory, cascade)
}
