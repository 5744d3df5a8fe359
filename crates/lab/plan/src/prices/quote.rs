//! A vendor's quote: CSV with a heading. Columns `medium`, `of`, `price` and `unit` have to be there; `low`, `high`, `piece_gb`, `basis`,
//! `dated`, `source` and `currency` may be. Fields may be in quotation marks, as RFC 4180 says; a line ends a record all the same.
//!
//! Units are those of a file of prices, and `USD/piece` with `piece_gb`.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use catalogue::medium::Confidence;
use catalogue::price::{Basis, Price, PriceDate, PriceUnit, USD_MOST};

use super::offers::{ImportedPrices, PriceImportOptions};
use crate::PlanError;

/// The longest line, bytes.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// The most lines.
const LINES_MAX: u64 = 10_001;
/// The most columns.
const COLUMNS_MAX: usize = 64;

const COLUMNS: [&str; 11] =
    ["medium", "of", "price", "unit", "low", "high", "piece_gb", "basis", "dated", "source", "currency"];
const NEEDED: usize = 4;

/// Reads a quote.
pub(super) fn read(input: impl Read, options: &PriceImportOptions) -> Result<ImportedPrices, PlanError> {
    let mut lines = Lines { input: BufReader::new(input), number: 0 };
    let bad = |number: u64, what: String| PlanError::BadLine { unit: "line", number, what };
    let Some(heading) = lines.next()? else { return Err(bad(1, "there is no heading".into())) };
    let names = fields(heading.trim_start_matches('\u{feff}')).map_err(|what| bad(1, what))?;
    let mut columns = HashMap::new();
    for (place, name) in names.iter().enumerate() {
        let name = name.trim().to_ascii_lowercase();
        if COLUMNS.contains(&name.as_str()) && columns.insert(name.clone(), place).is_some() {
            return Err(bad(1, format!("the column {name} is there twice")));
        }
    }
    if let Some(missing) = COLUMNS.into_iter().take(NEEDED).find(|name| !columns.contains_key(*name)) {
        return Err(bad(1, format!("there is no column {missing}; needed are medium, of, price and unit")));
    }
    let mut imported = ImportedPrices::default();
    while let Some(line) = lines.next()? {
        if line.trim().is_empty() {
            continue;
        }
        let number = lines.number;
        let values = fields(&line).map_err(|what| bad(number, what))?;
        let of = |name: &str| {
            let value = columns.get(name).and_then(|place| values.get(*place)).map(|value| value.trim());
            value.filter(|value| !value.is_empty())
        };
        imported.prices.push(price(&of, options).map_err(|what| bad(number, what))?);
    }
    Ok(imported)
}

/// The price of a line, by the name of its columns.
fn price<'a>(of: &dyn Fn(&str) -> Option<&'a str>, options: &PriceImportOptions) -> Result<Price, String> {
    let needed = |name: &str| of(name).ok_or_else(|| format!("{name} is empty"));
    let number = |name: &str, text: &str| {
        let value = text.parse::<f64>().ok().filter(|value| value.is_finite() && *value > 0.0);
        value.ok_or_else(|| format!("{name} is no number above 0; write it as 1234.50"))
    };
    let optional = |name: &str| of(name).map(|text| number(name, text)).transpose();
    if of("currency").is_some_and(|currency| currency != "USD") {
        return Err("its currency is not USD: convert it, and say so in the source".into());
    }
    let medium = needed("medium")?;
    if catalogue::media().iter().all(|one| one.name != medium) {
        return Err("its medium is none of the catalogue; `terrace tier list --media` shows them".into());
    }
    let (unit, gb) = match (needed("unit")?, optional("piece_gb")?) {
        ("USD/GB", None) => (PriceUnit::PerGb, 1.0),
        ("USD/GB-month", None) => (PriceUnit::PerGbMonth, 1.0),
        ("USD/IOPS-month", None) => (PriceUnit::PerIopsMonth, 1.0),
        ("USD/GB" | "USD/GB-month" | "USD/IOPS-month", Some(_)) => {
            return Err("piece_gb stands with the unit USD/piece only".into());
        }
        ("USD/piece", Some(gb)) => (PriceUnit::PerGb, gb),
        ("USD/piece", None) => return Err("a price of a piece needs piece_gb, the GB of its label".into()),
        _ => return Err("its unit is none of USD/piece, USD/GB, USD/GB-month, USD/IOPS-month".into()),
    };
    let basis = match of("basis") {
        Some("list") => Basis::List,
        None | Some("street") => Basis::Street,
        Some("contract") => Basis::Contract,
        Some("spot") => Basis::Spot,
        Some(_) => return Err("its basis is none of list, street, contract, spot".into()),
    };
    let dated = of("dated").or(options.dated.as_deref()).ok_or("it has no date: a column dated, or --dated")?;
    if PriceDate::parse(dated).is_none() {
        return Err("dated is no date, as 2026-11-27 or 2026-11".into());
    }
    let source = of("source").or(options.source.as_deref()).ok_or("it has no source: a column source, or --source")?;
    let value = number("price", needed("price")?)? / gb;
    let (low, high) = (optional("low")?.map(|usd| usd / gb), optional("high")?.map(|usd| usd / gb));
    let is_possible = |usd: f64| usd > 0.0 && usd < USD_MOST;
    if ![Some(value), low, high].into_iter().flatten().all(is_possible) {
        return Err("the price of a GB is not possible".into());
    }
    if low.is_some() != high.is_some() || low.zip(high).is_some_and(|(low, high)| !(low <= value && value <= high)) {
        return Err("low and high stand together, around the price".into());
    }
    Ok(Price {
        medium: medium.to_owned(),
        of: needed("of")?.to_owned(),
        value,
        low,
        high,
        unit,
        basis,
        dated: dated.to_owned(),
        source: source.to_owned(),
        confidence: Confidence::S,
    })
}

/// Lines of bounded length and number.
struct Lines<R> {
    input: BufReader<R>,
    number: u64,
}

impl<R: Read> Lines<R> {
    fn next(&mut self) -> Result<Option<String>, PlanError> {
        let mut line = Vec::new();
        let read = (&mut self.input).take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(None);
        }
        self.number += 1;
        let bad = |what: String| PlanError::BadLine { unit: "line", number: self.number, what };
        if self.number > LINES_MAX {
            return Err(bad(format!("a quote has at most {LINES_MAX} lines")));
        }
        if line.last() != Some(&b'\n') && read as u64 == LINE_BYTES_MAX {
            return Err(bad(format!("it has more than {LINE_BYTES_MAX} bytes")));
        }
        let line = String::from_utf8(line).map_err(|_| bad("it is not UTF-8".into()))?;
        Ok(Some(line.trim_end_matches(['\n', '\r']).to_owned()))
    }
}

/// The fields of a line.
fn fields(line: &str) -> Result<Vec<String>, String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars().peekable();
    let (mut is_quoted, mut was_quoted) = (false, false);
    while let Some(letter) = letters.next() {
        let Some(field) = fields.last_mut() else { break };
        match letter {
            '"' if is_quoted && letters.peek() == Some(&'"') => {
                letters.next();
                field.push('"');
            }
            '"' if is_quoted => is_quoted = false,
            '"' if field.trim().is_empty() && !was_quoted => {
                field.clear();
                (is_quoted, was_quoted) = (true, true);
            }
            ',' if !is_quoted => {
                if fields.len() == COLUMNS_MAX {
                    return Err(format!("it has more than {COLUMNS_MAX} columns"));
                }
                fields.push(String::new());
                was_quoted = false;
            }
            letter if !was_quoted || is_quoted => field.push(letter),
            letter if letter.is_whitespace() => {}
            _ => return Err("after a closing quotation mark there is something else than a comma".into()),
        }
    }
    if is_quoted { Err("a quotation mark is not closed".into()) } else { Ok(fields) }
}
