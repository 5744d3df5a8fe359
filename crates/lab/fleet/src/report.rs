//! The result as data: a run for each way, load and side, with the keys that scripts rely on; and as JSON.
//!
//! The keys `volumes, copies, block_bytes, read_percent, queue_depth, iops, bytes_per_s, latency_us, server_cpu_us_per_io, path,
//! cache_hit_ratio`, `name`, `durability` and `real` are a contract; the others may grow.
//!
//! Invariants: a rate is that of the requests that ended in the measured time, divided by that time; a missing figure is `null`, never 0.

use serde::{Deserialize, Serialize};
use workload::machine::{FileSystem, Machine};

use crate::load::{Load, Order};
use crate::media::{Layout, VolumeCounts};
use crate::published::{self, PublishedRun};
use crate::server::Side;
use crate::tally::{Latencies, Steadiness, Tally};
use workload::processors::ProcessorUse;

/// The share of reads that goes to the fast copy at least: one in 256 goes to another one, so that its time is known.
pub const LOCAL_SHARE: f64 = 0.99;

/// How requests reach the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Calls in this process
    InProcess,
    /// NBD on a unix socket, to a server in a process of its own
    Nbd,
}

impl Way {
    /// As in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Way::InProcess => "in-process",
            Way::Nbd => "nbd",
        }
    }
}

/// Latencies, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LatencyReport {
    /// Half of the requests took no longer.
    pub p50: f64,
    /// 99 % took no longer.
    pub p99: f64,
    /// 99.9 % took no longer.
    pub p999: f64,
    /// The longest.
    pub max: f64,
    /// The shortest.
    pub min: f64,
    /// The mean.
    pub mean: f64,
}

impl LatencyReport {
    fn of(latencies: &Latencies) -> LatencyReport {
        let us = |ns: u64| ns as f64 / 1e3;
        LatencyReport {
            p50: us(latencies.quantile(0.5)),
            p99: us(latencies.quantile(0.99)),
            p999: us(latencies.quantile(0.999)),
            max: us(latencies.longest()),
            min: us(latencies.shortest()),
            mean: latencies.mean() / 1e3,
        }
    }

    fn of_some(latencies: &Latencies) -> Option<LatencyReport> {
        (latencies.count() > 0).then(|| LatencyReport::of(latencies))
    }
}

/// What a thread did in the measured time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadCounts {
    /// Its volume.
    pub volume: usize,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// What is known of a run that is not in JSON.
#[derive(Clone, Debug)]
pub struct Detail {
    /// All threads together.
    pub tally: Tally,
    /// Each thread.
    pub threads: Vec<ThreadCounts>,
    /// Each processor.
    pub processors: Vec<ProcessorUse>,
    /// Whether it was steady.
    pub steadiness: Steadiness,
    /// Whether offsets were drawn.
    pub is_random: bool,
}

/// What was measured of one load.
#[derive(Debug)]
pub struct Measured<'t> {
    /// How requests reached the device.
    pub way: Way,
    /// The volumes, or the bare devices.
    pub side: Side,
    /// The durability of a flush there.
    pub durability: String,
    /// Whether no medium was modelled.
    pub real: bool,
    /// Devices in use.
    pub volumes: usize,
    /// Copies of each.
    pub copies: usize,
    /// Whether there was a cache.
    pub has_cache: bool,
    /// The measured time.
    pub seconds: f64,
    /// By device and thread.
    pub tallies: &'t [Vec<Tally>],
    /// Processor time of the process that serves.
    pub server_cpu_ns: f64,
    /// Processor time of the load generator, where that is another process.
    pub client_cpu_ns: Option<f64>,
    /// What each volume counted meanwhile.
    pub counts: Vec<VolumeCounts>,
    /// The processors meanwhile.
    pub processors: Vec<ProcessorUse>,
    /// No write may have been faster than this, nanoseconds.
    pub write_floor_ns: Option<f64>,
}

/// A run.
#[derive(Clone, Debug, Serialize)]
pub struct FleetRun {
    /// The load, the side and the way.
    pub name: String,
    /// The load.
    pub load: &'static str,
    /// `volume` or `bare`.
    pub device: &'static str,
    /// `in-process` or `nbd`.
    pub path: &'static str,
    /// What a flush protects from, on the volume's weakest copy.
    pub durability: String,
    /// Whether no medium was modelled.
    pub real: bool,
    /// Volumes under load.
    pub volumes: usize,
    /// Copies of each.
    pub copies: usize,
    /// Bytes of a request.
    pub block_bytes: usize,
    /// Reads of 100 requests.
    pub read_percent: u8,
    /// Requests in progress on each volume.
    pub queue_depth: usize,
    /// Threads on each volume.
    pub threads: usize,
    /// Requests in progress of each thread.
    pub outstanding: usize,
    /// The measured time.
    pub seconds: f64,
    /// Requests in that time.
    pub requests: u64,
    /// Of these, reads.
    pub reads: u64,
    /// Of these, writes.
    pub writes: u64,
    /// Requests per second, of all volumes.
    pub iops: f64,
    /// Bytes per second, of all volumes.
    pub bytes_per_s: f64,
    /// Latencies of all requests together.
    pub latency_us: LatencyReport,
    /// Those of reads.
    pub read_latency_us: Option<LatencyReport>,
    /// Those of writes.
    pub write_latency_us: Option<LatencyReport>,
    /// Processor time of the process that serves, per request; in-process with the load generator's.
    pub server_cpu_us_per_io: f64,
    /// Processor time of the process that asks, per request; over NBD.
    pub client_cpu_us_per_io: Option<f64>,
    /// Requests per second for each core of the machine.
    pub iops_per_core: f64,
    /// Requests for each second of processor time, server and client together.
    pub iops_per_core_second: f64,
    /// Blocks that reads found in caches; nothing without a cache.
    pub cache_hit_ratio: Option<f64>,
    /// Reads that went to each copy, of all volumes; a read of many blocks counts once for each run of blocks.
    pub reads_by_copy: Option<Vec<u64>>,
    /// The share of the first copy.
    pub local_read_share: Option<f64>,
    /// Requests by second.
    pub per_second: Vec<u64>,
    /// Whether the last five seconds were within 10 %; nothing in a shorter run.
    pub steady: Option<bool>,
    /// How busy the machine's processors were, whoever made them busy.
    pub busy_percent: f64,
    /// Blocks whose content was checked.
    pub checked_blocks: u64,
    /// Of these, to the last byte.
    pub checked_whole_blocks: u64,
    /// Blocks that contained something else.
    pub mismatches: u64,
    /// Requests that failed.
    pub errors: u64,
    /// The first thing that was wrong.
    pub first_wrong: Option<String>,
    /// Copies in sync at the end, in the volume with the fewest.
    pub copies_in_sync: Option<usize>,
    /// The least time of a write on the slowed copies.
    pub write_floor_us: Option<f64>,
    /// Its rate divided by that of the bare device.
    pub ratio_to_bare: Option<f64>,
    /// The published run.
    pub published: Option<PublishedRun>,
    /// For other formats.
    #[serde(skip)]
    pub detail: Detail,
}

impl FleetRun {
    /// From what was measured.
    pub fn new(load: &Load, measured: &Measured<'_>) -> FleetRun {
        let (tally, threads) = together(measured.tallies);
        let is_volume = measured.side == Side::Volume;
        let (requests, seconds) = (tally.requests(), measured.seconds);
        let each = |ns: f64| if requests > 0 { ns / 1e3 / requests as f64 } else { f64::NAN };
        let server = each(measured.server_cpu_ns);
        let client = measured.client_cpu_ns.map(each);
        let reads_by_copy = is_volume.then(|| by_copy(&measured.counts, measured.copies));
        let steadiness = Steadiness::of(&tally.windows);
        let cores = measured.processors.len().max(1) as f64;
        let iops = requests as f64 / seconds;
        FleetRun {
            name: format!("{}, {}, {}", load.name, measured.side.as_str(), measured.way.as_str()),
            load: load.name,
            device: measured.side.as_str(),
            path: measured.way.as_str(),
            durability: measured.durability.clone(),
            real: measured.real,
            volumes: measured.volumes,
            copies: measured.copies,
            block_bytes: load.bytes,
            read_percent: load.read_percent,
            queue_depth: load.queue_depth(),
            threads: load.threads,
            outstanding: load.outstanding,
            seconds,
            requests,
            reads: tally.reads.count(),
            writes: tally.writes.count(),
            iops,
            bytes_per_s: (tally.read_bytes + tally.written_bytes) as f64 / seconds,
            latency_us: LatencyReport::of(&tally.all()),
            read_latency_us: LatencyReport::of_some(&tally.reads),
            write_latency_us: LatencyReport::of_some(&tally.writes),
            server_cpu_us_per_io: server,
            client_cpu_us_per_io: client,
            iops_per_core: iops / cores,
            iops_per_core_second: 1e6 / (server + client.unwrap_or(0.0)),
            cache_hit_ratio: measured.has_cache.then(|| hit_ratio(&measured.counts)).flatten(),
            local_read_share: reads_by_copy.as_deref().and_then(first_share),
            reads_by_copy,
            per_second: tally.windows.iter().map(|window| window.all()).collect(),
            steady: steadiness.is_steady(),
            busy_percent: ProcessorUse::mean(&measured.processors).busy(),
            checked_blocks: tally.checked,
            checked_whole_blocks: tally.checked_whole,
            mismatches: tally.mismatches,
            errors: tally.errors,
            first_wrong: tally.first_wrong.clone(),
            copies_in_sync: is_volume.then(|| measured.counts.iter().map(|of| of.in_sync).min().unwrap_or(0)),
            write_floor_us: measured.write_floor_ns.map(|ns| ns / 1e3),
            ratio_to_bare: None,
            published: is_volume.then(|| published::of(load.name)).flatten(),
            detail: Detail {
                tally,
                threads,
                processors: measured.processors.clone(),
                steadiness,
                is_random: load.order == Order::Random,
            },
        }
    }

    /// What is wrong with it, in words; nothing if all is well.
    pub fn wrong(&self) -> Option<String> {
        let first = self.first_wrong.as_deref().unwrap_or("no details");
        if self.errors + self.mismatches > 0 {
            let (errors, mismatches) = (self.errors, self.mismatches);
            return Some(format!("{}: {errors} errors, {mismatches} wrong blocks; first: {first}", self.name));
        }
        if self.copies_in_sync.is_some_and(|in_sync| in_sync < self.copies) {
            return Some(format!("{}: fewer than {} copies are in sync at the end", self.name, self.copies));
        }
        let floor = self.write_floor_us?;
        // The histogram keeps three digits.
        let fastest = self.write_latency_us?.min * 1.001;
        (fastest < floor).then(|| {
            format!(
                "{}: a write was acknowledged after {fastest:.1} us, before the slowest copy in sync can have it ({floor:.1} us)",
                self.name
            )
        })
    }
}

fn together(tallies: &[Vec<Tally>]) -> (Tally, Vec<ThreadCounts>) {
    let (mut sum, mut threads) = (Tally::default(), Vec::new());
    for (volume, of_volume) in tallies.iter().enumerate() {
        for tally in of_volume {
            sum.add(tally);
            threads.push(ThreadCounts {
                volume,
                reads: tally.reads.count(),
                writes: tally.writes.count(),
                read_bytes: tally.read_bytes,
                written_bytes: tally.written_bytes,
            });
        }
    }
    (sum, threads)
}

fn by_copy(counts: &[VolumeCounts], copies: usize) -> Vec<u64> {
    let of = |copy: usize| counts.iter().map(|counts| counts.reads.get(copy).copied().unwrap_or(0)).sum();
    (0..copies).map(of).collect()
}

fn first_share(reads: &[u64]) -> Option<f64> {
    let all: u64 = reads.iter().sum();
    (all > 0).then(|| reads[0] as f64 / all as f64)
}

fn hit_ratio(counts: &[VolumeCounts]) -> Option<f64> {
    let (hits, misses) =
        counts.iter().fold((0, 0), |sum, counts| (sum.0 + counts.cache_hits, sum.1 + counts.cache_misses));
    (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
}

/// What was configured.
#[derive(Clone, Debug, Serialize)]
pub struct FleetConfig {
    /// The media in words.
    pub media: String,
    /// The file system below, if there is one.
    pub file_system: Option<FileSystem>,
    /// The volumes.
    pub layout: Layout,
    /// Threads on each volume.
    pub threads: usize,
    /// Requests in progress of each thread.
    pub outstanding: usize,
    /// Warm-up of a run.
    pub warm_seconds: f64,
    /// Measured time of a run.
    pub seconds: f64,
    /// Cool-down of a run.
    pub cool_seconds: f64,
    /// Seed of the offsets.
    pub seed: u64,
    /// The processor's last cache.
    pub last_cache_bytes: Option<u64>,
    /// Bytes that the loads choose from: all volumes, once.
    pub working_set_bytes: u64,
    /// The machine's load in the last minute, at the end.
    pub load_average: Option<f64>,
}

/// The result.
#[derive(Clone, Debug, Serialize)]
pub struct FleetReport {
    /// `fleet`.
    pub bench: &'static str,
    /// Version of the program.
    pub version: &'static str,
    /// The machine.
    pub machine: Machine,
    /// What was configured.
    pub config: FleetConfig,
    /// The runs, in the order in which they were made.
    pub runs: Vec<FleetRun>,
}

impl FleetReport {
    /// Of these runs.
    pub fn new(machine: Machine, config: FleetConfig, runs: Vec<FleetRun>) -> FleetReport {
        FleetReport { bench: "fleet", version: env!("CARGO_PKG_VERSION"), machine, config, runs }
    }

    /// As JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a report is plain data")
    }

    /// Everything that is wrong, a line each.
    pub fn wrong(&self) -> Vec<String> {
        self.runs.iter().filter_map(|run| run.wrong().or_else(|| self.wrong_share(run))).collect()
    }

    /// With the other copies slowed, nearly all reads go to the first one, unless another one is asked for. Runs with writes read a block that
    /// is not in place from memory, and do not tell.
    fn wrong_share(&self, run: &FleetRun) -> Option<String> {
        let layout = &self.config.layout;
        let is_told = layout.slow_copies.is_some() && layout.prefer.is_none() && run.read_percent == 100;
        let share = run.local_read_share.filter(|share| is_told && *share < LOCAL_SHARE)?;
        let (name, percent, least) = (&run.name, share * 100.0, LOCAL_SHARE * 100.0);
        Some(format!("{name}: {percent:.2} % of the reads went to the fast copy, less than {least:.0} %"))
    }

    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.wrong().is_empty()
    }
}

#[cfg(test)]
pub(crate) mod tests;
