//! Analytics: the 22 queries of TPC-H over row groups, with a page cache smaller than, about as large as and larger
//! than the data, which lies behind a modelled 16 Gb/s storage network; compared with plain DataFusion on Parquet.
//!
//! ```text
//! compared   every query in turns: plain DataFusion on Parquet, then ours, both from memory; results compared each time
//! matrix     cache 0.46, 0.92 and 1.83 times the data (512 GiB, 1 TiB, 2 TiB on 1.2 TB), each COLD, then WARM
//!            x sized by the data, and by what the queries touch of it
//!            x on the network as published, and on one that is as much slower as this machine has fewer processors
//!            the cache in DRAM, and the largest also in Memory Mode and Dual: DRAM before modelled persistent memory
//! ```
//!
//! There are two sizings, because the published queries read another share of the data: ours do not read some columns
//! at all, so a cache of half the data may contain everything they read, and the difference would not show. There are
//! two networks, because 1.6 GB/s for 96 processors cannot be compared with 1.6 GB/s for 2.
//!
//! COLD: the store has just been opened, the cache is empty. WARM: the same queries again.
//!
//! Invariants: the figures that are compared were taken in turns in one run; the data behind the modelled network is in
//! memory, so that only the model makes it slow; a result counts only if it equals that of plain DataFusion.
//!
//! Not measured: several queries at once, updates beside them.

mod compare;
mod data;
mod published;
mod queries;
mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use catalogue::medium::Key;
use catalogue::{Budget, Medium, Model, ModelMemory, ModelShelf, Timing};
use datafusion::arrow::array::RecordBatch;
use datafusion::prelude::{SessionConfig, SessionContext};
use device::{MemoryShelf, Shelf};
use indicatif::{ProgressBar, ProgressStyle};
use sql::column::RowGroupStore;
use store::cache::{CacheMetrics, CacheOptions, Policy};
use store::{Options, Places, Store};

pub use published::{CACHES, PUBLISHED, Published};
pub use queries::QUERIES;
pub use report::{AnalyticsConfig, AnalyticsReport, AnalyticsRun, ModelUse, QueryCompared};

use workload::interrupt;
use workload::machine::{Machine, load_average};
use workload::t4::Folder;

/// Processors of the published server: 4 x E7-8890 v4 with 24 cores each.
const PUBLISHED_CORES: f64 = 96.0;
/// The storage network's medium.
const NETWORK: &str = "fc-san-16g";

/// The persistent memory of the published server: 24 modules of 128 GiB, 6 to a socket.
const FAR: &str = "dcpmm100-128g";
const FAR_MODULES: u32 = 24;
/// Its DRAM against its largest cache: 768 GiB and 2 TiB.
const NEAR_SHARE: f64 = 768.0 / 2048.0;

/// The memory of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// All DRAM.
    Dram,
    /// DRAM as a direct-mapped cache of persistent memory, as the hardware does it.
    Memory,
    /// DRAM, and behind it persistent memory, between which the store moves pages.
    Dual,
}

impl Mode {
    fn name(self) -> &'static str {
        match self {
            Mode::Dram => "dram",
            Mode::Memory => "memory-mode",
            Mode::Dual => "dual",
        }
    }

    /// A cache of so many bytes in all.
    fn options(self, cache_bytes: u64) -> anyhow::Result<Options> {
        let (near_bytes, cache) = match self {
            Mode::Dram => (cache_bytes, CacheOptions::default()),
            Mode::Memory | Mode::Dual => {
                let near = (cache_bytes as f64 * NEAR_SHARE) as u64;
                let model = Model::of(&Medium::find(FAR)?, FAR_MODULES)?;
                let budget = Budget::new(&model);
                let far_model = Some(Arc::new(ModelMemory::new(model, budget, Timing::Timed)));
                let (policy, far_bytes) = match self {
                    Mode::Memory => (Policy::DirectMapped, cache_bytes),
                    _ => (Policy::Managed { promote: 0.1 }, cache_bytes - near),
                };
                (near, CacheOptions { far_bytes, policy, far_model, ..CacheOptions::default() })
            }
        };
        Ok(Options { cache_bytes: near_bytes, cache, ..Options::default() })
    }
}

/// The size of which the caches are a multiple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizing {
    /// The data, as published.
    Data,
    /// The part that the queries read.
    Touched,
}

impl Sizing {
    fn name(self) -> &'static str {
        match self {
            Sizing::Data => "data",
            Sizing::Touched => "touched",
        }
    }
}

/// One place of the matrix.
struct Case<'a> {
    network: &'a str,
    model: &'a Model,
    sizing: Sizing,
    /// The published cache, and its share of the published data.
    cache: (&'static str, f64),
    mode: Mode,
}

/// The matrix: networks by sizings by caches in DRAM, and the largest cache in the other modes.
fn cases<'a>(networks: &'a [(String, Model)], sizings: &[Sizing]) -> Vec<Case<'a>> {
    let mut cases = Vec::new();
    for (network, model) in networks {
        for &sizing in sizings {
            let case = |cache, mode| Case { network, model, sizing, cache, mode };
            cases.extend(CACHES.map(|cache| case(cache, Mode::Dram)));
            cases.extend([Mode::Memory, Mode::Dual].map(|mode| case(CACHES[2], mode)));
        }
    }
    cases
}

/// The options of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalyticsOptions {
    /// Scale factor 0.05, one round, and the matrix on one network and by one sizing only.
    pub quick: bool,
    /// Scale factor: 1 is 6 million rows of lineitem, about 1 GB as text. Default 0.1, some minutes.
    pub scale: Option<f64>,
    /// How often each query runs in the comparison. Default 3, with `quick` 1.
    pub rounds: Option<usize>,
    /// Where the Parquet files go, in a folder that is removed afterwards. Default: the current folder.
    pub dir: Option<PathBuf>,
}

/// Runs all of it.
///
/// # Errors
/// If there is no room, a store fails, or a query does; `Interrupted` if the user ended it. A wrong result is no error
/// but a run with `correct: false`.
pub fn run(options: &AnalyticsOptions) -> anyhow::Result<AnalyticsReport> {
    let machine = Machine::here();
    let load = load_average();
    let scale = options.scale.unwrap_or(if options.quick { 0.05 } else { 0.1 });
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 }).max(1);
    let folder = Folder::scratch(options.dir.as_deref(), "analytics")?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(machine.cores)
        .thread_stack_size(sql::STACK_BYTES)
        .enable_all()
        .build()?;
    let shelves = Shelves::default();
    let store = shelves.open(None, Mode::Dram.options(1 << 30)?)?;
    let parquet_bytes = data::load(scale, folder.path(), &store)?;
    store.checkpoint()?;
    let data_bytes = store.metrics().pages_used * u64::from(Options::default().page_bytes);
    store.close()?;

    let bar = ProgressBar::hidden();
    let mut bench = Bench { scale, cores: machine.cores, shelves, data_bytes, touched_bytes: 0, runtime, folder, bar };
    let networks = bench.networks(options.quick)?;
    let sizings: &[Sizing] = if options.quick { &[Sizing::Touched] } else { &[Sizing::Data, Sizing::Touched] };
    let cases = cases(&networks, sizings);
    // Once to determine what they touch, an uncounted round and the counted ones of two engines, cold and warm.
    bench.bar = ProgressBar::new(((1 + 2 * (rounds + 1) + 2 * cases.len()) * QUERIES.len()) as u64);
    bench.bar.set_style(ProgressStyle::with_template("{wide_bar} {pos} of {len} queries, {elapsed}, {msg}")?);
    bench.touched_bytes = bench.touched()?;
    let plain = bench.plain()?;
    let (compared, expected) = bench.compare(&plain, rounds)?;
    let mut runs = compared.runs.clone();
    for case in &cases {
        runs.extend(bench.cold_and_warm(case, &expected)?);
    }
    bench.bar.finish_and_clear();
    let config = AnalyticsConfig {
        scale_factor: scale,
        rounds,
        parquet_bytes,
        segment_bytes: data_bytes,
        load_average: load,
        published: PUBLISHED,
        differs: report::differences(scale, data_bytes, bench.touched_bytes, machine.cores),
    };
    Ok(AnalyticsReport::new(machine, config, runs, compared))
}

/// Where a store lies between two openings.
#[derive(Debug, Default)]
struct Shelves {
    journal: Arc<MemoryShelf>,
    images: Arc<MemoryShelf>,
    data: Arc<MemoryShelf>,
}

impl Shelves {
    /// Opens the store with its pages behind a model, and an empty cache.
    fn open(&self, network: Option<(&Model, &Arc<Budget>)>, options: Options) -> anyhow::Result<Store> {
        let data: Arc<dyn Shelf> = match network {
            Some((model, budget)) => {
                Arc::new(ModelShelf::new(self.data.clone(), model.clone(), budget.clone(), Timing::Timed))
            }
            None => self.data.clone(),
        };
        let places = Places { journal: self.journal.clone(), images: self.images.clone(), data };
        Ok(Store::open(places, options)?.0)
    }
}

/// The state that every part of the run needs.
struct Bench {
    scale: f64,
    cores: usize,
    shelves: Shelves,
    data_bytes: u64,
    /// The bytes that the queries read with an empty cache that is large enough: columns that no query uses are not
    /// read.
    touched_bytes: u64,
    runtime: tokio::runtime::Runtime,
    folder: Folder,
    /// Queries done.
    bar: ProgressBar,
}

/// The results that count.
type Expected = BTreeMap<u8, Vec<RecordBatch>>;

impl Bench {
    fn plain(&self) -> anyhow::Result<SessionContext> {
        let context = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(self.cores));
        self.runtime.block_on(data::register_parquet(&context, self.folder.path()))?;
        Ok(context)
    }

    fn ours(&self, store: &Store, columns: &Arc<RowGroupStore>) -> anyhow::Result<SessionContext> {
        let context = SessionContext::new_with_config(sql::column::session_config(self.cores));
        data::register_segments(&context, store, columns)?;
        Ok(context)
    }

    /// Runs a query to its end; its result and the seconds it took, planning included.
    fn query(&self, context: &SessionContext, number: u8, text: &str) -> anyhow::Result<(Vec<RecordBatch>, f64)> {
        interrupt::check()?;
        let begun = Instant::now();
        let result = self.runtime.block_on(async { context.sql(text).await?.collect().await });
        let result = result.with_context(|| format!("query {number}"))?;
        self.bar.inc(1);
        Ok((result, begun.elapsed().as_secs_f64()))
    }

    /// The bytes that the queries read with an empty cache that is large enough for all.
    fn touched(&self) -> anyhow::Result<u64> {
        let store = self.shelves.open(None, Mode::Dram.options(self.large())?)?;
        let context = self.ours(&store, &Arc::new(RowGroupStore::new()))?;
        for (number, text) in QUERIES {
            self.query(&context, number, text)?;
        }
        let read = store.metrics().cache.read_bytes;
        drop(context);
        store.close()?;
        Ok(read)
    }

    /// A cache that holds all of the data.
    fn large(&self) -> u64 {
        self.data_bytes * 2 + (64 << 20)
    }

    /// Plain DataFusion on Parquet and ours in turns, everything in memory, the first turn uncounted.
    fn compare(&self, plain: &SessionContext, rounds: usize) -> anyhow::Result<(QueryCompared, Expected)> {
        let cache_bytes = self.large();
        let store = self.shelves.open(None, Mode::Dram.options(cache_bytes)?)?;
        let columns = Arc::new(RowGroupStore::new());
        let ours = self.ours(&store, &columns)?;
        let (mut expected, mut differs) = (Expected::new(), Vec::new());
        let (mut plain_s, mut ours_s) = (vec![BTreeMap::new(); rounds], vec![BTreeMap::new(); rounds]);
        for round in 0..=rounds {
            for (number, text) in QUERIES {
                let (theirs, plain_seconds) = self.query(plain, number, text)?;
                let (result, our_seconds) = self.query(&ours, number, text)?;
                if let Some(difference) = compare::difference(&result, &theirs)? {
                    differs.push(format!("query {number}: {difference}"));
                }
                expected.entry(number).or_insert(theirs);
                if round > 0 {
                    plain_s[round - 1].insert(query_name(number), plain_seconds);
                    ours_s[round - 1].insert(query_name(number), our_seconds);
                }
            }
        }
        drop(ours);
        store.close()?;
        let make = |name: &str, seconds: &[BTreeMap<String, f64>], real: bool| {
            let mut run = self.run(name, "warm", fastest(seconds));
            run.correct = differs.is_empty();
            run.cache_bytes = cache_bytes;
            run.real = real;
            run
        };
        let runs = vec![make("plain DataFusion on Parquet", &plain_s, true), make("row groups", &ours_s, true)];
        Ok((QueryCompared::new(runs, &plain_s, &ours_s, differs), expected))
    }

    /// The published network and, unless the run is quick, one scaled to this machine.
    fn networks(&self, quick: bool) -> anyhow::Result<Vec<(String, Model)>> {
        let medium = Medium::find(NETWORK)?;
        let share = (self.cores as f64 / PUBLISHED_CORES).min(1.0);
        let mut scaled = medium.clone();
        for figure in &mut scaled.figures {
            if matches!(figure.key, Key::ReadBandwidth | Key::WriteBandwidth | Key::ReadIops | Key::WriteIops) {
                figure.value *= share;
                figure.range = None;
            }
        }
        let scaled_name = format!("SAN scaled to {} of {PUBLISHED_CORES} cores", self.cores);
        let mut networks = vec![(scaled_name, Model::of(&scaled, 1)?)];
        if !quick {
            networks.insert(0, ("SAN as published".to_owned(), Model::of(&medium, 1)?));
        }
        Ok(networks)
    }

    /// The queries from an empty cache, then again.
    fn cold_and_warm(&self, case: &Case<'_>, expected: &Expected) -> anyhow::Result<Vec<AnalyticsRun>> {
        let (cache, ratio) = case.cache;
        let base = match case.sizing {
            Sizing::Data => self.data_bytes,
            Sizing::Touched => self.touched_bytes,
        };
        let cache_bytes = (base as f64 * ratio) as u64;
        let options = case.mode.options(cache_bytes)?;
        let far = options.cache.far_model.clone();
        let slowed = if far.is_some() { " (modelled)" } else { "" };
        let (sizing, mode) = (case.sizing.name(), case.mode.name());
        let place = format!("{} (modelled), by {sizing}, {cache} of 1.2 TB, {mode}{slowed}", case.network);
        self.bar.set_message(place.clone());
        let budget = Budget::new(case.model);
        let store = self.shelves.open(Some((case.model, &budget)), options)?;
        let columns = Arc::new(RowGroupStore::new());
        let context = self.ours(&store, &columns)?;
        let mut runs = Vec::new();
        for temperature in ["cold", "warm"] {
            let (before, far_before) = (budget.traffic(), far.as_ref().map(|far| far.budget().traffic()));
            let (read_before, asked_before) = (before.read, columns.bytes_asked());
            let found_before = store.metrics().cache;
            let (mut seconds, mut differs) = (BTreeMap::new(), Vec::new());
            for (number, text) in QUERIES {
                let (result, took) = self.query(&context, number, text)?;
                seconds.insert(query_name(number), took);
                if let Some(difference) = compare::difference(&result, &expected[&number])? {
                    differs.push(format!("query {number}: {difference}"));
                }
            }
            let mut run = self.run(&format!("{place}, {temperature}"), temperature, seconds);
            run.cache_mode = mode;
            run.models.push(ModelUse::of("network", case.model, before, budget.traffic()));
            if let Some((far, before)) = far.as_ref().zip(far_before) {
                run.models.push(ModelUse::of(report::FAR_MEMORY, far.model(), before, far.budget().traffic()));
            }
            run.correct = differs.is_empty();
            run.cache_bytes = cache_bytes;
            run.network = Some(case.network.to_owned());
            run.sized_by = Some(case.sizing.name());
            run.published_cache = Some(cache.to_owned());
            let (read, asked) = (budget.traffic().read - read_before, columns.bytes_asked() - asked_before);
            run.device_read_bytes = Some(read);
            run.hit_ratio = (asked > 0).then(|| (1.0 - read as f64 / asked as f64).max(0.0));
            (run.near_hit_ratio, run.far_hit_ratio) = by_tier(found_before, store.metrics().cache);
            run.differs = differs;
            runs.push(run);
        }
        drop(context);
        store.close()?;
        Ok(runs)
    }

    fn run(&self, name: &str, temperature: &'static str, per_query_s: BTreeMap<String, f64>) -> AnalyticsRun {
        AnalyticsRun {
            name: name.to_owned(),
            durability: "none",
            real: false,
            scale_factor: self.scale,
            queries: per_query_s.len(),
            cache_bytes: 0,
            data_bytes: self.data_bytes,
            touched_bytes: self.touched_bytes,
            temperature,
            seconds: per_query_s.values().sum(),
            per_query_s,
            hit_ratio: None,
            near_hit_ratio: None,
            far_hit_ratio: None,
            device_read_bytes: None,
            correct: true,
            cache_mode: "dram",
            models: Vec::new(),
            network: None,
            sized_by: None,
            published_cache: None,
            differs: Vec::new(),
        }
    }
}

/// Of the readings of pages and extents between two moments, which share was found in near and which in far memory.
fn by_tier(before: CacheMetrics, after: CacheMetrics) -> (Option<f64>, Option<f64>) {
    let (near, far) = (after.near_hits - before.near_hits, after.far_hits - before.far_hits);
    let all = near + far + after.misses - before.misses;
    let share = |hits: u64| (all > 0).then(|| hits as f64 / all as f64);
    (share(near), share(far))
}

fn query_name(number: u8) -> String {
    format!("q{number:02}")
}

/// Each query's shortest time.
fn fastest(rounds: &[BTreeMap<String, f64>]) -> BTreeMap<String, f64> {
    let mut best: BTreeMap<String, f64> = BTreeMap::new();
    for (query, seconds) in rounds.iter().flatten() {
        best.entry(query.clone()).and_modify(|known| *known = known.min(*seconds)).or_insert(*seconds);
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_each_network_and_sizing_with_three_caches_and_the_largest_in_each_mode() {
        let model = Model::of(&Medium::find(NETWORK).unwrap(), 1).unwrap();
        let networks = [("one".to_owned(), model.clone()), ("two".to_owned(), model)];
        let cases = cases(&networks, &[Sizing::Data, Sizing::Touched]);
        assert_eq!(cases.len(), 2 * 2 * 5);
        let of = |network: &str, sizing| {
            cases
                .iter()
                .filter(|case| case.network == network && case.sizing == sizing)
                .map(|case| (case.cache.0, case.mode.name()))
                .collect::<Vec<_>>()
        };
        let each =
            [("512 GiB", "dram"), ("1 TiB", "dram"), ("2 TiB", "dram"), ("2 TiB", "memory-mode"), ("2 TiB", "dual")];
        for network in ["one", "two"] {
            assert_eq!(of(network, Sizing::Data), each);
            assert_eq!(of(network, Sizing::Touched), each);
        }
    }

    #[test]
    fn hits_are_shared_between_near_memory_far_memory_and_the_device() {
        let before = CacheMetrics { near_hits: 10, far_hits: 10, misses: 10, ..CacheMetrics::default() };
        let after = CacheMetrics { near_hits: 16, far_hits: 13, misses: 11, ..before };
        assert_eq!(by_tier(before, after), (Some(0.6), Some(0.3)));
        assert_eq!(by_tier(before, before), (None, None));
    }
}
