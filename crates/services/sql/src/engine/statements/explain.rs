//! EXPLAIN and EXPLAIN ANALYZE: the plan of a query as rows of text, in one column `QUERY PLAN` as PostgreSQL's tools
//! expect it. The plan is DataFusion's physical plan; VERBOSE also shows how it was made, ANALYZE runs the query and
//! adds the cost of each step.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch, StringArray};
use datafusion::arrow::compute::cast;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::scalar::ScalarValue;
use datafusion::sql::sqlparser::ast::{
    AnalyzeFormat, AnalyzeFormatKind, DescribeAlias, Expr, Statement, UtilityOption, Value,
};

use super::changed_table;
use crate::SqlError;
use crate::engine::{Session, StatementResult};

/// The column of EXPLAIN.
pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new("QUERY PLAN", DataType::Utf8, false)]))
}

/// The statement with PostgreSQL's options in parentheses written as words. Errors: 0A000 for other formats and for
/// options that would change the output.
pub(crate) fn plain(statement: &Statement) -> Result<Statement, SqlError> {
    let mut statement = statement.clone();
    let Statement::Explain { describe_alias, analyze, verbose, format, options, statement: of, .. } = &mut statement
    else {
        return Ok(statement);
    };
    for option in options.take().unwrap_or_default() {
        let name = option.name.value.to_lowercase();
        match name.as_str() {
            "analyze" => *analyze = is_on(&option)?,
            "verbose" => *verbose = is_on(&option)?,
            "costs" | "timing" | "summary" | "buffers" | "settings" | "wal" if !is_on(&option)? => {}
            "costs" | "timing" | "summary" => {}
            "format" if option.arg.as_ref().is_some_and(|arg| arg.to_string().eq_ignore_ascii_case("text")) => {}
            _ => return Err(SqlError::unsupported(format!("EXPLAIN ({option})"))),
        }
    }
    match format.take() {
        None
        | Some(AnalyzeFormatKind::Keyword(AnalyzeFormat::TEXT) | AnalyzeFormatKind::Assignment(AnalyzeFormat::TEXT)) => {
        }
        Some(other) => return Err(SqlError::unsupported(format!("EXPLAIN {other}")).with_hint("Use FORMAT TEXT.")),
    }
    if *describe_alias != DescribeAlias::Explain {
        return Err(SqlError::unsupported(format!("{describe_alias}")).with_hint("Write EXPLAIN."));
    }
    if !matches!(of.as_ref(), Statement::Query(_)) {
        return Err(SqlError::unsupported("EXPLAIN of a statement that is not a query")
            .with_hint("EXPLAIN a SELECT with the same FROM and WHERE."));
    }
    Ok(statement)
}

/// Whether an option is on; without a value it is.
fn is_on(option: &UtilityOption) -> Result<bool, SqlError> {
    let text = match &option.arg {
        None => return Ok(true),
        Some(Expr::Value(value)) => match &value.value {
            Value::SingleQuotedString(text) => text.clone(),
            other => other.to_string(),
        },
        Some(other) => other.to_string(),
    };
    match text.to_lowercase().as_str() {
        "on" | "true" | "1" => Ok(true),
        "off" | "false" | "0" => Ok(false),
        _ => Err(SqlError::statement("22023", format!("\"{}\" is on or off, not {text}", option.name))),
    }
}

/// Runs EXPLAIN.
pub(crate) async fn explain(
    session: &Session,
    statement: &Statement,
    parameters: &[ScalarValue],
) -> Result<StatementResult, SqlError> {
    let (_, batches) = changed_table::collect(session, &plain(statement)?, parameters).await?;
    let mut texts = Vec::new();
    for batch in &batches {
        // DataFusion's columns: the kind of plan, and the plan.
        let columns = batch.columns().iter().map(|column| cast(column, &DataType::Utf8));
        let columns: Vec<ArrayRef> = columns.collect::<Result<_, _>>()?;
        for row in 0..batch.num_rows() {
            let cell = |at: usize| ScalarValue::try_from_array(&columns[at], row).map(|cell| cell.to_string());
            texts.push((cell(0)?, cell(1)?));
        }
    }
    let several = texts.len() > 1;
    let mut lines = Vec::new();
    for (which, text) in &texts {
        if several {
            lines.push(format!("{which}:"));
        }
        let indent = if several { "  " } else { "" };
        lines.extend(text.lines().map(|line| format!("{indent}{line}")));
    }
    let column: ArrayRef = Arc::new(StringArray::from(lines));
    let batch = RecordBatch::try_new(schema(), vec![column])?;
    Ok(StatementResult::of_batch(batch, "EXPLAIN"))
}
