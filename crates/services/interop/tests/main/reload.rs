//! Another production in force without a restart: whole or not at all, and no connection or message is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::sync::Arc;

use interop::InteropError;
use interop::duplicates::Window;
use interop::engine::Plan;
use interop::production::Production;
use interop::rows::Reader;
use interop::running::{ImportMessage, ImportRequest};
use interop::{record, recovery};
use node::NodeError;

use crate::receiver::{Accepting, Down, Receiver};
use crate::rig::{ALL_TO_OUT, Rig, Running, adt, until};
use crate::rows;
use crate::sender::{Sender, framed};
use crate::transfer::import;

async fn reload(running: &Running) -> Vec<String> {
    let changes = running.request("reload").await.expect("the production is right");
    serde_json::from_value(changes).expect("a list of texts")
}

/// A port that was free just now, at an address where no other test takes ports.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.3:0").and_then(|socket| socket.local_addr()).expect("a free port").port()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_gets_the_new_rules_with_its_next_message() {
    let (one, two) = (Accepting::start().await, Accepting::start().await);
    let rig = Rig::to(one.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("1")).await;
    rig.operation("two", two.address, "").write("rules/main.rules", "match first\nrule all { send to two }\n");
    let generation = "this is generation 2; `terrace production diff 1 2` shows it";
    assert_eq!(reload(&running).await, ["operation two came", "rules/main.rules changed", generation]);
    sender.accepted(&adt("2")).await;
    rig.service("in", "[intake]\ntypes = [\"ORU\"]\n");
    reload(&running).await;
    assert_eq!(sender.exchange(&adt("3")).await.short(), "AR 3");
    assert_eq!((one.received(1).await, two.received(1).await), (vec!["1".to_owned()], vec!["2".to_owned()]));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_connection_has_the_limits_of_the_settings_in_force() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let long = |id: &str| format!("{}NTE|1||{}\r", adt(id), "x".repeat(9_000));
    let both = ["1", "2", "3"].map(long);
    for (bound, code, message) in [("8 KiB", "AR", &both[0]), ("16 KiB", "AA", &both[1]), ("8 KiB", "AR", &both[2])] {
        rig.service("in", &format!("[intake]\nmessage_bytes = \"{bound}\"\n"));
        reload(&running).await;
        assert_eq!(sender.exchange(message).await.at("MSA-1"), code, "{bound}");
    }
    sender.accepted(&adt("4")).await;
    rig.service("in", "require_final_cr = true\n");
    reload(&running).await;
    // An end without its CR ends no frame now: what comes then is of the same one.
    sender.write(format!("\x0b{}\x1cNTE|1\r\x1c\r", adt("5")).as_bytes()).await;
    assert_eq!(sender.answer().await.short(), "AA 5");
    assert_eq!(running.stored().len(), 3);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_production_and_a_port_in_use_leave_the_old_one_in_force_whole() {
    let (one, two) = (Accepting::start().await, Accepting::start().await);
    let rig = Rig::to(one.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    rig.operation("two", two.address, "").write("rules/main.rules", "match first\nrule all { send to thre }\n");
    let Err(InteropError::Node(NodeError::NodeRefused(problem))) = running.request("reload").await else {
        panic!("it is wrong")
    };
    assert!(problem.contains("rules/main.rules:2:"), "{problem}");
    sender.accepted(&adt("1")).await;
    // Right, except for a port that is in use.
    let holder = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = holder.local_addr().expect("it is bound");
    rig.write("rules/main.rules", "match first\nrule all { send to two }\n")
        .write("services/more.toml", &format!("kind = \"mllp\"\nlisten = \"{taken}\"\n"))
        .service("another", "");
    let Err(InteropError::Node(NodeError::NodeRefused(problem))) = running.request("reload").await else {
        panic!("the port is taken")
    };
    assert!(problem.contains("service more: cannot listen on"), "{problem}");
    assert_eq!(running.status().services.len(), 1);
    assert_eq!(running.status().operations.len(), 1);
    sender.accepted(&adt("2")).await;
    assert_eq!(one.received(2).await, ["1", "2"]);
    rig.write("services/more.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\n");
    reload(&running).await;
    sender.accepted(&adt("3")).await;
    assert_eq!(two.received(1).await, ["3"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_come_move_and_go() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let (first, second) = (free_port(), free_port());
    let listen = |port: u16| format!("kind = \"mllp\"\nlisten = \"127.0.0.3:{port}\"\nrules = \"main\"\n");
    rig.write("services/moves.toml", &listen(first));
    let running = rig.start().await;
    let mut stays = running.sender().await;
    stays.accepted(&adt("1")).await;
    let mut moves = Sender::connect(running.address("moves")).await;
    moves.accepted(&adt("2")).await;
    rig.write("services/moves.toml", &listen(second)).service("comes", "");
    let mut changes = reload(&running).await;
    changes.sort();
    assert_eq!(
        changes[..3],
        ["service comes listens anew", "service moves listens anew", "services/moves.toml changed"]
    );
    assert_eq!(moves.answer_or_end().await, None, "the old socket's connections end");
    assert_eq!(running.address("moves").port(), second);
    Sender::connect(running.address("moves")).await.accepted(&adt("3")).await;
    let mut comes = Sender::connect(running.address("comes")).await;
    comes.accepted(&adt("4")).await;
    let gone = running.address("comes");
    rig.remove("services/comes.toml");
    assert_eq!(reload(&running).await[..1], ["service comes went"]);
    assert_eq!(comes.answer_or_end().await, None);
    until("nobody listens there", || std::net::TcpStream::connect(gone).is_err().then_some(())).await;
    stays.accepted(&adt("5")).await;
    assert_eq!(out.received(5).await, ["1", "2", "3", "4", "5"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_that_went_sends_what_it_has_and_one_that_comes_back_goes_on_in_order() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for id in ["1", "2"] {
        sender.accepted(&adt(id)).await;
    }
    let operation = std::fs::read_to_string(rig.folder().join("operations/out.toml")).expect("it is there");
    rig.remove("operations/out.toml").write("rules/main.rules", "match first\nrule all { drop \"no\" }\n");
    assert_eq!(reload(&running).await[0], "operation out went (2 messages still go out)");
    sender.accepted(&adt("dropped")).await;
    assert_eq!(running.waiting("out"), 2);
    // Back before it was empty, and gone and back once more.
    for _ in 0..2 {
        rig.write("operations/out.toml", &operation).write("rules/main.rules", ALL_TO_OUT);
        reload(&running).await;
        sender.accepted(&adt("3")).await;
        rig.remove("operations/out.toml").write("rules/main.rules", "match first\nrule all { drop \"no\" }\n");
        reload(&running).await;
    }
    let mut receiver = down.up();
    for id in ["1", "2", "3", "3"] {
        let arrival = receiver.next_is(id).await;
        // Another reload wakes the lane that pauses between two tries; no other task serves this queue.
        reload(&running).await;
        sender.accepted(&adt("dropped")).await;
        arrival.answer("AA");
    }
    running.until_outcomes(4).await;
    // Gone and empty: its connection is closed, and it works when it is back.
    receiver.closed(0).await;
    rig.write("operations/out.toml", &operation).write("rules/main.rules", ALL_TO_OUT);
    reload(&running).await;
    sender.accepted(&adt("4")).await;
    receiver.next_is("4").await.answer("AA");
    running.idle("out").await;
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0], "each once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_for_room_while_its_operation_goes_is_delivered_all_the_same() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[queue]\nmessages = 1\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    // The acknowledgement of the first shows that the second has been read and waits.
    sender.write(&[framed(&adt("1")), framed(&adt("2"))].concat()).await;
    assert_eq!(sender.answer().await.short(), "AA 1");
    let first = receiver.next_is("1").await;
    rig.remove("operations/out.toml").write("rules/main.rules", "match first\nrule all { drop \"no\" }\n");
    reload(&running).await;
    first.answer("AA");
    receiver.next_is("2").await.answer("AA");
    assert_eq!(sender.answer().await.short(), "AA 2");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_being_taken_while_operations_come_and_go_reaches_the_one_that_its_rules_name() {
    for (way, comes) in ["file", "batch", "import"].into_iter().flat_map(|way| [(way, true), (way, false)]) {
        let (mut lab, mut archive) = (Receiver::start().await, Receiver::start().await);
        let rig = Rig::new();
        rig.service("in", "")
            .write(
                "services/files.toml",
                "kind = \"file\"\nfolder = \"inbox\"\nrules = \"main\"\nevery = \"2ms\"\nsettle = \"0ms\"\n",
            )
            .write("rules/main.rules", "match first\nrule all { send to lab using lab }\n")
            .write("transforms/lab.hl7t", "set MSH-6 = \"LAB\"\n")
            .operation("lab", lab.address, "[queue]\nmessages = 1\n");
        // They are before the others in order of name.
        let changes = |comes: bool| {
            if comes {
                rig.operation("archive", archive.address, "").write("transforms/archive.hl7t", "set MSH-6 = \"NO\"\n")
            } else {
                rig.remove("operations/archive.toml").remove("transforms/archive.hl7t")
            }
        };
        if !comes {
            changes(true);
        }
        let running = rig.start().await;
        let mut sender = running.sender().await;
        let give = async {
            let message = |number: u64| {
                let message = ImportMessage { number, source: "file-x".to_owned(), ..ImportMessage::default() };
                message.with_body(adt(&number.to_string()).as_bytes())
            };
            let all = ["1", "2", "3"].map(adt).concat();
            match way {
                "file" => {
                    rig.write("inbox/part", &all);
                    let inbox = rig.folder().join("inbox");
                    std::fs::rename(inbox.join("part"), inbox.join("three.hl7")).expect("it moves");
                }
                "batch" => sender.send(&all).await,
                _ => {
                    let messages = (1..=3).map(message).collect();
                    let request = ImportRequest { service: "in".to_owned(), messages, ..ImportRequest::default() };
                    let page = import(&running, &request).await.expect("a page");
                    assert_eq!((page.results.len(), page.stopped), (3, None));
                }
            }
        };
        let take = async {
            // The second waits for room, and the third is behind it.
            let first = lab.next_is("1").await;
            changes(comes);
            reload(&running).await;
            first.answer("AA");
            for id in ["2", "3"] {
                let arrival = lab.next_is(id).await;
                assert!(arrival.body.windows(5).any(|bytes| bytes == b"|LAB|"), "{way}: by its own transform");
                arrival.answer("AA");
            }
        };
        tokio::join!(give, take);
        running.idle("lab").await;
        running.stop().await;
        assert_eq!((lab.rest().await, archive.rest().await), (vec![], vec![]), "{way}, {comes}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_for_an_operation_that_the_production_lost_and_go_out_first_when_it_is_back() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    let running = rig.start().await;
    for id in ["1", "2"] {
        running.sender().await.accepted(&adt(id)).await;
    }
    running.stop().await;
    let operation = std::fs::read_to_string(rig.folder().join("operations/out.toml")).expect("it is there");
    rig.remove("operations/out.toml").write("rules/main.rules", "match first\nrule all { drop \"no\" }\n");
    // Twice, since a restart must not forget them either.
    for _ in 0..2 {
        let running = rig.start().await;
        assert_eq!(running.status().homeless.get("out"), Some(&2));
        running.stop().await;
    }
    let running = rig.start().await;
    rig.write("operations/out.toml", &operation).write("rules/main.rules", ALL_TO_OUT);
    reload(&running).await;
    assert!(running.status().homeless.is_empty());
    running.sender().await.accepted(&adt("3")).await;
    let out = down.up().accepting();
    assert_eq!(out.received(3).await, ["1", "2", "3"]);
    running.idle("out").await;
    running.stop().await;
    let running = rig.start().await;
    assert_eq!((running.waiting("out"), running.status().homeless.len()), (0, 0));
    running.stop().await;
}

#[test]
fn what_waits_and_cannot_be_read_is_found_before_a_reload_changes_anything() {
    let store = rows::store();
    let message = |n: i64| rows::append(&store, record::KIND_MESSAGE, &rows::message(&format!("C{n}"), "7", n)).0;
    let ids = [1, 2, 3].map(message);
    // Each has outputs 0 and 2 to `one`, and output 1 to `two`, which the production does not have.
    let rig = Rig::new();
    rig.service("in", "").write("rules/main.rules", "match first\nrule all { drop \"no\" }\n").operation(
        "one",
        Down::new().address,
        "",
    );
    let production = Arc::new(Production::load(&rig.folder()).unwrap_or_else(|error| panic!("{error}")));
    let reader = Reader::new(&store);
    let mut found = recovery::read(&reader, &mut Window::new(8), 8).expect("it reads");
    let queues = production.operations.iter().map(|operation| found.queue(operation)).collect();
    let plan = Plan { queues, production: Arc::clone(&production) };
    let lost = ids[2] + 1_000;
    found.waiting.insert(lost, BTreeSet::from([0]));
    let before = found.waiting.clone();
    let refused = recovery::read_homeless(&reader, &production, &found).expect_err("one is not there").to_string();
    assert!(refused.contains(&lost.to_string()), "{refused}");
    assert_eq!((&found.waiting, plan.queues[0].depth()), (&before, 0), "nothing has changed");
    found.waiting.remove(&lost);
    let homeless = recovery::read_homeless(&reader, &production, &found).expect("it reads");
    assert_eq!(recovery::adopt(homeless, &plan, &mut found), 6);
    let queued: Vec<(u64, u16)> = plan.queues[0].lanes()[0].first(9).into_iter().map(|(id, n, _)| (id, n)).collect();
    assert_eq!(queued, ids.into_iter().flat_map(|id| [(id, 0), (id, 2)]).collect::<Vec<_>>(), "oldest first");
    assert_eq!(found.waiting, ids.into_iter().map(|id| (id, BTreeSet::from([1]))).collect());
    assert_eq!(found.homeless, BTreeMap::from([("two".to_owned(), 3)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_is_kept_while_the_operation_is_not_in_the_production() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    let running = rig.start().await;
    running.request("suspend out").await.expect("it is there");
    running.sender().await.accepted(&adt("1")).await;
    running.stop().await;
    let operation = std::fs::read_to_string(rig.folder().join("operations/out.toml")).expect("it is there");
    rig.remove("operations/out.toml").write("rules/main.rules", "match first\nrule all { drop \"no\" }\n");
    let running = rig.start().await;
    rig.write("operations/out.toml", &operation).write("rules/main.rules", ALL_TO_OUT);
    reload(&running).await;
    assert!(running.is_suspended("out"));
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
    let running = rig.start().await;
    running.request("resume out").await.expect("it is there");
    receiver.next_is("1").await.answer("AA");
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}
