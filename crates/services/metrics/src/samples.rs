//! [`Samples`]: the figures of one moment, by metric of the [`crate::table`].
//!
//! Invariants: a sample has a value for each label of its metric, in their order; a metric has at most [`SAMPLES_MAX`] samples (or a
//! tenth as many histograms), and those beyond are counted instead of shown, so that no configuration makes a scrape without end.

use std::collections::BTreeMap;

use device::Noted;

use crate::table::{Metric, MetricKind};

/// Most samples of one metric.
pub const SAMPLES_MAX: usize = 10_000;

/// Most histograms of one metric: each is some twenty lines.
const HISTOGRAMS_MAX: usize = 1_000;

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SampleValue {
    /// It only grows.
    Count(u64),
    /// Seconds, which only grow.
    Seconds(f64),
    /// Of a gauge.
    Number(f64),
    /// Of an info, whose labels say everything.
    Present,
    /// A histogram: the sum, how many, and how many in each bucket (not added up) by its upper bound.
    Buckets(f64, u64, Vec<(f64, u64)>),
}

/// A sample.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Sample {
    /// A value for each label of the metric.
    pub(crate) labels: Vec<String>,
    pub(crate) value: SampleValue,
}

/// See the module's text.
#[derive(Debug, Default)]
pub struct Samples {
    by_metric: BTreeMap<&'static str, (Metric, Vec<Sample>)>,
    dropped: u64,
}

impl Samples {
    fn add(&mut self, metric: Metric, labels: &[&str], value: SampleValue) {
        assert_eq!(labels.len(), metric.labels.len(), "{} has other labels", metric.name);
        let (_, samples) = self.by_metric.entry(metric.name).or_insert_with(|| (metric, Vec::new()));
        let most = if matches!(metric.kind, MetricKind::Histogram(_)) { HISTOGRAMS_MAX } else { SAMPLES_MAX };
        if samples.len() == most {
            self.dropped += 1;
            return;
        }
        samples.push(Sample { labels: labels.iter().map(|label| (*label).to_owned()).collect(), value });
    }

    /// A counter's value since the start.
    pub fn count(&mut self, metric: Metric, labels: &[&str], value: u64) {
        assert!(matches!(metric.kind, MetricKind::Counter), "{} is no counter", metric.name);
        self.add(metric, labels, SampleValue::Count(value));
    }

    /// The value since the start of a counter of seconds.
    pub fn seconds(&mut self, metric: Metric, labels: &[&str], value: f64) {
        assert!(matches!(metric.kind, MetricKind::Counter), "{} is no counter", metric.name);
        self.add(metric, labels, SampleValue::Seconds(value));
    }

    /// A gauge's value now.
    pub fn gauge(&mut self, metric: Metric, labels: &[&str], value: f64) {
        assert!(matches!(metric.kind, MetricKind::Gauge), "{} is no gauge", metric.name);
        self.add(metric, labels, SampleValue::Number(value));
    }

    /// A gauge that is 1 or 0.
    pub fn flag(&mut self, metric: Metric, labels: &[&str], is_set: bool) {
        self.gauge(metric, labels, f64::from(u8::from(is_set)));
    }

    /// A moment, microseconds since 1970; nothing where there is none.
    pub fn moment(&mut self, metric: Metric, labels: &[&str], us: Option<i64>) {
        if let Some(us) = us {
            self.gauge(metric, labels, us as f64 / 1e6);
        }
    }

    /// Facts that are labels.
    pub fn info(&mut self, metric: Metric, labels: &[&str]) {
        assert!(matches!(metric.kind, MetricKind::Info), "{} is no info", metric.name);
        self.add(metric, labels, SampleValue::Present);
    }

    /// A histogram. Its buckets have what was noted in classes that end at their bound or below.
    pub fn histogram(&mut self, metric: Metric, labels: &[&str], noted: &Noted) {
        let MetricKind::Histogram(scale) = metric.kind else { panic!("{} is no histogram", metric.name) };
        let (mut buckets, mut before) = (Vec::with_capacity(scale.bounds.len() + 1), 0);
        for bound in scale.bounds {
            let up_to = noted.up_to(*bound);
            buckets.push((*bound as f64 / scale.of_one, up_to - before));
            before = up_to;
        }
        let all = noted.count();
        buckets.push((f64::INFINITY, all - before));
        self.add(metric, labels, SampleValue::Buckets(noted.sum as f64 / scale.of_one, all, buckets));
    }

    /// Samples that were left out, because their metric has too many.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// The metrics that have samples, in order of their names.
    pub(crate) fn metrics(&self) -> impl Iterator<Item = (&Metric, &[Sample])> {
        self.by_metric.values().map(|(metric, samples)| (metric, &samples[..]))
    }

    /// The value of a gauge or counter, for alerts and tests: the first sample whose labels are these.
    pub fn value(&self, name: &str, labels: &[&str]) -> Option<f64> {
        let (_, samples) = self.by_metric.get(name)?;
        match samples.iter().find(|sample| sample.labels == labels)?.value {
            SampleValue::Count(count) => Some(count as f64),
            SampleValue::Number(number) | SampleValue::Seconds(number) => Some(number),
            SampleValue::Present | SampleValue::Buckets(..) => None,
        }
    }

    /// All values of a gauge or counter, with their labels.
    pub fn values(&self, name: &str) -> Vec<(Vec<String>, f64)> {
        let samples = self.by_metric.get(name).map(|(_, samples)| &samples[..]).unwrap_or_default();
        let value = |sample: &Sample| self.value(name, &sample.labels.iter().map(String::as_str).collect::<Vec<_>>());
        samples.iter().filter_map(|sample| Some((sample.labels.clone(), value(sample)?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::table;

    #[test]
    fn the_buckets_of_a_histogram_have_everything_and_the_last_one_what_is_beyond_all_bounds() {
        let times = device::Distribution::<1>::default();
        for ns in [50_000, 90_000, 200_000, 40_000_000_000] {
            times.note(1, 0, Duration::from_nanos(ns));
        }
        let mut samples = Samples::default();
        samples.histogram(table::ACKNOWLEDGE_SECONDS, &["adt"], &times.noted());
        let (_, samples) = samples.metrics().next().expect("one");
        let SampleValue::Buckets(sum, count, buckets) = &samples[0].value else { panic!("a histogram") };
        assert_eq!((*count, buckets.iter().map(|(_, n)| n).sum::<u64>()), (4, 4));
        assert_eq!(buckets.first(), Some(&(0.0001, 2)));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 1)));
        assert!((sum - 40.00034).abs() < 1e-9, "{sum}");
    }

    #[test]
    fn a_metric_with_too_many_samples_drops_the_others_and_says_how_many() {
        let mut samples = Samples::default();
        for n in 0..SAMPLES_MAX + 7 {
            samples.gauge(table::QUEUE_MESSAGES, &[&format!("o{n}")], 1.0);
        }
        assert_eq!(samples.dropped(), 7);
        assert_eq!(samples.values("terrace_queue_messages").len(), SAMPLES_MAX);
        assert_eq!(samples.value("terrace_queue_messages", &["o3"]), Some(1.0));
    }
}
