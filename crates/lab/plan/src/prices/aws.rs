//! The offer file of AWS (Price List, JSON, version 1): products by SKU, then terms by SKU.
//!
//! A region's file of EC2 has some hundred megabytes. It is read as a stream: of the products only volumes are kept, of the terms only
//! prices by GB and by operation per second.
//!
//! Which product is which volume, by the attributes that AWS names: `volumeApiName` (io2, gp3), `regionCode`, and `usagetype`, which ends in
//! `.tier2` or `.tier3` where more operations cost less.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{BufReader, Read};
use std::marker::PhantomData;

use catalogue::price::PriceUnit;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::offers::{ImportedPrices, OFFERS_MAX, Offer, Offers, PriceImportOptions, of_json, region};
use crate::PlanError;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Product {
    #[serde(default)]
    product_family: String,
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Attributes {
    volume_api_name: Option<String>,
    region_code: Option<String>,
    #[serde(rename = "usagetype")]
    usage_type: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Term {
    #[serde(default)]
    price_dimensions: HashMap<String, Dimension>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Dimension {
    #[serde(default)]
    unit: String,
    #[serde(default)]
    price_per_unit: BTreeMap<String, String>,
}

/// A volume's product.
struct Volume {
    medium: &'static str,
    is_capacity: bool,
    tier: u32,
    usage: String,
}

/// A price of a SKU.
struct SkuPrice {
    sku: String,
    unit: PriceUnit,
    usd: Option<String>,
}

#[derive(Default)]
struct OfferFile {
    format: String,
    published: String,
    volumes: HashMap<String, Volume>,
    prices: Vec<SkuPrice>,
    left_out: Offers,
}

impl OfferFile {
    fn product(&mut self, sku: String, product: Product, region: &str) -> Result<(), String> {
        let Attributes { volume_api_name, region_code, usage_type } = product.attributes;
        let medium = match volume_api_name.as_deref() {
            Some("io2") => "ebs-io2bx",
            Some("gp3") => "ebs-gp3",
            Some(_) => return self.skip("volumes that the catalogue does not have"),
            None => return Ok(()),
        };
        let usage = usage_type.unwrap_or_default();
        if region_code.as_deref() != Some(region) {
            return self.skip("volumes of another region");
        }
        let is_capacity = product.product_family == "Storage";
        if !is_capacity && !usage.contains("IOPS") {
            return self.skip("prices by throughput");
        }
        if self.volumes.len() == OFFERS_MAX {
            return Err(format!("it has more than {OFFERS_MAX} volumes"));
        }
        let tier = usage.rsplit_once(".tier").map_or(Ok(1), |(_, tier)| tier.parse());
        let tier = tier.map_err(|_| "a tier of operations is no number".to_owned())?;
        self.volumes.insert(sku, Volume { medium, is_capacity, tier, usage });
        Ok(())
    }

    fn skip(&mut self, why: &str) -> Result<(), String> {
        self.left_out.leave_out(why);
        Ok(())
    }

    fn terms(&mut self, sku: &str, terms: HashMap<String, Term>) -> Result<(), String> {
        for dimension in terms.into_values().flat_map(|term| term.price_dimensions.into_values()) {
            let unit = match dimension.unit.as_str() {
                "GB-Mo" => PriceUnit::PerGbMonth,
                "IOPS-Mo" => PriceUnit::PerIopsMonth,
                _ => continue,
            };
            // Terms may stand before products, so nothing is known about the SKU yet.
            if self.prices.len() == OFFERS_MAX * 10 {
                return Err(format!("it has more than {} prices of storage", OFFERS_MAX * 10));
            }
            let usd = dimension.price_per_unit.get("USD").cloned();
            self.prices.push(SkuPrice { sku: sku.to_owned(), unit, usd });
        }
        Ok(())
    }

    fn offers(mut self, region: &str) -> Result<Offers, String> {
        for SkuPrice { sku, unit, usd } in self.prices {
            let Some(volume) = self.volumes.get(&sku) else { continue };
            if volume.is_capacity != (unit == PriceUnit::PerGbMonth) {
                continue;
            }
            let Some(usd) = usd else {
                self.left_out.leave_out("in another currency than USD");
                continue;
            };
            let usd = usd.parse().map_err(|_| format!("a price of {} is no number", volume.usage))?;
            let what = if volume.is_capacity { "capacity" } else { "provisioned IOPS" };
            self.left_out.add(Offer {
                medium: volume.medium,
                unit,
                usd,
                tier: volume.tier,
                of: format!("{what}, {region}"),
            })?;
        }
        Ok(self.left_out)
    }
}

/// Reads each entry of a map and gives it to a function, so that a map is never in memory as a whole.
struct EachEntry<T, F>(F, PhantomData<T>);

impl<'de, T: Deserialize<'de>, F: FnMut(String, T) -> Result<(), String>> Visitor<'de> for EachEntry<T, F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<(), A::Error> {
        while let Some((key, value)) = map.next_entry::<String, T>()? {
            (self.0)(key, value).map_err(A::Error::custom)?;
        }
        Ok(())
    }
}

impl<'de, T: Deserialize<'de>, F: FnMut(String, T) -> Result<(), String>> DeserializeSeed<'de> for EachEntry<T, F> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// `terms`: kinds of terms, of which those on demand are read.
struct Terms<'a>(&'a mut OfferFile);

impl<'de> Visitor<'de> for Terms<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of terms")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(kind) = map.next_key::<String>()? {
            if kind == "OnDemand" {
                map.next_value_seed(EachEntry(|sku: String, terms| self.0.terms(&sku, terms), PhantomData))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for Terms<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

/// The file.
struct File<'a> {
    region: &'a str,
}

impl<'de> Visitor<'de> for File<'_> {
    type Value = OfferFile;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an offer file of AWS")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<OfferFile, A::Error> {
        let mut file = OfferFile::default();
        while let Some(key) = map.next_key::<String>()? {
            match key.as_str() {
                "formatVersion" => file.format = map.next_value()?,
                "publicationDate" => file.published = map.next_value()?,
                "products" => map.next_value_seed(EachEntry(
                    |sku, product: Product| file.product(sku, product, self.region),
                    PhantomData,
                ))?,
                "terms" => map.next_value_seed(Terms(&mut file))?,
                _ => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(file)
    }
}

/// Reads an offer file.
pub(super) fn read(input: impl Read, options: &PriceImportOptions) -> Result<ImportedPrices, PlanError> {
    let refuse = |what: String| PlanError::Refused(what);
    let region = region(options)?;
    let mut reader = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 20, input));
    let file = reader.deserialize_map(File { region }).map_err(|error| of_json(&error))?;
    reader.end().map_err(|error| of_json(&error))?;
    if !file.format.starts_with("v1") {
        return Err(refuse(format!("its formatVersion is \"{}\"; version 1 is read (v1.0)", file.format)));
    }
    let dated = match &options.dated {
        Some(dated) => dated.clone(),
        None => file.published.get(..10).unwrap_or(&file.published).to_owned(),
    };
    let source = options.source.as_deref().unwrap_or("AWS Price List, offer file of EC2");
    file.offers(region).map_err(refuse)?.prices(&dated, source)
}
