//! Runs a prepared statement: as part of the open transaction, or as a transaction of its own.

use datafusion::execution::SendableRecordBatchStream;
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{ObjectType, Statement};

use super::repeats::{Changing, changing_rows};
use super::{
    advisory_calls, alter_table, called_settings, comment, copy, create_drop, create_external_table, create_view,
    cursor_statements, explain, indexes, insert, lock_table, maintenance, notification_statements, point_query,
    prepared_statements, references, rights, select_for_update, sequences, session_statements, update_delete,
};
use crate::SqlError;
use crate::engine::parse::rights::statement::RightsStatement;
use crate::engine::plan::access::hidden;
use crate::engine::plan::{column_labels, prepared};
use crate::engine::run::cancellable_stream::CancellableStream;
use crate::engine::session::session_role;
use crate::engine::{Prepared, Session, StatementResult};

impl Session {
    /// Runs a statement. `parameters` are the values of `$1`, `$2`, ...
    pub async fn execute(
        &mut self,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<StatementResult, SqlError> {
        if prepared.is_empty() {
            return Ok(StatementResult::Done { tag: String::new() });
        }
        self.transaction.take_back();
        if !self.transaction.is_open() {
            self.transaction.clear_failed();
        } else if self.transaction.has_failed() && !prepared.statement.as_ref().is_some_and(ends_failure) {
            return Err(SqlError::transaction(
                "25P02",
                "current transaction is aborted, commands ignored until end of transaction block",
            ));
        }
        let begins = !self.transaction.is_open();
        self.account.begin(!begins);
        let running = self.canceller.begin(self.settings.now().statement_timeout());
        self.shared.trail.begin(words_of(prepared));
        self.settings.show();
        self.renew_access();
        let shared = self.shared.clone();
        let revoked = async {
            match running.revoke(shared.until_revoked().await) {
                Some(why) => why,
                None => std::future::pending().await,
            }
        };
        let outcome = tokio::select! {
            biased;
            outcome = self.dispatch(prepared, parameters) => outcome,
            why = running.requested_end() => Err(why),
            why = revoked => Err(why),
        };
        let (failure, reader, access) = (self.transaction.failure(), self.reader(), self.access());
        let watch = |stream| -> SendableRecordBatchStream {
            let on_failure = Box::new(move || failure.report());
            Box::pin(CancellableStream::new(stream, &running, (on_failure, reader), access))
        };
        match outcome {
            Ok(StatementResult::Rows { schema, stream, tag }) => {
                Ok(StatementResult::Rows { schema, stream: watch(stream), tag })
            }
            Ok(StatementResult::CopyOut(mut copy)) => {
                copy.stream = watch(copy.stream);
                Ok(StatementResult::CopyOut(copy))
            }
            // The statement continues: its rows are still to come.
            Ok(StatementResult::CopyIn(copy)) => Ok(StatementResult::CopyIn(copy)),
            Ok(answer) => {
                running.end();
                Ok(answer)
            }
            Err(error) => {
                running.end();
                // A statement that is cancelled while it runs drops its own implicit transaction, which rolls it back.
                if begins && self.transaction.is_implicit() {
                    self.transaction.take();
                }
                self.transaction.failure().report();
                Err(error)
            }
        }
    }

    async fn dispatch(&mut self, prepared: &Prepared, parameters: &[ScalarValue]) -> Result<StatementResult, SqlError> {
        let Some(execute @ Statement::Execute { .. }) = &prepared.statement else {
            return self.dispatch_one(prepared, parameters).await;
        };
        let called = prepared_statements::called(self, execute)?;
        let Some(prepared) = &called.prepared else { return Ok(StatementResult::Done { tag: String::new() }) };
        self.shared.trail.begin(words_of(prepared));
        let values = prepared_statements::values(self, execute, &prepared.parameters).await?;
        Box::pin(self.dispatch_one(prepared, &values)).await
    }

    async fn dispatch_one(
        &mut self,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<StatementResult, SqlError> {
        if let Some(rights) = &prepared.rights {
            return self.dispatch_rights(rights).await;
        }
        if let Some(sequence) = &prepared.sequence {
            return changing_rows(self, Changing::Sequence(sequence)).await;
        }
        if let Some(maintenance) = &prepared.maintenance {
            return maintenance::run(self, maintenance).await;
        }
        let Some(statement) = &prepared.statement else { return Ok(StatementResult::Done { tag: String::new() }) };
        let controlled = session_statements::control(self, statement).await;
        // The end of a transaction may have undone a SET ROLE.
        session_role::follow_role(self)?;
        if let Some(answer) = controlled? {
            return Ok(answer);
        }
        if let Some(answer) = notification_statements::control(self, statement)? {
            return Ok(answer);
        }
        if let Some(answer) = prepared_statements::control(self, prepared).await? {
            return Ok(answer);
        }
        if let Some(answer) = cursor_statements::control(self, statement, parameters).await? {
            return Ok(answer);
        }
        match statement {
            Statement::Query(_) if prepared.locking.is_some() => {
                changing_rows(self, Changing::Other(statement, prepared.locking, parameters)).await
            }
            Statement::Query(_) => {
                self.refresh()?;
                if let Some(calls) = advisory_calls::calls(statement) {
                    return calls.run(self, statement, parameters).await;
                }
                if let Some(calls) = called_settings::calls(statement) {
                    return called_settings::run(self, calls, statement, parameters).await;
                }
                if let Some(calls) = notification_statements::calls(statement) {
                    return notification_statements::run(self, calls, statement, parameters).await;
                }
                self.query(statement, prepared, parameters).await
            }
            Statement::Explain { .. } => {
                self.refresh()?;
                explain::explain(self, statement, parameters).await
            }
            Statement::Copy { .. } => copy::copy(self, statement).await,
            _ => changing_rows(self, Changing::Other(statement, None, parameters)).await,
        }
    }

    async fn dispatch_rights(&mut self, rights: &RightsStatement) -> Result<StatementResult, SqlError> {
        if let Some(answer) = rights::run::of_session(self, rights)? {
            return Ok(answer);
        }
        changing_rows(self, Changing::Rights(rights)).await
    }

    async fn query(
        &mut self,
        statement: &Statement,
        prepared: &Prepared,
        parameters: &[ScalarValue],
    ) -> Result<StatementResult, SqlError> {
        if let Some(answer) = point_query::quick_query(self, statement, parameters)? {
            return Ok(answer);
        }
        let plan = match self.shared.kept_plan(prepared) {
            Some(plan) => plan,
            None => prepared::plan_with(&self.context, statement, &prepared.parameters).await?.0,
        };
        let stream = self.run(plan, parameters).await?;
        let schema = column_labels::labelled(statement, &stream.schema());
        let stream = column_labels::relabel(stream, schema.clone());
        Ok(StatementResult::Rows { schema, stream, tag: "SELECT" })
    }

    /// Runs a statement that changes something, once.
    pub(super) async fn change(&mut self, changing: Changing<'_>) -> Result<StatementResult, SqlError> {
        if let Some(open) = self.transaction.open() {
            open.pending_keys().clear();
        }
        let (statement, locking, parameters) = match changing {
            Changing::Rights(rights) => return rights::run::change(self, rights).await,
            Changing::Sequence(sequence) => return sequences::run(self, sequence),
            Changing::Other(statement, locking, parameters) => (statement, locking, parameters),
        };
        let answer = match statement {
            Statement::Query(_) => match locking {
                Some(locking) => select_for_update::select(self, locking, statement, parameters).await,
                None => Err(create_drop::unsupported(statement)),
            },
            Statement::Insert(insert) => insert::insert(self, insert, parameters).await,
            Statement::Update(update) => update_delete::update(self, update, parameters).await,
            Statement::Delete(delete) => update_delete::delete(self, delete, parameters).await,
            _ => define(self, statement).await,
        };
        let answer = match answer {
            Ok(answer) => references::check(self).await.map(|()| answer),
            Err(error) => Err(error),
        };
        let answer = answer.map_err(|error| hidden(error, self.access().as_ref()));
        // What was read for it may have been revoked since.
        answer.and_then(|answer| self.access().map_or(Ok(()), |access| access.recheck()).map(|()| answer))
    }
}

/// The first words of a statement that changes definitions, for the audit.
fn words_of(prepared: &Prepared) -> &'static str {
    let of_sequence = prepared.sequence.as_ref().map(|sequence| sequence.words());
    let own = of_sequence.or(prepared.maintenance.as_ref().map(|maintenance| maintenance.words()));
    own.unwrap_or(prepared.statement.as_ref().map_or("", words))
}

fn words(statement: &Statement) -> &'static str {
    match statement {
        Statement::CreateTable(_) => "CREATE TABLE",
        Statement::CreateView(_) => "CREATE VIEW",
        Statement::CreateSchema { .. } => "CREATE SCHEMA",
        Statement::Drop { object_type: ObjectType::Table, .. } => "DROP TABLE",
        Statement::Drop { object_type: ObjectType::View, .. } => "DROP VIEW",
        Statement::Drop { object_type: ObjectType::Sequence, .. } => "DROP SEQUENCE",
        Statement::Drop { object_type: ObjectType::Index, .. } => "DROP INDEX",
        Statement::Drop { .. } => "DROP SCHEMA",
        Statement::CreateIndex(_) => "CREATE INDEX",
        Statement::AlterIndex { .. } => "ALTER INDEX",
        Statement::Truncate(_) => "TRUNCATE TABLE",
        Statement::AlterTable(_) => "ALTER TABLE",
        Statement::Comment { .. } => "COMMENT",
        _ => "",
    }
}

/// Whether a statement is accepted inside a transaction that failed.
fn ends_failure(statement: &Statement) -> bool {
    matches!(statement, Statement::Rollback { .. } | Statement::Commit { .. })
}

/// Runs a statement that changes tables, views or schemas.
async fn define(session: &mut Session, statement: &Statement) -> Result<StatementResult, SqlError> {
    match statement {
        Statement::CreateTable(create) if create.external => {
            create_external_table::create_external(session, create).await
        }
        Statement::CreateTable(create) => create_drop::create_table(session, create).await,
        Statement::CreateView(create) => create_view::create_view(session, create).await,
        Statement::CreateSchema { schema_name, if_not_exists, with: None, options: None, .. } => {
            create_drop::create_schema(session, schema_name, *if_not_exists)
        }
        Statement::Drop { object_type, if_exists, names, cascade, .. } => {
            create_drop::drop_objects(session, object_type, *if_exists, names, *cascade)
        }
        Statement::Truncate(tables) => create_drop::truncate(session, tables),
        Statement::AlterTable(alter) => alter_table::alter(session, alter).await,
        Statement::Lock(lock) => lock_table::lock(session, lock),
        Statement::CreateIndex(create) => indexes::create(session, create),
        Statement::Comment { object_type, object_name, comment, if_exists: false } => {
            comment::comment(session, object_type, object_name, comment.as_deref()).await
        }
        Statement::AlterIndex { name, operation } => indexes::alter(session, name, operation),
        other => Err(create_drop::unsupported(other)),
    }
}
