//! Which mixes are worth a choice.
//!
//! ```text
//!   Pareto set   no other mix costs at most as much, is as fast, has as much to spare, and is better in one of these
//!   best         the cheapest within the target
//!   knee         of the Pareto set by cost and time: farthest below the line between its cheapest and its fastest
//!   flip         the factor on the price of one medium at which another mix becomes the best
//!   break-even   the price of a GB at which a mix with a medium without a price would cost as much as the best
//! ```

use super::cost::MixCost;

/// The factors on a price within which flips are searched.
pub const PRICE_FACTORS: (f64, f64) = (0.5, 3.0);

/// A mix with all that is known about it.
#[derive(Clone, Debug, PartialEq)]
pub struct RatedMix {
    /// Its name, for people.
    pub name: String,
    /// What it costs.
    pub cost: MixCost,
    /// How slow it is: seconds, or a multiple of the target.
    pub time_s: f64,
    /// What its busiest part has left, 0 to 1.
    pub spare: f64,
    /// It meets the target.
    pub meets: bool,
}

impl RatedMix {
    fn usd(&self) -> Option<f64> {
        self.cost.total().map(|usd| usd.expected)
    }
}

/// A price at which another mix becomes the best.
#[derive(Clone, Debug, PartialEq)]
pub struct Flip {
    /// The medium.
    pub medium: String,
    /// Its price, as a multiple of the expected one.
    pub factor: f64,
    /// The number of the mix that is the best from there on.
    pub to: usize,
}

/// A price at which a medium without a price would be worth it.
#[derive(Clone, Debug, PartialEq)]
pub struct BreakEven {
    /// The number of the mix.
    pub mix: usize,
    /// The medium without a price.
    pub medium: String,
    /// US dollars for a GB, at or below which the mix costs no more than the best one.
    pub usd_per_gb: f64,
}

/// The result; numbers are those of the mixes that were given.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Choice {
    /// The Pareto set, by cost.
    pub frontier: Vec<usize>,
    /// Its knee, if it has three or more mixes.
    pub knee: Option<usize>,
    /// The cheapest mix within the target; `None`: none with a price is.
    pub best: Option<usize>,
    /// Prices that change the best one: for each medium the next factor below and above 1, if there is one.
    pub flips: Vec<Flip>,
    /// Media without a price.
    pub break_even: Vec<BreakEven>,
}

/// Compares mixes.
pub fn choose(mixes: &[RatedMix]) -> Choice {
    let frontier = frontier(mixes);
    let within: Vec<usize> = (0..mixes.len()).filter(|mix| mixes[*mix].meets).collect();
    let priced = within.iter().filter_map(|mix| Some((*mix, mixes[*mix].usd()?)));
    let best = priced.min_by(|(_, one), (_, two)| one.total_cmp(two));
    let knee = knee(mixes, &frontier);
    let Some((best, usd)) = best else { return Choice { frontier, knee, ..Choice::default() } };
    let break_even = within.iter().filter_map(|mix| {
        let (medium, others) = mixes[*mix].cost.unpriced()?;
        let usd_per_gb = (usd - others) / medium.gb;
        let is_price = usd_per_gb.is_finite() && usd_per_gb > 0.0;
        is_price.then(|| BreakEven { mix: *mix, medium: medium.medium.clone(), usd_per_gb })
    });
    Choice { knee, best: Some(best), flips: flips(mixes, &within, best), break_even: break_even.collect(), frontier }
}

/// The mixes with a price that no other one beats, by cost, then by time.
fn frontier(mixes: &[RatedMix]) -> Vec<usize> {
    let mut priced: Vec<(usize, f64)> =
        mixes.iter().enumerate().filter_map(|(number, mix)| Some((number, mix.usd()?))).collect();
    priced.sort_by(|(one, usd), (two, other)| {
        usd.total_cmp(other).then(mixes[*one].time_s.total_cmp(&mixes[*two].time_s))
    });
    let beats = |(one, usd): (usize, f64), (two, other): (usize, f64)| {
        let (one, two) = (&mixes[one], &mixes[two]);
        let is_as_good = usd <= other && one.time_s <= two.time_s && one.spare >= two.spare;
        is_as_good && (usd < other || one.time_s < two.time_s || one.spare > two.spare)
    };
    let left = priced.iter().filter(|mix| !priced.iter().any(|other| beats(*other, **mix)));
    left.map(|(number, _)| *number).collect()
}

fn knee(mixes: &[RatedMix], frontier: &[usize]) -> Option<usize> {
    let points: Vec<(usize, f64, f64)> =
        frontier.iter().filter_map(|mix| Some((*mix, mixes[*mix].usd()?, mixes[*mix].time_s))).collect();
    let cheapest = points.first()?;
    let fastest = points.iter().min_by(|one, two| one.2.total_cmp(&two.2))?;
    let (usd, time_s) = (fastest.1 - cheapest.1, cheapest.2 - fastest.2);
    if points.len() < 3 || usd <= 0.0 || time_s <= 0.0 {
        return None;
    }
    // In units of both, the line goes from (0, 1) to (1, 0).
    let below = |point: &(usize, f64, f64)| 1.0 - (point.1 - cheapest.1) / usd - (point.2 - fastest.2) / time_s;
    let deepest = points.iter().max_by(|one, two| below(one).total_cmp(&below(two)))?;
    (below(deepest) > 0.0).then_some(deepest.0)
}

/// The cost of a mix is a line over the factor on one price; the best one changes where a line crosses its own.
fn flips(mixes: &[RatedMix], within: &[usize], best: usize) -> Vec<Flip> {
    let mut media: Vec<&str> = mixes.iter().flat_map(|mix| &mix.cost.media).map(|one| one.medium.as_str()).collect();
    media.sort_unstable();
    media.dedup();
    let mut flips = Vec::new();
    for medium in media {
        let Some((own, own_others)) = mixes[best].cost.split(medium) else { continue };
        let crossings = within.iter().filter(|mix| **mix != best).filter_map(|mix| {
            let (part, others) = mixes[*mix].cost.split(medium)?;
            let factor = (others - own_others) / (own - part);
            let is_searched = factor.is_finite() && (PRICE_FACTORS.0..=PRICE_FACTORS.1).contains(&factor);
            is_searched.then_some((factor, part, *mix))
        });
        let crossings: Vec<(f64, f64, usize)> = crossings.collect();
        // Above 1 a mix with less of the medium wins, below 1 one with more.
        let above = crossings.iter().filter(|(factor, part, _)| *factor >= 1.0 && *part < own);
        let below = crossings.iter().filter(|(factor, part, _)| *factor <= 1.0 && *part > own);
        let next = [below.max_by(|one, two| one.0.total_cmp(&two.0)), above.min_by(|one, two| one.0.total_cmp(&two.0))];
        let next = next.into_iter().flatten();
        flips.extend(next.map(|(factor, _, to)| Flip { medium: medium.to_owned(), factor: *factor, to: *to }));
    }
    flips
}

#[cfg(test)]
mod tests {
    use super::super::cost::{MediumCost, UsdRange};
    use super::*;

    /// A mix by what it has of media: name, GB, and US dollars if they are known.
    fn mix(name: &str, media: &[(&str, f64, Option<f64>)], time_s: f64, spare: f64) -> RatedMix {
        let media = media.iter().map(|(medium, gb, usd)| MediumCost {
            medium: (*medium).to_owned(),
            gb: *gb,
            usd: usd.map(|usd| UsdRange { low: usd, expected: usd, high: usd }),
        });
        RatedMix { name: name.into(), cost: MixCost { media: media.collect() }, time_s, spare, meets: true }
    }

    fn memory(name: &str, usd: f64, time_s: f64, spare: f64) -> RatedMix {
        mix(name, &[("ddr5", usd / 10.0, Some(usd))], time_s, spare)
    }

    /// With a target in seconds.
    fn choose(mixes: &[RatedMix], target_s: f64) -> Choice {
        let rated = mixes.iter().map(|mix| RatedMix { meets: mix.time_s <= target_s, ..mix.clone() });
        super::choose(&rated.collect::<Vec<_>>())
    }

    #[test]
    fn the_pareto_set_has_what_nothing_beats_and_its_knee() {
        let mixes = [
            memory("large", 400.0, 3.0, 0.5),
            memory("small", 100.0, 10.0, 0.5),
            memory("beaten in time", 250.0, 5.0, 0.5),
            memory("middle", 200.0, 4.0, 0.5),
            memory("slow, with much to spare", 300.0, 12.0, 0.9),
            mix("no price", &[("cxl-cz120", 1.0, None)], 1.0, 0.9),
        ];
        let choice = choose(&mixes, 20.0);
        assert_eq!(choice.frontier, [1, 3, 4, 0]);
        // By cost and time (0, 1), (1/3, 1/7), (2/3, 9/7), (1, 0): the second is 11/21 below the line, the third above it.
        assert_eq!((choice.knee, choice.best), (Some(3), Some(1)));
        assert_eq!(choose(&mixes, 4.0).best, Some(3));
        assert_eq!(choose(&mixes, 2.0).best, None, "only one without a price is so fast");
        let twins = [memory("one", 100.0, 1.0, 0.5), memory("two", 100.0, 1.0, 0.5)];
        let twins = choose(&twins, 1.0);
        assert_eq!((twins.frontier, twins.knee, twins.best), (vec![0, 1], None, Some(0)), "neither beats the other");
        assert_eq!(choose(&[], 1.0), Choice::default());
    }

    /// DDR5 alone: 800. DDR5 and CXL: 400 + 500. DDR5 at the factor f: 800 f = 400 f + 500 at f = 1.25. CXL at the factor f: 800 = 400 + 500 f
    /// at f = 0.8. A drive in place of it: 300 + 1100; 800 f = 300 f + 1100 at f = 2.2, behind the first flip.
    #[test]
    fn flips_are_where_lines_of_cost_cross() {
        let mixes = [
            memory("ddr5", 800.0, 1.0, 0.5),
            mix("ddr5 + cxl", &[("ddr5", 40.0, Some(400.0)), ("cxl-cz120", 100.0, Some(500.0))], 1.0, 0.5),
            mix("ddr5 + drive", &[("ddr5", 30.0, Some(300.0)), ("nvme-pm9a3", 960.0, Some(1100.0))], 1.0, 0.5),
            mix("too slow", &[("ddr5", 1.0, Some(10.0))], 9.0, 0.5),
        ];
        let choice = choose(&mixes, 2.0);
        assert_eq!(choice.best, Some(0));
        let flip = |medium: &str, factor: f64, to: usize| Flip { medium: medium.into(), factor, to };
        assert_eq!(choice.flips, [flip("cxl-cz120", 0.8, 1), flip("ddr5", 1.25, 1)]);
    }

    /// 64 GB of the best one cost 640; the other one has 32 GB for 320 and 128 GB without a price: 320 / 128 = 2.50 a GB.
    #[test]
    fn a_medium_without_a_price_has_one_at_which_it_would_be_worth_it() {
        let mixes = [
            memory("ddr5", 640.0, 1.0, 0.5),
            mix("ddr5 + cxl", &[("ddr5", 32.0, Some(320.0)), ("cxl-cz120", 128.0, None)], 1.0, 0.5),
            mix("more ddr5 + cxl", &[("ddr5", 80.0, Some(800.0)), ("cxl-cz120", 128.0, None)], 0.5, 0.5),
            mix("two without", &[("cxl-cz120", 128.0, None), ("nvme-pm9a3", 960.0, None)], 0.5, 0.5),
        ];
        let choice = choose(&mixes, 2.0);
        let wanted = BreakEven { mix: 1, medium: "cxl-cz120".into(), usd_per_gb: 2.5 };
        assert_eq!((choice.best, choice.break_even), (Some(0), vec![wanted]));
    }
}
