//! From what was planned to the report: the choice, the answer, what does not help, when the answer changes, how sure it is.

use std::collections::BTreeMap;

use catalogue::price::Price;

use super::choose::{Choice, RatedMix, choose};
use super::mixes::{JournalPart, Mix, rooms_tried};
use super::parts::{VolumeNeeds, parts, wasted};
use super::planning::{NOT_REPLAYED, PlannedMix, Planning};
use super::rate::Rated;
use super::replay::Replayed;
use super::report::{
    Answer, BreakEvenReport, ConsideredReport, CurveReport, FlipReport, MixReport, PlanReport, PriceReport,
    ServedReport, StationReport,
};
use super::settings::{CacheBytes, SettingsFor, mode_of, text};
use super::supply::Plug;
use super::sure::sure;
use super::target::print_seconds;
use crate::PlanError;

/// Mixes in a report at most.
const MIXES_SHOWN: usize = 14;
/// What makes less than this part of a difference does not help.
const NO_HELP: f64 = 0.05;
/// Points of a curve.
const CURVE_POINTS: usize = 80;

impl Planning {
    /// The report of a plan that was made with these prices.
    ///
    /// # Errors
    /// Those of the models.
    pub fn report(&self, prices: &[Price]) -> Result<PlanReport, PlanError> {
        let rating = self.rating();
        let slowness: Vec<f64> =
            self.kept.iter().map(|one| rating.slowness(&one.rated, one.replayed.as_ref())).collect();
        let rated: Vec<RatedMix> =
            self.kept.iter().zip(&slowness).map(|(one, time_s)| self.rated_mix(one, *time_s)).collect();
        let choice = choose(&rated);
        let shown = self.shown(&choice, &rated);
        let mut mixes = Vec::new();
        for number in &shown {
            let mut mix = self.mix_report(&self.kept[*number])?;
            mix.on_frontier = choice.frontier.contains(number);
            mixes.push(mix);
        }
        let place = |number: Option<usize>| number.and_then(|number| shown.iter().position(|one| *one == number));
        let has_target = self.request.target.is_set() || self.request.target.budget_usd.is_some();
        let chosen = if has_target { choice.best } else { choice.knee.or(choice.best) };
        let (answer, says) = self.answer(chosen, &rated);
        let request = &self.request;
        let flips = if has_target { self.flips(&choice, &rated, &shown) } else { Vec::new() };
        let break_even = choice.break_even.iter().map(|one| BreakEvenReport {
            medium: one.medium.clone(),
            usd_per_gb: one.usd_per_gb,
            mix: rated[one.mix].name.clone(),
        });
        let today = self.kept.iter().find(|one| one.mix.is_today);
        let has = match today {
            Some(one) => parts(&one.mix, &self.supplies, &request.server, &request.prices, &VolumeNeeds::default())?.0,
            None => Vec::new(),
        };
        let mut left_out: Vec<(String, usize)> = self.left_out.clone().into_iter().collect();
        left_out.sort_by(|one, two| two.1.cmp(&one.1).then(one.0.cmp(&two.0)));
        Ok(PlanReport {
            version: env!("CARGO_PKG_VERSION").into(),
            workloads: self.workload.reports.clone(),
            target: request.target.report(),
            server: request.server.report(has),
            curves: self.curves(),
            chosen: place(chosen),
            knee: place(choice.knee),
            answer,
            says,
            no_help: chosen
                .or(choice.frontier.last().copied())
                .map_or(Ok(Vec::new()), |number| self.no_help(number))?,
            flips,
            break_even: best_of(break_even.collect()),
            sure: sure(self, chosen.map(|number| &self.kept[number])),
            refused: self.refused.clone(),
            considered: ConsideredReport { mixes: self.enumerated, predicted: self.kept.len(), left_out },
            prices: prices.iter().map(price_report).collect(),
            mixes,
        })
    }

    fn rated_mix(&self, one: &PlannedMix, time_s: f64) -> RatedMix {
        let misses = self.misses(one);
        RatedMix {
            name: self.name_of(one),
            cost: one.cost.clone(),
            time_s,
            spare: one.rated.spare(),
            meets: misses.is_empty() && one.replayed.is_some(),
        }
    }

    /// Which are in the report: today's, then by cost.
    fn shown(&self, choice: &Choice, rated: &[RatedMix]) -> Vec<usize> {
        let today = self.kept.iter().position(|one| one.mix.is_today);
        let usd = |number: &usize| rated[*number].cost.total().map_or(f64::INFINITY, |usd| usd.expected);
        let mut rest: Vec<usize> = choice.frontier.clone();
        rest.extend(choice.best);
        rest.extend(choice.flips.iter().map(|flip| flip.to));
        rest.extend(choice.break_even.iter().map(|one| one.mix));
        if choice.best.is_none() {
            // No prices: the least memory that meets the target first, then others.
            let mut all: Vec<usize> = (0..rated.len()).collect();
            let gb = |number: &usize| rated[*number].cost.media.iter().map(|one| one.gb).sum::<f64>();
            all.sort_by(|one, two| rated[*two].meets.cmp(&rated[*one].meets).then(gb(one).total_cmp(&gb(two))));
            rest.extend(all.into_iter().take(MIXES_SHOWN / 2));
        }
        rest.sort_by(|one, two| usd(one).total_cmp(&usd(two)).then(one.cmp(two)));
        rest.dedup();
        rest.retain(|number| Some(*number) != today);
        let is_needed = |number: &usize| Some(*number) == choice.best || Some(*number) == choice.knee;
        while rest.len() > MIXES_SHOWN {
            // The one whose neighbours are nearest in cost goes.
            let gap = |at: usize| usd(&rest[at + 1]) - usd(&rest[at - 1]);
            let inner = (1..rest.len() - 1).filter(|at| !is_needed(&rest[*at]));
            let Some(at) = inner.min_by(|one, two| gap(*one).total_cmp(&gap(*two))) else { break };
            rest.remove(at);
        }
        today.into_iter().chain(rest).collect()
    }

    fn mix_report(&self, one: &PlannedMix) -> Result<MixReport, PlanError> {
        let PlannedMix { mix, cache, rated, replayed, cost } = one;
        let (request, rating) = (&self.request, self.rating());
        let (listed, _) = parts(mix, &self.supplies, &request.server, &request.prices, &self.volumes(mix, cache))?;
        let served = self.served_of(cache).minute;
        let models = self.models(mix, cache)?;
        let usd = cost.total();
        let mut misses = self.misses(one);
        if request.target.budget_usd.is_some() && usd.is_none() {
            misses.push("not everything in it has a price: whether it is within the budget is not known".into());
        }
        let station = |(station, used): (&super::load::LoadStation, &f64)| StationReport {
            name: station.name.clone(),
            busy_s: station.busy_s,
            delay_s: station.delay_s,
            used: *used,
        };
        let growth = request.target.growth;
        let sizes = (if cache.is_direct { 0 } else { cache.near }, cache.far.unwrap_or(0), self.data_bytes());
        let mut wear = self.wear(mix).into_iter().map(|(_, wear)| wear);
        let mut not_used = wasted(mix, &models, rated, &self.workload, sizes, growth);
        for waste in not_used.iter_mut().filter(|waste| waste.medium == models.near.name()) {
            // Times may be borrowed, modules are not.
            waste.medium.clone_from(&request.server.dram);
        }
        Ok(MixReport {
            name: self.name_of(one),
            parts: listed,
            is_today: mix.is_today,
            on_frontier: false,
            meets_target: misses.is_empty() && replayed.is_some(),
            misses,
            usd,
            near_bytes: cache.near,
            far_bytes: cache.far,
            mode: mode_of(mix).into(),
            served: ServedReport { near: served.near, far: served.far, device: served.device },
            p50_commit_s: replayed.and_then(|replayed| replayed.p50_commit_s),
            p99_commit_s: replayed.and_then(|replayed| replayed.p99_commit_s),
            mean_read_s: replayed.map(|replayed| replayed.mean_read_s),
            p99_read_s: replayed.map(|replayed| replayed.p99_read_s),
            p95_query_s: replayed.and_then(|replayed| rating.query_s(&replayed)),
            rate_max: rating.cpu_s.map(|_| rated.rate_max),
            binds: rated.binding().to_owned(),
            spare: rated.spare(),
            stations: rated.stations.iter().zip(&rated.used).map(station).collect(),
            wasted: not_used,
            endurance: wear.next(),
            journal_endurance: wear.next(),
            settings: text(mix, &self.supplies, &request.server, SettingsFor::Real)?,
            commands: self.commands(mix),
        })
    }

    /// terrace.toml of a mix, for the machine on which it is built.
    ///
    /// # Errors
    /// None for a mix that was placed.
    pub fn settings(&self, mix: &Mix) -> Result<String, PlanError> {
        text(mix, &self.supplies, &self.request.server, SettingsFor::Real)
    }

    /// What to run: provisioning, then the node.
    fn commands(&self, mix: &Mix) -> Vec<String> {
        let mut commands = mix.far.as_ref().map_or(Vec::new(), |far| far.steps.clone());
        let (data, count) = mix.data;
        let medium = &self.supplies[data].medium.name;
        let of = if count > 1 { format!("{count} x {medium}, striped") } else { medium.clone() };
        commands.push(format!("# a file system on {of} at /mnt/data, then:"));
        commands.push("mkdir -p /mnt/data/terrace".into());
        if mix.journal == JournalPart::Modules {
            commands.push("mkdir -p /mnt/pmem0/terrace".into());
        }
        if let JournalPart::Own(supply, _) = mix.journal {
            let medium = &self.supplies[supply].medium.name;
            let dax = if self.supplies[supply].plug == Plug::Dimm { ", mounted with dax=always" } else { "" };
            commands.push(format!("# a file system on {medium} at /mnt/journal{dax}, then:"));
            commands.push("mkdir -p /mnt/journal/terrace".into());
        }
        commands.push("terrace serve --config terrace.toml".into());
        commands
    }

    fn answer(&self, chosen: Option<usize>, rated: &[RatedMix]) -> (Answer, String) {
        let target = &self.request.target;
        let planned = chosen.map(|number| (&self.kept[number], &rated[number]));
        if let (Some((one, rated)), true) = (planned, target.is_set()) {
            return match one.mix.is_today {
                true => (Answer::Keep, format!("keep what you have: {} meets the target", rated.name)),
                false => (Answer::Buy, format!("the cheapest mix that meets the target: {}", rated.name)),
            };
        }
        if !target.is_set() {
            let says = match planned {
                Some((_, rated)) if self.request.target.budget_usd.is_some() => {
                    format!("nothing but a budget was given; the cheapest mix is {}", rated.name)
                }
                Some((_, rated)) => format!("no target was given; the knee of the curve is {}", rated.name),
                None if self.refused.is_empty() => {
                    "no target was given, and there are not enough prices to choose by".into()
                }
                None => "nothing of the target could be planned".into(),
            };
            return (Answer::NoTarget, says);
        }
        if let Some(without) = self.kept.iter().zip(rated).find(|(_, rated)| rated.meets) {
            return (
                Answer::NotPriced,
                format!(
                    "there are mixes that meet the target, as {}, but not enough prices to choose by",
                    without.1.name
                ),
            );
        }
        match self.processors_bind() {
            Some(says) => (Answer::NoMediumHelps, says),
            None => (Answer::NothingMeetsIt, self.nearest(rated)),
        }
    }

    /// Whether processors bind, whatever the media: then in words.
    fn processors_bind(&self) -> Option<String> {
        let cpu_s = self.rating().cpu_s?;
        let used = |one: &PlannedMix| {
            let processors =
                one.rated.stations.iter().zip(&one.rated.used).find(|(station, _)| station.name == "processors");
            processors.map(|(_, used)| *used)
        };
        let least = self.kept.iter().filter_map(used).fold(f64::INFINITY, f64::min);
        let rate = self.rating().rate();
        if least >= 1.0 {
            return Some(format!(
                "no medium helps: the processors are needed {:.0} % at {rate:.0} {} each second (with growth and headroom), of {} each",
                least * 100.0,
                self.workload.operations(),
                print_seconds(cpu_s)
            ));
        }
        // The processor's own time alone is longer than what was asked of a commit: ln(100) times the mean is its 99th percentile.
        let wanted = self.request.target.p99_commit_s?;
        let alone = cpu_s * 100.0_f64.ln();
        (alone > wanted).then(|| {
            format!(
                "no medium helps: 1 of 100 commits needs {} of a processor, more than the {} that were asked for",
                print_seconds(alone),
                print_seconds(wanted)
            )
        })
    }

    /// Why nothing meets the target, by the mix that is nearest.
    fn nearest(&self, rated: &[RatedMix]) -> String {
        let slow = |number: usize| rated[number].time_s;
        // Of those that cannot do the rate, the one that lacks least of it.
        let busiest = |number: usize| self.kept[number].rated.used.iter().copied().fold(0.0, f64::max);
        let order =
            |one: usize, two: usize| slow(one).total_cmp(&slow(two)).then(busiest(one).total_cmp(&busiest(two)));
        let best = (0..rated.len()).min_by(|one, two| order(*one, *two).then(one.cmp(two)));
        let Some(best) = best else { return "no mix meets the target".into() };
        let one = &self.kept[best];
        let misses = self.misses(one);
        let rented = if one.mix.room > 0 { format!(" ({})", rooms_tried()) } else { String::new() };
        let of = match self.left_out.get(NOT_REPLAYED) {
            Some(left) => format!("no mix of this server that was replayed meets the target, and {left} were not"),
            None => "no mix of this server meets the target".into(),
        };
        format!("{of}; the nearest is {}: {}{rented}", rated[best].name, misses.join("; "))
    }

    fn flips(&self, choice: &Choice, rated: &[RatedMix], shown: &[usize]) -> Vec<FlipReport> {
        let months = self.request.prices.months();
        let flip = |flip: &super::choose::Flip| {
            let (usd, unit) = self.price_of(&flip.medium)?;
            Some(FlipReport {
                medium: flip.medium.clone(),
                factor: flip.factor,
                usd_per_gb: self.request.prices.usd_per_gb(&flip.medium).map(|usd| usd * flip.factor),
                usd: usd * flip.factor / if unit == "USD/GB" { 1.0 } else { months },
                unit: unit.into(),
                to: shown.iter().position(|number| *number == flip.to),
                to_name: rated[flip.to].name.clone(),
            })
        };
        choice.flips.iter().filter_map(flip).collect()
    }

    /// A price that is given, for the whole time, and its unit: of a GB, bought or rented, or of a machine of a cloud.
    fn price_of(&self, medium: &str) -> Option<(f64, &'static str)> {
        let (prices, server) = (&self.request.prices, &self.request.server);
        match prices.usd_per_gb(medium) {
            Some(usd) if prices.is_rented(medium) => Some((usd, "USD/GB-month")),
            Some(usd) => Some((usd, "USD/GB")),
            None => {
                let instance = server.instance.iter().find(|instance| instance.name == medium)?;
                Some((instance.usd_per_month? * prices.months(), "USD/month"))
            }
        }
    }

    /// What one could think of beside the chosen mix, and in no size changes it by a twentieth.
    fn no_help(&self, number: usize) -> Result<Vec<String>, PlanError> {
        let chosen = &self.kept[number];
        let Some(own) = chosen.replayed else { return Ok(Vec::new()) };
        let own = Helped::of(&chosen.rated, &own);
        let mut tried: BTreeMap<String, Vec<(&Mix, CacheBytes)>> = BTreeMap::new();
        for (other, cache) in &self.placed {
            if let Some(what) = self.kind_beside(&chosen.mix, other) {
                tried.entry(what).or_default().push((other, *cache));
            }
        }
        let mut says = Vec::new();
        for (what, others) in tried {
            let mut best: Option<Helped> = None;
            // The largest one first: it helps, if any does.
            for (other, cache) in others.iter().rev() {
                let planned = self.planned(other, *cache, true)?;
                let Some(replayed) = planned.replayed else { continue };
                let got = Helped::of(&planned.rated, &replayed);
                best = Some(best.map_or(got, |best| best.or(&got)));
                if best.is_some_and(|best| best.helps(&own)) {
                    break;
                }
            }
            says.extend(best.filter(|best| !best.helps(&own)).map(|best| self.no_help_of(&what, &own, &best)));
        }
        Ok(says)
    }

    /// What a mix has more than another one, if it is only that.
    fn kind_beside(&self, mix: &Mix, other: &Mix) -> Option<String> {
        let medium = |supply: usize| &self.supplies[supply].medium.name;
        let same_near = other.near == mix.near;
        let (same_far, same_data) = (other.far == mix.far, other.data == mix.data);
        let same_journal = other.journal == mix.journal;
        if same_near && same_far && same_data && same_journal {
            return (other.room > mix.room).then(|| "more rented operations".to_owned());
        }
        if other.room != mix.room && other.room > 0 && mix.room > 0 {
            return None;
        }
        match (same_near, same_far, same_data, same_journal) {
            (true, false, true, true) => match &other.far {
                Some(far) if mix.far.is_none() => Some(format!("{} as far memory", medium(far.supply))),
                _ => None,
            },
            (true, _, true, false) => match (&other.journal, same_far) {
                (JournalPart::Own(supply, _), true) => Some(format!("a journal of its own on {}", medium(*supply))),
                (JournalPart::Modules, false) if mix.far.is_none() => Some("the journal on persistent memory".into()),
                _ => None,
            },
            (true, true, false, true) if other.data.0 == mix.data.0 && other.data.1 > mix.data.1 => {
                Some("more data drives".into())
            }
            (false, true, true, true) if other.near.bytes > mix.near.bytes => Some("more DRAM".into()),
            _ => None,
        }
    }

    /// A sentence about what makes no difference.
    fn no_help_of(&self, what: &str, own: &Helped, got: &Helped) -> String {
        let is_memory = what == "more DRAM" || what.ends_with("as far memory");
        let first = self.workload.minute_first_uses;
        let beside = match is_memory && first > NO_HELP {
            true => format!("; {:.0} % of the accesses are first uses, which no memory finds", first * 100.0),
            false => String::new(),
        };
        match own.p99_commit_s.zip(got.p99_commit_s).filter(|_| what.contains("journal")) {
            Some((before, after)) => {
                format!("{what}: p99 of commits {} instead of {}", print_seconds(after), print_seconds(before))
            }
            None => format!(
                "{what}: mean of an access {} instead of {}{beside}",
                print_seconds(got.mean_read_s),
                print_seconds(own.mean_read_s)
            ),
        }
    }

    /// Miss ratios by size: LRU of all and by structure, and what was simulated.
    fn curves(&self) -> Vec<CurveReport> {
        let mut curves = Vec::new();
        for (summary, report) in self.workload.summaries.iter().zip(&self.workload.reports) {
            let totals = summary.totals();
            let low = summary.page_bytes.max(1) as f64;
            let beside = summary.beside.iter().map(|beside| beside.touched_bytes);
            let high = (beside.fold(summary.touched_bytes, u64::max) as f64 * 1.05).max(low * 2.0);
            let size = |step: usize| (low * (high / low).powf(step as f64 / (CURVE_POINTS - 1) as f64)).round() as u64;
            let scaled = |bytes: u64| (bytes as f64 * self.workload.scale) as u64;
            let mut add = |structure: &str, curve: &crate::reuse::MissRatioCurve| {
                curves.push(CurveReport {
                    workload: report.name.clone(),
                    structure: structure.into(),
                    policy: "lru".into(),
                    far_bytes: None,
                    points: (0..CURVE_POINTS).map(size).map(|bytes| (scaled(bytes), curve.miss_ratio(bytes))).collect(),
                });
            };
            add("all", &summary.cached_in(&totals).reuse.curve());
            if summary.structures.len() > 1 {
                let used =
                    summary.structures.iter().zip(&totals.structures).filter(|(_, used)| used.reuse.accesses > 0);
                used.for_each(|(name, used)| add(name, &used.reuse.curve()));
            }
        }
        let mut simulated: BTreeMap<(&str, u64), Vec<(u64, f64)>> = BTreeMap::new();
        for ((near, far, is_direct), served) in &self.served.shapes {
            let policy = match (far, is_direct) {
                (0, _) => "clock",
                (_, false) => "clock_far",
                (_, true) => "direct",
            };
            simulated.entry((policy, *far)).or_default().push((*near, served.all.device));
        }
        curves.extend(simulated.into_iter().map(|((policy, far), points)| CurveReport {
            workload: "all".into(),
            structure: "all".into(),
            policy: policy.into(),
            far_bytes: (far > 0).then_some(far),
            points,
        }));
        curves
    }
}

/// What another mix can make better.
#[derive(Clone, Copy, Debug)]
struct Helped {
    mean_read_s: f64,
    p99_read_s: f64,
    p99_commit_s: Option<f64>,
    /// Of the busiest part; half of the time is enough to spare.
    used: f64,
}

impl Helped {
    fn of(rated: &Rated, replayed: &Replayed) -> Helped {
        let Replayed { mean_read_s, p99_read_s, p99_commit_s, .. } = *replayed;
        Helped { mean_read_s, p99_read_s, p99_commit_s, used: rated.used.iter().copied().fold(0.5, f64::max) }
    }

    /// The better one in each.
    fn or(&self, other: &Helped) -> Helped {
        Helped {
            mean_read_s: self.mean_read_s.min(other.mean_read_s),
            p99_read_s: self.p99_read_s.min(other.p99_read_s),
            p99_commit_s: self.p99_commit_s.zip(other.p99_commit_s).map(|(one, two)| one.min(two)),
            used: self.used.min(other.used),
        }
    }

    /// Whether one of them is better by a twentieth than before.
    fn helps(&self, before: &Helped) -> bool {
        let helps = |before: f64, after: f64| before - after > before * NO_HELP;
        helps(before.mean_read_s, self.mean_read_s)
            || helps(before.p99_read_s, self.p99_read_s)
            || helps(before.used, self.used)
            || before.p99_commit_s.zip(self.p99_commit_s).is_some_and(|(before, after)| helps(before, after))
    }
}

/// Of each medium the mix at which it may cost most.
fn best_of(all: Vec<BreakEvenReport>) -> Vec<BreakEvenReport> {
    let mut best: BTreeMap<String, BreakEvenReport> = BTreeMap::new();
    for one in all {
        match best.get(&one.medium) {
            Some(known) if known.usd_per_gb >= one.usd_per_gb => {}
            _ => {
                best.insert(one.medium.clone(), one);
            }
        }
    }
    best.into_values().collect()
}

fn price_report(price: &Price) -> PriceReport {
    let usd = super::cost::UsdRange {
        low: price.low.unwrap_or(price.value),
        expected: price.value,
        high: price.high.unwrap_or(price.value),
    };
    PriceReport {
        medium: price.medium.clone(),
        usd,
        unit: price.unit.text().into(),
        dated: price.dated.clone(),
        source: price.source.clone(),
    }
}
