//! What a request asks for: the right that it needs, and its entry in the audit.

use node::audit::AuditEntry;
use node::identity::{Action, Caller, Denied, Object, RightsView};

use super::audited::Audited;

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs<'a> {
    /// The right to an action on an object.
    Right(Action, Object<'a>),
    /// The rights to all of these actions on an object.
    Every(&'static [Action], Object<'a>),
    /// The right on some object at least: the answer holds only what the caller has it on.
    Some(Action),
    /// The rights to each of these actions on some object at least; the same holds.
    SomeOfEach(&'static [Action]),
    /// The right on the service of this stored message.
    OfMessage(Action, u64),
    /// The rights to all of these actions there.
    EveryOfMessage(&'static [Action], u64),
    /// What `node::identity` asks for by itself: roles and rights are its own.
    ByIdentity,
}

/// What a request asks for.
#[derive(Debug)]
pub struct Requirement<'a> {
    /// The right.
    pub needs: Needs<'a>,
    /// Its entry in the audit, and when that is written; none where neither a body is shown nor anything is changed.
    pub entry: Option<(Audited, AuditEntry)>,
}

/// The text for who was refused. What nobody has at first is granted by a command, and that grant is in the audit.
pub(super) fn refusal_text(denied: Denied, caller: &Caller, view: &RightsView) -> String {
    match denied {
        Denied::NoRight(action @ (Action::MessageBody | Action::Unmasked)) => {
            let (action, name) = (action.name(), view.name(caller.session()).unwrap_or("ROLE"));
            format!(
                "{denied}; nobody has this right until it is granted, which the audit shows: \
                 `terrace role grant {action} --on 'service *' --to {name}`"
            )
        }
        _ => denied.to_string(),
    }
}
