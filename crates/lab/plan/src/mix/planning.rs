//! From a request to a plan: the steps in order.
//!
//! ```text
//!   supplies   what the catalogue has for this server       -> mixes    what fits, by the rules of provisioning
//!   served     the page cache of each shape, simulated      -> placed   terrace.toml of each, by the rules of placement
//!   rated      busy times, rates, means                     -> kept     what no other one beats in all of them
//!   replayed   the worst minute on each that was kept       -> report   the few that are worth a choice
//! ```

use std::collections::{BTreeMap, BTreeSet};

use catalogue::Medium;
use catalogue::medium::Pattern;

use super::beside::BesideLoad;
use super::bounds::{check_listing, worn, worn_out};
use super::choose::PRICE_FACTORS;
use super::cost::{MixCost, PriceList};
use super::mixes::{FarPart, FarUse, JournalPart, Mix, MixNeeds, VOLUME_ROOMS, enumerate};
use super::parts::{VolumeNeeds, name, parts, wear};
use super::rate::{MixModels, PROMOTE, Query, Rated, Rating, shape_of};
use super::replay::Replayed;
use super::report::{EnduranceReport, SureReport};
use super::served::{ServedByShape, ShapeServed, serve};
use super::server::{OwnedKind, Server};
use super::settings::{CacheBytes, SettingsFor, cache_of, check, text};
use super::supply::{Duty, Plug, Supply, dram_model};
use super::target::Target;
use super::workload::{Commits, ProfileSource, Shortness, Workload};
use crate::PlanError;
use crate::profile::Lack;

/// Volumes are rented with so many operations each second at least, for each time that they are those of the worst minute.
const VOLUME_LEAST: f64 = 100.0 / 3.0;
/// Times that differ by less are alike.
const ALIKE: f64 = 1.01;
/// Mixes that are replayed at first, at most: spread over their cost.
const REPLAYED_FIRST: usize = 200;
/// Mixes that are replayed after these at most: those that may be cheaper than the cheapest that meets the target.
const REPLAYED_MORE: usize = 1000;

/// Why a mix is left out that was not replayed.
pub(super) const NOT_REPLAYED: &str = "not replayed: between others in cost, of more than can be replayed";

/// What is planned.
#[derive(Clone, Debug)]
pub struct PlanRequest {
    /// The profiles.
    pub sources: Vec<ProfileSource>,
    /// Whether short profiles are taken.
    pub short: Shortness,
    /// The server.
    pub server: Server,
    /// The catalogue.
    pub media: Vec<Medium>,
    /// The prices that may be used.
    pub prices: PriceList,
    /// The target.
    pub target: Target,
    /// Words that leave media out: names, kinds, `discontinued`.
    pub without: Vec<String>,
    /// Bytes that are stored; else what was used at all.
    pub data_bytes: Option<u64>,
    /// Processor time of an operation, seconds; else that of the profile.
    pub cpu_s: Option<f64>,
    /// So many sessions make one operation after the other.
    pub sessions: Option<u32>,
    /// A query.
    pub query: Option<Query>,
    /// Commits that are taken for given, where there is no journal to read them from.
    pub commits: Option<Commits>,
    /// How many times larger the workload is than the record: 1 for a profile.
    pub scale: f64,
    /// The error of the input, if it is not a profile.
    pub assumed: Vec<SureReport>,
}

/// A mix with all that is known about it.
#[derive(Debug)]
pub struct PlannedMix {
    /// It.
    pub mix: Mix,
    /// Its page cache.
    pub cache: CacheBytes,
    /// Its load.
    pub rated: Rated,
    /// What it costs.
    pub cost: MixCost,
    /// Its tails; `None` if it cannot do the rate.
    pub replayed: Option<Replayed>,
}

/// A plan before it is a report.
#[derive(Debug)]
pub struct Planning {
    /// The request.
    pub request: PlanRequest,
    /// The workload.
    pub workload: Workload,
    /// Media of this server.
    pub supplies: Vec<Supply>,
    /// Where accesses are served.
    pub served: ServedByShape,
    /// Those that are worth a choice, and some more.
    pub kept: Vec<PlannedMix>,
    /// Others that no other one beats, by cost; they are replayed if they may be the answer.
    between: Vec<PlannedMix>,
    /// All mixes that could be placed, for comparisons.
    pub placed: Vec<(Mix, CacheBytes)>,
    /// How many were enumerated.
    pub enumerated: usize,
    /// Why others were left out.
    pub left_out: BTreeMap<String, usize>,
    /// Parts of the target that are not planned.
    pub refused: Vec<String>,
    /// Notes about figures.
    pub notes: Vec<String>,
}

impl Planning {
    /// Runs all steps.
    ///
    /// # Errors
    /// Profiles from which nothing can be planned, servers with no mix, and those of reading.
    pub fn of(request: PlanRequest) -> Result<Planning, PlanError> {
        Planning::with(request, REPLAYED_FIRST)
    }

    /// Runs all steps; so many mixes are replayed at first.
    pub(super) fn with(request: PlanRequest, first: usize) -> Result<Planning, PlanError> {
        let mut workload = Workload::of(request.sources.clone(), request.short)?;
        workload.enlarge(request.scale);
        if let Some(commits) = request.commits {
            workload.assume_commits(commits);
        }
        let mut planning = Planning {
            workload,
            supplies: Vec::new(),
            served: ServedByShape::default(),
            kept: Vec::new(),
            between: Vec::new(),
            placed: Vec::new(),
            enumerated: 0,
            left_out: BTreeMap::new(),
            refused: Vec::new(),
            notes: Vec::new(),
            request,
        };
        planning.refuse_targets();
        planning.supply()?;
        let mixes = planning.enumerated()?;
        planning.place(mixes)?;
        planning.rate_all(first)?;
        planning.replay_all()?;
        planning.replay_between()?;
        Ok(planning)
    }

    fn leave_out(&mut self, why: String) {
        *self.left_out.entry(why).or_default() += 1;
    }

    /// Parts of the target for which the profile lacks something are not planned, and say so.
    fn refuse_targets(&mut self) {
        let workload = &self.workload;
        let target = &mut self.request.target;
        let cpu_s = self.request.cpu_s.or(workload.cpu_s);
        let mut refuse = |what: &str, why: &str| self.refused.push(format!("{what} is not planned: {why}"));
        let of_node = "a profile of a node has it (terrace profile start)";
        if target.p99_commit_s.is_some() && workload.commits.is_none() {
            let lack = if workload.has(Lack::Flushes) { Lack::Journal } else { Lack::Flushes };
            refuse("p99 of commits", &format!("the profile lacks {}; {of_node}", lack.text()));
            target.p99_commit_s = None;
        }
        if target.rate.is_some() && cpu_s.is_none() {
            let lack = Lack::Cpu.text();
            refuse(
                "the rate of processors",
                &format!("the profile lacks {lack}; {of_node}, or give that of an operation with --cpu-per-operation"),
            );
        }
        if target.p95_query_s.is_some() && self.request.query.is_none() {
            refuse(
                "p95 of queries",
                "a profile has no queries: say how many pages one reads with --query-pages, and its processor time with --query-cpu",
            );
            target.p95_query_s = None;
        }
    }

    /// Words of `--no` and `offer` that name nothing would be passed over in silence.
    fn check_words(&self, server: &Server) -> Result<(), PlanError> {
        const KINDS: [&str; 5] = ["cxl", "pmem", "network", "far", "discontinued"];
        let media = &self.request.media;
        for word in self.request.without.iter().filter(|word| !KINDS.contains(&word.as_str())) {
            let named: Vec<Supply> = media.iter().map(Supply::of).filter(|supply| supply.is_named(word)).collect();
            if named.is_empty() {
                return Err(PlanError::Refused(format!(
                    "--no {word} names no medium of the catalogue: write a name, its begin as dcpmm, or one of {}",
                    KINDS.join(", ")
                )));
            }
            if named.iter().all(|supply| supply.duty == Duty::Near) {
                return Err(PlanError::Refused(format!(
                    "--no {word} names DRAM, which each mix has: say which one with dram = and dimms = in the server's description"
                )));
            }
        }
        let is_unknown = |name: &&String| !media.iter().any(|medium| medium.name == **name);
        match server.offer.iter().flatten().find(is_unknown) {
            Some(name) => Err(PlanError::Refused(format!("offer: {name} is no medium of the catalogue"))),
            None => Ok(()),
        }
    }

    /// The media of the catalogue that this server can have.
    fn supply(&mut self) -> Result<(), PlanError> {
        let server = self.request.server.clone();
        self.check_words(&server)?;
        let media = &self.request.media;
        let plug = |name: &str| media.iter().find(|medium| medium.name == name).map(|one| Supply::of(one).plug);
        server.check_owned(plug)?;
        check_listing(&server, media, &self.request.without)?;
        let owned: BTreeSet<String> = server
            .owned()?
            .into_iter()
            .filter_map(|owned| match owned.what {
                OwnedKind::Medium(name) => Some(name),
                OwnedKind::Dram(_) => None,
            })
            .collect();
        for medium in self.request.media.clone() {
            let mut supply = Supply::of(&medium);
            let name = medium.name.clone();
            let is_owned = owned.contains(&name);
            let is_offered = server.offer.as_ref().is_none_or(|offer| offer.contains(&name));
            if supply.duty == Duty::Near || !(is_offered || is_owned) {
                continue;
            }
            supply.by_operations = !is_owned && self.request.prices.is_by_operations(&name);
            supply.only_owned = !is_offered;
            if let Some(word) = self.request.without.iter().find(|word| supply.is_named(word)).cloned() {
                let but = if is_owned { ", but for what is owned" } else { "" };
                self.leave_out(format!("{name}: --no {word}{but}"));
                supply.only_owned = true;
                if !is_owned {
                    continue;
                }
            }
            let has_place = match supply.plug {
                Plug::Network => server.volumes,
                Plug::Lanes => server.lanes >= 8,
                Plug::Bay => server.bays > 0,
                Plug::Dimm => server.instance.is_empty(),
            };
            if !has_place && !is_owned {
                continue;
            }
            let fits = supply.fits(&server.dram).map_err(|why| format!("{name} {why}"));
            let usable = fits.and_then(|()| supply.model(1).map(|_| ()).map_err(|error| error.to_string()));
            match usable {
                Ok(()) => self.supplies.push(supply),
                Err(why) if is_owned => return Err(PlanError::Refused(format!("what one has: {why}"))),
                Err(why) => self.leave_out(why),
            }
        }
        Ok(())
    }

    fn enumerated(&mut self) -> Result<Vec<Mix>, PlanError> {
        let growth = self.request.target.growth;
        let grown = |bytes: u64| (bytes as f64 * growth) as u64;
        let touched = self.workload.touched_bytes;
        let data_bytes = self.data_bytes();
        let needs = MixNeeds { cache_bytes: grown(touched), data_bytes, has_commits: self.workload.commits.is_some() };
        let found = enumerate(&self.request.server, &self.supplies, needs)?;
        self.enumerated = found.mixes.len() + found.left_out.values().sum::<usize>();
        for (why, many) in found.left_out {
            *self.left_out.entry(why).or_default() += many;
        }
        Ok(found.mixes)
    }

    /// Those whose terrace.toml a node would take.
    fn place(&mut self, mixes: Vec<Mix>) -> Result<(), PlanError> {
        // Equal but for the number of drives: one check.
        let mut known: BTreeMap<String, Result<(), String>> = BTreeMap::new();
        for mix in mixes {
            let cache = match cache_of(&mix, &self.request.server) {
                Ok(cache) => cache,
                Err(error) => {
                    self.leave_out(error.to_string());
                    continue;
                }
            };
            let text = text(&mix, &self.supplies, &self.request.server, SettingsFor::Real)?;
            let result = known.entry(text).or_insert_with_key(|text| check(text, &self.supplies).map(|_| ())).clone();
            match result {
                Ok(()) => self.placed.push((mix, cache)),
                Err(why) => self.leave_out(why.split(". ").next().unwrap_or(&why).to_owned()),
            }
        }
        let shapes: BTreeSet<_> = self.placed.iter().map(|(_, cache)| shape_of(cache)).collect();
        self.served = serve(&self.workload, shapes, self.request.target.growth, PROMOTE)?;
        for (key, why) in self.served.refused.clone() {
            let before = self.placed.len();
            self.placed.retain(|(_, cache)| shape_of(cache) != key);
            *self.left_out.entry(why).or_default() += before - self.placed.len();
        }
        if self.placed.is_empty() {
            let why: Vec<&str> = self.left_out.keys().map(String::as_str).collect();
            return Err(PlanError::Refused(format!("no mix is left: {}", why.join("; "))));
        }
        Ok(())
    }

    /// What mixes are rated with.
    pub fn rating(&self) -> Rating<'_> {
        Rating {
            workload: &self.workload,
            minute: &self.served.minute,
            target: &self.request.target,
            supplies: &self.supplies,
            cpu_s: self.request.cpu_s.or(self.workload.cpu_s),
            sessions: self.request.sessions,
            query: self.request.query,
        }
    }

    /// The models of a mix.
    ///
    /// # Errors
    /// None in practice: media without models are no supplies.
    pub fn models(&self, mix: &Mix, cache: &CacheBytes) -> Result<MixModels, PlanError> {
        let server = &self.request.server;
        let modules = mix.near.modules.iter().map(|(count, _)| *count).sum::<u32>();
        // The model is of channels: a second module on one adds no bandwidth.
        let channels = (server.channels * server.sockets).max(1);
        let near = match modules {
            0 => dram_model(&self.request.media, &server.dram, server.dram_times.as_deref(), 0)?.0,
            some => dram_model(&self.request.media, &server.dram, server.dram_times.as_deref(), some.min(channels))?.0,
        };
        let volumes = self.volumes(mix, cache);
        // A journal alone lies on the modules of one socket.
        let at_work = |far: &FarPart| match far.usage {
            FarUse::AppDirect => (far.count / server.sockets).max(1),
            _ => far.count,
        };
        let far = mix.far.as_ref().map(|far| self.supplies[far.supply].model(at_work(far))).transpose()?;
        let journal = match mix.journal {
            JournalPart::Own(supply, count) => Some(self.supplies[supply].model_with(count, volumes.journal_iops)?),
            _ => None,
        };
        let data = self.supplies[mix.data.0].model_with(mix.data.1, volumes.data_iops)?;
        let by_operations = match mix.journal {
            JournalPart::Own(supply, _) => self.supplies[supply].by_operations,
            JournalPart::Data => self.supplies[mix.data.0].by_operations,
            JournalPart::Modules => false,
        };
        let journal_pattern = if by_operations { Pattern::Random } else { Pattern::Sequential };
        Ok(MixModels { near, far, data, journal, journal_pattern })
    }

    /// Bytes that are stored, with growth.
    pub fn data_bytes(&self) -> u64 {
        let used = self.workload.touched_bytes.saturating_add(self.workload.beside_bytes);
        let now = self.request.data_bytes.unwrap_or(0).max(used);
        (now as f64 * self.request.target.growth) as u64
    }

    /// What volumes of a network are rented with: so many times the operations of the worst minute as the mix says, and what is stored.
    pub fn volumes(&self, mix: &Mix, cache: &CacheBytes) -> VolumeNeeds {
        let (workload, rate) = (&self.workload, self.rating().rate());
        let device = self.served.shapes.get(&shape_of(cache)).map_or(0.0, |served| served.minute.device);
        let pages = workload.accesses_per_operation();
        let written = workload.data_write_bytes(mix.journal) / workload.write_back_unit() as f64;
        let of_load = |load: &BesideLoad| {
            let (reads, writes) = load.of_operation(workload.operations_per_s());
            reads + writes
        };
        let beside: f64 = workload.beside.iter().map(of_load).sum();
        let commits = if workload.commits.is_some() { 1.0 } else { 0.0 };
        let of_journal = if mix.journal == JournalPart::Data { commits } else { 0.0 };
        let room = f64::from(mix.room.max(VOLUME_ROOMS[0]));
        let with = |supply: usize, mean: f64| {
            (room * mean).max(room * VOLUME_LEAST).min(self.supplies[supply].operations_most())
        };
        VolumeNeeds {
            data_gb: self.data_bytes() as f64 / 1e9,
            data_iops: with(mix.data.0, rate * (pages * (device + written) + of_journal + beside)),
            journal_iops: match mix.journal {
                JournalPart::Own(supply, _) => with(supply, rate * commits),
                _ => 0.0,
            },
        }
    }

    /// What wears the drives of a mix out: those of the data, and that of a journal of its own.
    pub fn wear(&self, mix: &Mix) -> Vec<(String, EnduranceReport)> {
        let faster = self.rating().rate() / (1.0 + self.request.target.headroom) / self.workload.operations_per_s();
        wear(mix, &self.supplies, &self.workload, faster)
    }

    /// Parts of the target that a mix does not meet, in words. Drives that are worn out before their warranty ends meet none.
    pub fn misses(&self, planned: &PlannedMix) -> Vec<String> {
        let usd = planned.cost.total().map(|usd| usd.expected);
        let mut misses = self.rating().misses(&planned.rated, planned.replayed.as_ref(), usd);
        misses.extend(worn_out(&self.wear(&planned.mix)));
        misses
    }

    /// The name of a mix.
    pub fn name_of(&self, one: &PlannedMix) -> String {
        name(&one.mix, &self.supplies, &self.request.server, &self.volumes(&one.mix, &one.cache))
    }

    /// Processors of a mix.
    pub fn cores(&self, mix: &Mix) -> u32 {
        let server = &self.request.server;
        mix.near.instance.and_then(|number| server.instance.get(number)).map_or(server.cores, |instance| instance.cores)
    }

    /// What the page cache of a mix serves.
    pub fn served_of(&self, cache: &CacheBytes) -> ShapeServed {
        self.served.shapes.get(&shape_of(cache)).cloned().unwrap_or_default()
    }

    /// A mix with its load, cost and tails.
    ///
    /// # Errors
    /// Those of the models.
    pub fn planned(&self, mix: &Mix, cache: CacheBytes, with_tails: bool) -> Result<PlannedMix, PlanError> {
        let (models, rating, cores) = (self.models(mix, &cache)?, self.rating(), self.cores(mix));
        let served = self.served.shapes.get(&shape_of(&cache));
        let served = served.ok_or_else(|| PlanError::Refused("a page cache that was not simulated".into()))?;
        let rated = rating.rate_mix(mix, &models, served, cores)?;
        let (_, cost) =
            parts(mix, &self.supplies, &self.request.server, &self.request.prices, &self.volumes(mix, &cache))?;
        let replayed = if with_tails { rating.replay_mix(mix, &models, served, &rated, cores) } else { None };
        Ok(PlannedMix { mix: mix.clone(), cache, rated, cost, replayed })
    }

    /// Rates all, and keeps those that no other one beats.
    fn rate_all(&mut self, first: usize) -> Result<(), PlanError> {
        if let Some(note) =
            dram_model(&self.request.media, &self.request.server.dram, self.request.server.dram_times.as_deref(), 0)?.1
        {
            self.notes.push(note);
        }
        let mut rated = Vec::new();
        for (mix, cache) in &self.placed {
            rated.push(self.planned(mix, *cache, false)?);
        }
        let points: Vec<Point> =
            rated.iter().map(|planned| Point::of(planned, worn(&self.wear(&planned.mix)))).collect();
        let mut order: Vec<usize> = (0..points.len()).collect();
        order.sort_by(|one, two| points[*one].usd.total_cmp(&points[*two].usd).then(one.cmp(two)));
        let mut kept: Vec<usize> = Vec::new();
        for number in order {
            if !kept.iter().any(|other| points[*other].beats(&points[number])) {
                kept.push(number);
            }
        }
        let beaten = points.len() - kept.len();
        let mut between: Vec<usize> = Vec::new();
        if kept.len() > first {
            let every = kept.len() as f64 / first as f64;
            let places: BTreeSet<usize> = (0..first).map(|step| (step as f64 * every) as usize).collect();
            let (at_first, others): (Vec<_>, Vec<_>) =
                kept.into_iter().enumerate().partition(|(place, _)| places.contains(place));
            let numbers =
                |of: Vec<(usize, usize)>| -> Vec<usize> { of.into_iter().map(|(_, number)| number).collect() };
            (kept, between) = (numbers(at_first), numbers(others));
        }
        let today = rated.iter().position(|planned| planned.mix.is_today);
        kept.extend(today.filter(|today| !kept.contains(today)));
        between.retain(|number| Some(*number) != today);
        kept.sort_unstable();
        if beaten > 0 {
            self.left_out
                .insert("another one costs no more, and is as fast, as little busy and as little worn".into(), beaten);
        }
        let mut rated: Vec<Option<PlannedMix>> = rated.into_iter().map(Some).collect();
        let mut taken = |numbers: Vec<usize>| -> Vec<PlannedMix> {
            numbers.into_iter().filter_map(|number| rated[number].take()).collect()
        };
        (self.kept, self.between) = (taken(kept), taken(between));
        Ok(())
    }

    fn replay_all(&mut self) -> Result<(), PlanError> {
        let mut kept = std::mem::take(&mut self.kept);
        for planned in &mut kept {
            *planned = self.planned(&planned.mix, planned.cache, true)?;
        }
        self.kept = kept;
        Ok(())
    }

    /// Of the others, by cost, those that cost less than the cheapest that meets the target: the cheapest that does is the answer, whether it
    /// was replayed at first or not.
    fn replay_between(&mut self) -> Result<(), PlanError> {
        let usd_of = |planned: &PlannedMix| planned.cost.total().map(|usd| usd.expected);
        let meets = |planning: &Planning, planned: &PlannedMix| {
            planned.replayed.is_some() && planning.misses(planned).is_empty()
        };
        let within: Vec<&PlannedMix> = self.kept.iter().filter(|one| meets(self, one)).collect();
        let mut is_met = !within.is_empty();
        let mut least = within.into_iter().filter_map(usd_of).fold(f64::INFINITY, f64::min);
        let (mut replayed, mut left) = (0, 0);
        for planned in std::mem::take(&mut self.between) {
            // One without a price is no answer, but says that there is one.
            let may_be = usd_of(&planned).map_or(!is_met, |usd| usd < least);
            if !may_be || !self.request.target.is_set() || replayed >= REPLAYED_MORE {
                left += 1;
                continue;
            }
            replayed += 1;
            let planned = self.planned(&planned.mix, planned.cache, true)?;
            if meets(self, &planned) {
                is_met = true;
                least = usd_of(&planned).unwrap_or(least);
            }
            self.kept.push(planned);
        }
        if left > 0 {
            self.left_out.insert(NOT_REPLAYED.into(), left);
        }
        Ok(())
    }
}

/// What decides whether a mix is beaten before it is replayed.
struct Point {
    /// US dollars of all that has a price.
    usd: f64,
    /// US dollars of each medium that has a price.
    priced: BTreeMap<String, f64>,
    /// GB of all that has none, by medium.
    unpriced: Vec<(String, f64)>,
    /// Times, how busy it is, and how worn.
    times: [f64; 4],
}

impl Point {
    fn of(planned: &PlannedMix, worn: f64) -> Point {
        let mut priced: BTreeMap<String, f64> = BTreeMap::new();
        for one in &planned.cost.media {
            if let Some(usd) = one.usd {
                *priced.entry(one.medium.clone()).or_default() += usd.expected;
            }
        }
        let unpriced =
            planned.cost.media.iter().filter(|one| one.usd.is_none()).map(|one| (one.medium.clone(), one.gb));
        let rated = &planned.rated;
        // Half of the time is enough to spare.
        let most = rated.used.iter().copied().fold(0.5, f64::max);
        let mut unpriced: Vec<(String, f64)> = unpriced.collect();
        unpriced.sort_by(|one, two| one.0.cmp(&two.0));
        Point {
            usd: priced.values().sum(),
            priced,
            unpriced,
            times: [rated.mean_read_s, rated.mean_commit_s.unwrap_or(0.0), most, worn.max(0.5)],
        }
    }

    /// Whether it costs no more, also at half and three times the price of each medium: costs are linear, so that the ends are enough.
    fn costs_no_more(&self, other: &Point) -> bool {
        let (low, high) = PRICE_FACTORS;
        let difference = self.usd - other.usd;
        let of = |point: &Point, medium: &str| point.priced.get(medium).copied().unwrap_or(0.0);
        let media = self.priced.keys().chain(other.priced.keys());
        let mut of_medium = media.map(|medium| of(self, medium) - of(other, medium));
        difference <= 0.0
            && of_medium.all(|own| difference + (low - 1.0) * own <= 0.0 && difference + (high - 1.0) * own <= 0.0)
    }

    /// Whether it costs no more, needs no more of what has no price, and is as good in all. Of equals the first one beats.
    fn beats(&self, other: &Point) -> bool {
        let needs_no_more = self.unpriced.len() == other.unpriced.len()
            && self.unpriced.iter().zip(&other.unpriced).all(|(one, two)| one.0 == two.0 && one.1 <= two.1);
        let needs_nothing = self.unpriced.is_empty();
        self.costs_no_more(other)
            && (needs_no_more || needs_nothing)
            && self.times.iter().zip(&other.times).all(|(one, two)| *one <= two * ALIKE)
    }
}
