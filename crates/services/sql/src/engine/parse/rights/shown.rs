//! The text of a statement as it may be shown to others: without passwords.

use std::borrow::Cow;

use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::tokenizer::{Token, Tokenizer};

/// What is shown in place of a password, as in PostgreSQL's catalogs.
const HIDDEN: &str = "'********'";

/// A text without the passwords in it. What may contain one and cannot be read is shown up to there.
pub(crate) fn without_passwords(sql: &str) -> Cow<'_, str> {
    const WORD: &[u8] = b"password";
    let Some(first) = sql.as_bytes().windows(WORD.len()).position(|part| part.eq_ignore_ascii_case(WORD)) else {
        return Cow::Borrowed(sql);
    };
    let Ok(tokens) = Tokenizer::new(&PostgreSqlDialect {}, sql).tokenize() else {
        // Its ASCII letters are whole characters.
        return Cow::Owned(format!("{}{HIDDEN}", &sql[..first + WORD.len()]));
    };
    let (mut shown, mut is_password) = (String::with_capacity(sql.len()), false);
    for token in tokens {
        match &token {
            Token::Whitespace(_) => shown.push_str(&token.to_string()),
            Token::Word(word) => {
                is_password = word.value.eq_ignore_ascii_case("password");
                shown.push_str(&token.to_string());
            }
            _ if is_password && is_text(&token) => {
                is_password = false;
                shown.push_str(HIDDEN);
            }
            // Also after a sign that is out of place: PASSWORD = 'x'.
            Token::SemiColon => {
                is_password = false;
                shown.push(';');
            }
            _ => shown.push_str(&token.to_string()),
        }
    }
    Cow::Owned(shown)
}

fn is_text(token: &Token) -> bool {
    matches!(
        token,
        Token::SingleQuotedString(_)
            | Token::EscapedStringLiteral(_)
            | Token::UnicodeStringLiteral(_)
            | Token::DollarQuotedString(_)
            | Token::NationalStringLiteral(_)
            | Token::SingleQuotedByteStringLiteral(_)
            | Token::HexStringLiteral(_)
            | Token::DoubleQuotedString(_)
            | Token::Number(..)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_not_shown_however_they_are_written() {
        for (sql, shown) in [
            ("alter role a password 'x y'", "alter role a password '********'"),
            ("ALTER ROLE a PASSWORD  E'x\\'y' LOGIN", "ALTER ROLE a PASSWORD  '********' LOGIN"),
            (
                "create user a with encrypted password $q$x$q$;select 1",
                "create user a with encrypted password '********';select 1",
            ),
            ("alter role a password /* b */ 'x'", "alter role a password /* b */ '********'"),
            ("alter role a password = 'x'", "alter role a password = '********'"),
            ("alter role a password null", "alter role a password null"),
            ("alter role a password 'x", "alter role a password'********'"),
            ("select 'x', password from t", "select 'x', password from t"),
            ("select 'x'", "select 'x'"),
        ] {
            assert_eq!(without_passwords(sql), shown);
        }
    }
}
