//! [`LdapLogins`]: logins at a directory for the node: few at once, from server to server, and what is the matter with it.
//!
//! Invariants: a login takes at most [`LOGIN_TIME`], whatever the servers do, and no more of them ask at once than the settings
//! allow: others wait for a moment and are then told that the directory is away. Nothing here holds what local logins need. A server
//! that says "wrong password" is believed: no other one is asked, since each would count a failure.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;
use tokio::time::{timeout, timeout_at};

use super::account::LdapAccount;
use super::client::LdapClient;
use super::failure::{LdapError, LdapFailure, LdapStep};
use super::servers::ServerOrder;

/// The longest that a login at the directory takes: a login that takes 10 s has failed for the throttle.
const LOGIN_TIME: Duration = Duration::from_secs(8);

/// How long a login waits for its turn.
const TURN_TIME: Duration = Duration::from_secs(1);

/// The directory of a node.
#[derive(Debug)]
pub struct LdapLogins {
    client: LdapClient,
    turns: Semaphore,
    order: Mutex<ServerOrder>,
    trouble: Mutex<Option<String>>,
    opened: Instant,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panicked while it was held left whole values.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LdapLogins {
    /// Logins by this client.
    pub fn new(client: LdapClient) -> LdapLogins {
        let (servers, binds) = (client.settings().servers.len(), client.settings().binds);
        LdapLogins {
            client,
            turns: Semaphore::new(binds),
            order: Mutex::new(ServerOrder::new(servers)),
            trouble: Mutex::default(),
            opened: Instant::now(),
        }
    }

    /// Whether users that are not known here may log in and become roles.
    pub fn creates(&self) -> bool {
        self.client.settings().create
    }

    /// How often open sessions are asked about.
    pub fn recheck(&self) -> Duration {
        self.client.settings().recheck
    }

    /// Whether they can be.
    pub fn can_look_up(&self) -> bool {
        self.client.has_service_account()
    }

    /// What keeps the directory from being asked; `None`: it answered the last time.
    pub fn trouble(&self) -> Option<String> {
        locked(&self.trouble).clone()
    }

    /// Whether a password is the one that a user has in the directory; and what the directory says of the user.
    ///
    /// # Errors
    /// It is not, or no server can be asked.
    pub async fn check(&self, user: &str, password: &str) -> Result<LdapAccount, LdapError> {
        let until = tokio::time::Instant::now() + LOGIN_TIME;
        let Ok(Ok(_turn)) = timeout(TURN_TIME, self.turns.acquire()).await else {
            return Err(self.away("as many logins as ldap.binds allows are waiting for the directory"));
        };
        let mut last = None;
        for server in self.in_order() {
            let mut quiet = |_: LdapStep, _: String| {};
            let walk = self.client.walk(server, user, Some(password), &mut quiet);
            let Ok(ended) = timeout_at(until, walk).await else {
                self.answered(server, false);
                return Err(last.unwrap_or_else(|| self.away("no server answered in time")));
            };
            match self.judged(server, ended) {
                Err(error) if error.failure == LdapFailure::Away => last = Some(error),
                ended => return ended,
            }
        }
        let error = last.unwrap_or_else(|| self.away("there is no server"));
        Err(self.in_trouble(error))
    }

    /// Looks up users without their passwords. `each` gets what was found of each.
    ///
    /// # Errors
    /// No server can be asked; of users that `each` was not called for nothing is known.
    pub async fn look_up(
        &self,
        users: &[String],
        each: &mut (dyn FnMut(&str, Result<LdapAccount, LdapError>) + Send),
    ) -> Result<(), LdapError> {
        let (mut last, mut seen) = (None, 0);
        for server in self.in_order() {
            let mut count = 0;
            let mut counted = |user: &str, found: Result<LdapAccount, LdapError>| {
                count += 1;
                each(user, found);
            };
            // Another server goes on where this one stopped.
            let ended = self.client.look_up(server, &users[seen..], &mut counted).await;
            seen += count;
            match self.judged(server, ended) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        let error = last.unwrap_or_else(|| self.away("there is no server"));
        Err(self.in_trouble(error))
    }

    fn in_order(&self) -> Vec<usize> {
        locked(&self.order).at(self.now_ms())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.opened.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn answered(&self, server: usize, has: bool) {
        locked(&self.order).apply(server, has, self.now_ms());
    }

    /// Remembers whether a server answered, and whether the settings fit it.
    fn judged<T>(&self, server: usize, ended: Result<T, LdapError>) -> Result<T, LdapError> {
        let away = ended.as_ref().is_err_and(|error| error.failure == LdapFailure::Away);
        self.answered(server, !away);
        match ended {
            Err(error) if away => {
                tracing::warn!(%error, "a directory server cannot be asked");
                Err(error)
            }
            Err(error) if error.failure == LdapFailure::Settings => Err(self.in_trouble(error)),
            ended => {
                *locked(&self.trouble) = None;
                ended
            }
        }
    }

    fn in_trouble(&self, error: LdapError) -> LdapError {
        *locked(&self.trouble) = Some(error.to_string());
        error
    }

    fn away(&self, reason: &str) -> LdapError {
        let server = self.client.servers().join(", ");
        LdapError { server, step: LdapStep::Connect, failure: LdapFailure::Away, reason: reason.to_owned() }
    }
}
