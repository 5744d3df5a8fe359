//! The statement ALTER TABLE.
//!
//! Adding a column changes no row: older rows have the default that the column had when it was added. Dropping a column
//! moves all rows into another storage, in the same transaction ([`table_rewrite`]), and so does another type of a column. So its space is freed, and readers need not handle
//! dropped columns.

use datafusion::sql::sqlparser::ast::{
    AlterColumnOperation, AlterTable, AlterTableOperation, ColumnDef, DropBehavior, Expr, Ident, RenameTableNameKind,
    SelectItem, Statement, TableConstraint,
};
use node::identity::{Action, ObjectChange};

use super::changed_table;
use super::changed_table::column_position;
use super::column_defaults;
use super::column_definitions::{self, ReadColumn, check_names};
use super::foreign_keys::{self, NewForeignKey};
use super::indexes::{self, NewIndex};
use super::new_object::{done, taken};
use super::{check_constraints, primary_keys, sequences, table_rewrite};
use crate::engine::parse::ast;
use crate::engine::parse::ast::folded;
use crate::engine::parse::ast::resolve;
use crate::engine::plan::access::{exactly, table_object};
use crate::engine::plan::prepared;
use crate::engine::plan::view_dependencies;
use crate::engine::{Session, StatementResult};
use crate::table::row_encoding::encode_value;
use crate::table::{Table, catalog, comments};
use crate::{ErrorObject, SqlError};

pub(crate) async fn alter(session: &mut Session, alter: &AlterTable) -> Result<StatementResult, SqlError> {
    let table = match changed_table::table(session, &alter.name, Action::TableOwn) {
        Err(error) if alter.if_exists && error.code() == "42P01" => return done("ALTER TABLE"),
        table => table?,
    };
    refuse_beside_rename(&alter.operations)?;
    session.changing_alone("ALTER TABLE", table.id)?;
    // Views keep the names with which they were created.
    let takes = |operation: &AlterTableOperation| {
        use AlterTableOperation::{AlterColumn, DropColumn, RenameColumn, RenameTable};
        matches!(operation, RenameTable { .. } | RenameColumn { .. } | DropColumn { .. })
            || matches!(operation, AlterColumn { op: AlterColumnOperation::SetDataType { .. }, .. })
    };
    if alter.operations.iter().any(takes) {
        let name = (table.schema_name.clone(), table.name.clone());
        let readers = view_dependencies::readers(&session.shared.catalog(), &[name])?;
        view_dependencies::refuse_readers("alter table", &readers)
            .map_err(|error| error.with_hint("Drop the views, change the table, and create them again."))?;
    }
    let old = table.name.clone();
    let before = table.clone();
    let mut table = (*table).clone();
    match dropped(&table, &alter.operations)? {
        Some(columns) if columns.is_empty() => return done("ALTER TABLE"),
        Some(columns) if !table.referenced.is_empty() => {
            return Err(foreign_keys::needs_columns(session, &table, &columns));
        }
        Some(columns) => without(session, &mut table, &columns).await?,
        None => {
            for operation in &alter.operations {
                alter_one(session, &mut table, operation).await?;
            }
            (table.schema, table.addressed) = Table::schemas(&table.columns, &table.key);
        }
    }
    let tree = session.engine.catalog;
    let transaction = session.changing("ALTER TABLE")?;
    transaction.defines = true;
    transaction.with(|transaction| {
        if table.name != old {
            comments::rename(transaction, tree, &table.schema_name, (&old, &table.name))?;
            catalog::remove(transaction, tree, &table.schema_name, &old)?;
        }
        catalog::put_table(transaction, tree, &table)
    })?;
    let changes = changes(&before, &table, &alter.operations)?;
    session.objects_changed("ALTER TABLE", changes)?;
    done("ALTER TABLE")
}

/// Refuses RENAME beside other changes: what depends on the table is looked up by the names before the statement. PostgreSQL's syntax has
/// no such statement. Errors: 42601.
fn refuse_beside_rename(operations: &[AlterTableOperation]) -> Result<(), SqlError> {
    use AlterTableOperation::{RenameColumn, RenameTable};
    let is_rename = |operation: &AlterTableOperation| matches!(operation, RenameTable { .. } | RenameColumn { .. });
    match operations.len() > 1 && operations.iter().any(is_rename) {
        true => Err(SqlError::statement("42601", "RENAME stands alone in an ALTER TABLE")
            .with_hint("Use a statement of its own for each.")),
        false => Ok(()),
    }
}

/// What rights must know of: another name of the table, columns that are gone or have another name.
fn changes(before: &Table, table: &Table, operations: &[AlterTableOperation]) -> Result<Vec<ObjectChange>, SqlError> {
    let of = |name: &str| exactly(table_object(&table.schema_name, name));
    let mut changes = Vec::new();
    for operation in operations {
        if let AlterTableOperation::RenameColumn { old_column_name, new_column_name } = operation {
            let (from, to) = (folded(old_column_name), Some(folded(new_column_name)));
            changes.push(ObjectChange::Column { table: of(&before.name)?, from, to });
        }
    }
    if changes.is_empty() {
        for column in before.columns.iter().filter(|column| table.position(&column.name).is_none()) {
            changes.push(ObjectChange::Column { table: of(&before.name)?, from: column.name.clone(), to: None });
        }
    }
    if table.name != before.name {
        changes.push(ObjectChange::Renamed { from: of(&before.name)?, to: of(&table.name)? });
    }
    Ok(changes)
}

async fn alter_one(session: &mut Session, table: &mut Table, operation: &AlterTableOperation) -> Result<(), SqlError> {
    match operation {
        AlterTableOperation::RenameTable { table_name: RenameTableNameKind::To(name) } => {
            let (_, name) = resolve(name)?;
            if session.shared.catalog().is_taken(&table.schema_name, &name) {
                return Err(taken(&name));
            }
            if let Some(access) = session.access() {
                access.make_in(&table.schema_name)?;
            }
            table.name = name;
        }
        AlterTableOperation::RenameColumn { old_column_name, new_column_name } => {
            let at = column_position(table, &folded(old_column_name))?;
            table.columns[at].name = folded(new_column_name);
            check_names(&table.columns)?;
            check_constraints::rename_column(table, &folded(old_column_name), &folded(new_column_name))?;
            sequences::rename_owner(session, table.id, &folded(old_column_name), &folded(new_column_name))?;
            let (tree, transaction) = (session.engine.catalog, session.changing("ALTER TABLE")?);
            transaction.with(|transaction| {
                comments::change(transaction, tree, (&table.schema_name, &table.name), |comments| {
                    comments.rename_column(&folded(old_column_name), &folded(new_column_name));
                    Ok(())
                })
            })?;
        }
        AlterTableOperation::AddColumn { if_not_exists, column_def, column_position: None, .. } => {
            if *if_not_exists && table.position(&folded(&column_def.name)).is_some() {
                return Ok(());
            }
            add_column(session, table, column_def).await?;
        }
        AlterTableOperation::AlterColumn { column_name, op } => {
            let at = column_position(table, &folded(column_name))?;
            alter_column(session, table, at, op).await?;
        }
        AlterTableOperation::AddConstraint { constraint: TableConstraint::PrimaryKey(key), not_valid: false } => {
            let positions = primary_keys::positions(table, key)?;
            for at in &positions {
                if !table.columns[*at].not_null {
                    set_not_null(session, table, *at).await?;
                }
            }
            primary_keys::add(session, table, key, positions).await?;
        }
        AlterTableOperation::AddConstraint {
            constraint:
                constraint @ (TableConstraint::Check(_) | TableConstraint::Unique(_) | TableConstraint::ForeignKey(_)),
            not_valid: false,
        } => add_constraint(session, table, constraint).await?,
        AlterTableOperation::DropConstraint { if_exists, name, .. } => {
            if !foreign_keys::drop(table, &folded(name)) && !indexes::drop_constraint(session, table, &folded(name))? {
                drop_constraint(table, &folded(name), *if_exists)?;
            }
        }
        other => return Err(SqlError::unsupported(format!("ALTER TABLE .. {other}"))),
    }
    Ok(())
}

/// ALTER COLUMN. Errors: 42601 for what identity columns do not have; 0A000.
async fn alter_column(
    session: &mut Session,
    table: &mut Table,
    at: usize,
    op: &AlterColumnOperation,
) -> Result<(), SqlError> {
    match op {
        AlterColumnOperation::SetDefault { .. } | AlterColumnOperation::DropDefault
            if table.columns[at].identity.is_some() =>
        {
            let (column, table) = (&table.columns[at].name, &table.name);
            let message = format!("column \"{column}\" of relation \"{table}\" is an identity column");
            return Err(SqlError::statement("42601", message));
        }
        AlterColumnOperation::DropNotNull if table.columns[at].identity.is_some() => {
            let (column, table) = (&table.columns[at].name, &table.name);
            let message = format!("column \"{column}\" of relation \"{table}\" is an identity column");
            return Err(SqlError::statement("42601", message));
        }
        AlterColumnOperation::SetDefault { value } => {
            table.columns[at].default = Some(sequences::stored_default(value));
            column_definitions::check_default(session, &table.columns[at], value).await?;
        }
        AlterColumnOperation::DropDefault => table.columns[at].default = None,
        AlterColumnOperation::SetDataType { data_type, using, .. } => {
            foreign_keys::refuse_type_of_key(table, at)?;
            table_rewrite::set_type(session, table, at, (data_type, using.as_ref())).await?;
        }
        AlterColumnOperation::SetNotNull if !table.columns[at].not_null => set_not_null(session, table, at).await?,
        AlterColumnOperation::SetNotNull => {}
        AlterColumnOperation::DropNotNull if !table.key.contains(&at) => table.columns[at].not_null = false,
        other => return Err(SqlError::unsupported(format!("ALTER COLUMN .. {other}"))),
    }
    Ok(())
}

/// Adds a constraint, which all rows fulfil. Errors: 23505, 23514 and others.
async fn add_constraint(
    session: &mut Session,
    table: &mut Table,
    constraint: &TableConstraint,
) -> Result<(), SqlError> {
    match constraint {
        TableConstraint::Check(check) => {
            let known: Vec<String> = table.checks.iter().map(|check| check.name.clone()).collect();
            check_constraints::add(session, table, std::slice::from_ref(check)).await?;
            let added = table.checks.iter().map(|check| check.name.clone()).find(|name| !known.contains(name));
            check_constraints::validate(session, table, &added.unwrap_or_default()).await
        }
        TableConstraint::Unique(unique) => {
            if let Some(access) = session.access() {
                access.make_in(&table.schema_name)?;
            }
            indexes::add(session, "ALTER TABLE", table, NewIndex::of_table(unique)?)
        }
        TableConstraint::ForeignKey(foreign) => {
            let name = foreign_keys::add(session, "ALTER TABLE", table, NewForeignKey::of_table(foreign)?)?;
            // The query for its rows sees what was changed before in the same statement.
            table_rewrite::store(session, table)?;
            foreign_keys::validate(session, table, &name).await
        }
        other => Err(SqlError::unsupported(format!("the constraint \"{other}\""))),
    }
}

/// Errors: 23502 if a row has NULL there.
async fn set_not_null(session: &Session, table: &mut Table, at: usize) -> Result<(), SqlError> {
    let (name, relation) = (table.columns[at].name.clone(), &table.name);
    let is_null = Expr::IsNull(Box::new(ast::column_of(relation, &name)));
    let one = SelectItem::UnnamedExpr(ast::expression_of("1")?);
    let mut query = ast::select(vec![one], vec![ast::addressed(table, relation)?], Some(is_null))?;
    ast::limit_to_one(&mut query);
    changed_table::sees_all(session, table)?;
    let (_, batches) = changed_table::collect(session, &query, &[]).await?;
    if batches.iter().any(|batch| batch.num_rows() > 0) {
        let message = format!("column \"{name}\" of relation \"{relation}\" contains null values");
        let (schema, table, column) = (table.schema_name.clone(), table.name.clone(), Some(name));
        return Err(SqlError::value("23502", message).about(ErrorObject {
            schema,
            table,
            column,
            ..ErrorObject::default()
        }));
    }
    let column = &mut table.columns[at];
    (column.not_null, column.held_null) = (true, true);
    Ok(())
}

/// Errors: 42704; 0A000 for the primary key.
fn drop_constraint(table: &mut Table, name: &str, if_exists: bool) -> Result<(), SqlError> {
    if !table.key.is_empty() && table.key_name == name {
        return Err(SqlError::unsupported("dropping a primary key"));
    }
    let before = table.checks.len();
    table.checks.retain(|check| check.name != name);
    if table.checks.len() == before && !if_exists {
        let message = format!("constraint \"{name}\" of relation \"{}\" does not exist", table.name);
        return Err(SqlError::statement("42704", message));
    }
    Ok(())
}

async fn add_column(session: &Session, table: &mut Table, definition: &ColumnDef) -> Result<(), SqlError> {
    let ReadColumn { mut column, key: is_key, sequence, checks, uniques, foreign_keys } =
        column_definitions::read_column(session, &table.name, definition).await?;
    if sequence.is_some() {
        return Err(SqlError::unsupported("ADD COLUMN of a serial or identity column")
            .with_hint("Create a sequence, add the column, UPDATE the rows, then ALTER COLUMN .. SET DEFAULT."));
    }
    if !checks.is_empty() {
        return Err(SqlError::unsupported("ADD COLUMN with CHECK").with_hint("Add the constraint afterwards."));
    }
    if is_key.is_some() {
        return Err(SqlError::unsupported("ADD COLUMN with PRIMARY KEY"));
    }
    if !uniques.is_empty() {
        return Err(SqlError::unsupported("ADD COLUMN with UNIQUE").with_hint("Add the constraint afterwards."));
    }
    if !foreign_keys.is_empty() {
        return Err(SqlError::unsupported("ADD COLUMN with REFERENCES").with_hint("Add the constraint afterwards."));
    }
    if column.default.is_some() {
        let default = ast::default_of(&column)?;
        let query = ast::select(vec![SelectItem::UnnamedExpr(default)], Vec::new(), None)?;
        if prepared::plan_query(&session.context, &query).await?.expressions().iter().any(|expr| expr.is_volatile()) {
            return Err(SqlError::unsupported("ADD COLUMN with a default that differs for each row")
                .with_hint("Add the column without a default, UPDATE the rows, then ALTER COLUMN .. SET DEFAULT."));
        }
        let value = column_defaults::default_value(session, &column).await?;
        if !value.is_null() {
            column.missing = Some(encode_value(column.kind, &value.to_array()?)?);
        }
    }
    if column.not_null && column.missing.is_none() {
        return Err(SqlError::unsupported("ADD COLUMN with NOT NULL and no default"));
    }
    table.columns.push(column);
    check_names(&table.columns)
}

/// Moves the rows into another storage without those columns.
async fn without(session: &mut Session, table: &mut Table, dropped: &[usize]) -> Result<(), SqlError> {
    let kept: Vec<usize> = (0..table.columns.len()).filter(|at| !dropped.contains(at)).collect();
    let column = |at: &usize| {
        SelectItem::UnnamedExpr(Expr::Identifier(Ident::with_quote('"', table.columns[*at].name.as_str())))
    };
    let name = ast::addressed(table, &table.name)?;
    let query: Statement = ast::select(kept.iter().map(column).collect(), vec![name], None)?;
    let rows = table_rewrite::old_rows(session, table, &query).await?;
    let old = table.clone();
    check_constraints::drop_with_columns(table, dropped)?;
    foreign_keys::drop_with_columns(table, &kept);
    table.columns = kept.iter().map(|at| crate::table::Column { missing: None, ..old.columns[*at].clone() }).collect();
    indexes::drop_with_columns(table, &kept);
    table.key = old.key.iter().map(|key| kept.partition_point(|at| at < key)).collect();
    table_rewrite::write_rows(session, table, &old, rows, &vec![false; kept.len()]).await?;
    for at in dropped {
        sequences::drop_owned(session, "ALTER TABLE", old.id, Some(&old.columns[*at].name), false)?;
    }
    Ok(())
}

/// The columns to drop; `None` if the statement does something else.
fn dropped(table: &Table, operations: &[AlterTableOperation]) -> Result<Option<Vec<usize>>, SqlError> {
    let mut columns = Vec::new();
    let mut others = false;
    for operation in operations {
        let AlterTableOperation::DropColumn { column_names, if_exists, drop_behavior, .. } = operation else {
            others = true;
            continue;
        };
        if *drop_behavior == Some(DropBehavior::Cascade) {
            return Err(SqlError::unsupported("CASCADE").with_hint("Drop the dependent objects first."));
        }
        for name in column_names {
            match column_position(table, &folded(name)) {
                Err(_) if *if_exists => {}
                Err(error) => return Err(error),
                Ok(at) if table.key.contains(&at) => {
                    return Err(SqlError::unsupported("dropping a column of the primary key"));
                }
                Ok(at) if columns.contains(&at) => {}
                Ok(at) => columns.push(at),
            }
        }
    }
    let drops = operations.iter().any(|operation| matches!(operation, AlterTableOperation::DropColumn { .. }));
    match (drops, others) {
        (true, true) => Err(SqlError::unsupported("DROP COLUMN beside other changes in one ALTER TABLE")),
        (true, false) if columns.len() == table.columns.len() => {
            Err(SqlError::unsupported("dropping all columns").with_hint("DROP TABLE drops the table."))
        }
        (true, false) => Ok(Some(columns)),
        (false, _) => Ok(None),
    }
}
