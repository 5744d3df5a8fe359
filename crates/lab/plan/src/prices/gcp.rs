//! Answers of Google's Cloud Billing Catalog (`services/.../skus`), JSON: pages one after the other in one file.
//!
//! Which SKU is which medium, by its description: `Hyperdisk Balanced Capacity in ...`, `Hyperdisk Extreme IOPS in ...`; those of confidential
//! or highly available disks begin in another way or say so.

use std::io::Read;

use catalogue::price::PriceUnit;
use serde::{Deserialize, Deserializer};

use super::offers::{
    GB_OF_GIB, HOURS_A_MONTH, ImportedPrices, Offer, Offers, PriceImportOptions, dated, each_page, region,
};
use crate::PlanError;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    skus: Vec<Sku>,
    next_page_token: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sku {
    description: String,
    #[serde(default)]
    category: Category,
    #[serde(default)]
    service_regions: Vec<String>,
    #[serde(default)]
    pricing_info: Vec<PricingInfo>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Category {
    #[serde(default)]
    usage_type: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PricingInfo {
    pricing_expression: PricingExpression,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PricingExpression {
    usage_unit: String,
    #[serde(default)]
    tiered_rates: Vec<TieredRate>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TieredRate {
    unit_price: UnitPrice,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UnitPrice {
    #[serde(default)]
    currency_code: String,
    #[serde(default, deserialize_with = "whole")]
    units: f64,
    #[serde(default)]
    nanos: f64,
}

/// A number of 64 bits, which JSON of Google has as text.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Whole {
        Text(String),
        Number(f64),
    }
    match Whole::deserialize(deserializer)? {
        Whole::Text(text) => text.parse().map_err(serde::de::Error::custom),
        Whole::Number(number) => Ok(number),
    }
}

/// Reads pages of answers.
pub(super) fn read(input: impl Read, options: &PriceImportOptions) -> Result<ImportedPrices, PlanError> {
    let (region, dated) = (region(options)?, dated(options)?);
    let mut offers = Offers::default();
    each_page(input, "nextPageToken", |page: Page| {
        page.skus.iter().try_for_each(|sku| take(sku, region, &mut offers))?;
        Ok(page.next_page_token)
    })?;
    let source = "https://cloudbilling.googleapis.com/v1/services/6F81-5844-456A/skus";
    offers.prices(dated, options.source.as_deref().unwrap_or(source))
}

fn take(sku: &Sku, region: &str, offers: &mut Offers) -> Result<(), String> {
    const PRODUCTS: [(&str, &str, bool); 4] = [
        ("Hyperdisk Balanced Capacity", "gcp-hyperdisk-balanced", true),
        ("Hyperdisk Balanced IOPS", "gcp-hyperdisk-balanced", false),
        ("Hyperdisk Extreme Capacity", "gcp-hyperdisk-extreme", true),
        ("Hyperdisk Extreme IOPS", "gcp-hyperdisk-extreme", false),
    ];
    let is_of = |product: &str| {
        let rest = sku.description.strip_prefix(product);
        rest.is_some_and(|rest| (rest.is_empty() || rest.starts_with(" in ")) && !rest.contains("Confidential"))
    };
    let Some((_, medium, is_capacity)) = PRODUCTS.into_iter().find(|(product, ..)| is_of(product)) else {
        return skip(offers, "products that the catalogue does not have");
    };
    if sku.category.usage_type != "OnDemand" {
        return skip(offers, "reserved or preemptible");
    }
    if !sku.service_regions.iter().any(|one| one == region) {
        return skip(offers, "volumes of another region");
    }
    let Some(PricingInfo { pricing_expression }) = sku.pricing_info.last() else {
        return skip(offers, "without a price");
    };
    let (unit, factor, what) = match (is_capacity, pricing_expression.usage_unit.as_str()) {
        (true, "GiBy.mo") => (PriceUnit::PerGbMonth, 1.0 / GB_OF_GIB, "capacity"),
        (true, "GiBy.h") => (PriceUnit::PerGbMonth, HOURS_A_MONTH / GB_OF_GIB, "capacity"),
        (false, "mo") => (PriceUnit::PerIopsMonth, 1.0, "provisioned IOPS"),
        (false, "h") => (PriceUnit::PerIopsMonth, HOURS_A_MONTH, "provisioned IOPS"),
        (_, unit) => return Err(format!("{}: its unit \"{unit}\" is not known", sku.description)),
    };
    let mut tier = 0;
    for rate in &pricing_expression.tiered_rates {
        if rate.unit_price.currency_code != "USD" {
            skip(offers, "in another currency than USD")?;
            continue;
        }
        let usd = (rate.unit_price.units + rate.unit_price.nanos / 1e9) * factor;
        // What is included is no tier.
        tier += u32::from(usd > 0.0);
        offers.add(Offer { medium, unit, usd, tier, of: format!("{what}, {region}") })?;
    }
    Ok(())
}

fn skip(offers: &mut Offers, why: &str) -> Result<(), String> {
    offers.leave_out(why);
    Ok(())
}
