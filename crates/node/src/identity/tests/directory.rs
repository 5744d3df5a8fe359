//! Logins by a directory, through the guard, with a server over real sockets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use store::{Options, Store};

use super::{grant, grant_on};
use crate::Clock;
use crate::audit::AuditEntry;
use crate::identity::directory_login::pause_after;
use crate::identity::ldap::LdapSettings;
use crate::identity::ldap::testing::{Manner, TestDirectory};
use crate::identity::scram::Mock;
use crate::identity::{
    AccessRefusal, AttributeChange, Attributes, Caller, CredentialChange, Credentials, DirectoryWatch, Guard,
    IdentityChange, LdapRefusal, LdapUser, LoginError, LoginRefusal, Proof, Role, draw, shown_name,
};

const RIGHT: &str = "right secret";

fn guard_with(settings: Option<&LdapSettings>) -> Arc<Guard> {
    let store = Store::in_memory(Options::default()).expect("there is memory");
    let guard = Guard::open(store, Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
    let mut local = Credentials::default();
    local.set_password("local", "a local secret").expect("it is allowed");
    let group = |name: &str| {
        let (attributes, credentials) = (Attributes::default(), Credentials::default());
        IdentityChange::Create(Role { name: name.into(), attributes, credentials })
    };
    let user = |name: &str, credentials| {
        IdentityChange::Create(Role { name: name.into(), attributes: Attributes::user(), credentials })
    };
    let by_hand = Credentials { ldap: Some(LdapUser::ByHand), ..Credentials::default() };
    let changes = [group("doctors"), user("local", local), user("ben", by_hand)];
    guard.change(&Caller::node(), &changes).expect("the node may");
    if let Some(settings) = settings {
        guard.use_directory(TestDirectory::logins(settings), Box::new(|_, _| {}));
    }
    guard
}

async fn recheck(guard: &Arc<Guard>) {
    DirectoryWatch::of(guard).expect("there is a service account").recheck().await;
}

fn refusal(ended: Result<Caller, LoginError>) -> Option<LdapRefusal> {
    match ended {
        Err(LoginError::Refused(LoginRefusal::Ldap(why))) => Some(why),
        _ => None,
    }
}

fn is_member(guard: &Guard, user: &str, of: &str) -> bool {
    let view = guard.view();
    let id = |name: &str| view.directory().named(name).expect("it is there");
    view.is_member(id(user), id(of))
}

#[tokio::test]
async fn a_user_of_the_directory_logs_in_by_its_password_there_and_others_by_theirs() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&TestDirectory::settings(&[&server])));
    assert!(guard.takes_clear_passwords());
    let ben = guard.log_in("ben", RIGHT, None).await.expect("it is right");
    assert!(matches!(ben.proof(), Proof::Ldap(_)));
    assert_eq!(refusal(guard.log_in("ben", "wrong", None).await), Some(LdapRefusal::WrongPassword));
    let before = server.binds.load(Ordering::SeqCst);
    assert_eq!(refusal(guard.log_in("ben", "", None).await), Some(LdapRefusal::WrongPassword));
    assert!(guard.log_in("local", "a local secret", None).await.is_ok());
    // Neither a local name nor an unknown one is asked about there.
    server.change("local", |local| local.password = RIGHT);
    for user in ["local", "ann"] {
        assert!(matches!(guard.log_in(user, RIGHT, None).await, Err(LoginError::Refused(_))), "{user}");
    }
    assert_eq!(server.binds.load(Ordering::SeqCst), before);
    assert!(guard.view().directory().named("ann").is_err());
}

#[tokio::test]
async fn who_failed_is_told_the_same_whatever_the_reason() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    let locked = vec![AttributeChange::Locked(Some("she left".into()))];
    server.change("ben", |ben| ben.is_locked = true);
    let mut told = Vec::new();
    for user in ["ben", "local", "nobody", "Ann", "ann"] {
        told.push(guard.log_in(user, "wrong", None).await.expect_err(user).to_string());
    }
    server.stop();
    told.push(guard.log_in("ben", RIGHT, None).await.expect_err("it is away").to_string());
    guard.change(&Caller::node(), &[IdentityChange::Set { role: "ben".into(), changes: locked }]).expect("locked");
    told.push(guard.log_in("ben", RIGHT, None).await.expect_err("it is locked").to_string());
    told.dedup();
    assert_eq!(told.len(), 1, "{told:?}");
}

#[test]
fn a_refused_login_is_answered_at_the_next_step_of_time() {
    let us = Duration::from_micros;
    for (elapsed, pause) in [(0, 500_000), (1, 499_999), (499_999, 1), (500_000, 500_000), (1_200_000, 300_000)] {
        assert_eq!(pause_after(us(elapsed)), us(pause), "{elapsed}");
    }
}

#[tokio::test]
async fn who_is_in_a_group_becomes_a_role_where_that_is_wanted_under_its_exact_name() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    assert_eq!(refusal(guard.log_in("ANN", RIGHT, None).await), Some(LdapRefusal::OtherName));
    server.change("eve", |eve| eve.password = RIGHT);
    assert_eq!(refusal(guard.log_in("eve", RIGHT, None).await), Some(LdapRefusal::NoGroup));
    let ann = guard.log_in("ann", RIGHT, None).await.expect("it is in a group");
    assert!(is_member(&guard, "ann", "doctors"));
    let made = guard.view().directory().roles()[&ann.session()].clone();
    assert_eq!(made.credentials.ldap, Some(LdapUser::Created));
    assert_eq!(guard.view().directory().roles().len(), 5, "no other one was made");
    // It may log in as long as it is in a group that lets it in.
    server.change("ann", |ann| ann.groups.clear());
    assert_eq!(refusal(guard.log_in("ann", RIGHT, None).await), Some(LdapRefusal::NoGroup));
}

#[tokio::test]
async fn groups_are_followed_at_each_login_and_what_people_granted_stays() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&TestDirectory::settings(&[&server])));
    server.change("ben", |ben| ben.groups = vec!["CN=Doctors, DC=x"]);
    guard.log_in("ben", RIGHT, None).await.expect("it is right");
    assert!(is_member(&guard, "ben", "doctors"));
    let version = guard.version();
    guard.log_in("ben", RIGHT, None).await.expect("it is right");
    assert_eq!(guard.version(), version, "nothing is written for nothing");
    server.change("ben", |ben| ben.groups.clear());
    guard.log_in("ben", RIGHT, None).await.expect("it is right");
    assert!(!is_member(&guard, "ben", "doctors"));
    let join =
        IdentityChange::Join { role: "doctors".into(), member: "ben".into(), admin: false, inherit: None, set: true };
    guard.change(&Caller::node(), &[join]).expect("the node may");
    guard.log_in("ben", RIGHT, None).await.expect("it is right");
    assert!(is_member(&guard, "ben", "doctors"));
}

#[tokio::test]
async fn open_sessions_end_once_the_directory_removed_or_locked_their_user_and_not_while_it_is_away() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    let holds = |caller: &Caller| guard.view().holds(caller).is_ok();
    let ben = guard.log_in("ben", RIGHT, None).await.expect("it is right");
    let ann = guard.log_in("ann", RIGHT, None).await.expect("it is right");
    let _open = [guard.connect(&ben).expect("it may"), guard.connect(&ann).expect("it may")];
    recheck(&guard).await;
    assert!(holds(&ben) && holds(&ann));
    *server.manner.lock().expect("no test panicked") = Manner::Silent;
    recheck(&guard).await;
    assert!(holds(&ben) && holds(&ann) && guard.directory_trouble().is_some(), "a directory that is away ends nothing");
    *server.manner.lock().expect("no test panicked") = Manner::Right;
    server.change("ben", |ben| ben.is_locked = true);
    recheck(&guard).await;
    assert!(!holds(&ben) && holds(&ann) && guard.directory_trouble().is_none());
    server.change("ben", |ben| ben.is_locked = false);
    recheck(&guard).await;
    assert!(!holds(&ben), "what has ended does not begin again");
    let again = guard.log_in("ben", RIGHT, None).await.expect("it is right");
    assert!(holds(&again), "a later login is another one");
    server.remove("ann");
    recheck(&guard).await;
    assert!(!holds(&ann) && holds(&again));
}

/// Gives a user a token without an end, or the error.
fn token(guard: &Arc<Guard>, user: &str, until_us: Option<i64>) -> Result<Caller, String> {
    let (text, token) = draw("ci", 1, until_us).expect("there is randomness");
    let change = CredentialChange::AddToken(token);
    let added = guard.change(&Caller::node(), &[IdentityChange::Credential { role: user.into(), change }]);
    added.map_err(|error| error.to_string())?;
    guard.token(&text, None).map_err(|error| error.to_string())
}

#[tokio::test]
async fn tokens_of_who_has_left_hold_again_when_it_is_back_and_one_made_by_groups_has_an_end() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    guard.log_in("ann", RIGHT, None).await.expect("it is in a group");
    let refused = token(&guard, "ann", None).expect_err("nobody asks about it");
    assert!(refused.contains("the directory") && refused.contains("--days"), "{refused}");
    let ann = token(&guard, "ann", Some(i64::MAX)).expect("it has an end");
    token(&guard, "ben", None).expect("it was made by hand");
    let in_group = |is_in: bool| {
        server.change("ann", |ann| ann.groups = if is_in { vec!["cn=doctors,dc=x"] } else { Vec::new() });
    };
    let holds = || guard.view().holds(&ann).is_ok();
    // At a login that is refused, and at a recheck of a session by the token.
    in_group(false);
    assert_eq!(refusal(guard.log_in("ann", RIGHT, None).await), Some(LdapRefusal::NoGroup));
    assert!(is_member(&guard, "ann", "doctors") && !holds());
    in_group(true);
    guard.log_in("ann", RIGHT, None).await.expect("it is in a group again");
    assert!(is_member(&guard, "ann", "doctors") && holds());
    let open = guard.connect(&ann).expect("it may");
    // Who is locked there may be unlocked in a minute, and strangers can cause it.
    server.change("ann", |ann| ann.is_locked = true);
    recheck(&guard).await;
    assert!(holds());
    server.change("ann", |ann| ann.is_locked = false);
    in_group(false);
    recheck(&guard).await;
    assert!(is_member(&guard, "ann", "doctors") && !holds());
    // It is asked about on, without a connection too.
    drop(open);
    in_group(true);
    recheck(&guard).await;
    assert!(is_member(&guard, "ann", "doctors") && holds());
    let _open = guard.connect(&ann).expect("it may");
    server.remove("ann");
    recheck(&guard).await;
    assert!(!holds());
}

#[tokio::test]
async fn a_directory_that_finds_nothing_for_a_moment_takes_no_membership_and_no_grant() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    server.change("ben", |ben| ben.groups = vec!["cn=doctors,dc=x"]);
    guard.change(&Caller::node(), &[grant_on("doctors")]).expect("the node may");
    let ann = guard.log_in("ann", RIGHT, None).await.expect("it is in a group");
    let ben = guard.log_in("ben", RIGHT, None).await.expect("it is right");
    guard.change(&ann, &[grant("local")]).expect("by way of its group");
    let _open = [guard.connect(&ann).expect("it may"), guard.connect(&ben).expect("it may")];
    let is_granted = || {
        let view = guard.view();
        let local = view.directory().named("local").expect("it is there");
        view.directory().privileges().keys().any(|key| key.grantee == local)
    };
    assert!(is_granted());
    // The one that groups made, and the one that was made by hand.
    for user in ["ann", "ben"] {
        server.change(user, |user| user.groups.clear());
    }
    for _ in 0..2 {
        recheck(&guard).await;
        assert!(guard.view().holds(&ann).is_err() && guard.view().holds(&ben).is_err());
        assert!(is_granted() && is_member(&guard, "ann", "doctors") && is_member(&guard, "ben", "doctors"));
    }
    assert_eq!(refusal(guard.log_in("ann", RIGHT, None).await), Some(LdapRefusal::NoGroup));
    assert!(is_granted() && is_member(&guard, "ann", "doctors"));
    server.change("ann", |ann| ann.groups = vec!["cn=doctors,dc=x"]);
    let again = guard.log_in("ann", RIGHT, None).await.expect("it is in a group again");
    assert!(guard.view().holds(&again).is_ok() && is_granted());
    // What the directory says at a login that it proves counts.
    guard.log_in("ben", RIGHT, None).await.expect("it is right");
    assert!(!is_member(&guard, "ben", "doctors"));
}

#[tokio::test]
async fn who_is_gone_stays_so_when_it_is_locked_too_and_a_session_that_began_beside_the_answer_ends_with_the_next() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    guard.log_in("ann", RIGHT, None).await.expect("it is in a group");
    let by_token = token(&guard, "ann", Some(i64::MAX)).expect("it has an end");
    let holds = |caller: &Caller| guard.view().holds(caller).is_ok();
    // Nobody is connected: who can come in by a token is asked about all the same.
    server.change("ann", |ann| ann.groups.clear());
    recheck(&guard).await;
    assert!(!holds(&by_token));
    server.change("ann", |ann| ann.is_locked = true);
    recheck(&guard).await;
    assert!(!holds(&by_token), "a lock lets nobody in again");
    server.change("ann", |ann| (ann.is_locked, ann.groups) = (false, vec!["cn=doctors,dc=x"]));
    let late = guard.log_in("ann", RIGHT, None).await.expect("it is in a group again");
    assert!(holds(&late) && holds(&by_token));
    // An answer about what was before that session.
    let (id, _) = guard.role(&guard.view(), "ann").expect("it is there");
    guard.end_directory_sessions(id, 0, true);
    assert!(holds(&late), "it began later");
    server.change("ann", |ann| ann.groups.clear());
    recheck(&guard).await;
    assert!(!holds(&late) && !holds(&by_token));
}

#[tokio::test]
async fn that_sessions_of_a_locked_user_ended_is_said_once_until_the_directory_lets_it_in() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    guard.log_in("ann", RIGHT, None).await.expect("it is in a group");
    let (id, _) = guard.role(&guard.view(), "ann").expect("it is there");
    let said = [1, 1, 2, 3].map(|up_to| guard.end_directory_sessions(id, up_to, false));
    assert_eq!(said, [true, false, false, false]);
    assert!(guard.end_directory_sessions(id, 3, true), "that it is gone is news");
    guard.back_in_directory(id);
    assert!(guard.end_directory_sessions(id, 4, false));
}

#[tokio::test]
async fn a_token_in_the_place_of_a_name_is_asked_about_nowhere_and_shown_to_nobody() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&LdapSettings { create: true, ..TestDirectory::settings(&[&server]) }));
    let (text, _) = draw("ci", 1, None).expect("there is randomness");
    guard.log_in(&text, RIGHT, None).await.expect_err("it is nobody");
    let searches = server.searches.lock().expect("no test panicked").clone();
    assert!(!searches.iter().any(|search| search.contains("trc_")), "{searches:?}");
    let address = Some([10, 0, 0, 1].into());
    let shown = [
        AuditEntry::failed_login("search", &text, "10.0.0.1".into(), "Unknown".into(), 0).actor.name,
        AuditEntry::new("login", "").by_claimed("sql", &format!("x {text}"), None).actor.name,
        AccessRefusal { rule: None, user: Some(text), address, tls: true, recorded: None }.to_string(),
    ];
    assert!(shown.iter().all(|shown| shown.contains("(token)") && !shown.contains("trc_")), "{shown:?}");
    assert_eq!(shown_name("ann"), "ann");
}

#[tokio::test]
async fn a_session_that_no_connection_stands_for_ends_as_others_do() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&TestDirectory::settings(&[&server])));
    let ben = guard.log_in("ben", RIGHT, None).await.expect("it is right");
    let present = [guard.present(&ben), guard.present(&ben)];
    recheck(&guard).await;
    assert!(guard.view().holds(&ben).is_ok());
    let [one, _other] = present;
    drop(one);
    server.change("ben", |ben| ben.is_locked = true);
    recheck(&guard).await;
    assert!(guard.view().holds(&ben).is_err(), "it has a session, and no connection");
    assert_eq!(guard.present_sessions(), 1);
}

#[tokio::test]
async fn a_session_ends_with_the_lock_or_another_password_of_its_role() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&TestDirectory::settings(&[&server])));
    let ben = guard.log_in("ben", RIGHT, None).await.expect("it is right");
    let mut local = Credentials::default();
    local.set_password("ben", "a local secret").expect("it is allowed");
    let change = CredentialChange::Password { scram: local.scram, hash: local.hash, must_change: false };
    guard.change(&Caller::node(), &[IdentityChange::Credential { role: "ben".into(), change }]).expect("the node may");
    assert!(guard.view().holds(&ben).is_err());
    assert!(guard.log_in("ben", "a local secret", None).await.is_ok());
    let change = CredentialChange::Ldap;
    guard.change(&Caller::node(), &[IdentityChange::Credential { role: "ben".into(), change }]).expect("the node may");
    assert!(
        guard.log_in("ben", "a local secret", None).await.is_err() && guard.log_in("ben", RIGHT, None).await.is_ok()
    );
}

#[tokio::test]
async fn guesses_at_a_user_of_the_directory_wait_as_others_do_and_a_dead_directory_is_nobodys_failure() {
    let server = TestDirectory::start().await;
    let guard = guard_with(Some(&TestDirectory::settings(&[&server])));
    let from = Some(std::net::Ipv4Addr::new(10, 0, 0, 7).into());
    let mut ends = Vec::new();
    for _ in 0..6 {
        ends.push(guard.log_in("ben", "wrong", from).await.expect_err("it is wrong"));
    }
    assert!(ends.iter().any(|end| matches!(end, LoginError::Wait(_))), "{ends:?}");
    let guard = guard_with(Some(&TestDirectory::settings(&[&server])));
    server.stop();
    for _ in 0..6 {
        assert_eq!(refusal(guard.log_in("ben", RIGHT, from).await), Some(LdapRefusal::Away));
    }
    assert!(guard.log_in("local", "a local secret", from).await.is_ok(), "local logins go on");
}
