//! Stored messages are decided on anew, and edited ones are sent: linked both ways, under a key never twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::MemoryShelf;
use interop::history::Filter;
use interop::record::{Derivation, Status};
use interop::rows::check;
use interop::running::{EditedRequest, ReprocessOutcome, ReprocessPage};
use node::identity::Caller;
use serde_json::json;

use crate::receiver::{Accepting, Down, Receiver};
use crate::rig::{Rig, Running, adt, until};
use crate::shelves::HeldShelf;

/// A transform that fails on every message, and one that does not.
const FAILS: &str = "fail \"not this one\"\n";
const WORKS: &str = "set PID-5.2 = \"BOB\"\n";

async fn reprocess(running: &Running, request: serde_json::Value) -> Result<ReprocessPage, String> {
    let answer = running.request(&format!("reprocess {request}")).await.map_err(|error| error.to_string())?;
    Ok(serde_json::from_value(answer).expect("it is one"))
}

/// How many had which outcome.
fn counts(page: &ReprocessPage) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for result in &page.results {
        *counts.entry(result.outcome.name()).or_default() += 1;
    }
    counts
}

/// A node whose transform fails; the rules send all to `out` through it.
fn rig(out: std::net::SocketAddr) -> Rig {
    let rig = Rig::to(out);
    rig.write("rules/main.rules", "match first\nrule all { send to out using t }\n").write("transforms/t.hl7t", FAILS);
    rig
}

#[tokio::test(flavor = "multi_thread")]
async fn errored_messages_go_out_once_the_production_is_right_linked_both_ways_and_never_twice_under_a_key() {
    let out = Accepting::start().await;
    let rig = rig(out.address);
    let running = rig.start_on_files().await;
    let mut sender = running.sender().await;
    for n in 0..3 {
        assert_eq!(sender.exchange(&adt(&n.to_string())).await.at("MSA-1"), "AE");
    }
    let ids = running.ids();
    let search = |key: Option<&str>, preview: bool| json!({ "search": { "status": "errored", "service": "in" }, "key": key, "preview": preview });
    // Still wrong: nothing is stored.
    let page = reprocess(&running, search(Some("a"), false)).await.expect("it is a request");
    assert_eq!((counts(&page), page.next), ([("errored", 3)].into(), None));
    assert!(page.results[0].reason.contains("not this one"), "{page:?}");
    assert_eq!(running.ids(), ids);
    rig.write("transforms/t.hl7t", WORKS);
    running.request("reload").await.expect("it is right");
    let page = reprocess(&running, search(None, true)).await.expect("it is a request");
    assert_eq!(counts(&page), [("routed", 3)].into());
    assert!(page.results.iter().all(|result| result.operations == ["out"] && result.new.is_none()), "{page:?}");
    assert_eq!((running.ids(), out.ids().len()), (ids.clone(), 0), "a preview does nothing");
    let page = reprocess(&running, search(Some("a"), false)).await.expect("it is a request");
    assert_eq!(counts(&page), [("routed", 3)].into());
    let made: Vec<u64> = page.results.iter().map(|result| result.new.expect("it was made")).collect();
    assert_eq!(out.received(3).await, ["0", "1", "2"], "in their order");
    assert!(String::from_utf8_lossy(&out.bodies()[0]).contains("BOB"), "by the loaded production");
    // The same key: the first results. Another key or none: a search leaves them out.
    for _ in 0..2 {
        let again = reprocess(&running, search(Some("a"), false)).await.expect("it is a request");
        assert_eq!(counts(&again), [("again", 3)].into());
        assert_eq!(again.results.iter().filter_map(|result| result.new).collect::<Vec<_>>(), made);
    }
    for key in [Some("b"), None] {
        let page = reprocess(&running, search(key, false)).await.expect("it is a request");
        assert_eq!(counts(&page), [("already", 3)].into());
    }
    let trace = rig.history().outline(ids[0]).expect("it is there");
    assert_eq!((trace.derived[0].id, trace.derived[0].how), (made[0], Derivation::Reprocessed));
    let origin = rig.history().outline(made[0]).expect("it is there").stored.origin.expect("it has one");
    assert_eq!((origin.id, origin.derivation, origin.key.as_str()), (ids[0], Derivation::Reprocessed, "a"));
    let line = &rig.history().list(&Filter { last: 1, ..Filter::default() }).expect("it lists")[0];
    assert_eq!((line.reprocessed_from, line.resent_from), (Some(ids[2]), None));
    running.idle("out").await;
    running.stop().await;
    // Also across a restart; and by its id a message goes again, if that is wanted.
    let running = rig.start_on_files().await;
    let again = reprocess(&running, json!({ "ids": ids, "key": "a" })).await.expect("it is a request");
    assert_eq!(counts(&again), [("again", 3)].into());
    let page = reprocess(&running, json!({ "ids": [ids[1]] })).await.expect("it is a request");
    assert_eq!(counts(&page), [("routed", 1)].into());
    assert_eq!(out.received(4).await.len(), 4);
    assert_eq!(check::check(&running.reader()).expect("it reads").wrong, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_previewed_by_one_generation_is_not_done_by_another() {
    let out = Accepting::start().await;
    let rig = rig(out.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for n in 0..2 {
        sender.exchange(&adt(&n.to_string())).await;
    }
    let ids = running.ids();
    rig.write("transforms/t.hl7t", WORKS);
    running.request("reload").await.expect("it is right");
    let by = |generation: Option<u32>, preview: bool| json!({ "search": { "status": "errored" }, "key": "k", "generation": generation, "preview": preview });
    let one = |generation: u32| json!({ "ids": [ids[0]], "generation": generation });
    let seen = reprocess(&running, by(None, true)).await.expect("it is a request");
    assert_eq!((counts(&seen), seen.generation), ([("routed", 2)].into(), 2));
    rig.write("rules/main.rules", "match first\nrule all { send to out }\n");
    running.request("reload").await.expect("it is right");
    for request in [by(Some(2), false), by(Some(2), true), one(2), one(4)] {
        let refused = reprocess(&running, request.clone()).await.expect_err("another one is in force");
        assert!(refused.contains("generation 3 of the production is in force"), "{request} {refused}");
    }
    assert_eq!((running.ids(), out.ids().len()), (ids.clone(), 0), "nothing is done");
    let page = reprocess(&running, by(Some(3), false)).await.expect("it is a request");
    assert_eq!((counts(&page), page.generation), ([("routed", 2)].into(), 3));
    assert_eq!(out.received(2).await, ["0", "1"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_used_by_many_at_the_same_time_makes_each_message_once() {
    let out = Accepting::start().await;
    let rig = rig(out.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for n in 0..20 {
        sender.exchange(&adt(&n.to_string())).await;
    }
    rig.write("transforms/t.hl7t", WORKS);
    running.request("reload").await.expect("it is right");
    let request = json!({ "search": { "status": "errored" }, "key": "k" });
    let one = || reprocess(&running, request.clone());
    let pages = tokio::join!(one(), one(), one(), one());
    let mut made = std::collections::BTreeSet::new();
    for page in [pages.0, pages.1, pages.2, pages.3] {
        made.extend(page.expect("it is a request").results.iter().map(|result| result.new.expect("it was made")));
    }
    assert_eq!(made.len(), 20);
    running.idle("out").await;
    assert_eq!(out.received(20).await.len(), 20);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_goes_page_by_page_and_a_full_queue_ends_a_page_with_the_reason() {
    let down = Down::new();
    let rig = rig(down.address);
    rig.operation("out", down.address, "[queue]\nmessages = 130\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for n in 0..150 {
        sender.exchange(&adt(&n.to_string())).await;
    }
    rig.write("transforms/t.hl7t", WORKS);
    running.request("reload").await.expect("it is right");
    let search = |after: u64, limit: usize| json!({ "search": { "status": "errored" }, "after": after, "limit": limit, "key": "k" });
    let few = reprocess(&running, search(0, 7)).await.expect("it is a request");
    assert_eq!((few.results.len(), few.next), (7, few.results.last().map(|result| result.id)));
    let page = reprocess(&running, search(few.next.expect("there are more"), 0)).await.expect("it is a request");
    assert_eq!((counts(&page), page.stopped), ([("routed", 100)].into(), None));
    let page = reprocess(&running, search(page.next.expect("there are more"), 0)).await.expect("it is a request");
    assert_eq!(counts(&page), [("routed", 23)].into());
    assert!(page.stopped.as_ref().is_some_and(|why| why.contains("operation out")), "{page:?}");
    let refused = reprocess(&running, search(page.next.expect("there are more"), 0)).await.expect_err("it is full");
    assert!(refused.contains("as many messages wait in operation out"), "{refused}");
    let out = down.up().accepting();
    out.received(130).await;
    let mut after = 0;
    let mut all = BTreeMap::new();
    loop {
        let page = reprocess(&running, search(after, 0)).await.expect("it is a request");
        counts(&page).into_iter().for_each(|(name, n)| *all.entry(name).or_insert(0) += n);
        match page.next {
            Some(next) => after = next,
            None => break,
        }
    }
    assert_eq!(all, [("again", 130), ("routed", 20)].into());
    assert_eq!(
        out.received(150).await,
        (0..150).map(|n| n.to_string()).collect::<Vec<_>>(),
        "in their order, each once"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_nothing_new_comes_nothing_is_stored_and_the_reason_is_told() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write(
        "rules/main.rules",
        "match first\nrule a when MSH-9.2 = \"A01\" { send to out }\nrule b when MSH-9.2 = \"A03\" { drop \"no\" }\n",
    );
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for (id, event) in [("1", "A01"), ("2", "A02"), ("3", "A03")] {
        sender.accepted(&adt(id).replace("A01", event)).await;
    }
    let ids = running.ids();
    let page = reprocess(&running, json!({ "ids": [ids[1], ids[2], ids[0] + 1] })).await.expect("it is a request");
    let outcomes: Vec<ReprocessOutcome> = page.results.iter().map(|result| result.outcome).collect();
    let expected = [ReprocessOutcome::Refused, ReprocessOutcome::Unmatched, ReprocessOutcome::Dropped];
    assert_eq!(outcomes, expected, "{page:?}");
    assert!(page.results[0].reason.contains("no message"), "{page:?}");
    assert_eq!(running.ids(), ids);
    // A rule takes it now, another drops it, and its service went.
    rig.write(
        "rules/main.rules",
        "match first\nrule a when MSH-9.2 = \"A02\" { drop \"it is right so\" }\nrule all { send to out }\n",
    );
    running.request("reload").await.expect("it is right");
    let page = reprocess(&running, json!({ "ids": [ids[1], ids[2]] })).await.expect("it is a request");
    assert_eq!(counts(&page), [("dropped", 1), ("routed", 1)].into());
    let made = page.results[0].new.expect("it is dropped now, which is new");
    assert_eq!(running.reader().message(made).expect("it is there").status, Status::Dropped);
    assert_eq!(out.received(2).await, ["1", "3"]);
    rig.remove("services/in.toml").service("other", "");
    running.request("reload").await.expect("it is right");
    let page = reprocess(&running, json!({ "ids": [ids[1]] })).await.expect("it is a request");
    assert!(page.results[0].reason.contains("has no service in"), "{page:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_body_goes_out_as_it_is_linked_to_the_message_that_it_replaces() {
    let (one, two) = (Accepting::start().await, Accepting::start().await);
    let rig = Rig::new();
    rig.service("in", "")
        .write("rules/main.rules", "match first\nrule all { send to one using t; send to two }\n")
        .write("transforms/t.hl7t", WORKS)
        .operation("one", one.address, "")
        .operation("two", two.address, "");
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let edited = adt("1").replace("SAMPLE^ANN", "M\u{fc}ller^EVA");
    let request = |to: &[&str], body: &str| {
        let to = to.iter().map(ToString::to_string).collect();
        format!("resend-edited {}", json!(EditedRequest::new(id, to, body.as_bytes())))
    };
    let refused = running.request(&request(&["one"], &edited)).await.expect_err("bodies are not readable").to_string();
    assert!(refused.contains("message-body"), "{refused}");
    running.grant_bodies().await;
    for (to, body, expected) in [
        (&[][..], edited.as_str(), "went to several operations: choose with --to: one, two"),
        (&["three"], &edited, "is called `three`; there are: one, two"),
        (&["one"], "", "cannot be sent"),
        (&["one"], "PID|1\r", "cannot be sent"),
        (&["one"], "MSH|^~\\&|A|B|||1||ADT^A01||P|2.5\r", "no control id, MSH-10"),
        (&["one"], "MSH|^~\\&|A|B|||1|||1|P|2.5\r", "no message type, MSH-9.1"),
        (&["one"], &format!("{edited}{edited}"), "not one message"),
    ] {
        let refused = running.request(&request(to, body)).await.expect_err(expected).to_string();
        assert!(refused.contains(expected) && !refused.contains("EVA"), "{body:?}: {refused}");
    }
    let plain = format!("messages {{\"service\":\"{}\"}}", "x".repeat(70_000));
    let refused = running.request(&plain).await.expect_err("it has no body").to_string();
    assert!(refused.contains("65536 bytes at most"), "{refused}");
    let edited = format!("{edited}OBX|1|ED|PDF||^^^Base64^{}\r", "QUJD".repeat(100_000));
    let made = running.request(&request(&["one"], &edited)).await.expect("it is right").as_u64().expect("an id");
    assert_eq!(one.received(2).await, ["1", "1"]);
    assert_eq!(one.bodies()[1], edited.as_bytes(), "no transform has seen it");
    running.idle("one").await;
    assert_eq!(two.ids(), ["1"], "only where it was asked for");
    let stored = running.reader().message(made).expect("it is there");
    assert_eq!((&stored.raw[..], stored.reason.starts_with("edited by ")), (edited.as_bytes(), true));
    let origin = stored.origin.expect("it has one");
    assert_eq!((origin.id, origin.derivation), (id, Derivation::Edited));
    let derived = rig.history().outline(id).expect("it is there").derived;
    assert_eq!((derived[0].id, derived[0].how), (made, Derivation::Edited));
    assert_eq!(check::check(&running.reader()).expect("it reads").wrong, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_request_made_that_was_given_up_before_it_was_durable_is_seen_by_the_next_one_of_its_key() {
    let mut receiver = Receiver::start().await;
    let shelf = Arc::new(HeldShelf::new(Arc::new(MemoryShelf::new())));
    let rig = Rig::on(shelf.clone());
    rig.usual(receiver.address).operation("out", receiver.address, "[queue]\nmessages = 2\n");
    rig.write("rules/main.rules", "match first\nrule all { send to out using t }\n").write("transforms/t.hl7t", FAILS);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for id in ["1", "2"] {
        assert_eq!(sender.exchange(&adt(id)).await.at("MSA-1"), "AE");
    }
    let ids = running.ids();
    rig.write("transforms/t.hl7t", WORKS);
    running.request("reload").await.expect("it is right");
    // It has one of two places in the queue.
    sender.accepted(&adt("x")).await;
    let x = receiver.next_is("x").await;
    let line = format!("reprocess {}", json!({ "ids": ids, "key": "k" }));
    let ask = || {
        let (node, line) = (Arc::clone(&running.node), line.clone());
        tokio::spawn(async move { node.request_of(&Caller::node(), "console", &line).await })
    };
    let stored = |count| (running.node.engine().counters.stored.load(Ordering::Relaxed) == count).then_some(());
    // One waits with its second message for room, the other one for its turn.
    let first = ask();
    until("its first message is stored", || stored(4)).await;
    let other = ask();
    for deadline in 0.. {
        let audit = running.request("audit {\"verb\":\"read\",\"query\":{}}").await.expect("entries").to_string();
        if audit.matches("message.reprocess").count() >= 2 {
            break;
        }
        assert!(deadline < 1_000, "the other one does not come: {audit}");
    }
    shelf.hold();
    x.answer("AA");
    let one = receiver.next_is("1").await;
    until("its second message is on the way to the medium", || stored(5)).await;
    one.answer("AA");
    first.abort();
    assert!(first.await.is_err_and(|ended| ended.is_cancelled()));
    // Long enough to decide on it anew, which must not be.
    tokio::time::sleep(Duration::from_millis(200)).await;
    shelf.release();
    let page = other.await.expect("it does not panic").expect("it is a request");
    let page: ReprocessPage = serde_json::from_value(page).expect("it is one");
    assert_eq!(counts(&page), [("again", 2)].into());
    receiver.next_is("2").await.answer("AA");
    running.idle("out").await;
    assert_eq!(running.ids().len(), 5);
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0], "each once");
}
