//! What a profile says beside its stream: one object of JSON, and the reuse of each interval behind it.
//!
//! Invariant: what was not measured is absent and named in `lacks`; it is never 0.

use serde::{Deserialize, Serialize};

use crate::beside::BesideUse;
use crate::node_use::{Committers, CpuUse, JournalUse, NodeUse, WriteBacks};
use crate::reuse::ReuseCounts;

/// The largest number of structures in a profile.
pub const STRUCTURES_MAX: usize = 16;

/// Intervals of a profile at most: a month of hours. With more, two become one.
pub(crate) const INTERVALS_MAX: usize = 768;

/// The largest page of a profile, bytes.
pub const PAGE_BYTES_MAX: u64 = 1 << 20;

/// Something that a profile has not, so that plans which need it are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lack {
    /// Which structure (leaf, inner page, extent, ...) each access was to.
    Structures,
    /// Times of accesses: there is one interval, and no worst hour.
    Times,
    /// Writes: the trace has no operations, all count as reads.
    Writes,
    /// Sizes: the trace has none, every key counts as one page.
    Sizes,
    /// Flushes: how often something waited for the medium to be persistent.
    Flushes,
    /// The journal: sizes of records, arrivals, group commits.
    Journal,
    /// Processor time by component: how fast the workload could be on any medium.
    Cpu,
    /// How many requests were in progress at once.
    Concurrency,
    /// Hits in a page cache above the trace: the curve begins where that cache ends.
    HitsAbove,
    /// What does not go through a node's page cache: index files of search, blocks of volumes. Profiles up to version 2 lack it.
    BesideCache,
}

impl Lack {
    /// All of them.
    pub const ALL: [Lack; 10] = [
        Lack::Structures,
        Lack::Times,
        Lack::Writes,
        Lack::Sizes,
        Lack::Flushes,
        Lack::Journal,
        Lack::Cpu,
        Lack::Concurrency,
        Lack::HitsAbove,
        Lack::BesideCache,
    ];

    /// What it is, and what cannot be planned without it.
    pub fn text(self) -> &'static str {
        match self {
            Lack::Structures => "structures: one curve for everything; structures cannot be placed on different media",
            Lack::Times => "times: no rates and no worst hour",
            Lack::Writes => "writes: everything counts as a read; endurance and write-back cannot be planned",
            Lack::Sizes => "sizes: each key counts as one page",
            Lack::Flushes => "flushes: times of commits cannot be planned",
            Lack::Journal => "the journal: media for it cannot be planned",
            Lack::Cpu => "processor time: no bound by processors, so no rate can be promised",
            Lack::Concurrency => "concurrency: no queues, so no latency under load can be promised",
            Lack::BesideCache => {
                "what is beside the page cache: index files of search and blocks of volumes; media for them cannot be planned"
            }
            Lack::HitsAbove => "hits above: the trace lies below a page cache; the curve is that of what missed there",
        }
    }
}

/// Where a profile comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// `node`, or the format of an imported trace.
    pub kind: String,
    /// The program and version that made it.
    pub made_by: String,
    /// What a key is: `page` (of `page_bytes`), or `object` (of its own size).
    pub keys: String,
    /// Lines or records of the trace that were left out because they were bad.
    pub bad_lines: u64,
    /// Requests that are not accesses and were left out: deletes, discards.
    pub other_requests: u64,
    /// Flushes, if the trace has them.
    pub flushes: Option<u64>,
    /// Times that went back, and were taken to be the time before.
    pub times_back: u64,
}

/// What a structure was used for in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StructureUse {
    /// Accesses that read.
    pub reads: u64,
    /// Accesses that wrote.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Pages that were made: neither reads nor writes, and neither hits nor misses.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub made: u64,
    /// Their bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub made_bytes: u64,
    /// Reuse distances in the memory that all structures share.
    #[serde(skip)]
    pub reuse: ReuseCounts,
}

impl StructureUse {
    /// Adds another one.
    pub fn merge(&mut self, other: &StructureUse) {
        self.reads = self.reads.saturating_add(other.reads);
        self.writes = self.writes.saturating_add(other.writes);
        self.read_bytes = self.read_bytes.saturating_add(other.read_bytes);
        self.write_bytes = self.write_bytes.saturating_add(other.write_bytes);
        self.made = self.made.saturating_add(other.made);
        self.made_bytes = self.made_bytes.saturating_add(other.made_bytes);
        self.reuse.merge(&other.reuse);
    }
}

/// A part of the recorded time, with a set of curves of its own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Its begin, seconds after that of the profile.
    pub begin_s: u64,
    /// What each structure was used for, in the order of [`Summary::structures`].
    pub structures: Vec<StructureUse>,
}

impl Interval {
    /// All structures together.
    pub fn total(&self) -> StructureUse {
        self.structures.iter().fold(StructureUse::default(), |mut sum, used| {
            sum.merge(used);
            sum
        })
    }
}

/// See the head comment of this file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Where it comes from.
    pub origin: Origin,
    /// What it has not, in order.
    pub lacks: Vec<Lack>,
    /// Length of the recorded time, seconds.
    pub seconds: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Names of the structures; 1 to [`STRUCTURES_MAX`].
    pub structures: Vec<String>,
    /// Structures that do not go through the page cache; the distances of each count its own bytes alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<BesideUse>,
    /// Keys of the page cache, or of the trace, that were used: an estimate.
    pub touched_keys: u64,
    /// Their bytes: an estimate.
    pub touched_bytes: u64,
    /// Length of an interval, seconds: an hour, doubled until there are few enough.
    pub interval_s: u64,
    /// The intervals, by time; those without an access are left out.
    pub intervals: Vec<Interval>,
    /// Part of all keys in the stream, above 0 to 1.
    pub stream_rate: f64,
    /// Hashes at or above are not in the sample of the stream; none: all are.
    pub stream_threshold: Option<u64>,
    /// Accesses in the stream, whatever its threshold was at their time.
    pub stream_entries: u64,
    /// What checkpoints wrote.
    pub write_backs: Option<WriteBacks>,
    /// What the journal did.
    pub journal: Option<JournalUse>,
    /// How many worked at once.
    pub committers: Option<Committers>,
    /// Processor time by component; empty if it was not measured.
    pub cpu: Vec<CpuUse>,
    /// What only a node's profile has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeUse>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Summary {
    /// The sums of all intervals, by structure.
    pub fn totals(&self) -> Interval {
        let mut sum = Interval { begin_s: 0, structures: vec![StructureUse::default(); self.structures.len()] };
        for interval in &self.intervals {
            for (sum, used) in sum.structures.iter_mut().zip(&interval.structures) {
                sum.merge(used);
            }
        }
        sum
    }

    /// Whether a structure does not go through the page cache.
    pub fn is_beside(&self, structure: u8) -> bool {
        self.beside.iter().any(|beside| beside.structure == structure)
    }

    /// What goes through the page cache in an interval, all structures together.
    pub fn cached_in(&self, interval: &Interval) -> StructureUse {
        let cached = (0..).zip(&interval.structures).filter(|(structure, _)| !self.is_beside(*structure));
        cached.fold(StructureUse::default(), |mut sum, (_, used)| {
            sum.merge(used);
            sum
        })
    }

    /// What goes through the page cache, all structures and intervals together.
    pub fn cached(&self) -> StructureUse {
        self.cached_in(&self.totals())
    }

    /// Whether it has this.
    pub fn has(&self, lack: Lack) -> bool {
        !self.lacks.contains(&lack)
    }

    /// What contradicts itself, in words: a file from outside may say anything.
    pub(crate) fn contradiction(&self) -> Option<String> {
        let structures = self.structures.len();
        if !(1..=STRUCTURES_MAX).contains(&structures) {
            return Some(format!("it has {structures} structures"));
        }
        let origin = &self.origin;
        let hours = self.node.iter().flat_map(|node| &node.hours);
        let components = self.cpu.iter().chain(hours.clone().flat_map(|hour| &hour.cpu)).map(|used| &used.component);
        let mut names = self.structures.iter().chain([&origin.kind, &origin.made_by, &origin.keys]).chain(components);
        // They are printed on terminals.
        let is_name =
            |name: &String| (1..=64).contains(&name.len()) && name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !names.all(is_name) {
            return Some("a name is not 1 to 64 printable characters".into());
        }
        if !(1..=PAGE_BYTES_MAX).contains(&self.page_bytes) || self.interval_s == 0 {
            return Some("pages have not 1 byte to 1 MiB, or intervals no length".into());
        }
        if !(self.stream_rate > 0.0 && self.stream_rate <= 1.0) {
            return Some("the part of keys in the stream is not above 0 to 1".into());
        }
        let mut beside: Vec<u8> = self.beside.iter().map(|beside| beside.structure).collect();
        beside.sort_unstable();
        beside.dedup();
        let is_there = |structure: &u8| usize::from(*structure) < structures;
        if beside.len() != self.beside.len() || !beside.iter().all(is_there) || beside.len() == structures {
            return Some("structures beside the page cache are not there, twice, or all that there are".into());
        }
        if self.intervals.len() > INTERVALS_MAX {
            return Some(format!("it has {} intervals", self.intervals.len()));
        }
        if self.intervals.iter().any(|interval| interval.structures.len() != structures) {
            return Some("an interval has other structures".into());
        }
        if hours.count() > INTERVALS_MAX {
            return Some("it has more hours than a profile can have".into());
        }
        None
    }
}
