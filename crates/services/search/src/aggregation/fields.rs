//! What the parameters of many aggregations have in common: the field, and the order of buckets.

use super::node::{AggregationNode, NodeKind, Reader};
use super::options::Options;
use crate::dates::{self, DateFormats};
use crate::error::SearchError;
use crate::mapping::FieldKind;

/// Reads `field`, and `format` and `time_zone` for fields of dates.
pub(super) fn field(reader: &Reader<'_>, node: &mut AggregationNode, options: &Options<'_>) -> Result<(), SearchError> {
    options.refuse(&["script"])?;
    options.ignore(&["value_type"]);
    let path = options.text("field")?.ok_or_else(|| {
        let type_name = options.type_name;
        SearchError::argument(format!(
            "Required one of fields [field, script], but none were specified in [{type_name}]"
        ))
    })?;
    node.field = reader.field(path)?;
    node.path = Some(path.to_owned());
    if let Some(field) = &node.field {
        node.format = field.formats.first().to_owned();
    }
    if let Some(format) = options.text("format")? {
        if node.values().is_some_and(|kind| kind != FieldKind::Date) {
            return Err(SearchError::unsupported(format!(
                "[format] in aggregation [{}] of numbers",
                options.type_name
            )));
        }
        DateFormats::parse_list(format)?;
        node.format = format.split("||").next().unwrap_or(format).to_owned();
    }
    if let Some(zone) = options.text("time_zone")? {
        node.zone = dates::zone(zone)?;
    }
    Ok(())
}

/// Errors: the field's values are none of these.
pub(super) fn only(
    node: &AggregationNode,
    options: &Options<'_>,
    kinds: fn(FieldKind) -> bool,
) -> Result<(), SearchError> {
    match &node.field {
        Some(field) if !kinds(field.kind) => Err(SearchError::argument(format!(
            "Field [{}] of type [{}] is not supported for aggregation [{}]",
            field.path, field.type_name, options.type_name
        ))),
        _ => Ok(()),
    }
}

/// Errors: the field's values are not numbers, nor dates.
pub(super) fn numbers_only(node: &AggregationNode, options: &Options<'_>) -> Result<(), SearchError> {
    only(node, options, of_numbers)
}

pub(super) fn of_numbers(kind: FieldKind) -> bool {
    kind.is_number() || kind == FieldKind::Date
}

/// Errors: an order by an aggregation that is made after the buckets are sorted.
pub(super) fn check_native_order(order: &[(String, bool)], subs: &[AggregationNode]) -> Result<(), SearchError> {
    check_order(order, subs)?;
    let is_own = |path: &str| subs.iter().any(|sub| path.starts_with(sub.name.as_str()) && sub.has_own());
    match order.iter().find(|(path, _)| path != "_key" && path != "_count" && is_own(path)) {
        Some((path, _)) => Err(SearchError::unsupported(format!("[order] by [{path}]"))),
        None => Ok(()),
    }
}

/// Errors: an order by an aggregation that is not there.
pub(super) fn check_order(order: &[(String, bool)], subs: &[AggregationNode]) -> Result<(), SearchError> {
    for (path, _) in order {
        let first = path.split('>').next().unwrap_or(path);
        let known = matches!(path.as_str(), "_count" | "_key")
            || subs.iter().any(|sub| {
                first
                    .strip_prefix(sub.name.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
            });
        if let Some(sub) = subs.iter().find(|sub| sub.name == first && matches!(sub.kind, NodeKind::Pipeline(_))) {
            return Err(SearchError::argument(format!(
                "Invalid aggregation order path [{path}]. The provided aggregation [{}] either does not exist, or is a pipeline \
                 aggregation and cannot be used to sort the buckets.",
                sub.name
            )));
        }
        if !known {
            return Err(SearchError::argument(format!(
                "Invalid aggregation order path [{path}]. The provided aggregation [{first}] either does not exist, or is a \
                 pipeline aggregation and cannot be used to sort the buckets."
            )));
        }
    }
    Ok(())
}
