//! The syntax of Lucene's query strings: `title:(quick OR brown) +"a phrase"~2 -size:[1 TO 5} wild* /reg.ex/ fuzzy~1 boost^2`.
//!
//! Invariants: a text becomes tokens in one pass, tokens a tree no deeper than queries may be; nothing here knows fields. AND,
//! OR and NOT are as in Lucene's classic parser: they mark the clauses beside them, they do not bind by precedence.

use tantivy::query::Occur;

use super::QUERY_DEPTH_MAX;

/// A query string as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum LuceneNode {
    /// Clauses that must, should or must not match.
    Clauses(Vec<(Occur, LuceneNode)>),
    /// In a field, or in those of a pattern.
    In(String, Box<LuceneNode>),
    /// With its score multiplied.
    Boosted(Box<LuceneNode>, f32),
    /// Words.
    Text(String),
    /// A phrase, and how far apart its words may be.
    Phrase(String, Option<u32>),
    /// Wildcards, backslashes still in it.
    Pattern(String),
    /// A word, and how many edits away terms may be.
    Fuzzy(String, Option<String>),
    /// A regular expression.
    Regex(String),
    /// A lower and an upper bound, each with whether it belongs to the range.
    Range(Option<(String, bool)>, Option<(String, bool)>),
}

#[derive(Clone, Debug, PartialEq)]
enum LuceneToken {
    And,
    Or,
    Not,
    Plus,
    Minus,
    Open,
    Close,
    Colon,
    /// With its backslashes.
    Word(String),
    Phrase(String),
    Regex(String),
    Range(Option<(String, bool)>, Option<(String, bool)>),
    Tilde(Option<String>),
    Boost(f32),
}

/// Reads a query string; none if it has no clause. Errors: what cannot be read.
pub(super) fn parse_lucene(text: &str, default_and: bool) -> Result<Option<LuceneNode>, String> {
    let tokens = tokens(text)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let mut parser = LuceneParser { tokens, at: 0, default_and, depth: 0 };
    let node = parser.clauses()?;
    match parser.peek(0) {
        None => Ok(Some(node)),
        Some(token) => Err(format!("unexpected {token:?}")),
    }
}

fn tokens(text: &str) -> Result<Vec<LuceneToken>, String> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(c) = rest.chars().next() {
        let after = &rest[c.len_utf8()..];
        let (token, next) = match c {
            c if c.is_whitespace() => {
                rest = after;
                continue;
            }
            '+' => (LuceneToken::Plus, after),
            '-' => (LuceneToken::Minus, after),
            '!' => (LuceneToken::Not, after),
            '(' => (LuceneToken::Open, after),
            ')' => (LuceneToken::Close, after),
            ':' => (LuceneToken::Colon, after),
            '&' if after.starts_with('&') => (LuceneToken::And, &after[1..]),
            '|' if after.starts_with('|') => (LuceneToken::Or, &after[1..]),
            '"' | '/' => {
                let end = end_of(after, |end| end == c).ok_or_else(|| format!("a {c} has no end"))?;
                let (inner, next) = (&after[..end], &after[end + 1..]);
                let token = match c {
                    '"' => LuceneToken::Phrase(unescaped(inner)),
                    _ => LuceneToken::Regex(inner.replace("\\/", "/")),
                };
                (token, next)
            }
            '[' | '{' => range(after, c == '[')?,
            '~' => {
                let (number, next) = number_at(after);
                (LuceneToken::Tilde((!number.is_empty()).then(|| number.to_owned())), next)
            }
            '^' => {
                let (number, next) = number_at(after);
                let boost = number.parse::<f32>().ok().filter(|boost| boost.is_finite());
                (LuceneToken::Boost(boost.ok_or("^ needs a number")?), next)
            }
            ']' | '}' => return Err(format!("unexpected {c}")),
            _ => {
                let ends = |c: char| c.is_whitespace() || "!():^[]\"{}~/".contains(c);
                let end = end_of(rest, ends).unwrap_or(rest.len());
                let word = &rest[..end];
                if ends_in_escape(word) {
                    return Err("a backslash escapes nothing".to_owned());
                }
                let token = match word {
                    "AND" => LuceneToken::And,
                    "OR" => LuceneToken::Or,
                    "NOT" => LuceneToken::Not,
                    word => LuceneToken::Word(word.to_owned()),
                };
                (token, &rest[end..])
            }
        };
        tokens.push(token);
        rest = next;
    }
    Ok(tokens)
}

/// Where the first character that ends something is, not counting escaped ones.
fn end_of(text: &str, ends: impl Fn(char) -> bool) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match (escaped, c) {
            (true, _) => escaped = false,
            (false, '\\') => escaped = true,
            (false, c) if ends(c) => return Some(at),
            _ => {}
        }
    }
    None
}

fn ends_in_escape(word: &str) -> bool {
    word.chars().rev().take_while(|c| *c == '\\').count() % 2 == 1
}

fn number_at(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len()))
}

/// Without the backslashes that escape.
pub(super) fn unescaped(text: &str) -> String {
    let mut chars = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        plain.push(if c == '\\' { chars.next().unwrap_or('\\') } else { c });
    }
    plain
}

/// `a TO b]`, after its opening bracket.
fn range(text: &str, lower_included: bool) -> Result<(LuceneToken, &str), String> {
    let unreadable = || "a range is [a TO b]".to_owned();
    let (lower, rest) = range_end(text).ok_or_else(unreadable)?;
    let rest = rest.trim_start().strip_prefix("TO").ok_or_else(unreadable)?;
    let (upper, rest) = range_end(rest).ok_or_else(unreadable)?;
    let rest = rest.trim_start();
    let upper_included = match rest.chars().next() {
        Some(']') => true,
        Some('}') => false,
        _ => return Err(unreadable()),
    };
    let token = LuceneToken::Range(lower.map(|end| (end, lower_included)), upper.map(|end| (end, upper_included)));
    Ok((token, &rest[1..]))
}

/// One end of a range, `None` for `*`, and what follows.
fn range_end(text: &str) -> Option<(Option<String>, &str)> {
    let text = text.trim_start();
    if let Some(quoted) = text.strip_prefix('"') {
        let end = end_of(quoted, |c| c == '"')?;
        return Some((Some(unescaped(&quoted[..end])), &quoted[end + 1..]));
    }
    let end = end_of(text, |c| c.is_whitespace() || c == ']' || c == '}')?;
    let (value, rest) = text.split_at(end);
    match value {
        "" | "TO" => None,
        "*" => Some((None, rest)),
        value => Some((Some(unescaped(value)), rest)),
    }
}

/// Whether a word has wildcards that are not escaped.
fn has_wildcards(word: &str) -> bool {
    end_of(word, |c| c == '*' || c == '?').is_some()
}

struct LuceneParser {
    tokens: Vec<LuceneToken>,
    at: usize,
    default_and: bool,
    depth: usize,
}

impl LuceneParser {
    fn peek(&self, ahead: usize) -> Option<&LuceneToken> {
        self.tokens.get(self.at + ahead)
    }

    fn next(&mut self) -> Option<LuceneToken> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token
    }

    /// Clauses up to a closing parenthesis or the end.
    fn clauses(&mut self) -> Result<LuceneNode, String> {
        self.depth += 1;
        if self.depth > QUERY_DEPTH_MAX {
            return Err(format!("parentheses are at most {QUERY_DEPTH_MAX} deep"));
        }
        let mut clauses: Vec<(Occur, LuceneNode)> = Vec::new();
        while !matches!(self.peek(0), None | Some(LuceneToken::Close)) {
            if let Some(words) = self.words() {
                let occur = if self.default_and { Occur::Must } else { Occur::Should };
                clauses.push((occur, words));
                continue;
            }
            let conjunction = match self.peek(0) {
                Some(token @ (LuceneToken::And | LuceneToken::Or)) if !clauses.is_empty() => Some(token.clone()),
                _ => None,
            };
            if conjunction.is_some() {
                self.at += 1;
            }
            let modifier = match self.peek(0) {
                Some(token @ (LuceneToken::Plus | LuceneToken::Minus | LuceneToken::Not)) => Some(token.clone()),
                _ => None,
            };
            if modifier.is_some() {
                self.at += 1;
            }
            let node = self.clause()?;
            // The clause before a conjunction is marked by it too.
            if let Some((occur, _)) = clauses.last_mut().filter(|(occur, _)| *occur != Occur::MustNot) {
                match conjunction {
                    Some(LuceneToken::And) => *occur = Occur::Must,
                    Some(LuceneToken::Or) if self.default_and => *occur = Occur::Should,
                    _ => {}
                }
            }
            let occur = match (&modifier, &conjunction) {
                (Some(LuceneToken::Minus | LuceneToken::Not), _) => Occur::MustNot,
                (Some(LuceneToken::Plus), _) | (_, Some(LuceneToken::And)) => Occur::Must,
                (_, Some(LuceneToken::Or)) => Occur::Should,
                _ if self.default_and => Occur::Must,
                _ => Occur::Should,
            };
            clauses.push((occur, node));
        }
        self.depth -= 1;
        match clauses.len() {
            0 => Err("a clause is missing".to_owned()),
            1 if clauses[0].0 != Occur::MustNot => Ok(clauses.remove(0).1),
            _ => Ok(LuceneNode::Clauses(clauses)),
        }
    }

    /// Two or more plain words in a row, which are analyzed together; a word that something else refers to is not one of them.
    fn words(&mut self) -> Option<LuceneNode> {
        let mut words = String::new();
        let mut count = 0;
        while let Some(LuceneToken::Word(word)) = self.peek(count) {
            let referred = matches!(
                self.peek(count + 1),
                Some(
                    LuceneToken::Colon
                        | LuceneToken::Tilde(_)
                        | LuceneToken::Boost(_)
                        | LuceneToken::And
                        | LuceneToken::Or
                )
            );
            if referred || has_wildcards(word) {
                break;
            }
            if count > 0 {
                words.push(' ');
            }
            words.push_str(&unescaped(word));
            count += 1;
        }
        if count < 2 {
            return None;
        }
        self.at += count;
        Some(LuceneNode::Text(words))
    }

    fn clause(&mut self) -> Result<LuceneNode, String> {
        if let (Some(LuceneToken::Word(word)), Some(LuceneToken::Colon)) = (self.peek(0), self.peek(1)) {
            let field = unescaped(word);
            self.at += 2;
            let node = match self.peek(0) {
                Some(LuceneToken::Word(word)) if word.starts_with(['<', '>']) => {
                    let node = comparison(word)?;
                    self.at += 1;
                    node
                }
                _ => self.value()?,
            };
            return Ok(LuceneNode::In(field, Box::new(node)));
        }
        self.value()
    }

    /// A clause without its field, with what is appended to it.
    fn value(&mut self) -> Result<LuceneNode, String> {
        let mut node = match self.next() {
            Some(LuceneToken::Open) => {
                let inner = self.clauses()?;
                match self.next() {
                    Some(LuceneToken::Close) => inner,
                    _ => return Err("a ( has no )".to_owned()),
                }
            }
            Some(LuceneToken::Phrase(text)) => LuceneNode::Phrase(text, None),
            Some(LuceneToken::Regex(regex)) => LuceneNode::Regex(regex),
            Some(LuceneToken::Range(lower, upper)) => LuceneNode::Range(lower, upper),
            Some(LuceneToken::Word(word)) if has_wildcards(&word) => LuceneNode::Pattern(word),
            Some(LuceneToken::Word(word)) => LuceneNode::Text(unescaped(&word)),
            Some(token) => return Err(format!("unexpected {token:?}")),
            None => return Err("a clause is missing at the end".to_owned()),
        };
        let mut boost = None;
        loop {
            match (self.peek(0), node) {
                (Some(LuceneToken::Tilde(edits)), LuceneNode::Text(text)) => {
                    node = LuceneNode::Fuzzy(text, edits.clone());
                }
                (Some(LuceneToken::Tilde(slop)), LuceneNode::Phrase(text, _)) => {
                    let slop =
                        slop.as_deref().map(|slop| slop.parse::<f64>().map_err(|_| "~ needs a number".to_owned()));
                    node = LuceneNode::Phrase(text, slop.transpose()?.map(|slop| slop as u32));
                }
                (Some(LuceneToken::Boost(number)), inner) => {
                    boost = Some(*number);
                    node = inner;
                }
                (_, inner) => {
                    node = inner;
                    break;
                }
            }
            self.at += 1;
        }
        Ok(match boost {
            Some(boost) => LuceneNode::Boosted(Box::new(node), boost),
            None => node,
        })
    }
}

/// `>=10` as a range.
fn comparison(word: &str) -> Result<LuceneNode, String> {
    let end = |text: &str, included: bool| match unescaped(text) {
        text if text.is_empty() => Err(format!("{word} compares with nothing")),
        text => Ok(Some((text, included))),
    };
    Ok(match (word.strip_prefix(">="), word.strip_prefix("<="), word.strip_prefix('>'), word.strip_prefix('<')) {
        (Some(text), ..) => LuceneNode::Range(end(text, true)?, None),
        (_, Some(text), ..) => LuceneNode::Range(None, end(text, true)?),
        (_, _, Some(text), _) => LuceneNode::Range(end(text, false)?, None),
        (.., Some(text)) => LuceneNode::Range(None, end(text, false)?),
        _ => return Err(format!("{word} is no comparison")),
    })
}
