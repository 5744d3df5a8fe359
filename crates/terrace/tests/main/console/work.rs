//! What operators do on pages of a real node: setting aside, the to-do list, deciding anew, editing, sets at once, generations.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::browser::{Browser, Page, encoded};
use super::{OPERATOR, audited, bed, signed_in, token, user};
use crate::node::{Bed, Node, until};

/// What OPERATOR has not.
const MORE: &[(&str, &str)] =
    &[("operation-set-aside", "operation *"), ("message-edit", "service *"), ("production-read", "node")];

fn worker(bed: &Bed, name: &str) {
    user(bed, name, &[OPERATOR, MORE].concat());
}

/// A bed whose messages go to `out` and to `lab`, where nobody listens.
fn bed_with_lab() -> Bed {
    let bed = bed();
    let rules = "match all\nrule admissions when MSH-9.1 = \"ADT\" {\n  send to out using t\n  send to lab\n}\n";
    for (path, text) in
        [("operations/lab.toml", "kind = \"mllp\"\naddress = \"127.0.0.1:9\"\n"), ("rules/main.rules", rules)]
    {
        fs::write(bed.path("production").join(path), text).expect("written");
    }
    bed
}

fn waiting(node: &Node<'_>, operation: &str) -> u64 {
    let status = node.status();
    let all = status["operations"].as_array().expect("operations").iter();
    let found = all.filter(|one| one["name"] == operation).map(|one| one["waiting"].as_u64().expect("a number"));
    found.sum()
}

/// Sends a message whose transform fails: it is stored, and its sender is told so.
fn send_that_errors(node: &Node<'_>, id: &str) {
    let mut stream = TcpStream::connect(node.mllp()).expect("it listens");
    stream.write_all(format!("\x0b{}\x1c\r", crate::node::message(id)).as_bytes()).expect("it is taken");
    let (mut answer, mut part) = (Vec::new(), [0; 1024]);
    while !answer.ends_with(b"\x1c\r") {
        let bytes = stream.read(&mut part).expect("an answer");
        assert!(bytes > 0, "no answer");
        answer.extend_from_slice(&part[..bytes]);
    }
    assert!(String::from_utf8_lossy(&answer).contains("MSA|AE|"), "it errors");
}

fn location(page: &Page) -> String {
    page.headers["location"].clone()
}

/// The ids of stored messages, the oldest first.
fn ids(browser: &mut Browser) -> Vec<u64> {
    let page = browser.get("/messages").is(200);
    let of = |rest: &str| rest.split('"').next().and_then(|id| id.parse().ok());
    let mut found: Vec<u64> = page.body.split("href=\"/messages/").skip(1).filter_map(of).collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn a_stuck_head_is_set_aside_with_a_reason_and_what_was_set_aside_goes_out_again_together_and_once() {
    let bed = bed_with_lab();
    let node = bed.start();
    worker(&bed, "ann");
    user(&bed, "looker", OPERATOR);
    ["A1", "A2", "A3"].iter().for_each(|id| node.send(id));
    until("three wait", || waiting(&node, "lab") == 3);
    let mut ann = signed_in(&node, "ann");
    // The console looks at queues once a second.
    until("the page has the head", || ann.get("/operations/lab").body.contains("Set the head aside"));
    let page = ann.get("/operations/lab").shows(200, "Set the head aside");
    let (token, head) = (page.field("token"), page.field("message"));
    let target = "/operations/lab/set-aside";
    let order = |message: &str, reason: &str| {
        vec![("token", token.clone()), ("message", message.to_owned()), ("reason", reason.to_owned())]
    };
    let send = |browser: &mut Browser, fields: Vec<(&str, String)>| {
        let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (*name, value.as_str())).collect();
        browser.post(target, &fields)
    };
    send(&mut ann, order(&head, " ")).shows(422, "a reason is needed");
    ann.post(target, &[("token", &token), ("reason", "x")]).shows(422, "name the message");
    ann.post(target, &[("message", &head), ("reason", "x")]).is(403);
    let done = location(&send(&mut ann, order(&head, "the receiver rejects it")).is(303));
    ann.get(&done).shows(200, "is set aside");
    send(&mut ann, order(&head, "again")).shows(422, "does not wait in operation lab");
    assert_eq!(waiting(&node, "lab"), 2);
    let entries = audited(&bed, "operation.set-aside");
    assert!(entries.iter().any(|entry| entry["details"]["reason"] == "the receiver rejects it"), "{entries:?}");
    // Who may not is refused, and has no form.
    let mut looker = signed_in(&node, "looker");
    let page = looker.get("/operations/lab").is(200);
    assert!(!page.body.contains("Set the head aside"), "{}", page.body);
    let own = super::token(&mut looker);
    looker.post(target, &[("token", &own), ("message", &head), ("reason", "x")]).is(403);
    for _ in 0..2 {
        let head = ann.get("/operations/lab").is(200).field("message");
        send(&mut ann, order(&head, "all of them")).is(303);
    }
    ann.get("/todo").shows(200, "the receiver rejects it");
    ann.post(&format!("/todo/{head}"), &[("token", &token), ("act", "take")]).is(303);
    let comment =
        [("token", token.as_str()), ("act", "comment"), ("text", "<b>called</b> them"), ("back", "//elsewhere")];
    assert_eq!(location(&ann.post(&format!("/todo/{head}"), &comment).is(303)), "/todo");
    let page = ann.get("/todo?owner=ann").shows(200, "&lt;b&gt;called&lt;/b&gt; them");
    assert_eq!(page.body.matches("set aside</span>").count(), 1, "{}", page.body);
    // All three, by the search that found them.
    let page = ann.get("/resend?state=set-aside").shows(200, "<b>3</b> messages go");
    let (key, sent_ids) = (page.field("key"), page.field("ids"));
    let run = [("token", &*token), ("key", &*key), ("ids", &*sent_ids), ("state", "set-aside"), ("to", "lab")];
    for _ in 0..2 {
        ann.post("/resend", &run).shows(200, "<b>3</b> messages went out again");
    }
    assert_eq!((bed.stored().len(), waiting(&node, "lab")), (6, 3));
    ann.get("/todo").shows(200, "No message needs a person");
    ann.get("/resend?state=set-aside").shows(200, "was sent again before");
    assert_eq!(audited(&bed, "message.resend").len(), 3);
    looker.get("/resend?state=set-aside&again=yes").shows(200, "<b>3</b> messages go");
    // What was sent again is set aside, too: neither goes again by itself, and with these one of both.
    let copy = ann.get("/operations/lab").is(200).field("message");
    send(&mut ann, order(&copy, "again")).is(303);
    ann.get("/resend?state=set-aside").shows(200, "1 was itself made by a resend, left out");
    let page = ann.get("/resend?state=set-aside&again=yes").shows(200, "<b>3</b> messages go");
    assert!(page.body.contains("1 is of the same origin as a newer one that goes out, left out"), "{}", page.body);
    assert!(page.field("ids").split(' ').any(|id| id == copy), "{}", page.body);
    ann.get("/resend?state=waiting&again=yes").shows(200, "2 still waits in its queue, left out");
    looker.get("/resend").shows(422, "name a state");
    node.stop();
}

#[test]
fn a_message_that_errored_is_decided_anew_once_after_the_folder_was_loaded_from_the_page() {
    let bed = bed();
    let transform = bed.path("production/transforms/t.hl7t");
    fs::write(&transform, "fail 'not this one'\n").expect("written");
    let node = bed.start();
    worker(&bed, "ann");
    ["B1", "B2", "B3"].iter().for_each(|id| send_that_errors(&node, id));
    let mut ann = signed_in(&node, "ann");
    let first = ids(&mut ann)[0];
    let target = format!("/messages/{first}/reprocess");
    let page = ann.get(&target).shows(200, "Nothing would be stored or sent");
    assert!(page.body.contains("not this one") && !page.body.contains("name=\"key\""), "{}", page.body);
    fs::write(&transform, "set MSH-5 = 'LAB'\n").expect("written");
    let page = ann.get("/changes?from=1&to=disk").shows(200, "Load the folder");
    assert!(page.body.contains("+set MSH-5 = 'LAB'") && page.body.contains("-fail 'not this one'"), "{}", page.body);
    let (token, folder) = (page.field("token"), page.field("folder"));
    let load = [("token", token.as_str()), ("in_force", "1"), ("folder", folder.as_str())];
    ann.post("/changes/load", &load[..2]).shows(422, "none of a page that shows the folder");
    fs::write(&transform, "set MSH-5 = 'WARD'\n").expect("written");
    ann.post("/changes/load", &load).shows(422, "was changed since it was looked at");
    fs::write(&transform, "set MSH-5 = 'LAB'\n").expect("written");
    assert_eq!(location(&ann.post("/changes/load", &load).is(303)), "/changes?loaded=2");
    ann.post("/changes/load", &load).shows(422, "another generation was put in force");
    // One, twice: once.
    let page = ann.get(&target).shows(200, "routed");
    let (key, seen) = (page.field("key"), page.field("generation"));
    let fields = [("token", token.as_str()), ("key", key.as_str()), ("generation", seen.as_str())];
    ann.post(&target, &fields[..2]).shows(422, "none of a preview");
    // Somebody loads another one, and the form counts for that no more.
    fs::write(&transform, "set MSH-5 = 'WARD'\n").expect("written");
    bed.run(&["reload", "--data"]).succeeds("");
    ann.post(&target, &fields).shows(422, "generation 3 of the production is in force");
    assert_eq!(bed.stored().len(), 3);
    let page = ann.get(&target).shows(200, "routed");
    let (key, seen) = (page.field("key"), page.field("generation"));
    let fields = [("token", token.as_str()), ("key", key.as_str()), ("generation", seen.as_str())];
    let places: Vec<String> = (0..2).map(|_| location(&ann.post(&target, &fields).is(303))).collect();
    assert_eq!(places[0], places[1]);
    ann.get(&places[0]).shows(200, "Reprocessed from");
    ann.get(&format!("/messages/{first}")).shows(200, "Made from it");
    // The others by a search; the first is left out.
    let page = ann.get("/reprocess?status=errored").shows(200, "<b>2</b> would go out");
    assert!(page.body.contains("<b>1</b> reprocessed before, left out"), "{}", page.body);
    let hidden: Vec<(&str, String)> =
        ["key", "generation", "until", "number"].into_iter().map(|name| (name, page.field(name))).collect();
    let mut fields = vec![("token", token.as_str()), ("status", "errored")];
    fields.extend(hidden.iter().map(|(name, value)| (*name, value.as_str())));
    ann.post("/reprocess", &fields).shows(200, "<b>2</b> went out");
    ann.post("/reprocess", &fields).shows(200, "<b>2</b> done before under this key");
    assert_eq!(bed.stored().len(), 6);
    assert!(audited(&bed, "message.reprocess").len() >= 3);
    ann.get("/todo").shows(200, "No message needs a person");
    node.stop();
}

/// Begins a request.
type Begin<'a> = Box<dyn Fn() -> TcpStream + 'a>;

/// Begins a request of a program to the API.
fn program(node: &Node<'_>, token: &str, target: &str) -> TcpStream {
    let mut stream = TcpStream::connect(node.console()).expect("it listens");
    let head = format!(
        "POST {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {token}\r\nIdempotency-Key: ticket-7\r\n\
         Content-Length: 0\r\n\r\n",
        node.console()
    );
    stream.write_all(head.as_bytes()).expect("it is taken");
    stream
}

#[test]
fn who_waits_for_a_full_queue_takes_its_own_places_and_others_keep_theirs() {
    let bed = bed_with_lab();
    let lab = "kind = \"mllp\"\naddress = \"127.0.0.1:9\"\n[queue]\nmessages = 1\n";
    fs::write(bed.path("production/operations/lab.toml"), lab).expect("written");
    let transform = bed.path("production/transforms/t.hl7t");
    fs::write(&transform, "fail 'not yet'\n").expect("written");
    let node = bed.start();
    ["ann", "bob"].iter().for_each(|name| worker(&bed, name));
    send_that_errors(&node, "D1");
    fs::write(&transform, "set MSH-5 = 'LAB'\n").expect("written");
    bed.run(&["reload", "--data"]).succeeds("");
    node.send("D2");
    until("the queue is full", || waiting(&node, "lab") == 1);
    let (mut ann, mut bob) = (signed_in(&node, "ann"), signed_in(&node, "bob"));
    let target = format!("/messages/{}/reprocess", ids(&mut ann)[0]);
    let page = ann.get(&target).shows(200, "routed");
    let fields = ["token", "key", "generation"].map(|name| format!("{name}={}", encoded(&page.field(name))));
    let form = fields.join("&");
    let told = bed.run(&["user", "token", "ann", "ci", "--data"]).succeeds("");
    let browser = ann.clone();
    let ways: [(&str, Begin<'_>); 3] = [
        ("the form", Box::new(|| browser.open("POST", &target, &form).into_inner())),
        ("one over the API", Box::new(|| program(&node, told.trim(), &format!("/api/v1{target}")))),
        ("a search over the API", Box::new(|| program(&node, told.trim(), "/api/v1/reprocess?status=errored"))),
    ];
    for (what, begin) in &ways {
        let mut left = Vec::new();
        until(what, || {
            left.push(begin());
            ann.get("/messages.csv").status == 503
        });
        bob.get("/messages.csv").is(200);
        drop(left);
        until("the places are free again", || ann.get("/messages.csv").status == 200);
    }
    drop(ways);
    assert_eq!(bed.stored(), ["D1", "D2"], "nothing was sent past the bound of the queue");
    node.stop();
}

#[test]
fn going_back_shows_what_changes_and_counts_for_the_generation_that_was_seen() {
    let bed = bed();
    let node = bed.start();
    worker(&bed, "ann");
    user(&bed, "reader", &[("production-read", "node")]);
    fs::write(bed.path("production/transforms/t.hl7t"), "set MSH-5 = 'WARD'\n").expect("written");
    bed.run(&["reload", "--data"]).succeeds("");
    let mut reader = signed_in(&node, "reader");
    let page = reader.get("/changes?from=1&to=2").shows(200, "+set MSH-5 = 'WARD'");
    assert!(!page.body.contains("Back to it") && !page.body.contains("Load the folder"), "{}", page.body);
    reader.get("/changes/1/back").is(403);
    let own = token(&mut reader);
    reader.post("/changes/1/back", &[("token", &own), ("in_force", "2")]).is(403);
    // The form is whole: it is the right that is missing.
    let folder = "0".repeat(64);
    reader.post("/changes/load", &[("token", &own), ("in_force", "2"), ("folder", &folder)]).is(403);
    let mut ann = signed_in(&node, "ann");
    ann.get("/changes").shows(200, "in force");
    let page = ann.get("/changes/1/back").shows(200, "Load generation 1");
    let fields = [("token", page.field("token")), ("in_force", page.field("in_force"))];
    let fields = [("token", fields[0].1.as_str()), ("in_force", fields[1].1.as_str())];
    ann.post("/changes/1/back", &fields).shows(200, "It is generation 3 now");
    ann.post("/changes/1/back", &fields).shows(422, "another generation was put in force");
    ann.get("/changes?from=1&to=3").shows(200, "Both are the same");
    ann.get("/changes?from=1&to=99").shows(422, "no generation 99");
    ann.get("/changes?from=1&to=x").is(422);
    assert_eq!(audited(&bed, "production.back").iter().filter(|entry| entry["outcome"] == "granted").count(), 1);
    node.stop();
}

#[test]
fn an_edited_body_is_previewed_goes_out_once_and_needs_a_right_of_its_own() {
    let bed = bed();
    let node = bed.start();
    worker(&bed, "ann");
    user(&bed, "other", OPERATOR);
    node.send("C1");
    let mut ann = signed_in(&node, "ann");
    let id = ids(&mut ann)[0];
    let target = format!("/messages/{id}/edit");
    signed_in(&node, "other").get(&target).shows(403, "message-edit");
    let page = ann.get(&target).shows(200, "SAMPLE^ANN");
    let token = page.field("token");
    let text = "MSH|^~\\&|HIS|NORTH|LAB|X|20260101120000||ADT^A01|C1-edited|P|2.5\r\nPID|1||1||SAMPLE^<b>\r\n";
    let fields = [("token", token.as_str()), ("to", "out"), ("text", text)];
    let page = ann.post(&target, &fields).shows(200, "<ins>PID|1||1||SAMPLE^&lt;b&gt;</ins>");
    assert_eq!(bed.stored(), ["C1"], "a preview stores nothing");
    let key = page.field("key");
    let fields = [&fields[..], &[("key", key.as_str()), ("confirm", "yes")]].concat();
    let places: Vec<String> = (0..2).map(|_| location(&ann.post(&target, &fields).is(303))).collect();
    assert_eq!(places[0], places[1]);
    ann.get(&places[0]).shows(200, "Edited from");
    assert_eq!(bed.stored(), ["C1", "C1-edited"]);
    let wrong = [("token", token.as_str()), ("to", "nowhere"), ("text", text)];
    ann.post(&target, &wrong).shows(422, "choose an output");
    assert_eq!(audited(&bed, "message.edit").iter().filter(|entry| entry["outcome"] == "granted").count(), 1);
    node.stop();
}
