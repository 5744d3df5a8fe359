//! From where somebody may come, and logins that are bound to the server's certificate.

use std::path::Path;

use bytes::Buf;
use node::identity::{AccessAddress, AccessMethod, AccessPort, AccessRule, AccessRules, AccessTls};
use node::{TlsOptions, certificate};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::client::bound_final;
use super::*;

/// A rule for SQL.
fn rule(roles: &[&str], address: &str, tls: AccessTls, method: AccessMethod) -> AccessRule {
    let roles = roles.iter().map(ToString::to_string).collect();
    let address = AccessAddress::try_from(address.to_owned()).expect("an address");
    AccessRule { port: AccessPort::Sql, roles, address, tls, method }
}

fn set(guard: &Guard, rules: Vec<AccessRule>) {
    guard.set_access(AccessRules::new(rules).expect("they can work"));
}

/// How the server answers a start, before any password: `R` with the number, or the error.
async fn first_answer(server: &Server, user: &str) -> Result<u32, (String, String)> {
    let mut client = Client::connect(server).await;
    client.send(&start(3 << 16, &[("user", user), ("database", "terrace")])).await;
    let mut reply = client.reply().await;
    if reply.kind == 'E' {
        let told = reply.error();
        assert!(client.is_closed().await);
        return Err(told);
    }
    Ok(reply.body.get_u32())
}

/// The numbers of `AuthenticationOk` and of the offer of SCRAM.
const OK: u32 = 0;
const SASL: u32 = 10;

#[tokio::test]
async fn the_rules_decide_before_a_password_is_asked_for_and_the_refusal_is_postgresqls() {
    let (server, guard) = guarded_server(|_| {}).await;
    change(&guard, &[role("bob", Attributes::user())]);
    assert_eq!(first_answer(&server, "bob").await, Ok(OK), "without rules the settings decide, which trust");
    let any = AccessTls::Any;
    set(
        &guard,
        vec![
            rule(&["eve", "nobody"], "all", any, AccessMethod::Reject),
            rule(&["ann"], "127.0.0.0/8", any, AccessMethod::Password),
            rule(&["bob"], "10.0.0.0/8", any, AccessMethod::Allow),
            rule(&["bob"], "local", AccessTls::Required, AccessMethod::Allow),
        ],
    );
    assert_eq!(first_answer(&server, "ann").await, Ok(SASL), "a rule that demands a password wins over trust");
    let told = |what: &str, user: &str| {
        let text = format!("{what} host \"127.0.0.1\", user \"{user}\", database \"terrace\", TLS off");
        Err(("28000".to_owned(), text))
    };
    assert_eq!(first_answer(&server, "bob").await, told("no access rule for", "bob"));
    for user in ["eve", "nobody"] {
        let rejected = told("an access rule rejects the connection for", user);
        assert_eq!(first_answer(&server, user).await, rejected, "whether there is such a role does not matter");
    }
    let mut open = Client::connect(&server).await;
    open.log_in("ann", "secret").await.expect("it is right");
    set(&guard, vec![rule(&[], "local", any, AccessMethod::Trust)]);
    assert_eq!(first_answer(&server, "bob").await, Ok(OK));
    set(&guard, vec![rule(&[], "10.0.0.0/8", any, AccessMethod::Allow)]);
    assert!(first_answer(&server, "ann").await.is_err());
    assert_eq!(open.query("select 1 as x").await.rows(), [[Some("1".to_owned())]], "who is inside stays");
    server.stop().await;
}

/// Certificates of a server and of a client, by an authority of both.
struct Papers {
    tls: TlsOptions,
    /// The server's own.
    own: CertificateDer<'static>,
    roots: RootCertStore,
    issuer: Issuer<'static, KeyPair>,
    _folder: tempfile::TempDir,
}

impl Papers {
    fn write(asks_clients: bool) -> Papers {
        let folder = tempfile::tempdir().expect("a folder");
        let mut authority = CertificateParams::new(Vec::new()).expect("parameters");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority_key = KeyPair::generate().expect("a key");
        let root = authority.self_signed(&authority_key).expect("an authority");
        let issuer = Issuer::new(authority, authority_key);
        let key = KeyPair::generate().expect("a key");
        let own = CertificateParams::new(vec!["localhost".to_owned()]).expect("parameters");
        let own = own.signed_by(&key, &issuer).expect("a certificate");
        let put = |name: &str, text: &str| {
            let path: &Path = folder.path();
            std::fs::write(path.join(name), text).expect("written");
            path.join(name)
        };
        let client_authority = asks_clients.then(|| put("authority.pem", &root.pem()));
        let (certificate, key) = (put("own.pem", &own.pem()), put("own.key", &key.serialize_pem()));
        let tls = TlsOptions { certificate, key, client_authority, client_revocations: None, required: true };
        let mut roots = RootCertStore::empty();
        roots.add(root.der().clone()).expect("an authority");
        Papers { tls, own: own.der().clone(), roots, issuer, _folder: folder }
    }

    /// A client inside TLS, which shows a certificate of this name, if any.
    async fn connect(&self, server: &Server, shows: Option<&str>) -> TlsStream<TcpStream> {
        let builder = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(self.roots.clone());
        let config = match shows {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let key = KeyPair::generate().expect("a key");
                let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
                let own = params.signed_by(&key, &self.issuer).expect("a certificate").der().clone();
                let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
                builder.with_client_auth_cert(vec![own], key).expect("they belong together")
            }
        };
        let mut socket = TcpStream::connect(server.address()).await.expect("it listens");
        socket.write_all(&[8u32, 80_877_103].map(u32::to_be_bytes).concat()).await.expect("it reads");
        assert_eq!(socket.read_u8().await.expect("an answer"), b'S');
        let name = ServerName::try_from("localhost").expect("a name");
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.expect("TLS")
    }
}

async fn reply(stream: &mut TlsStream<TcpStream>) -> Reply {
    let kind = stream.read_u8().await.expect("a reply comes");
    let length = stream.read_u32().await.expect("it is whole") as usize;
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body).await.expect("it is whole");
    Reply { kind: kind as char, body: body.into() }
}

async fn message(stream: &mut TlsStream<TcpStream>, body: &[u8]) {
    let head = [b"p", &(body.len() as u32 + 4).to_be_bytes()[..]].concat();
    stream.write_all(&[&head, body].concat()).await.expect("it reads");
}

/// Logs in by a mechanism, with a header and what a client believes to be the certificate's hash.
async fn bound(
    stream: &mut TlsStream<TcpStream>,
    (mechanism, header, hash): (&str, &str, &[u8]),
) -> Result<(), (String, String)> {
    stream.write_all(&start(3 << 16, &[("user", "ann"), ("database", "terrace")])).await.expect("it reads");
    let offer = reply(stream).await;
    assert_eq!(&offer.body[..], b"\0\0\0\x0aSCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0");
    let first = format!("{header}n=,r=nonce");
    let length = (first.len() as u32).to_be_bytes();
    message(stream, &[mechanism.as_bytes(), b"\0", &length, first.as_bytes()].concat()).await;
    let question = reply(stream).await;
    if question.kind == 'E' {
        return Err(question.error());
    }
    let text = std::str::from_utf8(&question.body[4..]).expect("it is text").to_owned();
    let header = [header.as_bytes(), hash].concat();
    message(stream, bound_final("secret", &header, "n=,r=nonce", &text).as_bytes()).await;
    let told = reply(stream).await;
    if told.kind == 'E' { Err(told.error()) } else { Ok(()) }
}

#[tokio::test]
async fn a_login_can_be_bound_to_the_certificate_and_nobody_between_can_take_that_away() {
    let papers = Papers::write(false);
    let tls = papers.tls.clone();
    let (server, _guard) = guarded_server(|options| (options.trust, options.tls) = (false, Some(tls))).await;
    let hash = certificate::end_point(&papers.own).expect("it has one");
    let (plus, plain) = ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-256");
    let end_point = "p=tls-server-end-point,,";
    let cases: [(&str, &str, &[u8], Option<&str>); 7] = [
        (plus, end_point, &hash, None),
        (plain, "n,,", b"", None),
        // The client saw another certificate: that of somebody between.
        (plus, end_point, &[7; 32], Some("28000")),
        // The client could, and was told that the server cannot.
        (plain, "y,,", b"", Some("28000")),
        (plus, "n,,", b"", Some("08P01")),
        (plain, end_point, &hash, Some("08P01")),
        ("SCRAM-SHA-1", "n,,", b"", Some("08P01")),
    ];
    for (mechanism, header, hash, refused) in cases {
        let mut stream = papers.connect(&server, None).await;
        let told = bound(&mut stream, (mechanism, header, hash)).await;
        assert_eq!(told.as_ref().err().map(|(code, _)| code.as_str()), refused, "{mechanism} {header}: {told:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_rule_can_demand_the_certificate_of_the_user() {
    let papers = Papers::write(true);
    let tls = papers.tls.clone();
    let (server, guard) = guarded_server(|options| options.tls = Some(tls)).await;
    let credentials = Credentials { certificates: vec!["bob.example".into()], ..Credentials::default() };
    let bob = Role { name: "bob".into(), attributes: Attributes::user(), credentials };
    change(&guard, &[IdentityChange::Create(bob)]);
    set(&guard, vec![rule(&[], "all", AccessTls::Required, AccessMethod::Certificate)]);
    for (user, shows, is_right) in
        [("bob", "bob.example", true), ("ann", "bob.example", false), ("bob", "eve.example", false)]
    {
        let mut stream = papers.connect(&server, Some(shows)).await;
        stream.write_all(&start(3 << 16, &[("user", user)])).await.expect("it reads");
        let mut told = reply(&mut stream).await;
        match is_right {
            true => assert_eq!((told.kind, told.body.get_u32()), ('R', OK)),
            false => {
                let (code, text) = told.error();
                assert_eq!(code, "28000");
                assert_eq!(text, format!("certificate authentication failed for user \"{user}\""));
            }
        }
    }
    server.stop().await;
}
