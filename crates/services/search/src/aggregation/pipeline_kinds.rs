//! [`Pipeline`]: the parameters of a pipeline aggregation.

use serde_json::Value;

use super::options::Options;
use crate::error::SearchError;

/// What a pipeline aggregation does.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum PipelineKind {
    Avg,
    Sum,
    Min,
    Max,
    Stats,
    CumulativeSum,
    Derivative,
}

impl PipelineKind {
    /// Whether it stands beside the buckets, not in each of them.
    pub(super) fn is_beside(self) -> bool {
        !matches!(self, PipelineKind::CumulativeSum | PipelineKind::Derivative)
    }

    /// Its prefix where a response has typed keys.
    pub(super) fn prefix(self) -> &'static str {
        match self {
            PipelineKind::Avg | PipelineKind::Sum | PipelineKind::CumulativeSum => "simple_value",
            PipelineKind::Min | PipelineKind::Max => "bucket_metric_value",
            PipelineKind::Stats => "stats_bucket",
            PipelineKind::Derivative => "derivative",
        }
    }
}

/// A pipeline aggregation.
pub(super) struct Pipeline {
    pub(super) kind: PipelineKind,
    /// `buckets_path`.
    pub(super) path: String,
    /// Buckets without a value count as zero, and are not passed over.
    pub(super) zeros: bool,
}

impl Pipeline {
    pub(super) fn prefix(&self) -> &'static str {
        self.kind.prefix()
    }
}

/// Reads a pipeline aggregation; none if the type is not one. Errors: what is wrong, by name.
pub(super) fn read(
    name: &str,
    (type_name, depth): (&str, usize),
    body: &Value,
) -> Result<Option<Pipeline>, SearchError> {
    let (kind, type_name) = match type_name {
        "avg_bucket" => (PipelineKind::Avg, "avg_bucket"),
        "sum_bucket" => (PipelineKind::Sum, "sum_bucket"),
        "min_bucket" => (PipelineKind::Min, "min_bucket"),
        "max_bucket" => (PipelineKind::Max, "max_bucket"),
        "stats_bucket" => (PipelineKind::Stats, "stats_bucket"),
        "cumulative_sum" => (PipelineKind::CumulativeSum, "cumulative_sum"),
        "derivative" => (PipelineKind::Derivative, "derivative"),
        "moving_fn" if body["window"].as_i64().is_some_and(|window| window <= 0) => {
            return Err(SearchError::argument("[window] must be a positive, non-zero integer."));
        }
        "bucket_sort" if depth == 1 => {
            return Err(SearchError::argument(format!(
                "bucket_sort aggregation [{name}] must be declared inside of another aggregation"
            )));
        }
        _ => return Ok(None),
    };
    if depth == 1 && !kind.is_beside() {
        return Err(SearchError::argument(format!(
            "{type_name} aggregation [{name}] must be declared inside of another aggregation"
        )));
    }
    let options = Options::of(type_name, body)?;
    options.refuse(&["format", "unit"])?;
    let path = match options.get("buckets_path") {
        Some(Value::String(path)) => path.clone(),
        Some(Value::Array(paths)) if paths.len() == 1 => paths[0].as_str().unwrap_or_default().to_owned(),
        _ => return Err(SearchError::argument(format!("Required [buckets_path] of [{name}] is missing"))),
    };
    let zeros = match options.text("gap_policy")? {
        None | Some("skip") => false,
        Some("insert_zeros") => true,
        Some(other) => return Err(SearchError::unsupported(format!("gap_policy [{other}] of [{name}]"))),
    };
    options.finish()?;
    Ok(Some(Pipeline { kind, path, zeros }))
}
