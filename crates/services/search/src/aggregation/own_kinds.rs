//! [`OwnKind`]: the aggregations that the library lacks, with their parameters.

use std::net::Ipv6Addr;

use serde_json::Value;

use super::key_value::KeyValue;
use crate::dates::CalendarUnit;

/// What an aggregation does that is made here.
pub(super) enum OwnKind {
    Percentiles { percents: Vec<f64>, keyed: bool, missing: Option<f64>, method: Quantiles },
    PercentileRanks { values: Vec<f64>, keyed: bool, missing: Option<f64>, method: Quantiles },
    Deviation { compression: f64, missing: Option<f64> },
    WeightedAvg { value: WeightedPart, weight: WeightedPart },
    MultiTerms(MultiTermsOptions),
    RareTerms(RareTermsOptions),
    IpRange { ranges: Vec<IpRangeOption>, keyed: bool },
    Adjacency { filters: Vec<(String, Value)>, separator: String, pairs_only: bool },
    AutoDates { buckets: u32, least: Option<CalendarUnit> },
}

impl OwnKind {
    /// Its prefix where a response has typed keys.
    pub(super) fn prefix(&self) -> &'static str {
        match self {
            OwnKind::Percentiles { method: Quantiles::Digest(_), .. } => "tdigest_percentiles",
            OwnKind::Percentiles { .. } => "hdr_percentiles",
            OwnKind::PercentileRanks { method: Quantiles::Digest(_), .. } => "tdigest_percentile_ranks",
            OwnKind::PercentileRanks { .. } => "hdr_percentile_ranks",
            OwnKind::Deviation { .. } => "median_absolute_deviation",
            OwnKind::WeightedAvg { .. } => "weighted_avg",
            OwnKind::MultiTerms(_) => "multi_terms",
            OwnKind::RareTerms(_) => "srareterms",
            OwnKind::IpRange { .. } => "ip_range",
            OwnKind::Adjacency { .. } => "adjacency_matrix",
            OwnKind::AutoDates { .. } => "auto_date_histogram",
        }
    }

    /// Whether it can have aggregations in it.
    pub(super) fn has_buckets(&self) -> bool {
        !matches!(
            self,
            OwnKind::Percentiles { .. }
                | OwnKind::PercentileRanks { .. }
                | OwnKind::Deviation { .. }
                | OwnKind::WeightedAvg { .. }
        )
    }
}

/// How quantiles are found.
#[derive(Clone, Copy)]
pub(super) enum Quantiles {
    /// By groups of values; about how many.
    Digest(f64),
    /// By buckets whose width is a share of the value; decimal digits that stay exact.
    Rounded(u32),
}

/// A field of `weighted_avg`, and what documents without a value count as.
pub(super) struct WeightedPart {
    pub(super) path: String,
    pub(super) missing: Option<f64>,
}

/// A part of the keys of `multi_terms`.
pub(super) struct TermSource {
    pub(super) path: String,
    pub(super) format: String,
    pub(super) missing: Option<KeyValue>,
}

/// Parameters of `multi_terms`.
pub(super) struct MultiTermsOptions {
    pub(super) sources: Vec<TermSource>,
    pub(super) size: usize,
    pub(super) min_doc_count: u64,
    pub(super) order: Vec<(String, bool)>,
}

/// Parameters of `rare_terms`.
pub(super) struct RareTermsOptions {
    pub(super) most: u64,
    pub(super) missing: Option<KeyValue>,
    pub(super) include: Option<Vec<KeyValue>>,
    pub(super) exclude: Option<Vec<KeyValue>>,
}

/// A range of addresses: from inclusive, to exclusive.
pub(super) struct IpRangeOption {
    pub(super) key: Option<String>,
    pub(super) from: Option<Ipv6Addr>,
    pub(super) to: Option<Ipv6Addr>,
}
