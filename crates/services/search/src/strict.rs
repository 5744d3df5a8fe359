//! Reading JSON as Elasticsearch does: an object that has a key twice is refused. The library keeps the last one, and a request would do
//! something else than the reader of its first half takes it to do.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Memory that the values of a text may take besides their texts: a number of two bytes takes as much as one of twenty. That is what
/// 100 MiB of sources have that have a value in each 60 bytes, and the list of ids of a `terms` query has 65,536.
const VALUES_BYTES_MAX: usize = 128 << 20;

/// Memory of a key of an object besides its text: the text's place, its hash, and its place in the table.
const KEY_BYTES: usize = size_of::<String>() + 16;

/// The value that a text is. Errors: it is no JSON, an object of it has a key twice, or its values take too much memory.
pub(crate) fn value(text: &[u8]) -> Result<Value, serde_json::Error> {
    within(text, VALUES_BYTES_MAX)
}

fn within(text: &[u8], bytes: usize) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = StrictValue { left: &Cell::new(bytes) }.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

/// Reads one value.
#[derive(Clone, Copy)]
struct StrictValue<'a> {
    /// Memory that values may still take.
    left: &'a Cell<usize>,
}

impl StrictValue<'_> {
    /// Counts a value, or a key with its value.
    fn take<E: Error>(&self, bytes: usize) -> Result<(), E> {
        let left = self.left.get().checked_sub(bytes);
        self.left
            .set(left.ok_or_else(|| E::custom("it has too many values: they take more memory than a request may"))?);
        Ok(())
    }
}

impl<'de> DeserializeSeed<'de> for StrictValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue<'_> {
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
            self.take(size_of::<Value>())?;
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = fields.next_key::<String>()? {
            self.take(KEY_BYTES + size_of::<Value>())?;
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

    #[test]
    fn values_that_take_more_memory_than_they_may_are_refused_and_long_texts_are_not() {
        let most = 10 * (KEY_BYTES + size_of::<Value>());
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(100 * most));
        for (text, fits) in [
            (format!("[{}]", ["1"; 10].join(",")), true),
            (format!("[{}]", vec!["1"; 1_000].join(",")), false),
            (format!("[{}]", vec!["[]"; 1_000].join(",")), false),
            (format!("{{{}}}", (0..9).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(",")), true),
            (format!("{{{}}}", (0..11).map(|n| format!("\"k{n}\":1")).collect::<Vec<_>>().join(",")), false),
            (long, true),
        ] {
            let read = within(text.as_bytes(), most);
            assert_eq!(read.is_ok(), fits, "{}", &text[..text.len().min(60)]);
            let said = read.map_err(|error| error.to_string()).err();
            assert!(said.is_none_or(|said| said.contains("too many values")), "it says why");
        }
    }
}
