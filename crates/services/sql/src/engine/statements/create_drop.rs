//! Statements that create and drop tables, views and schemas. They are part of the transaction like any other
//! statement.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::Field;
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, CreateTableOptions, Expr, ObjectName, ObjectType, PrimaryKeyConstraint,
    SchemaName, Statement, TableConstraint, Truncate,
};
use node::identity::{Action, Object, ObjectChange};
use store::TreeId;

use super::bulk_load::BulkLoad;
use super::changed_table;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::folded;
use crate::engine::parse::ast::resolve;
use crate::engine::plan::access::{exactly, table_object};
use crate::engine::plan::{column_labels, view_dependencies};
use crate::engine::semantics::assignment_casts::assign;
use crate::engine::{Session, StatementResult};
use crate::table::catalog::{self, PUBLIC};
use crate::table::key::is_key_type;
use crate::table::{Column, ColumnStore, Entry, SqlType, Table};

pub(crate) fn done(tag: &str) -> Result<StatementResult, SqlError> {
    Ok(StatementResult::Done { tag: tag.into() })
}

/// Most columns of a table, as in PostgreSQL.
const COLUMNS_MOST: usize = 1600;

/// Checks that the name is free and its schema exists. `None` if an object of this name exists and may exist.
pub(crate) fn free(
    session: &Session,
    name: &ObjectName,
    may_exist: bool,
) -> Result<Option<(String, String)>, SqlError> {
    let (schema, name) = resolve(name)?;
    let catalog = session.shared.catalog();
    if let (Some(access), true) = (session.access(), catalog.schemas.contains_key(&schema)) {
        access.make_in(&schema)?;
    }
    match catalog.schemas.get(&schema) {
        None => Err(SqlError::statement("3F000", format!("schema \"{schema}\" does not exist"))),
        Some(names) if !names.contains_key(&name) => Ok(Some((schema, name))),
        Some(_) if may_exist => Ok(None),
        Some(_) => Err(SqlError::statement("42P07", format!("relation \"{name}\" already exists"))),
    }
}

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
    let (columns, key, key_name) = match &rows {
        Some((_, schema)) => {
            let column = |field: &Arc<Field>| {
                let kind = SqlType::from_arrow(field)?;
                Ok(Column::new(field.name(), kind))
            };
            let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>, SqlError>>()?;
            (columns, Vec::new(), String::new())
        }
        None => read_columns(session, create, &name).await?,
    };
    check_names(&columns)?;
    let table = make_table(session, schema, name, columns, key, key_name)?;
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

/// Writes the owner of an object that the statement created: the role whose rights count.
pub(crate) fn created(session: &mut Session, what: &str, object: Object<'_>) -> Result<(), SqlError> {
    let Some(access) = session.access() else { return Ok(()) };
    let owner = access.caller().current();
    session.objects_changed(what, vec![ObjectChange::Created { object: exactly(object)?, owner }])
}

/// Creates a table's tree and stores its definition.
fn make_table(
    session: &mut Session,
    schema_name: String,
    name: String,
    columns: Vec<Column>,
    key: Vec<usize>,
    key_name: String,
) -> Result<Arc<Table>, SqlError> {
    let id = session.engine.next_number();
    session.changing("CREATE TABLE")?.lock(id, true)?;
    let (storage, rows) = make_storage(session, "CREATE TABLE")?;
    let (schema, addressed) = Table::schemas(&columns, &key);
    let table = Table { schema_name, name, id, storage, columns, key, key_name, rows, schema, addressed };
    let (tree, transaction) = (session.engine.catalog, session.changing("CREATE TABLE")?);
    transaction.with(|transaction| catalog::put_table(transaction, tree, &table))?;
    created(session, "CREATE TABLE", table_object(&table.schema_name, &table.name))?;
    Ok(Arc::new(table))
}

async fn read_columns(
    session: &Session,
    create: &CreateTable,
    name: &str,
) -> Result<(Vec<Column>, Vec<usize>, String), SqlError> {
    let mut columns = Vec::new();
    let mut key: Option<(Vec<String>, Option<String>)> = None;
    for definition in &create.columns {
        let (column, is_key) = read_column(session, definition).await?;
        if let Some(constraint) = is_key {
            set_key(&mut key, name, vec![column.name.clone()], constraint)?;
        }
        columns.push(column);
    }
    for constraint in &create.constraints {
        match constraint {
            TableConstraint::PrimaryKey(PrimaryKeyConstraint { name: constraint, columns: of, .. }) => {
                let mut names = Vec::new();
                for column in of {
                    match &column.column.expr {
                        Expr::Identifier(ident) => names.push(folded(ident)),
                        other => return Err(SqlError::unsupported(format!("a primary key of {other}"))),
                    }
                }
                set_key(&mut key, name, names, constraint.as_ref().map(folded))?;
            }
            other => {
                return Err(SqlError::unsupported(format!("the constraint \"{other}\""))
                    .with_hint("PRIMARY KEY and NOT NULL are supported; leave out other constraints."));
            }
        }
    }
    let (names, key_name) = key.unwrap_or_default();
    let mut positions = Vec::new();
    for column in &names {
        let Some(at) = columns.iter().position(|c: &Column| c.name == *column) else {
            return Err(SqlError::statement("42703", format!("column \"{column}\" named in key does not exist")));
        };
        if positions.contains(&at) {
            return Err(SqlError::statement(
                "42701",
                format!("column \"{column}\" appears twice in primary key constraint"),
            ));
        }
        if !is_key_type(columns[at].kind) {
            return Err(SqlError::unsupported(format!("a primary key of type {}", columns[at].kind.name())));
        }
        columns[at].not_null = true;
        positions.push(at);
    }
    let key_name = match positions.is_empty() {
        true => String::new(),
        false => key_name.unwrap_or_else(|| format!("{name}_pkey")),
    };
    Ok((columns, positions, key_name))
}

/// A column, and the constraint's name if it is declared as PRIMARY KEY.
pub(crate) async fn read_column(
    session: &Session,
    definition: &ColumnDef,
) -> Result<(Column, Option<Option<String>>), SqlError> {
    let kind = SqlType::from_ast(&definition.data_type)?;
    let mut column = Column::new(folded(&definition.name), kind);
    let mut is_key = None;
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => {}
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::PrimaryKey(_) => is_key = Some(option.name.as_ref().map(folded)),
            ColumnOption::Default(expr) => {
                column.default = Some(expr.to_string());
                check_default(session, &column, expr).await?;
            }
            other => {
                return Err(SqlError::unsupported(format!("\"{other}\" of column \"{}\"", column.name))
                    .with_hint("PRIMARY KEY, NOT NULL and DEFAULT are supported; leave out other constraints."));
            }
        }
    }
    Ok((column, is_key))
}

/// Checks that a default can be evaluated, and has the column's type.
pub(crate) async fn check_default(session: &Session, column: &Column, expr: &Expr) -> Result<(), SqlError> {
    ast::no_subquery(expr)?;
    let query = ast::select(vec![ast::named(expr.clone(), "default")], Vec::new(), None)?;
    let (schema, batches) = changed_table::collect(session, &query, &[]).await?;
    assign(changed_table::joined(&schema, &batches)?.column(0), column, ast::is_open(expr))?;
    Ok(())
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
    let transaction = session.changing("DROP TABLE")?;
    transaction.lock(table.id, true)?;
    transaction.with(|transaction| {
        columns.discard(transaction, table)?;
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
    if tables.partitions.is_some() || tables.cascade.is_some() || tables.identity.is_some() {
        return Err(SqlError::unsupported("TRUNCATE with options"));
    }
    for target in &tables.table_names {
        let table = changed_table::table(session, &target.name, Action::TableTruncate)?;
        discard_rows(session, &table)?;
        let (storage, rows) = make_storage(session, "TRUNCATE TABLE")?;
        let table = Table { storage, rows, ..(*table).clone() };
        let (tree, transaction) = (session.engine.catalog, session.changing("TRUNCATE TABLE")?);
        transaction.with(|transaction| catalog::put_table(transaction, tree, &table))?;
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

fn set_key(
    key: &mut Option<(Vec<String>, Option<String>)>,
    table: &str,
    columns: Vec<String>,
    name: Option<String>,
) -> Result<(), SqlError> {
    if key.is_some() {
        let message = format!("multiple primary keys for table \"{table}\" are not allowed");
        return Err(SqlError::statement("42P16", message));
    }
    *key = Some((columns, name));
    Ok(())
}

pub(crate) fn check_names(columns: &[Column]) -> Result<(), SqlError> {
    if columns.len() > COLUMNS_MOST {
        return Err(SqlError::statement("54011", format!("tables can have at most {COLUMNS_MOST} columns")));
    }
    check_apart(columns.iter().map(|column| &column.name))?;
    for column in columns {
        if column.name.starts_with('$') {
            return Err(SqlError::statement("42939", format!("column name \"{}\" is reserved", column.name)));
        }
    }
    Ok(())
}

/// Checks that no two names are equal. Errors: 42701.
pub(crate) fn check_apart<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), SqlError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(SqlError::statement("42701", format!("column \"{name}\" specified more than once")));
        }
    }
    Ok(())
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
        (create.table_options != CreateTableOptions::None, "an option of storage"),
    ];
    match odd.iter().find(|(is, _)| *is) {
        Some((_, what)) => Err(SqlError::unsupported(format!("CREATE TABLE with {what}"))),
        None => Ok(()),
    }
}

/// The error that refuses a statement, with its first words.
pub(crate) fn unsupported(statement: &Statement) -> SqlError {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    SqlError::unsupported(words.join(" "))
}
