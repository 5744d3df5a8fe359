//! Frames that hold more than one message: two headers, and batches (FHS, BHS).

use interop::record::Status;

use crate::receiver::{Accepting, Receiver};
use crate::rig::{Rig, adt};

const BATCH: &str = "BHS|^~\\&|HIS|NORTH|HUB|X|20260101||||b7\r";

#[tokio::test(flavor = "multi_thread")]
async fn two_messages_in_one_frame_are_two_messages_and_two_answers() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    let second = adt("2").replace("|ADT^A01^ADT_A01|", "||");
    sender.send(&format!("{}{second}{}", adt("1"), adt("3"))).await;
    for expected in ["AA 1", "AR 2", "AA 3"] {
        assert_eq!(sender.answer().await.short(), expected);
    }
    assert_eq!(out.received(2).await, ["1", "3"]);
    let stored = running.stored();
    assert_eq!(stored.len(), 3, "each is a message of its own");
    assert_eq!(stored[0].1.raw, adt("1").as_bytes());
    sender.accepted(&adt("4")).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_in_a_frame_is_taken_apart_and_answered_by_a_batch() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    let batch = format!("FHS|^~\\&|HIS\r{BATCH}{}{}BTS|2\rFTS|1\r", adt("1"), adt("2"));
    sender.send(&batch).await;
    let answer = String::from_utf8(sender.answer().await.0).expect("it is ASCII");
    let segments: Vec<&str> = answer.trim_end().split('\r').collect();
    let names: Vec<&str> = segments.iter().map(|segment| &segment[..3]).collect();
    assert_eq!(names, ["FHS", "BHS", "MSH", "MSA", "MSH", "MSA", "BTS", "FTS"], "{answer}");
    assert_eq!((segments[3], segments[5], segments[6]), ("MSA|AA|1", "MSA|AA|2", "BTS|2"));
    assert!(segments[1].ends_with("|b7"), "it names the batch it answers: {answer}");
    assert_eq!(out.received(2).await, ["1", "2"]);
    // The count is wrong: the existing messages are accepted, and the answer reports the fault.
    sender.send(&format!("{BATCH}{}BTS|2\r", adt("3"))).await;
    let answer = String::from_utf8(sender.answer().await.0).expect("it is ASCII");
    assert!(answer.contains("MSA|AA|3\r") && answer.contains("BTS|1|declared 2, received 1"), "{answer}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_which_something_would_be_lost_is_refused_by_its_name() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    let cases = [
        (format!("{BATCH}BTS|0\r"), "a batch (FHS, BHS) without a message"),
        (format!("{BATCH}ZZZ|1\r{}BTS|1\r", adt("1")), "segments that belong to no message"),
    ];
    for (frame, expected) in &cases {
        let answer = sender.exchange(frame).await;
        assert_eq!((answer.at("MSA-1").as_str(), answer.at("ERR-3.1").as_str()), ("AR", "100"), "{frame}");
        assert!(answer.at("MSA-3").contains(expected), "{answer:?}");
    }
    let stored = running.stored();
    assert!(stored.iter().all(|(_, stored)| stored.status == Status::Rejected), "it can be looked at");
    assert_eq!(stored.len(), cases.len());
    running.stop().await;
}

/// More than are on their way to the journal at a time.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_of_many_messages_is_answered_once_all_of_them_are_stored() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    let ids: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let messages: String = ids.iter().map(|id| adt(id)).collect();
    sender.send(&format!("{BATCH}{messages}BTS|200\r")).await;
    let answer = String::from_utf8(sender.answer().await.0).expect("it is ASCII");
    assert_eq!(answer.matches("MSA|AA|").count(), ids.len());
    assert_eq!(running.stored().len(), ids.len());
    assert_eq!(out.received(ids.len()).await, ids);
    running.stop().await;
}

/// Its sender would give up and send it again, and the first messages would be delivered each time.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_larger_than_its_queue_is_taken_whole_once_its_first_message_has_room() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[queue]\nmessages = 4\n");
    let running = rig.start().await;
    let ids: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let messages: String = ids.iter().map(|id| adt(id)).collect();
    let mut sender = running.sender().await;
    sender.send(&format!("{BATCH}{messages}BTS|100\r")).await;
    let answer = String::from_utf8(sender.answer().await.0).expect("it is ASCII");
    assert_eq!(answer.matches("MSA|AA|").count(), 100, "{answer}");
    // What comes behind it waits.
    sender.send(&adt("later")).await;
    assert!(sender.is_silent().await);
    for id in &ids {
        receiver.next_is(id).await.answer("AA");
    }
    receiver.next_is("later").await.answer("AA");
    assert_eq!(sender.answer().await.short(), "AA later");
    running.idle("out").await;
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}
