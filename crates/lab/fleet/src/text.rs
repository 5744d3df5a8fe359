//! The report as text: one row for each run, then the published figures beside ours, then what a reader must know of them.

use std::fmt::Write as _;

use workload::table::{Table, grouped};

use crate::published::DIFFERS;
use crate::report::{FleetReport, FleetRun, LOCAL_SHARE};
use crate::tally::STEADY_WINDOWS;

/// Characters of a line of prose.
const LINE: usize = 118;

impl FleetReport {
    /// The report as text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        self.head(&mut out);
        let _ = writeln!(out, "{}", self.rates());
        let _ = writeln!(out, "{}", self.costs());
        self.published(&mut out);
        self.notes(&mut out);
        for wrong in self.wrong() {
            let _ = writeln!(out, "WRONG: {wrong}");
        }
        out
    }

    fn head(&self, out: &mut String) {
        let (machine, config) = (&self.machine, &self.config);
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(
            out,
            "Fleet: Terrace {} on {}, {} processors, {gib:.0} GiB",
            self.version, machine.cpu, machine.cores
        );
        let layout = &config.layout;
        let _ = writeln!(
            out,
            "{} volumes of {} copies, {} MiB each, every block written before; {} threads x {} requests in progress on each.",
            layout.volumes,
            layout.copies,
            layout.bytes >> 20,
            config.threads,
            config.outstanding
        );
        let on = config
            .file_system
            .as_ref()
            .map_or_else(String::new, |file_system| format!(" ({} on {})", file_system.kind, file_system.source));
        let _ = writeln!(out, "Medium: {}{on}.", config.media);
        let _ = writeln!(
            out,
            "Each run: {} s warm-up, {} s measured, {} s cool-down; seed {}.\n",
            config.warm_seconds, config.seconds, config.cool_seconds, config.seed
        );
    }

    fn rates(&self) -> Table {
        let headings =
            ["load", "path", "device", "IOPS", "MB/s", "p50 us", "p99 us", "p99.9 us", "max us", "of bare", "steady"];
        let mut table = Table::ruled(&headings);
        for run in &self.runs {
            let latency = &run.latency_us;
            let mut cells = vec![run.load.to_owned(), run.path.to_owned(), run.device.to_owned()];
            cells.extend([grouped(run.iops), grouped(run.bytes_per_s / 1e6)]);
            cells.extend([latency.p50, latency.p99, latency.p999, latency.max].map(shown_us));
            cells.push(run.ratio_to_bare.map_or("-".to_owned(), |ratio| format!("{ratio:.2}")));
            cells.push(run.detail.steadiness.in_words());
            table.row(cells);
        }
        table
    }

    fn costs(&self) -> Table {
        let headings = [
            "load",
            "path",
            "device",
            "server CPU us/IO",
            "client CPU us/IO",
            "IO/s a core",
            "IO a CPU second",
            "hit",
            "local",
            "durability",
            "medium",
        ];
        let mut table = Table::ruled(&headings);
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0));
        for run in &self.runs {
            let mut cells = vec![run.load.to_owned(), run.path.to_owned(), run.device.to_owned()];
            cells.push(format!("{:.2}", run.server_cpu_us_per_io));
            cells.push(run.client_cpu_us_per_io.map_or("-".to_owned(), |us| format!("{us:.2}")));
            cells.extend([grouped(run.iops_per_core), grouped(run.iops_per_core_second)]);
            cells.extend([percent(run.cache_hit_ratio), percent(run.local_read_share), run.durability.clone()]);
            cells.push(if run.real { "real" } else { "modelled" }.to_owned());
            table.row(cells);
        }
        table
    }

    fn published(&self, out: &mut String) {
        let headings =
            ["beside the published run", "path", "published a core", "here a core", "x", "a CPU second", "x"];
        let mut table = Table::ruled(&headings);
        for run in &self.runs {
            let Some(published) = run.published else { continue };
            let times = |ours: f64, theirs: f64| format!("{:.2}", ours / theirs);
            let cells = if let Some(theirs) = published.iops_per_core {
                let (core, second) = (run.iops_per_core, run.iops_per_core_second);
                [grouped(theirs), grouped(core), times(core, theirs), grouped(second), times(second, theirs)]
            } else if let Some(theirs) = published.bytes_per_s_per_core {
                let bytes = run.block_bytes as f64;
                let (core, second) = (run.iops_per_core * bytes, run.iops_per_core_second * bytes);
                let gb = |bytes: f64| format!("{:.2} GB/s", bytes / 1e9);
                [gb(theirs), gb(core), times(core, theirs), gb(second), times(second, theirs)]
            } else {
                continue;
            };
            table.row([run.load.to_owned(), run.path.to_owned()].into_iter().chain(cells).collect());
        }
        if table.is_empty() {
            return;
        }
        let _ = writeln!(
            out,
            "{table}\n{}\n",
            wrapped(&format!(
                "Published: 13,798,674 IOPS below 40 us (4 KiB read), 9,459,587 IOPS (90/10), 549 GB/s (2 MiB sequential; 535.86 GB/s in \
                 the first announcement), on 12 servers of 56 cores. {DIFFERS}"
            ))
        );
    }

    fn notes(&self, out: &mut String) {
        let config = &self.config;
        let set = config.working_set_bytes >> 20;
        match config.last_cache_bytes {
            Some(cache) if config.working_set_bytes < 2 * cache => {
                let cache = cache >> 20;
                let _ = writeln!(
                    out,
                    "The working set of {set} MiB is less than twice the processor's cache ({cache} MiB): reads are partly of the cache; \
                     give a larger --size."
                );
            }
            Some(cache) => {
                let _ = writeln!(out, "Working set {set} MiB, the processor's cache {} MiB.", cache >> 20);
            }
            None => {}
        }
        let _ = writeln!(
            out,
            "In-process, server CPU includes the load generator and its checks. Latencies are from submission to completion, the wait for \
             other\nrequests of the same thread included; those of all threads are merged bucket by bucket. Writes are durable when they are \
             counted."
        );
        if self.runs.iter().any(|run| run.steady.is_none()) {
            let _ = writeln!(out, "Steady: not looked at in less than {STEADY_WINDOWS} s.");
        }
        if self.runs.iter().any(|run| run.steady == Some(false)) {
            let _ = writeln!(
                out,
                "Some runs were not steady: their last {STEADY_WINDOWS} seconds are more than 10 % apart. Repeat them on a quiet machine, \
                 or with more --seconds."
            );
        }
        let checked: u64 = self.runs.iter().map(|run| run.checked_blocks).sum();
        let whole: u64 = self.runs.iter().map(|run| run.checked_whole_blocks).sum();
        let _ = writeln!(
            out,
            "Checked: {} blocks for place and version, {} of these to the last byte.",
            grouped(checked as f64),
            grouped(whole as f64)
        );
        if config.layout.slow_copies.is_some() {
            self.slowed(out);
        }
        if let Some(load) = config.load_average {
            let busy: f64 = self.runs.iter().map(|run| run.busy_percent).sum::<f64>() / self.runs.len().max(1) as f64;
            let _ = writeln!(
                out,
                "Processors were {busy:.0} % busy in the runs, other programs included; load average {load:.1} at the end."
            );
        }
    }

    /// What slowed copies show.
    fn slowed(&self, out: &mut String) {
        let local = |run: &FleetRun| run.local_read_share.filter(|_| run.read_percent == 100);
        let least = self.runs.iter().filter_map(local).fold(f64::INFINITY, f64::min);
        if least.is_finite() {
            let side = if least >= LOCAL_SHARE { "at least" } else { "LESS THAN" };
            let _ = writeln!(
                out,
                "Reads of the fast copy: {:.2} % in the run with the fewest, {side} {:.0} %.",
                least * 100.0,
                LOCAL_SHARE * 100.0
            );
        }
        for run in &self.runs {
            let Some((floor, writes)) = run.write_floor_us.zip(run.write_latency_us) else { continue };
            let _ = writeln!(
                out,
                "{}: the fastest acknowledgement came after {:.1} us; the slow copies need {floor:.1} us.",
                run.name, writes.min
            );
        }
    }
}

/// A paragraph in lines of at most [`LINE`] characters.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        let needed = word.chars().count();
        if length > 0 {
            let fits = length + 1 + needed <= LINE;
            out.push(if fits { ' ' } else { '\n' });
            length = if fits { length + 1 } else { 0 };
        }
        out.push_str(word);
        length += needed;
    }
    out
}

/// Microseconds with a digit where it matters.
fn shown_us(us: f64) -> String {
    if us < 100.0 { format!("{us:.1}") } else { grouped(us) }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::example;

    #[test]
    fn the_text_has_a_row_for_each_run_the_published_figures_and_what_was_wrong() {
        let mut report = example();
        let text = report.to_text();
        assert!(
            text.lines()
                .skip_while(|line| !line.starts_with("Published"))
                .take(3)
                .all(|line| line.len() <= super::LINE)
        );
        assert_eq!(text.lines().filter(|line| line.starts_with("random 90/10, 4 KiB")).count(), 5, "{text}");
        for part in
            ["14,077", "549 GB/s", "535.86", "whole stack under virtual", "merged bucket by bucket", "99.0 %", "90.0 %"]
        {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains("WRONG") && !text.contains("not steady"), "{text}");
        assert!(!text.contains("less than twice"), "128 MiB are four times 32 MiB");
        report.runs[0].mismatches = 1;
        report.runs[0].steady = Some(false);
        report.config.working_set_bytes = 1 << 20;
        let text = report.to_text();
        assert!(text.contains("WRONG") && text.contains("not steady") && text.contains("less than twice"), "{text}");
    }
}
