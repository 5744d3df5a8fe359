//! CREATE VIEW: a view is stored as the text of its query, and planned where it is used.

use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::sql::sqlparser::ast::{CreateTableOptions, CreateView, Expr, SqlOption, Statement, Value};

use super::column_definitions::check_apart;
use super::new_object::{created, done, free};
use crate::SqlError;
use crate::engine::parse::ast;
use crate::engine::parse::ast::{folded, resolve};
use crate::engine::plan::access::table_object;
use crate::engine::plan::{column_labels, prepared, view_dependencies};
use crate::engine::{Session, StatementResult};
use crate::table::{Entry, ViewDefinition, catalog};

/// The option `security_barrier`, as PostgreSQL has it. Errors: 22023, 0A000 for another option.
fn barrier(options: &CreateTableOptions) -> Result<Option<bool>, SqlError> {
    let options = match options {
        CreateTableOptions::None => return Ok(None),
        CreateTableOptions::With(options) => options,
        _ => return Err(SqlError::unsupported("a view with options")),
    };
    let mut barrier = None;
    for option in options {
        let (name, value) = match option {
            SqlOption::Ident(name) => (folded(name), "true".to_owned()),
            SqlOption::KeyValue { key, value } => (folded(key), shown(value)),
            _ => return Err(SqlError::unsupported("a view with options")),
        };
        if name != "security_barrier" {
            return Err(SqlError::unsupported(format!("the option \"{name}\" of a view")));
        }
        barrier = Some(match value.to_ascii_lowercase().as_str() {
            "true" | "on" | "yes" | "1" => true,
            "false" | "off" | "no" | "0" => false,
            _ => {
                let message = format!("invalid value for boolean option \"security_barrier\": {value}");
                return Err(SqlError::statement("22023", message));
            }
        });
    }
    Ok(barrier)
}

/// The value of an option, without quotes.
fn shown(value: &Expr) -> String {
    match value {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        other => other.to_string(),
    }
}

/// Runs CREATE VIEW.
pub(crate) async fn create_view(session: &mut Session, create: &CreateView) -> Result<StatementResult, SqlError> {
    if create.materialized || create.temporary || !create.columns.is_empty() {
        return Err(SqlError::unsupported("a view that is materialized, temporary or names its columns"));
    }
    let odd = create.or_alter
        || create.secure
        || create.with_no_schema_binding
        || create.copy_grants
        || create.comment.is_some()
        || create.to.is_some()
        || create.params.is_some()
        || !create.cluster_by.is_empty();
    if odd {
        return Err(SqlError::unsupported("a view with options"));
    }
    let barrier = barrier(&create.options)?;
    let (schema, name) = match free(session, &create.name, create.or_replace || create.if_not_exists)? {
        Some(free) => free,
        None if create.if_not_exists => return done("CREATE VIEW"),
        None => resolve(&create.name)?,
    };
    let is_new = session.shared.catalog().get(&schema, &name).is_none();
    if let (Some(access), false) = (session.access(), is_new) {
        access.own("view", &schema, &name)?;
    }
    match session.shared.catalog().get(&schema, &name) {
        Some(Entry::View(_)) => {}
        None if !session.shared.catalog().is_taken(&schema, &name) => {}
        _ => return Err(SqlError::statement("42809", format!("\"{name}\" is not a view"))),
    }
    let query = Statement::Query(create.query.clone());
    let plan = prepared::plan_query(&session.context, &query).await?;
    let labelled = column_labels::labelled(&query, plan.schema().inner());
    check_apart(labelled.fields().iter().map(|field| field.name()))?;
    let catalog = session.shared.catalog();
    if let Some(Entry::View(old)) = catalog.get(&schema, &name) {
        if view_dependencies::reaches(
            &catalog,
            Statement::Query(create.query.clone()),
            &(schema.clone(), name.clone()),
        )? {
            return Err(view_dependencies::recursion(&name));
        }
        keeps_columns(session, &old.sql, &labelled).await?;
    }
    let (tree, view) = (session.engine.catalog, ViewDefinition { sql: create.query.to_string().into(), barrier });
    let transaction = session.changing("CREATE VIEW")?;
    transaction.defines = true;
    transaction.with(|transaction| catalog::put_view(transaction, tree, &schema, &name, &view))?;
    if is_new {
        created(session, "CREATE VIEW", table_object(&schema, &name))?;
    }
    done("CREATE VIEW")
}

/// Checks that a view that replaces another one has its columns, and perhaps more after them: other views may read
/// them.
async fn keeps_columns(session: &Session, old: &str, new: &Schema) -> Result<(), SqlError> {
    // A view that cannot be planned has no working readers.
    let query = ast::parse(old)?;
    let Ok(old) = prepared::plan_query(&session.context, &query).await else { return Ok(()) };
    for (at, field) in column_labels::labelled(&query, old.schema().inner()).fields().iter().enumerate() {
        let same = |other: &Arc<Field>| other.name() == field.name() && other.data_type() == field.data_type();
        if !new.fields().get(at).is_some_and(same) {
            let message = format!("cannot drop or change column \"{}\" of a view", field.name());
            return Err(SqlError::statement("42P16", message).with_hint("DROP VIEW first, then create it."));
        }
    }
    Ok(())
}
