//! `like_escape(pattern, escape)`: converts a pattern of LIKE with another escape character to one whose escape
//! character is the backslash; an empty `escape` means none. PostgreSQL rewrites LIKE .. ESCAPE in the same way.

use std::sync::Arc;

use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;

use super::function_calls::is_text;
use super::pg_function::{PgFunction, no_function};
use crate::SqlError;

/// The function.
pub(in crate::engine) const ESCAPED: PgFunction = PgFunction {
    name: "like_escape",
    wants: |types| match types {
        [one, other] if [one, other].iter().all(|kind| is_text(kind) || kind.is_null()) => {
            Ok(vec![DataType::Utf8, DataType::Utf8])
        }
        _ => Err(no_function("like_escape", types)),
    },
    gives: |_| Ok(DataType::Utf8),
    run: |arrays, _| {
        let (patterns, escapes) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
        let escaped = patterns.iter().zip(escapes).map(|(pattern, escape)| match (pattern, escape) {
            (Some(pattern), Some(escape)) => escaped(pattern, escape).map(Some),
            _ => Ok(None),
        });
        Ok(Arc::new(escaped.collect::<Result<StringArray, SqlError>>()?))
    },
    between: None,
};

fn escaped(pattern: &str, escape: &str) -> Result<String, SqlError> {
    let mut letters = escape.chars();
    let (escape, more) = (letters.next(), letters.next());
    if more.is_some() {
        let error = SqlError::value("22025", "invalid escape string");
        return Err(error.with_hint("Escape string must be empty or one character."));
    }
    let mut text = String::with_capacity(pattern.len() + 8);
    let mut letters = pattern.chars();
    while let Some(letter) = letters.next() {
        let is_escape = Some(letter) == escape;
        let literal = match is_escape {
            true => letters.next(),
            false => (letter == '\\').then_some(letter),
        };
        match literal {
            Some(literal) => text.extend(['\\', literal]),
            None if is_escape => {
                return Err(SqlError::value("22025", "LIKE pattern must not end with escape character"));
            }
            None => text.push(letter),
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn patterns_with_another_escape_become_patterns_with_a_backslash() {
        for (pattern, escape, expected) in [
            ("pg/_%", "/", "pg\\_%"),
            ("a//b/c", "/", "a\\/b\\c"),
            ("a\\b%", "!", "a\\\\b%"),
            ("a\\%", "\\", "a\\%"),
            ("a\\_b", "", "a\\\\_b"),
            ("\u{e4}\u{df}%", "\u{e4}", "\\\u{df}%"),
        ] {
            assert_eq!(escaped(pattern, escape).expect("it is right"), expected, "{pattern} {escape}");
        }
        for (pattern, escape) in [("a/", "/"), ("a", "//")] {
            assert_eq!(escaped(pattern, escape).expect_err("it is wrong").code(), "22025");
        }
    }
}
