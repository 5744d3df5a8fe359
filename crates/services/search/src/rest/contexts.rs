//! [`Contexts`]: scrolls and points in time that clients hold open.
//!
//! Each keeps views of indices, and with them the documents that they show, until its time is over or it is closed. It belongs to
//! who opened it, a role with one proof: nobody else can use, close or see it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use node::identity::Caller;
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;

use crate::error::SearchError;
use crate::hits::{HiddenKeys, SearchBody, SearchTarget};
use crate::indices::{Indices, duration};
use crate::rights::{Asker, is_same};

/// Most contexts of a node (Elasticsearch's `search.max_open_scroll_context`).
const CONTEXTS_MAX: usize = 500;

/// The longest time that a scroll or a point in time is kept (Elasticsearch's `search.max_keep_alive`).
const KEEP_MAX: Duration = Duration::from_secs(24 * 3600);

/// A scroll or a point in time.
#[derive(Debug)]
pub(super) struct OpenContext {
    /// Whose it is, and by which rights: to others it is not there, and it ends with them.
    pub(super) asker: Asker,
    pub(super) targets: Vec<SearchTarget>,
    /// Of a scroll: the search, the last hit's sort values, and what is not shown of them.
    pub(super) scroll: Option<(SearchBody, Option<Vec<Value>>, HiddenKeys)>,
    /// How long it is kept after each use.
    pub(super) kept: Duration,
}

struct Held {
    /// Whose it is.
    owner: Caller,
    /// None while a request uses it.
    context: Option<OpenContext>,
    is_scroll: bool,
    until: Instant,
    /// In milliseconds since 1970.
    opened: u64,
}

/// See the head comment of this file.
#[derive(Default)]
pub(super) struct Contexts {
    held: Mutex<HashMap<String, Held>>,
}

impl std::fmt::Debug for Contexts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Contexts").field("open", &self.held.lock().len()).finish()
    }
}

/// A view of the targets of a point in time.
pub(super) struct PointInTime {
    pub(super) targets: Vec<SearchTarget>,
    pub(super) asker: Asker,
}

/// How long a context is kept. Errors: not a time, or one that is too long for the cluster's settings.
pub(super) fn keep_alive(indices: &Indices, text: &str) -> Result<Duration, SearchError> {
    let time = duration(text).ok_or_else(|| {
        SearchError::argument(format!("failed to parse setting [keep_alive] with value [{text}] as a time value"))
    })?;
    let setting = indices.cluster_setting("search.max_keep_alive");
    let shown = setting.as_ref().and_then(Value::as_str).unwrap_or("1d");
    if time > duration(shown).unwrap_or(KEEP_MAX).min(KEEP_MAX) {
        return Err(SearchError::argument(format!(
            "Keep alive for request ({text}) is too large. It must be less than ({shown}). This limit can be set by changing the \
             [search.max_keep_alive] cluster level setting."
        )));
    }
    Ok(time)
}

/// An id that cannot be guessed.
fn new_id() -> Result<String, SearchError> {
    let mut bytes = [0; 30];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| SearchError::internal("the system returned no random bytes"))?;
    Ok(BASE64.encode(bytes))
}

fn missing(id: &str) -> SearchError {
    let shown: String = id.chars().take(100).collect();
    SearchError::new(404, "search_context_missing_exception", format!("No search context found for id [{shown}]"))
}

impl Contexts {
    /// Keeps a context; returns its id. Errors: there are too many.
    pub(super) fn open(&self, context: OpenContext) -> Result<String, SearchError> {
        let mut held = self.held.lock();
        held.retain(|_, held| held.context.is_none() || held.until > Instant::now());
        if held.len() >= CONTEXTS_MAX {
            let reason = format!(
                "Trying to create too many scroll contexts. Must be less than or equal to: [{CONTEXTS_MAX}]: close scrolls and \
                 points in time that are not needed any more"
            );
            return Err(SearchError::busy(reason));
        }
        let id = new_id()?;
        let until = Instant::now() + context.kept;
        let is_scroll = context.scroll.is_some();
        let opened = crate::index::now_millis();
        let owner = context.asker.caller().clone();
        held.insert(id.clone(), Held { owner, context: Some(context), is_scroll, until, opened });
        Ok(id)
    }

    /// Takes a scroll out to use it. Errors: there is none, its time is over, or another request uses it.
    pub(super) fn take(&self, id: &str, caller: &Caller) -> Result<OpenContext, SearchError> {
        let mut held = self.held.lock();
        let entry = held.get_mut(id).filter(|entry| is_same(&entry.owner, caller)).ok_or_else(|| missing(id))?;
        if entry.until <= Instant::now() {
            held.remove(id);
            return Err(missing(id));
        }
        entry.context.take().ok_or_else(|| SearchError::busy("another request reads this scroll"))
    }

    /// Puts a scroll back that was not closed meanwhile.
    pub(super) fn put_back(&self, id: &str, context: OpenContext) {
        if let Some(entry) = self.held.lock().get_mut(id) {
            entry.until = Instant::now() + context.kept;
            entry.context = Some(context);
        }
    }

    /// The views of a point in time. Errors: there is none, or its time is over.
    pub(super) fn get(&self, id: &str, keep: Option<Duration>, caller: &Caller) -> Result<PointInTime, SearchError> {
        let mut held = self.held.lock();
        let is_there = |entry: &&mut Held| entry.until > Instant::now() && is_same(&entry.owner, caller);
        let entry = held.get_mut(id).filter(is_there).ok_or_else(|| missing(id))?;
        let context = entry.context.as_mut().filter(|context| context.scroll.is_none()).ok_or_else(|| missing(id))?;
        if let Some(keep) = keep {
            context.kept = context.kept.max(keep);
        }
        entry.until = Instant::now() + context.kept;
        Ok(PointInTime { targets: context.targets.clone(), asker: context.asker.clone() })
    }

    /// Closes a context; whether it was there.
    pub(super) fn close(&self, id: &str, caller: &Caller) -> bool {
        let mut held = self.held.lock();
        let is_own = held.get(id).is_some_and(|entry| is_same(&entry.owner, caller));
        is_own && held.remove(id).is_some_and(|held| held.until > Instant::now())
    }

    /// Closes all scrolls of a caller; returns how many.
    pub(super) fn close_scrolls(&self, caller: &Caller) -> usize {
        let mut held = self.held.lock();
        let before = held.len();
        held.retain(|_, held| !held.is_scroll || !is_same(&held.owner, caller));
        before - held.len()
    }

    /// Closes all points in time of a caller; returns their ids.
    pub(super) fn close_points(&self, caller: &Caller) -> Vec<String> {
        let mut held = self.held.lock();
        let is_meant = |held: &Held| !held.is_scroll && is_same(&held.owner, caller);
        let ids: Vec<String> = held.iter().filter(|(_, held)| is_meant(held)).map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| drop(held.remove(id)));
        ids
    }

    /// The points in time of a caller: their ids, when each was opened in milliseconds, and how long it is kept.
    pub(super) fn points(&self, caller: &Caller) -> Vec<(String, u64, Duration)> {
        let held = self.held.lock();
        let is_meant = |held: &Held| !held.is_scroll && is_same(&held.owner, caller);
        let points = held.iter().filter(|(_, held)| is_meant(held) && held.until > Instant::now());
        points.filter_map(|(id, held)| Some((id.clone(), held.opened, held.context.as_ref()?.kept))).collect()
    }

    /// Closes those whose time is over.
    pub(super) fn close_old(&self) {
        self.held.lock().retain(|_, held| held.context.is_none() || held.until > Instant::now());
    }
}
