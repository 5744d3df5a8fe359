//! What a role that becomes an administrator lends to others: who can become it by SET ROLE has all that it may.
//!
//! ```text
//!   helpdesk --member, made by helpdesk under its ADMIN OPTION--> bob --ALTER ROLE bob SUPERUSER--> refused: it names helpdesk
//!                                                                   --GRANT admins TO bob------> the same; a directory's group is not given
//!   ann      --member, made by an administrator---------------->  bob                               that was an administrator's decision
//! ```
//!
//! Pure. Whoever administers users without being an administrator must not become one by a role that it made, or that somebody promoted.

use std::collections::BTreeSet;

use super::directory::{Directory, Membership};
use super::error::IdentityError;
use super::role::RoleId;

/// Whether a role is an administrator, or can become one by SET ROLE. Locked ones count: they may be unlocked.
pub(super) fn becomes_administrator(directory: &Directory, role: RoleId) -> bool {
    let is_one = |id: &RoleId| directory.roles().get(id).is_some_and(|role| role.attributes.administrator);
    directory.reach(role, |_, membership| membership.set).iter().any(is_one)
}

/// Whether who is no administrator may change a role, or make members of it, by ADMIN OPTION. Errors: it is an administrator, or can become
/// one.
pub(super) fn check_beneath(directory: &Directory, role: RoleId) -> Result<(), IdentityError> {
    if becomes_administrator(directory, role) {
        let text = "this role is an administrator, or can become one: administrators change it, and its members";
        return Err(IdentityError::Denied(text.into()));
    }
    Ok(())
}

/// Whether a role may be made an administrator, or a member that can become one. Errors: somebody who is none could become it by a membership that no administrator made.
pub(super) fn check(directory: &Directory, role: RoleId) -> Result<(), IdentityError> {
    let by_others: BTreeSet<RoleId> = directory
        .members()
        .iter()
        .filter(|(_, membership)| membership.set && !membership.rooted)
        .map(|((member, ..), _)| *member)
        .collect();
    let comes = |id: &RoleId, rooted_only: bool| {
        let follow = |membership: &Membership| membership.set && (membership.rooted || !rooted_only);
        *id != role && directory.reach(*id, |_, membership| follow(membership)).contains(&role)
    };
    let is_none = |id: &RoleId| directory.roles().get(id).is_some_and(|role| !role.attributes.administrator);
    let gains = |id: &&RoleId| is_none(id) && comes(id, false) && !comes(id, true);
    let Some(first) = by_others.iter().find(gains) else { return Ok(()) };
    let name = |id: RoleId| directory.roles().get(&id).map(|role| role.name.clone()).unwrap_or_default();
    Err(IdentityError::Invalid(format!(
        "role \"{0}\" could become \"{1}\" by a membership that no administrator made: revoke that first, or grant \"{1}\" to \"{0}\" yourself",
        name(*first),
        name(role)
    )))
}
