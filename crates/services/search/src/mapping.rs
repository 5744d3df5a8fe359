//! [`Mapping`]: what the fields of an index are, as its users put it, and where each lies in the library's index.
//!
//! ```text
//!   {"properties": {"user": {"properties": {"name": {"type": "text", "fields": {"raw": {"type": "keyword"}}}}}}}
//!        user            an object: it has no terms of its own
//!        user.name       text, in column t0
//!        user.name.raw   keyword, a multi-field of user.name, in column f3
//! ```
//!
//! Invariants: a field's column never changes and is never used again; a field is added, and of its parameters only those change that
//! say nothing about what is indexed already. Text lies in columns `t0..`, of which the index has some spare (their lengths are part of
//! a segment, so that a new one needs new segments); every other field gets the next `f` column, which the schema can take at any time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::dates::DateFormats;
use crate::error::SearchError;

mod changes;
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
    /// Positions between two values of a text, so that a phrase does not match across them.
    pub position_gap: usize,
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
    /// Objects of which nothing is read.
    disabled: BTreeSet<String>,
    aliases: BTreeMap<String, String>,
    columns: Columns,
    dynamic: Dynamic,
    /// While it is read from the store: what it has and this program does not know is passed over, as the index is there already.
    is_stored: bool,
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
            disabled: BTreeSet::new(),
            aliases: BTreeMap::new(),
            columns: Columns::default(),
            dynamic: Dynamic::True,
            is_stored: false,
        }
    }

    /// A stored mapping; parameters that are not known are passed over, with a line in the log. Errors: a field that cannot be.
    pub fn stored(json: &Value, columns: Columns) -> Result<Mapping, SearchError> {
        let read = Mapping { columns, is_stored: true, ..Mapping::empty() }.merged(json)?;
        Ok(Mapping { is_stored: false, ..read })
    }

    /// The mapping of a new index from those of its templates and its own: the last definition of a field counts, as a whole.
    /// Errors: as for [`merged`](Mapping::merged).
    pub fn composed<'a>(parts: impl Iterator<Item = &'a Value>) -> Result<Mapping, SearchError> {
        let mut whole = json!({});
        for part in parts {
            changes::overlay(&mut whole, Mapping::empty().merged(part)?.to_json());
        }
        Mapping::empty().merged(&whole)
    }

    /// Errors: a start of the node would not read it as it is.
    pub fn check_stored(&self) -> Result<(), SearchError> {
        let read = Mapping::stored(&self.to_json(), self.columns.clone())?;
        match read.columns == self.columns && read.fields.keys().eq(self.fields.keys()) {
            true => Ok(()),
            false => Err(SearchError::internal("the mapping cannot be stored")),
        }
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

    /// As [`matching`](Mapping::matching), each by the name that the pattern fits: a field's own, or an alias.
    pub fn named<'a>(&'a self, pattern: &'a str) -> Vec<(&'a str, &'a Arc<MappedField>)> {
        if !pattern.contains('*') {
            return self.field(pattern).map(|field| (pattern, field)).into_iter().collect();
        }
        let own = self.fields.iter().map(|(name, field)| (name.as_str(), field));
        let other = self.aliases.iter().filter_map(|(name, path)| Some((name.as_str(), self.fields.get(path)?)));
        own.chain(other).filter(|(name, _)| matches_pattern(pattern, name)).collect()
    }

    /// The fields whose values are copied to the field with that full name.
    pub fn copied_to<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a Arc<MappedField>> {
        let is_target =
            move |name: &String| name == path || self.aliases.get(name).is_some_and(|target| target == path);
        self.fields.values().filter(move |field| field.copy_to.iter().any(is_target))
    }

    /// Whether there is an object with that full name.
    pub fn is_object(&self, path: &str) -> bool {
        self.objects.contains_key(path)
    }

    /// Whether the objects with that full name are nested documents: kept, and not found by the searches of their parent.
    pub fn is_nested(&self, path: &str) -> bool {
        self.nested.contains(path)
    }

    /// Whether nothing is read of what documents have at that full name.
    pub fn is_disabled(&self, path: &str) -> bool {
        self.disabled.contains(path)
    }

    /// Whether that is another name of a field.
    pub fn is_alias(&self, path: &str) -> bool {
        self.aliases.contains_key(path)
    }

    /// Whether a text of a new field that looks like a date makes it one.
    pub fn detects_dates(&self) -> bool {
        self.json.get("date_detection").is_none_or(|value| value != &json!(false) && value != "false")
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
        for (key, value) in update.iter().filter(|(key, _)| *key != "properties") {
            if key == "dynamic" {
                new.dynamic = dynamic(value)?;
            }
            match parameters::check_root(key, value) {
                Err(error) if new.is_stored => passed_over("", &error),
                checked => checked?,
            }
            new.json.insert(key.clone(), value.clone());
        }
        if !self.json.is_empty() && self.shows_source() != new.shows_source() {
            let (from, to) = (self.shows_source(), new.shows_source());
            return Err(SearchError::argument(format!(
                "Mapper for [_source] conflicts with existing mapper:\n\tCannot update parameter [enabled] from [{from}] to [{to}]"
            )));
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
                    if let Some(old) = self.fields.get(&path) {
                        return Err(changes::other_type(&path, &old.type_name, "alias"));
                    }
                    self.aliases.insert(path, target.to_owned());
                    json[name] = Value::Object(definition.clone());
                }
                Some(kind) => {
                    if self.objects.contains_key(&path) {
                        return Err(SearchError::argument(format!(
                            "can't merge a non object mapping [{path}] with an object mapping"
                        )));
                    }
                    if self.aliases.contains_key(&path) {
                        return Err(changes::other_type(&path, "alias", kind));
                    }
                    self.add_field(&path, kind, definition)?;
                    changes::redefine(&mut json[name], definition);
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
        let is_there = self.is_object(path);
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
                "enabled" => self.set_enabled(path, value, is_there, &mut own)?,
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

    /// Whether anything is read of an object. Errors: it is there, and that was decided.
    fn set_enabled(&mut self, path: &str, value: &Value, is_there: bool, own: &mut Value) -> Result<(), SearchError> {
        let enabled = match parameters::flag("enabled", value) {
            Err(_) if self.is_stored => false,
            flag => flag?,
        };
        if is_there && enabled == self.is_disabled(path) {
            return Err(SearchError::argument(format!(
                "the [enabled] parameter can't be updated for the object mapping [{path}]"
            )));
        }
        if !enabled {
            self.disabled.insert(path.to_owned());
            own["enabled"] = json!(false);
        }
        Ok(())
    }

    fn add_field(&mut self, path: &str, kind: &str, definition: &Map<String, Value>) -> Result<(), SearchError> {
        let mut field = parameters::field(path, kind, definition, self.is_stored)?;
        if let Some(old) = self.fields.get(path) {
            changes::check(old, &field)?;
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

/// A stored mapping has something that is refused today; what it was for, it never did.
fn passed_over(field: &str, error: &SearchError) {
    tracing::warn!(field, %error, "a part of a stored mapping has no effect");
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
mod tests;
