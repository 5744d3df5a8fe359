//! Messages that take long: their effect on others, when they end, and long ones that are ordinary.

use interop::record::Status;

use crate::receiver::Accepting;
use crate::rig::{Rig, adt, until};
use crate::sender::Sender;

/// A message with segments of one kind.
fn with_segments(id: &str, name: &str, count: usize) -> String {
    let mut message = adt(id);
    for at in 1..=count {
        message += &format!("{name}|{at}|NM|GLU^Glucose||5.4|mmol/L|3.9-5.8|N|||F\r");
    }
    message
}

/// A node whose messages with an OBX go through `transform`, which may take `time`.
async fn rig(transform: &str, time: &str) -> (Rig, Accepting) {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("in", &format!("[intake]\ndecision_time = \"{time}\"\n"))
        .write("transforms/slow.hl7t", transform)
        .write(
            "rules/main.rules",
            "match first\nrule slow when exists OBX { send to out using slow }\nrule other { send to out }\n",
        );
    (rig, out)
}

/// A loop inside a loop over the same segments need not be fast.
const ENDLESS: &str = "set MSH-6 = 'x'\nfor each OBX as a { for each OBX as b { for each OBX as c {\n\
    if a-5 = b-1 and b-1 = c-5 { set PID-2 = 'x' }\n} } }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_message_that_takes_long_holds_up_its_own_connection_and_nothing_else() {
    let (rig, out) = rig(ENDLESS, "1h").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    // One that is tried on the socket's thread first, and one that is too long for that.
    for (at, segments) in [2_000, 10_000].into_iter().enumerate() {
        let mut slow = running.sender().await;
        slow.send(&with_segments("slow", "OBX", segments)).await;
        slow.send(&adt("behind")).await;
        for n in 0..20 {
            sender.accepted(&adt(&format!("{at}.{n}"))).await;
            running.request("status").await.expect("the node answers");
        }
        assert!(slow.is_silent().await, "what comes behind it on its connection waits");
    }
    let received = out.received(40).await;
    assert!(!received.contains(&"behind".to_owned()));
    // Their connections are closed: decisions without a waiting sender are abandoned, or the node would not stop for
    // hours.
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_takes_too_long_is_refused_at_a_statement_and_the_next_is_taken() {
    let (rig, out) = rig(ENDLESS, "50ms").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let answer = sender.exchange(&with_segments("slow", "OBX", 5_000)).await;
    assert_eq!(answer.short(), "AE slow");
    let text = answer.at("ERR-8");
    assert!(text.starts_with("transforms/slow.hl7t:") && text.contains("50ms"), "{text}");
    let line = text.trim_start_matches("transforms/slow.hl7t:").split(':').next();
    assert!(matches!(line, Some("2" | "3")), "the line of the loop: {text}");
    sender.accepted(&adt("next")).await;
    assert_eq!(out.received(1).await, ["next"]);
    assert_eq!(running.stored()[0].1.status, Status::Errored, "it can be looked at, and sent again");
    running.stop().await;
}

/// 45,000 results, 1.8 MB, each numbered, one in two given a note, one in ten taken out.
#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_45_000_results_is_transformed_like_a_short_one() {
    let transform = "for each OBX as o {\n\
        set o-1 = index(o)\n\
        if o-1 matches '*0' { delete o }\n\
        else if o-1 matches '*2' { insert NTE after o as n { set n-3 = o-3.2 } }\n\
        set PID-2 = count(NTE)\n\
        if exists NTE { set NTE[last]-1 = index(o) }\n\
        }\n";
    let (rig, out) = rig(transform, "2m").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let message = with_segments("long", "OBX", 45_000);
    let answer = sender.exchange(&message).await;
    assert_eq!(answer.short(), "AA long", "{answer:?}");
    out.received(1).await;
    let body = String::from_utf8(out.bodies().remove(0)).expect("it is ASCII");
    let count = |name: &str| body.split('\r').filter(|segment| segment.starts_with(name)).count();
    assert_eq!((count("OBX|"), count("NTE|")), (40_500, 4_500));
    assert!(body.contains("\rOBX|44992|NM|") && body.contains("\rNTE|45000||Glucose\rOBX|44993|"), "the last of them");
    assert!(body.contains("\rPID|1|4500|"));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_closes_its_side_behind_a_long_message_or_a_batch_has_its_answer() {
    let (rig, _out) = rig("for each OBX as o { set o-1 = index(o) }\n", "2m").await;
    let running = rig.start().await;
    let mut long = running.sender().await;
    long.send(&with_segments("long", "OBX", 45_000)).await;
    long.finish().await;
    assert_eq!(long.answer().await.short(), "AA long");
    let mut batch = running.sender().await;
    batch.send(&(0..300).map(|n| adt(&n.to_string())).collect::<String>()).await;
    batch.finish().await;
    for n in 0..300 {
        assert_eq!(batch.answer().await.short(), format!("AA {n}"));
    }
    running.stop().await;
}

/// Texts of half a megabyte, made of 45,000 pieces: one in a variable, one in the message itself.
#[tokio::test(flavor = "multi_thread")]
async fn texts_are_built_piece_by_piece_in_a_loop() {
    let transform = "let codes = ''\n\
        insert NTE at end as n\n\
        for each OBX as o {\n\
        let codes = codes + o-1 + ' '\n\
        set n-3.2 = n-3.2 + o-1 + ' ' + n-1\n\
        }\n\
        set n-4 = codes\n";
    let (rig, out) = rig(transform, "2m").await;
    let running = rig.start().await;
    let answer = running.sender().await.exchange(&with_segments("long", "OBX", 45_000)).await;
    assert_eq!(answer.short(), "AA long", "{answer:?}");
    out.received(1).await;
    let body = String::from_utf8(out.bodies().remove(0)).expect("it is ASCII");
    let expected: String = (1..=45_000).map(|n| format!("{n} ")).collect();
    assert!(body.ends_with(&format!("\rNTE|||^{expected}|{expected}\r")));
    running.stop().await;
}

/// The loop of the fault: it took 27 s of processor time, and as long as its square for more.
#[tokio::test(flavor = "multi_thread")]
async fn repetitions_of_a_long_field_are_read_written_and_deleted_one_by_one() {
    let transform = "for each PID-3 as id {\n\
        if id.5 = 'SS' { delete id }\n\
        else { set id.4 = 'NORTH' }\n\
        set PID-2 = index(id)\n\
        }\n";
    let (rig, out) = rig(transform, "2m").await;
    let running = rig.start().await;
    let mut sender = running.sender().await;
    let ids: Vec<String> = (0..100_000).map(|n| format!("{n}^^^X^{}", if n % 2 == 0 { "SS" } else { "MR" })).collect();
    let answer = sender
        .exchange(&format!("{}OBX|1\r", adt("ids").replace("|1||1||", &format!("|1||{}||", ids.join("~")))))
        .await;
    assert_eq!(answer.short(), "AA ids", "{answer:?}");
    out.received(1).await;
    let body = String::from_utf8(out.bodies().remove(0)).expect("it is ASCII");
    let expected: Vec<String> = (0..50_000).map(|n| format!("{}^^^NORTH^MR", 2 * n + 1)).collect();
    assert!(body.contains(&format!("PID|1|100000|{}||SAMPLE^ANN\r", expected.join("~"))));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_that_gives_up_on_a_long_message_gives_its_turn_back() {
    let (rig, _out) = rig(ENDLESS, "1h").await;
    let running = rig.start().await;
    // More of them than there are threads for long messages.
    for _ in 0..4 {
        let mut slow = Sender::connect_to_reset(running.address("in")).await;
        slow.send(&with_segments("slow", "OBX", 5_000)).await;
        assert!(slow.is_silent().await);
        drop(slow);
    }
    until("the connections end", || (running.status().connections == 0).then_some(())).await;
    let mut sender = Sender::connect(running.address("in")).await;
    sender.accepted(&with_segments("short", "OBX", 1)).await;
    let large = format!("{}NTE|1||{}\r", adt("large"), "x".repeat(300 << 10));
    sender.accepted(&large).await;
    running.stop().await;
}
