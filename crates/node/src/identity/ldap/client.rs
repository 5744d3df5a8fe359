//! [`LdapClient`]: the steps of a login at a directory, one after the other, each with the words for who watches.
//!
//! ```text
//!   with a service account                      with user_dn, a name made of {user}
//!   connect, tls                                connect, tls
//!   bind       as the service account
//!   search     the one entry of {user}
//!   password   a bind as this entry             password   a bind as the made name
//!   (bind      as the service account again)    (bind      as the service account, if there is one)
//!                                               search     the entry of the made name
//!   groups     of the entry, or by a search     groups
//! ```
//!
//! Invariants: two entries for a name are nobody; who binds is who was found. What is looked up without a password proves nothing.

use std::time::Duration;

use super::account::{self, LOCKS, LdapAccount};
use super::answer::{LdapEntry, LdapOutcome};
use super::connection::LdapConnection;
use super::failure::{LdapError, LdapFailure, LdapStep};
use super::names::{self, DN_BYTES_MAX};
use super::request::{LdapScope, LdapSearch};
use super::settings::{CheckedSettings, LdapServer, LdapService, LdapSettings, LdapSettingsError};
use crate::Clock;

/// Most groups of a user.
const GROUPS_MAX: usize = 1000;

/// Who gets what each step did.
pub(super) type Told<'t> = &'t mut (dyn FnMut(LdapStep, String) + Send);

/// Asks the servers of a directory.
#[derive(Debug)]
pub struct LdapClient {
    settings: CheckedSettings,
    clock: Clock,
}

impl LdapClient {
    /// A client with these settings. Reads the files that they name; connects to nothing.
    ///
    /// # Errors
    /// The first setting that cannot work.
    pub fn new(settings: &LdapSettings, clock: Clock) -> Result<LdapClient, LdapSettingsError> {
        Ok(LdapClient { settings: settings.checked()?, clock })
    }

    pub(super) fn settings(&self) -> &CheckedSettings {
        &self.settings
    }

    /// Whether users can be looked up without their passwords.
    pub fn has_service_account(&self) -> bool {
        self.settings.service.is_some()
    }

    /// The servers, as the settings name them.
    pub fn servers(&self) -> Vec<String> {
        self.settings.servers.iter().map(|server| server.url.clone()).collect()
    }

    /// How long an answer may take.
    pub fn timeout(&self) -> Duration {
        self.settings.timeout
    }

    /// Goes through all steps of a login at one server, by its number, and tells each that was done. Without a password the step
    /// of the password is left out, which needs a service account.
    ///
    /// # Errors
    /// The step that failed.
    pub async fn walk(
        &self,
        server: usize,
        user: &str,
        password: Option<&str>,
        told: &mut (dyn FnMut(LdapStep, String) + Send),
    ) -> Result<LdapAccount, LdapError> {
        let server = &self.settings.servers[server.min(self.settings.servers.len() - 1)];
        let mut connection = self.connect(server, told).await?;
        let found = self.found(&mut connection, (user, password), told).await?;
        let account = self.account(&mut connection, user, &found, told).await;
        connection.end().await;
        account
    }

    /// The entry of a user, whose password is right if there is one.
    async fn found(
        &self,
        connection: &mut LdapConnection,
        (user, password): (&str, Option<&str>),
        told: Told<'_>,
    ) -> Result<LdapEntry, LdapError> {
        let Some(own) = &self.settings.user_name else {
            self.bind_service(connection, told).await?;
            let entry = self.find(connection, user, None, told).await?;
            if let Some(password) = password {
                self.prove(connection, &entry.dn, password, told).await?;
                if self.settings.group_base.is_some() {
                    self.bind_service(connection, told).await?;
                }
            }
            return Ok(entry);
        };
        let is_dn = own.is_dn;
        if !is_dn && !is_plain(user) {
            return Err(connection.failed(LdapStep::Search, LdapFailure::NoEntry, "the name has special characters"));
        }
        let escape = |value: &str| if is_dn { names::in_dn(value) } else { value.to_owned() };
        let name = own.template.filled(&[("user", user)], escape);
        if let Some(password) = password {
            self.prove(connection, &name, password, told).await?;
        }
        // Without a service account it is the user itself who reads the entry.
        if self.settings.service.is_some() || password.is_none() {
            self.bind_service(connection, told).await?;
        }
        self.find(connection, user, is_dn.then_some(name.as_str()), told).await
    }

    /// Looks up several users over one connection, with the service account. `each` gets what was found of each.
    ///
    /// # Errors
    /// The server could not be asked; for users whose turn had not come nothing is known.
    pub(super) async fn look_up(
        &self,
        server: usize,
        users: &[String],
        each: &mut (dyn FnMut(&str, Result<LdapAccount, LdapError>) + Send),
    ) -> Result<(), LdapError> {
        let server = &self.settings.servers[server.min(self.settings.servers.len() - 1)];
        let quiet: Told<'_> = &mut |_, _| {};
        let mut connection = self.connect(server, quiet).await?;
        self.bind_service(&mut connection, quiet).await?;
        for user in users {
            let found = match self.looked_up(&mut connection, user, quiet).await {
                Ok(entry) => self.account(&mut connection, user, &entry, quiet).await,
                Err(error) => Err(error),
            };
            match found {
                Err(error) if error.failure == LdapFailure::Away => return Err(error),
                found => each(user, found),
            }
        }
        connection.end().await;
        Ok(())
    }

    /// The entry of a user, by the service account, which has bound.
    async fn looked_up(
        &self,
        connection: &mut LdapConnection,
        user: &str,
        told: Told<'_>,
    ) -> Result<LdapEntry, LdapError> {
        let own = self.settings.user_name.as_ref().filter(|own| own.is_dn);
        let own = own.map(|own| own.template.filled(&[("user", user)], names::in_dn));
        self.find(connection, user, own.as_deref(), told).await
    }

    async fn connect(&self, server: &LdapServer, told: Told<'_>) -> Result<LdapConnection, LdapError> {
        LdapConnection::open(server, self.settings.tls.as_ref(), self.settings.timeout, told).await
    }

    async fn bind_service(&self, connection: &mut LdapConnection, told: Told<'_>) -> Result<(), LdapError> {
        let step = LdapStep::Bind;
        let Some(LdapService { dn, password: secret }) = &self.settings.service else {
            let reason = "without a service account nothing is known of a user before the password";
            return Err(connection.failed(step, LdapFailure::Settings, reason));
        };
        let reading = secret.clone();
        let read = tokio::task::spawn_blocking(move || reading.read()).await;
        let password = read.unwrap_or_else(|_| Err("the node is stopping".to_owned()));
        let password = password.map_err(|why| connection.failed(step, LdapFailure::Settings, &why))?;
        match connection.bind(step, dn, &password).await? {
            LdapOutcome { code: 0, .. } => told(step, format!("bound as {dn}")),
            LdapOutcome { code, text } => {
                let failure = if is_busy(code) { LdapFailure::Away } else { LdapFailure::Settings };
                let reason = format!("{dn}: {}", account::bind_refusal(code, &text));
                return Err(connection.failed(step, failure, &reason));
            }
        }
        Ok(())
    }

    /// Tries a user's password.
    async fn prove(
        &self,
        connection: &mut LdapConnection,
        name: &str,
        password: &str,
        told: Told<'_>,
    ) -> Result<(), LdapError> {
        let step = LdapStep::Password;
        let failure = match connection.bind(step, name, password).await? {
            LdapOutcome { code: 0, .. } => {
                told(step, format!("the password of {name} is right"));
                return Ok(());
            }
            LdapOutcome { code, text } => {
                let failure = match code {
                    // 49 invalid credentials, 32 no such object, 53 unwilling (locked), 19 a rule of passwords, 48 and 50 no login by it.
                    49 | 32 | 53 | 19 | 48 | 50 => LdapFailure::WrongPassword,
                    code if is_busy(code) => LdapFailure::Away,
                    _ => LdapFailure::Settings,
                };
                connection.failed(step, failure, &account::bind_refusal(code, &text))
            }
        };
        Err(failure)
    }

    /// The one entry of a user: by the filter, or the one of `own`.
    async fn find(
        &self,
        connection: &mut LdapConnection,
        user: &str,
        own: Option<&str>,
        told: Told<'_>,
    ) -> Result<LdapEntry, LdapError> {
        let step = LdapStep::Search;
        let filter = self.settings.filter.filled(&[("user", user)], names::in_filter);
        let named = [&self.settings.user_attribute, &self.settings.group_attribute];
        let attributes: Vec<&str> =
            named.into_iter().flatten().map(String::as_str).chain(LOCKS.iter().copied()).collect();
        let (base, scope, filter) = match (own, &self.settings.base) {
            (Some(own), _) => (own, LdapScope::Base, "(objectClass=*)"),
            (None, Some(base)) => (base.as_str(), LdapScope::Subtree, filter.as_str()),
            (None, None) => return Err(connection.failed(step, LdapFailure::Settings, "ldap.base is not set")),
        };
        let search =
            LdapSearch { base, scope, filter, attributes: &attributes, entries_max: 2, seconds: self.seconds() };
        let (mut entries, outcome) = connection.search(step, &search).await?;
        // 4: there are more entries than asked for; 32: the place is not there, or may not be seen.
        match (entries.len(), outcome.code) {
            (2.., _) => Err(connection.failed(
                step,
                LdapFailure::Settings,
                &format!("{filter} below {base} finds more than one entry"),
            )),
            (1, 0) => {
                let entry = entries.remove(0);
                if entry.dn.is_empty() || entry.dn.len() > DN_BYTES_MAX {
                    return Err(connection.failed(
                        step,
                        LdapFailure::Settings,
                        "the entry has no name, or a very long one",
                    ));
                }
                told(step, format!("{filter} below {base} finds {}", entry.dn));
                Ok(entry)
            }
            // An entry that is named by its DN is not there where a search answers that its place is not.
            (_, code) if code == 0 || (code == 32 && own.is_some()) => {
                let reason = format!("{filter} below {base} finds nothing");
                Err(connection.failed(step, LdapFailure::NoEntry, &reason))
            }
            (_, code) => Err(refused_search(connection, step, base, (code, &outcome.text))),
        }
    }

    async fn account(
        &self,
        connection: &mut LdapConnection,
        user: &str,
        entry: &LdapEntry,
        told: Told<'_>,
    ) -> Result<LdapAccount, LdapError> {
        let step = LdapStep::Groups;
        let mut groups = Vec::new();
        if let Some(attribute) = &self.settings.group_attribute {
            // Active Directory returns the first 1,500 values under such a name, and no others.
            let ranged = format!("{};range=", attribute.to_ascii_lowercase());
            if entry.attributes.iter().any(|(name, _)| name.starts_with(&ranged)) {
                return Err(connection.failed(
                    step,
                    LdapFailure::Settings,
                    "the user has more groups than the attribute shows",
                ));
            }
            groups = account::texts(entry, attribute);
        }
        if let Some(base) = &self.settings.group_base {
            groups.extend(self.search_groups(connection, base, (user, &entry.dn)).await?);
        }
        if groups.len() > GROUPS_MAX {
            let reason = format!("the user has more than {GROUPS_MAX} groups");
            return Err(connection.failed(step, LdapFailure::Settings, &reason));
        }
        told(step, format!("{} groups", groups.len()));
        let roles = self.settings.roles.of(&groups);
        let attribute = self.settings.user_attribute.as_deref();
        Ok(LdapAccount {
            dn: entry.dn.clone(),
            names: attribute.map(|name| account::texts(entry, name)).unwrap_or_default(),
            locked: account::locked(entry, self.clock.now_us()),
            groups,
            roles,
        })
    }

    async fn search_groups(
        &self,
        connection: &mut LdapConnection,
        base: &str,
        (user, dn): (&str, &str),
    ) -> Result<Vec<String>, LdapError> {
        let step = LdapStep::Groups;
        let filter = self.settings.group_filter.filled(&[("user", user), ("dn", dn)], names::in_filter);
        let entries_max = GROUPS_MAX as u32 + 1;
        let (scope, seconds) = (LdapScope::Subtree, self.seconds());
        let search = LdapSearch { base, scope, filter: &filter, attributes: &[], entries_max, seconds };
        let (entries, outcome) = connection.search(step, &search).await?;
        match outcome.code {
            0 => Ok(entries.into_iter().map(|entry| entry.dn).collect()),
            4 => {
                let reason = format!("there are more than {GROUPS_MAX} groups, or more than the server returns");
                Err(connection.failed(step, LdapFailure::Settings, &reason))
            }
            code => Err(refused_search(connection, step, base, (code, &outcome.text))),
        }
    }

    /// How long the server may look.
    fn seconds(&self) -> u32 {
        self.settings.timeout.as_secs().clamp(1, 60) as u32
    }
}

fn refused_search(connection: &LdapConnection, step: LdapStep, base: &str, (code, text): (u32, &str)) -> LdapError {
    let words = match code {
        32 => "the place is not there, or may not be seen",
        50 => "it is not allowed",
        1 => "the server demands a login before a search",
        3 | 11 => "it takes longer, or is more, than the server allows",
        10 => "the server names another one, which is not asked",
        _ => "the server refused",
    };
    let failure = if is_busy(code) { LdapFailure::Away } else { LdapFailure::Settings };
    connection.failed(step, failure, &format!("search below {base}: {words} (code {code}: {text})"))
}

/// Whether a code says that the server cannot answer now: busy, unavailable, other.
fn is_busy(code: u32) -> bool {
    matches!(code, 51 | 52 | 80)
}

/// Whether a name can be put into a name that is no DN.
fn is_plain(user: &str) -> bool {
    let is_plain = |own: char| own.is_alphanumeric() || matches!(own, '.' | '-' | '_');
    !user.is_empty() && user.chars().all(is_plain)
}
