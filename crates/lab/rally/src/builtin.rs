//! The load without esrally: the same operations by threads of this process, one connection for each client.
//!
//! ```text
//!   race 1   create index | bulks of N, each acknowledged before the next | refresh, merge | 15 queries, scroll | delete
//!   race 2   ...          |                                               |                |                    |
//!            all wait ----^ here                                          ^----------------^ and here
//! ```
//!
//! Invariants: bodies of bulks are made before the clock runs, so that the generator costs nothing while it is measured; a response
//! with an error of any document ends the run; a race is a thread, and its index is its own.
//!
//! Not as esrally: no warm-up of bulks, and the rate is documents over the whole time, not the median of seconds.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};
use workload::histogram::Histogram;
use workload::interrupt;

use crate::client::Client;
use crate::corpus::Corpus;
use crate::race::{Milliseconds, QueryTimes, RaceResult};
use crate::track::{self, SCROLL, TrackSearch};

/// What a race does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltinPlan {
    /// Documents of a race.
    pub documents: usize,
    /// Documents of a request.
    pub bulk: usize,
    /// Times that each query is measured; as many as a fifth of it go before it unmeasured.
    pub iterations: usize,
    /// Seed of the documents.
    pub seed: u64,
}

/// The race's bodies of bulks, with how many documents each has.
pub(crate) fn bodies(plan: BuiltinPlan, race: usize) -> Vec<(usize, String)> {
    let mut corpus = Corpus::new(plan.seed + race as u64);
    let mut left = plan.documents;
    let mut bodies = Vec::new();
    while left > 0 {
        let documents = plan.bulk.min(left);
        let mut body = String::new();
        for _ in 0..documents {
            body.push_str("{\"index\":{}}\n");
            corpus.next_into(&mut body);
            body.push('\n');
        }
        bodies.push((documents, body));
        left -= documents;
    }
    bodies
}

/// Runs so many races at once against the node at `address`. `between` is called when all bulks are acknowledged and no query has
/// begun, and once before the first bulk.
///
/// # Errors
/// A request that fails; `Interrupted`.
pub fn run(
    plan: BuiltinPlan,
    races: usize,
    address: SocketAddr,
    between: impl Fn() -> anyhow::Result<()> + Sync,
) -> anyhow::Result<Vec<RaceResult>> {
    let barrier = Barrier::new(races);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..races)
            .map(|race| {
                let gate = Gate { barrier: &barrier, between: &between };
                scope.spawn(move || one(plan, race, address, &gate).with_context(|| format!("race {}", race + 1)))
            })
            .collect();
        let ended = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow::anyhow!("a race has panicked")));
        ended.map(|result| result?).collect()
    })
}

/// Where races wait for each other.
struct Gate<'a, F> {
    barrier: &'a Barrier,
    between: &'a F,
}

impl<F: Fn() -> anyhow::Result<()>> Gate<'_, F> {
    /// Waits for all; one of them calls `between` while the others wait.
    fn pass(&self, failed: bool) -> anyhow::Result<()> {
        let result = if self.barrier.wait().is_leader() && !failed { (self.between)() } else { Ok(()) };
        self.barrier.wait();
        result
    }
}

fn one<F: Fn() -> anyhow::Result<()>>(
    plan: BuiltinPlan,
    race: usize,
    address: SocketAddr,
    gate: &Gate<'_, F>,
) -> anyhow::Result<RaceResult> {
    let bodies = bodies(plan, race);
    let index = format!("weblogs-{}", race + 1);
    let prepared = prepare(address, &index);
    // Each race comes to each gate, also where it failed: the others wait there.
    let passed = gate.pass(prepared.is_err());
    let loaded = prepared.and_then(|client| passed.and_then(|()| load(client, &index, &bodies)));
    let passed = gate.pass(loaded.is_err());
    let (mut client, seconds, bulk) = loaded?;
    passed?;
    client.send("POST", &format!("/{index}/_refresh"), b"")?.json()?;
    client.send("POST", &format!("/{index}/_forcemerge?max_num_segments=1"), b"")?.json()?;
    client.send("POST", &format!("/{index}/_refresh"), b"")?.json()?;
    let found = client.send("GET", &format!("/{index}/_count"), b"")?.json()?;
    ensure!(found["count"] == plan.documents, "{} documents were written, and the index has {found}", plan.documents);
    let mut queries = Vec::new();
    for search in track::searches() {
        queries.push(measured(&mut client, &index, &search, plan.iterations)?);
    }
    client.send("DELETE", &format!("/{index}"), b"")?.json()?;
    Ok(RaceResult {
        documents: plan.documents,
        docs_per_s: plan.documents as f64 / seconds.as_secs_f64(),
        bulk_ms: Milliseconds::of(&bulk),
        queries,
        errors: 0,
    })
}

fn prepare(address: SocketAddr, index: &str) -> anyhow::Result<Client> {
    let mut client = Client::connect(address)?;
    client.send("PUT", &format!("/{index}"), track::INDEX.as_bytes())?.json()?;
    client.send("GET", &format!("/_cluster/health/{index}?wait_for_status=green"), b"")?.json()?;
    Ok(client)
}

/// Sends all bulks; how long that took, and each of them, in microseconds.
fn load(mut client: Client, index: &str, bodies: &[(usize, String)]) -> anyhow::Result<(Client, Duration, Histogram)> {
    let target = format!("/{index}/_bulk");
    let mut times = Histogram::default();
    let begun = Instant::now();
    for (documents, body) in bodies {
        interrupt::check()?;
        let sent = Instant::now();
        let reply = client.send("PUT", &target, body.as_bytes())?;
        times.record(sent.elapsed().as_micros() as u64);
        // The response is not read as JSON here: on this machine that would take time from the node.
        let written = reply.status == 200 && contains(reply.body, b"\"errors\":false");
        ensure!(written, "a bulk of {documents} failed with {}: {}", reply.status, reply.text());
    }
    Ok((client, begun.elapsed(), times))
}

fn contains(body: &[u8], what: &[u8]) -> bool {
    body.windows(what.len()).any(|part| part == what)
}

/// Runs a search so many times, and measures each.
fn measured(client: &mut Client, index: &str, search: &TrackSearch, iterations: usize) -> anyhow::Result<QueryTimes> {
    let body = serde_json::to_vec(&search.body).context("a query")?;
    // A scroll is ten requests of a thousand documents.
    let iterations = if search.name == SCROLL { iterations.div_ceil(10) } else { iterations };
    let warmup = iterations / 5;
    let mut times = Histogram::default();
    let mut hits = None;
    for turn in 0..warmup + iterations {
        interrupt::check()?;
        let begun = Instant::now();
        let found = if search.pages > 1 {
            scroll(client, index, search, &body)?
        } else {
            let reply = client.send("GET", &format!("/{index}/_search"), &body)?;
            let passed = begun.elapsed();
            if turn >= warmup {
                times.record(passed.as_micros() as u64);
            }
            reply.json()?["hits"]["total"]["value"].as_u64()
        };
        if search.pages > 1 && turn >= warmup {
            times.record(begun.elapsed().as_micros() as u64);
        }
        if hits.is_some_and(|before| before != found) {
            bail!("{} found {hits:?}, then {found:?}", search.name);
        }
        hits = Some(found);
    }
    Ok(QueryTimes { name: search.name.clone(), ms: Milliseconds::of(&times), hits: hits.flatten() })
}

/// Fetches all pages; how many hits those have.
fn scroll(client: &mut Client, index: &str, search: &TrackSearch, body: &[u8]) -> anyhow::Result<Option<u64>> {
    let first = format!("/{index}/_search?sort=_doc&scroll=10s&size={}", search.page);
    let mut page = client.send("GET", &first, body)?.json()?;
    let mut hits = of_page(&page);
    for _ in 1..search.pages {
        if of_page(&page) == 0 {
            break;
        }
        let next = json!({"scroll_id": page["_scroll_id"], "scroll": "10s"}).to_string();
        page = client.send("GET", "/_search/scroll", next.as_bytes())?.json()?;
        hits += of_page(&page);
    }
    let end = json!({"scroll_id": [page["_scroll_id"]]}).to_string();
    client.send("DELETE", "/_search/scroll", end.as_bytes())?.json()?;
    Ok(Some(hits))
}

fn of_page(page: &Value) -> u64 {
    page["hits"]["hits"].as_array().map_or(0, Vec::len) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_all_documents_once_and_races_have_different_ones() {
        let plan = BuiltinPlan { documents: 7, bulk: 3, iterations: 1, seed: 1 };
        let (first, second) = (bodies(plan, 0), bodies(plan, 1));
        assert_eq!(first.iter().map(|(documents, _)| *documents).collect::<Vec<_>>(), [3, 3, 1]);
        for (documents, body) in &first {
            assert_eq!(body.lines().count(), documents * 2);
            assert!(body.ends_with('\n') && body.starts_with("{\"index\":{}}\n{"), "{body}");
        }
        assert_ne!(first, second);
    }

    #[test]
    fn a_race_that_fails_does_not_keep_the_others_waiting() {
        let plan = BuiltinPlan { documents: 1, bulk: 1, iterations: 1, seed: 1 };
        // Nobody listens there.
        let nobody = SocketAddr::from(([127, 0, 0, 1], 1));
        assert!(run(plan, 3, nobody, || Ok(())).is_err());
    }
}
