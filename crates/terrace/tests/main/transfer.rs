//! Messages of one node as a file, and into another one, with the program as people use it.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread;

use serde_json::Value;

use crate::node::{Bed, Node, message, until};

/// A node whose service `in` sends everything to the folder of the operation `out`.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.configure("production = \"production\"\n");
    for (file, text) in [
        ("services/in.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n".to_owned()),
        ("rules/main.rules", "match first\nrule all { send to out }\n".to_owned()),
        ("operations/out.toml", format!("kind = \"file\"\nfolder = \"{}\"\n", bed.path("out").display())),
    ] {
        let path = bed.path("production").join(file);
        fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        fs::write(path, text).expect("a file");
    }
    fs::create_dir_all(bed.path("out")).expect("a folder");
    bed
}

fn export(bed: &Bed, to: &Path, more: &[&str]) -> crate::node::Ran {
    let to = to.display().to_string();
    let args: Vec<&str> = ["message", "export", "--out", &to].iter().chain(more).copied().chain(["--data"]).collect();
    bed.run(&args)
}

fn import(bed: &Bed, from: &Path, more: &[&str]) -> crate::node::Ran {
    let from = from.display().to_string();
    let args: Vec<&str> = ["message", "import", &from].iter().chain(more).copied().chain(["--data"]).collect();
    bed.run(&args)
}

fn send_many(node: &Node<'_>, from: usize, to: usize) {
    let texts: Vec<String> = (from..to).map(|n| message(&format!("M{n:04}"))).collect();
    node.send_bytes_many(&texts);
}

#[test]
fn messages_go_from_one_node_to_another_once_and_a_damaged_or_masked_file_does_not() {
    let (from, to) = (bed(), bed());
    let source = from.start();
    send_many(&source, 0, 12);
    let file = from.path("case.messages");
    export(&from, &file, &[]).fails("message-body");
    assert!(!file.exists() && !from.path("case.messages.partial").exists());
    from.grant_bodies();
    export(&from, &file, &[]).succeeds("12 messages");
    export(&from, &file, &[]).fails("there already");
    let (masked, hl7) = (from.path("masked.messages"), from.path("plain.hl7"));
    export(&from, &masked, &["--masked", "--type", "ADT^A01"]).succeeds("masked");
    export(&from, &hl7, &["--format", "batch", "--limit", "3"]).succeeds("3 messages");
    let text = fs::read_to_string(&hl7).expect("text");
    assert!(text.starts_with("FHS|") && text.contains("BTS|3\r") && text.contains("M0000"), "{text}");
    let bytes = fs::read(&masked).expect("a file");
    assert!(!bytes.windows(6).any(|window| window == b"SAMPLE") && bytes.windows(6).any(|window| window == b"MASKED"));
    let audit = from.run(&["audit", "list", "--last", "0", "--json", "--data"]).succeeds("message.export");
    assert!(audit.contains("ADT^A01") && !audit.contains("SAMPLE"), "{audit}");

    let node = to.start();
    import(&to, &file, &["--dry-run"]).succeeds("12 would go out; nothing was stored or sent");
    assert_eq!(to.stored().len(), 0);
    import(&to, &file, &[]).succeeds("12 stored and go out");
    import(&to, &file, &["--as", "replay"]).succeeds("12 imported before");
    assert_eq!(to.stored().len(), 12);
    let lines = to.run(&["message", "list", "--last", "1", "--json", "--data"]).succeeds("");
    let line: Value = serde_json::from_str(lines.trim()).expect("JSON");
    assert_eq!((&line["control_id"], &line["imported"]), (&Value::from("M0011"), &Value::from(true)));
    let id = line["id"].to_string();
    to.run(&["message", "trace", &id, "--data"]).succeeds("of node-");
    let whole = fs::read(&file).expect("a file");
    let cut = from.path("cut.messages");
    fs::write(&cut, &whole[..whole.len() / 2]).expect("a file");
    import(&to, &cut, &[]).fails("damaged at byte");
    let mut changed = whole.clone();
    changed[whole.len() / 3] ^= 4;
    fs::write(&cut, &changed).expect("a file");
    import(&to, &cut, &[]).fails("damaged at byte");
    import(&to, &masked, &[]).fails("--allow-masked");
    import(&to, &masked, &["--allow-masked"]).succeeds("12 stored and go out");
    import(&to, &hl7, &[]).fails("--service");
    for format in ["hl7", "batch"] {
        let file = from.path(&format!("masked-{format}.hl7"));
        export(&from, &file, &["--masked", "--format", format]).succeeds("12 messages");
        import(&to, &file, &["--service", "in"]).fails("--allow-masked");
    }
    import(&to, &hl7, &["--service", "in"]).succeeds("3 stored and go out");
    assert_eq!(to.stored().len(), 27);
    until("they went out", || fs::read_dir(to.path("out")).expect("a folder").count() >= 27);
    node.stop();
    source.stop();
    // Also of a stopped node.
    let stopped = from.path("stopped.messages");
    export(&from, &stopped, &["--since", "1d"]).succeeds("12 messages");
    export(&from, &from.path("x.messages"), &["--masked"]).fails("running node");
}

#[test]
fn a_folder_of_files_is_imported_with_a_report_of_what_is_not_and_where() {
    let bed = bed();
    let node = bed.start();
    let folder = bed.path("mirth");
    fs::create_dir_all(&folder).expect("a folder");
    fs::write(folder.join("1.hl7"), message("A1") + &message("A2")).expect("a file");
    fs::write(folder.join("2.hl7"), format!("BHS|^~\\&|X\r{}BTS|2\r", message("B1"))).expect("a file");
    fs::write(folder.join("3.hl7"), message("C1") + "MSH|^~\\&|HIS|NORTH|||1||ADT^A01||P|2.5\rPID|1\r")
        .expect("a file");
    fs::write(folder.join("4.txt"), "no message").expect("a file");
    let ran = import(&bed, &folder, &["--service", "in"]);
    assert_eq!(ran.code(), Some(1), "{}{}", ran.printed(), ran.warned());
    assert!(ran.printed().contains("3 stored and go out, 1 refused by the service"), "{}", ran.printed());
    assert!(
        ran.warned().contains("2.hl7: not imported") && ran.warned().contains("declares 2, found 1"),
        "{}",
        ran.warned()
    );
    assert!(ran.warned().contains("3.hl7:3 (byte") && ran.warned().contains("MSH-10"), "{}", ran.warned());
    node.stop();
}

#[test]
fn a_node_that_is_killed_during_an_import_has_each_message_once_after_the_same_import() {
    const MESSAGES: usize = 1_500;
    let (from, to) = (bed(), bed());
    let source = from.start();
    send_many(&source, 0, MESSAGES);
    from.grant_bodies();
    let file = from.path("all.messages");
    export(&from, &file, &[]).succeeds("1,500 messages");
    source.stop();
    for part in 1..4 {
        let node = to.start();
        thread::scope(|scope| {
            let importing = scope.spawn(|| import(&to, &file, &[]));
            until("a part is imported", || {
                importing.is_finished() || node.status()["stored"].as_u64().is_some_and(|stored| stored >= 120 * part)
            });
            node.kill();
            importing.join().expect("it does not panic");
        });
        let stored = to.stored();
        assert!(!stored.is_empty());
        assert!(stored.windows(2).all(|pair| pair[0] < pair[1]), "in their order, and each once");
    }
    let node = to.start();
    import(&to, &file, &[]).succeeds("imported before");
    let stored = to.stored();
    assert_eq!(stored.len(), MESSAGES);
    assert!(stored.windows(2).all(|pair| pair[0] < pair[1]), "in their order, and each once");
    to.run(&["verify"]).succeeds("");
    node.stop();
}

#[test]
fn files_that_come_in_slowly_over_the_api_hold_up_further_imports_and_nothing_else() {
    let bed = bed();
    bed.configure("production = \"production\"\n[console]\nlisten = \"127.0.0.1:0\"\n");
    let node = bed.start();
    bed.run(&["user", "add", "ann", "--no-password", "--data"]).succeeds("");
    for (right, on) in
        [("message-import", "service in"), ("message-resend", "service *"), ("message-metadata", "service *")]
    {
        bed.run(&["role", "grant", right, "--on", on, "--to", "ann", "--data"]).succeeds("");
    }
    let drawn = bed.run(&["user", "token", "ann", "program", "--data"]).succeeds("trc_");
    let token = drawn.split_whitespace().find(|word| word.starts_with("trc_")).expect("a token");
    let begin = |target: &str, length: usize| {
        let mut stream = TcpStream::connect(node.console()).expect("it listens");
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).expect("it is taken");
        stream
    };
    let answer = |target: &str| {
        let mut text = String::new();
        begin(target, 0).read_to_string(&mut text).expect("an answer");
        text
    };
    let target = "/api/v1/messages/import?service=in";
    let mut slow = Vec::new();
    until("both have a place", || {
        slow.clear();
        slow.extend([begin(target, 100), begin(target, 100)]);
        // What is asked here would take the place of one that has not yet got it.
        thread::sleep(std::time::Duration::from_millis(200));
        answer(target).contains("as many imports of yours are on")
    });
    let preview = answer("/api/v1/reprocess?status=dropped&preview=yes");
    assert!(preview.starts_with("HTTP/1.1 200"), "{preview}");
    drop(slow);
    until("their places are free", || !answer(target).contains("as many imports"));
    node.stop();
}
