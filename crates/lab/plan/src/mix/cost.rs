//! What a mix costs, by dated prices ([`catalogue::price`]).
//!
//! A medium is bought by its GB, or rented by its GB and operations per second for some months. Prices older than 90 days are named;
//! older than 365 they are refused, unless it is said that they may be: prices of memory have moved by a factor of 2.5 within a
//! quarter. What is owned already costs nothing: leave it out of the shares.

use std::collections::BTreeMap;

use catalogue::price::{Price, PriceDate, PriceUnit};
use serde::{Deserialize, Serialize};

use crate::PlanError;
use crate::price_age::{OLD_DAYS, STALE_DAYS};

/// Months for which media are rented, at most.
const MONTHS_MOST: f64 = 1200.0;

/// An amount of US dollars that is not known exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UsdRange {
    /// The lowest.
    pub low: f64,
    /// The expected one.
    pub expected: f64,
    /// The highest.
    pub high: f64,
}

impl UsdRange {
    /// An amount that is known.
    pub fn exactly(usd: f64) -> UsdRange {
        UsdRange { low: usd, expected: usd, high: usd }
    }

    fn times(self, factor: f64) -> UsdRange {
        UsdRange { low: self.low * factor, expected: self.expected * factor, high: self.high * factor }
    }

    fn plus(self, other: UsdRange) -> UsdRange {
        UsdRange { low: self.low + other.low, expected: self.expected + other.expected, high: self.high + other.high }
    }
}

/// What a mix needs of one medium beyond what is owned.
#[derive(Clone, Debug, PartialEq)]
pub struct MediumShare {
    /// The medium's name in the catalogue.
    pub medium: String,
    /// GB of the label.
    pub gb: f64,
    /// Operations per second that are paid for; 0 for what is bought.
    pub iops: f64,
}

/// What the share of one medium costs.
#[derive(Clone, Debug, PartialEq)]
pub struct MediumCost {
    /// The medium's name in the catalogue.
    pub medium: String,
    /// GB of the label.
    pub gb: f64,
    /// What it costs; `None`: there is no price.
    pub usd: Option<UsdRange>,
}

/// What a mix costs, medium by medium.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MixCost {
    /// Each medium once.
    pub media: Vec<MediumCost>,
}

impl MixCost {
    /// The sum; `None` if a medium has no price.
    pub fn total(&self) -> Option<UsdRange> {
        self.media.iter().try_fold(UsdRange::default(), |sum, one| one.usd.map(|usd| sum.plus(usd)))
    }

    /// The expected cost of this medium, and of all others; `None` if one of them has no price.
    pub(super) fn split(&self, medium: &str) -> Option<(f64, f64)> {
        let (mut of_it, mut of_others) = (0.0, 0.0);
        for one in &self.media {
            let sum = if one.medium == medium { &mut of_it } else { &mut of_others };
            *sum += one.usd?.expected;
        }
        Some((of_it, of_others))
    }

    /// The only medium without a price, its GB, and the expected cost of all others.
    pub(super) fn unpriced(&self) -> Option<(&MediumCost, f64)> {
        let mut without = self.media.iter().filter(|one| one.usd.is_none());
        let (Some(only), None) = (without.next(), without.next()) else { return None };
        Some((only, self.media.iter().filter_map(|one| one.usd).map(|usd| usd.expected).sum()))
    }
}

/// Prices of one medium, each per unit and for the whole time.
#[derive(Clone, Copy, Debug, Default)]
struct MediumPrices {
    gb: Option<UsdRange>,
    iops: Option<UsdRange>,
    is_rented: bool,
}

/// Prices that a plan may use.
#[derive(Clone, Debug, Default)]
pub struct PriceList {
    media: BTreeMap<String, MediumPrices>,
    old: Vec<String>,
    months: f64,
}

impl PriceList {
    /// Takes prices as of `today`, for media that are rented for so many `months`.
    ///
    /// # Errors
    /// A price of the future; one that is older than 365 days, unless `takes_stale`; two prices for the same thing; a number of months
    /// that is none.
    pub fn new(prices: &[Price], months: f64, today: PriceDate, takes_stale: bool) -> Result<PriceList, PlanError> {
        let refuse = |what: String| Err(PlanError::Refused(what));
        if !(months > 0.0 && months <= MONTHS_MOST) {
            return refuse(format!("media are not rented for {months} months, but for up to {MONTHS_MOST}"));
        }
        let mut list = PriceList { months, ..PriceList::default() };
        for price in prices {
            let Price { medium, value, unit, dated, .. } = price;
            let Some(age) = PriceDate::parse(dated).and_then(|date| date.age_days(today)) else {
                return refuse(format!("{medium}: the price of {dated} is not one of the past"));
            };
            if age > STALE_DAYS && !takes_stale {
                return refuse(format!(
                    "{medium}: the price of {dated} is {age} days old; get a new one, or take it with --stale"
                ));
            }
            if age > OLD_DAYS {
                let told = format!("{medium}: the price of {dated} is {age} days old");
                // Of capacity and of operations.
                if !list.old.contains(&told) {
                    list.old.push(told);
                }
            }
            let range =
                UsdRange { low: price.low.unwrap_or(*value), expected: *value, high: price.high.unwrap_or(*value) };
            let prices = list.media.entry(medium.clone()).or_default();
            prices.is_rented |= *unit != PriceUnit::PerGb;
            let (place, range) = match unit {
                PriceUnit::PerGb => (&mut prices.gb, range),
                PriceUnit::PerGbMonth => (&mut prices.gb, range.times(months)),
                PriceUnit::PerIopsMonth => (&mut prices.iops, range.times(months)),
            };
            if place.replace(range).is_some() {
                return refuse(format!("{medium}: it has two prices for the same thing; leave the one that applies"));
            }
        }
        Ok(list)
    }

    /// Prices older than 90 days, in words.
    pub fn old(&self) -> &[String] {
        &self.old
    }

    /// Months for which media are rented.
    pub fn months(&self) -> f64 {
        self.months
    }

    /// Whether its price is one of renting it.
    pub fn is_rented(&self, medium: &str) -> bool {
        self.media.get(medium).is_some_and(|prices| prices.is_rented)
    }

    /// Whether its operations have a price.
    pub fn is_by_operations(&self, medium: &str) -> bool {
        self.media.get(medium).is_some_and(|prices| prices.iops.is_some())
    }

    /// The expected price of a GB for the whole time.
    pub fn usd_per_gb(&self, medium: &str) -> Option<f64> {
        self.media.get(medium)?.gb.map(|usd| usd.expected)
    }

    /// What these shares cost. A medium that is named twice is added up.
    pub fn cost(&self, shares: &[MediumShare]) -> MixCost {
        let mut cost = MixCost::default();
        for share in shares {
            let usd = self.usd(share);
            match cost.media.iter_mut().find(|one| one.medium == share.medium) {
                Some(one) => {
                    one.gb += share.gb;
                    one.usd = one.usd.zip(usd).map(|(sum, usd)| sum.plus(usd));
                }
                None => cost.media.push(MediumCost { medium: share.medium.clone(), gb: share.gb, usd }),
            }
        }
        cost
    }

    fn usd(&self, share: &MediumShare) -> Option<UsdRange> {
        let prices = self.media.get(&share.medium)?;
        let capacity = prices.gb?.times(share.gb);
        if share.iops == 0.0 {
            return Some(capacity);
        }
        Some(capacity.plus(prices.iops?.times(share.iops)))
    }
}

#[cfg(test)]
mod tests {
    use catalogue::medium::Confidence;
    use catalogue::price::Basis;

    use super::*;

    fn price(medium: &str, value: f64, unit: PriceUnit, dated: &str) -> Price {
        Price {
            medium: medium.into(),
            of: "one".into(),
            value,
            low: None,
            high: None,
            unit,
            basis: Basis::Street,
            dated: dated.into(),
            source: "a test".into(),
            confidence: Confidence::S,
        }
    }

    fn share(medium: &str, gb: f64, iops: f64) -> MediumShare {
        MediumShare { medium: medium.into(), gb, iops }
    }

    fn month(text: &str) -> PriceDate {
        PriceDate::parse(text).expect(text)
    }

    #[test]
    fn what_is_bought_and_what_is_rented_add_up_with_their_ranges() {
        let memory = Price { low: Some(8.0), high: Some(14.0), ..price("ddr5", 10.0, PriceUnit::PerGb, "2026-10") };
        let prices = [
            memory,
            price("ebs-io2bx", 0.125, PriceUnit::PerGbMonth, "2026-09"),
            price("ebs-io2bx", 0.065, PriceUnit::PerIopsMonth, "2026-09"),
        ];
        let list = PriceList::new(&prices, 36.0, month("2026-11"), false).expect("prices");
        assert!(list.old().is_empty());
        // 64 x 10 + 100 x 0.125 x 36 + 1000 x 0.065 x 36 = 640 + 450 + 2340
        let cost = list.cost(&[share("ddr5", 48.0, 0.0), share("ebs-io2bx", 100.0, 1000.0), share("ddr5", 16.0, 0.0)]);
        assert_eq!(cost.media.len(), 2);
        let total = cost.total().expect("priced");
        for (usd, wanted) in [(total.low, 3302.0), (total.expected, 3430.0), (total.high, 3686.0)] {
            assert!((usd - wanted).abs() < 1e-6, "{usd} instead of {wanted}");
        }
        assert_eq!(cost.split("ddr5"), Some((640.0, 2790.0)));
        assert_eq!(cost.unpriced(), None);
    }

    #[test]
    fn a_medium_without_a_price_makes_the_whole_mix_one_without() {
        let list = PriceList::new(&[price("ddr5", 10.0, PriceUnit::PerGb, "2026-11")], 12.0, month("2026-11"), false)
            .expect("a price");
        let cost = list.cost(&[share("ddr5", 64.0, 0.0), share("cxl-cz120", 256.0, 0.0)]);
        assert_eq!((cost.total(), cost.split("ddr5")), (None, None));
        let (only, others) = cost.unpriced().expect("one");
        assert_eq!((only.medium.as_str(), only.gb, others), ("cxl-cz120", 256.0, 640.0));
        assert_eq!(list.cost(&[share("ddr5", 1.0, 50.0)]).total(), None, "operations have no price");
        assert_eq!(list.cost(&[]).total(), Some(UsdRange::default()), "all of it is owned");
    }

    #[test]
    fn prices_grow_old_then_stale_and_are_never_of_the_future() {
        let aged = |dated: &str, stale: bool| {
            PriceList::new(&[price("ddr5", 1.0, PriceUnit::PerGb, dated)], 1.0, month("2026-11"), stale)
        };
        assert!(aged("2026-09", false).expect("two months").old().is_empty());
        assert_eq!(aged("2026-08", false).expect("91 days").old(), ["ddr5: the price of 2026-08 is 91 days old"]);
        assert_eq!(aged("2025-11", false).expect("a year").old().len(), 1);
        let stale = aged("2025-10", false).expect_err("thirteen months");
        assert!(stale.to_string().contains("395 days old"), "{stale}");
        assert_eq!(aged("2025-10", true).expect("it may be").old().len(), 1);
        assert!(aged("2026-12", true).is_err());
        let twice =
            [price("ddr5", 1.0, PriceUnit::PerGb, "2026-11"), price("ddr5", 2.0, PriceUnit::PerGbMonth, "2026-11")];
        let error = PriceList::new(&twice, 1.0, month("2026-11"), false).expect_err("two");
        assert!(error.to_string().contains("two prices"), "{error}");
        for months in [f64::NAN, 0.0, -1.0, 1e308, f64::INFINITY] {
            assert!(PriceList::new(&[], months, month("2026-11"), false).is_err(), "{months}");
        }
        let both =
            [price("io", 1.0, PriceUnit::PerGbMonth, "2026-08"), price("io", 2.0, PriceUnit::PerIopsMonth, "2026-08")];
        let list = PriceList::new(&both, 1.0, month("2026-11"), false).expect("prices");
        assert_eq!(list.old(), ["io: the price of 2026-08 is 91 days old"], "told once");
    }
}
