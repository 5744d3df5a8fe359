//! The parameters of `composite`: what its keys are made of, and where a page begins.

use serde_json::Value;

use super::node::{CompositeOptions, KeyBy, KeySource, Reader};
use super::options::{Options, order};
use super::rounding::interval_millis;
use crate::dates::{self, CalendarUnit, DateFormats};
use crate::error::SearchError;
use crate::mapping::FieldKind;

/// Reads the parameters. Errors: what is wrong, by name.
pub(super) fn composite(reader: &Reader<'_>, body: &Value) -> Result<CompositeOptions, SearchError> {
    let options = Options::of("composite", body)?;
    let given = options.get("sources").ok_or_else(|| SearchError::argument("Required [sources]"))?;
    let list = given.as_array().filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| SearchError::argument("Composite [sources] cannot be null or empty"))?;
    let mut sources: Vec<KeySource> = Vec::new();
    for entry in list {
        let one = entry.as_object().filter(|entry| entry.len() == 1).and_then(|entry| entry.iter().next());
        let (name, definition) =
            one.ok_or_else(|| SearchError::parsing(format!("a source of [composite] has one name, in [{entry}]")))?;
        if sources.iter().any(|known| known.name == *name) {
            return Err(SearchError::argument(format!(
                "Composite source names must be unique, found duplicates: [{name}]"
            )));
        }
        sources.push(source(reader, name, definition)?);
    }
    let size = options.count("size")?.unwrap_or(10);
    if size > 65_535 {
        return Err(crate::aggregation::too_many_buckets(65_535));
    }
    let size = u32::try_from(size).ok().filter(|size| *size > 0);
    let size = size.ok_or_else(|| SearchError::argument("[size] of [composite] is from 1 to 65535"))?;
    let after = match options.get("after") {
        None => None,
        Some(Value::Object(after)) => {
            if after.len() != sources.len() || !sources.iter().all(|source| after.contains_key(&source.name)) {
                return Err(SearchError::argument(format!(
                    "[after] has {} value(s) but [sources] has {}",
                    after.len(),
                    sources.len()
                )));
            }
            Some(after.clone())
        }
        Some(other) => return Err(SearchError::parsing(format!("[after] of [composite] cannot be [{other}]"))),
    };
    options.finish()?;
    Ok(CompositeOptions { size, sources, after })
}

fn source(reader: &Reader<'_>, name: &str, definition: &Value) -> Result<KeySource, SearchError> {
    let one = definition.as_object().filter(|entry| entry.len() == 1).and_then(|entry| entry.iter().next());
    let (type_name, body) =
        one.ok_or_else(|| SearchError::parsing(format!("source [{name}] of [composite] has one type")))?;
    let type_name = match type_name.as_str() {
        "terms" => "terms",
        "histogram" => "histogram",
        "date_histogram" => "date_histogram",
        other => return Err(SearchError::unsupported(format!("source [{other}] of aggregation [composite]"))),
    };
    let options = Options::of(type_name, body)?;
    options.refuse(&["script", "offset"])?;
    options.ignore(&["value_type"]);
    let path = options.text("field")?.ok_or_else(|| SearchError::argument("a source of [composite] needs [field]"))?;
    let kind = reader.field(path)?.map(|field| field.kind);
    let by = match type_name {
        "terms" => KeyBy::Value,
        "histogram" => {
            if kind.is_some_and(|kind| !kind.is_number()) {
                return Err(SearchError::argument(format!("Field [{path}] is not supported for source [histogram]")));
            }
            let interval = options.number("interval")?.filter(|interval| *interval > 0.0);
            KeyBy::Interval(
                interval
                    .ok_or_else(|| SearchError::argument("[interval] must be greater than 0 for [histogram] source"))?,
            )
        }
        _ => {
            if kind.is_some_and(|kind| kind != FieldKind::Date) {
                return Err(SearchError::argument(format!(
                    "Field [{path}] is not supported for source [date_histogram]"
                )));
            }
            dates_by(&options)?
        }
    };
    let descending = match options.text("order")? {
        None => false,
        Some(direction) => order(&serde_json::json!({ "_key": direction }))?.iter().any(|(_, descending)| *descending),
    };
    let missing_first = match options.text("missing_order")? {
        None | Some("default") => None,
        Some("first") => Some(true),
        Some("last") => Some(false),
        Some(other) => return Err(SearchError::parsing(format!("Unknown missing_order [{other}]"))),
    };
    let format = options.text("format")?;
    if let Some(format) = format {
        DateFormats::parse_list(format)?;
    }
    let found = KeySource {
        name: name.to_owned(),
        path: path.to_owned(),
        kind,
        by,
        descending,
        missing: options.flag("missing_bucket")?.unwrap_or(false),
        missing_first,
        format: format.map(str::to_owned),
    };
    options.finish()?;
    Ok(found)
}

/// Intervals of dates: the library has years, months and weeks of UTC, and spans of fixed length.
fn dates_by(options: &Options<'_>) -> Result<KeyBy, SearchError> {
    if let Some(zone) = options.text("time_zone")?
        && dates::zone(zone)? != jiff::tz::TimeZone::UTC
    {
        return Err(SearchError::unsupported(format!("time_zone [{zone}] in aggregation [composite]")));
    }
    // The old parameter stands for either.
    let old = options.text("interval")?;
    let of_calendar = |text: &&str| CalendarUnit::of_interval(text).is_some();
    let calendar = options.text("calendar_interval")?.or(old.filter(of_calendar));
    match (calendar, options.text("fixed_interval")?.or(old.filter(|text| !of_calendar(text)))) {
        (None, Some(fixed)) => match interval_millis(fixed, "fixed_interval")? {
            interval if interval > 0 => Ok(KeyBy::FixedDates(interval)),
            _ => Err(SearchError::argument("[fixed_interval] must be 1ms or more")),
        },
        (Some(calendar), None) => Ok(match CalendarUnit::of_interval(calendar) {
            Some(CalendarUnit::Second) => KeyBy::FixedDates(1000),
            Some(CalendarUnit::Minute) => KeyBy::FixedDates(60_000),
            Some(CalendarUnit::Hour) => KeyBy::FixedDates(3_600_000),
            Some(CalendarUnit::Day) => KeyBy::FixedDates(86_400_000),
            Some(CalendarUnit::Quarter) => {
                return Err(SearchError::unsupported("[calendar_interval: quarter] in aggregation [composite]"));
            }
            Some(unit) => KeyBy::CalendarDates(unit),
            None => return Err(SearchError::argument(format!("[calendar_interval] cannot be [{calendar}]"))),
        }),
        _ => Err(SearchError::argument("a source [date_histogram] has [calendar_interval] or [fixed_interval]")),
    }
}
