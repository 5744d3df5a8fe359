//! [`SessionIdentity`]: who a session's statements ask for, and whom they ask.
//!
//! Invariants: a session that a port opened has one, from its login to its end; a session without one is the node's
//! own, and may do everything. SET ROLE replaces the caller, and nothing else does.
//!
//! It deliberately decides nothing: [`Guard`] does.

use std::sync::Arc;

use node::identity::{Caller, Guard};

/// Who a session's statements ask for.
#[derive(Clone, Debug)]
pub struct SessionIdentity {
    guard: Arc<Guard>,
    caller: Caller,
}

impl SessionIdentity {
    /// A caller as it logged in.
    pub fn new(guard: Arc<Guard>, caller: Caller) -> SessionIdentity {
        SessionIdentity { guard, caller }
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
        SessionIdentity { guard: Arc::clone(&self.guard), caller }
    }
}
