//! What a service manager (systemd) and a node tell each other: listening sockets that it passes on, and how the node is.
//!
//! ```text
//!   LISTEN_FDS, LISTEN_FDNAMES  --adopt, once, at the start-->  sockets of the manager
//!                                                                    |  listen(service, address)
//!   a service's address in the settings  ------------------------->  a duplicate of the manager's socket, else bind(2)
//!
//!   NOTIFY_SOCKET  <--Notifier--  READY=1, STATUS=.., WATCHDOG=1, STOPPING=1      (sd_notify(3))
//! ```
//!
//! A manager that keeps the socket while the node is down keeps the connections that arrive meanwhile: a restart is then a pause for
//! senders, and not a refusal.
//!
//! Invariants: the settings say where a service listens, and the checks of settings (TLS beyond this machine) are about that address;
//! so a socket counts only at the address of the settings, and one that bears the name of a service and lies elsewhere is an error, not
//! a listener that nobody checked. A socket is taken by duplicates: a service that goes with a reload and comes back finds it again.
//! Without these variables nothing is different.
//!
//! Not here: unix sockets (the control socket, exports of volumes), which are files in places of their own.

use std::env;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixDatagram};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::error::NodeError;

/// The number of the first passed descriptor (`SD_LISTEN_FDS_START`).
const FIRST: i32 = 3;

/// More sockets than any node has listeners: a larger number in the environment is a mistake.
const SOCKETS_MAX: u32 = 1024;

/// A listening socket that the manager holds.
#[derive(Debug)]
struct ManagedSocket {
    name: String,
    address: SocketAddr,
    listener: TcpListener,
    taken: bool,
}

/// Those of this process.
static SOCKETS: Mutex<Vec<ManagedSocket>> = Mutex::new(Vec::new());

/// Takes over the sockets that the service manager passed to this process; returns how many. For the start of a node, before it listens.
///
/// # Errors
/// `PassedSocket`: one of them is no TCP socket that listens, or the variables contradict each other.
pub fn adopt() -> Result<usize, NodeError> {
    let variable = |name: &str| env::var(name).ok();
    let names = passed(variable("LISTEN_PID"), variable("LISTEN_FDS"), variable("LISTEN_FDNAMES"), std::process::id())
        .map_err(|problem| NodeError::PassedSocket { number: FIRST, name: String::new(), problem })?;
    let mut sockets = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    for (number, name) in (FIRST..).zip(names) {
        let adopted = device::inherited::listening_socket(number).map(TcpListener::from);
        let socket = adopted.and_then(|listener| {
            listener.set_nonblocking(true)?;
            Ok(ManagedSocket { name: name.clone(), address: listener.local_addr()?, listener, taken: false })
        });
        // The address of a unix socket is none that the standard library reads as TCP.
        let failed = |error: io::Error| NodeError::PassedSocket { number, name, problem: error.to_string() };
        sockets.push(socket.map_err(failed)?);
    }
    Ok(sockets.len())
}

/// The names of the passed sockets, in the order of their numbers; none where they are for another process, or there are none.
fn passed(pid: Option<String>, count: Option<String>, names: Option<String>, own: u32) -> Result<Vec<String>, String> {
    let (Some(pid), Some(count)) = (pid, count) else { return Ok(Vec::new()) };
    if pid.parse() != Ok(own) {
        return Ok(Vec::new());
    }
    let count: u32 = count.parse().map_err(|_| format!("LISTEN_FDS is `{count}`, which is no number"))?;
    if count > SOCKETS_MAX {
        return Err(format!("LISTEN_FDS is {count}, and at most {SOCKETS_MAX} sockets are taken"));
    }
    let mut listed: Vec<String> = names.iter().flat_map(|names| names.split(':')).map(str::to_owned).collect();
    if names.is_some() && listed.len() != count as usize {
        return Err(format!("LISTEN_FDNAMES has {} names for {count} sockets", listed.len()));
    }
    listed.resize(count as usize, "unknown".to_owned());
    Ok(listed)
}

/// A listener of a service at an address of the settings: the socket of the service manager that is there, or a new one.
///
/// `service` is the name by which a socket may be meant for it: `sql`, `search`, `volumes`, or that of a service of the production.
/// With port 0 in the settings, the manager's socket of that name on the same address is taken, whatever its port.
///
/// # Errors
/// The address cannot be listened on; the manager has a socket of this name elsewhere.
pub async fn listen(service: &str, address: SocketAddr) -> io::Result<tokio::net::TcpListener> {
    match managed(service, address)? {
        Some(listener) => tokio::net::TcpListener::from_std(listener),
        None => tokio::net::TcpListener::bind(address).await,
    }
}

/// As [`listen`], outside a runtime; it does not block when it accepts.
///
/// # Errors
/// As `listen`.
pub fn listen_without_runtime(service: &str, address: SocketAddr) -> io::Result<TcpListener> {
    let listener = match managed(service, address)? {
        Some(listener) => listener,
        None => TcpListener::bind(address)?,
    };
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn managed(service: &str, address: SocketAddr) -> io::Result<Option<TcpListener>> {
    let mut sockets = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    let offered: Vec<(&str, SocketAddr)> = sockets.iter().map(|socket| (&*socket.name, socket.address)).collect();
    let Some(number) = choose(&offered, service, address).map_err(io::Error::other)? else { return Ok(None) };
    let socket = &mut sockets[number];
    let listener = socket.listener.try_clone()?;
    socket.taken = true;
    tracing::info!(service, address = %socket.address, "the service manager's socket is used");
    Ok(Some(listener))
}

/// Which of the manager's sockets is the one of a service.
fn choose(offered: &[(&str, SocketAddr)], service: &str, wanted: SocketAddr) -> Result<Option<usize>, String> {
    let fits = |at: &SocketAddr| *at == wanted || (wanted.port() == 0 && at.ip() == wanted.ip());
    let named = |(name, _): &&(&str, SocketAddr)| *name == service;
    if let Some(number) = offered.iter().position(|(name, at)| *name == service && fits(at)) {
        return Ok(Some(number));
    }
    if let Some(number) = offered.iter().position(|(_, at)| *at == wanted) {
        return Ok(Some(number));
    }
    match offered.iter().find(named) {
        Some((_, at)) => Err(format!(
            "the service manager's socket `{service}` is at {at}, and the settings say {wanted}: write the same address in both"
        )),
        None => Ok(None),
    }
}

/// The sockets of the manager that no service has taken, as `NAME at ADDRESS`: who connects there waits in vain.
pub fn unclaimed() -> Vec<String> {
    let sockets = SOCKETS.lock().unwrap_or_else(PoisonError::into_inner);
    sockets
        .iter()
        .filter(|socket| !socket.taken)
        .map(|socket| format!("{} at {}", socket.name, socket.address))
        .collect()
}

/// Where a service manager is told how the node is.
#[derive(Debug)]
pub struct Notifier {
    socket: UnixDatagram,
    manager: UnixAddress,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The manager of this process, by its environment; `None` where there is none.
    ///
    /// # Errors
    /// `ServiceManager`: its socket's name cannot be used.
    pub fn of_environment() -> Result<Option<Notifier>, NodeError> {
        let Some(name) = env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
        let (usec, pid) = (env::var("WATCHDOG_USEC").ok(), env::var("WATCHDOG_PID").ok());
        let made = address(name.as_bytes()).and_then(|manager| {
            let socket = UnixDatagram::unbound()?;
            socket.set_nonblocking(true)?;
            Ok(Notifier { socket, manager, watchdog: watchdog(usec.as_deref(), pid.as_deref(), std::process::id()) })
        });
        made.map(Some).map_err(|source| NodeError::ServiceManager { source })
    }

    /// How often the manager wants to hear of the node, at least; the time after which it ends a silent one is twice that.
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog.map(|time| time / 2)
    }

    /// Sends assignments, a line each. The node goes on where that fails: the manager is then the one that knows.
    pub fn send(&self, assignments: &str) {
        if let Err(error) = self.socket.send_to_addr(assignments.as_bytes(), &self.manager) {
            tracing::debug!(%error, "the service manager could not be told");
        }
    }

    /// Everything is in place; `status` is a line for people.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// A line for people: what the node does at present.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// The node still goes on.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// The node ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping: connections end, then changed pages are written");
    }
}

/// A status is a line: what follows a line end would be another assignment.
fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

/// The address of `NOTIFY_SOCKET`: a path, or a name in the abstract namespace behind `@`.
fn address(name: &[u8]) -> io::Result<UnixAddress> {
    match name {
        [b'@', name @ ..] => UnixAddress::from_abstract_name(name),
        [b'/', ..] => UnixAddress::from_pathname(Path::new(std::ffi::OsStr::from_bytes(name))),
        _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "NOTIFY_SOCKET is no path and no abstract name")),
    }
}

/// The time after which the manager ends a silent process, where it is about this one (sd_watchdog_enabled(3)).
fn watchdog(usec: Option<&str>, pid: Option<&str>, own: u32) -> Option<Duration> {
    let for_us = pid.is_none_or(|pid| pid.parse() == Ok(own));
    usec?.parse().ok().filter(|usec| *usec > 0 && for_us).map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn sockets_are_taken_by_the_process_that_they_are_for_and_have_names() {
        let some = |text: &str| Some(text.to_owned());
        for (pid, count, names, found) in [
            (None, some("1"), None, Ok(vec![])),
            (some("7"), None, None, Ok(vec![])),
            (some("8"), some("1"), None, Ok(vec![])),
            (some("7"), some("2"), None, Ok(vec!["unknown", "unknown"])),
            (some("7"), some("2"), some("sql:inbound"), Ok(vec!["sql", "inbound"])),
            (some("7"), some("2"), some("sql"), Err("1 names for 2 sockets")),
            (some("7"), some("many"), None, Err("no number")),
            (some("7"), some("99999"), None, Err("at most 1024")),
        ] {
            let told = passed(pid, count, names, 7);
            match found {
                Ok(names) => assert_eq!(told, Ok(names.into_iter().map(str::to_owned).collect())),
                Err(part) => assert!(told.as_ref().is_err_and(|error| error.contains(part)), "{told:?}"),
            }
        }
    }

    #[test]
    fn a_socket_counts_at_the_address_of_the_settings_only() {
        let offered =
            [("inbound", at("127.0.0.1:2575")), ("unknown", at("127.0.0.1:5432")), ("wide", at("0.0.0.0:2600"))];
        for (service, wanted, found) in [
            ("inbound", "127.0.0.1:2575", Ok(Some(0))),
            ("another", "127.0.0.1:2575", Ok(Some(0))),
            ("inbound", "127.0.0.1:0", Ok(Some(0))),
            ("sql", "127.0.0.1:5432", Ok(Some(1))),
            ("sql", "127.0.0.1:0", Ok(None)),
            ("search", "127.0.0.1:9200", Ok(None)),
            ("wide", "127.0.0.1:2600", Err("is at 0.0.0.0:2600, and the settings say 127.0.0.1:2600")),
            ("wide", "127.0.0.1:0", Err("is at 0.0.0.0:2600")),
            ("inbound", "127.0.0.1:2576", Err("write the same address in both")),
        ] {
            let told = choose(&offered, service, at(wanted));
            match found {
                Ok(number) => assert_eq!(told, Ok(number), "{service} {wanted}"),
                Err(part) => {
                    assert!(told.as_ref().is_err_and(|error| error.contains(part)), "{service} {wanted}: {told:?}")
                }
            }
        }
    }

    #[test]
    fn the_manager_hears_what_is_sent_and_a_status_stays_one_assignment() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).expect("a socket");
        let socket = UnixDatagram::unbound().expect("a socket");
        let manager_address = address(path.as_os_str().as_bytes()).expect("a path");
        let notifier = Notifier { socket, manager: manager_address, watchdog: None };
        let mut heard = [0; 256];
        let mut next = |notifier: &Notifier, send: fn(&Notifier)| {
            send(notifier);
            let length = manager.recv(&mut heard).expect("a message");
            String::from_utf8_lossy(&heard[..length]).into_owned()
        };
        assert_eq!(next(&notifier, |n| n.ready("a\nMAINPID=1")), "READY=1\nSTATUS=a MAINPID=1");
        assert_eq!(next(&notifier, Notifier::alive), "WATCHDOG=1");
        assert!(next(&notifier, Notifier::stopping).starts_with("STOPPING=1\n"));
        assert!(address(b"@abstract").is_ok() && address(b"relative").is_err() && address(b"").is_err());
    }

    #[test]
    fn a_watchdog_is_for_the_process_that_it_names() {
        assert_eq!(watchdog(Some("2000000"), None, 7), Some(Duration::from_secs(2)));
        assert_eq!(watchdog(Some("2000000"), Some("7"), 7), Some(Duration::from_secs(2)));
        for (usec, pid) in [(None, None), (Some("0"), None), (Some("x"), None), (Some("2000000"), Some("8"))] {
            assert_eq!(watchdog(usec, pid, 7), None);
        }
    }
}
