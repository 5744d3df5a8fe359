//! Prices: dated, each with its basis, in files separate from the figures of media. No model or plan uses them (ADR
//! 0010); a planner that weighs costs is given such a file.
//!
//! `prices/published.toml` is an example, which tests read; it is not built into the program.
//!
//! Invariants, checked when a file is read: every price is of a medium of the catalogue, and has a month or a day, a basis
//! and a source; all prices of a medium have the same basis; a file has at most 1 MiB and 10,000 prices. A price of a piece
//! (a module, card or drive) is read as that of a GB of its label.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Deserializer};

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

impl PriceUnit {
    /// As it is written in a file.
    pub fn text(self) -> &'static str {
        match self {
            PriceUnit::PerGb => "USD/GB",
            PriceUnit::PerGbMonth => "USD/GB-month",
            PriceUnit::PerIopsMonth => "USD/IOPS-month",
        }
    }
}

impl Basis {
    /// As it is written in a file.
    pub fn text(self) -> &'static str {
        match self {
            Basis::List => "list",
            Basis::Street => "street",
            Basis::Contract => "contract",
            Basis::Spot => "spot",
        }
    }
}

/// The date of a price: a day, or a month, which counts as its last day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriceDate {
    /// The first day, in days since 1970-01-01.
    first: i64,
    /// The last day.
    last: i64,
}

impl PriceDate {
    /// Parses `yyyy-mm` or `yyyy-mm-dd`, of the years 1970 to 9999.
    pub fn parse(text: &str) -> Option<PriceDate> {
        let mut parts = text.split('-');
        let mut number = |digits: usize| {
            let part = parts.next()?;
            let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
            is_number.then(|| part.parse::<i64>().ok()).flatten()
        };
        let (year, month) = (number(4)?, number(2)?);
        let day = if text.len() > 7 { Some(number(2)?) } else { None };
        if year < 1970 || !(1..=12).contains(&month) || parts.next().is_some() {
            return None;
        }
        let first = first_of(year, month);
        let last = if month == 12 { first_of(year + 1, 1) } else { first_of(year, month + 1) } - 1;
        let Some(day) = day else { return Some(PriceDate { first, last }) };
        let day = first + day - 1;
        (first..=last).contains(&day).then_some(PriceDate { first: day, last: day })
    }

    /// The day of a time, in seconds since 1970 (UTC).
    pub fn of_unix_seconds(seconds: u64) -> PriceDate {
        let day = i64::try_from(seconds / 86_400).unwrap_or(i64::MAX);
        PriceDate { first: day, last: day }
    }

    /// Days from its last day to that of `today`; 0 if it has begun and is not over; `None` if it is still to come.
    pub fn age_days(self, today: PriceDate) -> Option<u64> {
        (self.first <= today.last).then(|| u64::try_from(today.last - self.last).unwrap_or(0))
    }
}

/// Days from 1970-01-01 to the first of a month.
fn first_of(year: i64, month: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let in_year = usize::try_from(month - 1).ok().and_then(|month| BEFORE.get(month)).copied().unwrap_or(0);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + in_year + i64::from(is_leap && month > 2)
}

/// One price.
#[derive(Clone, Debug, PartialEq)]
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
    /// Month or day: `yyyy-mm` or `yyyy-mm-dd`.
    pub dated: String,
    /// Its source.
    pub source: String,
    /// Its reliability.
    pub confidence: Confidence,
}

/// A price as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    medium: String,
    of: String,
    value: f64,
    low: Option<f64>,
    high: Option<f64>,
    unit: WrittenUnit,
    /// Of a price of a piece: GB of its label.
    piece_gb: Option<f64>,
    basis: Basis,
    dated: String,
    source: String,
    confidence: Confidence,
}

#[derive(Deserialize)]
enum WrittenUnit {
    #[serde(rename = "USD/GB")]
    Gb,
    #[serde(rename = "USD/GB-month")]
    GbMonth,
    #[serde(rename = "USD/IOPS-month")]
    IopsMonth,
    #[serde(rename = "USD/piece")]
    Piece,
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Price, D::Error> {
        let Written { medium, of, value, low, high, unit, piece_gb, basis, dated, source, confidence } =
            Written::deserialize(deserializer)?;
        let refuse = |what: &str| serde::de::Error::custom(format!("{medium}: {what}"));
        let (unit, gb) = match (unit, piece_gb) {
            (WrittenUnit::Piece, Some(gb)) if gb.is_finite() && gb > 0.0 => (PriceUnit::PerGb, gb),
            (WrittenUnit::Piece, _) => return Err(refuse("a price of a piece has piece_gb, the GB of its label")),
            (_, Some(_)) => return Err(refuse("piece_gb stands with unit = \"USD/piece\" only")),
            (WrittenUnit::Gb, None) => (PriceUnit::PerGb, 1.0),
            (WrittenUnit::GbMonth, None) => (PriceUnit::PerGbMonth, 1.0),
            (WrittenUnit::IopsMonth, None) => (PriceUnit::PerIopsMonth, 1.0),
        };
        let of_gb = |usd: f64| usd / gb;
        let (value, low, high) = (of_gb(value), low.map(of_gb), high.map(of_gb));
        Ok(Price { medium, of, value, low, high, unit, basis, dated, source, confidence })
    }
}

/// The largest file, bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Prices are below so many US dollars: sums of them stay numbers.
pub const USD_MOST: f64 = 1e12;
/// The most prices of a file.
const PRICES_MAX: usize = 10_000;

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
    let mut text = String::new();
    let opened = std::fs::File::open(path).map(|file| file.take(FILE_BYTES_MAX + 1));
    opened
        .and_then(|mut file| file.read_to_string(&mut text))
        .map_err(|source| CatalogueError::Unreadable { file: file.clone(), source })?;
    parse(&text, media).map_err(|what| CatalogueError::Invalid { file, what })
}

/// Reads the text of a file of prices of `media`.
///
/// # Errors
/// The rule that it breaks, with the medium.
pub fn parse(text: &str, media: &[Medium]) -> Result<Vec<Price>, String> {
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it has more than {FILE_BYTES_MAX} bytes"));
    }
    let File { price } = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
    if price.len() > PRICES_MAX {
        return Err(format!("it has more than {PRICES_MAX} prices"));
    }
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
    if !(price.value > 0.0 && price.value < USD_MOST) {
        return Err(format!("value = {} is not a positive number below {USD_MOST:e}", price.value));
    }
    let is_around = |(low, high): (f64, f64)| 0.0 < low && low <= price.value && price.value <= high && high < USD_MOST;
    if price.low.is_some() != price.high.is_some() || price.low.zip(price.high).is_some_and(|range| !is_around(range)) {
        return Err("low and high stand together, around value".into());
    }
    if PriceDate::parse(&price.dated).is_none() {
        return Err(format!("dated = \"{}\" is no month or day, as 2026-01 or 2026-01-31", price.dated));
    }
    if price.of.trim().is_empty() || price.source.trim().is_empty() {
        return Err("of and source must not be empty".into());
    }
    // They are printed to terminals.
    if [&price.of, &price.source].iter().any(|text| text.chars().any(char::is_control)) {
        return Err("of and source are one line each, without control characters".into());
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
            (GOOD.replace("value = 9", "value = 1e308"), "ddr5: value = 1"),
            (GOOD.replace("value = 9", "value = 9\nlow = 1\nhigh = 1e308"), "around value"),
            (GOOD.replace("value = 9", "value = 9\nlow = 1"), "low and high stand together"),
            (GOOD.replace("value = 9", "value = 9\nlow = 10\nhigh = 11"), "around value"),
            (GOOD.replace("value = 9", "value = 9\nlow = 1\nhigh = inf"), "around value"),
            (GOOD.replace("value = 9", "value = 9\nlow = -5\nhigh = 11"), "around value"),
            (GOOD.replace("a market", "a\\u001b[2Jmarket"), "without control characters"),
            (GOOD.replace("2026-01", "2026"), "is no month or day"),
            (GOOD.replace("2026-01", "2026-13"), "is no month or day"),
            (GOOD.replace("a market", " "), "must not be empty"),
            (GOOD.replace("basis = \"spot\"\n", ""), "missing field `basis`"),
            (format!("{GOOD}{second}"), "keep one basis"),
        ] {
            let told = parse(&text, media()).expect_err(says);
            assert!(told.contains(says), "{told}");
        }
    }

    #[test]
    fn a_price_of_a_piece_is_that_of_a_gb_of_its_label() {
        const PIECE: &str = "[[price]]\nmedium = \"ddr5\"\nof = \"a DIMM of 64 GB\"\nvalue = 640\nlow = 320\nhigh = 960\nunit = \"USD/piece\"\n\
                             piece_gb = 64\nbasis = \"list\"\ndated = \"2026-01-31\"\nsource = \"a quote\"\nconfidence = \"S\"\n";
        let read = parse(PIECE, media()).expect("a piece");
        let [Price { value: 10.0, low: Some(5.0), high: Some(15.0), unit: PriceUnit::PerGb, .. }] = &read[..] else {
            panic!("{read:?}");
        };
        for (text, says) in [
            (PIECE.replace("piece_gb = 64\n", ""), "has piece_gb"),
            (PIECE.replace("piece_gb = 64", "piece_gb = 0"), "has piece_gb"),
            (PIECE.replace("USD/piece", "USD/GB"), "with unit = \"USD/piece\" only"),
            (PIECE.replace("01-31", "02-29"), "is no month or day"),
        ] {
            let told = parse(&text, media()).expect_err(says);
            assert!(told.contains(says), "{told}");
        }
        let long = format!("# {}\n{PIECE}", "x".repeat(1 << 20));
        assert!(parse(&long, media()).expect_err("long").contains("more than 1048576 bytes"));
    }

    #[test]
    fn a_date_is_a_day_or_the_last_day_of_a_month() {
        let days = |text: &str| PriceDate::parse(text).map(|date| date.last);
        for (text, wanted) in [
            ("1970-01-01", Some(0)),
            ("1970-01", Some(30)),
            ("2000-02", Some(11_016)),
            ("2000-02-29", Some(11_016)),
            ("2026-11-27", Some(20_784)),
            ("2026-12-31", Some(20_818)),
            ("2100-02-29", None),
            ("2026-04-31", None),
            ("2026-01-00", None),
            ("2026-13", None),
            ("2026-1", None),
            ("2026-01-1", None),
            ("2026-01-01-01", None),
            ("1969-12", None),
            ("+026-01", None),
            ("", None),
        ] {
            assert_eq!(days(text), wanted, "{text}");
        }
        let today = PriceDate::of_unix_seconds(20_784 * 86_400 + 5);
        let age = |text: &str| PriceDate::parse(text).and_then(|date| date.age_days(today));
        assert_eq!(
            [age("2026-11-27"), age("2026-11-20"), age("2026-11"), age("2026-10"), age("2026-12"), age("2026-11-28")],
            [Some(0), Some(7), Some(0), Some(27), None, None]
        );
    }
}
