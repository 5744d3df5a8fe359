//! Acknowledged only when durable, and what a journal that fails or fills up leaves.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::faulty::{Fault, Rule};
use device::{FaultyShelf, MemoryShelf, Operation};
use interop::running::OnFull;
use journal::Preparation;
use node::trouble::Matter;

use crate::receiver::{Accepting, Down};
use crate::rig::{Rig, adt, until};
use crate::shelves::HeldShelf;

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledgement_and_no_delivery_comes_before_the_flush() {
    let out = Accepting::start().await;
    let shelf = Arc::new(HeldShelf::new(Arc::new(MemoryShelf::new())));
    let rig = Rig::on(shelf.clone());
    let running = rig.usual(out.address).start().await;
    let mut sender = running.sender().await;
    for id in ["1", "2", "3"] {
        shelf.hold();
        sender.send(&adt(id)).await;
        until("the flush is held up", || (shelf.waiting() > 0).then_some(())).await;
        assert!(sender.is_silent().await, "acknowledged before it was durable");
        assert!(!out.ids().contains(&id.to_owned()), "delivered before it was durable");
        shelf.release();
        assert_eq!(sender.answer().await.short(), format!("AA {id}"));
    }
    assert_eq!(out.received(3).await, ["1", "2", "3"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_failed_flush_senders_are_refused_with_the_reason_the_node_can_be_read_and_a_restart_recovers() {
    let out = Down::new();
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let rig = Rig::on(shelf.clone());
    rig.usual(out.address).service("in", "[intake]\nduplicates = \"drop\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("before")).await;
    assert_eq!(running.ids().len(), 1, "it is visible");
    shelf.inject(Rule::from(Operation::Flush, 1, Fault::Eio));
    let answer = sender.exchange(&adt("lost")).await;
    assert_eq!((answer.short(), answer.at("ERR-3.1")), ("AR lost".to_owned(), "207".to_owned()));
    let why = until("the node has failed", || running.node.failed().borrow().clone()).await;
    assert!(why.contains("Input/output error"), "{why}");
    for id in ["later", "lost", "before"] {
        // The same connection, and others.
        let mut again = running.sender().await;
        for sender in [&mut sender, &mut again] {
            let answer = sender.exchange(&adt(id)).await;
            assert_eq!(answer.short(), format!("AR {id}"), "a node that stores nothing acknowledges nothing");
            assert!(answer.at("MSA-3").contains("nothing is stored any more"), "{answer:?}");
        }
    }
    let enhanced = adt("enhanced").replace("|2.5\r", "|2.5|||AL|NE\r");
    assert_eq!(sender.exchange(&enhanced).await.short(), "CR enhanced");
    let status = running.request("status").await.expect("it answers");
    assert_eq!(status["journal_failed"].as_str(), Some(&*why));
    assert_eq!(status["troubles"][0]["matter"], "failed");
    assert!(status["troubles"][0]["next"].as_str().expect("a text").contains("terrace serve"), "{status}");
    let listed = running.request("count").await.expect("what is stored can be read");
    assert!(listed.to_string().contains('1'), "{listed}");
    shelf.heal();
    running.stop().await;
    let running = rig.start().await;
    let out = out.up().accepting();
    let mut sender = running.sender().await;
    sender.accepted(&adt("before")).await;
    sender.accepted(&adt("lost")).await;
    sender.accepted(&adt("after")).await;
    assert_eq!(out.received(3).await, ["before", "lost", "after"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_senders_are_told_deliveries_go_on_and_messages_are_taken_again_when_there_is_room() {
    let out = Down::new();
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let mut rig = Rig::on(shelf.clone());
    rig.options.journal.segment_bytes = 32 << 10;
    rig.options.journal.buffer_bytes = 8 << 10;
    rig.options.journal.preparation = Preparation::Inline;
    let running = rig.usual(out.address).start().await;
    shelf.inject(Rule::from(Operation::Create, 1, Fault::NoSpace));
    let mut sender = running.sender().await;
    let mut accepted = Vec::new();
    let refusal = loop {
        let id = format!("{}", accepted.len());
        let answer = sender.exchange(&adt(&id)).await;
        if answer.at("MSA-1") != "AA" {
            break answer;
        }
        accepted.push(id);
        assert!(accepted.len() < 1_000, "the disk is never full");
    };
    let n = accepted.len();
    assert_eq!(refusal.short(), format!("AR {n}"));
    assert_eq!((refusal.at("ERR-3.1"), refusal.at("MSA-3")), ("207".to_owned(), "the disk is full".to_owned()));
    let status = running.status();
    assert_eq!((status.full, status.troubles.len()), (1, 1));
    assert_eq!(status.troubles[0].matter, Matter::Full);
    let out = out.up().accepting();
    assert_eq!(out.received(n).await, accepted, "deliveries go on");
    running.idle("out").await;
    shelf.heal();
    sender.accepted(&adt(&format!("{n}"))).await;
    out.received(n + 1).await;
    running.until_outcomes(n + 1).await;
    running.stop().await;
    let running = rig.start().await;
    assert_eq!(running.waiting("out"), 0, "what was delivered while the disk was full is known to be");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_is_told_when_it_begins_and_when_it_is_over_and_nothing_is_given_up_where_that_is_refused() {
    let log = crate::logs::listen();
    for on_full in [OnFull::Refuse, OnFull::Prune] {
        let out = Accepting::start().await;
        let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
        let mut rig = Rig::on(shelf.clone());
        rig.options.journal.segment_bytes = 32 << 10;
        rig.options.journal.buffer_bytes = 8 << 10;
        rig.options.journal.preparation = Preparation::Inline;
        rig.options.on_full = on_full;
        let running = rig.usual(out.address).start().await;
        // Room for some segments: giving messages up takes a little of the journal.
        shelf.inject(Rule::from(Operation::Create, 4, Fault::NoSpace));
        let mut sender = running.sender().await;
        let mut accepted = 0;
        while sender.exchange(&adt(&format!("{on_full:?}-{accepted}"))).await.at("MSA-1") == "AA" {
            accepted += 1;
            assert!(accepted < 10_000, "the disk is never full");
        }
        running.idle("out").await;
        let prunes = on_full == OnFull::Prune;
        if prunes {
            // A refusal causes the node to make room, and the sender repeats what was refused. The first pass may come before
            // the outcomes of what was delivered last are in the journal.
            let repeats = async {
                while running.status().pruned_full == 0 {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    let answer = sender.exchange(&adt(&format!("{on_full:?}-{accepted}"))).await;
                    accepted += usize::from(answer.at("MSA-1") == "AA");
                }
            };
            let repeated = tokio::time::timeout(Duration::from_secs(60), repeats).await;
            repeated.expect("delivered messages are given up, and it is counted");
        }
        let reason = running.status().troubles.first().map(|trouble| trouble.reason.clone());
        assert!(reason.is_none_or(|reason| reason.contains(if prunes { "given up" } else { "on_full = refuse" })));
        shelf.heal();
        until("it is over", || running.status().troubles.is_empty().then_some(())).await;
        sender.accepted(&adt(&format!("{on_full:?}-again"))).await;
        let status = running.status();
        assert_eq!(status.pruned_full > 0, prunes, "{on_full:?}");
        assert_eq!(running.stored().len() < accepted + 1, prunes, "{on_full:?}");
        running.stop().await;
    }
    for line in ["trouble begins", "trouble is over"] {
        let found = log.find(&[line]).unwrap_or_else(|| panic!("no line `{line}`"));
        assert!(found.contains("ERROR"), "{found}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_refusal_for_want_of_room_gives_up_nothing_where_there_is_room_again() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    for n in 0..20 {
        sender.accepted(&adt(&n.to_string())).await;
    }
    running.until_outcomes(20).await;
    // What a refusal does; whoever took the disk has given it back when the node looks.
    let engine = running.node.engine();
    engine.is_full.store(true, Ordering::Release);
    engine.wanted.store(1 << 16, Ordering::Relaxed);
    engine.pressed.notify_one();
    until("it has looked", || (engine.wanted.load(Ordering::Relaxed) == 0).then_some(())).await;
    until("it is over", || (!engine.is_full.load(Ordering::Acquire)).then_some(())).await;
    assert_eq!((running.status().pruned_full, running.stored().len()), (0, 20));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_descriptor_senders_are_told_to_come_again_and_nothing_stored_is_given_up_for_it() {
    let out = Accepting::start().await;
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let mut rig = Rig::on(shelf.clone());
    rig.options.journal.segment_bytes = 32 << 10;
    rig.options.journal.buffer_bytes = 8 << 10;
    let running = rig.usual(out.address).start().await;
    for operation in [Operation::Create, Operation::Open] {
        shelf.inject(Rule::from(operation, 1, Fault::NoDescriptors));
    }
    let mut sender = running.sender().await;
    let mut accepted = 0;
    let refusal = loop {
        let answer = sender.exchange(&adt(&accepted.to_string())).await;
        if answer.at("MSA-1") != "AA" {
            break answer;
        }
        accepted += 1;
        assert!(accepted < 1_000, "the journal always finds a descriptor");
    };
    assert_eq!(refusal.at("MSA-1"), "AR");
    let status = running.status();
    assert_eq!(status.troubles.iter().map(|trouble| trouble.matter).collect::<Vec<_>>(), [Matter::Descriptors]);
    assert!(status.journal_failed.is_none(), "it waits, and has not failed");
    shelf.heal();
    until("there is a descriptor", || running.status().troubles.is_empty().then_some(())).await;
    sender.accepted(&adt("again")).await;
    assert_eq!(running.stored().len(), accepted + 1);
    assert_eq!(running.status().pruned_full, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_larger_than_a_journal_record_is_refused_with_a_text() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.journal.max_record_bytes = 4_096;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let answer = sender.exchange(&format!("{}NTE|1||{}\r", adt("large"), "x".repeat(5_000))).await;
    assert_eq!((answer.short().as_str(), answer.at("ERR-3.1").as_str()), ("AR large", "207"));
    sender.accepted(&adt("small")).await;
    assert_eq!(out.received(1).await, ["small"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn on_a_full_disk_what_is_done_is_given_up_and_suspensions_and_what_waits_are_kept() {
    let (out, down) = (Accepting::start().await, Down::new());
    let shelf = Arc::new(FaultyShelf::new(Arc::new(MemoryShelf::new())));
    let mut rig = Rig::on(shelf.clone());
    rig.options.journal.segment_bytes = 32 << 10;
    rig.options.journal.buffer_bytes = 8 << 10;
    rig.options.journal.preparation = Preparation::Inline;
    rig.usual(out.address).operation("rare", down.address, "").write(
        "rules/main.rules",
        "match first\nrule rare when MSH-9.2 = \"A02\" { send to rare }\nrule all { send to out }\n",
    );
    let running = rig.start().await;
    let mut sender = running.sender().await;
    running.request("suspend rare").await.expect("it is there");
    // Four segments, then the disk is full.
    shelf.inject(Rule::from(Operation::Create, 4, Fault::NoSpace));
    let mut refused = 0;
    // The disk stays full: the node makes room, as often as senders need it.
    for n in 0.. {
        assert!(n < 100_000, "the disk is never full, or there is never room again");
        let last = refused > 1;
        let message = if last { adt("last").replace("A01", "A02") } else { adt(&n.to_string()) };
        if sender.exchange(&message).await.at("MSA-1") != "AA" {
            refused += 1;
            running.idle("out").await;
        } else if last {
            break;
        }
    }
    assert!(running.node.engine().message_log.store().journal().first().0 > 0, "some of the journal was given up");
    running.stop().await;
    let running = rig.start().await;
    assert!(running.is_suspended("rare"), "the record that said so was given up");
    assert_eq!(running.waiting("rare"), 1);
    running.stop().await;
}
