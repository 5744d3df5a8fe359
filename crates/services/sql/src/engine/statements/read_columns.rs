//! Which columns of a changed table a statement reads: in its conditions, its new values and RETURNING.
//!
//! Invariant: it errs to more. A column is read if any expression contains its name, and all are if there is a star.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, SelectItem, Visit, Visitor};

use crate::engine::parse::ast::folded;
use crate::table::Table;

/// The columns that a statement reads.
pub(crate) struct ReadColumns<'a> {
    table: &'a Table,
    read: Vec<bool>,
}

impl<'a> ReadColumns<'a> {
    /// None yet.
    pub(crate) fn of(table: &'a Table) -> ReadColumns<'a> {
        ReadColumns { table, read: vec![false; table.columns.len()] }
    }

    /// Adds what an expression, or several, name.
    pub(crate) fn add(mut self, part: &impl Visit) -> ReadColumns<'a> {
        let _ = part.visit(&mut self);
        self
    }

    /// Adds what RETURNING names.
    pub(crate) fn add_items(mut self, items: Option<&Vec<SelectItem>>) -> ReadColumns<'a> {
        for item in items.into_iter().flatten() {
            match item {
                SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => self = self.add(expr),
                _ => self.read.fill(true),
            }
        }
        self
    }

    /// Adds columns by their positions.
    pub(crate) fn add_at(mut self, columns: &[usize]) -> ReadColumns<'a> {
        columns.iter().for_each(|at| self.read[*at] = true);
        self
    }

    /// Their names.
    pub(crate) fn names(self) -> Vec<String> {
        let read = self.table.columns.iter().zip(self.read).filter(|(_, read)| *read);
        read.map(|(column, _)| column.name.clone()).collect()
    }
}

impl Visitor for ReadColumns<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let named = match expr {
            Expr::Identifier(ident) => std::slice::from_ref(ident),
            Expr::CompoundIdentifier(parts) => parts.as_slice(),
            Expr::Wildcard(_) | Expr::QualifiedWildcard(..) => {
                self.read.fill(true);
                &[]
            }
            _ => &[],
        };
        for ident in named {
            if let Some(at) = self.table.position(&folded(ident)) {
                self.read[at] = true;
            }
        }
        ControlFlow::Continue(())
    }
}
