//! Prepares statements: they are parsed, checked, and planned if that determines the types of parameters and results.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::sql::sqlparser::ast::Statement;

use super::{cursor_statements, explain, insert, point_query, prepared_statements, session_statements, update_delete};
use crate::SqlError;
use crate::engine::parse::{ParsedStatement, row_locking, statement_check};
use crate::engine::plan::prepared::KeptPlan;
use crate::engine::plan::{column_labels, prepared};
use crate::engine::{Prepared, Session, parse};

impl Session {
    /// Parses a text of statements separated by semicolons and determines the types of parameters and results. `hints`
    /// contains the parameter types that the client declared. A text without any statement returns an empty list. An
    /// error fails the open transaction, as in PostgreSQL.
    pub async fn prepare(&mut self, sql: &str, hints: &[Option<DataType>]) -> Result<Vec<Prepared>, SqlError> {
        self.prepare_as(sql, hints, true).await
    }

    /// The same for statements that run at once, and whose parameters and results nobody asks for: what running them finds out is not
    /// determined before.
    pub(crate) async fn prepare_to_run(&mut self, sql: &str) -> Result<Vec<Prepared>, SqlError> {
        self.prepare_as(sql, &[], false).await
    }

    async fn prepare_as(
        &mut self,
        sql: &str,
        hints: &[Option<DataType>],
        describes: bool,
    ) -> Result<Vec<Prepared>, SqlError> {
        self.transaction.take_back();
        // Planning computes without a pause: it checks whether it must end.
        let running = self.canceller.begin(self.settings.now().statement_timeout());
        let outcome = self.prepare_all(sql, hints, describes).await;
        running.end();
        if outcome.is_err() {
            self.transaction.failure().report();
        }
        outcome
    }

    async fn prepare_all(
        &mut self,
        sql: &str,
        hints: &[Option<DataType>],
        describes: bool,
    ) -> Result<Vec<Prepared>, SqlError> {
        if sql.len() > parse::LONG_BYTES {
            self.account.check_room(parse::memory(sql))?;
        }
        let statements = parse::parsed(sql)?;
        let mut prepared = Vec::with_capacity(statements.len());
        let alone = statements.len() == 1;
        let plans = describes && alone;
        for statement in statements {
            match statement {
                ParsedStatement::Rights(rights) => {
                    prepared.push(Prepared { rights: Some(Arc::new(rights)), ..Prepared::default() });
                }
                ParsedStatement::Sequence(sequence) => {
                    prepared.push(Prepared { sequence: Some(Arc::new(sequence)), ..Prepared::default() });
                }
                ParsedStatement::Maintenance(maintenance) => {
                    prepared.push(Prepared { maintenance: Some(Arc::new(maintenance)), ..Prepared::default() });
                }
                ParsedStatement::Other(statement) if matches!(*statement, Statement::Prepare { .. }) => {
                    if let Statement::Prepare { statement, .. } = &*statement {
                        prepared_statements::check(statement)?;
                    }
                    let text = alone.then(|| Arc::from(sql));
                    prepared.push(Prepared { statement: Some(*statement), text, ..Prepared::default() });
                }
                ParsedStatement::Other(statement) => {
                    prepared.push(self.prepare_checked(*statement, hints, plans).await?)
                }
            }
        }
        Ok(prepared)
    }

    /// Prepares the statement of a PREPARE.
    pub(super) async fn prepare_inner(
        &mut self,
        statement: Statement,
        hints: &[Option<DataType>],
    ) -> Result<Prepared, SqlError> {
        let mut prepared = self.prepare_checked(statement, hints, true).await?;
        self.settle(&mut prepared);
        Ok(prepared)
    }

    async fn prepare_checked(
        &mut self,
        mut statement: Statement,
        hints: &[Option<DataType>],
        alone: bool,
    ) -> Result<Prepared, SqlError> {
        let locking = row_locking::take(&mut statement)?;
        statement_check::check(&statement)?;
        let one = self.prepare_one(statement, hints, alone).await?;
        Ok(Prepared { locking, ..one })
    }

    /// If there are several statements, a later one may need the results of an earlier one, so only a single one is
    /// planned here, if `plans` says so.
    async fn prepare_one(
        &mut self,
        statement: Statement,
        hints: &[Option<DataType>],
        plans: bool,
    ) -> Result<Prepared, SqlError> {
        let mut prepared = Prepared { parameters: hints.to_vec(), ..Prepared::default() };
        let plans = plans && (!self.transaction.is_open() || !self.transaction.has_failed());
        match &statement {
            Statement::Query(_) if plans => {
                self.refresh()?;
                if let Some((parameters, schema)) = point_query::describe_query(self, &statement)? {
                    prepared.merge_parameters(parameters);
                    prepared.schema = Some(schema);
                    prepared.statement = Some(statement);
                    return Ok(prepared);
                }
                let (plan, parameters) = prepared::plan_with(&self.context, &statement, hints).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = Some(column_labels::labelled(&statement, plan.schema().inner()));
                let (catalog, access) = (self.shared.catalog(), self.access());
                prepared.plan = Some(KeptPlan { catalog, access, plan });
            }
            Statement::Explain { .. } => {
                let plain = explain::plain(&statement)?;
                if plans {
                    self.refresh()?;
                    prepared.merge_parameters(prepared::plan_with(&self.context, &plain, hints).await?.1);
                }
                prepared.schema = Some(explain::schema());
            }
            Statement::Insert(insert) if plans => {
                self.refresh()?;
                let (parameters, schema) = insert::describe_insert(self, insert).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = schema;
            }
            Statement::Update(update) if plans => {
                self.refresh()?;
                let (parameters, schema) = update_delete::describe_update(self, update).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = schema;
            }
            Statement::Delete(delete) if plans => {
                self.refresh()?;
                let (parameters, schema) = update_delete::describe_delete(self, delete).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = schema;
            }
            Statement::Fetch { name, into: None, .. } => prepared.schema = cursor_statements::schema(self, name),
            // One that is not there yet may be made before this runs.
            Statement::Execute { .. } => {
                let called = prepared_statements::called(self, &statement).ok();
                prepared.schema = called.and_then(|called| called.prepared.as_ref()?.schema.clone());
            }
            Statement::ShowVariable { variable } => prepared.schema = Some(session_statements::show_schema(variable)),
            _ => {}
        }
        prepared.statement = Some(statement);
        Ok(prepared)
    }

    /// Determines the final columns of a query's rows, for a client to which they are described before.
    pub(crate) fn settle(&self, prepared: &mut Prepared) {
        if let (Some(statement), Some(plan)) = (&prepared.statement, self.shared.kept_plan(prepared)) {
            prepared.schema = Some(column_labels::labelled(statement, &prepared::columns(&self.context, &plan)));
        }
    }
}
