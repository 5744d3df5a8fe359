//! TLS: where it is required nothing else is answered, and inside it everything is as outside.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;

use nbd::{Export, NbdError, ServerOptions, ServerTls};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto};

use crate::client::{self, ACK, Client, FUA, WRITE, named, option, queries};
use crate::rig::{Rig, memory};

const TLS_REQUIRED: u32 = 0x8000_0005;
const INVALID: u32 = 0x8000_0003;

/// Signs certificates.
pub(crate) struct Authority {
    certificate: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Writes a certificate for `localhost` and its key, one of a client, and that of the authority itself.
    pub(crate) fn write(folder: &Path) -> Authority {
        let (certificate, issuer) = written(folder);
        Authority { certificate, issuer }
    }

    /// A list, in PEM, that revokes the certificate with a number.
    pub(crate) fn revoked(&self, number: u64) -> String {
        let at = rcgen::date_time_ymd(2026, 1, 1);
        let revoked = RevokedCertParams {
            serial_number: number.into(),
            revocation_time: at,
            reason_code: None,
            invalidity_date: None,
        };
        let list = CertificateRevocationListParams {
            this_update: at,
            // Its time is over: it still counts.
            next_update: rcgen::date_time_ymd(2026, 1, 2),
            crl_number: 1.into(),
            issuing_distribution_point: None,
            revoked_certs: vec![revoked],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).and_then(|list| list.pem()).expect("a list")
    }
}

/// The same; returns the authority's certificate.
pub(crate) fn certificates(folder: &Path) -> CertificateDer<'static> {
    Authority::write(folder).certificate
}

fn written(folder: &Path) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
    let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate().expect("a key");
    let certificate = authority.self_signed(&authority_key).expect("an authority");
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
    let own = own.signed_by(&key, &issuer).expect("a certificate");
    std::fs::write(folder.join("certificate.pem"), own.pem()).expect("written");
    std::fs::write(folder.join("key.pem"), key.serialize_pem()).expect("written");
    let key = KeyPair::generate().expect("a key");
    let client = CertificateParams::new(vec!["client".to_owned()]).expect("parameters");
    let client = client.signed_by(&key, &issuer).expect("a certificate");
    std::fs::write(folder.join("client.pem"), client.pem()).expect("written");
    std::fs::write(folder.join("client-key.pem"), key.serialize_pem()).expect("written");
    std::fs::write(folder.join("authority.pem"), certificate.pem()).expect("written");
    (certificate.der().clone(), issuer)
}

fn rig(folder: &Path, required: bool) -> (Rig, CertificateDer<'static>) {
    let authority = certificates(folder);
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let tls = Some(ServerTls { certificate, key, client_authority: None, client_revocations: None, required });
    let options = ServerOptions { workers: 2, tls, ..ServerOptions::default() };
    (Rig::with(options, [Export::new("disk", memory(1 << 20))]), authority)
}

/// A client inside TLS, which shows a certificate of the authority, if any.
pub(crate) fn connected(stream: TcpStream, authority: &Authority, shows: Option<CertificateParams>) -> Client {
    let mut plain = Client::greeted(stream.try_clone().expect("a handle"), 3);
    assert_eq!(plain.negotiate(5, &[]), [(ACK, vec![])]);
    let mut roots = RootCertStore::empty();
    roots.add(authority.certificate.clone()).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match shows {
        None => builder.with_no_client_auth(),
        Some(params) => {
            let key = KeyPair::generate().expect("a key");
            let own = params.signed_by(&key, &authority.issuer).expect("a certificate").der().clone();
            let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
            builder.with_client_auth_cert(vec![own], key).expect("they belong together")
        }
    };
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into().expect("a name"));
    Client::new(StreamOwned::new(connection.expect("a connection"), stream))
}

/// A client inside TLS, after `before` was sent outside.
fn secured(rig: &Rig, authority: CertificateDer<'static>, before: &[(u32, Vec<u8>)]) -> Client {
    let (stream, mut plain) = {
        let stream = client::unix(&rig.unix);
        let plain = Client::greeted(stream.try_clone().expect("a handle"), 3);
        (stream, plain)
    };
    for (code, data) in before {
        assert_eq!(plain.negotiate(*code, data).last().map(|(kind, _)| *kind), Some(ACK));
    }
    assert_eq!(plain.negotiate(5, &[]), [(ACK, vec![])]);
    let mut roots = RootCertStore::empty();
    roots.add(authority).expect("an authority");
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    Client::new(StreamOwned::new(connection, stream))
}

#[test]
fn where_tls_is_required_nothing_else_is_answered_without_it() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rig, _) = rig(folder.path(), true);
    let mut client = Client::greeted(client::tcp(rig.tcp), 3);
    for (code, data) in [
        (3, vec![]),
        (6, named("disk", &[])),
        (7, named("disk", &[])),
        (8, vec![]),
        (9, queries("disk", &[])),
        (10, queries("disk", &["base:allocation"])),
        (99, vec![]),
    ] {
        let kinds: Vec<_> = client.negotiate(code, &data).into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, [TLS_REQUIRED], "option {code}");
    }
    assert_eq!(client.negotiate(2, &[]), [(ACK, vec![])], "abort");
    let cases: [(&str, Vec<u8>); 3] = [
        ("EXPORT_NAME cannot be refused", option(1, b"disk")),
        ("bytes behind STARTTLS may be of anybody", [option(5, &[]), option(7, &named("disk", &[]))].concat()),
        ("no TLS behind STARTTLS", [option(5, &[]), vec![]].concat()),
    ];
    for (name, bytes) in cases {
        let mut client = Client::greeted(client::tcp(rig.tcp), 3);
        client.send(&bytes);
        if name == "no TLS behind STARTTLS" {
            assert_eq!(client.answers(5), [(ACK, vec![])]);
            client.try_send(&option(7, &named("disk", &[])));
        }
        let rest = client.until_end();
        let needle = &(1u64 << 20).to_be_bytes()[..];
        assert!(!rest.windows(8).any(|window| window == needle), "{name}: the export is not stated");
    }
    assert_eq!(rig.sessions(), 0);
}

#[test]
fn inside_tls_everything_is_as_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    for required in [true, false] {
        let (rig, authority) = rig(folder.path(), required);
        let mut client = secured(&rig, authority, &[]);
        assert_eq!(client.negotiate(5, &[])[0].0, INVALID, "TLS has begun already");
        assert_eq!(client.negotiate(8, &[]), [(ACK, vec![])]);
        assert_eq!(client.go("disk").expect("opens").bytes, 1 << 20);
        let bytes: Vec<u8> = (0..300_000u32).map(|at| (at % 253) as u8).collect();
        assert_eq!(client.request(FUA, WRITE, 7, bytes.len() as u32, &bytes).error, 0);
        assert!(client.read(7, bytes.len() as u32) == bytes);
        let cookies: Vec<_> = (0..64).map(|at| client.begin(0, client::READ, at, 5000, &[])).collect();
        let mut replied: Vec<_> = (0..64).map(|_| client.reply().cookie).collect();
        replied.sort_unstable();
        assert_eq!(replied, cookies);
        client.begin(0, client::DISCONNECT, 0, 0, &[]);
        assert_eq!(client.until_end(), b"");
    }
}

#[test]
fn a_client_that_reads_its_replies_late_gets_the_last_byte_of_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rig, authority) = rig(folder.path(), true);
    let mut client = secured(&rig, authority, &[]);
    client.go("disk").expect("opens");
    // Some of these lengths fill the socket and leave less than 64 KiB over, which TLS takes and keeps.
    for length in (64 << 10..800 << 10).step_by(24 << 10) {
        let cookie = client.begin(0, client::READ, 0, length, &[]);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let reply = client.reply();
        assert_eq!((reply.error, reply.cookie), (0, cookie), "{length}");
    }
    client.begin(0, client::DISCONNECT, 0, 0, &[]);
    assert_eq!(client.until_end(), b"");
}

#[test]
fn what_was_agreed_on_before_tls_is_not_in_force_inside() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rig, authority) = rig(folder.path(), false);
    let before = [(8, vec![]), (10, queries("disk", &["base:allocation"]))];
    let mut client = secured(&rig, authority, &before);
    assert_eq!(client.negotiate(9, &queries("disk", &[]))[0].0, INVALID, "contexts need structured replies");
    client.go("disk").expect("opens");
    assert_eq!(client.request(0, client::STATUS, 0, 512, &[]).error, 22);
    // Where TLS is only offered, a session without it is as before.
    assert_eq!(rig.simple("disk").read(0, 3), [0; 3]);
}

#[test]
fn tcp_beyond_this_machine_needs_tls_of_everybody_or_to_be_stated_as_plaintext() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    let tls = |required| {
        Some(ServerTls {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authority: None,
            client_revocations: None,
            required,
        })
    };
    for (tls, plaintext, is_allowed) in [
        (None, false, false),
        (None, true, true),
        // Offered only: whoever wants to, reads and writes without it.
        (tls(false), false, false),
        (tls(false), true, true),
        (tls(true), false, true),
    ] {
        let what = format!("{tls:?}, plaintext = {plaintext}");
        let options = ServerOptions { workers: 1, tls, plaintext, ..ServerOptions::default() };
        let admission = node::Admission::new(node::Descriptors::current(), 0);
        let server = nbd::NbdServer::start(options, &admission, |_| {}).expect("starts");
        // Addresses of documentation: no machine has them, so what is not refused cannot be bound.
        for address in ["192.0.2.7:0", "[2001:db8::7]:0"] {
            let error = server.listen_tcp(address.parse().expect("an address")).expect_err(address);
            match is_allowed {
                true => assert!(matches!(error, NbdError::Listen { .. }), "{what}, {address}: {error}"),
                false => assert!(matches!(error, NbdError::Plaintext { .. }), "{what}, {address}: {error}"),
            }
        }
        // All addresses of the machine are not only those of this machine.
        for address in ["0.0.0.0:0", "[::]:0"].iter().filter(|_| !is_allowed) {
            let error = server.listen_tcp(address.parse().expect("an address")).expect_err(address);
            assert!(matches!(error, NbdError::Plaintext { .. }), "{what}, {address}: {error}");
        }
        server.listen_tcp("127.0.0.1:0".parse().expect("an address")).expect(&what);
    }
}

#[test]
fn a_revoked_certificate_of_a_client_is_not_accepted_and_others_are() {
    let folder = tempfile::tempdir().expect("a folder");
    let authority = Authority::write(folder.path());
    let file = |name: &str| folder.path().join(name);
    std::fs::write(file("revoked.pem"), authority.revoked(7)).expect("written");
    std::fs::write(file("none.pem"), "").expect("written");
    let tls = |authority: Option<&str>, revocations: &str| ServerTls {
        certificate: file("certificate.pem"),
        key: file("key.pem"),
        client_authority: authority.map(file),
        client_revocations: Some(file(revocations)),
        required: true,
    };
    let options = |tls| ServerOptions { workers: 1, tls: Some(tls), ..ServerOptions::default() };
    let rig = Rig::with(options(tls(Some("authority.pem"), "revoked.pem")), [Export::new("disk", memory(1 << 20))]);
    let accepts = |number: u64| {
        let mut params = CertificateParams::new(vec!["client".to_owned()]).expect("parameters");
        params.serial_number = Some(number.into());
        let mut client = connected(client::tcp(rig.tcp), &authority, Some(params));
        // In TLS 1.3 a client learns that it was refused from what it reads.
        client.try_send(&option(3, &[]));
        client.try_answer().is_some()
    };
    assert_eq!([7, 8].map(accepts), [false, true]);
    // The list is read again: another certificate is revoked from then on, and a list that cannot be used changes nothing.
    std::fs::write(file("revoked.pem"), authority.revoked(8)).expect("written");
    rig.server().renew().expect("it can be used")();
    assert_eq!([7, 8].map(accepts), [true, false]);
    std::fs::write(file("revoked.pem"), "").expect("written");
    assert!(rig.server().renew().is_err());
    assert_eq!([7, 8].map(accepts), [true, false]);
    let admission = node::Admission::new(node::Descriptors::current(), 0);
    for (authority, revocations) in
        [(None, "revoked.pem"), (Some("authority.pem"), "none.pem"), (Some("authority.pem"), "absent.pem")]
    {
        let started = nbd::NbdServer::start(options(tls(authority, revocations)), &admission, |_| {});
        assert!(matches!(started, Err(NbdError::Tls { file: at, .. }) if at == file(revocations)), "{revocations}");
    }
}

#[test]
fn a_certificate_that_cannot_be_used_is_an_error_of_the_start() {
    let folder = tempfile::tempdir().expect("a folder");
    certificates(folder.path());
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    for (certificate, key) in [(&key, &certificate), (&folder.path().join("none.pem"), &key)] {
        let tls = ServerTls {
            certificate: certificate.clone(),
            key: key.clone(),
            client_authority: None,
            client_revocations: None,
            required: true,
        };
        let options = ServerOptions { tls: Some(tls), ..ServerOptions::default() };
        let admission = node::Admission::new(node::Descriptors::current(), 0);
        let started = nbd::NbdServer::start(options, &admission, |_| {});
        assert!(matches!(started, Err(NbdError::Tls { .. })));
    }
}
