//! [`KeyValue`]: a value as buckets are made and sorted by it.

use std::cmp::Ordering;
use std::net::Ipv6Addr;

use serde_json::{Value, json};

use crate::dates;
use crate::document;
use crate::error::SearchError;
use crate::mapping::{FieldKind, MappedField};

/// A value of a field.
#[derive(Clone, Debug)]
pub(super) enum KeyValue {
    Flag(bool),
    Whole(i128),
    Real(f64),
    /// In milliseconds.
    Date(i64),
    Address(Ipv6Addr),
    Text(String),
}

impl KeyValue {
    fn rank(&self) -> u8 {
        match self {
            KeyValue::Flag(_) => 0,
            KeyValue::Whole(_) | KeyValue::Real(_) | KeyValue::Date(_) => 1,
            KeyValue::Address(_) => 2,
            KeyValue::Text(_) => 3,
        }
    }

    /// Bytes of its text.
    pub(super) fn text_bytes(&self) -> u64 {
        match self {
            KeyValue::Text(text) => text.len() as u64,
            _ => 0,
        }
    }

    /// As a number; none for texts and addresses.
    pub(super) fn number(&self) -> Option<f64> {
        match self {
            KeyValue::Flag(flag) => Some(f64::from(u8::from(*flag))),
            KeyValue::Whole(whole) => Some(*whole as f64),
            KeyValue::Real(real) => Some(*real),
            KeyValue::Date(millis) => Some(*millis as f64),
            KeyValue::Address(_) | KeyValue::Text(_) => None,
        }
    }

    /// What a request's value is for a field of this kind. Errors: the field cannot have it.
    pub(super) fn of_json(value: &Value, field: Option<&MappedField>) -> Result<KeyValue, SearchError> {
        let wrong = SearchError::argument;
        Ok(match field.map(|field| field.kind) {
            Some(FieldKind::Integer(_)) => KeyValue::Whole(document::integer(value, 64, true).map_err(wrong)?.into()),
            Some(FieldKind::UnsignedLong) => KeyValue::Whole(document::unsigned(value).map_err(wrong)?.into()),
            Some(FieldKind::Real(_)) => KeyValue::Real(document::real(value).map_err(wrong)?),
            Some(FieldKind::Boolean) => KeyValue::Flag(document::boolean(value).map_err(wrong)?),
            Some(FieldKind::Date) => {
                KeyValue::Date(field.map(|field| field.formats.value(value)).transpose()?.unwrap_or_default())
            }
            Some(FieldKind::Ip) => {
                let text = document::text_of(value).map_err(wrong)?;
                KeyValue::Address(document::address(&text).map_err(wrong)?)
            }
            Some(_) => KeyValue::Text(document::text_of(value).map_err(wrong)?),
            None => match value {
                Value::Number(number) => match number.as_i64() {
                    Some(whole) => KeyValue::Whole(whole.into()),
                    None => KeyValue::Real(document::real(value).map_err(wrong)?),
                },
                Value::Bool(flag) => KeyValue::Flag(*flag),
                other => KeyValue::Text(document::text_of(other).map_err(wrong)?),
            },
        })
    }

    /// Its `key` and, if it has one, its `key_as_string` in a bucket; dates in this format and zone.
    pub(super) fn names(
        &self,
        (format, zone): (&str, &jiff::tz::TimeZone),
    ) -> Result<(Value, Option<String>), SearchError> {
        Ok(match self {
            KeyValue::Flag(flag) => (json!(u8::from(*flag)), Some(flag.to_string())),
            KeyValue::Whole(whole) => (whole_json(*whole), None),
            KeyValue::Real(real) => (json!(real), None),
            KeyValue::Date(millis) => (json!(millis), Some(dates::write(*millis, format, zone)?)),
            KeyValue::Address(address) => (json!(address_text(*address)), None),
            KeyValue::Text(text) => (json!(text), None),
        })
    }
}

impl Ord for KeyValue {
    fn cmp(&self, other: &KeyValue) -> Ordering {
        match (self, other) {
            (KeyValue::Flag(a), KeyValue::Flag(b)) => a.cmp(b),
            (KeyValue::Whole(a), KeyValue::Whole(b)) => a.cmp(b),
            (KeyValue::Date(a), KeyValue::Date(b)) => a.cmp(b),
            (KeyValue::Address(a), KeyValue::Address(b)) => a.cmp(b),
            (KeyValue::Text(a), KeyValue::Text(b)) => a.cmp(b),
            (a, b) if a.rank() == b.rank() => a.number().unwrap_or_default().total_cmp(&b.number().unwrap_or_default()),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl PartialOrd for KeyValue {
    fn partial_cmp(&self, other: &KeyValue) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for KeyValue {
    fn eq(&self, other: &KeyValue) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for KeyValue {}

fn whole_json(whole: i128) -> Value {
    i64::try_from(whole).map_or_else(|_| json!(whole as u64), |whole| json!(whole))
}

/// An address as its version writes it.
pub(super) fn address_text(address: Ipv6Addr) -> String {
    match address.to_ipv4_mapped() {
        Some(address) => address.to_string(),
        None => address.to_string(),
    }
}
