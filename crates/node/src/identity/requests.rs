//! What is asked of a node's roles and rights over its control socket, and what it reports.
//!
//! ```text
//!   terrace user ..., role ...  --  `identity {"verb": "list"}`  -->  answer
//! ```
//!
//! A password does not go over the socket: the command makes its verifier and its hash.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::Action;
use super::applying::apply;
use super::caller::Caller;
use super::change::{CredentialChange, IdentityChange};
use super::directory::{Directory, PrivilegeKey, PrivilegeOptions};
use super::error::IdentityError;
use super::guard::Guard;
use super::object::Object;
use super::role::{Attributes, LdapUser, OidcUser, RoleId};
use super::token::draw;

/// The word that the request begins with.
pub const REQUEST: &str = "identity";

/// A request.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case")]
pub enum IdentityRequest {
    /// Report all roles.
    List,
    /// Report a role.
    Show {
        /// Its name.
        role: String,
    },
    /// Change roles and rights, all or none.
    Change {
        /// How.
        changes: Vec<IdentityChange>,
    },
    /// Draw a token; its text is in the answer and nowhere else.
    DrawToken {
        /// Of which role.
        role: String,
        /// What it is called.
        name: String,
        /// Until when it is accepted, in microseconds since 1970.
        until_us: Option<i64>,
    },
}

/// What is reported of a role.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RoleReport {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: RoleId,
    /// What it is.
    pub attributes: Attributes,
    /// The kinds of proof that it has.
    pub proofs: Vec<String>,
    /// Its names in client certificates.
    #[serde(default)]
    pub certificates: Vec<String>,
    /// The users of this machine that are it.
    #[serde(default)]
    pub uids: Vec<u32>,
    /// The roles that it is a member of.
    pub member_of: Vec<String>,
    /// Its own privileges, as text.
    pub privileges: Vec<String>,
}

/// Whether a caller may make a request, and it can be done at present: asked before it is recorded as begun, so that one that
/// is refused anyway has one entry, which is bounded. It also takes the caller's [turn](Guard::change_turn). What is then done is
/// decided again.
///
/// Errors: [`IdentityError`].
pub fn check(guard: &Guard, caller: &Caller, request: &IdentityRequest) -> Result<(), IdentityError> {
    let changes = match request {
        IdentityRequest::List => return seen(guard, caller, None).map(drop),
        IdentityRequest::Show { role } => return seen(guard, caller, Some(role)).map(drop),
        IdentityRequest::Change { changes } => changes.clone(),
        IdentityRequest::DrawToken { role, name, until_us } => {
            let change = CredentialChange::AddToken(draw(name, guard.now_us(), *until_us)?.1);
            vec![IdentityChange::Credential { role: role.clone(), change }]
        }
    };
    decide(guard, caller, &changes)?;
    guard.change_turn(caller, &changes).map_err(|error| IdentityError::Invalid(error.to_string()))
}

/// Whether changes would be made: first whether the caller may, and then whether each right that is to be revoked was granted,
/// since the answer to that tells of the rights of others.
fn decide(guard: &Guard, caller: &Caller, changes: &[IdentityChange]) -> Result<(), IdentityError> {
    let view = guard.view();
    let mut tried = Directory::clone(view.directory());
    apply(&mut tried, &view, caller, changes.to_vec(), guard.now_us())?;
    changes.iter().try_for_each(|change| revokes_something(view.directory(), change))
}

/// Does what a caller requests. Blocks while it is made durable.
///
/// Errors: [`IdentityError`].
pub fn answer(guard: &Guard, caller: &Caller, request: IdentityRequest) -> Result<Value, IdentityError> {
    match request {
        IdentityRequest::List => {
            let directory = seen(guard, caller, None)?;
            let now_us = guard.now_us();
            let reports = directory.roles().keys().filter_map(|id| report(&directory, *id, now_us));
            Ok(json!(reports.collect::<Vec<RoleReport>>()))
        }
        IdentityRequest::Show { role } => {
            let directory = seen(guard, caller, Some(&role))?;
            Ok(json!(report(&directory, directory.named(&role)?, guard.now_us())))
        }
        IdentityRequest::Change { changes } => {
            decide(guard, caller, &changes)?;
            guard.change(caller, &changes)?;
            Ok(Value::Null)
        }
        IdentityRequest::DrawToken { role, name, until_us } => {
            let (text, token) = draw(&name, guard.now_us(), until_us)?;
            let change = CredentialChange::AddToken(token);
            guard.change(caller, &[IdentityChange::Credential { role, change }])?;
            Ok(json!({ "token": text }))
        }
    }
}

/// The roles, for who administers users, and for a role that asks about itself.
fn seen(guard: &Guard, caller: &Caller, name: Option<&str>) -> Result<std::sync::Arc<Directory>, IdentityError> {
    let view = guard.view();
    let itself = view.holds(caller).is_ok() && name.is_some() && view.name(caller.session()) == name;
    if !itself {
        let may = view.may(caller, Action::UserAdminister, Object::Node);
        may.map_err(|denied| IdentityError::Denied(denied.to_string()))?;
    }
    Ok(std::sync::Arc::clone(view.directory()))
}

/// Whether there is something to revoke. SQL's REVOKE of what was not granted is no error; who types a command believes
/// that the right is gone, so it says what still gives it.
///
/// Errors: [`IdentityError::Invalid`].
fn revokes_something(directory: &Directory, change: &IdentityChange) -> Result<(), IdentityError> {
    let IdentityChange::Revoke { privileges, .. } = change else { return Ok(()) };
    // A role that the same list makes: the change itself says what is wrong.
    let Ok(grantee) = directory.grantee(&privileges.grantee) else { return Ok(()) };
    for action in &privileges.actions {
        let is_it = |key: &PrivilegeKey| {
            let of_column = key.column.as_ref().is_some_and(|column| privileges.columns.contains(column));
            (key.action, &key.object, key.grantee) == (*action, &privileges.object, grantee)
                && (privileges.columns.is_empty() || of_column)
        };
        if directory.privileges().keys().any(is_it) {
            continue;
        }
        let mut roles = directory.reach(grantee, |_, membership| membership.inherit || membership.set);
        roles.insert(RoleId::PUBLIC);
        let overlaps =
            |key: &PrivilegeKey| key.object.covers(&privileges.object) || privileges.object.covers(&key.object);
        let of_roles = directory.privileges().keys().filter(|key| roles.contains(&key.grantee));
        let still = of_roles.filter(|key| key.action == *action && overlaps(key)).map(|key| {
            let of =
                if key.grantee == grantee { String::new() } else { format!(" to {}", directory.name_of(key.grantee)) };
            let column = key.column.as_ref().map(|column| format!(" ({column})")).unwrap_or_default();
            format!("{}{column} on {}{of}", action.name(), key.object)
        });
        let still: BTreeSet<String> = still.collect();
        let mut text = format!(
            "nothing was revoked: {} on {} was not granted to {}",
            action.name(),
            privileges.object,
            privileges.grantee
        );
        if !still.is_empty() {
            let still: Vec<String> = still.into_iter().collect();
            text.push_str(&format!("; what still gives it: {}", still.join(", ")));
        }
        return Err(IdentityError::Invalid(text));
    }
    Ok(())
}

fn report(directory: &Directory, id: RoleId, now_us: i64) -> Option<RoleReport> {
    let role = directory.roles().get(&id)?;
    let own = &role.credentials;
    let mut proofs = Vec::new();
    if own.scram.is_some() || own.hash.is_some() {
        proofs.push("password".to_owned());
    }
    match own.ldap {
        Some(LdapUser::ByHand) => proofs.push("password in the directory (LDAP)".to_owned()),
        Some(LdapUser::Created) => proofs.push("password in the directory (LDAP), by a group".to_owned()),
        None => {}
    }
    if let Some(OidcUser { by_group, subject }) = &own.oidc {
        let by = if *by_group { ", by a group" } else { "" };
        let of = subject.as_ref().map_or(", not used yet".to_owned(), |subject| format!(", as {subject}"));
        proofs.push(format!("login at the provider (OIDC){by}{of}"));
    }
    proofs.extend(own.tokens.iter().map(|token| format!("token {} (...{})", token.name, token.last)));
    proofs.extend(own.certificates.iter().map(|name| format!("certificate {name}")));
    proofs.extend(own.uids.iter().map(|uid| format!("uid {uid}")));
    let roles = directory.members().keys().filter(|(member, ..)| *member == id);
    // It is a member once, however many made it one.
    let roles: BTreeSet<RoleId> = roles.map(|(_, role, _)| *role).collect();
    let in_time = |options: &PrivilegeOptions| options.until_us.is_none_or(|until| now_us < until);
    let of_role = directory.privileges().iter().filter(|(key, options)| key.grantee == id && in_time(options));
    let privileges = of_role.map(|(key, options)| {
        let column = key.column.as_ref().map(|column| format!(" ({column})")).unwrap_or_default();
        let option = if options.grant_option { " with grant option" } else { "" };
        let by_itself = if key.granted_by == id { " by itself" } else { "" };
        let until = options.until_us.map(|until| format!(" until {}", time(until))).unwrap_or_default();
        let reason = options.reason.as_ref().map(|reason| format!(" because: {reason}")).unwrap_or_default();
        format!("{}{column} on {}{option}{by_itself}{until}{reason}", key.action.name(), key.object)
    });
    Some(RoleReport {
        name: role.name.clone(),
        id,
        attributes: role.attributes.clone(),
        proofs,
        certificates: own.certificates.clone(),
        uids: own.uids.clone(),
        member_of: roles.into_iter().map(|role| directory.name_of(role).to_owned()).collect(),
        privileges: privileges.collect(),
    })
}

/// A time as text.
fn time(us: i64) -> String {
    jiff::Timestamp::from_microsecond(us).map_or_else(|_| us.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use store::{Options, Store};

    use super::*;
    use crate::Clock;
    use crate::identity::scram::Mock;
    use crate::identity::{Credentials, MembershipPart, ObjectPattern, Privileges, Proof, Role};

    #[test]
    fn requests_are_read_as_they_are_written_and_answered_for_who_may() {
        let store = Store::in_memory(Options::default()).expect("there is memory");
        let guard = Guard::open(store, Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
        let user = |name: &str| {
            let credentials = Credentials::default();
            IdentityChange::Create(Role { name: name.into(), attributes: Attributes::user(), credentials })
        };
        let part = MembershipPart::All;
        let leave = IdentityChange::Leave { role: "ann".into(), member: "ben".into(), part, cascade: false };
        for change in [user("ann"), leave] {
            let text = serde_json::to_string(&IdentityRequest::Change { changes: vec![change] }).expect("it is JSON");
            serde_json::from_str::<IdentityRequest>(&text).expect(&text);
        }
        let changes = vec![user("ann"), user("ben")];
        answer(&guard, &Caller::node(), IdentityRequest::Change { changes }).expect("the node may");
        let token = IdentityRequest::DrawToken { role: "ann".into(), name: "ci".into(), until_us: None };
        let drawn = answer(&guard, &Caller::node(), token).expect("the node may");
        let ann = guard.token(drawn["token"].as_str().expect("it is text"), None).expect("it is right");
        assert!(matches!(ann.proof(), Proof::Token(_)));
        let show = |role: &str| IdentityRequest::Show { role: role.into() };
        let shown = answer(&guard, &ann, show("ann")).expect("itself");
        assert!(shown["proofs"][0].as_str().expect("it is text").starts_with("token ci (..."), "{shown}");
        for other in [show("ben"), IdentityRequest::List, IdentityRequest::Change { changes: vec![user("eve")] }] {
            assert!(matches!(answer(&guard, &ann, other), Err(IdentityError::Denied(_))));
        }
        let listed = answer(&guard, &Caller::node(), IdentityRequest::List).expect("the node may");
        assert_eq!(listed.as_array().map(Vec::len), Some(3));
    }
    /// A guard with a user ann, and short words for its requests.
    fn with_ann() -> (std::sync::Arc<Guard>, Clock) {
        let clock = Clock::fixed(1_000_000);
        let store = Store::in_memory(Options::default()).expect("there is memory");
        let guard = Guard::open(store, clock.clone(), Mock::of([7; 32])).expect("it opens");
        let credentials = Credentials::default();
        let ann = Role { name: "ann".into(), attributes: Attributes::user(), credentials };
        guard.change(&Caller::node(), &[IdentityChange::Create(ann)]).expect("the node may");
        (guard, clock)
    }

    fn privileges(action: Action, object: &str, grantee: &str) -> Privileges {
        let object = ObjectPattern::parse(object).expect("it is one");
        Privileges { actions: vec![action], object, columns: Vec::new(), grantee: grantee.into() }
    }

    #[test]
    fn a_broken_glass_is_shown_with_its_end_and_reason_and_not_after_its_end() {
        let (guard, clock) = with_ann();
        let right = privileges(Action::BreakGlass, "node", "ann");
        guard
            .change(&Caller::node(), &[IdentityChange::Grant { privileges: right, grant_option: false }])
            .expect("the node may");
        let ann = guard.trusted("ann", std::net::Ipv4Addr::LOCALHOST.into()).expect("it is trusted");
        let (action, object) = (Action::MessageBody, ObjectPattern::parse("service *").expect("it is one"));
        let broken = IdentityChange::BreakGlass { action, object, until_us: 3_000_000, reason: "an emergency".into() };
        guard.change(&ann, &[broken]).expect("it may");
        let show = || {
            let request = IdentityRequest::Show { role: "ann".into() };
            answer(&guard, &Caller::node(), request).expect("the node may")["privileges"].to_string()
        };
        let shown = show();
        assert!(shown.contains("until 1970-01-01T00:00:03Z because: an emergency"), "{shown}");
        let alert = "ann has taken message-body on service * until 1970-01-01T00:00:03Z, because: an emergency";
        assert_eq!(guard.broken_glass(), [alert]);
        clock.set(3_000_000);
        assert!(guard.broken_glass().is_empty(), "it ends by itself");
        let shown = show();
        assert!(!shown.contains("message-body") && shown.contains("break-glass on node"), "{shown}");
    }

    #[test]
    fn who_may_not_revoke_a_right_does_not_learn_who_has_it() {
        let (guard, _) = with_ann();
        let object = ObjectPattern::parse("service adt").expect("it is one");
        let granted = Privileges { object, ..privileges(Action::MessageMetadata, "service *", "ann") };
        let grant = IdentityChange::Grant { privileges: granted, grant_option: false };
        guard.change(&Caller::node(), &[grant]).expect("the node may");
        let ann = guard.trusted("ann", std::net::Ipv4Addr::LOCALHOST.into()).expect("it is trusted");
        let refusals = ["service adt", "service other"].map(|object| {
            let privileges = privileges(Action::MessageMetadata, object, "ann");
            let change = IdentityChange::Revoke { privileges, option_only: false, cascade: false };
            let request = IdentityRequest::Change { changes: vec![change] };
            let checked = check(&guard, &ann, &request).expect_err("it may not");
            let answered = answer(&guard, &ann, request).expect_err("it may not");
            assert!(
                matches!((&checked, &answered), (IdentityError::Denied(_), IdentityError::Denied(_))),
                "{answered}"
            );
            answered.to_string().replace(object, "X")
        });
        assert_eq!(refusals[0], refusals[1]);
    }

    #[test]
    fn who_is_no_administrator_changes_rights_only_so_fast() {
        let (guard, _) = with_ann();
        let owner = |option| IdentityChange::Grant {
            privileges: privileges(Action::MessageMetadata, "service *", "ann"),
            grant_option: option,
        };
        guard.change(&Caller::node(), &[owner(true)]).expect("the node may");
        let ann = guard.trusted("ann", std::net::Ipv4Addr::LOCALHOST.into()).expect("it is trusted");
        let request = || IdentityRequest::Change {
            changes: vec![IdentityChange::Grant {
                privileges: privileges(Action::MessageMetadata, "service adt", "public"),
                grant_option: false,
            }],
        };
        let allowed = (0..300).filter(|_| check(&guard, &ann, &request()).is_ok()).count();
        assert!((100..110).contains(&allowed), "{allowed}");
        let error = check(&guard, &ann, &request()).expect_err("too fast").to_string();
        assert!(error.contains("wait") && error.contains(" s"), "{error}");
        assert!((0..300).all(|_| check(&guard, &Caller::node(), &request()).is_ok()), "administrators do not wait");
    }

    #[test]
    fn names_of_certificates_and_users_of_the_machine_are_added_and_taken_one_by_one() {
        let (guard, _) = with_ann();
        let change = |change| {
            let change = IdentityChange::Credential { role: "ann".into(), change };
            answer(&guard, &Caller::node(), IdentityRequest::Change { changes: vec![change] }).map(drop)
        };
        let shown = || {
            let shown = answer(&guard, &Caller::node(), IdentityRequest::Show { role: "ann".into() });
            let report: RoleReport = serde_json::from_value(shown.expect("the node may")).expect("a report");
            (report.certificates.join(" "), report.uids, report.proofs.join(", "))
        };
        for name in ["ann.example", "spiffe://clinic/ann"] {
            change(CredentialChange::AddCertificate(name.into())).expect("it is new");
        }
        change(CredentialChange::AddUid(1_000)).expect("it is new");
        let proofs = "certificate ann.example, certificate spiffe://clinic/ann, uid 1000";
        assert_eq!(shown(), ("ann.example spiffe://clinic/ann".into(), vec![1_000], proofs.into()));
        for wrong in [
            CredentialChange::AddCertificate("ann.example".into()),
            CredentialChange::AddCertificate(" x".into()),
            CredentialChange::DropCertificate("eve".into()),
            CredentialChange::AddUid(1_000),
            CredentialChange::AddUid(0),
            CredentialChange::DropUid(7),
        ] {
            assert!(change(wrong.clone()).is_err(), "{wrong:?}");
        }
        change(CredentialChange::DropCertificate("ann.example".into())).expect("it has it");
        change(CredentialChange::DropUid(1_000)).expect("it has it");
        assert_eq!(shown().0, "spiffe://clinic/ann");
        assert!(shown().1.is_empty());
    }

    #[test]
    fn revoking_what_was_not_granted_says_what_still_gives_the_right() {
        let (guard, _) = with_ann();
        let change = |change| answer(&guard, &Caller::node(), IdentityRequest::Change { changes: vec![change] });
        let grant = |object, grantee| IdentityChange::Grant {
            privileges: privileges(Action::MessageMetadata, object, grantee),
            grant_option: false,
        };
        let revoke = |object| IdentityChange::Revoke {
            privileges: privileges(Action::MessageMetadata, object, "ann"),
            option_only: false,
            cascade: false,
        };
        change(grant("service *", "ann")).expect("the node may");
        change(grant("service adt", "public")).expect("the node may");
        let refused = change(revoke("service adt")).expect_err("it is not what was granted").to_string();
        for part in ["nothing was revoked", "message-metadata on service *,", "on service adt to public"] {
            assert!(refused.contains(part), "{part}: {refused}");
        }
        change(revoke("service *")).expect("that is what was granted");
        assert!(change(revoke("service *")).is_err(), "once");
    }
}
