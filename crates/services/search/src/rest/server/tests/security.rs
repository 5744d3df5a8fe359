//! Who may use the server, and over what.

use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::TlsOptions;
use node::identity::{AttributeChange, Caller, Guard, IdentityChange};
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::client::RawClient;
use super::*;
use crate::rights::testing::{guard_with, user};

fn ann() -> Arc<Guard> {
    guard_with(&[("ann", "a long secret")])
}

/// What [`echo`] says of a role.
fn shown(guard: &Guard, name: &str) -> String {
    format!("{:?}", guard.view().directory().named(name).expect("there"))
}

fn basic(text: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64.encode(text))
}

#[tokio::test(flavor = "multi_thread")]
async fn users_prove_who_they_are() {
    let guard = ann();
    let (token, _) = user(&guard, "robot");
    let server = started(HttpOptions { guard: Some(Arc::clone(&guard)), ..options() }, echo).await;
    let mut client = RawClient::connect(server.address());
    let refused = client.request("GET /", "", b"");
    assert_eq!(refused.error(), (401, "security_exception".to_owned()));
    assert!(refused.headers.contains_key("www-authenticate"));
    for wrong in ["ann:wrong", "bob:a long secret", "ann"] {
        assert_eq!(client.request("GET /", &basic(wrong), b"").status, 401, "{wrong}");
    }
    for _ in 0..3 {
        assert_eq!(client.request("GET /", &basic("ann:a long secret"), b"").json()["user"], shown(&guard, "ann"));
    }
    for scheme in ["ApiKey", "Bearer"] {
        let header = format!("Authorization: {scheme} {token}\r\n");
        assert_eq!(client.request("GET /", &header, b"").json()["user"], shown(&guard, "robot"));
        let wrong = format!("Authorization: {scheme} {token}x\r\n");
        assert_eq!(client.request("GET /", &wrong, b"").error(), (401, "security_exception".to_owned()));
    }
    server.stop().await;
    // With trust, this machine needs no password; a wrong one is wrong all the same.
    let trusting = HttpOptions { guard: Some(ann()), trust: true, ..options() };
    let server = started(trusting, echo).await;
    let mut client = RawClient::connect(server.address());
    let node = format!("{:?}", Caller::node().session());
    assert_eq!(client.request("GET /", "", b"").json()["user"], node);
    assert_eq!(client.request("GET /", &basic("ann:wrong"), b"").status, 401);
    assert_eq!(client.request("GET /", "Origin: https://page.example\r\n", b"").status, 403);
    server.stop().await;
    // A role may be named that they have.
    let (guard, trusted) = (ann(), Some("ann".to_owned()));
    let trusting = HttpOptions { guard: Some(Arc::clone(&guard)), trust: true, trusted, ..options() };
    let server = started(trusting, echo).await;
    let mut client = RawClient::connect(server.address());
    assert_eq!(client.request("GET /", "", b"").json()["user"], shown(&guard, "ann"));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_guesses_waits_and_is_told_how_long() {
    let server = started(HttpOptions { guard: Some(ann()), ..options() }, echo).await;
    let mut client = RawClient::connect(server.address());
    let statuses = [(); 8].map(|()| client.request("GET /", &basic("ann:wrong"), b""));
    let waits = statuses.iter().find(|answer| answer.status == 429).expect("a few are free, and no more");
    assert_eq!(waits.headers["retry-after"], "1");
    assert!(statuses.iter().all(|answer| matches!(answer.status, 401 | 429)));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_runs_is_cancelled_once_its_role_is_locked() {
    let guard = ann();
    let (token, _) = user(&guard, "robot");
    let runs = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&runs);
    let handler = move |request: &RestRequest| {
        begun.store(true, Ordering::Relaxed);
        until("it is cancelled", || request.is_cancelled());
        RestResponse::json(200, json!({}))
    };
    let server = started(HttpOptions { guard: Some(Arc::clone(&guard)), ..options() }, handler).await;
    let address = server.address();
    let client = std::thread::spawn(move || {
        let header = format!("Authorization: ApiKey {token}\r\n");
        RawClient::connect(address).request("GET /_search", &header, b"").status
    });
    until("it runs", || runs.load(Ordering::Relaxed));
    let changes = vec![AttributeChange::Locked(Some("test".to_owned()))];
    let locked = IdentityChange::Set { role: "robot".to_owned(), changes };
    guard.change(&Caller::node(), &[locked]).expect("locked");
    let from = Instant::now();
    assert_eq!(client.join().expect("answered"), 200);
    assert!(from.elapsed() < Duration::from_secs(1), "{:?}", from.elapsed());
    server.stop().await;
}

#[tokio::test]
async fn nobody_is_let_in_from_beyond_this_machine_without_tls_and_a_user() {
    let beyond = SocketAddr::from(([0, 0, 0, 0], 0));
    let tls = |required| {
        Some(TlsOptions {
            certificate: "a.pem".into(),
            key: "a.key".into(),
            client_authority: None,
            client_revocations: None,
            required,
        })
    };
    let base = || HttpOptions { listen: beyond, ..HttpOptions::default() };
    for (options, why) in [
        (base(), "needs a user"),
        (HttpOptions { tls: tls(true), trust: true, ..base() }, "needs a user"),
        (HttpOptions { guard: Some(ann()), ..base() }, "needs TLS"),
        (HttpOptions { guard: Some(ann()), tls: tls(false), ..base() }, "needs TLS"),
        (HttpOptions { guard: Some(ann()), tls: tls(true), ..base() }, "a.pem"),
        (HttpOptions { connections_max: 0, ..HttpOptions::default() }, "at least one connection"),
    ] {
        let refused = HttpServer::start(Arc::new(Answering(echo)), options).await.expect_err("it is refused");
        assert!(refused.to_string().contains(why), "{refused}");
    }
}

/// A certificate of its own authority, in files, and a client that trusts it.
fn certificate(folder: &std::path::Path) -> (TlsOptions, TlsConnector) {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let made = params.self_signed(&key).expect("a certificate");
    let tls = TlsOptions {
        certificate: folder.join("a.pem"),
        key: folder.join("a.key"),
        client_authority: None,
        client_revocations: None,
        required: true,
    };
    std::fs::write(&tls.certificate, made.pem()).expect("a file");
    std::fs::write(&tls.key, key.serialize_pem()).expect("a file");
    let mut roots = RootCertStore::empty();
    roots.add(made.der().clone()).expect("a certificate");
    let client = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (tls, TlsConnector::from(Arc::new(client)))
}

/// The status line over TLS; an error if the certificate is not the one that is trusted.
async fn over_tls(address: SocketAddr, connector: &TlsConnector) -> std::io::Result<String> {
    let socket = tokio::net::TcpStream::connect(address).await?;
    let mut tls = connector.connect(ServerName::try_from("localhost").expect("a name"), socket).await?;
    tls.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
    let mut text = String::new();
    tls.read_to_string(&mut text).await?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_served_beside_none_or_alone_and_its_certificate_is_renewed() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tls, connector) = certificate(folder.path());
    let both = HttpOptions { tls: Some(TlsOptions { required: false, ..tls.clone() }), ..options() };
    let server = started(both, echo).await;
    assert_eq!(over_tls(server.address(), &connector).await.expect("TLS"), "HTTP/1.1 200 OK");
    assert_eq!(RawClient::connect(server.address()).request("GET /", "", b"").status, 200);
    server.stop().await;
    let server = started(HttpOptions { tls: Some(tls), ..options() }, echo).await;
    assert!(over_tls(server.address(), &connector).await.is_ok());
    let mut plain = RawClient::connect(server.address());
    plain.send("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert!(plain.is_closed());
    let (_, renewed) = certificate(folder.path());
    assert!(over_tls(server.address(), &renewed).await.is_err(), "nobody has read it yet");
    server.renewal().read().expect("it can be used")();
    assert!(over_tls(server.address(), &renewed).await.is_ok());
    assert!(over_tls(server.address(), &connector).await.is_err());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_other_sites_are_refused_whoever_they_come_from() {
    let guard = ann();
    let (token, _) = user(&guard, "robot");
    let trusting = HttpOptions { guard: Some(guard), trust: true, ..options() };
    let server = started(trusting, echo).await;
    let mut client = RawClient::connect(server.address());
    let proofs = [String::new(), basic("ann:a long secret"), format!("Authorization: Bearer {token}\r\n")];
    for proof in &proofs {
        for header in [
            "Origin: https://page.example",
            "Origin: null",
            "Origin: http://localhost:8080",
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
        ] {
            let refused = client.request("GET /i/_refresh", &format!("{proof}{header}\r\n"), b"");
            assert_eq!(refused.error(), (403, "security_exception".to_owned()), "{header} {proof}");
        }
        for header in ["", "Sec-Fetch-Site: none\r\n", "Sec-Fetch-Site: same-origin\r\n"] {
            assert_eq!(client.request("GET /", &format!("{proof}{header}"), b"").status, 200, "{header} {proof}");
        }
    }
    let own = format!("{}Origin: http://localhost\r\n", proofs[1]);
    assert_eq!(client.request("GET /", &own, b"").status, 200, "the client asks for localhost");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_has_as_many_connections_as_it_may() {
    let guard = ann();
    let (token, _) = user(&guard, "robot");
    let changes = vec![AttributeChange::ConnectionLimit(Some(1))];
    let limited = IdentityChange::Set { role: "robot".to_owned(), changes };
    guard.change(&Caller::node(), &[limited]).expect("set");
    let server = started(HttpOptions { guard: Some(guard), ..options() }, echo).await;
    let robot = format!("Authorization: ApiKey {token}\r\n");
    let mut first = RawClient::connect(server.address());
    let mut second = RawClient::connect(server.address());
    for _ in 0..3 {
        assert_eq!(first.request("GET /", &robot, b"").status, 200);
        let refused = second.request("GET /", &robot, b"");
        assert_eq!(refused.error(), (429, "es_rejected_execution_exception".to_owned()));
        assert!(refused.json()["error"]["reason"].as_str().is_some_and(|why| why.contains("too many connections")));
    }
    // The connection counts for another role from now on; and one that ends counts for none.
    assert_eq!(first.request("GET /", &basic("ann:a long secret"), b"").status, 200);
    assert_eq!(second.request("GET /", &robot, b"").status, 200);
    assert_eq!(first.request("GET /", &robot, b"").status, 429);
    drop(second);
    until("its place is free", || first.request("GET /", &robot, b"").status == 200);
    server.stop().await;
}

/// Takes no bodies.
struct Closed;

impl RestHandler for Closed {
    fn respond(&self, _: &RestRequest) -> RestResponse {
        RestResponse::json(200, json!({}))
    }

    fn admit(&self, request: &RestRequest) -> Result<usize, RestResponse> {
        match request.path.first().map(String::as_str) {
            Some("small") => Ok(10),
            _ => Err(RestResponse::json(403, json!({"error": {"type": "security_exception"}}))),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_is_refused_before_it_is_read() {
    let server = HttpServer::start(Arc::new(Closed), options()).await.expect("it starts");
    let head = |path: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
        )
    };
    for (path, refused) in [("/x/_bulk", 403), ("/small", 413)] {
        let mut client = RawClient::connect(server.address());
        // No byte of the body is sent.
        client.send(head(path));
        assert_eq!(client.read(false).expect("a response").status, refused, "{path}");
    }
    let mut client = RawClient::connect(server.address());
    assert_eq!(client.request("GET /x", "", b"").status, 200, "without a body it is not asked");
    server.stop().await;
}
