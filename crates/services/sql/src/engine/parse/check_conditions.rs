//! The conditions of CHECK constraints as texts: which columns they name, and how the catalogs show them.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, Ident, Visit, Visitor};

use super::ast::{self, folded};
use crate::SqlError;
use crate::table::{Check, Column};

/// The positions of the columns that a condition names.
pub(crate) fn columns_of(condition: &Expr, columns: &[Column]) -> BTreeSet<usize> {
    struct Named<'a>(&'a [Column], BTreeSet<usize>);
    impl Visitor for Named<'_> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if let Some(name) = column_name(expr) {
                self.1.extend(self.0.iter().position(|column| column.name == folded(name)));
            }
            ControlFlow::Continue(())
        }
    }
    let mut named = Named(columns, BTreeSet::new());
    let _ = condition.visit(&mut named);
    named.1
}

fn column_name(expr: &Expr) -> Option<&Ident> {
    match expr {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(parts) => parts.last(),
        _ => None,
    }
}

/// A condition as PostgreSQL's catalogs show it, with the positions of its columns.
pub(crate) fn shown(check: &Check, columns: &[Column]) -> Result<(String, BTreeSet<usize>), SqlError> {
    let condition = ast::expression_of(&check.condition)?;
    let text = match &condition {
        Expr::Nested(_) | Expr::Function(_) | Expr::Identifier(_) | Expr::Value(_) => condition.to_string(),
        _ => format!("({condition})"),
    };
    Ok((text, columns_of(&condition, columns)))
}
