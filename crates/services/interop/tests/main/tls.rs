//! TLS on both sides, with certificates made for each test.

use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig, crypto::ring};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::crowd::{crowd, door, ended};
use crate::receiver::{Accepting, Receiver};
use crate::rig::{Rig, Running, adt, until};
use crate::sender::Sender;

/// An authority, and a certificate of `localhost` and 127.0.0.1 that it signed; all as PEM.
struct Identity {
    authority: String,
    certificate: String,
    key: String,
}

impl Identity {
    fn new() -> Identity {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let authority = params.self_signed(&key).expect("a certificate").pem();
        let issuer = Issuer::new(params, key);
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let leaf = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names");
        let certificate = params.signed_by(&leaf, &issuer).expect("a certificate").pem();
        Identity { authority, certificate, key: leaf.serialize_pem() }
    }

    /// Writes the three files beside the production, under names that begin with `name`.
    fn write(&self, rig: &Rig, name: &str) {
        rig.write(&format!("tls/{name}-ca.pem"), &self.authority)
            .write(&format!("tls/{name}.pem"), &self.certificate)
            .write(&format!("tls/{name}.key"), &self.key);
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.as_bytes()).expect("PEM")).expect("an authority");
        roots
    }

    fn pair(&self) -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("PEM");
        (vec![certificate], PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("PEM"))
    }

    /// A receiver's side; `clients` must have signed the other side's certificate.
    fn acceptor(&self, clients: Option<&Identity>) -> TlsAcceptor {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().expect("versions");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(clients) => {
                let roots = Arc::new(clients.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build().expect("roots");
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = self.pair();
        TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).expect("a pair")))
    }

    /// A connection to a service whose certificate this authority must have signed; the message's answer, if any.
    async fn exchange(&self, running: &Running, own: Option<&Identity>, message: &str) -> Option<String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder =
            builder.with_safe_default_protocol_versions().expect("versions").with_root_certificates(self.roots());
        let config = match own.map(Identity::pair) {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => builder.with_client_auth_cert(chain, key).expect("a pair"),
        };
        let socket = TcpStream::connect(running.address("in")).await.expect("it listens");
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TlsConnector::from(Arc::new(config)).connect(name, socket).await.ok()?;
        Sender::over(Box::new(stream)).answer_of(message).await.map(|answer| answer.short())
    }
}

const SERVER: &str = "[tls]\ncertificate = \"tls/in.pem\"\nkey = \"tls/in.key\"\n";
const CLIENT: &str = "[tls]\nauthority = \"tls/out-ca.pem\"\nserver_name = \"localhost\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn messages_come_in_and_go_out_over_tls() {
    let (ours, theirs) = (Identity::new(), Identity::new());
    let mut receiver = Receiver::start_tls(theirs.acceptor(None)).await;
    let rig = Rig::to(receiver.address);
    ours.write(&rig, "in");
    theirs.write(&rig, "out");
    // Once by the name of the settings, once by the host of the address.
    for (n, client) in [CLIENT, "[tls]\nauthority = \"tls/out-ca.pem\"\n"].iter().enumerate() {
        rig.service("in", SERVER).operation("out", receiver.address, client);
        let running = rig.start().await;
        let id = format!("{n}");
        assert_eq!(ours.exchange(&running, None, &adt(&id)).await, Some(format!("AA {id}")));
        receiver.next_is(&id).await.answer("AA");
        running.idle("out").await;
        assert!(running.status().services[0].tls);
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_on_a_connection_that_comes_to_be_after_the_operation_was_suspended() {
    let theirs = Identity::new();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let rig = Rig::to(address);
    theirs.write(&rig, "out");
    rig.operation("out", address, CLIENT);
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    let (socket, _) = listener.accept().await.expect("it connects");
    running.request("suspend out").await.expect("it is there");
    let mut stream = theirs.acceptor(None).accept(socket).await.expect("it shakes hands");
    let mut byte = [0];
    let read = tokio::time::timeout(Duration::from_millis(300), stream.read(&mut byte)).await;
    assert!(read.is_err(), "the message is kept: {read:?}");
    running.request("resume out").await.expect("it is there");
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read(&mut byte)).await;
    assert_eq!((read.expect("it comes").expect("it is connected"), byte), (1, [hl7::mllp::START]));
    drop(stream);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_authority_is_refused_by_both_sides_and_the_message_waits_until_it_is_right() {
    let (ours, theirs, stranger) = (Identity::new(), Identity::new(), Identity::new());
    let mut receiver = Receiver::start_tls(theirs.acceptor(None)).await;
    let rig = Rig::to(receiver.address);
    ours.write(&rig, "in");
    stranger.write(&rig, "out");
    rig.service("in", SERVER).operation("out", receiver.address, CLIENT);
    let running = rig.start().await;
    assert_eq!(stranger.exchange(&running, None, &adt("x")).await, None, "the sender does not trust the service");
    assert_eq!(ours.exchange(&running, None, &adt("1")).await, Some("AA 1".to_owned()));
    until("it is tried again", || (running.status().operations[0].retried > 2).then_some(())).await;
    assert_eq!(running.waiting("out"), 1);
    theirs.write(&rig, "out");
    running.request("reload").await.expect("the production is right");
    receiver.next_is("1").await.answer("AA");
    running.idle("out").await;
    assert_eq!(running.stored().len(), 1);
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0], "once, and not before it was right");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_renews_the_certificates_of_services() {
    let (first, second) = (Identity::new(), Identity::new());
    let out = crate::receiver::Accepting::start().await;
    let rig = Rig::to(out.address);
    first.write(&rig, "in");
    rig.service("in", SERVER);
    let running = rig.start().await;
    assert_eq!(first.exchange(&running, None, &adt("1")).await, Some("AA 1".to_owned()));
    second.write(&rig, "in");
    assert_eq!(second.exchange(&running, None, &adt("2")).await, None, "nobody has read it yet");
    running.request("reload").await.expect("the files are right");
    assert_eq!(second.exchange(&running, None, &adt("2")).await, Some("AA 2".to_owned()));
    assert_eq!(first.exchange(&running, None, &adt("3")).await, None, "the first is in force no more");
    rig.write("tls/in.key", "no key");
    assert!(running.request("reload").await.is_err(), "what cannot be used is refused");
    assert_eq!(second.exchange(&running, None, &adt("3")).await, Some("AA 3".to_owned()), "and changes nothing");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_are_demanded_and_shown() {
    let (ours, theirs, clients) = (Identity::new(), Identity::new(), Identity::new());
    let mut receiver = Receiver::start_tls(theirs.acceptor(Some(&clients))).await;
    let rig = Rig::to(receiver.address);
    ours.write(&rig, "in");
    theirs.write(&rig, "out");
    clients.write(&rig, "clients");
    let shown = format!("{CLIENT}certificate = \"tls/clients.pem\"\nkey = \"tls/clients.key\"\n");
    rig.service("in", &format!("{SERVER}client_authority = \"tls/clients-ca.pem\"\n")).operation(
        "out",
        receiver.address,
        CLIENT,
    );
    let running = rig.start().await;
    for (own, expected) in [(None, None), (Some(&theirs), None), (Some(&clients), Some("AA 1".to_owned()))] {
        assert_eq!(ours.exchange(&running, own, &adt("1")).await, expected);
    }
    until("it is tried again", || (running.status().operations[0].retried > 2).then_some(())).await;
    rig.operation("out", receiver.address, &shown);
    running.request("reload").await.expect("the production is right");
    receiver.next_is("1").await.answer("AA");
    running.idle("out").await;
    assert_eq!(running.stored().len(), 1);
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0], "without a certificate the receiver takes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_without_tls_is_disconnected_and_the_service_goes_on() {
    let ours = Identity::new();
    let receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    ours.write(&rig, "in");
    rig.service("in", SERVER);
    let running = rig.start().await;
    let out = receiver.accepting();
    let mut plain = running.sender().await;
    plain.write(&crate::sender::framed(&adt("x"))).await;
    assert!(plain.ends().await);
    assert_eq!(ours.exchange(&running, None, &adt("1")).await, Some("AA 1".to_owned()));
    assert_eq!(out.received(1).await, ["1"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_sockets_of_a_tls_service_end_in_time_and_make_room_for_senders_before() {
    let ours = Identity::new();
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    ours.write(&rig, "in");
    let head = "connections = 4\nconnections_per_address = 4\n";
    rig.service("in", &format!("{head}{SERVER}"));
    let running = rig.start().await;
    let silent = crowd(running.address("in"), 12, b"").await;
    let mut answer = None;
    for _ in 0..600 {
        answer = ours.exchange(&running, None, &adt("1")).await;
        if answer.is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(answer.as_deref(), Some("AA 1"));
    assert!(ended(&running, "newcomer") >= 1);
    drop(silent);
    running.stop().await;

    rig.service("in", &format!("{head}{SERVER}handshake_timeout = \"100ms\"\n"));
    let running = rig.start().await;
    let silent = crowd(running.address("in"), 4, b"\x16\x03\x01").await;
    until("their time is over", || (ended(&running, "handshake") == 4).then_some(())).await;
    until("all are gone", || (running.status().connections == 0).then_some(())).await;
    drop(silent);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_clients_with_a_certificate_only_those_come_in_that_carry_a_name() {
    let (ours, clients) = (Identity::new(), Identity::new());
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    ours.write(&rig, "in");
    clients.write(&rig, "clients");
    let settings =
        |names: &str| format!("{SERVER}client_authority = \"tls/clients-ca.pem\"\nclient_names = [{names}]\n");
    for (names, answered) in [
        ("\"lab.example.org\"", false),
        ("\"lab.example.org\", \"localhost\"", true),
        ("\"127.0.0.1\"", true),
        ("", true),
    ] {
        rig.service("in", &settings(names));
        let running = rig.start().await;
        let answer = ours.exchange(&running, Some(&clients), &adt("1")).await;
        assert_eq!(answer.is_some(), answered, "{names}");
        assert_eq!(door(&running, "mllp").refused.contains_key("certificate"), !answered, "{names}");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_ends_its_handshake_is_given_up_in_time() {
    let theirs = Identity::new();
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = silent.local_addr().expect("it is bound");
    let rig = Rig::to(address);
    theirs.write(&rig, "out");
    rig.operation("out", address, &format!("connect_timeout = \"100ms\"\n{CLIENT}"));
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    until("it is tried again and again", || (running.status().operations[0].retried > 2).then_some(())).await;
    running.stop().await;
}
