//! Why messages wait, in words: in the status, of an operation, in the trace of a message.

use interop::queue::progress::{ConnectionState, LaneStage};
use interop::running::{OperationReport, OperationStatus};

use crate::receiver::{Down, Receiver};
use crate::rig::{Rig, Running, adt, until};
use crate::sender::framed;

async fn report(running: &Running) -> OperationReport {
    serde_json::from_value(running.request("operation out").await.expect("it is there")).expect("it is one")
}

/// Waits for a cause, and returns it.
async fn cause(running: &Running, part: &str) -> OperationStatus {
    until(part, || running.status().operations.into_iter().find(|found| found.cause.contains(part))).await
}

fn wait_of(rig: &Rig, id: u64) -> (Option<usize>, String) {
    let wait = rig.history().outline(id).expect("it is there").waits.remove(0);
    (wait.ahead, wait.cause)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_is_down_is_told_with_its_address_the_tries_and_the_oldest_message() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    let running = rig.start().await;
    assert_eq!(running.status().operations[0].cause, "", "nothing waits");
    let mut sender = running.sender().await;
    sender.accepted(&adt("1")).await;
    sender.accepted(&adt("2")).await;
    let ids = running.ids();
    let status = cause(&running, "3 tries of message").await;
    let expected = format!("no connection to {}: ", down.address);
    assert!(status.cause.starts_with(&expected), "{}", status.cause);
    assert_eq!((status.oldest, status.connection), (Some(ids[0]), ConnectionState::Down));
    let received = running.reader().message(ids[0]).expect("it is there").received_us;
    assert_eq!(status.oldest_us, Some(received));
    assert_eq!(status.at, down.address.to_string());
    let (ahead, first) = wait_of(&rig, ids[0]);
    assert!(ahead == Some(0) && first.starts_with(&expected), "{first}");
    let (ahead, second) = wait_of(&rig, ids[1]);
    assert!(ahead == Some(1) && second.starts_with("1 ahead of it; no connection to"), "{second}");
    let lane = report(&running).await.lanes.remove(0);
    assert_eq!(lane.next.iter().map(|next| next.id).collect::<Vec<_>>(), ids);
    assert!(lane.tries > 0 && lane.last.is_some_and(|last| !last.reached), "{:?}", lane.cause);
    let out = down.up().accepting();
    out.received(2).await;
    running.idle("out").await;
    let status = &running.status().operations[0];
    assert_eq!((status.cause.as_str(), status.oldest), ("", None));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_receiver_answered_is_told_by_its_code_and_its_text_only_to_who_may_read_bodies() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[reply]\nAE = \"retry\"\n");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let arrival = receiver.next_is("1").await;
    let status = cause(&running, "waits for the answer").await;
    assert!(status.cause.starts_with(&format!("waits for the answer to message {id} for ")), "{}", status.cause);
    assert!(status.cause.ends_with("1st try") && status.connection == ConnectionState::Connected, "{status:?}");
    arrival.write(&framed("MSH|^~\\&|R||||1||ACK|r1|P|2.5\rMSA|AE|1|unknown patient SAMPLE\r"));
    let second = receiver.next_is("1").await;
    let status = cause(&running, "2nd try: AE").await;
    assert!(status.cause.ends_with("2nd try: AE"), "{}", status.cause);
    let everywhere = format!("{}{}", running.request("status").await.expect("it answers"), wait_of(&rig, id).1);
    let hidden = running.request("operation out").await.expect("it is there").to_string();
    assert!(!everywhere.contains("unknown patient") && !hidden.contains("unknown patient"), "{everywhere}{hidden}");
    assert!(hidden.contains("message-body and unmasked"), "{hidden}");
    let entries = running.node.audit().head().number;
    running.grant_bodies().await;
    let shown = report(&running).await;
    let lane = &shown.lanes[0];
    assert!(lane.cause.ends_with("2nd try: AE unknown patient SAMPLE"), "{}", lane.cause);
    assert_eq!((lane.stage, lane.tries, shown.withheld), (LaneStage::Answer, 1, None));
    assert_eq!(running.node.audit().head().number, entries + 1, "that a text was shown has an entry");
    second.answer("AA");
    running.idle("out").await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_operation_is_told_with_who_or_which_answer_did_it_also_after_a_restart() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.operation("out", receiver.address, "[reply]\nAR = \"suspend\"\n");
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    receiver.next_is("1").await.answer("AR");
    let status = cause(&running, "suspended for").await;
    assert!(status.cause.ends_with(": the receiver answered AR"), "{}", status.cause);
    running.stop().await;
    let running = rig.start_on_files().await;
    let status = cause(&running, "suspended for").await;
    assert_eq!(status.suspended_because.as_deref(), Some("the receiver answered AR"));
    assert!(status.suspended_since_us.is_some());
    running.request("suspend out").await.expect("it is there");
    let because = running.status().operations[0].suspended_because.clone().expect("it is suspended");
    assert!(because.starts_with("by ") && because.len() > 3, "{because}");
    running.request("resume out").await.expect("it is there");
    receiver.next_is("1").await.answer("AA");
    running.idle("out").await;
    assert_eq!(running.status().operations[0].suspended_because, None);
    running.stop().await;
}
