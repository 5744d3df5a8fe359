//! The fields of PostgreSQL's `ErrorResponse`, which reports an error to the client.

use pgwire::error::ErrorInfo;

use super::Reply;
use super::reply_text::sent;
use crate::{ErrorFields, ErrorObject, SqlError};

/// An error on its way to the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ErrorResponse {
    /// SQLSTATE.
    pub(crate) code: &'static str,
    /// One sentence.
    pub(crate) message: String,
    /// More about this occurrence.
    pub(crate) detail: Option<String>,
    /// What to do.
    pub(crate) hint: Option<String>,
    /// The position in the statement, in characters from 1.
    pub(crate) position: Option<usize>,
    /// The position in the data.
    pub(crate) context: Option<String>,
    /// The constraint that it is about.
    pub(crate) object: Option<Box<ErrorObject>>,
}

impl ErrorResponse {
    /// An error with this SQLSTATE.
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> ErrorResponse {
        let message = message.into();
        ErrorResponse { code, message, detail: None, hint: None, position: None, context: None, object: None }
    }

    /// The error for a violation of the protocol.
    pub(crate) fn protocol(message: impl Into<String>) -> ErrorResponse {
        ErrorResponse::new("08P01", message)
    }

    /// The same error with a hint about what to do.
    #[must_use]
    pub(crate) fn with_hint(self, hint: impl Into<String>) -> ErrorResponse {
        ErrorResponse { hint: Some(hint.into()), ..self }
    }

    /// The same error with its position in the data, unless it has one.
    #[must_use]
    pub(crate) fn with_context(self, context: impl FnOnce() -> String) -> ErrorResponse {
        ErrorResponse { context: self.context.or_else(|| Some(context())), ..self }
    }

    /// The message to the client; the connection ends with a `fatal` one.
    pub(crate) fn reply(&self, fatal: bool) -> Reply {
        let severity = if fatal { "FATAL" } else { "ERROR" };
        let mut info = ErrorInfo::new(severity.into(), self.code.into(), sent(&self.message));
        info.severity_nonlocalized = Some(severity.into());
        info.detail = self.detail.as_deref().map(sent);
        info.hint = self.hint.as_deref().map(sent);
        info.position = self.position.map(|position| position.to_string());
        info.where_context = self.context.as_deref().map(sent);
        if let Some(object) = &self.object {
            info.schema = Some(sent(&object.schema));
            info.table = Some(sent(&object.table));
            info.column = object.column.as_deref().map(sent);
            info.constraint = object.constraint.as_deref().map(sent);
        }
        Reply::ErrorResponse(info.into())
    }

    /// The error of a statement, with its position in the statement if the error's text contains line and column, as
    /// the parser's errors do (`... at Line: 1, Column: 8`).
    pub(crate) fn of_statement(error: &SqlError, sql: &str) -> ErrorResponse {
        let mut response = ErrorResponse::from(error);
        let place = response.message.rfind(" at Line: ").and_then(|at| {
            let (line, column) = response.message[at + " at Line: ".len()..].split_once(", Column: ")?;
            Some((at, position(sql, line.parse().ok()?, column.trim_end().parse().ok()?)?))
        });
        if let Some((at, position)) = place {
            response.message.truncate(at);
            response.position = Some(position);
        }
        if response.code == "42601" {
            response.message = syntax_error(&response.message);
        }
        response
    }
}

/// The parser's errors in PostgreSQL's form: `syntax error: Expected: ..., found: x`.
fn syntax_error(message: &str) -> String {
    match message.strip_prefix("sql parser error: ") {
        Some(rest) => format!("syntax error: {rest}"),
        None => message.to_owned(),
    }
}

/// The position of a line and column, both from 1, in characters from 1.
fn position(sql: &str, line: usize, column: usize) -> Option<usize> {
    let before: usize = sql.split_inclusive('\n').take(line.checked_sub(1)?).map(|line| line.chars().count()).sum();
    let position = before + column;
    (position >= 1 && position <= sql.chars().count() + 1).then_some(position)
}

impl From<&SqlError> for ErrorResponse {
    fn from(error: &SqlError) -> ErrorResponse {
        let ErrorFields { code, message, detail, hint, object, .. } = error.report();
        ErrorResponse { code, message, detail, hint, position: None, context: None, object }
    }
}

impl From<SqlError> for ErrorResponse {
    fn from(error: SqlError) -> ErrorResponse {
        ErrorResponse::from(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_constraint_has_fields_of_its_own() {
        let error = SqlError::value("23514", "no").of_constraint("public", "t", "t_a_check");
        let Reply::ErrorResponse(reply) = ErrorResponse::from(error).reply(false) else { panic!("an error") };
        for (field, value) in [(b's', "public"), (b't', "t"), (b'n', "t_a_check")] {
            assert!(reply.fields.contains(&(field, value.to_owned())), "{:?}", reply.fields);
        }
    }

    #[test]
    fn the_parsers_place_becomes_a_position() {
        let sql = "select 1,\n  frm t";
        let error =
            SqlError::statement("42601", "sql parser error: Expected: an expression, found: frm at Line: 2, Column: 3");
        let response = ErrorResponse::of_statement(&error, sql);
        assert_eq!(response.position, Some(13));
        assert_eq!(response.message, "syntax error: Expected: an expression, found: frm");
        let error = SqlError::statement("42703", "column \"a\" does not exist");
        assert_eq!(ErrorResponse::of_statement(&error, sql).position, None);
    }
}
