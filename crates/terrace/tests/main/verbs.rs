//! What an operator does all day: finds out why messages wait, sets one aside, decides on some anew, sends one edited.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;

use crate::node::{Bed, message, until};

/// A receiver that refuses messages whose control id begins with `P`, as long as it is told to.
struct Receiver {
    address: SocketAddr,
    /// Control ids of all that arrived, in order, and their bodies.
    arrived: Arc<Mutex<Vec<(String, String)>>>,
}

impl Receiver {
    fn start() -> Receiver {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let arrived: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let all = Arc::clone(&arrived);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let all = Arc::clone(&all);
                thread::spawn(move || converse(stream, &all));
            }
        });
        Receiver { address, arrived }
    }

    fn ids(&self) -> Vec<String> {
        self.arrived.lock().expect("nobody panics").iter().map(|(id, _)| id.clone()).collect()
    }

    fn last_body(&self) -> String {
        self.arrived.lock().expect("nobody panics").last().expect("one arrived").1.clone()
    }
}

fn converse(mut stream: TcpStream, arrived: &Mutex<Vec<(String, String)>>) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    loop {
        while let Some(end) = bytes.windows(2).position(|end| end == [0x1c, 0x0d]) {
            let body = String::from_utf8_lossy(&bytes[1..end]).into_owned();
            bytes.drain(..end + 2);
            let id = body.split('|').nth(9).expect("a header").to_owned();
            let code = if id.starts_with('P') { "AR" } else { "AA" };
            arrived.lock().expect("nobody panics").push((id.clone(), body));
            let answer = format!("\u{b}MSH|^~\\&|R||||1||ACK|r|P|2.5\rMSA|{code}|{id}|no such patient\r\u{1c}\r");
            if stream.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        match stream.read(&mut chunk) {
            Ok(0) | Err(_) => return,
            Ok(read) => bytes.extend_from_slice(&chunk[..read]),
        }
    }
}

fn write(bed: &Bed, path: &str, text: &str) {
    let path = bed.path("production").join(path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("it is made");
    fs::write(path, text).expect("it is written");
}

/// A bed whose rules send all through the transform `t` to the operation `lab` at the receiver.
fn bed(receiver: &Receiver, transform: &str) -> Bed {
    let bed = Bed::new();
    bed.configure("production = \"production\"\n");
    let lab = format!(
        "kind = \"mllp\"\naddress = \"{}\"\n[reply]\nAR = \"suspend\"\n[retry]\nfirst = \"10ms\"\nmax = \"20ms\"\n",
        receiver.address
    );
    write(&bed, "services/in.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n");
    write(&bed, "operations/lab.toml", &lab);
    write(&bed, "rules/main.rules", "match first\nrule all { send to lab using t }\n");
    write(&bed, "transforms/t.hl7t", transform);
    bed
}

/// The ids of the stored messages by their control ids.
fn id_of(bed: &Bed, control: &str) -> String {
    let line = bed.run(&["message", "list", "--control", control, "--json", "--data"]).succeeds(control);
    let line = line.lines().next().expect("it is there");
    serde_json::from_str::<Value>(line).expect("JSON")["id"].to_string()
}

fn suspended(bed: &Bed) -> bool {
    bed.run(&["operation", "list", "--data"]).succeeds("lab").contains("suspended for")
}

#[test]
fn a_message_that_holds_up_an_operation_is_set_aside_for_good_also_across_a_kill() {
    let receiver = Receiver::start();
    let bed = bed(&receiver, "set MSH-5 = 'LAB'\n");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    ["P1", "M2", "M3"].iter().for_each(|id| node.send(id));
    until("the operation is suspended", || suspended(&bed));
    let poison = id_of(&bed, "P1");
    run(&["status"]).succeeds("lab: suspended for");
    run(&["operation", "list"]).succeeds("the receiver answered AR");
    let shown = run(&["operation", "show", "lab"]).succeeds("lane 0: 3 waiting");
    assert!(shown.contains("AR") && !shown.contains("no such patient"), "{shown}");
    run(&["message", "trace", &id_of(&bed, "M2")]).succeeds("1 ahead of it; suspended for");
    run(&["operation", "resume", "lab"]).succeeds("is resumed");
    until("it is refused again", || receiver.ids().len() == 2);
    until("the operation is suspended", || suspended(&bed));
    run(&["operation", "set-aside", "lab", "--reason", ""]).fails("a reason is needed");
    run(&["operation", "start", "lab", "--until", "2h"]).fails("has no schedule");
    run(&["operation", "start", "lab", "--until", "yesterday"]).fails("neither a time");
    let told = run(&["operation", "set-aside", "lab", "--reason", "unknown patient"])
        .succeeds("is set aside in operation lab");
    assert!(told.contains(&format!("message {poison} ")) && told.contains("is next"), "{told}");
    let list = run(&["todo", "list"]).succeeds("set-aside");
    assert!(list.contains(&poison) && list.contains("unknown patient"), "{list}");
    run(&["todo", "take", &poison]).succeeds("owner ");
    run(&["todo", "assign", &poison, "nobody-here"]).fails("nobody-here");
    run(&["role", "create", "night-shift"]).succeeds("");
    run(&["todo", "assign", &poison, "night-shift"]).succeeds("owner night-shift");
    run(&["todo", "list", "--owner", "night-shift"]).succeeds("assigned to night-shift, before ");
    run(&["todo", "comment", &poison, "asked the laboratory"]).succeeds("");
    node.kill();
    let trace = run(&["message", "trace", &poison]).succeeds("set aside");
    assert!(trace.contains("by ") && trace.contains("unknown patient"), "{trace}");
    let node = bed.start();
    run(&["operation", "resume", "lab"]).succeeds("");
    until("the others are delivered", || receiver.ids().len() == 4);
    assert_eq!(receiver.ids(), ["P1", "P1", "M2", "M3"]);
    let aside = run(&["message", "list", "--output", "set-aside"]).succeeds("set aside: lab");
    assert!(!aside.contains("M2"), "{aside}");
    run(&["message", "count"]).succeeds("outputs set aside");
    run(&["operation", "set-aside", "lab", &poison, "--reason", "again"]).fails("does not wait in operation lab");
    let audit = run(&["audit", "list"]).succeeds("operation.set-aside");
    assert!(audit.contains("todo.take") && audit.contains("todo.comment"), "{audit}");
    run(&["todo", "list"]).succeeds("asked the laboratory");
    run(&["todo", "list", "--owner", "nobody"]).succeeds("no message needs a person");
    run(&["todo", "done", &poison]).succeeds(", done");
    run(&["todo", "list"]).succeeds("no message needs a person");
    run(&["todo", "list", "--done"]).succeeds("set-aside, done");
    run(&["todo", "take", &id_of(&bed, "M2")]).fails("is not on the list");
    run(&["message", "resend", &poison]).succeeds("goes out again as message");
    until("it is refused again", || receiver.ids().len() == 5);
    let trace: Value = serde_json::from_str(&run(&["message", "trace", &poison, "--json"]).succeeds("")).expect("JSON");
    assert_eq!(
        (&trace["outcomes"][0]["outcome"], &trace["derived"][0]["how"]),
        (&"set-aside".into(), &"resent".into())
    );
    node.stop();
    run(&["verify"]).succeeds("every row reads");
}

#[test]
fn messages_on_which_a_transform_failed_are_previewed_and_go_out_once_it_is_right() {
    let receiver = Receiver::start();
    let bed = bed(&receiver, "fail 'not yet'\n");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    for id in ["M1", "M2", "M3"] {
        fs::write(bed.path("m.hl7"), message(id)).expect("a file");
        let send = ["message", "send", "m.hl7", "--to", &node.mllp().to_string()];
        bed.command_line(&send).finds("MSA|AE");
    }
    let first = id_of(&bed, "M1");
    let needing = || run(&["todo", "list", "--json"]).succeeds("").lines().count();
    assert_eq!(needing(), 3);
    let preview = run(&["message", "reprocess", "--status", "errored", "--preview"]).finds("3 errored: ");
    assert!(preview.contains("not yet") && preview.contains("nothing was sent or stored"), "{preview}");
    write(&bed, "transforms/t.hl7t", "set MSH-5 = 'LAB'\n");
    run(&["reload"]).succeeds("");
    let told = run(&["message", "reprocess", "--status", "errored", "--preview"]).succeeds("3 would go out");
    assert!(told.contains("with --generation 2 this counts for generation 2"), "{told}");
    run(&["message", "reprocess", "--status", "errored", "--generation", "1"])
        .fails("generation 2 of the production is in");
    assert_eq!(receiver.ids(), [""; 0]);
    let told =
        run(&["message", "reprocess", "--status", "errored", "--limit", "2", "--key", "ticket 7"]).succeeds("2 go out");
    assert!(told.contains("lab"), "{told}");
    run(&["message", "reprocess", "--status", "errored", "--key", "ticket 7"])
        .succeeds("1 go out, 2 done before under this key");
    run(&["message", "reprocess", "--status", "errored"]).succeeds("0 go out, 3 reprocessed before");
    until("they are delivered", || receiver.ids().len() >= 3);
    assert_eq!(receiver.ids(), ["M1", "M2", "M3"]);
    assert_eq!(needing(), 0, "what was reprocessed needs nobody");
    assert!(receiver.last_body().contains("|LAB|"), "by the loaded production");
    run(&["message", "trace", &first]).succeeds("reprocessed as message");
    run(&["message", "list"]).succeeds(&format!("reprocessed from {first}"));
    run(&["message", "reprocess", "7"]).finds("no message 7 is stored here");
    run(&["message", "reprocess"]).fails("required");
    run(&["audit", "list"]).succeeds("message.reprocess");
    node.stop();
    run(&["verify"]).succeeds("every row reads");
}

#[test]
fn an_edited_message_is_sent_by_who_may_read_it_and_is_checked_before() {
    let receiver = Receiver::start();
    let bed = bed(&receiver, "set MSH-5 = 'LAB'\n");
    let run = |args: &[&str]| bed.run(&[args, &["--data"]].concat());
    let node = bed.start();
    node.send("P1");
    until("the operation is suspended", || suspended(&bed));
    let poison = id_of(&bed, "P1");
    run(&["operation", "set-aside", "lab", "--reason", "its control id"]).succeeds("");
    run(&["operation", "resume", "lab"]).succeeds("");
    let file = bed.path("edited.hl7").display().to_string();
    fs::write(&file, message("M1").replace('\r', "\n")).expect("a file");
    run(&["message", "resend", &poison, "--edited", &file]).fails("message-body");
    bed.grant_bodies();
    run(&["message", "resend", &poison, "--edited", &file]).succeeds("goes out edited, as message");
    until("it is delivered", || receiver.ids() == ["P1", "M1"]);
    assert_eq!(receiver.last_body(), message("M1"), "as it is in the file");
    fs::write(&file, "no message").expect("a file");
    run(&["message", "resend", &poison, "--edited", &file]).fails("holds 0 messages");
    fs::write(&file, message("")).expect("a file");
    run(&["message", "resend", &poison, "--edited", &file]).fails("no control id, MSH-10");
    run(&["audit", "list", "--json"]).succeeds("edited_crc64");
    node.stop();
}
