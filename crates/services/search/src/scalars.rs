//! Single values of documents and mappings, each as its type reads it: numbers, flags, addresses.
//!
//! ```text
//!   long       7, 7.9 (its whole part, where that is wished), "7"        never what lies beyond its bits
//!   float      every finite number that is one in 32 bits too           never 3.5e38
//! ```

use std::net::IpAddr;

use serde_json::{Value, json};

/// Two to the power of 63: the least number that a `long` cannot be.
const LONG_END: f64 = 9_223_372_036_854_775_808.0;

/// The least number that rounds to infinity in 16 bits (IEEE 754 binary16: 65,504 is the greatest, and half a step more).
const HALF_END: f64 = 65_520.0;

/// A value in an error, not all of it.
pub(crate) fn short(value: &Value) -> String {
    let text = value.to_string();
    text.chars().take(64).collect()
}

/// Errors: the value cannot be one of this type, which is kept in the source only.
pub(crate) fn opaque(type_name: &str, value: &Value) -> Result<(), String> {
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
    let in_range = |real: f64| (-LONG_END..LONG_END).contains(&real).then_some(real.trunc() as i64);
    let number = match value {
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Some(whole),
            (None, Some(real)) if coerce => in_range(real),
            _ => None,
        }
        .ok_or_else(|| format!("Value [{number}] is out of range for a whole number"))?,
        Value::String(text) if coerce => {
            let text = text.trim();
            let whole = whole_part(text).unwrap_or(text);
            match (whole.parse::<i64>(), whole.parse::<i128>(), text.parse::<f64>()) {
                (Ok(whole), ..) => Some(whole),
                // All its digits were read.
                (_, Ok(_), _) => None,
                (.., Ok(real)) => in_range(real),
                _ => None,
            }
            .ok_or_else(|| format!("For input string: \"{text}\""))?
        }
        other => return Err(format!("a whole number, not {}", short(other))),
    };
    let limit = if bits == 64 { i64::MAX } else { (1 << (bits - 1)) - 1 };
    if number > limit || number < -limit - 1 {
        return Err(format!("Value [{number}] is out of range for {bits} bits"));
    }
    Ok(number)
}

/// What stands before the point of a decimal text.
fn whole_part(text: &str) -> Option<&str> {
    let (whole, fraction) = text.split_once('.')?;
    (!fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit())).then_some(whole)
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
pub(crate) fn unsigned_part(value: &Value) -> Result<u64, String> {
    match value {
        Value::String(text) => match whole_part(text.trim()) {
            Some(whole) => unsigned(&json!(whole)),
            None => unsigned(value),
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

/// A number as a field of that type takes it, not rounded yet. Errors: it is infinite there.
pub(crate) fn real_of(value: &Value, type_name: &str) -> Result<f64, String> {
    let number = real(value)?;
    let is_finite = match type_name {
        "half_float" => number.abs() < HALF_END,
        "float" => (number as f32).is_finite(),
        _ => true,
    };
    if is_finite { Ok(number) } else { Err(format!("[{type_name}] supports only finite values, but got [{number}]")) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_beyond_their_type_are_refused_and_never_clamped() {
        for (value, long) in [
            (json!(i64::MAX), Some(i64::MAX)),
            (json!(i64::MIN), Some(i64::MIN)),
            (json!(9_223_372_036_854_775_808_u64), None),
            (json!(9_223_372_036_854_775_808.0), None),
            (json!(-9_223_372_036_854_775_808.0), Some(i64::MIN)),
            (json!("9223372036854775807.5"), Some(i64::MAX)),
            (json!("9223372036854775808"), None),
            (json!("9223372036854775808.5"), None),
            (json!("9.3e18"), None),
            (json!("1e3"), Some(1_000)),
            (json!(" 7.9 "), Some(7)),
            (json!("-0.5"), Some(0)),
            (json!("7."), Some(7)),
        ] {
            assert_eq!(integer(&value, 64, true).ok(), long, "{value}");
        }
        assert_eq!(unsigned_part(&json!("18446744073709551615.5")), Ok(u64::MAX));
        for (type_name, value, taken) in [
            ("float", 3.4e38, true),
            ("float", -3.5e38, false),
            ("half_float", 65_519.0, true),
            ("half_float", 70_000.0, false),
            ("double", 1e300, true),
        ] {
            assert_eq!(real_of(&json!(value), type_name).is_ok(), taken, "{type_name} {value}");
        }
    }
}
