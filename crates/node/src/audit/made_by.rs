//! Who an entry is by, and by which right: the one place where entries of callers are made, for all ports.
//!
//! ```text
//!   AuditEntry::new(action, object)  --.by_role(port, caller, view)        a role that has proven who it is
//!                                    --.by_claimed(port, name, address)    a name that nobody has proven
//!                                    --.at_control(peer, caller, view)     a user of this machine, or a token's role
//!                                        .marked(marks)                    by what right, and whether it was masked
//!                                        .ended(outcome, why)
//! ```

use std::net::IpAddr;

use super::entry::{Actor, ActorKind, AuditEntry, AuditOrigin, AuditOutcome};
use crate::control::LocalPeer;
use crate::identity::{Caller, Grant, Proof, RightsView, RoleId, shown_name};

/// What administrators may record in the reserve of a full audit, by the first word of the action. Reads of messages are none.
const ADMINISTRATION: &[&str] = &["audit", "clock", "identity", "login", "node", "production"];

/// By what rights something was shown or done, as far as it is remarkable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryMarks {
    /// The caller gave itself a right, or had it only because it administers.
    pub self_granted: bool,
    /// A right was one for a time, by broken glass.
    pub break_glass: bool,
    /// Whether what was shown was masked; none where nothing was shown that could be.
    pub masked: Option<bool>,
}

impl EntryMarks {
    /// Those of a right.
    pub fn of(grant: &Grant) -> EntryMarks {
        EntryMarks { self_granted: grant.self_granted, break_glass: grant.break_glass, masked: None }
    }

    /// With those of another right that was used too.
    #[must_use]
    pub fn and(self, grant: &Grant) -> EntryMarks {
        EntryMarks {
            self_granted: self.self_granted || grant.self_granted,
            break_glass: self.break_glass || grant.break_glass,
            ..self
        }
    }
}

impl AuditEntry {
    /// The same, by a role at a port: `sql`, `search`, `nbd`.
    #[must_use]
    pub fn by_role(mut self, port: &str, caller: &Caller, view: &RightsView) -> AuditEntry {
        let (id, name) = (caller.session(), name_of(view, caller.session()));
        self.actor = Actor { kind: ActorKind::Role, id: Some(id.0), name };
        self.origin = origin(port, caller.address());
        self.by_administrator = view.is_administrator(id);
        if caller.current() == id { self } else { self.with("role", name_of(view, caller.current())) }
    }

    /// The same, by a name that somebody claimed at a port and did not prove.
    #[must_use]
    pub fn by_claimed(mut self, port: &str, name: &str, address: Option<IpAddr>) -> AuditEntry {
        self.actor = Actor { kind: ActorKind::Claimed, id: None, name: shown_name(name).to_owned() };
        self.origin = origin(port, address);
        self
    }

    /// The entry of a login that failed, or of a connection that the access rules refused: whoever claims to be `user`.
    /// `left_out` such events before it had none.
    #[must_use]
    pub fn failed_login(port: &str, user: &str, address: String, why: String, left_out: u64) -> AuditEntry {
        let mut entry = AuditEntry::new("login", "").by_claimed(port, user, None).ended(AuditOutcome::Refused, why);
        entry.origin.address = address;
        if left_out > 0 { entry.with("left_out", left_out.to_string()) } else { entry }
    }

    /// The same, by who sent a request over the control socket: the user of the machine, and the role if it is another than the
    /// node's own.
    #[must_use]
    pub fn at_control(self, peer: &LocalPeer, caller: &Caller, view: &RightsView) -> AuditEntry {
        let mut entry = self.by(peer);
        let id = caller.session();
        entry.by_administrator = view.is_administrator(id);
        if id == RoleId::LOCAL {
            return entry;
        }
        let name = name_of(view, id);
        match caller.proof() {
            Proof::Token(_) => {
                let uid = peer.uid.map(|uid| uid.to_string()).unwrap_or_default();
                entry.actor = Actor { kind: ActorKind::Role, id: Some(id.0), name };
                entry.with("uid", uid)
            }
            _ => entry.with("role", name),
        }
    }

    /// The same, with what is remarkable about the rights that were used.
    #[must_use]
    pub fn marked(self, marks: EntryMarks) -> AuditEntry {
        let yes = [("self_granted", marks.self_granted), ("break_glass", marks.break_glass)];
        let entry = yes.into_iter().filter(|(_, is)| *is).fold(self, |entry, (name, _)| entry.with(name, "yes"));
        match marks.masked {
            Some(masked) => entry.with("masked", if masked { "yes" } else { "no" }),
            None => entry,
        }
    }

    /// Whether it may take the place that is kept for administrators when the audit is full.
    pub(super) fn is_administration(&self) -> bool {
        let word = self.action.split('.').next().unwrap_or_default();
        self.by_administrator && self.reads.is_empty() && ADMINISTRATION.contains(&word)
    }
}

fn name_of(view: &RightsView, role: RoleId) -> String {
    view.name(role).unwrap_or("(dropped)").to_owned()
}

fn origin(port: &str, address: Option<IpAddr>) -> AuditOrigin {
    let address = address.map(|address| address.to_string()).unwrap_or_default();
    AuditOrigin { protocol: port.to_owned(), address, session: String::new() }
}

#[cfg(test)]
mod tests {
    use store::{Options, Store};

    use super::*;
    use crate::Clock;
    use crate::identity::scram::Mock;
    use crate::identity::{Attributes, Credentials, Guard, IdentityChange, IdentityRequest, Role, Via, answer};

    fn grant(self_granted: bool, break_glass: bool) -> Grant {
        Grant { via: Via::Administrator, audited: true, self_granted, break_glass }
    }

    #[test]
    fn an_entry_says_who_and_from_where_and_by_which_right_at_every_port() {
        let store = Store::in_memory(Options::default()).expect("there is memory");
        let guard = Guard::open(store, Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
        let ann = |administrator| {
            let attributes = Attributes { administrator, ..Attributes::user() };
            Role { name: "ann".into(), attributes, credentials: Credentials::default() }
        };
        guard.change(&Caller::node(), &[IdentityChange::Create(ann(true))]).expect("the node may");
        let address = IpAddr::from([127, 0, 0, 1]);
        let (caller, view) = (guard.trusted("ann", address).expect("it is trusted"), guard.view());
        let id = caller.session().0;
        let entry = AuditEntry::new("identity.change", "").by_role("sql", &caller, &view);
        assert_eq!(entry.actor, Actor { kind: ActorKind::Role, id: Some(id), name: "ann".into() });
        let from = AuditOrigin { protocol: "sql".into(), address: "127.0.0.1".into(), session: String::new() };
        assert_eq!((&entry.origin, entry.details.len(), entry.is_administration()), (&from, 0, true));
        let claimed = AuditEntry::new("login", "").by_claimed("sql", "eve", Some(address));
        assert_eq!((claimed.actor.kind, claimed.origin == from), (ActorKind::Claimed, true));
        assert!(!claimed.is_administration());
        let marks = EntryMarks::of(&grant(false, true)).and(&grant(true, false));
        let marked = claimed.marked(EntryMarks { masked: Some(false), ..marks });
        let details: Vec<_> = marked.details.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(details, [("break_glass", "yes"), ("masked", "no"), ("self_granted", "yes")]);
        assert!(AuditEntry::new("x", "").marked(EntryMarks::default()).details.is_empty());
        // At the control socket: the user of the machine, or the role of a token.
        let peer = LocalPeer { uid: Some(7), name: "ada".into(), pid: None, connection: 3 };
        let local = AuditEntry::new("node.stop", "").at_control(&peer, &Caller::node(), &view);
        assert_eq!((local.actor.kind, local.origin.protocol.as_str()), (ActorKind::Local, "control"));
        assert!(local.is_administration() && local.details.is_empty());
        let drawn = IdentityRequest::DrawToken { role: "ann".into(), name: "ci".into(), until_us: None };
        let drawn = answer(&guard, &Caller::node(), drawn).expect("the node may");
        let by_token = guard.token(drawn["token"].as_str().expect("a text"), None).expect("it is right");
        let entry = AuditEntry::new("message.body", "").at_control(&peer, &by_token, &guard.view());
        assert_eq!((entry.actor.kind, entry.details["uid"].as_str()), (ActorKind::Role, "7"));
        assert!(!entry.is_administration(), "who administers reads messages in the place of all");
    }
}
