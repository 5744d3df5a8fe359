//! MOVE, which the parser does not know: it is FETCH whose rows are counted and not returned.

use datafusion::sql::sqlparser::ast::{Ident, ObjectName, Statement};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan};

/// Where a parsed MOVE has its rows: SQL cannot write this name without quotes.
const NOWHERE: &str = "$move";

/// The tokens of the FETCH that a MOVE is; `None` if it is another statement.
pub(super) fn as_fetch(part: &[TokenWithSpan]) -> Option<Vec<TokenWithSpan>> {
    let first = part.iter().position(|token| !matches!(token.token, Token::Whitespace(_)))?;
    let mut tokens = part.to_vec();
    match &mut tokens[first].token {
        Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("move") => {
            (word.value, word.keyword) = ("FETCH".to_owned(), Keyword::FETCH);
        }
        _ => return None,
    }
    Some(tokens)
}

/// Marks a parsed FETCH as MOVE. One with INTO stays as it is, and is refused.
pub(super) fn mark(statement: &mut Statement) {
    if let Statement::Fetch { into: into @ None, .. } = statement {
        *into = Some(ObjectName::from(vec![Ident::new(NOWHERE)]));
    }
}

/// Whether a FETCH is MOVE.
pub(crate) fn is_move(into: Option<&ObjectName>) -> bool {
    let first = into.and_then(|name| name.0.first()?.as_ident());
    first.is_some_and(|name| name.quote_style.is_none() && name.value == NOWHERE)
}
