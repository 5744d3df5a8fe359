//! Prices: dated, each with its basis, in files separate from the figures of media. No model or plan uses them (ADR
//! 0010); a planner that weighs costs is given such a file.
//!
//! `prices/published.toml` is an example, which tests read; it is not built into the program.
//!
//! Invariants, checked when a file is read: every price is of a medium of the catalogue, and has a month, a basis and a
//! source; all prices of a medium have the same basis.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use crate::CatalogueError;
use crate::medium::{Confidence, Medium};

/// The basis of a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The maker's recommended price, or a service's public price.
    List,
    /// The price of dealers.
    Street,
    /// The price that large buyers agree on for a quarter.
    Contract,
    /// The daily market price of the rest.
    Spot,
}

/// The unit of a price.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum PriceUnit {
    /// Bought, per GB of the label.
    #[serde(rename = "USD/GB")]
    PerGb,
    /// Rented, per GB.
    #[serde(rename = "USD/GB-month")]
    PerGbMonth,
    /// Rented, per operation per second.
    #[serde(rename = "USD/IOPS-month")]
    PerIopsMonth,
}

/// One price.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The medium's name in the catalogue.
    pub medium: String,
    /// The module, drive or part of a service that it applies to.
    pub of: String,
    /// In US dollars per unit.
    pub value: f64,
    /// The lowest observed price, with `high`.
    pub low: Option<f64>,
    /// The highest observed price.
    pub high: Option<f64>,
    /// Its unit.
    pub unit: PriceUnit,
    /// Its basis.
    pub basis: Basis,
    /// Month, `yyyy-mm`.
    pub dated: String,
    /// Its source.
    pub source: String,
    /// Its reliability.
    pub confidence: Confidence,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    price: Vec<Price>,
}

/// Reads a file of prices of `media`.
///
/// Errors: [`CatalogueError::Unreadable`], [`CatalogueError::Invalid`].
pub fn read(path: &Path, media: &[Medium]) -> Result<Vec<Price>, CatalogueError> {
    let file = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| CatalogueError::Unreadable { file: file.clone(), source })?;
    parse(&text, media).map_err(|what| CatalogueError::Invalid { file, what })
}

fn parse(text: &str, media: &[Medium]) -> Result<Vec<Price>, String> {
    let File { price } = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    let mut bases: BTreeMap<&str, Basis> = BTreeMap::new();
    for one in &price {
        let name = one.medium.as_str();
        check(one, media).map_err(|what| format!("{name}: {what}"))?;
        if *bases.entry(name).or_insert(one.basis) != one.basis {
            return Err(format!("{name}: prices on different bases cannot be compared: keep one basis for a medium"));
        }
    }
    Ok(price)
}

fn check(price: &Price, media: &[Medium]) -> Result<(), String> {
    if media.iter().all(|medium| medium.name != price.medium) {
        return Err("no medium of the catalogue has this name".into());
    }
    if !(price.value.is_finite() && price.value > 0.0) {
        return Err(format!("value = {} is not a positive number", price.value));
    }
    let is_around = |(low, high): (f64, f64)| low <= price.value && price.value <= high;
    if price.low.is_some() != price.high.is_some() || price.low.zip(price.high).is_some_and(|range| !is_around(range)) {
        return Err("low and high stand together, around value".into());
    }
    let month = price.dated.split_once('-').and_then(|(year, month)| {
        let is_year = year.len() == 4 && year.bytes().all(|byte| byte.is_ascii_digit());
        let is_month = month.len() == 2 && month.parse::<u32>().is_ok_and(|month| (1..=12).contains(&month));
        (is_year && is_month).then_some(())
    });
    if month.is_none() {
        return Err(format!("dated = \"{}\" is no month, as 2026-01", price.dated));
    }
    if price.of.trim().is_empty() || price.source.trim().is_empty() {
        return Err("of and source must not be empty".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::media;

    #[test]
    fn the_published_prices_are_of_media_there_are_each_on_one_basis_and_dated() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("prices/published.toml");
        let prices = read(&path, media()).expect("a file of prices");
        let of = |medium: &str| prices.iter().find(|price| price.medium == medium).expect(medium);
        for medium in ["dcpmm100-128g", "dcpmm100-256g", "dcpmm100-512g"] {
            assert_eq!(of(medium).basis, Basis::Street, "{medium}");
        }
        let ddr4 = of("ddr4-2666");
        let capacity = Medium::find("ddr4-2666").expect("built in").capacity_gb;
        assert!(
            ddr4.of.ends_with(&format!("of {capacity} GB")),
            "the price of the module that is modelled: {}",
            ddr4.of
        );
    }

    #[test]
    fn a_file_of_prices_that_breaks_a_rule_is_refused_with_the_medium() {
        const GOOD: &str = "[[price]]\nmedium = \"ddr5\"\nof = \"a DIMM\"\nvalue = 9\nunit = \"USD/GB\"\nbasis = \"spot\"\n\
                            dated = \"2026-01\"\nsource = \"a market\"\nconfidence = \"S\"\n";
        assert_eq!(parse(GOOD, media()).expect("good").len(), 1);
        let second = GOOD.replace("spot", "list");
        for (text, says) in [
            (GOOD.replace("ddr5", "ddr6"), "ddr6: no medium"),
            (GOOD.replace("value = 9", "value = 0"), "ddr5: value = 0"),
            (GOOD.replace("value = 9", "value = 9\nlow = 1"), "low and high stand together"),
            (GOOD.replace("value = 9", "value = 9\nlow = 10\nhigh = 11"), "around value"),
            (GOOD.replace("2026-01", "2026"), "is no month"),
            (GOOD.replace("2026-01", "2026-13"), "is no month"),
            (GOOD.replace("a market", " "), "must not be empty"),
            (GOOD.replace("basis = \"spot\"\n", ""), "missing field `basis`"),
            (format!("{GOOD}{second}"), "keep one basis"),
        ] {
            let told = parse(&text, media()).expect_err(says);
            assert!(told.contains(says), "{told}");
        }
    }
}
