//! [`AccessGate`]: asks the node's access rules about senders over MLLP.
//!
//! A sender has no role: it is known by its address, and over TLS by its certificate (`client_names`), which is looked at
//! later. So rules that name roles are not for it, and a refusal is a closed connection, a line in the log and an entry in
//! the audit, both of which are bounded.

use std::net::SocketAddr;
use std::sync::Arc;

use node::Audit;
use node::audit::AuditEntry;
use node::identity::{AccessPort, Guard, Visit, Who};

/// See the module's text.
#[derive(Debug)]
pub struct AccessGate {
    /// Decides.
    pub guard: Arc<Guard>,
    /// Where refusals are recorded.
    pub audit: Arc<Audit>,
}

impl AccessGate {
    /// Whether a sender may connect to a service, over TLS or without.
    pub fn admits(&self, service: &str, peer: SocketAddr, tls: bool) -> bool {
        let visit = Visit { port: AccessPort::Mllp, address: Some(peer.ip()), tls };
        let Err(refusal) = self.guard.admit(visit, Who::Device) else { return true };
        if let Some(left_out) = refusal.recorded {
            let entry = AuditEntry::failed_login("mllp", "", refusal.host(), refusal.to_string(), left_out);
            let (entry, audit) = (entry.with("service", service), Arc::clone(&self.audit));
            // Intake goes on meanwhile, and if the audit is full.
            node::task::session("mllp-audit", async move {
                if let Err(error) = audit.write(entry).await {
                    tracing::warn!(%error, "a refused connection is not in the audit");
                }
            });
        }
        false
    }
}
