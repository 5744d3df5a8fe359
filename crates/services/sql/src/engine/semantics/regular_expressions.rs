//! Converts PostgreSQL's regular expressions to those of the crate that DataFusion uses: a point also matches a line
//! end, and parts that have different meanings are refused.
//!
//! If only the existence of a match counts, alternatives need no care. If the text of the match is used, they do:
//! PostgreSQL takes the longest match and the crate the first, so such patterns are refused there.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray, StringArray};
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, Operator};

use super::pg_function::{PgFunction, no_function};
use crate::SqlError;

/// Whether an operator matches a regular expression.
pub(crate) fn is_match(op: Operator) -> bool {
    matches!(op, Operator::RegexMatch | Operator::RegexIMatch | Operator::RegexNotMatch | Operator::RegexNotIMatch)
}

macro_rules! pattern {
    ($name:literal, $extracts:literal) => {
        PgFunction {
            name: $name,
            wants: |types| match types {
                [DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Null] => {
                    Ok(vec![DataType::Utf8])
                }
                _ => Err(no_function("~", types)),
            },
            gives: |_| Ok(DataType::Utf8),
            run: |arrays, _| translated(&arrays[0], $extracts),
            between: Some(""),
        }
    };
}

const MATCHED: PgFunction = pattern!("matched_pattern", false);
const EXTRACTED: PgFunction = pattern!("extracted_pattern", true);

fn translated(array: &ArrayRef, extracts: bool) -> Result<ArrayRef, SqlError> {
    let patterns = array.as_string::<i32>().iter();
    let patterns = patterns.map(|pattern| pattern.map(|pattern| translate(pattern, extracts)).transpose());
    Ok(Arc::new(patterns.collect::<Result<StringArray, SqlError>>()?))
}

/// The pattern of a match, and whether it was changed.
pub(crate) fn for_match(expr: Expr) -> Result<(Expr, bool), SqlError> {
    of(expr, MATCHED, false)
}

/// The pattern of a function that uses the text of its match.
pub(crate) fn for_text(expr: Expr) -> Result<(Expr, bool), SqlError> {
    of(expr, EXTRACTED, true)
}

const POINT_IS_ANYTHING: &str = "(?s)";

fn of(expr: Expr, function: PgFunction, extracts: bool) -> Result<(Expr, bool), SqlError> {
    Ok(match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), metadata) => match text.starts_with(POINT_IS_ANYTHING) {
            // It was rewritten before.
            true => (Expr::Literal(ScalarValue::Utf8(Some(text)), metadata), false),
            false => {
                let translated = translate(&text, extracts)?;
                regex::Regex::new(&translated).map_err(|error| broken(&error))?;
                (Expr::Literal(ScalarValue::Utf8(Some(translated)), metadata), true)
            }
        },
        Expr::ScalarFunction(call) if matches!(call.func.name(), "matched_pattern" | "extracted_pattern") => {
            (Expr::ScalarFunction(call), false)
        }
        other => (function.of(vec![other]), true),
    })
}

fn refused(what: &str) -> SqlError {
    SqlError::unsupported(format!("{what} in a regular expression"))
}

/// The error for a pattern that is none.
pub(crate) fn broken(error: &regex::Error) -> SqlError {
    match error {
        regex::Error::CompiledTooBig(_) => SqlError::value("54000", "regular expression is too complex"),
        _ => SqlError::value("2201B", "invalid regular expression"),
    }
}

/// The pattern in the crate's notation. `extracts`: the text of a match is used.
///
/// Errors: 0A000 for what has another meaning there.
pub(crate) fn translate(pattern: &str, extracts: bool) -> Result<String, SqlError> {
    let mut letters = pattern.chars().peekable();
    let mut in_brackets = false;
    let mut first = true;
    let mut repeats = Repeats::default();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied();
        if !in_brackets {
            repeats.check(letter, next)?;
        }
        match (letter, next) {
            ('\\', Some(escaped)) => {
                // A blank, and a backslash, in PostgreSQL; word boundaries in the crate.
                if matches!(escaped, 'b' | 'B' | '<' | '>' | 'p' | 'P' | 'z' | 'a' | 'G' | 'K' | 'R' | 'Q' | 'E' | 'h')
                {
                    return Err(refused(&format!("\\{escaped}")));
                }
                if escaped.is_ascii_digit() && escaped != '0' && !in_brackets {
                    return Err(refused("a back reference"));
                }
                letters.next();
            }
            ('[', Some(':' | '.' | '=')) if in_brackets => {
                let kind = letters.next();
                let closes = letters.by_ref().skip_while(|letter| Some(*letter) != kind).nth(1);
                if kind != Some(':') || closes != Some(']') {
                    return Err(refused("[. and [="));
                }
            }
            ('[', _) if in_brackets => return Err(refused("[ inside of brackets")),
            ('&' | '~' | '-', Some(same)) if in_brackets && same == letter => return Err(refused("a set of sets")),
            (']', _) if in_brackets => in_brackets = false,
            ('[', _) => {
                in_brackets = true;
                letters.next_if_eq(&'^');
                // In this position it is a plain character.
                letters.next_if_eq(&']');
            }
            ('(', Some('?')) => {
                let rest: String = letters.clone().take(3).collect();
                let leading = first && rest == "?i)";
                if !leading && !rest.starts_with("?:") {
                    return Err(refused("(? .."));
                }
                letters.next();
            }
            ('|' | '?', _) if extracts && !in_brackets => {
                return Err(refused("alternatives, where the text of a match is used,"));
            }
            _ => {}
        }
        first = false;
    }
    Ok(format!("{POINT_IS_ANYTHING}{}", with_bounds(pattern)))
}

/// How what is before a letter may be repeated: PostgreSQL takes one quantifier, and a `?` behind it.
#[derive(Default)]
enum Repeats {
    #[default]
    None,
    /// Within `{1,2}`.
    InBound,
    Once,
    OnceAsFew,
}

impl Repeats {
    fn check(&mut self, letter: char, next: Option<char>) -> Result<(), SqlError> {
        let begins_bound = letter == '{' && next.is_some_and(|next| next.is_ascii_digit());
        *self = match (&self, letter) {
            (Repeats::InBound, '}') => Repeats::Once,
            (Repeats::InBound, _) => Repeats::InBound,
            (Repeats::Once, '?') => Repeats::OnceAsFew,
            (Repeats::Once | Repeats::OnceAsFew, letter) if begins_bound || matches!(letter, '*' | '+' | '?') => {
                return Err(SqlError::value("2201B", "invalid regular expression: quantifier operand invalid"));
            }
            _ if begins_bound => Repeats::InBound,
            (_, '*' | '+' | '?') => Repeats::Once,
            _ => Repeats::None,
        };
        Ok(())
    }
}

/// Classes of letters: PostgreSQL's have those of all languages, the crate's those of ASCII.
const LETTERS: [(&str, &str); 4] = [
    (":alpha:]", "\\p{Alphabetic}"),
    (":alnum:]", "\\p{Alphabetic}\\p{Nd}"),
    (":lower:]", "\\p{Lowercase}"),
    (":upper:]", "\\p{Uppercase}"),
];

/// The bounds of words, classes of letters and the end of the text in the crate's notation.
fn with_bounds(pattern: &str) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut letters = pattern.chars();
    let mut in_brackets = false;
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            let class =
                LETTERS.iter().find(|(name, _)| letter == '[' && in_brackets && letters.as_str().starts_with(name));
            if let Some((name, meant)) = class {
                letters = letters.as_str()[name.len()..].chars();
                out.push_str(meant);
                continue;
            }
            in_brackets = match letter {
                '[' => true,
                ']' => out.ends_with('[') || out.ends_with("[^"),
                _ => in_brackets,
            };
            out.push(letter);
            continue;
        }
        match letters.next() {
            // Digits of other alphabets are none.
            Some('d') => out.push_str(if in_brackets { "0-9" } else { "[0-9]" }),
            Some('D') => out.push_str("[^0-9]"),
            Some('m') => out.push_str("\\b{start}"),
            Some('M') => out.push_str("\\b{end}"),
            Some('y') => out.push_str("\\b"),
            Some('Y') => out.push_str("\\B"),
            Some('Z') => out.push_str("\\z"),
            other => out.extend(std::iter::once('\\').chain(other)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_that_mean_something_else_are_refused_and_others_let_a_point_be_anything() {
        for same in
            ["a.b", "^a$", "[[:digit:]]+", "(?i)a", "(?:a)b", "[]a]", "[^]a]", "\\s\\.", "[a-z-]", "a{2}", "a{2,}b*"]
        {
            assert_eq!(translate(same, true).expect("it is taken"), format!("(?s){same}"));
        }
        for (digits, expected) in [("\\d\\.", "[0-9]\\."), ("[\\d_]\\D", "[0-9_][^0-9]")] {
            assert_eq!(translate(digits, true).expect("it is taken"), format!("(?s){expected}"));
        }
        for twice in ["a**", "a+*", "a{2}{3}", "a?+", "a*??"] {
            assert_eq!(translate(twice, false).expect_err(twice).code(), "2201B");
        }
        assert!(translate("a*?", false).is_ok());
        assert!(translate("a|b", false).is_ok());
        assert_eq!(translate("\\mbar\\M", true).expect("it is taken"), "(?s)\\b{start}bar\\b{end}");
        assert_eq!(translate("[^[:alpha:]_]x", true).expect("it is taken"), "(?s)[^\\p{Alphabetic}_]x");
        assert_eq!(translate("[:alpha:]", true).expect("it is taken"), "(?s)[:alpha:]");
        for other in ["a|b", "ab?", "\\bx", "[a[b]]", "[a&&b]", "(?m)^a", "(?P<n>a)", "[[.a.]]", "a(?i)b"] {
            assert_eq!(translate(other, true).expect_err(other).code(), "0A000");
        }
    }
}
