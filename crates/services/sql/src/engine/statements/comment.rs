//! COMMENT ON: a text about an object, for the catalogs. Its owner says it, as in PostgreSQL, and everybody may read it.
//!
//! A comment about a table, its columns or its indexes takes the table's lock, as every change of a definition does.

use datafusion::sql::sqlparser::ast::{CommentObject, ObjectName};

use super::indexes;
use super::new_object::done;
use crate::SqlError;
use crate::engine::parse::ast::{self, DATABASE, folded, resolve};
use crate::engine::plan::{column_labels, prepared};
use crate::engine::{Session, StatementResult};
use crate::table::comments::{self, CommentPart};
use crate::table::{Entry, ViewDefinition};

/// The tag of the statement.
const WHAT: &str = "COMMENT";

/// What a comment is about.
struct CommentTarget {
    schema: String,
    name: String,
    part: CommentPart,
    /// The number of the table to lock.
    table: Option<u64>,
}

/// Runs COMMENT ON; an empty text is none.
///
/// Errors: 42501 for others than the owner; 42P01, 42703, 3F000, 3D000; 42809 for an object of another kind; 54000 for a long text.
pub(super) async fn comment(
    session: &mut Session,
    object: &CommentObject,
    name: &ObjectName,
    text: Option<&str>,
) -> Result<StatementResult, SqlError> {
    let target = match object {
        CommentObject::Table | CommentObject::View | CommentObject::Sequence => relation(session, object, name)?,
        CommentObject::Column => column(session, name).await?,
        CommentObject::Index => index(session, name)?,
        CommentObject::Schema => schema(session, name)?,
        CommentObject::Database => database(session, name)?,
        other => return Err(SqlError::unsupported(format!("COMMENT ON {other}"))),
    };
    if let Some(table) = target.table {
        session.changing_alone(WHAT, table)?;
    }
    let text = text.filter(|text| !text.is_empty()).map(str::to_owned);
    let (tree, transaction) = (session.engine.catalog, session.changing(WHAT)?);
    transaction.defines = true;
    transaction.with(|transaction| {
        let of = (target.schema.as_str(), target.name.as_str());
        comments::change(transaction, tree, of, |comments| comments.set(target.part, text))
    })?;
    done(WHAT)
}

/// The object of a name, which the session owns. Errors: 3F000, 42P01, 42501.
fn owned(session: &Session, name: &ObjectName) -> Result<((String, String), Entry), SqlError> {
    let (schema, name) = resolve(name)?;
    let catalog = session.shared.catalog();
    if !catalog.schemas.contains_key(&schema) {
        return Err(missing_schema(&schema));
    }
    let access = session.access();
    if let Some(access) = &access {
        access.schema(&schema)?;
    }
    let Some(entry) = catalog.get(&schema, &name) else {
        return Err(SqlError::statement("42P01", format!("relation \"{name}\" does not exist")));
    };
    if let Some(access) = &access {
        let what = match entry {
            Entry::View(_) => "view",
            Entry::Sequence(_) => "sequence",
            _ => "table",
        };
        access.own(what, &schema, &name)?;
        session.shared.still(access, &schema, &name, true)?;
    }
    let entry = entry.clone();
    Ok(((schema, name), entry))
}

fn relation(session: &Session, object: &CommentObject, name: &ObjectName) -> Result<CommentTarget, SqlError> {
    let ((schema, name), entry) = owned(session, name)?;
    let (is_right, what) = match object {
        CommentObject::View => (matches!(entry, Entry::View(_)), "view"),
        CommentObject::Sequence => (matches!(entry, Entry::Sequence(_)), "sequence"),
        _ => (!matches!(entry, Entry::View(_) | Entry::Sequence(_)), "table"),
    };
    if !is_right {
        return Err(SqlError::statement("42809", format!("\"{name}\" is not a {what}")));
    }
    Ok(CommentTarget { schema, name, part: CommentPart::Whole, table: number_of(&entry) })
}

/// The number of a table that has a lock.
fn number_of(entry: &Entry) -> Option<u64> {
    match entry {
        Entry::Table(table) => Some(table.id),
        _ => None,
    }
}

/// Errors: those of [`owned`]; 42601 for a column without a table, 42703.
async fn column(session: &Session, name: &ObjectName) -> Result<CommentTarget, SqlError> {
    let unqualified = || SqlError::statement("42601", "column name must be qualified");
    let (last, table) = name.0.split_last().ok_or_else(unqualified)?;
    let column = last.as_ident().map(folded).ok_or_else(unqualified)?;
    if table.is_empty() {
        return Err(unqualified());
    }
    let ((schema, name), entry) = owned(session, &ObjectName(table.to_vec()))?;
    let is_it = |known: &String| *known == column;
    let part = match &entry {
        Entry::Table(table) => table.position(&column).map(|_| CommentPart::Column(column.clone())),
        Entry::External(table) => {
            let mut fields = table.schema.fields().iter();
            fields.any(|field| is_it(field.name())).then(|| CommentPart::Column(column.clone()))
        }
        Entry::Virtual(table) => {
            let schema = table.schema();
            schema.fields().iter().any(|field| is_it(field.name())).then(|| CommentPart::Column(column.clone()))
        }
        Entry::View(view) => position(session, view, &column).await?.map(CommentPart::Position),
        Entry::Sequence(_) => {
            return Err(SqlError::statement("42809", format!("cannot set comment on relation \"{name}\""))
                .with_detail("This operation is not supported for sequences."));
        }
    };
    let Some(part) = part else {
        let message = format!("column \"{column}\" of relation \"{name}\" does not exist");
        return Err(SqlError::statement("42703", message));
    };
    Ok(CommentTarget { schema, name, part, table: number_of(&entry) })
}

/// The position of a view's column, from 1.
async fn position(session: &Session, view: &ViewDefinition, column: &str) -> Result<Option<u32>, SqlError> {
    let query = ast::parse(&view.sql)?;
    let plan = prepared::plan_query(&session.context, &query).await?;
    let labelled = column_labels::labelled(&query, plan.schema().inner());
    let found = (1u32..).zip(labelled.fields()).find(|(_, field)| field.name() == column);
    Ok(found.map(|(position, _)| position))
}

/// Errors: 42P01, 42809, 42501.
fn index(session: &Session, name: &ObjectName) -> Result<CommentTarget, SqlError> {
    let (table, at) = indexes::find(session, name).map_err(|error| match error.code() {
        "42704" => SqlError::statement("42P01", format!("relation \"{name}\" does not exist")),
        _ => error,
    })?;
    let index = at.map_or(&table.key_name, |at| &table.indexes[at].name).clone();
    let (schema, name) = (table.schema_name.clone(), table.name.clone());
    Ok(CommentTarget { schema, name, part: CommentPart::Index(index), table: Some(table.id) })
}

/// Errors: 3F000, 42501.
fn schema(session: &Session, name: &ObjectName) -> Result<CommentTarget, SqlError> {
    let schema = one_name(name)?;
    if !session.shared.catalog().schemas.contains_key(&schema) {
        return Err(missing_schema(&schema));
    }
    if let Some(access) = session.access() {
        access.own_schema(&schema)?;
    }
    Ok(CommentTarget { schema, name: String::new(), part: CommentPart::Whole, table: None })
}

/// Errors: 3D000, 42501.
fn database(session: &Session, name: &ObjectName) -> Result<CommentTarget, SqlError> {
    let database = one_name(name)?;
    if database != DATABASE {
        return Err(SqlError::statement("3D000", format!("database \"{database}\" does not exist")));
    }
    if let Some(access) = session.access() {
        access.own_database()?;
    }
    Ok(CommentTarget { schema: String::new(), name: String::new(), part: CommentPart::Whole, table: None })
}

/// A name without a schema. Errors: 42601.
fn one_name(name: &ObjectName) -> Result<String, SqlError> {
    match name.0.as_slice() {
        [part] => part.as_ident().map(folded),
        _ => None,
    }
    .ok_or_else(|| SqlError::statement("42601", format!("\"{name}\" has to be one name")))
}

fn missing_schema(schema: &str) -> SqlError {
    SqlError::statement("3F000", format!("schema \"{schema}\" does not exist"))
}
