//! A thread that changes documents of its own over HTTP until the node is gone, and keeps the ledger of them; and one that refreshes,
//! flushes and merges the index meanwhile.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};

use super::ledger::{Ledger, State};
use crate::client::Client;

/// The index.
pub(super) const INDEX: &str = "killed";
/// Documents of a writer: they are changed again and again.
const DOCUMENTS: usize = 200;
/// Most changes of a request.
const CHANGES: usize = 20;
/// Between two requests of upkeep, milliseconds.
const UPKEEP_MS: std::ops::Range<u64> = 1..60;

/// What all threads of a round share.
pub(super) struct Round {
    pub(super) address: SocketAddr,
    pub(super) ends: AtomicBool,
    /// Changes acknowledged in this round.
    pub(super) acknowledged: AtomicU64,
    /// Changes refused in this round.
    pub(super) refused: AtomicU64,
}

/// A writer over all rounds.
#[derive(Debug)]
pub(super) struct Writer {
    name: usize,
    rng: Rng,
    number: u64,
    pub(super) ledger: Ledger,
}

/// A change of a document.
enum Change {
    Index,
    Update,
    Delete,
}

impl Writer {
    pub(super) fn new(name: usize, seed: u64) -> Writer {
        Writer { name, rng: Rng::with_seed(seed ^ (name as u64) << 32), number: 0, ledger: Ledger::default() }
    }

    /// Sends requests until the node is gone, or `ends`. A request whose response does not come stays in doubt.
    pub(super) fn run(&mut self, round: &Round) {
        let Ok(mut client) = Client::connect(round.address) else { return };
        while !round.ends.load(Ordering::Relaxed) {
            let (body, changes) = self.request();
            let count = changes.len();
            self.ledger.send(changes);
            let Ok(reply) = client.send("POST", &format!("/{INDEX}/_bulk"), body.as_bytes()) else { return };
            // A refused request changes nothing, by the node's promise; the next comparison shows whether that is so.
            let versions = match reply.json() {
                Ok(response) => versions(&response),
                Err(_) => vec![None; count],
            };
            let acknowledged = versions.iter().flatten().count() as u64;
            self.ledger.acknowledge(&versions);
            round.acknowledged.fetch_add(acknowledged, Ordering::Relaxed);
            round.refused.fetch_add(count as u64 - acknowledged, Ordering::Relaxed);
        }
    }

    /// The body of a request, and what it changes.
    fn request(&mut self) -> (String, Vec<(String, Option<State>)>) {
        let (mut body, mut changes) = (String::new(), Vec::new());
        for _ in 0..self.rng.usize(1..=CHANGES) {
            let document = format!("{}-{}", self.name, self.rng.usize(0..DOCUMENTS));
            self.number += 1;
            let number = self.number;
            let change = match self.rng.u32(0..10) {
                0..6 => Change::Index,
                6..8 => Change::Update,
                _ => Change::Delete,
            };
            let source = json!({"n": number, "text": format!("document {document} change {number}")});
            let id = json!({"_id": document});
            body += &match change {
                Change::Index => format!("{}\n{source}\n", json!({"index": id})),
                Change::Update => {
                    format!("{}\n{}\n", json!({"update": id}), json!({"doc": source, "doc_as_upsert": true}))
                }
                Change::Delete => format!("{}\n", json!({"delete": id})),
            };
            let state = State { number, version: None };
            changes.push((document, if matches!(change, Change::Delete) { None } else { Some(state) }));
        }
        (body, changes)
    }
}

/// The versions of a bulk's items; none where one was refused. Deleting what is not there is no refusal.
fn versions(response: &Value) -> Vec<Option<u64>> {
    let items = response["items"].as_array().into_iter().flatten();
    items
        .map(|item| {
            let (kind, item) = item.as_object().and_then(|item| item.iter().next())?;
            let status = item["status"].as_u64()?;
            let done = status < 300 || (status == 404 && kind == "delete");
            done.then(|| item["_version"].as_u64()).flatten()
        })
        .collect()
}

/// Refreshes, flushes and merges until the node is gone, or the round `ends`.
pub(super) fn upkeep(round: &Round, mut rng: Rng) {
    let Ok(mut client) = Client::connect(round.address) else { return };
    while !round.ends.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(rng.u64(UPKEEP_MS)));
        let what = ["_refresh", "_flush", "_forcemerge?max_num_segments=1"][rng.usize(0..3)];
        if client.send("POST", &format!("/{INDEX}/{what}"), b"").is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_has_a_line_for_each_change_and_two_with_a_source_and_numbers_rise() {
        let mut writer = Writer::new(3, 1);
        for _ in 0..50 {
            let (body, changes) = writer.request();
            let sources = changes.iter().filter(|(_, state)| state.is_some()).count();
            let deletes = body.lines().filter(|line| line.starts_with("{\"delete\"")).count();
            assert_eq!(body.lines().count(), changes.len() * 2 - deletes);
            assert_eq!(sources, changes.len() - deletes);
            assert!(changes.iter().all(|(document, _)| document.starts_with("3-")));
        }
    }

    #[test]
    fn versions_are_those_of_items_that_were_done() {
        let response = json!({"items": [
            {"index": {"status": 201, "_version": 1}},
            {"update": {"status": 429, "error": {}}},
            {"delete": {"status": 404, "_version": 3}},
            {"update": {"status": 404}},
        ]});
        assert_eq!(versions(&response), [Some(1), None, Some(3), None]);
    }
}
