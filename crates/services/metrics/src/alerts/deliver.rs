//! Sends a message to a channel: a POST of JSON, a mail, or a program that gets the JSON on its standard input.
//!
//! Invariants: each takes no longer than its channel may, but for the last answer to a mail (see [`smtp`]); a program gets arguments as they are, no shell, nothing of the node's environment
//! but a PATH, and is killed when its time is over (what it has started itself is not).

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::book::AlertNotice;
use super::channel::{Channel, ChannelKind};
use super::untaken::{UntakenMessage, within};
use super::{mail, smtp, webhook};

/// Where programs of a command find theirs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How often a program that runs is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// What a webhook and a program get.
#[derive(Serialize)]
struct Told<'a> {
    node: &'a str,
    #[serde(flatten)]
    notice: &'a AlertNotice,
}

/// Sends it, as from this node. Errors: why it was not taken.
pub(super) async fn deliver(channel: &Channel, notice: &AlertNotice, node: &str) -> Result<(), UntakenMessage> {
    let json = serde_json::to_vec(&Told { node, notice }).expect("plain data becomes JSON");
    let timeout = channel.timeout;
    let sent = match &channel.kind {
        ChannelKind::Webhook(webhook) => within(timeout, webhook::post(webhook, &json)).await,
        ChannelKind::Mail(mailbox) => smtp::send(mailbox, &mail::compose(mailbox, notice, node), timeout).await,
        ChannelKind::Command(argv) => {
            let argv = argv.clone();
            let ran = tokio::task::spawn_blocking(move || run(&argv, &json, timeout));
            // It ends its program itself.
            within(timeout * 2, async { ran.await.unwrap_or_else(|error| Err(error.to_string().into())) }).await
        }
    };
    sent.map_err(|untaken| UntakenMessage { why: format!("{}: {}", channel.place(), untaken.why), ..untaken })
}

/// Runs a program with the JSON on its standard input. Errors: it cannot be run, fails, or takes too long.
fn run(argv: &[String], json: &[u8], timeout: Duration) -> Result<(), UntakenMessage> {
    let fault = |error: std::io::Error| error.to_string();
    // Nothing of the node's own environment: it may name the key of stored data, or hold a token.
    let mut child = Command::new(&argv[0])
        .args(&argv[1..])
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(fault)?;
    if let Some(mut input) = child.stdin.take() {
        // A pipe takes 64 KiB, which is more than a message has; a program that does not read it may be fine.
        let _ = input.write_all(json);
    }
    let until = Instant::now() + timeout;
    loop {
        match child.try_wait().map_err(fault)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                return Err(UntakenMessage { why: status.to_string(), is_final: status.code().is_some() });
            }
            None if Instant::now() >= until => {
                let _ = child.kill();
                // Killed, it ends; waited for, it leaves nothing behind.
                let _ = child.wait();
                return Err(format!("it took longer than {} s and was killed", timeout.as_secs_f64()).into());
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
    use super::super::channel::Webhook;
    use super::*;

    fn notice() -> AlertNotice {
        AlertNotice {
            id: 9,
            kind: NoticeKind::On,
            key: AlertKey { rule: "old".to_owned(), subject: "lab".to_owned() },
            when: "queue_age > 5m".to_owned(),
            text: "waits".to_owned(),
            since_us: 1,
            at_us: 2,
        }
    }

    fn command(script: &str, timeout: Duration) -> Channel {
        let kind = ChannelKind::Command(["/bin/sh", "-c", script].map(str::to_owned).to_vec());
        Channel { kind, timeout }
    }

    fn hook(url: &str, timeout: Duration) -> Channel {
        let url = url.parse().expect("a URL");
        Channel { kind: ChannelKind::Webhook(Webhook { url, token_file: None, authority: None }), timeout }
    }

    #[tokio::test]
    async fn a_program_gets_the_message_and_is_killed_when_its_time_is_over() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("told");
        let long = Duration::from_secs(60);
        let told = deliver(&command(&format!("cat > '{}'", file.display()), long), &notice(), "n1").await;
        assert_eq!(told, Ok(()));
        let text = std::fs::read_to_string(&file).expect("it was written");
        let json: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(
            json,
            serde_json::json!({
                "node": "n1", "id": 9, "kind": "on", "rule": "old", "subject": "lab", "when": "queue_age > 5m", "text": "waits",
                "since_us": 1, "at_us": 2
            })
        );
        let failed = deliver(&command("exit 3", long), &notice(), "n1").await.expect_err("it fails");
        assert!(failed.why.contains('3') && failed.is_final, "{failed:?}");
        let began = Instant::now();
        let slow = command("exec sleep 1000", Duration::from_millis(200));
        let slow = deliver(&slow, &notice(), "n1").await.expect_err("too long");
        assert!(slow.why.contains("was killed") && !slow.is_final, "{slow:?}");
        assert!(began.elapsed() < Duration::from_secs(60), "{slow:?}");
        let none = Channel { kind: ChannelKind::Command(vec!["/nowhere/program".to_owned()]), timeout: long };
        assert!(deliver(&none, &notice(), "n1").await.is_err());
    }

    #[tokio::test]
    async fn a_webhook_gets_json_and_its_status_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook?x=1", listener.local_addr().expect("bound"));
        let server = std::thread::spawn(move || {
            let mut requests = Vec::new();
            for answer in ["204 No Content", "500 Wrong", "429 Too Many", "404 Unknown"] {
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
        let channel = hook(&url, Duration::from_secs(60));
        assert_eq!(deliver(&channel, &notice(), "n1").await, Ok(()));
        for (status, is_final) in [("500", false), ("429", false), ("404", true)] {
            let refused = deliver(&channel, &notice(), "n1").await.expect_err(status);
            assert!(refused.why.ends_with(&format!("it answered {status}")), "{refused:?}");
            assert!(!refused.why.contains("hook") && refused.is_final == is_final, "{refused:?}");
        }
        let requests = server.join().expect("it ends");
        assert!(requests[0].starts_with("POST /hook?x=1 HTTP/1.1\r\n"), "{}", requests[0]);
        assert!(requests[0].contains("Content-Type: application/json"), "{}", requests[0]);
        // Nobody listens, or somebody who never answers.
        assert!(deliver(&channel, &notice(), "n1").await.is_err());
        let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/", silent.local_addr().expect("bound"));
        let channel = hook(&url, Duration::from_millis(200));
        assert!(deliver(&channel, &notice(), "n1").await.expect_err("no answer").why.contains("within"));
    }
}
