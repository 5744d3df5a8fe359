//! The node's process is killed while documents are written over HTTP: what was answered is there, with its last version.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::maintenance::damage;
use crate::node::{Bed, until};

/// Writers beside each other, each with documents of its own.
const WRITERS: usize = 3;

/// Documents of a writer: they are written again and again.
const DOCUMENTS: usize = 40;

/// A request over a connection of its own; none if the node is gone.
pub(crate) fn send(address: &str, method: &str, target: &str, body: &str) -> Option<(u16, Value)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(60))).ok()?;
    let length = body.len();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-ndjson\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = BufReader::new(stream);
    let mut status = String::new();
    answer.read_line(&mut status).ok()?;
    let mut whole = Vec::new();
    answer.read_to_end(&mut whole).ok()?;
    let from = whole.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    Some((status.split(' ').nth(1)?.parse().ok()?, serde_json::from_slice(&whole[from..]).ok()?))
}

/// Writes bulk requests until the node is gone; puts down the number in each document that was answered.
fn write(address: &str, writer: usize, first: u64, answered: &Mutex<BTreeMap<String, u64>>, ends: &AtomicBool) {
    let mut number = first;
    while !ends.load(Ordering::Acquire) {
        let ids: Vec<String> = (0..10).map(|_| format!("{writer}-{}", fastrand::usize(..DOCUMENTS))).collect();
        let line = |id: &String| format!("{}\n{}\n", json!({"index": {"_id": id}}), json!({"n": number}));
        let body: String = ids.iter().map(line).collect();
        let Some((200, answer)) = send(address, "POST", "/killed/_bulk", &body) else { return };
        for (id, item) in ids.iter().zip(answer["items"].as_array().into_iter().flatten()) {
            if item["index"]["status"].as_u64().is_some_and(|status| status < 300) {
                answered.lock().expect("no panic").insert(id.clone(), number);
            }
        }
        number += 1;
    }
}

#[test]
fn after_the_process_is_killed_every_answered_document_is_there_with_its_last_version() {
    let bed = Bed::new();
    bed.configure("[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n");
    let answered = Mutex::new(BTreeMap::new());
    for round in 0..4 {
        let node = bed.start();
        let place = node.search().to_string();
        // A document may have a later number than the last answered one: that of the request under way at the kill.
        for (id, number) in answered.lock().expect("no panic").iter() {
            let (status, document) = send(&place, "GET", &format!("/killed/_doc/{id}"), "").expect("the node answers");
            assert_eq!(status, 200, "round {round}: {id} with {number}");
            assert!(
                document["_source"]["n"].as_u64() >= Some(*number),
                "round {round}: {id} with {number}: {document}"
            );
        }
        let known = answered.lock().expect("no panic").len() as u64;
        if round > 0 {
            send(&place, "POST", "/killed/_refresh", "").expect("the node answers");
            let (_, count) = send(&place, "GET", "/killed/_count", "").expect("the node answers");
            let found = count["count"].as_u64().expect("a number");
            assert!((known..=(WRITERS * DOCUMENTS) as u64).contains(&found), "round {round}: {found} of {known}");
        }
        let ends = AtomicBool::new(false);
        std::thread::scope(|threads| {
            for writer in 0..WRITERS {
                let (place, answered, ends) = (&place, &answered, &ends);
                threads.spawn(move || write(place, writer, round * 1_000_000, answered, ends));
            }
            let before =
                answered.lock().expect("no panic").values().filter(|number| **number > round * 1_000_000).count();
            until("some are answered", || {
                answered.lock().expect("no panic").values().filter(|number| **number > round * 1_000_000).count()
                    > before + 20
            });
            node.kill();
            ends.store(true, Ordering::Release);
        });
    }
}

#[test]
fn messages_are_found_by_words_and_fields_and_again_after_the_process_is_killed() {
    let bed = Bed::new();
    bed.configure("[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n[search.index]\ntrigger = \"MSH-9.2\"\n");
    let search = |query: &[&str]| {
        let words = ["message", "search", "--json"].iter().chain(query).chain(&["--data"]);
        let found = bed.run(&words.copied().collect::<Vec<_>>()).succeeds("");
        let id = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON")["control_id"].clone();
        let mut ids: Vec<String> = found.lines().map(|line| id(line).as_str().expect("a text").to_owned()).collect();
        ids.sort();
        ids
    };
    let mut node = bed.start();
    bed.grant_bodies();
    for round in 0..3 {
        let ids: Vec<String> = (0..=round * 2 + 1).map(|number| format!("S{number}")).collect();
        for id in &ids[round * 2..] {
            node.send(id);
        }
        // Searched at once: what was acknowledged is found.
        assert_eq!(search(&["control_id:S*"]), ids, "round {round}");
        assert_eq!(search(&["Control_ID:S1", "AND", "TYPE:ADT*"]), ["S1"]);
        assert_eq!(search(&["trigger:A01 s0"]), ["S0"], "words without a field are searched in the whole message");
        assert_eq!(search(&["nothing-like-this"]), [""; 0]);
        let place = node.search().to_string();
        let (_, count) = send(&place, "GET", "/.messages/_count", "").expect("the node answers");
        assert_eq!(count["count"].as_u64(), Some(ids.len() as u64));
        let (status, _) = send(&place, "POST", "/.messages/_doc", "{}").expect("the node answers");
        assert_eq!(status, 403, "nobody but the node writes to it");
        let (status, _) = send(&place, "DELETE", "/.messages", "").expect("the node answers");
        assert_eq!(status, 403);
        node.kill();
        node = bed.start();
    }
    bed.run(&["message", "search", "type:[", "--data"]).fails("Failed to parse query");
    node.kill();
    bed.run(&["message", "search", "s1", "--data"]).fails("terrace serve");
}

#[test]
fn a_message_that_is_damaged_after_it_was_indexed_does_not_hide_the_others() {
    let bed = Bed::new();
    bed.configure("[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n");
    let node = bed.start();
    bed.grant_bodies();
    (100..200).for_each(|number| node.send(&format!("S{number}")));
    let found = |wanted: &str| {
        let args = ["message", "search", "control_id:S*", "--last", "1000", "--json", "--data"];
        bed.run(&args).succeeds("").lines().filter(|line| line.contains(wanted)).count()
    };
    assert_eq!(found("received_us"), 100);
    node.stop();
    assert!(damage(&bed, "ADT^A01|S150|P"), "the message lies in a page");
    let node = bed.start();
    node.search();
    let unreadable = found("unreadable");
    assert!((1..60).contains(&unreadable), "{unreadable} in one page");
    assert_eq!(found("received_us"), 100, "the others are shown");
    node.kill();
}

#[test]
fn index_files_lie_on_the_tier_that_is_set_and_a_kill_loses_nothing() {
    let bed = Bed::new();
    let (tiers, placed) = (crate::modelled_pmem(&bed), "[placement]\nsearch = \"pm\"\n");
    let search = "[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n";
    bed.configure(&format!("{tiers}{placed}"));
    bed.refuses("placement.search has no effect");
    bed.configure(&format!("{tiers}{placed}{search}folder = \"elsewhere\"\n"));
    bed.refuses("search.folder and placement.search");
    bed.configure(&format!("{tiers}[placement]\nsearch_capacity = \"pm\"\n"));
    bed.refuses("placement.search_capacity has no effect");
    bed.configure(&format!("{tiers}{placed}search_capacity = \"home\"\n{search}"));
    let node = bed.start();
    let place = node.search().to_string();
    let put = |id: u32| {
        let (status, answer) =
            send(&place, "PUT", &format!("/i/_doc/{id}"), "{\"t\":\"red\"}").expect("the node answers");
        assert_eq!(status, 201, "{answer}");
    };
    (0..20).for_each(put);
    send(&place, "POST", "/i/_flush", "").expect("the node answers");
    (20..30).for_each(put);
    let files = &node.status()["search"];
    assert_eq!(
        (&files["tier"], &files["real"], &files["durability"]),
        (&"pm".into(), &false.into(), &"emulated".into())
    );
    assert_eq!(node.status()["search_capacity"]["tier"], "home");
    bed.run(&["status", "--data"]).succeeds("large index files lie on");
    assert!(bed.path("pm/search").is_dir() && !bed.data().join("search").exists());
    node.kill();
    let node = bed.start();
    let place = node.search().to_string();
    send(&place, "POST", "/i/_refresh", "").expect("the node answers");
    let (_, count) = send(&place, "GET", "/i/_count?q=t:red", "").expect("the node answers");
    assert_eq!(count["count"], 30);
    node.stop();
}

#[test]
fn a_place_that_search_cannot_use_stops_no_message_and_searches_get_the_reason() {
    let search = "[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n";
    let tier = "[tiers.taken]\nkind = \"file\"\npath = \"taken\"\n";
    for settings in [
        format!("{search}folder = \"taken\"\n"),
        format!("{search}{tier}[placement]\nsearch = \"taken\"\n"),
        format!("{search}{tier}[placement]\nsearch_capacity = \"taken\"\n"),
    ] {
        let bed = Bed::new();
        std::fs::write(bed.path("taken"), "a file").expect("a file");
        bed.configure(&settings);
        let node = bed.start();
        node.send("S1");
        let place = node.search().to_string();
        for (method, target) in [("GET", "/_search"), ("PUT", "/i/_doc/1"), ("GET", "/_cluster/health")] {
            let (status, answer) = send(&place, method, target, "{}").expect("the node answers");
            assert!(status == 503 && answer["error"]["reason"].to_string().contains("taken"), "{target}: {answer}");
        }
        bed.run(&["status", "--data"]).finds("service since");
        bed.run(&["status", "--data"]).finds("taken");
        bed.run(&["message", "search", "s1", "--data"]).fails("search does not work on this node");
        node.stop();
        std::fs::remove_file(bed.path("taken")).expect("it is there");
        std::fs::create_dir(bed.path("taken")).expect("a folder");
        let node = bed.start();
        node.search();
        bed.grant_bodies();
        let found = || bed.run(&["message", "search", "s1", "--data"]).succeeds("").contains("S1");
        until("the message is indexed", found);
        node.kill();
    }
}

#[test]
fn messages_behind_damage_are_fed() {
    let bed = Bed::new();
    let node = bed.start();
    let ids: Vec<String> = (100..300).map(|number| format!("S{number}")).collect();
    ids.iter().for_each(|id| node.send(id));
    node.stop();
    assert!(damage(&bed, "ADT^A01|S200|P"), "the message lies in a page");
    bed.configure("[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n");
    let node = bed.start();
    bed.grant_bodies();
    let found = || {
        let lines = bed.run(&["message", "search", "control_id:S*", "--last", "1000", "--json", "--data"]).succeeds("");
        let id = |line: &str| serde_json::from_str::<Value>(line).expect("a line of JSON")["control_id"].clone();
        lines.lines().map(|line| id(line).as_str().expect("a text").to_owned()).collect::<Vec<_>>()
    };
    node.search();
    until("the last one is found", || found().contains(&"S299".to_owned()));
    let found = found();
    assert!(found.contains(&"S100".to_owned()) && !found.contains(&"S200".to_owned()), "{found:?}");
    assert!(found.len() >= 100, "one page of messages is lost, not more: {}", found.len());
    assert!(bed.log().contains("cannot be read are not searchable"), "{}", bed.log());
    node.kill();
}

/// A bed whose data directory is encrypted; the key is in its file `key`.
fn encrypted() -> Bed {
    let bed = Bed::new();
    let key = bed.path("key");
    std::fs::write(&key, [7; 32]).expect("a file");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("it is ours");
    bed.set_key(Some(&format!("file:{}", key.display())));
    bed.run(&["encryption", "init", "--data"]).succeeds("encrypted: ");
    bed
}

/// Which of these texts lie in the files at and below a folder.
fn lying_in<'a>(folder: &Path, texts: &[&'a str]) -> Vec<&'a str> {
    let (mut found, mut all) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(path) = all.pop() {
        let meta = std::fs::symlink_metadata(&path).expect("it is there");
        if meta.is_dir() {
            all.extend(std::fs::read_dir(&path).expect("it can be read").map(|entry| entry.expect("an entry").path()));
        } else if meta.is_file() {
            let bytes = std::fs::read(&path).expect("it can be read");
            // What was never written is zeros.
            let parts = bytes.chunks(65_536).filter(|part| part.iter().any(|byte| *byte != 0));
            for part in parts {
                let lies = |text: &str| part.windows(text.len()).any(|window| window == text.as_bytes());
                found.extend(texts.iter().filter(|text| lies(text)));
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_node_with_search_on_an_encrypted_directory_writes_nothing_in_clear() {
    // A term of the index of messages, one of documents, what only a document has, a field.
    let texts = ["SAMPLE", "diagnosis_code", "haemochromatosis", "seen on ward seven"];
    for (bed, lies) in [(Bed::new(), &texts[..]), (encrypted(), &[])] {
        bed.configure("[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n");
        let node = bed.start();
        bed.grant_bodies();
        node.send("S1");
        let place = node.search().to_string();
        let ask = |place: &str, method: &str, target: &str, body: &str| {
            let (status, answer) = send(place, method, target, body).expect("the node answers");
            assert!(status < 300, "{method} {target}: {answer}");
            answer
        };
        let fields = json!({"mappings": {"properties": {"diagnosis_code": {"type": "keyword"}}}}).to_string();
        ask(&place, "PUT", "/i", &fields);
        for round in 0..3 {
            let document = json!({"diagnosis_code": "haemochromatosis", "note": "seen on ward seven"});
            let line = |n: u32| format!("{}\n{document}\n", json!({"index": {"_id": (round * 100 + n).to_string()}}));
            ask(&place, "POST", "/i/_bulk", &(0..100).map(line).collect::<String>());
            ask(&place, "POST", "/i/_flush", "");
        }
        ask(&place, "POST", "/i/_forcemerge?max_num_segments=1", "");
        let is_found = || bed.run(&["message", "search", "SAMPLE", "--data"]).succeeds("").contains("S1");
        until("the message is indexed", is_found);
        node.stop();
        assert_eq!(lying_in(&bed.data(), &texts), lies);
        // Nor do the files serve anybody: changed ones are made again.
        for entry in std::fs::read_dir(bed.data().join("search")).expect("index files") {
            let path = entry.expect("an entry").path();
            if !path.to_string_lossy().ends_with("-0") {
                continue;
            }
            let mut file = std::fs::File::options().write(true).open(path).expect("a file");
            file.write_all(&[0xAA; 4 << 20]).expect("written");
        }
        let node = bed.start();
        let place = node.search().to_string();
        let count = || ask(&place, "GET", "/i/_count?q=diagnosis_code:haemochromatosis", "")["count"] == 300;
        until("the index is made again", count);
        until("that of messages too", is_found);
        assert!(bed.log().contains("damaged"), "{}", bed.log());
        node.stop();
        assert_eq!(lying_in(&bed.data(), &texts), lies);
    }
}

#[test]
fn a_node_with_search_does_not_start_with_another_key_and_starts_with_the_new_one() {
    let bed = encrypted();
    bed.configure("[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n");
    let node = bed.start();
    let place = node.search().to_string();
    send(&place, "PUT", "/i/_doc/1", "{\"t\":\"red\"}").expect("the node answers");
    send(&place, "POST", "/i/_flush", "").expect("the node answers");
    node.stop();
    let right = std::fs::read(bed.path("key")).expect("the key");
    std::fs::write(bed.path("key"), [8; 32]).expect("another key");
    bed.refuses("give the right key-encryption key");
    std::fs::write(bed.path("key"), right).expect("the key");
    // Index files that an older data key sealed are read after a change of keys.
    bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("data key 2");
    let node = bed.start();
    let place = node.search().to_string();
    send(&place, "PUT", "/i/_doc/2?refresh", "{\"t\":\"red\"}").expect("the node answers");
    let (_, count) = send(&place, "GET", "/i/_count?q=t:red", "").expect("the node answers");
    assert_eq!(count["count"], 2);
    assert!(!bed.log().contains("damaged"), "{}", bed.log());
    node.stop();
}

#[test]
fn index_files_of_an_old_data_key_are_written_anew_while_they_are_searched_and_the_key_is_retired() {
    let bed = encrypted();
    bed.configure("[search]\ntrust = true\nlisten = \"127.0.0.1:0\"\n");
    let node = bed.start();
    let place = node.search().to_string();
    let bulk = |place: &str, round: u32| {
        let line = |n: u32| {
            let index = json!({"index": {"_id": (round * 100 + n).to_string()}});
            format!("{index}\n{}\n", json!({"t": "red", "n": n}))
        };
        let body: String = (0..100).map(line).collect();
        let (status, answer) = send(place, "POST", "/i/_bulk?refresh", &body).expect("the node answers");
        assert!(status < 300, "{answer}");
        send(place, "POST", "/i/_flush", "").expect("the node answers");
    };
    let count = |place: &str| send(place, "GET", "/i/_count?q=t:red", "").expect("the node answers").1["count"].clone();
    bulk(&place, 0);
    bulk(&place, 1);
    bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("data key 2");
    bulk(&place, 2);
    let args = ["encryption", "rewrite", "--rate", "1GiB", "--drop-kept-journal", "--data"];
    let told = bed.run(&args).succeeds("is complete");
    assert!(!told.contains(" 0 B of index files"), "{told}");
    assert_eq!(count(&place), 300);
    bulk(&place, 3);
    node.stop();
    bed.run(&["encryption", "retire-data-key", "1", "--data"]).succeeds("data key 1 is removed");
    let node = bed.start();
    let place = node.search().to_string();
    assert_eq!(count(&place), 400);
    assert!(!bed.log().contains("damaged"), "{}", bed.log());
    // Without its service index files keep their key, which is said.
    bed.run(&["encryption", "rotate-data-key", "--data"]).succeeds("data key 3");
    node.stop();
    bed.configure("");
    let node = bed.start();
    bed.run(&args).fails("start the node with [search]");
    node.stop();
    bed.run(&["encryption", "retire-data-key", "2", "--data"]).fails("data key 2 is needed");
}
