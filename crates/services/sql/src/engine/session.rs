//! [`Session`]: one connection.

use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::scalar::ScalarValue;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::Statement;
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;

use super::{Answer, Canceller, Engine, Prepared};
use crate::SqlError;

/// Where a session stands, as ReadyForQuery reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// No transaction: `I`.
    Idle,
    /// Inside a transaction: `T`.
    InTransaction,
    /// Inside a transaction in which a statement failed; only ROLLBACK is heard: `E`.
    Failed,
}

/// One connection: its transaction, its settings. Dropping it rolls back.
pub struct Session {
    engine: Arc<Engine>,
    user: String,
    context: SessionContext,
    canceller: Canceller,
    state: SessionState,
}

impl Session {
    pub(crate) fn new(engine: Arc<Engine>, user: &str) -> Session {
        let config = SessionConfig::new().with_target_partitions(engine.options.threads);
        let context = SessionContext::new_with_config(config);
        Session { engine, user: user.into(), context, canceller: Canceller::default(), state: SessionState::Idle }
    }

    /// The user.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// DataFusion's context of this session: register functions and schemas such as `pg_catalog` here. Run statements
    /// through [`execute`](Session::execute) only.
    pub fn context(&self) -> &SessionContext {
        &self.context
    }

    /// Parses a text of statements separated by semicolons and finds the types of parameters and results. `hints` are
    /// the parameter types that the client declared, for those it did.
    pub async fn prepare(&mut self, sql: &str, hints: &[Option<DataType>]) -> Result<Vec<Prepared>, SqlError> {
        let statements = Parser::parse_sql(&PostgreSqlDialect {}, sql)
            .map_err(|error| SqlError::statement("42601", error.to_string()))?;
        let mut prepared = Vec::new();
        for statement in statements {
            let (mut parameters, mut schema) = (hints.to_vec(), None);
            if let Statement::Query(_) = &statement {
                let plan = DfStatement::Statement(Box::new(statement.clone()));
                let plan = self.context.state().statement_to_plan(plan).await?;
                for (name, kind) in plan.get_parameter_types()? {
                    let at: usize = name.trim_start_matches('$').parse().unwrap_or(1);
                    parameters.resize(parameters.len().max(at), None);
                    parameters[at - 1] = parameters[at - 1].take().or(kind);
                }
                schema = Some(plan.schema().inner().clone());
            }
            prepared.push(Prepared { statement: Some(statement), parameters, schema });
        }
        Ok(prepared)
    }

    /// Runs a statement. `parameters` are the values of `$1`, `$2`, ...
    pub async fn execute(&mut self, prepared: &Prepared, parameters: &[ScalarValue]) -> Result<Answer, SqlError> {
        let Some(statement) = &prepared.statement else {
            return Ok(Answer::Done { tag: String::new() });
        };
        let Statement::Query(_) = statement else {
            return Err(SqlError::unsupported(format!("\"{statement}\"")));
        };
        let plan = DfStatement::Statement(Box::new(statement.clone()));
        let plan = self.context.state().statement_to_plan(plan).await?;
        let plan = if parameters.is_empty() { plan } else { plan.with_param_values(parameters.to_vec())? };
        let running = self.canceller.begin();
        let stream = self.context.execute_logical_plan(plan).await?.execute_stream().await;
        self.canceller.end(running);
        let stream = stream?;
        Ok(Answer::Rows { schema: stream.schema(), stream, tag: "SELECT" })
    }

    /// Where the session stands.
    pub fn state(&self) -> SessionState {
        self.state
    }

    /// Ends this session's statements from elsewhere.
    pub fn canceller(&self) -> Canceller {
        self.canceller.clone()
    }
}
