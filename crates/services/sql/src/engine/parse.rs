//! From text to statements, with a bound on the cost of a statement.
//!
//! ```text
//!   text -> tokens -> how deep would it nest? -> parser, with a bound on its attempts -> statement_check -> plan
//! ```
//!
//! The parser limits brackets, but builds `a OR b OR c ..` as a tree that is as deep as the number of its terms.
//! Everything that walks the tree later (planning, the optimizer, even dropping the tree) takes one stack frame for
//! each level. A stack overflow ends the whole node. So the depth is determined from the tokens ([`nesting_depth`]),
//! before there is a tree. There are also texts that the parser would read for hours ([`bounded_dialect`]).

pub(crate) mod ast;
pub(crate) mod bare_calls;
pub(crate) mod bounded_dialect;
pub(crate) mod check_conditions;
pub(crate) mod expressions;
pub(crate) mod maintenance_parser;
pub(crate) mod move_parser;
pub(crate) mod nesting_depth;
mod postgres_syntax;
pub(crate) mod rights;
pub(crate) mod row_locking;
pub(crate) mod sequence_parser;
pub(crate) mod statement_check;
pub(crate) mod syntax_rewrite;
pub(crate) mod value_subqueries;

use datafusion::sql::sqlparser::ast::{Expr, Statement};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::SqlError;
use bounded_dialect::BoundedDialect;
use maintenance_parser::Maintenance;
use nesting_depth::{NestingDepth, depth};
use rights::parser;
use rights::statement::RightsStatement;
use sequence_parser::SequenceStatement;

/// The deepest expression that is accepted. The cost of exact arithmetic grows with the cube of the depth: planning a
/// sum of 990 terms took a development build 70 s, 2026-11-22.
const EXPRESSION_MAX: usize = 500;

/// The deepest statement that is accepted, in operators of an expression: a quarter of what a development build could
/// plan and run on a stack of [`STACK_BYTES`](crate::STACK_BYTES) (990 on an eighth of it, 2026-11-22), because the
/// depth is an estimate.
const STATEMENT_MAX: usize = 2000;

/// How often parts of a text may be read because of brackets around tables.
const READINGS_MAX: usize = 1000;

/// Shorter texts are parsed without requesting memory.
pub(crate) const LONG_BYTES: usize = 64 << 10;

/// Memory that a token takes until the statement is planned: the token, its part of the tree and of the plan. A list of
/// 2,000,000 numbers took 380 bytes each in a development build (2026-11-22).
const TOKEN_BYTES: u128 = 400;

/// The approximate memory for parsing and planning a text, in bytes: for its characters and its tokens. The number of
/// tokens is at most the number of word ends and signs outside of quotes.
pub(crate) fn memory(sql: &str) -> u128 {
    let (mut tokens, mut is_quoted, mut in_word) = (0u128, false, false);
    for byte in sql.bytes() {
        let is_word = is_quoted || byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80;
        tokens += u128::from(in_word && !is_word) + u128::from(!is_word && !byte.is_ascii_whitespace());
        is_quoted ^= byte == b'\'';
        in_word = is_word;
    }
    4 * sql.len() as u128 + tokens * TOKEN_BYTES
}

/// Parses statements separated by semicolons.
///
/// Errors: 42601; 54001 for a statement that nests too deeply, or that the parser would read for hours.
pub(crate) fn statements(sql: &str) -> Result<Vec<Statement>, SqlError> {
    Ok(deep_statements(sql, NestingDepth::default())?.0)
}

/// A statement as it was parsed.
#[derive(Debug)]
pub(crate) enum ParsedStatement {
    /// About roles and rights.
    Rights(RightsStatement),
    /// CREATE SEQUENCE and ALTER SEQUENCE.
    Sequence(SequenceStatement),
    /// VACUUM and ANALYZE.
    Maintenance(Maintenance),
    /// Any other.
    Other(Box<Statement>),
}

/// Parses statements separated by semicolons, those about roles and rights among them.
///
/// Errors: as [`statements`], and those of options.
pub(crate) fn parsed(sql: &str) -> Result<Vec<ParsedStatement>, SqlError> {
    let (tokens, _) = tokens_of(sql, NestingDepth::default())?;
    let mut parts = Vec::new();
    for part in tokens.split(|token| token.token == Token::SemiColon) {
        parts.push((part, own(part)?));
    }
    let other = |statement| ParsedStatement::Other(Box::new(statement));
    if parts.iter().all(|(_, own)| matches!(own, Own::None)) {
        drop(parts);
        return Ok(read(tokens, |parser| parser.parse_statements())?.into_iter().map(other).collect());
    }
    let mut all = Vec::new();
    for (part, own) in parts {
        match own {
            Own::Statement(statement) => all.push(statement),
            Own::Overriding(tokens) => {
                let mut statements = read(tokens, |parser| parser.parse_statements())?;
                statements.iter_mut().for_each(sequence_parser::overriding);
                all.extend(statements.into_iter().map(other));
            }
            Own::Move(tokens) => {
                let mut statements = read(tokens, |parser| parser.parse_statements())?;
                statements.iter_mut().for_each(move_parser::mark);
                all.extend(statements.into_iter().map(other));
            }
            Own::Restated(tokens) => {
                all.extend(read(tokens, |parser| parser.parse_statements())?.into_iter().map(other))
            }
            Own::None => all.extend(read(part.to_vec(), |parser| parser.parse_statements())?.into_iter().map(other)),
        }
    }
    Ok(all)
}

/// What the parser does not know of a statement.
enum Own {
    /// All of it.
    Statement(ParsedStatement),
    /// OVERRIDING SYSTEM VALUE, which these tokens of an INSERT lack.
    Overriding(Vec<TokenWithSpan>),
    /// MOVE; these tokens are those of FETCH.
    Move(Vec<TokenWithSpan>),
    /// Words, in place of which these tokens have others.
    Restated(Vec<TokenWithSpan>),
    None,
}

fn own(part: &[TokenWithSpan]) -> Result<Own, SqlError> {
    if let Some(rights) = rights_of(part)? {
        return Ok(Own::Statement(ParsedStatement::Rights(rights)));
    }
    if let Some(tokens) = move_parser::as_fetch(part) {
        return Ok(Own::Move(tokens));
    }
    if let Some(tokens) = sequence_parser::without_overriding(part)? {
        return Ok(Own::Overriding(tokens));
    }
    let shown: Vec<&TokenWithSpan> =
        part.iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    if let Some(statement) = sequence_parser::read(&shown)? {
        return Ok(Own::Statement(ParsedStatement::Sequence(statement)));
    }
    if let Some(statement) = maintenance_parser::read(&shown)? {
        return Ok(Own::Statement(ParsedStatement::Maintenance(statement)));
    }
    Ok(maintenance_parser::copy_switches(part).map_or(Own::None, Own::Restated))
}

/// A statement about roles and rights, if these tokens are one.
fn rights_of(part: &[TokenWithSpan]) -> Result<Option<RightsStatement>, SqlError> {
    const BEGINS: [&str; 8] = ["alter", "create", "drop", "grant", "reassign", "reset", "revoke", "set"];
    let mut words = part.iter().filter(|token| !matches!(token.token, Token::Whitespace(_)));
    match words.next().map(|token| &token.token) {
        Some(Token::Word(word)) if BEGINS.iter().any(|begin| word.value.eq_ignore_ascii_case(begin)) => {}
        _ => return Ok(None),
    }
    let tokens: Vec<&TokenWithSpan> =
        part.iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    parser::read(&tokens)
}

/// Parses text that is planned inside another statement of depth `around`, such as a view's. Returns also the depth of
/// both together.
pub(crate) fn deep_statements(sql: &str, around: NestingDepth) -> Result<(Vec<Statement>, NestingDepth), SqlError> {
    parse(sql, around, |parser| parser.parse_statements())
}

/// Parses one expression, such as a stored default. Errors: as [`statements`].
pub(crate) fn expression(sql: &str) -> Result<Expr, SqlError> {
    Ok(parse(sql, NestingDepth::default(), |parser| parser.parse_expr())?.0)
}

fn parse<T>(
    sql: &str,
    around: NestingDepth,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<(T, NestingDepth), SqlError> {
    let (tokens, depth) = tokens_of(sql, around)?;
    Ok((self::read(tokens, read)?, depth))
}

/// The tokens of a text, and how deep they nest together with `around`.
fn tokens_of(sql: &str, around: NestingDepth) -> Result<(Vec<TokenWithSpan>, NestingDepth), SqlError> {
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location();
    let tokens = tokens.map_err(|error| fault(error.into()))?;
    let depth = depth(tokens.iter().map(|token| &token.token)).inside(around);
    check(depth)?;
    Ok((tokens, depth))
}

fn read<T>(
    tokens: Vec<TokenWithSpan>,
    read: impl FnOnce(&mut Parser<'_>) -> Result<T, ParserError>,
) -> Result<T, SqlError> {
    let dialect = BoundedDialect::new(tokens.len());
    read(&mut Parser::new(&dialect).with_tokens_with_locations(tokens)).map_err(fault)
}

fn fault(error: ParserError) -> SqlError {
    match error {
        ParserError::RecursionLimitExceeded => too_deep("brackets and subqueries nest too deeply".into()),
        other => SqlError::statement("42601", other.to_string()),
    }
}

fn too_deep(message: String) -> SqlError {
    let hint = "Use IN with a list instead of many ORs, or a table of the values and a join.";
    SqlError::statement("54001", message).with_hint(hint)
}

fn check(NestingDepth { expression, statement, readings }: NestingDepth) -> Result<(), SqlError> {
    let and_views = "with the views that it reads";
    if expression > EXPRESSION_MAX {
        let message = format!("an expression nests {expression} operators deep {and_views}, and at most");
        return Err(too_deep(format!("{message} {EXPRESSION_MAX} are accepted")));
    }
    if statement > STATEMENT_MAX {
        let message = format!("the statement nests {statement} levels deep {and_views}, and at most");
        return Err(too_deep(format!("{message} {STATEMENT_MAX} are accepted")));
    }
    if readings > READINGS_MAX {
        return Err(too_deep("brackets around tables nest too deeply".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_known_to_take_memory_before_it_is_parsed() {
        let list = format!("select x in ({}0)", "1,".repeat(1_000_000));
        assert!(memory(&list) > 2_000_000 * TOKEN_BYTES);
        // A text is one token, whatever it contains.
        let text = format!("select '{}'", "1,".repeat(1_000_000));
        assert!(memory(&text) < 5 * text.len() as u128);
    }

    #[test]
    fn what_the_parser_would_try_again_and_again_is_refused() {
        for (sql, repeated) in [
            ("SELECT ", "case + "),
            ("SELECT ", "not + "),
            ("SELECT ", "case (a) = "),
            ("SELECT ", "("),
            ("SELECT ", "((a "),
            ("SELECT * FROM ", "("),
            ("SELECT * FROM ", "((SELECT * FROM "),
            ("SELECT * FROM ", "(SELECT * FROM t JOIN ("),
            ("SELECT ", "position("),
            ("SELECT ", "a IN ("),
            ("SELECT a", " = ANY ("),
            ("SELECT FROM ", "((((SELECT FROM "),
        ] {
            // Without the bound this takes hours.
            for times in [10, 20, 40, 60] {
                assert!(statements(&format!("{sql}{}", repeated.repeat(times))).is_err());
            }
        }
    }

    #[test]
    fn what_applications_write_is_taken() {
        let calls = |deep: usize| format!("SELECT {}a{}", "replace(".repeat(deep), ", 'a', 'b')".repeat(deep));
        let joins: Vec<String> = (1..60).map(|n| format!("LEFT JOIN t{n} ON t{n}.a = t.a AND t{n}.b > {n}")).collect();
        let nested = format!("SELECT * FROM {}t{}", "(".repeat(15), " INNER JOIN u ON t.a = u.a)".repeat(15));
        let query =
            "SELECT a.x, sum(b.y) AS y FROM a JOIN b ON a.x = b.x JOIN c ON b.x = c.x WHERE c.z IN (1, 2) GROUP BY 1";
        let with: Vec<String> = (0..40).map(|n| format!("q{n} AS ({query})")).collect();
        let columns: Vec<String> = (0..350).map(|n| format!("a.name{n} IS DISTINCT FROM b.name{n} AS c{n}")).collect();
        for sql in [
            calls(20),
            format!("SELECT * FROM t {}", joins.join(" ")),
            nested,
            format!("WITH {} SELECT * FROM q0 JOIN q1 USING (x)", with.join(", ")),
            format!("SELECT {} FROM a JOIN b USING (x)", columns.join(", ")),
            vec![query; 50].join(" UNION ALL "),
        ] {
            if let Err(error) = statements(&sql) {
                panic!("{error}: {sql}");
            }
        }
    }
}
