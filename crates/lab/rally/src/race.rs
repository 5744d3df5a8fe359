//! What a race comes to, by esrally or by our own generator.

use serde::Serialize;
use workload::histogram::Histogram;

/// Times that a share of requests did not exceed, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Milliseconds {
    /// The median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
}

impl Milliseconds {
    /// Of times in microseconds.
    pub fn of(times: &Histogram) -> Milliseconds {
        let at = |quantile| times.quantile(quantile) as f64 / 1000.0;
        Milliseconds { p50: at(0.5), p90: at(0.9), p99: at(0.99) }
    }

    /// The median of each, over several.
    pub fn median(of: &[Milliseconds]) -> Option<Milliseconds> {
        let at = |value: fn(&Milliseconds) -> f64| median(of.iter().map(value).collect());
        Some(Milliseconds { p50: at(|ms| ms.p50)?, p90: at(|ms| ms.p90)?, p99: at(|ms| ms.p99)? })
    }
}

/// The times of one query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueryTimes {
    /// Its name in the track.
    pub name: String,
    /// Time of one request; of a scroll, of all its pages together.
    pub ms: Milliseconds,
    /// Hits that it reports, where it counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hits: Option<u64>,
}

/// One race.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RaceResult {
    /// Documents written.
    pub documents: usize,
    /// Documents a second.
    pub docs_per_s: f64,
    /// Time of a bulk.
    pub bulk_ms: Milliseconds,
    /// The queries, in the order of the track.
    pub queries: Vec<QueryTimes>,
    /// Requests that failed.
    pub errors: u64,
}

/// One medium with one number of races and one size of bulks: the medians of its rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RallyRow {
    /// The medium.
    pub tier: &'static str,
    /// Documents of a bulk.
    pub bulk: usize,
    /// Races at a time.
    pub races: usize,
    /// Documents a second of a race.
    pub median_docs_per_s: Option<f64>,
    /// Documents a second of all races.
    pub docs_per_s: Option<f64>,
    /// Time of a bulk.
    pub bulk_ms: Option<Milliseconds>,
    /// Time of a query.
    pub search_ms: Option<Milliseconds>,
    /// Share of the time of bulks that persisting took.
    pub persist_share: Option<f64>,
    /// Processor time of the node for a document, microseconds.
    pub cpu_us_per_doc: Option<f64>,
}

/// The middle, or the mean of the two in the middle; none of nothing.
pub fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        even if even % 2 == 0 => Some((values[middle - 1] + values[middle]) / 2.0),
        _ => Some(values[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_times_is_taken_of_each_quantile() {
        let ms = |p50, p99| Milliseconds { p50, p90: p99, p99 };
        let all = [ms(1.0, 9.0), ms(3.0, 5.0), ms(2.0, 7.0)];
        assert_eq!(Milliseconds::median(&all), Some(ms(2.0, 7.0)));
        assert_eq!(Milliseconds::median(&all[..2]), Some(ms(2.0, 7.0)));
        assert_eq!(Milliseconds::median(&[]), None);
    }
}
