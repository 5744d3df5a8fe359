//! Statements about roles and rights: from tokens to a [`statement`], which says what was written and nothing else.
//!
//! | file | content |
//! |---|---|
//! | [`statement`] | a parsed statement, as data |
//! | [`parser`], [`privileges_parser`] | PostgreSQL 16's grammar, on [`tokens`] and [`role_names`] |
//! | [`shown`] | a text without its passwords |

pub(crate) mod parser;
mod privileges_parser;
mod role_names;
pub(crate) mod shown;
pub(crate) mod statement;
#[cfg(test)]
mod tests;
pub(super) mod tokens;
