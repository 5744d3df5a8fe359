//! [`DirectoryEnds`]: what a directory (LDAP) has ended of the roles whose passwords it has; pure, and not stored.
//!
//! ```text
//!   up_to   its sessions by the directory that began up to a login have ended, for good
//!   gone    the directory finds it not, or in no group that lets it in: its tokens and certificates do not hold while that is so
//! ```
//!
//! Neither takes anything away that is stored: one wrong answer of a directory costs sessions, and no membership or grant.

use std::collections::{BTreeMap, BTreeSet};

use super::role::RoleId;

/// What a directory has ended.
#[derive(Debug, Clone, Default)]
pub(super) struct DirectoryEnds {
    up_to: BTreeMap<RoleId, u64>,
    gone: BTreeSet<RoleId>,
    /// Of these it was said that their sessions ended; until it lets them in.
    told: BTreeSet<RoleId>,
}

impl DirectoryEnds {
    /// Ends the sessions of a role that began up to a login, by its number.
    pub(super) fn end(&mut self, id: RoleId, up_to: u64) {
        let end = self.up_to.entry(id).or_default();
        *end = up_to.max(*end);
    }

    /// Whether the session of a role that began with a login has ended.
    pub(super) fn has_ended(&self, id: RoleId, login: u64) -> bool {
        self.up_to.get(&id).is_some_and(|ended| login <= *ended)
    }

    /// Notes whether the directory lets a role in no more.
    pub(super) fn set_gone(&mut self, id: RoleId, is_gone: bool) {
        if is_gone {
            self.gone.insert(id);
        } else {
            self.gone.remove(&id);
        }
    }

    /// Notes whether it was said that sessions of a role ended.
    pub(super) fn set_told(&mut self, id: RoleId, is_told: bool) {
        if is_told {
            self.told.insert(id);
        } else {
            self.told.remove(&id);
        }
    }

    /// Whether it was said since the directory let the role in last.
    pub(super) fn is_told(&self, id: RoleId) -> bool {
        self.told.contains(&id)
    }

    /// Whether the directory lets a role in no more.
    pub(super) fn is_gone(&self, id: RoleId) -> bool {
        self.gone.contains(&id)
    }

    /// The roles that it lets in no more.
    pub(super) fn gone(&self) -> BTreeSet<RoleId> {
        self.gone.clone()
    }

    /// Forgets roles that are not there any more.
    pub(super) fn retain(&mut self, is_there: impl Fn(RoleId) -> bool) {
        self.up_to.retain(|id, _| is_there(*id));
        self.gone.retain(|id| is_there(*id));
        self.told.retain(|id| is_there(*id));
    }
}
