//! The control socket: resend, suspend, resume, and the answers to wrong requests.

use std::sync::Arc;

use device::{DeviceError, Durability, MemoryShelf, Shelf};
use interop::InteropError;
use interop::history::{Filter, OutputState};
use interop::running::{NodeStatus, RunningProduction};
use node::{Location, Locations, Media, MediumInUse, NodeError, control, status};
use store::Places;

use crate::receiver::{Accepting, Receiver};
use crate::rig::{Rig, Running, adt, until};

async fn refused(running: &Running, request: &str) -> String {
    match running.request(request).await {
        Err(error @ InteropError::Node(NodeError::NodeRefused(_))) => {
            let text = error.to_string();
            let reason = text.strip_prefix("the node answered: ").expect("it says who refused");
            assert!(!reason.contains("the node answered"), "once: {text}");
            reason.to_owned()
        }
        other => panic!("{request}: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_message_is_sent_again_by_hand_as_a_new_one() {
    let (mut one, two) = (Receiver::start().await, Accepting::start().await);
    let rig = Rig::new();
    rig.service("in", "[intake]\nduplicates = \"drop\"\n")
        .write("rules/main.rules", "match first\nrule all { send to one using t; send to two }\n")
        .write("transforms/t.hl7t", "set PID-5.2 = \"BOB\"\n")
        .operation("one", one.address, "")
        .operation("two", two.address, "");
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    one.next_is("1").await.answer("AE");
    running.until_outcomes(2).await;
    let (id, _) = running.stored().remove(0);
    let again = running.request(&format!("resend {id} one")).await.expect("it is stored").as_u64().expect("an id");
    let arrival = one.next_is("1").await;
    assert_eq!(arrival.body, adt("1").replace("^ANN", "^BOB").as_bytes(), "what was sent, not transformed anew");
    arrival.answer("AA");
    running.idle("one").await;
    assert_eq!(two.ids(), ["1"], "only where it was asked for");
    running.request(&format!("resend {again}")).await.expect("a resend can be resent");
    one.next_is("1").await.answer("AA");
    running.request(&format!("resend {id}")).await.expect("all of it");
    one.next_is("1").await.answer("AA");
    assert_eq!(two.received(2).await, ["1", "1"]);
    running.until_outcomes(6).await;
    let lines = rig.history().list(&Filter::default()).expect("it lists");
    let from: Vec<Option<u64>> = lines.iter().map(|line| line.resent_from).collect();
    assert_eq!(from, [None, Some(id), Some(again), Some(id)]);
    let counts = rig.history().count().expect("it counts");
    assert_eq!((counts.inbound, counts.resent, counts.delivered, counts.failed), (1, 3, 5, 1));
    for (state, count) in [(OutputState::Failed, 1), (OutputState::Waiting, 0), (OutputState::Delivered, 4)] {
        let found = rig.history().list(&Filter { output: Some(state), ..Filter::default() }).expect("it lists");
        assert_eq!(found.len(), count, "{state:?}: {found:?}");
    }
    running.stop().await;
    // A resend is no first sight of a message: the original is.
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    assert_eq!(running.status().duplicates, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_requests_are_answered_with_what_to_do() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write(
        "rules/main.rules",
        "match first\nrule a when MSH-9.2 = \"A01\" { send to out }\nrule b { drop \"no\" }\n",
    );
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("1")).await;
    sender.accepted(&adt("2").replace("A01", "A02")).await;
    let stored = running.stored();
    let (sent, dropped) = (stored[0].0, stored[1].0);
    let cases = [
        ("dance".to_owned(), "`dance` is not a request".to_owned()),
        ("resend".to_owned(), "`resend` is not a request".to_owned()),
        ("resend x".to_owned(), "`x` is not a message id".to_owned()),
        ("resend 1".to_owned(), "no message 1 is stored here; `terrace message list` shows what is".to_owned()),
        (format!("resend {}", sent + 8), format!("no message {} is stored here", sent + 8)),
        ("resend 18446744073709551615".to_owned(), "no message 18446744073709551615 is stored".to_owned()),
        (format!("resend {sent} in"), "no output of this message is called `in`; there are: out".to_owned()),
        (format!("resend {dropped} out"), "is called `out`; there are: none".to_owned()),
        (format!("resend {dropped}"), format!("message {dropped} went nowhere")),
        ("suspend in".to_owned(), "no operation is called `in`; there are: out".to_owned()),
        ("resume".to_owned(), "`resume` is not a request".to_owned()),
    ];
    for (request, expected) in cases {
        let answer = refused(&running, &request).await;
        assert!(answer.contains(&expected), "{request}: {answer}");
    }
    running.request("status").await.expect("it goes on");
    running.stop().await;
    let Err(NodeError::NoNode { .. }) = control::request(rig.data(), "status") else { panic!("nobody is there") };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_says_when_it_is_ready_and_stops_when_asked() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    assert!(status::read_ready::<NodeStatus>(rig.data()).is_none());
    let running = rig.start().await;
    let ready = status::read_ready::<NodeStatus>(rig.data()).expect("it is ready");
    assert_eq!(ready.services[0].at, running.address("in").to_string());
    assert_eq!(running.request("status").await.expect("it answers")["services"][0]["name"], "in");
    running.request("stop").await.expect("it answers");
    until("it is asked to stop", || running.node.stopping().borrow().then_some(())).await;
    running.stop().await;
    assert!(status::read_ready::<NodeStatus>(rig.data()).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_started_again_at_once_has_its_control_socket() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    for _ in 0..20 {
        let running = rig.start().await;
        running.request("status").await.expect("the socket is that of the node that runs");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_stops_the_start() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = holder.local_addr().expect("it is bound");
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write("services/more.toml", &format!("kind = \"mllp\"\nlisten = \"{taken}\"\n"));
    let Err(InteropError::Listen { service, .. }) = rig.try_start().await else { panic!("the port is taken") };
    assert_eq!(service, "more");
    drop(holder);
    rig.start().await.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_for_a_service_that_still_starts_is_answered_with_try_again() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.services_follow = true;
    let running = rig.start().await;
    let answer = refused(&running, "message-search {}").await;
    assert!(answer.contains("still starting: try again"), "{answer}");
    running.node.services_started();
    let answer = refused(&running, "message-search {}").await;
    assert!(answer.contains("is not a request"), "{answer}");
    running.stop().await;
}

/// A journal in memory has no lock that another process could see.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_on_a_data_directory_is_refused_wherever_its_journal_lies() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let memory = Location { tier: "dram".into(), kind: "memory".into(), folder: None };
    let memory = Locations { journal: memory.clone(), images: memory.clone(), data: memory };
    let open = || {
        let (tier, device) = ("dram".to_owned(), "memory".to_owned());
        let medium = MediumInUse { tier, device, durability: Durability::None, real: true };
        let shelf: Arc<dyn Shelf> = Arc::new(MemoryShelf::new());
        Ok((Places { journal: shelf.clone(), images: shelf.clone(), data: shelf }, Media::all(&medium)))
    };
    let first = RunningProduction::start_at(&memory, open, rig.options.clone()).await.expect("nobody runs there");
    for location in [&memory, &Locations::home()] {
        let refused =
            RunningProduction::start_at(location, open, rig.options.clone()).await.expect_err("one runs there");
        assert!(matches!(refused, InteropError::Device(DeviceError::Busy { .. })), "{refused}");
    }
    let data = rig.data().to_owned();
    let asked = tokio::task::spawn_blocking(move || control::request(&data, "status")).await.expect("no panic");
    assert!(asked.is_ok(), "the first still answers: {asked:?}");
    first.stop().await;
    drop(first);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_takes_long_says_how_far_it_has_come_and_ends_when_nobody_listens() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start_on_files().await;
    let mut sender = running.sender().await;
    for id in 0..20 {
        sender.accepted(&adt(&id.to_string())).await;
    }
    let data = rig.data().to_owned();
    let backup = data.join("backup of it");
    let send_request = |request: String| {
        let data = data.clone();
        tokio::task::spawn_blocking(move || {
            let mut told = Vec::new();
            let answer = control::request_with_progress(&data, &request, &mut |progress| told.push(progress));
            (answer, told)
        })
    };
    let (answer, told) = send_request("verify".to_owned()).await.expect("no panic");
    assert_eq!(answer.expect("it answers")["sound"], true);
    assert!(told.is_sorted_by_key(|progress| progress.done), "{told:?}");
    // A client that hangs up at once: the backup ends, and its folder can be used again.
    let request = format!("backup {}", serde_json::Value::from(backup.display().to_string()));
    let mut hasty = std::os::unix::net::UnixStream::connect(data.join("control.sock")).expect("it listens");
    std::io::Write::write_all(&mut hasty, format!("{request}\n").as_bytes()).expect("it reads");
    drop(hasty);
    // Unless the first was quicker than its end, and is whole.
    while !backup.join("backup").is_file() {
        if let Ok(made) = send_request(request.clone()).await.expect("no panic").0 {
            assert_eq!(made["folder"], backup.display().to_string());
        }
    }
    let refused = refused(&running, "backup nowhere").await;
    assert!(refused.contains("`nowhere` is no folder as a JSON text"), "{refused}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_the_list_goes_on_behind_the_one_before_also_when_messages_come_and_go() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start_with_bodies().await;
    let mut sender = running.sender().await;
    for number in 0..25 {
        sender.accepted(&adt(&format!("N{number:02}"))).await;
    }
    running.until_outcomes(25).await;
    for filter in
        ["{}", r#"{"service":"in"}"#, r#"{"output":"delivered"}"#, r#"{"kind":"ADT^A01"}"#, r#"{"since_us":1}"#]
    {
        let (mut seen, mut before) = (Vec::new(), "null".to_owned());
        for page in 0.. {
            let query = format!(r#"message-page {{"filter":{filter},"before":{before},"limit":10}}"#);
            let answer = running.request(&query).await.expect("a page");
            let lines = answer["lines"].as_array().expect("lines").clone();
            seen.extend(lines.iter().map(|line| line["control_id"].as_str().expect("a text").to_owned()));
            if answer["next"].is_null() {
                break;
            }
            assert!(page < 5 && lines.len() == 10, "{filter}: {answer}");
            before = answer["next"].to_string();
            // What comes in meanwhile is in front of all pages.
            sender.accepted(&adt("LATER")).await;
        }
        seen.retain(|id| id != "LATER");
        let expected: Vec<String> = (0..25).rev().map(|number| format!("N{number:02}")).collect();
        assert_eq!(seen, expected, "{filter}");
    }
    let none = running.request(r#"message-page {"filter":{"control_id":"nothing"}}"#).await.expect("a page");
    assert_eq!((none["lines"].as_array().map(Vec::len), &none["next"]), (Some(0), &serde_json::Value::Null));
    running.stop().await;
}
