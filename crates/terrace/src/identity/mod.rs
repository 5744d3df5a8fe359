//! The roles and rights of a running node: answered over its control socket, and the commands `terrace user` and
//! `terrace role`.
//!
//! ```text
//!   terrace user ..., role ...  --  `identity {...}`  -->  RunningIdentity  -->  node::identity::Guard
//! ```
//!
//! Who can open the control socket is root or the user that the node runs as: the node's own role. The other ports do
//! not ask the guard yet.

mod args;
mod commands;

use std::sync::Arc;

use interop::running::RunningProduction;
use node::Clock;
use node::identity::scram::Mock;
use node::identity::{Caller, Guard, IdentityError, IdentityRequest, REQUEST, answer};
use serde_json::Value;
use tokio::task::JoinHandle;

pub use args::{RoleCommand, UserCommand};
pub use commands::{role, user};

/// The roles and rights of a node, until it stops.
#[derive(Debug)]
pub struct RunningIdentity {
    guard: Option<Arc<Guard>>,
    /// Puts in force what time changes.
    watching: Option<JoinHandle<()>>,
}

impl RunningIdentity {
    /// Opens them, and answers requests. If they cannot be read the node runs without: messages come first, and requests
    /// are answered with the reason.
    pub fn start(node: &RunningProduction) -> RunningIdentity {
        let opened = open(node);
        let (guard, why) = match opened {
            Ok(guard) => (Some(guard), String::new()),
            Err(error) => {
                tracing::error!(%error, "the roles and rights of this node cannot be read: `terrace verify` shows the damage");
                (None, error.to_string())
            }
        };
        let asked = guard.as_ref().map(Arc::downgrade).unwrap_or_default();
        node.serve_requests_at_once(Box::new(move |line| {
            let request = line.strip_prefix(REQUEST)?.strip_prefix(' ')?;
            Some(match asked.upgrade() {
                Some(guard) => answered(&guard, request),
                None if why.is_empty() => Err("the node is stopping".to_owned()),
                None => Err(why.clone()),
            })
        }));
        let failed =
            |why: &str| tracing::error!(why, "rights that expire stay in force until the node is started again");
        let watching = guard.as_ref().map(|guard| guard.watch_time(failed));
        RunningIdentity { guard, watching }
    }

    /// Ends it.
    pub fn stop(self) {
        if let Some(watching) = self.watching {
            watching.abort();
        }
        drop(self.guard);
    }
}

fn open(node: &RunningProduction) -> Result<Arc<Guard>, IdentityError> {
    // No login by SCRAM goes through this guard yet; until one does, the challenges need not be the same after a restart.
    let mock = Mock::new().map_err(|_| IdentityError::Randomness)?;
    Guard::open(node.store().clone(), Clock::system(), mock)
}

fn answered(guard: &Guard, request: &str) -> Result<Value, String> {
    let request: IdentityRequest = serde_json::from_str(request)
        .map_err(|error| format!("the request cannot be read by this release: {error}"))?;
    answer(guard, &Caller::node(), request).map_err(|error| error.to_string())
}
