//! Rights at the control socket: who has none gets nothing, and who has some gets that.

use std::sync::Arc;

use hl7::mask::Masker;
use node::audit::{ActorKind, AuditFilter, AuditOutcome, AuditQuery, AuditReader, ChainedEntry};
use node::identity::{
    Action, Attributes, Caller, CredentialChange, Credentials, IdentityChange, IdentityRequest, ObjectPattern,
    Privileges, Role, answer,
};
use serde_json::Value;

use crate::receiver::Accepting;
use crate::rig::{Rig, Running, adt, keyed, until};

async fn change(running: &Running, change: IdentityChange) {
    let guard = Arc::clone(running.node.guard());
    let work = move || guard.change(&Caller::node(), &[change]);
    tokio::task::spawn_blocking(work).await.expect("no panic").expect("the node may");
}

/// Makes a user with a token; the token.
pub(crate) async fn user(running: &Running, name: &'static str) -> String {
    let role = Role { name: name.into(), attributes: Attributes::user(), credentials: Credentials::default() };
    change(running, IdentityChange::Create(role)).await;
    let guard = Arc::clone(running.node.guard());
    let request = IdentityRequest::DrawToken { role: name.into(), name: "ci".into(), until_us: None };
    let drawn = tokio::task::spawn_blocking(move || answer(&guard, &Caller::node(), request)).await.expect("no panic");
    drawn.expect("the node may")["token"].as_str().expect("a text").to_owned()
}

pub(crate) async fn grant(running: &Running, action: Action, object: &str, grantee: &str) {
    let object = ObjectPattern::parse(object).expect("it is one");
    let privileges = Privileges { actions: vec![action], object, columns: Vec::new(), grantee: grantee.into() };
    change(running, IdentityChange::Grant { privileges, grant_option: false }).await;
}

pub(crate) async fn refusal(running: &Running, request: &str) -> String {
    running.request(request).await.expect_err(request).to_string()
}

pub(crate) fn entries(running: &Running) -> Vec<ChainedEntry> {
    let audit = running.node.audit();
    audit.wait_visible().expect("it goes on");
    let query = AuditQuery { filter: AuditFilter::default(), ..AuditQuery::default() };
    let page = AuditReader::at(audit.store().snapshot()).expect("it reads").page(&query).expect("it reads");
    page.entries.into_iter().map(|shown| shown.chained).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_right_is_refused_at_every_request_and_what_is_audited_is_recorded_as_refused() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    running.sender().await.accepted(&adt("1")).await;
    running.idle("out").await;
    let id = running.ids()[0];
    let eve = user(&running, "eve").await;
    let requests = [
        ("status".to_owned(), false),
        ("count".to_owned(), false),
        ("messages {}".to_owned(), false),
        (format!("message {id} metadata"), false),
        ("identity {\"verb\":\"list\"}".to_owned(), false),
        ("audit {\"verb\":\"head\"}".to_owned(), false),
        ("audit {\"verb\":\"verify\"}".to_owned(), false),
        ("messages {\"mrn\":\"1\"}".to_owned(), true),
        (format!("message {id}"), true),
        (format!("resend {id}"), true),
        ("reload".to_owned(), true),
        ("suspend out".to_owned(), true),
        ("resume out".to_owned(), true),
        ("start {\"operation\":\"out\",\"until_us\":4102444800000000}".to_owned(), true),
        ("suspend nowhere".to_owned(), true),
        ("confirm-clock".to_owned(), true),
        ("stop".to_owned(), true),
        ("verify".to_owned(), true),
        ("check".to_owned(), true),
        ("backup \"/nowhere\"".to_owned(), true),
        ("encryption rotate-data-key".to_owned(), true),
        ("audit {\"verb\":\"read\",\"query\":{}}".to_owned(), true),
    ];
    for (request, is_recorded) in requests {
        let before = entries(&running).len();
        let refused = refusal(&running, &format!("as {eve} {request}")).await;
        assert!(refused.contains("permission denied") && !refused.contains("out"), "{request}: {refused}");
        let found = entries(&running).split_off(before);
        assert_eq!(found.len(), usize::from(is_recorded), "{request}: {found:?}");
        for entry in found.into_iter().map(|chained| chained.entry) {
            assert_eq!(entry.outcome, AuditOutcome::Refused, "{request}: {entry:?}");
            assert_eq!((entry.actor.kind, entry.actor.name.as_str()), (ActorKind::Role, "eve"), "{request}");
            assert!(!format!("{entry:?}").contains(&eve), "no token is recorded");
        }
    }
    // A change of roles that is refused is not begun.
    let make = "identity {\"verb\":\"change\",\"changes\":[{\"drop\":{\"role\":\"eve\",\"cascade\":false}}]}";
    assert!(refusal(&running, &format!("as {eve} {make}")).await.contains("permission denied"));
    assert_eq!(entries(&running).last().expect("it has one").entry.outcome, AuditOutcome::Refused);
    for line in ["as", "as x", "as x status", &format!("as {}x status", &eve[..eve.len() - 1])] {
        let refused = refusal(&running, line).await;
        assert!(refused.contains("permission denied"), "{line}: {refused}");
        assert_eq!(entries(&running).last().expect("it has one").entry.action, "login", "{line}");
    }
    assert!(!running.is_suspended("out") && !*running.node.stopping().borrow());
    running.request("status").await.expect("who runs the node may");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_of_other_services_are_as_if_they_were_not_there_and_bodies_are_a_right_of_their_own() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    rig.service("other", "");
    let running = rig.start().await;
    running.sender().await.accepted(&keyed("1", "7")).await;
    crate::sender::Sender::connect(running.address("other")).await.accepted(&keyed("2", "7")).await;
    let (own, other) = (running.ids()[0], running.ids()[1]);
    let ann = user(&running, "ann").await;
    let asks = |request: String| format!("as {ann} {request}");
    let ids = |lines: Value| -> Vec<u64> {
        lines.as_array().into_iter().flatten().filter_map(|line| line["id"].as_u64()).collect()
    };
    grant(&running, Action::MessageMetadata, "service in", "ann").await;
    let listed = running.request(&asks("messages {}".into())).await.expect("it may");
    assert_eq!(ids(listed), [own]);
    let shown = running.request(&asks(format!("message {own}"))).await.expect("it may see what it is");
    let masked = String::from_utf8(Masker::default().mask(keyed("1", "7").as_bytes(), None)).expect("it was UTF-8");
    assert_eq!((shown["raw"].as_str(), shown["bytes"].as_u64()), (Some(""), Some(masked.len() as u64)));
    let listed = running.request(&asks("messages {}".into())).await.expect("it may");
    assert_eq!(listed[0]["bytes"].as_u64(), Some(masked.len() as u64), "the size is that of the masked message");
    let why = shown["withheld"].as_str().expect("it says so");
    assert!(why.contains("message-body") && why.contains("--to ann"), "{why}");
    assert_eq!(entries(&running).last().expect("it has one").entry.outcome, AuditOutcome::Refused);
    // Hidden and absent are one answer, but for the number.
    let of = |id: u64, text: String| text.replace(&id.to_string(), "N");
    for request in ["message", "resend"] {
        if request == "resend" {
            grant(&running, Action::MessageResend, "service in", "ann").await;
        }
        let hidden = of(other, refusal(&running, &asks(format!("{request} {other}"))).await);
        let absent = of(other + 8, refusal(&running, &asks(format!("{request} {}", other + 8))).await);
        assert!(hidden == absent && hidden.contains("no message N is stored"), "{hidden}, {absent}");
    }
    running.request(&asks(format!("resend {own}"))).await.expect("it may");
    for guess in ["{\"mrn\":\"7\"}", "{\"wanted\":[[\"PID-3.1\",\"7\"]]}"] {
        let refused = refusal(&running, &asks(format!("messages {guess}"))).await;
        assert!(refused.contains("message-body is not allowed"), "{refused}");
    }
    // A right to the bodies of another service shows nothing of this one.
    grant(&running, Action::MessageBody, "service other", "ann").await;
    for guess in
        ["{\"mrn\":\"7\"}", "{\"wanted\":[[\"PID-5.1\",\"SAMPLE\"]]}", "{\"wanted\":[[\"PID-3[1='7'].4\",\"\"]]}"]
    {
        let refused = refusal(&running, &asks(format!("messages {guess}"))).await;
        assert!(refused.contains("is masked"), "{refused}");
    }
    // Nor does a right to see patient data of another service.
    grant(&running, Action::Unmasked, "service other", "ann").await;
    grant(&running, Action::MessageBody, "service in", "ann").await;
    let listed = running.request(&asks("messages {\"mrn\":\"7\"}".into())).await.expect("it may on one");
    assert_eq!(ids(listed), Vec::<u64>::new());
    let listed = running.request(&asks("messages {\"wanted\":[[\"PID-8\",\"\"]],\"last\":9}".into())).await;
    assert_eq!(ids(listed.expect("it may")).first(), Some(&own), "a condition on what is not masked");
    let shown = running.request(&asks(format!("message {own}"))).await.expect("it may");
    assert_eq!(shown["raw"].as_str(), Some(masked.as_str()));
    assert_eq!(shown["outputs"][0]["body"].as_str(), Some(masked.as_str()));
    grant(&running, Action::Unmasked, "service in", "ann").await;
    let listed = running.request(&asks("messages {\"mrn\":\"7\",\"last\":9}".into())).await.expect("it may");
    assert_eq!(ids(listed).first(), Some(&own));
    let shown = running.request(&asks(format!("message {own}"))).await.expect("it may");
    assert_eq!(shown["raw"].as_str(), Some(keyed("1", "7").as_str()));
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_runs_the_node_reads_bodies_once_it_gave_itself_the_right_and_the_audit_says_so() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start_on_files().await;
    running.sender().await.accepted(&adt("1")).await;
    let id = running.ids()[0];
    let show = || {
        let history = rig.history();
        tokio::task::spawn_blocking(move || history.show(id))
    };
    let refused = show().await.expect("no panic").expect_err("nobody gave it the right").to_string();
    assert!(refused.contains("`terrace role grant message-body --on 'service *' --to terrace_local`"), "{refused}");
    running.grant_bodies().await;
    assert_eq!(show().await.expect("no panic").expect("it may").raw, adt("1").as_bytes());
    let found = entries(&running);
    let last = &found.last().expect("it has one").entry;
    assert_eq!((last.outcome, last.details.contains_key("self_granted")), (AuditOutcome::Granted, true), "{last:?}");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_revoked_ends_what_runs_and_a_token_that_is_revoked_ends_its_caller() {
    let out = Accepting::start().await;
    let rig = Rig::to(out.address);
    let running = rig.start().await;
    let ann = user(&running, "ann").await;
    grant(&running, Action::NodeStatus, "node", "ann").await;
    let status = format!("as {ann} status");
    running.request(&status).await.expect("it may");
    let drop = CredentialChange::DropToken("ci".into());
    change(&running, IdentityChange::Credential { role: "ann".into(), change: drop }).await;
    assert!(refusal(&running, &status).await.contains("permission denied"));
    until("the status counts the failed login", || (running.status().failed_logins > 0).then_some(())).await;
    running.stop().await;
}
