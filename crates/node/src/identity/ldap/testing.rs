//! A directory server for tests, over real sockets: binds and searches of a few users, and the ways in which servers fail.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::answer::tests::{ended, found, message};
use super::answer::{self, Elements};
use super::{LdapClient, LdapLogins, LdapService, LdapSettings};
use crate::Clock;
use crate::identity::SecretPlace;
use crate::task;

/// A user of the directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct KnownUser {
    pub(crate) password: &'static str,
    pub(crate) groups: Vec<&'static str>,
    pub(crate) is_locked: bool,
}

/// How the server behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// As a server does.
    Right,
    /// It takes connections and says nothing.
    Silent,
    /// It answers each request with these bytes.
    Says(&'static [u8]),
    /// It answers and does not stop.
    Floods,
}

/// What a server knows and counts.
#[derive(Debug)]
pub(crate) struct TestDirectory {
    pub(crate) users: Mutex<BTreeMap<&'static str, KnownUser>>,
    pub(crate) manner: Mutex<Manner>,
    /// Binds with passwords of users.
    pub(crate) binds: AtomicUsize,
    /// Searches as they came, as far as they are text.
    pub(crate) searches: Mutex<Vec<String>>,
    pub(crate) address: SocketAddr,
    serving: Mutex<Option<JoinHandle<()>>>,
}

/// The variable whose text is the password of the service account: one that every environment has.
const SERVICE_VARIABLE: &str = "PATH";

impl TestDirectory {
    /// A server with ann and ben, whose password is `right secret`; ann is in the group doctors.
    pub(crate) async fn start() -> Arc<TestDirectory> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let user =
            |groups: &[&'static str]| KnownUser { password: "right secret", groups: groups.to_vec(), is_locked: false };
        let users = BTreeMap::from([("ann", user(&["cn=doctors,dc=x"])), ("ben", user(&[]))]);
        let made = Arc::new(TestDirectory {
            users: Mutex::new(users),
            manner: Mutex::new(Manner::Right),
            binds: AtomicUsize::new(0),
            searches: Mutex::default(),
            address: listener.local_addr().expect("it is bound"),
            serving: Mutex::default(),
        });
        let serving = Arc::clone(&made);
        let task = task::session("test directory", async move {
            let mut sessions = tokio::task::JoinSet::new();
            while let Ok((socket, _)) = listener.accept().await {
                sessions.spawn(Arc::clone(&serving).serve(socket));
            }
        });
        *made.serving.lock().expect("no test panicked") = Some(task);
        made
    }

    /// Ends it: connections are refused from now on.
    pub(crate) fn stop(&self) {
        if let Some(task) = self.serving.lock().expect("no test panicked").take() {
            task.abort();
        }
    }

    pub(crate) fn change(&self, user: &'static str, change: impl FnOnce(&mut KnownUser)) {
        change(self.users.lock().expect("no test panicked").entry(user).or_default());
    }

    pub(crate) fn remove(&self, user: &str) {
        self.users.lock().expect("no test panicked").remove(user);
    }

    /// Settings of a node that asks these servers in this order.
    pub(crate) fn settings(servers: &[&TestDirectory]) -> LdapSettings {
        let password = SecretPlace::Variable(SERVICE_VARIABLE.into());
        LdapSettings {
            urls: servers.iter().map(|server| format!("ldap://{}", server.address)).collect(),
            starttls: false,
            service: Some(LdapService { dn: "cn=terrace,dc=x".into(), password }),
            base: Some("dc=x".into()),
            user_attribute: Some("uid".into()),
            group_attribute: Some("memberOf".into()),
            roles: BTreeMap::from([("cn=doctors,dc=x".to_owned(), vec!["doctors".to_owned()])]),
            timeout: std::time::Duration::from_millis(500),
            ..LdapSettings::default()
        }
    }

    /// Logins by these settings.
    pub(crate) fn logins(settings: &LdapSettings) -> LdapLogins {
        LdapLogins::new(LdapClient::new(settings, Clock::fixed(1)).expect("they can work"))
    }

    async fn serve(self: Arc<Self>, mut socket: TcpStream) {
        let mut bytes = Vec::new();
        loop {
            while let Some(end) = answer::whole(&bytes).expect("a client speaks LDAP") {
                let request: Vec<u8> = bytes.drain(..end).collect();
                let manner = *self.manner.lock().expect("no test panicked");
                let answers = match manner {
                    Manner::Right => self.answers(&request),
                    Manner::Silent => Vec::new(),
                    Manner::Says(bytes) => bytes.to_vec(),
                    Manner::Floods => {
                        let id = number_of(&request);
                        let entry = message(id, 0x64, &found("uid=ann,dc=x", &[("uid", &["ann"; 2000])]));
                        while socket.write_all(&entry).await.is_ok() {}
                        return;
                    }
                };
                if socket.write_all(&answers).await.is_err() {
                    return;
                }
            }
            let mut part = [0; 4096];
            match socket.read(&mut part).await {
                Ok(0) | Err(_) => return,
                Ok(count) => bytes.extend_from_slice(&part[..count]),
            }
        }
    }

    fn answers(&self, request: &[u8]) -> Vec<u8> {
        let id = number_of(request);
        let mut parts = Elements(Elements(request).of(0x30).expect("a message"));
        parts.of(2).expect("a number");
        let (tag, content) = parts.next().expect("an operation");
        let mut parts = Elements(content);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match tag {
            0x60 => {
                parts.of(2).expect("a version");
                let dn = text(parts.of(4).expect("a name"));
                let password = text(parts.of(0x80).expect("a password"));
                message(id, 0x61, &ended(self.bound(&dn, &password), ""))
            }
            0x63 => {
                self.searches.lock().expect("no test panicked").push(text(content));
                let base = text(parts.of(4).expect("a base"));
                for tag in [0x0a, 0x0a, 2, 2, 1] {
                    parts.of(tag).expect("a part of a search");
                }
                let (kind, filter) = parts.next().expect("a filter");
                let mut pair = Elements(filter);
                let wanted = match kind {
                    0xa3 => {
                        pair.of(4).expect("an attribute");
                        text(pair.of(4).expect("a value"))
                    }
                    _ => base.trim_start_matches("uid=").trim_end_matches(",dc=x").to_owned(),
                };
                [self.found(id, &wanted), message(id, 0x65, &ended(0, ""))].concat()
            }
            _ => Vec::new(),
        }
    }

    fn bound(&self, dn: &str, password: &str) -> u8 {
        if dn == "cn=terrace,dc=x" {
            return if std::env::var(SERVICE_VARIABLE).is_ok_and(|own| own == password) { 0 } else { 49 };
        }
        self.binds.fetch_add(1, Ordering::SeqCst);
        // As servers do (RFC 4513, 5.1.2).
        if password.is_empty() {
            return 0;
        }
        let users = self.users.lock().expect("no test panicked");
        let user = users.iter().find(|(name, _)| dn.eq_ignore_ascii_case(&format!("uid={name},dc=x")));
        if user.is_some_and(|(_, user)| user.password == password && !user.is_locked) { 0 } else { 49 }
    }

    fn found(&self, id: u8, wanted: &str) -> Vec<u8> {
        let users = self.users.lock().expect("no test panicked");
        // As directories do, it ignores case.
        let Some((name, user)) = users.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted)) else {
            return Vec::new();
        };
        let locked: &[&str] = if user.is_locked { &["000001010000Z"] } else { &[] };
        let mut attributes: Vec<(&str, &[&str])> =
            vec![("uid", std::slice::from_ref(name)), ("memberOf", &user.groups)];
        if user.is_locked {
            attributes.push(("pwdAccountLockedTime", locked));
        }
        message(id, 0x64, &found(&format!("uid={name},dc=x"), &attributes))
    }
}

impl Drop for TestDirectory {
    fn drop(&mut self) {
        self.stop();
    }
}

fn number_of(request: &[u8]) -> u8 {
    let mut parts = Elements(Elements(request).of(0x30).expect("a message"));
    parts.of(2).expect("a number").last().copied().expect("a byte")
}

mod tests {
    use std::time::Duration;

    use super::super::{LdapFailure, LdapStep};
    use super::*;

    #[tokio::test]
    async fn a_right_password_is_right_and_nothing_else_is() {
        let server = TestDirectory::start().await;
        let logins = TestDirectory::logins(&TestDirectory::settings(&[&server]));
        let account = logins.check("ann", "right secret").await.expect("it is right");
        assert_eq!(
            (account.dn.as_str(), account.names, account.locked),
            ("uid=ann,dc=x", vec!["ann".to_owned()], None)
        );
        assert_eq!(account.roles.into_iter().collect::<Vec<_>>(), ["doctors"]);
        for (user, password, failure) in [
            ("ann", "wrong", LdapFailure::WrongPassword),
            ("ann", "", LdapFailure::WrongPassword),
            ("nobody", "right secret", LdapFailure::NoEntry),
            ("*", "right secret", LdapFailure::NoEntry),
            ("ann)(uid=*", "right secret", LdapFailure::NoEntry),
        ] {
            let error = logins.check(user, password).await.expect_err(user);
            assert_eq!(error.failure, failure, "{user}: {error}");
        }
        assert_eq!(server.binds.load(Ordering::SeqCst), 2, "an empty password is not sent");
        assert_eq!(logins.trouble(), None);
    }

    #[tokio::test]
    async fn a_user_binds_by_a_template_and_reads_its_own_entry() {
        let server = TestDirectory::start().await;
        let settings = LdapSettings {
            service: None,
            base: None,
            user_dn: Some("uid={user},dc=x".into()),
            ..TestDirectory::settings(&[&server])
        };
        let logins = TestDirectory::logins(&settings);
        assert!(!logins.can_look_up());
        let account = logins.check("ann", "right secret").await.expect("it is right");
        assert!(account.roles.contains("doctors"));
        for user in ["ann,dc=x", "nobody", "ann+uid=ben"] {
            let error = logins.check(user, "right secret").await.expect_err(user);
            assert_eq!((error.step, error.failure), (LdapStep::Password, LdapFailure::WrongPassword), "{user}");
        }
    }

    #[tokio::test]
    async fn a_dead_server_is_passed_over_and_a_wrong_password_is_asked_for_once() {
        let (first, second) = (TestDirectory::start().await, TestDirectory::start().await);
        let logins = TestDirectory::logins(&TestDirectory::settings(&[&first, &second]));
        first.stop();
        assert!(logins.check("ann", "right secret").await.is_ok());
        let error = logins.check("ann", "wrong").await.expect_err("it is wrong");
        assert_eq!(error.failure, LdapFailure::WrongPassword);
        assert_eq!(second.binds.load(Ordering::SeqCst), 2);
        second.stop();
        let error = logins.check("ann", "right secret").await.expect_err("none is there");
        assert_eq!(error.failure, LdapFailure::Away);
        assert!(logins.trouble().is_some());
    }

    #[tokio::test]
    async fn whatever_a_server_says_it_ends_in_an_error_within_its_time() {
        let server = TestDirectory::start().await;
        let logins = TestDirectory::logins(&TestDirectory::settings(&[&server]));
        let manners: [&[u8]; 8] = [
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            b"\x30\x84\x7f\xff\xff\xff",
            b"\x30\x80",
            // A success for another request; a search's end for a bind; an end of the connection; a code that is cut off.
            b"\x30\x0c\x02\x01\x09\x61\x07\x0a\x01\x00\x04\x00\x04\x00",
            b"\x30\x0c\x02\x01\x01\x65\x07\x0a\x01\x00\x04\x00\x04\x00",
            b"\x30\x0c\x02\x01\x00\x78\x07\x0a\x01\x34\x04\x00\x04\x00",
            b"\x30\x08\x02\x01\x01\x61\x03\x0a\x01\x00",
            b"\x30\x05\x02\x01\x01\x61\x00",
        ];
        for manner in manners.into_iter().map(Manner::Says).chain([Manner::Silent, Manner::Floods]) {
            *server.manner.lock().expect("no test panicked") = manner;
            let checked = tokio::time::timeout(Duration::from_secs(60), logins.check("ann", "right secret")).await;
            let error = checked.expect("it ends").expect_err("it is no login");
            assert_eq!(error.failure, LdapFailure::Away, "{manner:?}: {error}");
        }
        *server.manner.lock().expect("no test panicked") = Manner::Right;
        assert!(logins.check("ann", "right secret").await.is_ok(), "it is asked again");
    }

    #[tokio::test]
    async fn users_are_looked_up_without_their_passwords_over_one_connection_and_by_the_next_server() {
        let (first, second) = (TestDirectory::start().await, TestDirectory::start().await);
        first.stop();
        second.change("ben", |ben| ben.is_locked = true);
        let logins = TestDirectory::logins(&TestDirectory::settings(&[&first, &second]));
        let users: Vec<String> = ["ann", "ben", "eve"].iter().map(ToString::to_string).collect();
        let mut all = Vec::new();
        logins.look_up(&users, &mut |user, found| all.push((user.to_owned(), found))).await.expect("one is there");
        let told: Vec<(&str, bool)> = all
            .iter()
            .map(|(user, found)| (user.as_str(), found.as_ref().is_ok_and(|account| account.locked.is_none())))
            .collect();
        assert_eq!(told, [("ann", true), ("ben", false), ("eve", false)]);
        assert_eq!(second.binds.load(Ordering::SeqCst), 0);
    }
}
