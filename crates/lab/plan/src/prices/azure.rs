//! Answers of Azure's Retail Prices API, JSON: pages one after the other in one file.
//!
//! Which meter is which medium, by the names that Azure documents: product `Ultra Disks` or `Azure Premium SSD v2`, meters `... Provisioned
//! Capacity` by GiB and hour and `... Provisioned IOPS` by hour. Months have 730 hours.

use std::io::Read;

use catalogue::price::PriceUnit;
use serde::Deserialize;

use super::offers::{
    GB_OF_GIB, HOURS_A_MONTH, ImportedPrices, Offer, Offers, PriceImportOptions, dated, each_page, region,
};
use crate::PlanError;

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "Items")]
    items: Vec<Item>,
    #[serde(rename = "NextPageLink")]
    next_page_link: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item {
    currency_code: String,
    retail_price: f64,
    arm_region_name: String,
    meter_name: String,
    product_name: String,
    unit_of_measure: String,
    #[serde(rename = "type")]
    kind: String,
}

/// Reads pages of answers.
pub(super) fn read(input: impl Read, options: &PriceImportOptions) -> Result<ImportedPrices, PlanError> {
    let (region, dated) = (region(options)?, dated(options)?);
    let mut offers = Offers::default();
    each_page(input, "NextPageLink", |page: Page| {
        page.items.iter().try_for_each(|item| take(item, region, &mut offers))?;
        Ok(page.next_page_link)
    })?;
    let source = "https://prices.azure.com/api/retail/prices";
    offers.prices(dated, options.source.as_deref().unwrap_or(source))
}

fn take(item: &Item, region: &str, offers: &mut Offers) -> Result<(), String> {
    let (medium, meter) = match (item.product_name.as_str(), item.meter_name.as_str()) {
        ("Ultra Disks", meter) => ("azure-ultra", meter.strip_prefix("Ultra LRS Provisioned ")),
        ("Azure Premium SSD v2", meter) => ("azure-premium-v2", meter.strip_prefix("Premium LRS Provisioned ")),
        _ => return skip(offers, "products that the catalogue does not have"),
    };
    if item.kind != "Consumption" {
        return skip(offers, "reserved or for development");
    }
    if item.arm_region_name != region {
        return skip(offers, "volumes of another region");
    }
    if item.currency_code != "USD" {
        return skip(offers, "in another currency than USD");
    }
    let (unit, factor, what) = match (meter, item.unit_of_measure.as_str()) {
        (Some("Capacity"), "1 GiB/Hour") => (PriceUnit::PerGbMonth, HOURS_A_MONTH / GB_OF_GIB, "capacity"),
        (Some("Capacity"), "1 GiB/Month") => (PriceUnit::PerGbMonth, 1.0 / GB_OF_GIB, "capacity"),
        (Some("IOPS"), "1/Hour") => (PriceUnit::PerIopsMonth, HOURS_A_MONTH, "provisioned IOPS"),
        (Some("IOPS"), "1/Month") => (PriceUnit::PerIopsMonth, 1.0, "provisioned IOPS"),
        (Some("Capacity" | "IOPS"), unit) => {
            return Err(format!("{}: its unit \"{unit}\" is not known", item.meter_name));
        }
        _ => return skip(offers, "prices by throughput or for something else"),
    };
    offers.add(Offer { medium, unit, usd: item.retail_price * factor, tier: 1, of: format!("{what}, {region}") })
}

fn skip(offers: &mut Offers, why: &str) -> Result<(), String> {
    offers.leave_out(why);
    Ok(())
}
