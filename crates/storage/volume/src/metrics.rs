//! Counters and latencies of an opened volume: [`Metrics`], and what is read from them: [`Status`].

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Distribution, Noted};
use hdrhistogram::Histogram;
use parking_lot::Mutex;

use crate::members::{COPIES_MAX, Epoch, Members};

/// The longest latency that is told apart: a minute, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// A new measurement counts an eighth: the mean follows a change within some tens of reads.
const WEIGHT: u64 = 8;

#[derive(Debug, Default)]
pub(crate) struct CopyMetrics {
    reads: AtomicU64,
    repaired: AtomicU64,
    failures: AtomicU64,
    /// A moving mean of the time of a read, ns; 0 before the first.
    read_ns: AtomicU64,
    /// Reads that were handed to its device and have not come back.
    handed: AtomicU64,
    read_times: Distribution,
    write_times: Distribution,
}

/// Reads in progress at which times are compared: as many as there are threads for reads.
const TOGETHER: u64 = 4;

impl CopyMetrics {
    pub(crate) fn read(&self, bytes: u64, took: Duration) {
        self.read_times.note(1, bytes, took);
        self.expect(took);
    }

    /// Lets a read count in the mean.
    fn expect(&self, took: Duration) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let (took, mean) = (took.as_nanos() as u64, self.read_ns.load(Ordering::Relaxed));
        let next = if mean == 0 { took } else { mean - mean / WEIGHT + took / WEIGHT };
        self.read_ns.store(next.max(1), Ordering::Relaxed);
    }

    /// As [`read`](CopyMetrics::read), of a read that was handed over as one of `handed`. It waited for the others: what counts in the mean is
    /// what a thread would have measured, one of a few, at the same rate (Little's law).
    pub(crate) fn read_of(&self, handed: u64, bytes: u64, took: Duration) {
        self.read_times.note(1, bytes, took);
        self.expect(took.mul_f64(TOGETHER as f64 / handed.max(TOGETHER) as f64));
    }

    /// Writes became durable in its journal together.
    pub(crate) fn wrote(&self, (writes, bytes): (u64, u64), took: Duration) {
        self.write_times.note(writes, bytes, took);
    }

    /// The times of reads, and of writes.
    pub(crate) fn times(&self) -> (Noted, Noted) {
        (self.read_times.noted(), self.write_times.noted())
    }

    /// A read is handed over; returns how many are.
    pub(crate) fn hand_over(&self) -> u64 {
        self.handed.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A read that was handed over is with the device no longer.
    pub(crate) fn returned(&self) {
        self.handed.fetch_sub(1, Ordering::Relaxed);
    }

    /// How long a further read would take, in a unit that is the same for all copies: so copies that are equally fast share the reads.
    pub(crate) fn expected(&self) -> u64 {
        self.read_ns().max(1).saturating_mul(TOGETHER + self.handed.load(Ordering::Relaxed))
    }

    pub(crate) fn read_ns(&self) -> u64 {
        self.read_ns.load(Ordering::Relaxed)
    }

    pub(crate) fn repaired(&self) {
        self.repaired.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Metrics {
    copies: [CopyMetrics; COPIES_MAX],
    reads: Mutex<Histogram<u64>>,
    writes: Mutex<Histogram<u64>>,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    /// Blocks that could not be repaired when they were read.
    pub(crate) damaged: AtomicU64,
    pub(crate) forged: AtomicU64,
    /// Blocks about whose sum the copies disagreed when the volume was opened.
    pub(crate) disputed: AtomicU64,
    pub(crate) scrubbed: AtomicU64,
    pub(crate) scrubs: AtomicU64,
    /// Chooses now and then another copy to read, so that its time is known.
    pub(crate) turn: AtomicU64,
}

fn histogram() -> Mutex<Histogram<u64>> {
    Mutex::new(Histogram::new_with_bounds(1, LONGEST_NS, 2).expect("the bounds are possible"))
}

impl Metrics {
    pub(crate) fn new() -> Metrics {
        Metrics {
            copies: Default::default(),
            reads: histogram(),
            writes: histogram(),
            read_bytes: AtomicU64::new(0),
            written_bytes: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            damaged: AtomicU64::new(0),
            forged: AtomicU64::new(0),
            disputed: AtomicU64::new(0),
            scrubbed: AtomicU64::new(0),
            scrubs: AtomicU64::new(0),
            turn: AtomicU64::new(0),
        }
    }

    pub(crate) fn copy(&self, number: u8) -> &CopyMetrics {
        &self.copies[number as usize]
    }

    pub(crate) fn read(&self, bytes: u64, took: Duration) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.reads.lock().saturating_record(took.as_nanos() as u64);
    }

    pub(crate) fn written(&self, bytes: u64, took: Duration) {
        self.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.writes.lock().saturating_record(took.as_nanos() as u64);
    }

    pub(crate) fn latencies(&self) -> (Histogram<u64>, Histogram<u64>) {
        (self.reads.lock().clone(), self.writes.lock().clone())
    }

    pub(crate) fn counts(&self, number: u8) -> (u64, u64, u64) {
        let copy = self.copy(number);
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&copy.reads), get(&copy.repaired), get(&copy.failures))
    }
}

/// What a copy is to the volume now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyState {
    /// It has every acknowledged write, and serves.
    InSync,
    /// It is being brought up to date.
    Syncing {
        /// Bytes still to be copied, at most.
        left: u64,
    },
    /// It failed, and is not recorded as excluded, since too few would be left: writes wait.
    Missing,
    /// It is excluded.
    Out {
        /// Bytes that it has missed, at most; for a replaced copy all of them.
        behind: u64,
    },
}

/// The space of a copy of a thin volume, as it was found last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopySpace {
    /// Bytes of the medium that its blocks take.
    pub allocated: u64,
    /// Free bytes of the medium; `None` if that is unknown.
    pub free: Option<u64>,
    /// Whether it keeps new data out, since too little is left.
    pub is_short: bool,
}

/// One copy, as [`crate::Volume::status`] reports it.
#[derive(Clone, Debug)]
pub struct CopyStatus {
    /// Its number.
    pub number: u8,
    /// What it is to the volume.
    pub state: CopyState,
    /// Whether nothing keeps an older owner from writing there.
    pub is_unfenced: bool,
    /// The durability of its medium, if it is attached.
    pub durability: Option<device::Durability>,
    /// Its space, if it is attached and the volume is thin.
    pub space: Option<CopySpace>,
    /// Blocks in place that were read from it by requests.
    pub reads: u64,
    /// Its damaged blocks that were written anew from another copy.
    pub repaired: u64,
    /// How often it failed.
    pub failures: u64,
    /// A moving mean of the time of a read from it, nanoseconds; 0 before the first.
    pub read_ns: u64,
    /// How long reads from it took, and what they moved.
    pub read_times: Noted,
    /// How long writes took until they were durable in its journal, and what they moved; without checkpoints and what resync copies.
    pub write_times: Noted,
}

/// A volume at one moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// The volume.
    pub volume: [u8; 16],
    /// Its size in bytes.
    pub bytes: u64,
    /// The epoch that is served.
    pub epoch: Epoch,
    /// Copies in sync.
    pub in_sync: Members,
    /// Copies that must work.
    pub min_copies: u8,
    /// Whether writes wait because too few copies work.
    pub is_frozen: bool,
    /// Whether blocks have space only where they have content.
    pub is_thin: bool,
    /// Its blocks are encrypted.
    pub is_encrypted: bool,
    /// Whether blocks that have no space may be written: only of a thin volume it may be false.
    pub has_room: bool,
    /// The epoch of another owner that has taken the volume over: this one serves nothing any more.
    pub superseded: Option<Epoch>,
    /// Each copy.
    pub copies: Vec<CopyStatus>,
    /// Latency of reads, nanoseconds.
    pub reads: Histogram<u64>,
    /// Latency of writes, nanoseconds.
    pub writes: Histogram<u64>,
    /// Bytes read by requests.
    pub read_bytes: u64,
    /// Bytes written by requests.
    pub written_bytes: u64,
    /// Bytes in the journals that a checkpoint will write in place.
    pub journaled_bytes: u64,
    /// Checkpoints since the opening.
    pub checkpoints: u64,
    /// Reads of blocks that are damaged on every copy.
    pub damaged: u64,
    /// Times that bytes of a copy had the checksum of an encrypted block and not its seal: somebody changed or moved them.
    pub forged: u64,
    /// Blocks about whose sum the copies disagreed at the opening.
    pub disputed: u64,
    /// Blocks that scrubs have read on each copy.
    pub scrubbed: u64,
    /// Scrubs that came to the end of the volume.
    pub scrubs: u64,
}
