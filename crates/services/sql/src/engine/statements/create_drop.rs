//! Statements that create and drop tables, views and schemas. They are part of the transaction like any other
//! statement.

use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{
    CreateTable, CreateTableOptions, ObjectName, ObjectType, SchemaName, SqlOption, Statement, Truncate,
    TruncateIdentityOption,
};
use node::identity::{Action, Object, ObjectChange};
use store::TreeId;

use super::bulk_load::BulkLoad;
use super::column_definitions::{self, ReadTable, check_names};
use super::new_object::{created, done, free, taken};
use super::{changed_table, check_constraints, foreign_keys, indexes, sequences};
use crate::SqlError;
use crate::engine::parse::ast::resolve;
use crate::engine::plan::access::{exactly, table_object};
use crate::engine::plan::{column_labels, view_dependencies};
use crate::engine::semantics::assignment_casts::assign;
use crate::engine::{Session, StatementResult};
use crate::table::catalog::{self, PUBLIC};
use crate::table::{Column, ColumnStore, Entry, SqlType, Table};

pub(crate) async fn create_table(session: &mut Session, create: &CreateTable) -> Result<StatementResult, SqlError> {
    refuse_options(create)?;
    let Some((schema, name)) = free(session, &create.name, create.if_not_exists)? else {
        return done("CREATE TABLE");
    };
    let rows = match &create.query {
        Some(query) if create.columns.is_empty() && create.constraints.is_empty() => {
            let query = Statement::Query(query.clone());
            let (schema, batches) = changed_table::collect(session, &query, &[]).await?;
            Some((batches, column_labels::labelled(&query, &schema)))
        }
        Some(_) => return Err(SqlError::unsupported("CREATE TABLE AS with columns of its own")),
        None => None,
    };
    let mut read = match &rows {
        Some((_, schema)) => {
            let column = |field: &Arc<Field>| {
                let kind = SqlType::from_arrow(field)?;
                Ok(Column::new(field.name(), kind))
            };
            let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, SqlError>>()?;
            ReadTable { columns, ..ReadTable::default() }
        }
        None => column_definitions::read_columns(session, create, (&schema, &name)).await?,
    };
    check_names(&read.columns)?;
    let asked = std::mem::take(&mut read.sequences);
    let made = sequences::name_sequences(session, (&schema, &name), &mut read.columns, asked)?;
    // As in PostgreSQL the sequences are there before the indexes.
    if let Some((_, sequence)) = made.iter().find(|(_, sequence)| read.gives_name(&sequence.name)) {
        return Err(taken(&sequence.name));
    }
    let table = make_table(session, schema, name, read).await?;
    sequences::create_owned(session, "CREATE TABLE", &table, made)?;
    let Some((batches, _)) = rows else {
        return done("CREATE TABLE");
    };
    let engine = session.engine.clone();
    let transaction = session.changing("CREATE TABLE AS")?;
    let mut bulk = BulkLoad::new(&engine, &table);
    for batch in batches {
        let values = batch.columns().iter().zip(&table.columns).map(|(array, column)| assign(array, column, false));
        bulk.push(transaction, values.collect::<Result<_, _>>()?)?;
    }
    let count = bulk.finish(transaction)?;
    Ok(StatementResult::Done { tag: format!("SELECT {count}") })
}

/// Creates a table's tree and stores its definition.
async fn make_table(
    session: &mut Session,
    schema_name: String,
    name: String,
    read: ReadTable,
) -> Result<Arc<Table>, SqlError> {
    let ReadTable { columns, key, key_name, checks, uniques, foreign_keys: foreign, .. } = read;
    let id = session.engine.next_number();
    session.changing("CREATE TABLE")?.lock(id, true)?;
    let (storage, rows) = make_storage(session, "CREATE TABLE")?;
    let (schema, addressed) = Table::schemas(&columns, &key);
    let mut table = Table {
        schema_name,
        name,
        id,
        storage,
        columns,
        key,
        key_name,
        checks: Vec::new(),
        indexes: Vec::new(),
        foreign_keys: Vec::new(),
        referenced: Vec::new(),
        rows,
        schema,
        addressed,
    };
    check_constraints::add(session, &mut table, &checks).await?;
    indexes::declare(session, &mut table, uniques)?;
    for new in foreign {
        foreign_keys::add(session, "CREATE TABLE", &mut table, new)?;
    }
    let (tree, transaction) = (session.engine.catalog, session.changing("CREATE TABLE")?);
    transaction.with(|transaction| {
        if !table.key.is_empty() {
            catalog::take_name(transaction, tree, &table.schema_name, &table.key_name);
        }
        catalog::put_table(transaction, tree, &table)
    })?;
    created(session, "CREATE TABLE", table_object(&table.schema_name, &table.name))?;
    Ok(Arc::new(table))
}

pub(crate) fn create_schema(
    session: &mut Session,
    name: &SchemaName,
    if_not_exists: bool,
) -> Result<StatementResult, SqlError> {
    let SchemaName::Simple(name) = name else {
        return Err(SqlError::unsupported("CREATE SCHEMA .. AUTHORIZATION"));
    };
    let (_, name) = resolve(name)?;
    if name.starts_with("pg_") || name == "information_schema" || name.starts_with('$') {
        return Err(SqlError::statement("42939", format!("unacceptable schema name \"{name}\"")));
    }
    if let Some(access) = session.access() {
        access.make_schema()?;
    }
    if session.shared.catalog().schemas.contains_key(&name) {
        return match if_not_exists {
            true => done("CREATE SCHEMA"),
            false => Err(SqlError::statement("42P06", format!("schema \"{name}\" already exists"))),
        };
    }
    let tree = session.engine.catalog;
    let transaction = session.changing("CREATE SCHEMA")?;
    transaction.defines = true;
    transaction.with(|transaction| catalog::put_schema(transaction, tree, &name))?;
    created(session, "CREATE SCHEMA", Object::Schema(&name))?;
    done("CREATE SCHEMA")
}

pub(crate) fn drop_objects(
    session: &mut Session,
    kind: &ObjectType,
    if_exists: bool,
    names: &[ObjectName],
    cascade: bool,
) -> Result<StatementResult, SqlError> {
    if cascade && *kind == ObjectType::Schema {
        return Err(SqlError::unsupported("CASCADE").with_hint("Drop the dependent objects first."));
    }
    match kind {
        ObjectType::Sequence => return sequences::drop(session, names, if_exists, cascade),
        ObjectType::Index => return indexes::drop(session, names, if_exists),
        _ => {}
    }
    let tag = match kind {
        ObjectType::Table => "DROP TABLE",
        ObjectType::View => "DROP VIEW",
        ObjectType::Schema => "DROP SCHEMA",
        other => return Err(SqlError::unsupported(format!("DROP {other}"))),
    };
    if *kind != ObjectType::Schema {
        for name in names {
            let (schema, name) = resolve(name)?;
            let known = session.shared.catalog().get(&schema, &name).cloned();
            may_drop(session, &schema, &name, known.as_ref())?;
        }
        drop_readers(session, names, tag, cascade)?;
        if *kind == ObjectType::Table {
            foreign_keys::drop_of_others(session, names, cascade)?;
        }
    }
    for name in names {
        let (schema, name) = resolve(name)?;
        if *kind == ObjectType::Schema {
            drop_schema(session, &name, if_exists)?;
            continue;
        }
        let known = session.shared.catalog().get(&schema, &name).cloned();
        may_drop(session, &schema, &name, known.as_ref())?;
        let (tree, transaction) = (session.engine.catalog, session.changing(tag)?);
        transaction.defines = true;
        let is_there = known.is_some();
        match (known, kind) {
            (None, _) if if_exists => {}
            (None, _) => {
                let what = if *kind == ObjectType::View { "view" } else { "table" };
                return Err(SqlError::statement("42P01", format!("{what} \"{name}\" does not exist")));
            }
            (Some(Entry::Table(table)), ObjectType::Table) => {
                discard_rows(session, &table)?;
                sequences::drop_owned(session, tag, table.id, None, cascade)?;
                session.changing(tag)?.with(|transaction| catalog::remove(transaction, tree, &schema, &name))?;
            }
            (Some(Entry::View(_)), ObjectType::View) | (Some(Entry::External(_)), ObjectType::Table) => {
                transaction.with(|transaction| catalog::remove(transaction, tree, &schema, &name))?;
            }
            (Some(_), _) => {
                return Err(SqlError::statement("42809", format!("{tag}: \"{name}\" is an object of another kind")));
            }
        }
        if is_there {
            let dropped = exactly(table_object(&schema, &name))?;
            session.objects_changed(tag, vec![ObjectChange::Dropped(dropped)])?;
        }
        session.refresh()?;
    }
    done(tag)
}

/// Only the owner drops an object. Errors: 42501.
fn may_drop(session: &Session, schema: &str, name: &str, known: Option<&Entry>) -> Result<(), SqlError> {
    let Some(access) = session.access() else { return Ok(()) };
    match known {
        Some(Entry::View(_)) => access.own("view", schema, name),
        Some(Entry::Sequence(_)) => access.own("sequence", schema, name),
        Some(_) => access.own("table", schema, name),
        None if session.shared.catalog().schemas.contains_key(schema) => access.schema(schema),
        None => Ok(()),
    }
}

/// The views that read the objects to be dropped: the statement is refused, or drops them too.
fn drop_readers(session: &mut Session, names: &[ObjectName], tag: &str, cascade: bool) -> Result<(), SqlError> {
    let names: Vec<view_dependencies::Name> = names.iter().map(resolve).collect::<Result<_, _>>()?;
    let readers = view_dependencies::readers(&session.shared.catalog(), &names)?;
    if !cascade {
        return view_dependencies::refuse_readers(&tag.to_lowercase(), &readers);
    }
    let tree = session.engine.catalog;
    for ((schema, name), _) in &readers {
        let transaction = session.changing(tag)?;
        transaction.defines = true;
        transaction.with(|transaction| catalog::remove(transaction, tree, schema, name))?;
        let dropped = exactly(table_object(schema, name))?;
        session.objects_changed(tag, vec![ObjectChange::Dropped(dropped)])?;
    }
    session.refresh()
}

/// Removes all rows of a table; afterwards the transaction has the table's lock alone.
pub(crate) fn discard_rows(session: &mut Session, table: &Table) -> Result<(), SqlError> {
    let columns = session.engine.columns.clone();
    let transaction = session.changing_alone("DROP TABLE", table.id)?;
    transaction.with(|transaction| {
        columns.discard(transaction, table)?;
        indexes::drop_trees(transaction, table)?;
        Ok(transaction.drop_tree(&format!("sql.rows.{}", table.storage))?)
    })
}

fn drop_schema(session: &mut Session, name: &str, if_exists: bool) -> Result<(), SqlError> {
    let catalog = session.shared.catalog();
    let tree = session.engine.catalog;
    match catalog.schemas.get(name) {
        None if if_exists => Ok(()),
        None => Err(SqlError::statement("3F000", format!("schema \"{name}\" does not exist"))),
        Some(_) if name == PUBLIC => Err(SqlError::unsupported("dropping schema public")),
        Some(names) if !names.is_empty() => {
            session.access().map_or(Ok(()), |access| access.own_schema(name))?;
            Err(SqlError::statement("2BP01", format!("cannot drop schema {name} because other objects depend on it")))
        }
        Some(_) => {
            if let Some(access) = session.access() {
                access.own_schema(name)?;
            }
            let transaction = session.changing("DROP SCHEMA")?;
            transaction.defines = true;
            transaction.with(|transaction| catalog::remove_schema(transaction, tree, name))?;
            let dropped = exactly(Object::Schema(name))?;
            session.objects_changed("DROP SCHEMA", vec![ObjectChange::Dropped(dropped)])?;
            session.refresh()
        }
    }
}

pub(crate) fn truncate(session: &mut Session, tables: &Truncate) -> Result<StatementResult, SqlError> {
    if tables.partitions.is_some() || tables.cascade.is_some() {
        return Err(SqlError::unsupported("TRUNCATE with options"));
    }
    let names: Vec<&ObjectName> = tables.table_names.iter().map(|target| &target.name).collect();
    for name in &names {
        changed_table::table(session, name, Action::TableTruncate)?;
    }
    foreign_keys::refuse_truncate(session, &names)?;
    for target in &tables.table_names {
        let table = changed_table::table(session, &target.name, Action::TableTruncate)?;
        discard_rows(session, &table)?;
        let (storage, rows) = make_storage(session, "TRUNCATE TABLE")?;
        let mut table = Table { storage, rows, ..(*table).clone() };
        indexes::make_trees(session, "TRUNCATE TABLE", &mut table)?;
        let (tree, transaction) = (session.engine.catalog, session.changing("TRUNCATE TABLE")?);
        transaction.with(|transaction| catalog::put_table(transaction, tree, &table))?;
        if tables.identity == Some(TruncateIdentityOption::Restart) {
            sequences::restart_owned(session, table.id)?;
        }
    }
    done("TRUNCATE TABLE")
}

/// Creates an empty storage for the rows of a table: its number and the tree of the delta store.
pub(crate) fn make_storage(session: &mut Session, what: &str) -> Result<(u64, TreeId), SqlError> {
    let engine = session.engine.clone();
    let storage = engine.next_number();
    let transaction = session.changing(what)?;
    transaction.defines = true;
    let rows = transaction.with(|transaction| Ok(transaction.create_tree(&format!("sql.rows.{storage}"))?))?;
    engine.fresh(storage);
    Ok((storage, rows))
}

/// Refuses options of a table that are not supported; none is accepted and ignored.
fn refuse_options(create: &CreateTable) -> Result<(), SqlError> {
    let odd = [
        (create.temporary, "TEMPORARY"),
        (create.or_replace, "OR REPLACE"),
        (create.like.is_some(), "LIKE"),
        (create.inherits.is_some(), "INHERITS"),
        (create.partition_by.is_some() || create.partition_of.is_some(), "PARTITION"),
        (create.on_commit.is_some(), "ON COMMIT"),
        (!are_known(&create.table_options)?, "an option of storage"),
    ];
    match odd.iter().find(|(is, _)| *is) {
        Some((_, what)) => Err(SqlError::unsupported(format!("CREATE TABLE with {what}"))),
        None => Ok(()),
    }
}

/// Whether the options of a table's storage are FILLFACTOR alone: pages of trees are filled as rows come, and those of row groups never
/// change, so that it has nothing to say here. Errors: 22023.
fn are_known(options: &CreateTableOptions) -> Result<bool, SqlError> {
    let options = match options {
        CreateTableOptions::None => return Ok(true),
        CreateTableOptions::With(options) => options,
        _ => return Ok(false),
    };
    for option in options {
        let SqlOption::KeyValue { key, value } = option else { return Ok(false) };
        if !key.value.eq_ignore_ascii_case("fillfactor") {
            return Ok(false);
        }
        let text = value.to_string();
        let text = text.trim_matches('\'');
        match text.parse::<i64>() {
            Ok(10..=100) => {}
            Ok(_) => {
                let message = format!("value {text} out of bounds for option \"fillfactor\"");
                return Err(
                    SqlError::value("22023", message).with_detail("Valid values are between \"10\" and \"100\".")
                );
            }
            Err(_) => {
                let message = format!("invalid value for integer option \"fillfactor\": {text}");
                return Err(SqlError::value("22023", message));
            }
        }
    }
    Ok(true)
}

/// The error that refuses a statement, with its first words.
pub(crate) fn unsupported(statement: &Statement) -> SqlError {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    SqlError::unsupported(words.join(" "))
}
