//! What keeps the audit from being filled at the control socket, what administrators can still do when it is, and rights that are
//! taken for a time.

use std::time::Duration;

use node::Clock;
use node::audit::{AuditOutcome, AuditSettings};
use node::identity::Action;
use node::trouble::Matter;
use serde_json::json;

use crate::receiver::Accepting;
use crate::rig::{Rig, adt, until};
use crate::rights::{entries, grant, refusal, user};

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_refused_requests_has_few_entries_and_others_have_theirs() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let (eve, ann) = (user(&running, "eve").await, user(&running, "ann").await);
    let drop = json!({ "verb": "change", "changes": [{ "drop": { "role": "ann", "cascade": false } }] });
    let identity = format!("identity {drop}");
    let before = entries(&running).len();
    for request in [format!("message {id}"), identity.clone(), "as nobody status".to_owned()] {
        for _ in 0..30 {
            let line = if request.starts_with("as") { request.clone() } else { format!("as {eve} {request}") };
            refusal(&running, &line).await;
        }
    }
    let found = entries(&running).split_off(before);
    assert!(found.iter().all(|chained| chained.entry.outcome == AuditOutcome::Refused), "{found:?}");
    // Twenty in ten seconds: of eve, and of the user of the machine, whose logins failed.
    let of = |name: &str| found.iter().filter(|chained| (chained.entry.actor.name == "eve") == (name == "eve")).count();
    assert!((20..=40).contains(&of("eve")) && (20..=40).contains(&of("")), "{} {}", of("eve"), of(""));
    refusal(&running, &format!("as {ann} message {id}")).await;
    let last = entries(&running).pop().expect("it has one").entry;
    assert_eq!((last.actor.name.as_str(), last.outcome), ("ann", AuditOutcome::Refused), "others are not left out");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn when_reads_have_filled_the_audit_an_administrator_reads_it_and_locks_who_fills_it() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.audit = AuditSettings { max_bytes: 40_000, ..AuditSettings::default() };
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let ann = user(&running, "ann").await;
    for action in [Action::MessageMetadata, Action::MessageBody, Action::OperationSuspend] {
        let object = if action == Action::OperationSuspend { "operation *" } else { "service *" };
        grant(&running, action, object, "ann").await;
    }
    let show = format!("as {ann} message {id}");
    let mut shown = 0;
    while running.request(&show).await.is_ok() {
        shown += 1;
        assert!(shown < 1_000, "it is never full");
    }
    assert!(refusal(&running, &show).await.contains("more are kept for what administrators do"));
    while running.request(&format!("as {ann} suspend out")).await.is_ok() {}
    let read = "audit {\"verb\":\"read\",\"query\":{\"newest_first\":true,\"limit\":3}}";
    let before = entries(&running).len();
    running.request(read).await.expect("it can be read");
    let lock =
        json!({ "verb": "change", "changes": [{ "set": { "role": "ann", "changes": [{ "locked": "floods" }] } }] });
    running.request(&format!("identity {lock}")).await.expect("administration has a place of its own");
    assert_eq!(entries(&running).len(), before + 2, "both have their entries");
    assert!(refusal(&running, &show).await.contains("permission denied"));
    let trouble = running.status().troubles.into_iter().find(|trouble| trouble.matter == Matter::Audit);
    let trouble = trouble.expect("it is still full");
    assert!(trouble.next.contains("terrace audit list") && trouble.next.contains("terrace user lock"), "{trouble:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_glass_gives_a_right_for_a_time_alerts_others_and_ends_by_itself() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let ann = user(&running, "ann").await;
    grant(&running, Action::MessageMetadata, "service in", "ann").await;
    let show = format!("as {ann} message {id}");
    let until_us = Clock::system().now_us() + 3_000_000;
    let taken = ["message-body", "unmasked"].map(|action| {
        let object = json!({ "kind": "service", "name": "in" });
        json!({ "break-glass": { "action": action, "object": object, "until_us": until_us, "reason": "ticket 7" } })
    });
    let take = format!("as {ann} identity {}", json!({ "verb": "change", "changes": taken }));
    assert!(refusal(&running, &take).await.contains("needs break-glass"));
    assert_eq!(entries(&running).pop().expect("it has one").entry.details["break_glass"], "yes");
    grant(&running, Action::BreakGlass, "node", "ann").await;
    assert!(running.request(&show).await.expect("it may list it")["withheld"].is_string());
    running.request(&take).await.expect("it may");
    let shown = running.request(&show).await.expect("it has the right");
    assert_eq!(shown["raw"].as_str(), Some(adt("1").as_str()));
    let last = entries(&running).pop().expect("it has one").entry;
    assert_eq!((last.details["break_glass"].as_str(), last.details["masked"].as_str()), ("yes", "no"));
    let glass = || running.status().troubles.into_iter().find(|trouble| trouble.matter == Matter::BreakGlass);
    let trouble = glass().expect("others are alerted");
    for part in ["ann has taken message-body on service in, unmasked on service in until", "because: ticket 7"] {
        assert!(trouble.reason.contains(part), "{trouble:?}");
    }
    until("it ends by itself", || (Clock::system().now_us() > until_us + 500_000).then_some(())).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(running.request(&show).await.expect("it may list it")["withheld"].is_string());
    assert_eq!(glass(), None);
    running.stop().await;
}
