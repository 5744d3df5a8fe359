//! DISKSPD's text: for each run the parameters, the processors, three tables of threads, and the percentiles.

use std::fmt::Write as _;

use super::xml::path;
use super::{deviation, percentiles};
use crate::report::{FleetReport, FleetRun, ThreadCounts};
use crate::tally::{Latencies, Window};
use workload::processors::ProcessorUse;

/// Bytes of a MiB.
const MIB: f64 = 1_048_576.0;

/// What a table of threads is of.
struct Kind<'r> {
    title: &'static str,
    bytes: fn(&ThreadCounts) -> u64,
    requests: fn(&ThreadCounts) -> u64,
    of_window: fn(&Window) -> u64,
    latencies: &'r Latencies,
}

/// The runs as DISKSPD's text.
pub fn to_text(report: &FleetReport) -> String {
    let mut out = String::new();
    let _ =
        writeln!(out, "terrace bench fleet {}, in the manner of DISKSPD; see its page docs/fleet.md", report.version);
    for run in &report.runs {
        input(&mut out, report, run);
        results(&mut out, run);
    }
    out
}

fn input(out: &mut String, report: &FleetReport, run: &FleetRun) {
    let config = &report.config;
    let _ = writeln!(out, "\nInput parameters: {}\n\n\ttimespan:   1\n\t-------------", run.name);
    let _ = writeln!(out, "\tduration: {:.0}s", run.seconds);
    let _ = writeln!(out, "\twarm up time: {:.0}s", config.warm_seconds);
    let _ = writeln!(out, "\tcool down time: {:.0}s", config.cool_seconds);
    let _ = writeln!(out, "\tgathering IOPS at intervals of 1000ms\n\trandom seed: {}", config.seed);
    for volume in 0..run.volumes {
        let order = if run.detail.is_random { "random" } else { "sequential" };
        let (reads, writes) = (run.read_percent, 100 - run.read_percent);
        let _ = writeln!(out, "\tpath: '{}'", path(run, volume));
        let _ = writeln!(out, "\t\tsoftware cache disabled, writes are durable when they are counted");
        let _ = writeln!(out, "\t\tperforming mix test (read/write ratio: {reads}/{writes})");
        let _ = writeln!(out, "\t\tblock size: {}\n\t\tusing {order} I/O", run.block_bytes);
        let _ = writeln!(out, "\t\tnumber of outstanding I/O operations per thread: {}", run.outstanding);
        let _ = writeln!(out, "\t\tthreads per file: {}", run.threads);
    }
}

fn results(out: &mut String, run: &FleetRun) {
    let tally = &run.detail.tally;
    let all = tally.all();
    let _ = writeln!(out, "\nResults for timespan 1:\n{}\n", "*".repeat(79));
    let _ = writeln!(out, "actual test time:\t{:.2}s", run.seconds);
    let _ = writeln!(out, "thread count:\t\t{}", run.detail.threads.len());
    let _ = writeln!(out, "proc count:\t\t{}\n", run.detail.processors.len());
    processors(out, &run.detail.processors);
    let kinds = [
        Kind {
            title: "Total IO",
            bytes: |thread| thread.read_bytes + thread.written_bytes,
            requests: |thread| thread.reads + thread.writes,
            of_window: |window| window.all(),
            latencies: &all,
        },
        Kind {
            title: "Read IO",
            bytes: |thread| thread.read_bytes,
            requests: |thread| thread.reads,
            of_window: |window| window.reads,
            latencies: &tally.reads,
        },
        Kind {
            title: "Write IO",
            bytes: |thread| thread.written_bytes,
            requests: |thread| thread.writes,
            of_window: |window| window.writes,
            latencies: &tally.writes,
        },
    ];
    kinds.iter().for_each(|kind| threads(out, run, kind));
    let _ = writeln!(out, "total:\n  %-ile |  Read (ms) | Write (ms) | Total (ms)\n{}", "-".repeat(46));
    let rows = percentiles(&tally.reads).zip(percentiles(&tally.writes)).zip(percentiles(&all));
    let ms = |ms: Option<f64>| ms.map_or_else(|| "N/A".to_owned(), |ms| format!("{ms:.3}"));
    for ((reads, writes), all) in rows {
        let _ = writeln!(out, "{:>8}|{:>11} |{:>11} |{:>11}", reads.0, ms(reads.2), ms(writes.2), ms(all.2));
    }
}

fn processors(out: &mut String, processors: &[ProcessorUse]) {
    let rule = "-".repeat(43);
    let _ = writeln!(out, "CPU |  Usage |  User  |  Kernel |  Idle\n{rule}");
    let row = |name: String, of: &ProcessorUse| {
        format!("{name:>4}|{:>6.2}% |{:>6.2}% |{:>7.2}% |{:>6.2}%", of.busy(), of.user, of.kernel, of.idle)
    };
    for one in processors {
        let _ = writeln!(out, "{}", row(one.number.to_string(), one));
    }
    let _ = writeln!(out, "{rule}\n{}\n", row("avg.".to_owned(), &ProcessorUse::mean(processors)));
}

fn threads(out: &mut String, run: &FleetRun, kind: &Kind<'_>) {
    let rule = "-".repeat(118);
    let _ = writeln!(out, "{}", kind.title);
    let _ = writeln!(
        out,
        "thread |       bytes     |     I/Os     |    MiB/s   |  I/O per s |  AvgLat  | IopsStdDev | LatStdDev |  file\n{rule}"
    );
    let row = |name: &str, bytes: u64, requests: u64| {
        let rate = requests as f64 / run.seconds;
        format!("{name:>6} |{bytes:>16} |{requests:>13} |{:>11.2} |{rate:>11.2} |", bytes as f64 / MIB / run.seconds)
    };
    // Latencies are kept for all threads together: a thread's own columns are empty.
    for (number, thread) in run.detail.threads.iter().enumerate() {
        let own = row(&number.to_string(), (kind.bytes)(thread), (kind.requests)(thread));
        let _ = writeln!(out, "{own}{:>9} |{:>11} |{:>10} | {}", "N/A", "N/A", "N/A", path(run, thread.volume));
    }
    let sum = |of: fn(&ThreadCounts) -> u64| run.detail.threads.iter().map(of).sum::<u64>();
    let (mean, stdev) = (kind.latencies.mean() / 1e6, kind.latencies.deviation() / 1e6);
    let iops = deviation(&run.detail.tally.windows, kind.of_window);
    let total = row("total:", sum(kind.bytes), sum(kind.requests));
    let _ = writeln!(out, "{rule}\n{total}{mean:>9.3} |{iops:>11.2} |{stdev:>10.3}\n");
}

#[cfg(test)]
mod tests {
    use crate::report::tests::example;

    #[test]
    fn each_run_has_its_tables_and_their_totals_are_the_sums_of_the_threads() {
        let report = example();
        let text = super::to_text(&report);
        for title in ["Total IO", "Read IO", "Write IO", "CPU |  Usage", "  %-ile |", "actual test time:\t5.00s"] {
            assert_eq!(text.matches(title).count(), 2, "{title} in\n{text}");
        }
        let totals: Vec<u64> = text
            .lines()
            .filter(|line| line.starts_with("total: |"))
            .map(|line| line.split('|').nth(2).and_then(|cell| cell.trim().parse().ok()).expect("a count"))
            .collect();
        assert_eq!(totals, [20_000, 18_000, 2_000, 20_000, 18_000, 2_000]);
        assert_eq!(text.lines().filter(|line| line.trim_start().starts_with("9-nines|")).count(), 2);
    }
}
