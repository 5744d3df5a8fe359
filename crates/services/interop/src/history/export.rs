//! A page of an export: messages with their bodies, oldest first, behind the place where the page before ended.
//!
//! ```text
//!   oldest  [ page ][ page ] ...  upto        the index that narrows most, walked forward; or ids, in their order
//!                  ^ next                     upto: the newest message when the first page was made
//! ```
//!
//! A page is bounded in messages, bytes, messages that are looked at, and time; between two of them nothing is held: no snapshot, no lock.
//! What is stored meanwhile is not part of the export, and what retention removes meanwhile is not in it.
//!
//! Not here: who may see what; see `running::transfer`.

use std::time::Duration;

use bytes::Bytes;
use hl7::{Path, Reading};
use node::clock::monotonic;
use serde::{Deserialize, Serialize};
use store::{Direction, StoreError};

use super::answer::{bytes_of, text_of};
use super::filter::{Candidates, Walk, outputs, shown_text};
use super::{EVERY_SERVICE, Filter, ListPlace};
use crate::error::InteropError;
use crate::record::{MessageOrigin, Stored};
use crate::rows::Reader;
use crate::transfer::{TransferMessage, TransferOutput, source_of};

/// Messages of a page at most, and bytes of their bodies; a single longer one makes a page of its own.
const MESSAGES_MAX: usize = 500;
const BYTES_MAX: usize = 1 << 20;

/// Messages that are looked at for one page at most.
const LOOKS_MAX: usize = 20_000;

/// How long a page is filled; one message more may be looked at.
const TIME_MAX: Duration = Duration::from_millis(800);

/// Ids of one request at most.
pub(crate) const EXPORT_IDS_MAX: usize = 500;

/// A request for a page of an export.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExportRequest {
    /// Which messages. Its `last` counts for nothing here.
    pub filter: Filter,
    /// These messages, 500 at most, of those that match; empty: all that match.
    pub ids: Vec<u64>,
    /// Only what the walk finds behind this place, which an earlier page had as its `next`.
    pub after: Option<ListPlace>,
    /// Only ids up to this, which the first page has said; none: this is the first.
    pub upto: Option<u64>,
    /// Messages of the page, 500 at most; 0: as many as that.
    pub limit: usize,
    /// Masked bodies, also for who may see them as they are.
    pub masked: bool,
}

/// Messages with their bodies.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub struct ExportPage {
    /// The messages, in the order of the walk.
    pub messages: Vec<ExportedMessage>,
    /// Where the next page begins; none where there are no more.
    pub next: Option<ListPlace>,
    /// The newest message that belongs to the export.
    pub upto: u64,
    /// The name of the store.
    pub source: String,
    /// Whether the bodies are masked.
    pub masked: bool,
    /// Messages that cannot be read, and why.
    pub damaged: Vec<(u64, String)>,
    /// How many more cannot be read: whose they are is not known, so they are not named to who sees some services only.
    #[serde(default)]
    pub unreadable: u64,
    /// Ids that were asked for and are not stored here, as far as the caller may know.
    pub absent: Vec<u64>,
}

/// A message of an export.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExportedMessage {
    /// What is known of it.
    pub message: TransferMessage,
    /// Its bytes: byte b is character U+00b.
    pub body: String,
}

impl ExportedMessage {
    /// The bytes of the body; none where it is of another release.
    pub fn body(&self) -> Option<Bytes> {
        bytes_of(&self.body)
    }
}

/// What who asks sees.
pub(crate) struct ExportSight<'a> {
    /// Whether messages of a service belong to the export.
    pub(crate) may: &'a mut dyn FnMut(&str) -> bool,
    /// A message as conditions are checked in it.
    pub(crate) seen: &'a dyn Fn(Stored) -> Stored,
    /// That one as it is exported.
    pub(crate) written: &'a dyn Fn(Stored) -> Stored,
}

/// The messages that are looked at.
enum Source {
    Walk(Box<Candidates>),
    Ids(std::vec::IntoIter<u64>),
}

impl Source {
    fn of(reader: &Reader, request: &ExportRequest, upto: u64) -> Source {
        if request.ids.is_empty() {
            // In the order of times an id says nothing: those above are passed over.
            let end = ListPlace { received_us: i64::MAX, id: upto.saturating_add(1) };
            let walk = Walk { direction: Direction::Forward, before: Some(end), after: request.after };
            return Source::Walk(Box::new(Candidates::of(reader, &request.filter, &walk)));
        }
        let after = request.after.map_or(0, |place| place.id.saturating_add(1));
        let mut ids: Vec<u64> = request.ids.iter().copied().filter(|id| *id >= after).collect();
        ids.sort_unstable();
        ids.dedup();
        Source::Ids(ids.into_iter())
    }

    fn next(&mut self) -> Result<Option<ListPlace>, InteropError> {
        match self {
            Source::Walk(candidates) => candidates.next(),
            Source::Ids(ids) => Ok(ids.next().map(|id| ListPlace { received_us: 0, id })),
        }
    }
}

/// Makes a page.
pub(crate) fn page(
    reader: &Reader,
    request: &ExportRequest,
    mut sight: ExportSight<'_>,
) -> Result<ExportPage, InteropError> {
    let wanted = request.filter.wanted_paths()?;
    let limit = if request.limit == 0 { MESSAGES_MAX } else { request.limit.min(MESSAGES_MAX) };
    let upto = match request.upto {
        Some(upto) => upto,
        None => reader.newest()?,
    };
    let store = reader.snapshot().store();
    let mut page = ExportPage { upto, source: source_of(store), masked: request.masked, ..ExportPage::default() };
    let (mut source, until) = (Source::of(reader, request, upto), monotonic() + TIME_MAX);
    let (mut looked_at, mut bytes, mut last) = (0, 0, None);
    while let Some(place) = source.next()? {
        let is_full = page.messages.len() >= limit || bytes >= BYTES_MAX;
        if is_full || looked_at >= LOOKS_MAX || (looked_at > 0 && monotonic() > until) {
            page.next = last;
            return Ok(page);
        }
        looked_at += 1;
        last = Some(place);
        let id = place.id;
        if id > upto {
            continue;
        }
        match one(reader, request, &wanted, id, &mut sight) {
            Ok(Some(found)) => {
                bytes += found.body.len();
                page.messages.push(found);
            }
            Ok(None) => page.absent.extend((!request.ids.is_empty()).then_some(id)),
            Err(InteropError::Store(StoreError::Corrupt(why))) => {
                match (sight.may)(EVERY_SERVICE) {
                    true => page.damaged.push((id, why.to_string())),
                    // It may be of a service that they see: which one it was of is not known.
                    false => page.unreadable += 1,
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(page)
}

/// A message, if it belongs to the export.
fn one(
    reader: &Reader,
    request: &ExportRequest,
    wanted: &[(Path, &str)],
    id: u64,
    sight: &mut ExportSight<'_>,
) -> Result<Option<ExportedMessage>, InteropError> {
    let Some((stored, _)) = reader.inbound(id)? else { return Ok(None) };
    if !(sight.may)(&stored.service) {
        return Ok(None);
    }
    let stored = (sight.seen)(stored);
    if request.filter.line(reader, id, &stored, wanted)?.is_none() {
        return Ok(None);
    }
    let stored = (sight.written)(stored);
    let message = message_of(reader, id, &stored)?;
    Ok(Some(ExportedMessage { message, body: text_of(&stored.raw) }))
}

/// What a file says of a message.
fn message_of(reader: &Reader, id: u64, stored: &Stored) -> Result<TransferMessage, InteropError> {
    let reading = Reading::lenient(&stored.raw, stored.charset);
    let parsed = reading.message().ok();
    let text = |path| shown_text(parsed.as_ref(), path);
    let outcomes = reader.outcomes(id)?;
    let output = |(n, (operation, state)): (usize, (String, super::OutputState))| {
        let outcome = outcomes.iter().find(|outcome| usize::from(outcome.output) == n);
        TransferOutput {
            operation,
            state,
            at_us: outcome.map(|outcome| outcome.at_us),
            detail: outcome.map(|outcome| outcome.detail.clone()).unwrap_or_default(),
        }
    };
    Ok(TransferMessage {
        id,
        service: stored.service.clone(),
        received_us: stored.received_us,
        kind: text("MSH-9"),
        control_id: text("MSH-10"),
        charset: stored.charset.map(|charset| charset.name().to_owned()),
        status: stored.status,
        reason: stored.reason.clone(),
        duplicate: stored.duplicate,
        generation: stored.generation,
        origin: stored.origin.clone().map(MessageOrigin::shown),
        outputs: outputs(reader, id)?.into_iter().enumerate().map(output).collect(),
    })
}
