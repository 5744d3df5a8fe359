//! The server over real sockets: who gets what, in which phase of a node, and what bounds its clients.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;

use node::audit::{AuditQuery, AuditReader, AuditRows, KIND_AUDIT};
use node::identity::scram::Mock;
use node::identity::{
    AccessAddress, AccessMethod, AccessPort, AccessRule, AccessTls, Action, Attributes, Caller, CredentialChange,
    Credentials, IdentityChange, ObjectPattern, Privileges, Role, draw,
};
use node::{AuditSettings, Clock, Interpreters};
use parking_lot::Mutex;
use store::{Options, Store};

use super::*;
use crate::samples::Samples;
use crate::table;

/// A guard, an audit and a switch for what hinders the node.
struct Bed {
    guard: Arc<Guard>,
    audit: Arc<Audit>,
    hindrances: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    fn new() -> Bed {
        let interpreter = Interpreters::of(vec![(&[KIND_AUDIT], Arc::new(AuditRows))]);
        let options = Options { interpreter: Some(Arc::new(interpreter)), ..Options::default() };
        let (store, clock) = (Store::in_memory(options).expect("there is memory"), Clock::fixed(1_000_000));
        let audit = Audit::open(&store, AuditSettings::default(), clock.clone());
        let guard = Guard::open(store, clock, Mock::of([7; 32])).expect("it opens");
        Bed { guard, audit, hindrances: Arc::default() }
    }

    fn served(&self) -> Served {
        let sources: Vec<Box<crate::Source>> =
            vec![Box::new(|samples: &mut Samples| samples.gauge(table::QUEUE_MESSAGES, &["out"], 4.0))];
        let hindrances = Arc::clone(&self.hindrances);
        Served {
            guard: Arc::clone(&self.guard),
            audit: Arc::clone(&self.audit),
            snapshots: Snapshots::new(sources),
            hindrances: Box::new(move || hindrances.lock().clone()),
        }
    }

    /// A role with a token, and the right to read figures if it has it.
    fn role(&self, name: &str, may: bool) -> String {
        let (text, token) = draw("test", 1, None).expect("there is randomness");
        let role = Role { name: name.into(), attributes: Attributes::user(), credentials: Credentials::default() };
        let token = IdentityChange::Credential { role: name.into(), change: CredentialChange::AddToken(token) };
        let mut changes = vec![IdentityChange::Create(role), token];
        if may {
            let object = ObjectPattern::parse("node").expect("it is one");
            let privileges =
                Privileges { actions: vec![Action::NodeMetrics], object, columns: Vec::new(), grantee: name.into() };
            changes.push(IdentityChange::Grant { privileges, grant_option: false });
        }
        self.guard.change(&Caller::node(), &changes).expect("made");
        text
    }

    fn entries(&self) -> usize {
        self.audit.wait_visible().expect("visible");
        let reader = AuditReader::at(self.audit.store().snapshot()).expect("it can be read");
        reader.page(&AuditQuery::default()).expect("a page").entries.len()
    }
}

fn options() -> MetricsOptions {
    MetricsOptions { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..MetricsOptions::default() }
}

/// Sends bytes and reads all that comes until the server closes the connection.
fn talk(address: SocketAddr, bytes: &str) -> String {
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    socket.write_all(bytes.as_bytes()).expect("it is taken");
    let mut answer = Vec::new();
    // A reset is an end as well.
    let _ = socket.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

fn get(address: SocketAddr, target: &str, headers: &str) -> (u16, String) {
    let answer =
        talk(address, &format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n"));
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map_or("", |(_, body)| body).to_owned())
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

#[test]
fn health_is_answered_from_the_first_moment_and_readiness_says_what_hinders() {
    let bed = Bed::new();
    let server = MetricsServer::start(options()).expect("it listens");
    let address = server.address();
    let status = |target: &str| get(address, target, "").0;
    assert_eq!((status("/healthz"), status("/readyz"), status("/metrics")), (200, 503, 503));
    assert!(get(address, "/readyz", "").1.contains("starting"));
    server.serve(bed.served());
    assert_eq!((status("/healthz"), status("/readyz"), status("/metrics")), (200, 200, 200));
    *bed.hindrances.lock() = vec!["full: no room on the medium".to_owned()];
    let (code, text) = get(address, "/readyz", "");
    assert_eq!((code, text.as_str()), (503, "not ready\nfull: no room on the medium\n"));
    server.ends();
    assert_eq!((status("/healthz"), status("/readyz"), status("/metrics")), (200, 503, 200));
    server.stop();
    assert!(TcpStream::connect(address).is_err(), "nothing listens any more");
    assert_eq!(Arc::strong_count(&bed.guard), 1, "nothing of the node is held");
}

#[test]
fn figures_are_for_this_machine_and_for_tokens_with_the_right() {
    let bed = Bed::new();
    let (reader, other) = (bed.role("scraper", true), bed.role("other", false));
    for trust in [true, false] {
        let server = MetricsServer::start(MetricsOptions { trust, ..options() }).expect("it listens");
        server.serve(bed.served());
        let status = |headers: &str| get(server.address(), "/metrics", headers).0;
        assert_eq!(status(""), if trust { 200 } else { 401 });
        assert_eq!(status(&bearer(&reader)), 200);
        assert_eq!(status(&bearer(&other)), 403, "without the right");
        assert_eq!(status("Authorization: Basic YTpi\r\n"), 401);
        assert!(matches!(status(&bearer("wrong")), 401 | 429));
        // A page in a browser at this machine reads nothing, whatever its name stands for.
        let browsers = ["Origin: https://page.example\r\n", "Sec-Fetch-Site: cross-site\r\n"];
        assert!(browsers.iter().all(|header| matches!(status(header), 401 | 403)));
        let rebound =
            talk(server.address(), "GET /metrics HTTP/1.1\r\nHost: page.example\r\nConnection: close\r\n\r\n");
        assert!(rebound.starts_with("HTTP/1.1 40"), "{rebound}");
        // Probes without a token get the status of readiness and no reason.
        *bed.hindrances.lock() = vec!["a reason".to_owned()];
        let (code, text) = get(server.address(), "/readyz", "");
        assert_eq!((code, text.contains("a reason")), (503, trust));
        assert!(get(server.address(), "/readyz", &bearer(&reader)).1.contains("a reason"));
        bed.hindrances.lock().clear();
        server.stop();
    }
    assert!(bed.entries() > 0, "wrong tokens are in the audit");
}

#[test]
fn the_access_rules_hold_for_each_request_and_before_the_node_has_started() {
    let bed = Bed::new();
    let reader = bed.role("scraper", true);
    let rules = |roles: &[&str], address: &str, method| {
        let rule = AccessRule {
            port: AccessPort::Metrics,
            roles: roles.iter().map(ToString::to_string).collect(),
            address: AccessAddress::try_from(address.to_owned()).expect("an address"),
            tls: AccessTls::Any,
            method,
        };
        AccessRules::new(vec![rule]).expect("they can work")
    };
    let access = rules(&[], "10.0.0.0/8", AccessMethod::Allow);
    let server = MetricsServer::start(MetricsOptions { access, ..options() }).expect("it listens");
    let status = |target: &str, headers: &str| get(server.address(), target, headers).0;
    assert_eq!((status("/healthz", ""), status("/readyz", "")), (403, 403), "before the start");
    server.serve(bed.served());
    // Without a token, with one: /metrics; and health without one.
    for (roles, address, method, statuses) in [
        (&[][..], "10.0.0.0/8", AccessMethod::Allow, [403, 403, 403]),
        (&[], "all", AccessMethod::Reject, [403, 403, 403]),
        (&[], "local", AccessMethod::Allow, [200, 200, 200]),
        (&[], "local", AccessMethod::Token, [401, 200, 200]),
        (&["scraper"], "local", AccessMethod::Token, [401, 200, 200]),
        (&["another"], "local", AccessMethod::Token, [401, 403, 200]),
        (&[], "local", AccessMethod::Trust, [200, 200, 200]),
    ] {
        bed.guard.set_access(rules(roles, address, method));
        let found = [status("/metrics", ""), status("/metrics", &bearer(&reader)), status("/healthz", "")];
        assert_eq!(found, statuses, "{roles:?} {address} {method:?}");
    }
    assert!(bed.entries() > 0, "refusals are in the audit");
    server.stop();
}

#[test]
fn other_requests_are_refused_and_a_body_is_not_read() {
    let bed = Bed::new();
    let server = MetricsServer::start(options()).expect("it listens");
    server.serve(bed.served());
    let address = server.address();
    assert_eq!(get(address, "/", "").0, 404);
    let long = format!("X-Long: {}\r\n", "x".repeat(HEAD_BYTES_MAX * 3));
    assert!(!matches!(get(address, "/healthz", &long).0, 200..=299));
    let sent = talk(address, "POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000000\r\n\r\nabc");
    assert!(sent.starts_with("HTTP/1.1 405"), "{sent}");
    assert!(sent.to_ascii_lowercase().contains("connection: close"), "{sent}");
    let head = talk(address, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200") && !head.contains("terrace_queue_messages"), "{head}");
    server.stop();
}

#[test]
fn silent_and_slow_clients_lose_their_places_and_keep_nobody_out() {
    let bed = Bed::new();
    let times = MetricsTimes { request: Duration::from_millis(300), ..MetricsTimes::default() };
    let options = MetricsOptions { times, connections_max: 4, connections_per_address: Some(4), ..options() };
    let server = MetricsServer::start(options).expect("it listens");
    server.serve(bed.served());
    let address = server.address();
    // More silent ones than there are places: a newcomer is let in instead of one of them.
    let silent: Vec<TcpStream> = (0..8).filter_map(|_| TcpStream::connect(address).ok()).collect();
    let until = |what: &str, mut probe: Box<dyn FnMut() -> bool>| {
        let began = Instant::now();
        while !probe() {
            assert!(began.elapsed() < Duration::from_secs(60), "{what}");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    until("a newcomer is served", Box::new(|| get(address, "/healthz", "").0 == 200));
    drop(silent);
    // One that sends its head byte by byte is cut off.
    let mut slow = TcpStream::connect(address).expect("it listens");
    slow.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let began = Instant::now();
    let mut rest = [0; 64];
    loop {
        assert!(began.elapsed() < Duration::from_secs(30), "it is never cut off");
        if slow.write_all(b"X").is_err() {
            break;
        }
        slow.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        match slow.read(&mut rest) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    server.stop();
}

#[test]
fn beyond_this_machine_tls_is_a_must() {
    let beyond = MetricsOptions { listen: SocketAddr::from(([0, 0, 0, 0], 0)), ..MetricsOptions::default() };
    let error = MetricsServer::start(beyond).expect_err("it is refused");
    assert!(error.to_string().contains("need TLS"), "{error}");
    let none = MetricsOptions { connections_max: 0, ..options() };
    assert!(MetricsServer::start(none).is_err());
}

#[test]
fn over_tls_a_token_is_read_and_without_it_the_connection_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (certificate, key) = (folder.path().join("a.pem"), folder.path().join("a.key"));
    std::fs::write(&certificate, made.cert.pem()).expect("written");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("written");
    let tls = TlsOptions { certificate, key, client_authority: None, client_revocations: None, required: true };
    let bed = Bed::new();
    let server = MetricsServer::start(MetricsOptions { tls: Some(tls), ..options() }).expect("it listens");
    server.serve(bed.served());
    let address = server.address();
    assert_eq!(talk(address, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"), "", "without TLS");
    let mut roots = tokio_rustls::rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a certificate");
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = tokio_rustls::rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let client = tokio_rustls::rustls::ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect(address).expect("it listens");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let mut stream = tokio_rustls::rustls::StreamOwned::new(client, socket);
    let head = bearer(&bed.role("scraper", true));
    write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{head}\r\n").expect("it is taken");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("terrace_queue_messages"), "{answer}");
    server.stop();
}
