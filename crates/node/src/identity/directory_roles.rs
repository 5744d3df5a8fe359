//! The memberships that a directory (LDAP), or a provider of logins (OIDC), gives its users: what they are to be, as a change of the
//! roles; pure.
//!
//! They are memberships of one grantor of their own ([`RoleId::LDAP`], [`RoleId::OIDC`]), so what people granted stays what it is, and
//! all of what the directory gave is replaced as one at each login and recheck. They stand by themselves and carry no ADMIN OPTION: a directory says
//! who is in a group, and not who may add to it.

use std::collections::BTreeSet;

use super::caller::{Caller, Proof};
use super::cascade;
use super::directory::{Directory, MemberKey, Membership};
use super::error::IdentityError;
use super::promoting;
use super::role::{Attributes, Credentials, LdapUser, OidcUser, Role, RoleId, check_name};

/// The roles that a user is to be a member of: those of these names that are there, would not make a circle, and are not
/// [withheld](is_withheld).
fn wanted(directory: &Directory, user: RoleId, roles: &[String]) -> BTreeSet<RoleId> {
    let known = roles.iter().filter_map(|name| directory.named(name).ok());
    let can_be =
        |role: &RoleId| *role != user && *role != RoleId::LOCAL && !directory.reach(*role, |_, _| true).contains(&user);
    known.filter(can_be).filter(|role| !is_withheld(directory, user, *role)).collect()
}

/// Whether a membership would make a user an administrator whom somebody can become by a membership that no administrator made.
fn is_withheld(directory: &Directory, user: RoleId, role: RoleId) -> bool {
    promoting::becomes_administrator(directory, role) && promoting::check(directory, user).is_err()
}

/// The roles of these names that a user is in by its groups, and does not get for what others could become by it: an administrator decides.
pub(super) fn withheld<'r>(directory: &Directory, user: &str, roles: &'r [String]) -> Vec<&'r str> {
    let Ok(user) = directory.named(user) else { return Vec::new() };
    let is = |name: &&str| directory.named(name).is_ok_and(|role| is_withheld(directory, user, role));
    roles.iter().map(String::as_str).filter(is).collect()
}

fn given(directory: &Directory, user: RoleId, by: RoleId) -> BTreeSet<MemberKey> {
    let (first, last) = ((user, RoleId(0), RoleId(0)), (user, RoleId(u32::MAX), RoleId(u32::MAX)));
    directory.members().range(first..=last).map(|(key, _)| *key).filter(|key| key.2 == by).collect()
}

/// The roles of these names that are not there: an operator makes them.
pub(super) fn missing<'r>(directory: &Directory, roles: &'r [String]) -> Vec<&'r str> {
    roles.iter().map(String::as_str).filter(|name| directory.named(name).is_err()).collect()
}

/// Whether a user has the memberships of these roles by the directory (or the provider), and no others by it.
pub(super) fn are_given(directory: &Directory, user: RoleId, by: RoleId, roles: &[String]) -> bool {
    let given: BTreeSet<RoleId> = given(directory, user, by).into_iter().map(|(_, role, _)| role).collect();
    given == wanted(directory, user, roles)
}

/// Makes what the directory says of a user so. Nobody but the node says it for the directory. `create`: the user's role is made
/// where it is not there.
///
/// Errors: [`IdentityError`]; the directory must not be used any more.
pub(super) fn apply(
    directory: &mut Directory,
    caller: &Caller,
    (user, create): (String, bool),
    roles: &[String],
) -> Result<(), IdentityError> {
    by_node(caller)?;
    let id = match directory.named(&user) {
        Ok(id) => id,
        Err(_) if create => {
            check_name(&user)?;
            let credentials = Credentials { ldap: Some(LdapUser::Created), ..Credentials::default() };
            directory.add_role(Role { name: user, attributes: Attributes::user(), credentials })
        }
        Err(error) => return Err(error),
    };
    // It may have got a password here meanwhile.
    if directory.roles().get(&id).is_none_or(|role| role.credentials.ldap.is_none()) {
        return Err(IdentityError::Invalid("the role is none of the directory's".into()));
    }
    give(directory, id, RoleId::LDAP, roles);
    // There is nobody to ask: what the user granted by a role that it has lost goes with it.
    cascade::end_dependents(directory, true)
}

fn by_node(caller: &Caller) -> Result<(), IdentityError> {
    match caller.proof() {
        Proof::Node => Ok(()),
        _ => Err(IdentityError::Denied("only the directory, and the provider, say who is in their groups".into())),
    }
}

/// Makes what a provider of logins says of a user so. Nobody but the node says it for the provider. `create`: the user's role is made
/// where it is not there.
///
/// Errors: [`IdentityError`], also if the role is none of the provider's, or of another person there; the directory must not be used any
/// more.
pub(super) fn apply_provider(
    directory: &mut Directory,
    caller: &Caller,
    (user, create, subject): (String, bool, String),
    roles: &[String],
) -> Result<(), IdentityError> {
    by_node(caller)?;
    let id = match directory.named(&user) {
        Ok(id) => id,
        Err(_) if create => {
            check_name(&user)?;
            let oidc = Some(OidcUser { by_group: true, subject: Some(subject.clone()) });
            let credentials = Credentials { oidc, ..Credentials::default() };
            directory.add_role(Role { name: user, attributes: Attributes::user(), credentials })
        }
        Err(error) => return Err(error),
    };
    let role = directory.roles().get(&id).cloned();
    let Some((mut role, own)) = role.and_then(|role| role.credentials.oidc.clone().map(|own| (role, own))) else {
        return Err(IdentityError::Invalid("the role is none of the provider's".into()));
    };
    match own.subject {
        Some(other) if other != subject => {
            return Err(IdentityError::Invalid("the role is of another person at the provider".into()));
        }
        Some(_) => {}
        None => {
            role.credentials.oidc = Some(OidcUser { subject: Some(subject), ..own });
            directory.set_role(id, Some(role));
        }
    }
    give(directory, id, RoleId::OIDC, roles);
    cascade::end_dependents(directory, true)
}

/// Gives a user these memberships by the directory or the provider, and takes the others by it away.
fn give(directory: &mut Directory, user: RoleId, granted_by: RoleId, roles: &[String]) {
    let wanted = wanted(directory, user, roles);
    for key in given(directory, user, granted_by) {
        if !wanted.contains(&key.1) {
            directory.remove_member(key);
        }
    }
    for role in wanted {
        if !directory.members().contains_key(&(user, role, granted_by)) {
            let membership = Membership { admin: false, inherit: true, set: true, granted_by, rooted: true };
            directory.add_member(user, role, membership);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(ToString::to_string).collect()
    }

    fn with_groups() -> Directory {
        let mut directory = Directory::default();
        for name in ["doctors", "nurses", "icu"] {
            let (attributes, credentials) = (Attributes::default(), Credentials::default());
            directory.add_role(Role { name: name.into(), attributes, credentials });
        }
        directory
    }

    fn roles_of(directory: &Directory, user: &str) -> Vec<String> {
        let id = directory.named(user).expect("it is there");
        given(directory, id, RoleId::LDAP).into_iter().map(|(_, role, _)| directory.name_of(role).to_owned()).collect()
    }

    #[test]
    fn what_the_directory_gave_is_replaced_and_what_people_granted_stays() {
        let mut directory = with_groups();
        let node = Caller::node();
        apply(&mut directory, &node, ("ann".into(), true), &names(&["doctors", "nobody", "ann"])).expect("it is made");
        let ann = directory.named("ann").expect("it is there");
        assert_eq!(directory.roles()[&ann].credentials.ldap, Some(LdapUser::Created));
        let icu = directory.named("icu").expect("it is there");
        let granted_by = RoleId::LOCAL;
        let by_hand = Membership { admin: true, inherit: true, set: true, granted_by, rooted: true };
        directory.add_member(ann, icu, by_hand);
        assert_eq!(roles_of(&directory, "ann"), ["doctors"]);
        assert!(are_given(&directory, ann, RoleId::LDAP, &names(&["doctors", "nobody"])));
        drop(directory.take_writes());
        for (roles, expected) in
            [(&["nurses", "icu"][..], &["nurses", "icu"][..]), (&[], &[]), (&["doctors"], &["doctors"])]
        {
            assert!(!are_given(&directory, ann, RoleId::LDAP, &names(roles)));
            apply(&mut directory, &node, ("ann".into(), false), &names(roles)).expect("it is changed");
            assert_eq!(roles_of(&directory, "ann"), expected);
            assert!(directory.members().contains_key(&(ann, icu, granted_by)), "granted by hand");
        }
        drop(directory.take_writes());
        apply(&mut directory, &node, ("ann".into(), false), &names(&["doctors"])).expect("it is the same");
        assert!(directory.take_writes().is_empty(), "nothing is written for nothing");
    }

    #[test]
    fn only_the_node_says_it_and_of_users_of_the_directory_only() {
        let mut directory = with_groups();
        let ann = Caller::of(RoleId::FIRST, Proof::Password, None);
        assert!(apply(&mut directory, &ann, ("ann".into(), true), &names(&["doctors"])).is_err());
        let node = Caller::node();
        for (user, create) in [("nobody", false), ("doctors", true), ("pg_ann", true), ("terrace_local", true)] {
            assert!(apply(&mut directory, &node, (user.into(), create), &names(&["icu"])).is_err(), "{user}");
        }
        assert!(directory.members().is_empty());
    }

    #[test]
    fn a_user_of_the_provider_is_one_person_there_and_has_its_groups_beside_those_of_others() {
        let mut directory = with_groups();
        let node = Caller::node();
        let mut say = |user: &str, create, subject: &str, roles: &[&str]| {
            let mut tried = directory.clone();
            let said = apply_provider(&mut tried, &node, (user.into(), create, subject.into()), &names(roles));
            if said.is_ok() {
                directory = tried;
            }
            (said.is_ok(), directory.clone())
        };
        assert!(!say("ann", false, "1", &["doctors"]).0, "nobody made it");
        assert!(say("ann", true, "1", &["doctors", "nobody"]).0);
        assert!(!say("ann", false, "2", &["nurses"]).0, "another person of the name");
        let (said, now) = say("ann", false, "1", &["nurses"]);
        let ann = now.named("ann").expect("it is there");
        let groups: Vec<_> =
            given(&now, ann, RoleId::OIDC).into_iter().map(|key| now.name_of(key.1).to_owned()).collect();
        assert!(said && groups == ["nurses"] && given(&now, ann, RoleId::LDAP).is_empty(), "{groups:?}");
        assert!(!say("doctors", true, "1", &[]).0, "a role that is none of the provider's");
        let stranger = Caller::of(RoleId::FIRST, Proof::Password, None);
        assert!(apply_provider(&mut directory, &stranger, ("ann".into(), false, "1".into()), &[]).is_err());
        // Made by hand: the first person counts.
        let credentials = Credentials { oidc: Some(OidcUser::default()), ..Credentials::default() };
        directory.add_role(Role { name: "ben".into(), attributes: Attributes::user(), credentials });
        for (subject, expected) in [("7", true), ("8", false), ("7", true)] {
            let mut tried = directory.clone();
            let said = apply_provider(&mut tried, &node, ("ben".into(), false, subject.into()), &[]);
            assert_eq!(said.is_ok(), expected, "{subject}");
            if said.is_ok() {
                directory = tried;
            }
        }
    }

    #[test]
    fn a_group_never_makes_a_circle_of_roles_or_the_nodes_own_role() {
        let mut directory = with_groups();
        let node = Caller::node();
        apply(&mut directory, &node, ("ann".into(), true), &[]).expect("it is made");
        let (ann, icu) = (directory.named("ann").expect("there"), directory.named("icu").expect("there"));
        let within = Membership { admin: false, inherit: true, set: true, granted_by: RoleId::LOCAL, rooted: true };
        directory.add_member(icu, ann, within);
        apply(&mut directory, &node, ("ann".into(), false), &names(&["icu", "terrace_local", "doctors"]))
            .expect("it is");
        assert_eq!(roles_of(&directory, "ann"), ["doctors"]);
    }
}
