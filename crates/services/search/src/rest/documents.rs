//! Requests about one document, and `_mget`.

use std::cell::OnceCell;
use std::sync::Arc;

use node::identity::Action;
use serde_json::{Map, Value, json};

use super::api::{Answer, Api, AskedRequest};
use super::conditions::{condition, expected, expected_of, expected_of_update, invalid};
use super::message::{RestMethod, RestResponse};
use crate::error::SearchError;
use crate::index::{
    DocumentOp, ExpectedVersion, OpKind, OpOutcome, PartialUpdate, SearchIndex, StoredDocument, parse_source,
};
use crate::indices::{ResolveOptions, Resolved};
use crate::rights::Asker;
use crate::source::SourceFilter;

/// When an operation's changes are searchable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RefreshPolicy {
    /// At the next refresh.
    Later,
    /// Before the response, by a refresh of its own.
    Now,
    /// Before the response, by the next refresh.
    Wait,
}

impl RefreshPolicy {
    /// The policy of a request. Errors: a value that is not known.
    pub(super) fn of(request: &AskedRequest<'_>) -> Result<RefreshPolicy, SearchError> {
        match request.parameter("refresh") {
            None | Some("false") => Ok(RefreshPolicy::Later),
            Some("" | "true") => Ok(RefreshPolicy::Now),
            Some("wait_for") => Ok(RefreshPolicy::Wait),
            Some(other) => Err(SearchError::argument(format!("Unknown value for refresh: [{other}]."))),
        }
    }

    /// Does what it says for an index whose operations below `seq` matter.
    pub(super) fn apply(self, api: &Api, index: &SearchIndex, seq: u64) -> Result<(), SearchError> {
        match self {
            RefreshPolicy::Later => Ok(()),
            RefreshPolicy::Now => index.refresh(),
            RefreshPolicy::Wait => api.indices.wait_searchable(index, seq),
        }
    }
}

/// The parameters of every write that this node cannot honour. Errors: one of them is there.
pub(super) fn refuse_unsupported(request: &AskedRequest<'_>) -> Result<(), SearchError> {
    for name in ["pipeline", "parent"] {
        if request.parameter(name).is_some_and(|value| !value.is_empty() && value != "_none") {
            return Err(SearchError::unsupported(format!("parameter [{name}]")));
        }
    }
    Ok(())
}

/// The object of a write's response.
pub(super) fn written(index: &SearchIndex, outcome: &OpOutcome, forced: bool) -> Map<String, Value> {
    let copies = 1 + replicas(index);
    let mut body = Map::new();
    body.insert("_index".to_owned(), json!(index.name()));
    body.insert("_id".to_owned(), json!(outcome.id));
    body.insert("_version".to_owned(), json!(outcome.version));
    body.insert("result".to_owned(), json!(outcome.result));
    if forced {
        body.insert("forced_refresh".to_owned(), json!(true));
    }
    let copies = match outcome.result {
        "noop" => json!({"total": 0, "successful": 0, "failed": 0}),
        _ => json!({"total": copies, "successful": 1, "failed": 0}),
    };
    body.insert("_shards".to_owned(), copies);
    body.insert("_seq_no".to_owned(), json!(outcome.seq));
    body.insert("_primary_term".to_owned(), json!(1));
    body
}

/// Writes what [`written`] makes, with the status, for an index of which name and copies were read before.
pub(super) fn write_written(out: &mut Vec<u8>, (name, copies): (&str, u64), outcome: &OpOutcome) {
    let (id, version, seq) = (Value::from(outcome.id.as_str()), outcome.version, outcome.seq);
    let (total, successful) = if outcome.result == "noop" { (0, 0) } else { (copies, 1) };
    let text = format!(
        "{{\"_index\":{name},\"_id\":{id},\"_version\":{version},\"result\":\"{}\",\"_shards\":{{\"total\":{total},\
         \"successful\":{successful},\"failed\":0}},\"_seq_no\":{seq},\"_primary_term\":1,\"status\":{}}}",
        outcome.result,
        outcome.status()
    );
    out.extend_from_slice(text.as_bytes());
}

/// Copies of an index that its settings ask for beside the one that is there.
pub(super) fn replicas(index: &SearchIndex) -> u64 {
    let value = index.setting("index.number_of_replicas");
    value.as_ref().and_then(Value::as_str).and_then(|text| text.parse().ok()).unwrap_or(1)
}

/// The routing that a document is sent with.
fn routing_of(request: &AskedRequest<'_>) -> Option<String> {
    request.parameter("routing").filter(|routing| !routing.is_empty()).map(str::to_owned)
}

fn one(index: &SearchIndex, op: DocumentOp) -> Result<OpOutcome, SearchError> {
    let outcome = index.apply(std::slice::from_ref(&op))?.pop();
    outcome.ok_or_else(|| SearchError::internal("an operation had no result"))?.map_err(|error| error.of(&index.name()))
}

fn body_of(request: &AskedRequest<'_>) -> Result<bytes::Bytes, SearchError> {
    match request.body.iter().all(u8::is_ascii_whitespace) {
        true => Err(SearchError::body("request body is required")),
        false => Ok(request.body.clone()),
    }
}

/// `PUT /<index>/_doc/<id>`, `POST /<index>/_doc`.
pub(super) fn index(api: &Api, request: &AskedRequest<'_>, name: &str, id: Option<&str>) -> Answer {
    let create = match request.parameter("op_type") {
        None => id.is_none(),
        Some("index") => false,
        Some("create") => true,
        Some(other) => {
            return Err(SearchError::argument(format!("opType must be 'create' or 'index', found: [{other}]")));
        }
    };
    store(api, request, name, id, create)
}

/// `PUT /<index>/_create/<id>`.
pub(super) fn create(api: &Api, request: &AskedRequest<'_>, name: &str, id: &str) -> Answer {
    store(api, request, name, Some(id), true)
}

fn store(api: &Api, request: &AskedRequest<'_>, name: &str, id: Option<&str>, create: bool) -> Answer {
    refuse_unsupported(request)?;
    let refresh = RefreshPolicy::of(request)?;
    let expected = expected_of(request)?;
    if create && id.is_some() && matches!(expected, ExpectedVersion::External(_) | ExpectedVersion::ExternalGte(_)) {
        return Err(invalid("create operations only support internal versioning. use index instead"));
    }
    let body = body_of(request)?;
    let index = api.indices.for_write(name, request.flag("require_alias")?.unwrap_or(false), &request.asker)?;
    let kind = if create { OpKind::Create(body) } else { OpKind::Index(body) };
    let op = DocumentOp { id: id.map(str::to_owned), kind, expected, routing: routing_of(request) };
    let outcome = one(&index, ReadingBack::new(api, &request.asker, name).allowed(op, false)?)?;
    refresh.apply(api, &index, outcome.seq + 1)?;
    let mut response =
        RestResponse::json(outcome.status(), Value::Object(written(&index, &outcome, refresh == RefreshPolicy::Now)));
    if outcome.result == "created" {
        response.headers.push(("location", format!("/{}/_doc/{}", encoded(&index.name()), encoded(&outcome.id))));
    }
    Ok(response)
}

/// A segment of a path, as a URL has it.
fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// `DELETE /<index>/_doc/<id>`.
pub(super) fn delete(api: &Api, request: &AskedRequest<'_>, name: &str, id: &str) -> Answer {
    refuse_unsupported(request)?;
    let refresh = RefreshPolicy::of(request)?;
    let expected = expected_of(request)?;
    // A delete with an external version creates the index as a write does; any other one does not.
    let index = match matches!(expected, ExpectedVersion::External(_) | ExpectedVersion::ExternalGte(_)) {
        true => api.indices.for_write(name, false, &request.asker)?,
        false => api.indices.write_index(name, &request.asker)?,
    };
    let op = DocumentOp { id: Some(id.to_owned()), kind: OpKind::Delete, expected, routing: routing_of(request) };
    let outcome = one(&index, ReadingBack::new(api, &request.asker, name).allowed(op, false)?)?;
    refresh.apply(api, &index, outcome.seq + 1)?;
    Ok(RestResponse::json(outcome.status(), Value::Object(written(&index, &outcome, refresh == RefreshPolicy::Now))))
}

/// Whether two words of the same length differ in one letter.
fn similar(a: &str, b: &str) -> bool {
    a.chars().zip(b.chars()).filter(|(a, b)| a != b).count() == 1
}

/// The change that the body of an update describes. Errors: a part that is not known.
pub(super) fn partial(body: &Value) -> Result<(PartialUpdate, ExpectedVersion, Option<Value>), SearchError> {
    let Value::Object(body) = body else { return Err(SearchError::body("the body of an update is an object")) };
    let mut update = PartialUpdate { detect_noop: true, ..PartialUpdate::default() };
    let (mut seq, mut term, mut source) = (None, None, None);
    for (name, value) in body {
        match (name.as_str(), value) {
            ("doc", Value::Object(doc)) => update.doc = Some(doc.clone()),
            ("upsert", Value::Object(upsert)) => update.upsert = Some(upsert.clone()),
            ("doc_as_upsert", Value::Bool(flag)) => update.doc_as_upsert = *flag,
            ("detect_noop", Value::Bool(flag)) => update.detect_noop = *flag,
            ("if_seq_no", value) => seq = condition(name, value)?,
            ("if_primary_term", value) => term = condition(name, value)?,
            ("_source", value) => source = Some(value.clone()),
            ("script" | "scripted_upsert", _) => {
                return Err(SearchError::unsupported(format!("[{name}] of an update")));
            }
            (other, _) => {
                let hint = ["doc", "upsert", "script", "doc_as_upsert", "detect_noop"];
                let near = hint.iter().find(|known| known.len() == other.len() && similar(known, other));
                let hint = near.map_or_else(String::new, |known| format!(" did you mean [{known}]?"));
                let reason = format!("[UpdateRequest] unknown field [{other}]{hint}");
                return Err(SearchError::new(400, "x_content_parse_exception", reason));
            }
        }
    }
    if update.doc.is_none() && (update.doc_as_upsert || update.upsert.is_none()) {
        return Err(invalid("script or doc is missing"));
    }
    Ok((update, expected(None, None, seq, term)?, source))
}

/// The `get` object of an update's response: the new source, as far as it was asked for.
pub(super) fn updated_source(outcome: &OpOutcome, filter: &SourceFilter) -> Result<Option<Value>, SearchError> {
    let Some(source) = outcome.source.as_ref().filter(|_| filter.is_shown()) else { return Ok(None) };
    let source = filter.apply(parse_source(source)?);
    Ok(Some(json!({"_seq_no": outcome.seq, "_primary_term": 1, "found": true, "_source": source})))
}

/// `POST /<index>/_update/<id>`.
pub(super) fn update(api: &Api, request: &AskedRequest<'_>, name: &str, id: &str) -> Answer {
    refuse_unsupported(request)?;
    let refresh = RefreshPolicy::of(request)?;
    if request.parameter("version").is_some() || request.parameter("version_type").is_some() {
        return Err(invalid(
            "internal versioning can not be used for optimistic concurrency control. Please use `if_seq_no` and `if_primary_term` instead",
        ));
    }
    let body = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    let (mut update, in_body, source) = partial(&body)?;
    // Older clients for Java send it so.
    update.doc_as_upsert = request.flag("doc_as_upsert")?.unwrap_or(update.doc_as_upsert);
    let expected = expected_of_update(&update, expected_of(request)?, in_body)?;
    let needs_one = matches!(expected, ExpectedVersion::Seq(..)) && update.upsert.is_none() && !update.doc_as_upsert;
    let mut filter = SourceFilter::none();
    if let Some(source) = &source {
        filter = SourceFilter::of_value(source)?;
    }
    if ["_source", "_source_includes", "_source_excludes"].iter().any(|name| request.parameter(name).is_some()) {
        filter = SourceFilter::of_parameters(&request.parameters)?;
    }
    let op =
        DocumentOp { id: Some(id.to_owned()), kind: OpKind::Update(update), expected, routing: routing_of(request) };
    let op = ReadingBack::new(api, &request.asker, name).allowed(op, filter.is_shown())?;
    let index = api.indices.for_write(name, request.flag("require_alias")?.unwrap_or(false), &request.asker)?;
    if needs_one && index.get(id)?.is_none() {
        let reason = format!("[{id}]: document missing");
        return Err(SearchError::new(404, "document_missing_exception", reason).of(&index.name()));
    }
    let retries = request.number("retry_on_conflict")?.unwrap_or(0).min(100);
    let mut outcome = one(&index, op.clone());
    for _ in 0..retries {
        if outcome.as_ref().is_err_and(|error| error.status == 409) {
            outcome = one(&index, op.clone());
        }
    }
    let outcome = outcome?;
    refresh.apply(api, &index, outcome.seq + 1)?;
    let mut body = written(&index, &outcome, refresh == RefreshPolicy::Now && outcome.result != "noop");
    if let Some(get) = updated_source(&outcome, &filter)? {
        body.insert("get".to_owned(), get);
    }
    Ok(RestResponse::json(outcome.status(), Value::Object(body)))
}

/// How a document is shown.
struct Shown {
    filter: SourceFilter,
    stored_fields: Vec<String>,
}

impl Shown {
    fn of(request: &AskedRequest<'_>) -> Result<Shown, SearchError> {
        let stored_fields: Vec<String> = request
            .parameter("stored_fields")
            .map(|names| names.split(',').map(str::to_owned).collect())
            .unwrap_or_default();
        let asks =
            ["_source", "_source_includes", "_source_excludes"].iter().any(|name| request.parameter(name).is_some());
        let filter = match asks || stored_fields.is_empty() {
            true => SourceFilter::of_parameters(&request.parameters)?,
            false if stored_fields.iter().any(|name| name == "_source") => SourceFilter::all(),
            false => SourceFilter::none(),
        };
        Ok(Shown { filter, stored_fields })
    }

    fn document(&self, index: &SearchIndex, document: &StoredDocument, seq: u64) -> Result<Value, SearchError> {
        let mut body = json!({
            "_index": index.name(), "_id": document.id, "_version": document.version, "_seq_no": seq, "_primary_term": 1,
            "found": true,
        });
        if let Some(routing) = &document.routing {
            body["_routing"] = json!(routing);
        }
        let source = parse_source(&document.source)?;
        let fields = crate::source::stored_fields(&index.mapping(), &self.stored_fields, &source);
        if self.filter.is_shown() && index.mapping().shows_source() {
            body["_source"] = Value::Object(self.filter.apply(source));
        }
        if !fields.is_empty() {
            body["fields"] = Value::Object(fields);
        }
        Ok(body)
    }
}

/// A document, with its sequence number.
type FoundDocument = (StoredDocument, u64);

/// The one index that a read by id means, and what the caller may see of it.
fn read_index(api: &Api, asker: &Asker, name: &str) -> Result<Resolved, SearchError> {
    let options = ResolveOptions { allow_no_indices: false, ..Default::default() };
    let mut found = api.indices.resolve(name, options, asker)?;
    let names: Vec<String> = found.iter().map(|resolved| resolved.index.name()).collect();
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => {
            // A read by id goes past the filter of an alias.
            one.check_whole(asker)?;
            Ok(one)
        }
        _ => Err(SearchError::argument(format!(
            "Alias [{name}] has more than one index associated with it [{}], can't execute a single index op",
            names.join(", ")
        ))),
    }
}

/// Whether who writes may also learn what is stored. Asked at most once for a request, and only if an operation depends on it.
pub(super) struct ReadingBack<'a> {
    api: &'a Api,
    asker: &'a Asker,
    name: &'a str,
    decided: OnceCell<Result<(), SearchError>>,
}

impl<'a> ReadingBack<'a> {
    pub(super) fn new(api: &'a Api, asker: &'a Asker, name: &'a str) -> ReadingBack<'a> {
        ReadingBack { api, asker, name, decided: OnceCell::new() }
    }

    /// Errors: the refusal.
    fn check(&self) -> Result<(), SearchError> {
        let decide = || {
            let asker = self.asker.asking("indices:data/read/get", &[Action::IndexRead]);
            self.api.indices.check_use(self.name, &asker)?;
            // It may not be there yet.
            let options = ResolveOptions { ignore_unavailable: true, ..ResolveOptions::default() };
            self.api.indices.resolve(self.name, options, &asker)?.iter().try_for_each(|found| found.check_whole(&asker))
        };
        self.decided.get_or_init(decide).clone()
    }

    /// An operation as it may be done: what tells something of the stored document is for who may read it. An update then says in no
    /// case that the document is the same already, and stores it again.
    ///
    /// Errors: it shows the new source, or is done only if the document was not changed since.
    pub(super) fn allowed(&self, mut op: DocumentOp, shows: bool) -> Result<DocumentOp, SearchError> {
        if shows || matches!(op.expected, ExpectedVersion::Seq(..)) {
            self.check()?;
        }
        if let OpKind::Update(update) = &mut op.kind
            && update.detect_noop
        {
            update.detect_noop = self.check().is_ok();
        }
        Ok(op)
    }
}

fn read(
    api: &Api,
    request: &AskedRequest<'_>,
    (name, id): (&str, &str),
    routing: Option<&str>,
) -> Result<(Arc<SearchIndex>, Option<FoundDocument>), SearchError> {
    let Resolved { index, scope, .. } = read_index(api, &request.asker, name)?;
    let realtime = request.flag("realtime")?.unwrap_or(true);
    if request.flag("refresh")?.unwrap_or(false) {
        index.refresh()?;
    }
    let mut found = index.get(id)?;
    if let (Some(scope), Some((document, _))) = (&scope, &found)
        && !scope.shows(&parse_source(&document.source)?)
    {
        // A message that it may not see is one that is not there.
        found = None;
    }
    if index.is_fed() && found.is_some() {
        id.parse().into_iter().for_each(|id| request.asker.notes().read(id));
    }
    let routing = routing.or_else(|| request.parameter("routing"));
    found = found.filter(|(document, _)| index.shards().finds(id, routing, document.routing.as_deref()));
    if !realtime {
        // Only what searches see.
        found = found.filter(|(_, seq)| *seq < index.searchable_below());
    }
    if !matches!(request.parameter("version_type"), None | Some("internal" | "external" | "external_gte")) {
        return Err(SearchError::argument(format!(
            "No version type match [{}]",
            request.parameter("version_type").unwrap_or_default()
        )));
    }
    if let (Some(version), Some((document, _))) = (request.number("version")?, &found)
        && document.version != version
    {
        let reason = format!(
            "[{id}]: version conflict, current version [{}] is different than the one provided [{version}]",
            document.version
        );
        return Err(SearchError::conflict(reason).of(&index.name()));
    }
    Ok((index, found))
}

/// `GET /<index>/_doc/<id>`.
pub(super) fn get(api: &Api, request: &AskedRequest<'_>, name: &str, id: &str) -> Answer {
    let shown = Shown::of(request)?;
    let (index, found) = read(api, request, (name, id), None)?;
    match found {
        Some((document, seq)) => Ok(RestResponse::json(200, shown.document(&index, &document, seq)?)),
        None => Ok(RestResponse::json(404, json!({"_index": index.name(), "_id": id, "found": false}))),
    }
}

/// `GET /<index>/_source/<id>`.
pub(super) fn source(api: &Api, request: &AskedRequest<'_>, name: &str, id: &str) -> Answer {
    let filter = SourceFilter::of_parameters(&request.parameters)?;
    if !filter.is_shown() {
        return Err(invalid("fetching source can not be disabled"));
    }
    let (index, found) = read(api, request, (name, id), None)?;
    match found.filter(|_| index.mapping().shows_source()) {
        Some((document, _)) => {
            Ok(RestResponse::json(200, Value::Object(filter.apply(parse_source(&document.source)?))))
        }
        None if request.method == RestMethod::Head => Ok(RestResponse::json(404, json!({}))),
        None => {
            let reason = format!("Document not found [{}]/[{id}]", index.name());
            Err(SearchError::new(404, "resource_not_found_exception", reason))
        }
    }
}

/// Bytes of the sources of one response.
pub(super) const SOURCE_BYTES: usize = 100 << 20;

/// Most documents of one `_mget`.
const MULTI_GET_MAX: usize = 10_000;

/// `_mget`.
pub(super) fn multi_get(api: &Api, request: &AskedRequest<'_>, default: Option<&str>) -> Answer {
    let body = request.json()?.ok_or_else(|| SearchError::body("request body is required"))?;
    let by_request = Shown::of(request)?;
    let mut wanted = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        match (name.as_str(), value) {
            ("docs", Value::Array(docs)) => wanted.extend(docs.iter().cloned()),
            ("ids", Value::Array(ids)) => wanted.extend(ids.iter().map(|id| json!({"_id": id}))),
            (other, _) => {
                return Err(SearchError::parsing(format!(
                    "unknown key [{other}] for a START_ARRAY, expected [docs] or [ids]"
                )));
            }
        }
    }
    if wanted.is_empty() {
        return Err(invalid("no documents to get"));
    }
    if wanted.len() > MULTI_GET_MAX {
        return Err(SearchError::argument(format!("_mget has {} documents; at most {MULTI_GET_MAX}", wanted.len())));
    }
    let missing: Vec<String> = wanted
        .iter()
        .enumerate()
        .flat_map(|(at, item)| {
            let index =
                (item.get("_index").is_none() && default.is_none()).then(|| format!("index is missing for doc {at}"));
            let id = (item.get("_id").is_none()).then(|| format!("id is missing for doc {at}"));
            index.into_iter().chain(id)
        })
        .collect();
    if !missing.is_empty() {
        let reasons: Vec<String> =
            missing.iter().enumerate().map(|(at, reason)| format!("{}: {reason};", at + 1)).collect();
        let reason = format!("Validation Failed: {}", reasons.join(""));
        return Err(SearchError::new(400, "action_request_validation_exception", reason));
    }
    let (mut docs, mut left) = (Vec::new(), SOURCE_BYTES);
    for item in wanted {
        if request.is_cancelled() {
            return Err(SearchError::cancelled());
        }
        let index = item.get("_index").and_then(Value::as_str).or(default).unwrap_or_default().to_owned();
        let id = match &item["_id"] {
            Value::String(id) => id.clone(),
            other => other.to_string(),
        };
        match multi_get_one((api, request), &by_request, &item, (&index, &id), &mut left) {
            Ok(document) => docs.push(document),
            // What is wrong with the request, not with a document of it.
            Err(error) if error.status == 400 && error.kind != "illegal_argument_exception" => return Err(error),
            Err(error) if error.status == 429 => return Err(error),
            Err(error) => docs.push(json!({"_index": index, "_id": id, "error": error.to_json()["error"]})),
        }
    }
    Ok(RestResponse::json(200, json!({"docs": docs})))
}

fn multi_get_one(
    (api, request): (&Api, &AskedRequest<'_>),
    by_request: &Shown,
    item: &Value,
    (name, id): (&str, &str),
    left: &mut usize,
) -> Result<Value, SearchError> {
    for key in item.as_object().into_iter().flatten().map(|(key, _)| key.as_str()) {
        if !matches!(key, "_index" | "_id" | "_source" | "stored_fields" | "version" | "version_type" | "routing") {
            return Err(SearchError::parsing(format!("unknown key [{key}] of a document of _mget")));
        }
    }
    let stored: Option<Vec<String>> = match &item["stored_fields"] {
        Value::String(name) => Some(vec![name.clone()]),
        Value::Array(names) => Some(names.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        _ => None,
    };
    let own = match (item.get("_source"), &stored) {
        (Some(source), _) => Some(SourceFilter::of_value(source)?),
        (None, Some(names)) if names.iter().any(|name| name == "_source") => Some(SourceFilter::all()),
        (None, Some(_)) => Some(SourceFilter::none()),
        (None, None) => None,
    };
    let routing = match &item["routing"] {
        Value::Number(number) => Some(number.to_string()),
        other => other.as_str().map(str::to_owned),
    };
    let (index, found) = read(api, request, (name, id), routing.as_deref())?;
    let Some((document, seq)) = found else {
        return Ok(json!({"_index": index.name(), "_id": id, "found": false}));
    };
    *left = left.checked_sub(document.source.len()).ok_or_else(crate::hits::too_large)?;
    match own {
        Some(filter) => Shown { filter, stored_fields: stored.unwrap_or_default() }.document(&index, &document, seq),
        None => by_request.document(&index, &document, seq),
    }
}
