//! The to-do list of messages: which ones need a person, who takes care of each, and what was said about it.
//!
//! ```text
//!   index by state: errored, unmatched, failed, set aside --in the order of ids--> not sent again since? not done? --> a page
//! ```

use std::cell::Cell;
use std::collections::BTreeSet;

use node::audit::EntryMarks;
use node::identity::{Action, Caller, Object};
use serde_json::{Value, json};
use store::StoreError;

use super::RunningProduction;
use super::audited::Answered;
use super::operator_request::{PAGE_MAX, TodoItem, TodoPage, TodoRequest};
use super::stored::read_stored;
use crate::error::InteropError;
use crate::rows::Reader;
use crate::todo::{TodoChange, TodoNote, TodoReason};

/// Messages that are looked at for one page at most.
const LOOKED_MAX: usize = 1_000;

/// Answers a request about the list.
pub(super) async fn todo(
    running: &RunningProduction,
    caller: &Caller,
    request: TodoRequest,
    by: &str,
) -> Result<Answered, InteropError> {
    match request {
        TodoRequest::List { after, limit, owner, done } => {
            let (view, caller) = (running.guard.view(), caller.clone());
            let limit = if (1..PAGE_MAX).contains(&limit) { limit } else { PAGE_MAX };
            let list = move |reader: &Reader| {
                let used = Cell::new(None);
                let may = |service: &str| {
                    let grant = view.may(&caller, Action::MessageMetadata, Object::Service(service));
                    if let Some(grant) = grant.as_ref().ok().filter(|grant| grant.audited) {
                        used.set(Some(EntryMarks::of(grant)));
                    }
                    grant.is_ok()
                };
                let is_wanted = |note: &TodoNote| {
                    (done || !note.done) && owner.as_ref().is_none_or(|owner| note.owner.as_ref() == Some(owner))
                };
                let page = page(reader, after, limit, &may, &is_wanted)?;
                let (is_recorded, marks) = (used.get().is_some(), used.get().unwrap_or_default());
                Ok(Answered { is_recorded, marks, ..Answered::with(json!(page)) })
            };
            read_stored(running, list).await
        }
        TodoRequest::Change { id, change } => change_todo(running, id, change, by).await.map(Answered::with),
    }
}

async fn change_todo(
    running: &RunningProduction,
    id: u64,
    change: TodoChange,
    by: &str,
) -> Result<Value, InteropError> {
    if let TodoChange::Assign(owner) = &change {
        let known = running.guard.view().directory().named(owner);
        known.map_err(|error| InteropError::Refused(error.to_string()))?;
    }
    let (by, at_us) = (by.to_owned(), running.engine.clock.now_us());
    let change = move |reader: &Reader| {
        let (stored, _) = reader.inbound(id)?.ok_or(InteropError::NoMessage { id })?;
        if TodoReason::of(reader, id, &stored)?.is_none() {
            let text = format!("message {id} is not on the list: it needs nobody, or was sent again since");
            return Err(InteropError::Refused(text));
        }
        Ok(TodoNote::change(reader.snapshot().store(), id, &change, &by, at_us)?)
    };
    Ok(json!(read_stored(running, change).await?))
}

/// A page of the messages above an id that need a person, of services that `may` allows, with notes that are wanted.
fn page(
    reader: &Reader,
    after: u64,
    limit: usize,
    may: &dyn Fn(&str) -> bool,
    is_wanted: &dyn Fn(&TodoNote) -> bool,
) -> Result<TodoPage, InteropError> {
    let (ids, mut next) = needing_a_person(reader, after, LOOKED_MAX)?;
    let mut items = Vec::new();
    let mut last = after;
    for id in ids {
        if items.len() == limit {
            next = Some(last);
            break;
        }
        items.extend(item(reader, id, may, is_wanted)?);
        last = id;
    }
    Ok(TodoPage { items, next })
}

fn item(
    reader: &Reader,
    id: u64,
    may: &dyn Fn(&str) -> bool,
    is_wanted: &dyn Fn(&TodoNote) -> bool,
) -> Result<Option<TodoItem>, InteropError> {
    let stored = match reader.inbound(id) {
        Ok(Some((stored, _))) if may(&stored.service) => stored,
        // A damaged one is in the list of messages.
        Ok(_) | Err(InteropError::Store(StoreError::Corrupt(_))) => return Ok(None),
        Err(error) => return Err(error),
    };
    let Some((reason, detail)) = TodoReason::of(reader, id, &stored)? else { return Ok(None) };
    let note = TodoNote::read(reader.snapshot(), id)?;
    if !is_wanted(&note) {
        return Ok(None);
    }
    let TodoNote { owner, done, comments, .. } = note;
    let (received_us, service) = (stored.received_us, stored.service);
    Ok(Some(TodoItem { id, received_us, service, reason, detail, owner, done, comments }))
}

/// Ids above one of messages that may need a person, in their order, `max` at most; and where they go on, if they do.
fn needing_a_person(reader: &Reader, after: u64, max: usize) -> Result<(Vec<u64>, Option<u64>), InteropError> {
    let mut all = BTreeSet::new();
    let mut bound = None;
    for mut found in reader.with_trouble_after(after) {
        for n in 0.. {
            let Some(id) = found.next()? else { break };
            all.insert(id);
            if n + 1 == max {
                // Behind this one it is not known what else there is.
                bound = Some(bound.map_or(id, |bound: u64| bound.min(id)));
                break;
            }
        }
    }
    let mut ids: Vec<u64> = all.into_iter().filter(|id| bound.is_none_or(|bound| *id <= bound)).collect();
    if ids.len() > max {
        ids.truncate(max);
        bound = ids.last().copied();
    }
    Ok((ids, bound))
}
