//! One committer, records of 1 KiB: the journal on persistent memory, beside the bare instructions and beside a disk.
//!
//! ```text
//! round:   bare, 1024 bytes   ->   bare, what the journal writes   ->   journal, pmem   ->   journal, disk   ->  next round
//!          past the cache, fence    the same with header and padding     a mapping             file + fdatasync
//! ```
//!
//! The engines stay open and take short turns, so that a slow moment of the machine hits all of them; ratios are taken
//! within a round, and the median round's is reported. The committer is kept, as a thread that commits often keeps its own. The
//! journal is preallocated and its segments are recycled by truncation, which is inside the measured time. Its segments, and the region of the bare stores, are walked
//! around once before anything is counted.
//!
//! Not measured: many committers (`journal`'s example `commit_bench`), other sizes, reading.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use device::pmem::bare::{Bare, Stores};
use device::pmem::{Absent, PmemOptions, PmemShelf};
use device::{AlignedBuffer, FileOptions, FileShelf, Shelf};
use journal::{Committer, Journal, Options};

use super::clock::{Latency, less};
use workload::histogram::Histogram;
use workload::interrupt;
use workload::process::cpu_ns;

/// Bytes of a record.
pub(super) const RECORD_BYTES: usize = 1024;
/// Looks at the clock that ends a turn: one for so many commits, a power of two.
const STRIDE: u64 = 16;
/// How far apart truncations are: a quarter of a segment.
const TRUNCATE_EVERY: u64 = 4;

/// The options of the measurement.
pub(super) struct CommitsPlan<'a> {
    /// Folder of the bare mapping and of the journal on persistent memory.
    pub(super) memory: &'a Path,
    /// Folder of the journal on the disk.
    pub(super) disk: &'a Path,
    /// How often each engine takes a turn.
    pub(super) rounds: usize,
    /// How long a turn takes.
    pub(super) turn: Duration,
    /// Bytes of a segment.
    pub(super) segment: u64,
}

/// The result of one engine.
#[derive(Clone, Debug)]
pub(super) struct CommitsRow {
    /// Its kind.
    pub(super) name: String,
    /// Its medium, in the device's words.
    pub(super) medium: String,
    /// `power-fail-safe`, `emulated`, `none`.
    pub(super) durability: &'static str,
    /// `ntstore`, or `none` for a disk.
    pub(super) store: &'static str,
    /// Bytes that a commit writes to the medium.
    pub(super) written: f64,
    /// Commits in a second, over all turns.
    pub(super) per_s: f64,
    /// Of one commit, the clock in it.
    pub(super) latency: Latency,
    /// Processor time of the whole process for a commit, nanoseconds.
    pub(super) cpu_ns: f64,
}

/// How two engines compare: of the ratios of their medians in each round, the median and the quartiles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The four engines and what they show.
#[derive(Clone, Debug)]
pub(super) struct Commits {
    pub(super) rows: [CommitsRow; 4],
    /// Journal on persistent memory over the bare stores of a record's bytes; the clock in both.
    pub(super) over_bare: Ratio,
    /// The same, the clock's cost taken off both.
    pub(super) over_bare_less: Ratio,
    /// Over the bare stores of as many bytes as the journal writes, the clock's cost taken off both.
    pub(super) over_same_less: Ratio,
    /// Journal on the disk over the journal on persistent memory; the clock in both.
    pub(super) disk_over: Ratio,
}

/// Measures all of it; `clock_ns` is what a look at the clock before and after costs.
pub(super) fn measure(plan: &CommitsPlan<'_>, clock_ns: f64) -> anyhow::Result<Commits> {
    let memory = PmemShelf::open(&plan.memory.join("journal"), PmemOptions { absent: Absent::Emulate })?;
    let mapping = memory.mapping();
    let (shelf_text, shelf_durability) = (mapping.to_string(), mapping.durability.as_str());
    let memory = open(Arc::new(memory), plan.segment)?;
    let mut on_memory = OnJournal::new(&memory, plan.segment);
    let disk = FileShelf::open(&plan.disk.join("journal"), FileOptions::default())?;
    let (disk_text, disk_durability) = (disk.kind().to_string(), disk.kind().durability.as_str());
    let disk = open(Arc::new(disk), plan.segment)?;
    let mut on_disk = OnJournal::new(&disk, plan.segment);

    let region = usize::try_from(plan.segment * 2).context("the segment is larger than memory")?;
    let bare = |name: &str| Bare::on_file(&plan.memory.join(name), region).context("mapping the bare file");
    warm(&mut on_memory, plan.segment * 3)?;
    warm(&mut on_disk, 1 << 18)?;
    let (on_lines, on_blocks) = (on_memory.written_bytes()?, on_disk.written_bytes()?);
    let frame = on_lines.next_multiple_of(16);
    let mut same = OnBare::new(bare("bare-batch")?, frame);
    let mut record = OnBare::new(bare("bare-record")?, RECORD_BYTES);

    let mut turns: [Vec<Turn>; 4] = Default::default();
    for _ in 0..plan.rounds {
        turns[0].push(turn(plan.turn, |_| record.commit())?);
        turns[1].push(turn(plan.turn, |_| same.commit())?);
        turns[2].push(turn(plan.turn, |bytes| on_memory.commit(bytes))?);
        turns[3].push(turn(plan.turn, |bytes| on_disk.commit(bytes))?);
    }
    let bare_text = format!("a shared mapping on {}, processor instructions alone", mapping.file_system);
    let row = |at: usize, name: &str, medium: &str, durability, store, written: usize| {
        CommitsRow::of(&turns[at], CommitsRow::named(name, medium, durability, store, written as f64))
    };
    let rows = [
        row(0, "bare ntstore + fence, 1,024 B", &bare_text, "none", "ntstore", RECORD_BYTES),
        row(1, &format!("bare ntstore + fence, {frame} B"), &bare_text, "none", "ntstore", frame),
        row(2, "journal, persistent memory", &shelf_text, shelf_durability, "ntstore", on_lines),
        row(3, "journal, disk, fdatasync", &disk_text, disk_durability, "none", on_blocks),
    ];
    let raw = |turn: &Turn| turn.latency.p50;
    let lessened = |turn: &Turn| less(turn.latency.p50, clock_ns);
    Ok(Commits {
        over_bare: Ratio::of(&turns[2], &turns[0], raw),
        over_bare_less: Ratio::of(&turns[2], &turns[0], lessened),
        over_same_less: Ratio::of(&turns[2], &turns[1], lessened),
        disk_over: Ratio::of(&turns[3], &turns[2], raw),
        rows,
    })
}

/// One engine's turn.
#[derive(Clone, Debug)]
struct Turn {
    commits: u64,
    seconds: f64,
    cpu_ns: f64,
    latency: Latency,
    histogram: Histogram,
}

/// Commits for so long.
fn turn(time: Duration, mut commit: impl FnMut(&[u8]) -> anyhow::Result<()>) -> anyhow::Result<Turn> {
    interrupt::check()?;
    let record = AlignedBuffer::from(&[0x5a; RECORD_BYTES][..]);
    let mut histogram = Histogram::default();
    let (cpu, begun) = (cpu_ns(), Instant::now());
    let mut commits = 0;
    loop {
        let before = Instant::now();
        commit(&record)?;
        let took = before.elapsed();
        histogram.record(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        commits += 1;
        // Slow commits: after each; fast ones: now and then.
        if (took > time / 64 || commits % STRIDE == 0) && begun.elapsed() >= time {
            break;
        }
    }
    let (seconds, cpu_ns) = (begun.elapsed().as_secs_f64(), cpu_ns() - cpu);
    Ok(Turn { commits, seconds, cpu_ns, latency: Latency::of(&histogram), histogram })
}

/// Bare stores, around and around in the mapping.
struct OnBare {
    bare: Bare,
    data: AlignedBuffer,
    offset: usize,
}

impl OnBare {
    fn new(bare: Bare, bytes: usize) -> OnBare {
        OnBare { bare, data: AlignedBuffer::from(&vec![0x5a; bytes][..]), offset: 0 }
    }

    fn commit(&mut self) -> anyhow::Result<()> {
        if self.offset + self.data.len() > self.bare.len() {
            self.offset = 0;
        }
        self.bare.store(Stores::PastCache, self.offset, &self.data);
        self.bare.fence();
        self.offset += self.data.len();
        Ok(())
    }
}

fn open(shelf: Arc<dyn Shelf>, segment: u64) -> anyhow::Result<Journal> {
    Ok(Journal::open(shelf, Options { segment_bytes: segment, ..Options::default() })?.0)
}

/// A journal and the one that commits to it.
struct OnJournal<'a> {
    journal: &'a Journal,
    committer: Committer<'a>,
    segment: u64,
    truncated: u64,
}

impl<'a> OnJournal<'a> {
    fn new(journal: &'a Journal, segment: u64) -> OnJournal<'a> {
        OnJournal { journal, committer: journal.committer(), segment, truncated: 0 }
    }

    fn commit(&mut self, record: &[u8]) -> anyhow::Result<()> {
        let lsn = self.committer.append_commit(1, &[record])?;
        // As in a node: delivered records are truncated, and their segments are used again.
        if lsn.0 - self.truncated > self.segment / TRUNCATE_EVERY {
            self.journal.truncate(lsn)?;
            self.truncated = lsn.0;
        }
        Ok(())
    }

    /// Bytes that a commit writes, with header and padding: of three, the middle, since one may meet a segment's end.
    fn written_bytes(&mut self) -> anyhow::Result<usize> {
        let mut written = [0; 3];
        for bytes in &mut written {
            let before = self.journal.stats().written_bytes;
            self.commit(&[0x5a; RECORD_BYTES])?;
            *bytes = usize::try_from(self.journal.stats().written_bytes - before)?;
        }
        written.sort_unstable();
        Ok(written[1])
    }
}

/// Commits so many bytes of records before anything is counted.
fn warm(engine: &mut OnJournal<'_>, bytes: u64) -> anyhow::Result<()> {
    let record = [0x5a; RECORD_BYTES];
    for _ in 0..bytes / RECORD_BYTES as u64 {
        interrupt::check()?;
        engine.commit(&record)?;
    }
    Ok(())
}

impl CommitsRow {
    /// A row without figures yet.
    fn named(name: &str, medium: &str, durability: &'static str, store: &'static str, written: f64) -> CommitsRow {
        let (name, medium) = (name.to_owned(), medium.to_owned());
        CommitsRow { name, medium, durability, store, written, per_s: 0.0, latency: Latency::default(), cpu_ns: 0.0 }
    }

    /// `row` with the figures of its turns.
    fn of(turns: &[Turn], row: CommitsRow) -> CommitsRow {
        let mut all = Histogram::default();
        turns.iter().for_each(|turn| all.add(&turn.histogram));
        let sum = |of: fn(&Turn) -> f64| turns.iter().map(of).sum::<f64>();
        let commits = sum(|turn| turn.commits as f64);
        let (seconds, cpu) = (sum(|turn| turn.seconds), sum(|turn| turn.cpu_ns));
        CommitsRow { per_s: commits / seconds, latency: Latency::of(&all), cpu_ns: cpu / commits, ..row }
    }
}

impl Ratio {
    /// Of `value` of `over` to that of `under`, turn by turn.
    fn of(over: &[Turn], under: &[Turn], value: impl Fn(&Turn) -> f64) -> Ratio {
        Ratio::among(over.iter().zip(under).map(|(over, under)| value(over) / value(under).max(1.0)).collect())
    }

    /// Of the rounds' ratios; there must be one.
    pub(crate) fn among(mut ratios: Vec<f64>) -> Ratio {
        ratios.sort_by(f64::total_cmp);
        let at = |quarter: usize| ratios[(ratios.len() - 1) * quarter / 4];
        Ratio { median: at(2), low: at(1), high: at(3) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_engines_commit_in_turns_and_each_has_figures() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in ["memory", "disk"] {
            std::fs::create_dir(folder.path().join(name)).expect("a folder");
        }
        let (memory, disk) = (folder.path().join("memory"), folder.path().join("disk"));
        let turn = Duration::from_millis(2);
        let plan = CommitsPlan { memory: &memory, disk: &disk, rounds: 3, turn, segment: 1 << 20 };
        let commits = measure(&plan, 20.0).expect("measured");
        for row in &commits.rows {
            assert!(row.latency.p50 > 0.0 && row.per_s > 0.0 && row.cpu_ns > 0.0, "{row:?}");
            assert!(row.written >= RECORD_BYTES as f64, "{row:?}");
        }
        for ratio in [commits.over_bare, commits.over_bare_less, commits.over_same_less, commits.disk_over] {
            assert!(ratio.low <= ratio.median && ratio.median <= ratio.high && ratio.low > 0.0, "{ratio:?}");
        }
        assert_eq!(
            commits.rows[2].written % 256.0,
            0.0,
            "a journal on lines writes whole units: {:?}",
            commits.rows[2]
        );
    }

    #[test]
    fn a_ratio_is_the_median_of_the_rounds_with_its_quartiles() {
        let ratio = Ratio::among(vec![3.0, 1.0, 2.0, 5.0, 4.0]);
        assert_eq!(ratio, Ratio { median: 3.0, low: 2.0, high: 4.0 });
    }
}
