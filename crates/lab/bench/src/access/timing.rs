//! Whether the time of a refusal tells something: pairs of requests that must not be told apart, one after the other in
//! random order.
//!
//! Logins are refused once for an unknown user and once for a wrong password; each comes from an address of its own, so that
//! none waits for failures before it. Other requests ask for what is there and hidden, and for what is not there.

use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::{Value, json};

use super::AccessOptions;
use super::place::{AccessNode, Control, PATIENCE, connect_from, http, own_address};
use crate::postgres::{Client, Error};
use crate::statistics::{Interval, difference, median};
use workload::interrupt;
use workload::node::Node;

/// The largest difference of the medians, in percent.
pub(super) const LIMIT: f64 = 2.0;

/// Pairs before the first one that counts, as a part of all.
const WARM_UP: usize = 20;

/// The bodies of messages, which are to take the same to read.
const MESSAGE: &str = "MSH|^~\\&|HIS|NORTH|HUB|X|20260101120000||ADT^A01|M1|P|2.5\rPID|1||1||SAMPLE^ANN\r";

const SETTINGS: &str = "[sql]\nlisten = \"127.0.0.1:0\"\n[search]\nlisten = \"127.0.0.1:0\"\n\
    [volumes]\nlisten = \"127.0.0.1:0\"\nanonymous = \"guest\"\n";

const PASSWORD: &str = "a long password";
const WRONG: &str = "a wrong password";

/// A pair of requests, measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TimingRun {
    /// Port, and what the first and the second request are.
    pub name: String,
    /// Always `none`: nothing is stored.
    pub durability: &'static str,
    /// Whether it ran on what it is about: always.
    pub real: bool,
    /// Samples of each.
    pub samples: usize,
    /// Median time of the first, microseconds.
    pub first_us: f64,
    /// Median time of the second, microseconds.
    pub second_us: f64,
    /// How far the second median is above the first, percent.
    pub difference: Interval,
    /// Whether the medians are within 2 % of each other.
    pub within: bool,
    /// Whether the interval is as well: fewer samples may not tell.
    pub is_sure: bool,
}

/// What sends one of the two requests of a pair: `true` for the second; the result is the answer, which must be the same for both.
type Ask<'p> = Box<dyn FnMut(bool) -> anyhow::Result<String> + 'p>;

/// Measures all pairs on one node.
pub(super) fn run(options: &AccessOptions) -> anyhow::Result<Vec<TimingRun>> {
    let program = workload::node::program()?;
    let place = AccessNode::start(&program, SETTINGS)?;
    let known = prepare(&place, &program)?;
    let mut random = fastrand::Rng::with_seed(options.seed);
    let mut runs = Vec::new();
    for (name, ask) in pairs(&place, &known)? {
        interrupt::check()?;
        runs.push(measure(name, ask, options.samples, &mut random).with_context(|| name.to_owned())?);
    }
    place.stop()?;
    Ok(runs)
}

/// What the pairs are about.
struct Known {
    token: String,
    /// A message of a service that the guest may not list, and a number of none.
    hidden: u64,
    absent: u64,
}

/// Makes a user who may log in and little else, and what is hidden from it.
fn prepare(place: &AccessNode, program: &std::path::Path) -> anyhow::Result<Known> {
    let mut control = Control::open(place.data())?;
    let schema = |name: &str| json!({ "kind": "schema", "name": name });
    let rights = [
        ("sql-connect", json!({ "kind": "node" })),
        ("schema-use", schema("hl7")),
        ("table-select", json!({ "kind": "table", "schema": "hl7", "name": "messages" })),
        ("message-metadata", json!({ "kind": "service", "name": "near" })),
    ];
    let token = control.user("guest", Some(PASSWORD), &rights)?;
    control.change(&[json!({ "create": {
        "name": "maker", "attributes": { "login": true, "administrator": true },
        "credentials": { "scram": node::identity::scram::Verifier::of(PASSWORD)? } } })])?;
    let mut maker = Client::connect_with(place.address(Node::sql_address)?, "maker", Some(PASSWORD), PATIENCE)?;
    maker.query("CREATE SCHEMA hidden")?;
    maker.query("CREATE TABLE hidden.kestrel (a int PRIMARY KEY)")?;
    let draw = json!({ "verb": "draw-token", "role": "maker", "name": "bench", "until_us": null });
    let drawn = control.must(&format!("identity {draw}"))?;
    let authorization = format!("Bearer {}", drawn["token"].as_str().context("no token")?);
    let mut stream = BufReader::new(TcpStream::connect(place.address(Node::search_address)?)?);
    put_index(&mut stream, &authorization)?;
    for service in ["near", "far"] {
        place.send(service, MESSAGE)?;
    }
    let lines = control.must("messages {}")?;
    let of = |service: &str| {
        let line = lines.as_array()?.iter().find(|line| line["service"] == service)?;
        line["id"].as_u64()
    };
    let (near, far) = (of("near").context("no message")?, of("far").context("no message")?);
    place.command(program, &["volume", "create", "kestrel", "--size", "4MiB"])?;
    place.command(program, &["volume", "export", "kestrel"])?;
    Ok(Known { token, hidden: far, absent: near.max(far) + 1_000 })
}

fn put_index(stream: &mut BufReader<TcpStream>, authorization: &str) -> anyhow::Result<()> {
    let body = "{\"a\":1}";
    let request = format!(
        "PUT /kestrel/_doc/1?refresh=true HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.get_mut().write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 201"), "the index was not made: {answer}");
    Ok(())
}

/// All pairs. The names of what is there and of what is not have the same length.
fn pairs<'p>(place: &'p AccessNode, known: &'p Known) -> anyhow::Result<Vec<(&'static str, Ask<'p>)>> {
    let (sql, search) = (place.address(Node::sql_address)?, place.address(Node::search_address)?);
    let mut number = 0;
    let mut own = move || {
        number += 1;
        own_address(number)
    };
    // Behind those of the pair before.
    let mut other_own = {
        let mut number = 1 << 22;
        move || {
            number += 1;
            own_address(number)
        }
    };
    let sql_login = move |wrong: bool| {
        let (user, password) = if wrong { ("guest", WRONG) } else { ("nobod", WRONG) };
        let login = Client::over(connect_from(own(), sql)?, user, Some(password), PATIENCE);
        refusal(login.map(drop), &[user])
    };
    let search_login = move |wrong: bool| {
        let user = if wrong { "guest" } else { "nobod" };
        let mut stream = BufReader::new(connect_from(other_own(), search)?);
        let authorization = format!("Basic {}", BASE64.encode(format!("{user}:{WRONG}")));
        let (status, body) = http(&mut stream, &authorization, "/")?;
        ensure!(status == 401, "{status}: {body}");
        Ok(body.replace(user, "USER"))
    };
    let (mut client, mut rows) = (None, None);
    let guest = move || Ok(Client::connect_with(sql, "guest", Some(PASSWORD), PATIENCE)?);
    let table = move |absent: bool| {
        let name = if absent { "buzzard" } else { "kestrel" };
        refusal(opened(&mut client, guest)?.query(&format!("SELECT * FROM hidden.{name}")).map(drop), &[name])
    };
    let (hidden, none) = (known.hidden, known.absent);
    let row = move |absent: bool| {
        let id = if absent { none } else { hidden };
        let answer = opened(&mut rows, guest)?.query(&format!("SELECT interface FROM hl7.messages WHERE id = {id}"))?;
        Ok(format!("{:?}", answer.rows))
    };
    // Opened when its turn comes: the node ends connections that are silent for minutes.
    let mut stream = None;
    let authorization = format!("Bearer {}", known.token);
    let index = move |absent: bool| {
        let name = if absent { "buzzard" } else { "kestrel" };
        let stream = opened(&mut stream, || Ok(BufReader::new(TcpStream::connect(search)?)))?;
        let (status, body) = http(stream, &authorization, &format!("/{name}/_search"))?;
        Ok(format!("{status} {}", body.replace(name, "NAME")))
    };
    let mut pairs: Vec<(&'static str, Ask<'p>)> = vec![
        ("sql login: unknown user, wrong password", Box::new(sql_login)),
        ("search login: unknown user, wrong password", Box::new(search_login)),
        ("sql: hidden table, absent one", Box::new(table)),
        ("sql: hidden row of hl7.messages, absent one", Box::new(row)),
        ("search: hidden index, absent one", Box::new(index)),
    ];
    pairs.extend(of_control(place, known)?);
    pairs.push(("nbd: hidden export, absent one", export(place)?));
    Ok(pairs)
}

/// The pairs of the control socket.
fn of_control<'p>(place: &'p AccessNode, known: &'p Known) -> anyhow::Result<Vec<(&'static str, Ask<'p>)>> {
    let (mut messages, mut volumes) = (None, None);
    let message = move |absent: bool| {
        let id = if absent { known.absent } else { known.hidden };
        let answer = opened(&mut messages, || Control::open(place.data()))?
            .send(&format!("as {} message {id} metadata", known.token))?;
        error_of(&answer).map(|text| text.replace(&id.to_string(), "ID"))
    };
    let volume = move |absent: bool| {
        let name = if absent { "buzzard" } else { "kestrel" };
        let request = json!({ "verb": "status", "names": [name] });
        let volumes = opened(&mut volumes, || Control::open(place.data()))?;
        error_of(&volumes.send(&format!("as {} volume {request}", known.token))?)
    };
    Ok(vec![
        ("control: hidden message, absent one", Box::new(message)),
        ("control: hidden volume, absent one", Box::new(volume)),
    ])
}

/// The connection of a pair, opened at its first request.
fn opened<T>(held: &mut Option<T>, open: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<&mut T> {
    if held.is_none() {
        *held = Some(open()?);
    }
    held.as_mut().context("it was opened")
}

fn error_of(answer: &Value) -> anyhow::Result<String> {
    answer["error"].as_str().map(str::to_owned).with_context(|| format!("it was answered: {answer}"))
}

fn refusal(done: Result<(), Error>, words: &[&str]) -> anyhow::Result<String> {
    match done {
        Err(Error::Refused { code, message }) => {
            let text = format!("{code}: {message}");
            Ok(words.iter().fold(text, |text, word| text.replace(word, "NAME")))
        }
        other => bail!("it was not refused: {other:?}"),
    }
}

/// The pair over NBD: the option GO, each over a connection of its own, from this machine, whose role may open nothing.
fn export<'p>(place: &AccessNode) -> anyhow::Result<Ask<'p>> {
    let mut control = Control::open(place.data())?;
    let status = control.must("volume {\"verb\":\"status\",\"names\":[\"kestrel\"]}")?.to_string();
    let address = status.split('"').find_map(|part| part.strip_prefix("nbd://")?.split('/').next()?.parse().ok());
    let address: SocketAddr = address.with_context(|| format!("the export has no address: {status}"))?;
    Ok(Box::new(move |absent: bool| {
        let name = if absent { "buzzard" } else { "kestrel" };
        let mut stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.read_exact(&mut [0; 18])?;
        // Fixed newstyle without zeros; then IHAVEOPT, GO, and a name without wishes.
        let data = [&(name.len() as u32).to_be_bytes()[..], name.as_bytes(), &[0, 0]].concat();
        let length = (data.len() as u32).to_be_bytes();
        let option = [&3_u32.to_be_bytes()[..], b"IHAVEOPT", &7_u32.to_be_bytes(), &length, &data].concat();
        stream.write_all(&option)?;
        let mut head = [0; 20];
        stream.read_exact(&mut head)?;
        let mut text = vec![0; u32::from_be_bytes(head[16..].try_into()?) as usize];
        stream.read_exact(&mut text)?;
        let kind = u32::from_be_bytes(head[12..16].try_into()?);
        ensure!(kind >> 31 == 1, "it was answered: {kind:#x}");
        Ok(format!("{kind:#x} {}", String::from_utf8_lossy(&text).replace(name, "NAME")))
    }))
}

/// Sends both requests again and again, in random order.
fn measure(
    name: &'static str,
    mut ask: Ask<'_>,
    samples: usize,
    random: &mut fastrand::Rng,
) -> anyhow::Result<TimingRun> {
    let style = ProgressStyle::with_template("{msg} {bar:30} {elapsed} ({eta} left)")?;
    let bar = ProgressBar::new(samples as u64).with_style(style).with_message(name);
    let mut times = [Vec::with_capacity(samples), Vec::with_capacity(samples)];
    let warm_up = samples.div_ceil(WARM_UP);
    for number in 0..samples + warm_up {
        interrupt::check()?;
        let first = random.bool();
        let mut answers = [String::new(), String::new()];
        for second in [first, !first] {
            let begun = Instant::now();
            let answer = ask(second)?;
            let took = begun.elapsed().as_secs_f64() * 1e6;
            answers[usize::from(second)] = answer;
            if number >= warm_up {
                times[usize::from(second)].push(took);
            }
        }
        ensure!(answers[0] == answers[1], "the answers differ: {answers:?}");
        bar.inc(1);
    }
    bar.finish_and_clear();
    let [mut first, mut second] = times;
    let difference = difference(&first, &second, random);
    let is_sure = difference.low.abs().max(difference.high.abs()) <= LIMIT;
    Ok(TimingRun {
        name: name.to_owned(),
        durability: "none",
        real: true,
        samples,
        first_us: median(&mut first),
        second_us: median(&mut second),
        within: difference.median.abs() <= LIMIT,
        difference,
        is_sure,
    })
}
