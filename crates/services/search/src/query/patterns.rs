//! Wildcards (`ho*se?`) and Lucene's regular expressions, as expressions of the `regex` crate over whole terms.
//!
//! Lucene's optional operators `&`, `~` and `<1-9>` have no counterpart there and are refused by their names.

use std::sync::Arc;

use crate::error::SearchError;

/// The longest wildcard pattern, in characters.
const WILDCARD_CHARS_MAX: usize = 32_766;

/// Bytes that a compiled expression may have.
const COMPILED_BYTES_MAX: usize = 1 << 19;

/// A pattern over terms.
#[derive(Debug)]
pub(super) struct TermPattern {
    /// What every term that fits begins with.
    pub(super) prefix: String,
    /// The test of a whole term.
    pub(super) regex: Arc<regex::Regex>,
    /// How many clauses it counts as: a counted repetition can make a short pattern large.
    pub(super) clauses: usize,
}

/// One piece of a wildcard pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WildcardPiece {
    /// This character.
    Literal(char),
    /// `?`
    One,
    /// `*`
    Any,
}

/// The pieces of a wildcard pattern, in which a backslash makes the next character literal.
pub(super) fn wildcard_pieces(pattern: &str) -> Vec<WildcardPiece> {
    let mut chars = pattern.chars();
    let mut pieces = Vec::new();
    while let Some(c) = chars.next() {
        let piece = match c {
            '*' => WildcardPiece::Any,
            '?' => WildcardPiece::One,
            '\\' => WildcardPiece::Literal(chars.next().unwrap_or('\\')),
            c => WildcardPiece::Literal(c),
        };
        // Two stars are as one.
        if piece != WildcardPiece::Any || pieces.last() != Some(&WildcardPiece::Any) {
            pieces.push(piece);
        }
    }
    pieces
}

/// The pattern of a wildcard query. Errors: it is too long.
pub(super) fn wildcard(pattern: &str, case_insensitive: bool) -> Result<TermPattern, SearchError> {
    if pattern.len() > WILDCARD_CHARS_MAX {
        return Err(SearchError::argument(format!("a wildcard pattern has at most {WILDCARD_CHARS_MAX} bytes")));
    }
    let pieces = wildcard_pieces(pattern);
    let mut prefix = String::new();
    if !case_insensitive {
        for piece in &pieces {
            let WildcardPiece::Literal(c) = piece else { break };
            prefix.push(*c);
        }
    }
    let mut regex = String::new();
    for piece in pieces {
        match piece {
            WildcardPiece::Any => regex.push_str(".*"),
            WildcardPiece::One => regex.push('.'),
            WildcardPiece::Literal(c) => push_literal(&mut regex, c),
        }
    }
    compiled(pattern, prefix, &regex, case_insensitive)
}

/// The pattern of a regexp query. Errors: it is too long, cannot be read, or uses an operator that is not supported.
pub(super) fn regexp(pattern: &str, case_insensitive: bool, most: usize) -> Result<TermPattern, SearchError> {
    let length = pattern.chars().count();
    if length > most {
        return Err(SearchError::argument(format!(
            "The length of regex [{length}] used in the Regexp Query request has exceeded the allowed maximum of \
             [{most}]. This maximum can be set by changing the [index.max_regex_length] index level setting."
        )));
    }
    let prefix = if case_insensitive { String::new() } else { literal_beginning(pattern) };
    compiled(pattern, prefix, &translated(pattern)?, case_insensitive)
}

fn compiled(pattern: &str, prefix: String, regex: &str, case_insensitive: bool) -> Result<TermPattern, SearchError> {
    let regex = regex::RegexBuilder::new(&format!(r"\A(?:{regex})\z"))
        .dot_matches_new_line(true)
        .case_insensitive(case_insensitive)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .nest_limit(100)
        .build();
    let shown: String = pattern.chars().take(64).collect();
    let regex = regex.map_err(|error| match error {
        regex::Error::CompiledTooBig(_) => SearchError::argument(format!("the pattern [{shown}] is too complex")),
        // The first line of the message; the others draw the place.
        error => SearchError::argument(format!(
            "the regular expression [{shown}] cannot be read: {}",
            error.to_string().lines().last().unwrap_or_default()
        )),
    })?;
    let clauses = if pattern.contains('{') { 8 } else { pattern.len() / 16 };
    Ok(TermPattern { prefix, regex: Arc::new(regex), clauses })
}

fn push_literal(regex: &mut String, c: char) {
    regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
}

/// The characters before the first operator, without the last if a quantifier may follow it.
fn literal_beginning(pattern: &str) -> String {
    if pattern.contains('|') {
        return String::new();
    }
    let plain = |c: char| c.is_alphanumeric() || "_-/:,=%!'; ".contains(c);
    let mut prefix: String = pattern.chars().take_while(|c| plain(*c)).collect();
    if prefix.len() < pattern.len() {
        prefix.pop();
    }
    prefix
}

/// The class of `\d` and its like: of ASCII alone, as Lucene's are, and small when compiled. None for other letters, and for a
/// complement in a class, which is then a literal.
fn ascii_class(letter: char, in_class: bool) -> Option<&'static str> {
    Some(match (letter, in_class) {
        ('d', false) => "[0-9]",
        ('d', true) => "0-9",
        ('w', false) => "[A-Za-z0-9_]",
        ('w', true) => "A-Za-z0-9_",
        ('s', false) => r"[ \t\n\r]",
        ('s', true) => r" \t\n\r",
        ('D', false) => "[^0-9]",
        ('W', false) => "[^A-Za-z0-9_]",
        ('S', false) => r"[^ \t\n\r]",
        _ => return None,
    })
}

/// Lucene's syntax as the `regex` crate's.
fn translated(pattern: &str) -> Result<String, SearchError> {
    let unsupported =
        |operator: char| SearchError::unsupported(format!("operator [{operator}] of a regular expression"));
    let mut regex = String::new();
    let mut chars = pattern.chars();
    let mut in_class = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(c) if ascii_class(c, in_class).is_some() => {
                    regex.push_str(ascii_class(c, in_class).unwrap_or_default())
                }
                Some(c) => push_literal(&mut regex, c),
                None => return Err(SearchError::argument("a regular expression ends with a backslash")),
            },
            ']' if in_class => {
                in_class = false;
                regex.push(']');
            }
            '-' if in_class => regex.push('-'),
            c if in_class => push_literal(&mut regex, c),
            '[' => {
                in_class = true;
                regex.push('[');
                if chars.as_str().starts_with('^') {
                    chars.next();
                    regex.push('^');
                }
            }
            '"' => loop {
                match chars.next() {
                    Some('"') => break,
                    Some(c) => push_literal(&mut regex, c),
                    None => return Err(SearchError::argument("a regular expression has a quote that does not end")),
                }
            },
            // A question mark after another quantifier would make it lazy; braces do not.
            '?' => regex.push_str("{0,1}"),
            '@' => regex.push_str("(?:.*)"),
            '(' => regex.push_str("(?:"),
            ')' | '*' | '+' | '.' | '|' | '{' | '}' => regex.push(c),
            '&' | '~' | '<' | '#' => return Err(unsupported(c)),
            c => push_literal(&mut regex, c),
        }
    }
    if in_class {
        return Err(SearchError::argument("a regular expression has a [ without a ]"));
    }
    Ok(regex)
}
