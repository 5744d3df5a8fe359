//! What a writer knows of its documents, and the comparison with what a node has after a kill.
//!
//! ```text
//!   sent ---> in doubt ---> acknowledged          the state of each document is known
//!                 |
//!                kill ---> found as before the request, or as after it: all of it or nothing     else a fault
//! ```
//!
//! A writer has one request under way at most, and its documents are its own. Pure.

use std::collections::BTreeMap;

use serde::Serialize;

/// A document as a node has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The number in its source, which no two changes of a writer share.
    pub number: u64,
    /// Its version, where that is known.
    pub version: Option<u64>,
}

/// States by document; none where it is deleted or was never written.
pub type States = BTreeMap<String, Option<State>>;

/// The documents of a writer.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    known: States,
    /// What the request under way changes, in its order.
    in_doubt: Vec<(String, Option<State>)>,
}

/// What comparisons found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Documents that were older than acknowledged, or not there.
    pub lost: u64,
    /// Requests of which a part was there.
    pub half: u64,
    /// Documents with content that was never sent, or was replaced or deleted by an acknowledged request before.
    pub foreign: u64,
    /// Documents whose version is not the acknowledged one.
    pub wrong_version: u64,
    /// Documents that a search does not find as they are by id.
    pub not_searched: u64,
    /// Requests without a response that were there whole.
    pub found: u64,
    /// Requests without a response that were not there.
    pub absent: u64,
}

impl Compared {
    /// How many of these must not be.
    pub fn faults(&self) -> u64 {
        self.lost + self.half + self.foreign + self.wrong_version + self.not_searched
    }

    /// Adds those of another writer.
    pub fn add(&mut self, other: Compared) {
        self.lost += other.lost;
        self.half += other.half;
        self.foreign += other.foreign;
        self.wrong_version += other.wrong_version;
        self.not_searched += other.not_searched;
        self.found += other.found;
        self.absent += other.absent;
    }
}

impl Ledger {
    /// A request with these changes is sent.
    pub fn send(&mut self, changes: Vec<(String, Option<State>)>) {
        self.in_doubt = changes;
    }

    /// The request under way is acknowledged: the version of each change, none where the node refused it.
    pub fn acknowledge(&mut self, versions: &[Option<u64>]) {
        let changes = std::mem::take(&mut self.in_doubt);
        for ((document, state), version) in changes.into_iter().zip(versions) {
            if version.is_some() {
                let state = state.map(|state| State { version: *version, ..state });
                self.known.insert(document, state);
            }
        }
    }

    /// All documents that the writer ever wrote to.
    pub fn documents(&self) -> Vec<String> {
        let in_doubt = self.in_doubt.iter().map(|(document, _)| document.clone());
        let mut all: Vec<String> = self.known.keys().cloned().chain(in_doubt).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Compares with what a node has of the documents by id, and takes that as known; adds a line for each fault.
    pub fn compare(&mut self, found: &States, faults: &mut Vec<String>) -> Compared {
        let mut compared = Compared::default();
        let in_doubt = std::mem::take(&mut self.in_doubt);
        let after: States = in_doubt.into_iter().collect();
        let of = |states: &States, document: &str| states.get(document).copied().flatten().map(|state| state.number);
        let is_there = |document: &&String| of(found, document) == of(&after, document);
        let changed: Vec<&String> =
            after.keys().filter(|document| of(&self.known, document) != of(&after, document)).collect();
        let there = changed.iter().filter(|document| is_there(document)).count();
        let old = changed.iter().filter(|document| of(found, document) == of(&self.known, document)).count();
        match (there, old) {
            _ if changed.is_empty() => {}
            (there, _) if there == changed.len() => compared.found += 1,
            (_, old) if old == changed.len() => compared.absent += 1,
            (there, old) if there + old == changed.len() => {
                compared.half += 1;
                faults.push(format!("half there: {there} of {} changes of {changed:?}", changed.len()));
            }
            // What is neither is counted below.
            _ => {}
        }
        for document in self.known.keys().chain(after.keys()).collect::<std::collections::BTreeSet<_>>() {
            let (known, new, now) = (of(&self.known, document), of(&after, document), of(found, document));
            if now == known {
                let versions = (self.known.get(document).copied().flatten(), found.get(document).copied().flatten());
                if let (Some(State { version: Some(known), .. }), Some(State { version, .. })) = versions
                    && version != Some(known)
                {
                    compared.wrong_version += 1;
                    faults.push(format!("wrong version: {document} has {version:?}, acknowledged {known}"));
                }
            } else if after.contains_key(document) && now == new {
            } else if now < known {
                compared.lost += 1;
                faults.push(format!("lost: {document} has {now:?}, acknowledged {known:?}, in doubt {new:?}"));
            } else {
                compared.foreign += 1;
                faults.push(format!("foreign: {document} has {now:?}, acknowledged {known:?}, in doubt {new:?}"));
            }
        }
        self.known = found.clone();
        compared
    }

    /// Compares what is known with what a search found; adds a line for each fault.
    pub fn compare_searched(&self, searched: &BTreeMap<String, u64>, faults: &mut Vec<String>) -> u64 {
        let mut count = 0;
        for (document, state) in &self.known {
            let (known, found) = (state.map(|state| state.number), searched.get(document).copied());
            if known != found {
                count += 1;
                faults.push(format!("not found by a search as it is: {document} has {known:?}, found {found:?}"));
            }
        }
        count
    }

    /// Documents that are there.
    pub fn live(&self) -> u64 {
        self.known.values().flatten().count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(number: u64) -> Option<State> {
        Some(State { number, version: Some(number) })
    }

    fn states(of: &[(&str, Option<State>)]) -> States {
        of.iter().map(|(document, state)| ((*document).to_owned(), *state)).collect()
    }

    /// Knows a with 1, b deleted; sends a with 2 and c with 3, without a response.
    fn ledger() -> Ledger {
        let mut ledger = Ledger::default();
        ledger.send(vec![("a".into(), state(1)), ("b".into(), None)]);
        ledger.acknowledge(&[Some(1), Some(2)]);
        ledger.send(vec![("a".into(), state(2)), ("c".into(), state(3))]);
        ledger
    }

    #[test]
    fn what_was_in_doubt_is_there_whole_or_not_at_all() {
        type Case<'c> = (&'c [(&'c str, Option<State>)], Compared);
        let zero = Compared::default();
        let cases: [Case<'_>; 7] = [
            (&[("a", state(1))], Compared { absent: 1, ..zero }),
            (&[("a", state(2)), ("c", state(3))], Compared { found: 1, ..zero }),
            (&[("a", state(2))], Compared { half: 1, ..zero }),
            (&[("c", state(3))], Compared { lost: 1, ..zero }),
            (&[("a", state(1)), ("b", state(9))], Compared { absent: 1, foreign: 1, ..zero }),
            (&[("a", state(7))], Compared { foreign: 1, ..zero }),
            (&[("a", Some(State { number: 1, version: Some(5) }))], Compared { absent: 1, wrong_version: 1, ..zero }),
        ];
        for (found, wanted) in cases {
            let mut faults = Vec::new();
            assert_eq!(ledger().compare(&states(found), &mut faults), wanted, "{found:?}");
            assert_eq!(faults.len() as u64, wanted.faults(), "{faults:?}");
        }
    }

    #[test]
    fn a_refused_change_leaves_the_document_as_it_was_and_what_was_found_is_known_from_then_on() {
        let mut ledger = ledger();
        ledger.acknowledge(&[None, Some(4)]);
        let mut faults = Vec::new();
        let found = states(&[("a", state(1)), ("c", Some(State { number: 3, version: Some(4) }))]);
        assert_eq!(ledger.compare(&found, &mut faults), Compared::default());
        assert_eq!((ledger.live(), ledger.documents()), (2, vec!["a".to_owned(), "c".to_owned()]));
        assert_eq!(ledger.compare_searched(&BTreeMap::from([("a".into(), 1), ("c".into(), 3)]), &mut faults), 0);
        assert_eq!(ledger.compare_searched(&BTreeMap::from([("a".into(), 1)]), &mut faults), 1);
    }
}
