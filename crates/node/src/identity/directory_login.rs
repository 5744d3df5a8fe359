//! The guard's part of passwords that come as they are: the node's own, or those of a directory ([`super::ldap`]).
//!
//! ```text
//!   log_in(user, password) --a role with a password here, or nobody-->  the local check (guard)
//!                          --a role of the directory -->  LdapLogins::check --> memberships by its groups --> Caller
//!                          --nobody, with `create`    -->  the same, and the role is made
//! ```
//!
//! Invariants: a role that has a password here is never proven by the directory, whatever that says of the name. The directory is
//! asked without anything being held that local logins need. An attempt counts for the throttle as a local one does; one that the
//! directory could not judge counts for nobody. Who failed learns nothing: the text is that of a wrong password, whatever the reason,
//! and the answer comes at a full [`FAILURE_STEP`] after the question, so that the ways which a name can go are not told apart by
//! their time. The exact name counts: directories ignore case, and `Ann` must be no second role for `ann`, nor a way around a rule
//! for it.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::caller::{Caller, Proof};
use super::change::IdentityChange;
use super::directory_ends::DirectoryEnds;
use super::directory_roles;
use super::error::IdentityError;
use super::guard::{Begun, Guard, locked};
use super::guarded_directory::{DirectoryEvent, DirectoryRecorder, GuardedDirectory};
use super::ldap::{LdapAccount, LdapFailure, LdapLogins};
use super::login_error::{LdapRefusal, LoginError, LoginRefusal};
use super::role::{LdapUser, RoleId, check_name};
use super::scram::PASSWORD_BYTES_MAX;
use super::throttle::PENDING_MS;
use super::token::shown_name;

/// With a directory, the answer to a failed login comes at a multiple of this time.
const FAILURE_STEP: Duration = Duration::from_millis(500);

/// Whose password the directory checks.
struct AskedUser<'a> {
    user: &'a str,
    /// Its role; `None`: it has none yet.
    id: Option<RoleId>,
    kind: LdapUser,
}

impl Guard {
    /// From now on the passwords of users of a directory are checked there. `record` gets what the directory changed: it is done with
    /// an entry and without, since it takes rights away, or gives what an operator said. Only the first call counts.
    pub fn use_directory(&self, logins: LdapLogins, record: Box<DirectoryRecorder>) {
        // A second one is a mistake of who puts a node together, and changes nothing.
        let _ = self.directory.set(Arc::new(GuardedDirectory { logins, record }));
    }

    /// Whether a port has to take passwords as they are, where nobody can read them on the way: a directory cannot check SCRAM. It is
    /// the same for every user, so that nobody learns by it whose password is where.
    pub fn takes_clear_passwords(&self) -> bool {
        self.directory.get().is_some()
    }

    /// What keeps the directory from being asked; `None`: nothing, or there is none.
    pub fn directory_trouble(&self) -> Option<String> {
        self.directory.get().and_then(|directory| directory.logins.trouble())
    }

    /// A login with a password that came as it is, by whoever checks it for this user.
    ///
    /// # Errors
    /// [`LoginError`].
    pub async fn log_in(
        self: &Arc<Self>,
        user: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<Caller, LoginError> {
        let directory = self.directory.get().cloned();
        let asked =
            directory.as_ref().and_then(|directory| Some((directory, self.of_directory(&directory.logins, user)?)));
        match asked {
            Some((directory, asked)) => self.by_directory(directory, asked, password, from).await,
            None => self.by_own(user, password, from).await,
        }
    }

    /// Waits, with a directory, until the answer to a login that was refused may be given. Ports call it when they hold nothing that
    /// other logins wait for; `begun` is when the login came.
    pub async fn pause_refused(&self, begun: Instant) {
        if self.directory.get().is_some() {
            tokio::time::sleep(pause_after(begun.elapsed())).await;
        }
    }

    /// Whether the directory is asked about the password of a name: a port keeps these logins from holding up others.
    pub fn is_of_directory(&self, user: &str) -> bool {
        self.directory.get().is_some_and(|directory| self.of_directory(&directory.logins, user).is_some())
    }

    async fn by_own(self: &Arc<Self>, user: &str, password: &str, from: Option<IpAddr>) -> Result<Caller, LoginError> {
        let (guard, user, password) = (Arc::clone(self), user.to_owned(), password.to_owned());
        let checked = tokio::task::spawn_blocking(move || guard.password(&user, &password, from)).await;
        checked.unwrap_or(Err(LoginError::Unchecked))
    }

    /// Whether the directory checks the password of a name.
    fn of_directory<'a>(&self, logins: &LdapLogins, user: &'a str) -> Option<AskedUser<'a>> {
        let view = self.view();
        match self.role(&view, user) {
            Some((id, role)) => role.credentials.ldap.map(|kind| AskedUser { user, id: Some(id), kind }),
            // A token that was typed in the place of a name is nobody's there.
            None if logins.creates() && check_name(user).is_ok() && shown_name(user) == user => {
                Some(AskedUser { user, id: None, kind: LdapUser::Created })
            }
            None => None,
        }
    }

    async fn by_directory(
        self: &Arc<Self>,
        directory: &Arc<GuardedDirectory>,
        AskedUser { user, id, kind }: AskedUser<'_>,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<Caller, LoginError> {
        let begun = self.begin(Some(user), from)?;
        // Whatever ends sessions from here on ends this one too.
        let login = self.directory_logins.fetch_add(1, Ordering::AcqRel) + 1;
        // Directories answer an empty password with success.
        if password.is_empty() || password.len() > PASSWORD_BYTES_MAX || password.contains('\0') {
            return Err(begun.refused(LoginRefusal::Ldap(LdapRefusal::WrongPassword)));
        }
        let is_let_in = |id| self.view().attributes(id).is_some_and(|own| own.may_log_in(self.now_us()));
        if id.is_some_and(|id| !is_let_in(id)) {
            return Err(begun.refused(LoginRefusal::NotAllowed));
        }
        let account = match directory.logins.check(user, password).await {
            Ok(account) => account,
            Err(error) => {
                tracing::info!(user, %error, "the directory did not log a user in");
                if let (LdapFailure::NoEntry, Some(id)) = (error.failure, id) {
                    self.gone_at_login(directory, user, (id, login), LdapRefusal::Unknown);
                }
                return Err(match error.failure {
                    LdapFailure::NoEntry => begun.refused(LoginRefusal::Ldap(LdapRefusal::Unknown)),
                    LdapFailure::WrongPassword => begun.refused(LoginRefusal::Ldap(LdapRefusal::WrongPassword)),
                    LdapFailure::Away | LdapFailure::Settings => begun.unasked(),
                });
            }
        };
        if let Err(why) = admitted(&account, user, kind) {
            if let (LdapRefusal::NoGroup, Some(id)) = (why, id) {
                self.gone_at_login(directory, user, (id, login), why);
            }
            return Err(begun.refused(LoginRefusal::Ldap(why)));
        }
        let changed = self.follow(directory, user, &account, id.is_none()).await;
        if let Err(error) = changed {
            tracing::error!(user, %error, "what the directory says of a user cannot be stored");
            return Err(begun.unasked());
        }
        if let Some(id) = id {
            self.back_in_directory(id);
        }
        self.directory_entered(begun, user, login)
    }

    /// The caller of a login that the directory has proven.
    fn directory_entered(&self, begun: Begun, user: &str, login: u64) -> Result<Caller, LoginError> {
        if begun.age_ms() > PENDING_MS {
            return Err(begun.refused(LoginRefusal::Outdated));
        }
        let view = self.view();
        let Some((id, role)) = self.role(&view, user).filter(|(_, role)| role.credentials.ldap.is_some()) else {
            return Err(begun.refused(LoginRefusal::Outdated));
        };
        begun.entered(id, role, Proof::Ldap(login))
    }

    /// Ends the sessions of a role that the directory proved up to a login. `is_gone`: it lets the role in no more, so that neither its
    /// tokens nor its certificates hold until it does; what its groups gave, and what it granted, stays. Not for one that is locked:
    /// that may be over in a minute, and strangers can cause it by guessing. Returns whether it is new.
    pub(super) fn end_directory_sessions(&self, id: RoleId, up_to: u64, is_gone: bool) -> bool {
        let is_new = {
            let mut ended = locked(&self.directory_ended);
            let (was_gone, was_told) = (ended.is_gone(id), ended.is_told(id));
            // A session may have begun beside the answer that was the first one: later ones end it.
            if was_told && (was_gone || !is_gone) && ended.has_ended(id, up_to) {
                return false;
            }
            let mut all = DirectoryEnds::clone(&ended);
            let view = self.view();
            all.retain(|id| view.directory().roles().contains_key(&id));
            all.end(id, up_to);
            // One that is gone and then locked too is gone still: only the directory's letting it in ends that.
            if is_gone {
                all.set_gone(id, true);
            }
            all.set_told(id, true);
            *ended = Arc::new(all);
            !was_told || (is_gone && !was_gone)
        };
        self.view_again();
        is_new
    }

    /// The directory lets a role in: what it proves otherwise holds again.
    pub(super) fn back_in_directory(&self, id: RoleId) {
        {
            let mut ended = locked(&self.directory_ended);
            if !ended.is_gone(id) && !ended.is_told(id) {
                return;
            }
            let mut all = DirectoryEnds::clone(&ended);
            all.set_gone(id, false);
            all.set_told(id, false);
            *ended = Arc::new(all);
        }
        self.view_again();
    }

    /// The roles that the directory lets in no more: it is asked about them until it does.
    pub(super) fn gone_from_directory(&self) -> BTreeSet<RoleId> {
        locked(&self.directory_ended).gone()
    }

    /// The directory has refused a login because the role is not there, or in no group that lets it in.
    fn gone_at_login(&self, directory: &GuardedDirectory, user: &str, (id, login): (RoleId, u64), why: LdapRefusal) {
        if self.end_directory_sessions(id, login, true) {
            (directory.record)(user, DirectoryEvent::SessionsEnded(format!("{why:?}")));
        }
    }

    /// Gives a user the memberships that its groups are, and makes its role where that is wanted. Nothing is written if nothing is
    /// different.
    pub(super) async fn follow(
        self: &Arc<Self>,
        directory: &Arc<GuardedDirectory>,
        user: &str,
        account: &LdapAccount,
        create: bool,
    ) -> Result<(), IdentityError> {
        let roles: Vec<String> = account.roles.iter().cloned().collect();
        let view = self.view();
        let is_same = |id| directory_roles::are_given(view.directory(), id, RoleId::LDAP, &roles);
        for role in directory_roles::missing(view.directory(), &roles) {
            tracing::warn!(user, role, "a group is a role that is not there: `terrace role create` makes it");
        }
        for role in directory_roles::withheld(view.directory(), user, &roles) {
            tracing::error!(
                user,
                role,
                "a group is an administrator, and is withheld: others can become this user by a membership that no administrator made"
            );
        }
        if view.directory().named(user).is_ok_and(is_same) {
            return Ok(());
        }
        let change = IdentityChange::DirectoryRoles { user: user.to_owned(), roles: roles.clone(), create };
        let guard = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || guard.change(&Caller::node(), &[change])).await;
        changed.unwrap_or(Err(IdentityError::Busy))?;
        tracing::info!(user, roles = roles.join(", "), "the directory changed what a user is a member of");
        (directory.record)(user, DirectoryEvent::Roles(roles));
        Ok(())
    }
}

/// How long the answer to a login that was refused waits, so long after it came.
pub(super) fn pause_after(elapsed: Duration) -> Duration {
    let over = elapsed.as_micros() % FAILURE_STEP.as_micros();
    FAILURE_STEP.saturating_sub(Duration::from_micros(u64::try_from(over).unwrap_or_default()))
}

/// Whether an account whose password is right may come in.
pub(super) fn admitted(account: &LdapAccount, user: &str, kind: LdapUser) -> Result<(), LdapRefusal> {
    if account.locked.is_some() {
        return Err(LdapRefusal::Locked);
    }
    match kind {
        LdapUser::ByHand if account.names.is_empty() => Ok(()),
        LdapUser::Created if account.roles.is_empty() => Err(LdapRefusal::NoGroup),
        _ if !account.names.iter().any(|name| name == user) => Err(LdapRefusal::OtherName),
        _ => Ok(()),
    }
}
