//! `message-search` of the control socket: what `terrace message search` asks of a running node.
//!
//! ```text
//!   terrace message search QUERY --control socket--> MessageQuery --query_string over .messages--> FoundMessages
//! ```
//!
//! Each search has a thread and a time: one that is over its time ends with a message that names it, also where the index is stuck.
//!
//! Any text of a message is searched, and names of patients are shown: who has no right to that on all services searches the messages
//! of those that there is one on, and counts no others.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use interop::rows::Reader;
use interop::running::{Audited, Needs, Requirement, ServiceRequest};
use node::audit::{AuditEntry, EntryMarks};
use node::identity::{Action, Caller, Guard};
use search::hits::{self, SearchBody, SearchLimits, SearchTarget};
use search::indices::Indices;
use search::rights::Asker;
use serde_json::{Value, json};
use store::{Direction, Store};

use super::message_feed::{INDEX, end};
use crate::messages::search::{FoundMessage, FoundMessages, MessageQuery};

/// Memory of the hits of one response.
const FOUND_BYTES: u64 = 256 << 20;

/// Bytes of the documents of one response.
const SOURCE_BYTES: usize = 64 << 20;

/// Messages of one response.
const WINDOW: usize = 10_000;

/// Searches at a time.
const SEARCHES: usize = 4;

/// Bytes of a query: longer ones are no search that a person writes.
const QUERY_BYTES_MAX: usize = 16 << 10;

/// The longest time of a search.
const TIME_MAX: Duration = Duration::from_secs(3_600);

/// How long after its time a search may take to notice that.
const GRACE: Duration = Duration::from_secs(2);

/// Answers the requests of `terrace message search`.
#[derive(Debug)]
pub struct MessageSearch {
    /// The service may have ended.
    pub indices: Weak<Indices>,
    /// The store of the messages.
    pub store: Store,
    /// Who may see which messages.
    pub guard: Arc<Guard>,
    /// Fields by their names, in small letters.
    pub fields: BTreeSet<String>,
    /// Searches that run.
    pub running: Arc<AtomicUsize>,
}

/// A request for a search.
struct SearchRequest {
    search: Arc<MessageSearch>,
    wanted: MessageQuery,
}

impl ServiceRequest for SearchRequest {
    fn requirement(&self) -> Requirement<'_> {
        let query = serde_json::to_string(&self.wanted).unwrap_or_default();
        let marks = EntryMarks { masked: Some(false), ..EntryMarks::default() };
        let entry = AuditEntry::new("message.search", "").with_long("query", &query).marked(marks);
        let needs = Needs::SomeOfEach(&[Action::MessageBody, Action::Unmasked]);
        Requirement { needs, entry: Some((Audited::Read, entry)) }
    }

    fn answer(&self, caller: &Caller) -> Result<Value, String> {
        let asker = Asker::new(&self.search.guard, caller.clone(), "message.search", &[Action::IndexRead]);
        let found = self.search.in_time(self.wanted.clone(), &asker)?;
        // What was found is not shown to who may not see it any more.
        asker.still().map_err(|error| format!("permission denied: {}", error.reason))?;
        Ok(serde_json::to_value(found).expect("plain data becomes JSON"))
    }
}

/// A search that runs, counted until it is dropped.
struct RunningOne(Arc<AtomicUsize>);

impl Drop for RunningOne {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn too_long(time: Duration) -> String {
    format!(
        "the search took more than {} s and was ended: narrow it, for example with --since, or give it more time with --timeout",
        time.as_secs_f64()
    )
}

impl MessageSearch {
    /// Reads a request.
    pub fn read(self: &Arc<MessageSearch>, query: &str) -> Result<Box<dyn ServiceRequest>, String> {
        match serde_json::from_str(query) {
            Ok(wanted) => Ok(Box::new(SearchRequest { search: Arc::clone(self), wanted })),
            Err(error) => Err(format!("`{query}` is no search: {error}")),
        }
    }

    /// Searches on a thread of its own, and waits no longer than the search may take.
    fn in_time(self: &Arc<MessageSearch>, wanted: MessageQuery, asker: &Asker) -> Result<FoundMessages, String> {
        if wanted.query.len() > QUERY_BYTES_MAX {
            return Err(format!("the query has {} bytes, and at most {QUERY_BYTES_MAX}", wanted.query.len()));
        }
        let running = self.running.fetch_add(1, Ordering::AcqRel);
        let counted = RunningOne(Arc::clone(&self.running));
        if running >= SEARCHES {
            return Err(format!("{running} searches run, and at most {SEARCHES} may: try again in a moment"));
        }
        let time = Duration::from_millis(wanted.time_max_ms).min(TIME_MAX);
        let cancelled = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = channel();
        let (search, stops, asker) = (Arc::clone(self), Arc::clone(&cancelled), asker.clone());
        let work = move || {
            let _counted = counted;
            // Nobody may wait any more.
            let _ = sender.send(search.search(&wanted, &asker, time, &stops));
        };
        // A panic is logged with its text, and the search has no response.
        let panicked = |why: &str| tracing::error!(why, "a search of messages ended by a panic; report it");
        device::supervise::thread("message search", work, panicked)
            .map_err(|error| format!("the system starts no thread: {error}"))?;
        let found = receiver.recv_timeout(time + GRACE);
        cancelled.store(true, Ordering::Relaxed);
        match found {
            Ok(found) => found,
            Err(RecvTimeoutError::Timeout) => Err(too_long(time)),
            Err(RecvTimeoutError::Disconnected) => {
                Err("the search ended by a fault of the program; its log has the text".to_owned())
            }
        }
    }

    fn search(
        &self,
        wanted: &MessageQuery,
        asker: &Asker,
        time: Duration,
        cancelled: &Arc<AtomicBool>,
    ) -> Result<FoundMessages, String> {
        let started = Instant::now();
        let indices = self.indices.upgrade().ok_or("the search service has ended")?;
        let index =
            indices.get(INDEX).ok_or("this node does not index its messages: see [search] messages in terrace.toml")?;
        // What was acknowledged before is found, unless the index is far behind.
        index.feed().and_then(|_| index.refresh()).map_err(|error| error.to_string())?;
        let text = with_known_fields(&wanted.query, &self.fields);
        let mut filter = Vec::new();
        if wanted.since_us.is_some() || wanted.until_us.is_some() {
            let (since, until) = (wanted.since_us.map(|us| us / 1_000), wanted.until_us.map(|us| us / 1_000));
            let mut range = serde_json::Map::new();
            range.extend(since.map(|since| ("gte".to_owned(), json!(since))));
            range.extend(until.map(|until| ("lt".to_owned(), json!(until))));
            filter.push(json!({"range": {"received": range}}));
        }
        // After the refresh: what it made searchable may have come in by a service that was not there before.
        let scope = asker.scope_of(&index).map_err(|error| error.reason)?;
        let matching = json!({"query_string": {"query": text, "default_field": "text", "default_operator": "AND"}});
        let sort =
            if wanted.by_score { json!(["_score", {"received": "desc"}]) } else { json!([{"received": "desc"}]) };
        let body = json!({
            "query": {"bool": {"must": [matching], "filter": filter}},
            "sort": sort,
            "size": wanted.last.clamp(1, WINDOW),
            "_source": {"excludes": ["text", "segments"]},
            "timeout": format!("{}ms", time.saturating_sub(started.elapsed()).as_millis()),
        });
        let body = SearchBody::read(Some(&body), &BTreeMap::new()).map_err(|error| error.reason)?;
        let target = SearchTarget::whole(index.clone()).within(scope.as_deref());
        let limits = SearchLimits {
            buckets: 0,
            memory_bytes: 0,
            found_bytes: FOUND_BYTES,
            of_all: None,
            owner: None,
            part_of: None,
            source_bytes: SOURCE_BYTES,
            now: jiff::Timestamp::now().as_millisecond(),
            window: WINDOW,
            cheap: false,
        };
        let found = hits::search(&[target], &body, &limits, cancelled).map_err(|error| error.reason)?;
        // A part of the hits may lack the newest.
        if found.response["timed_out"] == true {
            return Err(too_long(time));
        }
        let newest = end(&Reader::new(&self.store), Direction::Backward).map_err(|error| error.to_string())?;
        let hits = &found.response["hits"];
        let shown = hits["hits"].as_array().into_iter().flatten().filter_map(found_message).collect();
        Ok(FoundMessages {
            total: hits["total"]["value"].as_u64().unwrap_or(0),
            total_is_exact: hits["total"]["relation"] == "eq",
            took_us: started.elapsed().as_micros() as u64,
            is_behind: newest.is_some_and(|newest| newest >= index.searchable_below()),
            messages: shown,
        })
    }
}

/// A hit; `None` if the message was removed since the index was refreshed.
fn found_message(hit: &Value) -> Option<FoundMessage> {
    let source = hit["_source"].as_object().filter(|source| !source.is_empty())?;
    let unreadable = source.get("unreadable").and_then(Value::as_str).map(str::to_owned);
    let texts = |name: &str| -> Vec<String> {
        let one = |value: &Value| value.as_str().map(str::to_owned);
        match source.get(name) {
            Some(Value::Array(values)) => values.iter().filter_map(one).collect(),
            Some(value) => one(value).into_iter().collect(),
            None => Vec::new(),
        }
    };
    let first = |name: &str| texts(name).into_iter().next().unwrap_or_default();
    Some(FoundMessage {
        id: hit["_id"].as_str()?.parse().ok()?,
        received_us: source.get("received").and_then(Value::as_i64).unwrap_or(0) * 1_000,
        service: first("service"),
        kind: texts("type").pop().unwrap_or_default(),
        control_id: first("control_id"),
        mrn: texts("mrn"),
        name: texts("name").join(" "),
        status: first("status"),
        unreadable,
    })
}

/// A query whose names of fields are written as the index has them: `MRN:12345` finds the field `mrn`.
fn with_known_fields(query: &str, fields: &BTreeSet<String>) -> String {
    let mut out = String::with_capacity(query.len());
    let (mut word, mut is_quoted) = (0, false);
    for (at, c) in query.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            ':' if !is_quoted => {
                let lower = query[word..at].to_lowercase();
                if fields.contains(&lower) {
                    out.truncate(out.len() - (at - word));
                    out.push_str(&lower);
                }
            }
            _ => {}
        }
        out.push(c);
        if !(c.is_ascii_alphanumeric() || c == '_') {
            word = at + c.len_utf8();
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_fields_may_be_written_in_any_case_and_values_stay() {
        let fields = BTreeSet::from(["mrn".to_owned(), "type".to_owned()]);
        for (query, expected) in [
            ("MRN:12345 AND type:ORU*", "mrn:12345 AND type:ORU*"),
            ("(Type:ADT OR Mrn:A:B)", "(type:ADT OR mrn:A:B)"),
            ("\"MRN:1\" MRN:2", "\"MRN:1\" mrn:2"),
            ("Ward:ICU", "Ward:ICU"),
            ("gr\u{f6}\u{df}e MRN:\u{fc}", "gr\u{f6}\u{df}e mrn:\u{fc}"),
        ] {
            assert_eq!(with_known_fields(query, &fields), expected);
        }
    }
}
