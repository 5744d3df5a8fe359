//! The result of analytics: as one JSON object for scripts, as tables for people.
//!
//! The JSON keys are a contract (`bench, version, machine, config, runs`, and in a run the keys down to `correct`):
//! keys may be added, never renamed. A value that was not measured is null, never zero.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;

use catalogue::Model;
use catalogue::budget::Traffic;

use super::published::Published;
use crate::target::{self, Target};
use workload::machine::Machine;
use workload::plot;
use workload::table::{Table, grouped};

/// The total of ours may be so many times that of plain DataFusion on Parquet.
const TARGET_RATIO: f64 = 0.7;
/// The published speed-up of a large cache over a small one.
const TARGET_SPEEDUP: f64 = 6.0;
/// Memory Mode is to take at most so many times what all DRAM takes.
const TARGET_MEMORY_MODE: f64 = 1.2;
/// The subject of the first target.
const OVER_PLAIN: &str = "time of row groups over that of plain DataFusion";
/// The structure whose model makes a cache's mode a modelled one.
pub(super) const FAR_MEMORY: &str = "far memory";

/// Everything about one run of the bench.
#[derive(Clone, Debug, Serialize)]
pub struct AnalyticsReport {
    /// Always `analytics`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// The options of the run.
    pub config: AnalyticsConfig,
    /// The figures.
    pub runs: Vec<AnalyticsRun>,
    /// Ours beside plain DataFusion.
    pub compared: QueryCompared,
    /// The target.
    pub targets: Vec<Target>,
}

/// The options of the run.
#[derive(Clone, Debug, Serialize)]
pub struct AnalyticsConfig {
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
    /// The differences from the published experiment.
    pub differs: Vec<String>,
}

/// The figures of one run of the 22 queries.
#[derive(Clone, Debug, Serialize)]
pub struct AnalyticsRun {
    /// Names the run among several.
    pub name: String,
    /// The durability of a flush on its medium; nothing here is written to be kept.
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
    /// The part that the queries touch: caches are larger or smaller than this.
    pub touched_bytes: u64,
    /// `cold` or `warm`.
    pub temperature: &'static str,
    /// All queries together.
    pub seconds: f64,
    /// Each query.
    pub per_query_s: BTreeMap<String, f64>,
    /// Share of the bytes that scans requested and no device had to read.
    pub hit_ratio: Option<f64>,
    /// Of the readings of pages and extents, the share that near memory held.
    pub near_hit_ratio: Option<f64>,
    /// The share that far memory held; the rest was read from the device.
    pub far_hit_ratio: Option<f64>,
    /// Bytes that the device read.
    pub device_read_bytes: Option<u64>,
    /// Whether every result is that of plain DataFusion.
    pub correct: bool,
    /// The memory of the cache: `dram`; `memory-mode`; `dual`. In the latter two near memory is real and far memory
    /// modelled.
    pub cache_mode: &'static str,
    /// The timing models of this run, far memory's included; empty if all media are real.
    pub models: Vec<ModelUse>,
    /// The storage network.
    pub network: Option<String>,
    /// The size of which the cache is a multiple: `data`, or `touched` for the part that the queries read.
    pub sized_by: Option<&'static str>,
    /// The published cache of this ratio.
    pub published_cache: Option<String>,
    /// Results that are others.
    pub differs: Vec<String>,
}

/// A timing model of a medium of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ModelUse {
    /// Its use: `network`, `far memory`.
    pub structure: &'static str,
    /// The medium's name in the catalogue.
    pub medium: String,
    /// How many modules of it share the load.
    pub modules: u32,
    /// Reads and writes during the run.
    pub accesses: u64,
    /// Of those, the ones that took longer on the host than in the model.
    pub late: u64,
}

impl ModelUse {
    /// The accesses through a model between two moments.
    pub(super) fn of(structure: &'static str, model: &Model, before: Traffic, after: Traffic) -> ModelUse {
        let (accesses, late) = (after.accesses - before.accesses, after.late - before.late);
        ModelUse { structure, medium: model.name().to_owned(), modules: model.modules(), accesses, late }
    }
}

impl AnalyticsRun {
    /// The memory of the cache, and whether it is real.
    fn mode_in_words(&self) -> String {
        let modelled = self.models.iter().any(|model| model.structure == FAR_MEMORY);
        if modelled { format!("{}, modelled", self.cache_mode) } else { self.cache_mode.to_owned() }
    }
}

/// Ours beside plain DataFusion on Parquet, in turns.
#[derive(Clone, Debug, Serialize)]
pub struct QueryCompared {
    /// Ours over plain, all queries, by round.
    pub ratio_by_round: Vec<f64>,
    /// Ours over plain, from each query's shortest times.
    pub ratio: f64,
    /// Results that are others.
    pub differs: Vec<String>,
    #[serde(skip)]
    pub(super) runs: Vec<AnalyticsRun>,
}

impl QueryCompared {
    pub(super) fn new(
        runs: Vec<AnalyticsRun>,
        plain: &[BTreeMap<String, f64>],
        ours: &[BTreeMap<String, f64>],
        differs: Vec<String>,
    ) -> QueryCompared {
        let sum = |round: &BTreeMap<String, f64>| round.values().sum::<f64>();
        let ratio_by_round = plain.iter().zip(ours).map(|(plain, ours)| sum(ours) / sum(plain)).collect();
        let ratio = runs[1].seconds / runs[0].seconds;
        QueryCompared { ratio_by_round, ratio, differs, runs }
    }
}

/// The differences of a run from the published experiment.
pub(super) fn differences(scale: f64, data_bytes: u64, touched_bytes: u64, cores: usize) -> Vec<String> {
    vec![
        format!("the data: TPC-H at scale {scale}, {} MB in row groups, not 1.2 TB of a hospital's", data_bytes / 1_000_000),
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
        "far memory of Memory Mode and Dual: modelled after published figures of persistent memory, in this machine's DRAM; in Dual the \
         store moves the pages"
            .to_owned(),
        "the queries: 22 of TPC-H one after the other, not those of the experiment, which are not published".to_owned(),
    ]
}

impl AnalyticsReport {
    /// Puts the figures together.
    pub(super) fn new(
        machine: Machine,
        config: AnalyticsConfig,
        runs: Vec<AnalyticsRun>,
        compared: QueryCompared,
    ) -> AnalyticsReport {
        let mut report = AnalyticsReport {
            bench: "analytics",
            version: env!("CARGO_PKG_VERSION"),
            machine,
            config,
            runs,
            compared,
            targets: Vec::new(),
        };
        let mut targets = vec![Target::at_most(OVER_PLAIN, report.compared.ratio, TARGET_RATIO)];
        for (network, sizing) in report.groups() {
            let here = report.runs_of(network, sizing);
            targets.extend(group_targets(network, sizing, &here));
        }
        report.targets = targets;
        report
    }

    /// A line for each target that is missed.
    pub fn missed(&self) -> Vec<String> {
        target::missed(&self.targets).collect()
    }

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
        let mut table = Table::new(&["query", "plain DataFusion, Parquet", "row groups", "ratio"]);
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
        format!("{right} Rounds: {}. {}.", rounds.join(", "), self.targets[0])
    }

    /// Networks and sizings that were run, in their order.
    fn groups(&self) -> Vec<(&str, &'static str)> {
        let mut groups: Vec<_> =
            self.runs.iter().filter_map(|run| Some((run.network.as_deref()?, run.sized_by?))).collect();
        groups.dedup();
        groups
    }

    fn runs_of(&self, network: &str, sizing: &str) -> Vec<&AnalyticsRun> {
        let is_here = |run: &&AnalyticsRun| run.network.as_deref() == Some(network) && run.sized_by == Some(sizing);
        self.runs.iter().filter(is_here).collect()
    }

    /// One network and sizing: a table, bars, and their summary.
    fn group(&self, network: &str, sizing: &str) -> String {
        let what = if sizing == "data" { "the data" } else { "what the queries touch of the data" };
        let mut text = format!("{network} (modelled); caches sized by {what}\n\n");
        let here = self.runs_of(network, sizing);
        let headings =
            ["cache of 1.2 TB", "mode", "cache MB", "", "seconds", "hit ratio", "near", "far", "read MB", "right"];
        let (mut table, mut bars) = (Table::new(&headings), Vec::new());
        let share = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.3}"));
        for run in &here {
            let cache = run.published_cache.clone().unwrap_or_default();
            bars.push((format!("{cache} {} {}", run.mode_in_words(), run.temperature), run.seconds));
            table.row(vec![
                cache,
                run.mode_in_words(),
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
        text += &modelled(&here);
        text + &findings(network, sizing, &here) + "\n"
    }
}

/// The models behind runs, and how much of what passed through them was the host's time instead.
fn modelled(runs: &[&AnalyticsRun]) -> String {
    let mut sums: Vec<ModelUse> = Vec::new();
    for model in runs.iter().flat_map(|run| &run.models) {
        let same = |sum: &&mut ModelUse| sum.structure == model.structure && sum.medium == model.medium;
        match sums.iter_mut().find(same) {
            Some(sum) => (sum.accesses, sum.late) = (sum.accesses + model.accesses, sum.late + model.late),
            None => sums.push(model.clone()),
        }
    }
    let line = |sum: &ModelUse| {
        let (late, accesses) = (grouped(sum.late as f64), grouped(sum.accesses as f64));
        let ModelUse { structure, medium, modules, .. } = sum;
        format!(
            "The {structure} is modelled, {modules} x {medium}; {late} of {accesses} accesses took the host longer.\n"
        )
    };
    sums.iter().map(line).collect()
}

/// Seconds of the warm run of a published cache in a mode.
fn warm(runs: &[&AnalyticsRun], cache: &str, mode: &str) -> Option<f64> {
    let fits = |run: &&&AnalyticsRun| {
        run.published_cache.as_deref() == Some(cache) && run.cache_mode == mode && run.temperature == "warm"
    };
    runs.iter().find(fits).map(|run| run.seconds)
}

/// The targets of one network and sizing.
fn group_targets(network: &str, sizing: &str, runs: &[&AnalyticsRun]) -> Vec<Target> {
    let Some(large) = warm(runs, "2 TiB", "dram") else { return Vec::new() };
    let place = format!("{network}, caches sized by {sizing}, warm");
    let small = warm(runs, "512 GiB", "dram").map(|small| {
        Target::at_least(
            format!("{place}: time with the small cache over the large one"),
            small / large,
            TARGET_SPEEDUP,
        )
    });
    let memory_mode = warm(runs, "2 TiB", "memory-mode").map(|other| {
        let what = format!("{place}: time in Memory Mode, far memory modelled, over all DRAM");
        Target::at_most(what, other / large, TARGET_MEMORY_MODE)
    });
    small.into_iter().chain(memory_mode).collect()
}

/// The summary of one network and sizing: the caches compared with each other, and the modes.
fn findings(network: &str, sizing: &str, runs: &[&AnalyticsRun]) -> String {
    let mut text = String::new();
    for target in group_targets(network, sizing, runs) {
        let _ = writeln!(text, "{target}.");
    }
    if let Some((dual, large)) = warm(runs, "2 TiB", "dual").zip(warm(runs, "2 TiB", "dram")) {
        let over = dual / large;
        let _ = writeln!(text, "Warm, Dual (far memory modelled) takes {over:.2} of the time of all DRAM.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mode: &'static str, cache: &str, seconds: f64) -> AnalyticsRun {
        let model = |structure, late| ModelUse {
            structure,
            medium: "dcpmm100-128g".to_owned(),
            modules: 24,
            accesses: 1_000,
            late,
        };
        let far = (mode != "dram").then(|| model(FAR_MEMORY, 7));
        AnalyticsRun {
            name: mode.to_owned(),
            durability: "none",
            real: false,
            scale_factor: 0.05,
            queries: 22,
            cache_bytes: 0,
            data_bytes: 0,
            touched_bytes: 0,
            temperature: "warm",
            seconds,
            per_query_s: BTreeMap::new(),
            hit_ratio: None,
            near_hit_ratio: None,
            far_hit_ratio: None,
            device_read_bytes: None,
            correct: true,
            cache_mode: mode,
            models: std::iter::once(model("network", 0)).chain(far).collect(),
            network: Some("SAN".to_owned()),
            sized_by: Some("data"),
            published_cache: Some(cache.to_owned()),
            differs: Vec::new(),
        }
    }

    fn report(plain: f64, small: f64, memory_mode: f64) -> AnalyticsReport {
        let pair = vec![run("dram", "", plain), run("dram", "", 1.0)];
        let compared = QueryCompared::new(pair, &[BTreeMap::new()], &[BTreeMap::new()], Vec::new());
        let runs = vec![
            run("dram", "512 GiB", small),
            run("dram", "2 TiB", 1.0),
            run("memory-mode", "2 TiB", memory_mode),
            run("dual", "2 TiB", 1.1),
        ];
        let config = AnalyticsConfig {
            scale_factor: 0.05,
            rounds: 1,
            parquet_bytes: 0,
            segment_bytes: 0,
            load_average: None,
            published: super::super::PUBLISHED,
            differs: Vec::new(),
        };
        AnalyticsReport::new(Machine::here(), config, runs, compared)
    }

    #[test]
    fn each_target_that_is_missed_is_a_line_of_its_own_and_those_that_are_met_are_none() {
        assert_eq!(report(2.0, 6.0, 1.2).missed(), Vec::<String>::new());
        let missed = report(1.25, 5.0, 1.5).missed();
        assert_eq!(missed.len(), 3, "{missed:?}");
        assert_eq!(missed[0], format!("target missed: {OVER_PLAIN}: 0.80, target at most 0.7: MISSED"));
        assert!(
            missed[1].contains("SAN, caches sized by data, warm: time with the small cache over the large one: 5.00"),
            "{missed:?}"
        );
        assert!(missed[2].contains("Memory Mode, far memory modelled, over all DRAM: 1.50"), "{missed:?}");
        let text = report(1.25, 5.0, 1.5).to_text();
        assert!(missed.iter().all(|line| text.contains(line.trim_start_matches("target missed: "))), "{text}");
    }

    #[test]
    fn far_memory_that_is_modelled_is_called_so_with_its_medium_and_what_of_it_was_the_host() {
        let text = report(2.0, 6.0, 1.2).to_text();
        for says in [
            "SAN (modelled); caches sized by the data",
            "memory-mode, modelled",
            "dual, modelled",
            "The far memory is modelled, 24 x dcpmm100-128g; 14 of 2,000 accesses took the host longer.",
            "Dual (far memory modelled)",
        ] {
            assert!(text.contains(says), "`{says}` is not in:\n{text}");
        }
        let json: serde_json::Value = serde_json::from_str(&report(2.0, 6.0, 1.2).to_json()).expect("our own JSON");
        assert_eq!(json["runs"][2]["models"][1]["structure"], "far memory");
        assert_eq!((&json["runs"][2]["real"], &json["targets"][0]["met"]), (&false.into(), &true.into()));
    }
}
