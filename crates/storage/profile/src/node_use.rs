//! What a node knows of its work beside the accesses to its pages: journal, checkpoints, processor time, threads.
//!
//! All of it are differences of counters between the begin and the end of the profile; distributions are lists of classes, each with its
//! largest value. There are names of the program here (components), and no others.

use serde::{Deserialize, Serialize};

/// What the journal did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct JournalUse {
    /// Records appended.
    pub records: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Sizes of records: the largest size of a class, bytes, and how many.
    pub record_bytes: Vec<(u64, u64)>,
}

/// How many worked at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Committers {
    /// How many commits waited for one flush: the largest number of a class, and how often.
    pub waiting: Vec<(u32, u64)>,
    /// Threads that ran or could run: the largest number of a class, and how many samples showed it.
    pub runnable: Vec<(u32, u64)>,
}

/// Pages that were written back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WriteBacks {
    /// Checkpoints.
    pub checkpoints: u64,
    /// Bytes that they wrote, images included.
    pub bytes: u64,
}

/// Processor time of one component.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuUse {
    /// `journal`, `applier`, `sql`, ...
    pub component: String,
    /// Processor time, seconds.
    pub seconds: f64,
}

/// The page cache while the profile was recorded: what a prediction from the profile can be compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheUse {
    /// Near memory, bytes.
    pub near_bytes: u64,
    /// Far memory, bytes.
    pub far_bytes: u64,
    /// Accesses that were found in near memory, inner pages included.
    pub near_hits: u64,
    /// Accesses that were found in far memory.
    pub far_hits: u64,
    /// Accesses that had to read from a device.
    pub misses: u64,
}

/// What a node did in one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeHour {
    /// Its begin, seconds after that of the profile.
    pub begin_s: u64,
    /// Records of the journal.
    pub records: u64,
    /// Their bytes.
    pub record_bytes: u64,
    /// Flushes of the journal.
    pub flushes: u64,
    /// Hits of the page cache.
    pub hits: u64,
    /// Its misses.
    pub misses: u64,
    /// Checkpoints that ended.
    pub checkpoints: u64,
    /// The largest number of threads that ran or could run.
    pub runnable_max: u32,
    /// Processor time by component.
    pub cpu: Vec<CpuUse>,
}

impl NodeHour {
    /// Adds another one.
    pub fn merge(&mut self, other: &NodeHour) {
        self.records += other.records;
        self.record_bytes += other.record_bytes;
        self.flushes += other.flushes;
        self.hits += other.hits;
        self.misses += other.misses;
        self.checkpoints += other.checkpoints;
        self.runnable_max = self.runnable_max.max(other.runnable_max);
        for used in &other.cpu {
            match self.cpu.iter_mut().find(|own| own.component == used.component) {
                Some(own) => own.seconds += used.seconds,
                None => self.cpu.push(used.clone()),
            }
        }
    }
}

/// What only a profile of a node has.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeUse {
    /// Whether the node ended before the recording was stopped: what came after the last saved state is not in it.
    pub is_interrupted: bool,
    /// When it began, seconds since 1970.
    pub begun_s: u64,
    /// Sampled accesses that were lost because their buffers were full. They count as hits.
    pub dropped: u64,
    /// Pages that were left out of the sample because they alone would have filled it. Their accesses count as hits.
    pub left_out: u64,
    /// The page cache.
    pub cache: CacheUse,
    /// Bytes of changed pages that a checkpoint began with: the largest size of a class, and how many checkpoints.
    pub checkpoint_dirty: Vec<(u64, u64)>,
    /// Of the bytes that checkpoints wrote, those of the write image journal.
    pub image_bytes: u64,
    /// Bytes that the journal wrote, with headers and padding.
    pub journal_written_bytes: u64,
    /// Microseconds that its writes took with their flushes; those that overlapped count each.
    pub journal_write_us: u64,
    /// Time that threads were ready and waited for a processor, seconds, by component.
    pub cpu_waits: Vec<CpuUse>,
    /// Processors of the machine.
    pub processors: u32,
    /// By interval.
    pub hours: Vec<NodeHour>,
}

/// All that a node says about its work, for [`Recorder::set_about`](crate::Recorder::set_about).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeFigures {
    /// What only a node has.
    pub node: NodeUse,
    /// What checkpoints wrote.
    pub write_backs: WriteBacks,
    /// What the journal did.
    pub journal: JournalUse,
    /// How many worked at once.
    pub committers: Committers,
    /// Processor time by component.
    pub cpu: Vec<CpuUse>,
}
