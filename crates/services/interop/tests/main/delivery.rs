//! A good message's way: acknowledged, stored, routed, transformed, delivered; and its entry in the history.

use interop::history::{Counts, Filter, OutputState};
use interop::record::{DeliveryOutcome, Status};

use crate::receiver::Accepting;
use crate::rig::{Rig, adt, until};

const RULES: &str = r#"match first
rule admissions when MSH-9.1 = "ADT" {
    send to ward using to-ward
    send to billing
}
rule queries when MSH-9.1 = "QRY" { drop "nobody answers queries" }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn a_good_message_is_acknowledged_stored_routed_transformed_and_delivered() {
    let (ward, billing) = (Accepting::start().await, Accepting::start().await);
    let rig = Rig::new();
    rig.service("in", "")
        .write("rules/main.rules", RULES)
        .write("transforms/to-ward.hl7t", "set MSH-5 = \"WARD\"\n")
        .operation("ward", ward.address, "")
        .operation("billing", billing.address, "");
    let running = rig.start_with_bodies().await;
    let mut sender = running.sender().await;
    let answer = sender.exchange(&adt("17")).await;
    assert_eq!(answer.short(), "AA 17");
    assert_eq!([3, 4, 5, 6].map(|n| answer.at(&format!("MSH-{n}"))), ["HUB", "X", "HIS", "NORTH"]);
    assert_eq!(answer.at("MSH-9"), "ACK^A01^ACK");
    assert_eq!(ward.received(1).await, ["17"]);
    assert_eq!(billing.received(1).await, ["17"]);
    assert_eq!(billing.bodies(), [adt("17").into_bytes()], "what no transform touches goes out byte for byte");
    assert_eq!(ward.bodies(), [adt("17").replace("|HUB|", "|WARD|").into_bytes()]);
    running.idle("ward").await;
    running.idle("billing").await;
    running.until_outcomes(2).await;
    history_agrees(&rig);
    running.stop().await;
    history_agrees(&rig);
}

/// List, show, trace and count report the same of the one message.
fn history_agrees(rig: &Rig) {
    let history = rig.history();
    let lines = history.list(&Filter::default()).expect("it lists");
    let [line] = lines.as_slice() else { panic!("one message: {lines:?}") };
    assert_eq!((line.service.as_str(), line.control_id.as_str(), line.status), ("in", "17", Status::Routed));
    assert_eq!(line.kind, "ADT^A01^ADT_A01");
    let delivered = |name: &str| (name.to_owned(), OutputState::Delivered);
    assert_eq!(line.outputs, [delivered("ward"), delivered("billing")]);
    let stored = history.show(line.id).expect("it shows");
    assert_eq!(stored.raw, adt("17").as_bytes());
    assert_eq!(stored.reason, "main: admissions");
    assert_eq!((stored.outputs[0].transform.as_str(), stored.outputs[1].transform.as_str()), ("to-ward", ""));
    assert_eq!(stored.outputs[1].body, stored.raw);
    let trace = history.trace(line.id).expect("it traces");
    assert_eq!(trace.stored, stored);
    let mut outcomes: Vec<_> = trace.deliveries.iter().map(|d| (d.output, d.outcome, d.detail.as_str())).collect();
    outcomes.sort_by_key(|(output, _, _)| *output);
    assert_eq!(outcomes, [(0, DeliveryOutcome::Delivered, "AA"), (1, DeliveryOutcome::Delivered, "AA")]);
    let counts = Counts { inbound: 1, outputs: 2, delivered: 2, objects: 3, ..Counts::default() };
    assert_eq!(history.count().expect("it counts"), counts);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_goes_nowhere_is_acknowledged_and_kept() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let rules =
        "match first\nrule a when MSH-9.2 = \"A02\" { send to out }\nrule q when MSH-9.2 = \"A01\" { drop \"why\" }\n";
    rig.write("rules/main.rules", rules);
    let running = rig.start().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("dropped")).await;
    sender.accepted(&adt("unmatched").replace("A01", "A03")).await;
    let kept: Vec<_> = running.stored().into_iter().map(|(_, stored)| (stored.status, stored.reason)).collect();
    let expected = [(Status::Dropped, "main: q: dropped: why"), (Status::Unmatched, "main: no rule holds")];
    assert_eq!(kept.iter().map(|(s, r)| (*s, r.as_str())).collect::<Vec<_>>(), expected);
    assert!(out.ids().is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_message_that_one_transform_fails_on_nothing_is_sent_anywhere() {
    let (one, two) = (Accepting::start().await, Accepting::start().await);
    let rig = Rig::new();
    rig.service("in", "")
        .write("rules/main.rules", "match first\nrule all { send to one; send to two using number }\n")
        .write("transforms/number.hl7t", "set ZZZ-1 = \"x\"\n")
        .operation("one", one.address, "")
        .operation("two", two.address, "");
    let running = rig.start().await;
    let answer = running.sender().await.exchange(&adt("1")).await;
    assert_eq!((answer.short().as_str(), answer.at("ERR-3.1").as_str()), ("AE 1", "207"));
    let (_, stored) = running.stored().remove(0);
    assert_eq!((stored.status, stored.outputs.len()), (Status::Errored, 0));
    assert_eq!(running.status().refused, 1);
    assert!(one.ids().is_empty() && two.ids().is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_and_a_delta_journal_give_the_same_messages() {
    let out = Accepting::start().await;
    for bodies in [interop::engine::Bodies::Full, interop::engine::Bodies::Delta] {
        let mut rig = Rig::new();
        rig.options.bodies = bodies;
        rig.usual(out.address)
            .write("rules/main.rules", "match first\nrule all { send to out using t }\n")
            .write("transforms/t.hl7t", "set PID-5.2 = \"BOB\"\n");
        let running = rig.start().await;
        running.sender().await.accepted(&adt("1")).await;
        running.idle("out").await;
        let (_, stored) = running.stored().remove(0);
        assert_eq!(stored.outputs[0].body, adt("1").replace("^ANN", "^BOB").as_bytes());
        let whole = stored.outputs[0].new_bytes == stored.outputs[0].body.len();
        assert_eq!(whole, bodies == interop::engine::Bodies::Full);
        running.stop().await;
    }
    until("both arrived", || (out.bodies().len() == 2).then_some(())).await;
    assert_eq!(out.bodies()[0], out.bodies()[1]);
}
