//! [`Exposition`]: samples as text, in the two forms that scrapers read.
//!
//! ```text
//!   Samples --prometheus-client--> OpenMetrics 1.0:  TYPE terrace_x counter, then terrace_x_total
//!                                    |
//!                                    +--> Prometheus 0.0.4:  TYPE terrace_x_total counter; for curl, promtool and old scrapers
//! ```
//!
//! Pure. A scraper that accepts OpenMetrics gets that.

use std::fmt::{self, Write};

use bytes::Bytes;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::samples::{Sample, SampleValue, Samples};
use crate::table::{Metric, MetricKind};

/// The content type of OpenMetrics.
pub(crate) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The content type of the older form.
pub(crate) const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The figures of one moment, as text. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Exposition {
    open_metrics: Bytes,
    plain: Bytes,
}

impl Exposition {
    /// Of samples.
    pub fn of(samples: Samples) -> Exposition {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(SamplesCollector(samples)));
        let mut open_metrics = String::new();
        text::encode(&mut open_metrics, &registry).expect("a text takes all that is written to it");
        let plain = plain_of(&open_metrics);
        Exposition { open_metrics: open_metrics.into(), plain: plain.into() }
    }

    /// In the form that a request accepts, with its content type.
    pub fn accepted(&self, accept: Option<&str>) -> (&'static str, Bytes) {
        match accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            true => (OPEN_METRICS, self.open_metrics.clone()),
            false => (PLAIN, self.plain.clone()),
        }
    }
}

/// The older form: the names of counters and infos are whole in their description, and there is no end.
fn plain_of(open_metrics: &str) -> String {
    let mut plain = String::with_capacity(open_metrics.len() + (1 << 10));
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            // Its name depends on the type, which comes next.
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            if let Some((_, help)) = help.take() {
                let _ = writeln!(plain, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(plain, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            plain.push_str(line);
            plain.push('\n');
        }
    }
    plain
}

#[derive(Debug)]
struct SamplesCollector(Samples);

impl Collector for SamplesCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for (metric, samples) in self.0.metrics() {
            let kind = match metric.kind {
                MetricKind::Counter => MetricType::Counter,
                MetricKind::Gauge => MetricType::Gauge,
                MetricKind::Info => MetricType::Info,
                MetricKind::Histogram(_) => MetricType::Histogram,
            };
            let mut described = encoder.encode_descriptor(metric.family(), metric.help, None, kind)?;
            samples.iter().try_for_each(|sample| encode_sample(metric, sample, &mut described))?;
        }
        Ok(())
    }
}

fn encode_sample(metric: &Metric, sample: &Sample, described: &mut MetricEncoder<'_>) -> fmt::Result {
    let labels: Vec<(&str, &str)> =
        metric.labels.iter().copied().zip(sample.labels.iter().map(String::as_str)).collect();
    if matches!(sample.value, SampleValue::Present) {
        return described.encode_info(&labels);
    }
    if labels.is_empty() {
        return encode_value(&sample.value, described);
    }
    let mut labelled = described.encode_family(&labels)?;
    encode_value(&sample.value, &mut labelled)
}

fn encode_value(value: &SampleValue, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
    match value {
        SampleValue::Count(count) => encoder.encode_counter::<NoLabelSet, u64, f64>(count, None),
        SampleValue::Seconds(seconds) => encoder.encode_counter::<NoLabelSet, f64, f64>(seconds, None),
        SampleValue::Number(number) => encoder.encode_gauge(number),
        SampleValue::Buckets(sum, count, buckets) => {
            encoder.encode_histogram::<NoLabelSet>(*sum, *count, buckets, None)
        }
        SampleValue::Present => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    fn exposition() -> Exposition {
        let mut samples = Samples::default();
        samples.count(table::MESSAGES_RECEIVED_TOTAL, &["adt-in", "routed"], 7);
        samples.seconds(table::PROCESS_CPU_SECONDS_TOTAL, &[], 1.5);
        samples.gauge(table::QUEUE_MESSAGES, &["a \"lab\"\n"], 3.0);
        samples.info(table::BUILD_INFO, &["0.1.0"]);
        let sizes = device::Distribution::<1>::default();
        sizes.note_value(300);
        samples.histogram(table::MESSAGE_BYTES, &["adt-in"], &sizes.noted());
        Exposition::of(samples)
    }

    fn text((_, bytes): (&str, Bytes)) -> String {
        String::from_utf8(bytes.to_vec()).expect("a text")
    }

    #[test]
    fn open_metrics_describes_families_and_has_an_end() {
        let text = text(exposition().accepted(Some("application/openmetrics-text;version=1.0.0,text/plain;q=0.5")));
        for line in [
            "# TYPE terrace_messages_received counter",
            "terrace_messages_received_total{service=\"adt-in\",status=\"routed\"} 7",
            "# TYPE process_cpu_seconds counter",
            "process_cpu_seconds_total 1.5",
            "terrace_queue_messages{operation=\"a \\\"lab\\\"\\n\"} 3.0",
            "# TYPE terrace_build info",
            "terrace_build_info{version=\"0.1.0\"} 1",
            "terrace_message_bytes_count{service=\"adt-in\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
        let is_last = |line: &&str| line.starts_with("terrace_message_bytes_bucket{") && line.contains("le=\"+Inf\"");
        assert!(text.lines().find(is_last).is_some_and(|line| line.ends_with(" 1")), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }

    #[test]
    fn the_older_form_has_whole_names_in_descriptions_and_no_end() {
        for accept in [None, Some("*/*"), Some("text/plain")] {
            let text = text(exposition().accepted(accept));
            for line in [
                "# TYPE terrace_messages_received_total counter",
                "terrace_messages_received_total{service=\"adt-in\",status=\"routed\"} 7",
                "# TYPE terrace_build_info gauge",
            ] {
                assert!(text.lines().any(|found| found == line), "{line}\n{text}");
            }
            assert!(text.contains("# HELP terrace_build_info ") && !text.contains("EOF"), "{text}");
        }
    }
}
