//! UNIQUE constraints and indexes: CREATE INDEX, DROP INDEX, ALTER INDEX, and their part in CREATE TABLE and ALTER TABLE.
//!
//! An index of a table with rows is made while its transaction has the table alone, in a view that sees all rows: as for CHECK. Rows
//! are read a vector at a time; the entries are changes of the transaction, which spill.
//!
//! What is not supported is refused by name: expressions, partial indexes, INCLUDE, operator classes, other
//! methods than btree, NULLS NOT DISTINCT, CONCURRENTLY, constraints that are checked later.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    AlterIndexOperation, ConstraintCharacteristics, CreateIndex, DeferrableInitial, Expr, Ident, IndexColumn,
    IndexType, KeyOrIndexDisplay, NullsDistinctOption, ObjectName, UniqueConstraint,
};
use node::identity::Action;
use store::Transaction;

use super::changed_table;
use super::foreign_keys;
use super::new_object::{done, index_name};
use crate::SqlError;
use crate::column::index_entries;
use crate::engine::parse::ast::{folded, resolve};
use crate::engine::{Session, StatementResult};
use crate::index_check;
use crate::table::catalog;
use crate::table::comments::{self, CommentPart};
use crate::table::key::is_key_type;
use crate::table::{Entry, Index, IndexOrder, Table};

/// Most columns of an index, as in PostgreSQL.
const COLUMNS_MOST: usize = 32;

/// An index or a UNIQUE constraint as it is declared.
#[derive(Debug)]
pub(crate) struct NewIndex {
    name: Option<String>,
    columns: Vec<String>,
    /// The orders of the columns; empty if all are ascending with NULL last.
    orders: Vec<IndexOrder>,
    unique: bool,
    constraint: bool,
}

impl NewIndex {
    /// The name that it is given.
    pub(crate) fn given_name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// Reads UNIQUE of a column. Errors: 0A000.
    pub(crate) fn of_column(
        column: &str,
        unique: &UniqueConstraint,
        name: Option<&Ident>,
    ) -> Result<NewIndex, SqlError> {
        refuse_options(unique)?;
        let name = name.or(unique.name.as_ref()).map(folded);
        let columns = vec![column.to_owned()];
        Ok(NewIndex { name, columns, orders: Vec::new(), unique: true, constraint: true })
    }

    /// Reads UNIQUE of a table. Errors: 0A000.
    pub(crate) fn of_table(unique: &UniqueConstraint) -> Result<NewIndex, SqlError> {
        refuse_options(unique)?;
        let (columns, orders) = columns(&unique.columns)?;
        if !orders.is_empty() {
            return Err(SqlError::unsupported("UNIQUE with another order than ascending"));
        }
        Ok(NewIndex { name: unique.name.as_ref().map(folded), columns, orders, unique: true, constraint: true })
    }
}

/// Refuses options of UNIQUE; none is accepted and ignored.
fn refuse_options(unique: &UniqueConstraint) -> Result<(), SqlError> {
    let deferrable = |given: &ConstraintCharacteristics| {
        given.deferrable == Some(true) || given.initially == Some(DeferrableInitial::Deferred)
    };
    let odd = [
        (unique.nulls_distinct == NullsDistinctOption::NotDistinct, "NULLS NOT DISTINCT"),
        (unique.characteristics.as_ref().is_some_and(deferrable), "DEFERRABLE"),
        (unique.characteristics.as_ref().is_some_and(|given| given.enforced.is_some()), "ENFORCED"),
        (unique.index_name.is_some() || unique.index_type_display != KeyOrIndexDisplay::None, "KEY or INDEX"),
        (unique.index_type.is_some() || !unique.index_options.is_empty(), "an option of its index"),
    ];
    match odd.iter().find(|(is, _)| *is) {
        Some((_, what)) => Err(SqlError::unsupported(format!("UNIQUE with {what}"))),
        None => Ok(()),
    }
}

/// The names and orders of the columns of an index. Errors: 0A000.
fn columns(of: &[IndexColumn]) -> Result<(Vec<String>, Vec<IndexOrder>), SqlError> {
    let both = of.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let (names, mut orders): (Vec<String>, Vec<IndexOrder>) = both.into_iter().unzip();
    if orders.iter().all(|order| *order == IndexOrder::default()) {
        orders.clear();
    }
    Ok((names, orders))
}

fn column(of: &IndexColumn) -> Result<(String, IndexOrder), SqlError> {
    let IndexColumn { column, operator_class } = of;
    if let Some(class) = operator_class {
        return Err(SqlError::unsupported(format!("an index with the operator class {class}")));
    }
    if column.with_fill.is_some() {
        return Err(SqlError::unsupported("an index with FILL"));
    }
    let descending = column.options.asc == Some(false);
    let order = IndexOrder { descending, nulls_first: column.options.nulls_first.unwrap_or(descending) };
    match &column.expr {
        Expr::Identifier(name) => Ok((folded(name), order)),
        _ => Err(SqlError::unsupported("an index on an expression")),
    }
}

/// Adds the UNIQUE constraints of CREATE TABLE. As in PostgreSQL one with the columns of an earlier one, or of the primary key, is none
/// of its own.
pub(crate) fn declare(session: &mut Session, table: &mut Table, declared: Vec<NewIndex>) -> Result<(), SqlError> {
    let mut kept: Vec<NewIndex> = Vec::new();
    for new in declared {
        if let Some(known) = kept.iter_mut().find(|known| known.columns == new.columns) {
            known.name = known.name.take().or(new.name);
        } else if table.key.is_empty() || positions(table, &new)? != table.key {
            kept.push(new);
        }
    }
    kept.into_iter().try_for_each(|new| add(session, "CREATE TABLE", table, new))
}

/// Adds an index with entries for all rows of a table, which the transaction has alone. The caller stores the definition.
///
/// Errors: 23505, 42P07, 42703 and others; 54000 for values that are too long.
pub(crate) fn add(session: &mut Session, what: &str, table: &mut Table, new: NewIndex) -> Result<(), SqlError> {
    (table.schema, table.addressed) = Table::schemas(&table.columns, &table.key);
    let columns = positions(table, &new)?;
    let name = free_name(session, table, &new)?;
    let NewIndex { unique, constraint, orders, .. } = new;
    let mut index = Index { name, number: 0, tree: 0, columns, orders, unique, constraint };
    make_tree(session, what, &mut index)?;
    let (tree, schema) = (session.engine.catalog, table.schema_name.clone());
    session.changing(what)?.with(|transaction| {
        catalog::take_name(transaction, tree, &schema, &index.name);
        Ok(())
    })?;
    build(session, what, table, &index)?;
    table.indexes.push(index);
    Ok(())
}

/// The positions of an index's columns. Errors: 42703, 42701, 54011; 0A000 for a type.
fn positions(table: &Table, new: &NewIndex) -> Result<Vec<usize>, SqlError> {
    if new.columns.len() > COLUMNS_MOST {
        let message = format!("cannot use more than {COLUMNS_MOST} columns in an index");
        return Err(SqlError::statement("54011", message));
    }
    let mut columns = Vec::new();
    for column in &new.columns {
        let Some(at) = table.position(column) else {
            let named = if new.constraint { " named in key" } else { "" };
            return Err(SqlError::statement("42703", format!("column \"{column}\"{named} does not exist")));
        };
        if new.constraint && columns.contains(&at) {
            let message = format!("column \"{column}\" appears twice in unique constraint");
            return Err(SqlError::statement("42701", message));
        }
        check_type(table, at)?;
        columns.push(at);
    }
    Ok(columns)
}

/// Refuses an index of a type without an order of its own. Errors: 0A000.
fn check_type(table: &Table, at: usize) -> Result<(), SqlError> {
    match table.columns[at].kind {
        kind if is_key_type(kind) => Ok(()),
        kind => Err(SqlError::unsupported(format!("an index on type {}", kind.name()))),
    }
}

/// Refuses types of columns, which are new, that an index cannot have. Errors: 0A000.
pub(crate) fn check_types(table: &Table) -> Result<(), SqlError> {
    table.indexes.iter().flat_map(|index| &index.columns).try_for_each(|at| check_type(table, *at))
}

/// The name of a new index: as given, or as PostgreSQL chooses it. Errors: 42P07, 42710.
fn free_name(session: &Session, table: &Table, new: &NewIndex) -> Result<String, SqlError> {
    let kind = if new.constraint { "key" } else { "idx" };
    let plain = format!("{}_{}_{kind}", table.name, new.columns.join("_"));
    index_name(session, table, new.constraint, (new.name.as_deref(), &plain))
}

fn make_tree(session: &mut Session, what: &str, index: &mut Index) -> Result<(), SqlError> {
    index.number = session.engine.next_number();
    let name = Index::tree_name(index.number);
    let transaction = session.changing(what)?;
    transaction.defines = true;
    index.tree = transaction.with(|transaction| Ok(transaction.create_tree(&name)?))?.0;
    Ok(())
}

/// Gives the indexes of a table empty trees, for another storage of its rows.
pub(crate) fn make_trees(session: &mut Session, what: &str, table: &mut Table) -> Result<(), SqlError> {
    table.indexes.iter_mut().try_for_each(|index| make_tree(session, what, index))
}

/// Drops the trees of a table's indexes.
pub(crate) fn drop_trees(transaction: &mut Transaction, table: &Table) -> Result<(), SqlError> {
    let mut names = table.indexes.iter().map(|index| Index::tree_name(index.number));
    names.try_for_each(|name| Ok(transaction.drop_tree(&name)?))
}

/// Adds the entries of all rows. Errors: 23505, 54000.
fn build(session: &mut Session, what: &str, table: &Table, index: &Index) -> Result<(), SqlError> {
    changed_table::sees_all(session, table)?;
    let engine = session.engine.clone();
    let transaction = session.changing(what)?;
    let (view, shared) = (transaction.own_view(), Arc::new(table.clone()));
    index_check::each_entry(&engine.columns, &view, &shared, index, |encoder, rows, reference, indexed| {
        transaction.with(|transaction| index_entries::make(transaction, table, encoder, rows, reference, indexed))
    })
}

/// Stores the definition of a table whose indexes have changed.
fn save(session: &mut Session, what: &str, table: &Table) -> Result<(), SqlError> {
    let (tree, transaction) = (session.engine.catalog, session.changing(what)?);
    transaction.defines = true;
    transaction.with(|transaction| catalog::put_table(transaction, tree, table))
}

/// CREATE INDEX. Errors: those of [`add`]; 42501, 42P01.
pub(crate) fn create(session: &mut Session, create: &CreateIndex) -> Result<StatementResult, SqlError> {
    const WHAT: &str = "CREATE INDEX";
    let method = |using: &IndexType| *using != IndexType::BTree;
    let odd = [
        (create.concurrently, "CONCURRENTLY"),
        (create.using.as_ref().is_some_and(method), "another method than btree"),
        (!create.include.is_empty(), "INCLUDE"),
        (create.nulls_distinct == Some(false), "NULLS NOT DISTINCT"),
        (!create.with.is_empty() || !create.index_options.is_empty(), "options"),
        (!create.alter_options.is_empty(), "options"),
        (create.predicate.is_some(), "WHERE"),
    ];
    if let Some((_, what)) = odd.iter().find(|(is, _)| *is) {
        return Err(SqlError::unsupported(format!("CREATE INDEX with {what}")));
    }
    let name = match create.name.as_ref().map(|name| name.0.as_slice()) {
        None => None,
        Some([part]) => part.as_ident().map(folded),
        Some(_) => {
            return Err(SqlError::statement("42601", "the name of an index has no schema: it is that of its table"));
        }
    };
    let table = changed_table::table(session, &create.table_name, Action::TableOwn)?;
    if let Some(access) = session.access() {
        access.make_in(&table.schema_name)?;
    }
    if let Some(name) = name.as_ref().filter(|_| create.if_not_exists)
        && session.shared.catalog().is_taken(&table.schema_name, name)
    {
        return done(WHAT);
    }
    session.changing_alone(WHAT, table.id)?;
    let (columns, orders) = columns(&create.columns)?;
    let mut table = (*table).clone();
    let new = NewIndex { name, columns, orders, unique: create.unique, constraint: false };
    add(session, WHAT, &mut table, new)?;
    save(session, WHAT, &table)?;
    done(WHAT)
}

/// The index of a name: its table, and its position; `None` for that of a primary key.
///
/// Errors: 42704, 42809; 42501 for others than the table's owner.
pub(super) fn find(session: &Session, name: &ObjectName) -> Result<(Arc<Table>, Option<usize>), SqlError> {
    let (schema, name) = resolve(name)?;
    let catalog = session.shared.catalog();
    if let Some(access) = session.access() {
        access.schema(&schema)?;
    }
    let key = || {
        let mut tables = catalog.tables();
        tables.find(|table| table.schema_name == schema && !table.key.is_empty() && table.key_name == name)
    };
    let found = match catalog.index(&schema, &name) {
        Some((table, at)) => Some((table, Some(at))),
        None => key().map(|table| (table, None)),
    };
    match (found, catalog.get(&schema, &name)) {
        (Some((table, at)), _) => {
            let own = session.access().map_or(Ok(()), |access| access.own("table", &schema, &table.name));
            let denied = |error: SqlError| match error.code() {
                "42501" => SqlError::statement("42501", format!("must be owner of index {name}")),
                _ => error,
            };
            own.map(|()| (table.clone(), at)).map_err(denied)
        }
        (None, Some(entry)) => {
            let error = SqlError::statement("42809", format!("\"{name}\" is not an index"));
            Err(match entry {
                Entry::Table(_) => error.with_hint("Use DROP TABLE to remove a table."),
                _ => error,
            })
        }
        (None, None) => Err(SqlError::statement("42704", format!("index \"{name}\" does not exist"))),
    }
}

/// DROP INDEX. Errors: 42704, 42501; 2BP01 for the index of a constraint.
pub(crate) fn drop(session: &mut Session, names: &[ObjectName], if_exists: bool) -> Result<StatementResult, SqlError> {
    const WHAT: &str = "DROP INDEX";
    for name in names {
        let (table, at) = match find(session, name) {
            Err(error) if if_exists && error.code() == "42704" => continue,
            found => found?,
        };
        let index = at.map(|at| &table.indexes[at]);
        let Some(index) = index.filter(|index| !index.constraint) else {
            let name = index.map_or(&table.key_name, |index| &index.name);
            let on = format!("constraint {name} on table {}", table.display());
            let message = format!("cannot drop index {name} because {on} requires it");
            let hint = format!("You can drop {on} instead.");
            return Err(SqlError::statement("2BP01", message).with_hint(hint));
        };
        session.changing_alone(WHAT, table.id)?;
        foreign_keys::refuse_drop_of_key(session, &table, ("index", index.name.as_str()))?;
        let mut changed = (*table).clone();
        drop_one(session, WHAT, &mut changed, &index.name)?;
        save(session, WHAT, &changed)?;
        session.refresh()?;
    }
    done(WHAT)
}

/// Drops an index of a table with its entries. Returns whether there is one; the caller stores the definition.
fn drop_one(session: &mut Session, what: &str, table: &mut Table, name: &str) -> Result<bool, SqlError> {
    let Some(at) = table.indexes.iter().position(|index| index.name == name) else { return Ok(false) };
    let index = table.indexes.remove(at);
    let (tree, transaction) = (session.engine.catalog, session.changing(what)?);
    transaction.defines = true;
    transaction.with(|transaction| {
        let of = (table.schema_name.as_str(), table.name.as_str());
        comments::change(transaction, tree, of, |comments| comments.set(CommentPart::Index(index.name.clone()), None))?;
        Ok(transaction.drop_tree(&Index::tree_name(index.number))?)
    })?;
    Ok(true)
}

/// DROP CONSTRAINT of a UNIQUE constraint. Returns whether there is one of this name; the caller stores the definition.
pub(crate) fn drop_constraint(session: &mut Session, table: &mut Table, name: &str) -> Result<bool, SqlError> {
    match table.indexes.iter().any(|index| index.constraint && index.name == name) {
        true => {
            foreign_keys::refuse_drop_of_key(session, table, ("constraint", name))?;
            drop_one(session, "ALTER TABLE", table, name)
        }
        false => Ok(false),
    }
}

/// Columns are dropped: as in PostgreSQL, so are the indexes with one of them. `kept` are the positions of the others. The trees of
/// all indexes are dropped with the table's rows.
pub(crate) fn drop_with_columns(table: &mut Table, kept: &[usize]) {
    table.indexes.retain(|index| index.columns.iter().all(|at| kept.contains(at)));
    for at in table.indexes.iter_mut().flat_map(|index| &mut index.columns) {
        *at = kept.partition_point(|kept| kept < at);
    }
}

/// ALTER INDEX. Errors: 42704, 42501, 42P07.
pub(crate) fn alter(
    session: &mut Session,
    name: &ObjectName,
    operation: &AlterIndexOperation,
) -> Result<StatementResult, SqlError> {
    const WHAT: &str = "ALTER INDEX";
    let AlterIndexOperation::RenameIndex { index_name } = operation;
    let (table, at) = find(session, name)?;
    let (_, new) = resolve(index_name)?;
    session.changing_alone(WHAT, table.id)?;
    let constraint = at.is_none_or(|at| table.indexes[at].constraint);
    let renamed = NewIndex { name: Some(new), columns: Vec::new(), orders: Vec::new(), unique: false, constraint };
    let new = free_name(session, &table, &renamed)?;
    let mut changed = (*table).clone();
    let old = match at {
        Some(at) => std::mem::replace(&mut changed.indexes[at].name, new.clone()),
        None => std::mem::replace(&mut changed.key_name, new.clone()),
    };
    let tree = session.engine.catalog;
    session.changing(WHAT)?.with(|transaction| {
        catalog::take_name(transaction, tree, &table.schema_name, &new);
        comments::change(transaction, tree, (&table.schema_name, &table.name), |comments| {
            comments.rename_index(&old, &new);
            Ok(())
        })
    })?;
    save(session, WHAT, &changed)?;
    done(WHAT)
}
