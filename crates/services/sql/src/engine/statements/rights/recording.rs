//! Entries of the audit for changes of roles and rights by statements.
//!
//! Invariant: an entry is durable before its change is committed, and without one nothing is changed. A transaction that is rolled
//! back leaves entries of what it was allowed to do.

use std::net::IpAddr;

use node::Audit;
use node::audit::{Actor, ActorKind, AuditEntry, AuditOrigin};
use node::identity::{Caller, IdentityChange, RightsView};

use crate::SqlError;

/// Where a session's entries come from.
fn origin(address: Option<IpAddr>) -> AuditOrigin {
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    AuditOrigin { protocol: "sql".to_owned(), address, session: String::new() }
}

/// Records changes, without secrets. Blocks until they are durable.
///
/// Errors: 58030 if they cannot be recorded.
pub(super) fn record(
    audit: &Audit,
    (view, caller): (&RightsView, &Caller),
    changes: &[IdentityChange],
) -> Result<(), SqlError> {
    let failed = |error: node::error::AuditRefused| {
        SqlError::Engine(Box::new(crate::ErrorFields::new("58030", error.to_string())))
    };
    let name_of = |role| view.name(role).unwrap_or_default().to_owned();
    let mut last = None;
    for change in changes {
        let mut entry = AuditEntry::new("identity.change", "");
        entry.actor = Actor { kind: ActorKind::Role, id: Some(caller.session().0), name: name_of(caller.session()) };
        entry.origin = origin(caller.address());
        if caller.current() != caller.session() {
            entry = entry.with("role", name_of(caller.current()));
        }
        let text = change.without_secrets().to_string();
        last = Some(audit.record(entry.with_long("change", &text)).map_err(failed)?);
    }
    last.map_or(Ok(()), |ticket| audit.wait(ticket).map_err(failed))
}
