//! The dependencies of views: views read tables and other views, by name, each time they are used.
//!
//! ```text
//!   CREATE OR REPLACE VIEW v   the new query must not read v, directly or not     42P17
//!   DROP, RENAME of t          no view may read t; DROP .. CASCADE drops them     2BP01
//! ```
//!
//! A view is stored as text and planned where it is used, so dependencies are found by walking over names. Two
//! transactions that each change one view can still close a cycle between them: planning a view refuses that too
//! (`session_catalog`).

use std::collections::BTreeSet;

use datafusion::common::TableReference;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::resolve::resolve_table_references;
use datafusion::sql::sqlparser::ast::Statement;

use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::DATABASE;
use crate::table::catalog::PUBLIC;
use crate::table::{Catalog, Entry};

/// Schema and name of an object in the catalog.
pub(crate) type Name = (String, String);

/// How deep views may nest: each one takes stack when it is planned. A dozen is a lot in practice.
pub(crate) const DEEP_MOST: usize = 32;

/// The error for a view that reads itself, directly or through other views.
pub(crate) fn recursion(name: &str) -> SqlError {
    SqlError::statement("42P17", format!("infinite recursion detected in the query of view \"{name}\""))
}

/// The names that a query reads, without its common table expressions.
fn reads(query: Statement) -> Result<BTreeSet<Name>, SqlError> {
    let (references, _) = resolve_table_references(&DfStatement::Statement(Box::new(query)), true)?;
    let name = |reference| match reference {
        TableReference::Bare { table } => Some((PUBLIC.to_string(), table.to_string())),
        TableReference::Partial { schema, table } => Some((schema.to_string(), table.to_string())),
        TableReference::Full { catalog, schema, table } if *catalog == *DATABASE => {
            Some((schema.to_string(), table.to_string()))
        }
        TableReference::Full { .. } => None,
    };
    Ok(references.into_iter().filter_map(name).collect())
}

/// Whether a query reads `name`, directly or through views.
pub(crate) fn reaches(catalog: &Catalog, query: Statement, name: &Name) -> Result<bool, SqlError> {
    let mut open: Vec<Name> = reads(query)?.into_iter().collect();
    let mut seen = BTreeSet::new();
    while let Some(next) = open.pop() {
        if next == *name {
            return Ok(true);
        }
        if seen.insert(next.clone())
            && let Some(Entry::View(view)) = catalog.get(&next.0, &next.1)
        {
            open.extend(reads(ast::parse(&view.sql)?)?);
        }
    }
    Ok(false)
}

/// The views that read one of these objects, directly or through views, each with the object it reads; views among
/// `names` are left out.
pub(crate) fn readers(catalog: &Catalog, names: &[Name]) -> Result<Vec<(Name, Name)>, SqlError> {
    let mut views = Vec::new();
    for (schema, entries) in &catalog.schemas {
        for (name, entry) in entries {
            if let Entry::View(view) = entry {
                views.push(((schema.clone(), name.clone()), reads(ast::parse(&view.sql)?)?));
            }
        }
    }
    let mut reached: Vec<Name> = names.to_vec();
    let mut readers = Vec::new();
    let mut at = 0;
    while at < reached.len() {
        for (view, reads) in &views {
            if reads.contains(&reached[at]) && !reached.contains(view) {
                readers.push((view.clone(), reached[at].clone()));
                reached.push(view.clone());
            }
        }
        at += 1;
    }
    Ok(readers)
}

/// Refuses a change that would remove an object that a view reads. `what` is, for example, `drop table`.
pub(crate) fn refuse_readers(what: &str, readers: &[(Name, Name)]) -> Result<(), SqlError> {
    let Some((_, (_, read))) = readers.first() else { return Ok(()) };
    let lines: Vec<String> =
        readers.iter().map(|((_, view), (_, read))| format!("view {view} depends on {read}")).collect();
    Err(SqlError::statement("2BP01", format!("cannot {what} {read} because other objects depend on it"))
        .with_detail(lines.join("\n"))
        .with_hint("Use DROP .. CASCADE to drop the dependent objects too."))
}
