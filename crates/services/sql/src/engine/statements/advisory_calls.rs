//! `SELECT pg_advisory_lock(1)` and its relatives: locks on numbers, which mean what the clients agree on.
//!
//! A function that waits would keep a thread of a query. So they are called as the only items of a SELECT without FROM, which is
//! run here; the functions that a plan finds under these names refuse every other call.

use std::sync::Arc;

use datafusion::arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, StringArray};
use datafusion::arrow::datatypes::{DataType, Field, Int64Type, Schema};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{CastKind, DataType as AstType, Expr, SelectItem, Statement};

use super::changed_table;
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::bare_calls::bare_calls;
use crate::engine::plan::column_labels;
use crate::engine::semantics::advisory_functions::{Act, FUNCTIONS};
use crate::engine::session::row_locks::{LockKey, LockMode};
use crate::engine::{Session, StatementResult};

/// One call.
struct Call {
    act: Act,
    arguments: Vec<Expr>,
}

/// The calls that a statement consists of; `None` if it is another statement.
pub(crate) fn calls(statement: &Statement) -> Option<AdvisoryCalls> {
    let calls = bare_calls(statement, |name| FUNCTIONS.iter().any(|(known, _)| *known == name))?
        .into_iter()
        .map(call)
        .collect::<Option<Vec<_>>>()?;
    Some(AdvisoryCalls(calls))
}

/// The calls of one statement.
pub(crate) struct AdvisoryCalls(Vec<Call>);

fn call((name, arguments): (String, Vec<Expr>)) -> Option<Call> {
    let (_, act) = FUNCTIONS.iter().find(|(known, _)| *known == name)?;
    let fits = if *act == Act::UnlockAll { arguments.is_empty() } else { matches!(arguments.len(), 1 | 2) };
    fits.then_some(Call { act: *act, arguments })
}

impl AdvisoryCalls {
    /// Runs the calls, one after the other.
    ///
    /// Errors: 40P01, 55P03, 53200; 42883 for two numbers of which one is no integer; those of the arguments.
    pub(crate) async fn run(
        self,
        session: &mut Session,
        statement: &Statement,
        parameters: &[ScalarValue],
    ) -> Result<StatementResult, SqlError> {
        let numbers = self.numbers(session, parameters).await?;
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        for (call, numbers) in self.0.iter().zip(&numbers) {
            let done = match numbers {
                Some(numbers) => Some(act(session, call.act, numbers).await?),
                // As PostgreSQL's, they do nothing with a NULL.
                None => None,
            };
            let column: ArrayRef = match call.act.returns() {
                DataType::Boolean => Arc::new(BooleanArray::from(vec![done])),
                _ => Arc::new(StringArray::from(vec![done.map(|_| "")])),
            };
            fields.push(Field::new("", column.data_type().clone(), true));
            columns.push(column);
        }
        let schema = column_labels::labelled(statement, &Arc::new(Schema::new(fields)));
        Ok(StatementResult::of_batch(RecordBatch::try_new(schema, columns)?, "SELECT"))
    }

    /// The arguments of each call; `None` where one is NULL.
    async fn numbers(&self, session: &Session, parameters: &[ScalarValue]) -> Result<Vec<Option<Vec<i64>>>, SqlError> {
        let all = self.0.iter().flat_map(|call| &call.arguments);
        let number = |(at, expr): (usize, &Expr)| {
            let cast = Expr::Cast {
                kind: CastKind::Cast,
                expr: Box::new(expr.clone()),
                data_type: AstType::BigInt(None),
                array: false,
                format: None,
            };
            ast::named(cast, &format!("${at}"))
        };
        let items: Vec<SelectItem> = all.enumerate().map(number).collect();
        if items.is_empty() {
            return Ok(self.0.iter().map(|_| Some(Vec::new())).collect());
        }
        let (schema, batches) =
            changed_table::collect(session, &ast::select(items, Vec::new(), None)?, parameters).await?;
        let values = changed_table::joined(&schema, &batches)?;
        let mut values = values.columns().iter().map(|column| {
            let column = column.as_primitive::<Int64Type>();
            (column.len() == 1 && column.is_valid(0)).then(|| column.value(0))
        });
        Ok(self
            .0
            .iter()
            .map(|call| values.by_ref().take(call.arguments.len()).collect::<Vec<_>>())
            .map(whole)
            .collect())
    }
}

fn whole(numbers: Vec<Option<i64>>) -> Option<Vec<i64>> {
    numbers.into_iter().collect()
}

/// The lock of one number, or of two.
fn key(numbers: &[i64]) -> Result<LockKey, SqlError> {
    let missing = || SqlError::statement("42883", "an advisory lock is on one bigint or on two integers");
    let short = |number: i64| i32::try_from(number).map_err(|_| missing());
    match *numbers {
        [number] => Ok(LockKey::Number(number)),
        [first, second] => Ok(LockKey::Pair(short(first)?, short(second)?)),
        _ => Err(missing()),
    }
}

fn mode(is_shared: bool) -> LockMode {
    if is_shared { LockMode::Shared } else { LockMode::Alone }
}

/// Does what a function does. Returns its result; true if it has none.
async fn act(session: &mut Session, act: Act, numbers: &[i64]) -> Result<bool, SqlError> {
    match act {
        Act::UnlockAll => {
            session.advisory.unlock_all();
            Ok(true)
        }
        Act::Unlock { is_shared } => Ok(session.advisory.unlock(key(numbers)?, mode(is_shared))),
        Act::Lock { is_shared, of_transaction, waits } => {
            let mode = mode(is_shared);
            let waits = waits.then(|| session.settings.now().lock_timeout());
            match (of_transaction, session.transaction.open()) {
                (false, _) => session.advisory.lock(key(numbers)?, mode, waits).await,
                (true, Some(transaction)) => {
                    let owner = transaction.row_locks().clone();
                    owner.lock_number(key(numbers)?, mode, waits).await
                }
                // It ends with the statement.
                (true, None) => {
                    let owner = session.engine.row_locks.owner(session.number());
                    owner.lock_number(key(numbers)?, mode, waits).await
                }
            }
        }
    }
}
