//! `terrace volume top`: what volumes do, from the difference of two reports.
//!
//! ```text
//!   volume   state  reads/s   MB/s  p50  p99   writes/s   MB/s  p50  p99   sessions  unwritten
//!   copy     tier   state     reads/s  read time  hit ratio of its cache, dirty, destaged   behind
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
use crate::volumes::{Activity, CacheReport, TopArgs, VolumeReport, VolumeRequest};

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
        let (volumes, copies) = tables(&before, &now, seconds);
        print!("{volumes}\n{copies}");
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

fn tables(before: &[VolumeReport], now: &[VolumeReport], seconds: f64) -> (TextTable, TextTable) {
    let mut volumes = TextTable::new(&[
        "volume",
        "state",
        "reads/s",
        "MB/s",
        "p50",
        "p99",
        "writes/s",
        "MB/s",
        "p50",
        "p99",
        "sessions",
        "in journals",
    ]);
    let mut copies = TextTable::new(&[
        "copy",
        "tier",
        "state",
        "reads/s",
        "read time",
        "cache hits",
        "dirty",
        "destaged MB/s",
        "behind",
        "repaired",
    ]);
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
        for copy in &report.copies {
            let earlier = former.and_then(|former| former.copies.get(usize::from(copy.number)));
            let reads = copy.reads.saturating_sub(earlier.map_or(0, |copy| copy.reads)) as f64 / seconds;
            let [hits, dirty, destaged] =
                cache_cells(earlier.and_then(|copy| copy.cache.as_ref()), copy.cache.as_ref(), seconds);
            copies.row(&[
                &format!("{} {}", report.name, copy.number),
                &copy.tier,
                &copy.state,
                &count(reads.round() as u64),
                &if copy.read_ns > 0 { micros(copy.read_ns) } else { "-".to_owned() },
                &hits,
                &dirty,
                &destaged,
                &if copy.behind_bytes > 0 { bytes(copy.behind_bytes) } else { "-".to_owned() },
                &count(copy.repaired),
            ]);
        }
    }
    if now.len() > 1 {
        row("all", "", &all, "", "");
    }
    (volumes, copies)
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
