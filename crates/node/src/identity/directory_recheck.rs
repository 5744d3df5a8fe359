//! [`DirectoryWatch`]: sessions of users of a directory that are open: each is asked about again and again, as long as it lasts.
//!
//! ```text
//!   every `recheck`:  roles with connections or sessions, of the directory --look_up--> gone, locked, in no group --> their sessions end
//!                                                                      |--> other groups --> memberships change
//!                                                                      +--> the directory is away --> they go on, and a trouble says so
//! ```
//!
//! Invariants: a session that began before it was asked about ends, one that began later does not (it has been proven later); ports see
//! an end as they see a lock, within a second. A directory that cannot be asked ends nothing: a hospital works on, and who has to go at
//! once is locked here (`terrace user lock`). Nor does "nothing found" take away what is stored: a mistyped
//! search base says that of everybody, and what people granted under their groups would not come back. Tokens rest while it is said. The task holds no guard while it waits, so it keeps no store open.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::task::JoinHandle;

use super::directory_login::admitted;
use super::directory_roles;
use super::guard::Guard;
use super::guarded_directory::{DirectoryEvent, GuardedDirectory};
use super::ldap::{LdapAccount, LdapError, LdapFailure};
use super::login_error::LdapRefusal;
use super::role::{Role, RoleId};
use crate::task;

/// What the directory said of a user.
type Found = (String, Result<LdapAccount, LdapError>);

/// The task that asks about open sessions.
#[derive(Debug, Clone)]
pub struct DirectoryWatch {
    guard: Weak<Guard>,
    directory: Arc<GuardedDirectory>,
}

impl DirectoryWatch {
    /// The one of a guard; `None`: it has no directory, or no service account by which something could be asked.
    pub fn of(guard: &Arc<Guard>) -> Option<DirectoryWatch> {
        let directory = guard.directory.get().cloned().filter(|directory| directory.logins.can_look_up())?;
        Some(DirectoryWatch { guard: Arc::downgrade(guard), directory })
    }

    /// Starts the task; it ends with the guard. `fail` gets the text of its panic.
    pub fn start(self, fail: impl FnOnce(&str) + Send + 'static) -> JoinHandle<()> {
        let work = async move {
            loop {
                tokio::time::sleep(self.directory.logins.recheck()).await;
                if self.guard.strong_count() == 0 {
                    return;
                }
                self.recheck().await;
            }
        };
        task::supervised("directory", work, fail)
    }

    /// Asks about open sessions once; where the directory was away, whether it is still.
    pub async fn recheck(&self) {
        let Some(guard) = self.guard.upgrade() else { return };
        let up_to = guard.directory_logins.load(Ordering::Acquire);
        let users = connected_users(&guard);
        drop(guard);
        if users.is_empty() && self.directory.logins.trouble().is_none() {
            return;
        }
        let mut all: Vec<Found> = Vec::new();
        // The reason is in the trouble, and in the log.
        let _ = self.directory.logins.look_up(&users, &mut |user, found| all.push((user.to_owned(), found))).await;
        for found in all {
            let Some(guard) = self.guard.upgrade() else { return };
            self.apply(&guard, found, up_to).await;
        }
    }

    async fn apply(&self, guard: &Arc<Guard>, (user, found): Found, up_to: u64) {
        let view = guard.view();
        let Some((id, role)) = guard.role(&view, &user) else { return };
        let Some(kind) = role.credentials.ldap else { return };
        let has_groups = || !directory_roles::are_given(view.directory(), id, RoleId::LDAP, &[]);
        let (why, is_gone) = match found {
            Ok(account) => match admitted(&account, &user, kind) {
                // Of one made by hand too: its next login says so again, and only that takes away what its groups gave.
                Ok(()) if account.roles.is_empty() && has_groups() => (format!("{:?}", LdapRefusal::NoGroup), true),
                Ok(()) => {
                    // Tokens hold again with the groups of now, or not at all.
                    match guard.follow(&self.directory, &user, &account, false).await {
                        Ok(_) => guard.back_in_directory(id),
                        Err(error) => {
                            tracing::error!(user, %error, "what the directory says of a user cannot be stored");
                        }
                    }
                    return;
                }
                Err(why) => (format!("{why:?}"), why == LdapRefusal::NoGroup),
            },
            Err(error) if error.failure == LdapFailure::NoEntry => ("Unknown".to_owned(), true),
            Err(error) => {
                tracing::warn!(user, %error, "the directory does not say whether a user is still there: its sessions go on");
                return;
            }
        };
        if guard.end_directory_sessions(id, up_to, is_gone) {
            tracing::warn!(user, why, "the directory ends the sessions of a user");
            (self.directory.record)(&user, DirectoryEvent::SessionsEnded(why));
        }
    }
}

/// The users of the directory that have connections, or sessions without one, those that it lets in no more, and those that can come in
/// without being asked about: by a token, a certificate or as a user of this machine.
fn connected_users(guard: &Guard) -> Vec<String> {
    let view = guard.view();
    let roles = view.directory().roles();
    let ids: BTreeSet<RoleId> =
        guard.connections.roles().into_iter().chain(guard.present.roles()).chain(guard.gone_from_directory()).collect();
    let comes_in_otherwise = |role: &Role| {
        !(role.credentials.tokens.is_empty()
            && role.credentials.certificates.is_empty()
            && role.credentials.uids.is_empty())
    };
    let of_directory = roles.iter().filter(|(_, role)| role.credentials.ldap.is_some());
    let asked = of_directory.filter(|(id, role)| ids.contains(id) || comes_in_otherwise(role));
    asked.map(|(_, role)| role.name.clone()).collect()
}
