//! The console of a real node, over real HTTP: signing in, what a browser of another site can do (nothing), what a session is worth and
//! how long, who sees what, and what is sent how often.
//!
//! Role x action x port, and every route by who has no right, are in `access`; how pages look in `scripts/test-console.sh`.

mod asking;
mod browser;
mod crowding;
mod oidc;
mod provider;
mod work;

use std::fs;
use std::io::{BufRead, Write};

use crate::node::{Bed, Node, until};
use browser::{Browser, Page};

const PASSWORD: &str = "correct horse battery";

/// A bed with a production: admissions go through a transform to a file, and `slow` takes what nobody takes off.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.configure("production = \"production\"\n[console]\nlisten = \"127.0.0.1:0\"\n");
    for (path, text) in [
        ("services/adt.toml", "kind = \"mllp\"\nlisten = \"127.0.0.1:0\"\nrules = \"main\"\n"),
        ("operations/out.toml", "kind = \"file\"\nfolder = \"out\"\n"),
        ("rules/main.rules", "match all\nrule admissions when MSH-9.1 = \"ADT\" { send to out using t }\n"),
        ("transforms/t.hl7t", "set MSH-5 = 'LAB'\n"),
    ] {
        let path = bed.path("production").join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }
    bed
}

/// Makes a user with this password and these rights.
fn user(bed: &Bed, name: &str, rights: &[(&str, &str)]) {
    let file = bed.path("password");
    fs::write(&file, PASSWORD).expect("written");
    let file = file.display().to_string();
    bed.run(&["user", "add", name, "--password-file", &file, "--data"]).succeeds("");
    for (right, on) in rights {
        bed.run(&["role", "grant", right, "--on", on, "--to", name, "--data"]).succeeds("");
    }
}

/// Rights of somebody who operates a node and reads messages.
const OPERATOR: &[(&str, &str)] = &[
    ("node-status", "node"),
    ("message-metadata", "service *"),
    ("message-body", "service *"),
    ("unmasked", "service *"),
    ("message-resend", "service *"),
    ("operation-suspend", "operation *"),
    ("production-load", "node"),
    ("audit-read", "node"),
];

fn signed_in(node: &Node<'_>, name: &str) -> Browser {
    let mut browser = Browser::at(node.console());
    browser.sign_in(name, PASSWORD).is(303);
    browser
}

/// The token of the forms of a session.
fn token(browser: &mut Browser) -> String {
    browser.get("/account").is(200).field("token")
}

/// The ids of messages that a page links to, in its order; other pages below `/messages/` are none.
fn linked(page: &Page) -> Vec<String> {
    let of = |rest: &str| rest.split('"').next().expect("its end").to_owned();
    let found = page.body.split("href=\"/messages/").skip(1).map(of);
    found.filter(|id| id.bytes().all(|byte| byte.is_ascii_digit())).collect()
}

/// The one message's id, as the page of the list links to it.
fn newest(browser: &mut Browser) -> String {
    let page = browser.get("/messages").is(200);
    linked(&page).into_iter().next().unwrap_or_else(|| panic!("no message: {}", page.body))
}

/// What the audit has of an action, one line an entry.
fn audited(bed: &Bed, action: &str) -> Vec<serde_json::Value> {
    let told = bed.run(&["audit", "list", "--json", "--last", "0", "--action", action, "--data"]).succeeds("");
    told.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

#[test]
fn a_user_signs_in_and_out_and_a_wrong_password_says_no_more_than_a_wrong_name() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    let mut browser = Browser::at(node.console());
    assert_eq!(browser.get("/messages?q=1").is(303).headers["location"], "/sign-in?next=%2Fmessages%3Fq%3D1");
    let told = [("ann", "wrong"), ("nobody", "wrong"), ("nobody", PASSWORD)].map(|(name, password)| {
        let page = browser.sign_in(name, password).is(401);
        let text = page.body.split("role=\"alert\"").nth(1).expect("a reason").to_owned();
        text.split("</p>").next().expect("its end").to_owned()
    });
    assert!(told.iter().all(|text| *text == told[0] && text.contains("wrong")), "{told:?}");
    let page = browser.sign_in("ann", PASSWORD).is(303);
    let session = page.cookies.iter().find(|cookie| !cookie.contains("-before=")).expect("a session").clone();
    assert!(session.contains("; HttpOnly; SameSite=Lax; Max-Age=43200") && !session.contains("Secure"), "{session}");
    let page = browser.get("/").shows(200, "All is well.");
    for (name, value) in [
        (
            "content-security-policy",
            "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        ),
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "same-origin"),
        ("cache-control", "no-store"),
    ] {
        assert_eq!(page.headers[name], value);
    }
    assert!(!page.body.contains(" style=") && !page.body.contains("<style") && !page.body.contains(" onclick"));
    let entries = audited(&bed, "login");
    let outcome = |entry: &serde_json::Value| {
        format!("{} {} {}", entry["origin"]["protocol"], entry["actor"]["name"], entry["outcome"])
    };
    let told: Vec<String> = entries.iter().map(outcome).collect();
    assert!(told.contains(&"\"console\" \"ann\" \"granted\"".to_owned()), "{told:?}");
    assert_eq!(told.iter().filter(|line| line.ends_with("\"refused\"")).count(), 3, "{told:?}");
    let stolen = browser.clone();
    let token = token(&mut browser);
    browser.post("/sign-out", &[("token", &token)]).is(303);
    for mut later in [browser, stolen] {
        assert_eq!(later.get("/").is(303).headers["location"], "/sign-in");
    }
    assert_eq!(audited(&bed, "logout").len(), 1);
    node.stop();
}

#[test]
fn a_session_that_somebody_else_handed_out_becomes_nobodys() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    user(&bed, "eve", &[]);
    // Eve's own session, planted into Ann's browser.
    let eve = signed_in(&node, "eve");
    let mut ann = eve.clone();
    ann.sign_in("ann", PASSWORD).is(303);
    assert_ne!(ann.cookies, eve.cookies);
    ann.get("/account").shows(200, "<h1>ann</h1>");
    assert_eq!(eve.clone().get("/account").status, 303, "the session that was replaced has ended");
    // A made-up one is none.
    let mut made_up = Browser::at(node.console());
    made_up.cookies = ann.cookies.keys().map(|name| (name.clone(), "A".repeat(43))).collect();
    made_up.get("/").is(303);
    node.stop();
}

#[test]
fn another_site_changes_nothing_and_a_form_is_of_one_session() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    user(&bed, "ben", OPERATOR);
    let (mut ann, mut ben) = (signed_in(&node, "ann"), signed_in(&node, "ben"));
    let (of_ann, of_ben) = (token(&mut ann), token(&mut ben));
    let target = "/operations/out/suspend";
    for origin in [
        "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n",
        "Origin: null\r\n",
        "Sec-Fetch-Site: same-site\r\n",
        "Sec-Fetch-Site: none\r\n",
        "",
    ] {
        let mut abused = Browser { origin: Some(origin), ..ann.clone() };
        abused.post(target, &[("token", &of_ann)]).shows(403, "from a page of this console");
        abused.post("/sign-in", &[("token", "x"), ("user", "ann"), ("password", PASSWORD)]).is(403);
    }
    for wrong in ["", "x", &of_ben] {
        ann.post(target, &[("token", wrong)]).shows(403, "not one of this session");
    }
    // The API changes nothing for a session at all.
    ann.post("/api/v1/operations/out/suspend", &[("token", &of_ann)]).shows(403, "needs a token");
    assert_eq!(node.status()["operations"][0]["suspended"], false);
    ann.post(target, &[("token", &of_ann)]).is(303);
    assert_eq!(node.status()["operations"][0]["suspended"], true);
    ann.get("/").shows(200, "out is suspended");
    ann.post("/operations/out/resume", &[("token", &of_ann)]).is(303);
    assert_eq!(node.status()["operations"][0]["suspended"], false);
    let entries: Vec<_> = audited(&bed, "operation");
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|entry| entry["actor"]["name"] == "ann" && entry["origin"]["protocol"] == "console"));
    node.stop();
}

#[test]
fn who_is_locked_or_has_another_password_is_out_at_once_and_so_is_its_stream() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    user(&bed, "ben", OPERATOR);
    let (mut ann, mut ben) = (signed_in(&node, "ann"), signed_in(&node, "ben"));
    let mut stream = ann.stream("/live/production");
    let mut line = String::new();
    while !line.contains("Messages in") {
        line.clear();
        assert!(stream.read_line(&mut line).expect("an event") > 0, "it goes on");
    }
    bed.run(&["user", "lock", "ann", "--reason", "a test", "--data"]).succeeds("");
    ann.get("/").is(303);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stream, &mut rest).expect("it ends");
    // Another password ends what the one before began.
    ben.get("/").is(200);
    let file = bed.path("password");
    fs::write(&file, "quite another password").expect("written");
    let file = file.display().to_string();
    bed.run(&["user", "password", "ben", "--password-file", &file, "--data"]).succeeds("");
    ben.get("/").is(303);
    ben.get("/live/production").is(401);
    node.stop();
}

#[test]
fn a_reload_that_demands_another_way_to_sign_in_ends_pages_and_what_is_live() {
    let bed = bed();
    let settings = |method: &str| {
        bed.configure(&format!(
            "production = \"production\"\n[console]\nlisten = \"127.0.0.1:0\"\n[[access]]\nport = \"console\"\naddress = \"local\"\nmethod = \"{method}\"\n\
             [[access]]\nport = \"mllp\"\naddress = \"local\"\nmethod = \"allow\"\n"
        ));
    };
    settings("password");
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    let mut ann = signed_in(&node, "ann");
    let mut stream = ann.stream("/live/production");
    let mut line = String::new();
    while !line.contains("Messages in") {
        line.clear();
        assert!(stream.read_line(&mut line).expect("an event") > 0, "it goes on");
    }
    settings("token");
    bed.run(&["reload", "--data"]).succeeds("access: 2 rules are in force");
    ann.get("/").is(403);
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut stream, &mut rest).expect("it ends");
    node.stop();
}

#[test]
fn guesses_become_slow_for_the_user_and_are_few_in_the_audit() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    let mut browser = Browser::at(node.console());
    let mut held_up = false;
    for _ in 0..100 {
        let page = browser.sign_in("ann", "a guess");
        if page.status == 429 {
            assert!(page.headers["retry-after"].parse::<u64>().is_ok_and(|seconds| seconds >= 1));
            held_up = true;
            break;
        }
        page.is(401);
    }
    assert!(held_up, "the guard makes who guesses wait");
    assert!(audited(&bed, "login").len() <= 30);
    node.stop();
}

/// What a hostile sender may put into any field.
const EVIL: [&str; 5] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'><svg onload=alert(1)>",
    "</textarea></details><iframe src=//evil.example>",
    "javascript:alert(1)//",
];

/// Nothing of it may stand in a page as it is.
fn is_harmless(page: &Page, what: &str) {
    for tag in ["<script>alert", "<img src=x", "<svg onload", "<iframe", "href=\"javascript:", "onerror=alert(1)>"] {
        assert!(!page.body.contains(tag), "{what}: {tag} is in: {}", page.body);
    }
}

#[test]
fn no_field_of_a_message_becomes_markup_on_any_page() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    for evil in EVIL {
        let many = vec![evil; 20].join("|");
        node.send_bytes(&format!(
            "MSH|^~\\&|{evil}|{evil}|{evil}|{evil}|20260101||ADT^A01^{evil}|{evil}|P|2.5|{evil}\rPID|{many}\rPV1|{many}\rZZZ|{many}\r"
        ));
    }
    let mut ann = signed_in(&node, "ann");
    let token = token(&mut ann);
    let list = ann.get("/messages").is(200);
    is_harmless(&list, "the list");
    assert!(list.body.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "its control id");
    let ids = linked(&list);
    assert_eq!(ids.len(), EVIL.len());
    for id in &ids {
        for target in [format!("/messages/{id}"), format!("/messages/{id}/resend")] {
            is_harmless(&ann.get(&target).is(200), &target);
        }
        let raw = ann.get(&format!("/messages/{id}/raw")).is(200);
        assert_eq!(raw.headers["content-type"], "application/octet-stream");
        assert!(raw.headers["content-disposition"].starts_with("attachment"));
    }
    for evil in EVIL {
        let asked = browser::encoded(evil);
        for target in [
            format!("/messages?q={asked}"),
            format!(
                "/messages?q=control:{asked}&service={asked}&to={asked}&state={asked}&since={asked}&before={asked}"
            ),
            format!("/audit?actor={asked}&object={asked}&action={asked}&since={asked}"),
            format!("/operations/{asked}"),
            format!("/try?what={asked}"),
            format!("/sign-in?next={asked}"),
            format!("/{asked}"),
        ] {
            is_harmless(&ann.get(&target), &target);
        }
        let fields = [("token", token.as_str()), ("what", "transform t"), ("text", evil), ("service", evil)];
        is_harmless(&ann.post("/try", &fields).is(422), "a trial");
    }
    is_harmless(&ann.get("/").is(200), "the production");
    node.stop();
}

#[test]
fn bodies_are_shown_to_who_may_read_them_masked_to_who_may_not_see_all_and_are_in_the_audit_before() {
    let bed = bed();
    let node = bed.start();
    node.send("M1");
    user(&bed, "lists", &[("message-metadata", "service *")]);
    user(&bed, "masked", &[("message-metadata", "service *"), ("message-body", "service *")]);
    user(&bed, "ann", OPERATOR);
    let id = newest(&mut signed_in(&node, "ann"));
    let target = format!("/messages/{id}");
    let reads = || audited(&bed, "message.body").len();
    let before = reads();
    let mut lists = signed_in(&node, "lists");
    let page = lists.get(&target).shows(200, "Its way");
    assert!(!page.body.contains("SAMPLE") && !page.body.contains("NORTH"), "{}", page.body);
    lists.get(&format!("{target}/raw")).is(403);
    lists.get("/messages?q=1").shows(200, "Not looked up among numbers of patients");
    assert_eq!(reads(), before + 1, "the refused download, and no page of who may not read");
    let mut masked = signed_in(&node, "masked");
    let page = masked.get(&target).shows(200, "patient data is masked");
    assert!(page.body.contains("NORTH") && !page.body.contains("SAMPLE"), "{}", page.body);
    masked.get("/messages?q=mrn:1").shows(403, "masked");
    let mut ann = signed_in(&node, "ann");
    let page = ann.get(&target).shows(200, "SAMPLE");
    assert!(page.body.contains("Receiving application") && page.body.contains("<ins>LAB</ins>"), "{}", page.body);
    let entries = audited(&bed, "message.body");
    let of = |name: &str| {
        entries.iter().filter(|entry| entry["actor"]["name"] == name && entry["outcome"] == "granted").count()
    };
    assert_eq!((of("lists"), of("masked"), of("ann")), (0, 1, 1), "{entries:?}");
    assert!(entries.iter().all(|entry| entry["origin"]["protocol"] == "console"));
    // Who lists no message of a service does not learn of it.
    user(&bed, "nobody", &[("node-status", "node")]);
    signed_in(&node, "nobody").get(&target).is(403);
    node.stop();
}

#[test]
fn a_broken_glass_shows_what_was_hidden_with_its_reason_in_the_audit() {
    let bed = bed();
    let node = bed.start();
    node.send("M1");
    user(&bed, "ann", &[("message-metadata", "service *"), ("break-glass", "node")]);
    let mut ann = signed_in(&node, "ann");
    let target = format!("/messages/{}", newest(&mut ann));
    let token = ann.get(&target).shows(200, "Break the glass").field("token");
    let glass = format!("{target}/glass");
    ann.post(&glass, &[("token", &token), ("minutes", "15"), ("reason", " ")]).is(422);
    ann.post(&glass, &[("token", &token), ("minutes", "100000"), ("reason", "x")]).is(422);
    let fields = [("token", token.as_str()), ("minutes", "15"), ("reason", "ticket 4711"), ("unmasked", "yes")];
    ann.post(&glass, &fields).is(303);
    ann.get(&target).shows(200, "SAMPLE");
    let entries = audited(&bed, "message.body");
    assert!(entries.iter().any(|entry| entry["details"]["break_glass"] == "yes"), "{entries:?}");
    bed.run(&["status", "--data"]).finds("ticket 4711");
    node.stop();
}

#[test]
fn a_resend_shows_what_goes_where_and_a_form_that_is_sent_twice_sends_once() {
    let bed = bed();
    let node = bed.start();
    node.send("M1");
    user(&bed, "ann", OPERATOR);
    let mut ann = signed_in(&node, "ann");
    let id = newest(&mut ann);
    let target = format!("/messages/{id}/resend");
    let page = ann.get(&target).shows(200, "go out again");
    let (token, key) = (page.field("token"), page.field("key"));
    ann.post(&target, &[("token", &token), ("key", &key)]).shows(422, "at least one output");
    let fields = [("token", token.as_str()), ("key", key.as_str()), ("to", "out")];
    let places: Vec<String> = (0..3).map(|_| ann.post(&target, &fields).is(303).headers["location"].clone()).collect();
    assert!(places.iter().all(|place| *place == places[0]), "{places:?}");
    ann.get(&places[0]).shows(200, "Resent from");
    let other = [("token", token.as_str()), ("key", key.as_str()), ("to", "elsewhere")];
    ann.post(&target, &other).shows(422, "used for something else");
    assert_eq!(bed.stored().len(), 2);
    assert_eq!(audited(&bed, "message.resend").len(), 1);
    node.stop();
}

#[test]
fn the_list_is_walked_page_by_page_and_every_message_is_on_one_of_them() {
    let bed = bed();
    let node = bed.start();
    let batch: Vec<String> = (0..120).map(|number| crate::node::message(&format!("N{number:03}"))).collect();
    node.send_bytes_many(&batch);
    user(&bed, "ann", OPERATOR);
    let mut ann = signed_in(&node, "ann");
    until("all are delivered", || node.status()["operations"][0]["delivered"] == 120);
    for filter in ["", "&service=adt", "&state=delivered", "&q=type:ADT%5EA01", "&since=1h"] {
        let (mut seen, mut target, mut pages) = (Vec::new(), format!("/messages?x=1{filter}"), 0);
        loop {
            let page = ann.get(&target).is(200);
            pages += 1;
            let of = |rest: &str| rest.split('<').next().expect("its end").to_owned();
            seen.extend(page.body.split("<code>").skip(1).map(of).filter(|text| text.starts_with('N')));
            let Some(rest) = page.body.split("rel=\"next\" href=\"").nth(1) else { break };
            target = rest.split('"').next().expect("its end").replace("&amp;", "&");
        }
        let expected: Vec<String> = (0..120).rev().map(|number| format!("N{number:03}")).collect();
        assert_eq!((seen, pages), (expected, 3), "{filter}");
    }
    // One word is looked up among the keys.
    ann.get("/messages?q=N077").shows(200, "1 found");
    ann.get("/messages?q=nothing").shows(200, "No message has this id");
    node.stop();
}

#[test]
fn a_changed_transform_is_tried_on_stored_messages_and_kept_nowhere() {
    let bed = bed();
    let node = bed.start();
    ["A1", "A2"].iter().for_each(|id| node.send(id));
    user(&bed, "ann", OPERATOR);
    user(
        &bed,
        "masked",
        &[("production-load", "node"), ("message-metadata", "service *"), ("message-body", "service *")],
    );
    let mut ann = signed_in(&node, "ann");
    let token = token(&mut ann);
    ann.get("/try?what=transform+t").shows(200, "set MSH-5 = 'LAB'");
    let run = |browser: &mut Browser, token: &str, text: &str| {
        browser.post("/try", &[("token", token), ("what", "transform t"), ("text", text), ("number", "20")])
    };
    run(&mut ann, &token, "set MSH-5 = 'LAB'\r\n").shows(200, "<b>2</b> same");
    run(&mut ann, &token, "set MSH-5 = 'WARD'\r\n").shows(200, "<ins>WARD</ins>");
    run(&mut ann, &token, "set MSH-5 = uper('x')\n").shows(422, "t.hl7t:1");
    run(&mut ann, &token, "fail 'not this one'\n").shows(200, "t.hl7t:1");
    assert_eq!(
        fs::read_to_string(bed.path("production/transforms/t.hl7t")).expect("it is there"),
        "set MSH-5 = 'LAB'\n"
    );
    assert_eq!(bed.stored(), ["A1", "A2"]);
    let mut masked = signed_in(&node, "masked");
    let own = self::token(&mut masked);
    run(&mut masked, &own, "set MSH-5 = 'LAB'\n").shows(422, "masked");
    assert!(audited(&bed, "production.try").len() >= 5);
    node.stop();
}

/// Sends requests that are none, and sees that the node goes on.
#[test]
fn what_is_no_request_is_refused_and_nothing_else_is_hurt() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    let mut ann = signed_in(&node, "ann");
    for (target, status) in [
        ("/messages/x", 400),
        ("/messages/18446744073709551616", 400),
        ("/messages/1", 404),
        ("/operations/none", 404),
        ("/nowhere", 404),
        ("/assets/../../etc/passwd", 404),
        ("/assets/%2e%2e/x", 404),
        ("/messages?before=x", 422),
        ("/api/v1/messages?limit=0", 422),
        ("/api/v1/nowhere", 404),
    ] {
        ann.get(target).is(status);
    }
    for method in ["PUT", "DELETE", "OPTIONS", "TRACE"] {
        ann.send(method, "/", "").is(405);
    }
    assert_eq!(ann.send("HEAD", "/", "").is(200).body, "");
    let mut raw = std::net::TcpStream::connect(node.console()).expect("it listens");
    raw.write_all(&[0x16, 0x03, 0x01, 0, 0, 0xff, b'\r', b'\n', b'\r', b'\n']).expect("it is taken");
    ann.get("/").is(200);
    node.stop();
}
