//! Connecting to hosts by name, with a bound on the threads that look names up.
//!
//! ```text
//!   address in digits ------------------------------------> connect
//!   name --turn of this name--> turn of all --> a thread --> connect to the addresses in turn
//!                                               holds both turns until the system answers, also where nobody waits any more
//! ```
//!
//! The system looks a name up on a thread that cannot be stopped: with its name servers away it takes half a minute and more, while those
//! who wait give up after seconds and try again. Threads for blocking work are shared by the whole node (bodies, files, control socket,
//! long decisions), so that many lanes of unreachable hosts would take all of them.
//!
//! Invariants: one thread at a time for a name, and [`LOOKUPS`] for all. It keeps no answer: a name server decides how long one holds.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Threads that look names up, at most: few of the 512 for blocking work.
const LOOKUPS: usize = 16;

static ALL: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS)));
static NAMES: LazyLock<Mutex<HashMap<String, Arc<Semaphore>>>> = LazyLock::new(Mutex::default);

fn names() -> MutexGuard<'static, HashMap<String, Arc<Semaphore>>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The turn of a name. Names that nobody looks up are forgotten.
fn turn_of(name: &str) -> Arc<Semaphore> {
    let mut names = names();
    names.retain(|_, turn| Arc::strong_count(turn) > 1);
    names.entry(name.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(1))).clone()
}

/// The addresses of a host, which is a name or an address in digits, with this port.
///
/// # Errors
/// Those of the system: the name is not known, its servers do not answer.
pub async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let (name, host) = (turn_of(host), host.to_owned());
    let closed = |_| io::Error::other("names are looked up no more");
    let name = name.acquire_owned().await.map_err(closed)?;
    let all = ALL.clone().acquire_owned().await.map_err(closed)?;
    let looking = tokio::spawn(async move {
        let found = tokio::net::lookup_host((host, port)).await.map(Iterator::collect);
        drop((name, all));
        found
    });
    looking.await.map_err(io::Error::other)?
}

/// Connects to a host and port: to the first of its addresses that accepts.
///
/// # Errors
/// Those of [`addresses`], and of the last address.
pub async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = None;
    for address in addresses(host, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the name has no address")))
}

/// The same for `host:port`, or an address with its port in digits.
///
/// # Errors
/// As [`connect`]; the target has no port.
pub async fn connect_to(target: &str) -> io::Result<TcpStream> {
    if let Ok(address) = target.parse::<SocketAddr>() {
        return TcpStream::connect(address).await;
    }
    let parts = target.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no port in the address"))?;
    connect(host, port).await
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn a_name_is_looked_up_by_one_thread_at_a_time_and_digits_by_none() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        connect("localhost", port).await.expect("it listens");
        // Somebody looks it up, and gets no answer.
        let turn = turn_of("localhost");
        let looking = turn.clone().try_acquire_owned().expect("nobody else does");
        let by_name = format!("localhost:{port}");
        let waits = tokio::time::timeout(Duration::from_millis(50), connect_to(&by_name)).await;
        assert!(waits.is_err(), "it waits for the one that looks");
        connect_to(&format!("127.0.0.1:{port}")).await.expect("this needs no name server");
        drop(looking);
        connect_to(&by_name).await.expect("its turn has come");
        drop(turn);
        turn_of("another");
        assert!(!names().contains_key("localhost"), "names that nobody looks up are forgotten");
    }

    #[tokio::test]
    async fn a_name_that_is_not_known_is_an_error() {
        for target in ["no such host.invalid:1", "no port", "host:port"] {
            let error = connect_to(target).await.expect_err("it has no address");
            assert!(!error.to_string().is_empty(), "{target}");
        }
    }
}
