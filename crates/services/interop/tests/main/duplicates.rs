//! The same message twice: allowed, flagged, or dropped and acknowledged again.

use std::sync::Arc;

use device::MemoryShelf;

use crate::receiver::{Accepting, Down, Receiver};
use crate::rig::{Rig, adt, until};
use crate::shelves::HeldShelf;

fn policy(rig: &Rig, duplicates: &str) {
    rig.service("in", &format!("[intake]\nduplicates = \"{duplicates}\"\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_seen_before_is_allowed_flagged_or_dropped_as_the_service_says_also_after_a_restart() {
    // Policy, then the flags of the messages stored after: one, the same, the same with other content, restart, the
    // same.
    let cases: [(&str, &[bool]); 3] =
        [("allow", &[false, false, false, false]), ("flag", &[false, true, true, true]), ("drop", &[false, true])];
    for (duplicates, flags) in cases {
        let out = Accepting::start().await;
        let rig = Rig::to(out.address);
        policy(&rig, duplicates);
        let running = rig.start().await;
        let mut sender = running.sender().await;
        let other = adt("1").replace("SAMPLE", "OTHER");
        for message in [&adt("1"), &adt("1"), &other] {
            assert_eq!(sender.exchange(message).await.short(), "AA 1", "{duplicates}");
        }
        running.stop().await;
        let running = rig.start().await;
        assert_eq!(running.sender().await.exchange(&other).await.short(), "AA 1", "{duplicates}");
        let stored: Vec<bool> = running.stored().iter().map(|(_, stored)| stored.duplicate).collect();
        assert_eq!(stored, flags, "{duplicates}");
        assert_eq!(out.received(flags.len()).await.len(), flags.len(), "{duplicates}");
        running.idle("out").await;
        let expected = u64::from(duplicates != "allow");
        assert_eq!(running.status().duplicates, expected, "{duplicates}: since the restart");
        running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resend_of_a_refused_message_is_no_duplicate() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    policy(&rig, "drop");
    rig.write("rules/main.rules", "match first\nrule no when MSH-3 = \"HIS\" { reject \"not yet\" }\n");
    let running = rig.start().await;
    let mut sender = running.sender().await;
    for _ in 0..2 {
        assert_eq!(sender.exchange(&adt("1")).await.short(), "AR 1");
    }
    rig.write("rules/main.rules", crate::rig::ALL_TO_OUT);
    running.request("reload").await.expect("the rules are right");
    sender.accepted(&adt("1")).await;
    assert_eq!(out.received(1).await, ["1"]);
    running.stop().await;
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    assert_eq!(running.status().duplicates, 1, "accepted once, it is known, also after a restart");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_is_acknowledged_again_only_when_the_first_is_durable() {
    let out = Accepting::start().await;
    let shelf = Arc::new(HeldShelf::new(Arc::new(MemoryShelf::new())));
    let rig = Rig::on(shelf.clone());
    policy(rig.usual(out.address), "drop");
    let running = rig.start().await;
    let (mut first, mut second) = (running.sender().await, running.sender().await);
    shelf.hold();
    first.send(&adt("1")).await;
    until("the flush is held up", || (shelf.waiting() > 0).then_some(())).await;
    second.send(&adt("1")).await;
    until("the duplicate is seen", || (running.status().stored == 1).then_some(())).await;
    assert!(first.is_silent().await && second.is_silent().await);
    shelf.release();
    assert_eq!(first.answer().await.short(), "AA 1");
    assert_eq!(second.answer().await.short(), "AA 1");
    assert_eq!(running.stored().len(), 1);
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_duplicate_of_a_message_that_waits_for_room_is_acknowledged_only_when_that_is_stored() {
    let down = Down::new();
    let rig = Rig::to(down.address);
    policy(&rig, "drop");
    rig.operation("out", down.address, "[queue]\nmessages = 1\n");
    let running = rig.start().await;
    running.sender().await.accepted(&adt("0")).await;
    let (mut first, mut second) = (running.sender().await, running.sender().await);
    first.send(&adt("1")).await;
    second.send(&adt("1")).await;
    until("both are read", || (running.status().connections >= 2).then_some(())).await;
    assert!(first.is_silent().await && second.is_silent().await, "there is no room yet");
    let mut receiver: Receiver = down.up();
    receiver.next_is("0").await.answer("AA");
    receiver.next_is("1").await.answer("AA");
    assert_eq!(first.answer().await.short(), "AA 1");
    assert_eq!(second.answer().await.short(), "AA 1");
    running.idle("out").await;
    assert_eq!((running.stored().len(), running.status().duplicates), (2, 1));
    running.stop().await;
    assert_eq!(receiver.rest().await, [""; 0]);
}
