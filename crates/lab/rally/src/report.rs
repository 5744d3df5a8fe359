//! The results: every run, the median of its rounds for each medium, and the ratio of App Direct to SATA beside the published one. As
//! one JSON object for scripts and as text for people.
//!
//! The published experiment (D. Pulsipher, Elasticsearch on persistent memory, 2019): "almost twice" the documents a second of SATA,
//! and "almost half" the response time, at every number of concurrent races, as figures without numbers. A missing figure is null in
//! the JSON and a `-` in the text, never a number.

use std::fmt::Write as _;

use interop::running::NodeStatus;
use serde::Serialize;
use workload::machine::{FileSystem, Machine};
use workload::plot;
use workload::table::{Table, grouped};

use crate::figure;
use crate::media::{FAST, MEDIA, Medium, SLOW};
use crate::race::{Milliseconds, QueryTimes, RaceResult, RallyRow, median};
use crate::track::SCROLL;

/// Documents a second on persistent memory to those on SATA, as published ("almost twice").
pub const PUBLISHED_RATIO: f64 = 2.0;

/// What is wanted of bulks of one document with one race.
const WANTED_RATIO: f64 = 2.0;

/// Everything about one call.
#[derive(Clone, Debug, Serialize)]
pub struct RallyReport {
    /// Always `rally`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// What it ran on.
    pub machine: Machine,
    /// What was run.
    pub config: RallyConfig,
    /// Every run.
    pub runs: Vec<RallyRun>,
    /// What the rounds come to.
    pub rows: Vec<RallyRow>,
    /// App Direct beside SATA.
    pub ratios: Vec<RallyRatio>,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RallyConfig {
    /// `esrally` or `builtin`.
    pub load: &'static str,
    /// How often each medium ran.
    pub rounds: usize,
    /// Times that each query was measured.
    pub iterations: usize,
    /// Whether all queries ran at the same time.
    pub together: bool,
    /// Seed of the documents.
    pub seed: u64,
    /// Clients of a race that write.
    pub clients: usize,
    /// The file system below the models.
    pub modelled_on: FileSystem,
    /// The machine's load in the minute before.
    pub load_average: Option<f64>,
}

/// What a run measured.
pub struct Measured {
    /// The races.
    pub races: Vec<RaceResult>,
    /// What the node reported before the first and after the last request.
    pub before: NodeStatus,
    /// See `before`.
    pub after: NodeStatus,
    /// Processor time of the node for the bulks alone, microseconds, where that was measured.
    pub bulk_cpu_us: Option<u64>,
}

/// What came of a run.
pub enum RunOutcome {
    /// The measurements.
    Ran(Box<Measured>),
    /// Why the host cannot model the medium.
    Refused(String),
}

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RallyRun {
    /// Names the run.
    pub name: String,
    /// The durability of a flush of the journal, as the node reports it.
    pub durability: Option<String>,
    /// False where the medium is modelled.
    pub real: Option<bool>,
    /// The medium of journal, write image journal and pages.
    pub tier: &'static str,
    /// Races at a time.
    pub races: usize,
    /// Documents of a bulk.
    pub bulk: usize,
    /// Number of the round, from 1.
    pub round: usize,
    /// Documents of all races.
    pub docs: usize,
    /// Documents a second of a race, the median of the races.
    pub median_docs_per_s: Option<f64>,
    /// Documents a second of all races together.
    pub docs_per_s: Option<f64>,
    /// Time of a bulk, the median of the races.
    pub bulk_ms: Option<Milliseconds>,
    /// Time of a query: the median of the 15 queries and the races.
    pub search_ms: Option<Milliseconds>,
    /// The queries, the median of the races.
    pub queries: Vec<QueryTimes>,
    /// Share of the time of the bulks in which the journal was writing and flushing; above 1 where writes overlap.
    pub persist_share: Option<f64>,
    /// Writes of the journal, each with a flush.
    pub journal_writes: Option<u64>,
    /// Mean time of such a write with its flush, microseconds.
    pub journal_write_us: Option<f64>,
    /// Processor time of the node for a document, microseconds, where it was measured.
    pub cpu_us_per_doc: Option<f64>,
    /// Requests or tasks with errors.
    pub errors: u64,
    /// Accesses of the modelled medium that took the host longer than the model, of how many.
    pub late: Option<(u64, u64)>,
    /// Why it was refused, where it was.
    pub refused: Option<String>,
}

/// App Direct to SATA, the median of the rounds' ratios.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RallyRatio {
    /// Documents of a bulk.
    pub bulk: usize,
    /// Races at a time.
    pub races: usize,
    /// Of documents a second.
    pub docs_per_s: Option<f64>,
    /// Of the median time of a bulk.
    pub bulk_time: Option<f64>,
    /// Documents a second, as published.
    pub published_docs_per_s: f64,
}

impl RallyRun {
    /// Of a medium and an outcome, with size of bulks, number of races and number of the round from 0.
    pub fn new(medium: &Medium, (bulk, races, round): (usize, usize, usize), outcome: RunOutcome) -> RallyRun {
        let name = format!("{}, {races} x bulks of {bulk}, round {}", medium.name, round + 1);
        let mut run = RallyRun {
            name,
            durability: None,
            real: None,
            tier: medium.name,
            races,
            bulk,
            round: round + 1,
            docs: 0,
            median_docs_per_s: None,
            docs_per_s: None,
            bulk_ms: None,
            search_ms: None,
            queries: Vec::new(),
            persist_share: None,
            journal_writes: None,
            journal_write_us: None,
            cpu_us_per_doc: None,
            errors: 0,
            late: None,
            refused: None,
        };
        match outcome {
            RunOutcome::Refused(why) => run.refused = Some(why),
            RunOutcome::Ran(measured) => run.fill(&measured),
        }
        run
    }

    fn fill(&mut self, measured: &Measured) {
        let Measured { races, before, after, bulk_cpu_us } = measured;
        let journal = &after.journal;
        self.durability = Some(journal.durability.clone());
        self.real = Some(journal.real && after.models.is_empty());
        self.docs = races.iter().map(|race| race.documents).sum();
        self.median_docs_per_s = median(races.iter().map(|race| race.docs_per_s).collect());
        self.docs_per_s = Some(races.iter().map(|race| race.docs_per_s).sum());
        self.bulk_ms = Milliseconds::median(&races.iter().map(|race| race.bulk_ms).collect::<Vec<_>>());
        self.queries = queries(races);
        self.search_ms = search_ms(&self.queries);
        // Nothing but bulks writes much: from the first request to the last the journal's time is theirs.
        let seconds = races.iter().map(|race| race.documents as f64 / race.docs_per_s).fold(0.0, f64::max);
        let (writes, us) = (journal.writes - before.journal.writes, journal.write_us - before.journal.write_us);
        self.persist_share = Some(us as f64 / 1e6 / seconds).filter(|share| share.is_finite());
        self.journal_writes = Some(writes);
        self.journal_write_us = Some(us as f64 / writes as f64).filter(|us| us.is_finite());
        self.cpu_us_per_doc = bulk_cpu_us.map(|us| us as f64 / self.docs as f64);
        self.errors = races.iter().map(|race| race.errors).sum();
        self.late = after.models.first().map(|model| (model.late, model.accesses));
    }
}

/// The queries of all races: the median of each time.
fn queries(races: &[RaceResult]) -> Vec<QueryTimes> {
    let Some(first) = races.first() else { return Vec::new() };
    let of = |name: &str| {
        let times = races.iter().flat_map(|race| &race.queries).filter(|query| query.name == name);
        Milliseconds::median(&times.map(|query| query.ms).collect::<Vec<_>>())
    };
    let merged = first.queries.iter().filter_map(|query| Some(QueryTimes { ms: of(&query.name)?, ..query.clone() }));
    merged.collect()
}

/// The median over the queries; the scroll is not one.
fn search_ms(queries: &[QueryTimes]) -> Option<Milliseconds> {
    let times: Vec<_> = queries.iter().filter(|query| query.name != SCROLL).map(|query| query.ms).collect();
    Milliseconds::median(&times)
}

impl RallyReport {
    /// Puts the figures together.
    pub fn new(machine: Machine, config: RallyConfig, runs: Vec<RallyRun>) -> RallyReport {
        let mut cases: Vec<(usize, usize)> = Vec::new();
        for run in &runs {
            if !cases.contains(&(run.bulk, run.races)) {
                cases.push((run.bulk, run.races));
            }
        }
        let rows = cases.iter().flat_map(|case| MEDIA.iter().map(|medium| row(&runs, *case, medium.name))).collect();
        let ratios = cases.iter().map(|case| ratio(&runs, *case)).collect();
        RallyReport { bench: "rally", version: env!("CARGO_PKG_VERSION"), machine, config, runs, rows, ratios }
    }

    /// Whether no request failed and every medium ran.
    pub fn is_clean(&self) -> bool {
        self.runs.iter().all(|run| run.errors == 0 && run.refused.is_none())
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data becomes JSON")
    }

    /// The figure: documents a second of a race against the number of races, the media side by side.
    pub fn to_svg(&self) -> String {
        figure::draw(&self.rows)
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let (machine, config) = (&self.machine, &self.config);
        let gib = machine.memory_bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(
            out,
            "Rally: Terrace {} on {}, {} processors, {gib:.0} GiB, load {}, {} rounds, seed {}\n",
            self.version, machine.cpu, machine.cores, config.load, config.rounds, config.seed
        );
        let mut table = Table::new(&[
            "medium",
            "bulk",
            "races",
            "docs/s",
            "all docs/s",
            "bulk ms",
            "p99",
            "search ms",
            "p99",
            "persist %",
            "CPU us",
        ]);
        let cell = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
        for row in &self.rows {
            table.row(vec![
                row.tier.to_owned(),
                row.bulk.to_string(),
                row.races.to_string(),
                row.median_docs_per_s.map_or("-".to_owned(), grouped),
                row.docs_per_s.map_or("-".to_owned(), grouped),
                cell(row.bulk_ms.map(|ms| ms.p50), 2),
                cell(row.bulk_ms.map(|ms| ms.p99), 2),
                cell(row.search_ms.map(|ms| ms.p50), 2),
                cell(row.search_ms.map(|ms| ms.p99), 2),
                cell(row.persist_share.map(|share| share * 100.0), 0),
                cell(row.cpu_us_per_doc, 1),
            ]);
        }
        let _ = writeln!(out, "{table}");
        self.draw(&mut out);
        self.compare(&mut out);
        self.remarks(&mut out);
        out
    }

    fn draw(&self, out: &mut String) {
        for bulk in figure::sizes(&self.rows) {
            let rows = self.rows.iter().filter(|row| row.bulk == bulk);
            let bars: Vec<(String, f64)> = rows
                .filter_map(|row| Some((format!("{} x {}", row.races, row.tier), row.median_docs_per_s?)))
                .collect();
            let _ = writeln!(out, "Median docs/s of a race, bulks of {bulk}\n{}", plot::bars(&bars, 50, "docs/s"));
        }
    }

    fn compare(&self, out: &mut String) {
        let mut table =
            Table::new(&["bulk", "races", "docs/s, App Direct to SATA", "published", "time of a bulk", "published"]);
        let cell = |value: Option<f64>| value.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
        for ratio in &self.ratios {
            table.row(vec![
                ratio.bulk.to_string(),
                ratio.races.to_string(),
                cell(ratio.docs_per_s),
                "almost 2".to_owned(),
                cell(ratio.bulk_time),
                "almost half".to_owned(),
            ]);
        }
        let _ = writeln!(out, "{table}");
    }

    fn remarks(&self, out: &mut String) {
        let published = self.ratios.iter().find(|ratio| ratio.bulk == 1 && ratio.races == 1);
        if let Some(found) = published.and_then(|ratio| ratio.docs_per_s) {
            let verdict = if found >= WANTED_RATIO { "met" } else { "MISSED" };
            let _ = writeln!(
                out,
                "Bulks of one document, one race: {found:.2} times the docs/s of SATA, wanted at least {WANTED_RATIO:.1}: {verdict}"
            );
        }
        for run in &self.runs {
            if let Some(why) = &run.refused {
                let _ = writeln!(out, "{}: refused, {why}", run.name);
            }
            if run.errors > 0 {
                let _ = writeln!(out, "{}: {} WITH ERRORS", run.name, run.errors);
            }
        }
        if self.runs.iter().any(|run| run.real == Some(false)) {
            let kind = &self.config.modelled_on.kind;
            let _ = writeln!(
                out,
                "Media are modelled on {kind}, unless a real folder was named; all that a node stores lies there."
            );
        }
    }
}

/// The runs of a case on a medium.
fn of<'r>(runs: &'r [RallyRun], case: (usize, usize), tier: &'r str) -> impl Iterator<Item = &'r RallyRun> + Clone {
    runs.iter().filter(move |run| (run.bulk, run.races) == case && run.tier == tier)
}

fn row(runs: &[RallyRun], case: (usize, usize), tier: &'static str) -> RallyRow {
    let of_case = of(runs, case, tier);
    let middle = |value: fn(&RallyRun) -> Option<f64>| median(of_case.clone().filter_map(value).collect());
    let times = |value: fn(&RallyRun) -> Option<Milliseconds>| {
        Milliseconds::median(&of_case.clone().filter_map(value).collect::<Vec<_>>())
    };
    RallyRow {
        tier,
        bulk: case.0,
        races: case.1,
        median_docs_per_s: middle(|run| run.median_docs_per_s),
        docs_per_s: middle(|run| run.docs_per_s),
        bulk_ms: times(|run| run.bulk_ms),
        search_ms: times(|run| run.search_ms),
        persist_share: middle(|run| run.persist_share),
        cpu_us_per_doc: middle(|run| run.cpu_us_per_doc),
    }
}

fn ratio(runs: &[RallyRun], case: (usize, usize)) -> RallyRatio {
    let within_rounds = |value: fn(&RallyRun) -> Option<f64>| {
        let fast = of(runs, case, FAST);
        let ratios = fast.filter_map(|fast| {
            let slow = of(runs, case, SLOW).find(|slow| slow.round == fast.round)?;
            Some(value(fast)? / value(slow)?)
        });
        median(ratios.collect())
    };
    RallyRatio {
        bulk: case.0,
        races: case.1,
        docs_per_s: within_rounds(|run| run.docs_per_s),
        bulk_time: within_rounds(|run| Some(run.bulk_ms?.p50)),
        published_docs_per_s: PUBLISHED_RATIO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(medium: &Medium, round: usize, docs_per_s: f64) -> RallyRun {
        let mut run = RallyRun::new(medium, (1, 1, round), RunOutcome::Refused(String::new()));
        let ms = |p50| Milliseconds { p50, p90: p50, p99: p50 };
        run.refused = None;
        run.docs = 1_000;
        run.docs_per_s = Some(docs_per_s);
        run.median_docs_per_s = Some(docs_per_s);
        run.bulk_ms = Some(ms(1_000.0 / docs_per_s));
        run.durability = Some("emulated".into());
        run.real = Some(false);
        run.queries = vec![QueryTimes { name: "match-all".into(), ms: ms(2.0), hits: Some(3) }];
        run.search_ms = search_ms(&run.queries);
        run
    }

    fn report(runs: Vec<RallyRun>) -> RallyReport {
        let config = RallyConfig {
            load: "builtin",
            rounds: 3,
            iterations: 1,
            together: false,
            seed: 1,
            clients: 1,
            modelled_on: FileSystem { kind: "tmpfs".into(), source: "x".into() },
            load_average: None,
        };
        RallyReport::new(Machine::here(), config, runs)
    }

    #[test]
    fn a_ratio_is_taken_within_a_round_and_then_its_median() {
        let [sata, _, pmem] = &MEDIA;
        // A slow minute in round 2 hits both; in round 3 one of them.
        let runs = [(0, 100.0, 200.0), (1, 50.0, 110.0), (2, 100.0, 300.0)];
        let runs = runs.into_iter().flat_map(|(round, slow, fast)| [run(sata, round, slow), run(pmem, round, fast)]);
        let report = report(runs.collect());
        let [ratio] = &report.ratios[..] else { panic!("{:?}", report.ratios) };
        assert_eq!((ratio.docs_per_s, ratio.published_docs_per_s), (Some(2.2), 2.0));
        assert!(ratio.bulk_time.is_some_and(|time| (time - 1.0 / 2.2).abs() < 1e-9), "{ratio:?}");
        assert_eq!(report.rows.len(), 3);
        assert_eq!((report.rows[0].docs_per_s, report.rows[1].docs_per_s), (Some(100.0), None), "NVMe did not run");
        let text = report.to_text();
        assert!(text.contains("2.20 times the docs/s of SATA, wanted at least 2.0: met"), "{text}");
        assert!(report.is_clean());
    }

    #[test]
    fn a_refused_medium_and_an_error_are_named_and_not_clean() {
        let mut failed = run(&MEDIA[0], 0, 10.0);
        failed.errors = 2;
        let refused = RallyRun::new(&MEDIA[2], (1, 1, 0), RunOutcome::Refused("the host is slower".into()));
        for (runs, wanted) in [(vec![failed], "2 WITH ERRORS"), (vec![refused], "refused, the host is slower")] {
            let report = report(runs);
            assert!(!report.is_clean());
            assert!(report.to_text().contains(wanted), "{}", report.to_text());
        }
    }

    #[test]
    fn the_json_has_the_keys_of_the_contract() {
        let json = report(vec![run(&MEDIA[0], 0, 10.0)]).to_json();
        let json: serde_json::Value = serde_json::from_str(&json).expect("our own JSON");
        for key in ["bench", "version", "machine", "config", "rows", "ratios"] {
            assert!(!json[key].is_null(), "{key}");
        }
        for key in ["name", "durability", "real", "races", "docs", "median_docs_per_s", "search_ms", "tier"] {
            assert!(!json["runs"][0][key].is_null(), "{key}");
        }
        assert_eq!(json["runs"][0]["search_ms"]["p99"], 2.0);
    }
}
