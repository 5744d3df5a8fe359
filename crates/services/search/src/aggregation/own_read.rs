//! The parameters of the aggregations that the library lacks. One function for each type.

use std::net::Ipv6Addr;

use serde_json::Value;

use super::fields::{check_order, field, numbers_only};
use super::key_value::KeyValue;
use super::node::{AggregationNode, Reader};
use super::options::{Options, order};
use super::own_kinds::{
    IpRangeOption, MultiTermsOptions, OwnKind, Quantiles, RareTermsOptions, TermSource, WeightedPart,
};
use crate::dates::CalendarUnit;
use crate::document;
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};

/// Reads an aggregation that is made here; none if the type is not one of them. Errors: what is wrong, by name.
pub(super) fn read(
    reader: &Reader<'_>,
    node: &mut AggregationNode,
    type_name: &str,
    body: &Value,
) -> Result<Option<OwnKind>, SearchError> {
    Ok(Some(match type_name {
        "percentile_ranks" => ranks(reader, node, body)?,
        "median_absolute_deviation" => deviation(reader, node, body)?,
        "weighted_avg" => weighted(reader, node, body)?,
        "multi_terms" => multi_terms(reader, node, body)?,
        "rare_terms" => rare_terms(reader, node, body)?,
        "ip_range" => ip_range(reader, node, body)?,
        "adjacency_matrix" => adjacency(node, body)?,
        "auto_date_histogram" => auto_dates(reader, node, body)?,
        _ => return Ok(None),
    }))
}

/// The method of `percentiles` and `percentile_ranks`. Errors: both, or a parameter that is wrong.
pub(super) fn method(node: &AggregationNode, options: &Options<'_>) -> Result<Quantiles, SearchError> {
    let part = |name: &'static str, key: &str| -> Result<Option<Option<Value>>, SearchError> {
        let Some(value) = options.get(name) else { return Ok(None) };
        let object = value.as_object().ok_or_else(|| SearchError::parsing(format!("[{name}] is an object")))?;
        match object.keys().find(|other| *other != key && *other != "execution_hint") {
            Some(other) => Err(SearchError::parsing(format!("[{name}] unknown field [{other}]"))),
            None => Ok(Some(object.get(key).cloned())),
        }
    };
    let name = &node.name;
    match (part("tdigest", "compression")?, part("hdr", "number_of_significant_value_digits")?) {
        (Some(_), Some(_)) => Err(SearchError::parsing("only one of [tdigest] and [hdr] can be given")),
        (None, Some(digits)) => {
            let digits = match digits {
                None => 3,
                Some(digits) => digits.as_i64().ok_or_else(|| {
                    SearchError::parsing("[number_of_significant_value_digits] of [hdr] is a whole number")
                })?,
            };
            match u32::try_from(digits).ok().filter(|digits| *digits <= 5) {
                Some(digits) => Ok(Quantiles::Rounded(digits)),
                None => Err(SearchError::argument(format!(
                    "[numberOfSignificantValueDigits] must be between 0 and 5: [{name}]"
                ))),
            }
        }
        (digest, None) => {
            let compression = match digest.flatten() {
                None => 100.0,
                Some(value) => document::real(&value)
                    .map_err(|_| SearchError::parsing("[compression] of [tdigest] is a number"))?,
            };
            match compression >= 0.0 {
                true => Ok(Quantiles::Digest(compression)),
                false => Err(SearchError::argument(format!(
                    "[compression] must be greater than or equal to 0. Found [{compression:?}] in [{name}]"
                ))),
            }
        }
    }
}

fn ranks(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("percentile_ranks", body)?;
    field(reader, node, &options)?;
    numbers_only(node, &options)?;
    let values = options.get("values").and_then(Value::as_array).filter(|values| !values.is_empty());
    let values = values.ok_or_else(|| SearchError::argument("[values] must not be null or empty"))?;
    let number = |value: &Value| document::real(value).map_err(SearchError::parsing);
    let values = values.iter().map(number).collect::<Result<Vec<_>, _>>()?;
    let (keyed, missing) = (options.flag("keyed")?.unwrap_or(true), options.number("missing")?);
    let method = method(node, &options)?;
    options.finish()?;
    Ok(OwnKind::PercentileRanks { values, keyed, missing, method })
}

fn deviation(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("median_absolute_deviation", body)?;
    field(reader, node, &options)?;
    numbers_only(node, &options)?;
    let (compression, missing) = (options.number("compression")?.unwrap_or(1000.0), options.number("missing")?);
    options.finish()?;
    if compression <= 0.0 {
        let name = &node.name;
        return Err(SearchError::argument(format!(
            "[compression] must be greater than 0. Found [{compression:?}] in [{name}]"
        )));
    }
    Ok(OwnKind::Deviation { compression, missing })
}

fn weighted(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("weighted_avg", body)?;
    let part = |name: &'static str| -> Result<WeightedPart, SearchError> {
        let value = options.get(name);
        let value = value.ok_or_else(|| SearchError::argument(format!("[{name}] of [weighted_avg] is missing")))?;
        let part = Options::of("weighted_avg", value)?;
        part.refuse(&["script"])?;
        let path = part.text("field")?;
        let path = path.ok_or_else(|| SearchError::argument(format!("[{name}] of [weighted_avg] needs a [field]")))?;
        if let Some(field) = reader.field(path)?.filter(|field| !is_number(field)) {
            let type_name = &field.type_name;
            return Err(SearchError::argument(format!(
                "Field [{path}] of type [{type_name}] is not supported for aggregation [weighted_avg]"
            )));
        }
        let missing = part.number("missing")?;
        part.finish()?;
        Ok(WeightedPart { path: path.to_owned(), missing })
    };
    let (value, weight) = (part("value")?, part("weight")?);
    options.refuse(&["format"])?;
    options.ignore(&["value_type"]);
    options.finish()?;
    node.path = Some(value.path.clone());
    Ok(OwnKind::WeightedAvg { value, weight })
}

fn is_number(field: &MappedField) -> bool {
    field.kind.is_number() || matches!(field.kind, FieldKind::Date | FieldKind::Boolean)
}

fn multi_terms(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("multi_terms", body)?;
    let list = options.get("terms").and_then(Value::as_array).filter(|list| list.len() >= 2);
    let list = list.ok_or_else(|| {
        SearchError::argument("multi term aggregation must has at least 2 terms: [terms] of [multi_terms]")
    })?;
    let mut sources = Vec::new();
    for entry in list {
        let source = Options::of("multi_terms", entry)?;
        source.refuse(&["script"])?;
        source.ignore(&["value_type"]);
        let path = source.text("field")?;
        let path = path.ok_or_else(|| SearchError::argument("an entry of [terms] in [multi_terms] needs a [field]"))?;
        let field = reader.field(path)?;
        let missing = source.get("missing").map(|value| KeyValue::of_json(value, field.as_deref())).transpose()?;
        let format = match source.text("format")? {
            Some(format) => format.to_owned(),
            None => field.as_ref().map_or_else(|| node.format.clone(), |field| field.formats.first().to_owned()),
        };
        source.finish()?;
        sources.push(TermSource { path: path.to_owned(), format, missing });
    }
    options.ignore(&["shard_size", "shard_min_doc_count", "show_term_doc_count_error", "collect_mode"]);
    let order = options.get("order").map(order).transpose()?.unwrap_or_default();
    check_order(&order, &node.subs)?;
    let size = options.count("size")?.unwrap_or(10);
    if size == 0 {
        return Err(SearchError::argument("[size] must be greater than 0. Found [0] in [multi_terms]"));
    }
    let size = usize::try_from(size).unwrap_or(usize::MAX);
    let min_doc_count = options.count("min_doc_count")?.unwrap_or(1);
    options.finish()?;
    Ok(OwnKind::MultiTerms(MultiTermsOptions { sources, size, min_doc_count, order }))
}

fn rare_terms(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("rare_terms", body)?;
    field(reader, node, &options)?;
    options.ignore(&["precision"]);
    let most = options.count("max_doc_count")?.unwrap_or(1);
    if !(1..=100).contains(&most) {
        return Err(SearchError::argument(format!("[max_doc_count] must be from 1 to 100, not [{most}]")));
    }
    let of_json = |value: &Value| KeyValue::of_json(value, node.field.as_deref());
    let list = |name: &'static str| match options.get(name) {
        None => Ok(None),
        Some(Value::Array(values)) => values.iter().map(of_json).collect::<Result<Vec<_>, _>>().map(Some),
        Some(Value::String(_)) if !matches!(node.values(), None | Some(FieldKind::Keyword)) => {
            let of = &node.name;
            Err(SearchError::argument(format!(
                "Aggregation [{of}] cannot support regular expression style include/exclude settings as they can only be applied \
                 to string fields. Use an array of values for include/exclude clauses"
            )))
        }
        Some(_) => Err(SearchError::unsupported(format!("[{name}] of aggregation [rare_terms] other than a list"))),
    };
    let missing = options.get("missing").map(of_json).transpose()?;
    let found = RareTermsOptions { most, missing, include: list("include")?, exclude: list("exclude")? };
    options.finish()?;
    Ok(OwnKind::RareTerms(found))
}

/// The first and the last address of `10.0.0.0/25`, the last one exclusive; none at the end of all addresses.
fn mask(text: &str) -> Option<(Ipv6Addr, Option<Ipv6Addr>)> {
    let (address, bits) = text.split_once('/')?;
    let is_four = !address.contains(':');
    let bits = bits.parse::<u32>().ok().filter(|bits| *bits <= if is_four { 32 } else { 128 })?;
    let bits = if is_four { bits + 96 } else { bits };
    let first = u128::from(document::address(address).ok()?);
    let span = 1_u128.checked_shl(128 - bits);
    let first = span.map_or(0, |span| first & !(span - 1));
    Some((first.into(), span.and_then(|span| first.checked_add(span)).map(Ipv6Addr::from)))
}

fn ip_range(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("ip_range", body)?;
    field(reader, node, &options)?;
    if let Some(field) = node.field.as_ref().filter(|field| field.kind != FieldKind::Ip) {
        return Err(SearchError::argument(format!(
            "Field [{}] of type [{}] is not supported for aggregation [ip_range]",
            field.path, field.type_name
        )));
    }
    let list = options.get("ranges").and_then(Value::as_array).filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| SearchError::argument("No [ranges] specified for the [ip_range] aggregation"))?;
    let mut ranges = Vec::new();
    for entry in list {
        let range = Options::of("ip_range", entry)?;
        let key = range.text("key")?.map(str::to_owned);
        let end = |name: &'static str| -> Result<Option<Ipv6Addr>, SearchError> {
            let text = range.text(name)?;
            text.map(|text| document::address(text).map_err(SearchError::argument)).transpose()
        };
        let found = match range.text("mask")? {
            Some(text) => {
                let (from, to) = mask(text)
                    .ok_or_else(|| SearchError::argument(format!("'{text}' is not an IP string literal.")))?;
                let from = Some(from).filter(|from| u128::from(*from) > 0);
                IpRangeOption { key: key.or_else(|| Some(text.to_owned())), from, to }
            }
            None => IpRangeOption { key, from: end("from")?, to: end("to")? },
        };
        range.finish()?;
        ranges.push(found);
    }
    ranges.sort_by_key(|range| (range.from, range.to.is_none(), range.to));
    let keyed = options.flag("keyed")?.unwrap_or(false);
    options.refuse(&["missing"])?;
    options.finish()?;
    Ok(OwnKind::IpRange { ranges, keyed })
}

fn adjacency(node: &AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("adjacency_matrix", body)?;
    let filters = options.get("filters").and_then(Value::as_object).filter(|filters| !filters.is_empty());
    let filters = filters.ok_or_else(|| SearchError::argument("[filters] of [adjacency_matrix] cannot be empty"))?;
    // Elasticsearch's `indices.query.bool.max_clause_count` bounds them too; each pair is a bucket.
    const FILTERS_MAX: usize = 100;
    if filters.len() > FILTERS_MAX {
        return Err(SearchError::argument(format!(
            "Number of filters is too large, must be less than or equal to: [{FILTERS_MAX}] but was [{}] in [{}]",
            filters.len(),
            node.name
        )));
    }
    let mut filters: Vec<(String, Value)> = filters.iter().map(|(name, query)| (name.clone(), query.clone())).collect();
    filters.sort_by(|a, b| a.0.cmp(&b.0));
    let separator = options.text("separator")?.unwrap_or("&").to_owned();
    let pairs_only = options.flag("show_only_intersecting")?.unwrap_or(false);
    options.finish()?;
    Ok(OwnKind::Adjacency { filters, separator, pairs_only })
}

fn auto_dates(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<OwnKind, SearchError> {
    let options = Options::of("auto_date_histogram", body)?;
    field(reader, node, &options)?;
    if let Some(field) = node.field.as_ref().filter(|field| field.kind != FieldKind::Date) {
        return Err(SearchError::argument(format!(
            "Field [{}] of type [{}] is not supported for aggregation [auto_date_histogram]",
            field.path, field.type_name
        )));
    }
    let buckets = options.count("buckets")?.unwrap_or(10);
    let buckets = u32::try_from(buckets).ok().filter(|buckets| (1..=10_000).contains(buckets));
    let buckets = buckets.ok_or_else(|| {
        SearchError::argument("[buckets] must be greater than 0 and at most 10000 in [auto_date_histogram]")
    })?;
    let least = match options.text("minimum_interval")? {
        None => None,
        Some(text) => Some(CalendarUnit::of_interval(text).ok_or_else(|| {
            SearchError::argument(format!(
                "minimum_interval must be one of [year, month, day, hour, minute, second], not [{text}]"
            ))
        })?),
    };
    options.refuse(&["missing"])?;
    options.finish()?;
    Ok(OwnKind::AutoDates { buckets, least })
}
