//! Parts of a JSON text: members of objects and elements of arrays, as they are written. The text is valid: [`check`] says so. There is no
//! recursion, and nothing is copied but keys.
//!
//! ```text
//!   {"a": [1, {"b": 2}], "a": null}      member "a": null, the last one       element 1 of [1, {"b": 2}]: {"b": 2}
//! ```

use crate::SqlError;
use crate::text::jsonb;

/// Whether a text is JSON. Errors: 22P02.
pub(crate) fn check(text: &str) -> Result<(), SqlError> {
    match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(()),
        Err(error) => {
            Err(SqlError::value("22P02", "invalid input syntax for type json").with_detail(error.to_string()))
        }
    }
}

/// What a value is, as `json_typeof` names it.
pub(crate) fn kind(text: &str) -> &'static str {
    match text.trim_start().bytes().next() {
        Some(b'{') => "object",
        Some(b'[') => "array",
        Some(b'"') => "string",
        Some(b't' | b'f') => "boolean",
        Some(b'n') => "null",
        _ => "number",
    }
}

/// A value as text: a string without its quotes, `None` for null. Errors: 22P05 for a character that a text cannot have.
pub(crate) fn plain(text: &str) -> Result<Option<String>, SqlError> {
    match kind(text) {
        "null" => Ok(None),
        "string" => match serde_json::from_str::<String>(text) {
            Ok(value) if !value.contains('\0') => Ok(Some(value)),
            _ => Err(SqlError::value("22P05", "unsupported Unicode escape sequence")
                .with_detail("\\u0000 cannot be converted to text.")),
        },
        _ => Ok(Some(text.to_owned())),
    }
}

/// The member of an object; of several with this key the last. `None` where there is none, or no object.
pub(crate) fn member<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut rest = text.trim_start().strip_prefix('{')?.trim_start();
    let mut found = None;
    while rest.starts_with('"') {
        let (name, behind) = rest.split_at(string_end(rest));
        let value = behind.trim_start().strip_prefix(':')?.trim_start();
        let (value, behind) = value.split_at(value_end(value));
        if serde_json::from_str::<String>(name).is_ok_and(|name| name == key) {
            found = Some(value);
        }
        rest = next(behind);
    }
    found
}

/// The elements of an array; `None` for anything else.
pub(crate) fn elements(text: &str) -> Option<Vec<&str>> {
    let mut rest = text.trim_start().strip_prefix('[')?.trim_start();
    let mut found = Vec::new();
    while !rest.is_empty() && !rest.starts_with(']') {
        let (value, behind) = rest.split_at(value_end(rest));
        found.push(value);
        rest = next(behind);
    }
    Some(found)
}

/// The element with this number, from 0; negative ones are counted from the end.
pub(crate) fn element(text: &str, number: i64) -> Option<&str> {
    let all = elements(text)?;
    let number = if number < 0 { number.checked_add(i64::try_from(all.len()).ok()?)? } else { number };
    all.get(usize::try_from(number).ok()?).copied()
}

/// The value at the end of a path of keys and numbers of elements.
pub(crate) fn at_path<'a>(text: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(text.trim(), |value, step| match kind(value) {
        "array" => element(value, jsonb::step_number(step)?),
        _ => member(value, step),
    })
}

/// What is behind a comma, or the closing bracket.
fn next(behind: &str) -> &str {
    let behind = behind.trim_start();
    behind.strip_prefix(',').map_or(behind, str::trim_start)
}

/// The length of the string at the beginning of a text.
fn string_end(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the value at the beginning of a text.
fn value_end(text: &str) -> usize {
    match text.bytes().next() {
        Some(b'"') => string_end(text),
        Some(b'{' | b'[') => {
            let (mut at, mut depth) = (0, 0usize);
            while let Some(byte) = text.as_bytes().get(at) {
                match byte {
                    b'"' => {
                        at += string_end(&text[at..]);
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
                if depth == 0 {
                    return at;
                }
            }
            text.len()
        }
        _ => text.find([',', '}', ']', ' ', '\t', '\n', '\r']).unwrap_or(text.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_and_elements_are_found_as_they_are_written() {
        let text = r#" { "a" : [1, {"b": "]}\""} , 3.50 ], "\u00e4\u0062": null, "a\"": {}, "z":1,"z" : -2e3 } "#;
        check(text).expect("it is valid");
        let array = member(text, "a").expect("it is there");
        assert_eq!(array, r#"[1, {"b": "]}\""} , 3.50 ]"#);
        assert_eq!(elements(array), Some(vec!["1", r#"{"b": "]}\""}"#, "3.50"]));
        assert_eq!((element(array, -1), element(array, 3), element(array, -4)), (Some("3.50"), None, None));
        assert_eq!(
            (member(text, "\u{e4}b"), member(text, "a\""), member(text, "z")),
            (Some("null"), Some("{}"), Some("-2e3"))
        );
        assert_eq!((member(text, "b"), member("[1]", "0"), element("{}", 0)), (None, None, None));
        assert_eq!(at_path(text, &["a", "1", "b"]), Some(r#""]}\"""#));
        assert_eq!((elements("[]"), member("{}", "a"), at_path("5", &[])), (Some(Vec::new()), None, Some("5")));
        assert_eq!(plain(r#""\u00e4\n""#).expect("it is text").as_deref(), Some("\u{e4}\n"));
        assert_eq!(plain(r#""\u0000""#).expect_err("it is no text").code(), "22P05");
        assert_eq!(check("{bad").expect_err("it is none").code(), "22P02");
    }
}
