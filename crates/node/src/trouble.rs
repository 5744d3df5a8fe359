//! Troubles: conditions that prevent a node from doing all of its work, each with its beginning, its reason and what to
//! do.
//!
//! ```text
//!   facts, every few seconds and at each status request --apply--> what began, what ended --> one line of the log each
//!                                                                   |
//!                                                                   +--> the list in the status, whose exit code is 1 then
//! ```
//!
//! Pure: the facts and the time are parameters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What is the matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matter {
    /// The journal or the pages could not be written, or a thread panicked: nothing is taken or sent any more.
    Failed,
    /// A task of an operation panicked: its messages wait until the next start, all others go on.
    Operation,
    /// A service besides messages cannot work: the node goes on without it.
    Service,
    /// A volume cannot be opened, or works without one of its copies.
    Volume,
    /// There is no room on a medium: messages are refused.
    Full,
    /// The store waits for a file descriptor.
    Descriptors,
    /// The audit takes no entry, or soon will not: no body is shown and nothing is administered then, messages are taken and delivered.
    Audit,
    /// A role has taken a right for a time, with a reason: somebody has to look whether that was right.
    BreakGlass,
    /// The stored roles and rights cannot be read: nobody can log in, or a change is not in force yet; messages are taken and delivered.
    Identity,
    /// The directory (LDAP) cannot be asked, or the settings do not fit it: its users cannot log in, their open sessions go on.
    Directory,
    /// The provider of logins (OIDC) cannot be asked: its users cannot sign in, their open sessions go on until their end.
    Provider,
    /// The clock has moved in a way that was not confirmed: messages are not removed for their age.
    Clock,
}

impl Matter {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Matter::Failed => "failed",
            Matter::Operation => "operation",
            Matter::Service => "service",
            Matter::Volume => "volume",
            Matter::Full => "full",
            Matter::Descriptors => "descriptors",
            Matter::Audit => "audit",
            Matter::BreakGlass => "break-glass",
            Matter::Identity => "identity",
            Matter::Directory => "directory",
            Matter::Provider => "provider",
            Matter::Clock => "clock",
        }
    }

    /// What to do about it: a command where there is one.
    fn next(self) -> &'static str {
        match self {
            Matter::Failed => {
                "check the medium, then `terrace stop` and `terrace serve`; if it does not start, `terrace verify` reports the damage"
            }
            Matter::Operation => "`terrace stop` and `terrace serve`, and report the lines of the log",
            Matter::Service => "set right what the reason names, then `terrace stop` and `terrace serve`",
            Matter::Volume => "`terrace volume status` shows which copy, why, and what to do",
            Matter::Full => {
                "free space on the medium; `terrace status` shows when it is enough. [messages] retention and on_full bound the size of kept messages"
            }
            Matter::Descriptors => "raise the limit of open files (ulimit -n, or LimitNOFILE of the service manager)",
            Matter::Audit => {
                "`terrace audit list` shows what fills it, and `terrace user lock NAME --reason TEXT` ends a role that does: administrators have a place of their own for that. `terrace audit export` keeps a copy elsewhere; then raise [audit] max_bytes, set keep_days or keep_bytes, or free space on the medium, and start the node again. Where the reason is damage: `terrace verify`, then `terrace repair`"
            }
            Matter::BreakGlass => {
                "`terrace audit list --action message` shows what was read by it; `terrace role revoke RIGHT --on OBJECT --from ROLE` ends it before its time. It ends by itself"
            }
            Matter::Identity => {
                "`terrace verify` reports the damage; then `terrace stop`, and `terrace repair` or a backup"
            }
            Matter::Directory => {
                "`terrace user ldap NAME` goes through the steps of a login and says at which it fails; users with a password here log in as before"
            }
            Matter::Provider => {
                "`terrace user oidc` goes through what a login needs and says what fails; users with a password here sign in as before"
            }
            Matter::Clock => "set the clock right; or, if it is right now, `terrace clock confirm`",
        }
    }
}

/// Reports, each time it is called, what prevents volumes from doing all of their work: one line for each.
pub type VolumeTroubles = dyn Fn() -> Vec<String> + Send + Sync;

/// A trouble that a node has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// What is the matter.
    pub matter: Matter,
    /// When it was noticed, microseconds since 1970.
    pub since_us: i64,
    /// Why, or how far it goes.
    pub reason: String,
    /// What to do about it.
    pub next: String,
}

/// The change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It was not there before.
    Began(Trouble),
    /// It is there no more.
    Ended(Trouble),
}

/// The troubles of a node.
#[derive(Debug, Default)]
pub struct Troubles {
    now: BTreeMap<Matter, Trouble>,
}

impl Troubles {
    /// Applies the present facts; returns the changes. A trouble that continues keeps its beginning and gets the new
    /// reason.
    pub fn apply(&mut self, facts: Vec<(Matter, String)>, now_us: i64) -> Vec<Change> {
        let before = std::mem::take(&mut self.now);
        for (matter, reason) in facts {
            let since_us = before.get(&matter).map_or(now_us, |trouble| trouble.since_us);
            self.now.insert(matter, Trouble { matter, since_us, reason, next: matter.next().to_owned() });
        }
        let ended = before.values().filter(|trouble| !self.now.contains_key(&trouble.matter));
        let began = self.now.values().filter(|trouble| !before.contains_key(&trouble.matter));
        ended.cloned().map(Change::Ended).chain(began.cloned().map(Change::Began)).collect()
    }

    /// Those there are, the worst first.
    pub fn list(&self) -> Vec<Trouble> {
        self.now.values().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trouble_is_reported_once_when_it_begins_and_once_when_it_ends() {
        let mut troubles = Troubles::default();
        let full = |reason: &str| vec![(Matter::Full, reason.to_owned())];
        let reported = |changes: Vec<Change>| {
            let line = |change: &Change| match change {
                Change::Began(trouble) => format!("+{}", trouble.matter.name()),
                Change::Ended(trouble) => format!("-{}", trouble.matter.name()),
            };
            changes.iter().map(line).collect::<Vec<_>>()
        };
        assert_eq!(reported(troubles.apply(full("one refused"), 10)), ["+full"]);
        assert_eq!(reported(troubles.apply(full("two refused"), 20)), [""; 0]);
        let list = troubles.list();
        assert_eq!((list[0].since_us, list[0].reason.as_str()), (10, "two refused"));
        let failed = vec![(Matter::Failed, "x".to_owned())];
        assert_eq!(reported(troubles.apply(failed, 30)), ["-full", "+failed"]);
        assert_eq!(reported(troubles.apply(Vec::new(), 40)), ["-failed"]);
        assert!(troubles.list().is_empty());
    }
}
