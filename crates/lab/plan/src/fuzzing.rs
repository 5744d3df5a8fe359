//! The bodies of the fuzz targets: what must be true for any bytes.

pub use crate::import::fuzz::trace;

use crate::prices::{PriceFormat, PriceImportOptions, import, prices_text};
use crate::profile::ProfileReader;

/// Reads the bytes as a profile, and a profile that has them as its contents, with right checksums; and as the part of one.
pub fn profile(input: &[u8]) {
    crate::profile::fuzz::part(input);
    read(input);
    if let Some(file) = crate::profile::fuzz::file_of_contents(input) {
        read(&file);
    }
}

/// A profile is read to its end or refused, and what was read keeps to the bounds of its summary.
fn read(input: &[u8]) {
    let Ok(mut reader) = ProfileReader::new(input) else { return };
    let structures = reader.summary().structures.len();
    let mut last_us = 0;
    while let Ok(Some(entries)) = reader.next_chunk() {
        for entry in entries {
            assert!(usize::from(entry.structure) < structures && entry.time_us >= last_us, "an impossible access");
            last_us = entry.time_us;
        }
    }
    let total = reader.summary().totals().total();
    let curve = total.reuse.curve();
    let mut before = 1.0;
    for bytes in (0..64).map(|bit| 1u64 << bit) {
        let ratio = curve.miss_ratio(bytes);
        assert!((0.0..=1.0).contains(&ratio) && ratio <= before + 1e-9, "{ratio} after {before}");
        before = ratio;
    }
    let _ = crate::show::text(reader.summary());
}

/// Imports the bytes as prices, in the format that the first one names; what comes of it is a file of prices that is read as the same.
pub fn prices(input: &[u8]) {
    let Some((format, rest)) = input.split_first() else { return };
    let (format, region) = match format % 5 {
        0 => (PriceFormat::Aws, "us-east-1"),
        1 => (PriceFormat::Azure, "eastus"),
        2 => (PriceFormat::Gcp, "us-central1"),
        3 => (PriceFormat::Quote, "none"),
        _ => {
            if let Ok(text) = std::str::from_utf8(rest) {
                let _ = catalogue::price::parse(text, catalogue::media());
            }
            return;
        }
    };
    let options = PriceImportOptions {
        region: Some(region.into()),
        dated: Some("2026-11-27".into()),
        source: Some("a fuzzer".into()),
    };
    let Ok(imported) = import(format, rest, &options) else { return };
    let text = prices_text(&imported.prices, "fuzzing");
    match catalogue::price::parse(&text, catalogue::media()) {
        Ok(read) => assert_eq!(read.len(), imported.prices.len(), "a price was lost"),
        // Two lines of a quote may have two bases; that is told before a file is written.
        Err(what) => {
            let is_told =
                ["different bases", "must not be empty", "has more than"].iter().any(|one| what.contains(one));
            assert!(is_told, "{what}");
        }
    }
}
