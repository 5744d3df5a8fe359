//! From where requests may come, client certificates, and versions of TLS.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::TlsOptions;
use node::identity::{
    AccessAddress, AccessMethod, AccessPort, AccessRule, AccessRules, AccessTls, Attributes, Caller, Credentials,
    Guard, IdentityChange, Role,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ProtocolVersion, RootCertStore, SupportedProtocolVersion, crypto, version};

use super::client::RawClient;
use super::*;
use crate::rights::testing::{guard_with, user};

type Parts = (&'static [&'static str], &'static str, AccessTls, AccessMethod);

fn set(guard: &Guard, rules: &[Parts]) {
    let rule = |(roles, address, tls, method): &Parts| AccessRule {
        port: AccessPort::Search,
        roles: roles.iter().map(ToString::to_string).collect(),
        address: AccessAddress::try_from((*address).to_owned()).expect("an address"),
        tls: *tls,
        method: *method,
    };
    guard.set_access(AccessRules::new(rules.iter().map(rule).collect()).expect("they can work"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rules_decide_for_each_request_before_a_password_is_checked() {
    let guard = guard_with(&[("ann", "a long secret"), ("bob", "a long secret")]);
    let (token, _) = user(&guard, "robot");
    let server = started(HttpOptions { guard: Some(Arc::clone(&guard)), trust: true, ..options() }, echo).await;
    let mut client = RawClient::connect(server.address());
    let basic = |text: &str| format!("Authorization: Basic {}\r\n", BASE64.encode(text));
    let headers = [
        String::new(),
        basic("ann:a long secret"),
        basic("bob:a long secret"),
        basic("nobody:a long secret"),
        basic("ann:wrong"),
        format!("Authorization: ApiKey {token}\r\n"),
        format!("Authorization: ApiKey {token}x\r\n"),
    ];
    let (any, required) = (AccessTls::Any, AccessTls::Required);
    let all: &'static [&'static str] = &[];
    // The same connection all the time: each request is asked about.
    let table: [(&[Parts], [u16; 7]); 8] = [
        (&[], [200, 200, 200, 401, 401, 200, 401]),
        (&[(all, "local", any, AccessMethod::Allow)], [200, 200, 200, 401, 401, 200, 401]),
        (&[(all, "10.0.0.0/8", any, AccessMethod::Allow)], [403; 7]),
        (&[(all, "local", required, AccessMethod::Allow)], [403; 7]),
        (&[(all, "all", any, AccessMethod::Reject)], [403; 7]),
        (&[(&["ann"], "all", any, AccessMethod::Password)], [401, 200, 403, 403, 401, 403, 401]),
        (&[(&["robot"], "127.0.0.1", any, AccessMethod::Token)], [401, 403, 403, 403, 403, 200, 401]),
        (
            &[(&["bob"], "all", any, AccessMethod::Reject), (all, "local", any, AccessMethod::Trust)],
            [200, 200, 403, 401, 401, 200, 401],
        ),
    ];
    for (rules, statuses) in table {
        set(&guard, rules);
        for (header, status) in headers.iter().zip(statuses) {
            let answer = client.request("GET /", header, b"");
            // Who fails often waits.
            let found = if answer.status == 429 { 401 } else { answer.status };
            assert_eq!(found, status, "{rules:?} {header}");
            if status == 403 {
                let (_, kind) = answer.error();
                assert_eq!(kind, "security_exception");
                assert!(String::from_utf8_lossy(&answer.body).contains("host \\\"127.0.0.1\\\""), "{rules:?}");
            }
        }
    }
    server.stop().await;
}

/// Certificates of a server and of clients, by an authority of both, whose list revokes number 7.
struct Papers {
    tls: TlsOptions,
    roots: RootCertStore,
    issuer: Issuer<'static, KeyPair>,
    _folder: tempfile::TempDir,
}

impl Papers {
    fn write() -> Papers {
        let folder = tempfile::tempdir().expect("a folder");
        let put = |name: &str, text: String| {
            let path: &Path = folder.path();
            std::fs::write(path.join(name), text).expect("written");
            path.join(name)
        };
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let root = authority.self_signed(&authority_key).expect("an authority");
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let own = own.signed_by(&key, &issuer).expect("a certificate");
        let at = rcgen::date_time_ymd(2026, 1, 1);
        let revoked = RevokedCertParams {
            serial_number: 7.into(),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: at,
            next_update: rcgen::date_time_ymd(2026, 1, 2),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&issuer).and_then(|list| list.pem()).expect("a list");
        let tls = TlsOptions {
            certificate: put("own.pem", own.pem()),
            key: put("own.key", key.serialize_pem()),
            client_authority: Some(put("authority.pem", root.pem())),
            client_revocations: Some(put("revoked.pem", list)),
            required: true,
        };
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).expect("an authority");
        Papers { tls, roots, issuer, _folder: folder }
    }

    /// A request inside TLS by a client with a certificate of this name and number. The version of TLS, and the status line.
    async fn request(
        &self,
        address: SocketAddr,
        (name, number): (&str, u64),
        versions: &[&'static SupportedProtocolVersion],
    ) -> std::io::Result<(Option<ProtocolVersion>, String)> {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.serial_number = Some(number.into());
        let own = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_protocol_versions(versions)
            .expect("versions")
            .with_root_certificates(self.roots.clone())
            .with_client_auth_cert(vec![own], key)
            .expect("they belong together");
        let socket = TcpStream::connect(address).await?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok((stream.get_ref().1.protocol_version(), text.lines().next().unwrap_or_default().to_owned()))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_1_3_or_1_2_and_a_rule_can_demand_a_certificate_that_is_not_revoked() {
    let papers = Papers::write();
    let guard = guard_with(&[]);
    let credentials = Credentials { certificates: vec!["ann.example".into()], ..Credentials::default() };
    let ann = Role { name: "ann".into(), attributes: Attributes::user(), credentials };
    guard.change(&Caller::node(), &[IdentityChange::Create(ann)]).expect("the node may");
    let secured = HttpOptions { guard: Some(Arc::clone(&guard)), tls: Some(papers.tls.clone()), ..options() };
    let server = started(secured, echo).await;
    let address = server.address();
    let (new, old) = (&[&version::TLS13, &version::TLS12][..], &[&version::TLS12][..]);
    let (ok, none, not) = ("HTTP/1.1 200 OK", "HTTP/1.1 401 Unauthorized", "HTTP/1.1 403 Forbidden");
    // Without a rule a certificate is asked for, and a password too.
    let found = papers.request(address, ("ann.example", 1), new).await.expect("TLS");
    assert_eq!(found, (Some(ProtocolVersion::TLSv1_3), none.to_owned()));
    set(&guard, &[(&[], "all", AccessTls::Required, AccessMethod::Certificate)]);
    for (name, versions, version, status) in [
        ("ann.example", new, ProtocolVersion::TLSv1_3, ok),
        ("ann.example", old, ProtocolVersion::TLSv1_2, ok),
        ("eve.example", new, ProtocolVersion::TLSv1_3, none),
    ] {
        let found = papers.request(address, (name, 1), versions).await.expect("TLS");
        assert_eq!(found, (Some(version), status.to_owned()), "{name}");
    }
    assert!(papers.request(address, ("ann.example", 7), new).await.is_err(), "it is revoked");
    set(&guard, &[(&["ann"], "10.0.0.0/8", AccessTls::Any, AccessMethod::Certificate)]);
    assert_eq!(papers.request(address, ("ann.example", 1), new).await.expect("TLS").1, not);
    // A ClientHello of TLS 1.1: the answer is a fatal alert, handshake_failure (40) or protocol_version (70).
    let hello = [&[0x16, 3, 1, 0, 45, 1, 0, 0, 41, 3, 2][..], &[7; 32], &[0, 0, 2, 0, 0x2f, 1, 0]].concat();
    let mut socket = TcpStream::connect(address).await.expect("it listens");
    socket.write_all(&hello).await.expect("it reads");
    let mut alert = [0; 7];
    socket.read_exact(&mut alert).await.expect("an answer");
    assert!(matches!((alert[0], &alert[5..]), (0x15, [2, 40 | 70])), "{alert:?}");
    server.stop().await;
}
