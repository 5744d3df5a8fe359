//! The table of all metrics: the one place of their names, labels and help. `docs/metrics.md` lists the same, and a test compares them.
//!
//! A histogram has the classic buckets of Prometheus, 1, 2.5, 5 and so on. They are filled from classes that are a sixteenth of a power of
//! two wide ([`device::Distribution`]): what is at most 6.3 % below a bound may be counted in the next bucket.

/// A metric.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// The name of its samples; those of histograms have `_bucket`, `_sum` and `_count` behind it.
    pub name: &'static str,
    /// What it is.
    pub kind: MetricKind,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// What it says.
    pub help: &'static str,
}

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum MetricKind {
    /// It only grows, from 0 at the start of the process.
    Counter,
    /// It goes up and down.
    Gauge,
    /// Facts as labels.
    Info,
    /// How many were how large.
    Histogram(Scale),
}

impl MetricKind {
    /// Its name in OpenMetrics.
    pub fn name(self) -> &'static str {
        match self {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Info => "info",
            MetricKind::Histogram(_) => "histogram",
        }
    }
}

/// The buckets of a histogram.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// Their upper bounds, in the unit that is noted, rising.
    pub bounds: &'static [u64],
    /// How many of that unit are one of what is shown.
    pub of_one: f64,
}

const US: u64 = 1_000;
const MS: u64 = 1_000 * US;
const S: u64 = 1_000 * MS;
const NS_OF_SECOND: f64 = 1e9;

/// Times of media: 1 us to 30 s.
const FINE: Scale = Scale {
    bounds: &[
        US,
        2_500,
        5 * US,
        10 * US,
        25 * US,
        50 * US,
        100 * US,
        250 * US,
        500 * US,
        MS,
        2_500 * US,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        2_500 * MS,
        5 * S,
        10 * S,
        30 * S,
    ],
    of_one: NS_OF_SECOND,
};

/// Times of clients and receivers: 100 us to 30 s.
const NETWORK: Scale = Scale {
    bounds: &[
        100 * US,
        250 * US,
        500 * US,
        MS,
        2_500 * US,
        5 * MS,
        10 * MS,
        25 * MS,
        50 * MS,
        100 * MS,
        250 * MS,
        500 * MS,
        S,
        2_500 * MS,
        5 * S,
        10 * S,
        30 * S,
    ],
    of_one: NS_OF_SECOND,
};

/// Sizes: 256 B to 64 MiB.
const SIZES: Scale = Scale {
    bounds: &[256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20],
    of_one: 1.0,
};

/// How many: 1 to 1,024.
const COUNTS: Scale = Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], of_one: 1.0 };

impl Metric {
    /// The name of its family in OpenMetrics: without the ending that its kind has there.
    pub fn family(&self) -> &'static str {
        match self.kind {
            MetricKind::Counter => self.name.strip_suffix("_total").unwrap_or(self.name),
            MetricKind::Info => self.name.strip_suffix("_info").unwrap_or(self.name),
            MetricKind::Gauge | MetricKind::Histogram(_) => self.name,
        }
    }
}

macro_rules! metrics {
    ($($constant:ident $kind:expr, $name:literal [$($label:literal)*] $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $constant: Metric =
                Metric { name: $name, kind: $kind, labels: &[$($label),*], help: $help };
        )*

        /// All metrics.
        pub const ALL: &[Metric] = &[$($constant),*];
    };
}

metrics! {
    BUILD_INFO MetricKind::Info, "terrace_build_info" ["version"]
        "The release of the program.";
    PRODUCTION_INFO MetricKind::Info, "terrace_production_info" ["production"]
        "The production that is loaded.";
    READY MetricKind::Gauge, "terrace_ready" []
        "1 while the node takes messages, as /readyz says.";
    UPDATES_FROZEN MetricKind::Gauge, "terrace_updates_frozen" []
        "1 after the journal or the pages failed: nothing is acknowledged or delivered any more.";
    TROUBLE MetricKind::Gauge, "terrace_trouble" ["matter"]
        "1 while the node has this trouble; `terrace status` has the reason and what to do.";
    FAILED_LOGINS MetricKind::Gauge, "terrace_failed_logins" []
        "Failed logins at all ports that are remembered: they slow down further ones.";
    BACKUP_LAST_SUCCESS MetricKind::Gauge, "terrace_backup_last_success_timestamp_seconds" []
        "When the last good backup by schedule was begun; absent before the first one, and without a schedule of backups.";
    BACKUP_FAILED MetricKind::Gauge, "terrace_backup_failed" []
        "1 after a backup by schedule failed, until one succeeds; absent without a schedule of backups.";
    MESSAGES_RECEIVED_TOTAL MetricKind::Counter, "terrace_messages_received_total" ["service" "status"]
        "Messages that a service received, by what was decided; refused ones are not stored.";
    DUPLICATES_TOTAL MetricKind::Counter, "terrace_duplicates_total" ["service"]
        "Messages that were seen before.";
    MESSAGE_BYTES MetricKind::Histogram(SIZES), "terrace_message_bytes" ["service"]
        "Sizes of stored messages, as received.";
    DECIDE_SECONDS MetricKind::Histogram(NETWORK), "terrace_decide_seconds" ["service"]
        "Time to decide where a message goes, with its transforms.";
    ACKNOWLEDGE_SECONDS MetricKind::Histogram(NETWORK), "terrace_acknowledge_seconds" ["service"]
        "Time from the last byte of a frame to its acknowledgement being written.";
    SERVICE_LAST_MESSAGE MetricKind::Gauge, "terrace_service_last_message_timestamp_seconds" ["service"]
        "When the last message came; absent before the first one since the start.";
    FRAMING_ERRORS_TOTAL MetricKind::Counter, "terrace_framing_errors_total" ["service" "kind"]
        "Frames that were not taken: partial, or over the size bound.";
    JUNK_BYTES_TOTAL MetricKind::Counter, "terrace_junk_bytes_total" ["service"]
        "Bytes between frames that belong to none.";
    CONNECTIONS MetricKind::Gauge, "terrace_connections" ["kind" "service"]
        "Connections open.";
    CONNECTIONS_MAX MetricKind::Gauge, "terrace_connections_max" ["kind" "service"]
        "Connections that there may be.";
    CONNECTIONS_REFUSED_TOTAL MetricKind::Counter, "terrace_connections_refused_total" ["kind" "service" "reason"]
        "Connections that were refused.";
    CONNECTIONS_ENDED_TOTAL MetricKind::Counter, "terrace_connections_ended_total" ["kind" "service" "reason"]
        "Connections that the node ended.";
    QUEUE_MESSAGES MetricKind::Gauge, "terrace_queue_messages" ["operation"]
        "Deliveries that wait.";
    QUEUE_MEMORY_BYTES MetricKind::Gauge, "terrace_queue_memory_bytes" ["operation"]
        "Memory of the bodies of deliveries that wait.";
    QUEUE_OLDEST MetricKind::Gauge, "terrace_queue_oldest_timestamp_seconds" ["operation"]
        "When the message that has waited longest was received; absent where nothing waits.";
    QUEUE_HOMELESS_MESSAGES MetricKind::Gauge, "terrace_queue_homeless_messages" []
        "Deliveries that wait for operations that the production does not have.";
    DELIVERIES_TOTAL MetricKind::Counter, "terrace_deliveries_total" ["operation" "outcome"]
        "Outcomes of deliveries.";
    DELIVERY_SECONDS MetricKind::Histogram(NETWORK), "terrace_delivery_seconds" ["operation"]
        "Time of a try that was answered, or not in time; files: until they were persistent.";
    DELIVERY_RETRIES_TOTAL MetricKind::Counter, "terrace_delivery_retries_total" ["operation" "cause"]
        "Tries that were followed by another, by what they ended with.";
    ANSWERS_TOTAL MetricKind::Counter, "terrace_answers_total" ["operation" "code"]
        "What tries ended with: a code of HL7 table 0008, or a word of the reply table.";
    OPERATION_LAST_DELIVERY MetricKind::Gauge, "terrace_operation_last_delivery_timestamp_seconds" ["operation"]
        "When a message was delivered last; absent before the first one since the start.";
    OPERATION_SUSPENDED MetricKind::Gauge, "terrace_operation_suspended" ["operation"]
        "1 while an operation stands still, by order or by its reply table.";
    OPERATION_CONNECTED MetricKind::Gauge, "terrace_operation_connected" ["operation"]
        "Lanes that have a connection, as of their last try; operations over MLLP.";
    OPERATION_LANES MetricKind::Gauge, "terrace_operation_lanes" ["operation"]
        "Lanes of an operation.";
    COMMIT_SECONDS MetricKind::Histogram(FINE), "terrace_commit_seconds" []
        "Time from the append of a message's record until it is known to be durable.";
    COMMIT_RECORDS MetricKind::Histogram(COUNTS), "terrace_commit_records" []
        "Messages that became durable together.";
    JOURNAL_WRITES_TOTAL MetricKind::Counter, "terrace_journal_writes_total" []
        "Writes of the journal, each with its flush.";
    JOURNAL_WRITTEN_BYTES_TOTAL MetricKind::Counter, "terrace_journal_written_bytes_total" []
        "Bytes that the journal wrote, with padding.";
    JOURNAL_RECORDS_TOTAL MetricKind::Counter, "terrace_journal_records_total" []
        "Records of the journal.";
    JOURNAL_KEPT_BYTES MetricKind::Gauge, "terrace_journal_kept_bytes" []
        "Bytes of the journal that are kept.";
    CHECKPOINT_SECONDS MetricKind::Histogram(FINE), "terrace_checkpoint_seconds" []
        "Duration of checkpoints, with their pauses.";
    CHECKPOINT_PAGES_TOTAL MetricKind::Counter, "terrace_checkpoint_pages_total" ["kind"]
        "Pages that checkpoints wrote: fresh ones in place, changed ones through the write image journal.";
    CHECKPOINT_WAITS_TOTAL MetricKind::Counter, "terrace_checkpoint_waits_total" []
        "Times that updates waited for a checkpoint.";
    PAGES MetricKind::Gauge, "terrace_pages" []
        "Pages in all data devices.";
    PAGES_USED MetricKind::Gauge, "terrace_pages_used" []
        "Pages in use.";
    PAGES_QUARANTINED MetricKind::Gauge, "terrace_pages_quarantined" []
        "Damaged pages that were found since the start and set aside.";
    STORE_DIRTY_BYTES MetricKind::Gauge, "terrace_store_dirty_bytes" []
        "Changes that are not written to the pages yet.";
    STORE_BEHIND_BYTES MetricKind::Gauge, "terrace_store_behind_bytes" []
        "Durable records that readers do not see yet.";
    STORE_VERSIONS_BYTES MetricKind::Gauge, "terrace_store_versions_bytes" []
        "Memory of old versions that open snapshots may still see.";
    STORE_SNAPSHOTS MetricKind::Gauge, "terrace_store_snapshots" []
        "Open snapshots.";
    CACHE_BYTES MetricKind::Gauge, "terrace_cache_bytes" ["where"]
        "Memory of the page cache, near and far.";
    CACHE_LOOKUPS_TOTAL MetricKind::Counter, "terrace_cache_lookups_total" ["where"]
        "Pages and blocks that were looked for: found in near memory, in far memory, or read from a device.";
    MEDIUM_INFO MetricKind::Info, "terrace_medium_info" ["tier" "structure" "medium" "durability" "real"]
        "What a structure lies on; real is false for a timing model.";
    MEDIUM_OPERATIONS_TOTAL MetricKind::Counter, "terrace_medium_operations_total" ["tier" "structure" "direction"]
        "Operations on the medium of a structure.";
    MEDIUM_BYTES_TOTAL MetricKind::Counter, "terrace_medium_bytes_total" ["tier" "structure" "direction"]
        "Their bytes.";
    MEDIUM_OPERATION_SECONDS MetricKind::Histogram(FINE), "terrace_medium_operation_seconds" ["tier" "structure" "direction"]
        "Times of these operations; on persistent memory of one of 16.";
    MODEL_ACCESSES_TOTAL MetricKind::Counter, "terrace_model_accesses_total" ["tier"]
        "Accesses through a timing model.";
    MODEL_LATE_TOTAL MetricKind::Counter, "terrace_model_late_total" ["tier"]
        "Accesses that took the host longer than the model: there the times are those of the host.";
    DISK_FREE_BYTES MetricKind::Gauge, "terrace_disk_free_bytes" ["tier"]
        "Free space where the folder of a tier lies; `home` is the data directory.";
    SQL_STATEMENTS_TOTAL MetricKind::Counter, "terrace_sql_statements_total" ["kind"]
        "Completed statements of SQL, by the first word of their tag.";
    SQL_ERRORS_TOTAL MetricKind::Counter, "terrace_sql_errors_total" ["class"]
        "Errors that clients of SQL got, by the first two characters of their SQLSTATE.";
    SQL_REQUEST_SECONDS MetricKind::Histogram(NETWORK), "terrace_sql_request_seconds" ["protocol"]
        "Time to answer a query (simple) or an execution of a portal (extended).";
    SEARCH_REQUESTS_TOTAL MetricKind::Counter, "terrace_search_requests_total" ["class" "status"]
        "Requests of search, by their class and the first digit of their status.";
    SEARCH_REQUEST_SECONDS MetricKind::Histogram(NETWORK), "terrace_search_request_seconds" ["class"]
        "Time from the head of a request to its response being made.";
    VOLUME_OPEN MetricKind::Gauge, "terrace_volume_open" ["volume"]
        "1 while a volume serves reads and writes.";
    VOLUME_COPIES MetricKind::Gauge, "terrace_volume_copies" ["volume" "state"]
        "Copies of a mirror by their state.";
    VOLUME_BEHIND_BYTES MetricKind::Gauge, "terrace_volume_behind_bytes" ["volume"]
        "Bytes that its copies still have to be brought.";
    VOLUME_BYTES_TOTAL MetricKind::Counter, "terrace_volume_bytes_total" ["volume" "direction"]
        "Bytes that clients read and wrote since the volume was opened.";
    VOLUME_OPERATION_SECONDS MetricKind::Histogram(FINE), "terrace_volume_operation_seconds" ["volume" "direction"]
        "Times of requests of clients since the volume was opened; the sum is that of the classes' upper ends.";
    VOLUME_DAMAGED_BLOCKS_TOTAL MetricKind::Counter, "terrace_volume_damaged_blocks_total" ["volume"]
        "Reads of blocks that are damaged on every copy.";
    VOLUME_REPAIRED_BLOCKS_TOTAL MetricKind::Counter, "terrace_volume_repaired_blocks_total" ["volume" "copy"]
        "Damaged blocks that were written anew from another copy.";
    VOLUME_COPY_FAILURES_TOTAL MetricKind::Counter, "terrace_volume_copy_failures_total" ["volume" "copy"]
        "Failures of a copy.";
    CERTIFICATE_END MetricKind::Gauge, "terrace_certificate_end_timestamp_seconds" ["setting"]
        "When the certificate ends that a setting names.";
    CERTIFICATE_UNREADABLE MetricKind::Gauge, "terrace_certificate_unreadable" ["setting"]
        "1 while the certificate that a setting names cannot be read; otherwise not there.";
    ALERTS_FIRING MetricKind::Gauge, "terrace_alerts_firing" ["rule"]
        "Alerts of alerts.toml that are on.";
    ALERTS_WAITING MetricKind::Gauge, "terrace_alerts_waiting_messages" ["channel"]
        "Messages about alerts that their channel has not taken yet.";
    PROCESS_CPU_SECONDS_TOTAL MetricKind::Counter, "process_cpu_seconds_total" []
        "Processor time of the process.";
    PROCESS_RESIDENT_MEMORY_BYTES MetricKind::Gauge, "process_resident_memory_bytes" []
        "Memory of the process that is in RAM.";
    PROCESS_OPEN_FDS MetricKind::Gauge, "process_open_fds" []
        "File descriptors open.";
    PROCESS_MAX_FDS MetricKind::Gauge, "process_max_fds" []
        "File descriptors that there may be.";
    PROCESS_START_TIME_SECONDS MetricKind::Gauge, "process_start_time_seconds" []
        "When the process started.";
    PROCESS_THREADS MetricKind::Gauge, "process_threads" []
        "Threads of the process.";
    METRICS_DROPPED_SAMPLES MetricKind::Gauge, "terrace_metrics_dropped_samples" []
        "Samples that were left out, because their metric has too many.";
    METRICS_GATHER_SECONDS MetricKind::Gauge, "terrace_metrics_gather_seconds" []
        "How long gathering these figures took.";
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_follow_open_metrics_and_are_used_once() {
        let names: BTreeSet<&str> = ALL.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), ALL.len());
        for metric in ALL {
            let Metric { name, kind, labels, help } = metric;
            assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{name}");
            assert!(name.starts_with("terrace_") || name.starts_with("process_"), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert_eq!(name.ends_with("_info"), *kind == MetricKind::Info, "{name}");
            assert!(labels.iter().all(|label| !matches!(*label, "le" | "quantile" | "job" | "instance")), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}");
            if let MetricKind::Histogram(scale) = kind {
                assert!(scale.bounds.is_sorted_by(|a, b| a < b), "{name}");
            }
        }
    }

    #[test]
    fn the_page_about_metrics_lists_all_of_them_and_no_other() {
        let page = include_str!("../../../../docs/metrics.md");
        let row = |metric: &Metric| {
            let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "-".to_owned() } else { labels.join(", ") };
            format!("| `{}` | {} | {labels} | {} |", metric.name, metric.kind.name(), metric.help)
        };
        let expected: Vec<String> = ALL.iter().map(row).collect();
        let table = page.lines().skip_while(|line| !line.starts_with("| metric | kind |")).skip(2);
        let found: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(found, expected);
    }
}
