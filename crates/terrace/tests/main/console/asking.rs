//! What visitors ask other services for on pages of a real node: SQL, search, saved searches, lists as files.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};

use super::browser::{Browser, Page, encoded};
use super::{OPERATOR, audited, bed, signed_in, token, user};
use crate::node::{Bed, until};

/// A request to the search port, by who the settings trust.
fn put(address: SocketAddr, target: &str, body: &str) {
    let mut stream = TcpStream::connect(address).expect("it listens");
    let head = format!(
        "PUT {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).expect("it is taken");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 2"), "{answer}");
}

fn bed_with_services() -> Bed {
    let bed = bed();
    bed.configure(
        "production = \"production\"\n[console]\nlisten = \"127.0.0.1:0\"\n[sql]\nlisten = \"127.0.0.1:0\"\n\
         [search]\nlisten = \"127.0.0.1:0\"\ntrust = true\n",
    );
    bed
}

fn statement(browser: &mut Browser, token: &str, text: &str) -> Page {
    browser.post("/sql", &[("token", token), ("text", text)])
}

#[test]
fn sql_on_a_page_reads_with_the_rights_of_the_visitor_and_changes_nothing() {
    let bed = bed_with_services();
    let node = bed.start();
    node.send("M1");
    let tables =
        [("schema-use", "schema hl7"), ("table-select", "table hl7.messages"), ("table-make", "schema public")];
    user(&bed, "ann", &[OPERATOR, &tables].concat());
    user(
        &bed,
        "masked",
        &[&[("message-metadata", "service *"), ("message-body", "service *")][..], &tables[..2]].concat(),
    );
    user(&bed, "nobody", &[("node-status", "node")]);
    let mut ann = signed_in(&node, "ann");
    let own = token(&mut ann);
    ann.get("/sql?text=SELECT+1").shows(200, "SELECT 1");
    let counts = "SELECT interface, count(*) AS n FROM hl7.messages WHERE object = 0 GROUP BY 1";
    statement(&mut ann, &own, counts).shows(200, "<span class=\"value\">adt</span>");
    statement(&mut ann, &own, "SELECT body FROM hl7.messages").shows(200, "SAMPLE^ANN");
    statement(&mut ann, &own, "SELECT '<script>alert(1)</script>' AS \"<b>\", NULL").shows(200, "&lt;script&gt;alert");
    statement(&mut ann, &own, "EXPLAIN SELECT 1").is(200);
    statement(&mut ann, &own, "SHOW transaction_isolation").is(200);
    for (text, status, why) in [
        ("CREATE TABLE mine (a int PRIMARY KEY)", 422, "25006"),
        ("CREATE TABLE mine AS SELECT 1 AS a", 422, "25006"),
        ("COMMIT; CREATE TABLE mine (a int PRIMARY KEY)", 422, "one statement"),
        ("SELECT 1; SELECT 2", 422, "one statement"),
        ("COPY (SELECT 1) TO STDOUT", 422, "0A000"),
        ("SELECT * FROM public.nothing", 422, "42P01"),
        ("SELEC 1", 422, "42601"),
        ("  ", 422, "bytes"),
        ("SELECT * FROM hl7.segments", 403, "42501"),
    ] {
        statement(&mut ann, &own, text).shows(status, why);
    }
    assert!(matches!(statement(&mut ann, &own, "ALTER ROLE ann SUPERUSER").status, 403 | 422));
    // A setting that would allow changes ends with its statement.
    statement(&mut ann, &own, "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE").is(200);
    statement(&mut ann, &own, "CREATE TABLE mine (a int PRIMARY KEY)").shows(422, "25006");
    let page = ann.post("/sql", &[("token", &own), ("as", "csv"), ("text", "SELECT '=1+1' AS a, 2 AS b, NULL AS c")]);
    let page = page.is(200);
    assert_eq!(
        (page.headers["content-type"].as_str(), page.body.as_str()),
        ("text/csv; charset=utf-8", "a,b,c\r\n'=1+1,2,\r\n")
    );
    ann.post("/sql", &[("token", &own), ("as", "csv"), ("text", "SELECT * FROM generate_series(1, 200000)")])
        .shows(422, "a file has all rows");
    statement(&mut ann, &own, "SELECT * FROM generate_series(1, 200000)").shows(200, "There are more");
    ann.post("/sql", &[("text", "SELECT 1")]).is(403);
    let mut masked = signed_in(&node, "masked");
    let own = token(&mut masked);
    let page = statement(&mut masked, &own, "SELECT body FROM hl7.messages");
    assert!(!page.body.contains("SAMPLE"), "{}", page.body);
    let mut nobody = signed_in(&node, "nobody");
    let own = token(&mut nobody);
    statement(&mut nobody, &own, counts).is(403);
    assert!(!audited(&bed, "message.body").is_empty(), "the read of a body has an entry");
    node.stop();
}

#[test]
fn a_statement_ends_when_its_page_is_left_and_one_visitor_runs_few_at_a_time() {
    let bed = bed_with_services();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    let mut ann = signed_in(&node, "ann");
    let own = token(&mut ann);
    let long = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b";
    let body = format!("token={}&text={}", encoded(&own), encoded(long));
    let cookies: Vec<String> = ann.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let open = || {
        let mut stream = TcpStream::connect(node.console()).expect("it listens");
        let head = format!(
            "POST /sql HTTP/1.1\r\nHost: {0}\r\nCookie: {1}\r\nOrigin: http://{0}\r\nSec-Fetch-Site: same-origin\r\n\
             Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {2}\r\n\r\n{body}",
            node.console(),
            cookies.join("; "),
            body.len()
        );
        stream.write_all(head.as_bytes()).expect("it is taken");
        stream
    };
    // One that comes while `SELECT 1` has a place is refused: until both places are taken, more are sent.
    let mut left = Vec::new();
    until("a third one is refused", || {
        left.push(open());
        statement(&mut ann, &own, "SELECT 1").status == 503
    });
    drop(left);
    until("both have ended", || statement(&mut ann, &own, "SELECT 1").status == 200);
    node.stop();
}

#[test]
fn a_search_on_a_page_finds_what_the_visitor_may_read_and_shows_it_as_text() {
    let bed = bed_with_services();
    let node = bed.start();
    let evil = r#"{"text":"severe chest pain <img src=x onerror=alert(1)>","ward":"ICU"}"#;
    put(node.search(), "/notes/_doc/%3Cb%3E?refresh=true", evil);
    put(node.search(), "/secret/_doc/1?refresh=true", r#"{"text":"chest of gold"}"#);
    user(&bed, "ann", &[("index-read", "index notes")]);
    user(&bed, "nobody", &[("node-status", "node")]);
    let mut ann = signed_in(&node, "ann");
    let page = ann.get("/search?q=chest").shows(200, "<mark>chest</mark>");
    assert!(
        !page.body.contains("<img src=x") && !page.body.contains("gold") && page.body.contains("1 hit"),
        "{}",
        page.body
    );
    assert!(page.body.contains(">notes<") && !page.body.contains("secret"), "{}", page.body);
    ann.get("/search?q=ward:ICU+AND+pain&index=notes").shows(200, "1 hit");
    ann.get("/search?q=nothing").shows(200, "Nothing matches");
    ann.get("/search?q=chest&index=secret").is(403);
    ann.get("/search?q=chest&index=_cluster").is(422);
    ann.get("/search?q=%28chest").is(422);
    let mut nobody = signed_in(&node, "nobody");
    nobody.get("/search").is(403);
    nobody.get("/search?q=chest").is(403);
    node.stop();
}

#[test]
fn searches_are_saved_for_each_user_bounded_and_durably_and_a_list_is_a_file_without_bodies() {
    let bed = bed();
    let node = bed.start();
    user(&bed, "ann", OPERATOR);
    user(&bed, "bob", OPERATOR);
    node.send("=1+1");
    node.send("M2");
    let mut ann = signed_in(&node, "ann");
    let own = token(&mut ann);
    let save = |browser: &mut Browser, name: &str| {
        browser.post(
            "/messages/saved",
            &[("token", &own), ("name", name), ("search-state", "failed"), ("search-to", "out")],
        )
    };
    let name = "<script>alert(1)</script>";
    assert_eq!(save(&mut ann, name).is(303).headers["location"], "/messages?to=out&state=failed");
    let page = ann.get("/messages").shows(200, "&lt;script&gt;alert");
    assert!(page.body.contains("href=\"/messages?to=out&amp;state=failed\""), "{}", page.body);
    save(&mut ann, "").is(422);
    save(&mut ann, &"x".repeat(101)).is(422);
    for number in 1..50 {
        save(&mut ann, &format!("search {number}")).is(303);
    }
    save(&mut ann, "one more").shows(422, "forget one first");
    ann.post("/messages/saved", &[("token", &own), ("name", "search 1"), ("act", "forget")]).is(303);
    save(&mut ann, "one more").is(303);
    user(&bed, "eve", &[("node-status", "node")]);
    let mut eve = signed_in(&node, "eve");
    let of_eve = token(&mut eve);
    eve.post("/messages/saved", &[("token", &of_eve), ("name", "a"), ("act", "forget")]).is(403);
    let page = signed_in(&node, "bob").get("/messages").is(200);
    assert!(!page.body.contains("one more"), "{}", page.body);
    let entries = audited(&bed, "console.save-search");
    // Of 51 in some seconds: who saves and forgets without end does not fill the audit.
    assert!(
        (20..51).contains(&entries.len()) && !entries.iter().any(|entry| entry.to_string().contains("one more")),
        "{}",
        entries.len()
    );
    let file = ann.get("/messages.csv").is(200);
    assert_eq!(file.headers["content-type"], "text/csv; charset=utf-8");
    let lines: Vec<&str> = file.body.lines().collect();
    assert!(lines.len() == 3 && lines[0].starts_with("id,received,service"), "{lines:?}");
    assert!(lines[2].contains(",ADT^A01,'=1+1,") && !file.body.contains("SAMPLE"), "{lines:?}");
    ann.get("/messages.csv?q=4711").shows(422, "a file is of a list");
    node.kill();
    let node = bed.start();
    signed_in(&node, "ann").get("/messages").shows(200, "one more");
    let gone = "saved searches of dropped roles are forgotten";
    assert!(!bed.log().contains(gone), "{}", bed.log());
    bed.run(&["user", "drop", "ann", "--data"]).succeeds("");
    until("they go with their user", || bed.log().contains(gone));
    node.stop();
}
