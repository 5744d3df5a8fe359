//! The columns of CREATE TABLE and ADD COLUMN: their types, defaults, sequences and constraints.

use std::collections::HashSet;

use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    CheckConstraint, ColumnDef, ColumnOption, CreateTable, Expr, GeneratedAs, PrimaryKeyConstraint, TableConstraint,
};

use super::changed_table;
use super::foreign_keys::NewForeignKey;
use super::indexes::NewIndex;
use super::new_object;
use super::sequences::{self, NewSequence};
use crate::SqlError;
use crate::engine::Session;
use crate::engine::parse::ast::{self, folded};
use crate::engine::plan::prepared;
use crate::engine::semantics::assignment_casts::assign;
use crate::table::key::is_key_type;
use crate::table::sequence::SequenceOptions;
use crate::table::{Column, SqlType};

/// Most columns of a table, as in PostgreSQL.
const COLUMNS_MOST: usize = 1600;

/// The columns and constraints of a table as they are declared.
#[derive(Default)]
pub(crate) struct ReadTable {
    pub(crate) columns: Vec<Column>,
    /// Positions and name of the primary key.
    pub(crate) key: Vec<usize>,
    pub(crate) key_name: String,
    /// For each column the sequence that it asks for.
    pub(crate) sequences: Vec<Option<NewSequence>>,
    pub(crate) checks: Vec<CheckConstraint>,
    pub(crate) uniques: Vec<NewIndex>,
    pub(crate) foreign_keys: Vec<NewForeignKey>,
}

impl ReadTable {
    /// Whether one of its indexes is given that name, or its primary key has it.
    pub(crate) fn gives_name(&self, name: &str) -> bool {
        self.key_name == name || self.uniques.iter().any(|unique| unique.given_name() == Some(name))
    }
}

/// Reads the columns and constraints of CREATE TABLE. Errors: those of its parts.
pub(crate) async fn read_columns(
    session: &Session,
    create: &CreateTable,
    (schema, name): (&str, &str),
) -> Result<ReadTable, SqlError> {
    let (mut columns, mut sequences, mut checks, mut uniques) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut key: Option<(Vec<String>, Option<String>)> = None;
    let mut foreign_keys = Vec::new();
    for definition in &create.columns {
        let ReadColumn { column, key: is_key, sequence, checks: of_column, uniques: unique, foreign_keys: foreign } =
            read_column(session, name, definition).await?;
        foreign_keys.extend(foreign);
        sequences.push(sequence);
        checks.extend(of_column);
        uniques.extend(unique);
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
            TableConstraint::Check(check) => checks.push(check.clone()),
            TableConstraint::Unique(unique) => uniques.push(NewIndex::of_table(unique)?),
            TableConstraint::ForeignKey(foreign) => foreign_keys.push(NewForeignKey::of_table(foreign)?),
            other => {
                return Err(SqlError::unsupported(format!("the constraint \"{other}\"")).with_hint(
                    "PRIMARY KEY, FOREIGN KEY, UNIQUE, NOT NULL and CHECK are supported; leave out others.",
                ));
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
        false => new_object::key_name(session, (schema, name), key_name)?,
    };
    Ok(ReadTable { columns, key: positions, key_name, sequences, checks, uniques, foreign_keys })
}

/// What cannot be said twice of a column.
const SEVERAL: &str = "multiple default values specified";
const BOTH: &str = "both default and identity specified";

/// A column as it is declared.
pub(crate) struct ReadColumn {
    pub(crate) column: Column,
    /// The constraint's name if it is declared as PRIMARY KEY.
    pub(crate) key: Option<Option<String>>,
    /// The sequence of a serial or identity column.
    pub(crate) sequence: Option<NewSequence>,
    /// Its CHECK constraints.
    pub(crate) checks: Vec<CheckConstraint>,
    /// Its UNIQUE constraints.
    pub(crate) uniques: Vec<NewIndex>,
    /// Its FOREIGN KEY constraints.
    pub(crate) foreign_keys: Vec<NewForeignKey>,
}

/// Reads the definition of a column. Errors: those of its parts.
pub(crate) async fn read_column(
    session: &Session,
    table: &str,
    definition: &ColumnDef,
) -> Result<ReadColumn, SqlError> {
    let serial = sequences::serial(&definition.data_type);
    let kind = match serial {
        Some(kind) => kind,
        None => SqlType::from_ast(&definition.data_type)?,
    };
    let mut column = Column::new(folded(&definition.name), kind);
    let (mut is_key, mut may_be_null, mut checks, mut uniques) = (None, false, Vec::new(), Vec::new());
    let mut foreign_keys = Vec::new();
    let mut sequence = serial.map(|kind| {
        let options = SequenceOptions { kind: Some(kind), ..SequenceOptions::default() };
        NewSequence { options, identity: None }
    });
    column.not_null = serial.is_some();
    let wrong = |what: &str, name: &str| {
        SqlError::statement("42601", format!("{what} for column \"{name}\" of table \"{table}\""))
    };
    for option in &definition.options {
        match &option.option {
            ColumnOption::Null => may_be_null = true,
            ColumnOption::NotNull => column.not_null = true,
            ColumnOption::PrimaryKey(_) => is_key = Some(option.name.as_ref().map(folded)),
            ColumnOption::Unique(unique) => {
                uniques.push(NewIndex::of_column(&column.name, unique, option.name.as_ref())?);
            }
            ColumnOption::ForeignKey(foreign) => {
                foreign_keys.push(NewForeignKey::of_column(&column.name, foreign, option.name.as_ref())?);
            }
            ColumnOption::Check(check) => {
                // The parser keeps its name with the option.
                checks.push(CheckConstraint { name: check.name.clone().or(option.name.clone()), ..check.clone() });
            }
            ColumnOption::Default(_) if column.default.is_some() || sequence.is_some() => {
                let is_identity = sequence.as_ref().is_some_and(|sequence| sequence.identity.is_some());
                return Err(wrong(if is_identity { BOTH } else { SEVERAL }, &column.name));
            }
            ColumnOption::Default(expr) => {
                column.default = Some(sequences::stored_default(expr));
                check_default(session, &column, expr).await?;
            }
            ColumnOption::Generated {
                generated_as: generated @ (GeneratedAs::Always | GeneratedAs::ByDefault),
                sequence_options,
                generation_expr: None,
                ..
            } => {
                if column.default.is_some() || sequence.is_some() {
                    return Err(wrong(BOTH, &column.name));
                }
                let options = sequences::identity_options(kind, sequence_options.as_deref().unwrap_or_default())?;
                sequence = Some(NewSequence { options, identity: Some(*generated == GeneratedAs::Always) });
                column.not_null = true;
            }
            other => {
                return Err(SqlError::unsupported(format!("\"{other}\" of column \"{}\"", column.name)).with_hint(
                    "PRIMARY KEY, REFERENCES, UNIQUE, NOT NULL, CHECK and DEFAULT are supported; leave out others.",
                ));
            }
        }
    }
    if may_be_null && column.not_null {
        return Err(wrong("conflicting NULL/NOT NULL declarations", &column.name));
    }
    Ok(ReadColumn { column, key: is_key, sequence, checks, uniques, foreign_keys })
}

/// Checks that a default can be evaluated, and has the column's type.
pub(crate) async fn check_default(session: &Session, column: &Column, expr: &Expr) -> Result<(), SqlError> {
    ast::no_subquery(expr)?;
    let query = ast::select(vec![ast::named(expr.clone(), "default")], Vec::new(), None)?;
    let plan = prepared::plan_query(&session.context, &query).await?;
    if plan.expressions().iter().any(|expr| expr.is_volatile()) {
        // It has a value for each row, and none now: a sequence stays where it is.
        let columns = prepared::columns(&session.context, &plan);
        let example = ScalarValue::new_default(columns.field(0).data_type())?.to_array()?;
        assign(&example, column, ast::is_open(expr))?;
        return Ok(());
    }
    let (schema, batches) = changed_table::collect(session, &query, &[]).await?;
    assign(changed_table::joined(&schema, &batches)?.column(0), column, ast::is_open(expr))?;
    Ok(())
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
