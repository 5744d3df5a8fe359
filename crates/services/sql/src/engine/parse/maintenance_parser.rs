//! VACUUM and ANALYZE: the parser knows other databases' forms of them.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use super::rights::tokens::Tokens;
use crate::SqlError;

/// VACUUM, ANALYZE, or both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Maintenance {
    /// Whether it is VACUUM.
    pub(crate) is_vacuum: bool,
    /// Whether tables are analyzed.
    pub(crate) analyzes: bool,
    /// The tables, each with columns; none: all.
    pub(crate) tables: Vec<(Vec<String>, Vec<String>)>,
}

impl Maintenance {
    /// Its first word.
    pub(crate) fn words(&self) -> &'static str {
        if self.is_vacuum { "VACUUM" } else { "ANALYZE" }
    }
}

/// Reads such a statement; `None` if it is another one. Errors: 42601, 0A000.
pub(super) fn read(tokens: &[&TokenWithSpan]) -> Result<Option<Maintenance>, SqlError> {
    let mut tokens = Tokens::of(tokens);
    let Some(word) = tokens.take_any(&["VACUUM", "ANALYZE", "ANALYSE"]) else { return Ok(None) };
    let is_vacuum = word == "VACUUM";
    let mut read = Maintenance { is_vacuum, analyzes: !is_vacuum, tables: Vec::new() };
    let refused = |option: &str| SqlError::unsupported(format!("{} with {option}", read.words()));
    let mut analyzes = false;
    if tokens.take_sign(&Token::LParen) {
        let mut options = tokens.list(|tokens| {
            let option = tokens.name()?;
            let is_off =
                tokens.take_any(&["TRUE", "FALSE", "ON", "OFF"]).is_some_and(|is| matches!(is, "FALSE" | "OFF"));
            Ok((option, !is_off))
        })?;
        tokens.expect_sign(&Token::RParen)?;
        options.retain(|(_, is_on)| *is_on);
        for (option, _) in options {
            match option.as_str() {
                "analyze" | "analyse" if is_vacuum => analyzes = true,
                other => return Err(refused(&other.to_uppercase())),
            }
        }
    }
    let words: &[&str] = if is_vacuum { &["FULL", "FREEZE", "VERBOSE"] } else { &["VERBOSE"] };
    if let Some(option) = tokens.take_any(words) {
        return Err(refused(option));
    }
    analyzes |= is_vacuum && tokens.take_any(&["ANALYZE", "ANALYSE"]).is_some();
    read.analyzes |= analyzes;
    if !tokens.is_at_end() {
        read.tables = tokens.list(|tokens| {
            let table = tokens.qualified()?;
            let mut columns = Vec::new();
            if tokens.take_sign(&Token::LParen) {
                columns = tokens.list(|tokens| tokens.name())?;
                tokens.expect_sign(&Token::RParen)?;
            }
            Ok((table, columns))
        })?;
    }
    tokens.end()?;
    if !read.analyzes && read.tables.iter().any(|(_, columns)| !columns.is_empty()) {
        return Err(SqlError::statement("0A000", "ANALYZE option must be specified when a column list is provided"));
    }
    Ok(Some(read))
}

/// The tokens of a COPY whose options FREEZE and HEADER are ON or OFF, with TRUE and FALSE there; `None` if it has none.
pub(super) fn copy_switches(part: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let is_shown = |at: &usize| !matches!(part[*at].token, Token::Whitespace(_) | Token::EOF);
    let is = |at: usize, expected: &str| match &part[at].token {
        Token::Word(word) => word.quote_style.is_none() && word.value.eq_ignore_ascii_case(expected),
        _ => false,
    };
    if !(0..part.len()).find(is_shown).is_some_and(|at| is(at, "copy")) {
        return None;
    }
    let shown: Vec<usize> = (0..part.len()).filter(is_shown).collect();
    let mut tokens = None;
    for pair in shown.windows(2) {
        let [option, value] = *pair else { continue };
        let instead = if is(value, "on") { "TRUE" } else { "FALSE" };
        if (is(option, "freeze") || is(option, "header")) && (is(value, "on") || is(value, "off")) {
            tokens.get_or_insert_with(|| part.to_vec())[value].token = Token::make_keyword(instead);
        }
    }
    tokens
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::ast::Statement;

    use crate::engine::parse::{ParsedStatement, parsed};

    #[test]
    fn vacuum_and_analyze_are_read_with_their_tables_and_other_options_are_refused() {
        for (sql, expected) in [
            ("vacuum", "VACUUM false []"),
            ("VACUUM ANALYZE", "VACUUM true []"),
            ("vacuum analyze a.t, u", "VACUUM true [([\"a\", \"t\"], []), ([\"u\"], [])]"),
            ("vacuum (analyze, full false) t (x, \"Y\")", "VACUUM true [([\"t\"], [\"x\", \"Y\"])]"),
            ("analyze t(x)", "ANALYZE true [([\"t\"], [\"x\"])]"),
            ("analyse", "ANALYZE true []"),
        ] {
            let ParsedStatement::Maintenance(read) = parsed(sql).expect(sql).remove(0) else { panic!("{sql}") };
            assert_eq!(format!("{} {} {:?}", read.words(), read.analyzes, read.tables), expected, "{sql}");
        }
        for (sql, code) in [
            ("vacuum full t", "0A000"),
            ("vacuum (verbose) t", "0A000"),
            ("vacuum (parallel 2) t", "42601"),
            ("vacuum freeze", "0A000"),
            ("analyze verbose", "0A000"),
            ("vacuum t (x)", "0A000"),
            ("vacuum t u", "42601"),
            ("vacuum t,", "42601"),
            ("vacuum ()", "42601"),
        ] {
            assert_eq!(parsed(sql).expect_err(sql).code(), code, "{sql}");
        }
    }

    #[test]
    fn switches_of_copy_may_be_on_and_off() {
        for (sql, expected) in [
            ("copy t from stdin with (freeze on)", "COPY t FROM STDIN (FREEZE)"),
            ("copy t from stdin (format csv, header off)", "HEADER FALSE"),
            ("copy t from stdin with (freeze true)", "FREEZE"),
        ] {
            let ParsedStatement::Other(statement) = parsed(sql).expect(sql).remove(0) else { panic!("{sql}") };
            assert!(matches!(*statement, Statement::Copy { .. }));
            assert!(statement.to_string().contains(expected), "{sql}: {statement}");
        }
    }
}
