//! Files of prices: how old they are, and how they are made of what providers publish.
//!
//! ```text
//!   prices.toml  -> catalogue::price   read, checked
//!                -> here               how old each price is: 90 days are told, 365 are refused
//!   an offer of a provider, a quote -> import/ -> prices.toml
//! ```
//!
//! Nothing about prices is built in (ADR 0010), and nothing here opens a connection: the files are fetched by who wants them.
//!
//! Invariant: a file that an importer has written is one that [`catalogue::price::parse`] takes.

mod aws;
mod azure;
mod command;
mod gcp;
mod import;
mod offers;
mod quote;
#[cfg(test)]
mod tests;
mod write;

pub use command::{PricesArgs, PricesCommand};
pub use import::{PriceFormat, import};
pub use offers::{ImportedPrices, PriceImportOptions};
pub use write::prices_text;

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use catalogue::Medium;
use catalogue::price::{Price, PriceDate};

use crate::PlanError;
pub use crate::price_age::{OLD_DAYS, STALE_DAYS};

/// A price and its age.
#[derive(Clone, Debug, PartialEq)]
pub struct AgedPrice {
    /// The price.
    pub price: Price,
    /// Days since its day, or since the last day of its month.
    pub age_days: u64,
}

impl AgedPrice {
    /// What is to be told about its age, if something is.
    pub fn warning(&self) -> Option<String> {
        let Price { medium, of, dated, .. } = &self.price;
        let days = self.age_days;
        (days > OLD_DAYS).then(|| format!("{medium}: the price of {of} is of {dated}, {days} days old"))
    }

    /// It is too old for a plan.
    pub fn is_stale(&self) -> bool {
        self.age_days > STALE_DAYS
    }
}

/// Reads a file of prices of `media`, with their ages on the day `today`.
///
/// # Errors
/// A file that cannot be read or breaks a rule; a price of the future.
pub fn read(path: &Path, media: &[Medium], today: PriceDate) -> Result<Vec<AgedPrice>, PlanError> {
    let prices = catalogue::price::read(path, media).map_err(|error| PlanError::Refused(error.to_string()))?;
    aged(prices, today)
}

fn aged(prices: Vec<Price>, today: PriceDate) -> Result<Vec<AgedPrice>, PlanError> {
    let age = |price: Price| match PriceDate::parse(&price.dated).and_then(|date| date.age_days(today)) {
        Some(age_days) => Ok(AgedPrice { price, age_days }),
        None => Err(PlanError::Refused(format!("{}: the price of {} is one of the future", price.medium, price.dated))),
    };
    prices.into_iter().map(age).collect()
}

/// The present day; a day that is given, as by `--on`, takes its place where a result has to be the same again.
#[allow(clippy::disallowed_methods, reason = "prices are as old as the clock of the machine says, not as a node's")]
pub fn today() -> PriceDate {
    PriceDate::of_unix_seconds(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |passed| passed.as_secs()))
}

/// Parses a date of the command line.
///
/// # Errors
/// What it has to look like.
pub fn date(text: &str) -> Result<PriceDate, String> {
    PriceDate::parse(text).ok_or_else(|| "write a date as 2026-11-27 or 2026-11".into())
}
