//! One mix under a load: how busy each part is, how long things take, what binds, what is wasted.
//!
//! ```text
//!   miss ratios of its page cache -> accesses in near memory, far memory, on the data drives -> busy time of each for an operation
//!     with promotions, write-backs, and the journal, wherever that is                           (LoadStation)
//!   the same as a replay of the worst minute                                                    tails
//! ```
//!
//! A medium is busy for its shortest time at full load ([`Model::at_least`]); the rest of the time of a lone access is delay. Processor time
//! was measured with near memory: far memory adds what it takes longer.

use std::sync::Arc;

use catalogue::medium::{Direction, Pattern};
use catalogue::model::Access;
use catalogue::{Budget, Model};

use super::load::{LoadStation, closed};
use super::mixes::{FarUse, JournalPart, Mix};
use super::replay::{ReplayLoad, ReplayMedia, ReplayMedium, Replayed, replay};
use super::served::{Minute, ShapeServed};
use super::settings::CacheBytes;
use super::supply::Supply;
use super::target::{Target, print_rate, print_seconds};
use super::workload::Workload;
use crate::PlanError;

/// The probability with which the page cache promotes (its default).
pub(super) const PROMOTE: f64 = 0.1;
const NANOS: f64 = 1e-9;

/// A query: how many pages it reads one after the other, and its processor time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Query {
    /// Pages.
    pub pages: f64,
    /// Processor time, seconds.
    pub cpu_s: f64,
}

/// What all mixes are rated with.
#[derive(Debug)]
pub struct Rating<'a> {
    /// The workload.
    pub workload: &'a Workload,
    /// Its worst minute.
    pub minute: &'a Minute,
    /// The target.
    pub target: &'a Target,
    /// Media.
    pub supplies: &'a [Supply],
    /// Processor time of an operation, seconds.
    pub cpu_s: Option<f64>,
    /// Sessions that make one operation after the other, if they are so many.
    pub sessions: Option<u32>,
    /// A query.
    pub query: Option<Query>,
}

/// The models of a mix.
#[derive(Debug)]
pub struct MixModels {
    /// Near memory.
    pub near: Model,
    /// Cards or modules behind it.
    pub far: Option<Model>,
    /// Data drives.
    pub data: Model,
    /// The journal, if it is on a medium of its own.
    pub journal: Option<Model>,
    /// How the journal's writes count: in order, but on a volume that is rented by its operations each is one of them.
    pub journal_pattern: Pattern,
}

/// A mix under a load, without its tails.
#[derive(Clone, Debug, PartialEq)]
pub struct Rated {
    /// Each part; the last one is the processors, if their time is known.
    pub stations: Vec<LoadStation>,
    /// How busy each is at the target's rate with headroom; above 1: it cannot do that.
    pub used: Vec<f64>,
    /// The number of the busiest.
    pub binds: usize,
    /// Operations each second that can be done.
    pub rate_max: f64,
    /// The mean of an access with queues, seconds; infinite where a part cannot do the rate.
    pub mean_read_s: f64,
    /// The mean of a commit with queues, seconds.
    pub mean_commit_s: Option<f64>,
    /// Reads and writes of the data drives each second.
    pub data_iops: f64,
    /// Bytes of the data drives and the journal each second.
    pub bytes_per_s: (f64, f64),
}

impl Rated {
    /// What the busiest part has left.
    pub fn spare(&self) -> f64 {
        (1.0 - self.used.get(self.binds).copied().unwrap_or(0.0)).max(0.0)
    }

    /// Processor time of an operation, with what far memory keeps processors waiting; if it is known.
    fn processor_s(&self) -> Option<f64> {
        self.stations.iter().find(|station| station.name == "processors").map(|station| station.busy_s)
    }

    /// The name of the busiest part.
    pub fn binding(&self) -> &str {
        self.stations.get(self.binds).map_or("nothing", |station| station.name.as_str())
    }
}

/// An access of pages or of the journal.
fn access(model: &Model, direction: Direction, pattern: Pattern, bytes: f64) -> Access {
    let bytes = bytes.ceil().max(1.0) as u64;
    Access { direction, pattern, store: model.store(bytes), bytes, overlapped: false }
}

/// Time of the medium, and time beside it, of one access, seconds.
fn times(model: &Model, access: &Access) -> (f64, f64) {
    let busy = model.at_least(access);
    (busy * NANOS, (model.alone(access) - busy).max(0.0) * NANOS)
}

/// A station that is being added up.
struct Sum {
    name: &'static str,
    busy_s: f64,
    delay_s: f64,
}

impl Sum {
    fn new(name: &'static str) -> Sum {
        Sum { name, busy_s: 0.0, delay_s: 0.0 }
    }

    fn add(&mut self, many: f64, (busy_s, delay_s): (f64, f64)) {
        self.busy_s += many * busy_s;
        self.delay_s += many * delay_s;
    }

    /// What others wait for, but the operation does not.
    fn behind(&mut self, many: f64, (busy_s, _): (f64, f64)) {
        self.busy_s += many * busy_s;
    }
}

impl Rating<'_> {
    /// The rate at which a mix has to meet the target: with growth and headroom.
    pub fn rate(&self) -> f64 {
        let base = self.target.rate.unwrap_or_else(|| self.workload.operations_per_s());
        base * self.target.growth * (1.0 + self.target.headroom)
    }

    /// Rates a mix.
    pub fn rate_mix(
        &self,
        mix: &Mix,
        models: &MixModels,
        served: &ShapeServed,
        cores: u32,
    ) -> Result<Rated, PlanError> {
        let (workload, rate) = (self.workload, self.rate());
        let pages = workload.accesses_per_operation();
        let bytes = workload.access_bytes;
        let part = served.minute;
        let read = |model: &Model| times(model, &access(model, Direction::Read, Pattern::Random, bytes));
        let write = |model: &Model| times(model, &access(model, Direction::Write, Pattern::Random, bytes));
        let (mut near, mut far, mut data) = (Sum::new("near memory"), Sum::new("far memory"), Sum::new("data"));
        near.add(pages * part.near, read(&models.near));
        near.behind(pages * part.device, write(&models.near));
        let mut held_s = 0.0;
        if let (Some(model), true) = (&models.far, part.far > 0.0) {
            far.add(pages * part.far, read(model));
            far.behind(pages * (part.device + PROMOTE * part.far), write(model));
            let (own, other) = (read(model), read(&models.near));
            held_s = pages * part.far * (own.0 + own.1 - other.0 - other.1).max(0.0);
        }
        let (mut data_iops, data_bytes) = self.of_drives(mix, models, part.device, &mut data);
        let mut journal = Sum::new("journal");
        if let Some(commits) = workload.commits {
            let shared = match mix.journal {
                JournalPart::Data => &mut data,
                JournalPart::Modules if part.far > 0.0 => &mut far,
                _ => &mut journal,
            };
            self.of_journal(mix, models, commits.bytes, shared);
            if mix.journal == JournalPart::Data {
                data_iops += 1.0;
            }
        }
        let mut stations: Vec<LoadStation> = [near, far, data, journal]
            .into_iter()
            .filter(|sum| sum.busy_s > 0.0)
            .map(|Sum { name, busy_s, delay_s }| LoadStation { name: name.into(), busy_s, servers: 1, delay_s })
            .collect();
        if let Some(cpu_s) = self.cpu_s {
            stations.push(LoadStation {
                name: "processors".into(),
                busy_s: cpu_s + held_s,
                servers: cores,
                delay_s: 0.0,
            });
        }
        let mut rated = self.under(stations, rate)?;
        rated.mean_commit_s = workload.commits.map(|commits| self.mean_commit(mix, models, &rated, commits.bytes));
        rated.data_iops = data_iops * rate;
        let journal_bytes = workload.commits.map_or(0.0, |commits| commits.bytes);
        rated.bytes_per_s = (data_bytes * rate, journal_bytes * rate);
        Ok(rated)
    }

    /// What an operation has the data drives do: reads of pages that are not in memory, write-backs, and what is beside the page cache. Returns
    /// how many operations of a drive these are, and their bytes.
    fn of_drives(&self, mix: &Mix, models: &MixModels, missed: f64, data: &mut Sum) -> (f64, f64) {
        let (workload, model) = (self.workload, &models.data);
        let (pages, bytes) = (workload.accesses_per_operation(), workload.access_bytes);
        let one = |direction: Direction, bytes: f64| times(model, &access(model, direction, Pattern::Random, bytes));
        data.add(pages * missed, one(Direction::Read, bytes));
        let (written, page) = (pages * workload.data_write_bytes(mix.journal), workload.write_back_unit() as f64);
        data.behind(written / page, one(Direction::Write, page));
        let (mut iops, mut moved) = (pages * missed + written / page, pages * missed * bytes + written);
        for load in &workload.beside {
            let (reads, writes) = load.of_operation(workload.operations_per_s());
            data.behind(reads, one(Direction::Read, load.read_bytes));
            data.behind(writes, one(Direction::Write, load.write_bytes));
            iops += reads + writes;
            moved += reads * load.read_bytes + writes * load.write_bytes;
        }
        (iops, moved)
    }

    /// What a commit has the journal's medium do; the write image journal is there too where it lies on modules.
    fn of_journal(&self, mix: &Mix, models: &MixModels, bytes: f64, shared: &mut Sum) {
        let model = journal_model(mix, models);
        shared.behind(1.0, times(model, &access(model, Direction::Write, models.journal_pattern, bytes)));
        let images = self.workload.accesses_per_operation() * self.workload.module_write_bytes(mix.journal);
        let page = self.workload.write_back_unit() as f64;
        shared.behind(images / page, times(model, &access(model, Direction::Write, Pattern::Sequential, page)));
    }

    fn under(&self, stations: Vec<LoadStation>, rate: f64) -> Result<Rated, PlanError> {
        let queued = |station: &LoadStation| station.busy_s / f64::from(station.servers.max(1));
        let used: Vec<f64> = stations.iter().map(|station| rate * queued(station)).collect();
        let binds =
            (0..used.len()).max_by(|one, two| used[*one].total_cmp(&used[*two]).then(two.cmp(one))).unwrap_or(0);
        let rate_max = match self.sessions {
            Some(sessions) => closed(&stations, sessions, 0.0)?.rate,
            None => 1.0 / stations.iter().map(queued).fold(f64::MIN_POSITIVE, f64::max),
        };
        let of_media = stations
            .iter()
            .zip(&used)
            .filter(|(station, _)| !matches!(station.name.as_str(), "processors" | "journal"));
        let time = |(station, used): (&LoadStation, &f64)| match *used < 1.0 {
            true => queued(station) / (1.0 - used) + station.delay_s,
            false => f64::INFINITY,
        };
        let mean_read_s = of_media.map(time).sum::<f64>() / self.workload.accesses_per_operation();
        Ok(Rated {
            stations,
            used,
            binds,
            rate_max,
            mean_read_s,
            mean_commit_s: None,
            data_iops: 0.0,
            bytes_per_s: (0.0, 0.0),
        })
    }

    /// Processor and journal, both with their queues.
    fn mean_commit(&self, mix: &Mix, models: &MixModels, rated: &Rated, bytes: f64) -> f64 {
        let name = match mix.journal {
            JournalPart::Data => "data",
            JournalPart::Own(..) => "journal",
            JournalPart::Modules if rated.stations.iter().any(|station| station.name == "far memory") => "far memory",
            JournalPart::Modules => "journal",
        };
        let queue = |name: &str| {
            let used = rated
                .stations
                .iter()
                .zip(&rated.used)
                .find(|(station, _)| station.name == name)
                .map_or(0.0, |(_, used)| *used);
            if used < 1.0 { 1.0 / (1.0 - used) } else { f64::INFINITY }
        };
        let model = journal_model(mix, models);
        let alone = model.alone(&access(model, Direction::Write, models.journal_pattern, bytes)) + model.flush();
        alone * NANOS * queue(name) + rated.processor_s().map_or(0.0, |busy_s| busy_s * queue("processors"))
    }

    /// Replays the worst minute on it; `None` if a part cannot do the rate.
    pub fn replay_mix(
        &self,
        mix: &Mix,
        models: &MixModels,
        served: &ShapeServed,
        rated: &Rated,
        cores: u32,
    ) -> Option<Replayed> {
        if rated.used.iter().any(|used| *used >= 1.0) {
            return None;
        }
        let workload = self.workload;
        let medium = |model| ReplayMedium { model, budget: Budget::new(model) };
        let near = medium(&models.near);
        let far = models.far.as_ref().map(medium);
        let data = medium(&models.data);
        let journal = match (mix.journal, &models.journal, &far) {
            (JournalPart::Data, ..) => ReplayMedium { model: data.model, budget: Arc::clone(&data.budget) },
            (JournalPart::Modules, _, Some(far)) => ReplayMedium { model: far.model, budget: Arc::clone(&far.budget) },
            (_, Some(own), _) => medium(own),
            _ => return None,
        };
        let holds_pages = mix.far.as_ref().is_some_and(|far| far.usage != FarUse::AppDirect);
        let media = ReplayMedia { near, far: far.filter(|_| holds_pages), data, journal };
        let load = ReplayLoad {
            accesses: &self.minute.accesses,
            found: &served.found,
            seconds: self.minute.seconds,
            stands_for: workload.stands_for * self.minute.every as f64,
            faster: self.rate() / workload.operations_per_s(),
            write_back_bytes: workload.data_write_bytes(mix.journal),
            image_bytes: workload.module_write_bytes(mix.journal),
            beside: &workload.beside,
            write_back_unit: workload.write_back_unit(),
            promote: PROMOTE,
            journal_pattern: models.journal_pattern,
            commits: workload.commits.map(|commits| (commits.per_s, commits.bytes)),
            processors: rated.processor_s().map(|busy_s| (cores, busy_s)),
        };
        let mut replayed = replay(&media, &load);
        if served.minute.device > 0.01
            && let Some(tail) = self.supplies[mix.data.0].read_tail_ns()
        {
            replayed.p99_read_s += tail * NANOS;
        }
        Some(replayed)
    }

    /// 95 of 100 queries: pages are read one after the other, and their times add up (central limit).
    pub fn query_s(&self, replayed: &Replayed) -> Option<f64> {
        let Query { pages, cpu_s } = self.query?;
        Some(cpu_s + pages * replayed.mean_read_s + 1.645 * pages.sqrt() * replayed.spread_read_s)
    }

    /// Parts of the target that are not met, in words.
    pub fn misses(&self, rated: &Rated, replayed: Option<&Replayed>, usd: Option<f64>) -> Vec<String> {
        let mut misses = Vec::new();
        let rate = self.rate();
        for (station, _) in rated.stations.iter().zip(&rated.used).filter(|(_, used)| **used >= 1.0) {
            let most = f64::from(station.servers) / station.busy_s;
            misses.push(format!(
                "{}: at most {} {} each second, not {}",
                station.name,
                print_rate(most),
                self.workload.operations(),
                print_rate(rate)
            ));
        }
        if self.sessions.is_some() && rated.rate_max < rate && misses.is_empty() {
            misses.push(format!("so many sessions make {:.0} each second, not {rate:.0}", rated.rate_max));
        }
        let times = [
            ("p99 of commits", self.target.p99_commit_s, replayed.and_then(|replayed| replayed.p99_commit_s)),
            ("p99 of accesses", self.target.p99_read_s, replayed.map(|replayed| replayed.p99_read_s)),
            ("p95 of queries", self.target.p95_query_s, replayed.and_then(|replayed| self.query_s(replayed))),
        ];
        for (what, wanted, got) in times {
            let Some(wanted) = wanted else { continue };
            let Some(got) = got else {
                if replayed.is_some() {
                    misses.push(format!("{what}: not predicted"));
                }
                continue;
            };
            if got > wanted {
                misses.push(format!("{what}: {} instead of {}", print_seconds(got), print_seconds(wanted)));
            }
        }
        if let (Some(budget), Some(usd)) = (self.target.budget_usd, usd)
            && usd > budget
        {
            misses.push(format!("it costs {usd:.0} USD instead of {budget:.0}"));
        }
        misses
    }

    /// How slow it is: the largest multiple of what was asked for; the mean of an access if nothing was.
    pub fn slowness(&self, rated: &Rated, replayed: Option<&Replayed>) -> f64 {
        let Some(replayed) = replayed else { return f64::INFINITY };
        let target = self.target;
        let of = [
            replayed.p99_commit_s.zip(target.p99_commit_s),
            target.p99_read_s.map(|wanted| (replayed.p99_read_s, wanted)),
            self.query_s(replayed).zip(target.p95_query_s),
        ];
        let times = of.into_iter().flatten().map(|(got, wanted)| got / wanted).reduce(f64::max);
        times.unwrap_or_else(|| replayed.mean_read_s + rated.mean_commit_s.unwrap_or(0.0))
    }
}

/// The model of the journal.
fn journal_model<'m>(mix: &Mix, models: &'m MixModels) -> &'m Model {
    match mix.journal {
        JournalPart::Data => &models.data,
        JournalPart::Modules => models.far.as_ref().unwrap_or(&models.data),
        JournalPart::Own(..) => models.journal.as_ref().unwrap_or(&models.data),
    }
}

/// The shape of a page cache.
pub(super) fn shape_of(cache: &CacheBytes) -> super::served::ShapeKey {
    (cache.near, cache.far.unwrap_or(0), cache.is_direct)
}
