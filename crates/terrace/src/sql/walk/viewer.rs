//! Who reads the message history by SQL, and what of each message they see.
//!
//! ```text
//!   a scan's identity ---> Viewer: conditions on what may be masked are not given to an index
//!                            |
//!   a walk, a batch at a time +--> Sight: the rights as they are now ---> a message as it is seen, or none
//! ```
//!
//! Without an identity it is the node itself, which sees everything. A message of a service whose messages the caller may not
//! list is left out, bodies that it may not read are NULL, and patient data is masked (`interop::history`).
//!
//! Invariant: rows are made of the message as it is seen and of nothing else, and an index with masked values is not asked: so
//! conditions, joins, sorting and the counts of EXPLAIN ANALYZE know no more than what is shown.

use std::collections::HashMap;
use std::sync::Arc;

use hl7::Path;
use hl7::mask::Masker;
use interop::history::Sees;
use interop::rows::ReadMessage;
use node::identity::{Action, Object, RightsView};
use sql::{ColumnBound, SessionIdentity};

use super::Keys;

/// Stands for all services: what is granted on `service *` is granted on it, and what is granted on some is not.
const EVERY_SERVICE: &str = "*";

/// Who reads.
pub(super) struct Viewer {
    identity: Option<SessionIdentity>,
    masker: Arc<Masker>,
    /// What is seen of every service.
    everywhere: Sees,
}

impl Viewer {
    /// Of a scan.
    pub(super) fn of(identity: Option<SessionIdentity>, masker: &Arc<Masker>) -> Viewer {
        let all = |identity: &SessionIdentity| seen(&identity.guard().view(), identity, EVERY_SERVICE);
        let everywhere = identity.as_ref().map_or(Sees::ALL, all);
        Viewer { identity, masker: Arc::clone(masker), everywhere }
    }

    /// Whether all messages are listed, so that their services need not be known.
    pub(super) fn lists_all(&self) -> bool {
        self.everywhere.metadata
    }

    /// The bounds that an index may be asked for: none on a column whose values may be masked.
    pub(super) fn bounds(&self, bounds: &[ColumnBound], keys: Keys) -> Vec<ColumnBound> {
        let masked = |path: &str| path.parse::<Path>().is_ok_and(|path| self.masker.covers(&path));
        let is_hidden = |column: usize| {
            (column == keys.mrn && masked("PID-3.1"))
                || (column == keys.control && masked("MSH-10"))
                || (column == keys.kind && masked("MSH-9"))
        };
        let sees_all = self.everywhere == Sees::ALL;
        bounds.iter().filter(|bound| sees_all || !is_hidden(bound.column)).cloned().collect()
    }

    /// What is seen from now on.
    pub(super) fn sight(&self) -> Sight {
        Sight { view: self.identity.as_ref().map(|identity| identity.guard().view()), known: HashMap::new() }
    }
}

/// What a caller sees of a service.
fn seen(view: &RightsView, identity: &SessionIdentity, service: &str) -> Sees {
    let may = |action| view.may(identity.caller(), action, Object::Service(service)).is_ok();
    Sees { metadata: may(Action::MessageMetadata), body: may(Action::MessageBody), unmasked: may(Action::Unmasked) }
}

/// The rights of a viewer at a moment.
pub(super) struct Sight {
    view: Option<Arc<RightsView>>,
    known: HashMap<String, Sees>,
}

impl Sight {
    /// Takes the rights as they are now.
    pub(super) fn renew(&mut self, viewer: &Viewer) {
        let now = viewer.sight();
        let is_same = match (&self.view, &now.view) {
            (Some(old), Some(new)) => Arc::ptr_eq(old, new),
            (old, new) => old.is_none() && new.is_none(),
        };
        if !is_same {
            *self = now;
        }
    }

    /// A message as it is seen, if it is.
    pub(super) fn of(&mut self, viewer: &Viewer, message: ReadMessage) -> Option<ReadMessage> {
        let (Some(view), Some(identity)) = (&self.view, &viewer.identity) else { return Some(message) };
        let service = &message.stored.service;
        let known = self.known.get(service).copied();
        let seen = known.unwrap_or_else(|| {
            let seen = seen(view, identity, service);
            self.known.insert(service.clone(), seen);
            seen
        });
        let ReadMessage { id, stored, outcomes } = message;
        Some(ReadMessage { id, stored: seen.of(&viewer.masker, stored)?, outcomes })
    }
}
