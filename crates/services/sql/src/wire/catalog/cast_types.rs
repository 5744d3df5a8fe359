//! [`CatalogCastTypes`]: the types that catalog queries cast to and that columns here cannot have: OID types (`oid`,
//! `regclass`), `name`, `"char"`, and all other types behind the name of their schema.
//!
//! The field of such a type has no metadata. DataFusion's logical plan keeps the metadata of the cast expression, its
//! physical plan that of the type, and a plan whose two forms differ is refused.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::error::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{self, Ident, ObjectName};

use super::object_identifiers::scalar_of;
use crate::engine::parse::ast::folded;
use crate::engine::semantics::cast_types::CastTypes;
use crate::wire::oid::Kind;

/// Types whose values are numbers here.
const NUMBERS: [&str; 12] = [
    "oid",
    "xid",
    "regclass",
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regprocedure",
    "regrole",
    "regtype",
];

/// Types whose values are texts here; columns of type regproc contain names.
const TEXTS: [&str; 3] = ["name", "regproc", "pg_node_tree"];

/// The type planner of a session that has queried the catalogs.
#[derive(Debug)]
pub(super) struct CatalogCastTypes;

impl TypePlanner for CatalogCastTypes {
    fn plan_type_field(&self, kind: &ast::DataType) -> Result<Option<FieldRef>> {
        let arrow = match kind {
            ast::DataType::Regclass => Some(DataType::Int32),
            ast::DataType::Custom(name, size) if size.is_empty() => named(name),
            _ => None,
        };
        match arrow {
            Some(arrow) => Ok(Some(Arc::new(Field::new("", arrow, true)))),
            None => CastTypes.plan_type_field(kind),
        }
    }
}

fn named(name: &ObjectName) -> Option<DataType> {
    let parts: Vec<&Ident> = name.0.iter().filter_map(|part| part.as_ident()).collect();
    let (of_schema, word) = match parts.as_slice() {
        [word] => (false, word),
        [schema, word] if folded(schema) == super::SCHEMA => (true, word),
        _ => return None,
    };
    let is_char = word.quote_style.is_some() && word.value == "char";
    let word = folded(word);
    if NUMBERS.contains(&word.as_str()) {
        Some(DataType::Int32)
    } else if is_char || TEXTS.contains(&word.as_str()) {
        Some(DataType::Utf8)
    } else {
        of_schema.then(|| Kind::One(scalar_of(&word)?).arrow()).flatten()
    }
}
