//! The tables of `terrace volume top`, from two reports and the time between them. Pure.
//!
//! ```text
//!   report, report --> Load of each volume and copy: what came in between --> rows;  Loads of a tier added up --> its row
//! ```
//!
//! Latencies of several volumes or copies are not averaged: their classes are added up, then percentiles taken.
//!
//! Invariant: no line is wider than 120 columns with names of any length, as long as no figure has more than seven characters.

use std::collections::BTreeMap;
use std::fmt;

use super::super::report::{micros, percentile};
use crate::show::{TextTable, bytes, count};
use crate::volumes::{Activity, CacheReport, CopyReport, VolumeReport};

/// Longest names of a volume, of a volume with the number of a copy, and of a tier; longer ones lose their middle.
const VOLUME_WIDTH: usize = 13;
const COPY_WIDTH: usize = 16;
const TIER_WIDTH: usize = 10;

/// A name that fits.
fn fit(name: &str, width: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= width {
        return name.to_owned();
    }
    let (first, last) = ((width - 2).div_ceil(2), (width - 2) / 2);
    letters[..first].iter().chain(&['.', '.']).chain(&letters[letters.len() - last..]).collect()
}

/// Megabytes with a digit behind the point as long as that says something.
fn megabytes(moved: f64) -> String {
    let megabytes = moved / 1e6;
    if megabytes < 999.95 { format!("{megabytes:.1}") } else { format!("{megabytes:.0}") }
}

/// Counts since the opening, of a volume or of one copy.
#[derive(Clone, Copy, Default)]
struct Counted<'a> {
    reads: &'a [(u64, u64)],
    writes: &'a [(u64, u64)],
    read_bytes: u64,
    written_bytes: u64,
}

impl<'a> Counted<'a> {
    fn volume(of: &'a Activity) -> Counted<'a> {
        let Activity { reads, writes, read_bytes, written_bytes, .. } = of;
        Counted { reads, writes, read_bytes: *read_bytes, written_bytes: *written_bytes }
    }

    fn copy(of: &'a CopyReport) -> Counted<'a> {
        let CopyReport { read_times, write_times, read_bytes, written_bytes, .. } = of;
        Counted { reads: read_times, writes: write_times, read_bytes: *read_bytes, written_bytes: *written_bytes }
    }
}

/// Requests of one kind: how many took how long, and what they moved.
#[derive(Default)]
struct Moved {
    classes: BTreeMap<u64, u64>,
    bytes: u64,
}

impl Moved {
    fn between(before: (&[(u64, u64)], u64), now: (&[(u64, u64)], u64)) -> Moved {
        let former: BTreeMap<u64, u64> = before.0.iter().copied().collect();
        let more =
            |(value, times): &(u64, u64)| (*value, times.saturating_sub(former.get(value).copied().unwrap_or(0)));
        let classes = now.0.iter().map(more).filter(|(_, times)| *times > 0).collect();
        Moved { classes, bytes: now.1.saturating_sub(before.1) }
    }

    fn add(&mut self, other: &Moved) {
        other.classes.iter().for_each(|(value, times)| *self.classes.entry(*value).or_default() += times);
        self.bytes += other.bytes;
    }

    /// How many a second, megabytes a second, p50, p99.
    fn cells(&self, seconds: f64) -> [String; 4] {
        let classes: Vec<(u64, u64)> = self.classes.iter().map(|(value, times)| (*value, *times)).collect();
        let total: u64 = classes.iter().map(|(_, times)| times).sum();
        let at = |part| if total == 0 { "-".to_owned() } else { micros(percentile(&classes, part)) };
        [count((total as f64 / seconds).round() as u64), megabytes(self.bytes as f64 / seconds), at(0.5), at(0.99)]
    }
}

/// What happened between two reports.
#[derive(Default)]
struct Load {
    reads: Moved,
    writes: Moved,
}

impl Load {
    /// A volume that was opened anew in between began at zero.
    fn between(before: Option<Counted<'_>>, now: Counted<'_>) -> Load {
        let fits =
            |before: &Counted<'_>| before.read_bytes <= now.read_bytes && before.written_bytes <= now.written_bytes;
        let before = before.filter(fits).unwrap_or_default();
        Load {
            reads: Moved::between((before.reads, before.read_bytes), (now.reads, now.read_bytes)),
            writes: Moved::between((before.writes, before.written_bytes), (now.writes, now.written_bytes)),
        }
    }

    fn cells(&self, seconds: f64) -> [String; 8] {
        let [a, b, c, d] = self.reads.cells(seconds);
        let [e, f, g, h] = self.writes.cells(seconds);
        [a, b, c, d, e, f, g, h]
    }
}

/// Hit ratio since the last report, what is dirty now, and megabytes that were destaged a second.
fn cache_cells(before: Option<&CacheReport>, now: Option<&CacheReport>, seconds: f64) -> [String; 3] {
    let Some(now) = now else { return ["-", "-", "-"].map(str::to_owned) };
    let since = |of: fn(&CacheReport) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let (hits, misses) = (since(|cache| cache.hit_bytes), since(|cache| cache.miss_bytes));
    let ratio = if hits + misses == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", 100.0 * hits as f64 / (hits + misses) as f64)
    };
    [ratio, bytes(now.dirty_bytes), megabytes(since(|cache| cache.destaged_bytes) as f64 / seconds)]
}

/// What one copy did between two reports.
struct CopyDelta<'a> {
    now: &'a CopyReport,
    before: Option<&'a CopyReport>,
    load: Load,
    /// Reads a second.
    reads: f64,
    destaged: f64,
    /// By how many bytes a second it has come nearer.
    caught_up: f64,
}

impl<'a> CopyDelta<'a> {
    fn of(before: Option<&'a CopyReport>, now: &'a CopyReport, seconds: f64) -> CopyDelta<'a> {
        let destaged = |copy: &CopyReport| copy.cache.as_ref().map_or(0, |cache| cache.destaged_bytes);
        let since = |of: &dyn Fn(&CopyReport) -> u64| of(now).saturating_sub(before.map_or(0, of)) as f64 / seconds;
        let behind = before.map_or(0, |before| before.behind_bytes);
        CopyDelta {
            now,
            before,
            load: Load::between(before.map(Counted::copy), Counted::copy(now)),
            reads: since(&|copy| copy.reads),
            destaged: since(&destaged),
            caught_up: behind.saturating_sub(now.behind_bytes) as f64 / seconds,
        }
    }

    /// What it lacks, and how fast that becomes less.
    fn behind(&self) -> String {
        match (self.now.behind_bytes, self.caught_up) {
            (0, _) => "-".to_owned(),
            (behind, speed) if speed > 0.0 => format!("{}, {} MB/s", bytes(behind), megabytes(speed)),
            (behind, _) => bytes(behind),
        }
    }

    fn name(&self, volume: &str) -> String {
        let number = format!(" {}", self.now.number);
        format!("{}{number}", fit(volume, COPY_WIDTH - number.len()))
    }

    fn load_row(&self, volume: &str, seconds: f64) -> Vec<String> {
        let names = [self.name(volume), fit(&self.now.tier, TIER_WIDTH), self.now.state.clone()];
        names.into_iter().chain(self.load.cells(seconds)).collect()
    }

    /// `reads` are those of all copies of its volume.
    fn upkeep_row(&self, volume: &str, reads: f64, seconds: f64) -> Vec<String> {
        let copy = self.now;
        let former = self.before.and_then(|copy| copy.cache.as_ref());
        let [hits, dirty, destaged] = cache_cells(former, copy.cache.as_ref(), seconds);
        let share = if reads > 0.0 { format!("{:.1} %", 100.0 * self.reads / reads) } else { "-".to_owned() };
        let read_time = if copy.read_ns > 0 { micros(copy.read_ns) } else { "-".to_owned() };
        vec![self.name(volume), share, read_time, hits, dirty, destaged, self.behind(), count(copy.repaired)]
    }
}

/// What lies on one tier does together.
#[derive(Default)]
struct TierSum {
    copies: u64,
    in_sync: u64,
    load: Load,
    destaged: f64,
    behind_bytes: u64,
}

impl TierSum {
    /// A copy whose blocks lie there.
    fn add_blocks(&mut self, copy: &CopyDelta<'_>) {
        self.copies += 1;
        self.in_sync += u64::from(copy.now.state == "in-sync");
        self.load.reads.add(&copy.load.reads);
        self.destaged += copy.destaged;
        self.behind_bytes += copy.now.behind_bytes;
    }

    fn row(&self, tier: &str, seconds: f64) -> Vec<String> {
        let in_sync = if self.copies == 0 { "-".to_owned() } else { format!("{} of {}", self.in_sync, self.copies) };
        let mut row = vec![fit(tier, TIER_WIDTH), in_sync];
        row.extend(self.load.cells(seconds));
        row.push(megabytes(self.destaged));
        row.push(if self.behind_bytes > 0 { bytes(self.behind_bytes) } else { "-".to_owned() });
        row
    }
}

const VOLUME_HEADINGS: [&str; 12] =
    ["volume", "state", "reads/s", "MB/s", "p50", "p99", "writes/s", "MB/s", "p50", "p99", "sessions", "journals"];
const COPY_HEADINGS: [&str; 11] =
    ["copy", "tier", "state", "reads/s", "MB/s", "p50", "p99", "writes/s", "MB/s", "p50", "p99"];
const TIER_HEADINGS: [&str; 12] =
    ["tier", "in sync", "reads/s", "MB/s", "p50", "p99", "writes/s", "MB/s", "p50", "p99", "destaged", "behind"];
const UPKEEP_HEADINGS: [&str; 8] =
    ["copy", "of reads", "read time", "cache hits", "dirty", "destaged MB/s", "behind", "repaired"];

fn row(table: &mut TextTable, cells: &[String]) {
    table.row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
}

/// All that is shown at one moment.
pub struct TopTables {
    volumes: TextTable,
    copies: TextTable,
    tiers: TextTable,
    upkeep: TextTable,
}

impl TopTables {
    /// What happened in so many seconds between two reports.
    pub fn of(before: &[VolumeReport], now: &[VolumeReport], seconds: f64) -> TopTables {
        let mut tables = TopTables {
            volumes: TextTable::new(&VOLUME_HEADINGS),
            copies: TextTable::new(&COPY_HEADINGS),
            tiers: TextTable::new(&TIER_HEADINGS),
            upkeep: TextTable::new(&UPKEEP_HEADINGS),
        };
        let mut by_tier: BTreeMap<&str, TierSum> = BTreeMap::new();
        let mut all = Load::default();
        for report in now {
            let former = before.iter().find(|former| former.name == report.name);
            let earlier = former.map(|former| Counted::volume(&former.activity));
            let load = Load::between(earlier, Counted::volume(&report.activity));
            let (sessions, journals) = (report.export.as_ref().map_or(0, |export| export.sessions), &report.activity);
            let ends = [count(sessions as u64), bytes(journals.journaled_bytes)];
            tables.volume_row(&report.name, report.state.name(), &load, ends, seconds);
            all.reads.add(&load.reads);
            all.writes.add(&load.writes);
            let earlier = |copy: &CopyReport| former.and_then(|former| former.copies.get(usize::from(copy.number)));
            let deltas: Vec<_> = report.copies.iter().map(|copy| CopyDelta::of(earlier(copy), copy, seconds)).collect();
            let reads = deltas.iter().map(|delta| delta.reads).sum();
            for delta in &deltas {
                by_tier.entry(&delta.now.tier).or_default().add_blocks(delta);
                // Its writes are those of its journal, wherever that lies.
                by_tier.entry(&delta.now.journal_tier).or_default().load.writes.add(&delta.load.writes);
                row(&mut tables.copies, &delta.load_row(&report.name, seconds));
                row(&mut tables.upkeep, &delta.upkeep_row(&report.name, reads, seconds));
            }
        }
        if now.len() > 1 {
            tables.volume_row("all", "", &all, [String::new(), String::new()], seconds);
        }
        by_tier.iter().for_each(|(tier, sum)| row(&mut tables.tiers, &sum.row(tier, seconds)));
        tables
    }

    fn volume_row(&mut self, name: &str, state: &str, load: &Load, ends: [String; 2], seconds: f64) {
        let names = [fit(name, VOLUME_WIDTH), state.to_owned()];
        let cells: Vec<String> = names.into_iter().chain(load.cells(seconds)).chain(ends).collect();
        row(&mut self.volumes, &cells);
    }
}

impl fmt::Display for TopTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TopTables { volumes, copies, tiers, upkeep } = self;
        write!(f, "{volumes}\n{copies}\n{tiers}\n{upkeep}")
    }
}

#[cfg(test)]
mod tests;
