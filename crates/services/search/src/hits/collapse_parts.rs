//! [`Collapse`]: the parameters of `collapse`.

use serde_json::{Map, Value};

use crate::error::SearchError;

/// The most `inner_hits` of one collapse.
const INNER_MAX: usize = 10;

/// Parts of a search that `inner_hits` can have.
const INNER_PARTS: &[&str] = &[
    "from",
    "size",
    "sort",
    "_source",
    "stored_fields",
    "docvalue_fields",
    "fields",
    "highlight",
    "track_scores",
    "version",
    "seq_no_primary_term",
];

/// What hits are collapsed by.
#[derive(Clone, Debug)]
pub(super) struct Collapse {
    pub(super) field: String,
    pub(super) inner: Vec<InnerHits>,
}

/// Which hits of each group are shown.
#[derive(Clone, Debug)]
pub(super) struct InnerHits {
    pub(super) name: String,
    /// The body of their search.
    pub(super) parts: Map<String, Value>,
    /// They can be collapsed themselves.
    pub(super) collapse: Option<Box<Collapse>>,
}

impl Collapse {
    /// Reads it. Errors: a part that is wrong; inner hits in a collapse of inner hits.
    pub(super) fn read(value: &Value) -> Result<Collapse, SearchError> {
        Collapse::read_at(value, false)
    }

    fn read_at(value: &Value, inside: bool) -> Result<Collapse, SearchError> {
        let object = value.as_object().ok_or_else(|| SearchError::parsing("[collapse] is an object"))?;
        let (mut field, mut inner) = (None, Vec::new());
        for (name, value) in object {
            match (name.as_str(), value) {
                ("field", Value::String(path)) => field = Some(path.clone()),
                ("max_concurrent_group_searches", Value::Number(_)) => {}
                ("inner_hits", _) if inside => {
                    return Err(SearchError::body("inner_hits of a collapse inside of [inner_hits] are not allowed"));
                }
                ("inner_hits", Value::Array(all)) if all.len() <= INNER_MAX => {
                    inner = all.iter().map(InnerHits::read).collect::<Result<_, _>>()?;
                }
                ("inner_hits", Value::Object(_)) => inner = vec![InnerHits::read(value)?],
                (other, _) => {
                    return Err(SearchError::parsing(format!("[collapse] unknown or wrong field [{other}]")));
                }
            }
        }
        let field = field.ok_or_else(|| SearchError::argument("[collapse] must be provided with a [field]"))?;
        for (place, InnerHits { name, .. }) in inner.iter().enumerate() {
            if inner[..place].iter().any(|other| other.name == *name) {
                return Err(SearchError::argument(format!("[inner_hits] already contains an entry for key [{name}]")));
            }
        }
        Ok(Collapse { field, inner })
    }
}

impl InnerHits {
    fn read(value: &Value) -> Result<InnerHits, SearchError> {
        let object = value.as_object().ok_or_else(|| SearchError::parsing("[inner_hits] is an object"))?;
        let mut parts = object.clone();
        let collapse = parts.remove("collapse").map(|value| Collapse::read_at(&value, true)).transpose()?.map(Box::new);
        parts.remove("ignore_unmapped");
        let name = match parts.remove("name") {
            Some(Value::String(name)) => name,
            _ => return Err(SearchError::argument("[inner_hits] of a collapse needs a [name]")),
        };
        match parts.keys().find(|key| !INNER_PARTS.contains(&key.as_str())) {
            Some(other) => Err(SearchError::parsing(format!("[inner_hits] unknown field [{other}]"))),
            None => Ok(InnerHits { name, parts, collapse }),
        }
    }
}
