//! `terrace volume top`: what volumes do, from the difference of two reports.
//!
//! ```text
//!   volume   state  reads/s   MB/s  p50  p99   writes/s   MB/s  p50  p99   sessions  unwritten
//!   copy     tier   state     reads/s  share of the volume's reads, read time  hit ratio of its cache, dirty, destaged   behind, and how
//!                                                                                                               fast that shrinks
//!   tier     copies in sync and others, reads/s, destaged, behind: of all volumes
//! ```
//!
//! Latencies of several volumes are not averaged: the last line adds their classes up, then takes percentiles.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use super::Target;
use super::report::{micros, percentile};
use crate::show::{TextTable, bytes, count};
use crate::terminal;
use crate::volumes::{Activity, CacheReport, CopyReport, TopArgs, VolumeReport, VolumeRequest};

/// Runs until Ctrl-C, or as often as is wanted.
pub fn run(args: &TopArgs) -> anyhow::Result<ExitCode> {
    let target = Target::find(&args.at)?;
    anyhow::ensure!(
        matches!(target, Target::Running(_)),
        "nothing serves these volumes: start `terrace serve`, or `terrace volume export NAME`"
    );
    let report = || target.send::<Vec<VolumeReport>>(VolumeRequest::Status { names: args.names.clone() });
    let (mut before, mut at) = (report()?, Instant::now());
    let mut shown = 0;
    loop {
        std::thread::sleep(Duration::from_secs(args.interval));
        let now = report()?;
        let seconds = at.elapsed().as_secs_f64();
        at = Instant::now();
        if std::io::stdout().is_terminal() {
            terminal::clear();
        } else if shown > 0 {
            println!();
        }
        let TopTables { volumes, copies, tiers } = tables(&before, &now, seconds);
        print!("{volumes}\n{copies}\n{tiers}");
        before = now;
        shown += 1;
        if args.times > 0 && shown >= args.times {
            return Ok(ExitCode::SUCCESS);
        }
    }
}

/// What happened between two reports.
#[derive(Default)]
struct Delta {
    reads: BTreeMap<u64, u64>,
    writes: BTreeMap<u64, u64>,
    read_bytes: u64,
    written_bytes: u64,
}

impl Delta {
    /// A volume that was opened anew in between began at zero.
    fn of(before: Option<&Activity>, now: &Activity) -> Delta {
        let fits =
            |before: &&Activity| before.read_bytes <= now.read_bytes && before.written_bytes <= now.written_bytes;
        let nothing = Activity::default();
        let before = before.filter(fits).unwrap_or(&nothing);
        let classes = |before: &[(u64, u64)], now: &[(u64, u64)]| {
            let before: BTreeMap<u64, u64> = before.iter().copied().collect();
            let more =
                |(value, times): &(u64, u64)| (*value, times.saturating_sub(before.get(value).copied().unwrap_or(0)));
            now.iter().map(more).filter(|(_, times)| *times > 0).collect()
        };
        Delta {
            reads: classes(&before.reads, &now.reads),
            writes: classes(&before.writes, &now.writes),
            read_bytes: now.read_bytes - before.read_bytes,
            written_bytes: now.written_bytes - before.written_bytes,
        }
    }

    fn add(&mut self, other: &Delta) {
        for (all, more) in [(&mut self.reads, &other.reads), (&mut self.writes, &other.writes)] {
            more.iter().for_each(|(value, times)| *all.entry(*value).or_default() += times);
        }
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
    }

    /// Requests and megabytes a second, p50, p99, of reads, then of writes.
    fn cells(&self, seconds: f64) -> [String; 8] {
        let of = |classes: &BTreeMap<u64, u64>, moved: u64| {
            let classes: Vec<(u64, u64)> = classes.iter().map(|(value, times)| (*value, *times)).collect();
            let total: u64 = classes.iter().map(|(_, times)| times).sum();
            let at = |part| if total == 0 { "-".to_owned() } else { micros(percentile(&classes, part)) };
            [
                count((total as f64 / seconds).round() as u64),
                format!("{:.1}", moved as f64 / seconds / 1e6),
                at(0.5),
                at(0.99),
            ]
        };
        let [a, b, c, d] = of(&self.reads, self.read_bytes);
        let [e, f, g, h] = of(&self.writes, self.written_bytes);
        [a, b, c, d, e, f, g, h]
    }
}

/// Hit ratio and destaging since the last report, and what is dirty now.
fn cache_cells(before: Option<&CacheReport>, now: Option<&CacheReport>, seconds: f64) -> [String; 3] {
    let Some(now) = now else { return ["-", "-", "-"].map(str::to_owned) };
    let since = |of: fn(&CacheReport) -> u64| of(now).saturating_sub(before.map_or(0, of));
    let (hits, misses) = (since(|cache| cache.hit_bytes), since(|cache| cache.miss_bytes));
    let ratio = if hits + misses == 0 {
        "-".to_owned()
    } else {
        format!("{:.1} %", 100.0 * hits as f64 / (hits + misses) as f64)
    };
    [ratio, bytes(now.dirty_bytes), format!("{:.1}", since(|cache| cache.destaged_bytes) as f64 / seconds / 1e6)]
}

/// What one copy did between two reports.
struct CopyDelta<'a> {
    now: &'a CopyReport,
    before: Option<&'a CopyReport>,
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
            reads: since(&|copy| copy.reads),
            destaged: since(&destaged),
            caught_up: behind.saturating_sub(now.behind_bytes) as f64 / seconds,
        }
    }

    /// What it lacks, and how fast that becomes less.
    fn behind(&self) -> String {
        match (self.now.behind_bytes, self.caught_up) {
            (0, _) => "-".to_owned(),
            (behind, speed) if speed > 0.0 => format!("{}, {:.1} MB/s", bytes(behind), speed / 1e6),
            (behind, _) => bytes(behind),
        }
    }

    /// Its row; `reads` are those of all copies of its volume.
    fn row(&self, volume: &str, reads: f64, seconds: f64) -> Vec<String> {
        let copy = self.now;
        let former = self.before.and_then(|copy| copy.cache.as_ref());
        let [hits, dirty, destaged] = cache_cells(former, copy.cache.as_ref(), seconds);
        vec![
            format!("{volume} {}", copy.number),
            copy.tier.clone(),
            copy.state.clone(),
            count(self.reads.round() as u64),
            if reads > 0.0 { format!("{:.1} %", 100.0 * self.reads / reads) } else { "-".to_owned() },
            if copy.read_ns > 0 { micros(copy.read_ns) } else { "-".to_owned() },
            hits,
            dirty,
            destaged,
            self.behind(),
            count(copy.repaired),
        ]
    }
}

/// What the copies on one tier do together.
#[derive(Default)]
struct TierSum {
    in_sync: u64,
    others: u64,
    reads: f64,
    destaged: f64,
    behind_bytes: u64,
}

impl TierSum {
    fn add(&mut self, copy: &CopyDelta<'_>) {
        match copy.now.state.as_str() {
            "in-sync" => self.in_sync += 1,
            _ => self.others += 1,
        }
        self.reads += copy.reads;
        self.destaged += copy.destaged;
        self.behind_bytes += copy.now.behind_bytes;
    }

    fn row(&self, tier: &str) -> Vec<String> {
        vec![
            tier.to_owned(),
            count(self.in_sync),
            count(self.others),
            count(self.reads.round() as u64),
            format!("{:.1}", self.destaged / 1e6),
            if self.behind_bytes > 0 { bytes(self.behind_bytes) } else { "-".to_owned() },
        ]
    }
}

struct TopTables {
    volumes: TextTable,
    copies: TextTable,
    tiers: TextTable,
}

const VOLUME_HEADINGS: [&str; 12] =
    ["volume", "state", "reads/s", "MB/s", "p50", "p99", "writes/s", "MB/s", "p50", "p99", "sessions", "in journals"];

const COPY_HEADINGS: [&str; 11] = [
    "copy",
    "tier",
    "state",
    "reads/s",
    "share",
    "read time",
    "cache hits",
    "dirty",
    "destaged MB/s",
    "behind",
    "repaired",
];

const TIER_HEADINGS: [&str; 6] = ["tier", "in sync", "others", "reads/s", "destaged MB/s", "behind"];

fn tables(before: &[VolumeReport], now: &[VolumeReport], seconds: f64) -> TopTables {
    let (mut volumes, mut copies) = (TextTable::new(&VOLUME_HEADINGS), TextTable::new(&COPY_HEADINGS));
    let mut by_tier: BTreeMap<&str, TierSum> = BTreeMap::new();
    let mut all = Delta::default();
    let mut row = |name: &str, state: &str, delta: &Delta, sessions: &str, journaled: &str| {
        let cells = delta.cells(seconds);
        let mut row = vec![name, state];
        row.extend(cells.iter().map(String::as_str));
        row.extend([sessions, journaled]);
        volumes.row(&row);
    };
    for report in now {
        let former = before.iter().find(|former| former.name == report.name);
        let delta = Delta::of(former.map(|former| &former.activity), &report.activity);
        all.add(&delta);
        let sessions = report.export.as_ref().map_or(0, |export| export.sessions);
        let journaled = bytes(report.activity.journaled_bytes);
        row(&report.name, report.state.name(), &delta, &count(sessions as u64), &journaled);
        let earlier = |copy: &CopyReport| former.and_then(|former| former.copies.get(usize::from(copy.number)));
        let deltas = report.copies.iter().map(|copy| CopyDelta::of(earlier(copy), copy, seconds)).collect::<Vec<_>>();
        let reads = deltas.iter().map(|delta| delta.reads).sum();
        for delta in &deltas {
            by_tier.entry(&delta.now.tier).or_default().add(delta);
            let cells = delta.row(&report.name, reads, seconds);
            copies.row(&cells.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
    if now.len() > 1 {
        row("all", "", &all, "", "");
    }
    let mut tiers = TextTable::new(&TIER_HEADINGS);
    for (tier, sum) in &by_tier {
        tiers.row(&sum.row(tier).iter().map(String::as_str).collect::<Vec<_>>());
    }
    TopTables { volumes, copies, tiers }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_shows_what_happened_between_two_reports_and_begins_anew_after_a_restart() {
        let of =
            |reads: &[(u64, u64)], read_bytes| Activity { reads: reads.to_vec(), read_bytes, ..Activity::default() };
        let (first, second) = (of(&[(1_000, 10)], 40_960), of(&[(1_000, 10), (9_000, 4)], 57_344));
        let delta = Delta::of(Some(&first), &second);
        assert_eq!((delta.reads.clone(), delta.read_bytes), (BTreeMap::from([(9_000, 4)]), 16_384));
        assert_eq!(delta.cells(2.0)[..4], ["2", "0.0", "9.0 us", "9.0 us"]);
        let restarted = of(&[(2_000, 1)], 4_096);
        assert_eq!(Delta::of(Some(&second), &restarted).reads, BTreeMap::from([(2_000, 1)]));
    }
}
