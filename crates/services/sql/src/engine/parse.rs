//! From text to statements, with a limit to how deep one may be.
//!
//! ```text
//!   text -> tokens -> how deep would it nest? -> parser -> gate -> plan
//! ```
//!
//! The parser limits brackets, but builds `a OR b OR c ..` as a tree as deep as it has terms, and everything that walks a tree
//! behind it (planning, the optimizer, even giving the tree back) goes one frame of the stack deeper with each. A stack
//! that is at its end takes the whole node with it, so that depth is told from the tokens, before there is a tree.
//!
//! The depth is an estimate from above, without grammar: what is open (brackets, CASE) counts one each, and in each the
//! operators since the last comma. A list of values is flat, however long.

use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::SqlError;

/// The deepest statement taken: a fourth of what a development build plans and runs on a stack of
/// [`STACK_BYTES`](crate::STACK_BYTES) (test `a_statement_too_deep_for_the_stack_is_refused`, 2026-11-22).
const DEPTH_MAX: usize = 1000;

/// What planning a set operation or join takes of the stack, in operators of an expression.
const QUERY_DEPTH: usize = 5;

/// Parses statements separated by semicolons.
///
/// Errors: 42601; 54001 for one that nests too deep.
pub(crate) fn statements(sql: &str) -> Result<Vec<Statement>, SqlError> {
    let dialect = PostgreSqlDialect {};
    let tokens = Tokenizer::new(&dialect, sql).tokenize_with_location().map_err(|error| fault(error.into()))?;
    check_depth(&tokens)?;
    Parser::new(&dialect).with_tokens_with_locations(tokens).parse_statements().map_err(fault)
}

/// Whether a text may be given to other parsers: see [`statements`]. Errors: 54001. What is no SQL is theirs to refuse.
pub(crate) fn check_text(sql: &str) -> Result<(), SqlError> {
    match Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location() {
        Ok(tokens) => check_depth(&tokens),
        Err(_) => Ok(()),
    }
}

fn fault(error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => too_deep("brackets and subqueries nest too deep".into()),
        other => SqlError::statement("42601", other.to_string()),
    }
}

fn too_deep(message: String) -> SqlError {
    let hint = "Use IN with a list instead of many ORs, or a table of the values and a join.";
    SqlError::statement("54001", message).with_hint(hint)
}

fn check_depth(tokens: &[TokenWithSpan]) -> Result<(), SqlError> {
    let depth = depth(tokens.iter().map(|token| &token.token));
    if depth > DEPTH_MAX {
        return Err(too_deep(format!("the statement nests {depth} operators deep, and at most {DEPTH_MAX} are taken")));
    }
    Ok(())
}

/// What one bracket, or CASE, has come to.
#[derive(Clone, Copy, Default)]
struct Level {
    /// The depth of the brackets around it.
    base: usize,
    is_case: bool,
    /// AND, OR, set operations and joins of the present item: each is a level above all terms before it.
    chained: usize,
    /// Operators of the present term.
    operators: usize,
    /// The deepest bracket of the present term.
    inner: usize,
    /// The deepest term of the present item so far.
    term: usize,
    /// The deepest item so far.
    item: usize,
}

impl Level {
    fn inside(outer: &Level, is_case: bool) -> Level {
        Level { base: outer.base + outer.depth(), is_case, ..Level::default() }
    }

    fn depth(&self) -> usize {
        1 + self.chained + self.term.max(self.operators + self.inner)
    }

    fn end_term(&mut self, depth: usize) {
        self.term = self.term.max(self.operators + self.inner);
        (self.operators, self.inner) = (0, 0);
        self.chained += depth;
    }

    fn end_item(&mut self) {
        let item = self.item.max(self.depth());
        *self = Level { base: self.base, is_case: self.is_case, item, ..Level::default() };
    }
}

/// Ends the innermost bracket or CASE; answers whether it was a bracket.
fn close(open: &mut Vec<Level>) -> bool {
    let Some(mut level) = open.pop() else { return true };
    level.end_item();
    match open.last_mut() {
        Some(outer) => outer.inner = outer.inner.max(level.item),
        // One bracket too many: the parser's to tell.
        None => open.push(level),
    }
    !level.is_case
}

fn depth<'a>(tokens: impl Iterator<Item = &'a Token>) -> usize {
    let mut open = vec![Level::default()];
    let mut most = 0;
    for token in tokens {
        let last = open.last_mut().expect("the outermost level stays");
        match token {
            Token::LParen | Token::LBracket | Token::LBrace => {
                let level = Level::inside(last, false);
                open.push(level);
            }
            // A CASE without its END ends with its bracket.
            Token::RParen | Token::RBracket | Token::RBrace => while !close(&mut open) {},
            Token::Comma => last.end_item(),
            Token::SemiColon => open = vec![Level::default()],
            Token::Word(word) if word.quote_style.is_none() => match word.keyword {
                Keyword::CASE => {
                    let level = Level::inside(last, true);
                    open.push(level);
                }
                Keyword::END if last.is_case => _ = close(&mut open),
                Keyword::WHEN | Keyword::THEN | Keyword::ELSE if last.is_case => last.end_item(),
                Keyword::AND | Keyword::OR => last.end_term(1),
                Keyword::UNION | Keyword::EXCEPT | Keyword::INTERSECT | Keyword::JOIN => last.end_term(QUERY_DEPTH),
                Keyword::NOT | Keyword::IS | Keyword::LIKE | Keyword::ILIKE | Keyword::COLLATE | Keyword::AT => {
                    last.operators += 1;
                }
                _ => {}
            },
            Token::Word(_)
            | Token::Number(..)
            | Token::SingleQuotedString(_)
            | Token::Whitespace(_)
            | Token::Placeholder(_)
            | Token::Period => {}
            // Operators, of which there are many.
            _ => last.operators += 1,
        }
        let last = open.last().expect("the outermost level stays");
        most = most.max(last.base + last.depth());
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth_of(sql: &str) -> usize {
        let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize().expect("tokens");
        depth(tokens.iter())
    }

    #[test]
    fn depth_follows_operators_brackets_and_cases_and_lists_are_flat() {
        for (sql, expected) in [
            ("", 0),
            ("SELECT 1", 1),
            ("SELECT a + b", 2),
            ("SELECT a + b, c + d, e", 2),
            ("SELECT a = 1 AND b = 2 OR c", 4),
            ("SELECT a FROM t WHERE a IN (1, 2, 3, 4, 5, 6, 7, 8, 9)", 2),
            ("SELECT ((a))", 3),
            ("SELECT f(1, 2 + 3, g(4)) + 1", 4),
            ("SELECT (a OR b OR c) AND d AND e", 6),
            ("SELECT CASE WHEN a = 1 THEN 1 WHEN a = 2 THEN 2 ELSE 3 END + 1", 4),
            ("SELECT (CASE WHEN a = 1 THEN 1), 1 + 1", 4),
            ("INSERT INTO t VALUES (1 + 1), (2 + 1), (3 + 1)", 3),
            ("SELECT 1 + 1; SELECT 1", 2),
            ("SELECT 1 UNION SELECT 1", 1 + QUERY_DEPTH),
            ("SELECT '+ + + +', \"OR\"", 1),
            (")))", 1),
        ] {
            assert_eq!(depth_of(sql), expected, "{sql}");
        }
    }
}
