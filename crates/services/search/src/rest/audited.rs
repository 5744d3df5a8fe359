//! What is recorded in the audit before a response leaves: messages that are read or searched, and uses of rights that are recorded
//! always.
//!
//! ```text
//!   response --ids of messages in it--> message.body with these ids    durable, then the response
//!            --none, but a search-----> message.search with the query
//!   rights that were used ------------> search.manage, index.make ..
//! ```
//!
//! Invariants: a response with anything from a message leaves after its entry is durable; where the audit takes no entry, it does not
//! leave.

use std::collections::BTreeSet;
use std::sync::Arc;

use node::Audit;
use node::audit::{Actor, ActorKind, AuditEntry, AuditOrigin, Reads};
use serde_json::Value;

use super::api::{Answer, Api, AskedRequest};
use super::message::{RestBody, RestResponse};
use super::routing::Route;
use crate::error::SearchError;
use crate::rights::Asker;

/// Bytes of a query that an entry shows.
const QUERY_BYTES: usize = 4_096;

/// An entry of a caller.
fn entry(asker: &Asker, action: &str, object: &str) -> AuditEntry {
    let address = asker.caller().address().map(|address| address.to_string()).unwrap_or_default();
    AuditEntry {
        actor: Actor { kind: ActorKind::Role, id: None, name: asker.user().to_owned() },
        origin: AuditOrigin { protocol: "search".to_owned(), address, session: String::new() },
        ..AuditEntry::new(action, object)
    }
}

fn write(audit: &Audit, entry: AuditEntry) -> Result<(), SearchError> {
    let written = audit.record(entry).and_then(|ticket| audit.wait(ticket));
    written.map_err(|refused| {
        SearchError::new(
            503,
            "security_exception",
            format!("the audit takes no entry, so nothing is answered: {refused}"),
        )
    })
}

/// Records that messages were read, for what lasts longer than its request. Errors: the audit takes no entry.
pub(super) fn read(audit: Option<&Arc<Audit>>, asker: &Asker, ids: &[String], why: &str) -> Result<(), SearchError> {
    let Some(audit) = audit else { return Ok(()) };
    let mut reads = Reads::default();
    ids.iter().filter_map(|id| id.parse().ok()).for_each(|id| reads.push(id));
    let entry = entry(asker, "message.body", "messages of search").with("request", why);
    write(audit, AuditEntry { reads, ..entry })
}

/// Adds the ids of the documents of these indices that are anywhere in a response.
fn ids_in(value: &Value, indices: &BTreeSet<String>, ids: &mut Vec<u64>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| ids_in(value, indices, ids)),
        Value::Object(object) => {
            let index = object.get("_index").and_then(Value::as_str);
            if index.is_some_and(|index| indices.contains(index)) {
                ids.extend(object.get("_id").and_then(Value::as_str).and_then(|id| id.parse::<u64>().ok()));
            }
            // What is in a document is none of ours.
            object.iter().filter(|(name, _)| *name != "_source").for_each(|(_, value)| ids_in(value, indices, ids));
        }
        _ => {}
    }
}

/// The query of a request, as an entry shows it.
fn query_of(request: &AskedRequest<'_>) -> String {
    let parameters = request.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    let body = String::from_utf8_lossy(&request.body[..request.body.len().min(QUERY_BYTES)]);
    format!("{} {}", parameters.join("&"), body).trim().to_owned()
}

/// Records what a request did, when its response is made and before it leaves. Errors: the audit takes no entry.
pub(super) fn record(api: &Api, request: &AskedRequest<'_>, route: Route, answer: RestResponse) -> Answer {
    let Some(audit) = &api.audit else { return Ok(answer) };
    for (action, object) in request.asker.recorded() {
        write(audit, entry(&request.asker, &format!("search.{}", action.name()), &object))?;
    }
    if !request.asker.used_messages() {
        return Ok(answer);
    }
    let fed = api.indices.all().into_iter().filter(|index| index.is_fed()).map(|index| index.name()).collect();
    let mut ids = request.asker.noted();
    match &answer.body {
        RestBody::Json(body) => ids_in(body, &fed, &mut ids),
        RestBody::RawJson(bytes) => {
            let body: Value = serde_json::from_slice(bytes)
                .map_err(|_| SearchError::internal("a response cannot be read for the audit"))?;
            ids_in(&body, &fed, &mut ids);
        }
        RestBody::Text(_) => {}
    }
    // A message that is in the response twice is one read.
    ids.sort_unstable();
    ids.dedup();
    let names = fed.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    let action = if ids.is_empty() { "message.search" } else { "message.body" };
    let mut reads = Reads::default();
    ids.into_iter().for_each(|id| reads.push(id));
    let entry = entry(&request.asker, action, &names)
        .with("request", format!("{} /{}", route.action(), request.path.join("/")))
        .with("query", query_of(request));
    write(audit, AuditEntry { reads, ..entry })?;
    Ok(answer)
}
