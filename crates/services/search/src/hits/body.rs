//! [`SearchBody`]: what a search asks for, from the body and the parameters of a request.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::collapse_parts::Collapse;
use super::highlight::HighlightRequest;
use super::sort::SortKey;
use crate::error::SearchError;
use crate::indices::duration;
use crate::memory::value_bytes;
use crate::query::query_string_of;
use crate::source::SourceFilter;

/// Hits that are counted exactly where the request says nothing (Elasticsearch's default).
const TOTAL_DEFAULT: u64 = 10_000;

/// Hits of a response where the request says nothing (Elasticsearch's default).
const SIZE_DEFAULT: usize = 10;

/// Most keys of a sort, and most fields that a request names.
const NAMES_MAX: usize = 100;

/// Longest pattern of `_source`, and most bytes of all of them.
const PATTERN_BYTES_MAX: usize = 512;
const PATTERNS_BYTES_MAX: usize = 16 << 10;

/// A field whose values a response shows.
#[derive(Clone, Debug)]
pub(super) struct ShownField {
    /// Its name, or a pattern.
    pub(super) pattern: String,
    /// Format of its dates.
    pub(super) format: Option<String>,
}

/// What a search asks for.
#[derive(Clone, Debug)]
pub struct SearchBody {
    pub(super) query: Value,
    pub(super) post_filter: Option<Value>,
    pub(super) aggs: Option<Value>,
    pub(super) highlight: Option<HighlightRequest>,
    pub(super) sort: Vec<SortKey>,
    pub(super) search_after: Option<Vec<Value>>,
    pub(super) source: SourceFilter,
    pub(super) stored_fields: Vec<String>,
    pub(super) without_metadata: bool,
    pub(super) docvalue_fields: Vec<ShownField>,
    pub(super) fields: Vec<ShownField>,
    pub(super) track_scores: bool,
    pub(super) min_score: Option<f32>,
    pub(super) terminate_after: u64,
    pub(super) timeout: Option<Duration>,
    pub(super) version: bool,
    pub(super) seq_no: bool,
    pub(super) typed_keys: bool,
    pub(super) total_as_int: bool,
    pub(super) indices_boost: Vec<(String, f32)>,
    /// Of all hits with the same value, only the best is shown.
    pub(super) collapse: Option<Collapse>,
    /// The number of this part of the documents, and how many parts there are.
    pub(super) slice: Option<(u32, u32)>,
    /// Groups of searches that statistics count it in.
    pub(super) groups: Vec<String>,
    /// Hits before the first one.
    pub from: usize,
    /// Most hits.
    pub size: usize,
    /// Hits that are counted exactly; more are `gte` this number. `u64::MAX` for all, 0 for none.
    pub track_total_hits: u64,
    /// The `pit` object, if there is one.
    pub pit: Option<Value>,
}

impl Default for SearchBody {
    fn default() -> SearchBody {
        SearchBody {
            query: json!({"match_all": {}}),
            post_filter: None,
            aggs: None,
            highlight: None,
            sort: Vec::new(),
            search_after: None,
            source: SourceFilter::all(),
            stored_fields: Vec::new(),
            without_metadata: false,
            docvalue_fields: Vec::new(),
            fields: Vec::new(),
            track_scores: false,
            min_score: None,
            terminate_after: 0,
            timeout: None,
            version: false,
            seq_no: false,
            typed_keys: false,
            total_as_int: false,
            indices_boost: Vec::new(),
            collapse: None,
            slice: None,
            groups: Vec::new(),
            from: 0,
            size: SIZE_DEFAULT,
            track_total_hits: TOTAL_DEFAULT,
            pit: None,
        }
    }
}

/// Parts of a search that are not built.
const REFUSED: &[&str] = &[
    "rescore",
    "suggest",
    "script_fields",
    "runtime_mappings",
    "knn",
    "profile",
    "explain",
    "ext",
    "derived",
    "rank",
    "retriever",
    "sub_searches",
];

fn number(name: &str, value: &Value, least: i64) -> Result<u64, SearchError> {
    let number = value.as_i64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    match number {
        Some(number) if number > i64::from(i32::MAX) => {
            Err(SearchError::argument(format!("[{name}]: Numeric value ({number}) out of range of int")))
        }
        Some(number) if number >= least => Ok(number as u64),
        Some(number) => Err(SearchError::argument(format!("[{name}] parameter cannot be negative, found [{number}]"))),
        None => Err(SearchError::argument(format!("Failed to parse int parameter [{name}] with value [{value}]"))),
    }
}

/// The least score, a number or a text that is one. Errors: it is neither.
fn score(value: &Value) -> Result<f32, SearchError> {
    let number = value.as_f64().or_else(|| value.as_str().and_then(|text| text.parse().ok()));
    number.filter(|number| !number.is_nan()).map(|number| number as f32).ok_or_else(|| {
        SearchError::argument(format!("Failed to parse float parameter [min_score] with value [{value}]"))
    })
}

/// Errors: the patterns of a `_source` are longer than they may be: each is compared with every field of every hit.
fn check_patterns(value: &Value) -> Result<(), SearchError> {
    let mut open = vec![value];
    let mut bytes = 0;
    while let Some(value) = open.pop() {
        match value {
            Value::String(pattern) if pattern.len() > PATTERN_BYTES_MAX => {
                let reason =
                    format!("a pattern of [_source] has {} bytes, and at most {PATTERN_BYTES_MAX}", pattern.len());
                return Err(SearchError::argument(reason));
            }
            Value::String(pattern) => bytes += pattern.len(),
            Value::Array(values) => open.extend(values),
            Value::Object(object) => open.extend(object.values()),
            _ => {}
        }
    }
    match bytes > PATTERNS_BYTES_MAX {
        true => Err(SearchError::argument(format!(
            "[_source] has {bytes} bytes of patterns, and at most {PATTERNS_BYTES_MAX}"
        ))),
        false => Ok(()),
    }
}

fn flag(name: &str, value: &Value) -> Result<bool, SearchError> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" || text.is_empty() => Ok(true),
        Value::String(text) if text == "false" => Ok(false),
        other => Err(SearchError::argument(format!(
            "Failed to parse value [{other}] of [{name}] as only [true] or [false] are allowed."
        ))),
    }
}

fn shown_fields(name: &str, value: &Value) -> Result<Vec<ShownField>, SearchError> {
    let Some(items) = value.as_array() else {
        return Err(SearchError::parsing(format!("Unknown key for a {value} in [{name}].")));
    };
    if items.len() > NAMES_MAX {
        return Err(SearchError::argument(format!(
            "Trying to retrieve too many {name}. Must be less than or equal to: [{NAMES_MAX}] but was [{}].",
            items.len()
        )));
    }
    let item = |item: &Value| match item {
        Value::String(pattern) => Ok(ShownField { pattern: pattern.clone(), format: None }),
        Value::Object(object) => {
            let pattern = object.get("field").and_then(Value::as_str);
            let pattern =
                pattern.ok_or_else(|| SearchError::parsing(format!("an item of [{name}] needs a [field]")))?;
            if let Some(other) =
                object.keys().find(|key| !matches!(key.as_str(), "field" | "format" | "include_unmapped"))
            {
                return Err(SearchError::parsing(format!("[{name}] unknown field [{other}]")));
            }
            let format = object.get("format").and_then(Value::as_str).map(str::to_owned);
            Ok(ShownField {
                pattern: pattern.to_owned(),
                format: format.filter(|format| format != "use_field_mapping"),
            })
        }
        other => Err(SearchError::parsing(format!("an item of [{name}] is a name or an object, not [{other}]"))),
    };
    items.iter().map(item).collect()
}

/// `{"id": 0, "max": 2}`. Errors: another field than the id, a number that is out of range.
fn slice(value: &Value) -> Result<(u32, u32), SearchError> {
    let object = value.as_object().ok_or_else(|| SearchError::parsing("[slice] is an object"))?;
    if let Some(field) = object.get("field").filter(|field| *field != "_id") {
        return Err(SearchError::unsupported(format!("[slice] by the field [{field}]")));
    }
    if let Some(other) = object.keys().find(|key| !matches!(key.as_str(), "id" | "max" | "field")) {
        return Err(SearchError::parsing(format!("[slice] unknown field [{other}]")));
    }
    let number = |name: &str| object.get(name).and_then(Value::as_i64);
    let (Some(id), Some(max)) = (number("id"), number("max")) else {
        return Err(SearchError::argument("[slice] needs whole numbers [id] and [max]"));
    };
    if id < 0 {
        return Err(SearchError::argument("id must be greater than or equal to 0"));
    }
    if max <= 1 {
        return Err(SearchError::argument("max must be greater than 1"));
    }
    if id >= max {
        return Err(SearchError::argument("max must be greater than id"));
    }
    let max = u32::try_from(max).map_err(|_| SearchError::argument(format!("[max] of [slice] cannot be [{max}]")))?;
    Ok((id as u32, max))
}

impl SearchBody {
    /// Whether only the best hit of each value of a field is shown.
    pub fn collapses(&self) -> bool {
        self.collapse.is_some()
    }

    /// Whether it continues after a hit that it names.
    pub fn continues(&self) -> bool {
        self.search_after.is_some()
    }

    /// The indices and aliases whose hits have a boost, patterns aside.
    pub fn boosted_names(&self) -> impl Iterator<Item = &str> {
        self.indices_boost.iter().map(|(name, _)| name.as_str()).filter(|name| !name.contains('*'))
    }

    /// Whether it asks for a part of the documents.
    pub fn is_slice(&self) -> bool {
        self.slice.is_some()
    }

    /// Reads a search; parameters of the URL come before parts of the body. Errors: a part that is not known or not built.
    pub fn read(body: Option<&Value>, parameters: &BTreeMap<String, String>) -> Result<SearchBody, SearchError> {
        let mut search = SearchBody::default();
        let empty = Map::new();
        let object = match body {
            None => &empty,
            Some(Value::Object(object)) => object,
            Some(other) => {
                return Err(SearchError::parsing(format!("Expected [START_OBJECT] but found [{other}]")));
            }
        };
        let asks_stored = object.contains_key("stored_fields") || parameters.contains_key("stored_fields");
        let asks_source = object.contains_key("_source") || parameters.keys().any(|name| name.starts_with("_source"));
        if asks_stored && !asks_source {
            search.source = SourceFilter::none();
        }
        for (name, value) in object {
            search.set(name, value)?;
        }
        for (name, value) in parameters {
            search.set_parameter(name, value)?;
        }
        if parameters.keys().any(|name| name.starts_with("_source")) {
            search.source = SourceFilter::of_parameters(parameters)?;
        }
        if let Some(query) = query_string_of(|name| parameters.get(name).map(String::as_str)) {
            search.query = query;
        }
        search.check()?;
        Ok(search)
    }

    fn check(&mut self) -> Result<(), SearchError> {
        if self.stored_fields.iter().any(|name| name == "_none_") {
            if self.stored_fields.len() > 1 {
                return Err(SearchError::argument("cannot combine _none_ with other fields"));
            }
            self.without_metadata = true;
            self.stored_fields.clear();
        }
        if self.stored_fields.iter().any(|name| name == "_source") {
            self.source = SourceFilter::all();
        }
        if self.collapse.is_some() && self.search_after.is_some() {
            return Err(super::invalid("cannot use `collapse` in conjunction with `search_after`"));
        }
        if let Some(after) = &self.search_after {
            if self.from > 0 {
                return Err(super::invalid("`from` parameter must be set to 0 when `search_after` is used"));
            }
            if self.sort.is_empty() {
                return Err(SearchError::argument("Sort must contain at least one field."));
            }
            let pit_tie = self.pit.is_some() && after.len() == self.sort.len() + 1;
            if after.len() != self.sort.len() && !pit_tie {
                return Err(SearchError::argument(format!(
                    "search_after has {} value(s) but sort has {}.",
                    after.len(),
                    self.sort.len()
                )));
            }
        }
        // Every search of a point in time has an order without ties, so that pages do not lose or repeat a hit.
        if self.pit.is_some() && !self.sort.is_empty() && !self.sort.iter().any(SortKey::is_place) {
            self.sort.push(SortKey::place());
        }
        Ok(())
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), SearchError> {
        match name {
            "query" => self.query = value.clone(),
            "post_filter" => self.post_filter = Some(value.clone()),
            "aggs" | "aggregations" => self.aggs = Some(value.clone()),
            "highlight" => self.highlight = Some(HighlightRequest::read(value)?),
            "from" => self.from = number(name, value, 0)? as usize,
            "size" => self.size = number(name, value, 0)? as usize,
            "sort" => self.sort = SortKey::read(value)?,
            "search_after" => {
                let values = value.as_array().ok_or_else(|| SearchError::parsing("[search_after] is a list"))?;
                self.search_after = Some(values.clone());
            }
            "_source" => {
                check_patterns(value)?;
                self.source = SourceFilter::of_value(value)?;
            }
            "stored_fields" => {
                self.stored_fields = match value {
                    Value::String(name) => vec![name.clone()],
                    Value::Array(names) => names.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
                    _ => return Err(SearchError::parsing("[stored_fields] is a list of names")),
                }
            }
            "docvalue_fields" => self.docvalue_fields = shown_fields(name, value)?,
            "fields" => self.fields = shown_fields(name, value)?,
            "track_total_hits" => self.track_total(value)?,
            "track_scores" => self.track_scores = flag(name, value)?,
            "min_score" => self.min_score = Some(score(value)?),
            "terminate_after" => self.terminate_after = number("terminateAfter", value, 0)?,
            "timeout" => self.timeout(value.as_str().unwrap_or_default())?,
            "version" => self.version = flag(name, value)?,
            "seq_no_primary_term" => self.seq_no = flag(name, value)?,
            "pit" => self.pit = Some(value.clone()),
            "indices_boost" => self.boosts(value)?,
            "collapse" => self.collapse = Some(Collapse::read(value)?),
            "slice" => self.slice = Some(slice(value)?),
            "stats" => {
                let names =
                    value.as_array().filter(|names| names.len() <= NAMES_MAX && names.iter().all(Value::is_string));
                let names = names
                    .ok_or_else(|| SearchError::parsing(format!("[stats] is a list of at most {NAMES_MAX} names")))?;
                self.groups = names.iter().filter_map(Value::as_str).map(str::to_owned).collect();
            }
            "explain" | "profile" if value == &json!(false) => {}
            "rescore" if self.collapse.is_some() => {
                return Err(super::invalid("cannot use `collapse` in conjunction with `rescore`"));
            }
            other if REFUSED.contains(&other) => {
                return Err(SearchError::unsupported(format!("[{other}] of a search")));
            }
            other => {
                let form = match value {
                    Value::Object(_) => "START_OBJECT",
                    Value::Array(_) => "START_ARRAY",
                    Value::String(_) => "VALUE_STRING",
                    Value::Number(_) => "VALUE_NUMBER",
                    Value::Bool(_) => "VALUE_BOOLEAN",
                    Value::Null => "VALUE_NULL",
                };
                return Err(SearchError::parsing(format!("Unknown key for a {form} in [{other}].")));
            }
        }
        Ok(())
    }

    fn track_total(&mut self, value: &Value) -> Result<(), SearchError> {
        self.track_total_hits = match value {
            Value::Bool(true) => u64::MAX,
            Value::Bool(false) => 0,
            Value::String(text) if text == "true" || text.is_empty() => u64::MAX,
            Value::String(text) if text == "false" => 0,
            other => match other.as_i64().or_else(|| other.as_str().and_then(|text| text.parse().ok())) {
                Some(number) if number < -1 => {
                    return Err(SearchError::argument(format!(
                        "[track_total_hits] parameter must be positive or equals to -1, got {number}"
                    )));
                }
                Some(-1) => u64::MAX,
                Some(number) if number >= 0 => number as u64,
                _ => {
                    return Err(SearchError::argument(format!(
                        "[track_total_hits] parameter must be positive or equals to -1, got {other}"
                    )));
                }
            },
        };
        Ok(())
    }

    fn timeout(&mut self, text: &str) -> Result<(), SearchError> {
        if text != "-1" {
            let time = duration(text);
            let time = time.ok_or_else(|| {
                SearchError::argument(format!("failed to parse setting [timeout] with value [{text}] as a time value"))
            })?;
            self.timeout = Some(time);
        }
        Ok(())
    }

    fn boosts(&mut self, value: &Value) -> Result<(), SearchError> {
        let pairs: Vec<(&String, &Value)> = match value {
            Value::Array(items) => items.iter().filter_map(Value::as_object).flatten().collect(),
            Value::Object(object) => object.iter().collect(),
            _ => Vec::new(),
        };
        for (name, boost) in pairs {
            let boost =
                boost.as_f64().ok_or_else(|| SearchError::parsing("[indices_boost] is a number for each index"))?;
            self.indices_boost.push((name.clone(), boost as f32));
        }
        Ok(())
    }

    fn set_parameter(&mut self, name: &str, text: &str) -> Result<(), SearchError> {
        let value = json!(text);
        match name {
            "from"
            | "size"
            | "track_total_hits"
            | "track_scores"
            | "terminate_after"
            | "timeout"
            | "version"
            | "seq_no_primary_term" => self.set(name, &value)?,
            "explain" | "force_synthetic_source" | "include_named_queries_score" if flag(name, &value)? => {
                return Err(SearchError::unsupported(format!("[{name}] of a search")));
            }
            "search_pipeline" if text != "_none" => return Err(SearchError::unsupported("[search_pipeline]")),
            "suggest_size" => return Err(SearchError::unsupported("[suggest]")),
            "stored_fields" => self.stored_fields = text.split(',').map(str::to_owned).collect(),
            "docvalue_fields" => {
                self.docvalue_fields =
                    text.split(',').map(|name| ShownField { pattern: name.to_owned(), format: None }).collect();
            }
            "sort" => self.sort = SortKey::of_parameter(text)?,
            "typed_keys" => self.typed_keys = flag(name, &value)?,
            "rest_total_hits_as_int" => self.total_as_int = flag(name, &value)?,
            "search_type" => match text {
                "query_then_fetch" | "dfs_query_then_fetch" => {}
                other => return Err(SearchError::argument(format!("No search type for [{other}]"))),
            },
            "batched_reduce_size" if text.parse::<i64>().is_ok_and(|number| number < 2) => {
                return Err(SearchError::argument("batchedReduceSize must be >= 2"));
            }
            "pre_filter_shard_size" if text.parse::<i64>().is_ok_and(|number| number < 1) => {
                return Err(SearchError::argument("preFilterShardSize must be >= 1"));
            }
            "suggest_field" | "suggest_text" | "suggest_mode" => return Err(SearchError::unsupported("[suggest]")),
            // Hints, and what belongs to the server. Others do not come here: each route knows its parameters.
            _ => {}
        }
        Ok(())
    }

    /// The body of a response about `total` hits: an object, or a number where the request asks for one.
    pub(super) fn total(&self, total: u64, exact: bool) -> Option<Value> {
        if self.track_total_hits == 0 {
            return self.total_as_int.then(|| json!(-1));
        }
        let relation = if exact { "eq" } else { "gte" };
        Some(match self.total_as_int {
            true => json!(total),
            false => json!({"value": total, "relation": relation}),
        })
    }

    /// For a scroll: all hits are counted.
    pub fn counts_all(&mut self) {
        self.track_total_hits = u64::MAX;
    }

    /// Continues after these sort values.
    pub fn continue_after(&mut self, values: Vec<Value>) {
        self.from = 0;
        self.search_after = Some(values);
    }

    /// Gives hits that are equal in all keys an order, as a scroll needs it; says what of it the response does not show.
    pub fn hide_ties(&mut self) -> HiddenKeys {
        let had_sort = !self.sort.is_empty();
        if !had_sort {
            self.sort.push(SortKey::score());
        }
        let had_place = self.sort.iter().any(SortKey::is_place);
        if !had_place {
            self.sort.push(SortKey::place());
        }
        HiddenKeys { all: !had_sort, last: !had_place }
    }

    /// Whether the response shows the total as a number alone.
    pub fn shows_total_as(&mut self, number: bool) {
        self.total_as_int = number;
    }

    /// Memory of its queries, which a scroll keeps.
    pub fn query_bytes(&self) -> usize {
        let queries = [Some(&self.query), self.post_filter.as_ref(), self.aggs.as_ref()];
        let highlight = self.highlight.as_ref().map_or(0, HighlightRequest::query_bytes);
        queries.into_iter().flatten().map(value_bytes).sum::<usize>() + highlight
    }

    /// Only the hits: pages after the first have no aggregations.
    pub fn without_aggregations(&mut self) {
        self.aggs = None;
    }
}

/// Keys of a sort that a response does not show.
#[derive(Clone, Copy, Debug)]
pub struct HiddenKeys {
    all: bool,
    last: bool,
}

impl HiddenKeys {
    /// Takes the values of the keys out of a response.
    pub fn strip(self, response: &mut Value) {
        let Some(hits) = response["hits"]["hits"].as_array_mut() else { return };
        for hit in hits.iter_mut().filter_map(Value::as_object_mut) {
            if self.all {
                hit.remove("sort");
            } else if let (true, Some(Value::Array(values))) = (self.last, hit.get_mut("sort")) {
                values.pop();
            }
        }
    }
}
