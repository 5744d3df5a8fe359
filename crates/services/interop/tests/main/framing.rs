//! Unusual frames of senders: several at once, in pieces, with other line ends, junk between, too long, none at all.

use crate::receiver::Accepting;
use crate::rig::{Rig, adt, until};
use crate::sender::{Sender, framed};

#[tokio::test(flavor = "multi_thread")]
async fn frames_in_one_write_are_answered_in_order() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    // More than a connection has in flight at a time.
    let ids: Vec<String> = (0..150).map(|n| n.to_string()).collect();
    let all: Vec<u8> = ids.iter().flat_map(|id| framed(&adt(id))).collect();
    sender.write(&all).await;
    for id in &ids {
        assert_eq!(sender.answer().await.short(), format!("AA {id}"));
    }
    assert_eq!(out.received(ids.len()).await, ids);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frame_cut_at_any_byte_is_one_message() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    let length = framed(&adt("000")).len();
    for cut in 1..length {
        let frame = framed(&adt(&format!("{cut:03}")));
        sender.write(&frame[..cut]).await;
        tokio::task::yield_now().await;
        sender.write(&frame[cut..]).await;
        assert_eq!(sender.answer().await.short(), format!("AA {cut:03}"));
    }
    assert_eq!(out.received(length - 1).await.len(), length - 1);
    assert_eq!(running.status().junk_bytes, 0);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn line_ends_of_every_kind_are_taken_and_kept() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    let messages = ["\n", "\r\n"].map(|end| adt("1").replace('\r', end));
    for message in &messages {
        assert_eq!(sender.exchange(message).await.short(), "AA 1");
    }
    out.received(2).await;
    assert_eq!(out.bodies(), messages.map(String::into_bytes));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn junk_between_frames_and_a_sender_that_begins_again_cost_no_message() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut sender = running.sender().await;
    sender.write(b"\r\n\0\0").await;
    sender.accepted(&adt("1")).await;
    sender.write(b"garbage").await;
    sender.accepted(&adt("2")).await;
    sender.write(b"\x0bMSH|^~\\&|HIS|half").await;
    sender.accepted(&adt("3")).await;
    // Without the final CR, which this service does not require.
    sender.write(&framed(&adt("4"))[..adt("4").len() + 2]).await;
    assert_eq!(sender.answer().await.short(), "AA 4");
    assert_eq!(out.received(4).await, ["1", "2", "3", "4"]);
    let status = running.status();
    assert_eq!((status.junk_bytes, status.partial, status.oversize), (11, 1, 0));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_ends_inside_a_frame_delivers_nothing_and_one_that_ends_behind_it_is_answered() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let mut cut = running.sender().await;
    cut.write(&framed(&adt("cut"))[..adt("cut").len()]).await;
    cut.finish().await;
    assert_eq!(cut.answer_or_end().await, None);
    assert_eq!(running.status().partial, 1);
    let mut whole = running.sender().await;
    whole.send(&adt("whole")).await;
    whole.finish().await;
    assert_eq!(whole.answer().await.short(), "AA whole");
    assert_eq!(whole.answer_or_end().await, None);
    assert_eq!(out.received(1).await, ["whole"]);
    assert_eq!(running.stored().len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_over_the_bound_is_rejected_by_its_control_id_and_the_connection_goes_on() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "[intake]\nmessage_bytes = \"8KiB\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let large = format!("{}NTE|1||{}\r", adt("large"), "x".repeat(300_000));
    let answer = sender.exchange(&large).await;
    assert_eq!((answer.short().as_str(), answer.at("ERR-3.1").as_str()), ("AR large", "207"));
    assert_eq!(answer.at("MSA-3"), "the message is larger than 8KiB");
    sender.accepted(&adt("next")).await;
    let fits = format!("{}NTE|1||{}\r", adt("fits"), "x".repeat(8_192 - adt("fits").len() - 8));
    assert_eq!(fits.len(), 8_192);
    sender.accepted(&fits).await;
    assert_eq!(out.received(2).await, ["next", "fits"]);
    assert_eq!(running.status().oversize, 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_more_than_a_million_segments_is_rejected_before_it_takes_their_memory() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.write(
        "services/files.toml",
        "kind = \"file\"\nfolder = \"inbox\"\nrules = \"main\"\nevery = \"2ms\"\nsettle = \"0ms\"\n",
    );
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let dense = format!("{}{}", adt("dense"), "A\r".repeat((1 << 20) + 1));
    let answer = sender.exchange(&dense).await;
    assert_eq!((answer.short().as_str(), answer.at("ERR-3.1").as_str()), ("AR dense", "207"));
    assert_eq!(answer.at("MSA-3"), "the message has more than 1048576 segments");
    sender.accepted(&format!("{}{}", adt("many"), "A\r".repeat((1 << 20) - 9))).await;
    rig.write("part", &format!("{dense}{}", adt("beside")));
    std::fs::rename(rig.folder().join("part"), rig.folder().join("inbox/dense.hl7")).expect("it moves");
    let aside = rig.folder().join("inbox/error/dense.hl7");
    until("the file is put aside", || aside.exists().then_some(())).await;
    assert_eq!(out.received(2).await, ["many", "beside"]);
    assert_eq!((running.stored().len(), running.status().oversize), (2, 2));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_requires_the_final_cr_waits_for_it() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "require_final_cr = true\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let frame = framed(&adt("1"));
    sender.write(&frame[..frame.len() - 1]).await;
    assert!(sender.is_silent().await);
    sender.write(b"\r").await;
    assert_eq!(sender.answer().await.short(), "AA 1");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hl7_without_a_frame_is_explained_in_the_log() {
    let out = Accepting::start().await;
    let running = Rig::to(out.address).start().await;
    let log = crate::logs::listen();
    let mut sender = running.sender().await;
    let peer = sender.local();
    sender.write(adt("1").as_bytes()).await;
    let line = until("the log explains", || log.find(&[&peer, "HL7 without"])).await;
    assert!(line.contains("HL7 without"), "{line}");
    assert!(running.stored().is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_connection_is_closed_and_one_too_many_is_refused() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", "idle_timeout = \"20ms\"\n").service("few", "connections = 1\n");
    let running = rig.start().await;
    let mut silent = running.sender().await;
    assert_eq!(silent.answer_or_end().await, None);
    let mut one = Sender::connect(running.address("few")).await;
    one.accepted(&adt("1")).await;
    let mut two = Sender::connect(running.address("few")).await;
    assert_eq!(two.answer_of(&adt("2")).await, None);
    one.accepted(&adt("3")).await;
    drop(one);
    until("the connection is gone", || (running.status().connections == 0).then_some(())).await;
    running.stop().await;
}
