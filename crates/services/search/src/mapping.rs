//! [`Mapping`]: what the fields of an index are, as its users put it, and where each lies in the library's index.
//!
//! ```text
//!   {"properties": {"user": {"properties": {"name": {"type": "text", "fields": {"raw": {"type": "keyword"}}}}}}}
//!        user            an object: it has no terms of its own
//!        user.name       text, in column t0
//!        user.name.raw   keyword, a multi-field of user.name, in column f3
//! ```
//!
//! Invariants: a field's column never changes and is never used again; a field is added, never changed. Text lies in columns
//! `t0..`, of which the index has some spare (their lengths are part of a segment, so that a new one needs new segments); every
//! other field gets the next `f` column, which the index's schema can take at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::dates::DateFormats;
use crate::error::SearchError;

mod parameters;

/// The most fields of an index (Elasticsearch's `index.mapping.total_fields.limit`).
pub const FIELDS_MAX: usize = 1000;

/// The deepest objects in objects (Elasticsearch's `index.mapping.depth.limit`).
pub const DEPTH_MAX: usize = 20;

/// What the values of a field are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Analyzed text.
    Text,
    /// A text as one term.
    Keyword,
    /// Whole numbers with a sign, of so many bits.
    Integer(u8),
    /// Whole numbers of 64 bits without a sign.
    UnsignedLong,
    /// Numbers with a fraction; `true` for those kept with the precision of 32 bits.
    Real(bool),
    /// True or false.
    Boolean,
    /// A moment, in milliseconds.
    Date,
    /// An address.
    Ip,
    /// Kept in the source, and found by `exists` alone.
    Opaque,
}

impl FieldKind {
    /// Whether values are numbers, which can be summed.
    pub fn is_number(self) -> bool {
        matches!(self, FieldKind::Integer(_) | FieldKind::UnsignedLong | FieldKind::Real(_))
    }
}

/// A field of an index.
#[derive(Clone, Debug)]
pub struct MappedField {
    /// Its full name.
    pub path: String,
    /// What its values are.
    pub kind: FieldKind,
    /// Its type as mappings name it.
    pub type_name: String,
    /// Its field in the library's schema.
    pub column: String,
    /// Whether it can be searched.
    pub indexed: bool,
    /// Whether it can be sorted and aggregated by.
    pub doc_values: bool,
    /// Analyzer of its texts, and of those of queries; for a keyword the normalizer, if it has one.
    pub analyzer: Option<String>,
    /// See `analyzer`.
    pub search_analyzer: Option<String>,
    /// Formats of a date.
    pub formats: DateFormats,
    /// Longer values of a keyword are not indexed, in characters.
    pub ignore_above: Option<usize>,
    /// Values that cannot be read are passed over instead of refused.
    pub ignore_malformed: bool,
    /// Whether a text that is a number counts as one.
    pub coerce: bool,
    /// What an explicit null counts as.
    pub null_value: Option<Value>,
    /// Other fields that get the same values.
    pub copy_to: Vec<String>,
    /// Multi-fields of it, by their full names.
    pub multi: Vec<String>,
    /// Whether it is a multi-field.
    pub is_multi: bool,
    /// Of a `scaled_float`: values are kept as whole multiples of one by this.
    pub scaling: Option<f64>,
    /// Whether `stored_fields` shows it.
    pub stored: bool,
    /// Of a `constant_keyword`: the value of all documents.
    pub constant: Option<String>,
}

/// What happens to fields that the mapping does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dynamic {
    /// They are added.
    True,
    /// They are kept in the source only.
    False,
    /// The document is refused.
    Strict,
}

/// The fields of an index.
#[derive(Clone, Debug)]
pub struct Mapping {
    json: Map<String, Value>,
    fields: BTreeMap<String, Arc<MappedField>>,
    objects: BTreeMap<String, Option<Dynamic>>,
    nested: BTreeSet<String>,
    aliases: BTreeMap<String, String>,
    columns: Columns,
    dynamic: Dynamic,
}

/// Which field lies in which column: stored with the index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Columns {
    /// Column of each field, and what it was made for.
    pub of_field: BTreeMap<String, String>,
    /// Text columns in use.
    pub texts: u32,
    /// Other columns in use.
    pub others: u32,
}

impl Mapping {
    /// A mapping without a field.
    pub fn empty() -> Mapping {
        Mapping {
            json: Map::new(),
            fields: BTreeMap::new(),
            objects: BTreeMap::new(),
            nested: BTreeSet::new(),
            aliases: BTreeMap::new(),
            columns: Columns::default(),
            dynamic: Dynamic::True,
        }
    }

    /// A stored mapping. Errors: as for [`merged`](Mapping::merged).
    pub fn stored(json: &Value, columns: Columns) -> Result<Mapping, SearchError> {
        Mapping { columns, ..Mapping::empty() }.merged(json)
    }

    /// As users see it.
    pub fn to_json(&self) -> Value {
        Value::Object(self.json.clone())
    }

    /// Where its fields lie.
    pub fn columns(&self) -> &Columns {
        &self.columns
    }

    /// The field with that full name, or that an alias of that name stands for.
    pub fn field(&self, path: &str) -> Option<&Arc<MappedField>> {
        self.fields.get(path).or_else(|| self.fields.get(self.aliases.get(path)?))
    }

    /// All fields, in order of their names; multi-fields too.
    pub fn fields(&self) -> impl Iterator<Item = &Arc<MappedField>> {
        self.fields.values()
    }

    /// The fields that a pattern with `*` names, aliases too.
    pub fn matching<'a>(&'a self, pattern: &'a str) -> Vec<&'a Arc<MappedField>> {
        if !pattern.contains('*') {
            return self.field(pattern).into_iter().collect();
        }
        self.fields.values().filter(|field| matches_pattern(pattern, &field.path)).collect()
    }

    /// Whether there is an object with that full name.
    pub fn is_object(&self, path: &str) -> bool {
        self.objects.contains_key(path)
    }

    /// Whether the objects with that full name are nested documents: kept, and not found by the searches of their parent.
    pub fn is_nested(&self, path: &str) -> bool {
        self.nested.contains(path)
    }

    /// What happens to a new field in the object `path` ("" for the document itself).
    pub fn dynamic_at(&self, path: &str) -> Dynamic {
        let mut path = path;
        loop {
            if let Some(Some(dynamic)) = self.objects.get(path) {
                return *dynamic;
            }
            match path.rsplit_once('.') {
                Some((parent, _)) => path = parent,
                None => return self.dynamic,
            }
        }
    }

    /// Whether documents keep their source; a mapping can switch it off for readers, it is stored all the same.
    pub fn shows_source(&self) -> bool {
        self.json.get("_source").and_then(|source| source.get("enabled")).and_then(Value::as_bool) != Some(false)
    }

    /// With the fields of a mapping update added. Errors: a field that is there with another type, a type or a parameter that is
    /// not known, too many fields.
    pub fn merged(&self, update: &Value) -> Result<Mapping, SearchError> {
        let mut new = self.clone();
        let Value::Object(update) = update else {
            return Err(SearchError::mapping("a mapping is an object"));
        };
        for (key, value) in update {
            match key.as_str() {
                "properties" => {}
                "dynamic" => new.dynamic = dynamic(value)?,
                "_source" | "_meta" | "_routing" | "date_detection" | "numeric_detection" | "_field_names"
                | "_size" => {}
                "dynamic_templates" if value.as_array().is_some_and(Vec::is_empty) => {}
                "dynamic_templates" | "runtime" => {
                    return Err(SearchError::unsupported(format!("[{key}] in a mapping")));
                }
                "_doc" => {
                    return Err(SearchError::argument("Types cannot be provided in put mapping requests"));
                }
                other => {
                    return Err(SearchError::mapping(format!(
                        "Root mapping definition has unsupported parameters: [{other} : {value}]"
                    )));
                }
            }
            if key != "properties" {
                new.json.insert(key.clone(), value.clone());
            }
        }
        if let Some(properties) = update.get("properties") {
            let mut json = new.json.remove("properties").unwrap_or_else(|| json!({}));
            new.add_properties("", properties, &mut json, 1)?;
            new.json.insert("properties".to_owned(), json);
        }
        if new.fields.len() + new.objects.len() > FIELDS_MAX {
            return Err(SearchError::argument(format!("Limit of total fields [{FIELDS_MAX}] has been exceeded")));
        }
        Ok(new)
    }

    fn add_properties(
        &mut self,
        prefix: &str,
        properties: &Value,
        json: &mut Value,
        depth: usize,
    ) -> Result<(), SearchError> {
        let Value::Object(properties) = properties else {
            return Err(SearchError::mapping(format!("[properties] of [{prefix}] is not an object")));
        };
        if depth > DEPTH_MAX {
            return Err(SearchError::argument(format!("Limit of mapping depth [{DEPTH_MAX}] has been exceeded")));
        }
        for (name, definition) in properties {
            if name.is_empty() || name.len() > 512 {
                return Err(SearchError::argument(
                    "a field's name has 1 to 512 bytes: field name cannot be an empty string",
                ));
            }
            // A name with dots stands for objects in objects.
            if let Some((first, rest)) = name.split_once('.') {
                let nested = json!({first: {"properties": {rest: definition}}});
                self.add_properties(prefix, &nested, json, depth)?;
                continue;
            }
            let Value::Object(definition) = definition else {
                return Err(SearchError::mapping(format!(
                    "Expected map for property [fields] on field [{name}] but got [{definition}]"
                )));
            };
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            let kind = definition.get("type").and_then(Value::as_str);
            match kind {
                None | Some("object" | "nested") => self.add_object(&path, name, definition, json, depth)?,
                Some("alias") => {
                    let target = definition.get("path").and_then(Value::as_str);
                    let target =
                        target.ok_or_else(|| SearchError::mapping(format!("alias [{path}] needs a [path]")))?;
                    self.aliases.insert(path, target.to_owned());
                    json[name] = Value::Object(definition.clone());
                }
                Some(kind) => {
                    if self.objects.contains_key(&path) {
                        return Err(SearchError::argument(format!(
                            "can't merge a non object mapping [{path}] with an object mapping"
                        )));
                    }
                    self.add_field(&path, kind, definition)?;
                    merge_definition(&mut json[name], definition);
                }
            }
        }
        Ok(())
    }

    fn add_object(
        &mut self,
        path: &str,
        name: &str,
        definition: &Map<String, Value>,
        json: &mut Value,
        depth: usize,
    ) -> Result<(), SearchError> {
        if self.fields.contains_key(path) {
            let known = definition.contains_key("properties") || definition.get("type").is_some();
            let reason = match known {
                true => format!("can't merge a non object mapping [{path}] with an object mapping"),
                false => format!("No type specified for field [{name}]"),
            };
            return Err(SearchError::argument(reason));
        }
        let nested = definition.get("type").and_then(Value::as_str) == Some("nested");
        if self.objects.contains_key(path) && definition.contains_key("type") && nested != self.is_nested(path) {
            let (from, to) = if nested { ("non-nested", "nested") } else { ("nested", "non-nested") };
            return Err(SearchError::argument(format!("cannot change object mapping [{path}] from {from} to {to}")));
        }
        if nested {
            self.nested.insert(path.to_owned());
        }
        let mut own = match json.get(name) {
            Some(own) => own.clone(),
            None => json!({}),
        };
        for (key, value) in definition {
            match key.as_str() {
                "type" | "properties" => {}
                "include_in_parent" | "include_in_root" if nested && value == &json!(false) => {}
                "include_in_parent" | "include_in_root" if nested => {
                    return Err(SearchError::unsupported(format!("[{key}] of a nested field")));
                }
                "dynamic" => {
                    self.objects.insert(path.to_owned(), Some(dynamic(value)?));
                    own["dynamic"] = value.clone();
                }
                "enabled" if value.as_bool() == Some(true) => {}
                "enabled" => {
                    self.objects.insert(path.to_owned(), Some(Dynamic::False));
                    own["enabled"] = value.clone();
                }
                other => {
                    return Err(SearchError::mapping(format!(
                        "unknown parameter [{other}] on mapper [{name}] of type [object]"
                    )));
                }
            }
        }
        self.objects.entry(path.to_owned()).or_insert(None);
        if let Some(properties) = definition.get("properties") {
            let mut inner = own.get("properties").cloned().unwrap_or_else(|| json!({}));
            self.add_properties(path, properties, &mut inner, depth + 1)?;
            own["properties"] = inner;
        }
        if nested {
            own["type"] = json!("nested");
        }
        if own.get("properties").is_none() && own.get("dynamic").is_none() && own.get("enabled").is_none() && !nested {
            own["type"] = json!("object");
        }
        json[name] = own;
        Ok(())
    }

    fn add_field(&mut self, path: &str, kind: &str, definition: &Map<String, Value>) -> Result<(), SearchError> {
        let mut field = parameters::field(path, kind, definition)?;
        if let Some(old) = self.fields.get(path) {
            if old.kind != field.kind {
                let (from, to) = (&old.type_name, kind);
                return Err(SearchError::argument(format!(
                    "mapper [{path}] cannot be changed from type [{from}] to [{to}]"
                )));
            }
            for multi in &old.multi {
                if !field.multi.contains(multi) {
                    field.multi.push(multi.clone());
                }
            }
        }
        if let Some(multi) = definition.get("fields").and_then(Value::as_object) {
            for (name, definition) in multi {
                let (path, definition) = (format!("{path}.{name}"), definition.as_object());
                let kind = definition.and_then(|definition| definition.get("type")).and_then(Value::as_str);
                let (Some(definition), Some(kind)) = (definition, kind) else {
                    return Err(SearchError::mapping(format!("No type specified for field [{name}]")));
                };
                self.add_field(&path, kind, definition)?;
                let entry = self.fields.get_mut(&path).expect("it was added");
                Arc::make_mut(entry).is_multi = true;
                if !field.multi.contains(&path) {
                    field.multi.push(path);
                }
            }
        }
        field.column = self.column(&field);
        self.fields.insert(path.to_owned(), Arc::new(field));
        Ok(())
    }

    /// The column of a field, a new one if it has none yet.
    fn column(&mut self, field: &MappedField) -> String {
        if let Some(column) = self.columns.of_field.get(&field.path) {
            return column.clone();
        }
        let column = match field.kind {
            FieldKind::Text => {
                self.columns.texts += 1;
                format!("t{}", self.columns.texts - 1)
            }
            _ => {
                self.columns.others += 1;
                format!("f{}", self.columns.others - 1)
            }
        };
        self.columns.of_field.insert(field.path.clone(), column.clone());
        column
    }
}

fn dynamic(value: &Value) -> Result<Dynamic, SearchError> {
    match value {
        Value::Bool(true) => Ok(Dynamic::True),
        Value::Bool(false) => Ok(Dynamic::False),
        Value::String(text) => match text.as_str() {
            "true" => Ok(Dynamic::True),
            "false" => Ok(Dynamic::False),
            "strict" => Ok(Dynamic::Strict),
            other => Err(SearchError::unsupported(format!("[dynamic: {other}] in a mapping"))),
        },
        other => Err(SearchError::mapping(format!("[dynamic] cannot be [{other}]"))),
    }
}

/// Adds what `update` says about a field to what is kept.
fn merge_definition(kept: &mut Value, update: &Map<String, Value>) {
    if !kept.is_object() {
        *kept = json!({});
    }
    for (key, value) in update {
        match (key.as_str(), value) {
            ("fields", Value::Object(fields)) => {
                for (name, definition) in fields {
                    kept["fields"][name] = definition.clone();
                }
            }
            _ => kept[key] = value.clone(),
        }
    }
}

/// Whether a name fits a pattern in which `*` stands for any text.
pub fn matches_pattern(pattern: &str, name: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(mut rest) = name.strip_prefix(pieces.next().unwrap_or("")) else { return false };
    let pieces: Vec<&str> = pieces.collect();
    let Some((last, middle)) = pieces.split_last() else { return rest.is_empty() };
    for piece in middle {
        match rest.find(piece) {
            Some(at) => rest = &rest[at + piece.len()..],
            None => return false,
        }
    }
    rest.len() >= last.len() && rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_keep_their_columns_when_others_are_added() {
        let first = Mapping::empty()
            .merged(&json!({"properties": {"a": {"type": "text", "fields": {"raw": {"type": "keyword"}}}, "b.c": {"type": "long"}}}))
            .expect("valid");
        let second = first.merged(&json!({"properties": {"A": {"type": "date"}}})).expect("valid");
        for path in ["a", "a.raw", "b.c"] {
            assert_eq!(first.field(path).expect(path).column, second.field(path).expect(path).column);
        }
        assert_eq!(second.field("a").expect("a").multi, ["a.raw"]);
        assert!(second.is_object("b"));
        let stored = Mapping::stored(&second.to_json(), second.columns().clone()).expect("valid");
        assert_eq!(stored.columns(), second.columns());
    }

    #[test]
    fn what_cannot_be_mapped_is_refused_by_its_name() {
        let mapping = Mapping::empty()
            .merged(&json!({"properties": {"a": {"type": "long"}, "o": {"properties": {}}}}))
            .expect("valid");
        for (update, named) in [
            (json!({"properties": {"a": {"type": "text"}}}), "from type [long] to [text]"),
            (json!({"properties": {"g": {"type": "geo_shape"}}}), "geo_shape"),
            (json!({"properties": {"g": {"type": "keyword", "shape": "round"}}}), "shape"),
            (json!({"properties": {"o": {"type": "long"}}}), "[o]"),
            (json!({"properties": {"a": {"properties": {}}}}), "[a]"),
            (json!({"dynamic_templates": [{}]}), "dynamic_templates"),
            (json!({"colour": 1}), "colour"),
        ] {
            let error = mapping.merged(&update).expect_err(named);
            assert!(error.reason.contains(named), "{error}");
            assert_eq!(error.status, 400);
        }
    }

    #[test]
    fn patterns_match_names() {
        for (pattern, name, matches) in [
            ("a*", "abc", true),
            ("*c", "abc", true),
            ("a*c", "abc", true),
            ("a*b*", "abc", true),
            ("a", "abc", false),
            ("a*d", "abc", false),
            ("aa*a", "aa", false),
        ] {
            assert_eq!(matches_pattern(pattern, name), matches, "{pattern} {name}");
        }
    }
}
