//! Who may use the server, and over what.

use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::TlsOptions;
use rcgen::{CertificateParams, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::client::RawClient;
use super::*;
use crate::rest::server::Authenticate;

fn ann(checks: &Arc<AtomicUsize>) -> Authenticate {
    let checks = Arc::clone(checks);
    Arc::new(move |user, password| {
        checks.fetch_add(1, Ordering::Relaxed);
        (user, password) == ("ann", "secret")
    })
}

fn basic(text: &str) -> String {
    format!("Authorization: Basic {}\r\n", BASE64.encode(text))
}

#[tokio::test(flavor = "multi_thread")]
async fn users_prove_who_they_are() {
    let checks = Arc::new(AtomicUsize::new(0));
    let server = started(HttpOptions { authenticate: Some(ann(&checks)), ..options() }, echo).await;
    let mut client = RawClient::connect(server.address());
    let refused = client.request("GET /", "", b"");
    assert_eq!(refused.error(), (401, "security_exception".to_owned()));
    assert_eq!(refused.headers["www-authenticate"], "Basic realm=\"terrace\"");
    for wrong in ["ann:wrong", "bob:secret", "ann"] {
        assert_eq!(client.request("GET /", &basic(wrong), b"").status, 401, "{wrong}");
    }
    let before = checks.load(Ordering::Relaxed);
    for _ in 0..3 {
        assert_eq!(client.request("GET /", &basic("ann:secret"), b"").json()["user"], "ann");
    }
    assert_eq!(checks.load(Ordering::Relaxed), before + 1, "a right password is checked once");
    server.stop().await;
    // With trust, this machine needs no password; a wrong one is wrong all the same.
    let trusting = HttpOptions { authenticate: Some(ann(&checks)), trust: true, ..options() };
    let server = started(trusting, echo).await;
    let mut client = RawClient::connect(server.address());
    assert_eq!(client.request("GET /", "", b"").status, 200);
    assert_eq!(client.request("GET /", &basic("ann:wrong"), b"").status, 401);
    assert_eq!(client.request("GET /", "Origin: https://page.example\r\n", b"").status, 403);
    server.stop().await;
}

#[tokio::test]
async fn nobody_is_let_in_from_beyond_this_machine_without_tls_and_a_user() {
    let beyond = SocketAddr::from(([0, 0, 0, 0], 0));
    let checks = Arc::new(AtomicUsize::new(0));
    let tls = |required| Some(TlsOptions { certificate: "a.pem".into(), key: "a.key".into(), required });
    let base = || HttpOptions { listen: beyond, ..HttpOptions::default() };
    for (options, why) in [
        (base(), "needs a user"),
        (HttpOptions { tls: tls(true), trust: true, ..base() }, "needs a user"),
        (HttpOptions { authenticate: Some(ann(&checks)), ..base() }, "needs TLS"),
        (HttpOptions { authenticate: Some(ann(&checks)), tls: tls(false), ..base() }, "needs TLS"),
        (HttpOptions { authenticate: Some(ann(&checks)), tls: tls(true), ..base() }, "a.pem"),
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
    let tls = TlsOptions { certificate: folder.join("a.pem"), key: folder.join("a.key"), required: true };
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
