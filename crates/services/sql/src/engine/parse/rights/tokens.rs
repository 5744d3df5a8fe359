//! [`Tokens`]: reads a statement about roles and rights token by token.
//!
//! Invariants: an error never shows a text in quotes, since it may be a password.

use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::SqlError;

/// The tokens of one statement, without blanks and comments.
#[derive(Clone, Copy)]
pub(in crate::engine::parse) struct Tokens<'a> {
    all: &'a [&'a TokenWithSpan],
    at: usize,
}

impl<'a> Tokens<'a> {
    pub(in crate::engine::parse) fn of(all: &'a [&'a TokenWithSpan]) -> Tokens<'a> {
        Tokens { all, at: 0 }
    }

    fn next(&self, ahead: usize) -> Option<&'a Token> {
        self.all.get(self.at + ahead).map(|token| &token.token)
    }

    /// Whether all tokens are read.
    pub(in crate::engine::parse) fn is_at_end(&self) -> bool {
        self.at >= self.all.len()
    }

    /// Whether the next tokens are these words, however they are written, and not in quotes.
    pub(in crate::engine::parse) fn is_next(&self, words: &str) -> bool {
        words.split(' ').enumerate().all(|(ahead, word)| match self.next(ahead) {
            Some(Token::Word(own)) => own.quote_style.is_none() && own.value.eq_ignore_ascii_case(word),
            _ => false,
        })
    }

    /// Reads these words, if they are next.
    pub(in crate::engine::parse) fn take(&mut self, words: &str) -> bool {
        let is_next = self.is_next(words);
        if is_next {
            self.at += words.split(' ').count();
        }
        is_next
    }

    /// Reads the first of these that is next.
    pub(in crate::engine::parse) fn take_any<'w>(&mut self, all: &[&'w str]) -> Option<&'w str> {
        all.iter().copied().find(|words| self.take(words))
    }

    /// Reads this token, if it is next.
    pub(in crate::engine::parse) fn take_sign(&mut self, sign: &Token) -> bool {
        let is_next = self.next(0) == Some(sign);
        self.at += usize::from(is_next);
        is_next
    }

    /// Reads these words. Errors: 42601.
    pub(in crate::engine::parse) fn expect(&mut self, words: &str) -> Result<(), SqlError> {
        if self.take(words) { Ok(()) } else { Err(self.wrong()) }
    }

    /// Reads this token. Errors: 42601.
    pub(in crate::engine::parse) fn expect_sign(&mut self, sign: &Token) -> Result<(), SqlError> {
        if self.take_sign(sign) { Ok(()) } else { Err(self.wrong()) }
    }

    /// Checks that all tokens are read. Errors: 42601.
    pub(in crate::engine::parse) fn end(&self) -> Result<(), SqlError> {
        if self.is_at_end() { Ok(()) } else { Err(self.wrong()) }
    }

    /// The error for a token that cannot be next, with its place.
    pub(in crate::engine::parse) fn wrong(&self) -> SqlError {
        let Some(token) = self.all.get(self.at) else {
            return SqlError::statement("42601", "syntax error at end of input");
        };
        let shown = match &token.token {
            Token::Word(word) => format!("\"{}\"", word.value),
            Token::Number(number, _) => format!("\"{number}\""),
            sign @ (Token::Comma | Token::LParen | Token::RParen | Token::Period | Token::Eq | Token::Minus) => {
                format!("\"{sign}\"")
            }
            _ => "a value".to_owned(),
        };
        let start = token.span.start;
        let place = format!(" at Line: {}, Column: {}", start.line, start.column);
        SqlError::statement("42601", format!("syntax error at or near {shown}{place}"))
    }

    /// A name as SQL folds it, and whether it was in quotes. Errors: 42601.
    pub(in crate::engine::parse) fn word(&mut self) -> Result<(String, bool), SqlError> {
        let Some(Token::Word(word)) = self.next(0) else { return Err(self.wrong()) };
        self.at += 1;
        match word.quote_style {
            Some(_) => Ok((word.value.clone(), true)),
            None => Ok((word.value.to_lowercase(), false)),
        }
    }

    /// A name as SQL folds it. Errors: 42601.
    pub(in crate::engine::parse) fn name(&mut self) -> Result<String, SqlError> {
        Ok(self.word()?.0)
    }

    /// A name with the schemas before it. Errors: 42601.
    pub(in crate::engine::parse) fn qualified(&mut self) -> Result<Vec<String>, SqlError> {
        let mut parts = vec![self.name()?];
        while self.take_sign(&Token::Period) {
            parts.push(self.name()?);
        }
        Ok(parts)
    }

    /// A text in quotes. Errors: 42601.
    pub(in crate::engine::parse) fn text(&mut self) -> Result<String, SqlError> {
        let text = match self.next(0) {
            Some(Token::SingleQuotedString(text) | Token::EscapedStringLiteral(text)) => text.clone(),
            Some(Token::UnicodeStringLiteral(text)) => text.clone(),
            Some(Token::DollarQuotedString(text)) => text.value.clone(),
            _ => return Err(self.wrong()),
        };
        self.at += 1;
        Ok(text)
    }

    /// A whole number. Errors: 42601.
    pub(in crate::engine::parse) fn number(&mut self) -> Result<i64, SqlError> {
        let is_negative = self.take_sign(&Token::Minus);
        let Some(Token::Number(digits, _)) = self.next(0) else { return Err(self.wrong()) };
        let sign = if is_negative { "-" } else { "" };
        let number: i64 = format!("{sign}{digits}").parse().map_err(|_| self.wrong())?;
        self.at += 1;
        Ok(number)
    }

    /// Whether a number is next.
    pub(in crate::engine::parse) fn is_number_next(&self) -> bool {
        matches!(
            (self.next(0), self.next(1)),
            (Some(Token::Number(..)), _) | (Some(Token::Minus), Some(Token::Number(..)))
        )
    }

    /// Items separated by commas. Errors: those of `read`.
    pub(in crate::engine::parse) fn list<T>(
        &mut self,
        mut read: impl FnMut(&mut Tokens<'a>) -> Result<T, SqlError>,
    ) -> Result<Vec<T>, SqlError> {
        let mut items = vec![read(self)?];
        while self.take_sign(&Token::Comma) {
            items.push(read(self)?);
        }
        Ok(items)
    }
}
