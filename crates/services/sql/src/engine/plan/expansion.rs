//! [`check`]: how large a query becomes when its common table expressions and views stand where they are named.
//!
//! ```text
//!   with a as (select * from t), b as (select x.i from a x, a y), c as (select x.i from b x, b y) ...
//!        1                       2                             4                               2 to the power of levels
//! ```
//!
//! A plan is a tree: DataFusion copies what a name stands for to each place of the name, and walks over all copies many times
//! before any rule runs. So the size is computed here, from the text, before anything is planned. Each text of a view is read
//! once. What the statement itself has in its text is not bounded here (`nesting_depth` and the text's length do that).

use std::collections::HashMap;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Expr, ObjectName, Query, Statement, Visit, Visitor};

use super::view_dependencies::{DEEP_MOST, Name};
use crate::SqlError;
use crate::engine::parse::ast::{self, folded, resolve};
use crate::table::{Catalog, Entry};

/// Most tables and calls of a query after names were replaced, and most expressions. Fifty views of ten tables each are many.
const RELATIONS_MOST: u64 = 500;
const EXPRESSIONS_MOST: u64 = 50_000;

/// A text may have more than that by itself; then it may be this many times as large.
const TIMES_MOST: u64 = 2;

/// How deep a WITH may lie inside another's table expressions: to find the names in it, DataFusion visits each one twice for
/// each level (55.2).
const WITHIN_MOST: usize = 12;

/// What a part of a query consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Size {
    relations: u64,
    expressions: u64,
}

impl Size {
    const TABLE: Size = Size { relations: 1, expressions: 0 };

    fn add(&mut self, other: Size) {
        self.relations = self.relations.saturating_add(other.relations);
        self.expressions = self.expressions.saturating_add(other.expressions);
    }
}

fn too_complex(why: impl std::fmt::Display) -> SqlError {
    SqlError::statement("54001", "statement too complex").with_detail(why.to_string())
}

/// Refuses a statement that becomes too large. Errors: 54001.
pub(crate) fn check(catalog: &Catalog, statement: &Statement) -> Result<(), SqlError> {
    let mut written = Written::default();
    let _ = statement.visit(&mut written);
    let mut sizes = Sizes { catalog, views: HashMap::new(), open: Vec::new(), scope: Vec::new(), within: 0 };
    let size = sizes.of(statement)?;
    let bound = |most: u64, written: u64| most.max(written.saturating_mul(TIMES_MOST));
    if size.relations > bound(RELATIONS_MOST, written.0.relations)
        || size.expressions > bound(EXPRESSIONS_MOST, written.0.expressions)
    {
        let Size { relations, expressions } = size;
        return Err(too_complex(format!(
            "with its subqueries and views in place it has {relations} tables and {expressions} expressions"
        ))
        .with_hint("Use each common table expression and view fewer times, or store what it returns in a table."));
    }
    Ok(())
}

/// What the text itself has.
#[derive(Default)]
struct Written(Size);

impl Visitor for Written {
    type Break = ();

    fn pre_visit_relation(&mut self, _: &ObjectName) -> ControlFlow<()> {
        self.0.relations += 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<()> {
        self.0.expressions += 1;
        ControlFlow::Continue(())
    }
}

/// The sizes of what names stand for.
struct Sizes<'c> {
    catalog: &'c Catalog,
    views: HashMap<Name, Size>,
    /// The views whose texts are being walked.
    open: Vec<Name>,
    /// The common table expressions in scope, the innermost last.
    scope: Vec<(String, Size)>,
    /// In how many common table expressions this is.
    within: usize,
}

impl Sizes<'_> {
    fn of(&mut self, part: &impl Visit) -> Result<Size, SqlError> {
        let mut walk = Walk { sizes: self, size: Size::default(), below: 0 };
        match part.visit(&mut walk) {
            ControlFlow::Continue(()) => Ok(walk.size),
            ControlFlow::Break(error) => Err(*error),
        }
    }

    /// A query, its table expressions included: each is planned once, also where nothing reads it.
    fn query(&mut self, query: &Query) -> Result<Size, SqlError> {
        let outer = self.scope.len();
        let mut size = Size::default();
        if let Some(with) = &query.with {
            for cte in &with.cte_tables {
                let name = folded(&cte.alias.name);
                if with.recursive {
                    self.scope.push((name.clone(), Size::TABLE));
                }
                self.within += 1;
                if self.within > WITHIN_MOST {
                    return Err(too_complex(format!("WITH inside of WITH is deeper than {WITHIN_MOST}")));
                }
                let of = self.query(&cte.query)?;
                self.within -= 1;
                if with.recursive {
                    self.scope.pop();
                }
                size.add(of);
                self.scope.push((name, of));
            }
        }
        size.add(self.of(&query.body)?);
        size.add(self.of(&query.order_by)?);
        size.add(self.of(&query.limit_clause)?);
        self.scope.truncate(outer);
        Ok(size)
    }

    fn relation(&mut self, name: &ObjectName) -> Result<Size, SqlError> {
        if let [only] = name.0.as_slice()
            && let Some(ident) = only.as_ident()
        {
            let name = folded(ident);
            if let Some((_, size)) = self.scope.iter().rev().find(|(known, _)| *known == name) {
                return Ok(*size);
            }
        }
        let Ok((schema, name)) = resolve(name) else { return Ok(Size::TABLE) };
        match self.catalog.get(&schema, &name) {
            Some(Entry::View(view)) => self.view((schema, name), &view.sql),
            _ => Ok(Size::TABLE),
        }
    }

    fn view(&mut self, name: Name, sql: &str) -> Result<Size, SqlError> {
        if let Some(size) = self.views.get(&name) {
            return Ok(*size);
        }
        // Planning it says what is wrong with it.
        if self.open.contains(&name) || self.open.len() > DEEP_MOST {
            return Ok(Size::TABLE);
        }
        let Ok(query) = ast::parse(sql) else { return Ok(Size::TABLE) };
        self.open.push(name.clone());
        let (scope, within) = (std::mem::take(&mut self.scope), std::mem::take(&mut self.within));
        let size = self.of(&query);
        (self.scope, self.within) = (scope, within);
        self.open.pop();
        let size = size?;
        self.views.insert(name, size);
        Ok(size)
    }
}

/// Adds up one level; a query in it is a level of its own.
struct Walk<'w, 'c> {
    sizes: &'w mut Sizes<'c>,
    size: Size,
    /// In how many queries below this level the visitor is: they are counted, and passed over.
    below: usize,
}

impl Walk<'_, '_> {
    fn add(&mut self, size: Result<Size, SqlError>) -> ControlFlow<Box<SqlError>> {
        match size {
            Ok(size) => {
                self.size.add(size);
                ControlFlow::Continue(())
            }
            Err(error) => ControlFlow::Break(Box::new(error)),
        }
    }
}

impl Visitor for Walk<'_, '_> {
    type Break = Box<SqlError>;

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<Self::Break> {
        self.below += 1;
        if self.below > 1 {
            return ControlFlow::Continue(());
        }
        let size = self.sizes.query(query);
        self.add(size)
    }

    fn post_visit_query(&mut self, _: &Query) -> ControlFlow<Self::Break> {
        self.below -= 1;
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<Self::Break> {
        if self.below > 0 {
            return ControlFlow::Continue(());
        }
        let size = self.sizes.relation(name);
        self.add(size)
    }

    fn pre_visit_expr(&mut self, _: &Expr) -> ControlFlow<Self::Break> {
        if self.below == 0 {
            self.size.expressions = self.size.expressions.saturating_add(1);
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(sql: &str) -> Result<Size, SqlError> {
        let catalog = Catalog::default();
        let mut sizes =
            Sizes { catalog: &catalog, views: HashMap::new(), open: Vec::new(), scope: Vec::new(), within: 0 };
        sizes.of(&ast::parse(sql)?)
    }

    #[test]
    fn names_count_as_often_as_they_are_read() {
        let cases = [
            ("select 1", 0),
            ("select * from t, t as u", 2),
            ("select * from t where a in (select a from u)", 2),
            ("with a as (select * from t) select 1", 1),
            ("with a as (select * from t) select * from a, a as b", 3),
            ("with a as (select * from t), b as (select * from a, a) select * from b, b", 7),
            ("with t as (select * from t, t) select * from (with t as (select 1) select * from t) x, t", 4),
            ("with recursive r as (select 1 union all select * from r) select * from r", 2),
            ("select (with a as (select * from t, t) select count(*) from a), (select count(*) from a)", 5),
        ];
        for (sql, relations) in cases {
            assert_eq!(size(sql).expect("it is SQL").relations, relations, "{sql}");
        }
    }

    #[test]
    fn doubling_and_with_inside_of_with_are_refused_at_once() {
        let mut levels = "with a0 as (select i from t)".to_owned();
        for level in 1..40 {
            levels += &format!(", a{level} as (select x.i from a{0} x, a{0} y)", level - 1);
        }
        let within = (0..40).fold("select 1 as i".to_owned(), |sql, _| format!("with a as ({sql}) select i from a"));
        for sql in [format!("{levels} select * from a39"), within] {
            let error = check(&Catalog::default(), &ast::parse(&sql).expect("it is SQL")).expect_err("it is too large");
            assert_eq!((error.code(), error.to_string().as_str()), ("54001", "statement too complex"));
        }
    }
}
