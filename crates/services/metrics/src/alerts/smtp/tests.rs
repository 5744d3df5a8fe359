//! Against a server of the test, over sockets, with and without TLS.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::*;

const LONG: Duration = Duration::from_secs(60);

/// Long enough to hand over a mail.
const SHORT: Duration = Duration::from_secs(3);

/// What a server of a test does differently from a good one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Vice {
    None,
    NoStartTls,
    /// It sends a reply ahead of TLS, as somebody in between could.
    Ahead,
    WrongPassword,
    NoReceiver,
    RefusesText,
    /// It takes a mail later than a channel may take for all before.
    TakesLate,
    Endless,
}

struct Server {
    port: u16,
    authority: PathBuf,
    /// Lines that it got, of all connections.
    got: Arc<parking_lot::Mutex<Vec<String>>>,
    _folder: tempfile::TempDir,
}

async fn talk<S: Wire>(socket: S, is_secure: bool, vice: Vice, got: &parking_lot::Mutex<Vec<String>>) -> Option<S> {
    let mut socket = BufReader::new(socket);
    if !is_secure {
        socket.write_all(b"220 test ready\r\n").await.ok()?;
    }
    let mut in_text = false;
    loop {
        let mut line = String::new();
        if socket.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let line = line.trim_end().to_owned();
        got.lock().push(line.clone());
        let word = line.split([' ', ':']).next().unwrap_or_default().to_owned();
        let answer: &[u8] = match (in_text, word.as_str()) {
            (true, ".") if vice == Vice::RefusesText => b"554 no\r\n",
            (true, ".") => {
                if vice == Vice::TakesLate {
                    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
                }
                b"250 taken\r\n"
            }
            (true, _) => continue,
            (_, "EHLO") if vice == Vice::Endless => &[b'2'; 40_000],
            (_, "EHLO") if is_secure => b"250-test\r\n250 AUTH LOGIN PLAIN\r\n",
            (_, "EHLO") if vice == Vice::NoStartTls => b"250-test\r\n250 SIZE 1000000\r\n",
            (_, "EHLO") => b"250-test\r\n250-SIZE 1000000\r\n250 STARTTLS\r\n",
            (_, "STARTTLS") if vice == Vice::Ahead => b"220 go\r\n250 AUTH PLAIN\r\n",
            (_, "STARTTLS") => b"220 go\r\n",
            (_, "AUTH") if vice == Vice::WrongPassword => b"535 no such user\r\n",
            (_, "AUTH") => b"235 come in\r\n",
            (_, "RCPT") if vice == Vice::NoReceiver => b"550 unknown\r\n",
            (_, "RCPT") if line.contains("gone@") => b"550 unknown\r\n",
            (_, "DATA") => b"354 go on\r\n",
            (_, "QUIT") => return None,
            _ => b"250 fine\r\n",
        };
        in_text = word == "DATA" && !in_text;
        socket.write_all(answer).await.ok()?;
        socket.flush().await.ok()?;
        if word == "STARTTLS" {
            return Some(socket.into_inner());
        }
    }
}

async fn server(vice: Vice) -> Server {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let (authority, key) = (folder.path().join("ca.pem"), folder.path().join("key.pem"));
    std::fs::write(&authority, made.cert.pem()).expect("a file");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("a file");
    let files =
        node::tls::ServerFiles { certificate: &authority, key: &key, client_authority: None, client_revocations: None };
    let acceptor = TlsAcceptor::from(Arc::new(files.load().expect("they belong together")));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("bound").port();
    let got = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let all = Arc::clone(&got);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            if let Some(socket) = talk(socket, false, vice, &all).await
                && let Ok(socket) = acceptor.accept(socket).await
            {
                talk(socket, true, vice, &all).await;
            }
        }
    });
    Server { port, authority, got, _folder: folder }
}

fn mailbox(server: &Server, security: MailSecurity, login: bool) -> Mailbox {
    let password = server.authority.with_file_name("password");
    std::fs::write(&password, "open sesame\n").expect("a file");
    Mailbox {
        host: "localhost".to_owned(),
        port: server.port,
        security,
        from: "node@hospital.example".to_owned(),
        to: vec!["gone@hospital.example".to_owned(), "duty@hospital.example".to_owned()],
        login: login.then(|| ("terrace".to_owned(), password)),
        authority: Some(server.authority.clone()),
    }
}

#[tokio::test]
async fn a_mail_goes_out_after_starttls_and_a_login_to_all_who_are_known() {
    let server = server(Vice::None).await;
    send(&mailbox(&server, MailSecurity::Starttls, true), "Subject: x\r\n\r\nbody\r\n", LONG)
        .await
        .expect("it is taken");
    let got = server.got.lock().clone();
    let proof = STANDARD.encode("\0terrace\0open sesame");
    let expected = [
        "EHLO [127.0.0.1]",
        "STARTTLS",
        "EHLO [127.0.0.1]",
        &format!("AUTH PLAIN {proof}"),
        "MAIL FROM:<node@hospital.example>",
        "RCPT TO:<gone@hospital.example>",
        "RCPT TO:<duty@hospital.example>",
        "DATA",
        "Subject: x",
        "",
        "body",
        ".",
    ];
    assert_eq!(got[..expected.len()], expected);
}

#[tokio::test]
async fn to_this_machine_a_mail_may_go_without_tls() {
    let server = server(Vice::None).await;
    send(&mailbox(&server, MailSecurity::None, false), "\r\nbody\r\n", LONG).await.expect("it is taken");
    assert!(server.got.lock().contains(&"body".to_owned()));
}

#[tokio::test]
async fn a_server_may_take_a_mail_later_than_a_channel_may_take_for_all_before() {
    let server = server(Vice::TakesLate).await;
    send(&mailbox(&server, MailSecurity::None, false), "\r\nbody\r\n", SHORT).await.expect("it is taken");
}

#[tokio::test]
async fn a_server_that_is_not_safe_or_says_no_gets_no_mail_and_the_error_says_why() {
    for (vice, why) in [
        (Vice::NoStartTls, "does not offer STARTTLS"),
        (Vice::Ahead, "between STARTTLS and TLS"),
        (Vice::WrongPassword, "the login was answered with 535"),
        (Vice::NoReceiver, "RCPT gone@hospital.example was answered with 550 unknown"),
        (Vice::RefusesText, "the mail was answered with 554"),
        (Vice::Endless, "has no end"),
    ] {
        let server = server(vice).await;
        let told =
            send(&mailbox(&server, MailSecurity::Starttls, true), "\r\nb\r\n", LONG).await.expect_err("it is refused");
        assert!(told.why.contains(why) && !told.why.contains("sesame"), "{vice:?}: {told:?}");
        let got = server.got.lock().clone();
        let is_final = matches!(vice, Vice::WrongPassword | Vice::NoReceiver | Vice::RefusesText);
        assert_eq!(told.is_final, is_final, "{vice:?}");
        let is_told = got.iter().any(|line| line.starts_with("AUTH"));
        assert_eq!(is_told, is_final, "{got:?}");
    }
    // A server of another authority.
    let (server, other) = (server(Vice::None).await, server(Vice::None).await);
    let mut mail = mailbox(&server, MailSecurity::Starttls, true);
    mail.authority = Some(other.authority.clone());
    assert!(send(&mail, "\r\nb\r\n", LONG).await.expect_err("unknown").why.contains("certificate"));
    assert!(!server.got.lock().iter().any(|line| line.starts_with("AUTH")));
}

#[test]
fn replies_are_read_whole_and_what_is_none_is_refused() {
    let reply = |code, lines: &[&str]| Reply { code, lines: lines.iter().map(|line| (*line).to_owned()).collect() };
    for (bytes, found) in [
        ("220 ready\r\nmore", Ok(Some((reply(220, &["ready"]), 11)))),
        ("250-a\r\n250-b\r\n250 c\n", Ok(Some((reply(250, &["a", "b", "c"]), 20)))),
        ("250\r\n", Ok(Some((reply(250, &[""]), 5)))),
        ("250-a\r\n250", Ok(None)),
        ("", Ok(None)),
    ] {
        assert_eq!(reply_in(bytes.as_bytes()), found, "{bytes}");
    }
    for bytes in ["hello\r\n", "25\r\n", "250-a\r\n251 b\r\n", "250xa\r\n", "2\u{e9}0 x\r\n"] {
        assert!(reply_in(bytes.as_bytes()).is_err(), "{bytes}");
    }
    assert!(reply_in(&[b'2'; REPLY_MAX + 1]).is_err());
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.usize(0..40))
            .map(|_| random.choice(b"25041- \r\nax\xff".iter()).copied().unwrap_or(0))
            .collect();
        if let Ok(Some((reply, length))) = reply_in(&bytes) {
            assert!(length <= bytes.len() && !reply.lines.is_empty(), "{bytes:?}");
        }
    }
}
