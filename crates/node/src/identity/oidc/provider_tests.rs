//! Tests of logins against a small provider on this machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::documents::DOCUMENT_BYTES_MAX;
use super::id_token::TOKEN_BYTES_MAX;
use super::provider::{AWAY_SECONDS, KEYS_AGAIN_SECONDS, PLACES_SECONDS, TROUBLE_SECONDS, WAITING_MAX, encoded};
use super::testing::{NOW_US, SigningKey, TestProvider, locked};
use super::{OidcBegun, OidcError, OidcIdentity, OidcProvider, OidcReturn, OidcSettings};
use crate::Clock;

async fn begin(node: &OidcProvider) -> Result<OidcBegun, OidcError> {
    node.begin(None, "/messages").await
}

/// Finishes with a code, a state and a secret.
async fn finish(
    node: &OidcProvider,
    (code, state): &(String, String),
    secret: &str,
) -> Result<OidcIdentity, OidcError> {
    node.finish(OidcReturn { state, secret, code: Some(code), ..OidcReturn::default() }).await
}

/// A whole login.
async fn log_in(provider: &TestProvider, node: &OidcProvider) -> Result<OidcIdentity, OidcError> {
    let begun = begin(node).await?;
    finish(node, &provider.visited(&begun.redirect), &begun.secret).await
}

#[tokio::test]
async fn a_browser_comes_back_as_who_the_provider_says() {
    let provider = TestProvider::start().await;
    let node = provider.node(|_| {});
    assert_eq!(node.sign_out_place(None), None, "nothing is known yet");
    let identity = log_in(&provider, &node).await.expect("it is right");
    let token = identity.token.clone().expect("it is short");
    let expected = OidcIdentity {
        user: "ann".into(),
        subject: "1".into(),
        roles: BTreeSet::from(["doctors".to_owned()]),
        back_to: "/messages".into(),
        token: Some(token.clone()),
    };
    assert_eq!(identity, expected);
    let secret = std::env::var("PATH").expect("it is there");
    let basic = STANDARD.encode(format!("terrace:{}", encoded(&secret)));
    let sent = locked(&provider.authorizations).clone();
    assert!(sent.iter().all(|line| line.split(' ').next_back() == Some(&basic)) && sent.len() == 1, "{sent:?}");
    let place = node.sign_out_place(Some(&token)).expect("it has one");
    assert_eq!(place, format!("{}/logout?client_id=terrace&id_token_hint={}", provider.issuer, token.text()));
    assert_eq!((node.trouble(), node.title()), (None, "127.0.0.1".to_owned()));
}

#[tokio::test]
async fn a_state_or_code_that_is_not_ones_own_or_was_used_is_refused() {
    let provider = TestProvider::start().await;
    let node = provider.node(|_| {});
    let (one, other) = (begin(&node).await.expect("it is there"), begin(&node).await.expect("it is there"));
    let came = provider.visited(&one.redirect);
    for (state, secret) in [("nothing", &*one.secret), (&came.1, &other.secret), (&came.1, "")] {
        let code = came.0.clone();
        assert_eq!(finish(&node, &(code, state.to_owned()), secret).await, Err(OidcError::State));
    }
    // The code of one browser with the state of another: PKCE's verifier is not that of its begin.
    let of_other = (came.0.clone(), provider.visited(&other.redirect).1);
    assert!(matches!(finish(&node, &of_other, &other.secret).await, Err(OidcError::Refused(_))));
    let came = provider.visited(&one.redirect);
    assert!(finish(&node, &came, &one.secret).await.is_ok());
    assert_eq!(finish(&node, &came, &one.secret).await, Err(OidcError::State));
    let late = begin(&node).await.expect("it is there");
    let came = provider.visited(&late.redirect);
    provider.clock.set(NOW_US + 601_000_000);
    assert_eq!(finish(&node, &came, &late.secret).await, Err(OidcError::State));
}

#[tokio::test]
async fn an_answer_without_a_code_or_of_another_issuer_uses_the_state_up() {
    let provider = TestProvider::start().await;
    let node = provider.node(|_| {});
    for (code, error, issuer, is_right) in [
        (true, None, None, true),
        (true, None, Some(provider.issuer.as_str()), true),
        (true, None, Some("https://evil.example.org"), false),
        (true, Some("access_denied"), None, false),
        (true, Some("server_error"), None, false),
        (false, Some("access_denied"), None, false),
        (false, None, None, false),
    ] {
        let begun = begin(&node).await.expect("it is there");
        let (brought, state) = provider.visited(&begun.redirect);
        let code = code.then_some(brought.as_str());
        let came = OidcReturn { state: &state, secret: &begun.secret, code, error, issuer };
        let told = node.finish(came).await;
        assert_eq!(told.is_ok(), is_right, "{came:?}: {told:?}");
        assert_eq!(node.finish(came).await, Err(OidcError::State));
        assert_eq!(node.trouble(), None, "a browser says it");
    }
}

#[tokio::test]
async fn a_token_that_says_something_else_is_refused() {
    let provider = TestProvider::start().await;
    for (name, value, is_by_provider) in [
        ("nonce", json!("another"), false),
        ("iss", json!("https://evil.example.org"), true),
        ("aud", json!("another"), true),
        ("exp", json!(1), true),
        ("iat", json!(1), true),
        ("sub", json!("x".repeat(256)), false),
        ("preferred_username", json!("terrace_local"), false),
    ] {
        *locked(&provider.changed) = BTreeMap::from([(name, value)]);
        let node = provider.node(|_| {});
        let told = log_in(&provider, &node).await;
        match is_by_provider {
            true => assert!(matches!(told, Err(OidcError::Away(_))), "{name}: {told:?}"),
            false => assert!(matches!(told, Err(OidcError::Refused(_))), "{name}: {told:?}"),
        }
        assert_eq!(
            node.trouble().is_some(),
            is_by_provider,
            "{name}: what no browser can do is the operator's trouble"
        );
    }
}

#[tokio::test]
async fn a_code_that_is_refused_is_the_browsers_failure_and_all_else_at_the_token_endpoint_the_providers() {
    let provider = TestProvider::start().await;
    for (status, body, is_by_provider) in [
        (400, r#"{"error": "invalid_grant"}"#.to_owned(), false),
        (400, r#"{"error": "invalid_request", "more": 1}"#.to_owned(), false),
        (400, r#"{"error": "unauthorized_client"}"#.to_owned(), true),
        (401, r#"{"error": "invalid_client"}"#.to_owned(), true),
        (400, "<html>".to_owned(), true),
        (404, String::new(), true),
        (429, String::new(), true),
        (500, r#"{"error": "invalid_grant"}"#.to_owned(), true),
        // Redirects are not followed: a code goes where the discovery document says, and nowhere else.
        (307, String::new(), true),
        (200, String::new(), true),
        (200, "{}".to_owned(), true),
        (200, r#"{"id_token": 7}"#.to_owned(), true),
        (200, r#"{"id_token": "a.b.c"}"#.to_owned(), true),
        (200, format!(r#"{{"id_token": "{}"}}"#, "a".repeat(TOKEN_BYTES_MAX + 1)), true),
        (200, " ".repeat(TOKEN_BYTES_MAX * 2 + 1), true),
        (200, "[".repeat(10_000), true),
    ] {
        *locked(&provider.refusal) = Some((status, body.clone().into_bytes()));
        let node = provider.node(|_| {});
        let told = log_in(&provider, &node).await;
        let what = format!("{status} {:.60}: {told:?}", body);
        match is_by_provider {
            true => assert!(matches!(told, Err(OidcError::Away(_))), "{what}"),
            false => assert!(matches!(told, Err(OidcError::Refused(_))), "{what}"),
        }
        assert_eq!(node.trouble().is_some(), is_by_provider, "{what}");
    }
}

#[tokio::test]
async fn a_provider_that_hangs_holds_up_a_few_and_turns_the_others_away_at_once() {
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let settings = OidcSettings {
        issuer: format!("http://{}", silent.local_addr().expect("it is bound")),
        client_id: "terrace".into(),
        redirect_url: "http://127.0.0.1/back".into(),
        timeout: Duration::from_millis(200),
        ..OidcSettings::default()
    };
    let node = Arc::new(OidcProvider::new(settings, Clock::fixed(NOW_US)).expect("they can work"));
    let mut begins = JoinSet::new();
    for _ in 0..WAITING_MAX + 20 {
        let node = Arc::clone(&node);
        begins.spawn(async move { begin(&node).await });
    }
    let told: Vec<String> =
        begins.join_all().await.into_iter().map(|ended| ended.expect_err("it hangs").to_string()).collect();
    let turned_away = told.iter().filter(|why| why.contains("too many")).count();
    assert_eq!(turned_away, 20, "{told:?}");
    assert!(node.trouble().is_some_and(|why| !why.contains("too many")), "a flood is not the operator's trouble");
}

#[tokio::test]
async fn a_new_key_of_the_provider_is_found_and_its_keys_are_not_asked_for_without_end() {
    let provider = TestProvider::start().await;
    let node = provider.node(|_| {});
    assert!(log_in(&provider, &node).await.is_ok());
    *locked(&provider.key) = SigningKey::new("b");
    for _ in 0..5 {
        assert!(log_in(&provider, &node).await.is_err(), "the keys were read a moment ago");
    }
    assert_eq!(*locked(&provider.keys_read), 1);
    provider.clock.set(NOW_US + KEYS_AGAIN_SECONDS * 1_000_000);
    assert!(log_in(&provider, &node).await.is_ok());
    assert_eq!(*locked(&provider.keys_read), 2);
    provider.clock.set(NOW_US + 2 * PLACES_SECONDS * 1_000_000);
    assert!(log_in(&provider, &node).await.is_ok());
    assert_eq!(*locked(&provider.keys_read), 3);
}

#[tokio::test]
async fn a_provider_that_is_away_hangs_or_sends_too_much_is_an_error_within_its_time() {
    let provider = TestProvider::start().await;
    for document in [b"{".to_vec(), b"{}".to_vec(), vec![b' '; DOCUMENT_BYTES_MAX + 1]] {
        *locked(&provider.document) = Some(document);
        assert!(matches!(begin(&provider.node(|_| {})).await, Err(OidcError::Away(_))));
    }
    let node = provider.node(|_| {});
    assert!(begin(&node).await.is_err() && node.trouble().is_some());
    provider.clock.set(NOW_US + TROUBLE_SECONDS * 1_000_000);
    assert!(node.trouble().is_none(), "it was long ago");
    provider.clock.set(NOW_US);
    *locked(&provider.document) = None;
    assert!(begin(&node).await.is_err(), "it is not asked again at once");
    provider.clock.set(NOW_US + AWAY_SECONDS * 1_000_000);
    assert!(begin(&node).await.is_ok() && node.trouble().is_none());
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let settings = OidcSettings {
        issuer: format!("http://{}", silent.local_addr().expect("it is bound")),
        client_id: "terrace".into(),
        redirect_url: "http://127.0.0.1/back".into(),
        timeout: Duration::from_millis(100),
        ..OidcSettings::default()
    };
    let node = OidcProvider::new(settings, Clock::fixed(NOW_US)).expect("they can work");
    assert!(matches!(begin(&node).await, Err(OidcError::Away(_))));
}

#[tokio::test]
async fn a_probe_says_each_step_and_the_one_that_fails() {
    let provider = TestProvider::start().await;
    let node = provider.node(|_| {});
    let mut steps = Vec::new();
    assert_eq!(node.probe(&mut |step, _| steps.push(step)).await, Ok(()));
    assert_eq!(steps, ["discovery", "authorize", "token", "sign-out", "keys"]);
    *locked(&provider.document) = Some(b"{}".to_vec());
    assert_eq!(node.probe(&mut |_, _| {}).await.expect_err("it is none").0, "discovery");
}
