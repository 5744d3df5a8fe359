//! `_bulk`: many operations in one request, as lines of JSON.
//!
//! ```text
//!   {"index": {"_index": "a", "_id": "1"}}
//!   {"field": "a source, in one line"}
//!   {"delete": {"_index": "a", "_id": "2"}}
//! ```
//!
//! The body is read as a whole before anything is done: a line that is no JSON refuses the request. Then the operations on each
//! index are one transaction; each operation has its own result. Operations on the same document happen in their order.

use std::collections::BTreeMap;
use std::time::Instant;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest};
use super::conditions::{condition, expected, expected_of_update, invalid};
use super::documents::{
    ReadingBack, RefreshPolicy, partial, refuse_unsupported, replicas, updated_source, write_written, written,
};
use super::message::RestResponse;
use crate::error::SearchError;
use crate::index::{DocumentOp, OpKind, PartialUpdate};
use crate::rights::Asker;
use crate::source::SourceFilter;

/// Operations of one index in one transaction: a transaction's memory is bounded.
const TRANSACTION_BYTES: usize = 8 << 20;

/// Most operations of a request: what is kept of each, and its result, take about a kilobyte.
const OPERATIONS_MAX: usize = 100_000;

/// Bytes of the result of an operation that stored a document, about.
const RESULT_BYTES: usize = 192;

/// One operation of the body.
struct BulkItem {
    action: &'static str,
    index: String,
    require_alias: bool,
    op: Result<DocumentOp, SearchError>,
    /// The body of an update that was not read yet: all of them together take much more memory than their text.
    update: Option<Bytes>,
    id: Option<String>,
    bytes: usize,
    filter: SourceFilter,
    /// Its result, written.
    done: Option<Result<Vec<u8>, SearchError>>,
}

struct Lines<'a> {
    body: &'a Bytes,
    at: usize,
    number: usize,
}

impl Lines<'_> {
    /// The next line without its end; none at the end of the body. Errors: the last line has no end.
    fn next(&mut self) -> Result<Option<Bytes>, SearchError> {
        if self.at >= self.body.len() {
            return Ok(None);
        }
        let rest = &self.body[self.at..];
        let Some(end) = memchr(b'\n', rest) else {
            return Err(SearchError::argument("The bulk request must be terminated by a newline [\\n]"));
        };
        let line = self.body.slice(self.at..self.at + end);
        self.at += end + 1;
        self.number += 1;
        Ok(Some(match line.last() {
            Some(b'\r') => line.slice(..line.len() - 1),
            _ => line,
        }))
    }
}

fn memchr(byte: u8, bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|other| *other == byte)
}

/// What a request says of all its operations.
struct BulkDefaults<'a> {
    index: Option<&'a str>,
    filter: SourceFilter,
    require_alias: bool,
    routing: Option<&'a str>,
}

/// The operations of a body. Errors: it cannot be read.
fn read(request: &AskedRequest<'_>, default: Option<&str>) -> Result<Vec<BulkItem>, SearchError> {
    let defaults = BulkDefaults {
        index: default,
        filter: SourceFilter::of_parameters_or(&request.parameters, SourceFilter::none())?,
        require_alias: request.flag("require_alias")?.unwrap_or(false),
        routing: request.parameter("routing"),
    };
    let mut lines = Lines { body: &request.body, at: 0, number: 0 };
    let mut items = Vec::new();
    let mut last = (Bytes::new(), Value::Null);
    while let Some(line) = lines.next()? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if items.len() == OPERATIONS_MAX {
            return Err(SearchError::argument(format!(
                "a bulk request has at most {OPERATIONS_MAX} operations: send them in several"
            )));
        }
        let number = lines.number;
        let malformed =
            |what: String| SearchError::argument(format!("Malformed action/metadata line [{number}], {what}"));
        // Most bodies repeat one line.
        if line != last.0 {
            let read = crate::strict::value(&line).map_err(|error| malformed(format!("it is no JSON: {error}")))?;
            last = (line, read);
        }
        let action: &Value = &last.1;
        let mut actions = action.as_object().into_iter().flatten();
        let (Some((action, metadata)), None) = (actions.next(), actions.next()) else {
            return Err(malformed("expected FIELD_NAME but found [END_OBJECT]".to_owned()));
        };
        let action = match action.as_str() {
            "index" => "index",
            "create" => "create",
            "update" => "update",
            "delete" => "delete",
            other => {
                return Err(malformed(format!(
                    "expected field [create], [delete], [index] or [update] but found [{other}]"
                )));
            }
        };
        let Value::Object(metadata) = metadata else {
            return Err(malformed("expected START_OBJECT".to_owned()));
        };
        let source = match action {
            "delete" => None,
            _ => Some(lines.next()?.ok_or_else(|| invalid("no requests added"))?),
        };
        items.push(item(action, metadata, source, &defaults).map_err(|error| {
            let reason = format!("line [{number}]: {}", error.reason);
            SearchError { reason, ..error }
        })?);
    }
    match items.is_empty() {
        true => Err(invalid("no requests added")),
        false => Ok(items),
    }
}

fn item(
    action: &'static str,
    metadata: &Map<String, Value>,
    source: Option<Bytes>,
    defaults: &BulkDefaults<'_>,
) -> Result<BulkItem, SearchError> {
    let (mut index, mut id, mut require_alias) = (defaults.index.map(str::to_owned), None, defaults.require_alias);
    let (mut version, mut version_type, mut seq, mut term, mut op_type) = (None, None, None, None, None);
    let mut filter = defaults.filter.clone();
    let mut routing = defaults.routing.map(str::to_owned);
    for (name, value) in metadata {
        match (name.as_str(), value) {
            ("_index", Value::String(name)) => index = Some(name.clone()),
            ("_id", Value::String(name)) => id = Some(name.clone()),
            ("_id", Value::Number(number)) => id = Some(number.to_string()),
            ("_id" | "pipeline" | "_type", Value::Null) => {}
            ("version" | "_version", value) => version = condition(name, value)?,
            ("version_type" | "_version_type", Value::String(kind)) => version_type = Some(kind.clone()),
            ("if_seq_no", value) => seq = condition(name, value)?,
            ("if_primary_term", value) => term = condition(name, value)?,
            ("op_type", Value::String(kind)) => op_type = Some(kind.clone()),
            ("require_alias", Value::Bool(flag)) => require_alias = *flag,
            ("_source", value) => filter = SourceFilter::of_value(value)?,
            ("retry_on_conflict" | "dynamic_templates" | "list_executed_pipelines", _) => {}
            ("routing" | "_routing", Value::String(text)) => routing = Some(text.clone()),
            ("routing" | "_routing", Value::Number(number)) => routing = Some(number.to_string()),
            ("routing" | "_routing" | "pipeline", _) => {
                return Err(SearchError::unsupported(format!("[{name}] of a bulk operation")));
            }
            (other, _) => {
                return Err(SearchError::argument(format!(
                    "Action/metadata line contains an unknown parameter [{other}]"
                )));
            }
        }
    }
    let index = index.ok_or_else(|| invalid("index is missing"))?;
    let bytes = source.as_ref().map_or(0, Bytes::len) + 64;
    let is_create = action == "create" || (action == "index" && (op_type.as_deref() == Some("create") || id.is_none()));
    // An index operation with the type of a create is one, in its response too.
    let action = if action == "index" && op_type.as_deref() == Some("create") { "create" } else { action };
    let (expected, mut update) = (expected(version, version_type.as_deref(), seq, term), None);
    let kind = match (action, source) {
        ("delete", _) if id.is_none() => return Err(invalid("id is missing")),
        ("update", _) if id.is_none() => return Err(invalid("id is missing")),
        ("delete", _) | (_, None) => Ok(OpKind::Delete),
        ("update", Some(source)) => {
            update = Some(source);
            Ok(OpKind::Update(PartialUpdate::default()))
        }
        (_, Some(source)) if is_create => Ok(OpKind::Create(source)),
        (_, Some(source)) => Ok(OpKind::Index(source)),
    };
    let kind = match id.as_deref() {
        Some("") => Err(SearchError::argument("if _id is specified it must not be empty")),
        _ => kind,
    };
    let op = kind.and_then(|kind| Ok(DocumentOp { id: id.clone(), kind, expected: expected?, routing }));
    Ok(BulkItem { action, index, require_alias, op, update, id, bytes, filter, done: None })
}

impl BulkItem {
    /// Reads the body of an update; what is wrong with it is the result of the operation.
    fn read_update(&mut self) {
        let Some(source) = self.update.take() else { return };
        let read = self.op.clone().and_then(|op| {
            let body = crate::strict::value(&source)
                .map_err(|error| SearchError::body(format!("the body of an update cannot be read: {error}")))?;
            let (update, in_body, shown) = partial(&body)?;
            let expected = expected_of_update(&update, op.expected, in_body)?;
            let filter = shown.map(|shown| SourceFilter::of_value(&shown)).transpose()?;
            Ok((DocumentOp { kind: OpKind::Update(update), expected, ..op }, filter))
        });
        self.op = read.map(|(op, filter)| {
            if let Some(filter) = filter {
                self.filter = filter;
            }
            op
        });
    }
}

/// `POST /_bulk`, `PUT /_bulk`, and the same of an index.
pub(super) fn answer(api: &Api, request: &AskedRequest<'_>, default: Option<&str>) -> Answer {
    let started = Instant::now();
    refuse_unsupported(request)?;
    let refresh = RefreshPolicy::of(request)?;
    let mut items = read(request, default)?;
    let mut by_index: BTreeMap<(String, bool), Vec<usize>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        by_index.entry((item.index.clone(), item.require_alias)).or_default().push(at);
    }
    for ((name, require_alias), places) in by_index {
        let mut from = 0;
        while from < places.len() {
            let mut bytes = 0;
            let mut to = from;
            while to < places.len() && (to == from || bytes + items[places[to]].bytes <= TRANSACTION_BYTES) {
                bytes += items[places[to]].bytes;
                to += 1;
            }
            transaction((api, &request.asker), (&name, require_alias), &mut items, &places[from..to], refresh);
            from = to;
        }
    }
    let mut errors = false;
    let mut shown = Vec::with_capacity(items.len() * RESULT_BYTES);
    for (number, item) in items.into_iter().enumerate() {
        let BulkItem { action, index, id, done, .. } = item;
        if number > 0 {
            shown.push(b',');
        }
        shown.extend_from_slice(format!("{{\"{action}\":").as_bytes());
        match done.unwrap_or_else(|| Err(SearchError::internal("an operation had no result"))) {
            Ok(body) => shown.extend_from_slice(&body),
            Err(error) => {
                errors = true;
                let body = json!({"_index": index, "_id": id, "status": error.status, "error": error.cause()});
                shown.extend_from_slice(body.to_string().as_bytes());
            }
        }
        shown.push(b'}');
    }
    let took = started.elapsed().as_millis() as u64;
    let mut body = format!("{{\"took\":{took},\"errors\":{errors},\"items\":[").into_bytes();
    body.append(&mut shown);
    body.extend_from_slice(b"]}");
    Ok(RestResponse::raw_json(200, body))
}

/// Does the operations of one index at these places.
fn transaction(
    (api, asker): (&Api, &Asker),
    (name, require_alias): (&str, bool),
    items: &mut [BulkItem],
    places: &[usize],
    refresh: RefreshPolicy,
) {
    // Rights that were there when the request began may be gone by now.
    let index = match asker.still().and_then(|()| api.indices.for_write(name, require_alias, asker)) {
        Ok(index) => index,
        Err(error) => {
            for at in places {
                items[*at].done = Some(Err(error.clone()));
            }
            return;
        }
    };
    let (mut ops, mut of) = (Vec::new(), Vec::new());
    let reading = ReadingBack::new(api, asker, name);
    for at in places {
        items[*at].read_update();
        let shows = items[*at].action == "update" && items[*at].filter.is_shown();
        let op = std::mem::replace(&mut items[*at].op, Err(SearchError::internal("an operation was done before")));
        let op = op.map_err(|error| error.of(name)).and_then(|op| reading.allowed(op, shows));
        match op {
            Ok(op) => {
                ops.push(op);
                of.push(*at);
            }
            Err(error) => items[*at].done = Some(Err(error)),
        }
    }
    let outcomes = match index.apply(&ops) {
        Ok(outcomes) => outcomes,
        Err(error) => vec![Err(error); ops.len()],
    };
    let last = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok()).map(|outcome| outcome.seq + 1).max();
    if let Some(last) = last
        && let Err(error) = refresh.apply(api, &index, last)
    {
        tracing::warn!(index = name, %error, "the refresh after a bulk request failed; it is tried again");
    }
    let (name, copies) = (index.name(), 1 + replicas(&index));
    let quoted = Value::from(name.as_str()).to_string();
    for (at, outcome) in of.into_iter().zip(outcomes) {
        let item = &mut items[at];
        item.done = Some(outcome.map_err(|error| error.of(&name)).map(|outcome| {
            let forced = refresh == RefreshPolicy::Now && outcome.result != "noop";
            let mut out = Vec::with_capacity(RESULT_BYTES);
            if item.action != "update" && !forced {
                write_written(&mut out, (&quoted, copies), &outcome);
                return out;
            }
            let mut body = written(&index, &outcome, forced);
            if let (Ok(Some(get)), "update") = (updated_source(&outcome, &item.filter), item.action) {
                body.insert("get".to_owned(), get);
            }
            body.insert("status".to_owned(), json!(outcome.status()));
            Value::Object(body).to_string().into_bytes()
        }));
    }
}
