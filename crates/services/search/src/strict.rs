//! Reading JSON as Elasticsearch does: an object that has a key twice is refused. The library keeps the last one, and a request would do
//! something else than the reader of its first half takes it to do.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The value that a text is. Errors: it is no JSON, or an object of it has a key twice.
pub(crate) fn value(text: &[u8]) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = StrictValue.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads one value.
#[derive(Clone, Copy)]
struct StrictValue;

impl<'de> DeserializeSeed<'de> for StrictValue {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            let value = fields.next_value_seed(self)?;
            match object.entry(key) {
                serde_json::map::Entry::Vacant(place) => drop(place.insert(value)),
                serde_json::map::Entry::Occupied(place) => {
                    return Err(A::Error::custom(format!("Duplicate field '{}'", place.key())));
                }
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_read_as_the_library_reads_it_but_for_keys_that_stand_twice() {
        for text in [
            r#"{"b":1,"a":[true,null,-1,18446744073709551615,0.5,1e300,"\u00e4\n"],"":{}}"#,
            "7",
            r#" "text" "#,
            "[[],{}]",
            "-0",
            "1e999",
            "[1,]",
            "{\"a\":1}{}",
            "nul",
            "",
        ] {
            let (read, expected) = (value(text.as_bytes()), serde_json::from_slice::<Value>(text.as_bytes()));
            assert_eq!(read.is_ok(), expected.is_ok(), "{text}");
            assert_eq!(read.map(|read| read.to_string()).ok(), expected.map(|read| read.to_string()).ok(), "{text}");
        }
        for (text, key) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"[{"x":{"query":1,"b":2,"query":3}}]"#, "query"),
            (r#"{"a":1,"\u0061":2}"#, "a"),
        ] {
            let refused = value(text.as_bytes()).expect_err(text).to_string();
            assert!(refused.contains(&format!("Duplicate field '{key}'")), "{text}: {refused}");
        }
        assert!(value("[".repeat(3000).as_bytes()).is_err(), "its depth is bounded");
    }
}
