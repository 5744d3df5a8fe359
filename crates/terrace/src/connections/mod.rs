//! Requests about the connections of a node, of every port: which there are, and the end of one; their command line.
//!
//! | request | right | response |
//! |---|---|---|
//! | `connection {"verb":"list"}` | `node-status` | `ListedConnections` |
//! | the same with `"statements":true` | the same; each statement is shown as `pg_stat_activity` shows it | the same, with states and statements of SQL |
//! | `connection {"verb":"close","id":ID}` | `connection-close` | `ClosedConnection` |
//!
//! Closing one has an entry in the audit, durable before, with its address and role; so has a list with statements, whether or not one of
//! them is of somebody else.

mod commands;

use std::sync::{Arc, Weak};
use std::time::Duration;

use interop::running::{Audited, Needs, Requirement, RunningProduction, ServiceRequest};
use node::audit::AuditEntry;
use node::connections::{KINDS, OPERATION_KIND};
use node::identity::{Action, Caller, Guard, Object, RoleId};
use node::{Admission, Clock, ConnectionLine, OpenConnection};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use commands::{ConnectionCommand, run};

/// The word that requests begin with.
pub const REQUEST: &str = "connection";

/// How long a request waits for a connection to end; longer waits what is in a device, or a session that computes.
const END_TIME: Duration = Duration::from_secs(1);

/// How often it looks.
const LOOK: Duration = Duration::from_millis(5);

/// What is asked about connections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ConnectionRequest {
    /// Those that are open.
    List {
        /// Of this kind of port only.
        #[serde(default)]
        port: Option<String>,
        /// With what sessions of SQL do, as far as the caller may see it.
        #[serde(default)]
        statements: bool,
    },
    /// End one.
    Close {
        /// Its number.
        id: u64,
    },
}

/// The connections that are open.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct ListedConnections {
    /// In the order in which they came.
    pub connections: Vec<ConnectionLine>,
}

/// A connection that was closed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClosedConnection {
    /// What it was.
    pub connection: ConnectionLine,
    /// Whether it has ended: otherwise its socket has, and something that it had begun runs on for a moment.
    pub ended: bool,
}

/// Has a node answer requests about its connections.
pub fn serve(node: &RunningProduction) {
    let (admission, guard) = (Arc::downgrade(node.admission()), Arc::clone(node.guard()));
    node.serve_requests(
        REQUEST,
        true,
        Box::new(move |text| {
            let request: ConnectionRequest =
                serde_json::from_str(text).map_err(|error| format!("not a request of this release: {error}"))?;
            if let ConnectionRequest::List { port: Some(port), .. } = &request
                && !KINDS.contains(&port.as_str())
            {
                return Err(format!("`{port}` is no kind of port: there are {}", KINDS.join(", ")));
            }
            Ok(Box::new(GuardedConnectionRequest {
                admission: Weak::clone(&admission),
                guard: Arc::clone(&guard),
                request,
            }))
        }),
    );
}

struct GuardedConnectionRequest {
    admission: Weak<Admission>,
    guard: Arc<Guard>,
    request: ConnectionRequest,
}

impl GuardedConnectionRequest {
    fn find(&self, id: u64) -> Option<Arc<OpenConnection>> {
        self.admission.upgrade()?.connections().find(id)
    }

    fn line(&self, one: &OpenConnection, shows: impl FnOnce(RoleId) -> bool) -> ConnectionLine {
        let view = self.guard.view();
        one.line(Clock::system().now_us(), |role| view.name(role).map(str::to_owned), shows)
    }

    /// Whether a caller may see what sessions of a role do: as `pg_stat_activity` decides it.
    fn sees(&self, caller: &Caller, role: RoleId) -> bool {
        let view = self.guard.view();
        view.holds(caller).is_ok()
            && (view.has_rights_of(caller.current(), role)
                || view.may(caller, Action::SqlActivity, Object::Node).is_ok())
    }
}

impl ServiceRequest for GuardedConnectionRequest {
    fn requirement(&self) -> Requirement<'_> {
        match &self.request {
            ConnectionRequest::List { port, statements } => {
                let entry = AuditEntry::new("connection.statements", "");
                let entry = port.iter().fold(entry, |entry, port| entry.with("port", port.clone()));
                Requirement {
                    needs: Needs::Right(Action::NodeStatus, Object::Node),
                    entry: statements.then_some((Audited::Read, entry)),
                }
            }
            ConnectionRequest::Close { id } => {
                let mut entry = AuditEntry::new("connection.close", format!("connection {id}"));
                if let Some(line) = self.find(*id).map(|one| self.line(&one, |_| false)) {
                    entry = entry.with("port", format!("{} {}", line.port, line.service)).with("address", line.remote);
                    for (name, text) in [("role", line.role), ("user", line.user)] {
                        entry = text.into_iter().fold(entry, |entry, text| entry.with(name, text));
                    }
                }
                let needs = Needs::Right(Action::ConnectionClose, Object::Node);
                Requirement { needs, entry: Some((Audited::Change, entry)) }
            }
        }
    }

    fn answer(&self, caller: &Caller) -> Result<Value, String> {
        let admission = self.admission.upgrade().ok_or("the node is stopping")?;
        match &self.request {
            ConnectionRequest::List { port, statements } => {
                let all = admission.connections().list(port.as_deref());
                let line = |one: &Arc<OpenConnection>| self.line(one, |role| *statements && self.sees(caller, role));
                Ok(json!(ListedConnections { connections: all.iter().map(line).collect() }))
            }
            ConnectionRequest::Close { id } => {
                let gone = || format!("no connection {id} is open: `terrace connection list` shows them");
                let one = admission.connections().find(*id).ok_or_else(gone)?;
                let connection = self.line(&one, |_| false);
                admission.close(&one).map_err(|error| format!("its socket cannot be ended: {error}"))?;
                let ended = has_ended(&admission, *id);
                Ok(json!(ClosedConnection { connection, ended }))
            }
        }
    }
}

/// Waits a moment until a connection is in the list no more.
fn has_ended(admission: &Admission, id: u64) -> bool {
    let until = node::clock::monotonic() + END_TIME;
    while admission.connections().find(id).is_some() {
        if node::clock::monotonic() >= until {
            return false;
        }
        std::thread::sleep(LOOK);
    }
    true
}

/// What follows from closing a connection of the node's own, for who did it.
pub fn what_follows(line: &ConnectionLine) -> Option<&'static str> {
    match (line.outgoing, line.port.as_str()) {
        (false, _) => None,
        (true, OPERATION_KIND) => Some(
            "a message that waits for its answer there is sent again, and the operation connects anew for the next one, both by its \
             own rules of tries",
        ),
        (true, _) => Some("the node connects again by itself, and sends again what is not known to be durable there"),
    }
}
