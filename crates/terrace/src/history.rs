//! `terrace history`: figures of the last hour, day, week, month or year of a running node, as a list, a plot, or JSON.

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Weak};

use clap::Args;
use interop::running::{Needs, Requirement, RunningProduction, ServiceRequest};
use node::identity::{Action, Caller, Object};
use node::{Clock, control};
use node_metrics::Snapshots;
use node_metrics::history::{HistoryKeeper, HistoryPoint, HistoryRange};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::place::Place;
use crate::show::{TextTable, time};
use crate::terminal;

/// The word that requests begin with.
pub const REQUEST: &str = "history";

/// Series of one request.
pub const SERIES_MAX: usize = 16;

/// Rows and columns of a plot.
const PLOT: (usize, usize) = (10, 72);

/// `terrace history`
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The figure; without one all are listed
    pub series: Option<String>,
    /// How far back: 1h, 1d, 1w, 1m (35 days) or 1y (400 days)
    #[arg(long, default_value = "1h", value_name = "RANGE")]
    pub range: HistoryRange,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub place: Place,
}

/// The history of a node, until it is stopped.
#[derive(Debug)]
pub struct RunningHistory(Option<Arc<HistoryKeeper>>);

impl RunningHistory {
    /// Keeps the figures of a node, if it is to, and answers requests about them. Errors: what was kept cannot be read.
    pub fn start(node: &RunningProduction, snapshots: &Arc<Snapshots>, keeps: bool) -> anyhow::Result<RunningHistory> {
        let start = || HistoryKeeper::start(node.store().clone(), Clock::system(), Arc::clone(snapshots));
        let keeper = keeps.then(start).transpose();
        let keeper = keeper.map_err(|why| anyhow::anyhow!("the history of figures cannot be kept: {why}"))?;
        let weak = keeper.as_ref().map_or_else(Weak::new, Arc::downgrade);
        node.serve_requests(
            REQUEST,
            true,
            Box::new(move |text| {
                let request =
                    serde_json::from_str(text).map_err(|error| format!("not a request of this release: {error}"))?;
                Ok(Box::new(GuardedHistoryRequest { keeper: Weak::clone(&weak), request }))
            }),
        );
        Ok(RunningHistory(keeper))
    }

    /// Ends it.
    pub async fn stop(self) {
        if let Some(keeper) = self.0 {
            // It fails only if the thread panicked, which was reported.
            let _ = tokio::task::spawn_blocking(move || keeper.stop()).await;
        }
    }
}

/// What is asked.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "kebab-case", deny_unknown_fields)]
pub enum HistoryRequest {
    /// All series, each with its summary of a range.
    List {
        /// How far back.
        range: HistoryRange,
    },
    /// The points of a series.
    Points {
        /// Its name.
        series: String,
        /// How far back.
        range: HistoryRange,
    },
    /// The names of all series.
    Names,
    /// The points of several series, of which each row is read once: a [`ShownSeries`] for each that there is.
    Several {
        /// Their names, [`SERIES_MAX`] at most.
        series: Vec<String>,
        /// How far back.
        range: HistoryRange,
    },
}

struct GuardedHistoryRequest {
    keeper: Weak<HistoryKeeper>,
    request: HistoryRequest,
}

/// A series in a list.
#[derive(Debug, Serialize, Deserialize)]
pub struct ListedSeries {
    /// Its name.
    pub series: String,
    /// Its unit.
    pub unit: String,
    /// The last value.
    pub last: f32,
    /// The least.
    pub least: f32,
    /// The mean.
    pub mean: f32,
    /// The most.
    pub most: f32,
}

/// What a node answers about a series.
#[derive(Debug, Serialize, Deserialize)]
pub struct ShownSeries {
    /// Its name.
    pub series: String,
    /// Its unit.
    pub unit: String,
    /// Between two points, seconds.
    pub step_s: i64,
    /// In their order.
    pub points: Vec<HistoryPoint>,
}

impl ServiceRequest for GuardedHistoryRequest {
    fn requirement(&self) -> Requirement<'_> {
        Requirement { needs: Needs::Right(Action::NodeMetrics, Object::Node), entry: None }
    }

    fn answer(&self, _caller: &Caller) -> Result<Value, String> {
        let keeper = self.keeper.upgrade();
        let keeper =
            keeper.ok_or("no history is kept: `history = false` is in terrace.toml, or the node is stopping")?;
        let (history, now_us) = (keeper.history(), Clock::system().now_us());
        match &self.request {
            HistoryRequest::List { range } => {
                let all = history.summaries(*range, now_us).map_err(|error| error.to_string())?;
                let listed = |(series, points): (String, Vec<HistoryPoint>)| listed(series, &points);
                serde_json::to_value(all.into_iter().filter_map(listed).collect::<Vec<_>>())
                    .map_err(|error| error.to_string())
            }
            HistoryRequest::Points { series, range } => {
                let points = history.points(series, *range, now_us).map_err(|error| error.to_string())?;
                let points =
                    points.ok_or_else(|| format!("there is no figure `{series}`: `terrace history` lists them"))?;
                Ok(json!(shown_series((series.clone(), points), *range)))
            }
            HistoryRequest::Names => {
                Ok(json!(history.series().into_iter().map(|series| series.name).collect::<Vec<_>>()))
            }
            HistoryRequest::Several { series, .. } if series.len() > SERIES_MAX => {
                Err(format!("{SERIES_MAX} figures at most are shown together"))
            }
            HistoryRequest::Several { series, range } => {
                let all = history.points_of(series, *range, now_us).map_err(|error| error.to_string())?;
                Ok(json!(all.into_iter().map(|one| shown_series(one, *range)).collect::<Vec<_>>()))
            }
        }
    }
}

fn shown_series((series, points): (String, Vec<HistoryPoint>), range: HistoryRange) -> ShownSeries {
    ShownSeries { unit: unit(&series).to_owned(), series, step_s: range.step_s(), points }
}

/// A series as a list has it. `None`: it has no points.
pub fn listed(series: String, points: &[HistoryPoint]) -> Option<ListedSeries> {
    let last = points.last()?.mean;
    let least = points.iter().map(|point| point.least).fold(f32::INFINITY, f32::min);
    let most = points.iter().map(|point| point.most).fold(f32::NEG_INFINITY, f32::max);
    let mean = points.iter().map(|point| f64::from(point.mean)).sum::<f64>() / points.len() as f64;
    Some(ListedSeries { unit: unit(&series).to_owned(), series, last, least, mean: mean as f32, most })
}

/// The unit of a series, by its name.
fn unit(series: &str) -> &'static str {
    let kind = match series.split_once('.') {
        Some(("medium", rest)) => rest.rsplit_once('.').map_or("", |(_, kind)| kind),
        Some((kind, _)) => kind,
        None => series,
    };
    match kind {
        "intake" | "errored" | "refused" | "delivered" | "commits" | "reads" | "writes" => "1/s",
        "read_bytes" | "written_bytes" => "B/s",
        "ack_p50" | "ack_p99" | "commit_p99" | "read_p99" | "write_p99" | "oldest" => "s",
        "memory" | "disk_free" => "B",
        "cpu" => "cores",
        _ => "",
    }
}

/// A value with its unit, in few characters.
pub fn shown(value: f32, unit: &str) -> String {
    let value = f64::from(value);
    let scaled = |steps: &[(f64, &str)]| {
        let (size, name) = steps.iter().find(|(size, _)| value.abs() >= *size).copied().unwrap_or((1.0, ""));
        (value / size, name.to_owned())
    };
    let (number, prefix) = match unit {
        "B" | "B/s" => scaled(&[(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")]),
        "s" if value != 0.0 && value.abs() < 1.0 => (
            value * if value.abs() < 1e-3 { 1e6 } else { 1e3 },
            if value.abs() < 1e-3 { "u".to_owned() } else { "m".to_owned() },
        ),
        _ => (value, String::new()),
    };
    let decimals = if number.abs() >= 100.0 || number == 0.0 { 0 } else { 2 };
    format!("{number:.decimals$} {prefix}{unit}").trim_end().to_owned()
}

/// Runs the command.
pub fn run(args: &HistoryArgs) -> anyhow::Result<ExitCode> {
    let request = match &args.series {
        None => HistoryRequest::List { range: args.range },
        Some(series) => HistoryRequest::Points { series: series.clone(), range: args.range },
    };
    let answer = control::request(&args.place.data, &format!("{REQUEST} {}", serde_json::to_string(&request)?))?;
    let mut out = terminal::out();
    if args.json {
        writeln!(out, "{answer:#}")?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.series.is_none() {
        let all: Vec<ListedSeries> = serde_json::from_value(answer)?;
        let mut table = TextTable::new(&["figure", "last", "least", "mean", "most"]);
        for of in &all {
            let text = |value: f32| shown(value, &of.unit);
            table.row(&[&of.series, &text(of.last), &text(of.least), &text(of.mean), &text(of.most)]);
        }
        write!(out, "{table}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let series: ShownSeries = serde_json::from_value(answer)?;
    write!(out, "{}", plot(&series, args.range, Clock::system().now_us()))?;
    Ok(ExitCode::SUCCESS)
}

/// A plot of the most in each column, with what is missing left out; and the figures below.
fn plot(series: &ShownSeries, range: HistoryRange, now_us: i64) -> String {
    let name = terminal::one_line(&series.series).into_owned();
    let Some(of) = listed(name.clone(), &series.points) else {
        return format!("{name}: nothing was kept in this range\n");
    };
    let (rows, columns) = PLOT;
    let length_us = range.length_s() * 1_000_000;
    let begin_us = now_us.saturating_sub(length_us);
    let mut most: Vec<Option<f32>> = vec![None; columns];
    for point in &series.points {
        let along = (point.at_us.saturating_sub(begin_us) as f64 / length_us as f64 * columns as f64).max(0.0) as usize;
        let column = &mut most[along.min(columns - 1)];
        *column = Some(column.map_or(point.most, |most| most.max(point.most)));
    }
    let top = if of.most > 0.0 { of.most } else { 1.0 };
    let bars = [' ', '\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
    let mut text = format!("{name}, most of each {} s\n\n", (length_us / 1_000_000) / columns as i64);
    for row in (0..rows).rev() {
        let label = match row {
            _ if row == rows - 1 => shown(top, &series.unit),
            0 => shown(0.0, &series.unit),
            _ => String::new(),
        };
        let cell = |most: &Option<f32>| match most {
            None => ' ',
            Some(value) => {
                let eighths = (f64::from(value.max(0.0)) / f64::from(top) * (rows * 8) as f64).round() as usize;
                // What was 0 is seen as a line, other than what was not kept.
                let eighths = if row == 0 { eighths.max(1) } else { eighths };
                bars[eighths.saturating_sub(row * 8).min(8)]
            }
        };
        text.push_str(&format!("{label:>12} |{}\n", most.iter().map(cell).collect::<String>()));
    }
    let of_unit = |value: f32| shown(value, &series.unit);
    text.push_str(&format!(
        "{:>12}  {}  to  {}\n\nlast {}, least {}, mean {}, most {}\n",
        "",
        time(begin_us),
        time(now_us),
        of_unit(of.last),
        of_unit(of.least),
        of_unit(of.mean),
        of_unit(of.most)
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_shown_with_their_unit_in_few_characters() {
        for (value, series, text) in [
            (12.5, "intake", "12.50 1/s"),
            (0.0, "errored", "0 1/s"),
            (0.0042, "ack_p99", "4.20 ms"),
            (0.000_031, "medium.home.journal.write_p99", "31.00 us"),
            (370.0, "oldest.lab", "370 s"),
            (1.5e9, "disk_free.home", "1.50 GB"),
            (0.75, "cache_hit", "0.75"),
        ] {
            assert_eq!(shown(value, unit(series)), text, "{series}");
        }
    }

    #[test]
    fn a_plot_shows_a_peak_in_its_place_and_tells_nothing_from_what_was_not_kept() {
        let now_us = 3_600_000_000 * 10;
        let point = |seconds_ago: i64, value: f32| HistoryPoint {
            at_us: now_us - seconds_ago * 1_000_000,
            mean: value,
            least: value,
            most: value,
        };
        let points = vec![point(1_800, 0.0), point(900, 80.0), point(10, 40.0)];
        let series = ShownSeries { series: "intake".to_owned(), unit: "1/s".to_owned(), step_s: 10, points };
        let text = plot(&series, HistoryRange::Hour, now_us);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[2].trim_start().starts_with("80.00 1/s |"), "{text}");
        let bars = |line: &str| line.chars().skip(14).collect::<Vec<char>>();
        let (top, bottom) = (bars(lines[2]), bars(lines[11]));
        assert_eq!(top.iter().filter(|c| **c == '\u{2588}').count(), 1);
        assert_eq!(top[54], '\u{2588}', "{text}");
        assert_eq!(
            (bottom[36], bottom[54], bottom[71], bottom[0]),
            ('\u{2581}', '\u{2588}', '\u{2588}', ' '),
            "{text}"
        );
        assert!(text.contains("last 40.00 1/s, least 0 1/s, mean 40.00 1/s, most 80.00 1/s"), "{text}");
        let none = ShownSeries { points: Vec::new(), ..series };
        assert!(plot(&none, HistoryRange::Hour, now_us).contains("nothing was kept"));
    }
}
