//! Statements that are about the session: transactions, savepoints, settings.

use datafusion::arrow::array::{ArrayRef, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::sql::sqlparser::ast::{
    CloseCursor, ContextModifier, Expr, Ident, Set, Statement, TransactionAccessMode, TransactionIsolationLevel,
    TransactionMode, Value,
};
use futures::stream;
use std::sync::Arc;

use super::block::Block;
use super::settings::Settings;
use super::{Answer, Session};
use crate::SqlError;

/// What the settings are after the open transaction, by how it ends.
#[derive(Debug)]
pub(crate) struct Ends {
    rolled_back: Settings,
    committed: Settings,
    /// By savepoint, as they were there: the present ones, and those after a commit.
    saved: Vec<(String, Settings, Settings)>,
}

impl Ends {
    fn new(settings: &Settings) -> Ends {
        Ends { rolled_back: settings.clone(), committed: settings.clone(), saved: Vec::new() }
    }

    fn last(&self, name: &str) -> Option<usize> {
        self.saved.iter().rposition(|(saved, _, _)| saved == name)
    }
}

fn done(tag: &str) -> Result<Option<Answer>, SqlError> {
    Ok(Some(Answer::Done { tag: tag.into() }))
}

impl Session {
    /// Runs a statement about the session; `None` if it is not one.
    pub(crate) async fn control(&mut self, statement: &Statement) -> Result<Option<Answer>, SqlError> {
        match statement {
            Statement::StartTransaction { modes, statements, .. } if statements.is_empty() => self.begin(modes),
            Statement::Commit { chain: false, modifier: None, .. } => self.commit().await,
            Statement::Rollback { chain: false, savepoint: None } => {
                self.block = None;
                self.set_failed(false);
                self.end_settings(false);
                done("ROLLBACK")
            }
            Statement::Rollback { chain: false, savepoint: Some(name) } => {
                self.in_block("ROLLBACK TO SAVEPOINT")?.rollback_to(&folded(name))?;
                if let Some(ends) = &mut self.ends
                    && let Some(at) = ends.last(&folded(name))
                {
                    ends.saved.truncate(at + 1);
                    (self.settings, ends.committed) = (ends.saved[at].1.clone(), ends.saved[at].2.clone());
                }
                self.set_failed(false);
                done("ROLLBACK")
            }
            Statement::Commit { chain: true, .. } | Statement::Rollback { chain: true, .. } => {
                Err(SqlError::unsupported("AND CHAIN"))
            }
            Statement::Savepoint { name } => {
                self.in_block("SAVEPOINT")?.savepoint(&folded(name))?;
                if let Some(ends) = &mut self.ends {
                    ends.saved.push((folded(name), self.settings.clone(), ends.committed.clone()));
                }
                done("SAVEPOINT")
            }
            Statement::ReleaseSavepoint { name } => {
                self.in_block("RELEASE SAVEPOINT")?.release(&folded(name))?;
                if let Some(ends) = &mut self.ends
                    && let Some(at) = ends.last(&folded(name))
                {
                    ends.saved.truncate(at);
                }
                done("RELEASE")
            }
            Statement::Set(set) => self.set(set),
            Statement::Reset(reset) => {
                self.change_settings(false, |settings| settings.reset(&reset.to_string()))?;
                done("RESET")
            }
            // Nothing can be declared, and nobody be listened to; pools say so for each connection that comes back to them.
            Statement::Close { cursor: CloseCursor::All } => done("CLOSE CURSOR ALL"),
            Statement::UNLISTEN { channel } if channel.value == "*" => done("UNLISTEN"),
            Statement::Discard { .. } => {
                self.change_settings(false, |settings| settings.reset("RESET ALL"))?;
                done("DISCARD ALL")
            }
            Statement::ShowVariable { variable } => self.show(variable).map(Some),
            _ => Ok(None),
        }
    }

    fn in_block(&mut self, what: &str) -> Result<&mut Block, SqlError> {
        match &mut self.block {
            Some(block) if !block.implicit => Ok(block),
            _ => Err(SqlError::transaction("25P01", format!("{what} can only be used in transaction blocks"))),
        }
    }

    fn begin(&mut self, modes: &[TransactionMode]) -> Result<Option<Answer>, SqlError> {
        let read_only = read_modes(modes)?;
        if self.block.is_none() {
            self.set_failed(false);
            self.block = Some(self.new_block(false));
        }
        self.keep_settings();
        if let Some(block) = &mut self.block {
            // In an open one PostgreSQL warns and goes on; modes that are not given stay.
            block.implicit = false;
            block.read_only = read_only.unwrap_or(block.read_only);
        }
        done("BEGIN")
    }

    async fn commit(&mut self) -> Result<Option<Answer>, SqlError> {
        let failed = self.has_failed();
        self.set_failed(false);
        match self.block.take() {
            Some(_) if failed => {
                self.end_settings(false);
                done("ROLLBACK")
            }
            Some(block) => {
                let outcome = match self.canceller.close() {
                    Ok(()) => block.commit().await,
                    Err(cancelled) => Err(cancelled),
                };
                self.end_settings(outcome.is_ok());
                outcome?;
                done("COMMIT")
            }
            // PostgreSQL warns and goes on.
            None => done("COMMIT"),
        }
    }

    /// Changes settings: for good, which a rollback undoes, or until the transaction ends.
    fn change_settings(
        &mut self,
        local: bool,
        change: impl Fn(&mut Settings) -> Result<(), SqlError>,
    ) -> Result<(), SqlError> {
        // Where there is no transaction, PostgreSQL warns that nothing changes.
        let mut changed = self.settings.clone();
        change(&mut changed)?;
        match (&mut self.ends, local) {
            (None, true) => return Ok(()),
            (Some(ends), false) => change(&mut ends.committed)?,
            _ => {}
        }
        self.settings = changed;
        Ok(())
    }

    /// A transaction begins: the settings are what a rollback leaves.
    pub(crate) fn keep_settings(&mut self) {
        if self.ends.is_none() {
            self.ends = Some(Ends::new(&self.settings));
        }
    }

    /// The transaction is over: the settings are those that this end leaves.
    pub(crate) fn end_settings(&mut self, committed: bool) {
        if let Some(ends) = self.ends.take() {
            self.settings = if committed { ends.committed } else { ends.rolled_back };
        }
    }

    fn set(&mut self, set: &Set) -> Result<Option<Answer>, SqlError> {
        match set {
            Set::SetTransaction { modes, session, snapshot: None } => {
                let read_only = read_modes(modes)?;
                if let Some(read_only) = read_only {
                    if *session {
                        let value = if read_only { "on" } else { "off" };
                        self.change_settings(false, |settings| settings.set("default_transaction_read_only", value))?;
                    } else if let Some(block) = &mut self.block {
                        block.read_only = read_only;
                    }
                }
                done("SET")
            }
            Set::SingleAssignment { scope, variable, values, .. } => {
                let texts: Vec<String> = values.iter().map(setting_text).collect();
                let (name, value) = (variable.to_string(), texts.join(", "));
                let local = matches!(scope, Some(ContextModifier::Local));
                self.change_settings(local, |settings| settings.set(&name, &value))?;
                done("SET")
            }
            Set::SetTimeZone { local, value } => {
                self.change_settings(*local, |settings| settings.set("timezone", &setting_text(value)))?;
                done("SET")
            }
            Set::SetNames { charset_name, .. } => {
                self.change_settings(false, |settings| settings.set("client_encoding", &charset_name.value))?;
                done("SET")
            }
            other => Err(SqlError::unsupported(format!("\"{other}\""))),
        }
    }

    fn show(&mut self, variable: &[Ident]) -> Result<Answer, SqlError> {
        let value = match (shown(variable).as_str(), &self.block) {
            ("transaction_read_only", Some(block)) if block.read_only => "on".to_string(),
            ("transaction_read_only", None) => self.settings.get("default_transaction_read_only")?,
            (name, _) => self.settings.get(name)?,
        };
        let schema = show_schema(variable);
        let column: ArrayRef = Arc::new(StringArray::from(vec![value]));
        let batch = RecordBatch::try_new(schema.clone(), vec![column])?;
        let stream: SendableRecordBatchStream =
            Box::pin(RecordBatchStreamAdapter::new(schema.clone(), stream::iter([Ok(batch)])));
        Ok(Answer::Rows { schema, stream, tag: "SHOW" })
    }
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

/// The columns of SHOW.
pub(crate) fn show_schema(variable: &[Ident]) -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(shown(variable), DataType::Utf8, false)]))
}

/// An identifier as SQL folds it.
pub(crate) fn folded(ident: &Ident) -> String {
    if ident.quote_style.is_some() { ident.value.clone() } else { ident.value.to_lowercase() }
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

/// Whether the modes say read only, if they say. Errors: 0A000 for SERIALIZABLE.
fn read_modes(modes: &[TransactionMode]) -> Result<Option<bool>, SqlError> {
    let mut read_only = None;
    for mode in modes {
        match mode {
            TransactionMode::AccessMode(mode) => read_only = Some(*mode == TransactionAccessMode::ReadOnly),
            TransactionMode::IsolationLevel(TransactionIsolationLevel::Serializable) => {
                return Err(SqlError::unsupported("isolation level SERIALIZABLE")
                    .with_hint("REPEATABLE READ gives snapshot isolation; write skew is possible."));
            }
            TransactionMode::IsolationLevel(_) => {}
        }
    }
    Ok(read_only)
}
