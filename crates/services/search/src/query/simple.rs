//! The syntax of `simple_query_string`: `"fried eggs" +(eggplant | potato) -frittata pre* fuzzy~1 "far words"~2`.
//!
//! Nothing in it is an error: what makes no sense is passed over. Only its depth is limited.

use tantivy::query::Occur;

use super::QUERY_DEPTH_MAX;
use super::lucene::{LuceneNode, unescaped};

/// Reads a query string; none if it has no clause. Errors: it nests too deep.
pub(super) fn parse_simple(text: &str, default_and: bool) -> Result<Option<LuceneNode>, String> {
    let mut parser = SimpleParser { rest: text, default_and, depth: 0, alternations: 0 };
    parser.clauses()
}

struct SimpleParser<'t> {
    rest: &'t str,
    default_and: bool,
    depth: usize,
    /// How often AND and OR took turns, each time one level deeper.
    alternations: usize,
}

/// Clauses so far, all combined in one way.
#[derive(Default)]
struct SimpleClauses {
    occur: Option<Occur>,
    clauses: Vec<(Occur, LuceneNode)>,
}

impl SimpleClauses {
    fn node(mut self) -> Option<LuceneNode> {
        match self.clauses.len() {
            0 => None,
            1 => self.clauses.pop().map(|(_, node)| node),
            _ => Some(LuceneNode::Clauses(self.clauses)),
        }
    }
}

impl SimpleParser<'_> {
    fn skip(&mut self) {
        let mut chars = self.rest.chars();
        chars.next();
        self.rest = chars.as_str();
    }

    fn clauses(&mut self) -> Result<Option<LuceneNode>, String> {
        self.depth += 1;
        if self.depth > QUERY_DEPTH_MAX {
            return Err(format!("parentheses are at most {QUERY_DEPTH_MAX} deep"));
        }
        let mut found = SimpleClauses::default();
        let (mut occur, mut negated) = (None, false);
        while let Some(c) = self.rest.chars().next() {
            let node = match c {
                c if c.is_whitespace() => {
                    self.skip();
                    negated = false;
                    continue;
                }
                '+' | '|' => {
                    occur = Some(if c == '+' { Occur::Must } else { Occur::Should });
                    self.skip();
                    continue;
                }
                '-' => {
                    negated = !negated;
                    self.skip();
                    continue;
                }
                ')' => {
                    self.skip();
                    if self.depth > 1 {
                        break;
                    }
                    continue;
                }
                '(' => {
                    self.skip();
                    self.clauses()?
                }
                '"' => self.phrase(),
                _ => self.word(),
            };
            if let Some(node) = node {
                let node = if negated { LuceneNode::Clauses(vec![(Occur::MustNot, node)]) } else { node };
                let default = if self.default_and { Occur::Must } else { Occur::Should };
                self.add(&mut found, occur.unwrap_or(default), node)?;
            }
            (occur, negated) = (None, false);
        }
        self.depth -= 1;
        Ok(found.node())
    }

    /// Adds a clause; another way to combine than before makes one clause of all before.
    fn add(&mut self, found: &mut SimpleClauses, occur: Occur, node: LuceneNode) -> Result<(), String> {
        if found.clauses.is_empty() {
            found.clauses.push((occur, node));
            return Ok(());
        }
        if found.occur != Some(occur) {
            if found.clauses.len() > 1 {
                self.alternations += 1;
                if self.alternations > QUERY_DEPTH_MAX {
                    return Err(format!("AND and OR take turns more than {QUERY_DEPTH_MAX} times"));
                }
            }
            let before = std::mem::take(found).node();
            found.clauses.extend(before.map(|before| (occur, before)));
            found.occur = Some(occur);
        }
        found.clauses.push((occur, node));
        Ok(())
    }

    /// Where the text ends at one of some characters that are not escaped.
    fn until(&self, text: &str, ends: impl Fn(char) -> bool) -> usize {
        let mut escaped = false;
        for (at, c) in text.char_indices() {
            match (escaped, c) {
                (true, _) => escaped = false,
                (false, '\\') => escaped = true,
                (false, c) if ends(c) => return at,
                _ => {}
            }
        }
        text.len()
    }

    fn tilde(&mut self) -> Option<String> {
        let after = self.rest.strip_prefix('~')?;
        let (number, rest) = after.split_at(after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len()));
        self.rest = rest;
        Some(number.to_owned())
    }

    fn phrase(&mut self) -> Option<LuceneNode> {
        let inner = &self.rest[1..];
        let end = self.until(inner, |c| c == '"');
        let text = unescaped(&inner[..end]);
        self.rest = inner.get(end + 1..).unwrap_or("");
        let slop = self.tilde().and_then(|slop| slop.parse().ok());
        (!text.is_empty()).then_some(LuceneNode::Phrase(text, slop))
    }

    fn word(&mut self) -> Option<LuceneNode> {
        let end = self.until(self.rest, |c| c.is_whitespace() || "+|()\"~".contains(c));
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let tilde = self.tilde();
        if word.is_empty() {
            return None;
        }
        let is_prefix = word.ends_with('*') && !word.ends_with("\\*");
        Some(match tilde {
            _ if is_prefix => LuceneNode::Pattern(word[..word.len() - 1].replace('*', "\\*").replace('?', "\\?") + "*"),
            Some(edits) => LuceneNode::Fuzzy(unescaped(word), Some(edits).filter(|edits| !edits.is_empty())),
            None => LuceneNode::Text(unescaped(word)),
        })
    }
}
