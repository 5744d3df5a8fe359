//! Bodies read by several users beside T4, and then the audit: each read is in it once, written before its answer came.
//!
//! ```text
//!   T4 at a steady rate ---> node <--- 10 users: every second one over the control socket, the others over SQL
//!                              |          of each read: message, time at which the answer was there
//!                              v
//!                         the audit, page by page ---> user by user the same messages in the same order, each entry earlier
//!                                                      than its answer; and the chain holds
//! ```
//!
//! An entry's time is taken before it is made durable, and the answer is sent after that; a user's clock is this machine's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::ensure;
use node::Clock;
use node::audit::{AuditFilter, AuditOutcome, AuditPage, AuditQuery, AuditRequest, ChainReport};
use serde::Serialize;
use serde_json::{Value, json};

use super::AccessOptions;
use super::place::{Control, PATIENCE};
use crate::postgres::Client;
use crate::under_load::{Setup, UnderLoad, WorkBeside};

/// Inbound services of the load.
const SERVICES: usize = 16;

/// Messages that are there before the first is read.
const FIRST: u64 = 50;

/// Messages among which a user chooses the next.
const RECENT: usize = 200;

const SETTINGS: &str = "[journal]\nlimit = \"256MiB\"\n[messages]\nretention = \"4GiB\"\n\
    [audit]\nmax_bytes = \"1GiB\"\n[sql]\nlisten = \"127.0.0.1:0\"\ntrust = true\n";

/// The reads and what the audit has of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReadsRun {
    /// Always `audited reads`.
    pub name: &'static str,
    /// The durability of a flush in the journal's place.
    pub durability: String,
    /// Whether that place is a real medium, not a model.
    pub real: bool,
    /// Users.
    pub users: usize,
    /// Bodies that were read.
    pub reads: usize,
    /// How long that took.
    pub seconds: f64,
    /// Reads that have no entry.
    pub missing: usize,
    /// Entries that no read has, or a second one of a read.
    pub extra: usize,
    /// Entries whose time is after that of the answer.
    pub late: usize,
    /// Entries of the audit.
    pub entries: u64,
    /// What is wrong with the chain; empty: nothing.
    pub chain: String,
    /// Messages of the load that were acknowledged meanwhile.
    pub inbound: u64,
    /// 99 of 100 acknowledgements took at most so many milliseconds.
    pub ack_ms_p99: f64,
    /// Messages that were lost.
    pub lost: u64,
}

impl ReadsRun {
    /// Whether every read is in the audit, once and in time.
    pub(super) fn holds(&self) -> bool {
        self.missing + self.extra + self.late == 0 && self.chain.is_empty() && self.lost == 0
    }
}

/// A read: the message, and when its answer was there, microseconds since 1970.
type Read = (u64, i64);

/// Runs it.
pub(super) fn run(options: &AccessOptions) -> anyhow::Result<ReadsRun> {
    let mut rig = UnderLoad::start(&Setup {
        name: "access",
        data: None,
        services: SERVICES,
        messages_per_s: options.messages_per_s,
        seed: options.seed,
        settings: SETTINGS,
        files: &[],
        descriptors: None,
    })?;
    let (folder, sql) = (rig.folder().to_owned(), rig.sql());
    let mut control = Control::open(&folder)?;
    let rights = rights();
    let mut users = Vec::new();
    for number in 0..options.users {
        let name = format!("reader{number}");
        let token = control.user(&name, None, &rights)?;
        users.push((name, token));
    }
    let begun = Instant::now();
    let WorkBeside { result, latency, .. } = rig.beside(|| read_all(options, &folder, sql, &users))?;
    let (reads, seconds) = (result?, begun.elapsed().as_secs_f64());
    let entries = entries(&mut control)?;
    let chain = chain(&mut control)?;
    let journal = rig.node().status()?.journal;
    rig.finish(|| ())?;
    let counts = rig.load().account().counts();
    let mut run = ReadsRun {
        name: "audited reads",
        durability: journal.durability,
        real: journal.real,
        users: options.users,
        reads: reads.iter().map(Vec::len).sum(),
        seconds,
        missing: 0,
        extra: 0,
        late: 0,
        entries: chain.entries,
        chain: chain.problems.join("; "),
        inbound: counts.acknowledged,
        ack_ms_p99: latency.quantile(0.99) as f64 / 1e6,
        lost: counts.acknowledged.saturating_sub(counts.delivered / 4),
    };
    for ((name, _), reads) in users.iter().zip(&reads) {
        let none = Vec::new();
        compare(&mut run, reads, entries.get(name).unwrap_or(&none));
    }
    let known: Vec<&String> = users.iter().map(|(name, _)| name).collect();
    run.extra += entries.iter().filter(|(name, _)| !known.contains(name)).map(|(_, found)| found.len()).sum::<usize>();
    Ok(run)
}

/// The reads of each user, who all read until there is none left.
fn read_all(
    options: &AccessOptions,
    folder: &std::path::Path,
    sql: std::net::SocketAddr,
    users: &[(String, String)],
) -> anyhow::Result<Vec<Vec<Read>>> {
    let mut control = Control::open(folder)?;
    while control.must("count")?["inbound"].as_u64().unwrap_or(0) < FIRST {
        std::thread::sleep(Duration::from_millis(20));
    }
    let left = AtomicUsize::new(options.reads);
    std::thread::scope(|scope| {
        let all: Vec<_> = users
            .iter()
            .enumerate()
            .map(|(number, (name, token))| {
                let (left, seed) = (&left, options.seed + number as u64);
                scope.spawn(move || match number % 2 {
                    0 => over_control(folder, token, left, seed),
                    _ => over_sql(folder, (sql, name), left, seed),
                })
            })
            .collect();
        let joined = all.into_iter().map(|one| one.join().map_err(|_| anyhow::anyhow!("a user has panicked"))?);
        joined.collect()
    })
}

fn rights() -> Vec<(&'static str, Value)> {
    let service = json!({ "kind": "service", "name": "*", "stars": true });
    vec![
        ("message-metadata", service.clone()),
        ("message-body", service),
        ("sql-connect", json!({ "kind": "node" })),
        ("schema-use", json!({ "kind": "schema", "name": "hl7" })),
        ("table-select", json!({ "kind": "table", "schema": "hl7", "name": "messages" })),
    ]
}

/// Whether there is one more to read.
fn takes(left: &AtomicUsize) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

/// Messages to choose from; who runs the node may list them, and no entry is made.
fn recent(folder: &std::path::Path) -> anyhow::Result<Vec<u64>> {
    let lines = Control::open(folder)?.must(&format!("messages {{\"last\":{RECENT}}}"))?;
    let ids: Vec<u64> = lines.as_array().into_iter().flatten().filter_map(|line| line["id"].as_u64()).collect();
    ensure!(!ids.is_empty(), "there is no message to read");
    Ok(ids)
}

fn over_control(folder: &std::path::Path, token: &str, left: &AtomicUsize, seed: u64) -> anyhow::Result<Vec<Read>> {
    let (mut control, mut random) = (Control::open(folder)?, fastrand::Rng::with_seed(seed));
    let (ids, clock, mut reads) = (recent(folder)?, Clock::system(), Vec::new());
    while takes(left) {
        let id = ids[random.usize(..ids.len())];
        let answer = control.must(&format!("as {token} message {id}"))?;
        ensure!(answer["raw"].as_str().is_some_and(|raw| raw.starts_with("MSH|")), "no body: {answer}");
        reads.push((id, clock.now_us()));
    }
    Ok(reads)
}

fn over_sql(
    folder: &std::path::Path,
    (address, user): (std::net::SocketAddr, &str),
    left: &AtomicUsize,
    seed: u64,
) -> anyhow::Result<Vec<Read>> {
    let (mut client, mut random) = (Client::connect(address, user, PATIENCE)?, fastrand::Rng::with_seed(seed));
    let (ids, clock, mut reads) = (recent(folder)?, Clock::system(), Vec::new());
    while takes(left) {
        let id = ids[random.usize(..ids.len())];
        let query = format!("SELECT body FROM hl7.messages WHERE id = {id} AND object = 0");
        let answer = client.query(&query)?;
        ensure!(answer.rows.len() == 1, "no body: {answer:?}");
        reads.push((id, clock.now_us()));
    }
    Ok(reads)
}

/// The reads that the audit has, by who read: message and time of the entry, oldest first.
fn entries(control: &mut Control) -> anyhow::Result<BTreeMap<String, Vec<Read>>> {
    let mut found: BTreeMap<String, Vec<Read>> = BTreeMap::new();
    let filter = AuditFilter {
        action: Some("message.body".to_owned()),
        outcome: Some(AuditOutcome::Granted),
        ..AuditFilter::default()
    };
    let mut query = AuditQuery { filter, ..AuditQuery::default() };
    loop {
        let page = control.must(&AuditRequest::Read { query: query.clone() }.line())?;
        let page: AuditPage = serde_json::from_value(page)?;
        ensure!(page.damaged.is_empty(), "the audit is damaged: {:?}", page.damaged);
        for shown in page.entries {
            let (entry, time_us) = (shown.chained.entry, i64::try_from(shown.chained.time_us)?);
            let ids: Vec<u64> = entry.reads.ranges.iter().flat_map(|(first, last)| *first..=*last).collect();
            ensure!(ids.len() as u64 == entry.reads.count, "an entry of other reads: {:?}", entry.reads);
            found.entry(entry.actor.name).or_default().extend(ids.into_iter().map(|id| (id, time_us)));
        }
        match page.next {
            Some(next) => query.from = Some(next),
            None => return Ok(found),
        }
    }
}

/// A check of the chain.
fn chain(control: &mut Control) -> anyhow::Result<ChainReport> {
    Ok(serde_json::from_value(control.must(&AuditRequest::Verify { heads: Vec::new() }.line())?)?)
}

/// Compares a user's reads with the entries: both are in the order in which they were made.
fn compare(run: &mut ReadsRun, reads: &[Read], entries: &[Read]) {
    let mut left: BTreeMap<u64, Vec<i64>> = BTreeMap::new();
    for (id, time_us) in entries.iter().rev() {
        left.entry(*id).or_default().push(*time_us);
    }
    for (id, answered_us) in reads {
        match left.get_mut(id).and_then(Vec::pop) {
            Some(time_us) => run.late += usize::from(time_us > *answered_us),
            None => run.missing += 1,
        }
    }
    run.extra += left.values().map(Vec::len).sum::<usize>();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> ReadsRun {
        ReadsRun {
            name: "audited reads",
            durability: String::new(),
            real: true,
            users: 1,
            reads: 0,
            seconds: 0.0,
            missing: 0,
            extra: 0,
            late: 0,
            entries: 0,
            chain: String::new(),
            inbound: 0,
            ack_ms_p99: 0.0,
            lost: 0,
        }
    }

    #[test]
    fn a_missing_a_second_and_a_late_entry_are_found() {
        let reads = [(1, 10), (2, 20), (1, 30)];
        for (entries, expected) in [
            (&[(1, 9), (2, 19), (1, 29)][..], (0, 0, 0)),
            (&[(1, 9), (2, 19)], (1, 0, 0)),
            (&[(1, 9), (2, 19), (1, 29), (2, 40)], (0, 1, 0)),
            (&[(1, 9), (2, 21), (1, 29)], (0, 0, 1)),
            (&[(3, 9), (2, 19), (1, 29)], (1, 1, 1)),
        ] {
            let mut run = run();
            compare(&mut run, &reads, entries);
            assert_eq!((run.missing, run.extra, run.late), expected, "{entries:?}");
            assert_eq!(run.holds(), expected == (0, 0, 0));
        }
    }
}
