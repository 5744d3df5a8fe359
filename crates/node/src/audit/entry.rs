//! What an entry of the audit says: who, from where, did what to which object, and how it ended.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::control::LocalPeer;
use crate::encryption::KeyChange;

/// The kind of an actor.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ActorKind {
    /// The node itself, as when its retention removes entries.
    #[default]
    Node,
    /// A user of the operating system: the system says who it is.
    Local,
    /// A user or role of the node, who has proven it.
    Role,
    /// A name that somebody claimed and did not prove.
    Claimed,
}

/// Who did it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// What the name means.
    pub kind: ActorKind,
    /// Its number: the uid of a local user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<u32>,
    /// Its name; empty for the node.
    pub name: String,
}

impl Actor {
    /// A user of this machine.
    pub fn local(peer: &LocalPeer) -> Actor {
        Actor { kind: ActorKind::Local, id: peer.uid, name: peer.name.clone() }
    }
}

/// From where, and by what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditOrigin {
    /// The port or protocol: `control`, `command`, `sql`, `search`, `nbd`, `node`.
    pub protocol: String,
    /// The peer's address, as far as there is one.
    pub address: String,
    /// The session or connection, as the port numbers it.
    pub session: String,
}

/// How it ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// It was allowed. A change is then begun; a read is about to be answered.
    #[default]
    Granted,
    /// It was not allowed.
    Refused,
    /// It was allowed and could not be done.
    Failed,
}

impl AuditOutcome {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            AuditOutcome::Granted => "granted",
            AuditOutcome::Refused => "refused",
            AuditOutcome::Failed => "failed",
        }
    }
}

/// Which bodies an entry covers, by their message ids.
///
/// One read is one body that leaves by one request. An entry covers one or more reads of one request: `count` says how many,
/// and every id lies in one of `ranges`. A request that reads many (a statement over a million bodies) has an entry for each
/// batch of them, durable before the first byte of that batch leaves. So each read is in exactly one entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reads {
    /// How many bodies.
    pub count: u64,
    /// From the first to the last id of each range, ascending, apart from each other. A range of one id is one message. A
    /// longer one stands for the messages between that were read: all that were stored there, unless `wide` is set.
    pub ranges: Vec<(u64, u64)>,
    /// The bound of ranges was reached: some of them contain messages that were not read.
    pub wide: bool,
}

impl Reads {
    /// Ranges of one entry at most.
    pub const RANGES_MAX: usize = 64;

    /// The read of one message's bodies.
    pub fn one(id: u64) -> Reads {
        Reads { count: 1, ranges: vec![(id, id)], wide: false }
    }

    /// Adds the read of one message.
    pub fn push(&mut self, id: u64) {
        self.push_run(id, id, 1);
    }

    /// Adds the read of all `count` messages from `first` to `last`.
    pub fn push_run(&mut self, first: u64, last: u64, count: u64) {
        self.count = self.count.saturating_add(count);
        let (first, last) = (first.min(last), first.max(last));
        // Those that begin before it, and those that begin behind its end, stay; what it meets becomes one with it.
        let from = self.ranges.partition_point(|(_, end)| *end < first);
        let to = self.ranges.partition_point(|(begin, _)| *begin <= last);
        let met = &self.ranges[from..to.max(from)];
        let first = met.first().map_or(first, |(begin, _)| first.min(*begin));
        let last = met.last().map_or(last, |(_, end)| last.max(*end));
        self.ranges.splice(from..to.max(from), [(first, last)]);
        if self.ranges.len() > Self::RANGES_MAX {
            self.join_nearest();
        }
    }

    /// Makes one of the two neighbours with the least between them.
    fn join_nearest(&mut self) {
        let gaps = self.ranges.windows(2).map(|pair| pair[1].0 - pair[0].1);
        let Some((at, _)) = gaps.enumerate().min_by_key(|(_, gap)| *gap) else { return };
        let (_, end) = self.ranges.remove(at + 1);
        self.ranges[at].1 = end;
        self.wide = true;
    }

    /// Whether nothing was read.
    pub fn is_empty(&self) -> bool {
        self.count == 0 && self.ranges.is_empty()
    }
}

/// An entry, as its writer gives it. Texts and details beyond their bounds are cut when it is written, and the entry says so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Who.
    pub actor: Actor,
    /// From where.
    pub origin: AuditOrigin,
    /// What: words with points between them, from the general to the special, as `message.body`.
    pub action: String,
    /// To which object.
    pub object: String,
    /// How it ended.
    pub outcome: AuditOutcome,
    /// Why it was done (a ticket), or why it was refused or failed.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// The bodies that were read.
    #[serde(default, skip_serializing_if = "Reads::is_empty")]
    pub reads: Reads,
    /// More, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub details: BTreeMap<String, String>,
    /// Whether an administrator of the node did it: then it may take the place that is kept for these. It is not written.
    #[serde(skip)]
    pub by_administrator: bool,
}

impl AuditEntry {
    /// Details of one entry at most.
    pub const DETAILS_MAX: usize = 16;
    /// Bytes of a detail's value at most.
    pub const VALUE_BYTES_MAX: usize = 512;
    /// Details over which one long text is divided at most: others have their place beside it.
    pub const LONG_PARTS_MAX: usize = 10;

    /// An entry about an action on an object, by the node itself and granted, until more is said.
    pub fn new(action: impl Into<String>, object: impl Into<String>) -> AuditEntry {
        let origin = AuditOrigin { protocol: "node".to_owned(), ..AuditOrigin::default() };
        AuditEntry { action: action.into(), object: object.into(), origin, ..AuditEntry::default() }
    }

    /// An entry about a change of keys: what is changed, and where the new key is.
    pub fn of_keys(change: &KeyChange) -> AuditEntry {
        let (action, from) = change.described();
        from.into_iter().fold(AuditEntry::new(action, ""), |entry, from| entry.with("from", from))
    }

    /// An entry as of [`AuditEntry::new`], by a user of this machine: over the control socket, or by a command on the data of a stopped node.
    #[must_use]
    pub fn by(mut self, peer: &LocalPeer) -> AuditEntry {
        let (protocol, session) = match peer.connection {
            0 => ("command", String::new()),
            connection => ("control", connection.to_string()),
        };
        self.actor = Actor::local(peer);
        self.origin = AuditOrigin { protocol: protocol.to_owned(), address: "local".to_owned(), session };
        match peer.pid {
            Some(pid) => self.with("pid", pid.to_string()),
            None => self,
        }
    }

    /// The same with one detail more.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Into<String>) -> AuditEntry {
        self.details.insert(name.into(), value.into());
        self
    }

    /// The same with a text that may be long: divided over `name`, `name part 2` and so on, each within its bound. What is longer
    /// than [`AuditEntry::LONG_PARTS_MAX`] of them is cut when the entry is written.
    #[must_use]
    pub fn with_long(self, name: &str, text: &str) -> AuditEntry {
        let (mut entry, mut rest) = (self, text);
        for part in 1..Self::LONG_PARTS_MAX {
            let (first, behind) = rest.split_at(rest.floor_char_boundary(Self::VALUE_BYTES_MAX));
            entry = entry.with(part_name(name, part), first);
            rest = behind;
            if rest.is_empty() {
                return entry;
            }
        }
        entry.with(part_name(name, Self::LONG_PARTS_MAX), rest)
    }

    /// The same, as it ended.
    #[must_use]
    pub fn ended(mut self, outcome: AuditOutcome, reason: impl Into<String>) -> AuditEntry {
        (self.outcome, self.reason) = (outcome, reason.into());
        self
    }
}

/// The name of a part of a long text.
fn part_name(name: &str, part: usize) -> String {
    if part == 1 { name.to_owned() } else { format!("{name} part {part}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_divided_within_the_bounds_and_nothing_of_it_is_left_out() {
        for length in [0, 1, 511, 512, 513, 5_000, 20_000] {
            let text = "a\u{e9}".repeat(length).chars().take(length).collect::<String>();
            let entry = AuditEntry::new("x", "").with_long("query", &text);
            let names = (1..=AuditEntry::LONG_PARTS_MAX).map(|part| part_name("query", part));
            let parts: Vec<&String> = names.map_while(|name| entry.details.get(&name)).collect();
            assert_eq!(parts.len(), entry.details.len());
            assert_eq!(parts.iter().map(|part| part.as_str()).collect::<String>(), text);
            let (_, whole) = parts.split_last().expect("there is one");
            assert!(whole.iter().all(|part| (509..=AuditEntry::VALUE_BYTES_MAX).contains(&part.len())));
        }
    }

    #[test]
    fn ranges_are_ascending_and_apart_whatever_the_order_and_every_id_is_in_one() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let mut reads = Reads::default();
            let ids: Vec<u64> = (0..random.usize(1..400)).map(|_| random.u64(1..3_000)).collect();
            ids.iter().for_each(|id| reads.push(*id));
            assert_eq!(reads.count, ids.len() as u64);
            assert!(reads.ranges.len() <= Reads::RANGES_MAX);
            assert!(reads.ranges.windows(2).all(|pair| pair[0].1 < pair[1].0), "{:?}", reads.ranges);
            assert!(reads.ranges.iter().all(|(first, last)| first <= last));
            let is_in = |id: &u64| reads.ranges.iter().any(|(first, last)| first <= id && id <= last);
            assert!(ids.iter().all(is_in));
            let distinct: std::collections::BTreeSet<u64> = ids.iter().copied().collect();
            assert_eq!(reads.wide, distinct.len() > Reads::RANGES_MAX, "it is wide only where the bound was met");
        }
    }

    #[test]
    fn a_run_takes_in_what_it_meets() {
        let mut reads = Reads::one(5);
        reads.push_run(20, 10, 3);
        reads.push(15);
        reads.push_run(4, 12, 7);
        assert_eq!(reads, Reads { count: 12, ranges: vec![(4, 20)], wide: false });
    }
}
