//! [`NodeKind`]: what an aggregation does, with its parameters read. One function for each type; a type that Elasticsearch has
//! and that is not built is refused by its name.

use serde_json::Value;

use super::fields::{check_native_order, field, of_numbers, only};
use super::node::{AggregationNode, HistogramOptions, HitOrder, Metric, NodeKind, RangeOption, Reader, TermsOptions};
use super::options::{Options, order};
use super::own_kinds::OwnKind;
use super::own_read;
use super::pipeline_kinds;
use super::rounding::{DateRounding, interval_millis};
use super::sources;
use crate::dates::{CalendarUnit, DateContext, DateFormats, Rounding};
use crate::document;
use crate::error::SearchError;
use crate::mapping::FieldKind;

/// The most hits of a top_hits aggregation.
const TOP_HITS_MAX: u64 = 100;

/// Types of Elasticsearch that are not built here.
const NOT_BUILT: &[&str] = &[
    "boxplot",
    "bucket_correlation",
    "bucket_count_ks_test",
    "bucket_script",
    "bucket_selector",
    "bucket_sort",
    "categorize_text",
    "change_point",
    "children",
    "cumulative_cardinality",
    "diversified_sampler",
    "extended_stats_bucket",
    "frequent_item_sets",
    "geo_bounds",
    "geo_centroid",
    "geo_distance",
    "geo_line",
    "geohash_grid",
    "geohex_grid",
    "geotile_grid",
    "inference",
    "ip_prefix",
    "matrix_stats",
    "moving_avg",
    "moving_fn",
    "moving_percentiles",
    "nested",
    "normalize",
    "parent",
    "percentiles_bucket",
    "random_sampler",
    "rate",
    "reverse_nested",
    "sampler",
    "scripted_metric",
    "serial_diff",
    "significant_terms",
    "significant_text",
    "string_stats",
    "t_test",
    "time_series",
    "top_metrics",
    "variable_width_histogram",
];

/// Reads an aggregation's type and parameters into its node. Errors: what is wrong, by name.
pub(super) fn read(
    reader: &Reader<'_>,
    mut node: AggregationNode,
    (type_name, depth): (&str, usize),
    body: &Value,
) -> Result<AggregationNode, SearchError> {
    if let Some(own) = own_read::read(reader, &mut node, type_name, body)? {
        node.kind = NodeKind::Own(own);
        return Ok(node);
    }
    if let Some(pipeline) = pipeline_kinds::read(&node.name, (type_name, depth), body)? {
        node.kind = NodeKind::Pipeline(pipeline);
        return Ok(node);
    }
    node.kind = match type_name {
        "terms" => terms(reader, &mut node, body)?,
        "histogram" => histogram(reader, &mut node, body)?,
        "date_histogram" => date_histogram(reader, &mut node, body)?,
        "range" => range(reader, &mut node, body)?,
        "date_range" => date_range(reader, &mut node, body)?,
        "filter" => NodeKind::Filter(body.clone()),
        "filters" => filters(body)?,
        "missing" => {
            let options = Options::of("missing", body)?;
            field(reader, &mut node, &options)?;
            // With a value for the documents without one, no document is without one.
            let missing = options.get("missing").is_some();
            options.finish()?;
            if missing { NodeKind::Filter(serde_json::json!({"match_none": {}})) } else { NodeKind::Missing }
        }
        "global" => {
            Options::of("global", body)?.finish()?;
            NodeKind::Global
        }
        "avg" => metric(reader, &mut node, ("avg", body), Metric::Avg)?,
        "sum" => metric(reader, &mut node, ("sum", body), Metric::Sum)?,
        "min" => metric(reader, &mut node, ("min", body), Metric::Min)?,
        "max" => metric(reader, &mut node, ("max", body), Metric::Max)?,
        "stats" => metric(reader, &mut node, ("stats", body), Metric::Stats)?,
        "extended_stats" => metric(reader, &mut node, ("extended_stats", body), Metric::ExtendedStats { sigma: None })?,
        "value_count" => metric(reader, &mut node, ("value_count", body), Metric::ValueCount)?,
        "percentiles" => percentiles(reader, &mut node, (body, depth))?,
        "cardinality" => {
            let options = Options::of("cardinality", body)?;
            field(reader, &mut node, &options)?;
            options.ignore(&["execution_hint", "rehash"]);
            if let Some(least) = options.number("precision_threshold")?.filter(|least| *least < 0.0) {
                let name = &node.name;
                return Err(SearchError::argument(format!(
                    "[precisionThreshold] must be greater than or equal to 0. Found [{least}] in [{name}]"
                )));
            }
            let missing = options.get("missing").cloned();
            options.finish()?;
            NodeKind::Cardinality { missing }
        }
        "composite" => NodeKind::Composite(sources::composite(reader, body)?),
        "top_hits" => top_hits(reader, body)?,
        known if NOT_BUILT.contains(&known) => {
            return Err(SearchError::unsupported(format!("aggregation [{known}]")));
        }
        other => return Err(SearchError::parsing(format!("Unknown aggregation type [{other}]"))),
    };
    Ok(node)
}

fn terms(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<NodeKind, SearchError> {
    let options = Options::of("terms", body)?;
    field(reader, node, &options)?;
    options.ignore(&["execution_hint", "collect_mode", "show_term_doc_count_error", "shard_min_doc_count"]);
    let size = options.count("size")?.unwrap_or(10);
    if size == 0 {
        return Err(SearchError::argument("[size] must be greater than 0. Found [0] in [terms]"));
    }
    let order = options.get("order").map(order).transpose()?.unwrap_or_default();
    check_native_order(&order, &node.subs)?;
    let (include, exclude) = (options.get("include").cloned(), options.get("exclude").cloned());
    for value in include.iter().chain(&exclude) {
        match value {
            Value::Array(_) => {}
            Value::String(_) if options.get("missing").is_some() => {
                return Err(SearchError::unsupported("a regular expression in [include] or [exclude] with [missing]"));
            }
            Value::String(_) if matches!(node.values(), None | Some(FieldKind::Keyword)) => {}
            Value::String(_) => {
                return Err(SearchError::argument(
                    "Aggregation [terms] cannot support regular expression style include/exclude settings as they can only be \
                     applied to string fields. Use an array of values for include/exclude clauses",
                ));
            }
            _ => return Err(SearchError::unsupported("partitions in [include] of aggregation [terms]")),
        }
    }
    let shard_size = options.count("shard_size")?.unwrap_or(0);
    let found = TermsOptions {
        size: u32::try_from(size).unwrap_or(u32::MAX),
        shard_size: u32::try_from(shard_size).unwrap_or(u32::MAX),
        min_doc_count: options.count("min_doc_count")?.unwrap_or(1),
        order,
        missing: options.get("missing").cloned(),
        include,
        exclude,
    };
    options.finish()?;
    Ok(NodeKind::Terms(found))
}

fn histogram_options(
    node: &AggregationNode,
    options: &Options<'_>,
    bound: &dyn Fn(&Value) -> Result<f64, SearchError>,
) -> Result<HistogramOptions, SearchError> {
    let bounds = |name: &'static str| -> Result<Option<(f64, f64)>, SearchError> {
        let Some(value) = options.get(name) else { return Ok(None) };
        let end = |end: &str, none: f64| value.get(end).filter(|end| !end.is_null()).map_or(Ok(none), bound);
        let (min, max) = (end("min", f64::NEG_INFINITY)?, end("max", f64::INFINITY)?);
        if min > max {
            return Err(SearchError::argument(format!(
                "[{name}.min][{min}] cannot be greater than [{name}.max][{max}]"
            )));
        }
        Ok(Some((min, max)))
    };
    let mut order = options.get("order").map(order).transpose()?.unwrap_or_default();
    // The old name of the key of a date.
    order.iter_mut().filter(|(name, _)| name == "_time").for_each(|(name, _)| *name = "_key".to_owned());
    check_native_order(&order, &node.subs)?;
    let found = HistogramOptions {
        min_doc_count: options.count("min_doc_count")?.unwrap_or(0),
        extended: bounds("extended_bounds")?,
        hard: bounds("hard_bounds")?,
        keyed: options.flag("keyed")?.unwrap_or(false),
        order,
    };
    let outside = |(extended, hard): ((f64, f64), (f64, f64))| extended.0 < hard.0 || extended.1 > hard.1;
    if found.extended.zip(found.hard).is_some_and(outside) {
        return Err(SearchError::argument("Extended bounds have to be inside hard bounds"));
    }
    options.refuse(&["missing"])?;
    options.finish()?;
    Ok(found)
}

fn histogram(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<NodeKind, SearchError> {
    let options = Options::of("histogram", body)?;
    field(reader, node, &options)?;
    only(node, &options, FieldKind::is_number)?;
    let interval = options.number("interval")?.filter(|interval| *interval > 0.0);
    let interval =
        interval.ok_or_else(|| SearchError::argument("[interval] must be >0 for histogram aggregation [histogram]"))?;
    let offset = options.number("offset")?.unwrap_or(0.0);
    let bound = |value: &Value| document::real(value).map_err(SearchError::argument);
    let buckets = histogram_options(node, &options, &bound)?;
    Ok(NodeKind::Histogram { interval, offset, buckets })
}

fn date_histogram(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<NodeKind, SearchError> {
    let options = Options::of("date_histogram", body)?;
    field(reader, node, &options)?;
    only(node, &options, |kind| kind == FieldKind::Date)?;
    options.refuse(&["interval"])?;
    let offset = options.text("offset")?.map_or(Ok(0), |text| interval_millis(text, "offset"))?;
    let zone = node.zone.clone();
    let rounding = match (options.text("calendar_interval")?, options.text("fixed_interval")?) {
        (Some(calendar), None) => {
            let unit = CalendarUnit::of_interval(calendar).ok_or_else(|| {
                SearchError::argument(format!(
                    "The supplied interval [{calendar}] could not be parsed as a calendar interval."
                ))
            })?;
            DateRounding::calendar(unit, zone, offset)
        }
        (None, Some(fixed)) => {
            let interval = interval_millis(fixed, "fixed_interval")?;
            if interval <= 0 {
                return Err(SearchError::argument("[fixed_interval] must be 1ms or more"));
            }
            DateRounding::fixed(interval, zone, offset)
        }
        (Some(_), Some(_)) => {
            return Err(SearchError::argument("Cannot use [fixed_interval] with [calendar_interval]"));
        }
        (None, None) => {
            return Err(SearchError::argument("Invalid interval specified, must be non-null and non-empty"));
        }
    };
    let context = DateContext { now: reader.now, zone: node.zone.clone() };
    let formats = match &node.field {
        Some(field) => field.formats.clone(),
        None => DateFormats::default(),
    };
    let bound = |value: &Value| match value {
        Value::Number(_) => document::real(value).map_err(SearchError::argument),
        text => formats.query(text, Rounding::Down, &context).map(|millis| millis as f64),
    };
    let buckets = histogram_options(node, &options, &bound)?;
    Ok(NodeKind::DateHistogram { rounding, buckets })
}

/// The ranges of `range` and `date_range`.
fn ranges(
    options: &Options<'_>,
    end: &dyn Fn(&Value) -> Result<f64, SearchError>,
) -> Result<Vec<RangeOption>, SearchError> {
    let type_name = options.type_name;
    let list = options.get("ranges").and_then(Value::as_array).filter(|list| !list.is_empty());
    let list =
        list.ok_or_else(|| SearchError::argument(format!("No [ranges] specified for the [{type_name}] aggregation")))?;
    let mut found = Vec::new();
    for range in list {
        let range =
            range.as_object().ok_or_else(|| SearchError::parsing(format!("a range is an object, not [{range}]")))?;
        if let Some(key) = range.keys().find(|key| !matches!(key.as_str(), "key" | "from" | "to")) {
            return Err(SearchError::parsing(format!("[{type_name}] unknown field [{key}] in a range")));
        }
        let side = |name: &str| range.get(name).filter(|value| !value.is_null()).map(end).transpose();
        let key = range.get("key").and_then(Value::as_str).map(str::to_owned);
        found.push(RangeOption { key, from: side("from")?, to: side("to")? });
    }
    let order = |end: Option<f64>, none: f64| end.unwrap_or(none);
    found.sort_by(|a, b| {
        let from = order(a.from, f64::NEG_INFINITY).total_cmp(&order(b.from, f64::NEG_INFINITY));
        from.then(order(a.to, f64::INFINITY).total_cmp(&order(b.to, f64::INFINITY)))
    });
    Ok(found)
}

fn range(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<NodeKind, SearchError> {
    let options = Options::of("range", body)?;
    field(reader, node, &options)?;
    only(node, &options, of_numbers)?;
    let of_dates = node.values() == Some(FieldKind::Date);
    let ranges = ranges(&options, &|value| document::real(value).map_err(SearchError::parsing))?;
    let keyed = options.flag("keyed")?.unwrap_or(false);
    options.refuse(&["missing"])?;
    options.finish()?;
    Ok(NodeKind::Range { ranges, keyed, of_dates })
}

fn date_range(reader: &Reader<'_>, node: &mut AggregationNode, body: &Value) -> Result<NodeKind, SearchError> {
    let options = Options::of("date_range", body)?;
    field(reader, node, &options)?;
    only(node, &options, |kind| kind == FieldKind::Date)?;
    let formats = match (options.text("format")?, &node.field) {
        (Some(format), _) => DateFormats::parse_list(format)?,
        (None, Some(field)) => field.formats.clone(),
        (None, None) => DateFormats::default(),
    };
    let context = DateContext { now: reader.now, zone: node.zone.clone() };
    let ranges = ranges(&options, &|value| match value {
        // A number is milliseconds unless a format of the field reads it.
        Value::Number(_) => match formats.query(value, Rounding::Down, &context) {
            Ok(millis) => Ok(millis as f64),
            Err(_) => document::real(value).map_err(SearchError::parsing),
        },
        text => formats.query(text, Rounding::Down, &context).map(|millis| millis as f64),
    })?;
    let keyed = options.flag("keyed")?.unwrap_or(false);
    options.refuse(&["missing"])?;
    options.finish()?;
    Ok(NodeKind::Range { ranges, keyed, of_dates: true })
}

fn filters(body: &Value) -> Result<NodeKind, SearchError> {
    let options = Options::of("filters", body)?;
    let (filters, named): (Vec<(Option<String>, Value)>, bool) = match options.get("filters") {
        Some(Value::Object(map)) => {
            (map.iter().map(|(name, query)| (Some(name.clone()), query.clone())).collect(), true)
        }
        Some(Value::Array(list)) => (list.iter().map(|query| (None, query.clone())).collect(), false),
        None => return Err(SearchError::argument("[filters] cannot be empty")),
        _ => return Err(SearchError::parsing("[filters] needs the parameter [filters]")),
    };
    if filters.is_empty() {
        return Err(SearchError::argument("[filters] cannot be empty"));
    }
    let key = options.text("other_bucket_key")?;
    let wanted = options.flag("other_bucket")?.unwrap_or(key.is_some());
    let keyed = options.flag("keyed")?.unwrap_or(true) && named;
    options.finish()?;
    Ok(NodeKind::Filters { filters, other: wanted.then(|| key.unwrap_or("_other_").to_owned()), keyed })
}

fn metric(
    reader: &Reader<'_>,
    node: &mut AggregationNode,
    (type_name, body): (&'static str, &Value),
    metric: Metric,
) -> Result<NodeKind, SearchError> {
    let options = Options::of(type_name, body)?;
    field(reader, node, &options)?;
    let metric = match metric {
        Metric::ExtendedStats { .. } => {
            let sigma = options.number("sigma")?;
            if let Some(sigma) = sigma.filter(|sigma| *sigma < 0.0) {
                let name = &node.name;
                return Err(SearchError::argument(format!(
                    "[sigma] must be greater than or equal to 0. Found [{sigma:?}] in [{name}]"
                )));
            }
            Metric::ExtendedStats { sigma }
        }
        other => other,
    };
    match metric {
        Metric::ValueCount => {}
        Metric::ExtendedStats { .. } => only(node, &options, of_numbers)?,
        _ => only(node, &options, |kind| of_numbers(kind) || kind == FieldKind::Boolean)?,
    }
    if node.values().is_some_and(|kind| !kind.is_number()) {
        options.refuse(&["missing"])?;
    }
    let missing = options.number("missing")?;
    options.finish()?;
    Ok(NodeKind::Metric { metric, missing })
}

fn percentiles(
    reader: &Reader<'_>,
    node: &mut AggregationNode,
    (body, depth): (&Value, usize),
) -> Result<NodeKind, SearchError> {
    let options = Options::of("percentiles", body)?;
    field(reader, node, &options)?;
    only(node, &options, of_numbers)?;
    let method = own_read::method(node, &options)?;
    options.not_null("percents")?;
    let wrong = |value: &Value| SearchError::argument(format!("[percents] cannot be [{value}]: each is from 0 to 100"));
    let percents = match options.get("percents") {
        None => vec![1.0, 5.0, 25.0, 50.0, 75.0, 95.0, 99.0],
        Some(Value::Array(list)) if !list.is_empty() => {
            let percent = |value: &Value| {
                let percent = document::real(value).ok().filter(|percent| (0.0..=100.0).contains(percent));
                percent.ok_or_else(|| wrong(value))
            };
            list.iter().map(percent).collect::<Result<_, _>>()?
        }
        Some(other) => return Err(wrong(other)),
    };
    if node.values() == Some(FieldKind::Date) {
        options.refuse(&["missing"])?;
    }
    let (keyed, missing) = (options.flag("keyed")?.unwrap_or(true), options.number("missing")?);
    options.finish()?;
    // Inside of buckets the library counts, within 1 % of the value.
    Ok(match depth {
        1 => NodeKind::Own(OwnKind::Percentiles { percents, keyed, missing, method }),
        _ => NodeKind::Percentiles { percents, keyed, missing },
    })
}

fn top_hits(reader: &Reader<'_>, body: &Value) -> Result<NodeKind, SearchError> {
    // The library's hits do not say of which index they are, and the numbers of documents of two indices are not distinct.
    if reader.views.len() > 1 {
        return Err(SearchError::unsupported("aggregation [top_hits] over several indices"));
    }
    let options = Options::of("top_hits", body)?;
    let (from, size) = (options.count("from")?.unwrap_or(0), options.count("size")?.unwrap_or(3));
    if from.saturating_add(size) > TOP_HITS_MAX {
        return Err(SearchError::argument(format!(
            "Top hits result window is too large: from + size must be less than or equal to: [{TOP_HITS_MAX}]"
        )));
    }
    let mut sort = Vec::new();
    for (path, descending) in options.get("sort").map(order).transpose()?.unwrap_or_default() {
        if path == "_doc" {
            continue;
        }
        let kind = match reader.field(&path)? {
            Some(field) if of_numbers(field.kind) => field.kind,
            Some(field) => {
                let type_name = &field.type_name;
                return Err(SearchError::unsupported(format!(
                    "[sort] of [top_hits] by [{path}] of type [{type_name}]"
                )));
            }
            None if path.starts_with('_') => {
                return Err(SearchError::unsupported(format!("[sort] of [top_hits] by [{path}]")));
            }
            None => return Err(SearchError::argument(format!("No mapping found for [{path}] in order to sort on"))),
        };
        sort.push(HitOrder { path, kind: Some(kind), descending });
    }
    let source = options.get("_source").cloned();
    options.ignore(&["track_scores"]);
    options.finish()?;
    Ok(NodeKind::TopHits { sort, from, size, source })
}
