//! The entries of what anybody can cause again and again: bounded for each actor at each port, so that who asks without end for what
//! it may not have, or logs in without end, does not fill the audit.
//!
//! Names that nobody has proven share one bound at each port: who guesses may use a new one each time. Pure: the time is a parameter.

use std::collections::HashMap;

use super::entry::{ActorKind, AuditEntry, AuditOutcome};
use crate::bounded_entries::BoundedEntries;

/// Actors that are remembered; beyond it those that caused nothing lately are forgotten, and others share one bound.
const ACTORS_MAX: usize = 4_096;

/// What is bounded together: the port, the kind of actor, its number, its name if it has none; the action, nothing for refusals.
type FrequentActor = (String, u8, Option<u32>, String, String);

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct FrequentEntries {
    of: HashMap<FrequentActor, BoundedEntries>,
}

impl FrequentEntries {
    /// It is to be recorded. Returns, if it has an entry, how many before it had none.
    pub(super) fn apply(&mut self, entry: &AuditEntry, now_ms: u64) -> Option<u64> {
        let mut actor = actor_of(entry);
        if self.of.len() >= ACTORS_MAX && !self.of.contains_key(&actor) {
            self.of.retain(|_, events| !events.is_over(now_ms));
            if self.of.len() >= ACTORS_MAX {
                actor = FrequentActor::default();
            }
        }
        self.of.entry(actor).or_default().apply(now_ms)
    }
}

fn actor_of(entry: &AuditEntry) -> FrequentActor {
    let actor = &entry.actor;
    let name = if actor.id.is_some() || actor.kind == ActorKind::Claimed { "" } else { &actor.name };
    let action = if entry.outcome == AuditOutcome::Refused { "" } else { &entry.action };
    (entry.origin.protocol.clone(), actor.kind as u8, actor.id, name.to_owned(), action.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audit::entry::{Actor, AuditOrigin};

    fn entry(port: &str, kind: ActorKind, id: Option<u32>, name: &str) -> AuditEntry {
        let origin = AuditOrigin { protocol: port.into(), ..AuditOrigin::default() };
        let entry = AuditEntry { actor: Actor { kind, id, name: name.into() }, origin, ..AuditEntry::new("x", "") };
        entry.ended(AuditOutcome::Refused, "no right")
    }

    #[test]
    fn each_role_has_a_bound_of_its_own_at_each_port_and_claimed_names_share_one() {
        let mut refusals = FrequentEntries::default();
        let mut recorded = |entry: &AuditEntry| (0..50).filter(|_| refusals.apply(entry, 1).is_some()).count();
        assert_eq!(recorded(&entry("sql", ActorKind::Role, Some(7), "ann")), 20);
        assert_eq!(recorded(&entry("sql", ActorKind::Role, Some(7), "renamed")), 0);
        assert_eq!(recorded(&entry("search", ActorKind::Role, Some(7), "ann")), 20);
        for action in ["login", "sql.export"] {
            let done = AuditEntry { outcome: AuditOutcome::Granted, ..entry("sql", ActorKind::Role, Some(7), "ann") };
            assert_eq!(recorded(&AuditEntry { action: action.into(), ..done }), 20, "not those of refusals");
        }
        assert_eq!(recorded(&entry("sql", ActorKind::Role, Some(8), "ben")), 20);
        assert_eq!(
            recorded(&entry("search", ActorKind::Role, None, "ann")),
            20,
            "by its name, where there is no number"
        );
        assert_eq!(recorded(&entry("sql", ActorKind::Claimed, None, "a")), 20);
        assert_eq!(recorded(&entry("sql", ActorKind::Claimed, None, "b")), 0);
    }

    #[test]
    fn however_many_are_refused_memory_and_entries_are_bounded() {
        let mut refusals = FrequentEntries::default();
        let role = |id: u32| entry("sql", ActorKind::Role, Some(id), "");
        let recorded = (0..10_000).filter(|id| refusals.apply(&role(*id), 1).is_some()).count();
        assert_eq!((recorded, refusals.of.len()), (ACTORS_MAX + 20, ACTORS_MAX + 1));
        // Once their time is over they are forgotten, but for those that have something to tell.
        assert_eq!(refusals.apply(&role(20_000), 20_000), Some(0));
        assert_eq!(refusals.of.len(), 2);
    }
}
