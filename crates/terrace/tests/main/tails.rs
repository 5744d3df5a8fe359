//! `terrace message tail` on a real node: every message and outcome in order, by who may see them, and nobody waits for who reads slowly.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use crate::node::{Bed, Node, message, until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A bed whose two services send admissions to the folder `out`.
fn bed(more: &str) -> Bed {
    let bed = Bed::new();
    bed.configure(&format!("production = \"production\"\n{more}"));
    for (path, text) in [
        ("services/adt.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n"),
        ("services/lab.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n"),
        ("operations/out.toml", "kind = \"file\"\nfolder = \"out\"\n"),
        ("rules/main.rules", "match all\nrule admissions when MSH-9.1 = \"ADT\" { send to out }\n"),
    ] {
        let path = bed.path("production").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    bed
}

/// A tail on the command line.
struct Tail {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Tail {
    fn start(bed: &Bed, args: &[&str]) -> Tail {
        let mut command = Command::new(env!("CARGO_BIN_EXE_terrace"));
        command.args(["message", "tail", "--json", "--data"]).arg(bed.data()).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env_remove("TERRACE_LOG");
        let mut child = command.spawn().expect("the program runs");
        let lines = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut tail = Tail { child, lines };
        assert_eq!(tail.part()["event"], "began");
        tail
    }

    fn part(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("a line");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line:?}: {}", self.error()))
    }

    /// The next ones, as far as `parts` asks for.
    fn parts(&mut self, count: usize) -> Vec<Value> {
        (0..count).map(|_| self.part()).collect()
    }

    fn error(&mut self) -> String {
        let mut text = String::new();
        let _ = self.child.stderr.take().expect("it is piped").read_to_string(&mut text);
        text
    }

    /// It ends by itself, with an error.
    fn fails(mut self, why: &str) {
        let code = self.child.wait().expect("it can be waited for").code();
        let error = self.error();
        assert!(code == Some(2) && error.contains(why), "{code:?}: {error}");
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn named(part: &Value) -> (String, String) {
    let text = |name: &str| part[name].as_str().unwrap_or_default().to_owned();
    (text("event"), text("control_id"))
}

/// The addresses of both services.
fn services(node: &Node<'_>) -> [String; 2] {
    let status = node.status();
    let at = |name: &str| {
        let found = status["services"].as_array().expect("a list").iter().find(|service| service["name"] == name);
        found.expect("it is there")["at"].as_str().expect("an address").to_owned()
    };
    [at("adt"), at("lab")]
}

/// Sends messages over one connection, and waits for all answers.
fn send(address: &str, texts: &[String]) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let (mut answers, mut chunk) = (0, vec![0; 65_536]);
    for few in texts.chunks(50) {
        let frames: String = few.iter().map(|text| format!("\x0b{text}\x1c\r")).collect();
        stream.write_all(frames.as_bytes()).expect("it is taken");
        let mut left = few.len();
        while left > 0 {
            let read = stream.read(&mut chunk).expect("answers");
            assert!(read > 0, "the connection ended");
            let ends = chunk[..read].iter().filter(|byte| **byte == 0x1c).count();
            left -= ends;
            answers += ends;
        }
    }
    assert_eq!(answers, texts.len());
}

/// A request over the control socket whose answer is not read.
fn unread(bed: &Bed, request: &str) -> UnixStream {
    let mut stream = UnixStream::connect(bed.data().join("control.sock")).expect("the node listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream.write_all(format!("{request}\n").as_bytes()).expect("it is taken");
    stream
}

#[test]
fn messages_and_outcomes_are_shown_in_order_from_now_or_from_a_message_on_and_by_their_filters() {
    let bed = bed("");
    let node = bed.start();
    let [adt, lab] = services(&node);
    send(&adt, &[message("B1")]);
    // Its outcome is none of what comes.
    let delivered = ["message", "list", "--output", "delivered", "--data"];
    until("its outcome is recorded", || bed.run(&delivered).printed().contains("B1"));
    let mut all = Tail::start(&bed, &[]);
    let mut of_lab = Tail::start(&bed, &["--service", "lab"]);
    let mut to_out = Tail::start(&bed, &["--operation", "out", "--type", "ADT^A01"]);
    let oru = message("R1").replace("ADT^A01", "ORU^R01");
    for (address, text) in [(&adt, message("A1")), (&lab, message("L1")), (&adt, oru), (&adt, message("A2"))] {
        send(address, &[text]);
    }
    // Each admission has an outcome, which comes behind it.
    let parts = all.parts(7);
    let names: Vec<_> = parts.iter().map(named).collect();
    let of = |event: &str| -> Vec<&str> {
        names.iter().filter(|(found, _)| found == event).map(|(_, id)| id.as_str()).collect()
    };
    assert_eq!((of("message"), of("outcome")), (vec!["A1", "L1", "R1", "A2"], vec!["A1", "L1", "A2"]));
    for id in ["A1", "L1", "A2"] {
        let at = |event: &str| names.iter().position(|name| *name == (event.to_owned(), id.to_owned()));
        assert!(at("message") < at("outcome"), "{names:?}");
    }
    let first = &parts[0];
    assert_eq!(
        (&first["service"], &first["kind"], &first["status"]),
        (&json!("adt"), &json!("ADT^A01"), &json!("routed"))
    );
    assert!(first["took_us"].as_u64().is_some() && first.get("body").is_none(), "{first}");
    let outcome = parts.iter().find(|part| part["event"] == "outcome").expect("there are three");
    assert_eq!((&outcome["operation"], &outcome["outcome"]), (&json!("out"), &json!("delivered")));
    let lab_only: Vec<_> = of_lab.parts(2).iter().map(named).collect();
    assert_eq!(lab_only, [("message".into(), "L1".into()), ("outcome".into(), "L1".into())]);
    let out: Vec<_> = to_out.parts(6).iter().map(|part| named(part).1).collect();
    assert!(!out.contains(&"R1".to_owned()) && out.iter().filter(|id| *id == "A2").count() == 2, "{out:?}");
    // A role has four at a time.
    drop((of_lab, to_out));
    // From the first one on: what is stored, each with its outcome, and then what comes; nothing twice.
    let id = bed.run(&["message", "list", "--control", "B1", "--json", "--data"]).succeeds("B1");
    let id = serde_json::from_str::<Value>(id.lines().next().expect("a line")).expect("JSON")["id"].to_string();
    let mut from = Tail::start(&bed, &["--from", &id]);
    send(&adt, &[message("A3")]);
    let ids: Vec<_> = from.parts(11).iter().map(named).collect();
    let messages: Vec<&str> = ids.iter().filter(|(event, _)| event == "message").map(|(_, id)| id.as_str()).collect();
    assert_eq!(messages, ["B1", "A1", "L1", "R1", "A2", "A3"], "{ids:?}");
    let mut outcomes: Vec<&str> =
        ids.iter().filter(|(event, _)| event == "outcome").map(|(_, id)| id.as_str()).collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes, ["A1", "A2", "A3", "B1", "L1"]);
    bed.run(&["message", "tail", "--service", "none", "--data"]).fails("none");
    bed.run(&["message", "tail", "--from", "yesterday", "--data"]).fails("neither the id");
    // In words.
    let mut words = Command::new(env!("CARGO_BIN_EXE_terrace"));
    words.args(["message", "tail", "--from", &id, "--data"]).arg(bed.data()).stdout(Stdio::piped());
    let mut words = words.spawn().expect("the program runs");
    let mut lines = BufReader::new(words.stdout.take().expect("it is piped")).lines();
    let told: Vec<String> = lines.by_ref().take(2).map(|line| line.expect("a line")).collect();
    assert!(told[0].contains("B1") && told[0].contains("routed to out"), "{told:?}");
    assert!(told[1].contains("out: delivered") && told[1].ends_with(" ms"), "{told:?}");
    words.kill().expect("it runs");
    words.wait().expect("it can be waited for");
    node.stop();
    drop((all, from));
}

#[test]
fn bodies_need_their_right_have_entries_in_the_audit_and_end_with_it() {
    let bed = bed("[console]\nlisten = \"127.0.0.1:0\"\n");
    let node = bed.start();
    let [adt, _] = services(&node);
    bed.run(&["message", "tail", "--bodies", "--data"]).fails("message-body");
    let grant = |right: &str| {
        bed.run(&["role", "grant", right, "--on", "service *", "--to", "terrace_local", "--data"]).succeeds("");
    };
    grant("message-body");
    let mut masked = Tail::start(&bed, &["--bodies"]);
    send(&adt, &[message("A1")]);
    let part = masked.part();
    let body = part["body"].as_str().expect("a body");
    assert!(body.contains("MSH|") && !body.contains("SAMPLE") && part["masked"] == true, "{part}");
    grant("unmasked");
    let mut plain = Tail::start(&bed, &["--bodies"]);
    send(&adt, &[message("A2")]);
    let part = plain.part();
    assert!(part["body"].as_str().is_some_and(|body| body.contains("SAMPLE")) && part["masked"] == false, "{part}");
    // A slow reader: what waits for it when the right ends stays on the node.
    let held = unread(&bed, "tail {\"bodies\":true}");
    let many: Vec<String> =
        (0..40).map(|n| format!("{}NTE|1||{}\r", message(&format!("H{n}")), "x".repeat(100_000))).collect();
    let mut held = BufReader::new(held);
    let mut line = String::new();
    held.read_line(&mut line).expect("it has begun");
    send(&adt, &many);
    let revoke = ["role", "revoke", "message-body", "--on", "service *", "--from", "terrace_local", "--data"];
    bed.run(&revoke).succeeds("");
    plain.drain_until_the_end("permission denied");
    masked.drain_until_the_end("permission denied");
    let (mut shown, mut last) = (0, String::new());
    loop {
        line.clear();
        if held.read_line(&mut line).expect("lines") == 0 || line.contains("\"error\"") {
            last.push_str(&line);
            break;
        }
        shown += usize::from(line.contains("\"body\""));
    }
    assert!(last.contains("permission denied") && shown < many.len(), "{shown} bodies, then {last}");
    let audit =
        bed.run(&["audit", "list", "--json", "--last", "0", "--action", "message.body", "--data"]).succeeds("tail");
    let reads: u64 = audit
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|entry| entry["reads"]["count"].as_u64())
        .sum();
    assert!(reads >= 2 + shown as u64, "{reads} reads, {shown} shown: {audit}");
    let begun = bed.run(&["audit", "list", "--json", "--last", "0", "--action", "message.tail", "--data"]);
    begun.succeeds("\"granted\"");
    node.stop();
}

impl Tail {
    /// Reads to its end, which is an error.
    fn drain_until_the_end(mut self, why: &str) {
        let mut rest = Vec::new();
        self.lines.read_to_end(&mut rest).expect("the end");
        self.fails(why);
    }
}

#[test]
fn nobody_waits_for_who_reads_nothing_and_who_reads_again_is_told_how_many_were_left_out() {
    let bed = bed("");
    let node = bed.start();
    let [adt, _] = services(&node);
    let mut slow = BufReader::new(unread(&bed, "tail {}"));
    let mut line = String::new();
    slow.read_line(&mut line).expect("it has begun");
    assert!(line.contains("\"began\""), "{line}");
    // More than the ring and what was taken from it at once hold together; no rule matches them.
    let all: Vec<String> = (0..18_000).map(|n| message(&format!("M{n}")).replace("ADT^A01", "ORU^R01")).collect();
    send(&adt, &all);
    let (mut shown, mut left_out) = (0, 0);
    while shown + left_out < all.len() {
        line.clear();
        slow.read_line(&mut line).expect("a part");
        let part: Value = serde_json::from_str::<Value>(&line).expect("JSON")["part"].take();
        match part["event"].as_str() {
            Some("left-out") => left_out += part["count"].as_u64().expect("who runs the node sees all") as usize,
            Some("message" | "outcome") => shown += 1,
            Some("quiet") => {}
            other => panic!("{other:?} after {shown} and {left_out}: nothing is left out silently"),
        }
    }
    assert!(shown + left_out == all.len() && left_out > 0, "{shown} shown, {left_out} left out");
    send(&adt, &[message("last")]);
    loop {
        line.clear();
        slow.read_line(&mut line).expect("a part");
        if line.contains("\"last\"") {
            break;
        }
    }
    // A role has four at a time; one that goes away makes room.
    let mut more: Vec<BufReader<UnixStream>> = (0..3).map(|_| BufReader::new(unread(&bed, "tail {}"))).collect();
    for one in &mut more {
        line.clear();
        one.read_line(&mut line).expect("it has begun");
        assert!(line.contains("\"began\""), "{line}");
    }
    bed.run(&["message", "tail", "--data"]).fails("4 tails of this role");
    drop(slow);
    until("its place is free", || {
        line.clear();
        let mut next = BufReader::new(unread(&bed, "tail {}"));
        next.read_line(&mut line).expect("an answer");
        line.contains("\"began\"")
    });
    // A closed connection ends its tail.
    let list = bed.run(&["connection", "list", "--port", "control", "--json", "--data"]).succeeds("");
    let list: Vec<Value> = serde_json::from_str(&list).expect("JSON");
    assert!(list.len() >= 3, "{list:?}");
    let closed = list[0]["id"].to_string();
    bed.run(&["connection", "close", &closed, "--data"]).succeeds("closed connection");
    node.stop();
}

#[test]
fn the_api_streams_the_same_to_a_token_and_refuses_before_it_streams() {
    let bed = bed("[console]\nlisten = \"127.0.0.1:0\"\n");
    let node = bed.start();
    let [adt, _] = services(&node);
    bed.run(&["user", "add", "ann", "--no-password", "--data"]).succeeds("");
    bed.run(&["role", "grant", "message-metadata", "--on", "service adt", "--to", "ann", "--data"]).succeeds("");
    let drawn = bed.run(&["user", "token", "ann", "program", "--data"]).succeeds("trc_");
    let token = drawn.split_whitespace().find(|word| word.starts_with("trc_")).expect("a token").to_owned();
    let ask = |token: &str, target: &str| {
        let mut stream = TcpStream::connect(node.console()).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!("GET {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
        stream.write_all(head.as_bytes()).expect("it is taken");
        BufReader::new(stream)
    };
    let status = |mut stream: BufReader<TcpStream>| {
        let mut line = String::new();
        stream.read_line(&mut line).expect("a status");
        line
    };
    assert!(status(ask("wrong", "/api/v1/messages/tail")).contains("401"));
    assert!(status(ask(&token, "/api/v1/messages/tail?bodies=yes")).contains("403"));
    assert!(status(ask(&token, "/api/v1/messages/tail?from=x")).contains("422"));
    let mut stream = ask(&token, "/api/v1/messages/tail?service=adt");
    let mut event = || loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).expect("a line") > 0, "it ended");
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).expect("JSON");
        }
    };
    assert_eq!(event()["event"], "began");
    send(&adt, &[message("A1")]);
    let (first, second) = (event(), event());
    assert_eq!((named(&first), named(&second)), (("message".into(), "A1".into()), ("outcome".into(), "A1".into())));
    node.stop();
}
