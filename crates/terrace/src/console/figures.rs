//! The figures of a node as the console shows them: of its status, its queues and its store.
//!
//! Collected once a second for everybody who looks. What takes reads of the store is remembered: when the oldest message of a queue came
//! in, and, for some seconds, how many messages need a person.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use interop::InteropError;
use interop::record::{Status, Switch};
use interop::rows::Reader;
use interop::running::{NodeStatus, OperationStatus, QueueHead, RunningProduction};
use node::AdmissionStatus;
use node::clock::monotonic;
use node::status::{JournalStatus, PlaceStatus};
use store::Direction;
use web_console::admin::{
    CacheFigures, JournalFigures, NodeFigures, OperationFigures, OperationState, ServiceFigures, TierFigures,
    ToDoFigures,
};

/// How long a count of messages that need a person holds.
const COUNT_TIME: Duration = Duration::from_secs(5);

/// Messages whose times are remembered; beyond it all are looked up again.
const TIMES_MAX: usize = 1_000;

/// Near memory of the page cache: it lies on no tier.
const NEAR_MEMORY: &str = "memory";

/// What is remembered between collections.
#[derive(Debug, Default)]
pub struct FiguresMemory(Mutex<Remembered>);

#[derive(Debug, Default)]
struct Remembered {
    times: HashMap<u64, i64>,
    to_do: Option<(Duration, ToDoFigures)>,
}

impl FiguresMemory {
    /// Collects. It reads the store: on a thread for that.
    pub fn collect(&self, node: &RunningProduction) -> Result<NodeFigures, InteropError> {
        let status = node.status();
        let (heads, switches) = (node.queue_heads(0), node.switches()?);
        let mut remembered = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let reader = Reader::new(node.store());
        if remembered.times.len() > TIMES_MAX {
            remembered.times.clear();
        }
        let mut operations = Vec::new();
        for operation in &status.operations {
            let head = heads.iter().find(|head| head.operation == operation.name);
            let switch = switches.iter().find(|switch| switch.operation == operation.name);
            let oldest = match head.and_then(|head| head.oldest) {
                None => None,
                Some(id) => received(&reader, &mut remembered.times, id)?.map(|at_us| (id, at_us)),
            };
            operations.push(operation_figures(operation, head, switch, oldest));
        }
        let to_do = match remembered.to_do {
            Some((at, to_do)) if monotonic().saturating_sub(at) < COUNT_TIME => to_do,
            _ => {
                let to_do = to_do(&reader)?;
                remembered.to_do = Some((monotonic(), to_do));
                to_do
            }
        };
        Ok(NodeFigures { operations, to_do, ..of_status(status, node.guard().now_us()) })
    }
}

/// When a message came in; none once it is gone.
fn received(reader: &Reader, times: &mut HashMap<u64, i64>, id: u64) -> Result<Option<i64>, InteropError> {
    if let Some(at_us) = times.get(&id) {
        return Ok(Some(*at_us));
    }
    let found = reader.inbound(id)?.map(|(stored, _)| stored.received_us);
    found.map(|at_us| times.insert(id, at_us));
    Ok(found)
}

/// Counts messages that need a person, each kind up to a bound.
fn to_do(reader: &Reader) -> Result<ToDoFigures, InteropError> {
    let count = |walk: Option<interop::rows::read::ById>| -> Result<u64, InteropError> {
        let (mut found, Some(mut walk)) = (0, walk) else { return Ok(0) };
        while found < ToDoFigures::MOST && walk.next()?.is_some() {
            found += 1;
        }
        Ok(found)
    };
    Ok(ToDoFigures {
        errored: count(reader.by_status(Status::Errored, Direction::Backward))?,
        failed: count(Some(reader.with_failed_output(Direction::Backward)))?,
        unmatched: count(reader.by_status(Status::Unmatched, Direction::Backward))?,
    })
}

fn operation_figures(
    status: &OperationStatus,
    head: Option<&QueueHead>,
    switch: Option<&Switch>,
    oldest: Option<(u64, i64)>,
) -> OperationFigures {
    let state = match head {
        Some(head) if head.broken => OperationState::Broken,
        _ if status.retired => OperationState::Ending,
        _ if status.suspended => OperationState::Suspended,
        _ => OperationState::Running,
    };
    let since = switch.filter(|switch| switch.suspended && state == OperationState::Suspended);
    OperationFigures {
        name: status.name.clone(),
        kind: head.map(|head| head.kind.to_owned()).unwrap_or_default(),
        to: head.map(|head| head.to.clone()).unwrap_or_default(),
        tls: head.is_some_and(|head| head.tls),
        state,
        since: since.map(|switch| (switch.at_us, switch.reason.clone())),
        cause: status.cause.clone(),
        waiting: status.waiting as u64,
        oldest,
        memory_bytes: status.memory_bytes as u64,
        lanes: head.map_or(0, |head| head.lanes as u64),
        delivered: status.delivered,
        failed: status.failed,
        retried: status.retried,
    }
}

/// What the status has; operations and what needs a person come from elsewhere.
fn of_status(status: NodeStatus, at_us: i64) -> NodeFigures {
    let tiers = tiers(&status);
    let services = status.services.iter().map(|service| {
        let door = door(&status.admission, &service.kind, &service.name);
        ServiceFigures {
            name: service.name.clone(),
            kind: service.kind.clone(),
            at: service.at.clone(),
            tls: service.tls,
            rules: service.rules.clone(),
            connections: door.map(|door| door.open as u64),
            refused: door.map_or(0, |door| door.refused.values().sum()),
            note: [&service.closed, &service.hindered].map(String::as_str).join(" ").trim().to_owned(),
        }
    });
    NodeFigures {
        at_us,
        services: services.collect(),
        production: status.production,
        data: status.data.display().to_string(),
        pid: status.pid,
        homeless: status.homeless,
        troubles: status.troubles,
        stored: status.stored,
        refused: status.refused,
        duplicates: status.duplicates,
        damaged_pages: status.store.pages_quarantined,
        tiers,
        cache: CacheFigures {
            mode: status.store.cache_mode,
            near_hits: status.store.near_hits,
            far_hits: status.store.far_hits,
            misses: status.store.cache_misses,
            near_bytes: status.store.near_bytes,
            far_bytes: status.store.far_bytes,
        },
        journal: JournalFigures {
            writes: status.journal.writes,
            bytes: status.journal.bytes,
            records: status.journal.records,
            write_us: status.journal.write_us,
            kept_bytes: status.journal.durable.saturating_sub(status.journal.first),
        },
        checkpoints: status.store.cycles,
        last_checkpoint_ms: status.store.last_cycle_ms,
        checkpoint_waits: status.store.cycle_waits,
        ..NodeFigures::default()
    }
}

fn door<'s>(admission: &'s AdmissionStatus, kind: &str, name: &str) -> Option<&'s node::DoorStatus> {
    admission.doors.iter().find(|door| door.kind == kind && door.service == name)
}

/// Adds to a count that may not be there yet.
fn add(sum: &mut Option<u64>, more: u64) {
    *sum = Some(sum.unwrap_or(0) + more);
}

/// Tiers by what lies on them, near memory first.
struct TierTable(Vec<TierFigures>);

impl TierTable {
    fn at(&mut self, (name, medium, real, durability): (&str, &str, bool, &str), holds: &str) -> &mut TierFigures {
        let found = self.0.iter().position(|tier| tier.name == name);
        let at = found.unwrap_or_else(|| {
            self.0.push(TierFigures {
                name: name.to_owned(),
                medium: medium.to_owned(),
                real,
                durability: durability.to_owned(),
                ..TierFigures::default()
            });
            self.0.len() - 1
        });
        let tier = &mut self.0[at];
        // Where two structures differ, the weaker counts: a tier is real only if all of it is.
        tier.real &= real;
        tier.holds.push(holds.to_owned());
        tier
    }

    fn place(&mut self, place: &PlaceStatus, holds: &str) -> &mut TierFigures {
        let PlaceStatus { tier, device, durability, real } = place;
        self.at((tier.as_str(), device.as_str(), *real, durability.as_str()), holds)
    }
}

fn tiers(status: &NodeStatus) -> Vec<TierFigures> {
    let (store, mut table) = (&status.store, TierTable(Vec::new()));
    let near = table.at((NEAR_MEMORY, "DRAM", true, "none"), "page cache");
    near.reads = Some(store.near_hits);
    near.used = Some((store.near_bytes, 0));
    if let Some(far) = &store.far {
        let tier = table.place(far, "far memory");
        add(&mut tier.reads, store.far_hits);
        tier.used = Some((store.far_bytes, 0));
    }
    let JournalStatus { tier, device, durability, real, writes, bytes, .. } = &status.journal;
    let journal = table.at((tier.as_str(), device.as_str(), *real, durability.as_str()), "journal");
    add(&mut journal.writes, *writes);
    add(&mut journal.written_bytes, *bytes);
    let images = table.place(&status.images, "write images");
    add(&mut images.writes, store.image_pages);
    add(&mut images.written_bytes, store.image_bytes);
    let pages = table.place(&status.data_pages, "pages");
    add(&mut pages.reads, store.reads);
    add(&mut pages.read_bytes, store.read_bytes);
    add(&mut pages.writes, store.writes);
    add(&mut pages.written_bytes, store.written_bytes);
    for (place, holds) in [(&status.search, "index files"), (&status.search_capacity, "large index files")] {
        if let Some(place) = place {
            table.place(place, holds);
        }
    }
    for model in &status.models {
        if let Some(tier) = table.0.iter_mut().find(|tier| tier.name == model.tier) {
            add(&mut tier.late, model.late);
        }
    }
    table.0
}
