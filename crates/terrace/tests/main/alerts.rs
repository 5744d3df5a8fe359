//! Alerts of a node without Prometheus, and its history of figures: told once when they begin and once when they are over, by a webhook and by mail, across a kill.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::node::{Bed, until};

/// What a receiver got.
type Got = Arc<Mutex<Vec<String>>>;

/// A receiver of webhooks that takes nothing until it is told to.
struct Hook {
    port: u16,
    takes: Arc<AtomicBool>,
    /// Bodies that it took.
    taken: Got,
    /// Bodies that it refused.
    refused: Got,
}

impl Hook {
    fn start() -> Hook {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        let hook = Hook { port, takes: Arc::default(), taken: Arc::default(), refused: Arc::default() };
        let (takes, taken, refused) = (Arc::clone(&hook.takes), Arc::clone(&hook.taken), Arc::clone(&hook.refused));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that is killed in the middle has told nothing.
                let Some(body) = read_request(&stream) else { continue };
                let takes = takes.load(Ordering::SeqCst);
                let place = if takes { &taken } else { &refused };
                place.lock().expect("nobody panics").push(body);
                let status = if takes { "204 No Content" } else { "503 Later" };
                let _ = write!(&stream, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            }
        });
        hook
    }

    /// Kind and number of what was taken.
    fn kinds(&self) -> Vec<(String, u64)> {
        let taken = self.taken.lock().expect("nobody panics");
        let kind = |body: &String| {
            let json: Value = serde_json::from_str(body).expect("JSON");
            (json["kind"].as_str().expect("a word").to_owned(), json["id"].as_u64().expect("a number"))
        };
        taken.iter().map(kind).collect()
    }
}

fn read_request(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some(value) = line.strip_prefix("Content-Length: ") {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    String::from_utf8(body).ok()
}

/// A mail server; the texts of its mails, decoded.
fn mail_server() -> (u16, Got) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("it is bound").port();
    let got = Got::default();
    let all = Arc::clone(&got);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let all = Arc::clone(&all);
            thread::spawn(move || take_mail(&stream, &all));
        }
    });
    (port, got)
}

fn take_mail(mut stream: &TcpStream, got: &Mutex<Vec<String>>) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    stream.write_all(b"220 ready\r\n").ok()?;
    let (mut text, mut in_text, mut in_body) = (String::new(), false, false);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        let answer = match (in_text, line) {
            (true, ".") => {
                in_text = false;
                let bytes = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, &text).ok()?;
                got.lock().expect("nobody panics").push(String::from_utf8(bytes).ok()?);
                "250 taken\r\n"
            }
            (true, "") => {
                in_body = true;
                continue;
            }
            (true, line) => {
                text.push_str(if in_body { line } else { "" });
                continue;
            }
            (false, "DATA") => {
                in_text = true;
                "354 go on\r\n"
            }
            (false, "QUIT") => return None,
            _ => "250 fine\r\n",
        };
        stream.write_all(answer.as_bytes()).ok()?;
    }
}

/// A production whose one operation sends to a port where nobody listens.
fn bed(alerts: &str) -> Bed {
    let bed = Bed::new();
    bed.configure("production = \"production\"\n");
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a free port").local_addr().expect("it is bound");
    for (path, text) in [
        ("services/in.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n".to_owned()),
        (
            "operations/lab.toml",
            format!("kind = \"mllp\"\naddress = \"{nobody}\"\n[retry]\nfirst = \"10ms\"\nmax = \"20ms\"\n"),
        ),
        ("rules/main.rules", "match first\nrule all { send to lab }\n".to_owned()),
    ] {
        let path = bed.path("production").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
        fs::write(path, text).expect("it is written");
    }
    fs::write(bed.path("alerts.toml"), alerts).expect("it is written");
    bed
}

#[test]
fn an_alert_is_told_once_when_it_begins_and_once_when_it_is_over_also_across_a_kill() {
    let (hook, (mail_port, mails)) = (Hook::start(), mail_server());
    let alerts = format!(
        "every = \"1s\"\n[channels.hook]\nwebhook = \"http://127.0.0.1:{}/secret\"\n[channels.mail]\nsmtp = \"127.0.0.1:{mail_port}\"\n\
         tls = \"none\"\nfrom = \"node@hospital.example\"\nto = [\"duty@hospital.example\"]\n[[alert]]\nname = \"waits\"\n\
         when = \"queue_messages > 0\"\nchannels = [\"hook\"]\nescalate = {{ after = \"1s\", channels = [\"mail\"] }}\n",
        hook.port
    );
    let bed = bed(&alerts);
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let mails = || mails.lock().expect("nobody panics").clone();
    bed.command_line(&["alert", "check"]).succeeds("1 rules, 2 channels");
    let node = bed.start();
    let shown = run(&["alert", "rules"]).succeeds("queue_messages > 0");
    assert!(shown.contains(&format!("http://127.0.0.1:{}", hook.port)) && !shown.contains("secret"), "{shown}");
    run(&["alert", "list"]).succeeds("");
    run(&["alert", "test", "mail"]).succeeds("mail has taken a trial message");
    run(&["alert", "test", "hook"]).fails("it answered 503");
    assert!(mails()[0].contains("nothing is the matter"), "{:?}", mails());

    // It begins while the webhook takes nothing, and the node is killed before it does.
    node.send("M1");
    let refused = || hook.refused.lock().expect("nobody panics").len();
    until("the webhook is tried", || refused() >= 2);
    until("it is escalated", || mails().len() == 2);
    assert!(mails()[1].contains("still on") && mails()[1].contains("about     lab"), "{:?}", mails());
    let list = run(&["alert", "list"]).finds("escalated");
    assert!(list.contains("1 deliveries wait") && list.contains("1 messages wait for hook"), "{list}");
    node.kill();
    hook.takes.store(true, Ordering::SeqCst);
    let node = bed.start();
    until("what was not taken goes out", || hook.kinds().len() == 1);
    run(&["alert", "list"]).finds("escalated");

    // It is over: who was told of it is told, once each.
    run(&["operation", "set-aside", "lab", "--reason", "a test"]).succeeds("is set aside");
    until("its end is told", || hook.kinds().len() == 2 && mails().len() == 3);
    let kinds = hook.kinds();
    assert_eq!(kinds.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(), ["on", "off"]);
    assert!(kinds[0].1 < kinds[1].1 && mails()[2].contains("over: waits (lab)"), "{kinds:?} {:?}", mails());
    let all = hook.taken.lock().expect("nobody panics").join("\n") + &mails().join("\n");
    assert!(!all.contains("SAMPLE") && !all.contains("M1"), "nothing of a message is in an alert: {all}");
    run(&["alert", "list"]).succeeds("");
    let history = run(&["alert", "history"]).succeeds("escalated");
    assert!(history.contains("off") && history.contains("on"), "{history}");
    node.stop();
    run(&["verify"]).succeeds("every row reads");
}

#[test]
fn what_is_silenced_is_told_to_nobody_and_rules_that_cannot_be_read_leave_the_old_ones() {
    let hook = Hook::start();
    hook.takes.store(true, Ordering::SeqCst);
    let alerts = format!(
        "every = \"1s\"\n[channels.hook]\nwebhook = \"http://127.0.0.1:{}/\"\n[[alert]]\nname = \"waits\"\n\
         when = \"queue_messages > 0\"\nchannels = [\"hook\"]\n",
        hook.port
    );
    let bed = bed(&alerts);
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    run(&["alert", "silence", "nothing", "--for", "1h", "--reason", "x"]).fails("there is no rule `nothing`");
    run(&["alert", "silence", "waits", "--for", "1h", "--reason", " "]).fails("has a reason");
    run(&["alert", "silence", "waits", "--for", "1h", "--reason", "their server is moved"]).succeeds("silence 1");
    node.send("M1");
    until("it is on and silenced", || run(&["alert", "list"]).printed().contains("silenced"));
    run(&["alert", "list"]).succeeds("their server is moved");

    // Rules that cannot be read change nothing.
    fs::write(bed.path("alerts.toml"), alerts.replace("queue_messages", "queue_massages")).expect("a file");
    bed.command_line(&["alert", "check"]).fails("`queue_massages` is no condition");
    run(&["reload"]).fails("`queue_massages` is no condition");
    fs::remove_file(bed.path("alerts.toml")).expect("it was there");
    run(&["reload"]).fails("alerts.toml is gone");
    run(&["alert", "rules"]).succeeds("queue_messages > 0");
    let more = format!("{alerts}[[alert]]\nname = \"disk\"\nwhen = \"disk_free < 1KiB\"\nchannels = [\"hook\"]\n");
    fs::write(bed.path("alerts.toml"), more).expect("a file");
    run(&["reload"]).succeeds("alerts: 2 rules are in force");
    assert_eq!(hook.kinds(), [], "it is silenced");

    // The silence and the rules hold over a restart; its end is told if it still holds.
    node.stop();
    let node = bed.start();
    until("it is on and silenced", || run(&["alert", "list"]).printed().contains("silenced"));
    run(&["alert", "unsilence", "1"]).succeeds("silence 1 is over");
    run(&["alert", "unsilence", "1"]).fails("there is no silence 1");
    until("it is told", || hook.kinds().len() == 1);
    let audit = run(&["audit", "list"]).succeeds("alert.silence");
    assert!(audit.contains("alert.unsilence"), "{audit}");
    node.stop();
    fs::write(bed.path("alerts.toml"), "[[alert]]\nname = \"x\"\nwhen = \"trouble\"\nchannels = [\"none\"]\n")
        .expect("a file");
    bed.refuses("there is no channel `none`");
}

#[test]
fn figures_are_kept_over_a_kill_and_shown() {
    let bed = bed("");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    node.send("M1");
    let points = || -> Vec<Value> {
        let shown = run(&["history", "waiting", "--json"]);
        if shown.code() != Some(0) {
            return Vec::new();
        }
        let json: Value = serde_json::from_str(&shown.printed()).expect("JSON");
        json["points"].as_array().expect("a list").clone()
    };
    // The first row is of the first moment, the second one of ten seconds after.
    until("a row with the message is written", || points().iter().any(|point| point["mean"] == 1.0));
    let before = points();
    node.kill();
    let node = bed.start();
    until("it goes on", || points().len() > before.len());
    assert_eq!(points()[..before.len()], before[..], "nothing of it is lost");
    let list = run(&["history"]).succeeds("waiting.lab");
    assert!(list.contains("disk_free.home") && list.contains("medium.home.journal.writes"), "{list}");
    run(&["history", "waiting", "--range", "1d"]).succeeds("waiting, most of each 1200 s");
    run(&["history", "nothing"]).fails("there is no figure `nothing`");
    run(&["history", "waiting", "--range", "2h"]).fails("1h, 1d");
    node.stop();
    run(&["verify"]).succeeds("every row reads");
    bed.configure("production = \"production\"\nhistory = false\n");
    let node = bed.start();
    run(&["history"]).fails("no history is kept");
    node.stop();
}
