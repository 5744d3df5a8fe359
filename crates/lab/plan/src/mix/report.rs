//! What a plan says, as data: `terrace plan --json` prints it, and the table and the page of HTML are made of it.
//!
//! Invariants: the names of the fields are relied on by scripts; times are seconds, sizes bytes, money US dollars, parts 0 to 1. What is not
//! known is absent (`null`), never 0, and the reason is in [`PlanReport::refused`] or [`PlanReport::sure`].

use serde::{Deserialize, Serialize};

use super::cost::UsdRange;

/// A plan.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PlanReport {
    /// The version of the program.
    pub version: String,
    /// The workloads; empty if the plan is a sizing without a profile.
    pub workloads: Vec<WorkloadReport>,
    /// The target.
    pub target: TargetReport,
    /// The server.
    pub server: ServerReport,
    /// Miss ratios by the size of memory: of LRU by structure, and of the policies that were simulated.
    pub curves: Vec<CurveReport>,
    /// The mixes that are worth a choice, by cost; what there is today is the first one, if it is known.
    pub mixes: Vec<MixReport>,
    /// The number of the chosen one in [`PlanReport::mixes`].
    pub chosen: Option<usize>,
    /// The number of the knee: farthest below the line between the cheapest and the fastest.
    pub knee: Option<usize>,
    /// What to do.
    pub answer: Answer,
    /// The answer in a sentence.
    pub says: String,
    /// What does not help, and why; sentences.
    pub no_help: Vec<String>,
    /// Prices at which the answer changes.
    pub flips: Vec<FlipReport>,
    /// Prices at or below which a medium without a price would be worth it.
    pub break_even: Vec<BreakEvenReport>,
    /// How sure the figures are.
    pub sure: Vec<SureReport>,
    /// Parts of the target that were not planned, with the reason and what to do.
    pub refused: Vec<String>,
    /// How many mixes there were, and why others were left out.
    pub considered: ConsideredReport,
    /// The prices that were used.
    pub prices: Vec<PriceReport>,
}

/// What to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Buy or rent the chosen mix.
    Buy,
    /// What there is meets the target.
    Keep,
    /// Something else than media binds in each mix: processors.
    NoMediumHelps,
    /// No mix of this server meets the target.
    NothingMeetsIt,
    /// There are mixes that meet the target, but not enough prices to choose by.
    NotPriced,
    /// There was no target: the knee is chosen, if there is one.
    #[default]
    NoTarget,
}

/// A workload, or a sizing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkloadReport {
    /// The file of the profile, or `sizing`.
    pub name: String,
    /// The format of the trace, `node`, or `sizing`.
    pub kind: String,
    /// Length of the record, seconds.
    pub seconds: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// Bytes that were used at all.
    pub touched_bytes: u64,
    /// The size of the smallest LRU cache that finds 95 % of what any cache can find, bytes.
    pub hot_bytes: Option<u64>,
    /// Accesses in all.
    pub accesses: u64,
    /// The busiest interval's begin, seconds after that of the record.
    pub worst_begin_s: u64,
    /// Accesses each second of the busiest minute.
    pub worst_accesses_per_s: f64,
    /// Commits each second of the busiest interval.
    pub commits_per_s: Option<f64>,
    /// Bytes written each second of the busiest interval.
    pub written_bytes_per_s: f64,
    /// Processor time of an operation, seconds.
    pub cpu_per_operation_s: Option<f64>,
    /// What an operation is: `commit` or `access`.
    pub operation: String,
    /// Names of what the profile lacks.
    pub lacks: Vec<String>,
    /// The load by interval.
    pub heat: Vec<HeatReport>,
}

/// The load of an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeatReport {
    /// Its begin, seconds.
    pub begin_s: u64,
    /// Its length, seconds.
    pub seconds: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// The target. What was not asked for is absent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// 99 of 100 commits take at most so many seconds.
    pub p99_commit_s: Option<f64>,
    /// 99 of 100 accesses of pages or objects take at most so many seconds.
    pub p99_read_s: Option<f64>,
    /// 95 of 100 queries take at most so many seconds.
    pub p95_query_s: Option<f64>,
    /// Operations each second.
    pub rate: Option<f64>,
    /// Growth that is planned for: data and rate times this; 1 without.
    pub growth: f64,
    /// The most it may cost, US dollars.
    pub budget_usd: Option<f64>,
    /// Months for which rented media are counted.
    pub months: f64,
    /// Load above the target at which it still has to be met: 0.15 is 15 %.
    pub headroom: f64,
}

/// The server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServerReport {
    /// Its name.
    pub name: String,
    /// Sockets.
    pub sockets: u32,
    /// Processors.
    pub cores: u32,
    /// Slots for modules of memory.
    pub dimm_slots: u32,
    /// Lanes for cards.
    pub lanes: u32,
    /// Bays for drives.
    pub bays: u32,
    /// What is in it already.
    pub has: Vec<PartReport>,
}

/// So much of a medium in a mix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartReport {
    /// The medium's name in the catalogue, or an instance's.
    pub medium: String,
    /// Modules, cards, drives or volumes.
    pub count: u32,
    /// GB of the label of all of them.
    pub gb: f64,
    /// What it is for: `near`, `far`, `journal`, `data`.
    pub uses: Vec<String>,
    /// How many of them are owned already.
    pub owned: u32,
    /// US dollars for what is not owned; absent without a price.
    pub usd: Option<UsdRange>,
}

/// A curve: the part of all accesses that is not found, by bytes of memory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CurveReport {
    /// The workload.
    pub workload: String,
    /// The structure, or `all`.
    pub structure: String,
    /// `lru` (from reuse distances), or what was simulated: `clock`, `clock_far`, `direct`.
    pub policy: String,
    /// Bytes of far memory behind, if there is some.
    pub far_bytes: Option<u64>,
    /// Bytes and miss ratio, by bytes.
    pub points: Vec<(u64, f64)>,
}

/// A mix.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MixReport {
    /// Its name, for people: `8 x 16 GiB ddr5 + 2 x nvme-p4510`.
    pub name: String,
    /// What it is made of.
    pub parts: Vec<PartReport>,
    /// What there is today.
    pub is_today: bool,
    /// No other mix costs at most as much, is as fast and has as much to spare, and is better in one of these.
    pub on_frontier: bool,
    /// It meets the target, with the headroom.
    pub meets_target: bool,
    /// Parts of the target that it does not meet; sentences.
    pub misses: Vec<String>,
    /// What it costs beyond what is owned; absent if a medium has no price.
    pub usd: Option<UsdRange>,
    /// Page cache: bytes of near memory.
    pub near_bytes: u64,
    /// Page cache: bytes of far memory.
    pub far_bytes: Option<u64>,
    /// `dram`, `far`, `memory`, `app-direct` or `dual`.
    pub mode: String,
    /// Accesses that are served in near memory, far memory, from a device: parts, together 1.
    pub served: ServedReport,
    /// Half of all commits take at most so many seconds.
    pub p50_commit_s: Option<f64>,
    /// 99 of 100 commits.
    pub p99_commit_s: Option<f64>,
    /// Mean time of an access to a page or object, seconds.
    pub mean_read_s: Option<f64>,
    /// 99 of 100 accesses.
    pub p99_read_s: Option<f64>,
    /// 95 of 100 queries.
    pub p95_query_s: Option<f64>,
    /// Operations each second that it can do; absent if processor time is not known.
    pub rate_max: Option<f64>,
    /// The name of the part that is busiest.
    pub binds: String,
    /// What that part has left at the target's rate, 0 to 1.
    pub spare: f64,
    /// Each part at the target's rate: the time of an operation, and how busy it is.
    pub stations: Vec<StationReport>,
    /// What is bought and not used.
    pub wasted: Vec<WasteReport>,
    /// Bytes that wear the data drives out, each day; and what they endure, where that is known.
    pub endurance: Option<EnduranceReport>,
    /// The same of a drive for the journal alone.
    #[serde(default)]
    pub journal_endurance: Option<EnduranceReport>,
    /// terrace.toml of a node on this mix.
    pub settings: String,
    /// What to run to provision it, a command or a remark a line.
    pub commands: Vec<String>,
}

/// Where accesses are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServedReport {
    /// Near memory.
    pub near: f64,
    /// Far memory.
    pub far: f64,
    /// The device: the miss ratio.
    pub device: f64,
}

/// A part of a server that operations share.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StationReport {
    /// `processors`, `near memory`, `far memory`, `data`, `journal`.
    pub name: String,
    /// Seconds of it that an operation takes.
    pub busy_s: f64,
    /// Seconds that pass beside it.
    pub delay_s: f64,
    /// Part of its time in use, 0 to 1; above 1: it cannot do the rate.
    pub used: f64,
}

/// Something that is bought, and how much of it is used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WasteReport {
    /// The medium.
    pub medium: String,
    /// `GiB`, `GB/s` or `IOPS`.
    pub unit: String,
    /// How much of it there is.
    pub bought: f64,
    /// How much the workload uses at the target's rate.
    pub used: f64,
}

/// Wear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EnduranceReport {
    /// Bytes written each day.
    pub written_bytes_per_day: f64,
    /// Bytes that may be written each day over the warranty; absent if the catalogue has no figure.
    pub allowed_bytes_per_day: Option<f64>,
}

/// A price at which another mix becomes the answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlipReport {
    /// The medium.
    pub medium: String,
    /// Its price as a multiple of the expected one.
    pub factor: f64,
    /// US dollars for a GB at which it flips; of what is rented, for the whole time. Absent for a machine of a cloud.
    pub usd_per_gb: Option<f64>,
    /// US dollars in the unit of its price at which it flips.
    #[serde(default)]
    pub usd: f64,
    /// That unit: `USD/GB`, `USD/GB-month` or `USD/month`. The price of operations is taken to change by the same factor.
    #[serde(default)]
    pub unit: String,
    /// The number of the mix that is the answer from there on; absent if that one is not among [`PlanReport::mixes`].
    pub to: Option<usize>,
    /// Its name.
    pub to_name: String,
}

/// A price at or below which a medium without a price would be worth it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BreakEvenReport {
    /// The medium.
    pub medium: String,
    /// US dollars for a GB.
    pub usd_per_gb: f64,
    /// The name of the mix.
    pub mix: String,
}

/// How sure a kind of figure is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SureReport {
    /// The figure: `miss ratios`, `service times`, ...
    pub what: String,
    /// Its error, in words: `within 2 points in tests`, `a lower bound`, `not known`.
    pub error: String,
    /// What that rests on.
    pub because: String,
}

/// How many mixes there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConsideredReport {
    /// All that were enumerated.
    pub mixes: usize,
    /// Those that were predicted.
    pub predicted: usize,
    /// Why others were left out, and how many for each reason.
    pub left_out: Vec<(String, usize)>,
}

/// A price that was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PriceReport {
    /// The medium.
    pub medium: String,
    /// The price.
    pub usd: UsdRange,
    /// `USD/GB`, `USD/GB-month` or `USD/IOPS-month`.
    pub unit: String,
    /// Its month.
    pub dated: String,
    /// Its source.
    pub source: String,
}
