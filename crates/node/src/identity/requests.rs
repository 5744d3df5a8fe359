//! What is asked of a node's roles and rights over its control socket, and what it reports.
//!
//! ```text
//!   terrace user ..., role ...  --  `identity {"verb": "list"}`  -->  answer
//! ```
//!
//! A password does not go over the socket: the command makes its verifier and its hash.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::action::Action;
use super::caller::Caller;
use super::change::{CredentialChange, IdentityChange};
use super::directory::Directory;
use super::error::IdentityError;
use super::guard::Guard;
use super::object::Object;
use super::role::{Attributes, RoleId};
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
    /// The roles that it is a member of.
    pub member_of: Vec<String>,
    /// Its own privileges, as text.
    pub privileges: Vec<String>,
}

/// Does what a caller requests. Blocks while it is made durable.
///
/// Errors: [`IdentityError`].
pub fn answer(guard: &Guard, caller: &Caller, request: IdentityRequest) -> Result<Value, IdentityError> {
    match request {
        IdentityRequest::List => {
            let directory = seen(guard, caller, None)?;
            let all: Vec<RoleReport> = directory.roles().keys().filter_map(|id| report(&directory, *id)).collect();
            Ok(json!(all))
        }
        IdentityRequest::Show { role } => {
            let directory = seen(guard, caller, Some(&role))?;
            Ok(json!(report(&directory, directory.named(&role)?)))
        }
        IdentityRequest::Change { changes } => {
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

fn report(directory: &Directory, id: RoleId) -> Option<RoleReport> {
    let role = directory.roles().get(&id)?;
    let own = &role.credentials;
    let mut proofs = Vec::new();
    if own.scram.is_some() || own.hash.is_some() {
        proofs.push("password".to_owned());
    }
    proofs.extend(own.tokens.iter().map(|token| format!("token {} (...{})", token.name, token.last)));
    proofs.extend(own.certificates.iter().map(|name| format!("certificate {name}")));
    proofs.extend(own.uids.iter().map(|uid| format!("uid {uid}")));
    let roles = directory.members().keys().filter(|(member, _)| *member == id);
    let of_role = directory.privileges().iter().filter(|(key, _)| key.grantee == id);
    let privileges = of_role.map(|(key, options)| {
        let column = key.column.as_ref().map(|column| format!(" ({column})")).unwrap_or_default();
        let option = if options.grant_option { " with grant option" } else { "" };
        let by_itself = if key.granted_by == id { " by itself" } else { "" };
        format!("{}{column} on {}{option}{by_itself}", key.action.name(), key.object)
    });
    Some(RoleReport {
        name: role.name.clone(),
        id,
        attributes: role.attributes.clone(),
        proofs,
        member_of: roles.map(|(_, role)| directory.name_of(*role).to_owned()).collect(),
        privileges: privileges.collect(),
    })
}

#[cfg(test)]
mod tests {
    use store::{Options, Store};

    use super::*;
    use crate::Clock;
    use crate::identity::scram::Mock;
    use crate::identity::{Credentials, MembershipPart, Proof, Role};

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
}
