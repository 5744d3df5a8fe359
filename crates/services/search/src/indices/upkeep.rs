//! [`Upkeep`]: the thread that refreshes indices, persists their state, and makes damaged ones again; and the one that feeds them.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{Indices, feeding, settings};
use crate::error::SearchError;
use crate::index::SearchIndex;

/// How often the thread looks for work: a refresh is late by at most that.
const TICK: Duration = Duration::from_millis(50);

/// A state is persisted after this time, or after so many bytes of sources: what a start has to index again.
const PERSIST_AFTER: Duration = Duration::from_secs(30);
const PERSIST_BYTES: u64 = 256 << 20;

/// An index without work for this long gives back the memory of its writer.
const REST_AFTER: Duration = Duration::from_secs(60);

/// Longest wait for a refresh that the thread makes: the waiting request holds a thread, and refreshes itself then.
pub(super) const WAIT_MAX: Duration = Duration::from_millis(200);

/// See the head comment of this file. Ends with [`stop`](Upkeep::stop).
#[derive(Debug)]
pub struct Upkeep {
    indices: Arc<Indices>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// What the thread remembers of an index.
struct Times {
    refreshed: Instant,
    persisted: Instant,
    /// The last time that something was left to persist.
    busy: Instant,
    rests: bool,
    /// Failures one after the other, and until when nothing is tried again.
    failures: u32,
    retries: Instant,
    /// Makes the index again: that may take long, and other indices are refreshed meanwhile.
    rebuild: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// Starts the thread.
    ///
    /// Errors: the operating system gives no thread.
    pub fn start(indices: Arc<Indices>) -> std::io::Result<Upkeep> {
        let ends = Arc::new(AtomicBool::new(false));
        *indices.rounds.lock() = 1;
        let (kept, until) = (Arc::clone(&indices), Arc::clone(&ends));
        let work = move || run(&kept, &until);
        let thread = device::supervise::thread("search upkeep", work, |why| {
            tracing::error!(
                why,
                "the upkeep of search ended: indices are refreshed on request alone until the node starts again"
            );
        })?;
        let mut threads = vec![thread];
        if indices.all().iter().any(|index| index.is_fed()) {
            let (kept, until) = (Arc::clone(&indices), Arc::clone(&ends));
            let work = move || feeding::run(&kept, &until);
            threads.push(device::supervise::thread("search feed", work, |why| {
                tracing::error!(
                    why,
                    "the feed of search ended: what is new is not searchable until the node starts again"
                );
            })?);
        }
        Ok(Upkeep { indices, ends, threads })
    }

    /// The indices that it keeps.
    pub fn indices(&self) -> &Arc<Indices> {
        &self.indices
    }

    /// Ends the thread, and persists all indices.
    pub fn stop(mut self) {
        self.end();
        for index in self.indices.all() {
            if let Err(error) = index.close() {
                tracing::warn!(index = index.name(), %error, "a search index was not persisted; the next start indexes the rest");
            }
        }
    }

    fn end(&mut self) {
        self.ends.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.end();
    }
}

fn run(indices: &Indices, ends: &AtomicBool) {
    let mut times: HashMap<String, Times> = HashMap::new();
    while !ends.load(Ordering::Acquire) {
        let all = indices.all();
        times.retain(|uuid, _| all.iter().any(|index| index.definition().uuid == *uuid));
        for index in &all {
            let now = Instant::now();
            let entry = times.entry(index.definition().uuid.clone()).or_insert(Times {
                refreshed: now,
                persisted: now,
                busy: now,
                rests: false,
                failures: 0,
                retries: now,
                rebuild: None,
            });
            // A panic of the library ends the work on this index, not the thread.
            if catch_unwind(AssertUnwindSafe(|| keep(index, entry))).is_err() {
                tracing::error!(index = index.name(), "the upkeep of a search index failed; it is tried again");
            }
        }
        *indices.rounds.lock() += 1;
        indices.round.notify_all();
        std::thread::park_timeout(TICK);
    }
}

fn keep(index: &Arc<SearchIndex>, times: &mut Times) {
    let now = Instant::now();
    if now < times.retries {
        return;
    }
    match work(index, times, now) {
        Ok(()) => times.failures = 0,
        Err((what, error)) => {
            times.failures += 1;
            let after = settings::retry_after(times.failures);
            times.retries = now + after;
            let (index, seconds) = (index.name(), after.as_secs());
            tracing::error!(index, %error, "{what} of a search index failed; it is tried again in {seconds} s");
        }
    }
}

/// Errors: what failed, and why.
fn work(index: &Arc<SearchIndex>, times: &mut Times, now: Instant) -> Result<(), (&'static str, SearchError)> {
    if times.rebuild.take_if(|thread| thread.is_finished()).is_none() && times.rebuild.is_some() {
        return Ok(());
    }
    // Somebody merges or adds fields: the next round looks again.
    let Some(state) = index.writer_state() else { return Ok(()) };
    if let Some(why) = state.damage {
        tracing::error!(
            index = index.name(),
            why = &*why,
            "a search index is damaged; it is made again from its documents"
        );
        times.rebuild = Some(start_rebuild(index).map_err(|error| ("rebuilding", error))?);
        return Ok(());
    }
    let due = settings::refresh_interval(index).is_some_and(|interval| now - times.refreshed >= interval);
    // The feed refreshes what it fed.
    if due && !index.is_fed() && index.needs_refresh() {
        times.refreshed = now;
        index.refresh().map_err(|error| ("a refresh", error))?;
    }
    if state.behind {
        times.busy = now;
        times.rests = false;
    } else {
        times.persisted = now;
    }
    if state.bytes >= PERSIST_BYTES || (state.behind && now - times.persisted >= PERSIST_AFTER) {
        times.persisted = now;
        index.persist().map_err(|error| ("persisting", error))?;
    }
    if !times.rests && now - times.busy >= REST_AFTER {
        times.rests = true;
        index.rest().map_err(|error| ("persisting", error))?;
    }
    Ok(())
}

/// Makes an index again on a thread of its own. Errors: the operating system gives no thread.
fn start_rebuild(index: &Arc<SearchIndex>) -> Result<JoinHandle<()>, SearchError> {
    let (index, name) = (Arc::clone(index), index.name());
    let work = move || match index.rebuild() {
        Ok(()) => tracing::info!(index = index.name(), "a search index was made again"),
        Err(error) => tracing::error!(
            index = index.name(), %error,
            "a search index cannot be made again; it is behind its documents, and is tried again"
        ),
    };
    let panicked = move |why: &str| tracing::error!(index = name, why, "making a search index again failed");
    device::supervise::thread("search rebuild", work, panicked)
        .map_err(|error| SearchError::internal(error.to_string()))
}
