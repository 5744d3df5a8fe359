//! Receivers that do not answer, answer late, wrong, in rubbish or not at all; and the reply table.

use interop::record::DeliveryOutcome;

use crate::receiver::{Receiver, ack};
use crate::rig::{Rig, Running, adt, until};
use crate::sender::framed;

/// A node whose operation `out` has these settings, its receiver, and the given messages in its queue.
async fn queued(settings: &str, ids: &[&str]) -> (Rig, Running, Receiver) {
    let receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, settings);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for id in ids {
        sender.accepted(&adt(id)).await;
    }
    (rig, running, receiver)
}

/// Outcome and detail of every output, in order.
async fn outcomes(running: &Running, count: usize) -> Vec<(DeliveryOutcome, String)> {
    running.until_outcomes(count).await.into_iter().map(|outcome| (outcome.outcome, outcome.detail)).collect()
}

const SOON: &str = "ack_timeout = \"40ms\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_drips_its_answer_for_ever_is_given_up_in_time() {
    let (_rig, running, mut receiver) = queued("ack_timeout = \"200ms\"\n", &["1"]).await;
    let arrival = receiver.next_is("1").await;
    let connection = arrival.connection;
    let dripping = tokio::spawn(async move {
        arrival.write(b"\x0b");
        loop {
            arrival.write(b"M");
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    });
    receiver.closed(connection).await;
    receiver.next_is("1").await.answer("AA");
    running.idle("out").await;
    dripping.abort();
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_ack_never_matches_the_next_message() {
    let (_rig, running, mut receiver) = queued("ack_timeout = \"400ms\"\n[reply]\ntimeout = \"fail\"\n", &["1"]).await;
    let first = receiver.next_is("1").await;
    receiver.closed(first.connection).await;
    assert_eq!(outcomes(&running, 1).await, [(DeliveryOutcome::Failed, "no answer within 400ms".to_owned())]);
    running.sender().await.accepted(&adt("2")).await;
    let second = receiver.next_is("2").await;
    assert_ne!(second.connection, first.connection, "the socket with the missing answer is not used again");
    first.answer("AA");
    second.write(&ack("AA", "1"));
    second.answer("AE");
    assert_eq!(
        outcomes(&running, 2).await[1],
        (DeliveryOutcome::Failed, "AE".to_owned()),
        "the late one is credited to nobody"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_never_answers_gets_the_message_again_on_a_new_connection() {
    let (_rig, running, mut receiver) = queued(SOON, &["1", "2"]).await;
    for connection in 0..3 {
        let arrival = receiver.next_is("1").await;
        assert_eq!(arrival.connection, connection);
        receiver.closed(connection).await;
    }
    assert_eq!(running.waiting("out"), 2);
    let mut last = receiver.next_is("1").await;
    // It is slower than a receiver that answers at once, so the timeout may end it again; then the message comes once
    // more.
    let answered = loop {
        last.answer("AA");
        let next = receiver.next().await;
        if next.id() == "2" {
            break next;
        }
        last = next;
    };
    answered.answer("AA");
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_acknowledgement_of_this_message_closes_the_connection_and_it_is_sent_again() {
    let (_rig, running, mut receiver) = queued("", &["1", "2"]).await;
    let answers: [(&str, Vec<u8>); 6] = [
        ("of another message", ack("AA", "other")),
        ("a message without MSA", framed(&adt("1"))),
        ("no message", framed("what?")),
        ("a code that is none", ack("OK", "1")),
        ("without a frame", b"MSH|^~\\&|R||||20260101||ACK|r1|P|2.5\rMSA|AA|1\r".to_vec()),
        ("rubbish", vec![b'x'; 100]),
    ];
    for (connection, (what, answer)) in answers.iter().enumerate() {
        let arrival = receiver.next_is("1").await;
        assert_eq!(arrival.connection, connection, "{what}");
        arrival.write(answer);
        receiver.closed(connection).await;
    }
    receiver.next_is("1").await.answer("AA");
    receiver.next_is("2").await.answer("AA");
    assert_eq!(
        outcomes(&running, 2).await,
        [(DeliveryOutcome::Delivered, "AA".to_owned()), (DeliveryOutcome::Delivered, "AA".to_owned())]
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_goes_away_with_the_message_gets_it_again_until_the_tries_run_out() {
    let (_rig, running, mut receiver) = queued("[retry]\nfirst = \"1ms\"\nmax = \"1ms\"\nattempts = 3\n", &["1"]).await;
    for _ in 0..2 {
        receiver.next_is("1").await.close();
    }
    receiver.next_is("1").await.answer("AA");
    assert_eq!(outcomes(&running, 1).await, [(DeliveryOutcome::Delivered, "AA".to_owned())]);
    running.sender().await.accepted(&adt("2")).await;
    // The first of these was sent on the connection kept from before, whose end is no try of this message's.
    for _ in 0..4 {
        receiver.next_is("2").await.close();
    }
    let (outcome, detail) = outcomes(&running, 2).await.remove(1);
    assert_eq!(outcome, DeliveryOutcome::Failed);
    assert!(
        detail.starts_with("the receiver went away before answering") && detail.ends_with("after 3 tries"),
        "{detail}"
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_an_idle_receiver_closed_is_made_anew_without_a_try() {
    let (_rig, running, mut receiver) = queued("[retry]\nattempts = 1\n", &["1"]).await;
    for (connection, id) in ["1", "2", "3"].into_iter().enumerate() {
        if connection > 0 {
            running.sender().await.accepted(&adt(id)).await;
        }
        let arrival = receiver.next_is(id).await;
        assert_eq!(arrival.connection, connection);
        arrival.answer("AA");
        running.idle("out").await;
        arrival.close();
        receiver.closed(connection).await;
    }
    assert_eq!(running.status().operations[0].retried, 0);
    assert!(outcomes(&running, 3).await.iter().all(|(outcome, _)| *outcome == DeliveryOutcome::Delivered));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_fails_the_message_and_goes_on_and_a_rejection_keeps_it_at_the_head() {
    let (_rig, running, mut receiver) = queued("", &["1", "2", "3"]).await;
    receiver.next_is("1").await.answer("AE");
    receiver.next_is("2").await.answer("AR");
    receiver.next_is("2").await.answer("CR");
    let second = receiver.next_is("2").await;
    second.answer("AA");
    let third = receiver.next_is("3").await;
    assert_eq!(third.connection, second.connection, "an answer that is one keeps the connection");
    third.answer("CE");
    let expected =
        [(DeliveryOutcome::Failed, "AE"), (DeliveryOutcome::Delivered, "AA"), (DeliveryOutcome::Failed, "CE")];
    assert_eq!(outcomes(&running, 3).await, expected.map(|(outcome, detail)| (outcome, detail.to_owned())));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resume_tries_a_receiver_that_is_back_at_once() {
    let (_rig, running, mut receiver) = queued("[retry]\nfirst = \"1h\"\nmax = \"1h\"\n", &["1"]).await;
    for turn in 1..=3 {
        receiver.next_is("1").await.answer("AR");
        until("it waits for an hour", || (running.status().operations[0].retried == turn).then_some(())).await;
        running.request("resume out").await.expect("it is an operation");
    }
    receiver.next_is("1").await.answer("AA");
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_message_is_outstanding_on_a_lane() {
    let (_rig, running, mut receiver) = queued("", &["1", "2", "3"]).await;
    for id in ["1", "2", "3"] {
        let arrival = receiver.next_is(id).await;
        assert!(!arrival.is_ahead, "{id} came before the one before it was answered");
        // Another message through the node and back: the lane could send meanwhile.
        running.sender().await.accepted(&adt("more")).await;
        arrival.answer("AA");
    }
    for _ in 0..3 {
        let arrival = receiver.next_is("more").await;
        assert!(!arrival.is_ahead);
        arrival.answer("AA");
    }
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_acknowledgement_completes_and_the_application_one_that_follows_late_is_passed_over() {
    let (_rig, running, mut receiver) = queued("", &["1", "2"]).await;
    let first = receiver.next_is("1").await;
    first.answer("CA");
    let second = receiver.next_is("2").await;
    assert_eq!(second.connection, first.connection);
    first.answer("AE");
    second.answer("AA");
    let expected = [(DeliveryOutcome::Delivered, "CA".to_owned()), (DeliveryOutcome::Delivered, "AA".to_owned())];
    assert_eq!(outcomes(&running, 2).await, expected);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_response_message_is_an_acknowledgement_and_so_is_one_with_blanks_about_the_id() {
    let (_rig, running, mut receiver) = queued("", &["1", "2 ", "3"]).await;
    receiver.next_is("1").await.write(&framed("MSH|^~\\&|R||||2026||ADR^A19|r1|P|2.5\rMSA|AA|1\rPID|1||7\r"));
    let padded = receiver.next().await;
    padded.write(&ack("AA", "2"));
    receiver.next_is("3").await.write(&ack("AA", "3  "));
    assert_eq!(
        outcomes(&running, 3).await.iter().filter(|(outcome, _)| *outcome == DeliveryOutcome::Delivered).count(),
        3
    );
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_over_its_bound_is_none() {
    let (_rig, running, mut receiver) =
        queued("reply_bytes = \"1KiB\"\n[reply]\nunreadable = \"fail\"\n", &["1"]).await;
    let arrival = receiver.next_is("1").await;
    arrival.write(&framed(&format!("MSH|^~\\&|R\rMSA|AA|1|{}\r", "x".repeat(5_000))));
    let detail = "no acknowledgement: an answer over reply_bytes".to_owned();
    assert_eq!(outcomes(&running, 1).await, [(DeliveryOutcome::Failed, detail)]);
    receiver.closed(0).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reply_table_says_what_follows_from_an_answer() {
    let table = "ack_timeout = \"40ms\"\n[reply]\nAE = \"complete\"\nAR = \"warn\"\nCE = \"retry\"\nCA = \"fail\"\n\
                 timeout = \"complete\"\nwrong-id = \"fail\"\nunreadable = \"warn\"\n";
    let (_rig, running, mut receiver) = queued(table, &["1", "2", "3", "4", "5", "6", "7"]).await;
    receiver.next_is("1").await.answer("AE");
    receiver.next_is("2").await.answer("AR");
    receiver.next_is("3").await.answer("CE");
    receiver.next_is("3").await.answer("AA");
    receiver.next_is("4").await.answer("CA");
    let silent = receiver.next_is("5").await;
    receiver.closed(silent.connection).await;
    receiver.next_is("6").await.write(&ack("AA", "x"));
    receiver.next_is("7").await.write(&framed("x"));
    let (delivered, failed) = (DeliveryOutcome::Delivered, DeliveryOutcome::Failed);
    let outcomes: Vec<DeliveryOutcome> = outcomes(&running, 7).await.into_iter().map(|(outcome, _)| outcome).collect();
    assert_eq!(outcomes, [delivered, delivered, delivered, failed, delivered, failed, delivered]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_operation_stands_still_until_it_is_resumed_also_across_a_restart() {
    let (rig, running, mut receiver) = queued("[reply]\nAR = \"suspend\"\n", &["1", "2"]).await;
    receiver.next_is("1").await.answer("AR");
    until("it is suspended", || running.is_suspended("out").then_some(())).await;
    running.sender().await.accepted(&adt("3")).await;
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
    let running = rig.start().await;
    assert!(running.is_suspended("out") && running.waiting("out") == 3);
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0], "a start resumes nothing");
    let running = rig.start().await;
    running.request("resume out").await.expect("it is there");
    for id in ["1", "2", "3"] {
        receiver.next_is(id).await.answer("AA");
    }
    running.idle("out").await;
    running.request("suspend out").await.expect("it is there");
    running.stop().await;
    let running = rig.start().await;
    running.sender().await.accepted(&adt("4")).await;
    assert!(running.is_suspended("out"));
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
    let running = rig.start().await;
    running.request("resume out").await.expect("it is there");
    receiver.next_is("4").await.answer("AA");
    running.stop().await;
    let running = rig.start().await;
    assert!(!running.is_suspended("out") && running.waiting("out") == 0);
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_cannot_be_sent_or_acknowledged_fails_instead_of_blocking_the_line() {
    let rules = "match first\nrule a when MSH-10 = \"1\" { send to out using nameless }\n\
                 rule b when MSH-10 = \"2\" { send to out using blank }\nrule c { send to out }\n";
    let receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.write("rules/main.rules", rules)
        .write("transforms/nameless.hl7t", "delete MSH-10\n")
        .write("transforms/blank.hl7t", "set MSH-10 = \"  \"\n")
        .write("services/files.toml", "kind = \"file\"\nfolder = \"inbox\"\nrules = \"main\"\nsettle = \"0ms\"\n")
        .write("inbox/frame-inside.hl7", &adt("3").replace("SAMPLE", "SAM\u{1c}PLE"));
    let running = rig.start().await;
    let out = receiver.accepting();
    running.until_outcomes(1).await;
    for id in ["1", "2", "4"] {
        running.sender().await.accepted(&adt(id)).await;
    }
    assert_eq!(out.received(1).await, ["4"]);
    let notes: Vec<String> = outcomes(&running, 4).await.into_iter().map(|(_, detail)| detail).collect();
    let nameless = "the transformed message has no control id (MSH-10)";
    assert_eq!(notes, ["MLLP cannot carry the control character at byte 95", nameless, nameless, "AA"]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn application_acknowledgements_that_come_many_messages_late_are_credited_to_nobody_and_send_nothing_again() {
    let (_rig, running, mut receiver) = queued("", &["1", "2", "3", "4"]).await;
    for id in ["1", "2", "3"] {
        receiver.next_is(id).await.answer("CA");
    }
    let last = receiver.next_is("4").await;
    for (code, id) in [("AA", "1"), ("AE", "2"), ("AA", "3")] {
        last.write(&ack(code, id));
    }
    last.answer("CA");
    let delivered = || (DeliveryOutcome::Delivered, "CA".to_owned());
    assert_eq!(outcomes(&running, 4).await, [delivered(), delivered(), delivered(), delivered()]);
    running.sender().await.accepted(&adt("5")).await;
    let fifth = receiver.next_is("5").await;
    assert_eq!(fifth.connection, last.connection, "the late ones are no reason to connect anew");
    fifth.answer("CA");
    // One whose id was answered on this connection: a late answer to that could be credited to it.
    running.sender().await.accepted(&adt("2")).await;
    let again = receiver.next_is("2").await;
    assert_ne!(again.connection, last.connection);
    again.answer("CA");
    running.idle("out").await;
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_on_which_its_receiver_hangs_up_while_it_is_sent_runs_out_of_tries() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let hanging_up = tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.expect("it listens");
            let mut some = vec![0; 64 << 10];
            // With bytes unread the connection is reset.
            let _ = tokio::io::AsyncReadExt::read(&mut socket, &mut some).await;
        }
    });
    let rig = Rig::to(address);
    rig.operation("out", address, "[retry]\nfirst = \"5ms\"\nmax = \"5ms\"\nattempts = 3\n");
    let running = rig.start().await;
    running.sender().await.accepted(&format!("{}OBX|1|TX|A||{}\r", adt("1"), "x".repeat(8 << 20))).await;
    let outcome = &outcomes(&running, 1).await[0];
    assert!(outcome.0 == DeliveryOutcome::Failed && outcome.1.ends_with("after 3 tries"), "{outcome:?}");
    running.stop().await;
    hanging_up.abort();
}
