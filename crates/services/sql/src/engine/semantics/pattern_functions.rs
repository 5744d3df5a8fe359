//! SIMILAR TO, and the functions of regular expressions that DataFusion lacks: `substring(text from pattern)`, `regexp_substr`,
//! `regexp_split_to_array`.
//!
//! ```text
//!   x SIMILAR TO p              x ~ similar_pattern(p)          ^(?:p)$ with % as .* and _ as .
//!   substring(x FROM 'a(b)')    pattern_part(x, pattern)        the first group, or the match
//! ```
//!
//! The patterns are PostgreSQL's, as [`regular_expressions`](super::regular_expressions) takes them; what it refuses is refused here.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, ListBuilder, StringArray, StringBuilder};
use datafusion::arrow::datatypes::{DataType, Field};
use regex::{Regex, RegexBuilder};

use super::pg_function::PgFunction;
use super::regular_expressions::{broken, translate};
use super::rows::{Kept, each, texts, wanted};
use crate::SqlError;

/// The most memory of one compiled pattern.
const COMPILED_BYTES_MAX: usize = 4 << 20;

/// The functions that can be called by name.
pub(crate) const CALLED: &[PgFunction] = &[
    PgFunction {
        name: "regexp_substr",
        wants: |types| wanted("regexp_substr", "tt", types),
        gives: |_| Ok(DataType::Utf8),
        run: |arrays, _| parts(arrays, false),
        between: None,
    },
    PgFunction {
        name: "regexp_split_to_array",
        wants: |types| wanted("regexp_split_to_array", "tt", types),
        gives: |_| Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)))),
        run: split,
        between: None,
    },
    SIMILAR,
    PART,
];

/// `substring(text from pattern)`.
pub(crate) const PART: PgFunction = PgFunction {
    name: "pattern_part",
    wants: |types| wanted("substring", "tt", types),
    gives: |_| Ok(DataType::Utf8),
    run: |arrays, _| parts(arrays, true),
    between: Some(""),
};

/// The pattern of SIMILAR TO as a regular expression; the escape character is the second argument, the backslash without one.
pub(crate) const SIMILAR: PgFunction = PgFunction {
    name: "similar_to_escape",
    wants: |types| wanted("similar_to_escape", "t?t", types),
    gives: |_| Ok(DataType::Utf8),
    run: |arrays, _| {
        texts(arrays, |row| {
            let escape = if row.width() > 1 { row.text(1) } else { "\\" };
            let mut letters = escape.chars();
            match (letters.next(), letters.next()) {
                (escape, None) => similar(row.text(0), escape),
                _ => Err(SqlError::value("22025", "invalid escape string")
                    .with_hint("Escape string must be empty or one character.")),
            }
        })
    },
    between: None,
};

fn similar(pattern: &str, escape: Option<char>) -> Result<String, SqlError> {
    let mut out = String::from("^(?:");
    let mut letters = pattern.chars();
    let mut in_brackets = false;
    while let Some(letter) = letters.next() {
        if Some(letter) == escape {
            match letters.next() {
                Some('"') => return Err(SqlError::unsupported("a part of a SIMILAR TO pattern in escaped quotes")),
                Some(class) if class.is_alphanumeric() => {
                    let what = format!("an escaped \"{class}\" in a SIMILAR TO pattern");
                    return Err(SqlError::unsupported(what).with_hint("A class of letters is written [[:alpha:]]."));
                }
                Some(plain) => out.extend(['\\', plain]),
                None => {}
            }
            continue;
        }
        match letter {
            '\\' => out.push_str("\\\\"),
            _ if in_brackets => {
                in_brackets = letter != ']';
                out.push(letter);
            }
            '[' => {
                in_brackets = true;
                out.push('[');
            }
            '%' => out.push_str(".*"),
            '_' => out.push('.'),
            '(' => out.push_str("(?:"),
            '.' | '^' | '$' => out.extend(['\\', letter]),
            other => out.push(other),
        }
    }
    out.push_str(")$");
    Ok(out)
}

fn compiled(pattern: &str) -> Result<Regex, SqlError> {
    let translated = translate(pattern, true)?;
    RegexBuilder::new(&translated).size_limit(COMPILED_BYTES_MAX).build().map_err(|error| broken(&error))
}

/// The first match of each row; its first group, if that is wanted and there is one.
fn parts(arrays: &[ArrayRef], by_group: bool) -> Result<ArrayRef, SqlError> {
    let patterns = Kept::new(compiled);
    let found = each::<String, StringArray>(arrays, |row| {
        let regex = patterns.of(row.text(1))?;
        let Some(captures) = regex.captures(row.text(0)) else { return Ok(None) };
        let part = if by_group && regex.captures_len() > 1 { captures.get(1) } else { captures.get(0) };
        Ok(part.map(|part| part.as_str().to_owned()))
    })?;
    Ok(Arc::new(found))
}

fn split(arrays: &[ArrayRef], _: &DataType) -> Result<ArrayRef, SqlError> {
    let (values, patterns) = (arrays[0].as_string::<i32>(), arrays[1].as_string::<i32>());
    let mut lists = ListBuilder::new(StringBuilder::new()).with_field(Field::new_list_field(DataType::Utf8, true));
    let kept = Kept::new(compiled);
    for row in 0..values.len() {
        if values.is_null(row) || patterns.is_null(row) {
            lists.append_null();
            continue;
        }
        let value = values.value(row);
        let regex = kept.of(patterns.value(row))?;
        let mut begin = 0;
        for found in regex.find_iter(value) {
            // An empty match at the beginning or the end of what is left separates nothing.
            if found.is_empty() && (found.start() == begin && begin == 0 || found.start() >= value.len()) {
                continue;
            }
            lists.values().append_value(&value[begin..found.start()]);
            begin = found.end();
        }
        lists.values().append_value(&value[begin..]);
        lists.append(true);
    }
    Ok(Arc::new(lists.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_similar_to_match_what_postgresql_matches() {
        // Results of PostgreSQL 15.18.
        for (value, pattern, expected) in [
            ("abc", "a%", true),
            ("abc", "(a|b)%", true),
            ("abc", "b", false),
            ("abc", "_b_", true),
            ("aaa", "a{3}", true),
            ("a.c", "a.c", true),
            ("abc", "a.c", false),
            ("a%", "a\\%", true),
            ("ab", "a\\%", false),
            ("", "", true),
        ] {
            let regex = Regex::new(&similar(pattern, Some('\\')).expect(pattern)).expect(pattern);
            assert_eq!(regex.is_match(value), expected, "{value} {pattern}");
        }
    }
}
