//! Every entry of every port, by who has no right, and by who may only log in: none is answered with data.
//!
//! The entries are the ports' own lists: search's routes and the control socket's requests are checked to be whole where they are
//! defined, those of volumes in `volumes::rights`. Of SQL every kind of statement that reads or changes something is here, of NBD every
//! option and command of the protocol.

use interop::running::CONTROL_EXAMPLES;
use nbd::protocol::{answer, command, option};
use node::identity::Action;
use search::rest::{ROUTE_EXAMPLES, RestMethod};
use web_console::{DOOR_EXAMPLES, PAGE_EXAMPLES};

use super::ports::{Control, Http, Nbd, Outcome, contexts, named, sql, sql_login};
use super::rig::{
    Authority, PASSWORD, SETTINGS, Standing, TestRole, make_role, nbd_address, write_data, write_objects,
    write_production,
};
use super::ways::{CONNECT, Right};
use crate::node::Bed;

/// A request of each kind about volumes; `volumes::rights` looks that no kind is without one.
const VOLUME_EXAMPLES: &str = include_str!("volume_requests.txt");

/// Words that are data here: none may be in an answer.
const DATA: [&str; 5] = ["SAMPLE", "NORTH", "colour", "reads_own", "maker"];

/// What answers who has no right: who one is, that one's own lists are empty, and what patterns of names match, which is nothing.
const OPEN: [&str; 24] = [
    "/",
    "/_security/_authenticate",
    "/_tasks?detailed",
    "/_tasks/x:1",
    "/_tasks/_cancel",
    "/_reindex/x:1/_rethrottle?requests_per_second=1",
    "/_cat",
    "/_cat/tasks?detailed",
    "/_cat/plugins",
    "/_cat/indices",
    "/_cat/count",
    "/_cat/shards",
    "/_cat/segments",
    "/_cat/aliases",
    "/_all",
    "/_mapping",
    "/_alias",
    "/_stats",
    "/_field_caps?fields=*",
    "/_search",
    "/_search/scroll",
    "/_pit",
    "/_search/point_in_time/_all",
    "/_resolve/index/*",
];

/// Every kind of statement that reads or changes something. All must be refused with a code of this list: no right; or, where there
/// is no such thing for anybody, not supported.
const STATEMENTS: &[&str] = &[
    "SELECT * FROM t",
    "TABLE t",
    "SELECT count(*) FROM t",
    "WITH x AS (SELECT * FROM t) SELECT a FROM x",
    "SELECT 1 WHERE EXISTS (SELECT 1 FROM t)",
    "SELECT a FROM reads_own",
    "SELECT * FROM own.inner",
    "SELECT * FROM hl7.messages",
    "SELECT * FROM hl7.segments",
    "SELECT * FROM hl7.fields",
    "EXPLAIN SELECT * FROM t",
    "EXPLAIN ANALYZE SELECT * FROM t",
    "COPY t TO STDOUT",
    "COPY (SELECT a FROM t) TO STDOUT",
    "COPY t FROM STDIN",
    "INSERT INTO t VALUES (1, 1)",
    "INSERT INTO t SELECT 1, 1",
    "INSERT INTO t VALUES (1, 1) ON CONFLICT (a) DO UPDATE SET b = 2",
    "INSERT INTO t VALUES (1, 1) RETURNING a",
    "UPDATE t SET b = 1",
    "UPDATE t SET b = 1 WHERE a = 1 RETURNING b",
    "DELETE FROM t",
    "DELETE FROM t WHERE a = 1",
    "TRUNCATE t",
    "DROP TABLE t",
    "DROP VIEW reads_own",
    "DROP SCHEMA own",
    "ALTER TABLE t ADD COLUMN c int",
    "ALTER TABLE t DROP COLUMN b",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE t RENAME COLUMN b TO c",
    "ALTER TABLE t OWNER TO CURRENT_USER",
    "CREATE TABLE mine (a int PRIMARY KEY)",
    "CREATE TABLE mine AS SELECT 1 AS a",
    "CREATE VIEW mine AS SELECT 1 AS a",
    "CREATE OR REPLACE VIEW reads_own AS SELECT 1 AS a",
    "CREATE SCHEMA mine",
    "CREATE EXTERNAL TABLE mine STORED AS PARQUET LOCATION '/tmp/x.parquet'",
    "CREATE ROLE mine",
    "ALTER ROLE guest SUPERUSER",
    "ALTER ROLE maker PASSWORD 'another password'",
    "ALTER ROLE maker RENAME TO mine",
    "DROP ROLE maker",
    "GRANT SELECT ON t TO CURRENT_USER",
    "GRANT maker TO CURRENT_USER",
    "REVOKE SELECT ON t FROM maker",
    "ALTER DEFAULT PRIVILEGES FOR ROLE maker GRANT SELECT ON TABLES TO PUBLIC",
    "REASSIGN OWNED BY maker TO CURRENT_USER",
    "DROP OWNED BY maker",
    "SET ROLE maker",
    "SET SESSION AUTHORIZATION maker",
    "CREATE INDEX x ON t (b)",
    "COMMENT ON TABLE t IS 'x'",
    "MERGE INTO t USING own ON true WHEN MATCHED THEN DELETE",
    "BEGIN; DECLARE c CURSOR FOR SELECT * FROM t",
    "PREPARE p AS SELECT * FROM t",
    "BEGIN; LOCK TABLE t",
    "VACUUM t",
    "ANALYZE t",
];

/// 0A000: not supported; 42601: no statement here. Both come before the right is asked for, and say nothing of an object.
const REFUSED: [&str; 2] = ["0A000", "42601"];

/// The roles without rights of this test: one without any, one that may log in to SQL and name things in `public`.
fn strangers(control: &mut Control, authority: &Authority) -> [TestRole; 2] {
    let login: &[Right] = &[CONNECT, (Action::SchemaUse, "schema public")];
    [("stranger", &[][..]), ("guest", login)]
        .map(|(name, rights)| make_role(control, authority, (name, Standing::Plain), rights))
}

/// What a walk finds: each line is an entry that was answered with data, or done.
type Found = Vec<String>;

fn shows_data(text: &str) -> bool {
    DATA.iter().any(|word| text.contains(word))
}

/// A request of each kind about alerts, profiles and the history of figures.
const WATCH_EXAMPLES: [&str; 13] = [
    "alert {\"verb\":\"list\"}",
    "alert {\"verb\":\"rules\"}",
    "alert {\"verb\":\"test\",\"channel\":\"x\"}",
    "alert {\"verb\":\"history\",\"last\":9}",
    "alert {\"verb\":\"silence\",\"rule\":null,\"subject\":null,\"until_us\":9,\"reason\":\"x\"}",
    "alert {\"verb\":\"unsilence\",\"number\":1}",
    "profile {\"verb\":\"status\"}",
    "profile {\"verb\":\"start\",\"name\":\"x\",\"seconds\":1,\"limit_bytes\":2097152,\"keys\":64,\"stream_keys\":64}",
    "profile {\"verb\":\"stop\"}",
    "profile {\"verb\":\"read\",\"name\":\"x\",\"offset\":1}",
    "profile {\"verb\":\"remove\",\"name\":\"x\"}",
    "history {\"verb\":\"list\",\"range\":\"1h\"}",
    "history {\"verb\":\"points\",\"series\":\"intake\",\"range\":\"1h\"}",
];

/// A request of each kind about connections.
const CONNECTION_EXAMPLES: [&str; 3] = [
    "connection {\"verb\":\"list\"}",
    "connection {\"verb\":\"list\",\"port\":\"sql\",\"statements\":true}",
    "connection {\"verb\":\"close\",\"id\":1}",
];

fn walk_control(control: &mut Control, role: &TestRole, found: &mut Found) {
    let volumes = VOLUME_EXAMPLES.lines().filter(|line| !line.is_empty()).map(|line| format!("volume {line}"));
    let search = "message-search {\"query\":\"*\",\"last\":9,\"by_score\":false,\"since_us\":null,\"until_us\":null}";
    let own = CONTROL_EXAMPLES.iter().map(|line| (*line).to_owned());
    let others = WATCH_EXAMPLES.iter().chain(&CONNECTION_EXAMPLES).map(|line| (*line).to_owned());
    for line in own.chain(volumes).chain([search.to_owned()]).chain(others) {
        let outcome = control.send(Some(&role.token), &line);
        // A list without a name is of what one may see: nothing.
        let is_empty = line.contains("\"names\":[]") && outcome == Outcome::Answered("[]".to_owned());
        if !is_empty && !matches!(outcome, Outcome::Refused(_)) {
            found.push(format!("control, {}: {line}: {outcome:?}", role.name));
        }
    }
}

fn method(method: RestMethod) -> &'static str {
    match method {
        RestMethod::Get => "GET",
        RestMethod::Head => "HEAD",
        RestMethod::Post => "POST",
        RestMethod::Put => "PUT",
        RestMethod::Delete => "DELETE",
    }
}

/// The target about another index; none where it names no index.
fn about(target: &str, index: &str) -> Option<String> {
    let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let parts: Vec<&str> = path.split('/').map(|part| if part == "i" { index } else { part }).collect();
    let query = query.map(|query| format!("?{query}")).unwrap_or_default();
    path.split('/').any(|part| part == "i").then(|| parts.join("/") + &query)
}

fn walk_search(http: &mut Http, role: &TestRole, found: &mut Found) {
    for (verb, target, body) in ROUTE_EXAMPLES {
        let mut ask = |target: &str| http.send(&role.token, (method(*verb), target, body));
        let outcome = ask(target);
        let is_open = OPEN.contains(target);
        if shows_data(outcome.text()) || !(is_open || matches!(outcome, Outcome::Refused(_))) {
            found.push(format!("search, {}: {verb:?} {target}: {outcome:?}", role.name));
        }
        for other in [".messages", "absent"] {
            let Some(target) = about(target, other) else { continue };
            let told = ask(&target);
            if told.text().replace(other, "i") != outcome.text() {
                found.push(format!("search, {}: {verb:?} {target} tells what is there: {told:?}", role.name));
            }
        }
    }
}

/// What the listener of metrics answers whoever the access rules let come: whether the process lives, and whether it is ready.
const HEALTH: [(&str, &str); 2] = [("/healthz", "200 ok\n"), ("/readyz", "200 ready\n")];

fn walk_metrics(address: std::net::SocketAddr, role: &TestRole, found: &mut Found) {
    for (method, target) in [("GET", "/metrics"), ("HEAD", "/metrics"), ("GET", "/metrics?x")] {
        let outcome = Http::open(address).send(&role.token, (method, target, ""));
        if !matches!(outcome, Outcome::Refused(_)) {
            found.push(format!("metrics, {}: {method} {target}: {outcome:?}", role.name));
        }
    }
    for (target, expected) in HEALTH {
        let outcome = Http::open(address).send(&role.token, ("GET", target, ""));
        if outcome != Outcome::Answered(expected.to_owned()) {
            found.push(format!("metrics, {}: {target}: {outcome:?}", role.name));
        }
    }
    for target in ["/", "/metrics/", "/debug/pprof", "//metrics", "/healthz/../metrics"] {
        let outcome = Http::open(address).send(&role.token, ("GET", target, ""));
        if !matches!(&outcome, Outcome::Failed(text) if text.starts_with("404")) {
            found.push(format!("metrics, {}: {target}: {outcome:?}", role.name));
        }
    }
}

fn walk_sql(address: std::net::SocketAddr, role: &TestRole, found: &mut Found) {
    let mut client = match sql_login(address, &role.name, Some(PASSWORD)) {
        Ok(client) => client,
        Err(Outcome::Refused(_)) if role.rights.is_empty() => return,
        Err(other) => return found.push(format!("sql, {}: {other:?}", role.name)),
    };
    for statement in STATEMENTS {
        let outcome = sql(&mut client, statement);
        let _ = sql(&mut client, "ROLLBACK");
        let is_unsupported =
            matches!(&outcome, Outcome::Failed(text) if REFUSED.iter().any(|code| text.starts_with(code)));
        if !is_unsupported && !matches!(outcome, Outcome::Refused(_)) {
            found.push(format!("sql, {}: {statement}: {outcome:?}", role.name));
        }
    }
}

/// What answers who has no right: who one is and what one may, and lists that are empty then. The box for a statement is open to who may
/// log in to SQL, as one of these roles; what a statement needs, the node says.
const OPEN_PAGES: [&str; 5] = ["/", "/account", "/volumes", "/api/v1/volumes", "/sql"];

fn walk_console(http: &mut Http, role: &TestRole, found: &mut Found) {
    for (method, target) in PAGE_EXAMPLES {
        let answer = http.exchange(Some(&format!("Bearer {}", role.token)), (method, &target.replace("{id}", "1"), ""));
        let shows = DATA.iter().any(|word| answer.body.contains(word));
        // A page without its right leads elsewhere; a form is none of a session.
        let is_refused = matches!(answer.status, 401 | 403 | 404 | 415);
        if shows || !(is_refused || OPEN_PAGES.contains(target)) {
            found.push(format!("console, {}: {method} {target}: {} {}", role.name, answer.status, answer.body));
        }
    }
}

fn walk_nbd(address: std::net::SocketAddr, role: &TestRole, found: &mut Found) {
    let options = [
        ("LIST", option::LIST, Vec::new()),
        ("INFO", option::INFO, named("v")),
        ("GO", option::GO, named("v")),
        ("LIST_META_CONTEXT", option::LIST_META_CONTEXT, contexts("v", "base:")),
        ("SET_META_CONTEXT", option::SET_META_CONTEXT, contexts("v", "base:allocation")),
    ];
    for (name, number, data) in options {
        let mut nbd = Nbd::open(address, &role.tls).expect("its certificate is of the authority");
        if matches!(number, option::SET_META_CONTEXT | option::LIST_META_CONTEXT) {
            nbd.option(option::STRUCTURED_REPLY, &[]).expect("it is answered");
        }
        let told = nbd.option(number, &data).unwrap_or_default();
        let shows = told.iter().any(|(kind, _)| matches!(*kind, answer::SERVER | answer::INFO | answer::META_CONTEXT));
        // The same about an export that is not there.
        let absent = String::from_utf8_lossy(&data).replace('v', "w").into_bytes();
        let mut other = Nbd::open(address, &role.tls).expect("the same");
        if matches!(number, option::SET_META_CONTEXT | option::LIST_META_CONTEXT) {
            other.option(option::STRUCTURED_REPLY, &[]).expect("it is answered");
        }
        let told_absent = other.option(number, &absent).unwrap_or_default();
        let same = |told: &[(u32, Vec<u8>)]| {
            told.iter().map(|(kind, text)| (*kind, String::from_utf8_lossy(text).replace('w', "v"))).collect::<Vec<_>>()
        };
        if shows || same(&told) != same(&told_absent) {
            found.push(format!("nbd, {}: {name}: {told:?} against {told_absent:?}", role.name));
        }
    }
    // An old client's way, which has no refusal, and then the commands.
    for kind in [command::READ, command::WRITE, command::FLUSH, command::TRIM, command::WRITE_ZEROES, command::CACHE] {
        let mut nbd = Nbd::open(address, &role.tls).expect("the same");
        let data: &[u8] = if kind == command::WRITE { &[1; 4096] } else { &[] };
        let outcome = nbd.by_export_name("v", kind, data);
        if !matches!(outcome, Outcome::Refused(_)) {
            found.push(format!("nbd, {}: EXPORT_NAME and command {kind}: {outcome:?}", role.name));
        }
    }
}

#[test]
fn no_entry_of_any_port_answers_who_has_no_right() {
    let bed = Bed::new();
    let authority = Authority::new(&bed);
    write_production(&bed);
    bed.configure(SETTINGS);
    let node = bed.start();
    let mut control = Control::open(&bed.data());
    write_objects(&bed, &node, &mut control);
    let administrator = make_role(&mut control, &authority, ("maker", Standing::Administrator), &[]);
    write_data(&node, &administrator);
    let (mut found, nbd) = (Found::new(), nbd_address(&mut control));
    for role in strangers(&mut control, &authority) {
        walk_control(&mut control, &role, &mut found);
        walk_search(&mut Http::open(node.search()), &role, &mut found);
        walk_metrics(node.metrics(), &role, &mut found);
        walk_console(&mut Http::open_console(node.console()), &role, &mut found);
        walk_sql(node.sql(), &role, &mut found);
        walk_nbd(nbd, &role, &mut found);
    }
    walk_unknown(&mut control, &node, &mut found);
    assert!(found.is_empty(), "{} entries:\n{}", found.len(), found.join("\n"));
    node.stop();
}

/// Who proves nothing: every route and every request is refused with the login.
fn walk_unknown(control: &mut Control, node: &crate::node::Node<'_>, found: &mut Found) {
    let mut http = Http::open(node.search());
    for (verb, target, body) in ROUTE_EXAMPLES {
        let answer = http.exchange(None, (method(*verb), target, body));
        if answer.status != 401 {
            found.push(format!("search, nobody: {verb:?} {target}: {} {}", answer.status, answer.body));
        }
    }
    for method in ["GET", "HEAD"] {
        let answer = Http::open(node.metrics()).exchange(None, (method, "/metrics", ""));
        if answer.status != 401 {
            found.push(format!("metrics, nobody: {method} /metrics: {} {}", answer.status, answer.body));
        }
    }
    let mut console = Http::open_console(node.console());
    for (method, target) in PAGE_EXAMPLES {
        let target = target.replace("{id}", "1");
        let (nobody, wrong) = (
            console.exchange(None, (method, &target, "")),
            console.exchange(Some("Bearer wrong"), (method, &target, "")),
        );
        // To the sign-in, or refused; 429: wrong tokens have been many.
        let is_refused = matches!(nobody.status, 303 | 401 | 403) && matches!(wrong.status, 401 | 415 | 429);
        if !is_refused || DATA.iter().any(|word| nobody.body.contains(word) || wrong.body.contains(word)) {
            found.push(format!("console, nobody: {method} {target}: {} {}", nobody.status, wrong.status));
        }
    }
    // The ways in: nothing of the node, and no session.
    for (method, target) in DOOR_EXAMPLES {
        let answer = Http::open_console(node.console()).exchange(None, (method, target, ""));
        let is_outside = matches!(answer.status, 200 | 303 | 403 | 404 | 415);
        if !is_outside || DATA.iter().any(|word| answer.body.contains(word)) {
            found.push(format!("console, nobody: {method} {target}: {} {}", answer.status, answer.body));
        }
    }
    for line in CONTROL_EXAMPLES {
        let outcome = control.send(Some("wrong"), line);
        if !matches!(outcome, Outcome::Refused(_)) {
            found.push(format!("control, a wrong token: {line}: {outcome:?}"));
        }
    }
}
