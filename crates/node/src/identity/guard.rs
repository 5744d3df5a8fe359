//! [`Guard`]: the one of a node that logs callers in and decides what they may.
//!
//! ```text
//!   password, scram, token, certificate, local, trusted  ->  Caller
//!   may(caller, action, object)                          ->  Grant, or Denied
//!   change(caller, changes)    durable, then a new view, then a new version: open sessions compare it
//! ```
//!
//! Invariants: a new view is in force before its version is announced; a view that time has changed is replaced within
//! [`TICK`]; what is stored and could not be read is read again until it is in force. A login by password takes as long for an unknown user, a user without that kind of password, and one who may
//! not log in, and ends with the same error. Nothing waits here: an attempt that is too early is refused with the time
//! to wait. What checks a password takes a processor for some 20 ms and 19 MiB, so it does not belong on a task, and no
//! more of it is done at once than there are processors. The time here never goes back: what has expired stays so while
//! the node runs, whatever is done to the clock.

use std::net::IpAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};

use store::Store;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::access::AccessRules;
use super::action::Action;
use super::caller::{Caller, Proof};
use super::change::IdentityChange;
use super::change_rate::{ChangeRate, ChangedTooFast};
use super::directory::Directory;
use super::directory_ends::DirectoryEnds;
use super::error::IdentityError;
use super::guarded_directory::{DirectoryRecorder, GuardedDirectory};
use super::guarded_provider::GuardedProvider;
use super::hashing::PasswordHash;
use super::identity_store::{IdentityStore, Import, ImportedUser};
use super::login_error::{LdapRefusal, LoginError, LoginRefusal};
use super::object::Object;
use super::oidc::OidcProvider;
use super::role::{Role, RoleId};
use super::role_counts::{Connected, RoleCounts};
use super::scram::{self, ChannelBinding, Exchange, Mock, PASSWORD_BYTES_MAX, ScramError, Verifier};
use super::throttle::{Attempt, LoginEvent, LoginThrottle, PENDING_MS, Turn};
use super::token::{TokenDigest, shown_name};
use super::view::{Denied, Grant, RightsView};
use crate::Clock;
use crate::bounded_entries::StrangerEntries;
use crate::task;

/// How often is looked whether time has changed a right.
pub const TICK: Duration = Duration::from_millis(250);

/// What is stored and not in force is read again at each of so many ticks: once a second.
const CATCH_UP_TICKS: u32 = 4;

/// How long an attempt waits while all processors check passwords.
const HASHING_WAIT: Duration = Duration::from_millis(100);

/// Logs callers in, and decides.
#[derive(Debug)]
pub struct Guard {
    stored: IdentityStore,
    clock: Clock,
    /// The latest time that the clock has shown.
    seen_us: AtomicI64,
    /// A permit for each password that may be checked at once.
    pub(super) hashing: Semaphore,
    view: RwLock<Arc<RightsView>>,
    version: AtomicU64,
    changed: watch::Sender<u64>,
    /// Held while a view is replaced, so that an older one never follows a newer one.
    replacing: Mutex<()>,
    throttle: Mutex<LoginThrottle>,
    recorded: Mutex<StrangerEntries>,
    rate: Mutex<ChangeRate>,
    /// Who may come in from where.
    pub(super) access: RwLock<Arc<AccessRules>>,
    pub(super) connections: RoleCounts,
    /// Sessions that no connection stands for.
    pub(super) present: RoleCounts,
    /// Who checks the passwords of users that have none here.
    pub(super) directory: OnceLock<Arc<GuardedDirectory>>,
    /// Who says who users are that log in with a browser.
    pub(super) provider: OnceLock<Arc<GuardedProvider>>,
    /// How many logins by the directory have begun.
    pub(super) directory_logins: AtomicU64,
    /// What it has ended since.
    pub(super) directory_ended: Mutex<Arc<DirectoryEnds>>,
    opened: Instant,
    mock: Mock,
    dummy: PasswordHash,
    /// The user that this process runs as.
    own_uid: u32,
    /// Why the stored roles and rights are not in force.
    unreadable: Option<String>,
    /// Why what was changed last is stored and not in force.
    behind: Mutex<Option<String>>,
}

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panicked while it was held left whole values.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Guard {
    /// Opens the roles and rights of a store. `mock` is kept by the caller, so that the challenges of unknown users stay
    /// the same over restarts. Where what is stored cannot be read, nobody but the node's own role may anything, and
    /// [`unreadable`](Guard::unreadable) says why: messages are taken and delivered without rights.
    ///
    /// Errors: [`IdentityError::Memory`].
    pub fn open(store: Store, clock: Clock, mock: Mock) -> Result<Arc<Guard>, IdentityError> {
        let stored = IdentityStore::of(store);
        let now_us = clock.now_us();
        let loaded = stored.load();
        let unreadable = loaded.as_ref().err().map(ToString::to_string);
        if let Some(why) = &unreadable {
            tracing::error!(why, "the stored roles and rights cannot be read: nobody can log in");
        }
        let view = RightsView::of(Arc::new(loaded.unwrap_or_default()), now_us);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Arc::new(Guard {
            stored,
            clock,
            seen_us: AtomicI64::new(now_us),
            hashing: Semaphore::new(processors),
            view: RwLock::new(Arc::new(view)),
            version: AtomicU64::new(1),
            changed: watch::Sender::new(1),
            replacing: Mutex::new(()),
            throttle: Mutex::new(LoginThrottle::default()),
            recorded: Mutex::default(),
            rate: Mutex::default(),
            access: RwLock::default(),
            connections: RoleCounts::default(),
            present: RoleCounts::default(),
            directory: OnceLock::new(),
            provider: OnceLock::new(),
            directory_logins: AtomicU64::new(0),
            directory_ended: Mutex::default(),
            opened: Instant::now(),
            mock,
            dummy: PasswordHash::dummy()?,
            own_uid: rustix::process::geteuid().as_raw(),
            unreadable,
            behind: Mutex::default(),
        }))
    }

    /// From now on a provider says who users are that come with a browser. `record` gets what it changed: it is done with an entry and
    /// without. Only the first call counts.
    pub fn use_provider(&self, provider: OidcProvider, record: Box<DirectoryRecorder>) {
        // A second one is a mistake of who puts a node together, and changes nothing.
        let _ = self.provider.set(Arc::new(GuardedProvider { provider, record }));
    }

    /// The provider, if there is one: it begins logins.
    pub fn provider(&self) -> Option<&OidcProvider> {
        self.provider.get().map(|own| &own.provider)
    }

    /// Why the stored roles and rights could not be read when the node started; `None`: they are in force.
    pub fn unreadable(&self) -> Option<&str> {
        self.unreadable.as_deref()
    }

    /// The rights of now. A session keeps it, and takes it again when [`version`](Guard::version) has changed.
    pub fn view(&self) -> Arc<RightsView> {
        Arc::clone(&self.view.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// A number that is another one whenever a right may have changed.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Tells of each new version.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Decides. Errors: [`Denied`].
    pub fn may(&self, caller: &Caller, action: Action, object: Object<'_>) -> Result<Grant, Denied> {
        self.view().may(caller, action, object)
    }

    /// What is stored, for those who write to it within a transaction of their own; they call
    /// [`refresh`](Guard::refresh) after its commit.
    pub fn stored(&self) -> &IdentityStore {
        &self.stored
    }

    /// Makes changes by right of a caller, all or none. Durable and in force when it returns; blocks meanwhile.
    ///
    /// Errors: those of [`IdentityStore::change`].
    pub fn change(&self, caller: &Caller, changes: &[IdentityChange]) -> Result<(), IdentityError> {
        self.stored.change(caller, changes, self.now_us())?;
        self.refresh()?;
        self.log_broken_glass(caller, changes);
        Ok(())
    }

    /// Takes a turn for changes of roles and rights; whoever records and makes changes takes it first. Administrators have
    /// one at any time, others only so many: each change has an entry in the audit, which must not be filled.
    ///
    /// Errors: [`ChangedTooFast`], with the time to wait.
    pub fn change_turn(&self, caller: &Caller, changes: &[IdentityChange]) -> Result<(), ChangedTooFast> {
        if self.view().is_administrator(caller.session()) {
            return Ok(());
        }
        locked(&self.rate).apply(caller.session(), changes, self.now_ms())
    }

    /// The rights for a time that are in force by broken glass, a line for each role and reason.
    pub fn broken_glass(&self) -> Vec<String> {
        self.view().directory().broken_glass(self.now_us())
    }

    /// An alert for those who read the log.
    fn log_broken_glass(&self, caller: &Caller, changes: &[IdentityChange]) {
        for change in changes {
            let IdentityChange::BreakGlass { action, object, reason, .. } = change else { continue };
            let (view, action) = (self.view(), action.name());
            let role = view.name(caller.session()).unwrap_or_default();
            tracing::error!(role, action, %object, reason, "a role has broken the glass: it took this right for a time");
        }
    }

    /// Imports the users of the settings. Errors: those of [`IdentityStore::import`].
    pub fn import(&self, users: &[ImportedUser]) -> Result<Import, IdentityError> {
        let import = self.stored.import(users, self.now_us())?;
        self.refresh()?;
        Ok(import)
    }

    /// Reads what is stored and puts it in force.
    ///
    /// Errors: [`IdentityError::Store`], [`IdentityError::Unreadable`]: the earlier view stays in force until it can be read, which is
    /// tried [again and again](Guard::catch_up).
    pub fn refresh(&self) -> Result<(), IdentityError> {
        let _one = locked(&self.replacing);
        let loaded = self.stored.load();
        *locked(&self.behind) = loaded.as_ref().err().map(ToString::to_string);
        let view = self.view_of(Arc::new(loaded?));
        self.put_in_force(view);
        Ok(())
    }

    /// Why what is stored of roles and rights, or what was changed last, is not in force; `None`: it is.
    pub fn lacks_rights(&self) -> Option<String> {
        let behind = || Some(format!("a change is stored and not in force, which is tried again: {}", self.behind()?));
        self.unreadable.clone().or_else(behind)
    }

    pub(super) fn behind(&self) -> Option<String> {
        locked(&self.behind).clone()
    }

    /// Puts in force what is stored, if that failed before. It may block.
    pub(super) fn catch_up(&self) {
        if self.behind().is_some() && self.refresh().is_ok() {
            tracing::warn!("what was changed of roles and rights is in force now");
        }
    }

    /// Makes the view again of what it was made of: what is not stored has changed.
    pub(super) fn view_again(&self) {
        let _one = locked(&self.replacing);
        let view = self.view_of(Arc::clone(self.view().directory()));
        self.put_in_force(view);
    }

    fn view_of(&self, directory: Arc<Directory>) -> RightsView {
        let ended = Arc::clone(&locked(&self.directory_ended));
        RightsView::of(directory, self.now_us()).with_ended(ended)
    }

    fn put_in_force(&self, view: RightsView) {
        *self.view.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(view);
        let version = self.version.fetch_add(1, Ordering::AcqRel) + 1;
        self.changed.send_replace(version);
    }

    /// Puts in force what time has changed.
    pub fn tick(&self) {
        let now_us = self.now_us();
        let is_due = || self.view().next_change_us().is_some_and(|at| at <= now_us);
        if is_due() {
            let _one = locked(&self.replacing);
            if is_due() {
                let view = self.view_of(Arc::clone(self.view().directory()));
                self.put_in_force(view);
            }
        }
    }

    /// Starts the task that calls [`tick`](Guard::tick); it ends with the guard. `fail` gets the text of its panic.
    pub fn watch_time(self: &Arc<Self>, fail: impl FnOnce(&str) + Send + 'static) -> JoinHandle<()> {
        let guard = Arc::downgrade(self);
        let work = async move {
            let mut ticks = 0_u32;
            while let Some(guard) = guard.upgrade() {
                guard.tick();
                ticks = ticks.wrapping_add(1);
                if guard.behind().is_some() && ticks.is_multiple_of(CATCH_UP_TICKS) {
                    // It fails only with the runtime; the next one tries again.
                    let _ = tokio::task::spawn_blocking(move || guard.catch_up()).await;
                } else {
                    drop(guard);
                }
                tokio::time::sleep(TICK).await;
            }
        };
        task::supervised("identity", work, fail)
    }

    /// A login with a password that came as it is. Blocks a thread for some 20 ms.
    ///
    /// Errors: [`LoginError`].
    pub fn password(self: &Arc<Self>, user: &str, password: &str, from: Option<IpAddr>) -> Result<Caller, LoginError> {
        // Before the attempt begins: who has to wait for others has not failed.
        let _turn = self.hashing.try_acquire().map_err(|_| LoginError::Wait(HASHING_WAIT))?;
        let begun = self.begin(Some(user), from)?;
        if password.len() > PASSWORD_BYTES_MAX {
            return Err(begun.refused(LoginRefusal::WrongPassword));
        }
        let view = self.view();
        let role = self.role(&view, user);
        let own = role.map(|(_, role)| &role.credentials);
        // Both are always checked, so that the time does not tell which of them a user has, or whether it exists.
        let hash = own.and_then(|own| own.hash.as_ref());
        let verifier = own.and_then(|own| own.scram.as_ref());
        let Ok(by_hash) = hash.unwrap_or(&self.dummy).check(password) else { return Err(begun.unjudged()) };
        let by_scram = verifier.unwrap_or(&self.mock.verifier(user)).check(password);
        let is_right = if hash.is_some() { by_hash } else { verifier.is_some() && by_scram };
        match role {
            None => Err(begun.refused(LoginRefusal::Unknown)),
            Some(_) if !is_right => Err(begun.refused(LoginRefusal::WrongPassword)),
            Some((id, role)) => begun.entered(id, role, Proof::Password),
        }
    }

    /// Processes a client's first message of SCRAM, and how it may be bound to its connection. Returns our message, and the
    /// login that waits for the last one.
    ///
    /// Errors: [`LoginError::Wait`], [`LoginError::Scram`]; whether the user exists shows only at the end.
    pub fn scram(
        self: &Arc<Self>,
        user: &str,
        first: (&[u8], ChannelBinding<'_>),
        from: Option<IpAddr>,
    ) -> Result<(String, ScramLogin), LoginError> {
        let begun = self.begin(Some(user), from)?;
        let view = self.view();
        let found = self.role(&view, user).and_then(|(id, role)| Some((id, role.credentials.scram.clone()?)));
        let verifier = found.as_ref().map(|(_, verifier)| verifier);
        let (answer, exchange) = scram::begin(first, user, verifier, &self.mock).map_err(LoginError::Scram)?;
        Ok((answer, ScramLogin { begun, exchange, user: user.to_owned(), found }))
    }

    /// A login with a token.
    ///
    /// Errors: [`LoginError`].
    pub fn token(self: &Arc<Self>, text: &str, from: Option<IpAddr>) -> Result<Caller, LoginError> {
        let view = self.view();
        let found = TokenDigest::of(text).and_then(|digest| Some((digest, view.of_token(&digest)?)));
        // A right token is never held up by wrong ones: it cannot be guessed.
        match found.and_then(|(digest, id)| Some((digest, id, view.directory().roles().get(&id)?))) {
            Some((digest, id, role)) if role.attributes.may_log_in(self.now_us()) => {
                Ok(Caller::of(id, Proof::Token(digest), from))
            }
            Some(_) => Err(self.begin(None, from)?.refused(LoginRefusal::NotAllowed)),
            None => Err(self.begin(None, from)?.refused(LoginRefusal::Unknown)),
        }
    }

    /// A login by a client certificate that a port has verified: the first of its names that is of a role.
    ///
    /// Errors: [`LoginError::Refused`], [`LoginError::Wait`].
    pub fn certificate(self: &Arc<Self>, names: &[&str], from: Option<IpAddr>) -> Result<Caller, LoginError> {
        let found = names.iter().find_map(|name| self.view().of_certificate(name));
        self.by_certificate(found, names.first().copied().unwrap_or_default(), from)
    }

    /// The same for a client that says which role it is: one of the names has to be that role's.
    ///
    /// Errors: those of [`certificate`](Guard::certificate).
    pub fn certificate_of(
        self: &Arc<Self>,
        user: &str,
        names: &[&str],
        from: Option<IpAddr>,
    ) -> Result<Caller, LoginError> {
        let view = self.view();
        let mut all = names.iter().filter_map(|name| view.of_certificate(name));
        self.by_certificate(all.find(|(_, id)| view.name(*id) == Some(user)), user, from)
    }

    fn by_certificate(
        self: &Arc<Self>,
        found: Option<(Arc<str>, RoleId)>,
        user: &str,
        from: Option<IpAddr>,
    ) -> Result<Caller, LoginError> {
        let allowed = |(name, id)| self.allowed(&self.view(), id, Proof::Certificate(name), from);
        let why = match found.map(allowed) {
            Some(Ok(caller)) => return Ok(caller),
            Some(Err(_)) => LoginRefusal::NotAllowed,
            None => LoginRefusal::Unknown,
        };
        // A right one is never held up by wrong ones: it cannot be guessed.
        Err(self.begin(Some(user), from)?.refused(why))
    }

    /// A caller at the control socket, by the user that the system names: who runs the node, and root, are the node's own
    /// role; others the role that has the user.
    ///
    /// Errors: [`LoginError::Refused`].
    pub fn local(&self, uid: u32) -> Result<Caller, LoginError> {
        if uid == 0 || uid == self.own_uid {
            return Ok(Caller::node());
        }
        let view = self.view();
        let id = view.of_uid(uid).ok_or(LoginError::Refused(LoginRefusal::Unknown))?;
        self.allowed(&view, id, Proof::Uid(uid), None)
    }

    /// A caller from this machine whom the settings trust without a proof.
    ///
    /// Errors: [`LoginError::Refused`], also for an address of another machine.
    pub fn trusted(&self, user: &str, from: IpAddr) -> Result<Caller, LoginError> {
        let view = self.view();
        match self.role(&view, user).filter(|_| from.to_canonical().is_loopback()) {
            Some((id, _)) => self.allowed(&view, id, Proof::Trust, Some(from)),
            None => Err(LoginError::Refused(LoginRefusal::Unknown)),
        }
    }

    /// Counts a connection of a caller's role until the result is dropped.
    ///
    /// Errors: [`LoginError::TooMany`].
    pub fn connect(&self, caller: &Caller) -> Result<Connected, LoginError> {
        let limit = self.view().attributes(caller.session()).and_then(|attributes| attributes.connection_limit);
        self.connections.take(caller.session(), limit).ok_or(LoginError::TooMany)
    }

    /// A caller has begun a session that no connection stands for, which lasts until the result is dropped.
    pub fn present(&self, caller: &Caller) -> Option<Connected> {
        self.present.take(caller.session(), None)
    }

    /// How many of these there are.
    pub fn present_sessions(&self) -> u32 {
        self.present.all()
    }

    /// Asked for each failed login before it is recorded in the audit: if it has an entry, how many before it had none. Under a
    /// flood most have none, since a full audit would stop administration.
    pub fn failure_to_record(&self) -> Option<u64> {
        locked(&self.recorded).apply(self.now_ms())
    }

    /// How many failed logins are remembered, for the status.
    pub fn failures(&self) -> u64 {
        locked(&self.throttle).failures()
    }

    pub(super) fn role<'v>(&self, view: &'v RightsView, user: &str) -> Option<(RoleId, &'v Role)> {
        let id = view.directory().named(user).ok().filter(|id| *id != RoleId::LOCAL)?;
        Some((id, view.directory().roles().get(&id)?))
    }

    fn allowed(&self, view: &RightsView, id: RoleId, proof: Proof, from: Option<IpAddr>) -> Result<Caller, LoginError> {
        let caller = Caller::of(id, proof, from);
        view.holds(&caller).map_err(|_| LoginError::Refused(LoginRefusal::NotAllowed))?;
        Ok(caller)
    }

    pub(super) fn begin(self: &Arc<Self>, user: Option<&str>, from: Option<IpAddr>) -> Result<Begun, LoginError> {
        let mut throttle = locked(&self.throttle);
        let attempt = throttle.attempt(user, from);
        match throttle.apply(attempt, LoginEvent::Begins, self.now_ms()) {
            Turn::Go => Ok(Begun {
                guard: Arc::clone(self),
                attempt,
                user: user.map(str::to_owned),
                from,
                begun_ms: self.now_ms(),
                ends: LoginEvent::Failed,
            }),
            Turn::Wait(ms) => Err(LoginError::Wait(Duration::from_millis(ms))),
        }
    }

    /// The time by which rights begin and end, in microseconds since 1970: the latest that the clock has shown.
    pub fn now_us(&self) -> i64 {
        let now_us = self.clock.now_us();
        self.seen_us.fetch_max(now_us, Ordering::AcqRel).max(now_us)
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// An attempt to log in; one that is dropped before it succeeded has failed.
#[derive(Debug)]
pub(super) struct Begun {
    guard: Arc<Guard>,
    attempt: Attempt,
    user: Option<String>,
    from: Option<IpAddr>,
    begun_ms: u64,
    ends: LoginEvent,
}

impl Begun {
    pub(super) fn entered(mut self, id: RoleId, role: &Role, proof: Proof) -> Result<Caller, LoginError> {
        if !role.attributes.may_log_in(self.guard.now_us()) {
            return Err(self.refused(LoginRefusal::NotAllowed));
        }
        self.ends = LoginEvent::Succeeded;
        Ok(Caller::of(id, proof, self.from))
    }

    fn unjudged(mut self) -> LoginError {
        self.ends = LoginEvent::Unjudged;
        tracing::error!("there is no memory to check a password");
        LoginError::Memory
    }

    /// An attempt that the directory could not judge: for who tries it is like a wrong password.
    pub(super) fn unasked(self) -> LoginError {
        self.unjudged_by(LoginRefusal::Ldap(LdapRefusal::Away))
    }

    /// An attempt that somebody else could not judge, for this reason.
    pub(super) fn unjudged_by(mut self, why: LoginRefusal) -> LoginError {
        self.ends = LoginEvent::Unjudged;
        self.refused(why)
    }

    /// How long ago it began, in milliseconds.
    pub(super) fn age_ms(&self) -> u64 {
        self.guard.now_ms().saturating_sub(self.begun_ms)
    }

    pub(super) fn refused(self, why: LoginRefusal) -> LoginError {
        let from = self.from.map(|address| address.to_string()).unwrap_or_else(|| "the control socket".into());
        let user = self.user.as_deref().map_or("(token)", shown_name);
        tracing::warn!(user, from, why = ?why, "a login failed");
        LoginError::Refused(why)
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        let now_ms = self.guard.now_ms();
        locked(&self.guard.throttle).apply(self.attempt, self.ends, now_ms);
    }
}

/// A login by SCRAM that waits for the client's proof.
#[derive(Debug)]
pub struct ScramLogin {
    begun: Begun,
    exchange: Exchange,
    user: String,
    /// The role of that name at the begin, and what the client's proof is checked against.
    found: Option<(RoleId, Verifier)>,
}

impl ScramLogin {
    /// Processes the client's last message. Returns our last message, and the caller.
    ///
    /// Errors: [`LoginError::Refused`], [`LoginError::Scram`].
    pub fn finish(self, last: &[u8]) -> Result<(String, Caller), LoginError> {
        let now_ms = self.begun.guard.now_ms();
        self.finish_at(last, now_ms)
    }

    pub(super) fn finish_at(self, last: &[u8], now_ms: u64) -> Result<(String, Caller), LoginError> {
        let ScramLogin { begun, exchange, user, found } = self;
        let view = begun.guard.view();
        // The role and the verifier of the begin: a new role of that name has not been proven, nor an old password.
        let is_same = |(id, role): &(RoleId, &Role)| {
            found.as_ref().is_some_and(|(of, verifier)| of == id && role.credentials.scram.as_ref() == Some(verifier))
        };
        let role = begun.guard.role(&view, &user);
        let nobody = if role.is_some() { LoginRefusal::WrongPassword } else { LoginRefusal::Unknown };
        let role = role.filter(is_same);
        let is_late = now_ms.saturating_sub(begun.begun_ms) > PENDING_MS;
        match (exchange.finish(last), role) {
            (Ok(_) | Err(ScramError::WrongPassword), _) if found.is_none() => Err(begun.refused(nobody)),
            (Ok(signature), Some((id, role))) if !is_late => Ok((signature, begun.entered(id, role, Proof::Password)?)),
            (Ok(_), _) => Err(begun.refused(LoginRefusal::Outdated)),
            (Err(ScramError::WrongPassword), _) => Err(begun.refused(LoginRefusal::WrongPassword)),
            (Err(error), _) => Err(LoginError::Scram(error)),
        }
    }
}
