//! The result as text: the places, the media's single requests, and what to think of both.

use std::fmt::Write;

use workload::table::Table;

use crate::calibrate::in_us;
use crate::report::{How, Place, WhatIfReport};

/// Width of the longest bar.
const BAR: f64 = 24.0;
/// Single requests that are further off are pointed out. A quiet machine stays within 10 %.
const OFF_MAX: f64 = 0.15;

impl WhatIfReport {
    /// As text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let machine = &self.machine;
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(
            out,
            "What if: Terrace {} on {}, {} processors, {gib:.0} GiB",
            self.version, machine.cpu, machine.cores
        );
        let _ = writeln!(out, "{}\n", self.config.command.join(" "));
        let _ = writeln!(out, "{}", self.places());
        let _ = writeln!(out, "{}", self.singles());
        out += &self.notes();
        out
    }

    fn places(&self) -> Table {
        let unit = self.runs.first().map_or("", |place| place.unit);
        let headings = ["medium", unit, "of the disk", "", "how", "latency", "p50 us", "p99 us", "cpu s", "path cpu s"];
        let mut table = Table::ruled(&headings);
        let most = self.runs.iter().filter_map(|place| place.rate).fold(1e-12, f64::max);
        for place in &self.runs {
            let how = match (place.how, place.residual_percent) {
                (How::Extrapolated, Some(percent)) if place.is_flat => {
                    format!("not bound by it, within {percent:.1} %")
                }
                (How::Extrapolated, Some(percent)) => format!("extrapolated, within {percent:.1} %"),
                (how, _) => how.as_str().to_owned(),
            };
            let bar = place.rate.map_or_else(String::new, |rate| "#".repeat((rate / most * BAR).round() as usize));
            table.row(vec![
                place.name.clone(),
                place.rate.map_or_else(|| "-".to_owned(), rounded),
                place.ratio_to_bare.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2} x")),
                bar,
                how,
                place.command_latency_us.map_or_else(|| "-".to_owned(), |us| format!("{us:.0} us")),
                place.latency_us.map_or_else(|| "-".to_owned(), |latency| format!("{:.0}", latency.p50)),
                place.latency_us.map_or_else(|| "-".to_owned(), |latency| format!("{:.0}", latency.p99)),
                format!("{:.2}", place.cpu_s),
                format!("{:.2}", place.path_cpu_s),
            ]);
        }
        table
    }

    /// Single requests: the path's cost, and wanted against achieved.
    fn singles(&self) -> Table {
        let mut table = Table::ruled(&["4 KiB alone, us", "", "read", "write", "flush"]);
        for place in self.runs.iter().filter(|place| !self.is_again(place)) {
            let Some(calibrated) = &place.calibration else { continue };
            let mut row = |name: &str, what: String, [read, write, flush]: [f64; 3]| {
                table.row(vec![name.to_owned(), what, shown(read), shown(write), shown(flush)]);
            };
            if place.how == How::Path {
                row(&place.name, "costs".to_owned(), in_us(&calibrated.path));
            }
            let (Some(wanted), Some(achieved)) = (&calibrated.wanted, &calibrated.achieved) else { continue };
            let added = calibrated.added_ns() / 1e3;
            let what = if added > 0.0 { format!("wanted, {added:.0} added") } else { "wanted".to_owned() };
            row(&place.name, what, in_us(wanted));
            row("", "achieved".to_owned(), in_us(achieved));
        }
        table
    }

    /// Whether a medium that was run is here a second time, extrapolated.
    fn is_again(&self, place: &Place) -> bool {
        place.how != How::Run && self.runs.iter().any(|other| other.how == How::Run && other.name == place.name)
    }

    fn notes(&self) -> String {
        let mut out = String::new();
        let has = |how| self.runs.iter().any(|place| place.how == how);
        let _ = writeln!(out, "run: with the medium's times, from which the path's cost is taken off.");
        if has(How::Extrapolated) || has(How::Refused) {
            let _ = writeln!(
                out,
                "extrapolated: the path is slower than this medium. The figure is read off a line through runs with four added times:"
            );
            self.runs.iter().filter(|place| !place.added.is_empty()).for_each(|place| {
                let runs = place.added.iter().map(|run| format!("+{:.0} us {}", run.added_us, rounded(run.rate)));
                let _ = writeln!(out, "  {}: {}", place.name, runs.collect::<Vec<_>>().join(", "));
            });
        }
        if self.runs.iter().any(|place| place.is_flat) {
            out += "not bound by it: more time for each request did not slow the command, so less would not speed it up; the mean of the four \
                    runs.\n";
        }
        for place in &self.runs {
            let off = place.calibration.as_ref().map_or(0.0, |calibrated| calibrated.is_off_by());
            if off > OFF_MAX && !self.is_again(place) {
                let percent = off * 100.0;
                let _ = writeln!(
                    out,
                    "{}: single requests are up to {percent:.0} % off what they should take. Is the machine busy with something else?",
                    place.name
                );
            }
            if let Some(why) = &place.why {
                let _ = writeln!(out, "refused, {}: {why}. Use longer runs, or fewer clients.", place.name);
            }
            if let (How::Run | How::Path, Some([reads, writes, flushes])) = (place.how, place.requests_per_unit) {
                let _ = writeln!(
                    out,
                    "{}: {reads:.2} reads, {writes:.2} writes, {flushes:.2} flushes reach the device for each unit",
                    place.name
                );
            }
        }
        out += "The path (nbdfuse, loop device, this process) uses the same processors as the command: what the processor bounds is slower here \
                than on the medium itself.\n";
        out
    }
}

/// Three digits at least.
fn rounded(rate: f64) -> String {
    match rate {
        rate if rate >= 100.0 => workload::table::grouped(rate),
        rate if rate >= 1.0 => format!("{rate:.2}"),
        rate => format!("{rate:.4}"),
    }
}

fn shown(us: f64) -> String {
    if us < 10.0 { format!("{us:.1}") } else { format!("{us:.0}") }
}

#[cfg(test)]
mod tests {
    use crate::report::tests::example;

    #[test]
    fn the_text_tells_a_run_from_an_extrapolation_and_why_one_was_refused() {
        let text = example().to_text();
        for part in [
            "medium",
            "800",
            "1.25 x",
            "extrapolated, within 3.0 %",
            "1.50 x",
            "refused, dcpmm100-128g: no line",
            "+20 us 900, +40 us 800",
            "wanted, 20 added",
            "reach the device for each unit",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
    }
}
