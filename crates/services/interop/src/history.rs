//! What is stored, for people: list, show, trace, count. Reads the journal as it lies on the medium, whether a node is
//! running on it or not, and changes nothing.
//!
//! An id is the position of the message's record, so that `show` reads one record. `list` reads the journal from its
//! start; indexes come with the page store.

use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;

use bytes::Bytes;
use device::FileShelf;
use hl7::{Message, Path};
use journal::{Lsn, View};
use serde::Serialize;

use crate::error::InteropError;
use crate::intake;
use crate::location;
use crate::record::{self, Delivery, Fate, Status, Stored, Switch};

pub use crate::location::JOURNAL;

/// What `list` is asked for; everything that is given must hold.
#[derive(Debug, Default, Clone)]
pub struct Filter {
    /// Only from this service.
    pub service: Option<String>,
    /// Only with this status.
    pub status: Option<Status>,
    /// Only with an output that waits, failed or was delivered.
    pub output: Option<OutputState>,
    /// Only with this MSH-10.
    pub control_id: Option<String>,
    /// Only where the value at a path equals a text.
    pub wanted: Vec<(Path, String)>,
    /// Only received at or after, microseconds since 1970.
    pub since_us: Option<i64>,
    /// The newest so many; 0 = all.
    pub last: usize,
}

/// State of one output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OutputState {
    /// Not delivered yet.
    Waiting,
    /// The receiver took it.
    Delivered,
    /// Given up on.
    Failed,
}

/// One line of a list.
#[derive(Debug, Clone, Serialize)]
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
    /// What was decided.
    pub status: Status,
    /// Seen before.
    pub duplicate: bool,
    /// The message this one resends.
    pub resent_from: Option<u64>,
    /// Bytes received.
    pub bytes: usize,
    /// Operation and state of each output.
    pub outputs: Vec<(String, OutputState)>,
}

/// Everything about one message.
#[derive(Debug, Clone)]
pub struct Trace {
    /// The id.
    pub id: u64,
    /// As stored.
    pub stored: Stored,
    /// What became of its outputs, in order of time.
    pub deliveries: Vec<Delivery>,
}

/// How much is stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Messages received (resends not counted).
    pub inbound: u64,
    /// Messages resent.
    pub resent: u64,
    /// Outputs made.
    pub outputs: u64,
    /// Outputs delivered.
    pub delivered: u64,
    /// Outputs given up on.
    pub failed: u64,
    /// Message objects: inbound, resent and outputs.
    pub objects: u64,
}

/// A read-only look at a node's journal.
#[derive(Debug)]
pub struct History {
    view: View,
}

impl History {
    /// Opens the journal of the node whose data directory is `data`, on whatever tier it lies: devices of a file or a
    /// persistent-memory tier are files, and are read as such.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn open(data: &FilePath) -> Result<Self, InteropError> {
        let shelf = FileShelf::open_read_only(&location::journal_folder(data)?)?;
        Ok(Self { view: View::open(Arc::new(shelf))? })
    }

    /// Calls `each` with every record, oldest first.
    fn each(&self, mut each: impl FnMut(u64, Entry) -> Result<(), InteropError>) -> Result<(), InteropError> {
        for record in self.view.read(self.view.first()) {
            let record = record?;
            let payload: Bytes = record.payload.into();
            let entry = match record.kind {
                record::KIND_MESSAGE => Entry::Message(record::decode_message(&payload)?),
                record::KIND_DELIVERIES => Entry::Deliveries(record::decode_deliveries(&payload)?),
                record::KIND_OPERATION => Entry::Operation(record::decode_switch(&payload)?),
                kind => return Err(InteropError::UnknownRecord { kind }),
            };
            each(record.lsn.0, entry)?;
        }
        Ok(())
    }

    /// Messages that match, oldest first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn list(&self, filter: &Filter) -> Result<Vec<Line>, InteropError> {
        let mut lines: BTreeMap<u64, Line> = BTreeMap::new();
        self.each(|id, entry| {
            match entry {
                Entry::Message(stored) => {
                    if let Some(line) = filter.line(id, &stored) {
                        lines.insert(id, line);
                        // Outputs change a line after it came; so a filter by output state keeps all until the end.
                        if filter.last > 0 && filter.output.is_none() && lines.len() > filter.last {
                            lines.pop_first();
                        }
                    }
                }
                Entry::Deliveries(deliveries) => {
                    for delivery in deliveries {
                        if let Some(line) = lines.get_mut(&delivery.id) {
                            line.apply(&delivery);
                        }
                    }
                }
                Entry::Operation(_) => {}
            }
            Ok(())
        })?;
        if let Some(wanted) = filter.output {
            lines.retain(|_, line| line.outputs.iter().any(|(_, state)| *state == wanted));
        }
        let skip = if filter.last == 0 { 0 } else { lines.len().saturating_sub(filter.last) };
        Ok(lines.into_values().skip(skip).collect())
    }

    /// One message as stored.
    ///
    /// # Errors
    /// `NoMessage`, or the journal cannot be read.
    pub fn show(&self, id: u64) -> Result<Stored, InteropError> {
        let record = self.view.read_at(Lsn(id)).map_err(|error| no_message(id, error))?;
        if record.kind != record::KIND_MESSAGE {
            return Err(InteropError::NoMessage { id });
        }
        record::decode_message(&record.payload.into())
    }

    /// One message with what became of its outputs.
    ///
    /// # Errors
    /// `NoMessage`, or the journal cannot be read.
    pub fn trace(&self, id: u64) -> Result<Trace, InteropError> {
        let stored = self.show(id)?;
        let mut deliveries = Vec::new();
        for record in self.view.read(Lsn(id)) {
            if deliveries.len() == stored.outputs.len() {
                break;
            }
            let record = record?;
            if record.kind == record::KIND_DELIVERIES {
                let all = record::decode_deliveries(&record.payload.into())?;
                deliveries.extend(all.into_iter().filter(|delivery| delivery.id == id));
            }
        }
        Ok(Trace { id, stored, deliveries })
    }

    /// Counts what is stored.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub fn count(&self) -> Result<Counts, InteropError> {
        let mut counts = Counts::default();
        self.each(|_, entry| {
            match entry {
                Entry::Message(stored) => {
                    if stored.resent_from.is_some() {
                        counts.resent += 1;
                    } else {
                        counts.inbound += 1;
                    }
                    counts.outputs += stored.outputs.len() as u64;
                }
                Entry::Deliveries(deliveries) => {
                    for delivery in deliveries {
                        match delivery.fate {
                            Fate::Delivered => counts.delivered += 1,
                            Fate::Failed => counts.failed += 1,
                        }
                    }
                }
                Entry::Operation(_) => {}
            }
            Ok(())
        })?;
        counts.objects = counts.inbound + counts.resent + counts.outputs;
        Ok(counts)
    }
}

fn no_message(id: u64, error: journal::JournalError) -> InteropError {
    match error {
        journal::JournalError::NoRecord { .. }
        | journal::JournalError::Truncated { .. }
        | journal::JournalError::BeyondEnd { .. } => InteropError::NoMessage { id },
        other => other.into(),
    }
}

enum Entry {
    Message(Stored),
    Deliveries(Vec<Delivery>),
    Operation(#[allow(dead_code, reason = "read so that a damaged one is told")] Switch),
}

impl Line {
    fn apply(&mut self, delivery: &Delivery) {
        if let Some((_, state)) = self.outputs.get_mut(usize::from(delivery.output)) {
            *state = match delivery.fate {
                Fate::Delivered => OutputState::Delivered,
                Fate::Failed => OutputState::Failed,
            };
        }
    }
}

impl Filter {
    /// The line of a message that matches all but the state of outputs.
    fn line(&self, id: u64, stored: &Stored) -> Option<Line> {
        if self.service.as_ref().is_some_and(|service| *service != stored.service)
            || self.status.is_some_and(|status| status != stored.status)
            || self.since_us.is_some_and(|since| stored.received_us < since)
        {
            return None;
        }
        let message = Message::parse(&stored.raw).ok();
        let text = |path: &str| {
            let path: Path = path.parse().expect("a constant path");
            message.as_ref().map(|m| intake::text(m, &path)).unwrap_or_default()
        };
        let control_id = text("MSH-10");
        if self.control_id.as_ref().is_some_and(|wanted| *wanted != control_id) {
            return None;
        }
        let holds =
            |(path, wanted): &(Path, String)| message.as_ref().is_some_and(|m| intake::text(m, path) == *wanted);
        if !self.wanted.iter().all(holds) {
            return None;
        }
        Some(Line {
            id,
            received_us: stored.received_us,
            service: stored.service.clone(),
            kind: text("MSH-9"),
            control_id,
            status: stored.status,
            duplicate: stored.duplicate,
            resent_from: stored.resent_from,
            bytes: stored.raw.len(),
            outputs: stored.outputs.iter().map(|o| (o.operation.clone(), OutputState::Waiting)).collect(),
        })
    }
}
