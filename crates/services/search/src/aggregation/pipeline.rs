//! Pipeline aggregations: from the buckets of a response to numbers about them.
//!
//! ```text
//!   {"by_day": {"buckets": [..]}, ..}   avg_bucket   of {"by_day>sum"}      a value beside `by_day`
//!                                       derivative   of {"sum"}             a value in each bucket of `by_day`
//! ```
//!
//! Invariant: they are made last, from the response alone; those inside of buckets before those beside them.

use serde_json::{Map, Value, json};

use super::node::{AggregationNode, Metric, NodeKind};
use super::own_kinds::OwnKind;
use super::pipeline_kinds::{Pipeline, PipelineKind};
use super::render::Renderer;
use crate::error::SearchError;
use crate::mapping::FieldKind;

/// Makes all pipeline aggregations of a response. Errors: a path that leads nowhere, or not to a number.
pub(super) fn apply(
    renderer: &Renderer,
    nodes: &[AggregationNode],
    shown: &mut Map<String, Value>,
) -> Result<(), SearchError> {
    for node in nodes.iter().filter(|node| node.has_pipeline()) {
        if let NodeKind::Pipeline(_) = node.kind {
            continue;
        }
        let Some(Value::Object(of_node)) = shown.get_mut(&renderer.name(node)) else { continue };
        match of_node.get_mut("buckets") {
            Some(Value::Array(buckets)) => within(renderer, node, buckets.iter_mut().collect())?,
            Some(Value::Object(buckets)) => within(renderer, node, buckets.values_mut().collect())?,
            _ => apply(renderer, &node.subs, of_node)?,
        }
    }
    for node in nodes {
        let NodeKind::Pipeline(pipeline) = &node.kind else { continue };
        if pipeline.kind.is_beside() {
            let mut value = beside(renderer, nodes, pipeline, shown)?;
            if let Some(meta) = &node.meta {
                value["meta"] = meta.clone();
            }
            shown.insert(renderer.name(node), value);
        }
    }
    Ok(())
}

/// The pipelines in the buckets of an aggregation.
fn within(renderer: &Renderer, node: &AggregationNode, mut buckets: Vec<&mut Value>) -> Result<(), SearchError> {
    for bucket in buckets.iter_mut().filter_map(|bucket| bucket.as_object_mut()) {
        apply(renderer, &node.subs, bucket)?;
    }
    for sub in &node.subs {
        let NodeKind::Pipeline(pipeline) = &sub.kind else { continue };
        if pipeline.kind.is_beside() {
            continue;
        }
        if !matches!(
            node.kind,
            NodeKind::Histogram { .. } | NodeKind::DateHistogram { .. } | NodeKind::Own(OwnKind::AutoDates { .. })
        ) {
            let name = &sub.name;
            return Err(SearchError::argument(format!(
                "aggregation [{name}] must have a histogram, date_histogram or auto_date_histogram as parent"
            )));
        }
        let (mut sum, mut last) = (0.0, None);
        for bucket in buckets.iter_mut().filter_map(|bucket| bucket.as_object_mut()) {
            let value = gap(value_of(renderer, &node.subs, bucket, &pipeline.path)?, bucket, pipeline);
            let shown = match pipeline.kind {
                PipelineKind::CumulativeSum => {
                    sum += value.unwrap_or(0.0);
                    Some(sum)
                }
                _ => value.zip(last).map(|(value, last): (f64, f64)| value - last),
            };
            last = value.or(last);
            if let Some(shown) = shown {
                bucket.insert(renderer.name(sub), json!({ "value": shown }));
            }
        }
    }
    Ok(())
}

/// The value of a bucket; none where it is passed over.
fn gap(value: Option<f64>, bucket: &Map<String, Value>, pipeline: &Pipeline) -> Option<f64> {
    let is_empty = bucket.get("doc_count").and_then(Value::as_u64) == Some(0) && pipeline.path != "_count";
    let value = value.filter(|value| value.is_finite() && !is_empty);
    if pipeline.zeros { value.or(Some(0.0)) } else { value }
}

/// One number about the buckets beside it.
fn beside(
    renderer: &Renderer,
    nodes: &[AggregationNode],
    pipeline: &Pipeline,
    shown: &Map<String, Value>,
) -> Result<Value, SearchError> {
    let nowhere = || SearchError::argument(format!("No aggregation found for path [{}]", pipeline.path));
    // A name can have a point: the longest name that there is.
    let rest_of = |node: &AggregationNode| {
        pipeline.path.strip_prefix(node.name.as_str())?.trim_start().strip_prefix(['>', '.']).map(str::to_owned)
    };
    let found = nodes.iter().filter_map(|node| Some((node, rest_of(node)?))).max_by_key(|(node, _)| node.name.len());
    let (node, rest) = found.ok_or_else(nowhere)?;
    let inner = Pipeline { path: rest.trim().to_owned(), ..*pipeline };
    let buckets: Vec<(Value, &Value)> = match shown.get(&renderer.name(node)).and_then(|of_node| of_node.get("buckets"))
    {
        Some(Value::Array(buckets)) => {
            let key = |bucket: &Value| bucket.get("key_as_string").unwrap_or(&bucket["key"]).clone();
            buckets.iter().map(|bucket| (key(bucket), bucket)).collect()
        }
        Some(Value::Object(buckets)) => buckets.iter().map(|(key, bucket)| (json!(key), bucket)).collect(),
        _ => {
            return Err(SearchError::argument(format!(
                "The first aggregation in [buckets_path] must be a multi-bucket aggregation: [{}] is not",
                node.name
            )));
        }
    };
    let mut values: Vec<(Value, f64)> = Vec::new();
    for (key, bucket) in buckets {
        let Some(bucket) = bucket.as_object() else { continue };
        let value = value_of(renderer, &node.subs, bucket, &inner.path)?;
        values.extend(gap(value, bucket, &inner).map(|value| (key, value)));
    }
    Ok(summed(pipeline.kind, &values))
}

fn summed(kind: PipelineKind, values: &[(Value, f64)]) -> Value {
    let numbers = || values.iter().map(|(_, value)| *value);
    let count = values.len();
    let sum: f64 = numbers().sum();
    let avg = (count > 0).then(|| sum / count as f64);
    let (min, max) = (numbers().min_by(f64::total_cmp), numbers().max_by(f64::total_cmp));
    let keys = |wanted: Option<f64>| -> Vec<String> {
        let of = values.iter().filter(|(_, value)| Some(*value) == wanted);
        of.map(|(key, _)| key.as_str().map_or_else(|| key.to_string(), str::to_owned)).collect()
    };
    match kind {
        PipelineKind::Avg => json!({ "value": avg }),
        PipelineKind::Min => json!({"value": min, "keys": keys(min)}),
        PipelineKind::Max => json!({"value": max, "keys": keys(max)}),
        PipelineKind::Stats => json!({"count": count, "min": min, "max": max, "avg": avg, "sum": sum}),
        PipelineKind::Sum | PipelineKind::CumulativeSum | PipelineKind::Derivative => json!({ "value": sum }),
    }
}

/// The number at `filter>stats.avg` in a bucket. Errors: there is none at that path.
fn value_of(
    renderer: &Renderer,
    subs: &[AggregationNode],
    bucket: &Map<String, Value>,
    path: &str,
) -> Result<Option<f64>, SearchError> {
    if path == "_count" {
        return Ok(bucket.get("doc_count").and_then(Value::as_f64));
    }
    let (first, rest) = path.split_once('>').map_or((path, None), |(first, rest)| (first, Some(rest.trim())));
    let first = first.trim();
    let nowhere = || SearchError::argument(format!("No aggregation found for path [{path}]"));
    // A name can have a point: the longest name that there is.
    let named = |sub: &&AggregationNode| {
        first.strip_prefix(sub.name.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    let sub = subs.iter().filter(named).max_by_key(|sub| sub.name.len()).ok_or_else(nowhere)?;
    let property = first[sub.name.len()..].trim_matches(['.', '[', ']']);
    let Some(shown) = bucket.get(&renderer.name(sub)) else { return Ok(None) };
    let has_many = shown.get("buckets").is_some();
    let not_a_number = |found: &str| {
        SearchError::argument(format!(
            "buckets_path must reference either a number value or a single value numeric metric aggregation, got: [{found}] at \
             aggregation [{}]",
            sub.name
        ))
    };
    if let Some(rest) = rest {
        return match shown.as_object().filter(|_| !has_many) {
            Some(inside) => value_of(renderer, &sub.subs, inside, rest),
            None => Err(not_a_number("Object[]")),
        };
    }
    match (&sub.kind, property) {
        (_, "_count" | "doc_count") => Ok(shown.get("doc_count").and_then(Value::as_f64)),
        (
            NodeKind::Percentiles { .. }
            | NodeKind::Metric { metric: Metric::Stats | Metric::ExtendedStats { .. }, .. },
            "",
        ) => Err(SearchError::argument(format!(
            "buckets_path must reference either a number value or a single value numeric metric aggregation, but [{}] contains \
                 multiple values. Please specify which to use.",
            sub.name
        ))),
        (NodeKind::Percentiles { .. }, percent) => {
            let percent: f64 = percent.parse().map_err(|_| nowhere())?;
            Ok(shown["values"].get(format!("{percent:?}")).and_then(Value::as_f64))
        }
        (kind, "") if shown.get("value").is_none() => Err(not_a_number(class_of(kind, sub.values()))),
        (_, "" | "value") => Ok(shown["value"].as_f64()),
        (_, property) => Ok(shown.get(property).ok_or_else(nowhere)?.as_f64()),
    }
}

/// What Elasticsearch calls buckets that are not a number.
fn class_of(kind: &NodeKind, values: Option<FieldKind>) -> &'static str {
    match (kind, values) {
        (NodeKind::Terms(_), Some(FieldKind::Keyword | FieldKind::Ip)) => "StringTerms",
        (NodeKind::Terms(_), Some(FieldKind::Real(_))) => "DoubleTerms",
        (NodeKind::Terms(_), Some(_)) => "LongTerms",
        (NodeKind::Terms(_), None) => "UnmappedTerms",
        (NodeKind::Histogram { .. }, _) => "InternalHistogram",
        (NodeKind::DateHistogram { .. }, _) => "InternalDateHistogram",
        (NodeKind::Filter(_), _) => "InternalFilter",
        (NodeKind::Filters { .. }, _) => "InternalFilters",
        _ => "InternalAggregation",
    }
}
