//! FOREIGN KEY constraints of tables: how they are declared, added and dropped, and what they keep from being dropped. `references` checks
//! rows.
//!
//! A constraint is stored with the table that refers, and names the other one by its permanent number and the positions of its columns. So
//! both may be renamed. Who makes a constraint has both tables alone, in a view that sees all rows.
//!
//! What is not supported is refused by name: MATCH FULL, constraints that are checked later, SET DEFAULT, and other actions of ON UPDATE than
//! NO ACTION and RESTRICT.

use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    ConstraintReferenceMatchKind, DeferrableInitial, ForeignKeyConstraint, Ident, ObjectName, ReferentialAction,
};
use node::identity::Action;

use super::new_object::{constraint_exists, numbered};
use super::{changed_table, references};
use crate::SqlError;
use crate::engine::Session;
use crate::engine::parse::ast::{self, TARGET, folded, resolve};
use crate::table::found_key::key_of;
use crate::table::key::is_key_type;
use crate::table::{Column, ForeignKey, KeyAction, SqlType, Table, catalog};

/// A FOREIGN KEY constraint as it is declared.
#[derive(Debug)]
pub(crate) struct NewForeignKey {
    name: Option<String>,
    columns: Vec<String>,
    parent: ObjectName,
    /// Empty: the primary key.
    parent_columns: Vec<String>,
    on_delete: KeyAction,
    on_update: KeyAction,
}

impl NewForeignKey {
    /// Reads REFERENCES of a column. Errors: 0A000.
    pub(crate) fn of_column(
        column: &str,
        foreign: &ForeignKeyConstraint,
        name: Option<&Ident>,
    ) -> Result<NewForeignKey, SqlError> {
        let read = NewForeignKey::of_table(foreign)?;
        let name = name.or(foreign.name.as_ref()).map(folded);
        Ok(NewForeignKey { name, columns: vec![column.to_owned()], ..read })
    }

    /// Reads FOREIGN KEY of a table. Errors: 0A000.
    pub(crate) fn of_table(foreign: &ForeignKeyConstraint) -> Result<NewForeignKey, SqlError> {
        let given = foreign.characteristics.as_ref();
        let is_later = given.is_some_and(|given| {
            given.deferrable == Some(true) || matches!(given.initially, Some(DeferrableInitial::Deferred))
        });
        let odd = [
            (is_later, "DEFERRABLE"),
            (given.is_some_and(|given| given.enforced.is_some()), "ENFORCED"),
            (matches!(foreign.match_kind, Some(ConstraintReferenceMatchKind::Full)), "MATCH FULL"),
            (matches!(foreign.match_kind, Some(ConstraintReferenceMatchKind::Partial)), "MATCH PARTIAL"),
            (foreign.index_name.is_some(), "the name of an index"),
        ];
        if let Some((_, what)) = odd.iter().find(|(is, _)| *is) {
            return Err(SqlError::unsupported(format!("FOREIGN KEY with {what}")));
        }
        let on_delete = match &foreign.on_delete {
            None | Some(ReferentialAction::NoAction) => KeyAction::NoAction,
            Some(ReferentialAction::Restrict) => KeyAction::Restrict,
            Some(ReferentialAction::Cascade) => KeyAction::Cascade,
            Some(ReferentialAction::SetNull) => KeyAction::SetNull,
            Some(other) => return Err(SqlError::unsupported(format!("FOREIGN KEY with ON DELETE {other}"))),
        };
        let on_update = match &foreign.on_update {
            None | Some(ReferentialAction::NoAction) => KeyAction::NoAction,
            Some(ReferentialAction::Restrict) => KeyAction::Restrict,
            Some(other) => return Err(SqlError::unsupported(format!("FOREIGN KEY with ON UPDATE {other}"))),
        };
        Ok(NewForeignKey {
            name: foreign.name.as_ref().map(folded),
            columns: foreign.columns.iter().map(folded).collect(),
            parent: foreign.foreign_table.clone(),
            parent_columns: foreign.referred_columns.iter().map(folded).collect(),
            on_delete,
            on_update,
        })
    }
}

/// Adds a constraint to a table without rows, which the transaction has alone. Returns its name; the caller stores the definition.
///
/// Errors: 42P01, 42703, 42704, 42710, 42830, 42804, 42501; [`SqlError::Again`].
pub(crate) fn add(
    session: &mut Session,
    what: &str,
    table: &mut Table,
    new: NewForeignKey,
) -> Result<String, SqlError> {
    let (schema, named) = resolve(&new.parent)?;
    let is_self = schema == table.schema_name && named == table.name;
    let parent = match is_self {
        true => Arc::new(table.clone()),
        false => changed_table::find(&session.shared.catalog(), &new.parent)?,
    };
    let mut columns = Vec::new();
    for column in &new.columns {
        let missing = || format!("column \"{column}\" referenced in foreign key constraint does not exist");
        let at = table.position(column).ok_or_else(|| SqlError::statement("42703", missing()))?;
        if columns.contains(&at) {
            return Err(SqlError::unsupported("FOREIGN KEY with a column twice"));
        }
        columns.push(at);
    }
    let parent_columns = parent_columns(&parent, &new)?;
    let names: Vec<String> = parent_columns.iter().map(|at| parent.columns[*at].name.clone()).collect();
    if !is_self && let Some(access) = session.access() {
        access.schema(&schema)?;
        access.columns(Action::TableReferences, "table", (&schema, &named), names)?;
    }
    if columns.len() != parent_columns.len() {
        let message = "number of referencing and referenced columns for foreign key disagree";
        return Err(SqlError::statement("42830", message));
    }
    if key_of(&parent, &parent_columns).is_none() {
        let named = &parent.name;
        let message = format!("there is no unique constraint matching given keys for referenced table \"{named}\"");
        return Err(SqlError::statement("42830", message));
    }
    let name = free_name(table, &new)?;
    for (at, other) in columns.iter().zip(&parent_columns) {
        check_types(&name, &table.columns[*at], &parent.columns[*other])?;
    }
    if !is_self {
        session.changing_alone(what, parent.id)?;
    }
    let NewForeignKey { on_delete, on_update, .. } = new;
    let made = ForeignKey { name: name.clone(), columns, parent: parent.id, parent_columns, on_delete, on_update };
    table.foreign_keys.push(made);
    Ok(name)
}

/// The columns that are referred to. Errors: 42704 without a primary key; 42703, 42830.
fn parent_columns(parent: &Table, new: &NewForeignKey) -> Result<Vec<usize>, SqlError> {
    if new.parent_columns.is_empty() {
        return match parent.key.is_empty() {
            false => Ok(parent.key.clone()),
            true => {
                let message = format!("there is no primary key for referenced table \"{}\"", parent.name);
                Err(SqlError::statement("42704", message))
            }
        };
    }
    let mut columns = Vec::new();
    for column in &new.parent_columns {
        let missing = || format!("column \"{column}\" referenced in foreign key constraint does not exist");
        let at = parent.position(column).ok_or_else(|| SqlError::statement("42703", missing()))?;
        if columns.contains(&at) {
            let message = "foreign key referenced-columns list must not contain duplicates";
            return Err(SqlError::statement("42830", message));
        }
        columns.push(at);
    }
    Ok(columns)
}

/// The name of a new constraint: as given, or as PostgreSQL chooses it. Errors: 42710.
fn free_name(table: &Table, new: &NewForeignKey) -> Result<String, SqlError> {
    let is_taken = |name: &str| table.constraint_names().any(|known| known == name);
    match &new.name {
        Some(name) if is_taken(name) => Err(constraint_exists(table, name)),
        Some(name) => Ok(name.clone()),
        None => {
            let plain = format!("{}_{}_fkey", table.name, new.columns.join("_"));
            Ok(numbered(&plain, |name| !is_taken(name)))
        }
    }
}

/// Refuses columns whose values are not encoded alike. Errors: 42804; 0A000 for types that PostgreSQL compares.
fn check_types(name: &str, own: &Column, key: &Column) -> Result<(), SqlError> {
    if matches!(own.kind, SqlType::Real | SqlType::Double) {
        // Keys are equal where all NaN are, conditions where their bits are.
        return Err(SqlError::unsupported(format!("FOREIGN KEY of {}", own.kind.name())));
    }
    if own.kind.arrow() == key.kind.arrow() && is_key_type(own.kind) {
        return Ok(());
    }
    let is_number = |kind: SqlType| kind.arrow().is_numeric();
    let (from, to) = (own.kind.name(), key.kind.name());
    if is_number(own.kind) && is_number(key.kind) {
        let what = format!("FOREIGN KEY from {from} to {to}");
        return Err(SqlError::unsupported(what).with_hint("Give both columns the same type."));
    }
    let message = format!("foreign key constraint \"{name}\" cannot be implemented");
    let detail =
        format!("Key columns \"{}\" and \"{}\" are of incompatible types: {from} and {to}.", own.name, key.name);
    Err(SqlError::statement("42804", message).with_detail(detail))
}

/// Refuses a constraint that rows of a table violate; the transaction has both of its tables alone. Errors: 23503.
pub(crate) async fn validate(session: &Session, table: &Table, name: &str) -> Result<(), SqlError> {
    let catalog = session.shared.catalog();
    let Some(key) = table.foreign_keys.iter().find(|key| key.name == name) else { return Ok(()) };
    let Some(parent) = catalog.tables().find(|one| one.id == key.parent) else { return Ok(()) };
    changed_table::sees_all(session, table)?;
    changed_table::sees_all(session, parent)?;
    let (from, to) = (from(table), from(parent));
    let quoted = |table: &Table, at: &usize| format!("\"{}\"", table.columns[*at].name.replace('"', "\"\""));
    let own: Vec<String> = key.columns.iter().map(|at| format!("\"own\".{}", quoted(table, at))).collect();
    let others = key.parent_columns.iter().map(|at| format!("\"key\".{}", quoted(parent, at)));
    let others: Vec<String> = others.collect();
    let equal: Vec<String> = own.iter().zip(&others).map(|(own, other)| format!("{own} = {other}")).collect();
    let given: Vec<String> = own.iter().map(|own| format!("{own} IS NOT NULL")).collect();
    let items: Vec<String> = own.iter().enumerate().map(|(nth, own)| format!("{own} AS \"${nth}\"")).collect();
    let query = ast::parse(&format!(
        "SELECT {} FROM {from} AS \"own\" LEFT JOIN {to} AS \"key\" ON {} WHERE {} IS NULL AND {} LIMIT 1",
        items.join(", "),
        equal.join(" AND "),
        others[0],
        given.join(" AND "),
    ))?;
    let (_, batches) = changed_table::collect(session, &query, &[]).await?;
    match batches.iter().find(|batch| batch.num_rows() > 0) {
        Some(batch) => Err(references::not_there(table, key, parent, batch.columns())),
        None => Ok(()),
    }
}

/// A table as the engine's own queries name it.
fn from(table: &Table) -> String {
    let quoted = |name: &str| format!("\"{}\"", name.replace('"', "\"\""));
    format!("{}.{}", quoted(&format!("{TARGET}{}", table.schema_name)), quoted(&table.name))
}

/// DROP CONSTRAINT of a foreign key. Returns whether there is one of this name; the caller stores the definition.
pub(crate) fn drop(table: &mut Table, name: &str) -> bool {
    let before = table.foreign_keys.len();
    table.foreign_keys.retain(|key| key.name != name);
    table.foreign_keys.len() < before
}

/// Columns are dropped: as in PostgreSQL, so are the constraints with one of them. `kept` are the positions of the others.
pub(crate) fn drop_with_columns(table: &mut Table, kept: &[usize]) {
    table.foreign_keys.retain(|key| key.columns.iter().all(|at| kept.contains(at)));
    for at in table.foreign_keys.iter_mut().flat_map(|key| &mut key.columns) {
        *at = kept.partition_point(|kept| kept < at);
    }
}

/// The foreign keys to a table, each with its table.
fn keys_to(tables: &[Arc<Table>], parent: u64) -> impl Iterator<Item = (&Arc<Table>, &ForeignKey)> {
    let all = tables.iter().flat_map(|table| table.foreign_keys.iter().map(move |key| (table, key)));
    all.filter(move |(_, key)| key.parent == parent)
}

fn tables(session: &Session) -> Vec<Arc<Table>> {
    session.shared.catalog().tables().cloned().collect()
}

/// Why columns of a table to which foreign keys refer cannot be dropped: those that are referred to, and others too, whose positions are
/// stored.
pub(crate) fn needs_columns(session: &Session, table: &Table, dropped: &[usize]) -> SqlError {
    let tables = tables(session);
    let needs = |(_, key): &(&Arc<Table>, &ForeignKey)| key.parent_columns.iter().any(|at| dropped.contains(at));
    match keys_to(&tables, table.id).find(needs) {
        Some((child, key)) => {
            let at = key.parent_columns.iter().find(|at| dropped.contains(at)).copied().unwrap_or_default();
            let column = format!("column {} of table {}", table.columns[at].name, table.display());
            depended(&column, child, key).with_hint("Drop the foreign keys first.")
        }
        None => SqlError::unsupported("dropping a column of a table to which foreign keys refer")
            .with_hint("Drop the foreign keys, drop the column, and add them again."),
    }
}

/// Refuses another type of a column that refers or is referred to. Errors: 0A000.
pub(crate) fn refuse_type_of_key(table: &Table, at: usize) -> Result<(), SqlError> {
    // What the statement has itself added is not among those that refer to the table yet.
    let own = table
        .foreign_keys
        .iter()
        .any(|key| key.columns.contains(&at) || (key.parent == table.id && key.parent_columns.contains(&at)));
    match own || table.referenced.iter().any(|columns| columns.contains(&at)) {
        true => Err(SqlError::unsupported("another type of a column of a foreign key")
            .with_hint("Drop the foreign key, change the types, and add it again.")),
        false => Ok(()),
    }
}

/// Refuses to drop a unique index or constraint that is the only key for a foreign key. Errors: 2BP01.
pub(crate) fn refuse_drop_of_key(session: &Session, table: &Table, (kind, name): (&str, &str)) -> Result<(), SqlError> {
    let mut without = table.clone();
    without.indexes.retain(|index| index.name != name);
    let tables = tables(session);
    match keys_to(&tables, table.id).find(|(_, key)| key_of(&without, &key.parent_columns).is_none()) {
        Some((child, key)) => {
            let what = match kind {
                "index" => format!("index {name}"),
                _ => format!("constraint {name} on table {}", table.display()),
            };
            Err(depended(&what, child, key).with_hint("Drop the foreign keys first."))
        }
        None => Ok(()),
    }
}

fn depended(what: &str, child: &Table, key: &ForeignKey) -> SqlError {
    let detail = format!("constraint {} on table {} depends on {what}", key.name, child.display());
    SqlError::statement("2BP01", format!("cannot drop {what} because other objects depend on it")).with_detail(detail)
}

/// The tables that these names denote.
fn named(session: &Session, names: &[&ObjectName]) -> Result<Vec<Arc<Table>>, SqlError> {
    let catalog = session.shared.catalog();
    let mut found = Vec::new();
    for name in names {
        let (schema, name) = resolve(name)?;
        if let Some(crate::table::Entry::Table(table)) = catalog.get(&schema, &name) {
            found.push(table.clone());
        }
    }
    Ok(found)
}

/// Tables are dropped: foreign keys of other tables to them keep them, or are dropped too with CASCADE.
///
/// Errors: 2BP01; [`SqlError::Again`].
pub(crate) fn drop_of_others(session: &mut Session, names: &[ObjectName], cascade: bool) -> Result<(), SqlError> {
    let dropped = named(session, &names.iter().collect::<Vec<_>>())?;
    let goes = |id: u64| dropped.iter().any(|table| table.id == id);
    let tables = tables(session);
    let mut changed = Vec::new();
    for child in tables.iter().filter(|table| !goes(table.id)) {
        let Some(key) = child.foreign_keys.iter().find(|key| goes(key.parent)) else { continue };
        if !cascade {
            let parent = dropped.iter().find(|table| table.id == key.parent);
            let what = format!("table {}", parent.map_or_else(String::new, |table| table.display()));
            return Err(
                depended(&what, child, key).with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
            );
        }
        let mut without = (**child).clone();
        without.foreign_keys.retain(|key| !goes(key.parent));
        changed.push(without);
    }
    // All in the view in which they were found: none of them was changed since, and nothing that refers to one comes any more.
    let ids: Vec<u64> = dropped.iter().map(|table| table.id).chain(changed.iter().map(|table| table.id)).collect();
    for id in ids {
        session.changing_alone("DROP TABLE", id)?;
    }
    if changed.is_empty() {
        return Ok(());
    }
    let (tree, transaction) = (session.engine.catalog, session.changing("DROP TABLE")?);
    transaction.defines = true;
    transaction
        .with(|transaction| changed.iter().try_for_each(|table| catalog::put_table(transaction, tree, table)))?;
    session.refresh()
}

/// Refuses to empty a table to which others refer that are not emptied at the same time. Errors: 0A000.
pub(crate) fn refuse_truncate(session: &Session, names: &[&ObjectName]) -> Result<(), SqlError> {
    let emptied = named(session, names)?;
    let goes = |id: u64| emptied.iter().any(|table| table.id == id);
    let tables = tables(session);
    for parent in &emptied {
        if let Some((child, _)) = keys_to(&tables, parent.id).find(|(child, _)| !goes(child.id)) {
            let detail = format!("Table \"{}\" references \"{}\".", child.name, parent.name);
            let message = "cannot truncate a table referenced in a foreign key constraint";
            let hint = format!("Truncate table \"{}\" at the same time, or drop the constraint.", child.name);
            return Err(SqlError::statement("0A000", message).with_detail(detail).with_hint(hint));
        }
    }
    Ok(())
}
