//! Messages that are not accepted, and the answers to them: codes of table 0357, enhanced mode, acknowledgements never
//! acknowledged, MLLP release 2.

use hl7::mllp::{COMMIT_ACK, COMMIT_NAK};
use interop::record::Status;

use crate::receiver::{Accepting, Receiver, ack};
use crate::rig::{ALL_TO_OUT, Rig, adt};
use crate::sender::{Answer, Sender};

/// Rules that take A01, refuse A02 and fail on A03.
const RULES: &str = "match first\n\
    rule fine when MSH-9.2 = \"A01\" { send to out }\n\
    rule no when MSH-9.2 = \"A02\" { reject \"not here\" }\n\
    rule fails when MSH-9.2 = \"A03\" { send to out using broken }\n";

async fn rig(settings: &str) -> (Rig, Accepting) {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", settings).write("rules/main.rules", RULES).write("transforms/broken.hl7t", "set ZZZ-1 = \"x\"\n");
    (rig, out)
}

const TAKES: &str = "[intake]\ntypes = [\"ADT^A01\", \"ADT^A02\", \"ORU\"]\nversions = [\"2.5\"]\n\
    processing_ids = [\"P\"]\nunmatched = \"reject\"\n";

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_message_is_told_by_code_and_place() {
    let (rig, out) = rig(TAKES).await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let good = adt("1");
    // The change, the answer, the code, the field at fault.
    let cases = [
        (good.replace("ADT^A01^ADT_A01", ""), "AR 1", "101", "MSH^1^9"),
        (good.replace("|1|P|", "||P|"), "AR ", "101", "MSH^1^10"),
        (good.replace("|1|P|", "|  |P|"), "AR   ", "101", "MSH^1^10"),
        (good.replace("ADT^A01^ADT_A01", " ^A01"), "AR 1", "101", "MSH^1^9"),
        (good.replace("ADT^A01", "BAR^P01"), "AR 1", "200", "MSH^1^9"),
        (good.replace("ADT^A01", "ADT^A99"), "AR 1", "201", "MSH^1^9"),
        (good.replace("|P|2.5", "|T|2.5"), "AR 1", "202", "MSH^1^11"),
        (good.replace("|2.5", "|2.5.1"), "AR 1", "203", "MSH^1^12"),
        (good.replace("A01", "A02"), "AR 1", "207", ""),
        (good.replace("ADT^A01", "ORU^R01"), "AR 1", "207", ""),
    ];
    for (message, expected, code, place) in &cases {
        let answer = sender.exchange(message).await;
        assert_eq!(answer.short(), *expected, "{message}");
        assert_eq!(answer.at("ERR-3.1"), *code, "{message}");
        assert!(answer.at("ERR-2").starts_with(place), "{message}: {answer:?}");
        assert!(!answer.at("MSA-3").is_empty(), "{message}");
    }
    sender.accepted(&good).await;
    assert_eq!(out.received(1).await, ["1"]);
    let stored = running.stored();
    assert_eq!(stored.len(), cases.len() + 1, "what is refused is stored as well");
    assert_eq!(stored.iter().filter(|(_, s)| s.status == Status::Rejected).count(), cases.len());
    assert_eq!(running.status().refused, cases.len() as u64);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_without_a_header_are_rejected_and_stored_and_the_connection_goes_on() {
    let (rig, _out) = rig("").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for message in ["PID|1||7\r", "", "MSH", "hello", "\u{feff}EVN|A01"] {
        let answer = sender.exchange(message).await;
        assert_eq!((answer.at("MSA-1"), answer.at("MSA-2")), ("AR".to_owned(), String::new()), "{message:?}");
        assert_eq!(answer.at("ERR-3.1"), "100", "{message:?}");
    }
    sender.accepted(&adt("1")).await;
    assert_eq!(running.stored().len(), 6);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_error_segment_follows_the_version_of_the_message() {
    let (rig, _out) = rig("[intake]\nunmatched = \"reject\"\ntypes = [\"ADT^A02\"]\n").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for (version, places, text) in [
        ("2.3", ["MSH^1^9^201&Unsupported event code&HL70357", ""], true),
        ("2.5.1", ["", "201"], true),
        ("2.8", ["", "201"], false),
    ] {
        let answer = sender.exchange(&adt("1").replace("|2.5", &format!("|{version}"))).await;
        assert_eq!([answer.at("ERR-1"), answer.at("ERR-3.1")], places, "{version}: {answer:?}");
        assert_eq!(!answer.at("MSA-3").is_empty(), text, "{version}: MSA-3 ends with 2.6");
        assert_eq!(answer.at("MSH-12"), version);
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acknowledgement_is_never_acknowledged_and_a_response_with_content_is_routed() {
    let (rig, out) = rig("").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.write(&ack("AA", "7")).await;
    sender.write(&ack("AE", "8")).await;
    sender.send(&format!("{}MSA|AA|9\r", adt("response"))).await;
    assert_eq!(
        sender.exchange(&adt("1")).await.short(),
        "AA 1",
        "the first answer is to the first message that wants one"
    );
    let statuses: Vec<Status> = running.stored().iter().map(|(_, stored)| stored.status).collect();
    assert_eq!(statuses, [Status::Dropped, Status::Dropped, Status::Routed, Status::Routed]);
    assert_eq!(out.received(2).await, ["response", "1"]);
    running.stop().await;
}

/// The answers to a message with these MSH-15 and MSH-16, up to that to a message in original mode.
async fn answers(sender: &mut Sender, event: &str, accept: &str, application: &str) -> Vec<String> {
    let message = adt("1").replace("A01", event).replace("|2.5\r", &format!("|2.5|||{accept}|{application}\r"));
    sender.send(&message).await;
    sender.send(&adt("end")).await;
    let mut codes = Vec::new();
    let mut ids = Vec::new();
    loop {
        let answer: Answer = sender.answer().await;
        ids.push(answer.at("MSH-10"));
        if answer.at("MSA-2") == "end" {
            break;
        }
        assert_eq!(answer.at("MSA-2"), "1");
        codes.push(answer.at("MSA-1"));
    }
    let count = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), count, "each answer has a control id of its own");
    codes
}

#[tokio::test(flavor = "multi_thread")]
async fn enhanced_mode_gives_the_acknowledgements_it_asks_for() {
    let (rig, _out) = rig("").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    // MSH-15, MSH-16, then the answers to a message that is accepted, rejected and failed on.
    let cases = [
        // A message that failed is stored: that is committed (CA), and the application answer reports the result.
        ("", "", ["AA", "AR", "AE"]),
        // Blanks are no value: without an answer, their sender would repeat the message without end.
        (" ", " ", ["AA", "AR", "AE"]),
        ("  ", "", ["AA", "AR", "AE"]),
        ("", " ", ["AA", "AR", "AE"]),
        ("AL", " ", ["CA", "CR", "CA"]),
        ("AL", "NE", ["CA", "CR", "CA"]),
        ("NE", "AL", ["AA", "AR", "AE"]),
        ("AL", "AL", ["CA AA", "CR", "CA AE"]),
        ("NE", "NE", ["", "", ""]),
        ("ER", "NE", ["", "CR", ""]),
        ("SU", "NE", ["CA", "", "CA"]),
        ("NE", "ER", ["", "AR", "AE"]),
        ("NE", "SU", ["AA", "", ""]),
        ("ER", "SU", ["AA", "CR", ""]),
        ("SU", "ER", ["CA", "AR", "CA AE"]),
        ("AL", "", ["CA", "CR", "CA"]),
        ("", "AL", ["AA", "AR", "AE"]),
    ];
    for (accept, application, expected) in cases {
        for (event, expected) in ["A01", "A02", "A03"].iter().zip(expected) {
            let codes = answers(&mut sender, event, accept, application).await;
            assert_eq!(codes.join(" "), expected, "MSH-15 {accept:?}, MSH-16 {application:?}, {event}");
        }
    }
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_may_acknowledge_never_or_always_in_original_mode() {
    let (rig, out) = rig("acknowledge = \"original\"\n").await;
    rig.service("mute", "acknowledge = \"never\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for (accept, application) in [("AL", "NE"), ("NE", "NE"), ("", "")] {
        assert_eq!(answers(&mut sender, "A01", accept, application).await, ["AA"]);
    }
    let mut mute = Sender::connect(running.address("mute")).await;
    for message in [adt("unheard"), adt("refused").replace("A01", "A02"), "no message".to_owned()] {
        mute.send(&message).await;
    }
    mute.finish().await;
    assert_eq!(mute.answer_or_end().await, None);
    assert!(out.received(7).await.contains(&"unheard".to_owned()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_mllp_release_2_each_frame_is_answered_by_a_commit_byte_first() {
    let (rig, _out) = rig("commit_bytes = true\n[intake]\nmessage_bytes = \"8KiB\"\n").await;
    rig.service("mute", "commit_bytes = true\nacknowledge = \"never\"\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let [ack, nak] = [COMMIT_ACK, COMMIT_NAK].map(|frame| frame[1]);
    let large = format!("{}NTE|1||{}\r", adt("1"), "x".repeat(9_000));
    for (message, commit, answer) in
        [(adt("1"), ack, "AA 1"), (adt("1").replace("A01", "A02"), nak, "AR 1"), (large, nak, "AR 1")]
    {
        sender.send(&message).await;
        assert_eq!(sender.answer().await.0, [commit]);
        assert_eq!(sender.answer().await.short(), answer);
    }
    let mut mute = Sender::connect(running.address("mute")).await;
    mute.send(&adt("2")).await;
    assert_eq!(mute.answer().await.0, [ack]);
    mute.send("no message").await;
    assert_eq!(mute.answer().await.0, [nak]);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_of_mllp_release_2_answers_by_commit_bytes() {
    let mut receiver = Receiver::start().await;
    let rig = Rig::to(receiver.address);
    rig.write("rules/main.rules", ALL_TO_OUT).operation("out", receiver.address, "commit_bytes = true\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for id in ["1", "2"] {
        sender.accepted(&adt(id)).await;
    }
    receiver.next_is("1").await.write(&COMMIT_NAK);
    receiver.next_is("1").await.write(&COMMIT_ACK);
    receiver.next_is("2").await.write(&COMMIT_ACK);
    let notes: Vec<String> = running.until_outcomes(2).await.into_iter().map(|outcome| outcome.detail).collect();
    assert_eq!(notes, ["ACK (MLLP release 2)", "ACK (MLLP release 2)"]);
    running.stop().await;
}
