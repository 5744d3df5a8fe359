//! Sessions of users of a directory that are open: each is asked about again and again, as long as it lasts.
//!
//! ```text
//!   every `recheck`:  roles with connections, of the directory --look_up--> gone, locked, in no group --> their sessions end
//!                                                                      |--> other groups --> memberships change
//!                                                                      +--> the directory is away --> they go on, and a trouble says so
//! ```
//!
//! Invariants: a session that began before it was asked about ends, one that began later does not (it has been proven later); ports see
//! an end as they see a lock, within a second. A directory that cannot be asked ends nothing: a hospital works on, and who has to go at
//! once is locked here (`terrace user lock`). The task holds no guard while it waits, so it keeps no store open.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use tokio::task::JoinHandle;

use super::directory_login::{GuardedDirectory, admitted};
use super::guard::{Guard, locked};
use super::ldap::{LdapAccount, LdapError, LdapFailure};
use super::role::RoleId;
use crate::audit::AuditEntry;
use crate::task;

/// What the directory said of a user.
type Found = (String, Result<LdapAccount, LdapError>);

impl Guard {
    /// Starts the task that asks about open sessions; it ends with the guard. Without a directory or a service account there is
    /// nothing to ask. `fail` gets the text of its panic.
    pub fn watch_directory(self: &Arc<Self>, fail: impl FnOnce(&str) + Send + 'static) -> Option<JoinHandle<()>> {
        let directory = self.directory.get().cloned().filter(|directory| directory.logins.can_look_up())?;
        let guard = Arc::downgrade(self);
        let work = async move {
            loop {
                tokio::time::sleep(directory.logins.recheck()).await;
                if guard.strong_count() == 0 {
                    return;
                }
                recheck(&guard, &directory).await;
            }
        };
        Some(task::supervised("directory", work, fail))
    }

    /// Asks about open sessions once, as the task does.
    pub async fn recheck_directory(self: &Arc<Self>) {
        if let Some(directory) = self.directory.get().cloned() {
            recheck(&Arc::downgrade(self), &directory).await;
        }
    }

    /// The users of the directory that have connections.
    fn connected_users(&self) -> Vec<String> {
        let view = self.view();
        let roles = view.directory().roles();
        let connections = locked(&self.connections);
        let of_directory =
            connections.keys().filter_map(|id| roles.get(id)).filter(|role| role.credentials.ldap.is_some());
        of_directory.map(|role| role.name.clone()).collect()
    }

    /// Ends the sessions of a role that the directory proved up to a login.
    pub(super) fn end_directory_sessions(&self, id: RoleId, up_to: u64) {
        {
            let mut ended = locked(&self.directory_ended);
            let mut all = std::collections::BTreeMap::clone(&ended);
            let roles = self.view();
            all.retain(|id, _| roles.directory().roles().contains_key(id));
            let end = all.entry(id).or_default();
            *end = up_to.max(*end);
            *ended = Arc::new(all);
        }
        self.view_again();
    }

    async fn rechecked(self: &Arc<Self>, directory: &Arc<GuardedDirectory>, (user, found): Found, up_to: u64) {
        let view = self.view();
        let Some((id, role)) = self.role(&view, &user) else { return };
        let Some(kind) = role.credentials.ldap else { return };
        let why = match found {
            Ok(account) => match admitted(&account, &user, kind) {
                Ok(()) => {
                    if let Err(error) = self.follow(directory, &user, &account, false).await {
                        tracing::error!(user, %error, "what the directory says of a user cannot be stored");
                    }
                    return;
                }
                Err(why) => format!("{why:?}"),
            },
            Err(error) if error.failure == LdapFailure::NoEntry => "Unknown".to_owned(),
            Err(error) => {
                tracing::warn!(user, %error, "the directory does not say whether a user is still there: its sessions go on");
                return;
            }
        };
        tracing::warn!(user, why, "the directory ends the sessions of a user");
        self.end_directory_sessions(id, up_to);
        self.recorded(
            directory,
            AuditEntry::new("identity.directory", format!("role {user}")).with("sessions_ended", why),
        );
    }
}

/// Asks about open sessions; where the directory was away, whether it is still.
async fn recheck(guard: &Weak<Guard>, directory: &Arc<GuardedDirectory>) {
    let Some(strong) = guard.upgrade() else { return };
    let up_to = strong.directory_logins.load(Ordering::Acquire);
    let users = strong.connected_users();
    drop(strong);
    if users.is_empty() && directory.logins.trouble().is_none() {
        return;
    }
    let mut all: Vec<Found> = Vec::new();
    // The reason is in the trouble, and in the log.
    let _ = directory.logins.look_up(&users, &mut |user, found| all.push((user.to_owned(), found))).await;
    for found in all {
        let Some(guard) = guard.upgrade() else { return };
        guard.rechecked(directory, found, up_to).await;
    }
}
