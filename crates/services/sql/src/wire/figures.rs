//! [`SqlFigures`]: what clients of the protocol have asked for since the server started, for the metrics of the node.
//!
//! Invariant: kinds and classes come from lists that do not grow with statements: the first word of a tag, if it is a known one, and the
//! first two characters of a SQLSTATE.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Distribution, Noted};
use parking_lot::Mutex;

/// First words of tags that are told apart.
const KINDS: [&str; 10] =
    ["SELECT", "INSERT", "UPDATE", "DELETE", "COPY", "BEGIN", "COMMIT", "ROLLBACK", "SET", "SHOW"];

/// All others.
const OTHER: &str = "other";

/// Most classes of errors: there are some forty.
const CLASSES_MAX: usize = 64;

/// Which way a statement came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    /// `Query`: its statements are timed together.
    Simple,
    /// `Execute` of a portal.
    Extended,
}

/// See the module's text.
#[derive(Debug)]
pub struct SqlFigures {
    kinds: [AtomicU64; KINDS.len() + 1],
    errors: Mutex<BTreeMap<String, u64>>,
    times: [Distribution<2>; 2],
}

impl Default for SqlFigures {
    fn default() -> SqlFigures {
        SqlFigures {
            kinds: [const { AtomicU64::new(0) }; KINDS.len() + 1],
            errors: Mutex::default(),
            times: Default::default(),
        }
    }
}

impl SqlFigures {
    /// A statement was completed with this tag.
    pub(super) fn completed(&self, tag: &str) {
        let word = tag.split(' ').next().unwrap_or_default();
        let kind = KINDS.iter().position(|kind| *kind == word).unwrap_or(KINDS.len());
        self.kinds[kind].fetch_add(1, Ordering::Relaxed);
    }

    /// An error with this SQLSTATE was sent.
    pub(super) fn failed(&self, code: &str) {
        let class = code.get(..2).unwrap_or("XX");
        let mut errors = self.errors.lock();
        if errors.len() < CLASSES_MAX || errors.contains_key(class) {
            *errors.entry(class.to_owned()).or_default() += 1;
        }
    }

    /// A message was answered, so long after it had come.
    pub(super) fn took(&self, protocol: Protocol, time: Duration) {
        self.times[protocol as usize].note(1, 0, time);
    }

    /// Completed statements, by the first word of their tag.
    pub fn statements(&self) -> impl Iterator<Item = (String, u64)> + '_ {
        let names = KINDS.iter().map(|kind| kind.to_ascii_lowercase()).chain([OTHER.to_owned()]);
        names.zip(&self.kinds).map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }

    /// Errors that were sent, by the class of their SQLSTATE.
    pub fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().clone()
    }

    /// Times from a message to the end of its answer, by protocol.
    pub fn times(&self) -> [(&'static str, Noted); 2] {
        let [simple, extended] = &self.times;
        [("simple", simple.noted()), ("extended", extended.noted())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_and_states_of_any_kind_are_counted_under_a_bounded_number_of_names() {
        let figures = SqlFigures::default();
        ["SELECT 5", "INSERT 0 1", "CREATE TABLE", "", "SELECT 0"].iter().for_each(|tag| figures.completed(tag));
        let counted: Vec<_> = figures.statements().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("select".into(), 2), ("insert".into(), 1), ("other".into(), 2)]);
        (0..5_000).for_each(|n| figures.failed(&format!("{n:05}")));
        figures.failed("4");
        assert!(figures.errors().len() <= CLASSES_MAX);
        assert_eq!(figures.errors()["00"], 1_000);
    }
}
