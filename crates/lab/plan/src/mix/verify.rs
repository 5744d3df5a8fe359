//! A plan beside the real page cache: the stream of the profile goes through `store::cache`, on the mix's media with virtual time, in a memory
//! that is smaller by the same factor as the sample.
//!
//! ```text
//!   predicted   miniature simulation of the policy, times of the models without queues
//!   measured    the page cache of the store: its hits, its promotions; far memory and drives are the same models, and charge a clock that is
//!               not real: of times only the number of accesses is measured
//! ```
//!
//! Time is accounted, not waited for: the result is the same on every machine, and a run takes seconds. Not here: queues, journal, processors,
//! and media themselves; these are the models'. What runs may be held out: other accesses of the same workload. Near memory is not slowed
//! down, so times are those beyond it.

use std::collections::HashMap;
use std::sync::Arc;

use catalogue::budget::Request;
use catalogue::medium::Direction;
use catalogue::{Budget, Model, ModelMemory, Timing, VirtualClock};
use foldhash::fast::FixedState;
use serde::{Deserialize, Serialize};
use store::StoreError;
use store::cache::backing::{BackingStore, PageAllocator};
use store::cache::{Cache, CacheOptions, NEAR_BYTES_MIN, Policy};
use store::page::{self, Kind, PageHeader, PageId};
use store::pages::Pages;

use super::planning::{PlannedMix, Planning};
use super::rate::{MixModels, PROMOTE};
use super::report::PlanReport;
use super::workload::Workload;
use crate::PlanError;
use crate::host::Host;
use crate::simulate::Served;

/// Pages of the store that one can have, at most.
const PAGE_SIZES: std::ops::RangeInclusive<u64> = 4096..=65_536;
/// Memory of a run at most, bytes.
const RUN_BYTES_MAX: u64 = 1 << 30;

/// A plan beside the real page cache: what `terrace plan verify --json` and `terrace bench plan --json` have. The JSON keys are a contract:
/// keys may be added, never renamed.
#[derive(Clone, Debug, Serialize)]
pub struct VerifyReport {
    /// Always `plan`.
    pub bench: &'static str,
    /// Version of Terrace.
    pub version: &'static str,
    /// The machine. Times are virtual: the figures are the same on each.
    pub machine: Host,
    /// What was run.
    pub config: VerifyConfig,
    /// The figures, mix by mix.
    pub runs: Vec<VerifyRun>,
}

/// What was run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerifyConfig {
    /// The accesses that were run are others than those from which the plan was made.
    pub held_out: bool,
    /// The seed of what was made up; absent for profiles.
    pub seed: Option<u64>,
    /// Accesses of each made-up workload; absent for profiles.
    #[serde(default)]
    pub accesses: Option<u64>,
    /// Profiles, or names of made-up workloads.
    pub workloads: Vec<String>,
}

/// A figure of a mix, predicted and measured; or a mix that could not be run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VerifyRun {
    /// Of a bench: the workload and the server.
    #[serde(default)]
    pub pair: Option<String>,
    /// What the figure is.
    pub name: String,
    /// The mix, by its name in the plan.
    pub mix: String,
    /// What the plan predicts.
    pub predicted: Option<f64>,
    /// What the page cache did, on models of the media.
    pub measured: Option<f64>,
    /// `percent` (of the accesses), or `ns`; `none` if it was refused.
    pub unit: String,
    /// The difference in percent of what was measured; absent where that is 0.
    pub error_percent: Option<f64>,
    /// The difference in points, where the unit is `percent`.
    pub error_points: Option<f64>,
    /// Why the mix could not be run.
    pub refused: Option<String>,
    /// Nothing is written: always `none`.
    pub durability: String,
    /// Media are modelled: always `false`.
    pub real: bool,
}

impl VerifyReport {
    /// The report of these runs on this machine.
    pub fn new(config: VerifyConfig, runs: Vec<VerifyRun>) -> VerifyReport {
        VerifyReport { bench: "plan", version: env!("CARGO_PKG_VERSION"), machine: Host::here(), config, runs }
    }

    /// Predicted beside measured, mix by mix.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        let mut mix = "";
        for run in &self.runs {
            if run.mix != mix {
                mix = &run.mix;
                out += &format!("{mix}\n");
                if run.refused.is_none() {
                    out += &format!("{:>80} {:>12} {:>12} {:>10}\n", "", "predicted", "measured", "error");
                }
            }
            if let Some(why) = &run.refused {
                out += &format!("  not run: {why}\n");
                continue;
            }
            let of = if run.error_points.is_some() { "points" } else { "%" };
            let error = run.error_points.or(run.error_percent).unwrap_or_default();
            let (predicted, measured) = (run.predicted.unwrap_or_default(), run.measured.unwrap_or_default());
            out += &format!("  {:<78} {predicted:>12.2} {measured:>12.2} {error:>+10.2} {of}\n", run.name);
        }
        out
    }
}

impl VerifyRun {
    fn figure(name: &str, predicted: f64, measured: f64, unit: &str) -> VerifyRun {
        let difference = predicted - measured;
        VerifyRun {
            name: name.into(),
            predicted: Some(predicted),
            measured: Some(measured),
            error_percent: (measured > 1e-9).then(|| 100.0 * difference / measured),
            error_points: (unit == "percent").then_some(difference),
            ..VerifyRun::empty(unit)
        }
    }

    fn refused(why: String) -> VerifyRun {
        VerifyRun { name: "the page cache of the mix".into(), refused: Some(why), ..VerifyRun::empty("none") }
    }

    fn empty(unit: &str) -> VerifyRun {
        VerifyRun { unit: unit.into(), durability: "none".into(), real: false, ..VerifyRun::default() }
    }
}

impl Planning {
    /// The mixes of a report beside the real page cache: predicted and measured. One that cannot be run is there with the reason. What runs is
    /// the stream of the profiles, or one that is held out: of the same workload, with other accesses than those of the plan.
    ///
    /// # Errors
    /// A profile that the page cache of the store cannot run; those of reading.
    pub fn verify(&self, report: &PlanReport, held_out: Option<&Workload>) -> Result<Vec<VerifyRun>, PlanError> {
        let stream = held_out.unwrap_or(&self.workload);
        check(stream)?;
        if stream.page_bytes != self.workload.page_bytes {
            return refuse(format!(
                "pages of {} bytes are run, but those of the plan have {}",
                stream.page_bytes, self.workload.page_bytes
            ));
        }
        let mut runs = Vec::new();
        for mix in &report.mixes {
            let Some(one) = self.kept.iter().find(|one| self.name_of(one) == mix.name) else { continue };
            let of_mix = match verify(self, one, stream) {
                Ok(figures) => figures,
                Err(PlanError::Refused(why)) => vec![VerifyRun::refused(why)],
                Err(other) => return Err(other),
            };
            runs.extend(of_mix.into_iter().map(|run| VerifyRun { mix: mix.name.clone(), ..run }));
        }
        Ok(runs)
    }
}

/// A device whose every page is a leaf, as slow as the data drives.
struct TimedLeaves {
    model: Model,
    budget: Arc<Budget>,
    clock: Arc<VirtualClock>,
    page_bytes: usize,
}

impl BackingStore for TimedLeaves {
    fn read(&self, first: PageId, buffer: &mut [u8]) -> Result<(), StoreError> {
        for (page, bytes) in (first.0..).zip(buffer.chunks_exact_mut(self.page_bytes)) {
            bytes[..page::HEADER_BYTES].fill(0);
            PageHeader { kind: Kind::Leaf, level: 0, flags: 0, tree: 1, lsn: 1 }.put(bytes);
            page::seal(PageId(page), bytes);
        }
        let offset = u64::from(first.0) * self.page_bytes as u64;
        let request = Request::new(0, Direction::Read, offset, buffer.len() as u64);
        self.clock.advance_to(self.budget.take(&self.model, 0, self.clock.now(), &request));
        Ok(())
    }

    fn write(&self, _first: PageId, _bytes: &[u8]) -> Result<(), StoreError> {
        Err(StoreError::Refused("nothing is written here".into()))
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl PageAllocator for TimedLeaves {
    fn allocate(&self, _pages: u32) -> Result<PageId, StoreError> {
        Err(StoreError::Refused("nothing is made here".into()))
    }

    fn free(&self, _first: PageId, _pages: u32) {}
}

fn refuse<T>(what: String) -> Result<T, PlanError> {
    Err(PlanError::Refused(what))
}

/// A profile whose pages the store can have.
fn check(workload: &Workload) -> Result<(), PlanError> {
    if !workload.has_pages || !PAGE_SIZES.contains(&workload.page_bytes) || !workload.page_bytes.is_power_of_two() {
        return refuse(format!(
            "a page cache has pages of 4 to 64 KiB: this profile has {} of {} bytes",
            if workload.has_pages { "pages" } else { "objects" },
            workload.page_bytes
        ));
    }
    Ok(())
}

/// Runs a stream through the page cache of a mix.
///
/// # Errors
/// A sample that is too small or too large; those of reading.
fn verify(planning: &Planning, planned: &PlannedMix, workload: &Workload) -> Result<Vec<VerifyRun>, PlanError> {
    let part = workload.stream_rate / planning.request.target.growth;
    // What is larger than everything that is used is as good as that.
    let all = (workload.touched_bytes as f64 * workload.stream_rate * 1.25) as u64 + (8 << 20);
    let scaled = |bytes: u64| ((bytes as f64 * part) as u64).min(all);
    let (near_bytes, far_bytes) = (scaled(planned.cache.near), planned.cache.far.map_or(0, scaled));
    if near_bytes < NEAR_BYTES_MIN {
        return refuse(format!(
            "{near_bytes} bytes of near memory in a sample of {:.4} % of the keys are less than a page cache has; record with more \
             --stream-keys",
            workload.stream_rate * 100.0
        ));
    }
    if near_bytes + far_bytes > RUN_BYTES_MAX {
        return refuse(format!(
            "{} bytes of memory are needed for a run; record with fewer --stream-keys",
            near_bytes + far_bytes
        ));
    }
    let models = planning.models(&planned.mix, &planned.cache)?;
    let (measured, measured_ns) = run(workload, &models, near_bytes, far_bytes, planned.cache.is_direct)?;
    let predicted = planning.served_of(&planned.cache).all;
    let predicted_ns = unqueued_ns(&models, &predicted, workload.page_bytes);
    let percent = |what: &str, one: f64, two: f64| VerifyRun::figure(what, one * 100.0, two * 100.0, "percent");
    Ok(vec![
        percent("found in near memory", predicted.near, measured.near),
        percent("found in far memory", predicted.far, measured.far),
        percent("read from the drives", predicted.device, measured.device),
        VerifyRun::figure(
            "mean of an access beyond near memory, without queues, on models",
            predicted_ns,
            measured_ns,
            "ns",
        ),
    ])
}

/// What accesses take beyond near memory if nobody else is there: a promotion and a page that is demoted are part of the access.
fn unqueued_ns(models: &MixModels, served: &Served, page_bytes: u64) -> f64 {
    let one = |model: &Model, direction: Direction| {
        let budget = Budget::new(model);
        budget.take(model, 0, 0.0, &Request::new(0, direction, 1 << 30, page_bytes))
    };
    let far = models.far.as_ref().filter(|_| served.far > 0.0);
    let of_far = far.map_or(0.0, |model| {
        served.far * one(model, Direction::Read) + (served.device + PROMOTE * served.far) * one(model, Direction::Write)
    });
    served.device * one(&models.data, Direction::Read) + of_far
}

/// Where the page cache found the accesses, and nanoseconds of an access.
fn run(
    workload: &Workload,
    models: &MixModels,
    near_bytes: u64,
    far_bytes: u64,
    is_direct: bool,
) -> Result<(Served, f64), PlanError> {
    let clock = VirtualClock::new();
    let page_bytes = workload.page_bytes as usize;
    let far_model = models.far.as_ref().filter(|_| far_bytes > 0).map(|model| {
        Arc::new(ModelMemory::new(model.clone(), Budget::new(model), Timing::Accounted(Arc::clone(&clock))))
    });
    let leaves = Arc::new(TimedLeaves {
        model: models.data.clone(),
        budget: Budget::new(&models.data),
        clock: Arc::clone(&clock),
        page_bytes,
    });
    let policy = if is_direct { Policy::DirectMapped } else { Policy::Managed { promote: PROMOTE } };
    let options = CacheOptions { page_bytes, near_bytes, far_bytes, policy, far_model, ..CacheOptions::default() };
    let failed = |error: StoreError| PlanError::Refused(format!("the page cache: {error}"));
    let cache = Cache::new(&options, Arc::<TimedLeaves>::clone(&leaves), leaves).map_err(failed)?;
    let mut numbers: HashMap<u64, u32, FixedState> = HashMap::default();
    let mut failure = None;
    clock.as_queue(0, || {
        workload.each(|entry| {
            let next = numbers.len() as u32 + 1;
            let number = *numbers.entry(entry.hash).or_insert(next);
            if failure.is_none() {
                failure = cache.read(PageId(number)).err();
            }
        })
    })?;
    if let Some(error) = failure {
        return Err(failed(error));
    }
    let metrics = cache.metrics();
    let sampled = (metrics.near_hits + metrics.far_hits + metrics.misses) as f64;
    // As the prediction does: what the sample has less than its part counts as found.
    let expected = sampled * workload.stands_for * workload.stream_rate;
    let near = (metrics.near_hits as f64 + expected - sampled).max(0.0);
    let all = (near + (metrics.far_hits + metrics.misses) as f64).max(1.0);
    let served = Served { near: near / all, far: metrics.far_hits as f64 / all, device: metrics.misses as f64 / all };
    Ok((served, clock.elapsed() / all))
}
