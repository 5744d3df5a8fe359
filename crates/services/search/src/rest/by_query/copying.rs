//! `_reindex`: documents of some indices are stored in another one.

use node::identity::Action;
use serde_json::{Map, Value};

use super::{ByQueryOptions, ByQueryWork, body_of, known_only, start};
use crate::error::SearchError;
use crate::index::{ExpectedVersion, OpKind, StoredDocument, parse_source};
use crate::rest::api::{Answer, Api, AskedRequest};
use crate::rest::conditions::invalid;
use crate::rest::searches::targets;
use crate::rights::Asker;
use crate::source::SourceFilter;

/// Which version a copy gets, and on which condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CopyVersion {
    /// The next one, whatever is there.
    Next,
    /// The original's, if that is higher than what is there.
    Higher,
    /// The original's, if what is there is not higher.
    NotLower,
}

/// Which routing a copy gets.
#[derive(Clone, Debug, PartialEq, Eq)]
enum CopyRouting {
    Keep,
    Discard,
    Is(String),
}

/// How documents are copied.
#[derive(Debug)]
pub(super) struct Copying {
    /// Index or alias.
    pub(super) index: String,
    /// It must be an alias.
    pub(super) require_alias: bool,
    create: bool,
    version: CopyVersion,
    routing: CopyRouting,
    filter: Option<SourceFilter>,
}

impl Copying {
    /// The operation for a document, with what it is made of; `None` if there is nothing to copy: the owner of the document removed it.
    ///
    /// Errors: the document cannot be read.
    pub(super) fn op(
        &self,
        mut document: StoredDocument,
        is_fed: bool,
    ) -> Result<Option<(OpKind, StoredDocument)>, SearchError> {
        if is_fed && document.source.as_ref() == b"{}" {
            return Ok(None);
        }
        if let Some(filter) = &self.filter {
            let source = filter.apply(parse_source(&document.source)?);
            document.source = Value::Object(source).to_string().into();
        }
        match &self.routing {
            CopyRouting::Keep => {}
            CopyRouting::Discard => document.routing = None,
            CopyRouting::Is(routing) => document.routing = Some(routing.clone()),
        }
        let source = document.source.clone();
        Ok(Some((if self.create { OpKind::Create(source) } else { OpKind::Index(source) }, document)))
    }

    /// On which condition a document is copied.
    pub(super) fn expected(&self, document: &StoredDocument) -> ExpectedVersion {
        match self.version {
            CopyVersion::Next => ExpectedVersion::Any,
            CopyVersion::Higher => ExpectedVersion::External(document.version),
            CopyVersion::NotLower => ExpectedVersion::ExternalGte(document.version),
        }
    }

    /// Reads `dest`. Errors: what cannot be, or is not built.
    fn read(
        dest: &Map<String, Value>,
        filter: Option<SourceFilter>,
        require_alias: bool,
    ) -> Result<Copying, SearchError> {
        let text = |name: &str| match dest.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(_) => Err(SearchError::parsing(format!("[dest] [{name}] is a text"))),
        };
        if dest.contains_key("pipeline") {
            return Err(SearchError::unsupported("[pipeline] of [dest]"));
        }
        known_only("[dest]", dest, &["index", "op_type", "version_type", "routing"])?;
        let create = match text("op_type")? {
            None | Some("index") => false,
            Some("create") => true,
            Some(other) => {
                return Err(SearchError::argument(format!("opType must be 'create' or 'index', found: [{other}]")));
            }
        };
        let version = match text("version_type")? {
            None | Some("internal") => CopyVersion::Next,
            Some("external" | "external_gt") => CopyVersion::Higher,
            Some("external_gte") => CopyVersion::NotLower,
            Some(other) => return Err(SearchError::argument(format!("No version type match [{other}]"))),
        };
        if create && version != CopyVersion::Next {
            return Err(invalid("create operations only support internal versioning. use index instead"));
        }
        let routing = match text("routing")? {
            None | Some("keep") => CopyRouting::Keep,
            Some("discard") => CopyRouting::Discard,
            Some(text) => match text.strip_prefix('=') {
                Some(routing) => CopyRouting::Is(routing.to_owned()),
                None => {
                    return Err(invalid(format!(
                        "routing must be unset, [keep], [discard] or [=<some new value>], but was [{text}]"
                    )));
                }
            },
        };
        let index = text("index")?.ok_or_else(|| invalid("index is missing"))?.to_owned();
        Ok(Copying { index, require_alias, create, version, routing, filter })
    }
}

/// The caller, as far as it writes copies.
pub(super) fn writing(asker: &Asker) -> Asker {
    asker.asking("indices:data/write/index", &[Action::IndexWrite])
}

/// The names of `source.index`. Errors: there are none.
fn names_of(source: &Map<String, Value>) -> Result<String, SearchError> {
    let names = match source.get("index") {
        Some(Value::String(names)) => names.clone(),
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","),
        _ => String::new(),
    };
    match names.is_empty() {
        true => Err(invalid("use _all if you really want to copy from all existing indexes")),
        false => Ok(names),
    }
}

/// `POST /_reindex`.
pub(in crate::rest) fn reindex(api: &Api, request: &AskedRequest<'_>) -> Answer {
    let body = body_of(request)?;
    known_only("_reindex", &body, &["source", "dest", "max_docs", "conflicts"])?;
    let part = |name: &str| match body.get(name) {
        Some(Value::Object(part)) => Ok(part),
        _ => Err(SearchError::body(format!("_reindex needs [{name}], an object"))),
    };
    let (source, dest) = (part("source")?, part("dest")?);
    if source.contains_key("remote") {
        return Err(SearchError::unsupported("[remote] of [source]: documents of another cluster"));
    }
    known_only("[source]", source, &["index", "query", "_source", "size"])?;
    let options = ByQueryOptions::read(request, &body, source.get("size"))?;
    let filter = source.get("_source").map(SourceFilter::of_value).transpose()?;
    let copying = Copying::read(dest, filter, request.flag("require_alias")?.unwrap_or(false))?;
    let names = names_of(source)?;
    let targets = targets(api, request, &names)?;
    let writing = writing(&request.asker);
    api.indices.check_use(&copying.index, &writing)?;
    // Found here where there is one: what is missing is made when there is something to copy.
    match api.indices.write_index(&copying.index, &writing) {
        Ok(into) => {
            into.check_writable()?;
            let name = into.name();
            if targets.iter().any(|target| target.index.name() == name) {
                return Err(invalid(format!("reindex cannot write into an index its reading from [{name}]")));
            }
        }
        Err(error) if error.kind == "index_not_found_exception" => {
            writing.asking("indices:admin/auto_create", &[Action::IndexMake]).check(&copying.index)?;
        }
        Err(_) => {}
    }
    let about = format!("reindex from [{names}] to [{}]", copying.index);
    let query = source.get("query").cloned();
    start(api, request, (about, ByQueryWork::Copy(copying)), (targets, query, options))
}
