//! [`Prepared`]: a parsed statement, with its parameters and its result as far as they are known.
//!
//! A query's plan is kept with the catalog and the rights that it was made for, and used again while they are the same.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, SchemaRef};
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::execution::SessionState as Planning;
use datafusion::execution::context::SQLOptions;
use datafusion::logical_expr::LogicalPlan;
use datafusion::prelude::SessionContext;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{Query, SetExpr, Statement};

use super::access::Access;
use super::{column_labels, expansion};
use crate::SqlError;
use crate::engine::Canceller;
use crate::engine::parse::maintenance_parser::Maintenance;
use crate::engine::parse::rights::statement::RightsStatement;
use crate::engine::parse::row_locking::RowLocking;
use crate::engine::parse::sequence_parser::SequenceStatement;
use crate::engine::parse::{syntax_rewrite, value_subqueries};
use crate::engine::semantics::{cast_types, operators, type_inference};
use crate::table::Catalog;

/// One statement, ready to run in the session that prepared it.
#[derive(Clone, Debug, Default)]
pub struct Prepared {
    pub(crate) statement: Option<Statement>,
    /// The statement instead, if it is about roles and rights.
    pub(crate) rights: Option<Arc<RightsStatement>>,
    /// The statement instead, if it is CREATE SEQUENCE or ALTER SEQUENCE.
    pub(crate) sequence: Option<Arc<SequenceStatement>>,
    /// The statement instead, if it is VACUUM or ANALYZE.
    pub(crate) maintenance: Option<Arc<Maintenance>>,
    pub(crate) parameters: Vec<Option<DataType>>,
    pub(crate) schema: Option<SchemaRef>,
    pub(crate) plan: Option<KeptPlan>,
    /// The locks of the query's rows, which its statement and its plan do not know.
    pub(crate) locking: Option<RowLocking>,
    /// The text, of PREPARE only.
    pub(crate) text: Option<Arc<str>>,
}

/// A plan, and what it was made for.
#[derive(Clone, Debug)]
pub(crate) struct KeptPlan {
    pub(crate) catalog: Arc<Catalog>,
    /// The rights with which it was made.
    pub(crate) access: Option<Access>,
    pub(crate) plan: LogicalPlan,
}

impl Prepared {
    /// The types of `$1`, `$2`, ...; `None` for an unknown type: send text, and it is used as text. A `Decimal256` is a
    /// numeric of any size: send it with the digits that it has.
    pub fn parameter_types(&self) -> &[Option<DataType>] {
        &self.parameters
    }

    /// The columns of its rows; `None` for a statement without any.
    pub fn schema(&self) -> Option<&SchemaRef> {
        self.schema.as_ref()
    }

    /// Whether the text contains only blanks and comments.
    pub fn is_empty(&self) -> bool {
        self.statement.is_none() && self.rights.is_none() && self.sequence.is_none() && self.maintenance.is_none()
    }

    /// The parsed statement; `None` for an empty one, and for one that has a form of its own: about roles, rights, sequences, VACUUM.
    pub fn statement(&self) -> Option<&Statement> {
        self.statement.as_ref()
    }
}

/// Plans a query. Errors: 0A000 for one that changes something.
pub(crate) async fn plan_query(context: &SessionContext, statement: &Statement) -> Result<LogicalPlan, SqlError> {
    Ok(plan_with(context, statement, &[]).await?.0)
}

/// Plans a query whose parameters have these types where the client declared them. Returns the types of all parameters.
pub(crate) async fn plan_with(
    context: &SessionContext,
    statement: &Statement,
    declared: &[Option<DataType>],
) -> Planned {
    if let Statement::Query(query) = statement {
        refuse_changes(query)?;
    }
    let state = context.state();
    let planned = match plan(&state, statement.clone(), declared).await {
        Err(error) if column_labels::is_name_clash(&error) => match column_labels::with_distinct_names(statement) {
            Some(statement) => plan(&state, statement, declared).await.map_err(|other| first(error, other))?,
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

/// The columns of a plan after types were made equal, as they are when it runs: a CASE or a UNION of an integer and a
/// bigint is a bigint. Types that depend on the values of parameters stay as planned.
pub(crate) fn columns(context: &SessionContext, plan: &LogicalPlan) -> SchemaRef {
    columns_of(&context.state(), plan)
}

/// The same, in a state of a session.
pub(crate) fn columns_of(state: &Planning, plan: &LogicalPlan) -> SchemaRef {
    let analyzed = state.analyzer().execute_and_check(plan.clone(), state.config_options(), |_, _| {});
    analyzed.as_ref().unwrap_or(plan).schema().inner().clone()
}

/// What planning asks while it computes: whether it must end, and what names stand for.
pub(crate) struct Asked {
    pub(crate) canceller: Canceller,
    pub(crate) names: Arc<dyn Fn() -> Arc<Catalog> + Send + Sync>,
}

/// A plan, and the types of its parameters.
pub(crate) type Planned = Result<(LogicalPlan, Vec<Option<DataType>>), SqlError>;

/// DataFusion's plan of a query, which is rewritten where DataFusion would misunderstand it. Subqueries that are truth values are restated
/// where the planner would refuse them.
pub(crate) async fn plan(state: &Planning, statement: Statement, declared: &[Option<DataType>]) -> Planned {
    if !value_subqueries::has_any(&statement) {
        return plan_once(state, statement, declared).await;
    }
    if value_subqueries::is_needed(&statement) {
        return Box::pin(plan_restated(state, value_subqueries::restated(statement)?, declared)).await;
    }
    match plan_once(state, statement.clone(), declared).await {
        Err(error) if operators::is_refused_membership(&error) => match value_subqueries::restated(statement) {
            Ok(restated) => {
                Box::pin(plan_restated(state, restated, declared)).await.map_err(|other| first(error, other))
            }
            Err(_) => Err(error),
        },
        planned => planned,
    }
}

/// The error of the first of two ways to plan a statement, but where the second one was ended from outside: cancelled, out of time or memory.
fn first(error: SqlError, other: SqlError) -> SqlError {
    if other.code().starts_with('5') { other } else { error }
}

/// Plans a statement whose truth values were restated. Errors: 0A000 for one that names columns of an outer query, since the tables around
/// restated subqueries hide these from the planner.
async fn plan_restated(state: &Planning, statement: Statement, declared: &[Option<DataType>]) -> Planned {
    let planned = plan_once(state, statement, declared).await?;
    let mut hidden = false;
    planned.0.apply_with_subqueries(|node| {
        if let LogicalPlan::SubqueryAlias(alias) = node {
            hidden |= alias.alias.table() == value_subqueries::NAME && !alias.input.all_out_ref_exprs().is_empty();
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    if hidden { Err(SqlError::hidden_columns()) } else { Ok(planned) }
}

async fn plan_once(state: &Planning, mut statement: Statement, declared: &[Option<DataType>]) -> Planned {
    let asked = state.config().get_extension::<Asked>();
    let check = || asked.as_ref().map_or(Ok(()), |asked| asked.canceller.current().check());
    check()?;
    if let Some(asked) = &asked {
        expansion::check(&(asked.names)(), &statement)?;
    }
    column_labels::order_by_labels(&mut statement)?;
    syntax_rewrite::restate(&mut statement)?;
    let plan = state.statement_to_plan(DfStatement::Statement(Box::new(statement))).await?;
    check()?;
    let (plan, parameters) = type_inference::typed(plan, declared)?;
    check()?;
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
    /// Merges types of parameters. Types that the client declared stay; but a numeric without a size is replaced by the
    /// type that the statement requires.
    pub(crate) fn merge_parameters(&mut self, found: Vec<Option<DataType>>) {
        self.parameters.resize(self.parameters.len().max(found.len()), None);
        for (known, found) in self.parameters.iter_mut().zip(found) {
            *known = match known.take() {
                Some(kind) if kind != cast_types::NUMERIC => Some(kind),
                open => found.or(open),
            };
        }
    }
}
