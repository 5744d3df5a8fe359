//! [`Arrivals`]: tells another service of the same process which messages have come, by id, service and type.
//!
//! It watches as a tail does: the flow of messages never waits for it, and what a full ring has no room for is counted.

use store::{Lsn, Store, StoreError};

use crate::error::InteropError;
use crate::message_log::MessageLog;
use crate::record::search::TextIndex;
use crate::rows::Reader;
use crate::tail::{OpenTail, TailBatch, TailEvent};

/// A message that has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its id.
    pub id: u64,
    /// The service that took it.
    pub service: String,
    /// MSH-9.1 and MSH-9.2, as `ADT^A01`.
    pub kind: String,
}

/// What came since it was asked before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ArrivedIds {
    /// The ids of messages, in the order of the journal.
    pub ids: Vec<u64>,
    /// Whether others came behind them that are not told.
    pub left_out: bool,
}

/// A watch over what comes, as long as this is there.
#[derive(Debug)]
pub struct Arrivals(OpenTail);

impl Arrivals {
    /// Watches from now on.
    pub fn watch(message_log: &MessageLog) -> Arrivals {
        Arrivals(message_log.tails().watch())
    }

    /// Waits until something has come. Giving up this wait loses nothing.
    pub async fn news(&self) {
        self.0.feed.news().await;
    }

    /// What has come; it is durable.
    pub fn take(&self) -> ArrivedIds {
        let TailBatch { events, left_out } = self.0.feed.take();
        let message = |event| match event {
            TailEvent::Message { id, .. } => Some(id),
            TailEvent::Outcome { .. } => None,
        };
        ArrivedIds { ids: events.into_iter().filter_map(message).collect(), left_out: left_out > 0 }
    }
}

/// Blocks until readers of the store see these messages, the last of which came last.
///
/// # Errors
/// The store's.
pub fn wait_visible(store: &Store, ids: &[u64]) -> Result<(), InteropError> {
    let last = ids.last().map_or(Ok(()), |last| store.wait_visible(Lsn(*last)));
    last.map_err(InteropError::from)
}

/// Reads what these messages are. One that cannot be read, has no type or was removed meanwhile is not among them.
///
/// # Errors
/// The store's.
pub fn read(store: &Store, ids: &[u64]) -> Result<Vec<Arrived>, InteropError> {
    let reader = Reader::new(store);
    let mut found = Vec::with_capacity(ids.len());
    for id in ids {
        let stored = match reader.inbound(*id) {
            Ok(Some((stored, _))) => stored,
            Ok(None) | Err(InteropError::Store(StoreError::Corrupt(_))) => continue,
            Err(error) => return Err(error),
        };
        let mut kind = None;
        stored.keys.texts(|index, text| {
            if index == TextIndex::Type {
                kind.get_or_insert_with(|| text.to_owned());
            }
        });
        found.extend(kind.map(|kind| Arrived { id: *id, service: stored.service.clone(), kind }));
    }
    Ok(found)
}
