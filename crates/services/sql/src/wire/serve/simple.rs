//! The simple protocol: a text with statements that run one after the other.

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

use pgwire::messages::response::EmptyQueryResponse;

use super::send_rows::RowSender;
use super::{Serving, StatementError};
use crate::StatementResult;
use crate::engine::parse;
use crate::wire::Reply;
use crate::wire::error_response::ErrorResponse;

impl Serving<'_> {
    /// Processes a Query, without ReadyForQuery.
    pub(super) async fn query(&mut self, sql: &str) -> Result<(), StatementError> {
        self.portals.remove("");
        self.session.named.remove("");
        self.registered.activity.begins(sql);
        let parts = split(sql);
        if parts.len() > 1 {
            // A syntax error anywhere prevents all of them from running.
            parse::parsed(sql).map_err(|error| ErrorResponse::of_statement(&error, sql))?;
        }
        device::supervise::rehearse("sql-session");
        let several = parts.len() > 1;
        let mut any = false;
        for part in parts {
            any |= self.part(part, several).await?;
        }
        if !any {
            self.connection.reply(Reply::EmptyQueryResponse(EmptyQueryResponse::new())).await?;
        }
        Ok(())
    }

    /// Runs one of the statements; returns whether there was one.
    async fn part(&mut self, sql: &str, several: bool) -> Result<bool, StatementError> {
        let rewritten = self.catalogs.rewrite(&self.session, sql)?;
        let prepared = self.session.prepare_to_run(&rewritten).await;
        let prepared = prepared.map_err(|error| ErrorResponse::of_statement(&error, sql))?;
        let mut any = false;
        for prepared in prepared.iter().filter(|prepared| !prepared.is_empty()) {
            any = true;
            if several {
                self.begin_series();
            }
            let answer = self.session.execute(prepared, &[]).await;
            match answer.map_err(|error| ErrorResponse::of_statement(&error, sql))? {
                StatementResult::Rows { schema, stream, tag } => {
                    let mut rows = RowSender::new(&schema, stream, tag, &[], self.session.access())?;
                    self.connection.reply(rows.description()).await?;
                    self.rows().send(&mut rows, 0).await?;
                }
                StatementResult::Done { tag } => self.complete(&tag).await?,
                StatementResult::CopyIn(copy) => self.rows().copy_in(copy, prepared).await?,
                StatementResult::CopyOut(copy) => self.rows().copy_out(copy).await?,
            }
        }
        Ok(any)
    }
}

/// The statements of a text, cut at semicolons outside of quotes and comments. A text that cannot be cut is one
/// statement: its error is reported when it is prepared.
fn split(sql: &str) -> Vec<&str> {
    if !sql.contains(';') {
        return if sql.trim().is_empty() { Vec::new() } else { vec![sql] };
    }
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize_with_location() else { return vec![sql] };
    // Locations are in lines and characters; one pass over the text converts them to bytes.
    let mut ends =
        tokens.iter().filter(|token| token.token == Token::SemiColon).map(|token| token.span.start).peekable();
    let (mut line, mut column, mut start) = (1, 1, 0);
    let mut parts = Vec::new();
    for (at, letter) in sql.char_indices() {
        if ends.peek().is_some_and(|end| (end.line, end.column) == (line, column)) {
            ends.next();
            parts.push(&sql[start..at]);
            start = at + letter.len_utf8();
        }
        if letter == '\n' {
            (line, column) = (line + 1, 1);
        } else {
            column += 1;
        }
    }
    parts.push(&sql[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::split;

    #[test]
    fn statements_are_cut_where_a_semicolon_ends_them() {
        assert_eq!(split("select 1; select ';' ; "), ["select 1", " select ';' "]);
        assert_eq!(split("a;\n-- not; here\nb; /* ; */ c"), ["a", "\n-- not; here\nb", " /* ; */ c"]);
        assert_eq!(split("select '\u{e4};\u{f6}';select $$;$$"), ["select '\u{e4};\u{f6}'", "select $$;$$"]);
        assert_eq!(split("select 'open; x"), ["select 'open; x"]);
        assert!(split(" ;; ").is_empty());
    }
}
