//! Comments in the catalogs: pg_description and pg_shdescription, `obj_description`, `col_description`, `shobj_description`. As in
//! PostgreSQL everybody may read them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::array::{AsArray, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::DataType;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs};
use datafusion::prelude::SessionContext;
use datafusion::scalar::ScalarValue;

use super::backends::DATABASE;
use super::catalog_row::{Row, int, text};
use super::constant_functions::{add, numbers};
use super::session_objects::{Facts, Moment, Relation};
use crate::table::Comments;

/// PostgreSQL's OIDs of catalogs: those of tables, of schemas and of databases.
const PG_CLASS: u32 = 1259;
const PG_NAMESPACE: u32 = 2615;
const PG_DATABASE: u32 = 1262;

/// A comment: the OIDs of its object and of the object's catalog, the number of a column or 0, and its text.
struct ShownComment<'m> {
    object: u32,
    catalog: u32,
    part: usize,
    text: &'m str,
}

/// All comments but that of the database.
fn all(moment: &Moment) -> Vec<ShownComment<'_>> {
    let mut relations: HashMap<(String, String), &Relation> = HashMap::new();
    for relation in &moment.relations {
        relations.insert((relation.namespace.name.clone(), relation.name.clone()), relation);
    }
    let mut all = Vec::new();
    for (of, comments) in &moment.catalog.comments {
        let (schema, name) = of;
        if let Some(relation) = relations.get(of) {
            add_relation(&mut all, relation, comments);
        } else if name.is_empty() {
            let namespace = moment.namespaces.iter().find(|namespace| namespace.name == *schema);
            let whole = namespace.zip(comments.whole.as_deref());
            all.extend(whole.map(|(namespace, text)| ShownComment {
                object: namespace.oid,
                catalog: PG_NAMESPACE,
                part: 0,
                text,
            }));
        }
    }
    all
}

fn add_relation<'m>(all: &mut Vec<ShownComment<'m>>, relation: &Relation, comments: &'m Comments) {
    let mut push = |object: u32, part: usize, text: &'m str| {
        all.push(ShownComment { object, catalog: PG_CLASS, part, text });
    };
    if let Some(text) = &comments.whole {
        push(relation.oid, 0, text);
    }
    for (column, text) in &comments.columns {
        if let Ok(at) = relation.columns.index_of(column) {
            push(relation.oid, at + 1, text);
        }
    }
    for (position, text) in &comments.positions {
        push(relation.oid, *position as usize, text);
    }
    for (name, text) in &comments.indexes {
        if let Some(index) = relation.indexes.iter().find(|index| index.name == *name) {
            push(relation.index_oid(index), 0, text);
        }
    }
}

/// What is said about the database.
fn of_database(moment: &Moment) -> Option<&str> {
    moment.catalog.comments.get(&(String::new(), String::new()))?.whole.as_deref()
}

/// Rows of `pg_description`.
pub(super) fn descriptions(moment: &Moment) -> Vec<Row> {
    let row = |described: ShownComment<'_>| {
        vec![
            ("objoid", int(described.object)),
            ("classoid", int(described.catalog)),
            ("objsubid", ScalarValue::from(described.part as i32)),
            ("description", text(described.text)),
        ]
    };
    all(moment).into_iter().map(row).collect()
}

/// Rows of `pg_shdescription`.
pub(super) fn shared(moment: &Moment) -> Vec<Row> {
    let row = |said: &str| {
        vec![("objoid", ScalarValue::from(DATABASE)), ("classoid", int(PG_DATABASE)), ("description", text(said))]
    };
    of_database(moment).map(row).into_iter().collect()
}

/// Registers the functions.
pub(super) fn register(context: &SessionContext, facts: &Facts) {
    let of = facts.clone();
    add(context, "obj_description", DataType::Utf8, move |args| {
        let catalogs = catalogs(args)?;
        let moment = of.now();
        let mut known: HashMap<u32, Vec<ShownComment<'_>>> = HashMap::new();
        for one in all(&moment).into_iter().filter(|one| one.part == 0) {
            known.entry(one.object).or_default().push(one);
        }
        let found = numbers(args, 0)?.into_iter().enumerate().map(|(row, object)| {
            let object = u32::try_from(object?).ok()?;
            let catalog = match &catalogs {
                Some(catalogs) => Some(catalogs.get(row).copied().flatten()?),
                None => None,
            };
            let is_it = |one: &&ShownComment<'_>| catalog.is_none_or(|catalog| catalog == one.catalog);
            known.get(&object)?.iter().find(is_it).map(|one| one.text)
        });
        Ok(ColumnarValue::Array(Arc::new(found.collect::<StringArray>())))
    });
    let of = facts.clone();
    add(context, "col_description", DataType::Utf8, move |args| {
        let moment = of.now();
        let known: HashMap<(u32, usize), &str> = all(&moment)
            .into_iter()
            .filter(|one| one.catalog == PG_CLASS)
            .map(|one| ((one.object, one.part), one.text))
            .collect();
        let pairs = numbers(args, 0)?.into_iter().zip(numbers(args, 1)?);
        let found = pairs.map(|(object, part)| {
            let (object, part) = (u32::try_from(object?).ok()?, usize::try_from(part?).ok()?);
            // 0 is the table itself, which obj_description tells.
            known.get(&(object, part)).copied().filter(|_| part > 0)
        });
        Ok(ColumnarValue::Array(Arc::new(found.collect::<StringArray>())))
    });
    let of = facts.clone();
    add(context, "shobj_description", DataType::Utf8, move |args| {
        let catalogs = catalogs(args)?.unwrap_or_default();
        let moment = of.now();
        let found = numbers(args, 0)?.into_iter().enumerate().map(|(row, object)| {
            let is_database = catalogs.get(row).copied().flatten() == Some(PG_DATABASE);
            of_database(&moment).filter(|_| is_database && object == Some(i64::from(DATABASE)))
        });
        Ok(ColumnarValue::Array(Arc::new(found.collect::<StringArray>())))
    });
}

/// The OID of the catalog that the second argument names in each row, if there is one; `None` for other catalogs, whose objects have
/// no comments.
fn catalogs(args: &ScalarFunctionArgs) -> Result<Option<Vec<Option<u32>>>> {
    let Some(named) = args.args.get(1) else { return Ok(None) };
    let named = cast(&named.to_array(args.number_rows)?, &DataType::Utf8)?;
    let catalog = |name: Option<&str>| match name? {
        "pg_class" => Some(PG_CLASS),
        "pg_namespace" => Some(PG_NAMESPACE),
        "pg_database" => Some(PG_DATABASE),
        _ => None,
    };
    Ok(Some(named.as_string::<i32>().iter().map(catalog).collect()))
}
