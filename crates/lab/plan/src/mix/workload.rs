//! What a plan needs of one or more profiles that will share a server: rates of the worst minute, commits, writes, processor time.
//!
//! ```text
//!   profiles -> the lowest of their sampling rates for all -> their busiest minutes at the same time -> one stream
//! ```
//!
//! Invariants: what a profile lacks is `None` here and named by [`Workload::lacks`]; several profiles have pages of the same size; a profile
//! from which nothing can be planned (idle, without times, too short) is refused with what to do.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{BufReader, Cursor, Read};
use std::path::PathBuf;
use std::sync::Arc;

use foldhash::fast::FixedState;

use super::beside::{BesideLoad, BesideScan, loads};
use super::mixes::JournalPart;
use super::report::{HeatReport, WorkloadReport};
use crate::PlanError;
use crate::profile::{Lack, ProfileReader, StreamEntry, Summary};
use crate::reuse::Histogram;

/// Microseconds of a minute.
pub(super) const MINUTE_US: u64 = 60_000_000;
/// Accesses in the stream of a profile that is not idle.
const ACCESSES_LEAST: u64 = 1000;
/// A profile is at least so many times as long as the time in which 99 of 100 uses come again.
const REUSE_TIMES: f64 = 3.0;
/// Of the accesses of the worst minute, so large a part may be first uses: more say that the cache is cold.
const FIRST_USES_MOST: f64 = 0.2;
/// Seconds in which a changed page is written back, where a profile has no checkpoints.
const CYCLE_S: u64 = 60;
const MICROS: f64 = 1e6;

/// A profile that can be read from its begin, again and again.
#[derive(Clone, Debug)]
pub enum ProfileSource {
    /// A file.
    File(PathBuf),
    /// Bytes, with a name for people.
    Bytes(String, Arc<[u8]>),
}

impl ProfileSource {
    /// Its name.
    pub fn name(&self) -> String {
        match self {
            ProfileSource::File(path) => path.display().to_string(),
            ProfileSource::Bytes(name, _) => name.clone(),
        }
    }

    /// Opens it at its begin.
    ///
    /// # Errors
    /// Those of reading; that it is damaged, or none.
    pub fn open(&self) -> Result<ProfileReader<Box<dyn Read>>, PlanError> {
        let bytes: Box<dyn Read> = match self {
            ProfileSource::File(path) => Box::new(BufReader::with_capacity(1 << 20, File::open(path)?)),
            ProfileSource::Bytes(_, bytes) => Box::new(Cursor::new(Arc::clone(bytes))),
        };
        let reader = ProfileReader::new(bytes)?;
        Ok(reader)
    }
}

/// Which short profiles are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortness {
    /// None.
    Refuse,
    /// All, with the error said.
    Take,
}

/// The journal of a workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Commits {
    /// Commits each second in the worst minute.
    pub per_s: f64,
    /// Bytes of one.
    pub bytes: f64,
}

/// See the head comment of this file.
#[derive(Debug)]
pub struct Workload {
    sources: Vec<ProfileSource>,
    /// Microseconds that are added to the times of each source.
    shifts: Vec<u64>,
    threshold: Option<u64>,
    /// Part of all keys in the stream.
    pub stream_rate: f64,
    /// How many accesses one of the stream stands for.
    pub stands_for: f64,
    /// How many times larger the workload is than the record: 1, but for a sizing, which makes a small one up.
    pub scale: f64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Keys are pages, not objects.
    pub has_pages: bool,
    /// Bytes that were used at all.
    pub touched_bytes: u64,
    /// The begin of the worst minute in the merged stream, microseconds.
    pub minute_us: u64,
    /// Accesses of the sample in it.
    pub minute_accesses: u64,
    /// Writes replace whole pages or objects, so that one that is not in memory needs no read: so it is but for nodes.
    pub writes_whole: bool,
    /// Accesses each second in it.
    pub accesses_per_s: f64,
    /// Bytes of an access.
    pub access_bytes: f64,
    /// Bytes that are written back for each access, with those of the write image journal.
    pub write_back_bytes: f64,
    /// Of these, those of the write image journal.
    pub image_bytes: f64,
    /// What the drives do beside the page cache in the worst minute.
    pub beside: Vec<BesideLoad>,
    /// Bytes that were used beside it.
    pub beside_bytes: u64,
    /// Commits, if all profiles have a journal.
    pub commits: Option<Commits>,
    /// Processor time of an operation, seconds; if all profiles have it.
    pub cpu_s: Option<f64>,
    /// First uses, as a part of all accesses: what a longer record might find.
    pub first_uses: f64,
    /// First uses that no cache finds, as a part of the accesses of the worst minute.
    pub minute_first_uses: f64,
    /// The time in which 99 of 100 uses come again, and the length of the record, seconds.
    pub reuse_and_length_s: (f64, f64),
    /// What one of them lacks.
    pub lacks: Vec<Lack>,
    /// Each profile for the report.
    pub reports: Vec<WorkloadReport>,
    /// The summary of each profile.
    pub summaries: Vec<Summary>,
}

/// What one pass over a stream finds.
#[derive(Debug, Default)]
struct Scan {
    accesses: u64,
    last_us: u64,
    by_minute: BTreeMap<u64, u64>,
    /// First uses that a cache of any size reads from the drives, by minute.
    first_by_minute: BTreeMap<u64, u64>,
    reuse_us: Histogram,
    /// Bytes of pages that were changed in a cycle, each once.
    changed_bytes: f64,
    beside: BesideScan,
}

fn refuse<T>(what: String) -> Result<T, PlanError> {
    Err(PlanError::Refused(what))
}

/// Whether a hash is in the sample of this threshold.
fn is_sampled(threshold: Option<u64>, hash: u64) -> bool {
    threshold.is_none_or(|threshold| hash < threshold)
}

/// Whether a write replaces a whole page or object, so that one that is not in memory needs no read: so it is but for nodes.
fn writes_whole(summary: &Summary) -> bool {
    summary.origin.kind != "node"
}

fn scan(source: &ProfileSource, threshold: Option<u64>) -> Result<Scan, PlanError> {
    let mut reader = source.open()?;
    let writes_whole = writes_whole(reader.summary());
    let cycle_us = CYCLE_S * 1_000_000;
    let mut found = Scan::default();
    let mut last: HashMap<u64, u64, FixedState> = HashMap::default();
    let (mut changed, mut cycle): (HashSet<u64, FixedState>, u64) = (HashSet::default(), 0);
    while let Some(entries) = reader.next_chunk()? {
        for entry in entries.iter().filter(|entry| is_sampled(threshold, entry.hash)) {
            found.last_us = entry.time_us;
            if reader.summary().is_beside(entry.structure) {
                found.beside.add(entry, entry.time_us / MINUTE_US);
                continue;
            }
            let before = last.insert(entry.hash, entry.time_us);
            // A page that is made was looked for nowhere: it takes memory, and is written.
            if !entry.is_new {
                found.accesses += 1;
                *found.by_minute.entry(entry.time_us / MINUTE_US).or_default() += 1;
                let is_read = !(entry.is_write && writes_whole);
                let is_first = before.is_none() && is_read;
                *found.first_by_minute.entry(entry.time_us / MINUTE_US).or_default() += u64::from(is_first);
            }
            if let Some(before) = before {
                found.reuse_us.add(entry.time_us - before, 1.0);
            }
            if entry.time_us / cycle_us != cycle {
                cycle = entry.time_us / cycle_us;
                changed.clear();
            }
            if (entry.is_write || entry.is_new) && changed.insert(entry.hash) {
                found.changed_bytes += f64::from(entry.bytes);
            }
        }
    }
    Ok(found)
}

/// Commits of a profile, and their bytes in all; `None` without a journal.
fn commits_of(summary: &Summary) -> Option<(f64, f64)> {
    let journal = summary.journal.as_ref().filter(|journal| journal.records > 0)?;
    let waited: f64 = summary
        .committers
        .iter()
        .flat_map(|committers| &committers.waiting)
        .map(|(waiting, often)| f64::from(*waiting) * *often as f64)
        .sum();
    // Without the number of those that waited for a flush, each record is a commit.
    let commits = if waited > 0.0 { waited } else { journal.records as f64 };
    // A node says what was written, with headers and padding.
    let written = summary.node.as_ref().map_or(0, |node| node.journal_written_bytes);
    Some((commits, written.max(journal.bytes) as f64))
}

impl Workload {
    /// Reads the profiles.
    ///
    /// # Errors
    /// Those of reading; a profile from which nothing can be planned; profiles that do not go together.
    pub fn of(sources: Vec<ProfileSource>, short: Shortness) -> Result<Workload, PlanError> {
        let summaries: Vec<Summary> =
            sources.iter().map(|source| Ok(source.open()?.summary().clone())).collect::<Result<_, PlanError>>()?;
        let Some(first) = summaries.first() else { return refuse("a plan needs a profile".into()) };
        for (source, summary) in sources.iter().zip(&summaries) {
            check(&source.name(), summary)?;
            if (summary.page_bytes, &summary.origin.keys) != (first.page_bytes, &first.origin.keys) {
                return refuse(format!(
                    "{} has pages or objects of another size than the first profile",
                    source.name()
                ));
            }
        }
        let threshold = summaries.iter().filter_map(|summary| summary.stream_threshold).min();
        let stream_rate = summaries.iter().map(|summary| summary.stream_rate).fold(1.0, f64::min);
        let scans: Vec<Scan> = sources.iter().map(|source| scan(source, threshold)).collect::<Result<_, _>>()?;
        for (source, (summary, scan)) in sources.iter().zip(summaries.iter().zip(&scans)) {
            check_length(&source.name(), summary, scan, short)?;
        }
        let (page_bytes, has_pages) = (first.page_bytes, first.origin.keys == "page");
        let mut workload = Workload {
            shifts: Vec::new(),
            threshold,
            stream_rate,
            stands_for: 1.0,
            scale: 1.0,
            page_bytes,
            has_pages,
            touched_bytes: summaries.iter().map(|summary| summary.touched_bytes).fold(0, u64::saturating_add),
            minute_us: 0,
            minute_accesses: 0,
            writes_whole: summaries.iter().all(writes_whole),
            accesses_per_s: 0.0,
            access_bytes: 0.0,
            write_back_bytes: 0.0,
            image_bytes: 0.0,
            beside: Vec::new(),
            beside_bytes: summaries
                .iter()
                .flat_map(|summary| &summary.beside)
                .map(|beside| beside.touched_bytes)
                .fold(0, u64::saturating_add),
            commits: None,
            cpu_s: None,
            first_uses: 0.0,
            minute_first_uses: 0.0,
            reuse_and_length_s: (0.0, 0.0),
            lacks: Vec::new(),
            reports: Vec::new(),
            sources,
            summaries,
        };
        workload.measure(&scans);
        Ok(workload)
    }

    /// Sets the figures.
    fn measure(&mut self, scans: &[Scan]) {
        let totals: Vec<_> = self.summaries.iter().map(Summary::cached).collect();
        let accesses: f64 = totals.iter().map(|used| used.reuse.accesses as f64).sum();
        let sampled: f64 = scans.iter().map(|scan| scan.accesses as f64).sum();
        self.stands_for = accesses / sampled.max(1.0);
        let minutes: Vec<(u64, u64)> = scans.iter().map(worst_minute).collect();
        self.minute_us = minutes.iter().map(|(minute, _)| minute * MINUTE_US).max().unwrap_or(0);
        self.minute_accesses = minutes.iter().map(|(_, count)| count).sum();
        let first = |(scan, (minute, _)): (&Scan, &(u64, u64))| scan.first_by_minute.get(minute).copied().unwrap_or(0);
        let first: u64 = scans.iter().zip(&minutes).map(first).sum();
        self.minute_first_uses = first as f64 / self.minute_accesses.max(1) as f64;
        self.shifts = minutes.iter().map(|(minute, _)| self.minute_us - minute * MINUTE_US).collect();
        let bytes: f64 = totals.iter().map(|used| used.read_bytes as f64 + used.write_bytes as f64).sum();
        self.access_bytes = bytes / accesses.max(1.0);
        self.first_uses = totals.iter().map(|used| used.reuse.first).sum::<f64>() / accesses.max(1.0);
        let (mut commits, mut commit_bytes, mut cpu, mut commits_in_all) = (Some(0.0), 0.0, Some(0.0), 0.0);
        for ((summary, scan), (used, (minute, count))) in
            self.summaries.iter().zip(scans).zip(totals.iter().zip(&minutes))
        {
            let own = used.reuse.accesses as f64;
            let stands_for = own / scan.accesses.max(1) as f64;
            let per_s = *count as f64 * stands_for / 60.0;
            self.accesses_per_s += per_s;
            let of_it = commits_of(summary).filter(|_| summary.has(Lack::Journal));
            if let Some((many, bytes)) = of_it {
                // The journal is not recorded by the minute: commits come as accesses do.
                commits = commits.map(|sum| sum + many / own * per_s);
                commit_bytes += bytes / own * per_s;
            } else {
                commits = None;
            }
            commits_in_all += of_it.map_or(0.0, |(many, _)| many);
            let seconds: f64 = summary.cpu.iter().map(|used| used.seconds).sum();
            cpu = cpu.filter(|_| summary.has(Lack::Cpu) && !summary.cpu.is_empty()).map(|sum| sum + seconds);
            self.write_back_bytes += match &summary.write_backs {
                Some(written) => written.bytes as f64,
                None => scan.changed_bytes * stands_for,
            } / accesses.max(1.0);
            let images = summary.node.as_ref().map_or(0, |node| node.image_bytes);
            self.image_bytes += images as f64 / accesses.max(1.0);
            self.beside.extend(loads(summary, &scan.beside, *minute));
            let reuse_s = scan.reuse_us.quantile(0.99) as f64 / MICROS;
            let length_s = scan.last_us as f64 / MICROS;
            if reuse_s * self.reuse_and_length_s.1 >= self.reuse_and_length_s.0 * length_s {
                self.reuse_and_length_s = (reuse_s, length_s);
            }
            self.lacks.extend(&summary.lacks);
            self.reports.push(report(summary, *minute, per_s, of_it.map(|(many, _)| many / own * per_s)));
        }
        for (report, source) in self.reports.iter_mut().zip(&self.sources) {
            report.name = source.name();
        }
        self.commits = commits.filter(|per_s| *per_s > 0.0).map(|per_s| Commits { per_s, bytes: commit_bytes / per_s });
        let operations = if self.commits.is_some() { commits_in_all } else { accesses };
        self.cpu_s = cpu.filter(|seconds| *seconds > 0.0).map(|seconds| seconds / operations);
        let operation = self.operation();
        for report in &mut self.reports {
            (report.cpu_per_operation_s, report.operation) = (self.cpu_s, operation.to_owned());
        }
        self.lacks.sort_unstable();
        self.lacks.dedup();
    }

    /// What an operation is: a `commit` if all profiles have a journal, else an `access`.
    pub fn operation(&self) -> &'static str {
        if self.commits.is_some() { "commit" } else { "access" }
    }

    /// Several of them.
    pub fn operations(&self) -> &'static str {
        if self.commits.is_some() { "commits" } else { "accesses" }
    }

    /// Operations each second in the worst minute.
    pub fn operations_per_s(&self) -> f64 {
        self.commits.map_or(self.accesses_per_s, |commits| commits.per_s)
    }

    /// Takes the record for one of a workload that is so many times smaller: each key stands for as many, with accesses of their own.
    pub fn enlarge(&mut self, scale: f64) {
        let times = |bytes: u64| (bytes as f64 * scale) as u64;
        (self.scale, self.stands_for, self.stream_rate) = (scale, self.stands_for * scale, self.stream_rate / scale);
        (self.touched_bytes, self.accesses_per_s) = (times(self.touched_bytes), self.accesses_per_s * scale);
        self.beside_bytes = times(self.beside_bytes);
        for load in &mut self.beside {
            load.reads_per_s *= scale;
            load.writes_per_s *= scale;
            load.written_per_s *= scale;
        }
        for report in &mut self.reports {
            (report.touched_bytes, report.accesses) = (times(report.touched_bytes), times(report.accesses));
            report.hot_bytes = report.hot_bytes.map(times);
            report.worst_accesses_per_s *= scale;
            report.written_bytes_per_s *= scale;
            for heat in &mut report.heat {
                (heat.reads, heat.writes) = (times(heat.reads), times(heat.writes));
            }
        }
    }

    /// Takes commits for given, as a sizing does: then they are its operations.
    pub fn assume_commits(&mut self, commits: Commits) {
        self.commits = Some(commits);
        self.lacks.retain(|lack| !matches!(lack, Lack::Journal | Lack::Flushes));
        for report in &mut self.reports {
            (report.commits_per_s, report.operation) = (Some(commits.per_s), "commit".to_owned());
        }
    }

    /// Bytes that are written back at a time: a page, or an object.
    pub fn write_back_unit(&self) -> u64 {
        if self.has_pages { self.page_bytes } else { (self.access_bytes as u64).max(1) }
    }

    /// Bytes that are written back to the data drives for each access: the write image journal lies on the modules where the journal does.
    pub fn data_write_bytes(&self, journal: JournalPart) -> f64 {
        self.write_back_bytes - self.module_write_bytes(journal)
    }

    /// Bytes of the write image journal for each access, where it lies on the modules.
    pub fn module_write_bytes(&self, journal: JournalPart) -> f64 {
        if journal == JournalPart::Modules { self.image_bytes.min(self.write_back_bytes) } else { 0.0 }
    }

    /// Accesses of an operation.
    pub fn accesses_per_operation(&self) -> f64 {
        self.accesses_per_s / self.operations_per_s()
    }

    /// Whether all of them have this.
    pub fn has(&self, lack: Lack) -> bool {
        !self.lacks.contains(&lack)
    }

    /// Runs over all streams together, by time.
    ///
    /// # Errors
    /// Those of reading.
    pub fn each(&self, mut take: impl FnMut(&StreamEntry)) -> Result<(), PlanError> {
        let mut streams = Vec::new();
        for (number, (source, shift)) in self.sources.iter().zip(&self.shifts).enumerate() {
            // Hashes of profiles with the same seed are those of the same numbers, not of the same pages.
            let mark = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            streams.push(Merged {
                reader: source.open()?,
                chunk: Vec::new().into_iter(),
                shift: *shift,
                mark,
                next: None,
            });
        }
        for stream in &mut streams {
            stream.advance(self.threshold)?;
        }
        while let Some(stream) = streams
            .iter_mut()
            .filter(|stream| stream.next.is_some())
            .min_by_key(|stream| stream.next.map(|next| next.time_us))
        {
            if let Some(next) = &stream.next {
                take(next);
            }
            stream.advance(self.threshold)?;
        }
        Ok(())
    }
}

/// The number of the busiest minute, and its accesses in the stream; of several the last one, when a cache is warm.
fn worst_minute(scan: &Scan) -> (u64, u64) {
    let last = scan.last_us / MINUTE_US;
    // The last one is not whole, and is taken only if there is no other one.
    let most = |all: bool| {
        let minutes = scan.by_minute.iter().filter(|(minute, _)| all || **minute < last);
        minutes.max_by(|one, two| one.1.cmp(two.1).then(one.0.cmp(two.0))).map(|(minute, count)| (*minute, *count))
    };
    most(false).or_else(|| most(true)).unwrap_or((0, 0))
}

/// What a profile cannot do without.
fn check(name: &str, summary: &Summary) -> Result<(), PlanError> {
    if !summary.has(Lack::Times) {
        return refuse(format!(
            "{name} has no times, so no rates: a plan needs them. terrace profile cache shows what a cache would find"
        ));
    }
    if summary.seconds < 60 {
        return refuse(format!(
            "{name} is {} s long: a plan takes its worst minute, and needs some of them",
            summary.seconds
        ));
    }
    Ok(())
}

fn check_length(name: &str, summary: &Summary, scan: &Scan, short: Shortness) -> Result<(), PlanError> {
    if scan.accesses < ACCESSES_LEAST {
        return refuse(format!(
            "{name} has {} accesses in its sample of {} s: the workload was idle, and nothing can be planned from it; record while it works",
            scan.accesses, summary.seconds
        ));
    }
    let (reuse_s, length_s) = (scan.reuse_us.quantile(0.99) as f64 / MICROS, scan.last_us as f64 / MICROS);
    if reuse_s * REUSE_TIMES > length_s && short == Shortness::Refuse {
        return refuse(format!(
            "{name} is {length_s:.0} s long, and one use in a hundred comes more than {reuse_s:.0} s after the one before: too short. Record \
             {:.0} s or more, or plan all the same with --take-short",
            reuse_s * REUSE_TIMES
        ));
    }
    let (minute, accesses) = worst_minute(scan);
    let first = scan.first_by_minute.get(&minute).copied().unwrap_or(0) as f64 / accesses.max(1) as f64;
    if first > FIRST_USES_MOST && short == Shortness::Refuse {
        return refuse(format!(
            "{name} has its worst minute at {} s, and {:.0} % of the accesses there are first uses, which no memory finds: the cache is cold, or \
             that minute reads what is not read again. Record longer, or plan all the same with --take-short",
            minute * 60,
            first * 100.0
        ));
    }
    Ok(())
}

fn report(summary: &Summary, minute: u64, per_s: f64, commits_per_s: Option<f64>) -> WorkloadReport {
    let all = summary.cached();
    let curve = all.reuse.curve();
    let floor = curve.miss_ratio(curve.largest());
    let accesses = all.reuse.accesses;
    let heat = summary.intervals.iter().map(|interval| {
        let used = summary.cached_in(interval);
        HeatReport { begin_s: interval.begin_s, seconds: summary.interval_s, reads: used.reads, writes: used.writes }
    });
    WorkloadReport {
        name: String::new(),
        kind: summary.origin.kind.clone(),
        seconds: summary.seconds,
        page_bytes: summary.page_bytes,
        touched_bytes: summary.touched_bytes,
        hot_bytes: curve.bytes_for(1.0 - (1.0 - floor) * 0.95),
        accesses,
        worst_begin_s: minute * 60,
        worst_accesses_per_s: per_s,
        commits_per_s,
        written_bytes_per_s: all.write_bytes as f64 / accesses.max(1) as f64 * per_s,
        cpu_per_operation_s: None,
        operation: String::new(),
        lacks: summary.lacks.iter().map(|lack| lack.text().to_owned()).collect(),
        heat: heat.collect(),
    }
}

/// One of the streams that are merged.
struct Merged {
    reader: ProfileReader<Box<dyn Read>>,
    chunk: std::vec::IntoIter<StreamEntry>,
    shift: u64,
    mark: u64,
    next: Option<StreamEntry>,
}

impl Merged {
    fn advance(&mut self, threshold: Option<u64>) -> Result<(), PlanError> {
        loop {
            let summary = self.reader.summary();
            // What is beside the page cache is a load, and no access.
            let is_taken =
                |entry: &StreamEntry| is_sampled(threshold, entry.hash) && !summary.is_beside(entry.structure);
            if let Some(entry) = self.chunk.by_ref().find(is_taken) {
                let (time_us, hash) = (entry.time_us.saturating_add(self.shift), entry.hash ^ self.mark);
                self.next = Some(StreamEntry { time_us, hash, ..entry });
                return Ok(());
            }
            match self.reader.next_chunk()? {
                Some(entries) => self.chunk = entries.into_iter(),
                None => {
                    self.next = None;
                    return Ok(());
                }
            }
        }
    }
}
