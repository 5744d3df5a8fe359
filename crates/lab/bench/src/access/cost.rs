//! What rights, the mask and the audit cost: T4 and queries, in turns with and without.
//!
//! ```text
//!   with      roles and privileges in the store, a masked user who has each right granted; masked paths as by default
//!   without   who runs the node, or an administrator, with all rights and no mask (`[masking] paths = []`)
//! ```
//!
//! A node of this release cannot be without rights: both sides ask for them, and reads of bodies have their entries in the audit
//! on both. Another program for the second side (`--against`), of a release before them, is without all of it.
//!
//! Invariants: the sides take turns, and which is first changes with each pair; a ratio is of the two turns of a pair.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use super::AccessOptions;
use super::place::{AccessNode, Control, PATIENCE};
use crate::postgres::Client;
use crate::turns::{CostRun, CostTurn, compared, in_turns};
use workload::interrupt;
use workload::node::Node;
use workload::t4::{Session, T4Options};

/// The least ratio of the rates.
pub(super) const LEAST: f64 = 0.95;

/// Roles in the store beside the one that asks, each with these many privileges.
const ROLES: usize = 50;

/// Lists of messages a second beside T4, on both sides.
const LISTS_PER_S: u64 = 10;

/// Rows of the table.
const ROWS: usize = 1_000;

/// Messages that are stored for the queries.
const MESSAGES: usize = 50;

const MESSAGE: &str =
    "MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01|M1|P|2.5\rPID|1||4711^^^A||SAMPLE^ANN||19700101|F\r";

const SQL: &str = "[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n";
const UNMASKED: &str = "[masking]\npaths = []\n";

/// The user of the queries, on both sides: with `--against` it is one of the settings.
const USER: &str = "clerk";

/// Measures T4 and the queries.
pub(super) fn run(options: &AccessOptions) -> anyhow::Result<Vec<CostRun>> {
    let program = workload::node::program()?;
    let other = options.against.clone().unwrap_or_else(|| program.clone());
    let mut runs = vec![t4(options, &program, &other)?];
    interrupt::check()?;
    runs.extend(queries(options, &program, &other)?);
    Ok(runs)
}

fn t4(options: &AccessOptions, program: &Path, other: &Path) -> anyhow::Result<CostRun> {
    let mut medium = (String::new(), true);
    let sides = in_turns(options.pairs, |with| {
        let program = if with { program } else { other };
        let settings = if with || options.against.is_some() { String::new() } else { UNMASKED.to_owned() };
        let (turn, place) = t4_turn(options, program.to_owned(), with, settings)?;
        medium = place;
        Ok(turn)
    })?;
    Ok(compared("T4, inbound messages", medium, sides, LEAST))
}

/// A run of T4 beside a user who lists messages.
fn t4_turn(
    options: &AccessOptions,
    program: PathBuf,
    with: bool,
    settings: String,
) -> anyhow::Result<(CostTurn, (String, bool))> {
    let (services, messages) = options.t4;
    let mut session = Session::start(&T4Options {
        services,
        messages: Some(messages),
        seed: options.seed,
        settings: Some(settings),
        program: Some(program),
        ..T4Options::default()
    })?;
    let mut control = Control::open(session.data())?;
    let prefix = if with {
        roles(&mut control)?;
        format!("as {} ", control.user(USER, None, &rights())?)
    } else {
        String::new()
    };
    let (over, request) = (AtomicBool::new(false), format!("{prefix}messages {{\"last\":20}}"));
    let report = std::thread::scope(|scope| {
        let lists = scope.spawn(|| lists(&mut control, &request, &over));
        let report = session.measure();
        over.store(true, Ordering::Relaxed);
        lists.join().map_err(|_| anyhow::anyhow!("the user of the lists has panicked"))??;
        report
    })?;
    session.stop()?;
    let run = report.runs.first().context("T4 has no run")?;
    anyhow::ensure!(report.is_clean(), "T4 lost something:\n{}", report.to_text());
    let turn = CostTurn { per_s: run.inbound_per_s, cpu_us: run.server_cpu_us_per_inbound };
    Ok((turn, (run.durability.clone(), run.real)))
}

fn lists(control: &mut Control, request: &str, over: &AtomicBool) -> anyhow::Result<()> {
    while !over.load(Ordering::Relaxed) {
        control.must(request)?;
        std::thread::sleep(Duration::from_millis(1_000 / LISTS_PER_S));
    }
    Ok(())
}

/// Other roles, so that a decision has something to look through.
fn roles(control: &mut Control) -> anyhow::Result<()> {
    for number in 0..ROLES {
        let object = |name: &str| json!({ "kind": "table", "schema": "public", "name": format!("{name}{number}") });
        let rights = ["a", "b", "c", "d"].map(|name| ("table-select", object(name)));
        control.user(&format!("role{number}"), None, &rights)?;
    }
    Ok(())
}

/// What the user of both loads may.
fn rights() -> Vec<(&'static str, Value)> {
    let table = |schema: &str, name: &str| json!({ "kind": "table", "schema": schema, "name": name });
    let service = json!({ "kind": "service", "name": "*", "stars": true });
    vec![
        ("sql-connect", json!({ "kind": "node" })),
        ("schema-use", json!({ "kind": "schema", "name": "public" })),
        ("schema-use", json!({ "kind": "schema", "name": "hl7" })),
        ("table-select", table("public", "t")),
        ("table-select", table("hl7", "messages")),
        ("message-metadata", service.clone()),
        ("message-body", service),
    ]
}

/// The queries: name, text with `{n}` for a random row.
const QUERIES: [(&str, &str); 4] = [
    ("a row by its key", "SELECT a, b, c FROM t WHERE a = {n}"),
    ("an aggregate of a table", "SELECT c, count(*), sum(b) FROM t GROUP BY c"),
    ("a list of messages", "SELECT id, interface, received_at FROM hl7.messages WHERE object = 0"),
    ("bodies of messages", "SELECT body FROM hl7.messages WHERE object = 0"),
];

fn queries(options: &AccessOptions, program: &Path, other: &Path) -> anyhow::Result<Vec<CostRun>> {
    let with = queried(program, SQL, true)?;
    let is_old = options.against.is_some();
    let settings = if is_old {
        let verifier = sql::wire::Verifier::of("not asked for")?;
        format!("{SQL}[sql.users]\n{USER} = \"{verifier}\"\n")
    } else {
        format!("{SQL}{UNMASKED}")
    };
    let without = queried(other, &settings, false)?;
    let medium = with.node.status()?.journal;
    let mut clients = [client(&without)?, client(&with)?];
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut runs = Vec::new();
    for (name, query) in QUERIES {
        let sides = in_turns(options.pairs, |is_with| {
            let place = if is_with { &with } else { &without };
            let client = &mut clients[usize::from(is_with)];
            let (before, begun, mut done) = (place.node.usage()?.cpu_us, Instant::now(), 0_u64);
            while begun.elapsed() < options.turn || done == 0 {
                client.query(&query.replace("{n}", &random.usize(..ROWS).to_string()))?;
                done += 1;
            }
            let (seconds, cpu) = (begun.elapsed().as_secs_f64(), place.node.usage()?.cpu_us - before);
            Ok(CostTurn { per_s: done as f64 / seconds, cpu_us: cpu as f64 / done as f64 })
        })
        .with_context(|| name.to_owned())?;
        let name = format!("queries: {name}");
        runs.push(compared(&name, (medium.durability.clone(), medium.real), sides, LEAST));
    }
    drop(clients);
    with.stop()?;
    without.stop()?;
    Ok(runs)
}

fn client(place: &AccessNode) -> anyhow::Result<Client> {
    Ok(Client::connect(place.address(Node::sql_address)?, USER, PATIENCE)?)
}

/// A node with the table and the messages. On the side with rights the user has what it reads granted, and the table is another
/// role's; on the other one the user is an administrator who may read bodies, or of a program without rights.
fn queried(program: &Path, settings: &str, with: bool) -> anyhow::Result<AccessNode> {
    let place = AccessNode::start(program, settings)?;
    let is_old = settings.contains("[sql.users]");
    let maker = if with { "maker" } else { USER };
    if !is_old {
        let mut control = Control::open(place.data())?;
        let verifier = node::identity::scram::Verifier::of("not asked for")?;
        control.change(&[json!({ "create": {
            "name": maker, "attributes": { "login": true, "administrator": true }, "credentials": { "scram": verifier } } })])?;
        if !with {
            let object = json!({ "kind": "service", "name": "*", "stars": true });
            let actions = ["message-body", "unmasked"];
            let privileges = json!({ "actions": actions, "object": object, "columns": [], "grantee": USER });
            control.change(&[json!({ "grant": { "privileges": privileges, "grant_option": false } })])?;
        }
    }
    let mut client = Client::connect(place.address(Node::sql_address)?, maker, PATIENCE)?;
    client.query("CREATE TABLE t (a bigint PRIMARY KEY, b bigint, c int)")?;
    let rows: Vec<String> = (0..ROWS).map(|row| format!("({row}, {}, {})", row * 7, row % 10)).collect();
    client.query(&format!("INSERT INTO t VALUES {}", rows.join(", ")))?;
    if with {
        // Who had rights on the name has none on a new table.
        let mut control = Control::open(place.data())?;
        roles(&mut control)?;
        control.user(USER, None, &rights())?;
    }
    for _ in 0..MESSAGES {
        place.send("near", MESSAGE)?;
    }
    Ok(place)
}
