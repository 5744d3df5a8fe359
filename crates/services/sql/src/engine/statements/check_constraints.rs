//! CHECK constraints: conditions that every row of a table fulfils, or is NULL for.
//!
//! ```text
//!   CREATE TABLE, ADD CONSTRAINT --one or none?--> text in the catalog
//!   a statement that writes rows --prepare: planned and compiled for the table--> kept by its session
//!   each batch of new rows       --violated?--> 23514
//! ```
//!
//! A condition is compiled once for a session, over the table's own columns: it names no other table and calls only
//! functions that return the same for the same arguments. PostgreSQL accepts others too, and then does not know when the
//! rows that are there violate it.
//!
//! As in PostgreSQL conditions are checked in the order of their names, behind NOT NULL, and before keys are searched.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use datafusion::arrow::datatypes::DataType;
use datafusion::catalog::MemTable;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::{Expr as Planned, LogicalPlan, Volatility};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::sql::sqlparser::ast::{CheckConstraint, Expr, Ident, SelectItem, VisitMut, VisitorMut};

use super::changed_table;
use super::new_object::{constraint_exists, numbered};
use crate::SqlError;
use crate::engine::Session;
use crate::engine::parse::ast::{self, folded};
use crate::engine::parse::check_conditions::columns_of;
use crate::engine::plan::compiled_checks::CompiledChecks;
use crate::engine::plan::prepared;
use crate::table::{Check, Table};
use crate::text::identifiers::quoted;

/// The name of the engine's own table whose columns a condition names.
const CHECKED: &str = "checked";

/// Compiles the conditions of a table for the rows that the open transaction writes into it.
pub(crate) async fn prepare(session: &Session, table: &Table) -> Result<(), SqlError> {
    let Some(transaction) = session.transaction.open() else { return Ok(()) };
    if table.checks.is_empty() || transaction.checks().of(table).is_some() {
        return Ok(());
    }
    let mut conditions = Vec::with_capacity(table.checks.len());
    for check in &table.checks {
        conditions.push(compiled(session, table, &ast::expression_of(&check.condition)?).await?);
    }
    transaction.checks().keep(table.id, CompiledChecks::new(table, conditions));
    Ok(())
}

/// Checks that the conditions have a meaning for the table's columns. Errors: those of the planner.
pub(crate) async fn compile_all(session: &Session, table: &Table) -> Result<(), SqlError> {
    for check in &table.checks {
        compiled(session, table, &ast::expression_of(&check.condition)?).await?;
    }
    Ok(())
}

/// A condition as DataFusion evaluates it. Errors: 42804 if it is no truth value; 0A000, 42703 and others.
async fn compiled(session: &Session, table: &Table, condition: &Expr) -> Result<Arc<dyn PhysicalExpr>, SqlError> {
    no_subquery(condition)?;
    let from = vec![ast::made(CHECKED, &table.name)?];
    let query = ast::select(vec![ast::named(condition.clone(), "$check")], from, None)?;
    session.shared.make(CHECKED, Some(MemTable::try_new(table.schema.clone(), vec![Vec::new()])?));
    let planned = prepared::plan_query(&session.context, &query).await;
    session.shared.make(CHECKED, None);
    let state = session.planning();
    let plan = state.analyzer().execute_and_check(planned?, state.config_options(), |_, _| {})?;
    let LogicalPlan::Projection(projection) = &plan else {
        return Err(SqlError::statement("42803", "aggregate functions are not allowed in check constraints"));
    };
    let input = &projection.input;
    if !matches!(input.as_ref(), LogicalPlan::SubqueryAlias(_) | LogicalPlan::TableScan(_)) {
        return Err(match contains(input, |plan| matches!(plan, LogicalPlan::Aggregate(_))) {
            true => SqlError::statement("42803", "aggregate functions are not allowed in check constraints"),
            false => SqlError::statement("42P20", "window functions are not allowed in check constraints"),
        });
    }
    let [expr] = projection.expr.as_slice() else { return Err(SqlError::unsupported("this CHECK")) };
    refuse_changing(expr)?;
    let condition = state.create_physical_expr(expr.clone(), input.schema())?;
    match condition.data_type(&table.schema)? {
        DataType::Boolean | DataType::Null => Ok(condition),
        other => {
            let kind = datafusion::arrow::datatypes::Field::new("", other, true);
            let kind = crate::table::SqlType::from_arrow(&kind)?.name();
            let message = format!("argument of CHECK must be type boolean, not type {kind}");
            Err(SqlError::statement("42804", message))
        }
    }
}

fn contains(plan: &LogicalPlan, is: impl Fn(&LogicalPlan) -> bool) -> bool {
    let mut found = false;
    let _ = plan.apply(|node| {
        found |= is(node);
        Ok(TreeNodeRecursion::Continue)
    });
    found
}

fn no_subquery(condition: &Expr) -> Result<(), SqlError> {
    ast::no_subquery(condition).map_err(|_| SqlError::statement("0A000", "cannot use subquery in check constraint"))
}

/// Refuses functions whose results change. Errors: 0A000.
fn refuse_changing(condition: &Planned) -> Result<(), SqlError> {
    let mut changing = None;
    condition.apply(|expr| {
        if let Planned::ScalarFunction(call) = expr
            && call.func.signature().volatility != Volatility::Immutable
        {
            changing = Some(call.func.name().to_owned());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    match changing {
        Some(name) => Err(SqlError::unsupported(format!("{name} in CHECK, whose result changes,"))),
        None => Ok(()),
    }
}

/// A column has another name: so has it in the conditions.
pub(crate) fn rename_column(table: &mut Table, from: &str, to: &str) -> Result<(), SqlError> {
    struct Rename<'a>(&'a str, &'a str);
    impl VisitorMut for Rename<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let name = match expr {
                Expr::Identifier(name) => Some(name),
                Expr::CompoundIdentifier(parts) => parts.last_mut(),
                _ => None,
            };
            if let Some(name) = name.filter(|name| folded(name) == self.0) {
                // As PostgreSQL shows it: in quotes only if it needs them.
                *name = match quoted(self.1) == self.1 {
                    true => Ident::new(self.1),
                    false => Ident::with_quote('"', self.1),
                };
            }
            ControlFlow::Continue(())
        }
    }
    for check in &mut table.checks {
        let mut condition = ast::expression_of(&check.condition)?;
        let _ = VisitMut::visit(&mut condition, &mut Rename(from, to));
        check.condition = condition.to_string();
    }
    Ok(())
}

/// Drops the conditions that name one of these columns, as PostgreSQL does.
pub(crate) fn drop_with_columns(table: &mut Table, dropped: &[usize]) -> Result<(), SqlError> {
    let mut kept = Vec::new();
    for check in std::mem::take(&mut table.checks) {
        let named = columns_of(&ast::expression_of(&check.condition)?, &table.columns);
        if !dropped.iter().any(|at| named.contains(at)) {
            kept.push(check);
        }
    }
    table.checks = kept;
    Ok(())
}

/// Adds constraints to a table in the order in which they are written. Errors: 42710; 0A000 and others.
pub(crate) async fn add(session: &Session, table: &mut Table, constraints: &[CheckConstraint]) -> Result<(), SqlError> {
    for constraint in constraints {
        if constraint.enforced.is_some() {
            return Err(SqlError::unsupported("CHECK with ENFORCED"));
        }
        compiled(session, table, &constraint.expr).await?;
        let given = constraint.name.as_ref().map(folded);
        // A name that is given later is not chosen before.
        let later = constraints.iter().filter_map(|other| other.name.as_ref().map(folded));
        let taken: BTreeSet<String> = table.constraint_names().cloned().collect();
        let name = match given {
            Some(name) if taken.contains(&name) => return Err(constraint_exists(table, &name)),
            Some(name) => name,
            None => {
                let later: BTreeSet<String> = later.collect();
                chosen(table, &constraint.expr, |name| !taken.contains(name) && !later.contains(name))
            }
        };
        table.checks.push(Check { name, condition: unqualified(&constraint.expr).to_string() });
        table.checks.sort_by(|one, other| one.name.cmp(&other.name));
    }
    Ok(())
}

/// The condition without the table's name before columns: the table may get another one.
fn unqualified(condition: &Expr) -> Expr {
    struct Strip;
    impl VisitorMut for Strip {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            if let Expr::CompoundIdentifier(parts) = expr
                && let Some(column) = parts.pop()
            {
                *expr = Expr::Identifier(column);
            }
            ControlFlow::Continue(())
        }
    }
    let mut condition = condition.clone();
    let _ = VisitMut::visit(&mut condition, &mut Strip);
    condition
}

/// PostgreSQL's name: of the table, and of the column if the condition names only one.
fn chosen(table: &Table, condition: &Expr, is_free: impl Fn(&str) -> bool) -> String {
    let columns = columns_of(condition, &table.columns);
    let column = columns.first().filter(|_| columns.len() == 1).map(|at| table.columns[*at].name.as_str());
    let plain = match column {
        Some(column) => format!("{}_{column}_check", table.name),
        None => format!("{}_check", table.name),
    };
    numbered(&plain, is_free)
}

/// Refuses a constraint that rows of the table violate. Errors: 23514.
pub(crate) async fn validate(session: &Session, table: &Table, name: &str) -> Result<(), SqlError> {
    let Some(check) = table.checks.iter().find(|check| check.name == name) else { return Ok(()) };
    let condition = ast::expression_of(&format!("not ({})", check.condition))?;
    let one = SelectItem::UnnamedExpr(ast::expression_of("1")?);
    let mut query = ast::select(vec![one], vec![ast::addressed(table, &table.name)?], Some(condition))?;
    ast::limit_to_one(&mut query);
    changed_table::sees_all(session, table)?;
    let (_, batches) = changed_table::collect(session, &query, &[]).await?;
    if batches.iter().all(|batch| batch.num_rows() == 0) {
        return Ok(());
    }
    let relation = &table.name;
    let message = format!("check constraint \"{name}\" of relation \"{relation}\" is violated by some row");
    Err(SqlError::value("23514", message).of_constraint(&table.schema_name, relation, name))
}
