//! CREATE, ALTER and DROP SEQUENCE, the sequences of serial and identity columns, and what depends on sequences.
//!
//! ```text
//!   a serial                             default nextval('t_a_seq'::regclass), and a sequence that belongs to t.a
//!   a generated always as identity       the same without a default: the column names its sequence itself
//! ```
//!
//! A sequence that belongs to a column is dropped with it. One that a default names cannot be dropped alone.

use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, Ident, ObjectName,
    SequenceOptions as ParsedOption, Value, VisitMut, VisitorMut, visit_expressions,
};
use node::identity::ObjectChange;

use super::new_object::{done, free, numbered};
use crate::SqlError;
use crate::engine::parse::ast::{self, resolve};
use crate::engine::parse::sequence_parser::SequenceStatement;
use crate::engine::plan::access::{exactly, table_object};
use crate::engine::{Session, StatementResult};
use crate::table::sequence::{Sequence, SequenceOptions, SequenceOwner};
use crate::table::{Catalog, Column, Entry, IdentityColumn, SqlType, Table, catalog};
use crate::text::identifiers::{parts, quoted};

/// The functions whose first argument names a sequence.
pub(crate) const OF_SEQUENCES: [&str; 3] = ["nextval", "currval", "setval"];

/// A sequence that a column definition asks for.
#[derive(Debug)]
pub(crate) struct NewSequence {
    pub(crate) options: SequenceOptions,
    /// For an identity column whether it is GENERATED ALWAYS; `None` for a serial one.
    pub(crate) identity: Option<bool>,
}

/// The type of a serial column; `None` if the type is another one.
pub(crate) fn serial(kind: &DataType) -> Option<SqlType> {
    let DataType::Custom(name, arguments) = kind else { return None };
    if !arguments.is_empty() {
        return None;
    }
    match name.to_string().to_lowercase().as_str() {
        "serial" | "serial4" => Some(SqlType::Integer),
        "bigserial" | "serial8" => Some(SqlType::BigInt),
        "smallserial" | "serial2" => Some(SqlType::SmallInt),
        _ => None,
    }
}

/// The options of an identity column's sequence. Errors: 0A000, 22023, 42601.
pub(crate) fn identity_options(kind: SqlType, given: &[ParsedOption]) -> Result<SequenceOptions, SqlError> {
    let number = |expr: &Expr| -> Result<i64, SqlError> {
        let text = expr.to_string().replace(' ', "");
        text.parse().map_err(|_| SqlError::statement("42601", format!("{expr} is not a whole number")))
    };
    let bound = |expr: &Option<Expr>| expr.as_ref().map(number).transpose();
    if !matches!(kind, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt) {
        return Err(SqlError::statement("22023", "identity column type must be smallint, integer, or bigint"));
    }
    let mut options = SequenceOptions { kind: Some(kind), ..SequenceOptions::default() };
    for option in given {
        match option {
            ParsedOption::IncrementBy(by, _) => options.increment = Some(number(by)?),
            ParsedOption::MinValue(min) => options.min = Some(bound(min)?),
            ParsedOption::MaxValue(max) => options.max = Some(bound(max)?),
            ParsedOption::StartWith(start, _) => options.start = Some(number(start)?),
            ParsedOption::Cache(cache) => options.cache = Some(number(cache)?),
            // The parser's flag is that of NO CYCLE.
            ParsedOption::Cycle(is_no) => options.cycle = Some(!is_no),
        }
    }
    Ok(options)
}

/// Chooses names for the sequences of new columns, which are free, and lets the columns name them. Returns the
/// sequences without their owner.
pub(crate) fn name_sequences(
    session: &Session,
    (schema, table): (&str, &str),
    columns: &mut [Column],
    asked: Vec<Option<NewSequence>>,
) -> Result<Vec<(usize, Sequence)>, SqlError> {
    let catalog = session.shared.catalog();
    let mut made: Vec<(usize, Sequence)> = Vec::new();
    for (at, new) in asked.into_iter().enumerate() {
        let Some(NewSequence { options, identity }) = new else { continue };
        let plain = format!("{table}_{}_seq", columns[at].name);
        let name = numbered(&plain, |name| {
            name != table && !catalog.is_taken(schema, name) && made.iter().all(|(_, other)| other.name != name)
        });
        let mut sequence = options.applied(None)?;
        (sequence.schema_name, sequence.name) = (schema.into(), name.clone());
        match identity {
            Some(always) => {
                columns[at].identity = Some(IdentityColumn { always, schema: schema.into(), sequence: name });
            }
            None => columns[at].default = Some(default_text(schema, &name)),
        }
        made.push((at, sequence));
    }
    Ok(made)
}

/// `nextval('s'::regclass)`.
fn default_text(schema: &str, name: &str) -> String {
    let name = if schema == catalog::PUBLIC { quoted(name) } else { format!("{}.{}", quoted(schema), quoted(name)) };
    format!("nextval('{}'::regclass)", name.replace('\'', "''"))
}

/// Stores the sequences of a table's new columns.
pub(crate) fn create_owned(
    session: &mut Session,
    what: &str,
    table: &Table,
    made: Vec<(usize, Sequence)>,
) -> Result<(), SqlError> {
    for (at, mut sequence) in made {
        let column = &table.columns[at];
        let identity = column.identity.is_some();
        sequence.owner = Some(SequenceOwner { table: table.id, column: column.name.clone(), identity });
        store_new(session, what, sequence)?;
    }
    Ok(())
}

/// Stores a new sequence, which belongs to the role whose rights count.
fn store_new(session: &mut Session, what: &str, mut sequence: Sequence) -> Result<(), SqlError> {
    sequence.id = session.engine.next_number();
    sequence.counter = session.engine.next_number();
    let (tree, transaction) = (session.engine.catalog, session.changing(what)?);
    transaction.defines = true;
    transaction.counters.made.push(sequence.counter);
    transaction.with(|transaction| catalog::put_sequence(transaction, tree, &sequence))?;
    let Some(access) = session.access() else { return Ok(()) };
    let (owner, object) = (access.caller().current(), exactly(table_object(&sequence.schema_name, &sequence.name))?);
    session.objects_changed(what, vec![ObjectChange::CreatedWithoutDefaults { object, owner }])
}

/// The sequence of that name. Errors: 42P01, 42809.
pub(crate) fn find(catalog: &Catalog, schema: &str, name: &str) -> Result<Arc<Sequence>, SqlError> {
    match catalog.get(schema, name) {
        Some(Entry::Sequence(sequence)) => Ok(Arc::clone(sequence)),
        Some(_) => Err(SqlError::statement("42809", format!("\"{name}\" is not a sequence"))),
        None => {
            let name = if schema == catalog::PUBLIC { name.to_owned() } else { format!("{schema}.{name}") };
            Err(SqlError::statement("42P01", format!("relation \"{name}\" does not exist")))
        }
    }
}

fn object_name(name: &[String]) -> ObjectName {
    ObjectName::from(name.iter().map(|part| Ident::with_quote('"', part)).collect::<Vec<_>>())
}

pub(crate) fn run(session: &mut Session, statement: &SequenceStatement) -> Result<StatementResult, SqlError> {
    match statement {
        SequenceStatement::Create { name, if_not_exists, options } => create(session, name, *if_not_exists, options),
        SequenceStatement::Alter { name, if_exists, options } => alter(session, name, *if_exists, options),
    }
}

fn create(
    session: &mut Session,
    name: &[String],
    if_not_exists: bool,
    options: &SequenceOptions,
) -> Result<StatementResult, SqlError> {
    let tag = "CREATE SEQUENCE";
    let Some((schema, name)) = free(session, &object_name(name), if_not_exists)? else { return done(tag) };
    let mut sequence = options.applied(None)?;
    (sequence.schema_name, sequence.name) = (schema, name);
    sequence.owner = owner_of(session, &sequence, options)?;
    store_new(session, tag, sequence)?;
    done(tag)
}

/// The column of OWNED BY. Errors: 42P01, 42703, 42501, 55000.
fn owner_of(
    session: &Session,
    sequence: &Sequence,
    options: &SequenceOptions,
) -> Result<Option<SequenceOwner>, SqlError> {
    let column = match &options.owned_by {
        None => return Ok(sequence.owner.clone()),
        Some(None) => return Ok(None),
        Some(Some(column)) => column,
    };
    let Some((column, table)) = column.split_last().filter(|(_, table)| !table.is_empty()) else {
        let error = SqlError::statement("42601", "invalid OWNED BY option");
        return Err(error.with_hint("Specify OWNED BY table.column or OWNED BY NONE."));
    };
    let (schema, name) = resolve(&object_name(table))?;
    let found = super::changed_table::find(&session.shared.catalog(), &object_name(table))?;
    if let Some(access) = session.access() {
        access.own("table", &schema, &name)?;
        if access.owner(&schema, &name) != access.owner(&sequence.schema_name, &sequence.name)
            && session.shared.catalog().get(&sequence.schema_name, &sequence.name).is_some()
        {
            return Err(SqlError::statement("55000", "sequence must have same owner as table it is linked to"));
        }
    }
    if schema != sequence.schema_name {
        return Err(SqlError::statement("55000", "sequence must be in same schema as table it is linked to"));
    }
    super::changed_table::column_position(&found, column)?;
    Ok(Some(SequenceOwner { table: found.id, column: column.clone(), identity: false }))
}

fn alter(
    session: &mut Session,
    name: &[String],
    if_exists: bool,
    options: &SequenceOptions,
) -> Result<StatementResult, SqlError> {
    let tag = "ALTER SEQUENCE";
    let (schema, name) = resolve(&object_name(name))?;
    let old = match find(&session.shared.catalog(), &schema, &name) {
        Err(error) if if_exists && error.code() == "42P01" => return done(tag),
        old => old?,
    };
    if let Some(access) = session.access() {
        access.own("sequence", &schema, &name)?;
        session.shared.still(&access, &schema, &name, true)?;
    }
    if options.owned_by.is_some() && old.owner.as_ref().is_some_and(|owner| owner.identity) {
        let error = SqlError::statement("0A000", "cannot change ownership of identity sequence");
        return Err(error.with_detail(format!("Sequence \"{name}\" is linked to a table.")));
    }
    let mut sequence = options.applied(Some(&old))?;
    sequence.owner = owner_of(session, &sequence, options)?;
    if options.restart.is_some() {
        sequence.counter = session.engine.next_number();
    } else {
        sequence.check_standing(session.engine.sequences.settle(&old)?)?;
    }
    let (tree, transaction) = (session.engine.catalog, session.changing(tag)?);
    transaction.defines = true;
    if options.restart.is_some() {
        transaction.counters.replaced(old.counter, sequence.counter);
    }
    transaction.with(|transaction| catalog::put_sequence(transaction, tree, &sequence))?;
    done(tag)
}

/// Gives the sequence of an identity column the column's type, as ALTER SEQUENCE .. AS does. The sequence of a serial column keeps its
/// own. Errors: 22023, also if what it has given is none of that type.
pub(crate) fn set_type(session: &mut Session, column: &Column) -> Result<(), SqlError> {
    let Some(identity) = &column.identity else { return Ok(()) };
    let old = find(&session.shared.catalog(), &identity.schema, &identity.sequence)?;
    let options = SequenceOptions { kind: Some(column.kind), ..SequenceOptions::default() };
    let sequence = options.applied(Some(&old))?;
    sequence.check_standing(session.engine.sequences.settle(&old)?)?;
    let (tree, transaction) = (session.engine.catalog, session.changing("ALTER TABLE")?);
    transaction.defines = true;
    transaction.with(|transaction| catalog::put_sequence(transaction, tree, &sequence))
}

/// Lets the sequences of a table's columns begin anew: TRUNCATE .. RESTART IDENTITY.
pub(crate) fn restart_owned(session: &mut Session, table: u64) -> Result<(), SqlError> {
    let owned: Vec<Arc<Sequence>> = session.shared.catalog().sequences_of(table).cloned().collect();
    for sequence in owned {
        if let Some(access) = session.access() {
            access.own("sequence", &sequence.schema_name, &sequence.name)?;
        }
        let counter = session.engine.next_number();
        let old = sequence.counter;
        let sequence = Sequence { counter, first: sequence.start, ..(*sequence).clone() };
        let (tree, transaction) = (session.engine.catalog, session.changing("TRUNCATE TABLE")?);
        transaction.defines = true;
        transaction.counters.replaced(old, counter);
        transaction.with(|transaction| catalog::put_sequence(transaction, tree, &sequence))?;
    }
    Ok(())
}

pub(crate) fn drop(
    session: &mut Session,
    names: &[ObjectName],
    if_exists: bool,
    cascade: bool,
) -> Result<StatementResult, SqlError> {
    let tag = "DROP SEQUENCE";
    for name in names {
        let (schema, name) = resolve(name)?;
        let sequence = match find(&session.shared.catalog(), &schema, &name) {
            Err(error) if if_exists && error.code() == "42P01" => continue,
            Err(error) if error.code() == "42P01" => {
                return Err(SqlError::statement("42P01", format!("sequence \"{name}\" does not exist")));
            }
            sequence => sequence?,
        };
        if let Some(access) = session.access() {
            access.own("sequence", &schema, &name)?;
            session.shared.still(&access, &schema, &name, true)?;
        }
        if let Some(owner) = sequence.owner.as_ref().filter(|owner| owner.identity) {
            let catalog = session.shared.catalog();
            let table = catalog.tables().find(|table| table.id == owner.table).map(|table| table.name.clone());
            let column = format!("column {} of table {}", owner.column, table.unwrap_or_default());
            let message = format!("cannot drop sequence {name} because {column} requires it");
            return Err(SqlError::statement("2BP01", message).with_hint(format!("You can drop {column} instead.")));
        }
        end_uses(session, tag, &sequence, None, cascade)?;
        remove(session, tag, &sequence)?;
        session.refresh()?;
    }
    done(tag)
}

/// Drops the sequences of a table that is dropped, or of one of its columns. Errors: 2BP01 if others name them.
pub(crate) fn drop_owned(
    session: &mut Session,
    what: &str,
    table: u64,
    column: Option<&str>,
    cascade: bool,
) -> Result<(), SqlError> {
    let owned: Vec<Arc<Sequence>> = session.shared.catalog().sequences_of(table).cloned().collect();
    for sequence in owned {
        let of_column = sequence.owner.as_ref().map(|owner| owner.column.as_str());
        if column.is_some() && of_column != column {
            continue;
        }
        end_uses(session, what, &sequence, Some((table, column)), cascade)?;
        remove(session, what, &sequence)?;
    }
    Ok(())
}

/// A column has another name: so has it in its sequences.
pub(crate) fn rename_owner(session: &mut Session, table: u64, from: &str, to: &str) -> Result<(), SqlError> {
    let owned: Vec<Arc<Sequence>> = session.shared.catalog().sequences_of(table).cloned().collect();
    for sequence in owned {
        let Some(owner) = sequence.owner.as_ref().filter(|owner| owner.column == from) else { continue };
        let owner = Some(SequenceOwner { column: to.into(), ..owner.clone() });
        let sequence = Sequence { owner, ..(*sequence).clone() };
        let (tree, transaction) = (session.engine.catalog, session.changing("ALTER TABLE")?);
        transaction.defines = true;
        transaction.with(|transaction| catalog::put_sequence(transaction, tree, &sequence))?;
    }
    Ok(())
}

fn remove(session: &mut Session, what: &str, sequence: &Sequence) -> Result<(), SqlError> {
    let (tree, transaction) = (session.engine.catalog, session.changing(what)?);
    transaction.defines = true;
    transaction.counters.ended.push(sequence.counter);
    transaction.with(|transaction| catalog::remove(transaction, tree, &sequence.schema_name, &sequence.name))?;
    let dropped = exactly(table_object(&sequence.schema_name, &sequence.name))?;
    session.objects_changed(what, vec![ObjectChange::Dropped(dropped)])
}

/// Refuses to drop a sequence that defaults name, or drops the defaults. `with`: a table that is dropped too, or a
/// column of it. Errors: 2BP01.
fn end_uses(
    session: &mut Session,
    what: &str,
    sequence: &Sequence,
    with: Option<(u64, Option<&str>)>,
    cascade: bool,
) -> Result<(), SqlError> {
    let mut users = users(&session.shared.catalog(), sequence)?;
    users.retain(|(table, at)| match with {
        Some((id, None)) => table.id != id,
        Some((id, Some(column))) => table.id != id || table.columns[*at].name != column,
        None => true,
    });
    let name = &sequence.name;
    if !cascade && !users.is_empty() {
        let lines = users.iter().map(|(table, at)| {
            let (column, table) = (&table.columns[*at].name, &table.name);
            format!("default value for column {column} of table {table} depends on sequence {name}")
        });
        let message = format!("cannot drop sequence {name} because other objects depend on it");
        return Err(SqlError::statement("2BP01", message)
            .with_detail(lines.collect::<Vec<_>>().join("\n"))
            .with_hint("Use DROP .. CASCADE to drop the dependent objects too."));
    }
    for (table, at) in users {
        // Several columns of one table may name it.
        let current = session.shared.catalog().tables().find(|known| known.id == table.id).cloned();
        let mut table = (*current.unwrap_or(table)).clone();
        table.columns[at].default = None;
        let (tree, transaction) = (session.engine.catalog, session.changing_alone(what, table.id)?);
        transaction.defines = true;
        transaction.with(|transaction| catalog::put_table(transaction, tree, &table))?;
        session.refresh()?;
    }
    Ok(())
}

/// The columns whose defaults name a sequence.
fn users(catalog: &Catalog, sequence: &Sequence) -> Result<Vec<(Arc<Table>, usize)>, SqlError> {
    let mut users = Vec::new();
    for table in catalog.tables() {
        for (at, column) in table.columns.iter().enumerate() {
            let Some(default) = &column.default else { continue };
            if default.to_lowercase().contains("val(") && names(&ast::expression_of(default)?, sequence) {
                users.push((Arc::clone(table), at));
            }
        }
    }
    Ok(users)
}

/// Whether an expression calls a function of sequences with this one's name.
fn names(expr: &Expr, sequence: &Sequence) -> bool {
    let found = visit_expressions(expr, |expr| {
        let Expr::Function(function) = expr else { return ControlFlow::Continue(()) };
        let named = named(function).and_then(|name| resolved(name).ok());
        match named.is_some_and(|(schema, name)| schema == sequence.schema_name && name == sequence.name) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    });
    found.is_break()
}

/// Schema and name of a sequence as a text names it. Errors: 42602.
pub(crate) fn resolved(name: &str) -> Result<(String, String), SqlError> {
    let wrong = || SqlError::statement("42602", format!("invalid name syntax: \"{name}\""));
    let parts = parts(name).ok_or_else(wrong)?;
    resolve(&object_name(&parts))
}

fn is_of_sequences(function: &Function) -> bool {
    let name = function.name.to_string().to_lowercase();
    OF_SEQUENCES.contains(&name.strip_prefix("pg_catalog.").unwrap_or(&name))
}

/// The text that names a sequence in a call.
fn named(function: &Function) -> Option<&str> {
    let FunctionArguments::List(arguments) = &function.args else { return None };
    let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = arguments.args.first() else { return None };
    if !is_of_sequences(function) {
        return None;
    }
    text_of(first)
}

fn text_of(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Nested(inner) => text_of(inner),
        Expr::Cast { expr, .. } => text_of(expr),
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => Some(text),
            _ => None,
        },
        _ => None,
    }
}

/// The text of a default as PostgreSQL shows it: a text that names a sequence is a `regclass`.
pub(crate) fn stored_default(default: &Expr) -> String {
    struct Cast;
    impl VisitorMut for Cast {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::Function(function) = expr
                && is_of_sequences(function)
                && let FunctionArguments::List(arguments) = &mut function.args
                && let Some(FunctionArg::Unnamed(FunctionArgExpr::Expr(first))) = arguments.args.first_mut()
                && let Some(name) = text_of(first).map(str::to_owned)
            {
                let data_type = DataType::Custom(ObjectName::from(vec![Ident::new("regclass")]), Vec::new());
                let expr = Box::new(Expr::Value(Value::SingleQuotedString(name).into()));
                *first = Expr::Cast { kind: CastKind::DoubleColon, expr, data_type, array: false, format: None };
            }
            ControlFlow::Continue(())
        }
    }
    let mut default = default.clone();
    let _ = default.visit(&mut Cast);
    default.to_string()
}
