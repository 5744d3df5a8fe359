//! What the operations of a running production do, and why their messages wait: for `terrace status`, `operation list`, `operation
//! show` and `message trace`.
//!
//! Invariant: the text of a receiver's answer is in no status and in no trace, since it can quote a message. `operation show` has it,
//! for who may read bodies without the mask.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use serde::{Deserialize, Serialize};

use super::RunningProduction;
use crate::history::OutputWait;
use crate::production::settings::OperationSettings;
use crate::queue::hindrance::Hindrance;
use crate::queue::progress::{ConnectionState, LaneProgress, LaneStage, LastAnswer};
use crate::queue::{Lane, Queue};

/// Waiting outputs that a report lists.
const NEXT_SHOWN: usize = 20;

/// An operation, for people and programs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperationStatus {
    /// Its name.
    pub name: String,
    /// `mllp` or `file`.
    #[serde(default)]
    pub kind: String,
    /// Address and port, or folder.
    #[serde(default)]
    pub at: String,
    /// Messages accepted and not done.
    pub waiting: usize,
    /// Bytes of them in memory.
    pub memory_bytes: usize,
    /// Delivered since the start.
    pub delivered: u64,
    /// Given up on since the start.
    pub failed: u64,
    /// Tries followed by another, since the start.
    pub retried: u64,
    /// Set aside since the start.
    #[serde(default)]
    pub set_aside: u64,
    /// Suspended until it is resumed.
    pub suspended: bool,
    /// Since when it is suspended, microseconds since 1970.
    #[serde(default)]
    pub suspended_since_us: Option<i64>,
    /// By whom, or by which answer.
    #[serde(default)]
    pub suspended_because: Option<String>,
    /// Outside its schedule.
    #[serde(default)]
    pub closed: bool,
    /// Started outside its schedule up to this time, microseconds since 1970.
    #[serde(default)]
    pub started_until_us: Option<i64>,
    /// The operation that is not connected, which it waits for.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// No longer in the production; not shown when empty.
    pub retired: bool,
    /// The connection of the lane with the oldest message, or of the first lane.
    #[serde(default)]
    pub connection: ConnectionState,
    /// The oldest message that waits.
    #[serde(default)]
    pub oldest: Option<u64>,
    /// When that came in, microseconds since 1970.
    #[serde(default)]
    pub oldest_us: Option<i64>,
    /// Why messages wait, or why it is suspended, in words; empty where neither is so.
    #[serde(default)]
    pub cause: String,
}

/// An operation with its lanes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OperationReport {
    /// See there.
    #[serde(flatten)]
    pub status: OperationStatus,
    /// Its lanes.
    pub lanes: Vec<LaneReport>,
    /// Why texts of answers are left out, where they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub withheld: Option<String>,
}

/// A lane of an operation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LaneReport {
    /// Its number.
    pub lane: usize,
    /// Messages in it.
    pub waiting: usize,
    /// The first ones: the head, and what goes next.
    pub next: Vec<WaitingOutput>,
    /// What it does, and since when, microseconds since 1970.
    pub stage: LaneStage,
    /// See `stage`.
    pub stage_since_us: i64,
    /// When the head is tried again.
    pub next_try_us: Option<i64>,
    /// Tries of the head that have ended.
    pub tries: u32,
    /// When the first of them began.
    pub first_try_us: Option<i64>,
    /// Its connection.
    pub connection: ConnectionState,
    /// The result of the last try, of the head or of a message before it.
    pub last: Option<LastAnswer>,
    /// Why the head waits, in words; empty where nothing does.
    pub cause: String,
}

/// An output that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitingOutput {
    /// The message.
    pub id: u64,
    /// Which of its outputs, from 0.
    pub output: u16,
    /// When the message came in, microseconds since 1970.
    pub received_us: i64,
}

/// Every operation that has something to show.
pub(super) fn statuses(running: &RunningProduction) -> Vec<OperationStatus> {
    let now_us = running.engine.clock.now_us();
    let queues = running.operations.queues();
    let all = queues.iter().map(|queue| status(queue, &queues, now_us, false));
    all.filter(|operation| !operation.retired || operation.waiting > 0).collect()
}

/// One operation with its lanes; with texts of answers, or with the reason why they are left out.
pub(super) fn report(queue: &Queue, queues: &[Arc<Queue>], now_us: i64, withheld: Option<String>) -> OperationReport {
    let shows = withheld.is_none();
    let suspended = hindrance(queue, queues, now_us).map(|hindrance| hindrance.words(now_us));
    let of = |(number, lane): (usize, &Arc<Lane>)| lane_report((number, lane), suspended.as_deref(), now_us, shows);
    let lanes = queue.lanes().iter().enumerate().map(of).collect();
    OperationReport { status: status(queue, queues, now_us, shows), lanes, withheld }
}

fn status(queue: &Queue, queues: &[Arc<Queue>], now_us: i64, shows_text: bool) -> OperationStatus {
    let hindrance = hindrance(queue, queues, now_us);
    let orders = queue.orders();
    let orders = orders.borrow();
    let (kind, at) = match &orders.operation.settings {
        OperationSettings::Mllp(mllp) => ("mllp", mllp.address.clone()),
        OperationSettings::File(file) => ("file", file.folder.display().to_string()),
    };
    let oldest = queue.lanes().iter().filter_map(|lane| Some((*lane.first(1).first()?, lane)));
    let oldest = oldest.min_by_key(|((id, ..), _)| *id);
    let lane = oldest.map_or(queue.lanes().first(), |(_, lane)| Some(lane));
    let progress = lane.map(|lane| lane.progress()).unwrap_or_default();
    let others = queue.lanes().iter().filter(|lane| !lane.is_empty()).count().saturating_sub(1);
    let cause = match (&hindrance, oldest) {
        (Some(suspended @ Hindrance::Suspended(_)), _) => suspended.words(now_us),
        (_, None) => String::new(),
        (Some(hindrance), Some(_)) => hindrance.words(now_us),
        (None, Some(_)) if others > 0 => format!("{}; {others} more lanes wait", progress.words(now_us, shows_text)),
        (None, Some(_)) => progress.words(now_us, shows_text),
    };
    let read = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    OperationStatus {
        name: queue.name.clone(),
        kind: kind.to_owned(),
        at,
        waiting: queue.depth(),
        memory_bytes: queue.memory(),
        delivered: read(&queue.counters.delivered),
        failed: read(&queue.counters.failed),
        retried: read(&queue.counters.retried),
        set_aside: read(&queue.counters.set_aside),
        suspended: orders.suspended.is_some(),
        suspended_since_us: orders.suspended.as_ref().map(|suspension| suspension.since_us),
        suspended_because: orders.suspended.as_ref().map(|suspension| suspension.reason.to_string()),
        closed: matches!(hindrance, Some(Hindrance::Closed(_))),
        started_until_us: orders.started_until_us.filter(|until_us| now_us < *until_us),
        waits_for: match hindrance {
            Some(Hindrance::Requires { operation, .. }) => Some(operation),
            _ => None,
        },
        retired: orders.retired,
        connection: progress.connection,
        oldest: oldest.map(|((id, ..), _)| id),
        oldest_us: oldest.map(|((_, _, received_us), _)| received_us),
        cause,
    }
}

/// Why the whole operation stands still, if it does.
fn hindrance(queue: &Queue, queues: &[Arc<Queue>], now_us: i64) -> Option<Hindrance> {
    let orders = queue.orders();
    let orders = orders.borrow().clone();
    orders.hindrance(now_us, |name| Some(queues.iter().find(|queue| queue.name == name)?.required(now_us)))
}

fn lane_report((number, lane): (usize, &Lane), suspended: Option<&str>, now_us: i64, shows_text: bool) -> LaneReport {
    let progress = lane.progress();
    let next = lane.first(NEXT_SHOWN).into_iter();
    let next: Vec<WaitingOutput> =
        next.map(|(id, output, received_us)| WaitingOutput { id, output, received_us }).collect();
    let cause = match (next.is_empty(), suspended) {
        (true, _) => String::new(),
        (false, Some(suspended)) => suspended.to_owned(),
        (false, None) => progress.words(now_us, shows_text),
    };
    let LaneProgress { stage, stage_since_us, next_try_us, tries, first_try_us, connection, mut last, .. } = progress;
    if let Some(last) = last.as_mut().filter(|_| !shows_text) {
        last.text = None;
    }
    let first_try_us = (tries > 0).then_some(first_try_us);
    let waiting = lane.len();
    LaneReport {
        lane: number,
        waiting,
        next,
        stage,
        stage_since_us,
        next_try_us,
        tries,
        first_try_us,
        connection,
        last,
        cause,
    }
}

/// Why outputs of a message wait, each by its number and its operation.
pub(super) fn waits(queues: &[Arc<Queue>], now_us: i64, id: u64, open: &[(u16, &str)]) -> Vec<OutputWait> {
    let of = |(output, operation): &(u16, &str)| {
        let (output, operation) = (*output, *operation);
        let Some(queue) = queues.iter().find(|queue| queue.name == operation) else {
            let cause = format!("the production has no operation {operation}: it waits until there is one");
            return OutputWait { output, ahead: None, cause };
        };
        let place = queue.lanes().iter().find_map(|lane| Some((lane, lane.ahead_of(id, output)?)));
        let Some((lane, ahead)) = place else {
            return OutputWait {
                output,
                ahead: None,
                cause: "on its way: its outcome is about to be stored".to_owned(),
            };
        };
        let stands = hindrance(queue, queues, now_us).map(|hindrance| hindrance.words(now_us));
        let why = stands.unwrap_or_else(|| lane.progress().words(now_us, false));
        let cause = if ahead == 0 { why } else { format!("{ahead} ahead of it; {why}") };
        OutputWait { output, ahead: Some(ahead), cause }
    };
    open.iter().map(of).collect()
}
