//! [`Patient`]: PostgreSQL's dialect, for a parser that gives up.
//!
//! The parser tries words such as CASE as what they are, and where that fails as names; and what follows with them, both
//! times. `SELECT case + case + ..` takes it twice as long with each CASE more: an hour for a line of text. So each term that it
//! begins is counted, and a text that takes many times as many as it has tokens is told to be too deep.
//!
//! Nearly everything else is sqlparser's; that nothing is missing here is a test of [`depth`](super::depth).

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// Terms that the parser may begin for each token; a text without errors takes one or two.
const TRIES_PER_TOKEN: usize = 10;
/// And for a text whatever its length.
const TRIES_MIN: usize = 10_000;

/// See the file's essay; for one text.
#[derive(Debug)]
pub(crate) struct Patient {
    tries_left: Cell<usize>,
}

impl Patient {
    /// For a text of so many tokens.
    pub(crate) fn new(tokens: usize) -> Patient {
        Patient { tries_left: Cell::new(TRIES_MIN + TRIES_PER_TOKEN * tokens) }
    }
}

/// Questions that PostgreSQL's dialect answers without looking at anything.
macro_rules! as_in_postgres {
    ($($question:ident)*) => {
        $(fn $question(&self) -> bool {
            PostgreSqlDialect {}.$question()
        })*
    };
}

impl Dialect for Patient {
    fn dialect(&self) -> TypeId {
        PostgreSqlDialect {}.dialect()
    }

    /// No `f('a': 1)`: for it each argument would be read twice, and what is in the arguments of its functions twice as often.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        match self.tries_left.get().checked_sub(1) {
            Some(left) => {
                self.tries_left.set(left);
                None
            }
            // The one error that the parser mostly does not answer by trying something else.
            None => Some(Err(ParserError::RecursionLimitExceeded)),
        }
    }

    fn identifier_quote_style(&self, identifier: &str) -> Option<char> {
        PostgreSqlDialect {}.identifier_quote_style(identifier)
    }

    fn is_delimited_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_delimited_identifier_start(ch)
    }

    fn is_identifier_start(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_start(ch)
    }

    fn is_identifier_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_identifier_part(ch)
    }

    fn is_reserved_for_identifier(&self, kw: Keyword) -> bool {
        PostgreSqlDialect {}.is_reserved_for_identifier(kw)
    }

    fn is_custom_operator_part(&self, ch: char) -> bool {
        PostgreSqlDialect {}.is_custom_operator_part(ch)
    }

    fn get_next_precedence(&self, parser: &Parser) -> Option<Result<u8, ParserError>> {
        PostgreSqlDialect {}.get_next_precedence(parser)
    }

    fn prec_value(&self, prec: Precedence) -> u8 {
        PostgreSqlDialect {}.prec_value(prec)
    }

    as_in_postgres! {
        supports_unicode_string_literal
        supports_filter_during_aggregation
        supports_group_by_expr
        allow_extract_custom
        allow_extract_single_quotes
        supports_create_index_with_clause
        supports_explain_with_utility_options
        supports_listen_notify
        supports_factorial_operator
        supports_bitwise_shift_operators
        supports_comment_on
        supports_load_extension
        supports_named_fn_args_with_colon_operator
        supports_empty_projections
        supports_nested_comments
        supports_string_escape_constant
        supports_numeric_literal_underscores
        supports_array_typedef_with_brackets
        supports_geometric_types
        supports_set_names
        supports_alter_column_type_using
        supports_notnull_operator
        supports_interval_options
        supports_insert_table_alias
        supports_create_table_like_parenthesized
        supports_select_wildcard_with_alias
        supports_comma_separated_trim
        supports_xml_expressions
        supports_comment_optimizer_hint
    }
}
