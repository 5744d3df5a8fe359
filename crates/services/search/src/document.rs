//! From a document's source to what the index holds of it, and the fields that it adds to the mapping.
//!
//! Two passes, both pure: [`new_fields`] finds the fields that the mapping does not have, [`IndexedDocument`] reads the values of
//! all fields. The first runs before the document is accepted, so a document that cannot be indexed is refused by its name.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Map, Value, json};
use tantivy::schema::{Field, Schema};
use tantivy::{DateTime, TantivyDocument};

use crate::analysis::{AnalyzedTerm, Analyzers};
use crate::dates::DateFormats;
use crate::error::SearchError;
use crate::mapping::{DEPTH_MAX, Dynamic, FieldKind, MappedField, Mapping};
use crate::packed_terms::PackedTerms;
use crate::schema::OwnFields;

/// Longest term of a keyword, in bytes (Lucene's `IndexWriter.MAX_TERM_LENGTH`).
pub const TERM_BYTES_MAX: usize = 32_766;

/// Positions between two values of a text, so that a phrase does not match across them (Elasticsearch's
/// `position_increment_gap`).
const POSITION_GAP: usize = 100;

/// The mapping update that a document needs, if it has fields that are new. Errors: the mapping is strict.
pub fn new_fields(mapping: &Mapping, source: &Map<String, Value>) -> Result<Option<Value>, SearchError> {
    let mut properties = Map::new();
    find_new(mapping, "", source, &mut properties, 1)?;
    Ok((!properties.is_empty()).then(|| json!({"properties": properties})))
}

fn find_new(
    mapping: &Mapping,
    prefix: &str,
    object: &Map<String, Value>,
    found: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), SearchError> {
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
        if mapping.field(&path).is_some() {
            continue;
        }
        let inner = match value {
            Value::Object(inner) => vec![inner],
            Value::Array(values) => values.iter().filter_map(Value::as_object).collect(),
            _ => Vec::new(),
        };
        let known = mapping.is_object(&path);
        if !known {
            match mapping.dynamic_at(prefix) {
                Dynamic::True => {}
                Dynamic::False => continue,
                Dynamic::Strict => {
                    let at = if prefix.is_empty() { "_doc" } else { prefix };
                    let reason =
                        format!("mapping set to strict, dynamic introduction of [{name}] within [{at}] is not allowed");
                    return Err(SearchError::new(400, "strict_dynamic_mapping_exception", reason));
                }
            }
        }
        if !inner.is_empty() || (known && !value.is_null()) {
            let mut properties = Map::new();
            for object in inner {
                find_new(mapping, &path, object, &mut properties, depth + 1)?;
            }
            if !properties.is_empty() || !known {
                merge_objects(found, name, properties);
            }
        } else if let Some(definition) = guessed(value) {
            found.insert(name.clone(), definition);
        }
    }
    Ok(())
}

/// Two objects of an array may each have new fields.
fn merge_objects(found: &mut Map<String, Value>, name: &str, properties: Map<String, Value>) {
    let entry = found.entry(name.to_owned()).or_insert_with(|| json!({"properties": {}}));
    if let Some(known) = entry.get_mut("properties").and_then(Value::as_object_mut) {
        known.extend(properties);
    }
}

/// The definition of a field by its first value; nulls and empty lists define nothing.
fn guessed(value: &Value) -> Option<Value> {
    Some(match value {
        Value::Null | Value::Object(_) => return None,
        Value::Bool(_) => json!({"type": "boolean"}),
        Value::Number(number) if number.is_f64() => json!({"type": "float"}),
        Value::Number(_) => json!({"type": "long"}),
        Value::String(text) if looks_like_date(text) => json!({"type": "date"}),
        Value::String(_) => json!({"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}),
        Value::Array(values) => return values.iter().find_map(guessed),
    })
}

/// Date detection as Elasticsearch's default: `strict_date_optional_time` or `yyyy/MM/dd`.
fn looks_like_date(text: &str) -> bool {
    text.len() >= 10 && text.as_bytes()[4] == b'-' && DateFormats::default().value(&json!(text)).is_ok()
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
        let doc = TantivyDocument::new();
        let mut document =
            IndexedDocument { mapping, analyzers, schema, doc, names: BTreeSet::new(), positions: Vec::new(), again };
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
        match (self.mapping.field(path), value) {
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
                let field = field.clone();
                self.field(&field, value)?;
                for other in field.multi.iter().chain(&field.copy_to) {
                    if let Some(other) = self.mapping.field(other) {
                        let other = other.clone();
                        self.field(&other, value)?;
                    }
                }
                Ok(())
            }
        }
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
        let read = match value {
            Value::Null => Ok(()),
            Value::Object(object) => self.object(path, object),
            Value::Array(values) => values.iter().try_for_each(|value| self.nested(path, value)),
            _ if self.again => Ok(()),
            other => Err(SearchError::mapping(format!(
                "object mapping for [{path}] tried to parse field [{path}] as object, but found a concrete value [{other}]"
            ))),
        };
        (self.doc, self.names, self.positions) = (doc, names, positions);
        read
    }

    fn field(&mut self, field: &MappedField, value: &Value) -> Result<(), SearchError> {
        let value = match (value, &field.null_value) {
            (Value::Null, None) => return Ok(()),
            (Value::Null, Some(instead)) => instead,
            (value, _) => value,
        };
        let added = match (value, self.schema.get_field(&field.column)) {
            (_, Err(_)) => return Err(SearchError::internal(format!("field [{}] has no column yet", field.path))),
            (Value::Object(_), _) => Err(format!("a value, not an object: {}", short(value))),
            (value, Ok(column)) => self.add(field, column, value),
        };
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
                self.doc.add_text(column, &text);
            }
            FieldKind::Integer(bits) => self.doc.add_i64(column, integer(value, bits, field.coerce)?),
            FieldKind::UnsignedLong => self.doc.add_u64(column, unsigned_part(value)?),
            FieldKind::Real(short) => {
                let number = real(value)?;
                let number = field.scaling.map_or(number, |factor| (number * factor).round() / factor);
                self.doc.add_f64(column, if short { f64::from(number as f32) } else { number });
            }
            FieldKind::Boolean => self.doc.add_bool(column, boolean(value)?),
            FieldKind::Date => {
                let millis = field.formats.value(value).map_err(|error| error.reason)?;
                self.doc.add_date(column, DateTime::from_timestamp_millis(millis));
            }
            FieldKind::Ip => self.doc.add_ip_addr(column, address(&text_of(value)?)?),
            FieldKind::Opaque => {}
        }
        Ok(true)
    }

    fn text(&mut self, field: &MappedField, column: Field, text: &str) -> Result<(), String> {
        if !field.indexed {
            return Ok(());
        }
        let analyzer =
            self.analyzers.get(field.analyzer.as_deref().unwrap_or("default")).map_err(|error| error.reason)?;
        let terms = analyzer.analyze(text);
        let at = match self.positions.iter().position(|(known, _)| *known == column) {
            Some(at) => at,
            None => {
                self.positions.push((column, 0));
                self.positions.len() - 1
            }
        };
        let base = self.positions[at].1;
        let end = terms.last().map_or(base, |term| base + term.position + POSITION_GAP);
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
        FieldKind::Real(_) => real(value).is_err(),
        FieldKind::Boolean => boolean(value).is_err(),
        FieldKind::Date => field.formats.value(value).is_err(),
        FieldKind::Ip => value.as_str().is_none_or(|text| address(text).is_err()),
        FieldKind::Text | FieldKind::Keyword | FieldKind::Opaque => false,
    }
}

/// A value in an error, not all of it.
fn short(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(64).collect()
}

/// Errors: the value cannot be one of this type, which is kept in the source only.
fn opaque(type_name: &str, value: &Value) -> Result<(), String> {
    let is_point = |value: &Value| match value {
        Value::String(text) => !text.is_empty(),
        Value::Object(object) => {
            let known = |name: &str| object.get(name).is_some_and(|part| real(part).is_ok());
            (known("lat") && known("lon")) || (object.contains_key("type") && object.contains_key("coordinates"))
        }
        Value::Array(numbers) => (2..=3).contains(&numbers.len()) && numbers.iter().all(Value::is_number),
        _ => false,
    };
    let fits = match (type_name, value) {
        ("geo_point", Value::Array(values)) => is_point(value) || values.iter().all(is_point),
        ("geo_point", value) => is_point(value),
        (_, Value::Array(values)) => values.iter().all(Value::is_string),
        (_, value) => value.is_string(),
    };
    if fits { Ok(()) } else { Err(format!("it cannot be {}", short(value))) }
}

/// A scalar as text.
pub fn text_of(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(flag) => Ok(flag.to_string()),
        other => Err(format!("a text, not {}", short(other))),
    }
}

/// A whole number of so many bits.
pub fn integer(value: &Value, bits: u8, coerce: bool) -> Result<i64, String> {
    let number = match value {
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => whole,
            (None, Some(real)) if coerce && real.abs() < 9.3e18 => real.trunc() as i64,
            _ => return Err(format!("Value [{number}] is out of range for a whole number")),
        },
        Value::String(text) if coerce => match (text.trim().parse::<i64>(), text.trim().parse::<f64>()) {
            (Ok(whole), _) => whole,
            (_, Ok(real)) if real.abs() < 9.3e18 => real.trunc() as i64,
            _ => return Err(format!("For input string: \"{text}\"")),
        },
        other => return Err(format!("a whole number, not {}", short(other))),
    };
    let limit = if bits == 64 { i64::MAX } else { (1 << (bits - 1)) - 1 };
    if number > limit || number < -limit - 1 {
        return Err(format!("Value [{number}] is out of range for {bits} bits"));
    }
    Ok(number)
}

/// A whole number without a sign.
pub fn unsigned(value: &Value) -> Result<u64, String> {
    match value {
        Value::Number(number) => {
            number.as_u64().ok_or_else(|| format!("Value [{number}] is out of range for unsigned long"))
        }
        Value::String(text) => text.trim().parse().map_err(|_| format!("For input string: \"{text}\"")),
        other => Err(format!("a whole number, not {}", short(other))),
    }
}

/// A whole number without a sign, of a number with a fraction its whole part.
fn unsigned_part(value: &Value) -> Result<u64, String> {
    match value {
        Value::String(text) => match text.trim().split_once('.') {
            Some((whole, fraction)) if !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit()) => {
                unsigned(&json!(whole))
            }
            _ => unsigned(value),
        },
        Value::Number(number) => match number.as_f64().filter(|real| real.fract() != 0.0 && *real >= 0.0) {
            Some(real) => Ok(real as u64),
            None => unsigned(value),
        },
        _ => unsigned(value),
    }
}

/// A number with a fraction; finite.
pub fn real(value: &Value) -> Result<f64, String> {
    let number = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    number.filter(|number| number.is_finite()).ok_or_else(|| format!("a number, not {}", short(value)))
}

/// True or false; an empty text is false.
pub fn boolean(value: &Value) -> Result<bool, String> {
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) if text == "true" => Ok(true),
        Value::String(text) if text == "false" || text.is_empty() => Ok(false),
        other => Err(format!("Failed to parse value [{}] as only [true] or [false] are allowed.", short(other))),
    }
}

/// An address, those of version 4 as version 6 writes them.
pub fn address(text: &str) -> Result<std::net::Ipv6Addr, String> {
    match text.parse() {
        Ok(IpAddr::V4(address)) => Ok(address.to_ipv6_mapped()),
        Ok(IpAddr::V6(address)) => Ok(address),
        Err(_) => Err(format!("'{text}' is not an IP string literal.")),
    }
}
