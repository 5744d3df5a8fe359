//! Statements that change what there is: tables, views, schemas. They are part of the transaction like any other.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::sql::sqlparser::ast::{
    ColumnDef, ColumnOption, CreateTable, CreateTableOptions, CreateView, Expr, ObjectName, ObjectType,
    PrimaryKeyConstraint, SchemaName, Statement, TableConstraint, Truncate,
};
use store::TreeId;

use super::assign::assign;
use super::bulk::Bulk;
use super::control::folded;
use super::target::{self, resolve};
use super::{Answer, Session, titles, views};
use crate::SqlError;
use crate::table::catalog::{self, PUBLIC};
use crate::table::key::is_key_type;
use crate::table::{Column, ColumnForm, Entry, SqlType, Table};

pub(crate) fn done(tag: &str) -> Result<Answer, SqlError> {
    Ok(Answer::Done { tag: tag.into() })
}

/// Columns of a table: more would not fit a row's count.
const COLUMNS_MOST: usize = 1600;

impl Session {
    pub(crate) async fn define(&mut self, statement: &Statement) -> Result<Answer, SqlError> {
        match statement {
            Statement::CreateTable(create) if create.external => self.create_external(create).await,
            Statement::CreateTable(create) => self.create_table(create).await,
            Statement::CreateView(create) => self.create_view(create).await,
            Statement::CreateSchema { schema_name, if_not_exists, with: None, options: None, .. } => {
                self.create_schema(schema_name, *if_not_exists)
            }
            Statement::Drop { object_type, if_exists, names, cascade, .. } => {
                self.drop_objects(object_type, *if_exists, names, *cascade)
            }
            Statement::Truncate(truncate) => self.truncate(truncate),
            Statement::AlterTable(alter) => self.alter(alter).await,
            other => Err(unsupported(other)),
        }
    }

    /// The name is free, its schema is there. `None` if something of the name may be there and is.
    pub(super) fn free(&self, name: &ObjectName, may_exist: bool) -> Result<Option<(String, String)>, SqlError> {
        let (schema, name) = resolve(name)?;
        let catalog = self.shared.catalog();
        match catalog.schemas.get(&schema) {
            None => Err(SqlError::statement("3F000", format!("schema \"{schema}\" does not exist"))),
            Some(names) if !names.contains_key(&name) => Ok(Some((schema, name))),
            Some(_) if may_exist => Ok(None),
            Some(_) => Err(SqlError::statement("42P07", format!("relation \"{name}\" already exists"))),
        }
    }

    async fn create_table(&mut self, create: &CreateTable) -> Result<Answer, SqlError> {
        refuse_options(create)?;
        let Some((schema, name)) = self.free(&create.name, create.if_not_exists)? else {
            return done("CREATE TABLE");
        };
        let rows = match &create.query {
            Some(query) if create.columns.is_empty() && create.constraints.is_empty() => {
                let query = Statement::Query(query.clone());
                let (schema, batches) = self.collect(&query, &[]).await?;
                Some((batches, titles::titled(&query, &schema)))
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
            None => self.read_columns(create, &name).await?,
        };
        check_names(&columns)?;
        let table = self.make_table(schema, name, columns, key, key_name)?;
        let Some((batches, _)) = rows else {
            return done("CREATE TABLE");
        };
        let engine = self.engine.clone();
        let block = self.changing("CREATE TABLE AS")?;
        let mut bulk = Bulk::new(&engine, &table);
        for batch in batches {
            let values = batch.columns().iter().zip(&table.columns).map(|(array, column)| assign(array, column, false));
            bulk.push(block, values.collect::<Result<_, _>>()?)?;
        }
        let count = bulk.finish(block)?;
        Ok(Answer::Done { tag: format!("SELECT {count}") })
    }

    /// Makes a table's tree and notes it.
    fn make_table(
        &mut self,
        schema_name: String,
        name: String,
        columns: Vec<Column>,
        key: Vec<usize>,
        key_name: String,
    ) -> Result<Arc<Table>, SqlError> {
        let id = self.engine.next_number();
        self.changing("CREATE TABLE")?.lock(id, true)?;
        let (storage, rows) = self.make_storage("CREATE TABLE")?;
        let (schema, addressed) = Table::schemas(&columns, &key);
        let table = Table { schema_name, name, id, storage, columns, key, key_name, rows, schema, addressed };
        let (tree, block) = (self.engine.catalog, self.changing("CREATE TABLE")?);
        block.with(|transaction| catalog::put_table(transaction, tree, &table))?;
        Ok(Arc::new(table))
    }

    async fn read_columns(
        &self,
        create: &CreateTable,
        name: &str,
    ) -> Result<(Vec<Column>, Vec<usize>, String), SqlError> {
        let mut columns = Vec::new();
        let mut key: Option<(Vec<String>, Option<String>)> = None;
        for definition in &create.columns {
            let (column, is_key) = self.read_column(definition).await?;
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
                        .with_hint("PRIMARY KEY and NOT NULL are enforced; leave other constraints out."));
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

    /// A column, and if it says PRIMARY KEY the constraint's name.
    pub(crate) async fn read_column(
        &self,
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
                    self.check_default(&column, expr).await?;
                }
                other => {
                    return Err(SqlError::unsupported(format!("\"{other}\" of column \"{}\"", column.name))
                        .with_hint("PRIMARY KEY, NOT NULL and DEFAULT are; leave other constraints out."));
                }
            }
        }
        Ok((column, is_key))
    }

    /// A default can be evaluated, and has the column's type.
    pub(crate) async fn check_default(&self, column: &Column, expr: &Expr) -> Result<(), SqlError> {
        let query = target::select(vec![target::named(expr.clone(), "default")], Vec::new(), None)?;
        let (schema, batches) = self.collect(&query, &[]).await?;
        assign(target::joined(&schema, &batches)?.column(0), column, target::is_open(expr))?;
        Ok(())
    }

    async fn create_view(&mut self, create: &CreateView) -> Result<Answer, SqlError> {
        if create.materialized || create.temporary || !create.columns.is_empty() {
            return Err(SqlError::unsupported("a view that is materialized, temporary or names its columns"));
        }
        let odd = create.or_alter
            || create.secure
            || create.with_no_schema_binding
            || create.copy_grants
            || create.comment.is_some()
            || create.to.is_some()
            || create.params.is_some()
            || !create.cluster_by.is_empty()
            || create.options != CreateTableOptions::None;
        if odd {
            return Err(SqlError::unsupported("a view with options"));
        }
        let (schema, name) = match self.free(&create.name, create.or_replace || create.if_not_exists)? {
            Some(free) => free,
            None if create.if_not_exists => return done("CREATE VIEW"),
            None => resolve(&create.name)?,
        };
        match self.shared.catalog().get(&schema, &name) {
            None | Some(Entry::View(_)) => {}
            Some(_) => return Err(SqlError::statement("42809", format!("\"{name}\" is not a view"))),
        }
        let query = Statement::Query(create.query.clone());
        let plan = self.plan(&query).await?;
        let titled = titles::titled(&query, plan.schema().inner());
        check_apart(titled.fields().iter().map(|field| field.name()))?;
        let catalog = self.shared.catalog();
        if let Some(Entry::View(old)) = catalog.get(&schema, &name) {
            if views::reaches(&catalog, Statement::Query(create.query.clone()), &(schema.clone(), name.clone()))? {
                return Err(views::recursion(&name));
            }
            self.keeps_columns(old, &titled).await?;
        }
        let (tree, sql) = (self.engine.catalog, create.query.to_string());
        let block = self.changing("CREATE VIEW")?;
        block.defines = true;
        block.with(|transaction| catalog::put_view(transaction, tree, &schema, &name, &sql))?;
        done("CREATE VIEW")
    }

    /// A view that takes another's place has its columns, and perhaps more after them: others may read them.
    async fn keeps_columns(&self, old: &str, new: &Schema) -> Result<(), SqlError> {
        // One that cannot be planned has no readers that work.
        let query = target::parse(old)?;
        let Ok(old) = self.plan(&query).await else { return Ok(()) };
        for (at, field) in titles::titled(&query, old.schema().inner()).fields().iter().enumerate() {
            let same = |other: &Arc<Field>| other.name() == field.name() && other.data_type() == field.data_type();
            if !new.fields().get(at).is_some_and(same) {
                let message = format!("cannot drop or change column \"{}\" of a view", field.name());
                return Err(SqlError::statement("42P16", message).with_hint("DROP VIEW first, then create it."));
            }
        }
        Ok(())
    }

    fn create_schema(&mut self, name: &SchemaName, if_not_exists: bool) -> Result<Answer, SqlError> {
        let SchemaName::Simple(name) = name else {
            return Err(SqlError::unsupported("CREATE SCHEMA .. AUTHORIZATION"));
        };
        let (_, name) = resolve(name)?;
        if name.starts_with("pg_") || name == "information_schema" || name.starts_with('$') {
            return Err(SqlError::statement("42939", format!("unacceptable schema name \"{name}\"")));
        }
        if self.shared.catalog().schemas.contains_key(&name) {
            return match if_not_exists {
                true => done("CREATE SCHEMA"),
                false => Err(SqlError::statement("42P06", format!("schema \"{name}\" already exists"))),
            };
        }
        let tree = self.engine.catalog;
        let block = self.changing("CREATE SCHEMA")?;
        block.defines = true;
        block.with(|transaction| catalog::put_schema(transaction, tree, &name))?;
        done("CREATE SCHEMA")
    }

    fn drop_objects(
        &mut self,
        kind: &ObjectType,
        if_exists: bool,
        names: &[ObjectName],
        cascade: bool,
    ) -> Result<Answer, SqlError> {
        if cascade && *kind == ObjectType::Schema {
            return Err(SqlError::unsupported("CASCADE").with_hint("Drop what is in the way first."));
        }
        let tag = match kind {
            ObjectType::Table => "DROP TABLE",
            ObjectType::View => "DROP VIEW",
            ObjectType::Schema => "DROP SCHEMA",
            other => return Err(SqlError::unsupported(format!("DROP {other}"))),
        };
        if *kind != ObjectType::Schema {
            self.drop_readers(names, tag, cascade)?;
        }
        for name in names {
            let (schema, name) = resolve(name)?;
            if *kind == ObjectType::Schema {
                self.drop_schema(&name, if_exists)?;
                continue;
            }
            let known = self.shared.catalog().get(&schema, &name).cloned();
            let (tree, block) = (self.engine.catalog, self.changing(tag)?);
            block.defines = true;
            match (known, kind) {
                (None, _) if if_exists => {}
                (None, _) => {
                    let what = if *kind == ObjectType::View { "view" } else { "table" };
                    return Err(SqlError::statement("42P01", format!("{what} \"{name}\" does not exist")));
                }
                (Some(Entry::Table(table)), ObjectType::Table) => {
                    self.discard_rows(&table)?;
                    self.changing(tag)?.with(|transaction| catalog::remove(transaction, tree, &schema, &name))?;
                }
                (Some(Entry::View(_)), ObjectType::View) | (Some(Entry::External(_)), ObjectType::Table) => {
                    block.with(|transaction| catalog::remove(transaction, tree, &schema, &name))?;
                }
                (Some(_), _) => {
                    return Err(SqlError::statement("42809", format!("{tag}: \"{name}\" is of another kind")));
                }
            }
            self.refresh()?;
        }
        done(tag)
    }

    /// The views that read what is to be dropped: refused, or dropped as well.
    fn drop_readers(&mut self, names: &[ObjectName], tag: &str, cascade: bool) -> Result<(), SqlError> {
        let names: Vec<views::Name> = names.iter().map(resolve).collect::<Result<_, _>>()?;
        let readers = views::readers(&self.shared.catalog(), &names)?;
        if !cascade {
            return views::refuse_readers(&tag.to_lowercase(), &readers);
        }
        let tree = self.engine.catalog;
        for ((schema, name), _) in &readers {
            let block = self.changing(tag)?;
            block.defines = true;
            block.with(|transaction| catalog::remove(transaction, tree, schema, name))?;
        }
        self.refresh()
    }

    /// Gives up all rows of a table that is then this transaction's alone.
    pub(crate) fn discard_rows(&mut self, table: &Table) -> Result<(), SqlError> {
        let columns = self.engine.columns.clone();
        let block = self.changing("DROP TABLE")?;
        block.lock(table.id, true)?;
        block.with(|transaction| {
            columns.discard(transaction, table)?;
            Ok(transaction.drop_tree(&format!("sql.rows.{}", table.storage))?)
        })
    }

    fn drop_schema(&mut self, name: &str, if_exists: bool) -> Result<(), SqlError> {
        let catalog = self.shared.catalog();
        let tree = self.engine.catalog;
        match catalog.schemas.get(name) {
            None if if_exists => Ok(()),
            None => Err(SqlError::statement("3F000", format!("schema \"{name}\" does not exist"))),
            Some(_) if name == PUBLIC => Err(SqlError::unsupported("dropping schema public")),
            Some(names) if !names.is_empty() => Err(SqlError::statement(
                "2BP01",
                format!("cannot drop schema {name} because other objects depend on it"),
            )),
            Some(_) => {
                let block = self.changing("DROP SCHEMA")?;
                block.defines = true;
                block.with(|transaction| catalog::remove_schema(transaction, tree, name))?;
                self.refresh()
            }
        }
    }

    fn truncate(&mut self, truncate: &Truncate) -> Result<Answer, SqlError> {
        if truncate.partitions.is_some() || truncate.cascade.is_some() || truncate.identity.is_some() {
            return Err(SqlError::unsupported("TRUNCATE with options"));
        }
        for target in &truncate.table_names {
            let table = target::table(&self.shared.catalog(), &target.name)?;
            self.discard_rows(&table)?;
            let (storage, rows) = self.make_storage("TRUNCATE TABLE")?;
            let table = Table { storage, rows, ..(*table).clone() };
            let (tree, block) = (self.engine.catalog, self.changing("TRUNCATE TABLE")?);
            block.with(|transaction| catalog::put_table(transaction, tree, &table))?;
        }
        done("TRUNCATE TABLE")
    }

    /// What holds the rows of a table, empty: its number and the tree of the row form.
    pub(crate) fn make_storage(&mut self, what: &str) -> Result<(u64, TreeId), SqlError> {
        let engine = self.engine.clone();
        let storage = engine.next_number();
        let block = self.changing(what)?;
        block.defines = true;
        let rows = block.with(|transaction| Ok(transaction.create_tree(&format!("sql.rows.{storage}"))?))?;
        engine.fresh(storage);
        Ok((storage, rows))
    }
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

/// No two names are the same. Errors: 42701.
fn check_apart<'a>(names: impl Iterator<Item = &'a String>) -> Result<(), SqlError> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(SqlError::statement("42701", format!("column \"{name}\" specified more than once")));
        }
    }
    Ok(())
}

/// What a table cannot be here. Nothing of it is accepted and ignored.
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

/// Refuses a statement by its first words.
pub(crate) fn unsupported(statement: &Statement) -> SqlError {
    let text = statement.to_string();
    let words: Vec<&str> = text.split_whitespace().take(3).collect();
    SqlError::unsupported(words.join(" "))
}
