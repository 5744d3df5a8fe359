//! Reads the stored messages for display: list, show, trace, count, check. Changes nothing.
//!
//! ```text
//! a node runs on the data directory      its control socket answers        the data visible there now
//! none does                              the store is opened over an       recovery happens in memory: nothing on the
//!                                        overlay, the directory is held    medium changes
//! ```
//!
//! Who can read the files of a stopped node has its data: no right is asked for there. A running node asks for the rights of
//! who sends the request.
//!
//! A list uses the index that narrows most: MSH-10, then PID-3.1, then a status other than routed or an output that
//! waits or failed, then service or operation, then the type with its event, else the time; the newest messages are
//! found by walking backwards. All other conditions are checked in the messages.

mod answer;
mod export;
mod filter;
mod masked;
mod page;

use std::path::{Path as FilePath, PathBuf};

use hl7::mask::Masker;
use node::control::{self, read_response};
use node::{DirectoryLock, stopped};
use serde::{Deserialize, Serialize};

use crate::error::InteropError;
use crate::record::{Delivery, Status, Stored};
use crate::rows::{DerivedMessage, Reader, check, interpreter};

pub use crate::record::OutputState;
pub use answer::{bytes_of, trace_of};
pub(crate) use answer::{
    check as answer_check, count as answer_count, list as answer_list, message as answer_message, page as answer_page,
    text_of,
};
pub(crate) use export::{EXPORT_IDS_MAX, ExportSight, page as export_page};
pub use export::{ExportPage, ExportRequest, ExportedMessage};
pub use masked::{Sees, masked, masked_condition, refuse_conditions};

/// Stands for all services where a right is asked for: what is granted on `service *` is granted on it, and what is granted on
/// some services is not.
pub const EVERY_SERVICE: &str = "*";

/// The selection of `list`; every given condition must hold.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default)]
pub struct Filter {
    /// Only from this service.
    pub service: Option<String>,
    /// Only from this service or with an output to this operation.
    pub interface: Option<String>,
    /// Only with this status.
    pub status: Option<Status>,
    /// Only with an output that waits, failed or was delivered.
    pub output: Option<OutputState>,
    /// Only with this MSH-10.
    pub control_id: Option<String>,
    /// Only with this PID-3.1, in any repetition of the first PID.
    pub mrn: Option<String>,
    /// Only of this type: `ADT`, or with its event `ADT^A01`.
    pub kind: Option<String>,
    /// Only where the value at a path equals a text.
    pub wanted: Vec<(String, String)>,
    /// Only received at or after, microseconds since 1970.
    pub since_us: Option<i64>,
    /// Only received before, microseconds since 1970.
    pub until_us: Option<i64>,
    /// The newest so many; 0 = all.
    pub last: usize,
}

/// One line of a list.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Line {
    /// The id.
    pub id: u64,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The service.
    pub service: String,
    /// MSH-9 as received.
    pub kind: String,
    /// MSH-10.
    pub control_id: String,
    /// The decision.
    pub status: Status,
    /// Seen before.
    pub duplicate: bool,
    /// The message that this one sends again, as it was or edited.
    pub resent_from: Option<u64>,
    /// The generation of the production that decided; 0 where it is not known.
    #[serde(default)]
    pub generation: u32,
    /// The message that this one decided anew.
    #[serde(default)]
    pub reprocessed_from: Option<u64>,
    /// Whether it came by an import.
    #[serde(default)]
    pub imported: bool,
    /// Bytes received.
    pub bytes: usize,
    /// Operation and state of each output.
    pub outputs: Vec<(String, OutputState)>,
    /// Why it cannot be read, so that it is not known whether it matches; then only the id counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged: Option<String>,
}

/// A page of the list, from the newest message back.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ListQuery {
    /// Which messages. Its `last` counts for nothing here.
    pub filter: Filter,
    /// Only what the walk finds behind this place, which an earlier page of the same filter had as its `next`.
    pub before: Option<ListPlace>,
    /// Lines of the page, 1 to [`ListQuery::LIMIT_MAX`]; 0, and more than that: as many as that.
    pub limit: usize,
}

impl ListQuery {
    /// Most lines of a page.
    pub const LIMIT_MAX: usize = 1_000;
}

/// Where a walk over messages is: at one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListPlace {
    /// When that message came in, microseconds since 1970; 0 where the walk is in the order of ids.
    pub received_us: i64,
    /// Its id.
    pub id: u64,
}

/// Some lines of a list, the newest first.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ListPage {
    /// The lines.
    pub lines: Vec<Line>,
    /// Where the next page begins; none where there are no more messages.
    pub next: Option<ListPlace>,
    /// Messages that were looked at: the page ends early where it took more than some time, or more than some messages, to fill it.
    pub looked_at: usize,
    /// Whether it has ended early.
    pub is_partial: bool,
}

impl Filter {
    /// Whether a condition is on what is in messages: whether one matches says something about its body.
    pub fn reads_bodies(&self) -> bool {
        self.mrn.is_some() || !self.wanted.is_empty()
    }
}

impl Line {
    /// Of a message that cannot be read.
    pub(crate) fn damaged(id: u64, why: String) -> Line {
        Line {
            id,
            received_us: 0,
            service: String::new(),
            kind: String::new(),
            control_id: String::new(),
            status: Status::Unmatched,
            duplicate: false,
            resent_from: None,
            generation: 0,
            reprocessed_from: None,
            imported: false,
            bytes: 0,
            outputs: Vec::new(),
            damaged: Some(why),
        }
    }
}

/// Everything about one message.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The id.
    pub id: u64,
    /// As stored.
    pub stored: Stored,
    /// The outcomes of its outputs, in their order.
    pub deliveries: Vec<Delivery>,
    /// Why outputs without an outcome wait; empty where no node runs.
    pub waits: Vec<OutputWait>,
    /// The messages that were made from it, the newest hundred.
    pub derived: Vec<DerivedMessage>,
    /// The size of the message as received.
    pub bytes: usize,
    /// The sizes of its outputs, in their order.
    pub output_bytes: Vec<usize>,
    /// Why the bodies are left out of `stored`, where they are.
    pub withheld: Option<String>,
    /// Whether `stored` is masked: not as it was stored.
    pub masked: bool,
}

/// Why an output waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputWait {
    /// Which output, from 0.
    pub output: u16,
    /// Outputs ahead of it in its lane; none where it is in no queue.
    pub ahead: Option<usize>,
    /// The cause in words; nothing of a message is in it.
    pub cause: String,
}

/// How many of the messages that were made from one are shown with it.
pub(crate) const DERIVED_SHOWN: usize = 100;

/// How much is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Messages received (resends not counted).
    pub inbound: u64,
    /// Messages made from stored ones: resent, edited, reprocessed.
    pub resent: u64,
    /// Outputs made.
    pub outputs: u64,
    /// Outputs delivered.
    pub delivered: u64,
    /// Outputs given up on.
    pub failed: u64,
    /// Outputs set aside.
    #[serde(default)]
    pub set_aside: u64,
    /// Message objects: inbound, resent and outputs.
    pub objects: u64,
}

/// A look at what a node has stored.
#[derive(Debug)]
pub struct History {
    source: Source,
}

#[derive(Debug)]
enum Source {
    /// A node runs on this data directory.
    Node(PathBuf),
    /// None does, and the directory is held meanwhile.
    Stopped { reader: Reader, _lock: Option<DirectoryLock> },
}

impl History {
    /// Opens the history of the node whose data directory is `data`, whether it runs or not.
    ///
    /// # Errors
    /// There is none, it lies in memory, or it cannot be read; `Device` with `Busy` while a node starts or stops there.
    pub fn open(data: &FilePath) -> Result<Self, InteropError> {
        if control::is_running(data) {
            return Ok(Self { source: Source::Node(data.to_owned()) });
        }
        let (store, lock) = open_stopped(data)?;
        Ok(Self { source: Source::Stopped { reader: Reader::new(&store), _lock: lock } })
    }

    /// Messages that match, oldest first.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Line>, InteropError> {
        match &self.source {
            Source::Node(data) => {
                let filter = serde_json::to_string(filter).expect("plain data becomes JSON");
                Ok(read_response(control::request(data, &format!("messages {filter}"))?)?)
            }
            Source::Stopped { reader, .. } => filter::list(reader, filter, &mut |_| true, &|stored| stored),
        }
    }

    /// One message as stored, with its bodies.
    ///
    /// # Errors
    /// `NoMessage`, or the store cannot be read; `Denied` where a running node does not show its bodies.
    pub fn show(&self, id: u64) -> Result<Stored, InteropError> {
        let trace = self.trace(id)?;
        match trace.withheld {
            None => Ok(trace.stored),
            Some(why) => Err(InteropError::Denied(why)),
        }
    }

    /// One message with what became of its outputs, and with its bodies as far as a running node shows them.
    ///
    /// # Errors
    /// `NoMessage`, or the store cannot be read.
    pub fn trace(&self, id: u64) -> Result<Trace, InteropError> {
        self.one(id, "")
    }

    /// The same without bodies: no right to bodies is needed, and none is recorded as read.
    ///
    /// # Errors
    /// `NoMessage`, or the store cannot be read.
    pub fn outline(&self, id: u64) -> Result<Trace, InteropError> {
        self.one(id, " metadata")
    }

    /// The same as JSON, as a running node answers it.
    ///
    /// # Errors
    /// `NoMessage`, or the store cannot be read.
    pub fn outline_json(&self, id: u64) -> Result<serde_json::Value, InteropError> {
        match &self.source {
            Source::Node(data) => Ok(control::request(data, &format!("message {id} metadata"))?),
            Source::Stopped { reader, .. } => answer::outline(reader, id),
        }
    }

    fn one(&self, id: u64, part: &str) -> Result<Trace, InteropError> {
        match &self.source {
            Source::Node(data) => answer::trace_of(id, control::request(data, &format!("message {id}{part}"))?),
            Source::Stopped { reader, .. } => trace(reader, id, None),
        }
    }

    /// A page of an export. Of a stopped node the bodies are not masked: its settings are not known.
    ///
    /// # Errors
    /// The store cannot be read; `Refused` where masked bodies of a stopped node are wanted.
    pub fn export(&self, request: &ExportRequest) -> Result<ExportPage, InteropError> {
        match &self.source {
            Source::Node(data) => {
                let request = serde_json::to_string(request).expect("plain data becomes JSON");
                Ok(read_response(control::request(data, &format!("export {request}"))?)?)
            }
            Source::Stopped { .. } if request.masked => Err(InteropError::Refused(
                "masked bodies are made by a running node, which knows what is masked: start it, or leave --masked out"
                    .to_owned(),
            )),
            Source::Stopped { reader, .. } => {
                let sight = ExportSight { may: &mut |_| true, seen: &|stored| stored, written: &|stored| stored };
                export_page(reader, request, sight)
            }
        }
    }

    /// Counts the stored messages and outputs.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn count(&self) -> Result<Counts, InteropError> {
        match &self.source {
            Source::Node(data) => Ok(read_response(control::request(data, "count")?)?),
            Source::Stopped { reader, .. } => filter::count(reader),
        }
    }

    /// Whether every row of every message is there and fits.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn check(&self) -> Result<check::Report, InteropError> {
        match &self.source {
            Source::Node(data) => Ok(read_response(control::request(data, "check")?)?),
            Source::Stopped { reader, .. } => check::check(reader),
        }
    }
}

/// Opens the store of the node whose data directory is `data`, while no node runs there; nothing on the medium changes.
///
/// # Errors
/// As [`stopped::open_stopped`].
pub fn open_stopped(data: &FilePath) -> Result<(store::Store, Option<DirectoryLock>), InteropError> {
    Ok(stopped::open_stopped(data, interpreter())?)
}

/// The line of a message as its reader sees it, if it matches a filter without conditions on values.
pub(crate) fn line_of(
    reader: &Reader,
    filter: &Filter,
    (id, seen): (u64, &Stored),
) -> Result<Option<Line>, InteropError> {
    filter.line(reader, id, seen, &[])
}

/// A message; masked by `masker`, if there is one.
fn trace(reader: &Reader, id: u64, masker: Option<&Masker>) -> Result<Trace, InteropError> {
    let (stored, deliveries) = (reader.message(id)?, reader.outcomes(id)?);
    let stored = match masker {
        Some(masker) => masked(masker, stored, true),
        None => stored,
    };
    let output_bytes = stored.outputs.iter().map(|output| output.body.len()).collect();
    let (bytes, masked) = (stored.raw.len(), masker.is_some());
    let derived = reader.derived_from(id, DERIVED_SHOWN)?;
    Ok(Trace { id, bytes, output_bytes, withheld: None, masked, stored, deliveries, waits: Vec::new(), derived })
}
