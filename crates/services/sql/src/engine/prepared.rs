//! [`Prepared`]: a parsed statement, with what is known of its parameters and its result.
//!
//! A query's plan is kept with the catalog it was made for; it is used again as long as that is the catalog.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::execution::SessionState as Planning;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement};

use super::{Session, explain, gate, kinds, operators, parse, syntax, titles, untyped};
use crate::SqlError;
use crate::table::Catalog;

/// One statement, ready to run in the session that prepared it.
#[derive(Clone, Debug)]
pub struct Prepared {
    pub(crate) statement: Option<Statement>,
    pub(crate) parameters: Vec<Option<DataType>>,
    pub(crate) schema: Option<SchemaRef>,
    plan: Option<(Arc<Catalog>, LogicalPlan)>,
}

impl Prepared {
    /// The types of `$1`, `$2`, ...; `None` where nothing says: send text, and it is used as such. A `Decimal256` is a numeric of
    /// any size: send it with the digits that it has.
    pub fn parameter_types(&self) -> &[Option<DataType>] {
        &self.parameters
    }

    /// The columns of its rows; `None` for a statement without any.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Whether there is nothing in it but blanks and comments.
    pub fn is_empty(&self) -> bool {
        self.statement.is_none()
    }

    /// What was parsed; `None` for an empty statement.
    pub fn statement(&self) -> Option<&Statement> {
        self.statement.as_ref()
    }

    /// The plan of a query, if it was made for this catalog.
    pub(crate) fn plan(&self, catalog: &Arc<Catalog>) -> Option<LogicalPlan> {
        let (made_for, plan) = self.plan.as_ref()?;
        Arc::ptr_eq(made_for, catalog).then(|| plan.clone())
    }
}

impl Session {
    /// Parses a text of statements separated by semicolons and finds the types of parameters and results. `hints` are
    /// the parameter types that the client declared, for those it did. A text without any statement gives an empty list.
    /// An error fails the open transaction, as in PostgreSQL.
    pub async fn prepare(&mut self, sql: &str, hints: &[Option<DataType>]) -> Result<Vec<Prepared>, SqlError> {
        self.take_back();
        // What plans computes without a pause: it asks whether it shall end.
        let running = self.canceller.begin(self.settings.statement_timeout());
        let outcome = self.prepare_all(sql, hints).await;
        running.end();
        if outcome.is_err() {
            self.set_failed(true);
        }
        outcome
    }

    async fn prepare_all(&mut self, sql: &str, hints: &[Option<DataType>]) -> Result<Vec<Prepared>, SqlError> {
        if sql.len() > parse::LONG_BYTES {
            self.account.afford(parse::memory(sql))?;
        }
        let statements = parse::statements(sql)?;
        let mut prepared = Vec::with_capacity(statements.len());
        let alone = statements.len() == 1;
        for statement in statements {
            gate::check(&statement)?;
            prepared.push(self.prepare_one(statement, hints, alone).await?);
        }
        Ok(prepared)
    }

    /// Of several statements the later ones may need what the earlier ones make, so only a single one is planned here.
    async fn prepare_one(
        &mut self,
        statement: Statement,
        hints: &[Option<DataType>],
        alone: bool,
    ) -> Result<Prepared, SqlError> {
        let mut prepared = Prepared { parameters: hints.to_vec(), schema: None, plan: None, statement: None };
        let plans = alone && (self.block.is_none() || !self.has_failed());
        match &statement {
            Statement::Query(_) if plans => {
                self.refresh()?;
                let (plan, parameters) = self.plan_with(&statement, hints).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = Some(titles::titled(&statement, plan.schema().inner()));
                prepared.plan = Some((self.shared.catalog(), plan));
            }
            Statement::Explain { .. } => {
                let plain = explain::plain(&statement)?;
                if plans {
                    self.refresh()?;
                    prepared.merge_parameters(self.plan_with(&plain, hints).await?.1);
                }
                prepared.schema = Some(explain::schema());
            }
            Statement::Insert(insert) if plans => {
                self.refresh()?;
                let (parameters, schema) = self.describe_insert(insert).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = schema;
            }
            Statement::Update(update) if plans => {
                self.refresh()?;
                let (parameters, schema) = self.describe_update(update).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = schema;
            }
            Statement::Delete(delete) if plans => {
                self.refresh()?;
                let (parameters, schema) = self.describe_delete(delete).await?;
                prepared.merge_parameters(parameters);
                prepared.schema = schema;
            }
            Statement::ShowVariable { variable } => prepared.schema = Some(super::control::show_schema(variable)),
            _ => {}
        }
        prepared.statement = Some(statement);
        Ok(prepared)
    }

    /// Plans a query. Errors: 0A000 for one that changes something.
    pub(crate) async fn plan(&self, statement: &Statement) -> Result<LogicalPlan, SqlError> {
        Ok(self.plan_with(statement, &[]).await?.0)
    }

    /// The same with parameters of these types where the client declared them, and the types of all.
    pub(crate) async fn plan_with(&self, statement: &Statement, declared: &[Option<DataType>]) -> Planned {
        if let Statement::Query(query) = statement {
            refuse_changes(query)?;
        }
        let state = self.context.state();
        let planned = match plan(&state, statement.clone(), declared).await {
            Err(error) if titles::are_alike(&error) => match titles::apart(statement) {
                Some(statement) => plan(&state, statement, declared).await.map_err(|_| error)?,
                None => return Err(error),
            },
            planned => planned?,
        };
        SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false)
            .verify_plan(&planned.0)
            .map_err(|_| SqlError::unsupported("a query that changes something"))?;
        Ok(planned)
    }
}

/// A plan, and the types of its parameters.
pub(crate) type Planned = Result<(LogicalPlan, Vec<Option<DataType>>), SqlError>;

/// DataFusion's plan of a query, restated where it would be taken for something else.
pub(super) async fn plan(state: &Planning, mut statement: Statement, declared: &[Option<DataType>]) -> Planned {
    syntax::restate(&mut statement)?;
    let plan = state.statement_to_plan(DfStatement::Statement(Box::new(statement))).await?;
    let (plan, parameters) = untyped::typed(plan, declared)?;
    Ok((operators::meant(plan)?, parameters))
}

fn refuse_changes(query: &Query) -> Result<(), SqlError> {
    let changes = |body: &SetExpr| matches!(body, SetExpr::Insert(_) | SetExpr::Update(_) | SetExpr::Delete(_));
    if changes(&query.body) {
        return Err(SqlError::unsupported("WITH before INSERT, UPDATE or DELETE")
            .with_hint("Write the common table expression as a subquery."));
    }
    for cte in query.with.iter().flat_map(|with| &with.cte_tables) {
        if changes(&cte.query.body) {
            return Err(SqlError::unsupported("INSERT, UPDATE or DELETE inside WITH"));
        }
    }
    Ok(())
}

impl Prepared {
    /// What the client declared stays; a numeric of no certain size gives way to what the statement takes it for.
    fn merge_parameters(&mut self, found: Vec<Option<DataType>>) {
        self.parameters.resize(self.parameters.len().max(found.len()), None);
        for (known, found) in self.parameters.iter_mut().zip(found) {
            *known = match known.take() {
                Some(kind) if kind != kinds::NUMERIC => Some(kind),
                open => found.or(open),
            };
        }
    }
}
