//! The result of analytics: as one JSON object for scripts, as tables for people.
//!
//! The JSON keys are a contract (`bench, version, machine, config, runs`, and in a run the keys down to `correct`): keys may
//! be added, never renamed. What was not measured is null, never zero.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::published::Published;
use crate::machine::Machine;
use crate::plot;
use crate::table::Table;

/// The total of ours may be so many times that of plain DataFusion on Parquet.
const TARGET_RATIO: f64 = 0.7;
/// The published speed-up of a large cache over a small one.
const TARGET_SPEEDUP: f64 = 6.0;
/// Memory Mode is to take at most so many times what all DRAM takes.
const TARGET_MEMORY_MODE: f64 = 1.2;

/// Everything about one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Always `analytics`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// What it ran on.
    pub machine: Machine,
    /// What was run.
    pub config: Config,
    /// The figures.
    pub runs: Vec<Run>,
    /// Ours beside plain DataFusion.
    pub compared: Compared,
}

/// What was run.
#[derive(Clone, Debug, Serialize)]
pub struct Config {
    /// TPC-H's scale factor.
    pub scale_factor: f64,
    /// How often each query ran in the comparison.
    pub rounds: usize,
    /// The Parquet files.
    pub parquet_bytes: u64,
    /// Pages of the store in use.
    pub segment_bytes: u64,
    /// The machine's load in the minute before.
    pub load_average: Option<f64>,
    /// The published results.
    pub published: [Published; 3],
    /// What makes this another thing than the published experiment.
    pub differs: Vec<String>,
}

/// The figures of one run of the 22 queries.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// Names the run among several.
    pub name: String,
    /// What a flush is worth on its medium; nothing here is written to be kept.
    pub durability: &'static str,
    /// False where a medium is modelled.
    pub real: bool,
    /// TPC-H's scale factor.
    pub scale_factor: f64,
    /// How many queries.
    pub queries: usize,
    /// The page cache.
    pub cache_bytes: u64,
    /// The data.
    pub data_bytes: u64,
    /// What the queries touch of it: caches are larger or smaller than this.
    pub touched_bytes: u64,
    /// `cold` or `warm`.
    pub temperature: &'static str,
    /// All queries together.
    pub seconds: f64,
    /// Each query.
    pub per_query_s: BTreeMap<String, f64>,
    /// Share of the bytes that scans asked for and no device had to read.
    pub hit_ratio: Option<f64>,
    /// Of the readings of pages and extents, the share that near memory held.
    pub near_hit_ratio: Option<f64>,
    /// The share that far memory held; the rest was read from the device.
    pub far_hit_ratio: Option<f64>,
    /// Bytes that the device read.
    pub device_read_bytes: Option<u64>,
    /// Whether every result is that of plain DataFusion.
    pub correct: bool,
    /// What the cache lies in.
    pub cache_mode: &'static str,
    /// The storage network.
    pub network: Option<String>,
    /// What the cache is a multiple of: `data`, or `touched` for what the queries read of it.
    pub sized_by: Option<&'static str>,
    /// The published cache of this ratio.
    pub published_cache: Option<String>,
    /// Results that are others.
    pub differs: Vec<String>,
}

/// Ours beside plain DataFusion on Parquet, in turns.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Ours over plain, all queries, by round.
    pub ratio_by_round: Vec<f64>,
    /// Ours over plain, from each query's shortest times.
    pub ratio: f64,
    /// Results that are others.
    pub differs: Vec<String>,
    #[serde(skip)]
    pub(super) runs: Vec<Run>,
}

impl Compared {
    pub(super) fn new(
        runs: Vec<Run>,
        plain: &[BTreeMap<String, f64>],
        ours: &[BTreeMap<String, f64>],
        differs: Vec<String>,
    ) -> Compared {
        let sum = |round: &BTreeMap<String, f64>| round.values().sum::<f64>();
        let ratio_by_round = plain.iter().zip(ours).map(|(plain, ours)| sum(ours) / sum(plain)).collect();
        let ratio = runs[1].seconds / runs[0].seconds;
        Compared { ratio_by_round, ratio, differs, runs }
    }
}

/// What makes a run another thing than the published experiment.
pub(super) fn differences(scale: f64, data_bytes: u64, touched_bytes: u64, cores: usize) -> Vec<String> {
    vec![
        format!("the data: TPC-H at scale {scale}, {} MB in column segments, not 1.2 TB of a hospital's", data_bytes / 1_000_000),
        format!(
            "the caches: in the published ratios to the data, and again to the {} MB of it that the queries touch; columns \
             that none asks for are never read",
            touched_bytes / 1_000_000
        ),
        format!(
            "the machine: {cores} processors, not 96; a run's network is either as published, 1.6 GB/s for all of them, or \
             scaled to {cores} of 96"
        ),
        "the storage network: modelled from the line rate of 16GFC and a flash array's latency, with the data in memory".to_owned(),
        "the queries: 22 of TPC-H one after the other, not those of the experiment, which are not published".to_owned(),
    ]
}

impl Report {
    /// Whether every result was right.
    pub fn is_clean(&self) -> bool {
        self.compared.differs.is_empty() && self.runs.iter().all(|run| run.correct)
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_else(|error| format!("{{\"error\": \"{error}\"}}"))
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let _ = writeln!(
            text,
            "TPC-H at scale {}, seconds, each query's shortest of {} rounds, in turns\n",
            self.config.scale_factor, self.config.rounds
        );
        let [plain, ours] = [&self.compared.runs[0], &self.compared.runs[1]];
        let mut table = Table::new(&["query", "plain DataFusion, Parquet", "column segments", "ratio"]);
        for (query, plain) in &plain.per_query_s {
            let ours = ours.per_query_s[query];
            table.row(vec![query.clone(), format!("{plain:.3}"), format!("{ours:.3}"), format!("{:.2}", ours / plain)]);
        }
        let ratio = format!("{:.2}", self.compared.ratio);
        table.row(vec!["total".into(), format!("{:.3}", plain.seconds), format!("{:.3}", ours.seconds), ratio]);
        let _ = writeln!(text, "{table}");
        let _ = writeln!(text, "{}\n", self.verdict());
        for (network, sizing) in self.groups() {
            text += &self.group(network, sizing);
        }
        let _ = writeln!(text, "\nPublished, IRIS on 1.2 TB:");
        for published in &self.config.published {
            let _ = writeln!(text, "  {}, cache {}: {}", published.server, published.cache, published.result);
        }
        let _ = writeln!(text, "What differs:");
        for line in &self.config.differs {
            let _ = writeln!(text, "  {line}");
        }
        text
    }

    fn verdict(&self) -> String {
        let right = if self.compared.differs.is_empty() {
            "All 22 results are those of plain DataFusion.".to_owned()
        } else {
            format!("Wrong: {}.", self.compared.differs.join("; "))
        };
        let rounds: Vec<String> = self.compared.ratio_by_round.iter().map(|ratio| format!("{ratio:.2}")).collect();
        let verdict = if self.compared.ratio <= TARGET_RATIO { "met" } else { "missed" };
        format!(
            "{right} Ours take {:.2} of its time (rounds: {}); the target of {TARGET_RATIO} is {verdict}.",
            self.compared.ratio,
            rounds.join(", ")
        )
    }

    /// Networks and sizings that were run, in their order.
    fn groups(&self) -> Vec<(&str, &'static str)> {
        let mut groups: Vec<_> =
            self.runs.iter().filter_map(|run| Some((run.network.as_deref()?, run.sized_by?))).collect();
        groups.dedup();
        groups
    }

    /// One network and sizing: a table, bars, and what they say.
    fn group(&self, network: &str, sizing: &str) -> String {
        let what = if sizing == "data" { "the data" } else { "what the queries touch of the data" };
        let mut text = format!("{network}; caches sized by {what}\n\n");
        let here: Vec<&Run> = self
            .runs
            .iter()
            .filter(|run| run.network.as_deref() == Some(network) && run.sized_by == Some(sizing))
            .collect();
        let headings =
            ["cache of 1.2 TB", "mode", "cache MB", "", "seconds", "hit ratio", "near", "far", "read MB", "right"];
        let (mut table, mut bars) = (Table::new(&headings), Vec::new());
        let share = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
        for run in &here {
            let cache = run.published_cache.clone().unwrap_or_default();
            bars.push((format!("{cache} {} {}", run.cache_mode, run.temperature), run.seconds));
            table.row(vec![
                cache,
                run.cache_mode.into(),
                format!("{}", run.cache_bytes / 1_000_000),
                run.temperature.into(),
                format!("{:.2}", run.seconds),
                share(run.hit_ratio),
                share(run.near_hit_ratio),
                share(run.far_hit_ratio),
                run.device_read_bytes.map_or("-".into(), |bytes| format!("{}", bytes / 1_000_000)),
                if run.correct { "22 of 22".into() } else { format!("{} wrong", run.differs.len()) },
            ]);
        }
        let _ = writeln!(text, "{table}");
        let _ = writeln!(text, "{}", plot::bars(&bars, 50, "s"));
        text + &findings(&here) + "\n"
    }
}

/// What one network and sizing say: the caches against each other, and the modes.
fn findings(runs: &[&Run]) -> String {
    let warm = |cache: &str, mode: &str| {
        let fits = |run: &&&Run| {
            run.published_cache.as_deref() == Some(cache) && run.cache_mode == mode && run.temperature == "warm"
        };
        runs.iter().find(fits).map(|run| run.seconds)
    };
    let mut text = String::new();
    if let (Some(small), Some(large)) = (warm("512 GiB", "dram"), warm("2 TiB", "dram")) {
        let times = small / large;
        let verdict = if times >= TARGET_SPEEDUP { "met" } else { "missed" };
        let _ = writeln!(
            text,
            "Warm, the large cache is {times:.2} times faster than the small one; the target of {TARGET_SPEEDUP} is {verdict}."
        );
        for (mode, name) in [("memory-mode", "Memory Mode"), ("dual", "Dual")] {
            let Some(other) = warm("2 TiB", mode) else { continue };
            let over = other / large;
            let verdict = match mode {
                "memory-mode" if over <= TARGET_MEMORY_MODE => "; the target of at most 1.2 is met",
                "memory-mode" => "; the target of at most 1.2 is missed",
                _ => "",
            };
            let _ = writeln!(text, "Warm, {name} takes {over:.2} of the time of all DRAM{verdict}.");
        }
    }
    text
}
