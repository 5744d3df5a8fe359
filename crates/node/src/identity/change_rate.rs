//! How fast a role that is no administrator may change roles and rights: each change has an entry in the audit, and a flood of
//! them would fill it.
//!
//! ```text
//!   100 changes at once, then one more every 2 s       a long change counts for several, as its entry is longer
//! ```
//!
//! Pure: the time is a parameter.

use std::collections::HashMap;

use super::change::IdentityChange;
use super::role::RoleId;

/// Changes at once.
const AT_ONCE: u64 = 100;

/// One more after each of these times, in milliseconds: 43,200 a day, some 20 MB of entries.
const ONE_MORE_MS: u64 = 2_000;

/// Bytes of a change that count as one.
const CHANGE_BYTES: usize = 512;

/// Roles that are remembered; beyond it those that have waited long enough are forgotten.
const ROLES_MAX: usize = 4_096;

/// Why a change is not begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("roles and rights are changed too fast by this role: wait {wait_s} s, or have an administrator do it")]
pub struct ChangedTooFast {
    /// After so many seconds it may go on.
    pub wait_s: u64,
}

/// What each role has used of its turns: the time at which all of them are free again.
#[derive(Debug, Default)]
pub(super) struct ChangeRate {
    free_at_ms: HashMap<RoleId, u64>,
}

impl ChangeRate {
    /// A role is about to make changes. Errors: it made too many.
    pub(super) fn apply(
        &mut self,
        role: RoleId,
        changes: &[IdentityChange],
        now_ms: u64,
    ) -> Result<(), ChangedTooFast> {
        if self.free_at_ms.len() >= ROLES_MAX {
            self.free_at_ms.retain(|_, free_at_ms| *free_at_ms > now_ms);
        }
        let weight = |change: &IdentityChange| 1 + (change.without_secrets().to_string().len() / CHANGE_BYTES) as u64;
        // What is longer than all turns is one of those that are refused elsewhere; it takes all.
        let weight = changes.iter().map(weight).sum::<u64>().clamp(1, AT_ONCE);
        let free_at_ms = self.free_at_ms.get(&role).copied().unwrap_or(0).max(now_ms) + weight * ONE_MORE_MS;
        let late_ms = free_at_ms.saturating_sub(now_ms + AT_ONCE * ONE_MORE_MS);
        if late_ms > 0 {
            return Err(ChangedTooFast { wait_s: late_ms.div_ceil(1_000) });
        }
        self.free_at_ms.insert(role, free_at_ms);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_makes_a_hundred_changes_at_once_and_then_one_in_two_seconds_whatever_others_do() {
        let drop_of = |length: usize| [IdentityChange::Drop { role: "r".repeat(length), cascade: false }];
        let mut rate = ChangeRate::default();
        let (ann, ben) = (RoleId(20_000), RoleId(20_001));
        let made = (0..500).filter(|_| rate.apply(ann, &drop_of(1), 7).is_ok()).count();
        assert_eq!(made, 100);
        assert_eq!(rate.apply(ann, &drop_of(1), 7), Err(ChangedTooFast { wait_s: 2 }));
        assert_eq!(rate.apply(ben, &drop_of(1), 7), Ok(()));
        assert_eq!(rate.apply(ann, &drop_of(1), 2_007), Ok(()));
        assert_eq!(rate.apply(ann, &drop_of(600), 4_007), Err(ChangedTooFast { wait_s: 2 }), "it counts for two");
        assert_eq!(rate.apply(ann, &drop_of(600), 6_007), Ok(()));
        assert_eq!(rate.apply(ben, &drop_of(1 << 20), 1_000_000), Ok(()), "once, where nothing else was made");
    }
}
