//! What the importers share: which options there are, what is kept, what was left out.
//!
//! Invariants: a price is only taken if its currency, unit, place and product are ones that are known; all else is counted by its reason.
//! Of tiers, the first one is the price, and the last one its low end.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};

use catalogue::medium::Confidence;
use catalogue::price::{Basis, Price, PriceUnit, USD_MOST};
use serde::de::DeserializeOwned;

use crate::PlanError;

/// The most prices that are kept of one file.
pub(super) const OFFERS_MAX: usize = 10_000;
/// Hours of a month, as Azure and Google count.
pub(super) const HOURS_A_MONTH: f64 = 730.0;
/// GB of a GiB.
pub(super) const GB_OF_GIB: f64 = 1.073_741_824;

/// What to take.
#[derive(Clone, Debug, Default)]
pub struct PriceImportOptions {
    /// The provider's name of the region; quotes have none.
    pub region: Option<String>,
    /// The date of prices that have none of their own: the day on which they were fetched.
    pub dated: Option<String>,
    /// The source of prices that have none of their own: an address.
    pub source: Option<String>,
}

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedPrices {
    /// The prices.
    pub prices: Vec<Price>,
    /// What was left out: how many, by reason.
    pub left_out: BTreeMap<String, u64>,
}

/// Reads pages of a provider's answers, one after the other; `take` reads one and returns what it names as the next, under the name `next`.
///
/// # Errors
/// Those of the form and of `take`; the last page names a next one.
pub(super) fn each_page<P: DeserializeOwned>(
    input: impl Read,
    next: &str,
    mut take: impl FnMut(P) -> Result<Option<String>, String>,
) -> Result<(), PlanError> {
    let mut following = None;
    for page in serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 16, input)).into_iter::<P>() {
        following = take(page.map_err(|error| of_json(&error))?).map_err(PlanError::Refused)?;
    }
    if following.is_some_and(|named| !named.is_empty()) {
        return Err(PlanError::Refused(format!(
            "the last page names a next one ({next}): fetch that too, into the same file"
        )));
    }
    Ok(())
}

/// One price of a provider's list.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) medium: &'static str,
    pub(super) unit: PriceUnit,
    pub(super) usd: f64,
    /// 1 is the first tier.
    pub(super) tier: u32,
    pub(super) of: String,
}

/// Offers as they are collected.
#[derive(Debug, Default)]
pub(super) struct Offers {
    offers: Vec<Offer>,
    left_out: BTreeMap<String, u64>,
}

impl Offers {
    /// # Errors
    /// There are too many.
    pub(super) fn add(&mut self, offer: Offer) -> Result<(), String> {
        if !(0.0..USD_MOST).contains(&offer.usd) {
            return Err(format!("{}: {} is no price", offer.of, offer.usd));
        }
        if offer.usd == 0.0 {
            self.leave_out("free of charge");
            return Ok(());
        }
        if self.offers.len() == OFFERS_MAX {
            return Err(format!("it has more than {OFFERS_MAX} prices of these volumes"));
        }
        self.offers.push(offer);
        Ok(())
    }

    pub(super) fn leave_out(&mut self, why: &str) {
        match self.left_out.get_mut(why) {
            Some(many) => *many += 1,
            // Reasons are few: they are written in the importers.
            None => drop(self.left_out.insert(why.to_owned(), 1)),
        }
    }

    /// One price for each medium and unit, of all its tiers.
    pub(super) fn prices(self, dated: &str, source: &str) -> Result<ImportedPrices, PlanError> {
        let mut groups: BTreeMap<(&str, &str), Vec<Offer>> = BTreeMap::new();
        for offer in self.offers {
            groups.entry((offer.medium, offer.unit.text())).or_default().push(offer);
        }
        let mut prices = Vec::new();
        for ((medium, _), mut tiers) in groups {
            tiers.sort_by(|one, two| one.tier.cmp(&two.tier).then(two.usd.total_cmp(&one.usd)));
            tiers.dedup_by(|one, two| one.tier == two.tier && one.usd == two.usd);
            let mut pairs = tiers.iter().zip(tiers.iter().skip(1));
            if let Some((one, two)) = pairs.find(|(one, two)| one.tier == two.tier) {
                let (of, usd, also) = (&one.of, one.usd, two.usd);
                return Err(PlanError::Refused(format!("{medium}: {of} has two prices, {usd} and {also}")));
            }
            let (Some(first), Some(last)) = (tiers.first(), tiers.last()) else { continue };
            let is_tiered = tiers.len() > 1 && last.usd < first.usd;
            prices.push(Price {
                medium: medium.to_owned(),
                of: first.of.clone(),
                value: first.usd,
                low: is_tiered.then_some(last.usd),
                high: is_tiered.then_some(first.usd),
                unit: first.unit,
                basis: Basis::List,
                dated: dated.to_owned(),
                source: source.to_owned(),
                confidence: Confidence::S,
            });
        }
        Ok(ImportedPrices { prices, left_out: self.left_out })
    }
}

/// What the options must have for a provider.
pub(super) fn region(options: &PriceImportOptions) -> Result<&str, PlanError> {
    options.region.as_deref().ok_or_else(|| {
        PlanError::Refused("prices differ by region: name it with --region, as the provider does".into())
    })
}

/// The date of answers that have none.
pub(super) fn dated(options: &PriceImportOptions) -> Result<&str, PlanError> {
    let missing = "these answers do not say when they were given: name the day with --dated 2026-11-27";
    options.dated.as_deref().ok_or_else(|| PlanError::Refused(missing.into()))
}

/// An error of JSON, without its content.
pub(super) fn of_json(error: &serde_json::Error) -> PlanError {
    match error.io_error_kind() {
        Some(kind) => PlanError::Io(kind.into()),
        None => PlanError::BadLine { unit: "line", number: error.line() as u64, what: error.to_string() },
    }
}
