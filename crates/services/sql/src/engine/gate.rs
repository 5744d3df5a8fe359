//! What a statement may contain: walked once when it is prepared, before anything of it is planned.
//!
//! ```text
//!   text --tokens: how deep?--> parse --statement: only what means something here?--> plan
//! ```
//!
//! The parser knows more of SQL than the engine and DataFusion do, and DataFusion leaves out without a word what it does
//! not plan. Here it is refused by name: locks of rows, samples of tables, lengths in casts. Only expressions and queries
//! are looked at; what belongs to one statement, such as the options of CREATE TABLE, is refused where that statement is
//! run. Names and types are not the gate's: planning finds them.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    CharacterLength, DataType, Expr, Query, Select, Statement, TableFactor, Visit, Visitor,
};

use crate::SqlError;

/// Refuses what would be accepted and ignored. Errors: 0A000.
pub(crate) fn check(statement: &Statement) -> Result<(), SqlError> {
    match statement.visit(&mut Gate) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Gate;

fn refuse(what: impl std::fmt::Display) -> ControlFlow<Box<SqlError>> {
    ControlFlow::Break(Box::new(SqlError::unsupported(what)))
}

fn refuse_with(what: impl std::fmt::Display, hint: &str) -> ControlFlow<Box<SqlError>> {
    ControlFlow::Break(Box::new(SqlError::unsupported(what).with_hint(hint)))
}

/// Refuses the first that is there.
fn refuse_any(found: &[(bool, &str)]) -> ControlFlow<Box<SqlError>> {
    match found.iter().find(|(is, _)| *is) {
        Some((_, what)) => refuse(what),
        None => ControlFlow::Continue(()),
    }
}

impl Visitor for Gate {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        if let Some(lock) = query.locks.first() {
            let hint = "Leave it out: the first transaction to commit a change of a row wins, and the others are told to \
                        run again (40001).";
            return refuse_with(lock, hint);
        }
        refuse_any(&[
            (query.for_clause.is_some(), "FOR XML, JSON or BROWSE"),
            (query.settings.is_some(), "SETTINGS"),
            (query.format_clause.is_some(), "FORMAT"),
        ])
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<Self::Break> {
        refuse_any(&[
            (select.into.is_some(), "SELECT INTO"),
            (select.prewhere.is_some(), "PREWHERE"),
            (!select.connect_by.is_empty(), "CONNECT BY"),
            (!select.distribute_by.is_empty(), "DISTRIBUTE BY"),
            (select.value_table_mode.is_some(), "SELECT AS VALUE or STRUCT"),
            (select.select_modifiers.is_some(), "a modifier of SELECT"),
        ])
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<Self::Break> {
        match factor {
            TableFactor::Table {
                with_hints,
                version,
                with_ordinality,
                partitions,
                json_path,
                sample,
                index_hints,
                ..
            } => refuse_any(&[
                (sample.is_some(), "TABLESAMPLE"),
                (*with_ordinality, "WITH ORDINALITY"),
                (version.is_some(), "a version of a table"),
                (!with_hints.is_empty() || !index_hints.is_empty(), "a hint at a table"),
                (!partitions.is_empty(), "PARTITION at a table"),
                (json_path.is_some(), "a path at a table"),
            ]),
            TableFactor::Derived { sample: Some(_), .. } => refuse("TABLESAMPLE"),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<Self::Break> {
        match expr {
            Expr::Cast { data_type, .. } => cast(data_type),
            Expr::TypedString(typed) => cast(&typed.data_type),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// A type that a value is cast to: one with a length or precision would be taken for the type without.
fn cast(kind: &DataType) -> ControlFlow<Box<SqlError>> {
    use DataType as T;
    match kind {
        T::Timestamp(Some(digits), _) | T::Time(Some(digits), _) if *digits != 6 => {
            refuse_with(format!("a cast to {kind}"), "Times have six digits after the point: use date_trunc.")
        }
        T::Varchar(Some(length)) | T::CharacterVarying(Some(length)) | T::CharVarying(Some(length))
            if *length != CharacterLength::Max =>
        {
            refuse_with(format!("a cast to {kind}"), "Use left(value, length).")
        }
        T::Character(_) | T::Char(_) => refuse_with(format!("a cast to {kind}"), "Use left(value, length)."),
        T::Interval { precision: Some(_), .. } => refuse(format!("a cast to {kind}")),
        _ => ControlFlow::Continue(()),
    }
}
