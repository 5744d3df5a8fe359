//! Connecting to hosts by name, with a bound on the threads that look names up.
//!
//! ```text
//!   address in digits --------------------------------------> connect
//!   name --looked up already?--> wait for that answer ------> connect to the addresses in turn
//!        `--no--> a task: turn of all --> a thread --> answer, to all who wait for the name
//!                         holds the turn until the system answers, also where nobody waits any more
//! ```
//!
//! The system looks a name up on a thread that cannot be stopped: with its name servers away it takes half a minute and more, while those
//! who wait give up after seconds and try again. Threads for blocking work are shared by the whole node (bodies, files, control socket,
//! long decisions), so that many lanes of unreachable hosts would take all of them.
//!
//! Invariants: one thread at a time for a name, and [`LOOKUPS`] for all. An answer is that of all who asked before it came, and is not
//! kept: a name server decides how long one holds.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::{Semaphore, watch};

use crate::task::session;

/// Threads that look names up, at most: few of the 512 for blocking work.
const LOOKUPS: usize = 64;

/// How often a name is asked for whose lookup ended without an answer.
const TRIES: usize = 3;

/// The addresses, with no port; or the system's error.
type Answer = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

/// The answer to a name, when it comes.
type Coming = watch::Receiver<Option<Answer>>;

static ALL: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(LOOKUPS)));
static NAMES: LazyLock<Mutex<HashMap<String, Coming>>> = LazyLock::new(Mutex::default);

fn names() -> MutexGuard<'static, HashMap<String, Coming>> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A name that is looked up; forgotten when that ends, in whatever way.
struct Asked(String);

impl Drop for Asked {
    fn drop(&mut self) {
        names().remove(&self.0);
    }
}

/// The answer to a name when it comes: of the lookup under way, or of one that begins.
fn answer_to(name: &str) -> Coming {
    let (tell, answer) = {
        let mut names = names();
        if let Some(answer) = names.get(name) {
            return answer.clone();
        }
        let (tell, answer) = watch::channel(None);
        names.insert(name.to_owned(), answer.clone());
        (tell, answer)
    };
    let asked = Asked(name.to_owned());
    session("name lookup", async move {
        let turn = ALL.clone().acquire_owned().await;
        let found: Answer = match tokio::net::lookup_host((asked.0.clone(), 0)).await {
            Ok(addresses) => Ok(addresses.collect()),
            Err(error) => Err((error.kind(), error.to_string())),
        };
        // Who asks from here on is given a later answer.
        drop(asked);
        drop(turn);
        tell.send_replace(Some(found));
    });
    answer
}

/// The addresses of a host, which is a name or an address in digits, with this port.
///
/// # Errors
/// Those of the system: the name is not known, its servers do not answer.
pub async fn addresses(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    for _ in 0..TRIES {
        let mut answer = answer_to(host);
        let found = match answer.wait_for(Option::is_some).await {
            Ok(found) => found.clone(),
            // A panic ended it, or the end of the runtime on which it ran.
            Err(_) => continue,
        };
        match found {
            Some(Ok(mut addresses)) => {
                addresses.iter_mut().for_each(|address| address.set_port(port));
                return Ok(addresses);
            }
            Some(Err((kind, text))) => return Err(io::Error::new(kind, text)),
            None => {}
        }
    }
    Err(io::Error::other("the lookup of the name ended without an answer"))
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
    use super::*;

    #[tokio::test]
    async fn all_who_wait_for_a_name_share_one_answer_and_digits_wait_for_none() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("it is bound").port();
        connect("localhost", port).await.expect("it listens");
        // Somebody looks it up, and has no answer yet.
        let name = "shared.invalid";
        let (tell, answer) = watch::channel(None);
        names().insert(name.to_owned(), answer);
        let asked = Asked(name.to_owned());
        let digits = async {
            connect_to(&format!("127.0.0.1:{port}")).await.expect("this needs no name server");
            let address: SocketAddr = "192.0.2.7:0".parse().expect("an address");
            tell.send_replace(Some(Ok(vec![address])));
        };
        let (first, second, ()) = tokio::join!(addresses(name, 1), addresses(name, 2), digits);
        for (port, found) in [(1, first), (2, second)] {
            let address: SocketAddr = format!("192.0.2.7:{port}").parse().expect("an address");
            assert_eq!(found.expect("an answer"), [address]);
        }
        drop(tell);
        drop(asked);
        assert!(!names().contains_key(name), "names that nobody looks up are forgotten");
    }

    #[tokio::test]
    async fn a_lookup_that_ends_without_an_answer_is_an_error_and_not_waited_for() {
        let name = "lost.invalid";
        names().insert(name.to_owned(), watch::channel(None).1);
        let asked = Asked(name.to_owned());
        addresses(name, 1).await.expect_err("nobody looks it up");
        drop(asked);
    }

    #[tokio::test]
    async fn a_name_that_is_not_known_is_an_error() {
        for target in ["no such host.invalid:1", "no port", "host:port"] {
            let error = connect_to(target).await.expect_err("it has no address");
            assert!(!error.to_string().is_empty(), "{target}");
        }
    }
}
