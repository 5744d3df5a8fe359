//! [`Contexts`]: scrolls and points in time that clients hold open.
//!
//! Each keeps views of indices, and with them the documents that they show, until its time is over, it is closed, or its role may not
//! be used any more. It belongs to who opened it, a role with one proof: nobody else can use, close or see it. A role has a part of all
//! places at most, so that one does not take them from the others; a scroll keeps its query, and one with a large query takes several places.
//!
//! One over no indices keeps nothing and takes no place: all of them are [`NOTHING`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use node::identity::{Caller, Guard};
use parking_lot::Mutex;
use ring::rand::{SecureRandom, SystemRandom};
use serde_json::Value;

use crate::error::SearchError;
use crate::hits::{HiddenKeys, SearchBody, SearchTarget};
use crate::indices::{Indices, duration};
use crate::rights::{Asker, is_same};

/// Most contexts of a node (Elasticsearch's `search.max_open_scroll_context`).
const CONTEXTS_MAX: usize = 500;

/// Most contexts of one role.
const ROLE_CONTEXTS_MAX: usize = CONTEXTS_MAX / 10;

/// Memory of a query for each place that its scroll takes: all contexts keep half a gigabyte at most.
const PLACE_BYTES: usize = 1 << 20;

/// The scroll and the point in time over no indices: both have no hits, ever.
pub(super) const NOTHING: &str = "terrace_no_indices";

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
    /// Memory that it keeps.
    pub(super) bytes: usize,
}

struct Held {
    /// Whose it is.
    owner: Caller,
    /// None while a request uses it.
    context: Option<OpenContext>,
    /// How many contexts it counts as.
    places: usize,
    is_scroll: bool,
    until: Instant,
    /// In milliseconds since 1970.
    opened: u64,
}

/// See the head comment of this file.
#[derive(Default)]
pub(super) struct Contexts {
    held: Mutex<HashMap<String, Held>>,
    /// The version of the rights by which all of them were looked at.
    looked: AtomicU64,
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
    /// Keeps a context; returns its id. Errors: there are too many, of its role or in all.
    pub(super) fn open(&self, context: OpenContext) -> Result<String, SearchError> {
        if context.targets.is_empty() {
            return Ok(NOTHING.to_owned());
        }
        let mut held = self.held.lock();
        held.retain(|_, held| held.context.is_none() || held.until > Instant::now());
        let places = 1 + context.bytes / PLACE_BYTES;
        if held.values().map(|held| held.places).sum::<usize>() + places > CONTEXTS_MAX {
            let reason = format!(
                "Trying to create too many scroll contexts. Must be less than or equal to: [{CONTEXTS_MAX}]: close scrolls and \
                 points in time that are not needed any more"
            );
            return Err(SearchError::busy(reason));
        }
        let role = context.asker.caller().session();
        let of_role = held.values().filter(|held| held.owner.session() == role).map(|held| held.places);
        if of_role.sum::<usize>() + places > ROLE_CONTEXTS_MAX {
            let reason = format!(
                "Trying to create too many scroll contexts. Those of user [{}] must be less than or equal to: \
                 [{ROLE_CONTEXTS_MAX}], each MiB of a query counted as one more: close scrolls and points in time that are not needed any more (DELETE _search/scroll/_all, \
                 DELETE _search/point_in_time/_all), or wait until their time is over",
                context.asker.user()
            );
            return Err(SearchError::busy(reason));
        }
        let id = new_id()?;
        let until = Instant::now() + context.kept;
        let is_scroll = context.scroll.is_some();
        let opened = crate::index::now_millis();
        let owner = context.asker.caller().clone();
        held.insert(id.clone(), Held { owner, context: Some(context), places, is_scroll, until, opened });
        Ok(id)
    }

    /// Takes a scroll out for a request, which notes what is read. Errors: there is none, its time is over, or another request uses it.
    pub(super) fn take(&self, id: &str, asker: &Asker) -> Result<OpenContext, SearchError> {
        let mut held = self.held.lock();
        let entry =
            held.get_mut(id).filter(|entry| is_same(&entry.owner, asker.caller())).ok_or_else(|| missing(id))?;
        if entry.until <= Instant::now() {
            held.remove(id);
            return Err(missing(id));
        }
        let mut context = entry.context.take().ok_or_else(|| SearchError::busy("another request reads this scroll"))?;
        context.targets.iter_mut().for_each(|target| target.notes = asker.notes().clone());
        Ok(context)
    }

    /// Puts a scroll back that was not closed meanwhile.
    pub(super) fn put_back(&self, id: &str, context: OpenContext) {
        if let Some(entry) = self.held.lock().get_mut(id) {
            entry.until = Instant::now() + context.kept;
            entry.context = Some(context);
        }
    }

    /// The views of a point in time for a request, which notes what is read. Errors: there is none, or its time is over.
    pub(super) fn get(&self, id: &str, keep: Option<Duration>, asker: &Asker) -> Result<PointInTime, SearchError> {
        if id == NOTHING {
            return Ok(PointInTime { targets: Vec::new(), asker: asker.clone() });
        }
        let mut held = self.held.lock();
        let is_there = |entry: &&mut Held| entry.until > Instant::now() && is_same(&entry.owner, asker.caller());
        let entry = held.get_mut(id).filter(is_there).ok_or_else(|| missing(id))?;
        let context = entry.context.as_mut().filter(|context| context.scroll.is_none()).ok_or_else(|| missing(id))?;
        if let Some(keep) = keep {
            context.kept = context.kept.max(keep);
        }
        entry.until = Instant::now() + context.kept;
        let mut targets = context.targets.clone();
        targets.iter_mut().for_each(|target| target.notes = asker.notes().clone());
        Ok(PointInTime { targets, asker: context.asker.clone() })
    }

    /// Closes a context; whether it was there.
    pub(super) fn close(&self, id: &str, caller: &Caller) -> bool {
        if id == NOTHING {
            return true;
        }
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

    /// Closes those whose time is over, and those whose login does not hold any more: nobody can use these.
    pub(super) fn close_old(&self, guard: &Guard) {
        let version = guard.version();
        let is_looked_at = self.looked.swap(version, Ordering::Relaxed) == version;
        let view = guard.view();
        let holds = |held: &Held| is_looked_at || view.holds(&held.owner).is_ok();
        // One that a request uses ends with it; that request ends by itself.
        self.held.lock().retain(|_, held| holds(held) && (held.context.is_none() || held.until > Instant::now()));
    }
}
