//! From a document's source to what the index holds of it, and the fields that it adds to the mapping.
//!
//! Two passes, both pure: [`new_fields`] finds the fields that the mapping does not have, [`IndexedDocument`] reads the values of
//! all fields. The first runs before the document is accepted, so a document that cannot be indexed is refused by its name.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value, json};
use tantivy::schema::{Field, Schema, Value as _};
use tantivy::{DateTime, TantivyDocument};

use crate::analysis::{AnalyzedTerm, Analyzers};
use crate::dates::DateFormats;
use crate::error::SearchError;
use crate::mapping::{DEPTH_MAX, Dynamic, FieldKind, MappedField, Mapping};
use crate::packed_terms::PackedTerms;
pub use crate::scalars::{address, boolean, integer, real, text_of, unsigned};
use crate::scalars::{opaque, real_of, short, unsigned_part};
use crate::schema::OwnFields;

/// Longest term of a keyword, in bytes (Lucene's `IndexWriter.MAX_TERM_LENGTH`).
pub const TERM_BYTES_MAX: usize = 32_766;

/// Most values and terms of a document, over all its fields: each takes up to a hundred bytes until it is indexed. A novel has 200,000 words.
pub const VALUES_MAX: usize = 4 << 20;

/// What the node itself says of a document, which a source cannot.
const METADATA: &[&str] = &[
    "_id",
    "_index",
    "_source",
    "_routing",
    "_field_names",
    "_ignored",
    "_seq_no",
    "_primary_term",
    "_version",
    "_tier",
];

/// Formats of a new field whose first value is a date with slashes (Elasticsearch's).
const SLASHED: &str = "yyyy/MM/dd HH:mm:ss||yyyy/MM/dd||epoch_millis";

/// The mapping update that a document needs, if it has fields that are new, or that `copy_to` names. Errors: the mapping is strict.
pub fn new_fields(mapping: &Mapping, source: &Map<String, Value>) -> Result<Option<Value>, SearchError> {
    let mut properties = Map::new();
    let mut new = NewFields { mapping, copied: Map::new() };
    new.find("", source, &mut properties, 1)?;
    for (target, definition) in new.copied {
        properties.entry(target).or_insert(definition);
    }
    Ok((!properties.is_empty()).then(|| json!({"properties": properties})))
}

/// Finds the fields of a source that a mapping lacks.
struct NewFields<'a> {
    mapping: &'a Mapping,
    /// Those that are filled by `copy_to`, by their full names.
    copied: Map<String, Value>,
}

impl NewFields<'_> {
    fn find(
        &mut self,
        prefix: &str,
        object: &Map<String, Value>,
        found: &mut Map<String, Value>,
        depth: usize,
    ) -> Result<(), SearchError> {
        let mapping = self.mapping;
        if depth > DEPTH_MAX {
            return Err(SearchError::argument(format!("Limit of mapping depth [{DEPTH_MAX}] has been exceeded")));
        }
        for (name, value) in object {
            if !name.is_empty() && name.chars().all(|c| c == '.') {
                return Err(SearchError::mapping("field name cannot contain only the character [.]"));
            }
            if name.is_empty() || name.split('.').any(str::is_empty) {
                return Err(SearchError::mapping("field name cannot be an empty string"));
            }
            let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
            if let Some(field) = mapping.field(&path) {
                self.copies(field, value)?;
                continue;
            }
            if mapping.is_disabled(&path) {
                continue;
            }
            let inner = match value {
                Value::Object(inner) => vec![inner],
                Value::Array(values) => values.iter().filter_map(Value::as_object).collect(),
                _ => Vec::new(),
            };
            let known = mapping.is_object(&path);
            if !known && !self.may_add(prefix, name)? {
                continue;
            }
            if !inner.is_empty() || (known && !value.is_null()) {
                let mut properties = Map::new();
                for object in inner {
                    self.find(&path, object, &mut properties, depth + 1)?;
                }
                if !properties.is_empty() || !known {
                    merge_objects(found, name, properties);
                }
            } else if let Some(definition) = guessed(mapping, value) {
                found.insert(name.clone(), definition);
            }
        }
        Ok(())
    }

    /// Whether the mapping takes a field that is new in an object. Errors: it is strict.
    fn may_add(&self, prefix: &str, name: &str) -> Result<bool, SearchError> {
        match self.mapping.dynamic_at(prefix) {
            Dynamic::True => Ok(true),
            Dynamic::False => Ok(false),
            Dynamic::Strict => {
                let at = if prefix.is_empty() { "_doc" } else { prefix };
                let reason =
                    format!("mapping set to strict, dynamic introduction of [{name}] within [{at}] is not allowed");
                Err(SearchError::new(400, "strict_dynamic_mapping_exception", reason))
            }
        }
    }

    /// The fields that a field's values are copied to are made by them, as by values of their own.
    fn copies(&mut self, field: &MappedField, value: &Value) -> Result<(), SearchError> {
        for target in &field.copy_to {
            if self.mapping.field(target).is_some() || self.mapping.is_object(target) {
                continue;
            }
            let Some(definition) = guessed(self.mapping, value) else { continue };
            let (parent, name) = target.rsplit_once('.').unwrap_or(("", target));
            if self.may_add(parent, name)? {
                self.copied.entry(target.clone()).or_insert(definition);
            }
        }
        Ok(())
    }
}

/// Two objects of an array may each have new fields.
fn merge_objects(found: &mut Map<String, Value>, name: &str, properties: Map<String, Value>) {
    let entry = found.entry(name.to_owned()).or_insert_with(|| json!({"properties": {}}));
    if let Some(known) = entry.get_mut("properties").and_then(Value::as_object_mut) {
        known.extend(properties);
    }
}

/// The definition of a field by its first value; nulls and empty lists define nothing.
fn guessed(mapping: &Mapping, value: &Value) -> Option<Value> {
    Some(match value {
        Value::Null | Value::Object(_) => return None,
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "float"}),
        Value::Number(_) => json!({"type": "long"}),
        Value::String(text) if mapping.detects_dates() && looks_like_date(text, b'-') => json!({"type": "date"}),
        Value::String(text) if mapping.detects_dates() && looks_like_date(text, b'/') => {
            json!({"type": "date", "format": SLASHED})
        }
        Value::String(_) => json!({"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}),
        Value::Array(values) => return values.iter().find_map(|value| guessed(mapping, value)),
    })
}

/// Date detection as Elasticsearch's default: `strict_date_optional_time`, or with slashes.
fn looks_like_date(text: &str, separator: u8) -> bool {
    if text.len() < 10 || text.as_bytes()[4] != separator {
        return false;
    }
    let formats = match separator {
        b'/' => DateFormats::parse_list(SLASHED).unwrap_or_default(),
        _ => DateFormats::default(),
    };
    formats.value(&json!(text)).is_ok()
}

/// What the index holds of a document.
pub struct IndexedDocument<'a> {
    mapping: &'a Mapping,
    analyzers: &'a Analyzers,
    schema: &'a Schema,
    doc: TantivyDocument,
    names: BTreeSet<String>,
    /// Positions used so far in each text column, for lists of texts.
    positions: Vec<(Field, usize)>,
    /// The terms so far of columns that got more than one: the library's column would keep each as often as it comes.
    terms: Vec<(Field, HashSet<String>)>,
    /// Values and terms so far.
    values: usize,
    /// Whether it was accepted before.
    again: bool,
}

impl<'a> IndexedDocument<'a> {
    /// Reads a source, before the document has its id and its sequence number. Errors: a value that its field cannot hold, by the
    /// field's name.
    pub fn prepare(
        mapping: &'a Mapping,
        analyzers: &'a Analyzers,
        schema: &'a Schema,
        source: &Map<String, Value>,
    ) -> Result<TantivyDocument, SearchError> {
        IndexedDocument::of(mapping, analyzers, schema, source, false)
    }

    /// Reads a document that was accepted before. A field that the mapping got later may not fit its value: such a value is passed
    /// over, and the document is found by its other fields. Errors: none that a source can cause.
    pub fn read_again(
        mapping: &'a Mapping,
        analyzers: &'a Analyzers,
        schema: &'a Schema,
        (id, seq): (&str, u64),
        source: &Map<String, Value>,
    ) -> Result<TantivyDocument, SearchError> {
        let mut doc = IndexedDocument::of(mapping, analyzers, schema, source, true)?;
        let own = OwnFields::of(schema);
        doc.add_text(own.id, id);
        doc.add_u64(own.seq, seq);
        Ok(doc)
    }

    fn of(
        mapping: &'a Mapping,
        analyzers: &'a Analyzers,
        schema: &'a Schema,
        source: &Map<String, Value>,
        again: bool,
    ) -> Result<TantivyDocument, SearchError> {
        if let (false, Some(name)) = (again, METADATA.iter().find(|name| source.contains_key(**name))) {
            return Err(SearchError::mapping(format!(
                "Field [{name}] is a metadata field and cannot be added inside a document. Use the index API request parameters."
            )));
        }
        let (doc, names) = (TantivyDocument::new(), BTreeSet::new());
        let (positions, terms) = (Vec::new(), Vec::new());
        let mut document =
            IndexedDocument { mapping, analyzers, schema, doc, names, positions, terms, values: 0, again };
        document.object("", source)?;
        document.constants()?;
        let IndexedDocument { mut doc, names, .. } = document;
        let own = OwnFields::of(schema);
        names.iter().for_each(|name| doc.add_text(own.names, name));
        Ok(doc)
    }

    fn object(&mut self, prefix: &str, object: &Map<String, Value>) -> Result<(), SearchError> {
        for (name, value) in object {
            if prefix.is_empty() {
                self.value(name, value)?;
            } else {
                self.value(&format!("{prefix}.{name}"), value)?;
            }
        }
        Ok(())
    }

    fn value(&mut self, path: &str, value: &Value) -> Result<(), SearchError> {
        if self.mapping.is_nested(path) {
            return self.nested(path, value);
        }
        if self.mapping.is_disabled(path) {
            return Ok(());
        }
        if self.mapping.is_alias(path) && !self.again {
            return Err(SearchError::mapping(format!("Cannot write to a field alias [{path}].")));
        }
        let mapping = self.mapping;
        match (mapping.field(path), value) {
            (Some(field), value) if field.kind == FieldKind::Opaque => {
                if !value.is_null() && !self.again {
                    opaque(&field.type_name, value).map_err(|why| {
                        SearchError::mapping(format!(
                            "failed to parse field [{path}] of type [{}]: {why}",
                            field.type_name
                        ))
                    })?;
                }
                if !value.is_null() {
                    self.names.insert(path.to_owned());
                }
                Ok(())
            }
            (_, Value::Array(values)) => values.iter().try_for_each(|value| self.value(path, value)),
            (None, Value::Object(object)) => self.object(path, object),
            (None, Value::Null) => Ok(()),
            (None, other) if self.mapping.is_object(path) && !self.again => Err(SearchError::mapping(format!(
                "object mapping for [{path}] tried to parse field [{path}] as object, but found a concrete value [{other}]"
            ))),
            (None, _) => Ok(()),
            (Some(field), value) => {
                self.with_multi(field, value)?;
                let mut targets = field.copy_to.iter().filter_map(|name| mapping.field(name));
                targets.try_for_each(|target| self.with_multi(target, value))
            }
        }
    }

    /// A value of a field and of its multi-fields.
    fn with_multi(&mut self, field: &MappedField, value: &Value) -> Result<(), SearchError> {
        self.field(field, value)?;
        let mapping = self.mapping;
        field.multi.iter().filter_map(|name| mapping.field(name)).try_for_each(|field| self.field(field, value))
    }

    /// A document without a value of a constant field has it all the same.
    fn constants(&mut self) -> Result<(), SearchError> {
        for field in self.mapping.fields() {
            if let Some(constant) = field.constant.as_ref().filter(|_| !self.names.contains(&field.path)) {
                self.field(field, &json!(constant))?;
            }
        }
        Ok(())
    }

    /// Nested documents: their values are read as all others, so that a wrong one is refused, and are not indexed.
    fn nested(&mut self, path: &str, value: &Value) -> Result<(), SearchError> {
        let doc = std::mem::replace(&mut self.doc, TantivyDocument::new());
        let (names, positions) = (std::mem::take(&mut self.names), std::mem::take(&mut self.positions));
        let terms = std::mem::take(&mut self.terms);
        let read = match value {
            Value::Null => Ok(()),
            Value::Object(object) => self.object(path, object),
            Value::Array(values) => values.iter().try_for_each(|value| self.nested(path, value)),
            _ if self.again => Ok(()),
            other => Err(SearchError::mapping(format!(
                "object mapping for [{path}] tried to parse field [{path}] as object, but found a concrete value [{other}]"
            ))),
        };
        (self.doc, self.names, self.positions, self.terms) = (doc, names, positions, terms);
        read
    }

    fn field(&mut self, field: &MappedField, value: &Value) -> Result<(), SearchError> {
        let value = match (value, &field.null_value) {
            (Value::Null, None) => return Ok(()),
            (Value::Null, Some(instead)) => instead,
            (value, _) => value,
        };
        self.values += 1;
        let added = match (value, self.schema.get_field(&field.column)) {
            (_, Err(_)) => return Err(SearchError::internal(format!("field [{}] has no column yet", field.path))),
            (Value::Object(_), _) => Err(format!("a value, not an object: {}", short(value))),
            (value, Ok(column)) => self.add(field, column, value),
        };
        if self.values > VALUES_MAX && !self.again {
            return Err(SearchError::mapping(format!("the document has more than [{VALUES_MAX}] values and terms")));
        }
        match added {
            Ok(added) => {
                match added {
                    true => drop(self.names.insert(field.path.clone())),
                    false => self.ignored(field),
                }
                Ok(())
            }
            Err(_) if field.ignore_malformed || self.again => {
                self.ignored(field);
                Ok(())
            }
            Err(why) => {
                let (path, type_name) = (&field.path, &field.type_name);
                Err(SearchError::mapping(format!("failed to parse field [{path}] of type [{type_name}]: {why}")))
            }
        }
    }

    /// Notes that a value of a field is not indexed.
    fn ignored(&mut self, field: &MappedField) {
        self.names.insert(crate::schema::IGNORED.to_owned());
        self.names.insert(crate::schema::ignored_name(&field.path));
    }

    /// Adds a value; `false` if it is one that is passed over.
    fn add(&mut self, field: &MappedField, column: Field, value: &Value) -> Result<bool, String> {
        match field.kind {
            FieldKind::Text => self.text(field, column, &text_of(value)?)?,
            FieldKind::Keyword => {
                let mut text = text_of(value)?;
                if field.constant.as_ref().is_some_and(|constant| *constant != text) {
                    return Err("[constant_keyword] field only accepts the value of its mapping".to_owned());
                }
                if field.ignore_above.is_some_and(|length| text.chars().count() > length) {
                    return Ok(false);
                }
                if let Some(normalizer) = &field.analyzer {
                    text = self.analyzers.normalizer(normalizer).map_err(|error| error.reason)?.normalize(&text);
                }
                if text.len() > TERM_BYTES_MAX {
                    return Err(format!("the value has {} bytes, a term at most {TERM_BYTES_MAX}", text.len()));
                }
                if self.is_first(field, column, &text) {
                    self.doc.add_text(column, &text);
                }
            }
            FieldKind::Integer(bits) => self.doc.add_i64(column, integer(value, bits, field.coerce)?),
            FieldKind::UnsignedLong => self.doc.add_u64(column, unsigned_part(value)?),
            FieldKind::Real(short) => {
                let number = real_of(value, &field.type_name)?;
                let number = field.scaling.map_or(number, |factor| (number * factor).round() / factor);
                self.doc.add_f64(column, if short { f64::from(number as f32) } else { number });
            }
            FieldKind::Boolean => self.doc.add_bool(column, boolean(value)?),
            FieldKind::Date => {
                let read = if self.again { field.formats.accepted_value(value) } else { field.formats.value(value) };
                let millis = read.map_err(|error| error.reason)?;
                self.doc.add_date(column, DateTime::from_timestamp_millis(millis));
            }
            FieldKind::Ip => {
                let address = address(&text_of(value)?)?;
                if self.is_first(field, column, &address.to_string()) {
                    self.doc.add_ip_addr(column, address);
                }
            }
            FieldKind::Opaque => {}
        }
        Ok(true)
    }

    /// Whether a document has a term for the first time: terms count once, as in a set.
    fn is_first(&mut self, field: &MappedField, column: Field, term: &str) -> bool {
        if !self.names.contains(&field.path) {
            return true;
        }
        let at = match self.terms.iter().position(|(known, _)| *known == column) {
            Some(at) => at,
            None => {
                let values = self.doc.get_all(column).filter_map(|value| {
                    let address = value.as_ip_addr().map(|address| address.to_string());
                    value.as_str().map(str::to_owned).or(address)
                });
                let known = values.collect();
                self.terms.push((column, known));
                self.terms.len() - 1
            }
        };
        self.terms[at].1.insert(term.to_owned())
    }

    fn text(&mut self, field: &MappedField, column: Field, text: &str) -> Result<(), String> {
        if !field.indexed {
            return Ok(());
        }
        let analyzer =
            self.analyzers.get(field.analyzer.as_deref().unwrap_or("default")).map_err(|error| error.reason)?;
        // What was accepted once is indexed again as it was.
        let most = if self.again { usize::MAX } else { VALUES_MAX.saturating_sub(self.values) };
        let Some(terms) = analyzer.analyze_at_most(text, most) else {
            self.values = usize::MAX;
            return Ok(());
        };
        self.values = self.values.saturating_add(terms.len());
        let at = match self.positions.iter().position(|(known, _)| *known == column) {
            Some(at) => at,
            None => {
                self.positions.push((column, 0));
                self.positions.len() - 1
            }
        };
        let base = self.positions[at].1;
        let end = terms.last().map_or(base, |term| base + term.position + field.position_gap);
        self.positions[at].1 = end;
        let mut packed = PackedTerms::default();
        for AnalyzedTerm { text, position, .. } in terms.iter().filter(|term| term.text.len() <= TERM_BYTES_MAX) {
            packed.push(base + position, text);
        }
        self.doc.add_text(column, packed.as_str());
        Ok(())
    }
}

/// The fields of a source with a value that is not indexed: malformed where that is passed over, or too long.
pub fn ignored_fields(mapping: &Mapping, source: &Map<String, Value>) -> Vec<String> {
    let mut ignored = Vec::new();
    for field in mapping.fields().filter(|field| field.ignore_malformed || field.ignore_above.is_some()) {
        let path = match field.is_multi {
            true => field.path.rsplit_once('.').map_or(field.path.as_str(), |(parent, _)| parent),
            false => &field.path,
        };
        let mut values = Vec::new();
        crate::source::values_at(path, source, &mut values);
        if values.iter().any(|value| is_ignored(field, value)) {
            ignored.push(field.path.clone());
        }
    }
    ignored
}

fn is_ignored(field: &MappedField, value: &Value) -> bool {
    if let Some(most) = field.ignore_above {
        return text_of(value).is_ok_and(|text| text.len() > most && text.chars().count() > most);
    }
    match field.kind {
        FieldKind::Integer(bits) => integer(value, bits, field.coerce).is_err(),
        FieldKind::UnsignedLong => unsigned_part(value).is_err(),
        FieldKind::Real(_) => real_of(value, &field.type_name).is_err(),
        FieldKind::Boolean => boolean(value).is_err(),
        FieldKind::Date => field.formats.value(value).is_err(),
        FieldKind::Ip => value.as_str().is_none_or(|text| address(text).is_err()),
        FieldKind::Text | FieldKind::Keyword | FieldKind::Opaque => false,
    }
}

#[cfg(test)]
mod tests;
