//! Every way to prove who one is, on every port that knows users: who gets in, what the refusal says, and what is in the audit.
//!
//! ```text
//!   PROOFS x ports --attempt--> in, or refused with a text      the same text for an unknown user and a wrong proof
//!                               one entry `login` for each refusal, with port, address, and what was to prove it
//! ```
//!
//! A port takes some of the proofs: SQL passwords, and over TLS certificates; search passwords, tokens, and over TLS certificates;
//! NBD certificates; the control socket tokens. The node is started anew for each port: how many failures are recorded, and how
//! many cost nothing, is bounded for all ports together.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use node::identity::Action;
use node::identity::scram::Verifier;
use serde_json::{Value, json};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::ports::{Control, Http, Nbd, Outcome, sql_login};
use super::rig::{Authority, PASSWORD, grant, nbd_address, write_production};
use crate::node::{Bed, Node, until};
use crate::volumes::volume;

/// Certificates over SQL and search by rule; everything else by the settings of the ports.
const SETTINGS: &str = "production = \"production\"\n\
    [sql]\nlisten = \"127.0.0.1:0\"\ntls_required = false\ncertificate = \"tls/localhost.pem\"\nkey = \"tls/localhost.key\"\n\
    client_authority = \"tls/authority.pem\"\n\
    [search]\nlisten = \"127.0.0.1:0\"\ntls_required = false\ncertificate = \"tls/localhost.pem\"\nkey = \"tls/localhost.key\"\n\
    client_authority = \"tls/authority.pem\"\n\
    [volumes]\nlisten = \"127.0.0.1:0\"\ntls_required = true\ncertificate = \"tls/localhost.pem\"\nkey = \"tls/localhost.key\"\n\
    client_authority = \"tls/authority.pem\"\n\
    [[access]]\nport = \"sql\"\naddress = \"local\"\ntls = \"required\"\nmethod = \"certificate\"\n\
    [[access]]\nport = \"search\"\naddress = \"local\"\ntls = \"required\"\nmethod = \"certificate\"\n\
    [[access]]\nport = \"all\"\naddress = \"local\"\nmethod = \"allow\"\n";

/// A time that has been: 2001.
const PAST_US: i64 = 1_000_000_000_000_000;

/// The roles, and what makes each one that may not log in. `nobody-here` is none.
const ROLES: [(&str, &str); 4] = [
    ("good", r#"{"login":true}"#),
    ("expired", r#"{"login":true,"until_us":1000000000000000}"#),
    ("locked", r#"{"login":true,"locked":"a test"}"#),
    ("group", r#"{"login":false}"#),
];

/// Who tries, by a password: user, password, whether it gets in.
const PASSWORDS: [(&str, &str, bool); 6] = [
    ("good", PASSWORD, true),
    ("good", "a wrong password", false),
    ("nobody-here", PASSWORD, false),
    ("expired", PASSWORD, false),
    ("locked", PASSWORD, false),
    ("group", PASSWORD, false),
];

/// Who tries, by a certificate of this name.
const CERTIFICATES: [(&str, bool); 5] =
    [("good", true), ("nobody-here", false), ("expired", false), ("locked", false), ("group", false)];

/// A token, and whether it gets in.
struct TriedToken {
    what: &'static str,
    text: String,
    is_good: bool,
}

/// What came of an attempt: in, or the text of the refusal without the name of the user.
#[derive(Debug, PartialEq)]
enum Tried {
    In,
    Refused(String),
}

impl Tried {
    fn of(outcome: Outcome, user: &str) -> Tried {
        match outcome {
            Outcome::Answered(_) => Tried::In,
            other => Tried::Refused(other.text().replace(user, "USER")),
        }
    }

    /// Whether it was not looked at, because others failed before it.
    fn has_to_wait(&self) -> bool {
        matches!(self, Tried::Refused(text) if text.contains("too many failed logins"))
    }
}

/// The entries of logins, the oldest first.
fn logins(control: &mut Control) -> Vec<Value> {
    let page = control.must(r#"audit {"verb":"read","query":{"filter":{"action":"login"}}}"#);
    page["entries"].as_array().expect("a list").clone()
}

/// The attempts on one port, and what is wrong with them.
struct Attempts {
    port: &'static str,
    address: &'static str,
    /// The one text of all refusals, by what was to prove it.
    texts: Vec<(&'static str, String)>,
    wrong: Vec<String>,
    count: usize,
}

impl Attempts {
    fn on(port: &'static str, address: &'static str) -> Attempts {
        Attempts { port, address, texts: Vec::new(), wrong: Vec::new(), count: 0 }
    }

    /// Tries again while it has to wait for the failures before it, and looks at the entries.
    fn attempt(
        &mut self,
        control: &mut Control,
        (what, proof, is_good): (&str, &'static str, bool),
        mut attempt: impl FnMut(&mut Control) -> Tried,
    ) {
        self.count += 1;
        let (mut before, mut tried) = (0, Tried::In);
        until("it does not have to wait", || {
            before = logins(control).len();
            tried = attempt(control);
            let has_to_wait = tried.has_to_wait();
            if has_to_wait {
                // Each attempt that is too early may have an entry, and there are 20 of a port in 10 s at most.
                thread::sleep(Duration::from_secs(1));
            }
            !has_to_wait
        });
        if (tried == Tried::In) != is_good {
            self.wrong.push(format!("{} {proof} {what}: {tried:?}", self.port));
        }
        let Tried::Refused(text) = tried else { return };
        match self.texts.iter().find(|(known, _)| *known == proof) {
            Some((_, known)) if *known != text => {
                self.wrong.push(format!("{} {proof} {what} is told `{text}`, others `{known}`", self.port));
            }
            Some(_) => {}
            None => self.texts.push((proof, text)),
        }
        let mut new = Vec::new();
        until(&format!("{} {proof} {what} has an entry", self.port), || {
            new = logins(control).split_off(before);
            !new.is_empty()
        });
        let [entry] = new.as_slice() else {
            self.wrong.push(format!("{} {proof} {what} has several entries: {new:?}", self.port));
            return;
        };
        let told = ["/outcome", "/origin/protocol", "/origin/address", "/details/proof"]
            .map(|place| entry.pointer(place).and_then(Value::as_str).unwrap_or_default());
        if told != ["refused", self.port, self.address, proof] {
            self.wrong.push(format!("{} {proof} {what}: {entry}", self.port));
        }
    }
}

/// The answer of SQL over TLS with a certificate to who says that it is `user`.
fn sql_by_certificate(address: SocketAddr, user: &str, tls: &Arc<ClientConfig>) -> std::io::Result<Tried> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    socket.write_all(&[&8u32.to_be_bytes()[..], &80_877_103u32.to_be_bytes()].concat())?;
    let mut answer = [0];
    socket.read_exact(&mut answer)?;
    assert_eq!(answer, *b"S", "it has TLS");
    let connection = ClientConnection::new(Arc::clone(tls), "localhost".try_into().expect("a name"));
    let mut stream = StreamOwned::new(connection.map_err(std::io::Error::other)?, socket);
    let startup = [&196_608u32.to_be_bytes()[..], format!("user\0{user}\0database\0terrace\0\0").as_bytes()].concat();
    let length = u32::try_from(startup.len() + 4).expect("short").to_be_bytes();
    stream.write_all(&[&length[..], &startup].concat())?;
    let mut head = [0; 5];
    stream.read_exact(&mut head)?;
    let length = u32::from_be_bytes(head[1..].try_into().expect("4 bytes")) as usize;
    let mut body = vec![0; length - 4];
    stream.read_exact(&mut body)?;
    let text = String::from_utf8_lossy(&body).replace('\0', " ").replace(user, "USER");
    Ok(if head[0] == b'R' { Tried::In } else { Tried::Refused(text) })
}

/// The answer of search over TLS with a certificate.
fn search_by_certificate(address: SocketAddr, user: &str, tls: &Arc<ClientConfig>) -> std::io::Result<Tried> {
    let socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    let connection = ClientConnection::new(Arc::clone(tls), "localhost".try_into().expect("a name"));
    let mut stream = StreamOwned::new(connection.map_err(std::io::Error::other)?, socket);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    // Not every server says that TLS ends before it ends.
    _ = stream.read_to_end(&mut answer);
    let answer = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    Ok(match head.split(' ').nth(1) {
        Some("200") => Tried::In,
        status => Tried::Refused(format!("{status:?} {}", body.replace(user, "USER"))),
    })
}

fn broken(error: std::io::Error) -> Tried {
    Tried::Refused(format!("ended: {error}"))
}

/// Makes the roles and their tokens: of the good one three, of which one has expired and one was revoked.
fn make_roles(control: &mut Control) -> Vec<TriedToken> {
    let verifier = Verifier::of(PASSWORD).expect("a password");
    for (name, attributes) in ROLES {
        let attributes: Value = serde_json::from_str(attributes).expect("JSON");
        let credentials = json!({ "scram": verifier, "certificates": [name] });
        control.change(&[json!({ "create": { "name": name, "attributes": attributes, "credentials": credentials } })]);
    }
    for right in [(Action::VolumeRead, "volume v"), (Action::VolumeList, "volume v"), (Action::NodeStatus, "node")] {
        control.change(&[grant(right, "good")]);
    }
    let mut draw = |role: &str, name: &str, until_us: Option<i64>| {
        let request = json!({ "verb": "draw-token", "role": role, "name": name, "until_us": until_us });
        control.must(&format!("identity {request}"))["token"].as_str().expect("a text").to_owned()
    };
    let mut tokens = vec![
        TriedToken { what: "good", text: draw("good", "good", None), is_good: true },
        TriedToken { what: "expired", text: draw("good", "expired", Some(PAST_US)), is_good: false },
        TriedToken { what: "revoked", text: draw("good", "revoked", None), is_good: false },
        TriedToken { what: "unknown", text: "trc_wrong".to_owned(), is_good: false },
    ];
    for role in ["expired", "locked", "group"] {
        tokens.push(TriedToken { what: role, text: draw(role, "own", None), is_good: false });
    }
    control.change(&[json!({ "credential": { "role": "good", "change": { "drop-token": "revoked" } } })]);
    tokens
}

fn on_sql(node: &Node<'_>, control: &mut Control, authority: &Authority) -> Attempts {
    let (address, mut attempts) = (node.sql(), Attempts::on("sql", "127.0.0.1"));
    for (user, password, is_good) in PASSWORDS {
        attempts.attempt(control, (user, "password", is_good), |_| match sql_login(address, user, Some(password)) {
            Ok(_) => Tried::In,
            Err(outcome) => Tried::of(outcome, user),
        });
    }
    for (user, is_good) in CERTIFICATES {
        let tls = authority.client(user);
        let attempt = |_: &mut Control| sql_by_certificate(address, user, &tls).unwrap_or_else(broken);
        attempts.attempt(control, (user, "certificate", is_good), attempt);
    }
    // A right certificate, and the name of another.
    let tls = authority.client("good");
    let attempt = |_: &mut Control| sql_by_certificate(address, "locked", &tls).unwrap_or_else(broken);
    attempts.attempt(control, ("another's", "certificate", false), attempt);
    attempts
}

fn on_search(node: &Node<'_>, control: &mut Control, authority: &Authority, tokens: &[TriedToken]) -> Attempts {
    let (address, mut attempts) = (node.search(), Attempts::on("search", "127.0.0.1"));
    let mut http = Http::open(address);
    let mut ask = |authorization: String, user: &str| {
        let answer = http.exchange(Some(&authorization), ("GET", "/", ""));
        match answer.status {
            200 => Tried::In,
            status => Tried::Refused(format!("{status} {}", answer.body.replace(user, "USER"))),
        }
    };
    for (user, password, is_good) in PASSWORDS {
        let header = format!("Basic {}", BASE64.encode(format!("{user}:{password}")));
        attempts.attempt(control, (user, "password", is_good), |_| ask(header.clone(), user));
    }
    for token in tokens {
        let header = format!("Bearer {}", token.text);
        attempts.attempt(control, (token.what, "token", token.is_good), |_| ask(header.clone(), "USER"));
    }
    for (user, is_good) in CERTIFICATES {
        let tls = authority.client(user);
        let attempt = |_: &mut Control| search_by_certificate(address, user, &tls).unwrap_or_else(broken);
        attempts.attempt(control, (user, "certificate", is_good), attempt);
    }
    attempts
}

fn on_nbd(control: &mut Control, authority: &Authority) -> Attempts {
    let (address, mut attempts) = (nbd_address(control), Attempts::on("nbd", "127.0.0.1"));
    for (user, is_good) in CERTIFICATES {
        let tls = authority.client(user);
        let attempt = |_: &mut Control| match Nbd::open(address, &tls) {
            Ok(mut nbd) => Tried::of(nbd.go("v"), user),
            Err(error) => broken(error),
        };
        attempts.attempt(control, (user, "certificate", is_good), attempt);
    }
    attempts
}

fn on_control(control: &mut Control, tokens: &[TriedToken]) -> Attempts {
    let mut attempts = Attempts::on("control", "local");
    for token in tokens {
        let attempt = |control: &mut Control| Tried::of(control.send(Some(&token.text), "status"), "USER");
        attempts.attempt(control, (token.what, "token", token.is_good), attempt);
    }
    attempts
}

#[test]
fn on_every_port_the_same_identities_get_in_and_all_others_are_told_the_same_and_have_one_entry() {
    let bed = Bed::new();
    let authority = Authority::new(&bed);
    write_production(&bed);
    bed.configure(SETTINGS);
    let mut tokens = Vec::new();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for port in ["sql", "search", "nbd", "control"] {
        let node = bed.start();
        let mut control = Control::open(&bed.data());
        if tokens.is_empty() {
            tokens = make_roles(&mut control);
            volume(&bed, &["create", "v", "--size", "4MiB"]);
            volume(&bed, &["export", "v"]);
        }
        let attempts = match port {
            "sql" => on_sql(&node, &mut control, &authority),
            "search" => on_search(&node, &mut control, &authority, &tokens),
            "nbd" => on_nbd(&mut control, &authority),
            _ => on_control(&mut control, &tokens),
        };
        wrong.extend(attempts.wrong);
        count += attempts.count;
        drop(control);
        node.stop();
    }
    assert!(wrong.is_empty(), "{} of {count}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(count, 42, "each proof was tried on each port that takes it");
}
