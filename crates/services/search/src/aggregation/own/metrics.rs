//! Numbers about the values of documents that the library does not have, or has by another method.

use serde_json::{Map, Value, json};

use super::OwnRun;
use super::digest::Digest;
use super::docs::DocSets;
use super::rounded::RoundedCounts;
use super::values::Values;
use crate::aggregation::node::AggregationNode;
use crate::aggregation::own_kinds::{Quantiles, WeightedPart};
use crate::error::SearchError;
use crate::mapping::FieldKind;

/// Counts of values from which quantiles are read.
enum Counted {
    Digest(Digest),
    Rounded(RoundedCounts),
}

impl Counted {
    fn quantile(&mut self, quantile: f64) -> Option<f64> {
        match self {
            Counted::Digest(digest) => digest.quantile(quantile),
            Counted::Rounded(counts) => counts.quantile(quantile),
        }
    }

    fn share(&mut self, value: f64) -> Option<f64> {
        match self {
            Counted::Digest(digest) => digest.share(value),
            Counted::Rounded(counts) => counts.share(value),
        }
    }
}

impl OwnRun<'_> {
    /// Calls `with` for every number of the field, or for `missing` where a document has none.
    fn each_number(
        &self,
        (path, missing): (&str, Option<f64>),
        docs: &DocSets,
        with: &mut dyn FnMut(f64) -> Result<(), SearchError>,
    ) -> Result<(), SearchError> {
        let mut found = Vec::new();
        for (number, view) in self.views.iter().enumerate() {
            for (segment, reader) in view.searcher.segment_readers().iter().enumerate() {
                let docs = &docs.of_index[number][segment];
                if docs.is_empty() || self.budget.is_over()? {
                    continue;
                }
                let values = Values::of(view, reader, path)?;
                for doc in docs.iter() {
                    values.numbers(*doc, &mut found);
                    match (found.is_empty(), missing) {
                        (true, Some(missing)) => with(missing)?,
                        _ => found.iter().try_for_each(|value| with(*value))?,
                    }
                }
            }
        }
        Ok(())
    }

    fn counted(
        &self,
        node: &AggregationNode,
        (missing, method): (Option<f64>, Quantiles),
        docs: &DocSets,
    ) -> Result<Counted, SearchError> {
        let path = node.path.as_deref().unwrap_or_default();
        Ok(match method {
            Quantiles::Digest(compression) => {
                let mut digest = Digest::new(compression);
                self.each_number((path, missing), docs, &mut |value| {
                    digest.add(value);
                    Ok(())
                })?;
                Counted::Digest(digest)
            }
            Quantiles::Rounded(digits) => {
                let mut counts = RoundedCounts::new(digits);
                self.each_number((path, missing), docs, &mut |value| counts.add(value))?;
                Counted::Rounded(counts)
            }
        })
    }

    /// The values at percents; or, with `ranks`, the percents at values.
    pub(super) fn percentiles(
        &self,
        node: &AggregationNode,
        (places, keyed, ranks): (&[f64], bool, bool),
        counted: (Option<f64>, Quantiles),
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let mut counted = self.counted(node, counted, docs)?;
        let (mut map, mut list) = (Map::new(), Vec::new());
        for place in places {
            let value = match ranks {
                true => counted.share(*place).map(|share| share * 100.0),
                false => counted.quantile(place / 100.0),
            };
            let name = format!("{place:?}");
            let mut entry = json!({"key": place, "value": value});
            if let (Some(value), Some(FieldKind::Date), false) = (value, node.values(), ranks) {
                let text = node.date(value.round() as i64)?;
                entry["value_as_string"] = json!(text);
                map.insert(format!("{name}_as_string"), json!(text));
            }
            map.insert(name, json!(value));
            list.push(entry);
        }
        Ok(if keyed { json!({"values": map}) } else { json!({"values": list}) })
    }

    /// The median of the distances from the median.
    pub(super) fn deviation(
        &self,
        node: &AggregationNode,
        (compression, missing): (f64, Option<f64>),
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let path = node.path.as_deref().unwrap_or_default();
        let mut digest = Digest::new(compression);
        self.each_number((path, missing), docs, &mut |value| {
            digest.add(value);
            Ok(())
        })?;
        let Some(median) = digest.quantile(0.5) else { return Ok(json!({"value": null})) };
        let mut distances: Vec<(f64, f64)> =
            digest.groups().map(|(value, weight)| ((value - median).abs(), weight)).collect();
        distances.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut of_distances = Digest::new(compression);
        distances.iter().for_each(|(distance, weight)| of_distances.add_group(*distance, *weight));
        Ok(json!({"value": of_distances.quantile(0.5)}))
    }

    pub(super) fn weighted(
        &self,
        (value, weight): (&WeightedPart, &WeightedPart),
        docs: &DocSets,
    ) -> Result<Value, SearchError> {
        let (mut sum, mut weights) = (0.0, 0.0);
        let (mut of_value, mut of_weight) = (Vec::new(), Vec::new());
        for (number, view) in self.views.iter().enumerate() {
            for (segment, reader) in view.searcher.segment_readers().iter().enumerate() {
                if self.budget.is_over()? {
                    continue;
                }
                let (values, by) = (Values::of(view, reader, &value.path)?, Values::of(view, reader, &weight.path)?);
                for doc in docs.of_index[number][segment].iter() {
                    values.numbers(*doc, &mut of_value);
                    by.numbers(*doc, &mut of_weight);
                    if of_value.is_empty() {
                        of_value.extend(value.missing);
                    }
                    if of_weight.is_empty() {
                        of_weight.extend(weight.missing);
                    }
                    match of_weight[..] {
                        [] => {}
                        [weight] => {
                            sum += of_value.iter().map(|value| value * weight).sum::<f64>();
                            weights += weight * of_value.len() as f64;
                        }
                        _ => {
                            return Err(SearchError::argument(
                                "Encountered more than one weight for a single document. Use a script to combine \
                                 multiple weights-per-doc into a single value.",
                            ));
                        }
                    }
                }
            }
        }
        let avg = Some(sum / weights).filter(|avg| avg.is_finite());
        Ok(json!({ "value": avg }))
    }
}
