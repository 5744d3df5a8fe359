//! [`BoundedDialect`]: PostgreSQL's dialect, for a parser with a bound on its attempts.
//!
//! The parser first reads words such as CASE as keywords, and if that fails as names; both times it also reads the text
//! that follows. For `SELECT case + case + ..` the time doubles with each further CASE: an hour for one line of text.
//! So each term that the parser begins is counted. A text with many times more terms than tokens is refused as too
//! deep.
//!
//! Nearly everything else is sqlparser's. A test of [`nesting_depth`](super::nesting_depth) checks that nothing is
//! missing here.

use std::any::TypeId;
use std::cell::Cell;

use datafusion::sql::sqlparser::ast::Expr;
use datafusion::sql::sqlparser::dialect::{Dialect, PostgreSqlDialect, Precedence};
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::parser::{Parser, ParserError};

/// Terms that the parser may begin for each token; for a text without errors it begins one or two.
const TRIES_PER_TOKEN: usize = 10;
/// Terms that it may always begin, whatever the length of the text.
const TRIES_MIN: usize = 10_000;

/// The dialect for one text; see the head of this file.
#[derive(Debug)]
pub(crate) struct BoundedDialect {
    tries_left: Cell<usize>,
}

impl BoundedDialect {
    /// A dialect for a text with this number of tokens.
    pub(crate) fn new(tokens: usize) -> BoundedDialect {
        BoundedDialect { tries_left: Cell::new(TRIES_MIN + TRIES_PER_TOKEN * tokens) }
    }
}

/// Methods for which PostgreSQL's dialect returns a constant.
macro_rules! as_in_postgres {
    ($($question:ident)*) => {
        $(fn $question(&self) -> bool {
            PostgreSqlDialect {}.$question()
        })*
    };
}

impl Dialect for BoundedDialect {
    fn dialect(&self) -> TypeId {
        PostgreSqlDialect {}.dialect()
    }

    /// `f('a': 1)` is not supported: each argument would be read twice, and arguments of nested functions twice as
    /// often again.
    fn supports_named_fn_args_with_expr_name(&self) -> bool {
        false
    }

    fn parse_prefix(&self, _: &mut Parser) -> Option<Result<Expr, ParserError>> {
        match self.tries_left.get().checked_sub(1) {
            Some(left) => {
                self.tries_left.set(left);
                None
            }
            // The one error after which the parser usually does not try something else.
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
