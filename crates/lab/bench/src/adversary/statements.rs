//! Careless statements: those that need more memory than available, and those that do not end.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;

use super::{Broken, PATIENCE, Target, USER};
use crate::postgres::{Client, Error};
use workload::process::Usage;

/// How long one statement may take: the time-out that it is given, and what a loaded machine adds.
const STATEMENT: Duration = Duration::from_secs(60);
/// How long cancelled or abandoned work may go on.
const CANCELLED: Duration = Duration::from_secs(2);

/// Statements that want gigabytes, written by hand.
const WANT_MEMORY: [&str; 13] = [
    "DROP TABLE IF EXISTS wide; CREATE TABLE wide (id int PRIMARY KEY, s text NOT NULL)",
    "INSERT INTO wide SELECT g, repeat('x', 100000) FROM generate_series(1, 1000) AS t(g)",
    "UPDATE wide SET s = s || s",
    "SELECT max(length(a.s || b.s)) FROM wide AS a, wide AS b",
    "SELECT length(repeat('x', 2000000000))",
    "SELECT length(repeat(repeat('x', 30000), 30000))",
    "SELECT length(lpad('x', 2000000000, 'y'))",
    "SELECT length(string_agg(repeat('x', 100000), '')) FROM generate_series(1, 20000)",
    "SELECT array_length(array_agg(repeat('x', 1000) || g), 1) FROM generate_series(1, 2000000) AS t(g)",
    "SELECT max(length(a || b)) FROM (SELECT repeat('x', 1000000) AS a, repeat('y', 1000000) || g AS b FROM generate_series(1, 5000) AS t(g)) AS s",
    "SELECT length(replace(repeat('x', 10000000), 'x', repeat('y', 1000)))",
    "SELECT count(*) FROM (SELECT DISTINCT repeat('x', 1000) || g AS a FROM generate_series(1, 1000000) AS t(g)) AS s",
    "SELECT count(*) FROM (SELECT g, repeat('x', 60) || g AS a FROM generate_series(1, 1000000) AS t(g) ORDER BY a) AS s",
];
/// Nestings drawn from the seed.
const NESTINGS: usize = 20;

/// Each statement ends, with an answer or a refusal.
pub(super) fn memory(target: &Target) -> anyhow::Result<Broken> {
    let mut rng = fastrand::Rng::with_seed(target.seed);
    let nestings: Vec<String> = (0..NESTINGS).map(|_| format!("SELECT length({})", nesting(&mut rng, 3))).collect();
    let mut client = Client::connect(target.sql, USER, STATEMENT)?;
    client.query("SET statement_timeout = '20s'")?;
    let mut broken = Broken::new();
    for text in WANT_MEMORY.into_iter().chain(nestings.iter().map(String::as_str)) {
        match client.query(text) {
            Ok(_) => {}
            // Out of memory or resources, a limit, cancelled by the time-out, a value out of range, a snapshot too old.
            Err(Error::Refused { code, .. })
                if ["53", "54", "57", "22", "72"].iter().any(|class| code.starts_with(class)) => {}
            Err(Error::Refused { code, message }) => broken.push(format!("{text}: {code} {message}")),
            Err(Error::Broken(error)) => {
                broken.push(format!("{text}: the connection broke: {error}"));
                client = Client::connect(target.sql, USER, STATEMENT)?;
                client.query("SET statement_timeout = '20s'")?;
            }
        }
    }
    Ok(broken)
}

/// A text made of functions that make long texts of short ones.
fn nesting(rng: &mut fastrand::Rng, depth: usize) -> String {
    if depth == 0 {
        return format!("'{}'", "x".repeat(rng.usize(1..20)));
    }
    let inner = nesting(rng, depth - 1);
    let times = [10, 1_000, 100_000, 10_000_000, 2_000_000_000][rng.usize(0..5)];
    match rng.usize(0..7) {
        0 => format!("repeat({inner}, {times})"),
        1 => format!("lpad({inner}, {times}, 'ab')"),
        2 => format!("rpad({inner}, {times}, {})", nesting(rng, depth - 1)),
        3 => format!("concat({inner}, {})", nesting(rng, depth - 1)),
        4 => format!("replace({inner}, 'x', {})", nesting(rng, depth - 1)),
        5 => format!("({inner} || {})", nesting(rng, depth - 1)),
        _ => format!("(SELECT string_agg({inner}, ',') FROM generate_series(1, {}))", times.min(100_000)),
    }
}

/// A query over the pairs of two tables that no index helps with.
const ENDLESS: &str = "SELECT count(*) FROM endless AS a, endless AS b, endless AS c WHERE a.s < b.s AND b.s < c.s";

/// More queries without an end than there are threads: others log in; cancelled and abandoned ones end.
pub(super) fn time(target: &Target) -> anyhow::Result<Broken> {
    let mut client = Client::connect(target.sql, USER, STATEMENT)?;
    client.query("DROP TABLE IF EXISTS endless; CREATE TABLE endless (id int PRIMARY KEY, s text NOT NULL)")?;
    client.query("INSERT INTO endless SELECT g, 'text ' || g FROM generate_series(1, 30000) AS t(g)")?;
    let mut broken = Broken::new();
    let before = cores(target)?;
    let running = endless(target.sql, 6);
    let logged_in = Instant::now();
    match Client::connect(target.sql, USER, PATIENCE).and_then(|mut client| client.query("SELECT 1")) {
        Ok(_) => {}
        Err(error) => broken.push(format!("no other client could log in after {:.1?}: {error}", logged_in.elapsed())),
    }
    // Half of them are cancelled, the clients of the others go away.
    let (cancelled, abandoned): (Vec<_>, Vec<_>) = running.into_iter().enumerate().partition(|(at, _)| at % 2 == 0);
    for (_, (canceller, mut running)) in cancelled {
        let asked = Instant::now();
        canceller.cancel().context("cancelling")?;
        running.drain()?;
        if asked.elapsed() > CANCELLED {
            broken.push(format!("a cancelled statement ended after {:.1?}", asked.elapsed()));
        }
    }
    drop(abandoned);
    std::thread::sleep(CANCELLED);
    let after = cores(target)?;
    if after > before + 0.5 {
        broken.push(format!("{after:.1} processors are busy after all was cancelled or abandoned, {before:.1} before"));
    }
    Ok(broken)
}

/// Connections on each of which a query runs that does not end.
pub(super) fn endless(sql: SocketAddr, count: usize) -> Vec<(crate::postgres::Canceller, Client)> {
    let run = |_| {
        // Too short to get an answer: the statement goes on, and the connection stays.
        let mut client = Client::connect(sql, USER, Duration::from_secs(30)).ok()?;
        client.begin_query(ENDLESS).ok()?;
        Some((client.canceller(), client))
    };
    (0..count).filter_map(run).collect()
}

/// Processors that the node keeps busy, over a second.
fn cores(target: &Target) -> anyhow::Result<f64> {
    let before = Usage::of(target.pid).context("the node has ended")?;
    let begun = Instant::now();
    std::thread::sleep(Duration::from_secs(1));
    let used = Usage::of(target.pid)?.since(before);
    Ok(used.cpu_us as f64 / 1e6 / begun.elapsed().as_secs_f64())
}
