//! Signing in by a provider (OpenID Connect): a real node, a provider on this machine, and a browser between them.

use std::fs;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::browser::{Browser, Page};
use super::provider::{Provider, SECRET};
use super::{PASSWORD, audited, bed, token};
use crate::node::{Bed, Node, until};

/// The right of the group, as a user's own page lists it.
const RIGHT: &str = "<code>node-status</code>";

/// A bed whose console knows the provider, with more settings of `[oidc]`; browsers reach it at 127.0.0.1:8480, they believe.
fn bed_with(provider: &Provider, more: &str) -> Bed {
    let bed = bed();
    fs::write(bed.path("client-secret"), SECRET).expect("a file");
    let secret = bed.path("client-secret").display().to_string();
    bed.configure(&format!(
        "production = \"production\"\n[console]\nlisten = \"127.0.0.1:0\"\n[oidc]\nissuer = \"{}\"\nclient_id = \"terrace\"\n\
         client_secret = \"file:{secret}\"\nbase_url = \"http://127.0.0.1:8480\"\ntitle = \"Clinic\"\ngroup_claim = \"groups\"\n{more}\
         [oidc.roles]\nDoctors = \"doctors\"\n",
        provider.issuer
    ));
    bed
}

/// Makes the role of the group, with a right of its own.
fn with_doctors(bed: &Bed) {
    bed.run(&["role", "create", "doctors", "--data"]).succeeds("");
    bed.run(&["role", "grant", "node-status", "--on", "node", "--to", "doctors", "--data"]).succeeds("");
}

/// A browser begins at the page of the sign-in, and comes back from the provider: the address to ask the console for.
fn gone(browser: &mut Browser, provider: &Provider, next: &str) -> String {
    let page = browser.get(&format!("/sign-in/oidc?next={next}")).is(303);
    provider.visited(&page.headers["location"])
}

/// Asks for the address that the provider sent the browser to, when it is let.
fn back(browser: &mut Browser, address: &str) -> Page {
    loop {
        let page = browser.get(address);
        if page.status != 429 {
            return page;
        }
        // Failed sign-ins slow down the next ones: this is not what is tested here.
        thread::sleep(Duration::from_millis(250));
    }
}

fn signed_in(node: &Node<'_>, provider: &Provider) -> Browser {
    let mut browser = Browser::at(node.console());
    let address = gone(&mut browser, provider, "/account");
    assert_eq!(back(&mut browser, &address).is(303).headers["location"], "/account");
    browser
}

/// A browser comes back, and is not signed in.
fn ended(browser: &mut Browser, address: &str, (status, what): (u16, &str)) {
    let page = back(browser, address);
    assert_eq!(page.status, status, "{what}: {}", page.body);
    let has_session = browser.cookies.keys().any(|name| !name.contains("-before") && !name.contains("-oidc"));
    assert!(!has_session, "{what}: a session");
    browser.get("/account").is(303);
}

/// A provider that says what is not so signs nobody in.
fn lies_are_refused(node: &Node<'_>, provider: &Provider) {
    // What no browser can bring about is the provider's failure.
    for (claim, value, status) in [
        ("nonce", json!("another"), 401),
        ("aud", json!("another"), 503),
        ("iss", json!("https://evil.example"), 503),
        ("exp", json!(1_000_000_000), 503),
        ("preferred_username", json!("eve"), 401),
        ("preferred_username", json!("terrace_local"), 401),
    ] {
        provider.comes("ann", "a-1", &["Doctors"]);
        provider.lies(claim, value.clone());
        let mut browser = Browser::at(node.console());
        let address = gone(&mut browser, provider, "/");
        ended(&mut browser, &address, (status, &format!("{claim} = {value}")));
    }
    for algorithm in ["none", "HS256", "RS256"] {
        provider.comes("ann", "a-1", &["Doctors"]);
        provider.signs_by(algorithm);
        let mut browser = Browser::at(node.console());
        let address = gone(&mut browser, provider, "/");
        ended(&mut browser, &address, (503, algorithm));
    }
}

#[test]
fn a_user_of_the_provider_signs_in_has_the_rights_of_its_groups_and_signs_out_there_too() {
    let provider = Provider::start();
    let bed = bed_with(&provider, "");
    let node = bed.start();
    with_doctors(&bed);
    bed.run(&["user", "add", "ann", "--oidc", "--data"]).succeeds("user ann is made");
    provider.comes("ann", "a-1", &["Doctors", "Others"]);
    let mut browser = Browser::at(node.console());
    let page = browser.get("/sign-in?next=/messages").shows(200, ">Sign in with Clinic</a>");
    assert!(page.body.contains("href=\"/sign-in/oidc?next=%2Fmessages\"") && page.body.contains("type=\"password\""));
    // What the browser had before is not what it has then.
    let before = browser.cookies.clone();
    let address = gone(&mut browser, &provider, "//evil.example");
    let page = back(&mut browser, &address).is(303);
    assert_eq!(page.headers["location"], "/", "another site is nowhere to go to");
    let session = page.cookies.iter().find(|cookie| cookie.contains("Max-Age=3600")).expect("a session of an hour");
    assert!(session.contains("; HttpOnly; SameSite=Lax") && !before.values().any(|value| session.contains(value)));
    browser.get("/account").shows(200, "<h1>ann</h1>").shows(200, RIGHT);
    bed.run(&["role", "show", "ann", "--data"]).succeeds("login at the provider (OIDC), as a-1");
    let logins = audited(&bed, "login");
    let entry = logins.iter().find(|entry| entry["actor"]["name"] == "ann").expect("an entry");
    assert_eq!(
        (&entry["outcome"], entry.to_string().contains("\"proof\":\"oidc\"")),
        (&json!("granted"), true),
        "{entry}"
    );
    assert_eq!(audited(&bed, "identity.provider").len(), 1);
    // The groups of the next login count.
    provider.comes("ann", "a-1", &[]);
    let mut later = Browser::at(node.console());
    // Browsers leave a tab out of an address.
    let address = gone(&mut later, &provider, "/%09/evil.example");
    assert_eq!(back(&mut later, &address).is(303).headers["location"], "/");
    assert!(!later.get("/account").is(200).body.contains(RIGHT));
    // Signing out ends the session here, and leads to the provider.
    let form = token(&mut browser);
    let page = browser.post("/sign-out", &[("token", &form)]).shows(200, "Sign out at Clinic");
    let place = format!(
        "href=\"{}/logout?client_id=terrace&amp;post_logout_redirect_uri=http%3A%2F%2F127.0.0.1%3A8480%2Fsign-in&amp;id_token_hint=",
        provider.issuer
    );
    assert!(page.body.contains(&place), "{}", page.body);
    browser.get("/account").is(303);
    node.stop();
}

#[test]
fn what_is_forged_replayed_of_another_browser_or_of_another_site_signs_nobody_in() {
    let provider = Provider::start();
    let bed = bed_with(&provider, "");
    let node = bed.start();
    with_doctors(&bed);
    bed.run(&["user", "add", "ann", "--oidc", "--data"]).succeeds("");
    let mut stranger = Browser::at(node.console());
    stranger.site = Some("Sec-Fetch-Site: cross-site\r\n");
    let page = stranger.get("/sign-in/oidc").is(303);
    assert_eq!((&*page.headers["location"], page.cookies.len()), ("/sign-in", 0));
    // A page of any site can have browsers ask for the callback, over and over: nobody waits for that.
    for _ in 0..6 {
        stranger.get("/sign-in/oidc/callback?code=x&state=y").is(401);
    }
    let refused = |browser: &mut Browser, address: &str, what: &str| ended(browser, address, (401, what));
    // The state of one browser in another, a made-up one, and one that was used.
    provider.comes("ann", "a-1", &["Doctors"]);
    let (mut one, mut other) = (Browser::at(node.console()), Browser::at(node.console()));
    let (of_one, of_other) = (gone(&mut one, &provider, "/"), gone(&mut other, &provider, "/"));
    refused(&mut other, &of_one, "another browser's state");
    refused(&mut other, "/sign-in/oidc/callback?code=code-0&state=made-up", "a made-up state");
    let swapped = of_other.replace("code-1", "code-0");
    refused(&mut other, &swapped, "the code of another browser");
    refused(&mut other, &of_other, "a state that was used");
    let denied = gone(&mut other, &provider, "/").replace("code=code-2", "error=access_denied");
    refused(&mut other, &denied, "a login that the provider denied");
    lies_are_refused(&node, &provider);
    bed.run(&["user", "show", "eve", "--data"]).fails("");
    bed.run(&["status", "--data"]).finds("terrace user oidc");
    let entries = audited(&bed, "login");
    let are_whole = entries.iter().all(|entry| {
        let text = entry.to_string();
        text.contains("\"proof\":\"oidc\"") && text.contains("127.0.0.1") && entry["outcome"] == "refused"
    });
    assert!(are_whole && entries.len() > 10, "{entries:?}");
    // And with all that, the right one of the first browser: its code was taken by the other.
    provider.comes("ann", "a-1", &["Doctors"]);
    let address = gone(&mut one, &provider, "/account");
    back(&mut one, &address).is(303);
    one.get("/account").shows(200, "<h1>ann</h1>");
    node.stop();
}

#[test]
fn who_is_in_a_group_is_made_where_that_is_wanted_and_another_person_of_the_name_is_not() {
    let provider = Provider::start();
    let bed = bed_with(&provider, "create = true\n");
    let node = bed.start();
    with_doctors(&bed);
    super::user(&bed, "local", &[]);
    let refused = |user: &str, subject: &str, groups: &[&str]| {
        provider.comes(user, subject, groups);
        let mut browser = Browser::at(node.console());
        let address = gone(&mut browser, &provider, "/");
        back(&mut browser, &address).is(401);
    };
    refused("ben", "b-1", &["Others"]);
    provider.comes("ben", "b-1", &["Doctors"]);
    let mut ben = signed_in(&node, &provider);
    ben.get("/account").shows(200, "<h1>ben</h1>").shows(200, RIGHT);
    refused("ben", "b-2", &["Doctors"]);
    refused("ben", "b-1", &[]);
    assert!(!ben.get("/account").is(200).body.contains(RIGHT), "what its groups gave is gone with them");
    refused("local", "l-1", &["Doctors"]);
    // A password of its own ends what the provider says.
    ben.get("/account").is(200);
    let file = bed.path("password").display().to_string();
    bed.run(&["user", "password", "ben", "--password-file", &file, "--data"]).succeeds("");
    until("the session by the provider is over", || ben.get("/account").status == 303);
    refused("ben", "b-1", &["Doctors"]);
    let told: Vec<String> = audited(&bed, "login").iter().map(ToString::to_string).collect();
    for why in ["NoGroup", "OtherSubject", "OtherProof"] {
        assert!(told.iter().any(|entry| entry.contains(why)), "{why}: {told:?}");
    }
    node.stop();
}

#[test]
fn a_session_by_the_provider_ends_with_its_user_and_the_last_administrator_keeps_a_proof_here() {
    let provider = Provider::start();
    let bed = bed_with(&provider, "session = \"1m\"\n");
    let node = bed.start();
    with_doctors(&bed);
    bed.run(&["user", "add", "ann", "--oidc", "--data"]).succeeds("");
    provider.comes("ann", "a-1", &["Doctors"]);
    let mut browser = signed_in(&node, &provider);
    bed.run(&["user", "password", "ann", "--oidc", "--data"]).succeeds("");
    until("who it was there is forgotten", || browser.get("/account").status == 303);
    let mut browser = signed_in(&node, &provider);
    bed.run(&["user", "lock", "ann", "--reason", "she left", "--data"]).succeeds("");
    until("a locked user is out", || browser.get("/account").status == 303);
    // The one administrator who has a password.
    let file = bed.path("password");
    fs::write(&file, PASSWORD).expect("written");
    bed.run(&["user", "add", "root", "--administrator", "--password-file", &file.display().to_string(), "--data"])
        .succeeds("");
    bed.run(&["user", "password", "root", "--oidc", "--data"]).fails("administrator");
    let mut root = Browser::at(node.console());
    root.sign_in("root", PASSWORD).is(303);
    node.stop();
}

#[test]
fn settings_are_checked_and_the_provider_is_tried_step_by_step() {
    let provider = Provider::start();
    let bed = bed_with(&provider, "");
    bed.command_line(&["user", "oidc", "--config", "terrace.toml"]).succeeds("1 for RS256 or ES256");
    bed.configure(&format!(
        "[console]\n[oidc]\nissuer = \"{}/other\"\nclient_id = \"terrace\"\nbase_url = \"http://127.0.0.1:8480\"\n",
        provider.issuer
    ));
    let told = bed.command_line(&["user", "oidc"]).finds("FAILED");
    assert!(told.contains("discovery") && told.contains("check oidc.issuer"), "{told}");
    for (line, why) in [
        ("issuer = \"http://id.example.org\"", "oidc.issuer"),
        ("issuer = \"http://127.0.0.1:9\"\nclient_secret = \"s3cret\"", "does not belong into the settings"),
    ] {
        let rest = "client_id = \"terrace\"\nbase_url = \"http://127.0.0.1:8480\"\n";
        bed.configure(&format!("[console]\n[oidc]\n{line}\n{rest}"));
        bed.refuses(why);
    }
    bed.configure(
        "[oidc]\nissuer = \"http://127.0.0.1:9\"\nclient_id = \"terrace\"\nbase_url = \"http://127.0.0.1:8480\"\n",
    );
    bed.refuses("there is no [console]");
    // A provider that is away keeps nobody else out.
    bed.configure(
        "[console]\nlisten = \"127.0.0.1:0\"\n[oidc]\nissuer = \"http://127.0.0.1:9\"\nclient_id = \"terrace\"\nbase_url = \"http://127.0.0.1:8480\"\n",
    );
    let node = bed.start();
    super::user(&bed, "local", &[]);
    let mut browser = Browser::at(node.console());
    browser.get("/sign-in/oidc").shows(503, "The provider cannot be asked now.");
    bed.run(&["status", "--data"]).finds("terrace user oidc");
    browser.sign_in("local", PASSWORD).is(303);
    node.stop();
}
