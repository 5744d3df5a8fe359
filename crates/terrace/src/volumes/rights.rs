//! Who may request what of volumes: each request is mapped to one action, and the node's rights decide.
//!
//! ```text
//!   request --action_of--> action, volumes --> every one allowed?  --> VolumeHost::handle
//!                                              status of all: those that may be seen
//! ```
//!
//! Invariants: a new verb does not compile without an action; the right is asked for before a volume is looked up, so a
//! volume without a right is refused as one that is not there.
//!
//! Sessions over NBD are the server's: it asks the same rights for each export.

use node::identity::{Action, Caller, Object, RightsView};
use serde_json::Value;

use super::host::VolumeHost;
use super::requests::VolumeRequest;

/// The volumes that a request is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Concerned<'a> {
    /// These.
    Named(&'a [String]),
    /// All: those that the caller has no right to are left out.
    All,
}

/// What a request does, and to which volumes.
pub fn action_of(request: &VolumeRequest) -> (Action, Concerned<'_>) {
    let one = |name| Concerned::Named(std::slice::from_ref(name));
    match request {
        VolumeRequest::Status { names } if names.is_empty() => (Action::VolumeList, Concerned::All),
        VolumeRequest::Status { names } => (Action::VolumeList, Concerned::Named(names)),
        VolumeRequest::Create(new) => (Action::VolumeAdminister, one(&new.name)),
        VolumeRequest::Replace { name, .. }
        | VolumeRequest::Scrub { name }
        | VolumeRequest::Grow { name, .. }
        | VolumeRequest::Limit { name, .. }
        | VolumeRequest::Rekey { name, .. }
        | VolumeRequest::AcceptLoss { name }
        | VolumeRequest::Delete { name } => (Action::VolumeAdminister, one(name)),
        VolumeRequest::Export { name, .. } | VolumeRequest::Unexport { name } => (Action::VolumeExport, one(name)),
    }
}

/// Refuses a request that a caller has no right to.
///
/// # Errors
/// The right that is missing; nothing about the volume, not even whether it is there.
pub fn check(view: &RightsView, caller: &Caller, request: &VolumeRequest) -> anyhow::Result<()> {
    match action_of(request) {
        // What may not be seen is left out of the answer.
        (_, Concerned::All) => Ok(view.holds(caller)?),
        (action, Concerned::Named(names)) => {
            for name in names {
                view.may(caller, action, Object::Volume(name))?;
            }
            Ok(())
        }
    }
}

/// Does what a caller requests, by its rights. It may take as long as reading all of a volume.
///
/// # Errors
/// Those of [`check`], and of [`VolumeHost::handle`].
pub fn handle(host: &VolumeHost, view: &RightsView, caller: &Caller, request: VolumeRequest) -> anyhow::Result<Value> {
    check(view, caller, &request)?;
    let is_of_all = action_of(&request) == (Action::VolumeList, Concerned::All);
    let answer = host.handle(request)?;
    Ok(if is_of_all { visible(view, caller, answer) } else { answer })
}

/// The reports of the volumes that a caller may see.
fn visible(view: &RightsView, caller: &Caller, mut reports: Value) -> Value {
    let may_see = |report: &Value| {
        report["name"].as_str().is_some_and(|name| view.may(caller, Action::VolumeList, Object::Volume(name)).is_ok())
    };
    match reports.as_array_mut() {
        Some(reports) => reports.retain(may_see),
        None => reports = Value::Null,
    }
    reports
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use node::Clock;
    use node::identity::scram::Mock;
    use node::identity::{
        AttributeChange, Attributes, Credentials, Guard, IdentityChange, ObjectPattern, Privileges, Role,
    };
    use serde_json::json;

    use super::*;

    /// A request of each verb, about the volume `v`.
    fn requests() -> Vec<(VolumeRequest, Action)> {
        let create = json!({
            "verb": "create", "name": "v", "kind": "mirror", "bytes": 4096, "copies": [], "min_copies": null,
            "prefer": null, "iops": null, "bytes_per_second": null, "upkeep_bytes_per_second": null,
            "share_tiers": false, "key_file": null,
        });
        let named = |verb: &str, more: Value| {
            let mut request = json!({ "verb": verb, "name": "v" });
            let more = more.as_object().expect("fields").clone();
            request.as_object_mut().expect("fields").extend(more);
            request
        };
        [
            (create, Action::VolumeAdminister),
            (json!({ "verb": "status", "names": ["v"] }), Action::VolumeList),
            (named("replace", json!({ "copy": 1, "wanted": null })), Action::VolumeAdminister),
            (named("scrub", json!({})), Action::VolumeAdminister),
            (named("grow", json!({ "bytes": 1 })), Action::VolumeAdminister),
            (named("limit", json!({ "iops": 1 })), Action::VolumeAdminister),
            (named("rekey", json!({ "key_file": "key", "new_data_key": false })), Action::VolumeAdminister),
            (named("export", json!({ "read_only": false })), Action::VolumeExport),
            (named("unexport", json!({})), Action::VolumeExport),
            (named("accept-loss", json!({})), Action::VolumeAdminister),
            (named("delete", json!({})), Action::VolumeAdminister),
        ]
        .map(|(text, action)| (serde_json::from_value(text).expect("a request"), action))
        .into()
    }

    /// The requests that a system test sends without a right.
    const EXAMPLES: &str = include_str!("../../tests/main/access/volume_requests.txt");

    #[test]
    fn the_walk_from_outside_sends_a_request_of_each_kind() {
        let number = |request: &VolumeRequest| match request {
            VolumeRequest::Create(_) => 0,
            VolumeRequest::Status { names } => 1 + usize::from(names.is_empty()),
            VolumeRequest::Replace { .. } => 3,
            VolumeRequest::Scrub { .. } => 4,
            VolumeRequest::Grow { .. } => 5,
            VolumeRequest::Limit { .. } => 6,
            VolumeRequest::Export { .. } => 7,
            VolumeRequest::Unexport { .. } => 8,
            VolumeRequest::AcceptLoss { .. } => 9,
            VolumeRequest::Delete { .. } => 10,
            VolumeRequest::Rekey { .. } => 11,
        };
        let read = |line: &str| number(&serde_json::from_str(line).expect(line));
        let found: Vec<usize> = EXAMPLES.lines().map(read).collect();
        assert_eq!(found, (0..found.len()).collect::<Vec<_>>());
        assert_eq!(found.len(), 12);
    }

    /// A guard with a user, and the caller that it is.
    fn guard() -> (Arc<Guard>, Caller) {
        let store = store::Store::in_memory(store::Options::default()).expect("there is memory");
        let guard = Guard::open(store, Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
        let role = Role { name: "ann".into(), attributes: Attributes::user(), credentials: Credentials::default() };
        guard.change(&Caller::node(), &[IdentityChange::Create(role)]).expect("the node may");
        let caller = guard.trusted("ann", [127, 0, 0, 1].into()).expect("it is one");
        (guard, caller)
    }

    fn grant(guard: &Guard, action: Action, object: &str) {
        let object = ObjectPattern::parse(object).expect("it is one");
        let privileges = Privileges { actions: vec![action], object, columns: Vec::new(), grantee: "ann".into() };
        let change = IdentityChange::Grant { privileges, grant_option: false };
        guard.change(&Caller::node(), &[change]).expect("the node may");
    }

    #[test]
    fn each_verb_needs_its_right_on_that_volume_and_no_other() {
        for (request, action) in requests() {
            let (guard, ann) = guard();
            let refused = |why: &str| {
                let error = check(&guard.view(), &ann, &request).expect_err(why).to_string();
                assert_eq!(error, format!("permission denied: {} is not allowed", action.name()), "{request:?}");
            };
            refused("no right");
            let others = [Action::VolumeList, Action::VolumeAdminister, Action::VolumeExport];
            others.into_iter().filter(|other| *other != action).for_each(|other| grant(&guard, other, "volume v"));
            grant(&guard, action, "volume w");
            refused("another right, and the right on another volume");
            grant(&guard, action, "volume v");
            check(&guard.view(), &ann, &request).expect("it has the right");
            check(&guard.view(), &Caller::node(), &request).expect("the node has all");
        }
    }

    #[test]
    fn a_list_leaves_out_what_may_not_be_seen_and_what_is_refused_shows_nothing() {
        let (guard, ann) = guard();
        grant(&guard, Action::VolumeList, "volume seen");
        let reports = json!([{ "name": "hidden" }, { "name": "seen" }, {}]);
        let shown = |caller: &Caller| visible(&guard.view(), caller, reports.clone());
        assert_eq!(shown(&ann), json!([{ "name": "seen" }]));
        assert_eq!(shown(&Caller::node()), json!([{ "name": "hidden" }, { "name": "seen" }]));
        assert_eq!(visible(&guard.view(), &ann, json!({ "name": "seen" })), Value::Null);
        let status =
            |names: &[&str]| VolumeRequest::Status { names: names.iter().map(|name| (*name).into()).collect() };
        check(&guard.view(), &ann, &status(&[])).expect("a list of what it may see");
        check(&guard.view(), &ann, &status(&["seen"])).expect("it may see it");
        assert!(check(&guard.view(), &ann, &status(&["seen", "hidden"])).is_err());
        let locked =
            IdentityChange::Set { role: "ann".into(), changes: vec![AttributeChange::Locked(Some("left".into()))] };
        guard.change(&Caller::node(), &[locked]).expect("the node may");
        assert!(check(&guard.view(), &ann, &status(&[])).is_err(), "a role that is locked sees no list");
    }
}
