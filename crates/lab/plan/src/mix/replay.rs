//! The worst minute, replayed on the timing models with virtual time: tails are counted, not computed by a formula.
//!
//! ```text
//!   access   near: near memory's budget    far: that of its modules    device: the drives', then near memory
//!   commit   a processor of m, first come first served -> the journal
//!              persistent memory: each writes its record itself
//!              drives: one write and flush at a time, for all that wait
//!   behind   pages that leave near memory go to far memory; changed pages are written back, evenly over the minute; index files of search and
//!            blocks of volumes are read and written
//! ```
//!
//! Each access of the sample stands for several, which are spread over the time of the next 32: others come then as it does now. If that makes too many, times are compressed: rates
//! stay, bursts become shorter. Everything on the same modules has one budget: Dual shows what far memory does to the journal.
//!
//! Invariants: the same input gives the same result; nothing is charged before the time at which it comes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use catalogue::budget::Request;
use catalogue::medium::{Direction, Pattern};
use catalogue::model::Access;
use catalogue::{Budget, Model};

use super::beside::BesideLoad;
use super::served::MinuteAccess;

/// Accesses of a replay at most.
const ACCESSES_MAX: f64 = 60_000.0;
/// Commits of a replay at most.
const COMMITS_MAX: f64 = 60_000.0;
/// Commits of a replay at least, so that a percentile can be counted: where there are fewer, some are added.
const COMMITS_LEAST: f64 = 300.0;
/// An access that stands for several is spread over the time of so many accesses of the sample.
const SPREAD: usize = 32;
const SEED: u64 = 1;

/// A medium with its budget.
#[derive(Clone, Debug)]
pub(super) struct ReplayMedium<'a> {
    /// Its model.
    pub model: &'a Model,
    /// Its budget, which others may share.
    pub budget: Arc<Budget>,
}

/// The media of a mix.
#[derive(Clone, Debug)]
pub(super) struct ReplayMedia<'a> {
    /// Near memory.
    pub near: ReplayMedium<'a>,
    /// Far memory.
    pub far: Option<ReplayMedium<'a>>,
    /// The data.
    pub data: ReplayMedium<'a>,
    /// The journal.
    pub journal: ReplayMedium<'a>,
}

/// The load.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplayLoad<'a> {
    /// The worst minute.
    pub accesses: &'a [MinuteAccess],
    /// Where each of them is found.
    pub found: &'a [u8],
    /// Length of the minute, seconds.
    pub seconds: f64,
    /// How many accesses each stands for.
    pub stands_for: f64,
    /// How many times faster everything comes than in the record.
    pub faster: f64,
    /// Bytes that are written back for each access.
    pub write_back_bytes: f64,
    /// Bytes of the write image journal for each access that lie on the journal's medium.
    pub image_bytes: f64,
    /// What the data drives do beside it.
    pub beside: &'a [BesideLoad],
    /// Bytes that are written back at a time.
    pub write_back_unit: u64,
    /// Part of the uses in far memory that promote.
    pub promote: f64,
    /// How the journal's writes count.
    pub journal_pattern: Pattern,
    /// Commits each second of the record, and bytes of one.
    pub commits: Option<(f64, f64)>,
    /// Processors, and processor time of a commit, seconds.
    pub processors: Option<(u32, f64)>,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Replayed {
    /// Mean of an access, seconds.
    pub mean_read_s: f64,
    /// Its standard deviation.
    pub spread_read_s: f64,
    /// 99 of 100.
    pub p99_read_s: f64,
    /// Half of all commits.
    pub p50_commit_s: Option<f64>,
    /// 99 of 100.
    pub p99_commit_s: Option<f64>,
    /// The part of its time to which the minute was compressed; 1: it was not.
    pub squeeze: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Happens {
    Access(usize),
    WriteBack,
    /// A page of the write image journal, on the journal's medium.
    Image,
    /// A read or a write of this load beside the page cache.
    Beside(usize, bool),
    /// A commit comes.
    Commit,
    /// A commit that came then has left its processor.
    Ready(u64),
    JournalFree,
}

struct Replay<'a> {
    media: &'a ReplayMedia<'a>,
    load: &'a ReplayLoad<'a>,
    events: BinaryHeap<Reverse<(u64, u64, Happens)>>,
    order: u64,
    queue: u64,
    random: fastrand::Rng,
    processors: BinaryHeap<Reverse<u64>>,
    waiting: Vec<u64>,
    in_flight: Vec<u64>,
    is_writing: bool,
    reads: Vec<f64>,
    commits: Vec<f64>,
    squeeze: f64,
}

/// Replays a load on media.
pub(super) fn replay(media: &ReplayMedia<'_>, load: &ReplayLoad<'_>) -> Replayed {
    let mut work = Replay {
        media,
        load,
        events: BinaryHeap::new(),
        order: 0,
        queue: 0,
        random: fastrand::Rng::with_seed(SEED),
        processors: (0..load.processors.map_or(0, |(many, _)| many)).map(|_| Reverse(0)).collect(),
        waiting: Vec::new(),
        in_flight: Vec::new(),
        is_writing: false,
        reads: Vec::new(),
        commits: Vec::new(),
        squeeze: 1.0,
    };
    work.arrivals();
    while let Some(Reverse((now, _, happens))) = work.events.pop() {
        work.happen(now, happens);
    }
    let mut replayed = work.result();
    if replayed.squeeze < 1.0 {
        add_backlog(media, load, &mut replayed);
    }
    replayed
}

/// Compressed times have short queues of long bursts: what piles up on the data drives from second to second is counted apart, as a fluid.
fn add_backlog(media: &ReplayMedia<'_>, load: &ReplayLoad<'_>, replayed: &mut Replayed) {
    let seconds = load.seconds.ceil().max(1.0) as usize;
    let (mut device, mut all, mut bytes) = (vec![0.0; seconds], vec![0.0; seconds], vec![0.0; seconds]);
    for (access, found) in load.accesses.iter().zip(load.found) {
        let at = ((access.at_ns / 1_000_000_000) as usize).min(seconds - 1);
        all[at] += load.stands_for;
        if *found == 2 {
            device[at] += load.stands_for;
            bytes[at] += load.stands_for * f64::from(access.bytes);
        }
    }
    let busy_s = |direction: Direction, bytes: f64| {
        let model = media.data.model;
        let bytes = bytes.ceil().max(1.0) as u64;
        let access = Access { direction, pattern: Pattern::Random, store: model.store(bytes), bytes, overlapped: true };
        model.at_least(&access) * 1e-9
    };
    let accesses: f64 = all.iter().sum();
    let unit = load.write_back_unit as f64;
    let of_pages_s = accesses * load.write_back_bytes / unit / seconds as f64 * busy_s(Direction::Write, unit);
    let of_load = |one: &BesideLoad| {
        one.reads_per_s * busy_s(Direction::Read, one.read_bytes)
            + one.writes_per_s * busy_s(Direction::Write, one.write_bytes)
    };
    let written_s = of_pages_s + load.beside.iter().map(of_load).sum::<f64>();
    let (mut backlog, mut waits, mut of_seconds) = (0.0_f64, Vec::new(), Vec::new());
    for (many, (all, bytes)) in device.iter().zip(all.iter().zip(&bytes)) {
        let read_s = if *many > 0.0 { many * busy_s(Direction::Read, bytes / many) } else { 0.0 };
        let after = (backlog + read_s + written_s - 1.0 / load.faster).max(0.0);
        let wait = (backlog + after) / 2.0;
        waits.extend([(wait, *many), (0.0, all - many)]);
        of_seconds.push((wait, 1.0));
        backlog = after;
    }
    replayed.p99_read_s = replayed.p99_read_s.max(weighted_p99(waits));
    if Arc::ptr_eq(&media.journal.budget, &media.data.budget)
        && let Some(commit) = &mut replayed.p99_commit_s
    {
        *commit = commit.max(weighted_p99(of_seconds));
    }
}

/// The value below which 99 of 100 lie, by weight.
fn weighted_p99(mut values: Vec<(f64, f64)>) -> f64 {
    values.sort_by(|one, two| one.0.total_cmp(&two.0));
    let wanted = values.iter().map(|(_, weight)| weight).sum::<f64>() * 0.99;
    let mut sum = 0.0;
    for (value, weight) in &values {
        sum += weight;
        if sum >= wanted {
            return *value;
        }
    }
    values.last().map_or(0.0, |(value, _)| *value)
}

/// The value below which so large a part lies; 0 of nothing.
fn quantile(sorted: &[f64], part: f64) -> f64 {
    let at = (sorted.len() as f64 * part).ceil() as usize;
    sorted.get(at.saturating_sub(1).min(sorted.len().saturating_sub(1))).copied().unwrap_or(0.0)
}

impl Replay<'_> {
    fn push(&mut self, at: u64, happens: Happens) {
        self.order += 1;
        self.events.push(Reverse((at, self.order, happens)));
    }

    /// All that comes from outside.
    fn arrivals(&mut self) {
        let ReplayLoad { accesses, seconds, stands_for, faster, commits, .. } = *self.load;
        let all = accesses.len() as f64 * stands_for;
        let commits = commits.map_or(0.0, |(per_s, _)| per_s * seconds);
        let written = all * (self.load.write_back_bytes + self.load.image_bytes) / self.load.write_back_unit as f64;
        let beside: f64 = self.load.beside.iter().map(|one| (one.reads_per_s + one.writes_per_s) * seconds).sum();
        let squeeze = (ACCESSES_MAX / all.max(1.0))
            .min(COMMITS_MAX / commits.max(1.0))
            .min(ACCESSES_MAX / written.max(1.0))
            .min(ACCESSES_MAX / beside.max(1.0))
            .min(1.0);
        self.squeeze = squeeze;
        let scale = squeeze / faster;
        let time = |at_ns: f64| (at_ns * scale) as u64;
        let end = seconds * 1e9;
        let (mut debt, mut written) = (0.0, 0.0);
        for (number, access) in accesses.iter().enumerate() {
            let at = access.at_ns as f64;
            // At least as long as so many take on average: some come at the same time.
            let next = accesses.get(number + SPREAD).map_or(end, |next| next.at_ns as f64);
            let next = next.max(at + SPREAD as f64 * end / accesses.len() as f64).min(end);
            debt += stands_for * squeeze;
            let many = debt.floor();
            debt -= many;
            for _ in 0..many as u64 {
                let spread = if many > 1.0 { self.random.f64() * (next - at) } else { 0.0 };
                self.push(time(at + spread), Happens::Access(number));
                written += self.load.write_back_bytes;
            }
        }
        let unit = self.load.write_back_unit as f64;
        let images = all * squeeze * self.load.image_bytes / unit;
        self.evenly(written / unit, end * scale, Happens::WriteBack);
        self.evenly(images, end * scale, Happens::Image);
        for (number, one) in self.load.beside.iter().enumerate() {
            self.evenly(one.reads_per_s * seconds * squeeze, end * scale, Happens::Beside(number, false));
            self.evenly(one.writes_per_s * seconds * squeeze, end * scale, Happens::Beside(number, true));
        }
        let many = if commits > 0.0 { (commits * squeeze).max(COMMITS_LEAST) } else { 0.0 };
        self.commit_arrivals(many.round() as usize, end, scale);
    }

    /// So many of them, evenly until the end.
    fn evenly(&mut self, many: f64, end: f64, happens: Happens) {
        let many = many.round() as u64;
        for number in 0..many {
            self.push((end * (number as f64 + 0.5) / many as f64) as u64, happens);
        }
    }

    /// Commits come as writes do, or as accesses where there is no write.
    fn commit_arrivals(&mut self, many: usize, end: f64, scale: f64) {
        let writes: Vec<u64> =
            self.load.accesses.iter().filter(|access| access.is_write).map(|access| access.at_ns).collect();
        let times: Vec<u64> =
            if writes.len() > 1 { writes } else { self.load.accesses.iter().map(|access| access.at_ns).collect() };
        for number in 0..many {
            let at = number * times.len() / many;
            let from = times.get(at).map_or(end * number as f64 / many as f64, |at| *at as f64);
            let to = times.get(at + 1).map_or(end, |at| *at as f64);
            let came = from + self.random.f64() * (to - from);
            self.push((came * scale) as u64, Happens::Commit);
        }
    }

    fn happen(&mut self, now: u64, happens: Happens) {
        let media = self.media;
        match happens {
            Happens::Access(number) => self.access(now, number),
            Happens::WriteBack => {
                let request = self.request(Direction::Write, Pattern::Random, self.load.write_back_unit);
                self.take(&media.data, now, &request);
            }
            Happens::Image => {
                let request = self.request(Direction::Write, Pattern::Sequential, self.load.write_back_unit);
                self.take(&media.journal, now, &request);
            }
            Happens::Beside(number, is_write) => {
                let one = &self.load.beside[number];
                let (direction, bytes) =
                    if is_write { (Direction::Write, one.write_bytes) } else { (Direction::Read, one.read_bytes) };
                let request = self.request(direction, Pattern::Random, bytes.ceil().max(1.0) as u64);
                self.take(&media.data, now, &request);
            }
            Happens::Commit => {
                let ready = self.processor(now);
                self.push(ready, Happens::Ready(now));
            }
            Happens::Ready(came) if media.journal.model.kind().is_addressed() => {
                let bytes = self.commit_bytes(1);
                let request = self.request(Direction::Write, self.load.journal_pattern, bytes);
                let done = self.take(&media.journal, now, &request);
                self.commits.push((done - came as f64) * 1e-9);
            }
            Happens::Ready(came) => {
                self.waiting.push(came);
                if !self.is_writing {
                    self.write(now);
                }
            }
            Happens::JournalFree => {
                for came in std::mem::take(&mut self.in_flight) {
                    self.commits.push((now - came) as f64 * 1e-9);
                }
                self.is_writing = false;
                if !self.waiting.is_empty() {
                    self.write(now);
                }
            }
        }
    }

    /// The journal writes all that waits, then flushes.
    fn write(&mut self, now: u64) {
        let media = self.media;
        self.in_flight = std::mem::take(&mut self.waiting);
        self.is_writing = true;
        let bytes = self.commit_bytes(self.in_flight.len());
        let request = self.request(Direction::Write, self.load.journal_pattern, bytes);
        let done = self.take(&media.journal, now, &request) + media.journal.model.flush();
        self.push(done.ceil() as u64, Happens::JournalFree);
    }

    fn commit_bytes(&self, many: usize) -> u64 {
        let one = self.load.commits.map_or(0.0, |(_, bytes)| bytes);
        (one * many as f64).ceil().max(1.0) as u64
    }

    /// When a processor has done the work of a commit that comes now: times are distributed exponentially.
    fn processor(&mut self, now: u64) -> u64 {
        let Some((_, seconds)) = self.load.processors else { return now };
        let Some(Reverse(free)) = self.processors.pop() else { return now };
        let takes = -(1.0 - self.random.f64()).ln() * seconds * 1e9;
        let done = now.max(free) + takes as u64;
        self.processors.push(Reverse(done));
        done
    }

    fn access(&mut self, now: u64, number: usize) {
        let media = self.media;
        let access = self.load.accesses[number];
        let bytes = u64::from(access.bytes).max(1);
        let read = self.request(Direction::Read, Pattern::Random, bytes);
        let write = self.request(Direction::Write, Pattern::Random, bytes);
        let done = match (self.load.found.get(number), &media.far) {
            (Some(1), Some(far)) => {
                let done = self.take(far, now, &read);
                if self.random.f64() < self.load.promote {
                    // The page that makes room goes the other way.
                    self.take(far, now, &write);
                }
                done
            }
            (Some(2), far) => {
                let done = self.take(&media.data, now, &read);
                if let Some(far) = far {
                    self.take(far, now, &write);
                }
                done
            }
            _ => self.take(&media.near, now, &read),
        };
        self.reads.push((done - now as f64) * 1e-9);
    }

    fn request(&self, direction: Direction, pattern: Pattern, bytes: u64) -> Request {
        Request { pattern: Some(pattern), ..Request::new(0, direction, 0, bytes) }
    }

    fn take(&mut self, station: &ReplayMedium<'_>, now: u64, request: &Request) -> f64 {
        self.queue += 1;
        station.budget.take(station.model, self.queue, now as f64, request)
    }

    fn result(mut self) -> Replayed {
        self.reads.sort_by(f64::total_cmp);
        self.commits.sort_by(f64::total_cmp);
        let many = (self.reads.len() as f64).max(1.0);
        let mean = self.reads.iter().sum::<f64>() / many;
        let variance = self.reads.iter().map(|read| (read - mean).powi(2)).sum::<f64>() / many;
        let of_commits = |part: f64| (!self.commits.is_empty()).then(|| quantile(&self.commits, part));
        Replayed {
            mean_read_s: mean,
            spread_read_s: variance.sqrt(),
            p99_read_s: quantile(&self.reads, 0.99),
            squeeze: self.squeeze,
            p50_commit_s: of_commits(0.5),
            p99_commit_s: of_commits(0.99),
        }
    }
}
