//! [`SeriesReader`]: which series the history has, and their values from two looks at the figures.
//!
//! | series | unit | what it is |
//! |---|---|---|
//! | `intake` | 1/s | messages that were stored |
//! | `errored`, `refused` | 1/s | messages that an error stopped, and that were refused |
//! | `ack_p50`, `ack_p99` | s | time to the acknowledgement |
//! | `delivered` | 1/s | deliveries |
//! | `waiting`, `oldest` | count, s | deliveries that wait, and how long the oldest has |
//! | `commits`, `commit_p99` | 1/s, s | commits of messages, and how long one takes |
//! | `cpu`, `memory` | cores, B | of the process |
//! | `cache_hit` | 0 to 1 | of the page cache, near and far |
//! | `disk_free.TIER` | B | free where it lies |
//! | `medium.TIER.STRUCTURE.reads`, `.writes`, `.read_bytes`, `.written_bytes` | 1/s, B/s | on the medium of a structure |
//! | `medium.TIER.STRUCTURE.read_p99`, `.write_p99` | s | time of an operation there |
//! | `intake.SERVICE` | 1/s | messages of a service that were stored |
//! | `waiting.OPERATION`, `oldest.OPERATION` | count, s | deliveries of an operation that wait |
//!
//! Pure. The p99 of an interval in which nothing happened is absent, as is what there is not.

use std::collections::BTreeMap;

use crate::samples::{SampleValue, Samples};

/// Most series at a time, in the order of the table: what is beyond is left out.
pub const SERIES_MAX: usize = 200;

/// Most services and operations that have series of their own, by name.
const NAMED_MAX: usize = 40;

/// Counters by name and labels.
type Counters = BTreeMap<(&'static str, Vec<String>), f64>;

/// Counts by their upper bounds.
type Buckets = Vec<(f64, u64)>;

/// What was looked at once.
#[derive(Debug, Default)]
struct Looked {
    at_us: i64,
    counters: Counters,
    histograms: BTreeMap<(&'static str, Vec<String>), (u64, Buckets)>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct SeriesReader {
    before: Option<Looked>,
}

/// The values of a look, in the order of their importance.
pub(super) type Values = Vec<(String, f64)>;

const RECEIVED: &str = "terrace_messages_received_total";

impl Looked {
    fn of(samples: &Samples, at_us: i64) -> Looked {
        let mut looked = Looked { at_us, ..Looked::default() };
        for (metric, all) in samples.metrics() {
            for sample in all {
                let key = (metric.name, sample.labels.clone());
                match &sample.value {
                    SampleValue::Count(count) => _ = looked.counters.insert(key, *count as f64),
                    SampleValue::Seconds(seconds) => _ = looked.counters.insert(key, *seconds),
                    SampleValue::Buckets(_, count, buckets) => {
                        _ = looked.histograms.insert(key, (*count, buckets.clone()));
                    }
                    SampleValue::Number(_) | SampleValue::Present => {}
                }
            }
        }
        looked
    }
}

/// Two looks, one after the other.
struct Between<'a> {
    before: &'a Looked,
    after: &'a Looked,
    seconds: f64,
}

impl Between<'_> {
    /// The growth each second of all counters of a name that are wanted; none where there is none.
    fn rate(&self, name: &str, wants: impl Fn(&[String]) -> bool) -> Option<f64> {
        let mut found = None;
        for (key, value) in self.after.counters.iter().filter(|(key, _)| key.0 == name && wants(&key.1)) {
            // It was not there before: it began at 0 since then.
            let before = self.before.counters.get(key).copied().unwrap_or(0.0);
            *found.get_or_insert(0.0) += (value - before).max(0.0);
        }
        found.map(|growth| growth / self.seconds)
    }

    /// The counts of all histograms of a name that are wanted, of what came between.
    fn buckets(&self, name: &str, wants: impl Fn(&[String]) -> bool) -> (u64, Buckets) {
        let (mut all, mut sum): (u64, Buckets) = (0, Vec::new());
        for (key, (count, buckets)) in self.after.histograms.iter().filter(|(key, _)| key.0 == name && wants(&key.1)) {
            let before = self.before.histograms.get(key);
            all += count.saturating_sub(before.map_or(0, |(count, _)| *count));
            sum.resize(sum.len().max(buckets.len()), (f64::INFINITY, 0));
            for (at, (bound, n)) in buckets.iter().enumerate() {
                let was = before.and_then(|(_, buckets)| buckets.get(at)).map_or(0, |(_, n)| *n);
                sum[at] = (*bound, sum[at].1 + n.saturating_sub(was));
            }
        }
        (all, sum)
    }

    /// The upper end of the bucket, interpolated within it, below which this part of what came lies; none where nothing came.
    fn quantile(&self, name: &str, part: f64, wants: impl Fn(&[String]) -> bool) -> Option<f64> {
        let (_, buckets) = self.buckets(name, wants);
        let all: u64 = buckets.iter().map(|(_, n)| n).sum();
        let (mut rank, mut low) = (part * all as f64, 0.0);
        for (bound, n) in buckets {
            if n > 0 && rank <= n as f64 {
                // The last bucket has no end: its begin is the best that is known.
                return Some(if bound.is_finite() { low + (bound - low) * rank / n as f64 } else { low });
            }
            rank -= n as f64;
            low = if bound.is_finite() { bound } else { low };
        }
        None
    }
}

impl SeriesReader {
    /// The values since the look before, at a time, microseconds since 1970.
    pub(super) fn read(&mut self, samples: &Samples, at_us: i64) -> Values {
        let after = Looked::of(samples, at_us);
        let mut values = Values::new();
        let before = self.before.replace(after);
        let Some(after) = &self.before else { return values };
        if let Some(before) = before.as_ref().filter(|before| before.at_us < at_us) {
            let seconds = (at_us - before.at_us) as f64 / 1e6;
            rates(&Between { before, after, seconds }, &mut values);
        }
        levels(samples, at_us, &mut values);
        values.retain(|(_, value)| value.is_finite());
        // What is of the node and of media comes before what is of a service or an operation.
        values.sort_by_key(|(name, _)| rank(name));
        values.truncate(SERIES_MAX);
        values
    }
}

fn rank(name: &str) -> u8 {
    match name.split_once('.') {
        None => 0,
        Some(("disk_free", _)) => 1,
        Some(("medium", _)) => 2,
        Some(_) => 3,
    }
}

/// What grows.
fn rates(between: &Between<'_>, values: &mut Values) {
    let mut add = |name: &str, value: Option<f64>| values.extend(value.map(|value| (name.to_owned(), value)));
    let status = |wanted: &'static str| move |labels: &[String]| labels.get(1).is_some_and(|label| label == wanted);
    let stored = |labels: &[String]| labels.get(1).is_some_and(|label| label != "refused");
    let any = |_: &[String]| true;
    add("intake", between.rate(RECEIVED, stored));
    add("errored", between.rate(RECEIVED, status("errored")));
    add("refused", between.rate(RECEIVED, status("refused")));
    add("ack_p50", between.quantile("terrace_acknowledge_seconds", 0.5, any));
    add("ack_p99", between.quantile("terrace_acknowledge_seconds", 0.99, any));
    add("delivered", between.rate("terrace_deliveries_total", status("delivered")));
    let (commits, _) = between.buckets("terrace_commit_records", any);
    add("commits", Some(commits as f64 / between.seconds));
    add("commit_p99", between.quantile("terrace_commit_seconds", 0.99, any));
    add("cpu", between.rate("process_cpu_seconds_total", any));
    let found = |wanted: &'static str| between.rate("terrace_cache_lookups_total", move |labels| labels[0] == wanted);
    let (near, far, miss) = (found("near"), found("far"), found("miss"));
    let hits = near.unwrap_or(0.0) + far.unwrap_or(0.0);
    add("cache_hit", miss.map(|miss| hits / (hits + miss)));
    let mut media: Vec<&Vec<String>> = between
        .after
        .counters
        .keys()
        .filter(|key| key.0 == "terrace_medium_operations_total")
        .map(|key| &key.1)
        .collect();
    media.dedup_by(|one, other| one[..2] == other[..2]);
    for labels in media {
        let of = |direction: &'static str| move |found: &[String]| found[..2] == labels[..2] && found[2] == direction;
        let name = |what: &str| format!("medium.{}.{}.{what}", labels[0], labels[1]);
        add(&name("reads"), between.rate("terrace_medium_operations_total", of("read")));
        add(&name("writes"), between.rate("terrace_medium_operations_total", of("write")));
        add(&name("read_bytes"), between.rate("terrace_medium_bytes_total", of("read")));
        add(&name("written_bytes"), between.rate("terrace_medium_bytes_total", of("write")));
        add(&name("read_p99"), between.quantile("terrace_medium_operation_seconds", 0.99, of("read")));
        add(&name("write_p99"), between.quantile("terrace_medium_operation_seconds", 0.99, of("write")));
    }
    let mut services: Vec<&String> =
        between.after.counters.keys().filter(|key| key.0 == RECEIVED).map(|key| &key.1[0]).collect();
    services.dedup();
    for service in services.into_iter().take(NAMED_MAX) {
        let of = |labels: &[String]| labels[0] == *service && labels[1] != "refused";
        add(&format!("intake.{service}"), between.rate(RECEIVED, of));
    }
}

/// What goes up and down.
fn levels(samples: &Samples, at_us: i64, values: &mut Values) {
    let gauge = |name: &str| -> Vec<(String, f64)> {
        let first = |(labels, value): (Vec<String>, f64)| (labels.into_iter().next().unwrap_or_default(), value);
        samples.values(name).into_iter().map(first).collect()
    };
    let (waiting, since) = (gauge("terrace_queue_messages"), gauge("terrace_queue_oldest_timestamp_seconds"));
    let age = |since: f64| (at_us as f64 / 1e6 - since).max(0.0);
    // The sum of nothing is -0.
    values.push(("waiting".to_owned(), waiting.iter().map(|(_, n)| n).sum::<f64>() + 0.0));
    values.push(("oldest".to_owned(), since.iter().map(|(_, since)| age(*since)).fold(0.0, f64::max)));
    for (_, bytes) in gauge("process_resident_memory_bytes") {
        values.push(("memory".to_owned(), bytes));
    }
    for (tier, bytes) in gauge("terrace_disk_free_bytes") {
        values.push((format!("disk_free.{tier}"), bytes));
    }
    for (operation, n) in waiting.into_iter().take(NAMED_MAX) {
        let since = since.iter().find(|(name, _)| *name == operation).map_or(0.0, |(_, since)| age(*since));
        values.push((format!("waiting.{operation}"), n));
        values.push((format!("oldest.{operation}"), since));
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::table;

    fn samples(messages: u64, acknowledged_ms: &[u64]) -> Samples {
        let mut samples = Samples::default();
        for (status, count) in [("routed", messages), ("errored", 3), ("refused", 1_000)] {
            samples.count(table::MESSAGES_RECEIVED_TOTAL, &["adt", status], count);
        }
        let times = device::Distribution::<1>::default();
        acknowledged_ms.iter().for_each(|ms| times.note(1, 0, Duration::from_millis(*ms)));
        samples.histogram(table::ACKNOWLEDGE_SECONDS, &["adt"], &times.noted());
        for (direction, operations) in [("read", messages), ("write", 2 * messages)] {
            samples.count(table::MEDIUM_OPERATIONS_TOTAL, &["home", "journal", direction], operations);
        }
        samples.count(table::CACHE_LOOKUPS_TOTAL, &["near"], 3 * messages);
        samples.count(table::CACHE_LOOKUPS_TOTAL, &["miss"], messages);
        samples.gauge(table::QUEUE_MESSAGES, &["lab"], 12.0);
        samples.moment(table::QUEUE_OLDEST, &["lab"], Some(40_000_000));
        samples
    }

    #[test]
    fn rates_are_of_what_came_between_two_looks_and_quantiles_of_what_was_noted_then() {
        let mut reader = SeriesReader::default();
        let first = reader.read(&samples(100, &[1]), 50_000_000);
        let names: Vec<&str> = first.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["waiting", "oldest", "waiting.lab", "oldest.lab"], "what grows needs two looks");
        let mut times = vec![1; 51];
        times.push(900);
        let second: BTreeMap<String, f64> = reader.read(&samples(150, &times), 60_000_000).into_iter().collect();
        let near = |name: &str, expected: f64| {
            let value = second.get(name).copied().unwrap_or(f64::NAN);
            assert!((value - expected).abs() <= expected.abs() * 0.01, "{name}: {value}");
        };
        near("intake", 5.0);
        near("intake.adt", 5.0);
        near("medium.home.journal.reads", 5.0);
        near("medium.home.journal.writes", 10.0);
        near("cache_hit", 0.75);
        near("oldest", 20.0);
        near("waiting.lab", 12.0);
        assert_eq!((second["errored"], second["refused"]), (0.0, 0.0));
        assert!(second["ack_p50"] <= 0.0025 && second["ack_p99"] > 0.5, "{second:?}");
        // Nothing came: no quantile.
        let third: BTreeMap<String, f64> = reader.read(&samples(150, &times), 70_000_000).into_iter().collect();
        assert!(
            !third.contains_key("ack_p99") && third["intake"] == 0.0 && !third.contains_key("cache_hit"),
            "{third:?}"
        );
    }

    #[test]
    fn there_are_never_more_series_than_promised_and_those_of_the_node_come_first() {
        let mut samples = Samples::default();
        for n in 0..500 {
            samples.gauge(table::QUEUE_MESSAGES, &[&format!("operation{n}")], 1.0);
            samples.gauge(table::DISK_FREE_BYTES, &[&format!("tier{n}")], 1.0);
        }
        let values = SeriesReader::default().read(&samples, 1);
        assert_eq!((values.len(), &values[0].0[..]), (SERIES_MAX, "waiting"));
    }
}
