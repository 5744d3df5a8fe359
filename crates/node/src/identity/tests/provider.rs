//! Logins by a provider (OpenID Connect), through the guard, with a provider over real sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::json;
use store::{Options, Store};

use crate::identity::guarded_directory::DirectoryEvent;
use crate::identity::oidc::testing::{AWAY_SECONDS, NOW_US, TestProvider, locked};
use crate::identity::oidc::{OidcReturn, OidcSettings};
use crate::identity::scram::Mock;
use crate::identity::{
    AttributeChange, Attributes, Caller, CredentialChange, Credentials, Guard, IdentityChange, IdentityError,
    LoginError, LoginRefusal, OidcEntered, OidcFailure, OidcRefusal, OidcUser, Proof, Role, log_in_by_provider,
};

/// A guard with the group doctors, the local user `local`, and `ben` of the provider.
fn guard_with(provider: &Arc<TestProvider>, change: impl FnOnce(&mut OidcSettings)) -> Arc<Guard> {
    let store = Store::in_memory(Options::default()).expect("there is memory");
    let guard = Guard::open(store, provider.clock.clone(), Mock::of([7; 32])).expect("it opens");
    let mut local = Credentials::default();
    local.set_password("local", "a local secret").expect("it is allowed");
    let made = |name: &str, attributes, credentials| {
        IdentityChange::Create(Role { name: name.into(), attributes, credentials })
    };
    let ben = Credentials { oidc: Some(OidcUser::default()), ..Credentials::default() };
    let changes = [
        made("doctors", Attributes::default(), Credentials::default()),
        made("local", Attributes::user(), local),
        made("ben", Attributes::user(), ben),
    ];
    guard.change(&Caller::node(), &changes).expect("the node may");
    guard.use_provider(provider.node(change), Box::new(|_, _| {}));
    guard
}

/// A whole login of who has these claims.
async fn log_in(
    (guard, provider): (&Arc<Guard>, &Arc<TestProvider>),
    user: &'static str,
    subject: &'static str,
    groups: &[&str],
) -> Result<OidcEntered, OidcFailure> {
    *locked(&provider.changed) =
        BTreeMap::from([("preferred_username", json!(user)), ("sub", json!(subject)), ("groups", json!(groups))]);
    let begun = guard.provider().expect("there is one").begin(None, "/x").await.expect("it is there");
    let (code, state) = provider.visited(&begun.redirect);
    let came = OidcReturn { state: &state, secret: &begun.secret, code: Some(&code), ..OidcReturn::default() };
    log_in_by_provider(guard, came, None).await
}

fn refusal(ended: Result<OidcEntered, OidcFailure>) -> LoginRefusal {
    match ended.expect_err("it is refused").error {
        LoginError::Refused(why) => why,
        other => panic!("{other:?}"),
    }
}

fn is_member(guard: &Guard, user: &str) -> bool {
    let view = guard.view();
    let id = |name: &str| view.directory().named(name).expect("it is there");
    view.is_member(id(user), id("doctors"))
}

#[tokio::test]
async fn a_user_of_the_provider_is_one_person_there_with_the_groups_of_its_last_login() {
    let provider = TestProvider::start().await;
    let guard = guard_with(&provider, |_| {});
    let at = (&guard, &provider);
    let ben = log_in(at, "ben", "b-1", &["doctors"]).await.expect("it is right");
    assert!(is_member(&guard, "ben") && ben.back_to == "/x" && ben.token.is_some());
    assert_eq!(*ben.caller.proof(), Proof::Oidc(Arc::from("b-1")));
    assert!(guard.view().holds(&ben.caller).is_ok());
    // By hand: without a group too. And what the provider gives no more is taken.
    assert!(log_in(at, "ben", "b-1", &[]).await.is_ok() && !is_member(&guard, "ben"));
    assert_eq!(refusal(log_in(at, "ben", "b-2", &["doctors"]).await), LoginRefusal::Oidc(OidcRefusal::OtherSubject));
    assert_eq!(refusal(log_in(at, "local", "b-3", &["doctors"]).await), LoginRefusal::Oidc(OidcRefusal::OtherProof));
    let unknown = log_in(at, "eve", "b-4", &["doctors"]).await;
    assert_eq!(unknown.as_ref().expect_err("nobody made it").user.as_deref(), Some("eve"));
    assert_eq!(refusal(unknown), LoginRefusal::Oidc(OidcRefusal::Unknown));
    assert!(guard.view().directory().named("eve").is_err() && !is_member(&guard, "ben"));
    // Forgetting who it was ends the session, and the next one counts.
    let forget = IdentityChange::Credential { role: "ben".into(), change: CredentialChange::Oidc };
    guard.change(&Caller::node(), &[forget]).expect("the node may");
    assert!(guard.view().holds(&ben.caller).is_err());
    assert!(log_in(at, "ben", "b-2", &[]).await.is_ok());
    let lock =
        IdentityChange::Set { role: "ben".into(), changes: vec![AttributeChange::Locked(Some("she left".into()))] };
    guard.change(&Caller::node(), &[lock]).expect("the node may");
    assert_eq!(refusal(log_in(at, "ben", "b-2", &["doctors"]).await), LoginRefusal::NotAllowed);
    assert!(!is_member(&guard, "ben"), "a locked one gets nothing");
}

#[tokio::test]
async fn who_is_in_a_group_becomes_a_role_where_that_is_wanted_and_only_as_long_as_it_is() {
    let provider = TestProvider::start().await;
    let guard = guard_with(&provider, |settings| settings.create = true);
    let at = (&guard, &provider);
    for groups in [&[][..], &["others"]] {
        assert_eq!(refusal(log_in(at, "ann", "a-1", groups).await), LoginRefusal::Oidc(OidcRefusal::NoGroup));
    }
    assert!(guard.view().directory().named("ann").is_err());
    let ann = log_in(at, "ann", "a-1", &["doctors"]).await.expect("it is made");
    assert!(is_member(&guard, "ann") && guard.view().holds(&ann.caller).is_ok());
    // Who is in no group any more is not let in, and the sessions and tokens that it has can do nothing more by the groups.
    assert_eq!(refusal(log_in(at, "ann", "a-2", &[]).await), LoginRefusal::Oidc(OidcRefusal::OtherSubject));
    assert!(is_member(&guard, "ann"), "another person takes nothing from it");
    assert_eq!(refusal(log_in(at, "ann", "a-1", &[]).await), LoginRefusal::Oidc(OidcRefusal::NoGroup));
    assert!(!is_member(&guard, "ann"));
    assert!(log_in(at, "ann", "a-1", &["doctors"]).await.is_ok() && is_member(&guard, "ann"));
    assert_eq!(refusal(log_in(at, "doctors", "a-2", &["doctors"]).await), LoginRefusal::Oidc(OidcRefusal::OtherProof));
}

#[tokio::test]
async fn a_failed_login_slows_down_the_next_and_a_provider_that_is_away_is_nobodys_failure() {
    let provider = TestProvider::start().await;
    let guard = guard_with(&provider, |_| {});
    *locked(&provider.document) = Some(b"{}".to_vec());
    let own = guard.provider().expect("there is one");
    assert!(own.begin(None, "/").await.is_err() && own.trouble().is_some());
    *locked(&provider.document) = None;
    assert_eq!(guard.failures(), 0);
    provider.clock.set(NOW_US + AWAY_SECONDS * 1_000_000);
    // A page of any site can send browsers to the callback, and who is proven and not let in guesses nothing: nobody waits for these.
    let from = Some("10.0.0.9".parse().expect("an address"));
    for _ in 0..60 {
        let failure = log_in_by_provider(&guard, OidcReturn::default(), from).await.expect_err("nothing waits");
        assert!(matches!(failure.error, LoginError::Refused(LoginRefusal::Oidc(OidcRefusal::State))), "{failure:?}");
    }
    for _ in 0..15 {
        let ended = log_in((&guard, &provider), "local", "l-1", &["doctors"]).await;
        assert_eq!(refusal(ended), LoginRefusal::Oidc(OidcRefusal::OtherProof));
    }
    assert_eq!(guard.failures(), 0);
    // Made-up codes do.
    let mut ended = Vec::new();
    for _ in 0..60 {
        let begun = own.begin(from, "/").await.expect("it is there");
        let state = provider.visited(&begun.redirect).1;
        let came = OidcReturn { state: &state, secret: &begun.secret, code: Some("made-up"), ..OidcReturn::default() };
        let failure = log_in_by_provider(&guard, came, from).await.expect_err("the code is none");
        ended.push(matches!(failure.error, LoginError::Wait(_)));
    }
    assert!(!ended[0] && ended.contains(&true) && guard.failures() > 0, "{ended:?}");
}

#[tokio::test]
async fn the_last_administrator_cannot_be_given_to_the_provider_alone() {
    let provider = TestProvider::start().await;
    let guard = guard_with(&provider, |_| {});
    let set = |administrator| IdentityChange::Set {
        role: "local".into(),
        changes: vec![AttributeChange::Administrator(administrator)],
    };
    guard.change(&Caller::node(), &[set(true)]).expect("the node may");
    let give = IdentityChange::Credential { role: "local".into(), change: CredentialChange::Oidc };
    let refused = guard.change(&Caller::node(), std::slice::from_ref(&give));
    assert!(matches!(refused, Err(IdentityError::LastAdministrator)), "{refused:?}");
    let of_ben = IdentityChange::Set { role: "ben".into(), changes: vec![AttributeChange::Administrator(true)] };
    guard.change(&Caller::node(), &[of_ben]).expect("the node may");
    assert!(guard.change(&Caller::node(), &[give]).is_err(), "one of the provider does not count");
}

#[tokio::test]
async fn what_the_provider_changes_is_recorded_and_nothing_else() {
    let provider = TestProvider::start().await;
    let guard = guard_with(&provider, |_| {});
    let other = Arc::new(Mutex::new(Vec::new()));
    // Only the first call counts.
    let told = Arc::clone(&other);
    guard
        .use_provider(provider.node(|_| {}), Box::new(move |user, event| locked(&told).push((user.to_owned(), event))));
    let at = (&guard, &provider);
    assert!(log_in(at, "ben", "b-1", &["doctors"]).await.is_ok());
    assert!(locked(&other).is_empty());
    let store = Store::in_memory(Options::default()).expect("there is memory");
    let second = Guard::open(store, provider.clock.clone(), Mock::of([7; 32])).expect("it opens");
    let told = Arc::clone(&other);
    let record = Box::new(move |user: &str, event| locked(&told).push((user.to_owned(), event)));
    second.use_provider(provider.node(|settings| settings.create = true), record);
    let group = Role { name: "doctors".into(), attributes: Attributes::default(), credentials: Credentials::default() };
    second.change(&Caller::node(), &[IdentityChange::Create(group)]).expect("the node may");
    for _ in 0..2 {
        assert!(log_in((&second, &provider), "ann", "a-1", &["doctors"]).await.is_ok());
    }
    let expected = ("ann".to_owned(), DirectoryEvent::Roles(vec!["doctors".to_owned()]));
    assert_eq!(*locked(&other), [expected]);
}
