//! `_security/_authenticate`: who the node takes the client for.

use std::collections::BTreeSet;

use node::identity::Proof;
use serde_json::{Value, json};

use super::api::AskedRequest;
use super::message::RestResponse;

/// `GET /_security/_authenticate`: the role, the groups that it is a member of, and how it proved itself.
pub(super) fn answer(request: &AskedRequest<'_>) -> RestResponse {
    let (view, caller) = (request.asker.view(), request.caller.clone());
    let kind = match caller.proof() {
        Proof::Token(_) => "token",
        Proof::Password | Proof::Ldap(_) | Proof::Oidc(_) | Proof::Certificate(_) | Proof::Uid(_) => "realm",
        Proof::Trust | Proof::Node => "anonymous",
    };
    let member = caller.session();
    let groups = view.directory().members().keys().filter(|key| key.0 == member).map(|key| key.1);
    let names: BTreeSet<&str> = groups.filter_map(|role| view.name(role)).collect();
    let roles: Vec<Value> = names.into_iter().map(|name| json!(name)).collect();
    let realm = json!({"name": "terrace", "type": "terrace"});
    let body = json!({
        "username": request.asker.user(), "roles": roles, "full_name": null, "email": null,
        "metadata": {"administrator": view.is_administrator(member)}, "enabled": true,
        "authentication_realm": realm, "lookup_realm": realm, "authentication_type": kind,
    });
    RestResponse::json(200, body)
}
