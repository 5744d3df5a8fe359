//! CREATE SEQUENCE and ALTER SEQUENCE, and OVERRIDING SYSTEM VALUE of INSERT: the parser knows the options of sequences in
//! one order only, and neither of the others.

use datafusion::sql::sqlparser::ast::{Expr, Ident, Setting, Statement, Value};
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::rights::tokens::Tokens;
use crate::SqlError;
use crate::table::SqlType;
use crate::table::sequence::SequenceOptions;

/// The name of the setting that stands for OVERRIDING SYSTEM VALUE in a parsed INSERT: SQL cannot write it there.
const OVERRIDING: &str = "$overriding";

/// A statement about a sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SequenceStatement {
    /// CREATE SEQUENCE.
    Create { name: Vec<String>, if_not_exists: bool, options: SequenceOptions },
    /// ALTER SEQUENCE.
    Alter { name: Vec<String>, if_exists: bool, options: SequenceOptions },
}

impl SequenceStatement {
    /// Its first words.
    pub(crate) fn words(&self) -> &'static str {
        match self {
            SequenceStatement::Create { .. } => "CREATE SEQUENCE",
            SequenceStatement::Alter { .. } => "ALTER SEQUENCE",
        }
    }
}

/// Reads a statement about a sequence; `None` if it is another one. Errors: 42601, 0A000.
pub(super) fn read(tokens: &[&TokenWithSpan]) -> Result<Option<SequenceStatement>, SqlError> {
    let mut tokens = Tokens::of(tokens);
    let kinds = ["CREATE SEQUENCE", "CREATE TEMPORARY SEQUENCE", "CREATE TEMP SEQUENCE", "CREATE UNLOGGED SEQUENCE"];
    let statement = match tokens.take_any(&kinds) {
        Some("CREATE SEQUENCE") => {
            let if_not_exists = tokens.take("IF NOT EXISTS");
            let name = tokens.qualified()?;
            SequenceStatement::Create { name, if_not_exists, options: options(&mut tokens)? }
        }
        Some(other) => return Err(SqlError::unsupported(other)),
        None => {
            if !tokens.take("ALTER SEQUENCE") {
                return Ok(None);
            }
            let if_exists = tokens.take("IF EXISTS");
            let name = tokens.qualified()?;
            if let Some(other) = tokens.take_any(&["RENAME TO", "SET SCHEMA", "SET LOGGED", "SET UNLOGGED"]) {
                return Err(SqlError::unsupported(format!("ALTER SEQUENCE .. {other}")));
            }
            SequenceStatement::Alter { name, if_exists, options: options(&mut tokens)? }
        }
    };
    tokens.end()?;
    Ok(Some(statement))
}

/// The options in any order. Errors: 42601, also for one that is given twice.
fn options(tokens: &mut Tokens<'_>) -> Result<SequenceOptions, SqlError> {
    fn put<T>(place: &mut Option<T>, value: T) -> Result<(), SqlError> {
        match place.replace(value) {
            None => Ok(()),
            Some(_) => Err(SqlError::statement("42601", "conflicting or redundant options")),
        }
    }
    let mut options = SequenceOptions::default();
    let words = [
        "AS",
        "INCREMENT BY",
        "INCREMENT",
        "MINVALUE",
        "NO MINVALUE",
        "MAXVALUE",
        "NO MAXVALUE",
        "START WITH",
        "START",
        "RESTART WITH",
        "RESTART",
        "CACHE",
        "CYCLE",
        "NO CYCLE",
        "OWNED BY NONE",
        "OWNED BY",
    ];
    while let Some(word) = tokens.take_any(&words) {
        match word {
            "AS" => put(&mut options.kind, kind(tokens)?)?,
            "INCREMENT BY" | "INCREMENT" => put(&mut options.increment, tokens.number()?)?,
            "MINVALUE" => put(&mut options.min, Some(tokens.number()?))?,
            "NO MINVALUE" => put(&mut options.min, None)?,
            "MAXVALUE" => put(&mut options.max, Some(tokens.number()?))?,
            "NO MAXVALUE" => put(&mut options.max, None)?,
            "START WITH" | "START" => put(&mut options.start, tokens.number()?)?,
            "RESTART WITH" => put(&mut options.restart, Some(tokens.number()?))?,
            "RESTART" => {
                let with = if tokens.is_number_next() { Some(tokens.number()?) } else { None };
                put(&mut options.restart, with)?;
            }
            "CACHE" => put(&mut options.cache, tokens.number()?)?,
            "CYCLE" => put(&mut options.cycle, true)?,
            "NO CYCLE" => put(&mut options.cycle, false)?,
            "OWNED BY NONE" => put(&mut options.owned_by, None)?,
            _ => put(&mut options.owned_by, Some(tokens.qualified()?))?,
        }
    }
    Ok(options)
}

fn kind(tokens: &mut Tokens<'_>) -> Result<SqlType, SqlError> {
    Ok(match tokens.name()?.as_str() {
        "smallint" | "int2" => SqlType::SmallInt,
        "int" | "integer" | "int4" => SqlType::Integer,
        "bigint" | "int8" => SqlType::BigInt,
        // Another type is refused with PostgreSQL's words where the options are applied.
        _ => SqlType::Text,
    })
}

/// The tokens of an INSERT without OVERRIDING SYSTEM VALUE; `None` if it is not there. Errors: 0A000 for USER VALUE.
pub(super) fn without_overriding(part: &[TokenWithSpan]) -> Result<Option<Vec<TokenWithSpan>>, SqlError> {
    let word = |at: usize, expected: &str| match part.get(at).map(|token| &token.token) {
        Some(Token::Word(word)) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected),
        _ => false,
    };
    let shown: Vec<usize> =
        (0..part.len()).filter(|at| !matches!(part[*at].token, Token::Whitespace(_) | Token::EOF)).collect();
    if !shown.first().is_some_and(|at| word(*at, "insert")) {
        return Ok(None);
    }
    let are = |words: [&str; 3]| {
        shown.windows(3).find(|places| places.iter().zip(words).all(|(at, expected)| word(*at, expected)))
    };
    if are(["overriding", "user", "value"]).is_some() {
        return Err(SqlError::unsupported("OVERRIDING USER VALUE").with_hint("Leave the identity column out."));
    }
    let Some(places) = are(["overriding", "system", "value"]) else { return Ok(None) };
    let kept = part.iter().enumerate().filter(|(at, _)| !places.contains(at));
    Ok(Some(kept.map(|(_, token)| token.clone()).collect()))
}

/// Notes OVERRIDING SYSTEM VALUE in a parsed INSERT.
pub(super) fn overriding(statement: &mut Statement) {
    if let Statement::Insert(insert) = statement {
        let (key, value) = (Ident::with_quote('"', OVERRIDING), Expr::Value(Value::Boolean(true).into()));
        insert.settings = Some(vec![Setting { key, value }]);
    }
}

/// Whether a parsed INSERT has OVERRIDING SYSTEM VALUE.
pub(crate) fn is_overriding(insert: &datafusion::sql::sqlparser::ast::Insert) -> bool {
    insert.settings.iter().flatten().any(|setting| setting.key.value == OVERRIDING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::parse::{ParsedStatement, parsed};

    fn read_one(sql: &str) -> ParsedStatement {
        parsed(sql).expect(sql).remove(0)
    }

    #[test]
    fn options_of_sequences_are_read_in_any_order() {
        let sql = "create sequence if not exists a.s no cycle start 5 minvalue -9223372036854775808 increment by -2 as int \
                   owned by t.c cache 7 no maxvalue";
        let ParsedStatement::Sequence(SequenceStatement::Create { name, if_not_exists, options }) = read_one(sql)
        else {
            panic!("it creates one")
        };
        assert_eq!((name.join("."), if_not_exists), ("a.s".to_owned(), true));
        let expected = SequenceOptions {
            kind: Some(SqlType::Integer),
            increment: Some(-2),
            min: Some(Some(i64::MIN)),
            max: Some(None),
            start: Some(5),
            restart: None,
            cache: Some(7),
            cycle: Some(false),
            owned_by: Some(Some(vec!["t".into(), "c".into()])),
        };
        assert_eq!(options, expected);
        for (sql, code) in [
            ("create sequence s start 1 start 2", "42601"),
            ("create sequence s start", "42601"),
            ("create temporary sequence s", "0A000"),
            ("alter sequence s rename to t", "0A000"),
            ("insert into t overriding user value values (1)", "0A000"),
        ] {
            assert_eq!(parsed(sql).expect_err(sql).code(), code, "{sql}");
        }
    }

    #[test]
    fn overriding_is_known_in_the_parsed_insert() {
        for (sql, expected) in [
            ("insert into t (a) overriding system value values (1)", true),
            ("/* x */ insert into t overriding system value select 1", true),
            ("insert into t values ('overriding system value')", false),
        ] {
            let ParsedStatement::Other(statement) = read_one(sql) else { panic!("an INSERT") };
            let Statement::Insert(insert) = *statement else { panic!("an INSERT") };
            assert_eq!(is_overriding(&insert), expected, "{sql}");
        }
    }
}
