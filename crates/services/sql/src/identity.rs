//! [`SessionIdentity`]: who a session's statements ask for, and whom they ask.
//!
//! Invariants: a session that a port opened has one, from its login to its end; a session without one is the node's
//! own, and may do everything. SET ROLE replaces the caller, and nothing else does.
//!
//! It deliberately decides nothing: [`Guard`] does.

use std::fmt;
use std::sync::Arc;

use node::identity::{Action, Caller, Guard};

/// Notes that a right on an object, by its name, was used.
type NoteUse = dyn Fn(Action, &str) + Send + Sync;

/// Told of what a virtual table has asked about a service, and was answered with yes.
#[derive(Clone)]
struct Kept(Arc<NoteUse>);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Kept")
    }
}

/// Who a session's statements ask for.
#[derive(Clone, Debug)]
pub struct SessionIdentity {
    guard: Arc<Guard>,
    caller: Caller,
    kept: Option<Kept>,
}

impl SessionIdentity {
    /// A caller as it logged in.
    pub fn new(guard: Arc<Guard>, caller: Caller) -> SessionIdentity {
        SessionIdentity { guard, caller, kept: None }
    }

    /// Who decides.
    pub fn guard(&self) -> &Arc<Guard> {
        &self.guard
    }

    /// Who asks: the role that logged in, with the rights of the role of SET ROLE.
    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// The same with another caller.
    pub(crate) fn with_caller(&self, caller: Caller) -> SessionIdentity {
        SessionIdentity { guard: Arc::clone(&self.guard), caller, kept: None }
    }

    /// For the scans of a statement: what they ask about services is asked again for as long as it runs.
    pub(crate) fn keeping(&self, keep: impl Fn(Action, &str) + Send + Sync + 'static) -> SessionIdentity {
        SessionIdentity { kept: Some(Kept(Arc::new(keep))), ..self.clone() }
    }

    /// A scan used a right on a service: if it is revoked, the statement ends before its next rows, also before those that were
    /// made earlier and wait somewhere in its plan.
    pub fn uses(&self, action: Action, service: &str) {
        if let Some(Kept(keep)) = &self.kept {
            keep(action, service);
        }
    }
}
