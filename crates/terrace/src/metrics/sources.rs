//! Where the figures of a node come from: each function adds those of one part.
//!
//! Labels are names of the production and of terrace.toml, and words of the program.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::{Noted, TrafficKind};
use interop::production::settings::{OperationSettings, ServiceSettings};
use interop::queue::Queue;
use interop::running::RunningProduction;
use node::backups::BackupRecord;
use node::status::ModelStatus;
use node::trouble::Matter;
use node::{DoorStatus, MediumInUse};
use node_metrics::{Samples, Source, table};
use parking_lot::Mutex;

use super::process;
use crate::assemble::{Assembled, TierShelves};
use crate::volumes::{VolumeHost, VolumeReport, VolumeState};

/// The tier that the data directory is.
const HOME: &str = catalogue::placement::HOME;

/// All sources of a node but those of its other services.
pub(super) fn of(assembled: &Assembled) -> Vec<Box<Source>> {
    let of_node = |collect: fn(&mut Samples, &RunningProduction)| -> Box<Source> {
        // A listener that is stopped late does not keep the store open.
        let node = Arc::downgrade(&assembled.node);
        Box::new(move |samples: &mut Samples| {
            if let Some(node) = node.upgrade() {
                collect(samples, &node);
            }
        })
    };
    let mut folders = assembled.folders().to_vec();
    folders.push((HOME.to_owned(), assembled.node.data().to_owned()));
    let tiers = assembled.tiers().clone();
    vec![
        of_node(node_itself),
        of_node(services),
        of_node(operations),
        of_node(store),
        of_node(media),
        of_node(backups),
        Box::new(move |samples: &mut Samples| traffic(samples, &tiers)),
        Box::new(move |samples: &mut Samples| {
            for (tier, folder) in &folders {
                // A folder that cannot be asked about has no figure: its tier is in trouble anyway.
                if let Ok(bytes) = device::free_bytes(folder) {
                    samples.gauge(table::DISK_FREE_BYTES, &[tier], bytes as f64);
                }
            }
        }),
        Box::new(process::collect),
    ]
}

/// Every matter that a trouble can be about.
const MATTERS: [Matter; 12] = [
    Matter::Failed,
    Matter::Operation,
    Matter::Service,
    Matter::Volume,
    Matter::Full,
    Matter::Descriptors,
    Matter::Audit,
    Matter::BreakGlass,
    Matter::Identity,
    Matter::Directory,
    Matter::Provider,
    Matter::Clock,
];

fn node_itself(samples: &mut Samples, node: &RunningProduction) {
    samples.info(table::BUILD_INFO, &[env!("CARGO_PKG_VERSION")]);
    samples.info(table::PRODUCTION_INFO, &[&node.engine().plan().production.name]);
    let troubles = node.troubles();
    for matter in MATTERS {
        let has = troubles.iter().any(|trouble| trouble.matter == matter);
        samples.flag(table::TROUBLE, &[matter.name()], has);
    }
    let hinders = troubles.iter().any(|trouble| super::HINDERS.contains(&trouble.matter));
    samples.flag(table::READY, &[], !hinders);
    samples.flag(table::UPDATES_FROZEN, &[], node.failed().borrow().is_some());
    samples.gauge(table::FAILED_LOGINS, &[], node.guard().failures() as f64);
    for door in node.admission().status().doors {
        connections(samples, &door);
    }
}

fn backups(samples: &mut Samples, node: &RunningProduction) {
    // One that cannot be read has no figures: the status is told.
    if let Ok(Some(record)) = BackupRecord::read(node.store()) {
        samples.moment(table::BACKUP_LAST_SUCCESS, &[], record.good.map(|good| good.began_us));
        samples.flag(table::BACKUP_FAILED, &[], record.failed.is_some());
    }
}

fn connections(samples: &mut Samples, door: &DoorStatus) {
    let labels = [door.kind.as_str(), door.service.as_str()];
    samples.gauge(table::CONNECTIONS, &labels, door.open as f64);
    samples.gauge(table::CONNECTIONS_MAX, &labels, door.bound as f64);
    for (metric, counts) in
        [(table::CONNECTIONS_REFUSED_TOTAL, &door.refused), (table::CONNECTIONS_ENDED_TOTAL, &door.ended)]
    {
        counts.iter().for_each(|(reason, times)| samples.count(metric, &[labels[0], labels[1], reason], *times));
    }
}

fn services(samples: &mut Samples, node: &RunningProduction) {
    for (name, service) in &node.engine().plan().production.services {
        let figures = &service.figures;
        for (status, count) in figures.statuses() {
            samples.count(table::MESSAGES_RECEIVED_TOTAL, &[name, status], count);
        }
        let read = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
        samples.count(table::DUPLICATES_TOTAL, &[name], read(&figures.duplicates));
        samples.count(table::FRAMING_ERRORS_TOTAL, &[name, "partial"], read(&figures.partial));
        samples.count(table::FRAMING_ERRORS_TOTAL, &[name, "oversize"], read(&figures.oversize));
        samples.histogram(table::MESSAGE_BYTES, &[name], &figures.sizes());
        samples.histogram(table::DECIDE_SECONDS, &[name], &figures.decision_times());
        samples.moment(table::SERVICE_LAST_MESSAGE, &[name], figures.last_us());
        if matches!(service.settings, ServiceSettings::Mllp(_)) {
            samples.count(table::JUNK_BYTES_TOTAL, &[name], read(&figures.junk_bytes));
            samples.histogram(table::ACKNOWLEDGE_SECONDS, &[name], &figures.acknowledge_times());
        }
    }
}

fn operations(samples: &mut Samples, node: &RunningProduction) {
    node.queues().iter().for_each(|queue| operation(samples, queue));
    let homeless = node.homeless().values().sum::<u64>();
    samples.gauge(table::QUEUE_HOMELESS_MESSAGES, &[], homeless as f64);
    let (times, records) = node.engine().message_log.commits();
    samples.histogram(table::COMMIT_SECONDS, &[], &times);
    samples.histogram(table::COMMIT_RECORDS, &[], &records);
}

fn operation(samples: &mut Samples, queue: &Queue) {
    let (name, figures) = ([queue.name.as_str()], &queue.figures);
    let (orders, lanes) = (queue.orders(), queue.lanes().len());
    let (is_suspended, is_retired, is_mllp) = {
        let orders = orders.borrow();
        let is_mllp = matches!(orders.operation.settings, OperationSettings::Mllp(_));
        (orders.suspended.is_some(), orders.retired, is_mllp)
    };
    if is_retired && queue.depth() == 0 {
        return;
    }
    samples.gauge(table::QUEUE_MESSAGES, &name, queue.depth() as f64);
    samples.gauge(table::QUEUE_MEMORY_BYTES, &name, queue.memory() as f64);
    samples.moment(table::QUEUE_OLDEST, &name, queue.oldest_us());
    let read = |count: &std::sync::atomic::AtomicU64| count.load(std::sync::atomic::Ordering::Relaxed);
    samples.count(table::DELIVERIES_TOTAL, &[name[0], "delivered"], read(&queue.counters.delivered));
    samples.count(table::DELIVERIES_TOTAL, &[name[0], "failed"], read(&queue.counters.failed));
    samples.histogram(table::DELIVERY_SECONDS, &name, &figures.times());
    samples.moment(table::OPERATION_LAST_DELIVERY, &name, figures.last_us());
    for (code, count) in figures.answers().filter(|(_, count)| *count > 0) {
        samples.count(table::ANSWERS_TOTAL, &[name[0], code], count);
    }
    for (cause, count) in figures.retries().filter(|(_, count)| *count > 0) {
        samples.count(table::DELIVERY_RETRIES_TOTAL, &[name[0], cause], count);
    }
    samples.flag(table::OPERATION_SUSPENDED, &name, is_suspended);
    samples.gauge(table::OPERATION_LANES, &name, lanes as f64);
    if is_mllp {
        samples.gauge(table::OPERATION_CONNECTED, &name, figures.connected() as f64);
    }
}

fn store(samples: &mut Samples, node: &RunningProduction) {
    let (store, options) = (node.store(), node.store_options());
    let found = store.metrics();
    let journal = store.journal();
    samples.count(table::JOURNAL_WRITES_TOTAL, &[], found.journal.batches);
    samples.count(table::JOURNAL_WRITTEN_BYTES_TOTAL, &[], found.journal.written_bytes);
    samples.count(table::JOURNAL_RECORDS_TOTAL, &[], found.journal.records);
    samples.gauge(table::JOURNAL_KEPT_BYTES, &[], journal.durable().0.saturating_sub(journal.first().0) as f64);
    samples.histogram(table::CHECKPOINT_SECONDS, &[], &store.checkpoint_durations());
    samples.count(table::CHECKPOINT_PAGES_TOTAL, &["fresh"], found.checkpoints.fresh_pages);
    samples.count(table::CHECKPOINT_PAGES_TOTAL, &["changed"], found.checkpoints.changed_pages);
    samples.count(table::CHECKPOINT_WAITS_TOTAL, &[], found.checkpoints.waits);
    samples.gauge(table::PAGES, &[], found.pages as f64);
    samples.gauge(table::PAGES_USED, &[], found.pages_used as f64);
    samples.gauge(table::PAGES_QUARANTINED, &[], found.pages_quarantined as f64);
    let dirty = found.dirty.fresh + found.dirty.changed + found.dirty.checkpoint;
    samples.gauge(table::STORE_DIRTY_BYTES, &[], dirty as f64);
    samples.gauge(table::STORE_BEHIND_BYTES, &[], found.queue_bytes as f64);
    samples.gauge(table::STORE_VERSIONS_BYTES, &[], found.versions_bytes as f64);
    samples.gauge(table::STORE_SNAPSHOTS, &[], found.snapshots as f64);
    samples.gauge(table::CACHE_BYTES, &["near"], options.cache_bytes as f64);
    samples.gauge(table::CACHE_BYTES, &["far"], options.cache.far_bytes as f64);
    let cache = found.cache;
    samples.count(table::CACHE_LOOKUPS_TOTAL, &["near"], cache.near_hits + cache.inner_hits);
    samples.count(table::CACHE_LOOKUPS_TOTAL, &["far"], cache.far_hits);
    samples.count(table::CACHE_LOOKUPS_TOTAL, &["miss"], cache.misses);
}

fn media(samples: &mut Samples, node: &RunningProduction) {
    let media = node.media();
    let far = media.far.as_ref().map(|far| &far.medium);
    for (structure, medium) in [
        ("journal", Some(&media.journal)),
        ("write_image_journal", Some(&media.images)),
        ("data", Some(&media.data)),
        ("far", far),
        ("search", media.search.as_ref()),
        ("search_capacity", media.search_capacity.as_ref()),
    ] {
        let Some(MediumInUse { tier, device, durability, real }) = medium else { continue };
        let real = if *real { "true" } else { "false" };
        samples.info(table::MEDIUM_INFO, &[tier, structure, device, durability.as_str(), real]);
    }
    for model in media.models.iter().map(ModelStatus::of) {
        samples.count(table::MODEL_ACCESSES_TOTAL, &[&model.tier], model.accesses);
        samples.count(table::MODEL_LATE_TOTAL, &[&model.tier], model.late);
    }
}

fn traffic(samples: &mut Samples, tiers: &TierShelves) {
    for (tier, structure, traffic) in tiers.traffic() {
        for kind in TrafficKind::ALL {
            let labels = [tier.as_str(), structure.key(), kind.name()];
            let noted = traffic.noted(kind);
            samples.count(table::MEDIUM_OPERATIONS_TOTAL, &labels, noted.operations);
            samples.count(table::MEDIUM_BYTES_TOTAL, &labels, noted.bytes);
            samples.histogram(table::MEDIUM_OPERATION_SECONDS, &labels, &noted);
        }
    }
}

/// How long what the files of certificates say counts as the present.
const CERTIFICATES_FRESH: Duration = Duration::from_secs(300);

/// The source of the ends of certificates, as the files have them that these settings and a production name.
pub fn certificates(settings: PathBuf, production: Option<PathBuf>) -> Box<Source> {
    let last = Mutex::new((None::<Instant>, Vec::new()));
    Box::new(move |samples| {
        let mut last = last.lock();
        let (at, ends) = &mut *last;
        if at.is_none_or(|at| at.elapsed() >= CERTIFICATES_FRESH) {
            (*at, *ends) =
                (Some(Instant::now()), crate::certificates::certificate_ends(&settings, production.as_deref()));
        }
        for (setting, end_us) in ends.iter() {
            samples.moment(table::CERTIFICATE_END, &[setting.as_str()], *end_us);
            if end_us.is_none() {
                samples.flag(table::CERTIFICATE_UNREADABLE, &[setting.as_str()], true);
            }
        }
    })
}

/// The source of SQL.
#[cfg(feature = "sql")]
pub fn sql(figures: Arc<::sql::wire::SqlFigures>) -> Box<Source> {
    Box::new(move |samples| {
        for (kind, count) in figures.statements() {
            samples.count(table::SQL_STATEMENTS_TOTAL, &[&kind], count);
        }
        for (class, count) in figures.errors() {
            samples.count(table::SQL_ERRORS_TOTAL, &[&class], count);
        }
        for (protocol, times) in figures.times() {
            samples.histogram(table::SQL_REQUEST_SECONDS, &[protocol], &times);
        }
    })
}

/// The source of search.
#[cfg(feature = "search")]
pub fn search(figures: Arc<::search::rest::SearchFigures>) -> Box<Source> {
    Box::new(move |samples| {
        for (class, status, count) in figures.requests() {
            samples.count(table::SEARCH_REQUESTS_TOTAL, &[class, status], count);
        }
        for (class, times) in figures.times() {
            samples.histogram(table::SEARCH_REQUEST_SECONDS, &[class], &times);
        }
    })
}

/// The source of volumes.
pub fn volumes(host: &Arc<VolumeHost>) -> Box<Source> {
    let host = Arc::downgrade(host);
    Box::new(move |samples| {
        for report in host.upgrade().map(|host| host.reports()).unwrap_or_default() {
            volume(samples, &report);
        }
    })
}

/// The states of a copy, as `terrace volume status` has them.
const COPY_STATES: [&str; 5] = ["in-sync", "syncing", "missing", "out", "unknown"];

fn volume(samples: &mut Samples, report: &VolumeReport) {
    let name = report.name.as_str();
    samples.flag(table::VOLUME_OPEN, &[name], report.state == VolumeState::Open);
    for state in COPY_STATES {
        let copies = report.copies.iter().filter(|copy| copy.state == state).count();
        samples.gauge(table::VOLUME_COPIES, &[name, state], copies as f64);
    }
    let behind: u64 = report.copies.iter().map(|copy| copy.behind_bytes).sum();
    samples.gauge(table::VOLUME_BEHIND_BYTES, &[name], behind as f64);
    let activity = &report.activity;
    for (direction, classes, bytes) in
        [("read", &activity.reads, activity.read_bytes), ("write", &activity.writes, activity.written_bytes)]
    {
        samples.count(table::VOLUME_BYTES_TOTAL, &[name, direction], bytes);
        let sum = classes.iter().map(|(ns, times)| ns * times).sum();
        let noted = Noted { classes: classes.clone(), sum, bytes, operations: 0 };
        samples.histogram(table::VOLUME_OPERATION_SECONDS, &[name, direction], &noted);
    }
    samples.count(table::VOLUME_DAMAGED_BLOCKS_TOTAL, &[name], activity.damaged);
    for copy in &report.copies {
        let labels = [name, &copy.number.to_string()];
        samples.count(table::VOLUME_REPAIRED_BLOCKS_TOTAL, &labels, copy.repaired);
        samples.count(table::VOLUME_COPY_FAILURES_TOTAL, &labels, copy.failures);
    }
}
