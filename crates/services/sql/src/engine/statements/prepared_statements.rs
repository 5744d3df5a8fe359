//! The statements PREPARE, EXECUTE and DEALLOCATE, over the prepared statements of the session.
//!
//! PREPARE parses and plans a statement when it is run itself, so that what comes before it in the same text counts. EXECUTE computes the
//! values, takes them for the types of the parameters as an INSERT takes values for columns, and runs the statement; rights and definitions
//! are those of that moment.

use std::sync::{Arc, OnceLock};

use chrono::Utc;
use datafusion::arrow::array::ArrayRef;
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType as AstType, ExactNumberInfo, Expr, Ident, SelectItem, Statement,
};

use super::changed_table;
use crate::SqlError;
use crate::engine::parse::ast::{self, folded};
use crate::engine::semantics::assignment_casts::assign;
use crate::engine::semantics::cast_types::NUMERIC;
use crate::engine::session::named_statements::{NamedStatement, TEXT_BYTES_MAX, missing};
use crate::engine::{Prepared, Session, StatementResult};
use crate::table::{Column, SqlType};

/// Runs PREPARE and DEALLOCATE; `None` if it is another statement.
pub(super) async fn control(session: &mut Session, prepared: &Prepared) -> Result<Option<StatementResult>, SqlError> {
    let tag = match &prepared.statement {
        Some(Statement::Prepare { name, data_types, statement }) => {
            let text = prepared.text.as_deref();
            prepare(session, &folded(name), data_types, (statement, text)).await?;
            "PREPARE"
        }
        Some(Statement::Deallocate { name, .. }) => match is_all(name) {
            true => {
                session.named.remove_all();
                "DEALLOCATE ALL"
            }
            false if session.named.remove(&folded(name)) => "DEALLOCATE",
            false => return Err(missing(&folded(name))),
        },
        _ => return Ok(None),
    };
    Ok(Some(StatementResult::Done { tag: tag.into() }))
}

fn is_all(name: &Ident) -> bool {
    name.quote_style.is_none() && name.value.eq_ignore_ascii_case("all")
}

/// Refuses a statement that PREPARE does not take. Errors: 42601.
pub(super) fn check(statement: &Statement) -> Result<(), SqlError> {
    match statement {
        Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) => Ok(()),
        _ => Err(SqlError::statement("42601", "PREPARE takes SELECT, INSERT, UPDATE, DELETE and VALUES")),
    }
}

async fn prepare(
    session: &mut Session,
    name: &str,
    kinds: &[AstType],
    (statement, text): (&Statement, Option<&str>),
) -> Result<(), SqlError> {
    let sql = text.map_or_else(|| format!("PREPARE {name} AS {statement}"), str::to_owned);
    session.named.check_new(name, &sql, TEXT_BYTES_MAX)?;
    let hints = kinds.iter().map(declared).collect::<Result<Vec<_>, _>>()?;
    let one = session.prepare_inner(statement.clone(), &hints).await?;
    let statement =
        NamedStatement { prepared: Some(one), sql, from_sql: true, made: Utc::now(), sent: OnceLock::new() };
    session.named.insert(name.to_owned(), statement);
    Ok(())
}

/// The type of a parameter; `None` if the statement is to say it. Errors: those of types.
fn declared(kind: &AstType) -> Result<Option<DataType>, SqlError> {
    use AstType as T;
    Ok(match kind {
        T::Custom(name, arguments) if arguments.is_empty() && name.to_string().eq_ignore_ascii_case("unknown") => None,
        // As in PostgreSQL, a parameter has no size.
        T::Numeric(_) | T::Decimal(_) | T::Dec(_) => Some(NUMERIC),
        kind => Some(SqlType::from_ast(kind)?.arrow()),
    })
}

/// The statement that EXECUTE names.
///
/// Errors: 26000, 42601.
pub(super) fn called(session: &Session, statement: &Statement) -> Result<Arc<NamedStatement>, SqlError> {
    let Statement::Execute { name: Some(name), parameters, has_parentheses, immediate, into, using, output, default } =
        statement
    else {
        return Err(SqlError::statement("42601", "EXECUTE needs the name of a prepared statement"));
    };
    let is_other = *immediate || *output || *default || !into.is_empty() || !using.is_empty();
    let [name] = name.0.as_slice() else { return Err(missing(&name.to_string())) };
    let name = name.as_ident().filter(|_| !is_other && (*has_parentheses || parameters.is_empty()));
    let name = name.ok_or_else(|| SqlError::statement("42601", "EXECUTE is written as EXECUTE name (value, ..)"))?;
    session.named.get(&folded(name))
}

/// The values of EXECUTE, in the types that the statement takes.
///
/// Errors: 42601 for another number of them, 42804; 0A000 for a query among them; those of values.
pub(super) async fn values(
    session: &mut Session,
    statement: &Statement,
    kinds: &[Option<DataType>],
) -> Result<Vec<ScalarValue>, SqlError> {
    let Statement::Execute { name, parameters: given, .. } = statement else { return Ok(Vec::new()) };
    if given.len() != kinds.len() {
        let name = name.as_ref().map(ToString::to_string).unwrap_or_default();
        let message = format!("wrong number of parameters for prepared statement \"{name}\"");
        let detail = format!("Expected {} parameters but got {}.", kinds.len(), given.len());
        return Err(SqlError::statement("42601", message).with_detail(detail));
    }
    if given.is_empty() {
        return Ok(Vec::new());
    }
    let query = |_| SqlError::unsupported("a query in a parameter of EXECUTE");
    given.iter().try_for_each(|value| ast::no_subquery(value).map_err(query))?;
    session.refresh()?;
    let items: Vec<SelectItem> =
        given.iter().zip(kinds).enumerate().map(|(at, (value, kind))| item(at, value, kind)).collect();
    let (schema, batches) = changed_table::collect(session, &ast::select(items, Vec::new(), None)?, &[]).await?;
    let row = changed_table::joined(&schema, &batches)?;
    let columns = row.columns().iter().zip(given).zip(kinds).enumerate();
    columns.map(|(at, ((column, value), kind))| taken(at, column, ast::is_open(value), kind.as_ref())).collect()
}

/// A value as an item of a query. Numerics without a size keep their digits only where the query casts them.
fn item(at: usize, value: &Expr, kind: &Option<DataType>) -> SelectItem {
    let name = format!("${}", at + 1);
    if *kind != Some(NUMERIC) {
        return ast::named(value.clone(), &name);
    }
    let cast = Expr::Cast {
        kind: CastKind::Cast,
        expr: Box::new(value.clone()),
        data_type: AstType::Numeric(ExactNumberInfo::None),
        array: false,
        format: None,
    };
    ast::named(cast, &name)
}

/// A value in the type of its parameter.
fn taken(at: usize, column: &ArrayRef, is_open: bool, kind: Option<&DataType>) -> Result<ScalarValue, SqlError> {
    let wanted = kind.unwrap_or(&DataType::Utf8);
    if *wanted == NUMERIC {
        return Ok(ScalarValue::try_from_array(column, 0)?);
    }
    let column = match SqlType::from_arrow(&Field::new("", wanted.clone(), true)) {
        Ok(kind) => {
            let target = Column::new(format!("${}", at + 1), kind);
            assign(column, &target, is_open).map_err(|error| mismatch(error, at, column.data_type(), kind))?
        }
        Err(_) => column.clone(),
    };
    let value = ScalarValue::try_from_array(&column, 0)?;
    if value.data_type() == *wanted { Ok(value) } else { Ok(value.cast_to(wanted)?) }
}

/// The error of an assignment to a column, as one of a parameter.
fn mismatch(error: SqlError, at: usize, from: &DataType, to: SqlType) -> SqlError {
    if error.code() != "42804" {
        return error;
    }
    let from = SqlType::from_arrow(&Field::new("", from.clone(), true));
    let from = from.map_or_else(|_| "unknown".to_owned(), |kind| kind.name());
    let to = to.name();
    let message = format!("parameter ${} of type {from} cannot be coerced to the expected type {to}", at + 1);
    SqlError::statement("42804", message).with_hint("You will need to rewrite or cast the expression.")
}
