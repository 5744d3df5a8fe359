//! Statements that act on the session: transactions, savepoints, settings.

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::ast::{
    ContextModifier, DiscardObject, Expr, Ident, Set, Statement, TransactionAccessMode, TransactionIsolationLevel,
    TransactionMode, Value,
};
use std::sync::Arc;

use super::called_settings;
use crate::SqlError;
use crate::engine::parse::ast::folded;
use crate::engine::session::isolation::Isolation;
use crate::engine::{Session, StatementResult};

fn done(tag: &str) -> Result<Option<StatementResult>, SqlError> {
    Ok(Some(StatementResult::Done { tag: tag.into() }))
}

/// Runs such a statement; `None` if it is another one.
pub(crate) async fn control(session: &mut Session, statement: &Statement) -> Result<Option<StatementResult>, SqlError> {
    match statement {
        Statement::StartTransaction { modes, statements, .. } if statements.is_empty() => begin(session, modes),
        Statement::Commit { chain: false, modifier: None, .. } => commit(session).await,
        Statement::Rollback { chain: false, savepoint: None } => {
            session.transaction.take();
            session.transaction.clear_failed();
            session.settings.end(false);
            done("ROLLBACK")
        }
        Statement::Rollback { chain: false, savepoint: Some(name) } => {
            session.transaction.in_block("ROLLBACK TO SAVEPOINT")?.rollback_to(&folded(name))?;
            session.settings.rollback_to(&folded(name));
            session.transaction.clear_failed();
            done("ROLLBACK")
        }
        Statement::Commit { chain: true, .. } | Statement::Rollback { chain: true, .. } => {
            Err(SqlError::unsupported("AND CHAIN"))
        }
        Statement::Savepoint { name } => {
            session.transaction.in_block("SAVEPOINT")?.savepoint(&folded(name))?;
            session.settings.savepoint(folded(name));
            done("SAVEPOINT")
        }
        Statement::ReleaseSavepoint { name } => {
            session.transaction.in_block("RELEASE SAVEPOINT")?.release(&folded(name))?;
            session.settings.release(&folded(name));
            done("RELEASE")
        }
        Statement::Set(to) => set(session, to),
        Statement::Reset(reset) => {
            session.settings.change(false, |settings| settings.reset(&reset.to_string()))?;
            done("RESET")
        }
        Statement::Discard { object_type: DiscardObject::PLANS } => done("DISCARD PLANS"),
        Statement::Discard { object_type: DiscardObject::TEMP } => done("DISCARD TEMP"),
        Statement::Discard { object_type: DiscardObject::SEQUENCES } => {
            session.shared.taken.forget();
            done("DISCARD SEQUENCES")
        }
        Statement::Discard { object_type: DiscardObject::ALL } => {
            if session.transaction.is_open() && !session.transaction.is_implicit() {
                return Err(SqlError::transaction("25001", "DISCARD ALL cannot run inside a transaction block"));
            }
            session.advisory.unlock_all();
            session.settings.change(false, |settings| {
                settings.set_role(None);
                settings.reset("RESET ALL")
            })?;
            session.shared.taken.forget();
            session.named.remove_all();
            session.listener.leave_all();
            done("DISCARD ALL")
        }
        Statement::ShowVariable { variable } => show(session, variable).map(Some),
        _ => Ok(None),
    }
}

fn begin(session: &mut Session, modes: &[TransactionMode]) -> Result<Option<StatementResult>, SqlError> {
    let (read_only, isolation) = read_modes(modes)?;
    if !session.transaction.is_open() {
        session.transaction.clear_failed();
        session.transaction.begin(session.new_transaction(false));
    }
    session.settings.begin();
    if let Some(transaction) = session.transaction.open_mut() {
        // In an open transaction PostgreSQL warns and continues; modes that are not given stay.
        transaction.implicit = false;
        transaction.read_only = read_only.unwrap_or(transaction.read_only);
        isolation.map_or(Ok(()), |isolation| transaction.set_isolation(isolation))?;
    }
    done("BEGIN")
}

async fn commit(session: &mut Session) -> Result<Option<StatementResult>, SqlError> {
    let failed = session.transaction.has_failed();
    session.transaction.clear_failed();
    match session.transaction.take() {
        Some(_) if failed => {
            session.settings.end(false);
            done("ROLLBACK")
        }
        Some(transaction) => {
            let outcome = match session.canceller.close() {
                Ok(()) => transaction.commit().await,
                Err(cancelled) => Err(cancelled),
            };
            session.settings.end(outcome.is_ok());
            outcome?;
            done("COMMIT")
        }
        // PostgreSQL warns and continues.
        None => done("COMMIT"),
    }
}

fn set(session: &mut Session, to: &Set) -> Result<Option<StatementResult>, SqlError> {
    match to {
        Set::SetTransaction { modes, session: of_session, snapshot: None } => {
            let (read_only, isolation) = read_modes(modes)?;
            if *of_session {
                let read_only = read_only.map(|is| ("default_transaction_read_only", if is { "on" } else { "off" }));
                let isolation = isolation.map(|level| ("default_transaction_isolation", level.shown()));
                for (name, value) in read_only.into_iter().chain(isolation) {
                    session.settings.change(false, |settings| settings.set(name, value))?;
                }
            } else if let Some(transaction) = session.transaction.open_mut() {
                isolation.map_or(Ok(()), |isolation| transaction.set_isolation(isolation))?;
                transaction.read_only = read_only.unwrap_or(transaction.read_only);
            }
            done("SET")
        }
        Set::SingleAssignment { scope, variable, values, .. } => {
            let texts: Vec<String> = values.iter().map(setting_text).collect();
            let (name, value) = (variable.to_string(), texts.join(", "));
            let local = matches!(scope, Some(ContextModifier::Local));
            if name.eq_ignore_ascii_case("transaction_isolation") {
                return set_isolation(session, &value);
            }
            session.settings.change(local, |settings| settings.set(&name, &value))?;
            done("SET")
        }
        Set::SetTimeZone { local, value } => {
            session.settings.change(*local, |settings| settings.set("timezone", &setting_text(value)))?;
            done("SET")
        }
        Set::SetNames { charset_name, .. } => {
            session.settings.change(false, |settings| settings.set("client_encoding", &charset_name.value))?;
            done("SET")
        }
        other => Err(SqlError::unsupported(format!("\"{other}\""))),
    }
}

/// SET transaction_isolation: that of the open transaction.
fn set_isolation(session: &mut Session, value: &str) -> Result<Option<StatementResult>, SqlError> {
    let mut settings = session.settings.now().clone();
    // The same values, with the same errors.
    settings.set("default_transaction_isolation", value)?;
    if let Some(transaction) = session.transaction.open_mut() {
        transaction.set_isolation(settings.default_isolation())?;
    }
    done("SET")
}

fn show(session: &mut Session, variable: &[Ident]) -> Result<StatementResult, SqlError> {
    if is_all(variable) {
        return called_settings::show_all(session);
    }
    let value = match (shown(variable).as_str(), session.transaction.open()) {
        ("transaction_read_only", Some(transaction)) if transaction.read_only => "on".to_string(),
        ("transaction_isolation", Some(transaction)) => transaction.isolation.shown().to_string(),
        ("transaction_isolation", None) => session.settings.now().get("default_transaction_isolation")?,
        ("transaction_read_only", None) => session.settings.now().get("default_transaction_read_only")?,
        (name, _) => session.settings.now().get(name)?,
    };
    let column: ArrayRef = Arc::new(StringArray::from(vec![value]));
    Ok(StatementResult::of_batch(RecordBatch::try_new(show_schema(variable), vec![column])?, "SHOW"))
}

/// The setting that SHOW names.
fn shown(variable: &[Ident]) -> String {
    let names: Vec<String> = variable.iter().map(|ident| ident.value.to_lowercase()).collect();
    match names.join(" ").as_str() {
        "transaction isolation level" => "transaction_isolation".to_string(),
        "time zone" => "timezone".to_string(),
        other => other.replace(' ', "."),
    }
}

fn is_all(variable: &[Ident]) -> bool {
    matches!(variable, [all] if all.quote_style.is_none() && all.value.eq_ignore_ascii_case("all"))
}

/// The columns of SHOW.
pub(crate) fn show_schema(variable: &[Ident]) -> SchemaRef {
    if is_all(variable) {
        return called_settings::all_schema();
    }
    Arc::new(Schema::new(vec![Field::new(shown(variable), DataType::Utf8, false)]))
}

fn setting_text(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => text.clone(),
            other => other.to_string(),
        },
        Expr::Identifier(ident) => ident.value.clone(),
        other => other.to_string(),
    }
}

/// Whether the modes contain READ ONLY or READ WRITE, and which; and the isolation level. Errors: 0A000 for SERIALIZABLE.
fn read_modes(modes: &[TransactionMode]) -> Result<(Option<bool>, Option<Isolation>), SqlError> {
    let (mut read_only, mut isolation) = (None, None);
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(mode) => read_only = Some(*mode == TransactionAccessMode::ReadOnly),
            TransactionMode::IsolationLevel(level) => {
                isolation = Some(match level {
                    TransactionIsolationLevel::ReadCommitted | TransactionIsolationLevel::ReadUncommitted => {
                        Isolation::ReadCommitted
                    }
                    TransactionIsolationLevel::RepeatableRead => Isolation::RepeatableRead,
                    TransactionIsolationLevel::Serializable => return Err(Isolation::serializable()),
                    TransactionIsolationLevel::Snapshot => {
                        return Err(SqlError::statement("42601", "there is no isolation level SNAPSHOT"));
                    }
                });
            }
        }
    }
    Ok((read_only, isolation))
}
