//! The result of analytics: as one JSON object for scripts, as tables for people.
//!
//! The JSON keys are a contract (`bench, version, machine, config, runs`, and in a run the keys down to `correct`): keys may
//! be added, never renamed. What was not measured is null, never zero.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use super::published::Published;
use crate::machine::Machine;
use crate::table::Table;

/// The total of ours may be so many times that of plain DataFusion on Parquet.
const TARGET_RATIO: f64 = 0.7;
/// The published speed-up of a large cache over a small one.
const TARGET_SPEEDUP: f64 = 6.0;

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
    /// Bytes that the device read.
    pub device_read_bytes: Option<u64>,
    /// Whether every result is that of plain DataFusion.
    pub correct: bool,
    /// What the cache lies in.
    pub cache_mode: &'static str,
    /// The storage network.
    pub network: Option<String>,
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
            "the caches: in the published ratios to the {} MB that the queries touch; columns that none asks for are never read",
            touched_bytes / 1_000_000
        ),
        format!("the machine: {cores} processors, not 96; the network of a run is either as published or scaled to that"),
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
        let mut table = Table::new(&["run", "cache MB", "seconds", "hit ratio", "read MB", "right"]);
        for run in self.runs.iter().filter(|run| run.network.is_some()) {
            table.row(vec![
                run.name.clone(),
                format!("{}", run.cache_bytes / 1_000_000),
                format!("{:.2}", run.seconds),
                run.hit_ratio.map_or("-".into(), |ratio| format!("{ratio:.3}")),
                run.device_read_bytes.map_or("-".into(), |bytes| format!("{}", bytes / 1_000_000)),
                if run.correct { "22 of 22".into() } else { format!("{} wrong", run.differs.len()) },
            ]);
        }
        let _ = writeln!(text, "{table}");
        for line in self.speedups() {
            let _ = writeln!(text, "{line}");
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

    /// The largest cache when warm against the smallest, for each network.
    fn speedups(&self) -> Vec<String> {
        let mut networks: Vec<&String> = self.runs.iter().filter_map(|run| run.network.as_ref()).collect();
        networks.dedup();
        let line = |network: &String| {
            let here = |cache: &str, temperature: &str| {
                let fits = |run: &&Run| {
                    run.network.as_ref() == Some(network)
                        && run.cache_mode == "dram"
                        && run.published_cache.as_deref() == Some(cache)
                        && run.temperature == temperature
                };
                self.runs.iter().find(fits).map(|run| run.seconds)
            };
            let (small, large) = (here("512 GiB", "warm")?, here("2 TiB", "warm")?);
            Some(format!(
                "{network}: warm, the large cache takes {:.2} times less than the small one; published: about {TARGET_SPEEDUP}.",
                small / large
            ))
        };
        networks.into_iter().filter_map(line).collect()
    }
}
