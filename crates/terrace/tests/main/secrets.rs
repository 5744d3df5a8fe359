//! Data that another user of the machine, or of the network, must not learn: stored messages, names of accounts; and
//! that a certificate can be renewed.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use rcgen::{CertificateParams, KeyPair};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, Stream, crypto::ring};

use crate::node::Bed;

/// Files and folders at and below `folder` that others than their owner may use.
fn open_to_others(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut all = vec![folder.to_owned()];
    while let Some(path) = all.pop() {
        let meta = fs::symlink_metadata(&path).expect("it is there");
        if !meta.is_symlink() && meta.permissions().mode() & 0o077 != 0 {
            found.push(format!("{} {:o}", path.display(), meta.permissions().mode()));
        }
        if meta.is_dir() {
            all.extend(fs::read_dir(&path).expect("it can be read").map(|entry| entry.expect("an entry").path()));
        }
    }
    found
}

#[test]
fn all_that_a_node_makes_is_its_users_alone_and_looser_folders_are_told() {
    let bed = Bed::new();
    let node = bed.start_after("umask 000");
    node.send("M1");
    let backup = bed.path("backup").display().to_string();
    bed.run(&["backup", &backup, "--data"]).succeeds("");
    assert_eq!(open_to_others(&bed.data()), [""; 0]);
    assert_eq!(open_to_others(Path::new(&backup)), [""; 0]);
    assert!(!bed.log().contains("other users of this machine"), "{}", bed.log());
    node.stop();
    fs::set_permissions(bed.data(), fs::Permissions::from_mode(0o755)).expect("it is ours");
    symlink("journal", bed.data().join("link")).expect("a link");
    bed.start().stop();
    let log = bed.log();
    let told = log.lines().find(|line| line.contains("other users of this machine")).unwrap_or_else(|| panic!("{log}"));
    assert!(told.contains("open=1") && told.contains("chmod -R go= "), "{told}");
}

/// `[sql]` with one user, whose password is not known.
fn sql(extra: &str) -> String {
    let key = "A".repeat(43);
    format!(
        "[sql]\nlisten = \"127.0.0.1:0\"\n{extra}[sql.users]\nann = \"SCRAM-SHA-256$4096:AAAAAAAAAAAAAAAAAAAAAA==${key}=:{key}=\"\n"
    )
}

fn message(kind: &[u8], body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 4).expect("short").to_be_bytes();
    [kind, &length, body].concat()
}

fn read_message(stream: &mut TcpStream) -> Vec<u8> {
    let mut head = [0; 5];
    stream.read_exact(&mut head).expect("an answer");
    let mut body = vec![0; u32::from_be_bytes(head[1..].try_into().expect("four bytes")) as usize - 4];
    stream.read_exact(&mut body).expect("all of it");
    assert_eq!(head[0], b'R', "{}", String::from_utf8_lossy(&body));
    body
}

/// The salt in the challenge for `user`.
fn salt(address: SocketAddr, user: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let startup = [&196_608u32.to_be_bytes()[..], b"user\0", user.as_bytes(), b"\0database\0terrace\0\0"].concat();
    stream.write_all(&message(b"", &startup)).expect("it is taken");
    read_message(&mut stream);
    let first = b"n,,n=,r=abcdefgh";
    let body = [b"SCRAM-SHA-256\0", &(first.len() as u32).to_be_bytes()[..], first].concat();
    stream.write_all(&message(b"p", &body)).expect("it is taken");
    let answer = read_message(&mut stream);
    let answer = String::from_utf8(answer[4..].to_vec()).expect("a text");
    answer.split(',').find_map(|field| field.strip_prefix("s=")).expect("a salt").to_owned()
}

#[test]
fn a_user_who_does_not_exist_is_asked_the_same_after_a_restart() {
    let bed = Bed::new();
    bed.configure(&sql(""));
    let node = bed.start();
    let first = [salt(node.sql(), "nobody"), salt(node.sql(), "other"), salt(node.sql(), "ann")];
    assert_eq!(first[0], salt(node.sql(), "nobody"));
    assert_ne!(first[0], first[1]);
    node.stop();
    let node = bed.start();
    assert_eq!([salt(node.sql(), "nobody"), salt(node.sql(), "other"), salt(node.sql(), "ann")], first);
    node.stop();
}

/// Writes a certificate of localhost that signs itself, and its key; the certificate.
fn certify(bed: &Bed) -> String {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let certificate = params.self_signed(&key).expect("a certificate").pem();
    fs::write(bed.path("sql.pem"), &certificate).expect("a file");
    fs::write(bed.path("sql.key"), key.serialize_pem()).expect("a file");
    certificate
}

/// Whether the server shows this certificate.
fn shows(address: SocketAddr, certificate: &str) -> bool {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.as_bytes()).expect("PEM")).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("versions");
    let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
    let mut socket = TcpStream::connect(address).expect("it listens");
    socket.write_all(&message(b"", &80_877_103u32.to_be_bytes())).expect("it is taken");
    let mut answer = [0];
    socket.read_exact(&mut answer).expect("an answer");
    assert_eq!(answer, *b"S", "it speaks TLS");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut connection = ClientConnection::new(config, name).expect("a client");
    Stream::new(&mut connection, &mut socket).flush().is_ok()
}

#[test]
fn a_reload_renews_the_certificate_of_sql() {
    let bed = Bed::new();
    bed.configure(&sql("certificate = \"sql.pem\"\nkey = \"sql.key\"\n"));
    let first = certify(&bed);
    let node = bed.start();
    assert!(shows(node.sql(), &first));
    let second = certify(&bed);
    assert!(shows(node.sql(), &first) && !shows(node.sql(), &second), "nobody has read it yet");
    bed.run(&["reload", "--data"]).succeeds("sql: certificates and revocations were read again");
    assert!(shows(node.sql(), &second) && !shows(node.sql(), &first));
    fs::write(bed.path("sql.key"), "no key").expect("a file");
    bed.run(&["reload", "--data"]).fails("sql.key");
    assert!(shows(node.sql(), &second), "what cannot be used changes nothing");
    node.stop();
}
