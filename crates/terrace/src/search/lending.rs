//! Search for the console: requests to the same API that clients of the search port send, by the caller of the page.
//!
//! ```text
//!   page --Caller--> LentSearch --RestRequest--> Api: rights, scope of messages, audit --> JSON --> hits, highlighted
//! ```
//!
//! A search runs on a thread of the search service, whose stack bears nested queries; a few at a time for all pages. Who drops the future
//! of an answer ends the search.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ::search::rest::{Api, RestBody, RestHandler as _, RestMethod, RestRequest, RestResponse};
use async_trait::async_trait;
use bytes::Bytes;
use node::identity::Caller;
use node::{NoPlace, RolePlaces};
use serde_json::{Value, json};
use web_console::AdminError;
use web_console::lending::{HitLine, HitPage, HitQuestion, MARK_BEGIN, MARK_END, SearchSource};

/// Searches that pages may run at a time: of all users, and of one.
const SEARCHES: usize = 4;
const SEARCHES_OF_ROLE: usize = 2;

/// Bytes of a document that a page has.
const SOURCE_BYTES: usize = 4 << 10;

/// Characters of a highlighted part, and parts of a field.
const PART_CHARS: usize = 160;
const PARTS: usize = 3;

/// Fields with highlights of a hit.
const FIELDS: usize = 20;

/// See the module's text.
#[derive(Debug)]
pub struct LentSearch {
    api: Arc<Api>,
    runtime: tokio::runtime::Handle,
    places: RolePlaces,
}

/// Tells a search that nobody waits for it any more.
struct Ending(Arc<AtomicBool>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl LentSearch {
    /// Of the API of a node, on the runtime of its server.
    pub fn new(api: Arc<Api>, runtime: tokio::runtime::Handle) -> LentSearch {
        LentSearch { api, runtime, places: RolePlaces::new(SEARCHES, SEARCHES_OF_ROLE) }
    }

    async fn send(
        &self,
        caller: &Caller,
        (method, path): (RestMethod, &[&str]),
        body: Value,
    ) -> Result<Value, AdminError> {
        let place = self.places.take(caller.session()).map_err(|none| {
            AdminError::Unavailable(match none {
                NoPlace::OfAll(all) => format!("{all} searches of pages run already: try again in a moment"),
                NoPlace::OfRole(own) => format!("{own} searches of yours run already: wait until one has ended"),
            })
        })?;
        let cancelled = Arc::new(AtomicBool::new(false));
        let ending = Ending(Arc::clone(&cancelled));
        let request = RestRequest {
            method,
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            parameters: BTreeMap::new(),
            body: if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) },
            caller: caller.clone(),
            opaque_id: Some("console".to_owned()),
            cancelled,
        };
        let api = Arc::clone(&self.api);
        let work = move || {
            let _place = place;
            api.respond(&request)
        };
        let answer = self.runtime.spawn_blocking(work).await;
        drop(ending);
        let response = answer.map_err(|_| {
            AdminError::Unavailable("the search ended by a fault of the program, or the node is stopping".into())
        })?;
        read(response)
    }
}

/// What an answer of the API is.
fn read(response: RestResponse) -> Result<Value, AdminError> {
    let body = match response.body {
        RestBody::Json(value) => value,
        RestBody::RawJson(bytes) => serde_json::from_slice(&bytes).unwrap_or_default(),
        RestBody::Text(text) => Value::String(text),
    };
    if (200..300).contains(&response.status) {
        return Ok(body);
    }
    let error = &body["error"];
    let cause = error["root_cause"][0]["reason"].as_str();
    let reason = cause.or(error["reason"].as_str()).unwrap_or("the search was refused").to_owned();
    Err(match response.status {
        401 | 403 => AdminError::Denied(format!("permission denied: {reason}")),
        404 => AdminError::Absent(reason),
        400..500 if response.status != 429 => AdminError::Refused(reason),
        _ => AdminError::Unavailable(reason),
    })
}

/// The hits of an answer.
fn page_of(answer: &Value) -> HitPage {
    let hits = &answer["hits"];
    let parts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let hit = |hit: &Value| {
        let highlights = hit["highlight"].as_object().into_iter().flatten().take(FIELDS);
        let mut source = serde_json::to_string_pretty(&hit["_source"]).unwrap_or_default();
        if source.len() > SOURCE_BYTES {
            source.truncate(source.floor_char_boundary(SOURCE_BYTES));
            source.push('\u{2026}');
        }
        HitLine {
            index: hit["_index"].as_str().unwrap_or_default().to_owned(),
            id: hit["_id"].as_str().unwrap_or_default().to_owned(),
            score: hit["_score"].as_f64(),
            highlights: highlights.map(|(name, value)| (name.clone(), parts(value))).collect(),
            source,
        }
    };
    HitPage {
        hits: hits["hits"].as_array().into_iter().flatten().map(hit).collect(),
        total: hits["total"]["value"].as_u64().unwrap_or(0),
        total_is_exact: hits["total"]["relation"] == "eq",
        took_ms: answer["took"].as_u64().unwrap_or(0),
    }
}

#[async_trait]
impl SearchSource for LentSearch {
    async fn indices(&self, caller: &Caller) -> Result<Vec<String>, AdminError> {
        // It needs the right to read, as a search does; that no field has this name saves the rest of the answer.
        let body = json!({ "fields": ["_name_of_no_field"] });
        let found = self.send(caller, (RestMethod::Post, &["_field_caps"]), body).await?;
        let names = found["indices"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let mut all: Vec<String> = names.map(str::to_owned).collect();
        all.sort();
        Ok(all)
    }

    async fn find(&self, caller: &Caller, question: &HitQuestion) -> Result<HitPage, AdminError> {
        let HitQuestion { index, query, from, size, time_max } = question;
        let body = json!({
            "query": { "query_string": { "query": query, "default_operator": "AND", "lenient": true } },
            "from": from,
            "size": size,
            "highlight": {
                "pre_tags": [MARK_BEGIN.to_string()],
                "post_tags": [MARK_END.to_string()],
                "fields": { "*": { "fragment_size": PART_CHARS, "number_of_fragments": PARTS } },
            },
            "timeout": format!("{}ms", time_max.as_millis()),
        });
        let found = self.send(caller, (RestMethod::Post, &[index, "_search"]), body).await?;
        if found["timed_out"] == true {
            let text = format!("the search took more than {} s and was ended: narrow the query", time_max.as_secs());
            return Err(AdminError::Refused(text));
        }
        Ok(page_of(&found))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_as_hits_or_as_who_may_do_what_about_it() {
        let answer = json!({"took": 3, "timed_out": false, "hits": {"total": {"value": 7, "relation": "gte"}, "hits": [
            {"_index": "i", "_id": "1", "_score": 1.5, "_source": {"a": "x".repeat(9_000)}, "highlight": {"a": ["<b>"]}},
        ]}});
        let page = page_of(&answer);
        assert_eq!((page.total, page.total_is_exact, page.took_ms), (7, false, 3));
        assert_eq!(page.hits[0].highlights, [("a".to_owned(), vec!["<b>".to_owned()])]);
        assert!(page.hits[0].source.len() < SOURCE_BYTES + 4);
        let refused = |status| {
            let body = json!({"error": {"reason": "why", "root_cause": []}});
            read(RestResponse::json(status, body))
        };
        assert!(matches!(refused(403), Err(AdminError::Denied(why)) if why.starts_with("permission denied: why")));
        assert!(
            matches!(refused(400), Err(AdminError::Refused(_))) && matches!(refused(404), Err(AdminError::Absent(_)))
        );
        assert!(matches!(refused(503), Err(AdminError::Unavailable(_))) && refused(200).is_ok());
    }
}
