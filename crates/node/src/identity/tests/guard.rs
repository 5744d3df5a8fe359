//! Logins, versions and the time.

use std::net::{IpAddr, Ipv4Addr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use store::{Options, Store};

use super::*;
use crate::Clock;
use crate::identity::scram::{ChannelBinding, Mock, Verifier};
use crate::identity::throttle::PENDING_MS;
use crate::identity::{
    AccessAddress, AccessDecision, AccessMethod, AccessPort, AccessRule, AccessRules, AccessTls, Guard, Import,
    ImportedUser, LoginError, LoginRefusal, TREE, Visit, Who, draw,
};

const ELSEWHERE: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 7)));
const UID: u32 = 60_001;

fn guard() -> (Arc<Guard>, Clock) {
    let clock = Clock::fixed(1_000_000);
    let store = Store::in_memory(Options::default()).expect("there is memory");
    (Guard::open(store, clock.clone(), Mock::of([7; 32])).expect("it opens"), clock)
}

fn user(name: &str, password: &str) -> IdentityChange {
    let mut credentials =
        Credentials { uids: vec![UID], certificates: vec!["ann.example".into()], ..Credentials::default() };
    credentials.set_password(name, password).expect("it is allowed");
    IdentityChange::Create(Role { name: name.into(), attributes: Attributes::user(), credentials })
}

fn made(guard: &Guard, changes: &[IdentityChange]) {
    guard.change(&Caller::node(), changes).expect("the node may");
}

fn altered(attributes: Attributes) -> IdentityChange {
    IdentityChange::Alter { role: "ann".into(), attributes }
}

#[test]
fn each_proof_logs_in_and_a_wrong_one_does_not() {
    let (guard, _) = guard();
    made(&guard, &[user("ann", "a long password")]);
    let (text, token) = draw("ci", 0, None).expect("there is randomness");
    let change = CredentialChange::AddToken(token);
    made(&guard, &[IdentityChange::Credential { role: "ann".into(), change }]);
    let ann = guard.view().directory().named("ann").expect("it is there");
    let callers = [
        guard.password("ann", "a long password", ELSEWHERE),
        guard.token(&text, ELSEWHERE),
        guard.certificate(&["other.example", "ann.example"], ELSEWHERE),
        guard.local(UID),
        guard.trusted("ann", Ipv4Addr::LOCALHOST.into()),
    ];
    for caller in callers {
        let caller = caller.expect("it is proven");
        assert_eq!(caller.session(), ann);
        assert_eq!(guard.view().holds(&caller), Ok(()));
    }
    let refused = [
        guard.password("ann", "another password", ELSEWHERE),
        guard.password("eve", "a long password", ELSEWHERE),
        guard.password("terrace_local", "", ELSEWHERE),
        guard.token(&text.replace("trc_", "trd_"), ELSEWHERE),
        guard.certificate(&["other.example"], ELSEWHERE),
        guard.local(UID + 1),
        guard.trusted("ann", Ipv4Addr::new(10, 0, 0, 7).into()),
    ];
    for result in refused {
        assert!(matches!(result, Err(LoginError::Refused(_))), "{result:?}");
    }
    assert_eq!(guard.local(0), Ok(Caller::node()));
    let texts = [LoginRefusal::Unknown, LoginRefusal::WrongPassword, LoginRefusal::NotAllowed]
        .map(|why| LoginError::Refused(why).to_string());
    assert!(texts.iter().all(|text| *text == texts[0]), "the reason is not for who tries");
}

#[test]
fn imported_users_log_in_by_scram_and_by_password() {
    let (guard, _) = guard();
    let verifier = Verifier::of("secret").expect("there is randomness");
    let users = [ImportedUser { name: "ann".into(), verifier, administrator: false }];
    guard.import(&users).expect("the first time");
    assert_eq!(guard.import(&users).expect("the same ones"), Import::Before);
    guard.password("ann", "secret", ELSEWHERE).expect("it is right");
    for name in ["ann", "eve"] {
        let (answer, login) =
            guard.scram(name, (b"n,,n=,r=x", ChannelBinding::Unoffered), ELSEWHERE).expect("both are asked");
        assert!(answer.ends_with(",i=4096"), "{answer}");
        let nonce = answer.split(',').next().expect("it is there");
        let last = format!("c=biws,{nonce},p={}", "A".repeat(43) + "=");
        assert!(matches!(login.finish(last.as_bytes()), Err(LoginError::Refused(_))), "{name}");
    }
}

#[test]
fn who_may_not_log_in_is_refused_and_open_sessions_hear_of_a_new_version() {
    let (guard, clock) = guard();
    made(&guard, &[user("ann", "a long password")]);
    let caller = guard.password("ann", "a long password", ELSEWHERE).expect("it is right");
    let (version, mut changed) = (guard.version(), guard.changed());
    made(&guard, &[altered(Attributes { locked: Some("left".into()), ..Attributes::user() })]);
    assert!(guard.version() > version && changed.has_changed().expect("the guard is there"));
    assert!(guard.view().holds(&caller).is_err());
    let refused = guard.password("ann", "a long password", ELSEWHERE);
    assert_eq!(refused, Err(LoginError::Refused(LoginRefusal::NotAllowed)));
    made(&guard, &[altered(Attributes { until_us: Some(2_000_000), ..Attributes::user() })]);
    changed.mark_unchanged();
    guard.tick();
    assert!(guard.view().holds(&caller).is_ok() && !changed.has_changed().expect("the guard is there"));
    clock.set(2_000_000);
    guard.tick();
    assert!(guard.view().holds(&caller).is_err() && changed.has_changed().expect("the guard is there"));
}

#[tokio::test]
async fn expiry_is_in_force_within_a_second() {
    let (guard, clock) = guard();
    made(&guard, &[user("ann", "a long password")]);
    made(&guard, &[altered(Attributes { until_us: Some(2_000_000), ..Attributes::user() })]);
    let caller = guard.password("ann", "a long password", ELSEWHERE).expect("it is right");
    let task = guard.watch_time(|why| panic!("{why}"));
    clock.set(2_000_000);
    tokio::time::sleep(std::time::Duration::from_millis(900)).await;
    assert!(guard.view().holds(&caller).is_err());
    task.abort();
}

#[test]
fn guesses_are_held_up_and_a_right_token_is_not() {
    let (guard, _) = guard();
    made(&guard, &[user("ann", "a long password")]);
    let (text, token) = draw("ci", 0, None).expect("there is randomness");
    let change = CredentialChange::AddToken(token);
    made(&guard, &[IdentityChange::Credential { role: "ann".into(), change }]);
    // A client that goes away before its proof has failed too.
    let guesses = (0..100)
        .map(|number| guard.scram(&format!("user{number}"), (b"n,,n=,r=x", ChannelBinding::Unoffered), ELSEWHERE));
    let tried = guesses.filter(|result| result.is_ok()).count();
    assert!(tried <= 16, "{tried} of 100 at once");
    assert!(
        matches!(guard.password("ann", "a long password", ELSEWHERE), Err(LoginError::Wait(_))),
        "the address waits"
    );
    guard.token(&text, ELSEWHERE).expect("it cannot have been guessed");
    guard.password("ann", "a long password", Some(Ipv4Addr::LOCALHOST.into())).expect("from this machine");
    let wrong = (0..100).map(|_| guard.token("trc_wrong", None));
    let tried = wrong.filter(|result| matches!(result, Err(LoginError::Refused(_)))).count();
    assert!(tried <= 16 && guard.failures() > 0, "{tried} of 100 at once");
}

/// A client's last message of SCRAM.
fn last(answer: &str, password: &str) -> Vec<u8> {
    let fields: Vec<&str> = answer.split(',').map(|field| &field[2..]).collect();
    let salt = BASE64.decode(fields[1]).expect("it is Base64");
    let rounds = fields[2].parse().expect("it is a number");
    let mut salted = [0; 32];
    pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, rounds, &salt, password.as_bytes(), &mut salted);
    let mac = |key: &[u8], text: &[u8]| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text);
    let key = mac(&salted, b"Client Key");
    let stored = digest::digest(&digest::SHA256, key.as_ref());
    let without_proof = format!("c=biws,r={}", fields[0]);
    let signature = mac(stored.as_ref(), format!("n=,r=x,{answer},{without_proof}").as_bytes());
    let proof: Vec<u8> = key.as_ref().iter().zip(signature.as_ref()).map(|(key, mask)| key ^ mask).collect();
    format!("{without_proof},p={}", BASE64.encode(proof)).into_bytes()
}

#[test]
fn a_login_by_scram_ends_as_the_role_with_the_password_that_it_began_with() {
    let (guard, _) = guard();
    let refused = Some(LoginError::Refused(LoginRefusal::Outdated));
    let begin = || guard.scram("ann", (b"n,,n=,r=x", ChannelBinding::Unoffered), ELSEWHERE).expect("it is SCRAM");
    let old = "a long password";
    let again = |guard: &Guard| {
        made(guard, &[IdentityChange::Drop { role: "ann".into(), cascade: false }, user("ann", "another password")]);
    };
    let replace = |guard: &Guard| made(guard, &[password("ann", "a new password")]);
    let nothing = |_: &Guard| {};
    type Case<'a> = (&'a dyn Fn(&Guard), Option<LoginError>);
    let cases: [Case<'_>; 3] = [(&nothing, None), (&replace, refused.clone()), (&again, refused.clone())];
    for (meanwhile, expected) in cases {
        made(&guard, &[user("ann", old)]);
        let (answer, login) = begin();
        meanwhile(&guard);
        assert_eq!(login.finish(&last(&answer, old)).err(), expected);
        made(&guard, &[IdentityChange::Drop { role: "ann".into(), cascade: false }]);
    }
    made(&guard, &[user("ann", old)]);
    let (answer, login) = begin();
    let late = PENDING_MS + 3_600_000;
    assert_eq!(login.finish_at(&last(&answer, old), late).err(), refused, "too late");
}

#[test]
fn passwords_are_checked_no_more_at_once_than_there_are_processors() {
    let (guard, _) = guard();
    made(&guard, &[user("ann", "a long password")]);
    let all = u32::try_from(guard.hashing.available_permits()).expect("a few");
    assert_eq!(all as usize, std::thread::available_parallelism().map_or(1, usize::from));
    let busy = guard.hashing.try_acquire_many(all).expect("nobody else is here");
    for name in ["ann", "eve"] {
        let waits = guard.password(name, "a long password", ELSEWHERE);
        assert!(matches!(waits, Err(LoginError::Wait(_))), "{waits:?}");
    }
    assert_eq!(guard.failures(), 0, "to wait is no failure");
    drop(busy);
    guard.password("ann", "a long password", ELSEWHERE).expect("it is right");
    let long = "x".repeat(1025);
    let refused = guard.password("ann", &long, ELSEWHERE);
    assert_eq!(refused, Err(LoginError::Refused(LoginRefusal::WrongPassword)));
}

#[test]
fn a_clock_that_is_set_back_brings_back_nothing_that_has_expired() {
    let (guard, clock) = guard();
    made(&guard, &[user("ann", "a long password")]);
    made(&guard, &[altered(Attributes { until_us: Some(2_000_000), ..Attributes::user() })]);
    let caller = guard.password("ann", "a long password", ELSEWHERE).expect("it is right");
    clock.set(2_000_000);
    guard.tick();
    clock.jump(1_000_000);
    guard.tick();
    guard.refresh().expect("it is read");
    assert!(guard.view().holds(&caller).is_err());
    let refused = guard.password("ann", "a long password", ELSEWHERE);
    assert_eq!(refused, Err(LoginError::Refused(LoginRefusal::NotAllowed)));
    assert_eq!(guard.now_us(), 2_000_000);
}

#[test]
fn connections_of_a_role_are_counted() {
    let (guard, _) = guard();
    made(&guard, &[user("ann", "a long password")]);
    made(&guard, &[altered(Attributes { connection_limit: Some(1), ..Attributes::user() })]);
    let caller = guard.password("ann", "a long password", ELSEWHERE).expect("it is right");
    let first = guard.connect(&caller).expect("the first one");
    assert_eq!(guard.connect(&caller).map(|_| ()), Err(LoginError::TooMany));
    drop(first);
    assert!(guard.connect(&caller).is_ok());
}

#[test]
fn rules_for_a_group_are_for_its_members_and_not_for_administrators() {
    let (guard, _) = guard();
    let group = Role { name: "ward".into(), attributes: Attributes::default(), credentials: Credentials::default() };
    let (role, member) = ("ward".into(), "ann".into());
    let member = IdentityChange::Join { role, member, admin: false, inherit: None, set: true };
    let mut chief = user("chief", "a long secret");
    if let IdentityChange::Create(role) = &mut chief {
        role.attributes.administrator = true;
        role.credentials.uids.clear();
        role.credentials.certificates.clear();
    }
    let changes = [user("ann", "a long secret"), chief, IdentityChange::Create(group), member];
    guard.change(&Caller::node(), &changes).expect("the node may");
    let rule = AccessRule {
        port: AccessPort::Sql,
        roles: vec!["+ward".to_owned()],
        address: AccessAddress::All,
        tls: AccessTls::Required,
        method: AccessMethod::Password,
    };
    let visit = Visit { port: AccessPort::Sql, address: ELSEWHERE, tls: true };
    assert_eq!(guard.decide_role(visit, "nobody"), AccessDecision::Comes(AccessMethod::Allow), "there are no rules");
    guard.set_access(AccessRules::new(vec![rule]).expect("it can work"));
    for (name, comes) in [("ann", true), ("ward", true), ("chief", false), ("nobody", false), ("", false)] {
        let decision = if comes { AccessDecision::Comes(AccessMethod::Password) } else { AccessDecision::NoRule };
        assert_eq!(guard.decide_role(visit, name), decision, "{name}");
    }
    assert!(guard.admit_by(visit, "ann", AccessMethod::Password).is_ok());
    let refused = guard.admit_by(visit, "ann", AccessMethod::Token).expect_err("the rule demands a password");
    assert_eq!(refused.to_string(), "no access rule for host \"10.0.0.7\", user \"ann\", TLS on");
    let plain = Visit { tls: false, ..visit };
    assert!(guard.admit_role(plain, "ann").is_err() && guard.admit(plain, Who::Unnamed).is_err());
    let recorded = (0..100).filter(|_| guard.admit_role(plain, "ann").expect_err("again").recorded.is_some()).count();
    assert!(recorded < 20, "the log and the audit get a few: {recorded}");
}

#[test]
fn failures_by_every_way_to_log_in_slow_down_the_next_and_a_right_token_or_certificate_is_never_held_up() {
    let (guard, _) = guard();
    guard.change(&Caller::node(), &[user("ann", "a long secret")]).expect("the node may");
    let begin = || guard.scram("bob", (b"n,,n=,r=x", ChannelBinding::Unoffered), ELSEWHERE);
    // As the ports do it: search by Basic, SQL, search and the control socket by a token, volumes and SQL by a certificate.
    let ways: [(&str, &dyn Fn() -> Option<LoginError>); 5] = [
        ("password", &|| guard.password("ann", "wrong", ELSEWHERE).err()),
        ("scram", &|| match begin() {
            Ok((_, login)) => login.finish(b"c=biws,r=x,p=AAAA").err(),
            Err(error) => Some(error),
        }),
        ("token", &|| guard.token("wrong", ELSEWHERE).err()),
        ("control", &|| guard.token("wrong", None).err()),
        ("certificate", &|| guard.certificate(&["eve.example"], ELSEWHERE).err()),
    ];
    for (way, attempt) in ways {
        let waited = (0..40).any(|_| matches!(attempt(), Some(LoginError::Wait(_))));
        assert!(waited, "{way}");
    }
    assert!(guard.certificate(&["ann.example"], ELSEWHERE).is_ok());
    assert!(guard.certificate_of("ann", &["eve.example", "ann.example"], ELSEWHERE).is_ok());
    assert!(guard.certificate_of("eve", &["ann.example"], ELSEWHERE).is_err(), "it is of another role");
}

#[test]
fn a_revocation_that_could_not_be_read_comes_into_force_as_soon_as_it_can_be() {
    let store = Store::in_memory(Options::default()).expect("there is memory");
    let open = || Guard::open(store.clone(), Clock::fixed(1), Mock::of([7; 32])).expect("it opens");
    let guard = open();
    let ann = Role { name: "ann".into(), attributes: Attributes::user(), credentials: Credentials::default() };
    guard.change(&Caller::node(), &[IdentityChange::Create(ann), grant("ann")]).expect("the node may");
    let ann = Caller::of(guard.view().directory().named("ann").expect("it is there"), Proof::Password, None);
    let reads = || guard.may(&ann, Action::TableSelect, ORDERS).is_ok();
    assert!(reads() && guard.behind().is_none());
    // Stored within a transaction of somebody else, as SQL does, while a row cannot be read.
    open().change(&Caller::node(), &[revoke("ann", false)]).expect("the node may");
    let row = |is_there: bool| {
        let changed: Result<(), store::StoreError> = store.transact(|transaction| {
            let tree = transaction.tree(TREE)?.expect("it is there");
            if is_there {
                transaction.put(tree, b"no row", b"of ours")
            } else {
                transaction.delete(tree, b"no row").map(|_| ())
            }
        });
        changed.expect("it is stored");
    };
    row(true);
    guard.refresh().expect_err("a row cannot be read");
    guard.catch_up();
    let why = guard.behind().expect("it is said");
    assert!(reads() && why.contains("cannot be read"), "{why}");
    row(false);
    guard.catch_up();
    assert!(!reads() && guard.behind().is_none());
}
