//! The report as text: tables, curves, and one sentence for the result of each comparison.

use std::fmt::Write as _;

use super::published::{Comparison, SHOWN};
use super::report::{PersistReport, PersistRun, Spread};
use crate::target::{Bound, Target};
use workload::plot::{self, Curve};
use workload::table::{Table, grouped};

impl PersistReport {
    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let (machine, config) = (&self.machine, &self.config);
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(
            out,
            "Persist: Terrace {} on {}, {} processors, {gib:.0} GiB",
            self.version, machine.cpu, machine.cores
        );
        let _ = writeln!(
            out,
            "Two looks at the clock take {:.0} ns: they are in every latency below, but for the columns that say less.\n",
            config.clock_ns
        );
        self.stores(&mut out);
        self.platforms(&mut out);
        self.timed(&mut out);
        self.commits(&mut out);
        let _ = writeln!(out, "What differs here:");
        for line in &config.differs {
            let _ = writeln!(out, "  - {line}");
        }
        out
    }

    fn real_stores(&self) -> impl Iterator<Item = &PersistRun> {
        self.runs.iter().filter(|run| run.real && run.pattern == "sequential write")
    }

    fn stores(&self, out: &mut String) {
        let mut threads: Vec<usize> = self.real_stores().map(|run| run.threads).collect();
        threads.sort_unstable();
        threads.dedup();
        let by_threads: Vec<String> = threads.iter().map(|threads| format!("{threads} thr GB/s")).collect();
        let mut headings = vec!["store", "block"];
        headings.extend(by_threads.iter().map(String::as_str));
        headings.extend(["p50 ns", "p99 ns", "p999 ns", "p50 less"]);
        let mut table = Table::new(&headings);
        for first in self.real_stores().filter(|run| run.threads == 1) {
            let same = |run: &&PersistRun| run.store == first.store && run.block_bytes == first.block_bytes;
            let mut cells = vec![in_words(first.store).to_owned(), first.block_bytes.to_string()];
            cells.extend(self.real_stores().filter(same).map(|run| format!("{:.2}", run.bytes_per_s / 1e9)));
            cells.extend(latency(first));
            table.row(cells);
        }
        let config = &self.config;
        let cache =
            config.last_cache_bytes.map_or_else(|| "unknown".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
        let _ = writeln!(
            out,
            "Sequential writes on a real mapping: DRAM ({} on {}), durability none; each thread in {} MiB of its own,\n\
             last cache {cache}. Latency of one block, 1 thread.\n\n{table}",
            config.file_system.kind,
            config.file_system.source,
            config.region_bytes >> 20,
        );
    }

    /// The published comparison: the literal reading drawn and by threads, then the result of each reading.
    fn platforms(&self, out: &mut String) {
        let _ = writeln!(
            out,
            "ADR against eADR, sequential writes, modelled and accounted: 12 x 128 GB of the 100 series with flushed stores,\n\
             8 x 256 GB of the 200 series with stores left in the caches, and that times 1.5 (estimate for 12 modules)\n"
        );
        if let Some(literal) = self.comparisons.iter().find(|comparison| comparison.literal) {
            let _ = writeln!(out, "{}", picture(literal));
            let _ = writeln!(out, "{}", by_threads(literal));
        }
        let mut table = Table::new(&[
            "100 series",
            "200 series",
            "bytes",
            "1-2 thr",
            "48 thr",
            "48 x1.5",
            "what comes out of the shape",
        ]);
        let signed = |percent: f64| format!("{percent:+.0} %");
        for comparison in &self.comparisons {
            table.row(vec![
                comparison.flushed.to_owned(),
                comparison.unflushed.to_owned(),
                comparison.block_bytes.to_string(),
                signed(comparison.few_percent),
                signed(comparison.many_percent),
                signed(comparison.many_of_12_percent),
                comparison.in_words(),
            ]);
        }
        let first = &self.comparisons[0];
        table.row(vec![
            "published".to_owned(),
            String::new(),
            "-".to_owned(),
            signed(first.few_percent_published),
            signed(first.many_percent_published),
            format!("{:+.1} %", first.many_of_12_percent_published),
            "ahead with at most 2 threads, behind with many; the thread counts are not published".to_owned(),
        ]);
        let _ = writeln!(out, "{table}");
        if let Some(amplification) = first.implied_amplification {
            let _ = writeln!(
                out,
                "Stores past the cache reach {amplification:.1} times what stores left in the caches do with 48 threads (200 series): \
                 what the\nmedium writes more for lines that leave in another order, if nothing else holds it back.\n"
            );
        }
    }

    fn timed(&self, out: &mut String) {
        let timed = || self.runs.iter().filter(|run| !run.real && run.latency_ns.is_some());
        let mut table = Table::new(&["", "p50 less", "model ns", "off", "GB/s", "model GB/s", "amplification"]);
        let show = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
        };
        for run in timed() {
            let off = run.p50_less_clock_ns.zip(run.target_ns).map(|(took, target)| (took / target - 1.0) * 100.0);
            table.row(vec![
                run.name.clone(),
                show(run.p50_less_clock_ns, 0),
                show(run.target_ns, 0),
                off.map_or_else(|| "-".to_owned(), |off| format!("{off:+.0} %")),
                show(Some(run.bytes_per_s / 1e9), 2),
                show(run.target_bytes_per_s.map(|target| target / 1e9), 2),
                show(run.amplification, 2),
            ]);
        }
        if timed().next().is_some() {
            let _ = writeln!(
                out,
                "The models in real time, as far as this host goes (GB/s counts the time that threads did not run, too):\n\n{table}"
            );
        }
        for why in &self.refused {
            let _ = writeln!(out, "not in real time: {why}");
        }
        if !self.refused.is_empty() {
            out.push('\n');
        }
    }

    fn commits(&self, out: &mut String) {
        let mut table = Table::new(&[
            "1 KiB, one committer",
            "bytes written",
            "commits/s",
            "p50 ns",
            "p99 ns",
            "p999 ns",
            "p50 less",
            "CPU ns",
            "durability",
        ]);
        let commits = || self.runs.iter().filter(|run| run.pattern == "append and persist");
        for run in commits() {
            let written = run.amplification.unwrap_or(1.0) * run.block_bytes as f64;
            let mut cells = vec![run.name.clone(), grouped(written), grouped(run.bytes_per_s / run.block_bytes as f64)];
            cells.extend(latency(run));
            cells.push(run.cpu_ns.map_or("-".to_owned(), grouped));
            cells.push(run.durability.to_owned());
            table.row(cells);
        }
        let _ = writeln!(out, "Append and persist, in turns in one run:\n\n{table}");
        for run in commits().filter(|run| run.name.starts_with("journal")) {
            let _ = writeln!(out, "{}: {}", run.name, run.medium);
        }
        let journal = &self.journal;
        // In the order of `JournalRatios::targets`.
        let verdict = |at: usize| self.targets.get(at).map_or(String::new(), verdict);
        let _ = writeln!(out, "\nMedians, round by round (in brackets the quartiles of the rounds):");
        let mut line = |what: &str, spread: Spread, verdict: String| {
            let Spread { median, low, high } = spread;
            let _ = writeln!(out, "  {what:<66}{median:>8.2} x  ({low:.2} to {high:.2}){verdict}");
        };
        line("journal over bare ntstore + fence of 1,024 B", journal.over_bare, verdict(0));
        line("  the same, the clock's cost taken off both", journal.over_bare_less_clock, verdict(1));
        let same = journal.over_same_bytes_less_clock;
        line("  over the bytes that the journal writes, the clock taken off", same, String::new());
        let disk = if journal.disk_is_volatile {
            "   no disk: it is in memory, so this says nothing; give --data a folder on one".to_owned()
        } else {
            verdict(2)
        };
        line("journal on the disk with fdatasync over journal on the mapping", journal.disk_over, disk);
        let _ = writeln!(
            out,
            "  {:<66}{:>8.2} x",
            "  the same, medians of all commits together", journal.disk_over_together
        );
        out.push('\n');
    }
}

/// Both curves and the estimate, drawn.
fn picture(comparison: &Comparison) -> String {
    let curve = |letter, name: &str, of: fn(&(f64, f64)) -> f64| Curve {
        letter,
        name: name.to_owned(),
        points: comparison.gb_per_s.iter().enumerate().map(|(at, pair)| (at + 1, of(pair))).collect(),
    };
    let curves = [
        curve('1', "100 series, 12 modules, flushed (ADR)", |pair| pair.0),
        curve('2', "200 series, 8 modules, not flushed (eADR)", |pair| pair.1),
        curve('e', "the same times 1.5: estimate for 12 modules", |pair| pair.1 * 1.5),
    ];
    plot::draw(&curves, 17, "GB/s")
}

/// The figures under the picture.
fn by_threads(comparison: &Comparison) -> Table {
    let shown: Vec<(u32, (f64, f64))> =
        SHOWN.iter().map(|threads| (*threads, comparison.gb_per_s[*threads as usize - 1])).collect();
    let mut headings = vec!["threads".to_owned()];
    headings.extend(shown.iter().map(|(threads, _)| threads.to_string()));
    let mut table = Table::new(&headings.iter().map(String::as_str).collect::<Vec<_>>());
    let mut row = |name: &str, cell: &dyn Fn((f64, f64)) -> String| {
        let cells = shown.iter().map(|(_, pair)| cell(*pair));
        table.row(std::iter::once(name.to_owned()).chain(cells).collect());
    };
    row("100 series GB/s", &|pair| format!("{:.2}", pair.0));
    row("200 series GB/s", &|pair| format!("{:.2}", pair.1));
    row("change", &|pair| format!("{:+.0} %", (pair.1 / pair.0 - 1.0) * 100.0));
    row("change x 1.5", &|pair| format!("{:+.0} %", (pair.1 * 1.5 / pair.0 - 1.0) * 100.0));
    table
}

fn verdict(target: &Target) -> String {
    let side = match target.bound {
        Bound::AtMost => "at most",
        Bound::AtLeast => "at least",
    };
    format!("   target {side} {:.0}: {}", target.wanted, target.verdict())
}

/// Four cells.
fn latency(run: &PersistRun) -> Vec<String> {
    let Some(latency) = run.latency_ns else { return vec!["-".to_owned(); 4] };
    let less = run.p50_less_clock_ns.map_or("-".to_owned(), grouped);
    vec![grouped(latency.p50), grouped(latency.p99), grouped(latency.p999), less]
}

fn in_words(store: &str) -> &'static str {
    match store {
        "ntstore" => "ntstore, fence",
        "clwb" => "store, clwb, fence",
        _ => "store only",
    }
}
