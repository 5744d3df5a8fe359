//! Order of delivery: one strict line, or one a key; and back pressure, which loses nothing.

use crate::receiver::{Accepting, Arrival, Down, Receiver};
use crate::rig::{Rig, adt, keyed, until};
use crate::sender::Sender;

/// How many messages each load has: enough for several groups of commits.
const LOAD: usize = 200;

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_several_senders_are_delivered_in_the_order_of_the_journal() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut senders = tokio::task::JoinSet::new();
    for sender in 0..4 {
        let address = running.address("in");
        senders.spawn(async move {
            let mut socket = Sender::connect(address).await;
            for n in 0..LOAD / 4 {
                socket.accepted(&adt(&format!("{sender}-{n}"))).await;
            }
        });
    }
    senders.join_all().await;
    let ids = out.received(LOAD).await;
    let path = "MSH-10".parse().expect("a path");
    let stored: Vec<String> = running
        .stored()
        .iter()
        .map(|(_, stored)| hl7::Message::parse(&stored.raw).expect("a message").text(&path).into_owned())
        .collect();
    assert_eq!(ids, stored);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn order_holds_within_a_key_and_keys_go_in_parallel() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[order]\nkey = \"PID-3.1\"\nlanes = 4\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let keys = 8;
    for n in 0..LOAD {
        sender.accepted(&keyed(&format!("{}-{n}", n % keys), &format!("P{}", n % keys))).await;
    }
    // A slow receiver: it answers only when it has something from several lanes, and the last to come first.
    let mut open: Vec<Arrival> = vec![receiver.next().await, receiver.next().await];
    assert_ne!(open[0].connection, open[1].connection, "two keys at the same time");
    let mut seen: Vec<Vec<usize>> = vec![Vec::new(); keys];
    for _ in 0..LOAD {
        let arrival = match open.pop() {
            Some(arrival) => arrival,
            None => receiver.next().await,
        };
        let id = arrival.id();
        let (key, n) = id.split_once('-').expect("key and number");
        seen[key.parse::<usize>().expect("a number")].push(n.parse().expect("a number"));
        arrival.answer("AA");
        open.extend(receiver.at_hand());
    }
    for (key, numbers) in seen.iter().enumerate() {
        let expected: Vec<usize> = (0..LOAD).filter(|n| n % keys == key).collect();
        assert_eq!(*numbers, expected, "key {key}");
    }
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_cannot_go_on_does_not_stop_the_others() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[order]\nkey = \"PID-3.1\"\nlanes = 2\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&keyed("stuck", "P0")).await;
    let stuck = receiver.next_is("stuck").await;
    // Of sixteen other keys half are in the other lane, up to chance (2^-16 that none is).
    for n in 1..=16 {
        sender.accepted(&keyed(&format!("{n}"), &format!("P{n}"))).await;
    }
    let other = receiver.next().await;
    assert_ne!(other.connection, stuck.connection);
    other.answer("AA");
    stuck.answer("AA");
    receiver.accepting();
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_queue_makes_senders_wait_and_nothing_is_lost_or_refused() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    rig.operation("out", down.address, "[queue]\nmessages = 5\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for n in 0..5 {
        sender.accepted(&adt(&n.to_string())).await;
    }
    for n in 5..LOAD {
        sender.send(&adt(&n.to_string())).await;
    }
    let mut other = running.sender().await;
    other.send(&adt("other")).await;
    until("both are connected", || (running.status().connections == 2).then_some(())).await;
    assert!(sender.is_silent().await && other.is_silent().await);
    assert_eq!((running.waiting("out"), running.status().stored), (5, 5));
    let out = down.up().accepting();
    for n in 5..LOAD {
        assert_eq!(sender.answer().await.short(), format!("AA {n}"));
    }
    assert_eq!(other.answer().await.short(), "AA other");
    let mut ids = out.received(LOAD + 1).await;
    ids.retain(|id| id != "other");
    assert_eq!(ids, (0..LOAD).map(|n| n.to_string()).collect::<Vec<_>>());
    assert_eq!(running.status().refused, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_acknowledged_though_a_later_frame_of_the_same_write_waits_for_room() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    rig.operation("out", down.address, "[queue]\nmessages = 3\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let frames: Vec<u8> = (0..6).flat_map(|n| crate::sender::framed(&adt(&n.to_string()))).collect();
    sender.write(&frames).await;
    for n in 0..3 {
        assert_eq!(sender.answer().await.short(), format!("AA {n}"));
    }
    assert!(sender.is_silent().await);
    let out = down.up().accepting();
    for n in 3..6 {
        assert_eq!(sender.answer().await.short(), format!("AA {n}"));
    }
    assert_eq!(out.received(6).await.len(), 6);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_beyond_the_memory_bound_are_read_from_the_journal_byte_for_byte() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    rig.operation("out", down.address, "[queue]\nmemory = \"4KiB\"\n")
        .write("rules/main.rules", "match first\nrule all { send to out using t }\n")
        .write("transforms/t.hl7t", "set PID-5.2 = \"BOB\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let messages: Vec<String> =
        (0..40).map(|n| format!("{}NTE|1||{}\r", adt(&n.to_string()), "x".repeat(n * 50))).collect();
    for message in &messages {
        sender.accepted(message).await;
    }
    let held = running.status().operations[0].memory_bytes;
    assert!(held <= 4_096, "{held} bytes in memory");
    running.stop().await;
    // The same after a restart, when everything comes from the journal.
    let running = rig.start().await;
    assert!(running.status().operations[0].memory_bytes <= 4_096);
    let out = down.up().accepting();
    out.received(messages.len()).await;
    let expected: Vec<Vec<u8>> = messages.iter().map(|m| m.replace("^ANN", "^BOB").into_bytes()).collect();
    assert_eq!(out.bodies(), expected);
    running.idle("out").await;
    assert_eq!(running.status().operations[0].memory_bytes, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_gives_up_while_its_message_waits_for_room_has_it_taken_once_when_it_sends_again() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    rig.service("in", "[intake]\nduplicates = \"drop\"\n").operation("out", down.address, "[queue]\nmessages = 1\n");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("0")).await;
    until("it is closed", || (running.status().connections == 0).then_some(())).await;
    for _ in 0..3 {
        let mut gives_up = running.sender().await;
        gives_up.send(&adt("1")).await;
        until("it is connected", || (running.status().connections == 1).then_some(())).await;
        assert!(gives_up.is_silent().await);
        drop(gives_up);
        until("the node has noticed", || (running.status().connections == 0).then_some(())).await;
    }
    let mut again = running.sender().await;
    again.send(&adt("1")).await;
    let out = down.up().accepting();
    assert_eq!(again.answer().await.short(), "AA 1");
    assert_eq!(out.received(2).await, ["0", "1"]);
    running.idle("out").await;
    assert_eq!((out.ids().len(), running.status().duplicates), (2, 0));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_stops_while_senders_wait_for_room_and_their_messages_were_not_taken() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    rig.operation("out", down.address, "[queue]\nmessages = 1\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("0")).await;
    sender.send(&adt("1")).await;
    assert!(sender.is_silent().await);
    running.stop().await;
    assert_eq!(sender.answer_or_end().await, None);
    let running = rig.start().await;
    assert_eq!((running.waiting("out"), running.stored().len()), (1, 1));
    running.stop().await;
}
