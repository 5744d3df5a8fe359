//! The audit of a running node: what is shown and changed has an entry, and without one it is not.

use interop::history::History;
use interop::rows::interpreter;
use node::audit::chain::RESTORED;
use node::audit::requests::{note, note_under};
use node::audit::{
    ActorKind, AuditEntry, AuditFilter, AuditOutcome, AuditPlace, AuditQuery, AuditSettings, ChainedEntry, Reads,
};
use node::control::LocalPeer;
use node::maintenance;
use node::trouble::Matter;
use store::Until;

use crate::receiver::Accepting;
use crate::rig::{Rig, Running, adt};

/// The entries of an audit, oldest first.
fn entries(rig: &Rig) -> Vec<ChainedEntry> {
    let place = AuditPlace::open(rig.data(), interpreter()).expect("it can be read");
    let filter = AuditFilter { until_us: None, ..AuditFilter::default() };
    let page = place.page(&AuditQuery { filter, ..AuditQuery::default() }).expect("it reads");
    assert!(page.damaged.is_empty() && page.next.is_none(), "{page:?}");
    page.entries.into_iter().map(|shown| shown.chained).collect()
}

/// Action, object, outcome and what was read.
fn short(entries: &[ChainedEntry]) -> Vec<(String, String, AuditOutcome, u64)> {
    let of = |chained: &ChainedEntry| {
        let AuditEntry { action, object, outcome, reads, .. } = chained.entry.clone();
        (action, object, outcome, reads.count)
    };
    entries.iter().map(of).collect()
}

async fn refusal(running: &Running, request: &str) -> String {
    running.request(request).await.expect_err("it is refused").to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_body_shown_and_every_change_has_an_entry_of_the_user_who_asked_for_it() {
    use AuditOutcome::{Failed, Granted};
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    running.grant_bodies().await;
    let id = running.ids()[0];
    for request in ["status", "count", "messages {}", &format!("message {id} metadata")] {
        running.request(request).await.expect("it is answered");
    }
    running.request(&format!("message {id}")).await.expect("it is there");
    running.request("message 1").await.expect_err("it is not there");
    running.request("suspend out").await.expect("it is there");
    running.request("resume nowhere").await.expect_err("it is not there");
    let again = running.request(&format!("resend {id} out")).await.expect("it is there");
    running.request("reload").await.expect("it is right");
    let data = rig.data().to_owned();
    let read =
        tokio::task::spawn_blocking(move || History::open(&data).expect("it runs").show(id).map(|stored| stored.raw));
    assert_eq!(read.await.expect("no panic").expect("it is there"), adt("1").as_bytes());
    running.request("resume out").await.expect("it is there");
    running.idle("out").await;
    running.stop().await;
    let found = entries(&rig);
    let message = format!("message {id}");
    let expected = [
        ("message.body", message.as_str(), Granted, 1),
        ("message.body", "message 1", Failed, 0),
        ("operation.suspend", "out", Granted, 0),
        ("operation.resume", "nowhere", Granted, 0),
        ("operation.resume", "nowhere", Failed, 0),
        ("message.resend", &message, Granted, 0),
        ("production.reload", "", Granted, 0),
        ("message.body", &message, Granted, 1),
        ("operation.resume", "out", Granted, 0),
    ];
    let expected: Vec<_> = expected.map(|(a, o, outcome, n)| (a.to_owned(), o.to_owned(), outcome, n)).into();
    assert_eq!(short(&found), expected);
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata("/proc/self").expect("Linux"));
    for entry in found.iter().map(|chained| &chained.entry) {
        assert_eq!((entry.actor.kind, entry.actor.id), (ActorKind::Local, Some(uid)), "{entry:?}");
        assert_eq!(
            (entry.origin.protocol.as_str(), entry.details["pid"].as_str()),
            ("control", &*std::process::id().to_string())
        );
        assert!(!entry.origin.session.is_empty());
    }
    assert_eq!(found[0].entry.reads, Reads::one(id));
    assert_eq!((found[4].entry.details["entry"].as_str(), found[5].entry.details["operations"].as_str()), ("4", "out"));
    assert!(found[4].entry.reason.contains("no operation is called `nowhere`"), "{:?}", found[4]);
    assert!(again.as_u64().is_some());
    // The next start goes on in the same chain.
    let running = rig.start_on_files().await;
    running.request("suspend out").await.expect("it is there");
    let (data, heads) = (rig.data().to_owned(), [running.node.audit().head()]);
    let verified = tokio::task::spawn_blocking(move || AuditPlace::open(&data, interpreter())?.verify(&heads)).await;
    let report = verified.expect("no panic").expect("it runs");
    assert!(report.is_sound() && report.entries == 10, "{report:?}");
    running.stop().await;
    let stopped = AuditPlace::open(rig.data(), interpreter()).expect("it can be read");
    assert_eq!(stopped.verify(&[report.head]).expect("it reads").head, report.head);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_audit_stops_reads_of_bodies_and_administration_and_never_messages_and_says_so() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.audit = AuditSettings { max_bytes: 2_000, ..AuditSettings::default() };
    let running = rig.start().await;
    running.grant_bodies().await;
    let mut sender = running.sender().await;
    sender.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let show = format!("message {id}");
    let mut shown = 0;
    // Entries have different sizes: it is full when the smallest of those that are refused, of a reload, finds no room.
    for request in [&show, "resume out", "reload"] {
        while running.request(request).await.is_ok() {
            shown += 1;
            assert!(shown < 100, "it is never full");
        }
    }
    assert_eq!(running.node.audit().head().number, shown);
    let resend = format!("resend {id}");
    for request in [&show, &resend, "suspend out", "resume out", "reload", "backup \"/nowhere/at/all\""] {
        let refused = refusal(&running, request).await;
        assert!(refused.contains("the audit is full") && !refused.contains("PID"), "{request}: {refused}");
    }
    assert!(!running.is_suspended("out"), "what has no entry is not done");
    sender.accepted(&adt("2")).await;
    assert_eq!(out.received(2).await, ["1", "2"], "messages are taken and delivered");
    let trouble = running.status().troubles.into_iter().find(|trouble| trouble.matter == Matter::Audit);
    let trouble = trouble.expect("the status says so");
    assert!(trouble.reason.contains("the audit is full") && trouble.next.contains("max_bytes"), "{trouble:?}");
    let (head, read) = ("audit {\"verb\":\"head\"}", "audit {\"verb\":\"read\",\"query\":{}}");
    // With the clock retention goes on, which makes room.
    for request in ["status", "count", "messages {}", head, read, "confirm-clock"] {
        running.request(request).await.expect("it needs no entry");
    }
    assert_eq!(running.ids().len(), 2);
    running.request("stop").await.expect("a node whose audit is full can be stopped");
    // Those two have smaller entries, and write them where there is room.
    let written = running.node.audit().head().number;
    running.stop().await;
    rig.options.audit = AuditSettings::default();
    let running = rig.start().await;
    running.request(&show).await.expect("there is room");
    assert_eq!(running.node.audit().head().number, written + 1);
    assert!(running.status().troubles.is_empty());
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_removes_entries_of_a_running_node_and_leaves_messages_alone() {
    let out = Accepting::start().await;
    let mut rig = Rig::to(out.address);
    rig.options.audit = AuditSettings { keep_bytes: Some(1_000), ..AuditSettings::default() };
    let running = rig.start().await;
    running.grant_bodies().await;
    running.sender().await.accepted(&adt("1")).await;
    let show = format!("message {}", running.ids()[0]);
    for _ in 0..20 {
        running.request(&show).await.expect("there is room");
    }
    let audit = running.node.audit().clone();
    crate::rig::until("the oldest entries are removed", || (audit.bytes() < 1_500).then_some(())).await;
    drop(audit);
    let report = running.request("audit {\"verb\":\"verify\"}").await.expect("it is answered");
    assert_eq!((report["wrong"].as_u64(), report["anchor"]["number"].is_u64()), (Some(0), true), "{report}");
    running.request(&show).await.expect("the message is there");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_audit_says_so_and_a_head_kept_elsewhere_shows_that_newer_entries_are_gone() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start_on_files().await;
    running.request("suspend out").await.expect("it is there");
    let (backup, to) = (rig.folder().join("../backup"), rig.folder().join("../restored"));
    let folder = serde_json::Value::from(backup.display().to_string());
    running.request(&format!("backup {folder}")).await.expect("it is made");
    running.request("resume out").await.expect("it is there");
    running.request("suspend out").await.expect("it is there");
    let head = running.node.audit().head();
    running.stop().await;
    let made = maintenance::restore(&backup, None, &to, Until::End, &|_| None, &mut |_| ());
    let (_, lock) = made.expect("it is whole");
    let entry = || AuditEntry::new(RESTORED, "backup").by(&LocalPeer::this_process());
    note(&to, interpreter(), entry()).expect_err("nobody else gets in before it is said");
    note_under(&lock, interpreter(), entry()).expect("there is room");
    drop(lock);
    let restored = AuditPlace::open(&to, interpreter()).expect("it can be read");
    let report = restored.verify(&[]).expect("it reads");
    assert!(report.is_sound() && report.restored == [3], "{report:?}");
    let report = restored.verify(&[head]).expect("it reads");
    assert_eq!((head.number, report.wrong), (4, 1));
    assert!(report.problems[0].contains("entry 3 says that a backup was restored"), "{report:?}");
}
