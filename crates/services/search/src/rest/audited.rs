//! What is recorded in the audit before a response leaves: messages that are read or searched, uses of rights that are recorded
//! always, and what was refused.
//!
//! ```text
//!   a change   rights --> search.index-manage .., granted, durable --> done     and if it fails: the same, failed, with the entry's number
//!   messages   ids noted where documents are read --> message.body with these ids      durable, then the response, or the error
//!                                            none --> message.search with the query
//!   refused    search.index-manage, message.body .., refused                          bounded; it is refused in any case
//! ```
//!
//! Invariants: a response with anything from a message leaves after its entry is durable, an error too; where the audit takes no entry,
//! it does not leave. What is in the entry does not depend on the form of the response.

use std::sync::Arc;

use node::Audit;
use node::audit::{AuditEntry, AuditOutcome, Reads};

use super::api::{Answer, Api, AskedRequest};
use super::routing::Route;
use crate::error::SearchError;
use crate::recording::write;
use crate::rights::Asker;

/// Records that messages were read, for what lasts longer than its request. Errors: the audit takes no entry.
pub(super) fn read(
    audit: Option<&Arc<Audit>>,
    asker: &Asker,
    ids: &[String],
    (why, query): (&str, &str),
) -> Result<(), SearchError> {
    let Some(audit) = audit else { return Ok(()) };
    let mut reads = Reads::default();
    ids.iter().filter_map(|id| id.parse().ok()).for_each(|id| reads.push(id));
    let entry = asker.message_entry("message.body", "messages of search").with("request", why);
    write(audit, AuditEntry { reads, ..entry.with_long("query", query) })
}

/// The query of a request, as an entry shows it.
fn query_of(request: &AskedRequest<'_>) -> String {
    let parameters = request.parameters.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>();
    // What is longer is cut, and the entry says so.
    let most = (AuditEntry::LONG_PARTS_MAX + 1) * AuditEntry::VALUE_BYTES_MAX;
    let body = String::from_utf8_lossy(&request.body[..request.body.len().min(most)]);
    format!("{} {}", parameters.join("&"), body).trim().to_owned()
}

/// Records that messages were read or searched.
fn record_messages(
    api: &Api,
    audit: &Audit,
    request: &AskedRequest<'_>,
    route: Route,
    failed: Option<&SearchError>,
) -> Result<(), SearchError> {
    let fed = api.indices.all().into_iter().filter(|index| index.is_fed()).map(|index| index.name());
    let (reads, aggregates) = request.asker.notes().taken();
    let action = if reads.is_empty() { "message.search" } else { "message.body" };
    let mut entry = request
        .asker
        .message_entry(action, &fed.collect::<Vec<_>>().join(","))
        .with("request", format!("{} /{}", route.action(), request.path.join("/")))
        .with_long("query", &query_of(request));
    if aggregates {
        entry = entry.with("aggregates", "yes");
    }
    if let Some(error) = failed {
        entry = entry.ended(AuditOutcome::Failed, error.reason.clone());
    }
    write(audit, AuditEntry { reads, ..entry })
}

/// Records what a request did and was refused, when its response is made and before it leaves. Errors: those of the request; the audit
/// takes no entry.
pub(super) fn finish(api: &Api, request: &AskedRequest<'_>, route: Route, answer: Answer) -> Answer {
    let Some(audit) = &api.audit else { return answer };
    let asker = &request.asker;
    asker.record_refusals();
    // What was read by a right for a time is recorded; changes have their entries since before they were made.
    asker.record()?;
    if asker.used_messages() {
        record_messages(api, audit, request, route, answer.as_ref().err())?;
    }
    if let Err(error) = &answer {
        asker.failed(None, error);
    }
    answer
}
