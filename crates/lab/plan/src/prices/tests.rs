//! Fixtures are written for these tests after the formats that the providers document; no price in them is one that was ever asked.

use catalogue::price::PriceUnit;

use super::*;

const AWS: &str = r#"{
 "formatVersion": "v1.0", "disclaimer": "none", "offerCode": "AmazonEC2", "version": "20260101000000",
 "publicationDate": "2026-11-05T10:11:12Z",
 "products": {
  "AAA": {"sku": "AAA", "productFamily": "Storage", "attributes": {"volumeApiName": "io2", "regionCode": "us-east-1", "usagetype": "EBS:VolumeUsage.io2"}},
  "BBB": {"sku": "BBB", "productFamily": "System Operation", "attributes": {"volumeApiName": "io2", "regionCode": "us-east-1", "usagetype": "EBS:VolumeP-IOPS.io2", "group": "EBS IOPS"}},
  "CCC": {"sku": "CCC", "productFamily": "System Operation", "attributes": {"volumeApiName": "io2", "regionCode": "us-east-1", "usagetype": "EBS:VolumeP-IOPS.io2.tier3"}},
  "DDD": {"sku": "DDD", "productFamily": "Storage", "attributes": {"volumeApiName": "gp3", "regionCode": "us-west-2", "usagetype": "EBS:VolumeUsage.gp3"}},
  "EEE": {"sku": "EEE", "productFamily": "Storage", "attributes": {"volumeApiName": "sc1", "regionCode": "us-east-1"}},
  "FFF": {"sku": "FFF", "productFamily": "Compute Instance", "attributes": {"instanceType": "m7i.large", "regionCode": "us-east-1"}},
  "GGG": {"sku": "GGG", "productFamily": "Provisioned Throughput", "attributes": {"volumeApiName": "gp3", "regionCode": "us-east-1", "usagetype": "EBS:VolumeP-Throughput.gp3"}}
 },
 "terms": {
  "OnDemand": {
   "AAA": {"AAA.J": {"offerTermCode": "J", "sku": "AAA", "effectiveDate": "2026-11-01", "priceDimensions": {"AAA.J.6": {"rateCode": "AAA.J.6", "beginRange": "0", "endRange": "Inf", "unit": "GB-Mo", "pricePerUnit": {"USD": "0.1500000000"}}}}},
   "BBB": {"BBB.J": {"priceDimensions": {"x": {"unit": "IOPS-Mo", "pricePerUnit": {"USD": "0.0700000000"}}}}},
   "CCC": {"CCC.J": {"priceDimensions": {"x": {"unit": "IOPS-Mo", "pricePerUnit": {"USD": "0.0300000000"}}}}},
   "DDD": {"DDD.J": {"priceDimensions": {"x": {"unit": "GB-Mo", "pricePerUnit": {"USD": "0.0900000000"}}}}},
   "FFF": {"FFF.J": {"priceDimensions": {"x": {"unit": "Hrs", "pricePerUnit": {"USD": "0.1"}}}}}
  },
  "Reserved": {"AAA": {"R": {"priceDimensions": {"x": {"unit": "GB-Mo", "pricePerUnit": {"USD": "0.01"}}}}}}
 }
}"#;

const AZURE: &str = r#"{"BillingCurrency": "USD", "Items": [
 {"currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": 0.0002, "unitPrice": 0.0002, "armRegionName": "eastus", "meterName": "Ultra LRS Provisioned Capacity", "productName": "Ultra Disks", "skuName": "Ultra LRS", "unitOfMeasure": "1 GiB/Hour", "type": "Consumption"},
 {"currencyCode": "USD", "retailPrice": 0.0001, "armRegionName": "eastus", "meterName": "Ultra LRS Provisioned IOPS", "productName": "Ultra Disks", "unitOfMeasure": "1/Hour", "type": "Consumption"},
 {"currencyCode": "USD", "retailPrice": 0.0005, "armRegionName": "eastus", "meterName": "Ultra LRS Provisioned Throughput (MBps)", "productName": "Ultra Disks", "unitOfMeasure": "1/Hour", "type": "Consumption"}
 ], "NextPageLink": "https://prices.azure.com/api/retail/prices?$skip=1000", "Count": 3}
{"BillingCurrency": "USD", "Items": [
 {"currencyCode": "USD", "retailPrice": 0.0001, "armRegionName": "eastus", "meterName": "Premium LRS Provisioned Capacity", "productName": "Azure Premium SSD v2", "unitOfMeasure": "1 GiB/Hour", "type": "Consumption"},
 {"currencyCode": "USD", "retailPrice": 0.0, "armRegionName": "eastus", "meterName": "Premium LRS Provisioned IOPS", "productName": "Azure Premium SSD v2", "unitOfMeasure": "1/Hour", "type": "Consumption"},
 {"currencyCode": "USD", "retailPrice": 0.000004, "armRegionName": "eastus", "meterName": "Premium LRS Provisioned IOPS", "productName": "Azure Premium SSD v2", "unitOfMeasure": "1/Hour", "type": "Consumption"},
 {"currencyCode": "USD", "retailPrice": 0.5, "armRegionName": "westus", "meterName": "Premium LRS Provisioned IOPS", "productName": "Azure Premium SSD v2", "unitOfMeasure": "1/Hour", "type": "Consumption"}
 ], "NextPageLink": null, "Count": 4}"#;

const GCP: &str = r#"{"skus": [
 {"name": "services/X/skus/A", "skuId": "A", "description": "Hyperdisk Balanced Capacity in Iowa", "category": {"serviceDisplayName": "Compute Engine", "resourceFamily": "Storage", "resourceGroup": "SSD", "usageType": "OnDemand"}, "serviceRegions": ["us-central1"],
  "pricingInfo": [{"effectiveTime": "2026-11-01T00:00:00Z", "pricingExpression": {"usageUnit": "GiBy.mo", "tieredRates": [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 80000000}}]}}]},
 {"description": "Hyperdisk Balanced IOPS in Iowa", "category": {"usageType": "OnDemand"}, "serviceRegions": ["us-central1"],
  "pricingInfo": [{"pricingExpression": {"usageUnit": "mo", "tieredRates": [{"startUsageAmount": 0, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 0}}, {"startUsageAmount": 3000, "unitPrice": {"currencyCode": "USD", "units": "0", "nanos": 6000000}}, {"startUsageAmount": 90000, "unitPrice": {"currencyCode": "USD", "units": 0, "nanos": 5000000}}]}}]},
 {"description": "Hyperdisk Balanced IOPS Confidential Mode in Iowa", "category": {"usageType": "OnDemand"}, "serviceRegions": ["us-central1"], "pricingInfo": []},
 {"description": "Hyperdisk Extreme Capacity in Frankfurt", "category": {"usageType": "OnDemand"}, "serviceRegions": ["europe-west3"], "pricingInfo": []},
 {"description": "N1 Predefined Instance Ram running in Americas", "category": {"usageType": "OnDemand"}, "serviceRegions": ["us-central1"], "pricingInfo": []}
], "nextPageToken": ""}"#;

const QUOTE: &str = "\u{feff}Medium,of,Price,unit,piece_gb,low,high,basis,dated,source,note\r\n\
    ddr5,\"RDIMM, 64 GB \"\"A\"\"\",640,USD/piece,64,320,960,contract,2026-11-20,https://dealer.example/4711,x\r\n\
    \r\n\
    nvme-p4510,4 TB,0.25,USD/GB,,,,,,,\n";

fn options(region: &str) -> PriceImportOptions {
    PriceImportOptions {
        region: Some(region.into()),
        dated: Some("2026-11-27".into()),
        source: Some("an example".into()),
    }
}

/// What came of it, a line each; it also has to be a file of prices.
fn made(format: PriceFormat, text: &str, options: &PriceImportOptions) -> Vec<String> {
    let imported = import(format, text.as_bytes(), options).expect("prices");
    let file = prices_text(&imported.prices, "A test.");
    let read = catalogue::price::parse(&file, catalogue::media()).expect("a file of prices");
    assert_eq!(read, imported.prices, "{file}");
    let line = |price: &Price| {
        let range = price.low.zip(price.high).map_or(String::new(), |(low, high)| format!(" ({low:.4}..{high:.4})"));
        format!("{} {:.4}{range} {} {}", price.medium, price.value, price.unit.text(), price.dated)
    };
    imported
        .prices
        .iter()
        .map(line)
        .chain(imported.left_out.iter().map(|(why, many)| format!("{many} {why}")))
        .collect()
}

#[test]
fn an_offer_of_aws_gives_prices_of_its_volumes_with_tiers_as_a_range_and_the_day_of_its_publication() {
    let options = PriceImportOptions { dated: None, ..options("us-east-1") };
    let wanted = [
        "ebs-io2bx 0.1500 USD/GB-month 2026-11-05",
        "ebs-io2bx 0.0700 (0.0300..0.0700) USD/IOPS-month 2026-11-05",
        "1 prices by throughput",
        "1 volumes of another region",
        "1 volumes that the catalogue does not have",
    ];
    assert_eq!(made(PriceFormat::Aws, AWS, &options), wanted);
    // Terms may come first.
    let (products, terms) = (AWS.find("\"products\"").expect("there"), AWS.find("\"terms\"").expect("there"));
    let end = AWS.len() - 2;
    let turned =
        format!("{}{},{}}}", &AWS[..products], &AWS[terms..end], AWS[products..terms].trim_end().trim_end_matches(','));
    assert_eq!(made(PriceFormat::Aws, &turned, &options), wanted);
}

#[test]
fn pages_of_azure_give_prices_by_gb_and_month() {
    // 0.0002 x 730 / 1.073741824, 0.0001 x 730, 0.0001 x 730 / 1.073741824, 0.000004 x 730
    assert_eq!(
        made(PriceFormat::Azure, AZURE, &options("eastus")),
        [
            "azure-premium-v2 0.0680 USD/GB-month 2026-11-27",
            "azure-premium-v2 0.0029 USD/IOPS-month 2026-11-27",
            "azure-ultra 0.1360 USD/GB-month 2026-11-27",
            "azure-ultra 0.0730 USD/IOPS-month 2026-11-27",
            "1 free of charge",
            "1 prices by throughput or for something else",
            "1 volumes of another region",
        ]
    );
}

#[test]
fn skus_of_google_give_prices_by_gb_and_month() {
    assert_eq!(
        made(PriceFormat::Gcp, GCP, &options("us-central1")),
        [
            "gcp-hyperdisk-balanced 0.0745 USD/GB-month 2026-11-27",
            "gcp-hyperdisk-balanced 0.0060 (0.0050..0.0060) USD/IOPS-month 2026-11-27",
            "1 free of charge",
            "2 products that the catalogue does not have",
            "1 volumes of another region",
        ]
    );
}

#[test]
fn a_quote_gives_prices_of_gb_and_takes_date_and_source_from_options_where_it_has_none() {
    assert_eq!(
        made(PriceFormat::Quote, QUOTE, &options("none")),
        ["ddr5 10.0000 (5.0000..15.0000) USD/GB 2026-11-20", "nvme-p4510 0.2500 USD/GB 2026-11-27"]
    );
    let imported = import(PriceFormat::Quote, QUOTE.as_bytes(), &options("none")).expect("prices");
    assert_eq!(imported.prices[0].of, "RDIMM, 64 GB \"A\"");
    assert_eq!((imported.prices[1].source.as_str(), imported.prices[1].unit), ("an example", PriceUnit::PerGb));
}

#[test]
fn what_is_not_of_a_format_is_refused_with_the_reason() {
    use PriceFormat::{Aws, Azure, Gcp, Quote};
    let cut = &AWS[..AWS.len() / 2];
    let later = AWS.replace("v1.0", "v2.0");
    let twice = AWS.replace(".tier3", "");
    let next = GCP.replace("\"nextPageToken\": \"\"", "\"nextPageToken\": \"abc\"");
    let page = AZURE.split("\n{\"Billing").next().expect("a page").to_owned();
    let unit = AZURE.replace("1 GiB/Hour", "1 GiB/Day");
    let negative = AWS.replace("0.0700000000", "-1");
    let lines = |line: &str| format!("medium,of,price,unit\n{line}\n");
    let wide = format!("medium,of,price,unit\nddr5,{}\n", "x".repeat(70_000));
    for (format, text, says) in [
        (Aws, "", "line 1"),
        (Aws, "[]", "line 1"),
        (Aws, cut, "line "),
        (Aws, &later, "version 1 is read"),
        (Aws, &twice, "has two prices"),
        (Aws, &negative, "is no price"),
        (Aws, &AWS.replace("0.0700000000", "1840737095516"), "is no price"),
        (Aws, &AWS.replace("us-east-1", "us-gov"), "no price of a medium"),
        (Azure, &page, "NextPageLink"),
        (Azure, &unit, "\"1 GiB/Day\" is not known"),
        (Azure, "{\"Items\": 5}", "line 1"),
        (Azure, "", "no price of a medium"),
        (Gcp, &next, "nextPageToken"),
        (Gcp, "{}", "line 1"),
        (Quote, "", "no heading"),
        (Quote, "medium,of,price\n", "no column unit"),
        (Quote, "medium,of,price,unit,unit\n", "unit is there twice"),
        (Quote, "medium,of,price,unit\n", "no price of a medium"),
        (Quote, &lines("ddr9,x,1,USD/GB"), "line 2: its medium is none"),
        (Quote, &lines("ddr5,x,1,USD/piece"), "needs piece_gb"),
        (Quote, "medium,of,price,unit,piece_gb\nddr5,x,1,USD/GB,64\n", "USD/piece only"),
        (Quote, &lines("ddr5,x,\"1,5\",USD/GB"), "price is no number"),
        (Quote, &lines("ddr5,x,0,USD/GB"), "price is no number"),
        (Quote, &lines("ddr5,x,inf,USD/GB"), "price is no number"),
        (Quote, &lines("ddr5,x,1e12,USD/GB"), "not possible"),
        (Quote, &lines("ddr5,x,1,EUR/GB"), "unit is none of"),
        (Quote, &lines("ddr5,\"x,1,USD/GB"), "not closed"),
        (Quote, &lines("ddr5,\"x\"y,1,USD/GB"), "closing quotation mark"),
        (Quote, "medium,of,price,unit,currency\nddr5,x,1,USD/GB,EUR\n", "not USD"),
        (Quote, "medium,of,price,unit,low\nddr5,x,1,USD/GB,0.5\n", "stand together"),
        (Quote, &wide, "more than 65536 bytes"),
    ] {
        let told =
            import(format, text.as_bytes(), &options("us-east-1").at("eastus", format)).expect_err(says).to_string();
        assert!(told.contains(says), "{says}: {told}");
    }
    let none = PriceImportOptions::default();
    for (format, text, says) in [(Aws, AWS, "--region"), (Azure, AZURE, "--region"), (Quote, QUOTE, "--dated")] {
        assert!(import(format, text.as_bytes(), &none).expect_err(says).to_string().contains(says), "{says}");
    }
    let undated = PriceImportOptions { dated: None, ..options("us-central1") };
    assert!(import(Gcp, GCP.as_bytes(), &undated).expect_err("undated").to_string().contains("--dated"));
    let wrong = PriceImportOptions { dated: Some("yesterday".into()), ..none };
    assert!(import(Quote, QUOTE.as_bytes(), &wrong).expect_err("no date").to_string().contains("is no date"));
}

impl PriceImportOptions {
    fn at(mut self, azure: &str, format: PriceFormat) -> PriceImportOptions {
        match format {
            PriceFormat::Azure => self.region = Some(azure.into()),
            PriceFormat::Gcp => self.region = Some("us-central1".into()),
            PriceFormat::Aws | PriceFormat::Quote => {}
        }
        self
    }
}

#[test]
fn prices_grow_old_after_90_days_and_stale_after_365_and_are_never_of_the_future() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prices.toml");
    let quote = "medium,of,price,unit\nddr5,a DIMM,10,USD/GB\n";
    let at = |dated: &str| {
        let options = PriceImportOptions { dated: Some(dated.into()), ..options("none") };
        let imported = import(PriceFormat::Quote, quote.as_bytes(), &options).expect("a price");
        std::fs::write(&file, prices_text(&imported.prices, "one\ntwo")).expect("written");
        let today = PriceDate::parse("2026-11-27").expect("a day");
        let read =
            read(&file, catalogue::media(), today).map(|prices| (prices[0].warning().is_some(), prices[0].is_stale()));
        read.ok()
    };
    assert_eq!(at("2026-08-29"), Some((false, false)), "90 days");
    assert_eq!(at("2026-08-28"), Some((true, false)), "91 days");
    assert_eq!(at("2025-11-27"), Some((true, false)), "365 days");
    assert_eq!(at("2025-11-26"), Some((true, true)), "366 days");
    assert_eq!(at("2026-11"), Some((false, false)), "this month");
    assert_eq!(at("2026-11-28"), None, "tomorrow");
}
