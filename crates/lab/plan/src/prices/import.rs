//! Prices of what providers and vendors publish: which format it is, and how much of it is read.

use std::io::Read;

use catalogue::price::PriceDate;
use clap::ValueEnum;

use super::offers::{ImportedPrices, PriceImportOptions};
use super::{aws, azure, gcp, quote};
use crate::PlanError;

/// The largest file that is read, bytes. The offer of EC2 for one region has some hundred megabytes.
const INPUT_BYTES_MAX: u64 = 2 << 30;

/// What providers publish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PriceFormat {
    /// AWS: the offer file of EC2 for a region, JSON (AWS Price List)
    Aws,
    /// Azure: answers of the Retail Prices API, JSON, one page after the other
    Azure,
    /// Google Cloud: answers of the Cloud Billing Catalog (skus), JSON, one page after the other
    Gcp,
    /// A vendor's quote, CSV with a heading: medium, of, price, unit; if there are any low, high, piece_gb, basis, dated, source, currency
    Quote,
}

/// Makes prices of a provider's file.
///
/// # Errors
/// What is not of the format, by line where there are lines; a file without a price that a plan can use; options that are missing.
pub fn import(
    format: PriceFormat,
    input: impl Read,
    options: &PriceImportOptions,
) -> Result<ImportedPrices, PlanError> {
    if let Some(dated) = options.dated.as_deref().filter(|dated| PriceDate::parse(dated).is_none()) {
        return Err(PlanError::Refused(format!("\"{dated}\" is no date, as 2026-11-27")));
    }
    let input = input.take(INPUT_BYTES_MAX);
    let imported = match format {
        PriceFormat::Aws => aws::read(input, options),
        PriceFormat::Azure => azure::read(input, options),
        PriceFormat::Gcp => gcp::read(input, options),
        PriceFormat::Quote => quote::read(input, options),
    }?;
    if imported.prices.is_empty() {
        let told: Vec<String> = imported.left_out.iter().map(|(why, many)| format!("{many} {why}")).collect();
        let told = if told.is_empty() { String::new() } else { format!(" (left out: {})", told.join(", ")) };
        return Err(PlanError::Refused(format!("it has no price of a medium of the catalogue{told}")));
    }
    Ok(imported)
}
