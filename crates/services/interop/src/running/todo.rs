//! The to-do list of messages: which ones need a person, who takes care of each, and what was said about it.
//!
//! ```text
//!   index by state: errored, unmatched, failed, set aside --in the order of ids--> not sent again since? not done? --> a page
//! ```

use std::collections::BTreeSet;

use node::identity::{Action, Caller, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::StoreError;

use super::audited::Answered;
use super::requests::ControlRequests;
use crate::error::InteropError;
use crate::rows::Reader;
use crate::todo::{TodoChange, TodoComment, TodoNote, TodoReason};

/// Items of one page at most, and messages that are looked at for it.
const PAGE_MAX: usize = 100;
const LOOKED_MAX: usize = 1_000;

/// A request about the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "verb", rename_all = "lowercase")]
pub enum TodoRequest {
    /// A page of the list, oldest first.
    List {
        /// Only ids above this: what the page before said.
        #[serde(default)]
        after: u64,
        /// So many at most; 0, or more than 100: 100.
        #[serde(default)]
        limit: usize,
        /// Only those that this role or user takes care of.
        #[serde(default)]
        owner: Option<String>,
        /// Also those that are done.
        #[serde(default)]
        done: bool,
    },
    /// Changes what is noted about a message.
    Change {
        /// The message.
        id: u64,
        /// What.
        change: TodoChange,
    },
}

/// A page of the list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoPage {
    /// The items.
    pub items: Vec<TodoItem>,
    /// Where the list goes on: ids above this; none at its end.
    pub next: Option<u64>,
}

/// A message that needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TodoItem {
    /// The message.
    pub id: u64,
    /// When it came in, microseconds since 1970.
    pub received_us: i64,
    /// The service that took it.
    pub service: String,
    /// Why it needs one.
    pub reason: TodoReason,
    /// The words of the decision or the outcome.
    pub detail: String,
    /// Who takes care of it.
    pub owner: Option<String>,
    /// Whether it is done.
    pub done: bool,
    /// What was said, the newest last.
    pub comments: Vec<TodoComment>,
}

impl ControlRequests {
    /// Answers a request about the list.
    pub(super) async fn todo(&self, caller: &Caller, request: TodoRequest, by: &str) -> Result<Answered, InteropError> {
        let value = match request {
            TodoRequest::List { after, limit, owner, done } => {
                let (view, caller) = (self.running().guard.view(), caller.clone());
                let limit = if (1..PAGE_MAX).contains(&limit) { limit } else { PAGE_MAX };
                let list = move |reader: &Reader| {
                    let may =
                        |service: &str| view.may(&caller, Action::MessageMetadata, Object::Service(service)).is_ok();
                    let is_wanted = |note: &TodoNote| {
                        (done || !note.done) && owner.as_ref().is_none_or(|owner| note.owner.as_ref() == Some(owner))
                    };
                    page(reader, after, limit, &may, &is_wanted)
                };
                json!(self.read_stored(list).await?)
            }
            TodoRequest::Change { id, change } => self.change_todo(id, change, by).await?,
        };
        Ok(Answered::with(value))
    }

    async fn change_todo(&self, id: u64, change: TodoChange, by: &str) -> Result<Value, InteropError> {
        let (by, at_us) = (by.to_owned(), self.running().engine.clock.now_us());
        let change = move |reader: &Reader| {
            let (stored, _) = reader.inbound(id)?.ok_or(InteropError::NoMessage { id })?;
            if TodoReason::of(reader, id, &stored)?.is_none() {
                let text = format!("message {id} is not on the list: it needs nobody, or was sent again since");
                return Err(InteropError::Refused(text));
            }
            Ok(TodoNote::change(reader.snapshot().store(), id, &change, &by, at_us)?)
        };
        Ok(json!(self.read_stored(change).await?))
    }
}

/// A page of the messages above an id that need a person, of services that `may` allows, with notes that are wanted.
fn page(
    reader: &Reader,
    after: u64,
    limit: usize,
    may: &dyn Fn(&str) -> bool,
    is_wanted: &dyn Fn(&TodoNote) -> bool,
) -> Result<TodoPage, InteropError> {
    let (ids, mut next) = reader.needing_a_person(after, LOOKED_MAX)?;
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

impl Reader {
    /// Ids above one of messages that may need a person, in their order, `max` at most; and where they go on, if they do.
    fn needing_a_person(&self, after: u64, max: usize) -> Result<(Vec<u64>, Option<u64>), InteropError> {
        let mut all = BTreeSet::new();
        let mut bound = None;
        for mut found in self.with_trouble_after(after) {
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
}
