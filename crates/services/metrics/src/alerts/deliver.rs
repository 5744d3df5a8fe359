//! Sends a message to a channel: a POST of JSON, or a program that gets the JSON on its standard input.
//!
//! Invariants: each takes no longer than its channel may; of an answer only its status counts, and no more than a head is read; a program
//! gets arguments as they are, no shell, nothing of the node's environment but a PATH, and is killed when its time is over.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};

use super::book::AlertNotice;
use super::rules::Channel;

/// Where programs of a command find theirs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// Sends it. Errors: why it was not taken, in words.
pub(super) async fn deliver(channel: &Channel, notice: &AlertNotice) -> Result<(), String> {
    let json = serde_json::to_vec(notice).expect("plain data becomes JSON");
    match channel {
        Channel::Webhook { url, timeout } => match tokio::time::timeout(*timeout, post(url, json)).await {
            Ok(done) => done,
            Err(_) => Err(format!("{url} did not answer within {} s", timeout.as_secs_f64())),
        },
        Channel::Command { argv, timeout } => {
            let (argv, timeout) = (argv.clone(), *timeout);
            let ran = tokio::task::spawn_blocking(move || run(&argv, &json, timeout)).await;
            ran.unwrap_or_else(|error| Err(format!("the command could not be run: {error}")))
        }
    }
}

async fn post(url: &str, json: Vec<u8>) -> Result<(), String> {
    let fault = |error: &dyn std::fmt::Display| format!("{url}: {error}");
    let uri: Uri = url.parse().map_err(|error| fault(&error))?;
    let host = uri.host().ok_or_else(|| fault(&"it names no host"))?.to_owned();
    let is_secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let name = host.trim_matches(['[', ']']).to_owned();
    let socket = TcpStream::connect((name.as_str(), port)).await.map_err(|error| fault(&error))?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let authority = uri.authority().map_or(host.as_str(), |authority| authority.as_str());
    let request = Request::post(target)
        .header(HOST, authority.rsplit_once('@').map_or(authority, |(_, host)| host))
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, "terrace")
        .body(Full::new(Bytes::from(json)))
        .map_err(|error| fault(&error))?;
    let status = if is_secure {
        let name = ServerName::try_from(name).map_err(|error| fault(&error))?;
        let trust = system_trust()?;
        let secured = TlsConnector::from(trust).connect(name, socket).await.map_err(|error| fault(&error))?;
        exchange(secured, request).await.map_err(|error| fault(&error))?
    } else {
        exchange(socket, request).await.map_err(|error| fault(&error))?
    };
    if (200..300).contains(&status) { Ok(()) } else { Err(format!("{url} answered {status}")) }
}

/// One request on a connection; the status of its answer.
async fn exchange<S>(socket: S, request: Request<Full<Bytes>>) -> hyper::Result<u16>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(socket)).await?;
    let mut connection = std::pin::pin!(connection);
    let mut answered = std::pin::pin!(sender.send_request(request));
    loop {
        tokio::select! {
            answer = answered.as_mut() => return Ok(answer?.status().as_u16()),
            // It ends before the answer only where the peer has gone away, which the answer says.
            _ = connection.as_mut() => return Ok(answered.await?.status().as_u16()),
        }
    }
}

/// The authorities that this machine trusts.
fn system_trust() -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that cannot be used is as good as one that is not there.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err("this machine has no authorities that https could be checked with (ca-certificates)".to_owned());
    }
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// Runs a program with the JSON on its standard input. Errors: it cannot be run, fails, or takes too long.
fn run(argv: &[String], json: &[u8], timeout: Duration) -> Result<(), String> {
    let program = &argv[0];
    let fault = |error: &dyn std::fmt::Display| format!("{program}: {error}");
    // Nothing of the node's own environment: it may name the key of stored data, or hold a token.
    let mut child = Command::new(program)
        .args(&argv[1..])
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| fault(&error))?;
    if let Some(mut input) = child.stdin.take() {
        // A pipe takes 64 KiB, which is more than a message has; a program that does not read it may be fine.
        let _ = input.write_all(json);
    }
    let until = Instant::now() + timeout;
    loop {
        match child.try_wait().map_err(|error| fault(&error))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(fault(&status)),
            None if Instant::now() >= until => {
                let _ = child.kill();
                // Killed, it ends; waited for, it leaves nothing behind.
                let _ = child.wait();
                return Err(fault(&format_args!("it took longer than {} s and was killed", timeout.as_secs_f64())));
            }
            None => std::thread::sleep(LOOK),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::super::book::{AlertKey, NoticeKind};
    use super::*;

    fn notice() -> AlertNotice {
        AlertNotice {
            kind: NoticeKind::On,
            key: AlertKey { rule: "old".to_owned(), subject: "lab".to_owned() },
            when: "queue_age > 5m".to_owned(),
            text: "waits".to_owned(),
            since_us: 1,
            at_us: 2,
        }
    }

    fn command(script: &str, timeout: Duration) -> Channel {
        Channel::Command { argv: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(), timeout }
    }

    #[tokio::test]
    async fn a_program_gets_the_message_and_is_killed_when_its_time_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("told");
        let long = Duration::from_secs(60);
        let told = deliver(&command(&format!("cat > '{}'", file.display()), long), &notice()).await;
        assert_eq!(told, Ok(()));
        let text = std::fs::read_to_string(&file).expect("it was written");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            (json["kind"].as_str(), json["rule"].as_str(), json["subject"].as_str()),
            (Some("on"), Some("old"), Some("lab"))
        );
        let failed = deliver(&command("exit 3", long), &notice()).await.expect_err("it fails");
        assert!(failed.contains('3'), "{failed}");
        let began = Instant::now();
        let slow =
            deliver(&command("exec sleep 1000", Duration::from_millis(200)), &notice()).await.expect_err("too long");
        assert!(slow.contains("was killed") && began.elapsed() < Duration::from_secs(60), "{slow}");
        let none = Channel::Command { argv: vec!["/nowhere/program".to_owned()], timeout: long };
        assert!(deliver(&none, &notice()).await.is_err());
    }

    #[tokio::test]
    async fn a_webhook_gets_json_and_its_status_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook?x=1", listener.local_addr().expect("bound"));
        let server = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for answer in ["204 No Content", "500 Wrong"] {
                let (mut socket, _) = listener.accept().expect("a client");
                let mut request = Vec::new();
                let mut chunk = [0; 1024];
                while !String::from_utf8_lossy(&request).ends_with('}') {
                    let read = socket.read(&mut chunk).expect("a request");
                    assert!(read > 0);
                    request.extend_from_slice(&chunk[..read]);
                }
                write!(socket, "HTTP/1.1 {answer}\r\nContent-Length: 0\r\n\r\n").expect("it is taken");
                requests.push(String::from_utf8_lossy(&request).into_owned());
            }
            requests
        });
        let channel = Channel::Webhook { url, timeout: Duration::from_secs(60) };
        assert_eq!(deliver(&channel, &notice()).await, Ok(()));
        let refused = deliver(&channel, &notice()).await.expect_err("500");
        assert!(refused.ends_with("answered 500"), "{refused}");
        let requests = server.join().expect("it ends");
        assert!(requests[0].starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{}", requests[0]);
        assert!(requests[0].contains("content-type: application/json"), "{}", requests[0]);
        // Nobody listens, or somebody who never answers.
        assert!(deliver(&channel, &notice()).await.is_err());
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", silent.local_addr().expect("bound"));
        let channel = Channel::Webhook { url, timeout: Duration::from_millis(200) };
        assert!(deliver(&channel, &notice()).await.expect_err("no answer").contains("within"));
    }
}
